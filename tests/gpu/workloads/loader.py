"""A training with DataLoader workers, and ways to end: loader.py fork|spawn|exception|thread; prints its report before it ends."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

import torch

BATCHES = 40
DEVICE = os.environ.get("ACCEPT_DEVICE", "cuda")  # cpu: to try the script itself


class Numbers(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return BATCHES * 8

    def __getitem__(self, index: int) -> Any:
        return torch.full((256,), float(index))


def main(how: str) -> None:
    from postrun import capture

    with capture.session(gpu=True):
        method = how if how in ("fork", "spawn") else "fork"
        loader = torch.utils.data.DataLoader(
            Numbers(), batch_size=8, num_workers=4, multiprocessing_context=method, pin_memory=DEVICE == "cuda"
        )
        model = torch.nn.Linear(256, 4).to(DEVICE)
        batches = 0
        for batch in loader:
            model(batch.to(DEVICE, non_blocking=True)).sum().backward()
            batches += 1
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        print(json.dumps({"batches": batches}), flush=True)
        if how == "exception":
            raise RuntimeError("as planned")
        if how == "thread":
            ending = threading.Thread(target=sys.exit, args=(8,))
            ending.start()
            ending.join()


if __name__ == "__main__":
    main(sys.argv[1])
