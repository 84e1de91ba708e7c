"""Measures the cost of shapes and stacks in the window of PyTorch's profiler.

    python benchmarks/record_calls.py

A training of a small transformer on the CPU with one thread. Each round trains the same steps without a window, in a window of operators,
with shapes, with stacks, and with both. Prints the median over the rounds of processor time per step, its ratio to the step without a
window in the same round, and the bytes of the trace per step, as JSON text and compressed as it is written.

Last result: benchmarks/README.md. The cost per step depends on the number of operators, not on their size: a step with larger tensors has
smaller ratios.
"""

from __future__ import annotations

import gzip
import statistics
import tempfile
import time
from pathlib import Path

import torch
from postrun import capture
from postrun.native.profiling.plan import DetailedPlan, ProfilingPlan, Window

FIRST, STEPS, ROUNDS = 5, 20, 7
WINDOW = Window(FIRST, STEPS)
PLANS = {
    "no window": None,
    "operators": DetailedPlan(WINDOW),
    "with shapes": DetailedPlan(WINDOW, shapes=True),
    "with stacks": DetailedPlan(WINDOW, stacks=True),
    "with both": DetailedPlan(WINDOW, shapes=True, stacks=True),
}


class Training:
    """Trains a transformer of four layers, a step per call."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
        self.model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batch = torch.randn(8, 32, 128)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()


def measured(training: Training, detailed: DetailedPlan | None) -> tuple[float, int, int]:
    """Return processor time (s) and bytes of the trace per step.

    The bytes are those of the text and of the compressed file."""
    plan = None if detailed is None else ProfilingPlan(detailed=detailed)
    with tempfile.TemporaryDirectory() as folder:
        seconds = 0.0
        with capture.session(folder, sample_ms=0, gpu=False, profiler_config=plan):
            for i in range(FIRST + STEPS + 1):
                with capture.annotate("step", value=i):
                    began = time.process_time()
                    training.step()
                    seconds += time.process_time() - began if WINDOW.holds(i) else 0
        files = [file.read_bytes() for file in Path(folder).glob("*.pt.trace.json.gz")]
    return seconds / STEPS, sum(len(gzip.decompress(file)) for file in files) // STEPS, sum(map(len, files)) // STEPS


def main() -> None:
    """Print a table of all plans."""
    training = Training()
    rounds = []
    for number in range(ROUNDS + 1):
        result = {name: measured(training, plan) for name, plan in PLANS.items()}
        if number:  # the first one warms up
            rounds.append(result)
    print(f"{'':14}{'ms/step':>9}{'ratio':>8}{'KiB/step':>10}{'gzip KiB/step':>15}")
    for name in PLANS:
        ms = statistics.median(result[name][0] for result in rounds) * 1e3
        ratio = statistics.median(result[name][0] / result["no window"][0] for result in rounds)
        _, text, packed = rounds[-1][name]
        print(f"{name:14}{ms:9.1f}{ratio:8.2f}{text / 1024:10.0f}{packed / 1024:15.1f}")


if __name__ == "__main__":
    main()
