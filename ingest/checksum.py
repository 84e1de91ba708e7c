"""Checksums of the files of a run, and which files have the same contents."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path


class Checksums:
    """Checksums of ``files`` (path, bytes, label), addressed by position; close it or use it as a context manager.

    A label is what a file's name adds to its contents, such as the node of a hosted timeline; files with different labels are never the
    same. ``known``: checksums of files, by position, that are not read again.

    Only files of equal size are compared beforehand. The checksums of the others are computed while the files are read (:meth:`start`), so
    that the disk reads every file once.
    """

    def __init__(self, files: Sequence[tuple[Path, int | None, str]], known: Mapping[int, str | None] | None = None) -> None:
        self._files = files
        self._known = known or {}
        self._sizes = Counter(size for _, size, _ in files)
        self._futures: dict[int, Future[str | None]] = {}
        self._pool = ThreadPoolExecutor(1, "postrun-sha256")

    def __enter__(self) -> Checksums:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def start(self, position: int) -> None:
        """Begin to compute the checksum of a file in another thread."""
        if position not in self._futures and position not in self._known:
            self._futures[position] = self._pool.submit(sha256, self._files[position][0])

    def of(self, position: int) -> str | None:
        """Return the checksum as hexadecimal text; None if the file cannot be read."""
        if position in self._known:
            return self._known[position]
        self.start(position)
        return self._futures[position].result()

    def duplicates(self) -> dict[int, int]:
        """Map each file that repeats an earlier one to it; empty files are different."""
        first: dict[tuple[str, str], int] = {}
        same: dict[int, int] = {}
        for position, (_, size, label) in enumerate(self._files):
            if not size or self._sizes[size] < 2:
                continue
            checksum = self.of(position)
            if checksum is not None and first.setdefault((checksum, label), position) != position:
                same[position] = first[checksum, label]
        return same


def sha256(path: Path) -> str | None:
    """Return the checksum of a file as hexadecimal text; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
