"""Measures the cost of data-loader and Python profiling outside and inside their windows.

    python benchmarks/loader_and_python_profiling.py [--rounds 60]

torch is not needed: the wrappers of its functions are put around one that does nothing. Each kind is timed in turn, in processor time of
the thread, in batches; of many batches the median, without the call that is wrapped. Nanoseconds for one call.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from postrun.native.profiling.engine import dataloader
from postrun.native.profiling.engine.dataloader import LoaderPart
from postrun.native.profiling.engine.part import FileLimits
from postrun.native.profiling.engine.python_profile import PythonPart
from postrun.native.profiling.plan import LoaderPlan, PythonPlan, Timer, Window

BATCH = 2000
FLOOR = "a call that does nothing"


class Iterators:
    """Stands for torch's iterators, which have these settings."""

    _num_workers = 2
    _pin_memory = False
    _prefetch_factor = 2

    def nothing(self) -> int:
        return 1


def a_batch(function: Callable[[Any], Any], argument: Any) -> float:
    begun = time.thread_time_ns()
    for _ in range(BATCH):
        function(argument)
    return (time.thread_time_ns() - begun) / BATCH


def loader(folder: Path) -> dict[str, Callable[[], float]]:
    part, iterator = LoaderPart(LoaderPlan(Window(first_step=7, steps=1)), folder, FileLimits()), Iterators()
    following = part._around(dataloader.ITERATION, Iterators.nothing)
    fetch = dataloader._Fetches(part._recorder).around(lambda fetcher, index: fetcher.nothing())
    state = part._recorder.flag.state

    def at(mode: int, function: Callable[[Any], Any]) -> Callable[[], float]:
        def timed() -> float:
            state[0] = mode
            function(iterator)
            return a_batch(function, iterator)

        return timed

    def fetched(fetcher: Any) -> int:
        return int(fetch(fetcher, 0))

    return {
        FLOOR: lambda: a_batch(Iterators.nothing, iterator),
        "next of a loader, before the window": at(dataloader._AHEAD, following),
        "next of a loader, in the window: recorded": at(dataloader._OPEN, following),
        "next of a loader, after it, where another wrapper keeps ours": at(dataloader._CLOSED, following),
        "fetch of a worker, before the window": at(dataloader._AHEAD, fetched),
        "fetch of a worker, after it": at(dataloader._CLOSED, fetched),
    }


def python(folder: Path, timer: Timer) -> Callable[[], float]:
    def timed() -> float:
        part = PythonPart(PythonPlan(Window(first_step=0), timer=timer), folder)
        part.open(0)
        try:
            return a_batch(Iterators.nothing, None)
        finally:
            part._end()

    return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        kinds = loader(Path(name))
        timers: tuple[Timer, ...] = ("total_time", "cpu_time", "off_cpu_time")
        for timer in timers:
            kinds[f"a Python call under cProfile, {timer}"] = python(Path(name), timer)
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, run in kinds.items():
                times[kind].append(run())
    median = {kind: statistics.median(values) for kind, values in times.items()}
    print(f"Python {sys.version.split()[0]}, {rounds} rounds of {BATCH}; {FLOOR}: {median[FLOOR]:.0f} ns")
    for kind, value in median.items():
        if kind != FLOOR:
            print(f"{value - median[FLOOR]:9.0f} ns  {kind}")


if __name__ == "__main__":
    main()
