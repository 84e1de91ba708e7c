"""Whether a second Python thread runs on while a window closes behind a long kernel: gil.py; prints its longest pause."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import threading
import time

from postrun import capture

KERNEL_S = 1.5
STEPS = 6  # the window is steps 2 and 3


def device() -> tuple[object, object]:
    """Functions that launch a long kernel, and that wait for the device."""
    if "STUB_BUSY" in os.environ or importlib.util.find_spec("torch") is None:
        driver = ctypes.CDLL("libcuda.so.1")
        assert driver.cuInit(0) == 0
        driver.cuCtxSetCurrent(ctypes.c_void_p(1))
        return (lambda: None), (lambda: None)
    import torch

    torch.zeros(1, device="cuda")
    rate = torch.cuda.get_device_properties(0).clock_rate * 1000 if hasattr(torch.cuda.get_device_properties(0), "clock_rate") else 1.7e9
    return (lambda: torch.cuda._sleep(int(KERNEL_S * rate))), torch.cuda.synchronize


def main() -> None:
    launch, wait = device()
    time.sleep(1)  # until the recorder has found CUDA
    pauses: list[float] = []
    over = threading.Event()

    def count() -> None:
        last = time.monotonic()
        while not over.is_set():
            time.sleep(0.001)
            now = time.monotonic()
            pauses.append(now - last)
            last = now

    counting = threading.Thread(target=count)
    counting.start()
    closing = 0.0
    for number in range(STEPS):
        with capture.annotate("step", value=number):
            if number == 3:
                launch()  # type: ignore[operator]
                begin = time.monotonic()
        if number == 3:
            closing = time.monotonic() - begin
    over.set()
    counting.join()
    wait()  # type: ignore[operator]
    print(json.dumps({"longest_pause_ms": max(pauses) * 1000, "closing_ms": closing * 1000, "counts": len(pauses)}))


if __name__ == "__main__":
    main()
