"""Measures the processor time of each stage of a report, and the sizes of its files.

``python -P benchmarks/report_stages.py [SOURCE...]``; without a source of the demo and of a run of about 100,000 events. The stages run one
after the other in this process, without the overlap of `postrun report`, whose PDF is made in parallel with the rest. The PDF has three
stages: loading WeasyPrint with the fonts and the style, the layout, and drawing with writing the file.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from pathlib import Path

import pikepdf
from postrun.analysis import analyze
from postrun.analysis.options import Options
from postrun.analysis.timeline.timelines import timeline_for
from postrun.ingest import ingest
from postrun.report_templates.output.pages import page
from postrun.report_templates.output.pdf import Job, Press
from postrun.report_templates.output.section_list import context
from postrun.simulate import write_demo

MADE_AT_NS = 1_780_000_000 * 10**9


def silent(text: str, fraction: float | None) -> None:
    """No progress is shown."""


class Stages:
    """Processor time since the stage before."""

    def __init__(self) -> None:
        self._last = time.process_time()

    def done(self, name: str) -> None:
        now = time.process_time()
        print(f"  {name:<12}{now - self._last:6.2f} s", flush=True)
        self._last = time.process_time()


def measure(title: str, sources: list[str], folder: Path) -> None:
    print(title)
    stages = Stages()
    with ingest(sources, progress=silent) as store:
        stages.done("ingest")
        report = analyze(store, Options(generated_at_ns=MADE_AT_NS))
        stages.done("analysis")
        timeline = timeline_for(store, report, ("html", "pdf"), 300_000)
        stages.done("timeline")
    values = context(report, silent, timeline)
    stages.done("drawing")
    html = page(values, "html").encode("utf-8", "replace")
    stages.done("HTML")
    data = report.to_json().encode("utf-8", "backslashreplace")
    stages.done("JSON")
    (folder / "page.html").write_text(page(values, "pdf"), encoding="utf-8", errors="replace")
    (folder / "report.json").write_bytes(data)
    output = folder / "report.pdf"
    gc.disable()  # as in the process of the PDF
    press = Press()
    stages.done("PDF: load")
    # It waits for the attachment between layout and drawing.
    press.write(Job(str(folder / "page.html"), str(folder / "report.json"), str(output), MADE_AT_NS), lambda: stages.done("PDF: layout"))
    stages.done("PDF: draw")
    gc.enable()
    with pikepdf.open(output) as document:
        pages = len(document.pages)
    sizes = f"HTML {len(html) / 1e6:.2f} MB, JSON {len(data) / 1e6:.2f} MB, PDF {output.stat().st_size / 1e6:.2f} MB"
    print(f"  {timeline.events_total if timeline else 0:,} events; {sizes}, {pages} pages")


def main(sources: list[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if sources:
            measure(" ".join(sources), sources, folder)
            return
        for title, steps in (("demo", 40), ("half as many steps", 20)):
            write_demo(folder / title, steps=steps)
            measure(title, [str(folder / title)], folder)


if __name__ == "__main__":
    main(sys.argv[1:])
