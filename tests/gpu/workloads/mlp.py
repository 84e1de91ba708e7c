"""A seeded training of a small MLP in PyTorch, recorded or profiled: mlp.py HOW [STEPS [STREAMS]]; prints a JSON report.

HOW: session (a recording session around everything), window (a window around the steps after the warm-up), profiler (torch.profiler around
the same steps), plain (neither).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

WARM_UP = 20  # steps before the window
WIDTH, BATCH = 512, 256
DEVICE = os.environ.get("ACCEPT_DEVICE", "cuda")  # cpu: to try the script itself


def training(torch: Any, streams: int) -> Any:
    """A function that does one step."""
    torch.manual_seed(7)
    kind = torch.bfloat16
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 16)]
    model = torch.nn.Sequential(*layers).to(DEVICE, kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs = torch.randn(BATCH, WIDTH).to(kind)
    if DEVICE == "cuda":
        inputs = inputs.pin_memory()
    side = [torch.cuda.Stream() for _ in range(streams)] if DEVICE == "cuda" else []

    def step() -> Any:
        batch = inputs.to(DEVICE, non_blocking=True)
        loss = model(batch).float().square().mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        for stream in side:
            with torch.cuda.stream(stream):
                torch.ones(4096, device=DEVICE).mul_(2)
        return loss

    return step


def synchronize(torch: Any) -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def profiled(profile: Any) -> dict[str, Any]:
    """Return torch.profiler's counts: kernels, bytes of copies, launch calls."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    kernels: dict[str, list[int]] = {}
    copies, sets, launches = [0, 0], [0, 0], 0
    for event in events:
        category, arguments = event.get("cat"), event.get("args", {})
        if category == "kernel":
            kernels.setdefault(event["name"], []).append(round(event["dur"] * 1000))
        elif category in ("gpu_memcpy", "gpu_memset"):
            sums = copies if category == "gpu_memcpy" else sets
            sums[0] += 1
            sums[1] += int(arguments.get("bytes", 0))
        elif category in ("cuda_runtime", "cuda_driver") and "aunchKernel" in event["name"]:
            launches += 1
    return {"kernels": kernels, "copies": copies, "sets": sets, "launches": launches}


def main(how: str, steps: int, streams: int) -> None:
    import torch

    report: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda}
    if how in ("session", "window"):
        from postrun import capture
    session: Any = nullcontext()
    if how == "session":
        session = capture.session(gpu=True)
    elif how == "window":
        session = capture.session(gpu="windows")
    with session:
        step = training(torch, streams)
        for _ in range(WARM_UP):
            step()
        synchronize(torch)
        around: Any = nullcontext()
        if how == "window":
            around = capture.gpu_window()
        elif how == "profiler":
            activities = torch.profiler.ProfilerActivity
            around = torch.profiler.profile(activities=[activities.CPU, activities.CUDA] if DEVICE == "cuda" else [activities.CPU])
        times = []
        with around as profile:
            for _ in range(steps):
                begin = time.perf_counter_ns()
                loss = step()
                synchronize(torch)
                times.append(time.perf_counter_ns() - begin)
        report["loss"] = float(loss.detach())
    if how == "profiler":
        report |= profiled(profile)
    report["median_step_ns"] = sorted(times)[len(times) // 2]
    report["cpu_s"] = time.process_time()
    mapped = {line.split(maxsplit=5)[5].strip() for line in Path("/proc/self/maps").read_text().splitlines() if "libcupti" in line}
    report["cupti"] = sorted(os.path.realpath(path) for path in mapped)
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200, int(sys.argv[3]) if len(sys.argv) > 3 else 0)
