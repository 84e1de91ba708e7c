"""How does a file or folder appear whole or not at all? It is written beside its place and moved there."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from .. import temporary
from ..errors import UsageError


def check_file(target: Path) -> None:
    """UsageError where a file cannot be meant."""
    if target.is_dir():
        raise UsageError(f"{target} is a folder; name the file to write, such as {target / 'run.pftrace'}")
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} is no file that could be replaced; name another place with -o")
    above = next(one for one in target.absolute().parents if one.exists())
    if not above.is_dir():
        raise UsageError(f"{above} is a file; name another place with -o")


def check_folder(target: Path, ours: Collection[str]) -> None:
    """UsageError where ``target`` is a file, or a folder that holds something else than an earlier export (``ours``: its file names)."""
    if target.is_dir():
        other = sorted(one.name for one in target.iterdir() if one.name not in ours)
        if other:
            raise UsageError(f"{target} is a folder that holds something else ({other[0]}); name a new folder")
    elif os.path.lexists(target):
        raise UsageError(f"{target} is a file, and this format is a folder with a file per table; name a new folder")


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """A file to write; it is at ``target`` when all went well. Compressed with gzip where the name ends in .gz."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary.Folder(target.parent, prefix=".postrun-") as folder:
        scratch = Path(folder) / "file"
        with scratch.open("wb") as file:
            if target.suffix == ".gz":
                with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                    yield cast(BinaryIO, packed)
            else:
                yield file
        scratch.replace(target)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill; it is at ``target`` when all went well, in place of an earlier one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary.Folder(target.parent, prefix=".postrun-") as folder:
        scratch = Path(folder) / "folder"
        scratch.mkdir()
        old = Path(f"{folder}.old")  # beside the temporary folder: nobody removes it if this process is killed here
        try:
            yield scratch
            if target.is_dir():
                target.rename(old)
            scratch.rename(target)
        except BaseException:
            if old.is_dir() and not target.exists():
                old.rename(target)
            raise
        finally:
            shutil.rmtree(old, ignore_errors=True)
