"""NVTX ranges of PyTorch around steps, in a program that does not import postrun: torch_nvtx.py STEPS LAUNCHES."""

from __future__ import annotations

import json
import sys
import time


def main(steps: int, launches: int) -> None:
    import torch

    tensor = torch.zeros(1024, device="cuda")
    tensor.add_(1)
    torch.cuda.synchronize()
    time.sleep(1)  # until the recorder has found CUDA
    for number in range(steps):
        torch.cuda.nvtx.range_push("step")
        with torch.cuda.nvtx.range(f"inner {number}"):
            for _ in range(launches):
                tensor.add_(1)
            torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
    print(json.dumps({"steps": steps, "launches": launches}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
