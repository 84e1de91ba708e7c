"""Records operators and kernels in a window: by torch.profiler, or without PyTorch kernels by the C library.

The trace goes to the recording's folder, like that of ``capture.torch_trace_handler``. Only one profiler can run: a torch.profiler of the
program is left alone, and one that the program starts inside the window ends ours first.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ...recording import gpu as capture_gpu
from ...recording import library as capture_library
from ...recording.exclude_self import around
from ...recording.torch import write_trace
from ..plan import DetailedPlan
from .part import LeftOutError, Part, Patch

_STARTS: Final = ("_prepare_profiler", "_enable_profiler")
Tell = Callable[[str, object], None]


class DetailedPart(Part):
    """Operator and kernel capture while it is open."""

    def __init__(self, plan: DetailedPlan, folder: Path, tell: Tell) -> None:
        self._plan = plan
        self._folder = folder
        self._tell = tell
        self._profiler: Any = None
        self._guards: list[Patch] = []
        self._gpu = False
        self._cut = False
        self._dropped = False
        self._of_steps = False
        self._failure: OSError | None = None

    def open(self, step: int | None) -> None:
        """Record operators and kernels from now on."""
        self._of_steps = step is not None
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "profiler"):
            self._start(torch)
        else:
            self._start_gpu()
            self._without_calls("the program has not imported PyTorch" if torch is None else _too_old(torch))

    def close(self, step: int | None) -> None:
        """Stop recording; the trace is written."""
        if self._gpu:
            self._gpu = False
            capture_gpu.gpu_stop()
        self._dropped = self._of_steps and step is None  # no step has ended
        self._stop()
        if self._failure is not None:
            why = f"{self._failure.filename}: the trace could not be written ({self._failure.strerror})"
            raise LeftOutError(why, nothing=True)
        if self._cut:
            raise LeftOutError("the program started torch.profiler in the window, and ours ended there")

    def _start(self, torch: ModuleType) -> None:
        autograd = torch.autograd.profiler
        if autograd._is_profiler_enabled or torch.autograd._profiler_enabled():
            raise LeftOutError("the program runs torch.profiler itself, which is left alone")
        activities = [torch.profiler.ProfilerActivity.CPU]
        cuda = torch.profiler.ProfilerActivity.CUDA
        if torch.cuda.is_initialized() and cuda in torch.profiler.supported_activities():
            if capture_gpu.is_open():
                self._tell("profiling.detailed.kernels", "of the whole recording, as GPU activity is recorded with it")
            else:
                activities.append(cuda)
                torch.cuda.synchronize()  # excludes earlier launches from the window
        profiler = torch.profiler.profile(activities=activities, on_trace_ready=self._write, **self._options(torch.profiler.profile))
        profiler.start()
        self._profiler = profiler
        # Two profilers at a time are an error in the program.
        self._guards = [Patch(autograd, name, self._guarded) for name in _STARTS if hasattr(autograd, name)]

    def _options(self, profile: Callable[..., Any]) -> dict[str, bool]:
        """Return the arguments of torch.profiler.profile for shapes and stacks."""
        asked = {"record_shapes": self._plan.shapes, "with_stack": self._plan.stacks, "with_modules": self._plan.stacks}
        known = inspect.signature(profile).parameters
        options = {name: True for name, is_asked in asked.items() if is_asked and name in known}
        if options:
            self._tell("profiling.detailed.calls", ", ".join(options))
        return options

    def _without_calls(self, why: str) -> None:
        """Warn that shapes and stacks are missing from a window of kernels."""
        if wanted := _named(self._plan):
            self._tell("profiling.detailed.calls", f"nothing: {why}")
            warnings.warn(f"{wanted} are not recorded: {why}", RuntimeWarning, stacklevel=2)

    def _stop(self) -> None:
        profiler, self._profiler = self._profiler, None
        for guard in self._guards:
            guard.undo()
        self._guards = []
        if profiler is not None:
            profiler.stop()

    def _write(self, profiler: Any) -> None:
        if self._dropped:
            return
        try:
            write_trace(profiler, self._folder)
        except OSError as error:
            self._failure = error

    def _guarded(self, start: Callable[..., Any]) -> Callable[..., Any]:
        return around(start, self._other_starts)

    def _other_starts(self, *arguments: Any, **keywords: Any) -> None:
        if self._profiler is not None:
            self._cut = True
            self._stop()

    def _start_gpu(self) -> None:
        if capture_library.gpu_driver():
            self._gpu = capture_gpu.gpu_start()
            if self._gpu or capture_gpu.is_open():
                return
        if (torch := sys.modules.get("torch")) is not None:
            raise LeftOutError(f"{_too_old(torch)}, and there is no NVIDIA driver for kernels")
        why = "operators are those of PyTorch, which the program has not imported, and there is no NVIDIA driver for kernels"
        raise LeftOutError(why, lacks="PyTorch")


def _too_old(torch: ModuleType) -> str:
    version = str(getattr(torch, "__version__", ""))[:40]
    return f"PyTorch {version}".rstrip() + " has no torch.profiler; operators, shapes and stacks need PyTorch 1.8.1 or newer"


def _named(plan: DetailedPlan) -> str:
    return " and ".join(name for name, is_asked in (("shapes", plan.shapes), ("stacks", plan.stacks)) if is_asked)
