"""Measures the time to open a timeline, and of each frame while it is zoomed and moved, in headless Chromium.

usage: python benchmarks/timeline_frames.py [--events 300000] [--report REPORT.html] [--modules node_modules]

Without --report a page with that many made events (eight GPUs, steps, launches, annotations) and nothing else. 1,600 pixels wide, all
tracks unfolded, at one and at two device pixels per pixel. draw: the script's own time for a frame; frame: from one frame to the next, at
least the 16.7 ms of a display of 60 Hz; processor time: of the thread that draws, which other work on the machine changes least. The
last result is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>timeline</title><style>{style}</style>
<body class="html"><div id="timeline-view" class="timeline" hidden></div>
<script type="application/octet-stream" id="timeline-data">{data}</script><script>{script}</script></body></html>"""


def page(events: int, folder: Path) -> Path:
    sys.path.insert(0, str(HERE.parent / "tests" / "helpers"))
    from made_timeline import large
    from postrun.report_templates.timeline.encode import encode

    assets = HERE.parent / "report_templates" / "templates"
    style, script = ("".join((assets / name).read_text() for name in names) for names in (("style.css", "timeline.css"), ("timeline.js",)))
    page = folder / "timeline.html"
    data = encode(large(events))
    print(f"{events} events: {len(data) / 1e6:.2f} MB in the page")
    page.write_text(PAGE.format(style=style, data=data, script=script), encoding="utf-8")
    return page


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=300_000)
    arguments.add_argument("--report", type=Path)
    arguments.add_argument("--modules", default=os.environ.get("POSTRUN_NODE_MODULES", "node_modules"))
    options = arguments.parse_args()
    chromium, node = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("node")
    if chromium is None or node is None:
        sys.exit("chromium and node are needed")
    with tempfile.TemporaryDirectory() as folder:
        file = options.report or page(options.events, Path(folder))
        for scale in ("1", "2"):
            command = [node, str(HERE / "timeline_frames.js"), str(Path(options.modules).resolve()), chromium, str(file.resolve()), scale]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
            timings = json.loads(done.stdout)
            decode, first = timings["took"]
            print(f"x{scale}: {timings['events']} events, {timings['tracks']} rows; decode {decode:.0f} ms, first picture {first:.0f} ms")
            for word in ("zoomed", "moved"):
                times = timings[word]
                print(
                    f"  {word:7}"
                    + "".join(f"  {what}: median {statistics.median(times[what]):.1f}, worst {max(times[what]):.1f} ms" for what in times)
                )
            for word, times in timings["processor"].items():
                if times:
                    print(f"  processor time of a {word}: median {statistics.median(times):.1f}, worst {max(times):.1f} ms ({len(times)})")
            print(f"  search: {timings['searched']:.0f} ms")


if __name__ == "__main__":
    main()
