"""How is the recording of a worker of multiprocessing complete, though it leaves past the end of the library?"""

from __future__ import annotations

import sys

from . import library as library

_known = False


def _stop_in_worker() -> None:
    """A worker leaves by os._exit, past the end of the library, but runs its finalizers: this is the last."""
    sys.modules["multiprocessing.util"].Finalize(None, library.stop, exitpriority=-(10**6))


def stop_in_workers() -> None:
    """So in each worker that begins from now on, where multiprocessing is in use, and in this process, where it is one."""
    global _known
    util, process = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
    if _known or not hasattr(util, "register_after_fork") or not hasattr(process, "parent_process"):
        return
    _known = True
    util.register_after_fork(stop_in_workers, lambda _: _stop_in_worker())  # type: ignore[union-attr]
    if process.parent_process() is not None:  # type: ignore[union-attr]
        _stop_in_worker()
