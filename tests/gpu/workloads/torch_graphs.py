"""CUDA graphs of PyTorch: torch_graphs.py graph|compile on|off; prints the result as text, to be compared bit by bit."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from typing import Any

REPLAYS = 20
DEVICE = os.environ.get("ACCEPT_DEVICE", "cuda")  # cpu: to try the script itself


def main(how: str, recorded: bool) -> None:
    import torch

    torch.manual_seed(3)
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).to(DEVICE)
    inputs = torch.randn(64, 256).to(DEVICE)
    session: Any = nullcontext()
    window: Any = nullcontext()
    if recorded:
        from postrun import capture

        session = capture.session(gpu="windows", sample_ms=0)
        window = capture.gpu_window()
    with session, torch.no_grad():
        if how == "compile":
            compiled = torch.compile(model, mode="reduce-overhead")
            for _ in range(4):  # compiles, captures
                compiled(inputs)
            with window:
                for _ in range(REPLAYS):
                    result = compiled(inputs).clone()
                synchronize(torch)
        else:
            with window:
                result = replayed(torch, model, inputs)
    print(json.dumps({"replays": REPLAYS, "result": result.double().sum().item().hex(), "torch": torch.__version__}))


def replayed(torch: Any, model: Any, inputs: Any) -> Any:
    """The output after REPLAYS replays of a graph that is captured here."""
    if DEVICE != "cuda":
        return model(inputs)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            model(inputs)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = model(inputs)
    for _ in range(REPLAYS):
        graph.replay()
    synchronize(torch)
    return output


def synchronize(torch: Any) -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "on")
