"""Measures time and memory of all rules over the samples of 1,000 machines.

usage: python benchmarks/rules_1000_nodes.py [--quick] [--runs 3] [--variant gpu] [--keep FOLDER] [--stages]

8,000 series of 7,200 samples, one every 500 ms for an hour: 57.6 million rows. Variant ``gpu``: 8 GPUs of each machine; ``mixed``: 4 GPUs,
the memory of 3 and a core of each machine. The rows of the stores are in the order in which the hosted profiler's files are read: minute
by minute, machine by machine, all series of a machine at one time side by side. Every run is a process of its own on an existing store;
printed are medians of wall seconds and of the peak memory of the whole process, imports included. ``--stages`` also prints the time of
each rule. ``--quick`` takes 20 machines. The last result is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SAMPLES = 7200
PER_MINUTE = 120
STEP_NS = 500_000_000
BEGIN_NS = 1_700_000_040_001_000_000
VARIANTS = {
    "gpu": [("gpu_utilization", unit) for unit in range(8)],
    "mixed": [
        *(("gpu_utilization", unit) for unit in range(4)),
        *(("gpu_memory_used_percent", unit) for unit in range(3)),
        ("cpu_utilization", 0),
    ],
}


def make(path: Path, nodes: int, variant: str) -> None:
    """Write a store of ``nodes`` machines with pseudo-random values of two decimals."""
    import polars as pl
    from postrun.ingest.store import Store

    series = pl.DataFrame(VARIANTS[variant], schema={"metric": pl.String, "unit": pl.Int32}, orient="row").with_row_index("series")
    machines = pl.DataFrame({"node": pl.int_range(nodes, dtype=pl.Int32, eager=True)})
    with Store.create(path) as store:
        store.insert("run", {"name": path.stem, "status": "completed"})
        store.append("node", machines.select(id="node", hostname=pl.format("algo-{}", pl.col("node") + 1)))
        for minute in range(SAMPLES // PER_MINUTE):
            ticks = pl.DataFrame({"tick": pl.int_range(PER_MINUTE, eager=True) + minute * PER_MINUTE})
            rows = machines.join(ticks, how="cross").join(series, how="cross")
            noise = pl.struct("node", "series", "tick").hash(seed=1) % 10_001
            rows = rows.select(
                "node", "metric", "unit", time_ns=BEGIN_NS + pl.col("tick") * STEP_NS, value=noise.cast(pl.Float64) / 100
            )  # fmt: skip
            store.append("sample", rows)
        store.checkpoint()


def evaluate(path: Path, stages: bool) -> None:
    """Run all rules over a store; print verdicts, seconds and peak memory."""
    begin = time.perf_counter()
    from postrun.analysis.report import SystemUsage
    from postrun.analysis.rules.engine import engine
    from postrun.analysis.rules.engine.selection import select
    from postrun.analysis.rules.evidence.base import SampleRule
    from postrun.analysis.rules.evidence.blocks import SampleBlock, Samples
    from postrun.analysis.rules.evidence.run_data import RunData
    from postrun.ingest.store import Store

    spent: dict[str, float] = {}

    def timed(name: str, function: Any) -> Any:
        """Processor time in ``function`` without that of other timed ones in it."""

        def call(*arguments: Any) -> Any:
            start, before = time.process_time(), sum(spent.values())
            try:
                return function(*arguments)
            finally:
                inner = sum(spent.values()) - before
                spent[name] = spent.get(name, 0.0) + time.process_time() - start - inner

        return call

    selection = select()
    if stages:
        for selected in selection.rules:
            rule: Any = selected.rule
            for method in ("observe", "conclude") if isinstance(rule, SampleRule) else ("evaluate",):
                setattr(rule, method, timed(f"{rule.name}.{method}", getattr(rule, method)))
        of_block = ("_read", "series", "ends", "quantiles", "boxes", "snapshots")
        for cls, methods in {SampleBlock: of_block, Samples: ("__init__",)}.items():
            for method in methods:
                setattr(cls, method, timed(f"{cls.__name__}.{method}", getattr(cls, method)))
    with Store.open(path) as store:
        run = RunData(store)
        run.usage = SystemUsage((), (), None, None, (), (), None)  # measured apart
        results, _ = engine.evaluate(run, selection)
    wall = time.perf_counter() - begin
    if stages:
        for result in results:
            print(f"# {result.rule}: {result.verdict}, {result.triggered} triggered{f' ({result.reason})' if result.reason else ''}")
        for name, seconds in sorted(spent.items(), key=lambda item: -item[1])[:25]:
            print(f"# {seconds:7.2f} s {name}")
    failed = [result.rule for result in results if result.verdict == "Error"]
    if failed:
        print(f"# failed: {', '.join(failed)}")
    spent_and_held(wall)


def spent_and_held(wall: float) -> None:
    """Prints wall and processor seconds, and the peak memory of this process in MiB."""
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())  # ru_maxrss begins with the peak of the parent
    print(f"{wall:.2f} {time.process_time():.2f} {int(peak[1]) / 1024 if peak else 0:.0f}")


def usage(path: Path) -> None:
    """Compute the figures of all machines; print seconds and peak memory."""
    begin = time.perf_counter()
    from postrun.analysis.machine.system_usage import system_usage
    from postrun.ingest.store import Store

    with Store.open(path) as store:
        system_usage(store)
    spent_and_held(time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 machines")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--variant", choices=VARIANTS)
    parser.add_argument("--keep", type=Path, help="folder for the stores; made once, reused")
    parser.add_argument("--stages", action="store_true", help="time of each rule")
    parser.add_argument("--evaluate", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--usage", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.evaluate:
        evaluate(options.evaluate, options.stages)
        return
    if options.usage:
        usage(options.usage)
        return
    nodes = 20 if options.quick else 1000
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for variant in [options.variant] if options.variant else VARIANTS:
            path = folder / f"{variant}_{nodes}.duckdb"
            if not path.exists():
                make(path, nodes, variant)
            for what in ("evaluate", "usage"):
                print(f"{variant}, {measured(what, path, options)}: {nodes} machines, {nodes * len(VARIANTS[variant]) * SAMPLES:,} samples")


def measured(what: str, path: Path, options: argparse.Namespace) -> str:
    """Median seconds and peak memory of a process over the store at ``path``, as text."""
    results = []
    lines: list[str] = []
    for _ in range(options.runs):
        command = [sys.executable, "-P", __file__, f"--{what}", str(path), *(["--stages"] if options.stages else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        *lines, last = done.stdout.splitlines()
        results.append(tuple(map(float, last.split())))
    for line in lines:
        print(line)
    wall, processor, memory = (statistics.median(column) for column in zip(*results, strict=True))
    what = {"evaluate": "rules", "usage": "system usage"}[what]
    return f"{what}: {wall:.1f} s, {processor:.1f} s of processor time, {memory:.0f} MiB (median of {options.runs})"


if __name__ == "__main__":
    main()
