"""Measures time, memory and file sizes of the index of very many runs.

usage: python benchmarks/index_100000.py [--runs 100000] [--families 500] [--keep FOLDER]

Simulated done-markers in a local folder, each next to three report files. Measured: a first index (every marker is read), a second one with
a hundred new runs (only those are read), and the listing alone. The last result is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from pathlib import Path

DAY = 86_400 * 10**9
START = 1_700_000_000 * 10**9


def write_runs(out: Path, first: int, last: int, families: int) -> None:
    from postrun.analysis.rules.engine.catalogue import RULES
    from postrun.nightly.done_markers import marker
    from postrun.nightly.model import Row

    chance = random.Random(first)
    for number in range(first, last):
        family, night = number % families, number // families
        run_id = f"team-{family % 9}/job-{family}x/{night:05}"
        folder = out / "runs" / run_id
        report = folder / f"{number:016x}-0123456789ab"
        if report.exists():
            continue
        report.mkdir(parents=True)
        files = ("report.html", "report.json", "report.pdf")
        for name in files:
            (report / name).touch()
        row = Row(
            id=run_id, state="failed" if chance.random() < 0.01 else "reported", kind="traces", fingerprint=f"{number:064x}",
            options="0123456789ab", bytes=8 * 10**7, files=8, folder=report.relative_to(out).as_posix(), written=files, seconds=0.7,
            reported_at_ns=START + night * DAY, name=f"job-{family}x-{night:05}", labels={"team": str(family % 9)}, status="completed",
            started_ns=START + night * DAY - DAY // 2, duration_ns=DAY // 4, nodes=1, ranks=8, gpus=8, gpu_name="NVIDIA H100 80GB HBM3",
            headline="GPUs were busy 61% of the time.", gpu_active_percent=chance.uniform(50, 70), steps=40,
            step_median_ns=round(2e8 * chance.gauss(1, 0.01)), exposed_communication_percent=chance.uniform(5, 9), gpu_memory_percent=70.0,
            verdicts={rule: chance.choice(("NoIssuesFound",) * 9 + ("IssuesFound",)) for rule in RULES},
        )  # fmt: skip
        (folder / "done.json").write_bytes(marker(row))


def measured(what: str, out: Path) -> None:
    from postrun.ingest.object_store.open import open_objects
    from postrun.nightly.index import Book
    from postrun.nightly.places import INDEX_FILES

    objects, book = open_objects(out), Book()
    began = time.perf_counter()
    rows = book.known(objects)
    known = time.perf_counter()
    index = book.write(objects, rows)
    written = time.perf_counter()
    sizes = ", ".join(f"{name} {(out / name).stat().st_size / 1e6:.1f} MB" for name in INDEX_FILES)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(
        f"{what}: {index.total} runs; markers {known - began:.1f} s, index {written - known:.1f} s; {sizes}; peak {peak:.0f} MB", flush=True
    )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--runs", type=int, default=100_000)
    words.add_argument("--families", type=int, default=500)
    words.add_argument("--keep", type=Path)
    options = words.parse_args()
    from postrun.ingest.object_store.open import open_objects

    with tempfile.TemporaryDirectory() as folder:
        out = options.keep or Path(folder)
        write_runs(out, 0, options.runs, options.families)
        began = time.perf_counter()
        objects = sum(1 for _ in open_objects(out).list("runs/"))
        print(f"{options.runs} runs, {objects} objects; listed in {time.perf_counter() - began:.1f} s", flush=True)
        measured("first", out)
        write_runs(out, options.runs, options.runs + 100, options.families)
        measured("100 new", out)


if __name__ == "__main__":
    main()
