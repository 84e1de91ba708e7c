"""A lock on the output folder: two runs with the same ``-o`` put their files there one after the other.

The lock is on the folder itself, so it leaves no file behind, and ends with the process that holds it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...errors import RenderError

_PATIENCE_S: Final = 30.0  # moving the files of a report takes milliseconds
_POLL_S: Final = 0.02


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Keep other runs from putting files into ``folder``. Raises RenderError if another run does not end its turn."""
    import fcntl

    until = time.monotonic() + _PATIENCE_S
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise RenderError(
                        f"cannot write to {folder}: another process has held its lock for {_PATIENCE_S:.0f} s. Try: another folder with -o"
                    ) from None
                time.sleep(_POLL_S)
                continue
            except OSError:  # a network file system without locks
                pass
            break
        yield
    finally:
        os.close(descriptor)
