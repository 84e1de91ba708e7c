"""Measures processor time of small runs: commands as a user starts them, imports included, and the parts of the analysis.

usage: python benchmarks/small_run.py [--runs 9]

Cases: ``postrun --help``; the JSON report of a trace with one kernel; the analysis of an empty store, after imports, with its SQL
statements and Polars collects. Commands run once before they are measured, so that Python has written its byte code, as pip does for an
installed package. Printed are the lowest and the median values: other work on the machine also adds processor time. The last result is in
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ONE_KERNEL = {
    "traceEvents": [
        {
            "ph": "X", "cat": "kernel", "name": "gemm_kernel", "pid": 0, "tid": 7, "ts": 1700000000000000.0, "dur": 10.0,
            "args": {"device": 0, "stream": 7, "correlation": 1},
        },
        {
            "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1699999999999990.0, "dur": 5.0,
            "args": {"correlation": 1},
        },
    ]
}  # fmt: skip


def command_s(arguments: list[str], environment: dict[str, str]) -> float:
    """Run a command of postrun; return its processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-P", "-m", "postrun", *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def empty_store_s(runs: int) -> list[float]:
    """Analyze an empty store; return the processor times in seconds."""
    from postrun.analysis import analyze
    from postrun.ingest.store.store import Store

    times = []
    with Store.temporary() as store:
        analyze(store)  # imports
        for _ in range(runs):
            begin = time.process_time()
            analyze(store)
            times.append(time.process_time() - begin)
    return times


def counted(trace: Path) -> dict[str, tuple[int, int]]:
    """Return the SQL statements and Polars collects of two stores."""
    from postrun.analysis import analyze
    from postrun.ingest import ingest
    from postrun.ingest.store.store import Store

    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from query_counts import query_counts

    counts = {}
    for name, opened in (("empty store", Store.temporary()), ("one kernel", ingest(trace))):
        with opened as store, query_counts() as count:
            analyze(store)
        counts[name] = (count.statements, count.collects)
    return counts


def line(name: str, times: list[float]) -> str:
    return f"{name:32} {1000 * min(times):7.0f} {1000 * statistics.median(times):7.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "one.json"
        trace.write_text(json.dumps(ONE_KERNEL))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "byte-code")
        report = ["report", str(trace), "--format", "json", "-o", str(Path(folder) / "report")]
        print(f"{'processor time, ms':32} {'lowest':>7} {'median':>7}")
        for name, arguments in (("postrun --help", ["--help"]), ("postrun report, one kernel, JSON", report)):
            command_s(arguments, environment)
            print(line(name, [command_s(arguments, environment) for _ in range(runs)]))
        print(line("analysis of an empty store", empty_store_s(runs)))
        for name, (statements, collects) in counted(trace).items():
            print(f"{name}: {statements} statements, {collects} collects")


if __name__ == "__main__":
    main()
