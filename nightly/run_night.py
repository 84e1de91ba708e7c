"""A night from start to end: search, report, and write the index."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import InputError
from ..ingest.object_store.objects import ObjectInfo, Objects
from ..ingest.object_store.open import open_objects
from ..ingest.object_store.urls import is_url
from . import night as nights
from . import not_read, places, reasons, unannounced
from .claims import Claims, creates_once
from .model import FoundRun, Row, Task
from .night import Night, Wanted

if TYPE_CHECKING:
    from .index_model import Index
    from .news import Turn

_MEMORY_SHARE: Final = 0.9
INDEX_CLAIM: Final = "index.claim.json"


@dataclass(frozen=True, slots=True)
class Parts:
    """The functions of a night. ``known``: the rows of all done-markers below an output. ``index``: writes the index of rows, and finds the
    regressions that are new in it."""

    known: Callable[[Objects], Mapping[str, Row]]
    index: Callable[[Objects, Mapping[str, Row], Turn, not_read.Seen], Index]
    executor: Callable[[], AbstractContextManager[Executor]]
    work: Callable[[Task], Row]
    refused: Sequence[str] = ()
    """Lines about files below the output that postrun did not write; grows while ``known`` reads."""


@dataclass(frozen=True, slots=True)
class Result:
    """``rows``: by id, of the runs that have a done-marker or that this call leaves open. ``index``: the data that was written.
    ``creates_once``: whether the output's store knows conditional writes, on which nights at the same time rely. ``taken_over``: rows of
    the runs of nights that ended before they announced them. ``claims``: of this call. ``left_out``: lines about files of the source, and
    ``refused``, lines about files below the output that postrun did not write."""

    night: Night
    rows: Mapping[str, Row]
    index: Index
    claims: Claims
    left_out: tuple[str, ...] = ()
    creates_once: bool = True
    taken_over: tuple[Row, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def unchanged(self) -> int:
        """The number of unchanged runs, without those that were taken over."""
        taken = {row.id for row in self.taken_over}
        return sum(one.why == "unchanged" and one.run.id not in taken for one in self.night.decisions)

    @property
    def elsewhere(self) -> int:
        """The number of runs of other nights, without those that were taken over."""
        taken = {row.id for row in self.taken_over}
        return sum(row.id not in taken for row in self.night.elsewhere)

    @property
    def only_in_index(self) -> list[Row]:
        """The failed runs of earlier nights that have no done-marker."""
        return [row for row in self.index.failed if row.id not in self.rows]


def share_of_memory(workers: int | None) -> int | None:
    """Return a worker's share of the available memory; None if it is unknown."""
    from .pool import processors

    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
    return int(min([total, *_group_limits(Path("/"))]) * _MEMORY_SHARE / (workers or processors()))


