"""Completes the recordings of multiprocessing workers, which exit without running the library's destructor."""

from __future__ import annotations

import sys

from . import library as library

_known = False


def _stop_in_worker() -> None:
    """Stop recording as the last finalizer: a worker exits by os._exit."""
    sys.modules["multiprocessing.util"].Finalize(None, library.stop, exitpriority=-(10**6))


def stop_in_workers() -> None:
    """Stop the recording in multiprocessing workers that start later, and in this one."""
    global _known
    util, process = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
    if _known or not hasattr(util, "register_after_fork") or not hasattr(process, "parent_process"):
        return
    _known = True
    util.register_after_fork(stop_in_workers, lambda _: _stop_in_worker())  # type: ignore[union-attr]
    if process.parent_process() is not None:  # type: ignore[union-attr]
        _stop_in_worker()
