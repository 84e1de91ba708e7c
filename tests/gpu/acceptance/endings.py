"""Case 16: however a program ends, its file can be read, its exit code is kept, and records older than 1.5 s are in it."""

from __future__ import annotations

import signal
import struct
from collections.abc import Callable

from . import checks
from .bench import Bench, Done, exit_name

RUN_MS = 3500
AGE_NS = 1500 * checks.MS  # records that are older survive a kill
DELAY_NS = 3000 * checks.MS  # by which an end may be delayed
MOST_LAUNCHES = 65536  # as in plain.c
NATIVE = {
    "return": 5, "thread": 4, "_exit": 3, "exec": 6, "kill": -signal.SIGKILL, "terminate": -signal.SIGTERM, "abort": -signal.SIGABRT,
}  # fmt: skip
COMPLETE = ("return", "thread")  # ends at which nothing may be missing
PYTHON = {"fork": 0, "spawn": 0, "exception": 1, "thread": 0}


def endings(bench: Bench) -> None:
    jobs: dict[str, Callable[[], Done]] = {
        how: lambda how=how, code=code: bench.plain(how, "ends", how, RUN_MS, bench.folder / f"{how}.times", expect=code)
        for how, code in NATIVE.items()
    }
    if bench.has("torch"):
        for how, code in PYTHON.items():
            name = f"loader_{how}"
            jobs[name] = lambda name=name, how=how, code=code: bench.script(name, "loader.py", how, expect=code)
    else:
        bench.figures["torch"] = "not installed"
    for name, done in bench.together(jobs, at_once=6).items():
        if name in NATIVE:
            _native(bench, name, done)
        else:
            _loader(bench, name, done)


def _native(bench: Bench, how: str, done: Done) -> None:
    data = (bench.folder / f"{how}.times").read_bytes()
    times = struct.unpack(f"<{MOST_LAUNCHES}q", data)
    launched, end = [time for time in times[:-1] if time], times[-1]
    kernels = len(checks.named(done.tables("kernel")["kernel"], "postrun_alpha"))
    due = len(launched) if how in COMPLETE else sum(time <= end - AGE_NS for time in launched)
    bench.figures[how] = {"launched": len(launched), "recorded": kernels, "due": due, "ended_by": exit_name(done.code)}
    bench.demand(due > 0, f"{how}: nothing was launched early enough to be due")
    bench.demand(kernels >= due, f"{how}: {kernels} kernels recorded, {due} are due")
    delay = done.ended_ns - end
    bench.figures[how]["delay_ms"] = round(delay / checks.MS, 1)
    bench.require(checks.at_most(delay, DELAY_NS, f"{how}: delay of the end", " ns"))


def _loader(bench: Bench, name: str, done: Done) -> None:
    tables = done.tables("kernel", "loss")
    bench.figures[name] = {"kernels": len(tables["kernel"]), "files": len(done.files())}
    bench.demand(
        len(tables["kernel"]) >= done.report["batches"], f"{name}: {len(tables['kernel'])} kernels in {done.report['batches']} batches"
    )
    if name != "loader_exception":
        bench.require(checks.nothing_lost(tables), name)
