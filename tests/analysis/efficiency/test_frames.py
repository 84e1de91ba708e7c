"""frames.py: names as real traces write them."""

from __future__ import annotations

import polars as pl
import pytest
from postrun.analysis.efficiency.frames import BASE, LIBRARY, USER, frames


@pytest.mark.parametrize(
    ("name", "line", "origin"),
    [
        ("my/train.py(42): train", "my/train.py:42", USER),
        ("train.py(1): <module>", "train.py:1", USER),
        ("/home/me/run (2)/train.py(7): f(x)", "/home/me/run (2)/train.py:7", USER),
        ("profile.py(3): main", "profile.py:3", USER),
        ("transformers.py(3): main", "transformers.py:3", USER),
        ("code/train.py(3): main", "code/train.py:3", USER),
        ("C:\\work\\train.py(3): main", "C:\\work\\train.py:3", USER),
        ("/home/me/transformers/examples/run_glue.py(3): main", "/home/me/transformers/examples/run_glue.py:3", USER),
        ("transformers/models/vit/modeling_vit.py(206): forward", "transformers/models/vit/modeling_vit.py:206", LIBRARY),
        ("/opt/venv/lib/python3.12/site-packages/acme/x.py(5): f", "/opt/venv/lib/python3.12/site-packages/acme/x.py:5", LIBRARY),
        ("/workspace/vllm/vllm/v1/worker/gpu_model_runner.py(9): f", "/workspace/vllm/vllm/v1/worker/gpu_model_runner.py:9", LIBRARY),
        ("torch/nn/modules/linear.py(114): forward", "torch/nn/modules/linear.py:114", BASE),
        ("/a/lib/python3.7/site-packages/torch/utils/data/dataloader.py(521): __next__",
         "/a/lib/python3.7/site-packages/torch/utils/data/dataloader.py:521", BASE),
        ("/opt/pytorch/pytorch/torch/nn/modules/linear.py(114): forward", "/opt/pytorch/pytorch/torch/nn/modules/linear.py:114", BASE),
        ("/tmp/torchinductor_me/ab/cab.py(80): call", "/tmp/torchinductor_me/ab/cab.py:80", BASE),
        ("threading.py(1032): _bootstrap", "threading.py:1032", BASE),
        ("concurrent/futures/thread.py(58): run", "concurrent/futures/thread.py:58", BASE),
        ("/usr/lib/python3.10/runpy.py(86): _run_code", "/usr/lib/python3.10/runpy.py:86", BASE),
        ("<built-in method size of Tensor object at 0x7bc8d80b5c20>", None, BASE),
        ("<eval_with_key>.3(5): forward", None, BASE),
        ("<string>(2): __init__", None, BASE),
        ("nn.Module: Linear_3", None, BASE),
        ("", None, BASE),
    ],
)  # fmt: skip
def test_origins(name: str, line: str | None, origin: str) -> None:
    assert frames(pl.Series([name])).select("line", "origin").row(0) == (line, origin)


def test_functions_and_nothing() -> None:
    assert frames(pl.Series(["a.py(3): f", None])).rows() == [("a.py:3", "f", USER), (None, None, BASE)]
    assert frames(pl.Series([], dtype=pl.String)).rows() == []
