"""Run stores: new ones that readers fill, and checked copies of existing ones.

A run store is one DuckDB file, or an in-memory database, with the tables of :data:`.tables.SCHEMA`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from .foreign import copied
from .tables import Tables


class Store(Tables):
    """An open run store. Use :meth:`create`, :meth:`temporary` or :meth:`open`; close it or use it as a context manager."""

    @classmethod
    def open(cls, path: str | Path, *, memory_limit: str = "600MB", threads: int | None = None, max_unpacked: str | None = None) -> Self:
        """Copy and check a store (see :mod:`.foreign`). Closing removes the copy.

        Raises InputError if ``path`` is not a run store, has another format or other contents than a run store, or is being written.
        """
        return copied(cls, Path(path), memory_limit=memory_limit, threads=threads, max_unpacked=max_unpacked)
