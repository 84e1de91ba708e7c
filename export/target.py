"""Files and folders that appear complete or not at all: written next to their target, then moved."""

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
    """Raise UsageError if ``target`` cannot be a file to write."""
    if target.is_dir():
        raise UsageError(f"{target} is a folder; name the file to write, such as {target / 'run.pftrace'}")
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} is not a file that could be replaced; name another place with -o")
    above = next(folder for folder in target.absolute().parents if folder.exists())
    if not above.is_dir():
        raise UsageError(f"{above} is a file; name another place with -o")


def check_folder(target: Path, ours: Collection[str]) -> None:
    """Raise UsageError if a folder contains files that are not ``ours``, or is a file."""
    if target.is_dir():
        foreign = sorted(path.name for path in target.iterdir() if path.name not in ours)
        if foreign:
            raise UsageError(f"{target} is a folder that holds something else ({foreign[0]}); name a new folder")
    elif os.path.lexists(target):
        raise UsageError(f"{target} is a file, and this format is a folder with a file per table; name a new folder")


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """Open a file that moves to ``target`` without an error; .gz means gzip."""
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
    """Make a folder that replaces ``target`` if there is no error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary.Folder(target.parent, prefix=".postrun-") as folder:
        scratch = Path(folder) / "folder"
        scratch.mkdir()
        old = Path(f"{folder}.old")  # next to the temporary folder, so that it stays if this process is killed here
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
