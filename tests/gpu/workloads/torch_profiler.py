"""torch.profiler next to recording windows in one process: torch_profiler.py ORDER; prints a JSON report of the phases.

ORDER: alone (no recording), before, inside, after, around (the window is inside of the profile), twice (two profiles in one window).
Each phase launches exactly LAUNCHES kernels.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

LAUNCHES = 100
DEVICE = os.environ.get("ACCEPT_DEVICE", "cuda")  # cpu: to try the script itself
PAUSE_S = 1.3  # longer than the recorder takes to notice another client


def main(order: str) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile

    tensor = torch.zeros(1024, device=DEVICE)
    phases: list[dict[str, Any]] = []
    state = {"window": 0, "client": 0}

    def phase() -> None:
        begin = time.time_ns()
        for _ in range(LAUNCHES):
            tensor.add_(1)
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        phases.append({"begin": begin, "end": time.time_ns(), "launched": LAUNCHES, **state})
        time.sleep(0.01)  # so that it is clear to which phase a record belongs

    @contextmanager
    def profiled() -> Iterator[None]:
        """A profile that is read when it has ended."""
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if DEVICE == "cuda" else [ProfilerActivity.CPU]
        state["client"] = 1
        begun = len(phases)
        with profile(activities=activities) as result:
            time.sleep(PAUSE_S)
            yield
        state["client"] = 0
        kernels = sum(event.device_type == torch.autograd.DeviceType.CUDA and "elementwise" in event.name for event in result.events())
        phases[begun]["profiled"] = kernels
        phases[begun]["profiled_launches"] = LAUNCHES * (len(phases) - begun)
        time.sleep(PAUSE_S)

    window: Callable[[], Any] = nullcontext
    session: Any = nullcontext()
    if order != "alone":
        from postrun import capture

        session = capture.session(gpu="windows", sample_ms=0)

        @contextmanager
        def recorded() -> Iterator[None]:
            with capture.gpu_window():
                state["window"] = 1
                yield
                state["window"] = 0

        window = recorded
    tensor.add_(1)
    with session:
        if order in ("alone", "before"):
            with profiled():
                phase()
        if order == "before":
            with window():
                phase()
        elif order == "inside":
            with window():
                phase()
                with profiled():
                    phase()
                phase()
        elif order == "after":
            with window():
                phase()
            with profiled():
                phase()
        elif order == "around":
            with profiled():
                phase()
                with window():
                    phase()
        elif order == "twice":
            with window():
                for _ in range(2):
                    with profiled():
                        phase()
    print(json.dumps({"torch": torch.__version__, "phases": phases}))


if __name__ == "__main__":
    main(sys.argv[1])
