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
_STORE_ENDING: Final = ".duckdb"
_LONGEST_ENDING: Final = 9  # characters


class LeftOut:
    """Removes such files from a listing and remembers them. ``stores``: whether run stores are among them. ``exclude``: folders that are
    not searched."""

    def __init__(self, stores: bool, exclude: Sequence[str] = ()) -> None:
        self._endings = (*_NSIGHT_ENDINGS, _STORE_ENDING) if stores else _NSIGHT_ENDINGS
        self._excluded = tuple(folder.rstrip("/") + "/" for folder in exclude)
        self._files: dict[str, tuple[str, ObjectInfo]] = {}

    def watch(self, listing: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
        """Yield the other objects."""
        for file in listing:
            path = file.path
            if path[-_LONGEST_ENDING:].lower().endswith(self._endings) and not path.startswith(self._excluded):
                folder = _store_folder(path) if _is_store(path) else run_folder_of(path)
                if folder is not None:
                    self._files[path] = folder, file
                    continue
            yield file

    def stores(self) -> set[str]:
        """Return the paths of the run stores."""
        return set(filter(_is_store, self._files))

    def notes(self, run_ids: Collection[str], lets_in: Callable[[FoundRun], bool]) -> list[str]:
        """Return a line for each file outside all runs. ``run_ids``: of all runs."""
        outside = [file for folder, file in self._files.values() if folder not in run_ids]
        left = (file.path for file in outside if lets_in(FoundRun(file.path, "traces", (file,), True, "")))
        return [_store_note(path) if _is_store(path) else _nsight_note(path) for path in sorted(left, key=_is_store)]


def _is_store(path: str) -> bool:
    return path[-len(_STORE_ENDING) :].lower() == _STORE_ENDING


def _store_folder(path: str) -> str | None:
    location = place_of(path)
    return location[0] if location is not None and location[1] == "store" else None


def _store_note(path: str) -> str:
    return f"{path}: a run store; use --run-stores to report it, or `postrun report` for this one"


def _nsight_note(path: str) -> str:
    name = path.rpartition("/")[2]
    export = f"{_NSIGHT_REPORT.sub('', name)}.sqlite"
    return (
        f"{path}: a report of Nsight Systems, of which only exports are read; next to it, run"
        f" `nsys export --type sqlite --output {shlex.quote(export)} {shlex.quote(name)}`"
    )
