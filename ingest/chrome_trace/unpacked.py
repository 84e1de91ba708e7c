"""Unpacks a compressed SQLite database to a temporary file, since queries need random access to it.

Its size is bounded by the size in its header, by the free space of the disk, and by --max-unpacked.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ... import temporary
from ...errors import InputError
from ..store.limits import unpacked_limit
from .defect import Defect
from .inflate import Inflate

_SHARE_OF_DISK: Final = 0.9  # of the free space of the temporary folder, which is shared with the run store
_PAGE_1: Final = 65_536


@contextmanager
def unpacked(path: Path, max_unpacked: str | None = None) -> Iterator[tuple[Path, list[Defect]]]:
    """Provide a database as a plain file, and the defects of its compression.

    A cut file is unpacked up to the damage. Raises InputError if it does not fit on the disk or exceeds ``max_unpacked`` (the value of
    --max-unpacked), OSError if it cannot be read.
    """
    inflate = Inflate(path, max_unpacked=max_unpacked)
    if inflate.compression == "none":
        yield path, []
        return
    limit = unpacked_limit(path.stat().st_size, max_unpacked)
    with temporary.Folder() as folder:
        plain = Path(folder) / "database.sqlite"
        room = int(shutil.disk_usage(folder).free * _SHARE_OF_DISK)
        over_limit = f"{path}: unpacked it needs more than {limit:,} bytes, the limit; raise --max-unpacked to read it"
        no_room = (
            f"{path}: unpacked it needs more than the {room >> 20:,} MiB that {Path(folder).parent} has for it; unpack it with gunzip or"
            " unzstd, or set TMPDIR to a folder with more space"
        )
        size: int | None = None  # in bytes, according to the header
        with plain.open("wb") as file:
            for piece in inflate:
                if size is None:
                    pages, page_bytes = database_pages(piece[:100])
                    size = pages * page_bytes or None
                    if (size or 0) > limit:
                        raise InputError(over_limit)
                if max(size or 0, file.tell() + len(piece)) > room:
                    raise InputError(no_room)
                file.write(piece if size is None else piece[: size - file.tell()])
                if size is not None and inflate.raw_bytes > size:
                    break  # bytes after the end of the database
        if any(defect.code == "unpacked_limit" for defect in inflate.defects):
            raise InputError(over_limit)
        yield plain, inflate.defects


def database_pages(head: bytes) -> tuple[int, int]:
    """Return the number of pages and their size from 100 bytes; (0, 1) if unknown."""
    pages, counter, valid = (int.from_bytes(head[at : at + 4]) for at in (28, 24, 92))
    page_bytes = int.from_bytes(head[16:18])
    if len(head) < 100 or not page_bytes or counter != valid:
        return 0, 1
    return pages, _PAGE_1 if page_bytes == 1 else page_bytes
