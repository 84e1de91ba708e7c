"""Measures how much longer a training loop takes while 1,000 annotations a second and the system are recorded.

    python benchmarks/capture_overhead.py [--pairs 120] [--seconds 0.5] [--threads 1]

A small network is trained with numpy, and with torch on the processor if it is installed: 10 annotations in a step of about 10 ms.
The loop runs in pairs, once as it is (the same code without the annotations), once in a session with the sampler at 500 ms; which comes
first is drawn. Of each pair the relative difference of the wall time of a step, and of the processor time of the whole process, in which
the threads that drain and sample are. Printed is the mean over all pairs with its 95% confidence interval (bootstrap, 10,000 draws), and
what the recorder's threads took. Wall time needs an idle machine; processor time bears other work, though caches are shared.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from postrun import capture

ANNOTATIONS = 10
STEP_S = 0.01
SETTLE_S = 0.1  # Seconds before each half, which leave out the work of a session at its start
DRAWS = 10_000
NUMPY = """
def steps(first, count):
    for i in range(first, first + count):
        with mark("step", value=i):
            with mark("load"):
                x = data[i % len(data)]
            with mark("forward"):
                with mark("hidden"):
                    h = np.maximum(x @ w1, 0)
                with mark("output"):
                    y = h @ w2
            with mark("loss"):
                d = (y - x) / len(x)
            with mark("backward"):
                with mark("grad_output"):
                    g2 = h.T @ d
                with mark("grad_hidden"):
                    g1 = x.T @ ((d @ w2.T) * (h > 0))
            with mark("optimizer"):
                w1[...] -= 1e-4 * g1
                w2[...] -= 1e-4 * g2
"""
TORCH = """
def steps(first, count):
    for i in range(first, first + count):
        with mark("step", value=i):
            with mark("load"):
                x = data[i % len(data)]
            with mark("forward"):
                with mark("hidden"):
                    h = torch.relu(one(x))
                with mark("output"):
                    y = two(h)
            with mark("loss"):
                loss = torch.nn.functional.mse_loss(y, x)
            with mark("zero_grad"):
                optimizer.zero_grad()
            with mark("backward"):
                loss.backward()
            with mark("optimizer"):
                with mark("update"):
                    optimizer.step()
"""
Steps = Callable[[int, int], None]


def plain_and_marked(source: str, names: dict[str, Any]) -> tuple[Steps, Steps]:
    """The loop without annotations, and with."""
    assert len(re.findall(r"with mark", source)) == ANNOTATIONS
    plain, marked = dict(names), {**names, "mark": capture.annotate}
    exec(re.sub(r"with mark\(.*\):", "if True:", source), plain)
    exec(source, marked)
    return plain["steps"], marked["steps"]


def numpy_loop(batch: int) -> tuple[Steps, Steps]:
    import numpy as np

    random_numbers = np.random.default_rng(0)
    data = [random_numbers.standard_normal((batch, 256)) for _ in range(16)]
    w1, w2 = random_numbers.standard_normal((256, 512)) / 16, random_numbers.standard_normal((512, 256)) / 16
    return plain_and_marked(NUMPY, {"np": np, "data": data, "w1": w1, "w2": w2})


def torch_loop(batch: int) -> tuple[Steps, Steps]:
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    data = [torch.randn(batch, 256) for _ in range(16)]
    inner, two = torch.nn.Linear(256, 512), torch.nn.Linear(512, 256)
    optimizer = torch.optim.SGD([*inner.parameters(), *two.parameters()], lr=1e-4)
    return plain_and_marked(TORCH, {"torch": torch, "data": data, "one": inner, "two": two, "optimizer": optimizer})


def timed(steps: Steps, first: int, count: int) -> tuple[float, float, float]:
    """Wall and processor time of a step, and that of it which other threads took."""
    wall, processor, thread = time.perf_counter(), time.process_time(), time.thread_time()
    steps(first, count)
    processor, thread = time.process_time() - processor, time.thread_time() - thread
    return (time.perf_counter() - wall) / count, processor / count, (processor - thread) / count


def sized(loop: Callable[[int], tuple[Steps, Steps]]) -> tuple[Steps, Steps, float]:
    """Return the loops with a batch of about STEP_S of processor time, and that time."""
    batch = 32
    while True:
        plain, marked = loop(batch)
        plain(0, 3)
        cost = statistics.median(timed(plain, 0, 5)[1] for _ in range(9))
        if cost > 0.8 * STEP_S:
            return plain, marked, cost
        batch = int(batch * min(4.0, max(1.1, STEP_S / cost)))


def interval(values: list[float]) -> tuple[float, float, float]:
    draw = random.Random(0)
    means = sorted(statistics.fmean(draw.choices(values, k=len(values))) for _ in range(DRAWS))
    return statistics.fmean(values), means[DRAWS // 40], means[-DRAWS // 40]


def measure(label: str, loop: Callable[[int], tuple[Steps, Steps]], pairs: int, seconds: float) -> None:
    plain, marked, cost = sized(loop)
    count = max(1, round(seconds / cost))
    differences: tuple[list[float], list[float]] = ([], [])
    rates, others, lost, first = [], [], 0, 0
    order = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(pairs):
            times = {}
            for recorded in order.sample([False, True], 2):
                if recorded:
                    with capture.session(Path(folder) / str(pair), sample_ms=500):
                        time.sleep(SETTLE_S)
                        times[True] = timed(marked, first, count)
                    counts = capture.statistics()
                    lost += counts["lost"]
                    rates.append(counts["recorded"] / (times[True][0] * count))
                    others.append(times[True][2] / times[True][0])
                else:
                    time.sleep(SETTLE_S)
                    times[False] = timed(plain, first, count)
                first += count
            for which in (0, 1):
                differences[which].append(times[True][which] / times[False][which] - 1)
    rate = statistics.median(rates)
    print(f"{label}: {cost * 1e3:.1f} ms a step, {pairs} pairs of {count} steps, {rate:.0f} annotations/s, {lost} lost")
    for name, values in zip(("wall time", "processor time"), differences, strict=True):
        mean, low, high = interval(values)
        verdict = "not measurable" if low <= 0 <= high else "less than none" if high < 0 else f"at most {high:.2%}"
        print(f"  {name:15} {mean:+.3%}, 95% interval {low:+.3%} to {high:+.3%}; median {statistics.median(values):+.3%}: {verdict}")
    more = "" if os.environ["OMP_NUM_THREADS"] == "1" else ", those of the arithmetic included"
    print(f"  threads of the recorder: {statistics.fmean(others):.4%} of a core{more}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=120)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each half of a pair")
    parser.add_argument("--threads", type=int, default=1, help="of the arithmetic")
    parser.add_argument("--loops", default="numpy,torch")
    options = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(options.threads)
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; threads of the arithmetic: {options.threads}")
    for name, loop in {"numpy": numpy_loop, "torch": torch_loop}.items():
        if name not in options.loops.split(","):
            continue
        if importlib.util.find_spec(name) is None:
            print(f"{name}: left out, it is not installed", file=sys.stderr)
        else:
            measure(name, loop, options.pairs, options.seconds)
    print(f"load after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
