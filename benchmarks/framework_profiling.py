"""Measures the cost of a profiling configuration outside its windows.

    python benchmarks/framework_profiling.py

Processor time in nanoseconds, the median of 7: of one ``with annotate("Forward")`` and one ``with annotate("step", value=i)``, in a session
without a plan, before a plan's window, and after it; and of one ``optimizer.step()`` of nothing, where torch is installed.

Last result (CPython 3.11, virtual machine with 2 cores under load): see docs/capture.md, "What it costs".
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable

from postrun import capture
from postrun.native.profiling.plan import ProfilingPlan, PythonPlan, Window

PAIRS = 200_000
ROUNDS = 7


def median_ns(work: Callable[[int], None], count: int) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        work(count)
        times.append((time.process_time_ns() - began) / count)
    return statistics.median(times)


def ranges(count: int) -> None:
    annotate = capture.annotate
    for _ in range(count):
        with annotate("Forward"):
            pass


def steps(count: int) -> None:
    annotate = capture.annotate
    for i in range(count):
        with annotate("step", value=i):
            pass


def measured(name: str, plan: ProfilingPlan | None, first: int | None) -> None:
    """``first``: a step that begins before, so that the window is over."""
    with tempfile.TemporaryDirectory() as folder, capture.session(folder, sample_ms=0, gpu=False, profiler_config=plan):
        if first is not None:
            with capture.annotate("step", value=first):
                pass
        print(f"{name:28}{median_ns(ranges, PAIRS):8.0f}{median_ns(steps, PAIRS):8.0f}")


def optimizer(name: str, plan: ProfilingPlan | None) -> None:
    try:
        import torch
    except ImportError:
        return
    sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)

    def step(count: int) -> None:
        for _ in range(count):
            sgd.step()

    with tempfile.TemporaryDirectory() as folder, capture.session(folder, sample_ms=0, gpu=False, profiler_config=plan):
        step(10)
        print(f"{name:28}{median_ns(step, 5000):8.0f}")


if __name__ == "__main__":
    far, near = (ProfilingPlan(python=PythonPlan(Window(step, 1))) for step in (10**12, 1))
    print(f"{'':28}{'Forward':>8}{'step':>8}")
    measured("no plan", None, 0)
    measured("before its window", far, 0)
    measured("after its window", near, 5)
    print(f"\n{'':28}{'optimizer.step()':>8}")
    optimizer("no plan", None)
    optimizer("before its window", far)
    optimizer("after its window", near)
