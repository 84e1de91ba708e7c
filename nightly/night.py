"""How does one night go? Find the runs, decide which are due, hand them out, collect what comes back.

What is known of a run is its done-marker, which is written last; so a night that was ended in the middle is resumed by the next one, and
two nights at once share the runs by their claims.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from .. import temporary
from ..errors import InputError
from ..ingest.object_store.objects import ObjectInfo, Objects, ObjectStoreError
from ..ingest.object_store.urls import is_url
from . import left_out, places, reasons
from .claims import Claims
from .discover import found_runs, to_look_at, with_these
from .model import FoundRun, ReportOptions, Row, Task, row_of

Why = Literal["new", "changed", "other options", "failed before", "again", "unchanged", "running"]
GONE: Final = "The files of this run are no longer at the source; this is its last report."
OUTDATED: Final = "The run has changed since this report: "
_ATTEMPTS: Final = 2
_RENEW_S: Final = 60.0
_LOOKS: Final = 16
_HEAD: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asks of a night. Times in ns (Unix). ``since``, ``until``: of a run's newest object. ``shard``: (i, n), i from 0.
    ``in_flight``: how many runs are handed out at a time. ``run_stores``: whether run stores are reported."""

    source: str
    out: str
    options: ReportOptions
    now_ns: int
    settle_ns: int
    since_ns: int | None = None
    until_ns: int | None = None
    shard: tuple[int, int] | None = None
    limit: int | None = None
    max_failures: int | None = None
    in_flight: int = 1
    force: bool = False
    retry_failed: bool = False
    generated_at_ns: int | None = None
    run_stores: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done with a run, whose objects are kept only where it is due. ``row``: what is known of it from an earlier night."""

    run: FoundRun
    why: Why
    row: Row | None
    files: int
    bytes: int
    modified_ns: int

    @property
    def due(self) -> bool:
        return self.why not in ("unchanged", "running")


@dataclass(slots=True)
class Night:
    """What a night came to. ``found``: how many runs there are, also those that the options leave out. ``rows``: runs that were reported or
    failed in it. ``elsewhere``: rows of runs that were due, and that another night has done in the meantime.
    ``open``: rows of runs that are not up to date, and why.
    ``not_read``: a line for each report of Nsight Systems, and each run store that is left out, that stands where no run is, and for what
    the listing left out; with paths relative to the source.
    ``stopped``: why it ended before all was handed out."""

    decisions: list[Decision] = field(default_factory=list)
    found: int = 0
    gone: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    elsewhere: list[Row] = field(default_factory=list)
    open: list[Row] = field(default_factory=list)
    stopped: str | None = None
    seconds: float = 0.0

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.rows if row.state == "failed"]


Tell = Callable[[Row, int, int], None]  # Called with each row that comes back, how many have, and how many are due


def plan(source: Objects, out: Objects, wanted: Wanted, known: Mapping[str, Row]) -> Night:
    """The decision about every run that the options let in. ``known``: the rows of all done-markers."""
    digest = places.options_digest(wanted.options)
    night = Night()
    seen: set[str] = set()
    listing = source.list()
    own = own_folders(source.url, out.url)
    reports = left_out.LeftOut(left_out.nsight_folder, own)
    stores = left_out.LeftOut(left_out.store_folder, own)
    objects = listing if wanted.run_stores else stores.watch(listing)
    runs = found_runs(reports.watch(objects), now_ns=wanted.now_ns, settle_ns=wanted.settle_ns, exclude=own)
    for run in real_runs(source, runs, known):
        seen.add(run.id)
        if lets_in(run, wanted):
            night.decisions.append(decide(run, known.get(run.id), digest, wanted))
    night.found = len(seen)
    night.not_read = (
        *(left_out.nsight_note(one.id) for one in reports.runs(seen) if lets_in(one, wanted)),
        *(left_out.store_note(one.id) for one in stores.runs(seen) if lets_in(one, wanted)),
        *(line.removeprefix(source.place("")) if not line.startswith(source.place(": ")) else line for line in source.left_out),
    )
    night.gone = tuple(sorted(known.keys() - seen - stores.paths()))
    return night


def running(night: Night, digest: str) -> list[Row]:
    """Rows of the runs whose jobs have not ended."""
    return [_open(one, "running", None, digest) for one in night.decisions if one.why == "running"]


def own_folders(source: str, out: str) -> tuple[str, ...]:
    """The folder of the reports, where it lies below the source. Both as their Objects name them."""
    above, below = (url.rstrip("/") + "/" if is_url(url) else os.path.realpath(url).rstrip("/") + "/" for url in (source, out))
    return (below[len(above) : -1],) if below.startswith(above) and below != above else ()


def lets_in(run: FoundRun, wanted: Wanted) -> bool:
    """Whether --since, --until and --shard leave a run to this night."""
    if wanted.since_ns is not None and run.modified_ns < wanted.since_ns:
        return False
    if wanted.until_ns is not None and run.modified_ns >= wanted.until_ns:
        return False
    return wanted.shard is None or shard_of(run.id, wanted.shard[1]) == wanted.shard[0]


def shard_of(run_id: str, count: int) -> int:
    """Which of ``count`` shards a run belongs to: the same on every machine, in every night."""
    return int.from_bytes(hashlib.sha256(run_id.encode("utf-8", "surrogateescape")).digest()[:8], "big") % count


def decide(run: FoundRun, row: Row | None, digest: str, wanted: Wanted) -> Decision:
    """Whether a run is due. One that failed is tried again when it has changed, with other options, or when that is asked for."""
    why: Why
    if row is None:
        why = "new" if run.complete else "running"
    elif row.fingerprint != run.fingerprint:
        why = "changed" if run.complete else "running"
    elif row.options != digest:
        why = "other options"
    elif wanted.force:
        why = "again"
    elif row.state == "failed" and wanted.retry_failed:
        why = "failed before"
    else:
        why = "unchanged"
    kept = replace(run, objects=()) if why in ("unchanged", "running") else run
    return Decision(kept, why, row, len(run.objects), run.bytes, run.modified_ns)


def real_runs(source: Objects, runs: Iterable[FoundRun], known: Mapping[str, Row]) -> Iterator[FoundRun]:
    """The runs without those that only look like one: files that may be anything by their names, of which none begins like one of a run;
    then the run stores beside them are runs. Without files of that kind, too, that stand beside others of a run."""
    doubtful = []
    for run in runs:
        whole = with_these(run, run.perhaps)
        if (run.perhaps or to_look_at(run)) and (run.id not in known or known[run.id].fingerprint != whole.fingerprint):
            doubtful.append(run)
        else:
            yield whole
    if doubtful:
        with ThreadPoolExecutor(_LOOKS) as looking:
            for found in looking.map(lambda run: _looked_at(source, run), doubtful):
                yield from found


def _looked_at(source: Objects, run: FoundRun) -> tuple[FoundRun, ...]:
    files = to_look_at(run)
    if files and not any(_begins_like_a_trace(source, one) for one in files):
        return run.stores
    return (with_these(run, [one for one in run.perhaps if _begins_like_a_trace(source, one)]),)


def _begins_like_a_trace(source: Objects, one: ObjectInfo) -> bool:
    """Whether a file begins like one of a run, whatever its name says."""
    from pathlib import Path

    from ..ingest.discover import format_of
    from ..ingest.store.format_names import (
        DCGM,
        NSIGHT,
        NVIDIA_SMI,
        PYTHON_STATS,
        PYTHON_TREE,
        SYSTEM_METRICS,
        TENSORFLOW,
        TIMELINE,
        TRACE,
    )

    try:
        head = source.read(one.path, count=_HEAD)
    except ObjectStoreError:
        return True  # the report tells what is wrong
    with temporary.Folder() as folder:
        file = Path(folder) / one.path.rpartition("/")[2]
        file.write_bytes(head)
        found = format_of(file)
    return found is not None and found.name in (
        TRACE,
        NSIGHT,
        TIMELINE,
        TENSORFLOW,
        SYSTEM_METRICS,
        NVIDIA_SMI,
        DCGM,
        PYTHON_STATS,
        PYTHON_TREE,
    )


def report(
    night: Night, out: Objects, wanted: Wanted, executor: Executor, work: Callable[[Task], Row], claims: Claims, tell: Tell | None = None
) -> None:
    """Report what is due, biggest first; a run that fails is tried once more, alone. Fills ``night``; a bad run never raises."""
    _Handing(night, out, wanted, executor, work, claims, tell or (lambda row, done, of: None)).go()


class _Handing:
    """The runs of one night on their way through the executor."""

    def __init__(
        self, night: Night, out: Objects, wanted: Wanted, executor: Executor, work: Callable[[Task], Row], claims: Claims, tell: Tell
    ) -> None:
        self.night = night
        self.out = out
        self.wanted = wanted
        self.executor = executor
        self.work = work
        self.claims = claims
        self.tell = tell
        self.digest = places.options_digest(wanted.options)
        self.began_ns = time.time_ns()
        self.broken = False

    def go(self) -> None:
        due = [one for one in self.night.decisions if one.due]
        self.night.open += running(self.night, self.digest)
        # Who waits longest comes first where not all may come.
        due.sort(key=lambda one: (one.modified_ns, one.run.id))
        if self.wanted.limit is not None:
            for one in due[self.wanted.limit :]:
                self._waits(one, f"more than {self.wanted.limit} runs were due (--limit)")
            del due[self.wanted.limit :]
        due.sort(key=lambda one: (-one.bytes, one.run.id))
        self.due = len(due)
        began = time.monotonic()
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                due = self._through(due, self.wanted.in_flight if attempt == 1 else 1, attempt)
        except BaseException:
            # What runs is given up: it is done again by the next night.
            getattr(self.executor, "kill", lambda: self.executor.shutdown(wait=False, cancel_futures=True))()
            raise
        finally:
            self.night.seconds = time.monotonic() - began

    def _through(self, due: Sequence[Decision], in_flight: int, attempt: int) -> list[Decision]:
        """Hand out, at most ``in_flight`` at a time; those that are to be tried again."""
        queue, pending, again = deque(due), dict[Future[Row], Decision](), list[Decision]()
        while queue or pending:
            while queue and len(pending) < max(1, in_flight):
                one = queue.popleft()
                if self._stops(len(again) if attempt == 1 else 0):
                    self._waits(one, self.night.stopped or "")
                    continue
                if attempt == 1 and not self._claimed(one):
                    continue
                try:
                    pending[self.executor.submit(self.work, self._task(one, attempt))] = one
                except (BrokenExecutor, RuntimeError) as error:
                    self.night.stopped, self.broken = f"the workers cannot go on: {error}", True
                    queue.appendleft(one)
            if not pending:
                continue
            for future in wait(pending, timeout=_RENEW_S, return_when=FIRST_COMPLETED).done:
                one = pending.pop(future)
                row = self._outcome(one, future, attempt)
                if row is None:
                    again.append(one)
        return again

    def _stops(self, again: int) -> bool:
        """``again``: how many runs have failed once by now. Too many failures end the night, but for second attempts."""
        most = self.wanted.max_failures
        if most is not None and again > most:
            self.night.stopped = self.night.stopped or f"more than {most} runs failed (--max-failures)"
            return True
        return self.broken

    def _claimed(self, one: Decision) -> bool:
        """Whether this night is to report the run. Another may have it, or may have done it since the plan was made."""
        path = places.claim(one.run.id)
        try:
            if not self.claims.take(path):
                who = self.claims.holder(path)
                named = who and "hosts" not in self.wanted.options.redact
                self._waits(one, f"another night is at it ({who})" if named else "another night is at it")
                return False
            made = read_row(self.out, one.run.id)
        except InputError as error:
            if not self.night.rows:
                raise
            self.night.stopped, self.broken = str(error), True
            self._waits(one, self.night.stopped)
            return False
        if made is None or made == one.row or (made.fingerprint, made.options) != (one.run.fingerprint, self.digest):
            return True
        self.claims.give_back(path)
        self.night.elsewhere.append(made)
        return False

    def _task(self, one: Decision, attempt: int) -> Task:
        at = self.wanted.generated_at_ns if self.wanted.generated_at_ns is not None else self.began_ns
        return Task(one.run, self.wanted.source, self.wanted.out, self.wanted.options, at, attempt)

    def _outcome(self, one: Decision, future: Future[Row], attempt: int) -> Row | None:
        """The row of a run that came back; None where it failed, and is to be tried again."""
        keep, told = True, None
        try:
            row = future.result()
        except ObjectStoreError as error:
            reason, keep = str(error), False  # of the store, or of a run that is being written: the next night tries again
        except (Exception, SystemExit) as error:
            reason = str(error) or type(error).__name__
            keep = getattr(error, "cause", None) != "start"  # no worker could be started: of the machine, not of the run
        else:
            if row.state == "reported":
                return self._done(one, row)
            reason, told, keep = row.reason or "the report failed, and it is not known why", row, not row.of_machine
        if attempt < _ATTEMPTS:
            return None
        return self._failed(one, reason, attempt, keep=keep, told=told)

    def _failed(self, one: Decision, reason: str, attempts: int, *, keep: bool, told: Row | None) -> Row:
        """``keep``: whether the next night is to know of it, and leave the run alone until it changes. ``told``: what its worker said."""
        run = one.run
        reason = self._written(reason, one)
        row = Row(
            id=run.id, state="failed", kind=run.kind, fingerprint=run.fingerprint, options=self.digest, bytes=one.bytes,
            files=one.files, reason=reason, attempts=attempts, reported_at_ns=time.time_ns(),
        )  # fmt: skip
        if told is not None:
            row = replace(
                row, fingerprint=told.fingerprint, bytes=told.bytes, files=told.files, seconds=told.seconds, folder=told.folder,
                written=told.written,
            )  # fmt: skip
        if keep:
            self._mark(row)
        else:
            self.night.open.append(row)
        return self._done(one, row)

    def _mark(self, row: Row) -> None:
        # Where it cannot be written, the run is only done again.
        with suppress(InputError, OSError):
            self.out.write(places.done(row.id), marker(row), content_type="application/json")

    def _done(self, one: Decision, row: Row) -> Row:
        with suppress(InputError, OSError):
            self.claims.give_back(places.claim(one.run.id))
        self.night.rows.append(row)
        self.tell(row, len(self.night.rows) + len(self.night.elsewhere), self.due)
        return row

    def _waits(self, one: Decision, reason: str) -> None:
        with suppress(InputError, OSError):
            self.claims.give_back(places.claim(one.run.id))
        self.night.open.append(_open(one, "waiting", self._written(reason, one), self.digest))

    def _written(self, reason: str, one: Decision) -> str:
        return reasons.written(reason, one.run, self.wanted.source, self.wanted.out, self.wanted.options.redact)


def _open(one: Decision, state: Literal["running", "waiting"], reason: str | None, digest: str) -> Row:
    """The row of a run that is not up to date: that of its last report, where there is one."""
    said = reason or ("the job has not ended" if state == "running" else "")
    if one.row is not None and one.row.state == "reported":
        return replace(one.row, warnings=(*one.row.warnings, f"{OUTDATED}{said}."))
    run = one.run
    return Row(
        id=run.id, state=state, kind=run.kind, fingerprint=run.fingerprint, options=digest, bytes=one.bytes, files=one.files,
        reason=reason,
    )  # fmt: skip


def marker(row: Row) -> bytes:
    """What a done-marker holds."""
    return json.dumps(row.to_json(), ensure_ascii=False, sort_keys=True).encode("utf-8", "backslashreplace")


def read_row(out: Objects, run_id: str) -> Row | None:
    """The done-marker of a run; None where there is none, or none that can be read."""
    path = places.done(run_id)
    row = None if out.head(path) is None else read_marker(out, path)
    return row if row is not None and row.id == run_id else None


def read_marker(out: Objects, path: str) -> Row | None:
    """The row in a done-marker; None if it is not one that a night could have written."""
    from .table import sound

    try:
        data = out.read(path, count=places.MOST_MARKER + 1)
        row = row_of(json.loads(data)) if len(data) <= places.MOST_MARKER else None
        return row if row is not None and sound(row) and places.is_own(row) else None
    except ObjectStoreError:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def remove_superseded(out: Objects, row: Row) -> int:
    """Removes the reports of earlier versions of a run, and what is left of those that were never finished; how many objects.

    To be called when the index refers to the last one. Runs that lie below this one are left alone."""
    if row.state != "reported" or row.folder is None:
        return 0
    above = places.run_folder(row.id) + "/"
    if not row.folder.startswith(above):
        return 0
    kept, removed = row.folder + "/", 0
    for one in list(out.list(above)):
        if places.VERSION_FOLDER.match(one.path[len(above) :]) and not one.path.startswith(kept):
            out.delete(one.path)
            removed += 1
    return removed
