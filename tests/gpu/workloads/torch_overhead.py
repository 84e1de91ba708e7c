"""The cost of a window for a training, in one process: torch_overhead.py STEPS; times of blocks before, in and after windows."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from postrun import capture

sys.path.insert(0, str(Path(__file__).resolve().parent))  # Python may run with -P
from mlp import synchronize, training

BLOCKS = 7
Block = tuple[float, float]


def main(steps: int) -> None:
    import torch

    blocks: dict[str, list[Block]] = {"before": [], "on": [], "off": []}
    with capture.session(gpu="windows", sample_ms=0):
        step = training(torch, 0)

        def block() -> Block:
            """Median time of a step in ns, processor time per step in ns."""
            times = []
            cpu = time.process_time_ns()
            for _ in range(steps):
                begin = time.perf_counter_ns()
                step()
                synchronize(torch)
                times.append(time.perf_counter_ns() - begin)
            return float(sorted(times)[len(times) // 2]), (time.process_time_ns() - cpu) / steps

        block()
        for _ in range(BLOCKS):
            blocks["before"].append(block())
        for _ in range(BLOCKS):
            with capture.gpu_window():
                blocks["on"].append(block())
            blocks["off"].append(block())
    print(json.dumps(blocks))


if __name__ == "__main__":
    main(int(sys.argv[1]))
