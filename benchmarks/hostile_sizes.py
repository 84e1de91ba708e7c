"""Measures memory and processor time of `postrun report` on inputs that are built to use a lot of both.

    python benchmarks/hostile_sizes.py [--only NAME ...]

Writes each input to a temporary folder, reports it as HTML and JSON in a process of its own, and prints peak resident memory,
processor time and exit code. Inputs: 8 kernels with names of 15 MB (plain and gzip), 100 such names in a gzip file of 1.5 MB, 60,000
devices, streams, threads and categories in one trace each, 1 GB of blanks behind a trace in 1 MB of gzip, a packed database whose
header claims 60 GB (refused with exit code 4).

Last result, with bounds (two busy cores, Python 3.11, 2026-11-23); before them 8 names took 1,830 MiB and 21 s, and the report of 60,000
devices did not end within 100 s:

    names_8         3.2 s   270 MiB
    names_8_gzip    3.1 s   272 MiB
    names_100_gzip 12.1 s   356 MiB
    devices         3.5 s   333 MiB
    streams         2.6 s   281 MiB
    threads         3.9 s   293 MiB
    categories      3.5 s   250 MiB
    blanks_1_gb     3.6 s   250 MiB
    database_60_gb  1.1 s   170 MiB
"""

from __future__ import annotations

import argparse
import gzip
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

START_US = 1_700_000_000_000_000
NAME_BYTES = 15_000_000
COUNT = 60_000


def _event(number: int, name: str = "k", category: str = "kernel", device: int = 0, stream: int = 7) -> str:
    args = {"device": device, "stream": stream, "correlation": number + 1}
    event = {"ph": "X", "cat": category, "name": name, "pid": device, "tid": stream, "ts": START_US + 10 * number, "dur": 3, "args": args}
    return json.dumps(event)


def _trace(path: Path, events: Iterator[str], blanks: int = 0) -> Path:
    with gzip.open(path, "wt", compresslevel=6) if path.suffix == ".gz" else path.open("w") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [' + _event(0, "aten::mm", "cpu_op"))
        for event in events:
            file.write(",\n" + event)
        for _ in range(blanks):
            file.write(" " * (1 << 20))
        file.write("]}")
    return path


def _names(count: int) -> Iterator[str]:
    return (_event(place, f"kernel_{place}" + "x" * NAME_BYTES) for place in range(count))


def _database(path: Path) -> Path:
    plain = path.with_suffix("")
    with sqlite3.connect(plain) as connection:
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end)")
        connection.execute("CREATE TABLE filler (text)")
        connection.executemany("INSERT INTO filler VALUES (?)", (["x" * 10_000_000] for _ in range(20)))
    connection.close()
    raw = bytearray(plain.read_bytes())
    raw[28:32] = (15_000_000).to_bytes(4, "big")
    plain.unlink()
    path.write_bytes(gzip.compress(bytes(raw)))
    return path


INPUTS: dict[str, Callable[[Path], Path]] = {
    "names_8": lambda folder: _trace(folder / "trace.json", _names(8)),
    "names_8_gzip": lambda folder: _trace(folder / "trace.json.gz", _names(8)),
    "names_100_gzip": lambda folder: _trace(folder / "trace.json.gz", _names(100)),
    "devices": lambda folder: _trace(folder / "trace.json", (_event(i, device=i) for i in range(COUNT))),
    "streams": lambda folder: _trace(folder / "trace.json", (_event(i, stream=i) for i in range(COUNT))),
    "threads": lambda folder: _trace(folder / "trace.json", (_event(i, "aten::mm", "cpu_op", stream=i) for i in range(COUNT))),
    "categories": lambda folder: _trace(folder / "trace.json", (_event(i, category=f"odd{i}") for i in range(COUNT))),
    "blanks_1_gb": lambda folder: _trace(folder / "trace.json.gz", iter([_event(1)]), blanks=1024),
    "database_60_gb": lambda folder: _database(folder / "a.sqlite.gz"),
}


def _report(source: Path, out: Path) -> tuple[int, float, float]:
    """Exit code, processor seconds and peak MiB of the report of ``source``."""
    program = (
        "import resource, subprocess, sys;"
        " code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode;"
        " used = resource.getrusage(resource.RUSAGE_CHILDREN);"
        " print(code, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)"
    )
    command = [sys.executable, "-P", "-m", "postrun.cli", "report", str(source), "-o", str(out), "--format", "html,json"]
    done = subprocess.run([sys.executable, "-c", program, *command], capture_output=True, text=True, check=True)
    code, seconds, mebibytes = done.stdout.split()
    return int(code), float(seconds), float(mebibytes)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure reports of inputs of hostile sizes.")
    parser.add_argument("--only", nargs="+", choices=INPUTS, default=list(INPUTS))
    for name in parser.parse_args().only:
        with tempfile.TemporaryDirectory() as folder:
            code, seconds, mebibytes = _report(INPUTS[name](Path(folder)), Path(folder) / "out")
            print(f"{name:15} {seconds:5.1f} s {mebibytes:6.0f} MiB  exit code {code}", flush=True)


if __name__ == "__main__":
    main()
