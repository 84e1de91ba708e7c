"""Files of a listing that a night does not read: run stores and reports of Nsight Systems -> a note for each that no run contains.

A run store contains whatever its writer put into it, not measurements only; so a night reads stores only with ``--run-stores``. Of a report
of Nsight Systems only its exports are read.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from ..ingest.object_store.objects import ObjectInfo
from .discover import place_of, run_folder_of
from .model import FoundRun

_NSIGHT_REPORT: Final = re.compile(r"\.(?:nsys-rep|qdrep|qdstrm)$", re.IGNORECASE)
_NSIGHT_ENDINGS: Final = (".nsys-rep", ".qdrep", ".qdstrm")


class LeftOut:
    """Removes files from a listing and remembers them. ``folder_of``: path of such a file -> its run's folder, None for others.
    ``exclude``: folders that are not searched."""

    def __init__(self, folder_of: Callable[[str], str | None], exclude: Sequence[str] = ()) -> None:
        self._folder_of = folder_of
        self._excluded = tuple(folder.rstrip("/") + "/" for folder in exclude)
        self._files: dict[str, tuple[str, ObjectInfo]] = {}

    def watch(self, listing: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
        """Yield the other objects."""
        for file in listing:
            folder = self._folder_of(file.path)
            if folder is None or file.path.startswith(self._excluded):
                yield file
            else:
                self._files[file.path] = folder, file

    def paths(self) -> set[str]:
        return set(self._files)

    def runs(self, run_ids: Collection[str]) -> list[FoundRun]:
        """Return the files outside all runs, each as a run. ``run_ids``: of all runs."""
        return [FoundRun(file.path, "traces", (file,), True, "") for folder, file in self._files.values() if folder not in run_ids]


def store_folder(path: str) -> str | None:
    location = place_of(path) if path[-7:].lower() == ".duckdb" else None
    return location[0] if location is not None and location[1] == "store" else None


def nsight_folder(path: str) -> str | None:
    return run_folder_of(path) if path[-9:].lower().endswith(_NSIGHT_ENDINGS) else None


def store_note(path: str) -> str:
    return f"{path}: a run store; use --run-stores to report it, or `postrun report` for this one"


def nsight_note(path: str) -> str:
    name = path.rpartition("/")[2]
    export = f"{_NSIGHT_REPORT.sub('', name)}.sqlite"
    return (
        f"{path}: a report of Nsight Systems, of which only exports are read; beside it, run"
        f" `nsys export --type sqlite --output {shlex.quote(export)} {shlex.quote(name)}`"
    )
