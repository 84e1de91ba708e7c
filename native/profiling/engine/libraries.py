"""Switches on the timelines of Horovod and SMDataParallel for a window, if the program uses these libraries.

They write their files themselves, which are complete some time after the window. Nothing is imported.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from .... import modes
from .part import LeftOutError
from .timeline_writer import node_name

_HOROVOD: Final = ("horovod.torch", "horovod.tensorflow", "horovod.tensorflow.keras", "horovod.keras", "horovod.mxnet")
_SMDATAPARALLEL: Final = "smdistributed.dataparallel"
Tell = Callable[[str, object], None]


class _Library:
    """A library that writes a timeline."""

    kind = ""
    suffix = ""

    def __init__(self, folder: Path, tell: Tell) -> None:
        self._folder = folder / "framework" / self.kind
        self._tell = tell
        self._stop: Callable[[], Any] | None = None
        self._file = folder

    def open(self, step: int | None) -> None:
        """Begin the timeline if the library is in use."""
        functions = self._find()
        if isinstance(functions, str):
            raise LeftOutError(functions, quiet=True)
        start, stop = functions
        modes.make_folder(self._folder)
        now_ns = time.time_ns()
        self._file = file = self._folder / f"{now_ns // 1000}_{node_name()}_{self.suffix}.json"
        start(os.fspath(file))
        self._stop = stop
        self._tell(f"profiling.{self.kind}.started_ns", now_ns)

    def step(self, step: int) -> None:
        """Do nothing: the window goes on."""

    def close(self, step: int | None) -> None:
        """End the timeline."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
            modes.close_to_others(self._file)

    def _find(self) -> tuple[Callable[[str], Any], Callable[[], Any]] | str:
        raise NotImplementedError


class HorovodPart(_Library):
    """Horovod's timeline while it is open."""

    kind = "horovod"
    suffix = "horovod_timeline"

    def _find(self) -> tuple[Callable[[str], Any], Callable[[], Any]] | str:
        if os.environ.get("HOROVOD_TIMELINE", "DYNAMIC") != "DYNAMIC":
            return "HOROVOD_TIMELINE is set: the timeline is the program's, of its whole run"
        module = next((sys.modules[name] for name in _HOROVOD if name in sys.modules), None)
        if module is None or not hasattr(module, "start_timeline"):
            return "Horovod is not in use"
        if not module.is_initialized():
            return "Horovod is not initialised"
        return module.start_timeline, module.stop_timeline


class SMDataParallelPart(_Library):
    """SMDataParallel's timeline while it is open."""

    kind = "smdataparallel"
    suffix = "smdataparallel_timeline"

    def _find(self) -> tuple[Callable[[str], Any], Callable[[], Any]] | str:
        module = sys.modules.get(_SMDATAPARALLEL)
        if module is None or not hasattr(module, "start_profiler"):
            return "SMDataParallel is not in use"
        return lambda file: module.start_profiler(file, append_rank=False), module.stop_profiler
