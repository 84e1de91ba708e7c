"""What does a night do from first to last? Look, report, write the index, remove what it refers to no more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import InputError
from ..ingest.object_store.objects import Objects
from ..ingest.object_store.open import open_objects
from ..ingest.object_store.urls import is_url
from . import night as nights
from . import places
from .claims import Claims
from .model import Row, Task
from .night import Night, Wanted

if TYPE_CHECKING:
    from .history import Finding
    from .index_model import Index

_MEMORY_SHARE: Final = 0.9
INDEX_CLAIM: Final = "index.claim.json"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a night is put together from. ``known``: the rows of all done-markers below an output. ``index``: writes the index of rows."""

    known: Callable[[Objects], Mapping[str, Row]]
    index: Callable[[Objects, Mapping[str, Row]], Index]
    executor: Callable[[], AbstractContextManager[Executor]]
    work: Callable[[Task], Row]
    refused: Sequence[str] = ()
    """Lines about what was found below the output and is not ours; grows while ``known`` reads."""


@dataclass(frozen=True, slots=True)
class Result:
    """``rows``: of every run in the index, by id. ``index``: what was written."""

    night: Night
    rows: Mapping[str, Row]
    index: Index
    left_out: tuple[str, ...] = ()
    removed: int = 0


def share_of_memory(workers: int | None) -> int | None:
    """What one of so many workers may need of this machine's memory, or of its control group's. None where that is not known."""
    from .pool import processors

    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
    return int(min([total, *_group_limits(Path("/"))]) * _MEMORY_SHARE / (workers or processors()))


def _group_limits(root: Path) -> Iterator[int]:
    """Bytes that the control groups of this process may use, from its own to the outermost: of a container, a SLURM job, a service."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    of_version = {"": ("sys/fs/cgroup", "memory.max"), "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes")}
    for line in [*lines, "0::/", "0:memory:/"]:
        _, controllers, group = line.split(":", 2)
        place, file = next((of_version[one] for one in controllers.split(",") if one in of_version), ("", ""))
        parts = [part for part in group.split("/") if part]
        for depth in range(len(parts), -1, -1):
            with suppress(OSError, ValueError):  # "max"; or a group that is not to be seen from within a container
                yield int(root.joinpath(place, *parts[:depth], file).read_text())


def places_of(source: str, out: str) -> tuple[str, str]:
    """Both as any process finds them. InputError for a source that is not there."""
    if not is_url(source):
        path = Path(source)
        if not path.exists():
            raise InputError(f"{source}: no such folder; check the path")
        if not path.is_dir():
            raise InputError(f"{source}: is a file; give the folder that the runs are in (postrun report {source} reports one)")
    return tuple(place if is_url(place) else str(Path(place).absolute()) for place in (source, out))  # type: ignore[return-value]


def look(wanted: Wanted, parts: Parts) -> tuple[Night, Objects]:
    """The plan of a night; nothing is written."""
    source, out = open_objects(wanted.source, links=False), open_objects(wanted.out)
    return nights.plan(source, out, wanted, parts.known(out)), out


def whole(wanted: Wanted, parts: Parts, tell: nights.Tell | None = None, planned: Callable[[Night], None] | None = None) -> Result:
    """A night with its index. ``planned`` is called when it is known what is due."""
    night, out = look(wanted, parts)
    if planned is not None:
        planned(night)
    with Claims(out) as claims:
        if any(one.due for one in night.decisions):
            with parts.executor() as executor:
                nights.report(night, out, wanted, executor, parts.work, claims, tell)
        else:
            nights.report(night, out, wanted, Executor(), parts.work, claims, tell)
        with claims.alone(INDEX_CLAIM):
            rows = everything(parts.known(out), night)
            written = parts.index(out, rows)
        removed = 0
        for row in night.rows:
            with suppress(InputError):  # what is left over is removed with the run's next report
                removed += nights.remove_superseded(out, row)
    return Result(night, rows, written, (*night.not_read, *parts.refused), removed)


def index_only(wanted: Wanted, parts: Parts) -> Result:
    """The index of what is known by now; runs are looked for, so that those which are still running are in it, and none is reported."""
    night, out = look(wanted, parts)
    night.open += nights.running(night, places.options_digest(wanted.options))
    with Claims(out) as claims, claims.alone(INDEX_CLAIM):
        rows = everything(parts.known(out), night)
        return Result(Night(), rows, parts.index(out, rows), tuple(parts.refused))


def everything(known: Mapping[str, Row], night: Night) -> dict[str, Row]:
    """What the index shows: all done-markers; over them the runs that are not up to date, unless another night has finished them by now;
    runs whose files are gone are told as such."""
    rows = dict(known)
    for row in night.open:
        done = known.get(row.id)
        if done is None or (row.state != "failed" and done.fingerprint == row.fingerprint and done.state == row.state):
            rows[row.id] = row
    for run_id in night.gone:
        if run_id in rows:
            rows[run_id] = replace(rows[run_id], warnings=(*rows[run_id].warnings, nights.GONE))
    return dict(sorted(rows.items()))


def regressions(result: Result, rows: Iterable[Row]) -> list[Finding]:
    """Those of ``rows``."""
    ids = {row.id for row in rows}
    return [one for one in result.index.regressions if one.id in ids]
