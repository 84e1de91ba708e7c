"""Compares reading a run file by file, and merging the parts, with reading it in one process.

    python benchmarks/partials.py [--ranks 8] [--repeat 9] [--keep FOLDER]

The traces of a simulated run, one per rank, each repeated with shifted times (as in large_trace.py). Printed for the run: bytes of text,
gzipped, and of the Parquet tables of its parts; wall and processor seconds and peak memory of the report in one process, of the map
(every part in a process of its own, one after the other) and of the reduce; whether both reports are the same bytes. Then whether tables
sorted by time would be smaller, and how quickly the same rows come into a run store from Parquet and from a recording's own file.
The last result is in benchmarks/README.md.
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


def simulated(folder: Path, ranks: int, repeat: int) -> int:
    """Traces of a run below ``folder``; bytes of their text."""
    from postrun.simulate import write_demo

    with tempfile.TemporaryDirectory() as temporary:
        write_demo(Path(temporary) / "demo", nodes=max(1, ranks // 8), gpus_per_node=min(8, ranks))
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
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--keep", type=Path, help="folder of the traces; made once, reused")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        keep = options.keep or Path(temporary)
        source = keep / "source"
        if not source.is_dir():
            (source / "run").mkdir(parents=True)
            simulated(source / "run", options.ranks, options.repeat)
        compare(source, Path(temporary), int((keep / "text-bytes").read_text()))


def compare(source: Path, folder: Path, text: int) -> None:
    from postrun.ingest.object_store.open import open_objects
    from postrun.nightly import partials, work
    from postrun.nightly.discover import found_runs
    from postrun.nightly.model import ReportOptions, Task

    (run,) = found_runs(open_objects(source).list(), now_ns=2**62, settle_ns=0)
    task = Task(run, str(source), str(folder / "one"), ReportOptions(formats=("json",)), 0)
    print("wall s, processor s, peak MiB")
    print("one process: {:.1f} {:.1f} {:.0f}".format(*measured(folder, work.report_run, task)), flush=True)
    task = Task(run, str(source), str(folder / "parts"), task.options, 0)
    parts = [measured(folder, partials.read_part, part) for part in partials.parts(task)]
    walls, cpus, peaks = zip(*parts, strict=True)
    print(f"map: {len(parts)} parts; together {sum(walls):.1f} {sum(cpus):.1f}; longest {max(walls):.1f}; {max(peaks):.0f}", flush=True)
    tables = list((folder / "parts").rglob("*.parquet"))
    size = sum(path.stat().st_size for path in tables)
    print(f"{text / 1e6:.0f} MB of text, {run.bytes / 1e6:.0f} MB gzipped, {size / 1e6:.0f} MB of tables")
    sizes(tables, folder)
    print("reduce: {:.1f} {:.1f} {:.0f}".format(*measured(folder, partials.report_parts, task)), flush=True)
    single, two = (next((folder / name).rglob("report.json")).read_bytes() for name in ("one", "parts"))
    print(f"the same bytes: {single == two}")


def sizes(tables: list[Path], folder: Path) -> None:
    """Bytes of the tables by kind; and if their rows were sorted by time."""
    import duckdb

    kinds: dict[str, list[Path]] = {}
    for path in tables:
        kinds.setdefault(re.sub(r".*\.(\w+)\.parquet", r"\1", path.name), []).append(path)
    for kind, paths in sorted(kinds.items()):
        line = f"  {kind}: {sum(path.stat().st_size for path in paths) / 1e6:.1f} MB"
        if kind in ("device_event", "host_event", "annotation"):
            rows = sum(duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall()[0][0] for path in paths)
            total = 0
            for path in paths:
                target = folder / "sorted.parquet"
                settings = f"TO '{target}' (FORMAT parquet, COMPRESSION zstd, PARQUET_VERSION V2)"
                duckdb.sql(f"COPY (FROM '{path}' ORDER BY {'tid' if kind != 'device_event' else 'device, stream'}, start_ns) {settings}")
                total += target.stat().st_size
            line += f", {rows:,} rows; sorted by thread or stream and time: {total / 1e6:.1f} MB"
        print(line)


if __name__ == "__main__":
    main()
