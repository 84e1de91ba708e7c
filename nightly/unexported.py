"""Which reports of Nsight Systems stand where no run is found, so that nothing of them would be told?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from ..ingest.objects import ObjectInfo
from .discover import run_folder_of
from .model import FoundRun

_REPORT: Final = re.compile(r"\.(?:nsys-rep|qdrep|qdstrm)$", re.IGNORECASE)


class Unexported:
    """Notes such reports while a listing goes through it; ``exclude``: folders that are not looked into."""

    def __init__(self, exclude: Sequence[str] = ()) -> None:
        self._left_out = tuple(folder.rstrip("/") + "/" for folder in exclude)
        self._reports: list[tuple[str, ObjectInfo]] = []

    def watch(self, listing: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
        """The objects of the listing, all of them."""
        for one in listing:
            if _REPORT.search(one.path) and not one.path.startswith(self._left_out) and (folder := run_folder_of(one.path)) is not None:
                self._reports.append((folder, one))
            yield one

    def runs(self, found: Collection[str]) -> list[FoundRun]:
        """What would be a run had its reports been exported. ``found``: the ids of all runs."""
        return [FoundRun(folder, "traces", (one,), True, "") for folder, one in self._reports if folder not in found]


def told(run: FoundRun) -> str:
    """A line that names the report and the command that makes it readable."""
    path = run.objects[0].path
    name = path.rpartition("/")[2]
    export = f"{_REPORT.sub('', name)}.sqlite"
    return (
        f"{path}: a report of Nsight Systems, of which only exports are read; beside it, run"
        f" `nsys export --type sqlite --output {shlex.quote(export)} {shlex.quote(name)}`"
    )
