"""How often Python looks for garbage in cycles: rarely, while many objects are created that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_COLLECTED: Final = (100_000, 50, 100)


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Collect garbage rarely, in all threads of the process, until the block ends.

    This saves a twentieth of a report's time, and a seventh of that of a listing."""
    usual = gc.get_threshold()
    gc.set_threshold(*_COLLECTED)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
