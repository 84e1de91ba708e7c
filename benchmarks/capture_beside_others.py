"""Measures the cost of an annotation in a Python program, compared with other libraries.

    python benchmarks/capture_beside_others.py [--rounds 100]

Each kind is measured if it is installed (`pip install nvtx viztracer opentelemetry-sdk torch`), else left out with a message. They are
timed in turn, in batches of 100, too short to be interrupted often; of many batches the tenth percentile, the empty loop subtracted:
nanoseconds for one pair, and how many times `with annotate` that is. postrun records all of it; nvtx has no tool attached and records
nothing; spans of opentelemetry are made and given to nobody; torch's profiler and viztracer are switched on for their own batches only, and
what they need to begin and to end is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from capture_python import Plain
from postrun import capture

BATCH = 100
Kinds = dict[str, Callable[[], float]]


def timed(body: str, **names: Any) -> Callable[[], float]:
    """Seconds of a batch of ``body``, after one to get warm."""
    space: dict[str, Any] = {"clock": time.perf_counter, "batch": range(BATCH), **names}
    loop = f" for i in batch:\n  {body}\n"
    exec(f"def run():\n{loop} begun = clock()\n{loop} return clock() - begun", space)
    run: Callable[[], float] = space["run"]
    return run


def measured(kinds: Kinds, rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, run in kinds.items():
            times[kind].append(run())
    best = {kind: sorted(values)[len(values) // 10] / BATCH * 1e9 for kind, values in times.items()}
    empty = best.pop("empty")
    return {kind: value - empty for kind, value in best.items()}


def while_on(run: Callable[[], float], switched: Callable[[], contextlib.AbstractContextManager[Any]]) -> Callable[[], float]:
    def inside() -> float:
        with switched():
            return run()

    return inside


def nvtx() -> Kinds:
    module = importlib.import_module("nvtx")
    return {
        "nvtx push_range, pop_range": timed("m.push_range('step'); m.pop_range()", m=module),
        "with nvtx.annotate": timed("with m.annotate('step'): pass", m=module),
    }


def torch() -> Kinds:
    profiler = importlib.import_module("torch").profiler
    run = timed("with m('step'): pass", m=profiler.record_function)
    on = while_on(run, lambda: profiler.profile(activities=[profiler.ProfilerActivity.CPU]))
    return {"with record_function, profiler off": run, "with record_function, profiler on": on}


def viztracer() -> Kinds:
    tracer = importlib.import_module("viztracer").VizTracer(verbose=0)

    @contextlib.contextmanager
    def tracing() -> Iterator[None]:
        tracer.start()
        try:
            yield
        finally:
            tracer.stop()
            tracer.clear()

    return {"with viztracer log_event": while_on(timed("with m.log_event('step'): pass", m=tracer), tracing)}


def opentelemetry() -> Kinds:
    spans = importlib.import_module("opentelemetry.sdk.trace").TracerProvider().get_tracer("benchmark")
    return {"opentelemetry span, no exporter": timed("with m.start_as_current_span('step'): pass", m=spans)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    kinds: Kinds = {
        "empty": timed("pass"),
        "postrun begin, end": timed("m.begin('step'); m.end()", m=capture),
        "with postrun annotate": timed("with m.annotate('step'): pass", m=capture),
        "plain Python context manager": timed("with m('step'): pass", m=Plain),
        "contextlib.nullcontext (does nothing)": timed("with m('step'): pass", m=contextlib.nullcontext),
    }
    for library in (nvtx, torch, viztracer, opentelemetry):
        try:
            kinds |= library()
        except ImportError as error:
            print(f"{library.__name__}: left out ({error})", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder, capture.session(Path(folder), sample_ms=0):
        costs = measured(kinds, rounds)
        lost = capture.statistics()["lost"]
    print(f"Python {sys.version.split()[0]}, {rounds} rounds; {lost} records lost")
    for kind, cost in costs.items():
        print(f"{kind:40}{cost:>10.0f} ns{cost / costs['with postrun annotate']:>10.2f}")


if __name__ == "__main__":
    main()