def _group_limits(root: Path) -> Iterator[int]:
    """Yield memory limits of this process's control groups, inner ones first."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    of_version = {"": ("sys/fs/cgroup", "memory.max"), "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes")}
    for line in [*lines, "0::/", "0:memory:/"]:
        _, controllers, group = line.split(":", 2)
        mount, file = next((of_version[one] for one in controllers.split(",") if one in of_version), ("", ""))
        parts = [part for part in group.split("/") if part]
        for depth in range(len(parts), -1, -1):
            with suppress(OSError, ValueError):  # "max"; or a group that is not visible inside a container
                yield int(root.joinpath(mount, *parts[:depth], file).read_text())


def places_of(source: str, out: str) -> tuple[str, str]:
    """Return absolute paths. Raise InputError if the source does not exist."""
    if not is_url(source):
        path = Path(source)
        if not path.exists():
            raise InputError(f"{source}: no such folder; check the path")
        if not path.is_dir():
            raise InputError(f"{source}: is a file; give the folder that the runs are in (postrun report {source} reports one)")
    return tuple(place if is_url(place) else str(Path(place).absolute()) for place in (source, out))  # type: ignore[return-value]


def displayed(address: str, redact: Sequence[str]) -> str:
    """Return a place as text; with --redact, its last part alone."""
    return reasons.last_part(address) if redact else address


def look(wanted: Wanted, parts: Parts) -> tuple[Night, Objects]:
    """Return the plan of a night without writing."""
    source, out = open_objects(wanted.source, links=False, side="source"), open_objects(wanted.out, side="out")
    return nights.plan(source, out, wanted, parts.known(out)), out


@contextmanager
def full_night(
    wanted: Wanted, parts: Parts, tell: nights.Tell | None = None, planned: Callable[[Night], None] | None = None
) -> Iterator[Result]:
    """Run a night with its index; yield the result to a block that announces it.

    If the night ends before the block does, the next one announces its runs. ``planned`` is called with the plan."""
    night, out = look(wanted, parts)
    if planned is not None:
        planned(night)
    due = any(one.due for one in night.decisions)
    once = creates_once(out) if due and is_url(wanted.out) else True
    with Claims(out) as claims, unannounced.announcing(claims, due):
        with parts.executor() if due else nullcontext(Executor()) as executor:
            nights.report(night, out, wanted, executor, parts.work, claims, tell)
        with unannounced.of_ended_nights(out, claims) as ended:
            with claims.alone(INDEX_CLAIM):
                known = parts.known(out)
                finished_by_others(night, known, places.options_digest(wanted.options))
                rows = everything(known, night)
                written = parts.index(out, rows, _turn(out, ended | {claims.night}), _left_out(night, wanted))
            ids = {row.id for row in night.rows}
            taken_over = tuple(row for row in unannounced.rows_of(rows.values(), ended) if row.id not in ids)
            refused = tuple(parts.refused)
            yield Result(night, rows, written, claims, (*night.not_read, *refused), once, taken_over, refused)


@contextmanager
def index_only(wanted: Wanted, parts: Parts, announces: bool = False) -> Iterator[Result]:
    """Write the index without reports; it includes the runs that are still running.

    ``announces``: the block announces the runs of nights that ended before they could."""
    night, out = look(wanted, parts)
    night.open += nights.running(night, places.options_digest(wanted.options))
    nobody = frozenset[str]()
    with Claims(out) as claims, unannounced.of_ended_nights(out, claims) if announces else nullcontext(nobody) as ended:
        with claims.alone(INDEX_CLAIM):
            rows = everything(parts.known(out), night)
            written = parts.index(out, rows, _turn(out, ended), _left_out(night, wanted))
        taken_over = tuple(unannounced.rows_of(rows.values(), ended))
        refused = tuple(parts.refused)
        yield Result(Night(gone=night.gone), rows, written, claims, refused, taken_over=taken_over, refused=refused)


def finished_by_others(night: Night, known: Mapping[str, Row], digest: str) -> None:
    """Move runs from ``open`` to ``elsewhere`` if another night finished them since."""
    due = {one.run.id: one for one in night.decisions if one.due} if night.open else {}
    still = []
    for row in night.open:
        decision, done = due.get(row.id), known.get(row.id)
        if decision is None or done is None or done == decision.row or row.state == "failed":
            still.append(row)
        elif (done.fingerprint, done.options) == (decision.run.fingerprint, digest):
            night.elsewhere.append(done)
        else:
            still.append(row)
    night.open = still


def _turn(out: Objects, mine: frozenset[str] = frozenset()) -> Turn:
    from .news import Turn

    return Turn(mine, lambda: unannounced.at_work(out, mine))


def _left_out(night: Night, wanted: Wanted) -> not_read.Seen:
    """Return the lines of a night as the index may show them."""
    part = (wanted.shard, wanted.since_ns, wanted.until_ns, wanted.prefixes) != (None, None, None, None)
    return not_read.Seen(tuple(_lines(night, wanted)), not part and not night.source_is_empty)


def _lines(night: Night, wanted: Wanted) -> Iterator[str]:
    for line in night.not_read:
        path = line.partition(": ")[0]
        run = FoundRun(path, "traces", (ObjectInfo(path, 0, None, 0),), True, "")
        yield reasons.written(line, run, wanted.source, wanted.out, wanted.options.redact)


def everything(known: Mapping[str, Row], night: Night) -> dict[str, Row]:
    """Return the rows of the index.

    These are all done-markers, and the runs that are not up to date, unless another night has finished them. Runs whose files are gone get
    a warning."""
    rows = dict(known)
    for row in night.open:
        done = known.get(row.id)
        if done is None or (row.state != "failed" and done.fingerprint == row.fingerprint and done.state == row.state):
            rows[row.id] = row
    for run_id in night.gone:
        if run_id in rows:
            rows[run_id] = replace(rows[run_id], warnings=(*rows[run_id].warnings, nights.GONE))
    return dict(sorted(rows.items()))
