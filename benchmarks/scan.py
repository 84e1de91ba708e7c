"""Measures how many events and bytes a second the two trace scanners read.

    python benchmarks/scan.py TRACE.json[.gz] [--repeat 73] [--python-repeat 1] [--save FILE]

The events of the trace are repeated in the native layout, each copy later in time and with further correlation ids,
"External id"s and step numbers, and fed to each scanner in chunks of 4 MB, without a file or decompression in between.
Prints one line per scanner: events, MB, seconds of wall and CPU time, events/s, MB/s; CPU time is the figure to compare
on a machine that does other things too. Results: scan.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

from postrun.ingest.chrome_trace.scan import Arg, Scanner, TraceScan, have_native
from postrun.ingest.chrome_trace.scan_python import PythonScanner

ARGS = {
    "correlation": Arg("correlation", "int"),
    "External id": Arg("external_id", "int"),
    "external id": Arg("external_id", "int"),
    "stream": Arg("stream", "int"),
    "device": Arg("device", "int"),
    "bytes": Arg("bytes", "int"),
    "Sequence number": Arg("sequence_number", "int"),
    "Fwd thread id": Arg("forward_thread", "int"),
    "Python id": Arg("python_id", "int"),
    "Python parent id": Arg("python_parent_id", "int"),
}
WIDE_ARGS = {
    "grid": Arg("grid", "int3"),
    "block": Arg("block", "int3"),
    "registers per thread": Arg("registers", "int"),
    "shared memory": Arg("shared_memory", "int"),
    "est. achieved occupancy %": Arg("occupancy", "int"),
}
SHIFTED = re.compile(r'("(?:ts|correlation|External id)":\s*|ProfilerStep#)(\d+(?:\.\d+)?)')
CHUNK = 4 << 20


def chunks(path: Path, repeat: int) -> Iterator[bytes]:
    """The text of the repeated trace, in chunks."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = raw.decode("utf-8", "replace")
    start = re.search(r'"traceEvents"\s*:\s*\[', text)
    begin = start.end() if start else text.index("[") + 1
    events, end = json.JSONDecoder(strict=False).raw_decode(text, begin - 1)
    pieces = SHIFTED.split(text[begin : end - 1].strip())
    times = [float(e["ts"]) for e in events if "ts" in e and e.get("ph") == "X"]
    shift = {'"ts"': int(max(times) - min(times)) + 1000, "ProfilerStep": 10, "": 1_000_000}
    shifts = [next(v for k, v in shift.items() if piece.startswith(k)) for piece in pieces[1::3]]
    numbers = [Decimal(piece) for piece in pieces[2::3]]
    yield b'{\n  "schemaVersion": 1,\n  "traceEvents": [\n  '
    for copy in range(repeat):
        pieces[2::3] = [str(n + by * copy) for n, by in zip(numbers, shifts, strict=True)]
        body = "".join(pieces).encode() + (b",\n  " if copy + 1 < repeat else b"")
        for i in range(0, len(body), CHUNK):
            yield body[i : i + CHUNK]
    yield b'\n  ],\n  "traceName": "repeated"\n}\n'


def measure(name: str, path: Path, repeat: int, scanner: Callable[..., Scanner] | None) -> None:
    scan = TraceScan(args=ARGS, wide_args=WIDE_ARGS, wide_categories={"kernel", "Kernel"}, scanner=scanner)
    size = wall = cpu = 0.0
    for chunk in chunks(path, repeat):
        before, cpu_before = time.perf_counter(), time.process_time()
        scan.feed(chunk)
        scan.take()
        wall += time.perf_counter() - before
        cpu += time.process_time() - cpu_before
        size += len(chunk) / 1e6
    scan.finish()
    events = sum(scan.event_counts.values())
    rate = f"{events / cpu / 1e6:.2f} million events/s, {size / cpu:.0f} MB/s, {cpu / events * 1e6:.2f} us/event"
    print(f"{name}: {events} events, {size:.0f} MB, wall {wall:.2f} s, CPU {cpu:.2f} s: {rate}; defects {scan.defects}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--repeat", type=int, default=73)
    parser.add_argument("--python-repeat", type=int, default=1)
    parser.add_argument("--save", type=Path, help="also write the repeated trace to this file")
    options = parser.parse_args()
    if options.save:
        with options.save.open("wb") as file:
            file.writelines(chunks(options.trace, options.repeat))
    if have_native():
        measure("C", options.trace, options.repeat, scanner=None)
    if options.python_repeat:
        measure("Python", options.trace, options.python_repeat, scanner=PythonScanner)


if __name__ == "__main__":
    main()
