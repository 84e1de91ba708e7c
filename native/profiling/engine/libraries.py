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
from .part import LeftOutError, Part
from .timeline_writer import node_name

_HOROVOD: Final = ("horovod.torch", "horovod.tensorflow", "horovod.tensorflow.keras", "horovod.keras", "horovod.mxnet")
Tell = Callable[[str, object], None]
Functions = tuple[Callable[[str], Any], Callable[[], Any]]


class LibraryPart(Part):
    """The timeline of a library while it is open. ``kind``: "horovod" or "smdataparallel"."""

    def __init__(self, kind: str, folder: Path, tell: Tell) -> None:
        self._kind = kind
        self._folder = folder / "framework" / kind
        self._tell = tell
        self._stop: Callable[[], Any] | None = None
        self._file = folder

    def open(self, step: int | None) -> None:
        """Begin the timeline if the library is in use."""
        start, stop = _horovod() if self._kind == "horovod" else _smdataparallel()
        modes.make_folder(self._folder)
        now_ns = time.time_ns()
        self._file = self._folder / f"{now_ns // 1000}_{node_name()}_{self._kind}_timeline.json"
        start(os.fspath(self._file))
        self._stop = stop
        self._tell(f"profiling.{self._kind}.started_ns", now_ns)

    def close(self, step: int | None) -> None:
        """End the timeline."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
            modes.close_to_others(self._file)


def _horovod() -> Functions:
    """Return the functions that start and stop the timeline. Raise LeftOutError."""
    if os.environ.get("HOROVOD_TIMELINE", "DYNAMIC") != "DYNAMIC":
        raise LeftOutError("HOROVOD_TIMELINE is set: the timeline is the program's, of its whole run", quiet=True)
    module = next((sys.modules[name] for name in _HOROVOD if name in sys.modules), None)
    if module is None or not hasattr(module, "start_timeline"):
        raise LeftOutError("Horovod is not in use", quiet=True)
    if not module.is_initialized():
        raise LeftOutError("Horovod is not initialized", quiet=True)
    return module.start_timeline, module.stop_timeline


def _smdataparallel() -> Functions:
    module = sys.modules.get("smdistributed.dataparallel")
    if module is None or not hasattr(module, "start_profiler"):
        raise LeftOutError("SMDataParallel is not in use", quiet=True)
    return lambda file: module.start_profiler(file, append_rank=False), module.stop_profiler
