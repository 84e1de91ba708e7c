"""A program whose functions torch.compile compiles again: writes a trace and PyTorch's own counters of compilations.

    TORCH_TRACE=FOLDER python recompiling_program.py BACKEND TRACE

A module changes a number and the size of its input in each step, a function branches on texts until the limit of recompilations, one has a
graph break. The first compilation of the module comes before the profile. Prints a JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch._dynamo
import torch._dynamo.utils
from torch.profiler import ProfilerActivity, profile


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layer(x) * self.calls


def branching(x: torch.Tensor, flag: str) -> torch.Tensor:
    return x.cos() if flag == "a" else x.sin() if flag == "b" else x.tan()


def broken(x: torch.Tensor) -> torch.Tensor:
    x = x.relu()
    print(end="")
    return x.sin()


def main() -> None:
    backend, path = sys.argv[1:]
    model = torch.compile(Scaled(), backend=backend)
    branch, breaks = (torch.compile(function, backend=backend) for function in (branching, broken))
    model(torch.randn(4, 8)).sum().backward()
    schedule = torch.profiler.schedule(wait=0, warmup=0, active=9, repeat=1)  # without a schedule, steps are not recorded
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule) as profiler:
        for step in range(6):
            model(torch.randn(4 + step // 2, 8)).sum().backward()
            profiler.step()
        for flag in "abcdefghijkl":
            branch(torch.randn(3), flag)
        breaks(torch.randn(3))
    profiler.export_chrome_trace(path)
    compilations: list[dict[str, Any]] = [
        {
            "id": one.compile_id, "name": one.co_name, "line": one.co_firstlineno, "forward": one.is_forward, "failed": one.fail_type,
            "seconds": one.entire_frame_compile_time_s,
        }
        for one in torch._dynamo.utils.get_compilation_metrics()
    ]  # fmt: skip
    counters = {name: dict(values) for name, values in torch._dynamo.utils.counters.items()}
    print(json.dumps({"compilations": compilations, "counters": counters}))


if __name__ == "__main__":
    main()
