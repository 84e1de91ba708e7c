"""Cases 0, 1, 2, 4 and 5: GPU activity is recorded, completely, at the right times, and only in windows."""

from __future__ import annotations

import os

from . import checks
from .bench import Bench, Done, Failed

OLDEST_CUPTI = 130000  # of the machine that the suite is meant for
WINDOWS, WINDOW_KERNELS, IDLE_MS = 20, 50, 2000
SPINS, SPIN_MS = 100, 10


def facts(bench: Bench) -> None:
    """The program's own CUPTI is found, and nothing prevents recording."""
    torch = bench.has("torch")
    done = bench.script("session", "mlp.py", "session", 2) if torch else bench.workload("session", "counts", 1)
    actual = checks.facts_of(done.tables("meta"))
    keys = ("cupti.version", "cupti.library", "cuda.driver_supports", "cuda.0.name", "cuda.0.uuid", "cupti.stays")
    bench.figures |= {key: actual[key] for key in keys if key in actual}
    bench.figures |= {key: done.report[key] for key in ("torch", "cuda") if key in done.report}
    bench.require(checks.capability(actual))
    version = int(actual.get("cupti.version", 0))
    bench.demand(version >= OLDEST_CUPTI, f"CUPTI {version} is older than {OLDEST_CUPTI}")
    library = os.path.realpath(actual.get("cupti.library", "none"))
    mapped = done.report.get("cupti")
    if bench.tools.stub:
        mapped = [os.path.realpath(bench.tools.stub["POSTRUN_CUPTI"])]
    if mapped is not None:
        bench.demand(mapped == [library], f"CUPTI is {library}; the program has mapped {mapped}")


def first_kernel(bench: Bench) -> None:
    """A training under session(gpu=True) is recorded without losses, in its window."""
    if bench.has("torch"):
        done = bench.script("training", "mlp.py", "session", 200, 3)
    else:
        done = bench.workload("training", "counts", bench.scaled(100))
    tables = done.tables("meta", "kernel", "loss", "api")
    actual = checks.facts_of(tables)
    windows = checks.windows_of(actual)
    bench.figures |= {"kernels": len(tables["kernel"]), "windows": len(windows), "calls": len(tables["api"])}
    bench.require(checks.capability(actual))
    bench.demand(len(tables["kernel"]) > 0, "no kernel was recorded")
    bench.demand(len(windows) == 1, f"{len(windows)} windows instead of 1")
    bench.require(checks.nothing_lost(tables))
    bench.require(checks.clean_records(actual))
    bench.require(checks.inside_window(tables["kernel"], windows))


def known_counts(bench: Bench) -> None:
    """Kernels, copies, memsets and synchronizations of a program that counts them."""
    done = bench.workload("counts", "counts", bench.scaled(1000, least=20))
    tables = done.tables()
    bench.figures |= {table: len(tables[table]) for table in ("kernel", "memcpy", "memset", "sync", "api")}
    bench.figures["pageable_copies"] = sum(bool(row["pageable"]) for row in tables["memcpy"])
    bench.require(checks.capability(checks.facts_of(tables)))
    bench.require(checks.known_work(tables, done.report))
    bench.require(checks.nothing_lost(tables))
    bench.keep(done, "kernels")


def clock(bench: Bench) -> None:
    """Kernels are between the host's times around them, and as long as CUDA events."""
    done = bench.workload("clock", "clock", bench.scaled(SPINS, least=5), SPIN_MS)
    tables = done.tables("meta", "kernel", "loss")
    bench.require(checks.spins(tables["kernel"], done.report["spins"]))
    bench.require(checks.untimed(tables))


def windows(bench: Bench) -> None:
    """Each of 20 windows has its kernels, and nothing is recorded between them.

    CUPTI is used with and without a clock.
    """
    count, kernels, idle = bench.scaled(WINDOWS, least=4), bench.scaled(WINDOW_KERNELS, least=5), bench.scaled(IDLE_MS)
    runs = {"default": {}, "without_clock": {"POSTRUN_CUPTI_CLOCK": "0"}, "with_clock": {"POSTRUN_CUPTI_CLOCK": "1"}}
    done = bench.together(
        {name: lambda name=name, more=more: bench.workload(name, "windows", count, kernels, idle, **more) for name, more in runs.items()}
    )
    for name, run in done.items():
        problems = _windows_problems(run, count, kernels)
        bench.figures[name] = problems or "exact"
        if name != "with_clock":  # only to know whether this CUPTI has the defect; the recorder does not use it there
            bench.require(problems, name)
    if "default" in done:
        bench.keep(done["default"], "windows")


def _windows_problems(done: Done, count: int, kernels: int) -> list[str]:
    try:
        tables = done.tables()
    except Failed as failure:
        return [str(failure)]
    actual = checks.facts_of(tables)
    spans = checks.windows_of(actual)
    problems = checks.capability(actual) + checks.equal(len(spans), count, "windows")
    return problems + checks.kernels_per_window(tables, spans, kernels) + checks.nothing_lost(tables)
