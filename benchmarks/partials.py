"""Compares reading a run file by file, and merging the parts, with reading it in one process.

    python benchmarks/partials.py [--ranks 8] [--steps 40] [--repeat 9] [--parts-only] [--keep FOLDER]

The traces of a simulated run, one per rank, each repeated with shifted times (as in large_trace.py). Printed for the run: bytes of text,
gzipped, and of the Parquet tables of its parts, and the rows of these; wall and processor seconds and peak memory of the report (HTML and
JSON) in one process, unless --parts-only, of the map (every part in a process of its own, one after the other) with its rate, and of the
reduce; whether both reports are the same bytes. The last results are in benchmarks/README.md and docs/scale.md.
"""

from __future__ import annotations

import argparse
import gzip
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from large_trace import repeated

RUN = """
import pickle, resource, sys
work, task = pickle.load(open(sys.argv[1], "rb"))
work(task)
own = resource.getrusage(resource.RUSAGE_SELF)
peak = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0]
print(own.ru_utime + own.ru_stime, int(peak) / 1024)
"""


def measured(folder: Path, work: object, task: object) -> tuple[float, float, float]:
    """Return wall and processor seconds and peak MiB of ``work(task)`` in a process."""
    import pickle

    (folder / "task").write_bytes(pickle.dumps((work, task)))
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-P", "-c", RUN, str(folder / "task")], stdout=subprocess.PIPE, text=True, check=True)
    cpu, peak = map(float, done.stdout.split()[-2:])
    return time.perf_counter() - begin, cpu, peak


def simulated(folder: Path, ranks: int, steps: int, repeat: int) -> int:
    """Traces of a run below ``folder``; bytes of their text."""
    from postrun.simulate import write_demo

    with tempfile.TemporaryDirectory() as temporary:
        write_demo(Path(temporary) / "demo", steps=steps, nodes=max(1, ranks // 8), gpus_per_node=min(8, ranks))
        size = 0
        for rank, trace in enumerate(sorted((Path(temporary) / "demo" / "kineto").glob("*.json.gz"))):
            large = folder / trace.name
            with gzip.open(large, "wb", compresslevel=6) as out:
                for part in repeated(gzip.decompress(trace.read_bytes()), repeat):
                    size += out.write(part)
            print(f"rank {rank}: {large.stat().st_size / 1e6:.0f} MB gzipped", flush=True)
    (folder.parent.parent / "text-bytes").write_text(str(size))
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--parts-only", action="store_true", help="without the report in one process")
    parser.add_argument("--keep", type=Path, help="folder of the traces; made once, reused")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        keep = options.keep or Path(temporary)
        source = keep / "source"
        if not source.is_dir():
            (source / "run").mkdir(parents=True)
            simulated(source / "run", options.ranks, options.steps, options.repeat)
        compare(source, Path(temporary), int((keep / "text-bytes").read_text()), one_process=not options.parts_only)


def compare(source: Path, folder: Path, text: int, *, one_process: bool) -> None:
    from postrun.ingest.object_store.open import open_objects
    from postrun.nightly import partials, work
    from postrun.nightly.discover import found_runs
    from postrun.nightly.model import ReportOptions, Task

    (run,) = found_runs(open_objects(source).list(), now_ns=2**62, settle_ns=0)
    task = Task(run, str(source), str(folder / "one"), ReportOptions(formats=("html", "json")), 0)
    print("wall s, processor s, peak MiB")
    if one_process:
        print("one process: {:.1f} {:.1f} {:.0f}".format(*measured(folder, work.report_run, task)), flush=True)
    task = Task(run, str(source), str(folder / "parts"), task.options, 0)
    parts = [measured(folder, partials.read_part, part) for part in partials.parts(task)]
    walls, cpus, peaks = zip(*parts, strict=True)
    print(f"map: {len(parts)} parts; together {sum(walls):.1f} {sum(cpus):.1f}; longest {max(walls):.1f}; {max(peaks):.0f}", flush=True)
    tables = list((folder / "parts").rglob("*.parquet"))
    size = sum(path.stat().st_size for path in tables)
    print(f"{text / 1e6:.0f} MB of text, {run.bytes / 1e6:.0f} MB gzipped, {size / 1e6:.0f} MB of tables")
    print(f"map per core: {text / 1e6 / sum(cpus):.1f} MB/s of text, {run.bytes / 1e6 / sum(cpus):.2f} MB/s gzipped")
    sizes(tables)
    print("reduce: {:.1f} {:.1f} {:.0f}".format(*measured(folder, partials.report_parts, task)), flush=True)
    print(
        "report.html, report.json in MB:",
        *(next((folder / "parts").rglob(f"report.{kind}")).stat().st_size / 1e6 for kind in ("html", "json")),
    )
    if one_process:
        for kind in ("html", "json"):
            single, two = (next((folder / name).rglob(f"report.{kind}")).read_bytes() for name in ("one", "parts"))
            print(f"the same bytes of report.{kind}: {single == two}")


def sizes(tables: list[Path]) -> None:
    """Print bytes and rows of the tables by kind."""
    import pyarrow.parquet as pq

    kinds: dict[str, list[Path]] = {}
    for path in tables:
        kinds.setdefault(re.sub(r".*\.(\w+)\.parquet", r"\1", path.name), []).append(path)
    for kind, paths in sorted(kinds.items()):
        rows = sum(pq.read_metadata(path).num_rows for path in paths)
        print(f"  {kind}: {sum(path.stat().st_size for path in paths) / 1e6:.1f} MB, {rows:,} rows")


if __name__ == "__main__":
    main()
