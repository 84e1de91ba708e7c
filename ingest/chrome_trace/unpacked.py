"""How is a compressed database read, which is looked up in all places and must therefore be a plain file?

It is unpacked to a temporary file, bounded by what its header says of its size and by the space that the disk has.
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
from .inflate import Inflate
from .scan import Defect

_SHARE_OF_DISK: Final = 0.9  # Of the free space of the temporary folder, which is shared with the run store
_PAGE_1: Final = 65_536


@contextmanager
def unpacked(path: Path, max_unpacked: str | None = None) -> Iterator[tuple[Path, list[Defect]]]:
    """The database ``path`` as a plain file, itself where it is not compressed, and what is wrong with its compression.

    Of a file that is cut, what comes before the damage. Raises InputError where it does not fit on the disk or unpacks to more than
    ``max_unpacked`` (the value of --max-unpacked) allows, OSError where it cannot be read.
    """
    inflate = Inflate(path, max_unpacked=max_unpacked)
    if inflate.compression == "none":
        yield path, []
        return
    limit = unpacked_limit(path.stat().st_size, max_unpacked)
    with temporary.Folder() as folder:
        plain = Path(folder) / "database.sqlite"
        room = int(shutil.disk_usage(folder).free * _SHARE_OF_DISK)
        most: int | None = None
        with plain.open("wb") as file:
            for piece in inflate:
                if most is None:
                    most = _bytes_of(piece[:100])
                    if (most or 0) > limit:
                        raise InputError(_over_limit(path, limit))
                    if (most or 0) > room:
                        raise InputError(_no_room(path, folder, room))
                if file.tell() + len(piece) > room:
                    raise InputError(_no_room(path, folder, room))
                file.write(piece if most is None else piece[: most - file.tell()])
                if most is not None and inflate.raw_bytes > most:
                    break  # what stands behind a database is none of it
        if any(defect.code == "unpacked_limit" for defect in inflate.defects):
            raise InputError(_over_limit(path, limit))
        yield plain, inflate.defects


def _bytes_of(head: bytes) -> int | None:
    """The size of a database in bytes, by the first 100 of them; None where they do not say it."""
    pages, counter, valid = (int.from_bytes(head[at : at + 4]) for at in (28, 24, 92))
    each = int.from_bytes(head[16:18])
    return pages * (_PAGE_1 if each == 1 else each) if len(head) == 100 and pages and each and counter == valid else None


def _over_limit(path: Path, limit: int) -> str:
    return f"{path}: unpacked it needs more than {limit:,} bytes, the limit; raise --max-unpacked to read it"


def _no_room(path: Path, folder: str, room: int) -> str:
    return (
        f"{path}: unpacked it needs more than the {room >> 20:,} MiB that {Path(folder).parent} has for it; unpack it with gunzip or"
        " unzstd, or set TMPDIR to a folder with more space"
    )
