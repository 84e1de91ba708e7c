"""Measures time and memory of a trace of five million events, compared with HolisticTraceAnalysis in the same run.

usage: python benchmarks/large_trace.py --trace TRACE.json.gz [--repeat 73] [--runs 3] [--hta /path/to/python/with/hta] [--keep FOLDER]

TRACE is any PyTorch profiler trace in the profiler's own layout; it is repeated with shifted times, correlations, external ids and step
numbers. Without --trace a rank of the simulated run is taken. Whole-process wall time and peak memory (largest single process) of
``postrun ingest`` and ``postrun report`` are printed as medians. The last result is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import gzip
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SLOT = re.compile(rb'("ts": |"correlation": |"External id": |ProfilerStep#)(\d+)')
# The peak of wait4 includes that of the process that started the command, so a small process starts it.
PEAK = """
import os, sys
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print()
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""
HTA = """
import sys, time
from hta.trace_analysis import TraceAnalysis
begin = time.time()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
print(f"load {time.time() - begin:.1f} s", flush=True)
analysis.get_temporal_breakdown(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
print(f"load and two analyses {time.time() - begin:.1f} s")
"""


def repeated(trace: bytes, repeat: int) -> Iterator[bytes]:
    """Repeat the events as text, each copy later, so that every digit stays exact."""
    begin = trace.index(b"[", trace.index(b'"traceEvents"')) + 1
    end = trace.rindex(b"]", 0, trace.index(b'"INFO"') if b'"INFO"' in trace else len(trace))
    body = trace[begin:end]
    pieces = SLOT.split(body)  # text, key, number, text, key, number, ..., text
    keys, numbers = pieces[1::3], [int(number) for number in pieces[2::3]]
    times = [n for key, n in zip(keys, numbers, strict=True) if key == b'"ts": ' and n > 0]
    step = {
        b'"ts": ': max(times) - min(times) + 10_000,
        b'"correlation": ': max((n for k, n in zip(keys, numbers, strict=True) if k == b'"correlation": '), default=0) + 1,
        b'"External id": ': max((n for k, n in zip(keys, numbers, strict=True) if k == b'"External id": '), default=0) + 1,
        b"ProfilerStep#": 1000,
    }
    yield trace[:begin]
    for copy in range(repeat):
        for index, (key, number) in enumerate(zip(keys, numbers, strict=True)):
            pieces[2 + 3 * index] = b"%d" % (number + copy * step[key])
        yield (b"," if copy else b"") + b"".join(pieces)
    yield trace[end:]


def measured(command: list[str]) -> tuple[float, float, str]:
    """Return wall seconds, peak MiB and output of ``command``; exit if it fails."""
    begin = time.perf_counter()
    small = [sys.executable, "-I", "-S", "-c", PEAK, *command]
    text = subprocess.run(small, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
    wall = time.perf_counter() - begin
    text, _, last = text.rstrip().rpartition("\n")
    code, peak_kib = (int(word) for word in last.split())
    if code:
        sys.exit(f"{' '.join(command)} ended with {code}:\n{text[-2000:]}")
    return wall, peak_kib / 1024, text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--repeat", type=int, default=73)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--keep", type=Path, help="folder for the large trace; made once, reused")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        source = options.trace
        if source is None:
            from postrun.simulate import write_demo

            write_demo(folder / "demo")
            source = sorted((folder / "demo" / "kineto").glob("*.json.gz"))[0]
        large = folder / f"rank-0.x{options.repeat}.json.gz"
        if not large.exists():
            with gzip.open(large, "wb", compresslevel=6) as out:
                for part in repeated(gzip.decompress(source.read_bytes()), options.repeat):
                    out.write(part)
        print(f"{source.name} x {options.repeat}: {large.stat().st_size / 1e6:.0f} MB gzipped")
        postrun = [sys.executable, "-P", "-m", "postrun.cli"]
        store = str(folder / "run.duckdb")
        results = {}
        for label, command in {
            "postrun ingest": [*postrun, "ingest", str(large), "-o", store],
            "postrun report (of the trace)": [*postrun, "report", str(large), "-o", str(folder / "report")],
            "postrun report (of the store)": [*postrun, "report", store, "-o", str(folder / "report")],
        }.items():
            runs = [measured(command) for _ in range(options.runs)]
            wall = statistics.median(run[0] for run in runs)
            results[label] = wall
            print(f"{label}: {wall:.1f} s, {max(run[1] for run in runs):.0f} MiB peak (median of {options.runs})", flush=True)
        if options.hta:
            wall, peak, text = measured([options.hta, "-c", HTA, str(large)])
            lines = [line for line in text.splitlines() if line.startswith("load")]
            print(f"HolisticTraceAnalysis: {wall:.1f} s, {peak:.0f} MiB peak ({'; '.join(lines)}; one run)")
            print(f"ratio to postrun ingest: {wall / results['postrun ingest']:.0f}")


if __name__ == "__main__":
    main()
