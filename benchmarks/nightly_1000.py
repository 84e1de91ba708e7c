"""Compares a night of many small runs with a loop of `postrun report`, and measures the memory of its workers.

usage: python benchmarks/nightly_1000.py [--runs 1000] [--sample 20] [--workers 2] [--steps 2]
           [--format html,pdf,json] [--keep FOLDER] [--profile]

Simulated runs of one GPU: a trace of ``--steps`` steps and a job.json, each with another seed. HTML, PDF and JSON (or ``--format``) of
every run, read from a folder and written to one. The loop reports ``--sample`` of the runs, one process after the other, half of them
before the night and half after it, and is scaled to all; the files of these runs must be the same bytes as those of the night. The memory
of the workers is looked at after every fiftieth run. ``--profile``: where the time of one warm report goes. The last result is in
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

AT = "2026-11-21T06:40:00"
FORMATS = ("html", "pdf", "json")


def write_runs(folder: Path, count: int, steps: int) -> None:
    """Runs 0000, 0001, ...; those that are there stay."""
    import json

    from postrun.simulate import Problems
    from postrun.simulate import job as job_module
    from postrun.simulate.kineto_writer import write_trace
    from postrun.simulate.training_run import simulate

    problems = Problems(straggler_rank=None)
    for number in range(count):
        run = folder / f"{number:04}"
        if run.exists():
            continue
        run.mkdir(parents=True)
        ranks = simulate(
            start=job_module.WINDOW_START, first_step=job_module.FIRST_PROFILED_STEP, seed=number + 1, steps=steps, problems=problems,
            nodes=1, gpus_per_node=1,
        )  # fmt: skip
        write_trace(run, ranks[0], world_size=1, gpus_per_node=1, job_name="small run")
        (run / "job.json").write_text(json.dumps({"name": f"small run {number}", "status": "completed"}), encoding="ascii")


def tasks_of(source: Path, out: Path, formats: tuple[str, ...] = FORMATS) -> list[Any]:
    from postrun.ingest.object_store.open import open_objects
    from postrun.nightly.discover import found_runs
    from postrun.nightly.model import ReportOptions, Task
    from postrun.option_values import generated_at

    at = generated_at(AT)
    assert at is not None
    runs = found_runs(open_objects(str(source)).list(), now_ns=2**62, settle_ns=0)
    return [Task(run, str(source), str(out), ReportOptions(formats=formats), at) for run in runs]


def spent() -> float:
    """Processor seconds of this process and of its children that have ended."""
    usages = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(one.ru_utime + one.ru_stime for one in usages)


def loop(runs: list[Path], out: Path, formats: tuple[str, ...]) -> tuple[float, float]:
    """Wall and processor seconds per run of `postrun report`."""
    begin, before = time.perf_counter(), spent()
    for run in runs:
        command = [sys.executable, "-P", "-m", "postrun.cli", "report", str(run), "-o", str(out / run.name), "-q", "--generated-at", AT]
        subprocess.run([*command, "--format", ",".join(formats)], check=True)
    return (time.perf_counter() - begin) / len(runs), (spent() - before) / len(runs)


def night(tasks: list[Any], workers: int) -> tuple[float, float, list[tuple[int, int]]]:
    """Return wall and processor seconds per run, and (runs, peak bytes) over time."""
    from postrun.nightly import engines
    from postrun.nightly.watch import memory_of
    from postrun.nightly.work import report_run

    begin, before, task_formats = time.perf_counter(), spent(), tasks[0].options.formats
    held = []
    with engines.executor("processes", workers=workers, timeout_s=600) as executor:
        futures = [executor.submit(report_run, task) for task in tasks]
        for done, future in enumerate(as_completed(futures), 1):
            row = future.result()
            assert row.state == "reported", row.reason
            assert row.written == tuple(sorted(f"report.{kind}" for kind in task_formats)), row.warnings
            if done % 50 == 0 or done == len(tasks):
                held.append((done, max((memory_of(pid) for pid in executor.worker_pids()), default=0)))  # type: ignore[attr-defined]
                rate = (time.perf_counter() - begin) / done
                print(f"# {done} runs, {rate:.2f} s each, {held[-1][1] / 2**20:.0f} MiB", file=sys.stderr, flush=True)
    return (time.perf_counter() - begin) / len(tasks), (spent() - before) / len(tasks), held


def different(runs: list[Path], looped: Path, nightly: Path, formats: tuple[str, ...]) -> list[str]:
    """Files of the loop that are not the same bytes as those of the night."""
    files = []
    for run in runs:
        folder = next(path for path in (nightly / "runs" / run.name).iterdir() if path.is_dir())
        for file in (f"report.{kind}" for kind in formats):
            if (looped / run.name / file).read_bytes() != (folder / file).read_bytes():
                files.append(f"{run.name}/{file}")
    return files


def profile(tasks: list[Any]) -> None:
    from postrun.nightly.work import report_run

    for task in tasks[:3]:
        report_run(task)
    profiler = cProfile.Profile()
    profiler.enable()
    for task in tasks[3:6]:
        report_run(task)
    profiler.disable()
    statistics_of = pstats.Stats(profiler)
    statistics_of.sort_stats("cumulative").print_stats(
        r"(postrun|/ingest|/analysis|/report_templates|/nightly|weasyprint/(__init__|document))", 70
    )
    statistics_of.sort_stats("tottime").print_stats(40)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--sample", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--format", type=lambda text: tuple(text.split(",")), default=FORMATS)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="postrun-nightly-") as scratch:
        source = (options.keep or Path(scratch)).absolute() / f"in-{options.steps}"
        write_runs(source, options.runs, options.steps)
        out = Path(scratch) / "out"
        tasks = [task for task in tasks_of(source, out, options.format) if int(task.run.id) < options.runs]
        if options.profile:
            profile(tasks)
            return
        runs = [source / f"{options.runs * n // options.sample:04}" for n in range(options.sample)]
        half = len(runs) // 2
        looped = Path(scratch) / "loop"
        loop(runs[:1], looped, options.format)  # files into the cache of the system
        first = loop(runs[:half], looped, options.format)
        wall, processor, held = night(tasks, options.workers)
        second = loop(runs[half:], looped, options.format)
        per_run = [statistics.mean(pair) for pair in zip(first, second, strict=True)]
        processors = len(os.sched_getaffinity(0))
        print(f"processors {processors}, workers {options.workers}, runs {len(tasks)}, load {os.getloadavg()[0]:.1f}")
        print(f"loop of postrun report: {per_run[0]:.2f} s wall, {per_run[1]:.2f} s processor per run")
        print(
            f"  before {first[0]:.2f}, after {second[0]:.2f}; measured on {len(runs)} runs; {per_run[0] * len(tasks) / 60:.0f} min for all"
        )
        print(f"night: {wall:.2f} s wall, {processor:.2f} s processor per run; {wall * len(tasks) / 60:.1f} min for all")
        print(f"ratio: {per_run[0] / wall:.2f} of wall time, {per_run[1] / processor:.2f} of processor time")
        print("MiB of the largest worker after runs: " + ", ".join(f"{done}: {count / 2**20:.0f}" for done, count in held))
        wrong = different(runs, looped, out, options.format)
        print(f"same bytes as the loop's files: {'yes' if not wrong else 'NO: ' + ', '.join(wrong)}")
        peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
        print(f"peak of this process: {int(peak[1]) / 1024 if peak else 0:.0f} MiB")


if __name__ == "__main__":
    main()
