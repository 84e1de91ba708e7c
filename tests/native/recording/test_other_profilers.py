"""Profilers that the program starts itself get CUPTI, and the recorder gets it back."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("postrun.native", reason="postrun is not installed")

from postrun.native.recording import library as capture_library
from postrun.native.recording import other_profilers

Activity = Enum("Activity", ["CPU", "CUDA"])
CPU, CUDA = Activity.CPU, Activity.CUDA


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Record calls of the profilers, and to whom CUPTI was left (None: returned)."""
    happened: list[Any] = []
    monkeypatch.setattr(capture_library, "gpu_yield", lambda who: happened.append(("yield", who)) or True)
    monkeypatch.setattr(other_profilers, "_watched", False)
    before = list(sys.meta_path)
    yield happened
    sys.meta_path[:] = before


def fake(monkeypatch: pytest.MonkeyPatch, name: str, happened: list[Any], *functions: str, fails: str = "") -> ModuleType:
    module = ModuleType(name)

    def of(function: str) -> Callable[..., None]:
        def called(*arguments: Any, **keywords: Any) -> None:
            happened.append(function)
            if function == fails:
                raise RuntimeError(function)

        return called

    for function in functions:
        setattr(module, function, of(function))
    monkeypatch.setitem(sys.modules, name, module)
    return module


TORCH = ("torch.autograd.profiler", "_prepare_profiler", "_enable_profiler", "_disable_profiler")


def test_the_profiler_of_pytorch_goes_first(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> None:
    torch = fake(monkeypatch, TORCH[0], calls, *TORCH[1:])
    other_profilers.watch()
    other_profilers.watch()
    torch._prepare_profiler("config", {CPU, CUDA})
    torch._enable_profiler("config", {CPU, CUDA})
    torch._disable_profiler()
    torch._enable_profiler("config", {CUDA})
    torch._disable_profiler()
    torch._disable_profiler()
    named, back = ("yield", "PyTorch's profiler"), ("yield", None)
    once = ["_enable_profiler", "_disable_profiler", back]
    assert calls == [named, "_prepare_profiler", *once, named, *once, "_disable_profiler"]


def test_a_profiler_without_gpus_changes_nothing(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> None:
    """Also ranges for NVTX are begun by this function, with nothing to record."""
    torch = fake(monkeypatch, TORCH[0], calls, *TORCH[1:])
    other_profilers.watch()
    for recorded in ({CPU}, set()):
        torch._enable_profiler("config", recorded)
        torch._disable_profiler()
    assert calls == ["_enable_profiler", "_disable_profiler"] * 2


def test_a_profiler_that_does_not_start_gives_cupti_back(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> None:
    torch = fake(monkeypatch, TORCH[0], calls, *TORCH[1:], fails="_enable_profiler")
    other_profilers.watch()
    with pytest.raises(RuntimeError):
        torch._enable_profiler("config", {CUDA})
    assert calls == [("yield", "PyTorch's profiler"), "_enable_profiler", ("yield", None)]


def test_functions_that_a_module_has_taken_before(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> None:
    """As jax.profiler has, once jax is imported."""
    source = fake(monkeypatch, "jax._src.profiler", calls, "start_trace", "stop_trace")
    public = fake(monkeypatch, "jax.profiler", calls)
    public.__dict__.update(start_trace=source.start_trace, stop_trace=source.stop_trace)
    other_profilers.watch()
    public.start_trace("logs")
    public.stop_trace()
    assert calls == [("yield", "JAX's profiler"), "start_trace", "stop_trace", ("yield", None)]


@pytest.mark.parametrize(
    ("module", "starts", "ends", "name"),
    [
        ("jax._src.profiler", "start_trace", "stop_trace", "JAX's profiler"),
        ("tensorflow.python.profiler.profiler_v2", "start", "stop", "TensorFlow's profiler"),
        ("triton.profiler.profile", "start", "finalize", "Triton's profiler (Proton)"),
    ],
)
def test_profilers_that_are_imported_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, calls: list[Any], module: str, starts: str, ends: str, name: str
) -> None:
    """Functions that other modules imported from a profiler are also hooked."""
    package = tmp_path.joinpath(*module.split("."))
    package.parent.mkdir(parents=True)
    for folder in list(package.relative_to(tmp_path).parents)[:-1]:
        (tmp_path / folder / "__init__.py").touch()
    package.with_suffix(".py").write_text(f"def {starts}(folder): return folder\ndef {ends}(): return 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    for known in [known for known in sys.modules if known.split(".")[0] == module.split(".")[0]]:
        monkeypatch.delitem(sys.modules, known)
    other_profilers.watch()
    taken = importlib.import_module(module)
    start, end = getattr(taken, starts), getattr(taken, ends)
    assert (start("logs"), end()) == ("logs", 2)
    assert calls == [("yield", name), ("yield", None)]
    for known in [known for known in sys.modules if known.split(".")[0] == module.split(".")[0]]:
        monkeypatch.delitem(sys.modules, known)
