"""Which files are the same, and what is the SHA-256 of each?"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path


class Checksums:
    """Checksums of ``files`` (path, bytes, said by name), addressed by position; close it or use it as a context manager.

    ``said by name``: what a file's name says that its contents do not (of hosted timelines: the machine); files that differ in it are
    never the same. ``known``: checksums of files, by position, that are not read again.

    Only files of equal size are compared beforehand; the others' checksums are computed while they are read (:meth:`start`), so that
    the disk gives every file once.
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
        """Begin to compute the checksum of a file beside whatever else is done with it."""
        if position not in self._futures and position not in self._known:
            self._futures[position] = self._pool.submit(sha256, self._files[position][0])

    def of(self, position: int) -> str | None:
        """The checksum as hexadecimal text; None where the file cannot be read."""
        if position in self._known:
            return self._known[position]
        self.start(position)
        return self._futures[position].result()

    def duplicates(self) -> dict[int, int]:
        """For each file that has the contents of an earlier one, the position of that one. Empty files count as different."""
        first: dict[tuple[str, str], int] = {}
        same: dict[int, int] = {}
        for position, (_, size, said) in enumerate(self._files):
            if not size or self._sizes[size] < 2:
                continue
            checksum = self.of(position)
            if checksum is not None and first.setdefault((checksum, said), position) != position:
                same[position] = first[checksum, said]
        return same


def sha256(path: Path) -> str | None:
    """The checksum of a file as hexadecimal text; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
