"""Measures time and memory of `postrun export` for a run of two million events, for each format.

usage: python benchmarks/export.py [--trace TRACE.json.gz] [--repeat 30] [--runs 3] [--formats perfetto,chrome] [--keep FOLDER]

TRACE (any PyTorch profiler trace; without it a rank of the simulated run) is repeated as large_trace.py does it and ingested first. Medians
of user time, wall time and peak memory of whole processes, imports included. The last result is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import gzip
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from large_trace import measured, repeated

NAMES = {"perfetto": "run.pftrace", "chrome": "run.json", "parquet": "parquet", "csv": "csv"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--formats", default="perfetto,chrome")
    parser.add_argument("--keep", type=Path, help="folder for the run store and the exports; the store is made once, reused")
    options = parser.parse_args()
    postrun = [sys.executable, "-P", "-m", "postrun"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        store = folder / "run.duckdb"
        if not store.exists():
            source = options.trace
            if source is None:
                from postrun.simulate import write_demo

                write_demo(folder / "demo")
                source = sorted((folder / "demo" / "kineto").glob("*.json.gz"))[0]
            large = folder / "large.json.gz"
            with gzip.open(large, "wb", compresslevel=1) as out:
                for part in repeated(gzip.decompress(source.read_bytes()), options.repeat):
                    out.write(part)
            subprocess.run([*postrun, "ingest", str(large), "-o", str(store), "-q"], check=True)
        for kind in options.formats.split(","):
            walls, users, peaks = [], [], []
            for _ in range(options.runs):
                before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
                wall, peak, text = measured([*postrun, "export", str(store), "-f", kind, "-o", str(folder / NAMES[kind])])
                users.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
                walls.append(wall)
                peaks.append(peak)
            size = sum(file.stat().st_size for file in (folder / NAMES[kind]).rglob("*")) or (folder / NAMES[kind]).stat().st_size
            print(text.strip())
            print(f"{kind}: {statistics.median(users):.1f} s user, {statistics.median(walls):.1f} s wall, {max(peaks):.0f} MiB, "
                  f"{size / 1e6:.0f} MB (medians of {options.runs})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
