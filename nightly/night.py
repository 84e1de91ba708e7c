"""One night: find the runs, decide which are due, hand them to an executor, and collect the rows.

A run's done-marker is written last and contains all that is known of it. The next night therefore continues an interrupted one, and two
nights at the same time share the runs by their claims.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from .. import temporary
from ..errors import InputError
from ..garbage import collected_rarely
from ..ingest.object_store.objects import ObjectInfo, Objects, ObjectStoreError
from ..version import REPORT, __version__
from . import hard_limit, places, reasons, unreadable
from .claims import Claims
from .discover import found_runs, is_of, to_look_at, with_these
from .done_markers import marker, read_row
from .left_out import LeftOut
from .model import FoundRun, ReportOptions, Row, Task, packed, unpacked
from .shards import Shard

Why = Literal["new", "changed", "other options", "earlier version", "failed before", "again", "unchanged", "running"]
Fault = Literal["input", "timeout", "memory", "crash", "machine", "store", "internal"]
"""Why a run has no report. input: its files. timeout, memory: a limit. crash: its worker ended. machine: disk, memory or processes are
insufficient there. store: it failed, or the run is being written. internal: a defect of postrun or of a rule."""
_FAULTS: Final[dict[str | None, Fault]] = {"time": "timeout", "memory": "memory", "start": "machine"}  # by the cause of a WorkerDied
GONE: Final = "The files of this run are no longer at the source; this is its last report."
OUTDATED: Final = "The run has changed since this report: "
_ATTEMPTS: Final = 2
_RENEW_S: Final = 60.0
_LOOKS: Final = 16
_HEAD: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Wanted:
    """The user's options for a night. Times in ns (Unix). ``since``, ``until``: limits for a run's newest object. ``shard``: (i, n), i from
    0. ``in_flight``: how many runs are handed out at a time. ``run_stores``: whether run stores are reported. ``prefixes``: beginnings of
    the paths that are listed (dated.py); None: all. ``inventory``: read instead of a listing (inventory.py)."""

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
    redo: bool = False
    generated_at_ns: int | None = None
    run_stores: bool = False
    prefixes: tuple[str, ...] | None = None
    inventory: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a run, here without its objects. ``objects``: packed if it is due, else none. ``row``: from an earlier night."""

    run: FoundRun
    objects: bytes
    why: Why
    row: Row | None
    files: int
    bytes: int
    modified_ns: int

    @property
    def due(self) -> bool:
        return self.why not in ("unchanged", "running")

    @property
    def full_run(self) -> FoundRun:
        """Return the run with its objects if it is due."""
        return replace(self.run, objects=unpacked(self.objects))


@dataclass(slots=True)
class Night:
    """The result of a night. ``runs_found``: the number of runs, including those that the options leave out. ``runs_known``: the number of
    runs with a report. ``divided``: whether other shards list other runs. ``rows``: runs that were reported or failed in it. ``elsewhere``:
    rows of due runs that another night has finished meanwhile. ``open``: rows of runs that are not up to date, and why. ``faults``: of the
    failed runs, by id. ``not_read``: a line, with paths relative to the source, for each report of Nsight Systems and each omitted run
    store outside all runs, and for each object that the listing left out. ``stopped``: why it ended before all runs were handed out."""

    decisions: list[Decision] = field(default_factory=list)
    runs_found: int = 0
    runs_known: int = 0
    divided: bool = False
    gone: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    elsewhere: list[Row] = field(default_factory=list)
    open: list[Row] = field(default_factory=list)
    faults: dict[str, Fault] = field(default_factory=dict)
    stopped: str | None = None
    seconds: float = 0.0

    @property
    def source_is_empty(self) -> bool:
        """Whether the source has none of the runs that it had, as if it were not mounted."""
        return not self.runs_found and bool(self.gone)

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.rows if row.state == "failed"]


Tell = Callable[[Row, int, int], None]  # receives each returned row, the number of returned rows, and the number of due runs


def plan(source: Objects, out: Objects, wanted: Wanted, known: Mapping[str, Row]) -> Night:
    """Decide about each run. ``known``: the rows of all done-markers."""
    digest = places.options_digest(wanted.options)
    night = Night()
    seen: set[str] = set()
    report_folders = places.own_folders(source.url, out.url)
    shard = Shard(source, *(wanted.shard or (0, 1)), report_folders)
    not_read = LeftOut(not wanted.run_stores, report_folders)

    def search(listing: Iterator[ObjectInfo]) -> Iterator[FoundRun]:
        return found_runs(not_read.watch(listing), now_ns=wanted.now_ns, settle_ns=wanted.settle_ns, exclude=report_folders)

    damaged: list[str] = []
    with collected_rarely():
        for run in real_runs(source, shard.runs(search, _listing(source, wanted, shard)), known, damaged):
            seen.add(run.id)
            if lets_in(run, wanted, shard):
                night.decisions.append(decide(run, known.get(run.id), digest, wanted))
    night.runs_found, night.divided = len(seen), shard.divided
    night.not_read = (
        *not_read.notes(seen, lambda one: lets_in(one, wanted, shard)),
        *damaged,
        *(line.removeprefix(source.place("")) if not line.startswith(source.place(": ")) else line for line in source.left_out),
    )
    listed = (run for run in known if wanted.prefixes is None or run.startswith(wanted.prefixes))
    night.gone = tuple(sorted(run for run in {*listed} - seen - not_read.stores() if shard.lacks(run)))
    night.runs_known = len(known)
    return night


def _listing(source: Objects, wanted: Wanted, shard: Shard) -> Iterator[ObjectInfo]:
    if wanted.inventory is None:
        return shard.listing() if wanted.prefixes is None else source.list_below(wanted.prefixes)
    from . import inventory

    objects = inventory.listing(wanted.inventory, source)
    return objects if wanted.prefixes is None else (one for one in objects if one.path.startswith(wanted.prefixes))


def running(night: Night, digest: str) -> list[Row]:
    """Return rows of the runs whose jobs have not ended."""
    return [_open(one, "running", why_running(one.run), digest) for one in night.decisions if one.why == "running"]


def why_running(run: FoundRun) -> str:
    """Return why a run does not count as ended."""
    return f"{'`postrun record` has not ended' if run.recording else 'no end marker'}, and files were written less than --settle ago"


def lets_in(run: FoundRun, wanted: Wanted, shard: Shard) -> bool:
    """Decide whether --since, --until and --shard leave a run to this night."""
    return (
        (wanted.since_ns is None or run.modified_ns >= wanted.since_ns)
        and (wanted.until_ns is None or run.modified_ns < wanted.until_ns)
        and shard.has(run.id)
    )


def decide(run: FoundRun, row: Row | None, digest: str, wanted: Wanted) -> Decision:
    """Decide whether a run is due.

    By default a failed run waits for a change or another version of postrun, and the report of an earlier version is kept."""
    why: Why
    if row is None:
        why = "new" if run.complete else "running"
    elif not is_of(run, row.fingerprint):
        why = "changed" if run.complete else "running"
    elif row.options != digest:
        why = "other options"
    elif wanted.force:
        why = "again"
    elif row.state == "failed" and (wanted.retry_failed or row.postrun != __version__):
        why = "failed before"
    elif wanted.redo and row.folder is not None and row.report_version != REPORT:
        why = "earlier version"
    else:
        why = "unchanged"
    kept = () if why in ("unchanged", "running") else run.objects
    return Decision(replace(run, objects=()), packed(kept), why, row, len(run.objects), run.bytes, run.modified_ns)


def real_runs(source: Objects, runs: Iterable[FoundRun], known: Mapping[str, Row], damaged: list[str]) -> Iterator[FoundRun]:
    """Yield the runs without files that only look like a run's.

    If no file of a run begins like one, the run stores next to it are the runs. ``damaged`` receives a line for each file for which that is
    the reason."""
    doubtful = []
    for run in runs:
        complete_run = with_these(run, run.perhaps)
        if (run.perhaps or to_look_at(run)) and (run.id not in known or not is_of(complete_run, known[run.id].fingerprint)):
            doubtful.append(run)
        else:
            yield complete_run
    if doubtful:
        with ThreadPoolExecutor(_LOOKS) as looking:
            for real, lines in looking.map(lambda run: _looked_at(source, run), doubtful):
                damaged += lines
                yield from real


def _looked_at(source: Objects, run: FoundRun) -> tuple[tuple[FoundRun, ...], list[str]]:
    """Return the runs, and the damaged files that may be the reason for finding none."""
    files, heads = to_look_at(run), dict[str, bytes]()
    if files and not any(_begins_like_a_trace(source, one, heads) for one in files):
        sizes = {one.path: one.size for one in files} if run.complete else {}  # else one is being written
        reasons_of = {path: unreadable.reason(path, heads[path], len(heads[path]) == size) for path, size in sizes.items()}
        return run.stores, [f"{path}: {reason}" for path, reason in reasons_of.items() if reason is not None]
    return (with_these(run, [one for one in run.perhaps if _begins_like_a_trace(source, one, heads)]),), []


def _begins_like_a_trace(source: Objects, info: ObjectInfo, heads: dict[str, bytes]) -> bool:
    """Decide whether a file begins like a run's file, whatever its name.

    ``heads`` receives its first bytes."""
    from pathlib import Path

    from ..ingest.discover import format_of
    from ..ingest.store import format_names as names

    try:
        head = source.read(info.path, count=_HEAD)
    except ObjectStoreError:
        return True  # the report names the problem
    heads[info.path] = head
    with temporary.Folder() as folder:
        file = Path(folder) / info.path.rpartition("/")[2]
        file.write_bytes(head)
        file_format = format_of(file)
    return file_format is not None and file_format.name in (
        names.TRACE, names.NSIGHT, names.TIMELINE, names.TENSORFLOW, names.SYSTEM_METRICS, names.NVIDIA_SMI, names.DCGM, names.PYTHON_STATS,
        names.PYTHON_TREE, names.TORCH_TRACE,
    )  # fmt: skip


def report(
    night: Night, out: Objects, wanted: Wanted, executor: Executor, work: Callable[[Task], Row], claims: Claims, tell: Tell | None = None
) -> None:
    """Report the due runs, the largest first; try failed ones once more, alone."""
    _Handing(night, out, wanted, executor, work, claims, tell or (lambda row, done, of: None)).go()


def kill(executor: Executor) -> None:
    """Cancel all tasks, and end those that run if the executor can."""
    getattr(executor, "kill", lambda: executor.shutdown(wait=False, cancel_futures=True))()


@dataclass
class _Handing:
    """The runs of one night in the executor."""

    night: Night
    out: Objects
    wanted: Wanted
    executor: Executor
    work: Callable[[Task], Row]
    claims: Claims
    tell: Tell
    broken: bool = False

    def __post_init__(self) -> None:
        self.digest = places.options_digest(self.wanted.options)
        self.began_ns = time.time_ns()
        self.claimed: list[tuple[Decision, str]] = []  # runs of other nights, and the reason to leave them

    def go(self) -> None:
        due = [one for one in self.night.decisions if one.due]
        self.night.open += running(self.night, self.digest)
        # With a limit, the runs that have waited longest are reported.
        due.sort(key=lambda one: (one.modified_ns, one.run.id))
        if self.wanted.limit is not None:
            for decision in due[self.wanted.limit :]:
                self._waits(decision, f"more runs were due than --limit {self.wanted.limit}")
            del due[self.wanted.limit :]
        due.sort(key=lambda one: (-one.bytes, one.run.id))
        self.due = len(due)
        began = time.monotonic()
        try:
            for some in (due, self._freed()):
                again = list(some)
                for attempt in range(1, _ATTEMPTS + 1):
                    again = self._through(again, self.wanted.in_flight if attempt == 1 else 1, attempt)
            for decision, reason in self.claimed:
                self._waits(decision, reason)
        except BaseException:
            # The next night repeats the runs that are interrupted here.
            kill(self.executor)
            raise
        finally:
            self.night.seconds = time.monotonic() - began

    def _through(self, due: Sequence[Decision], in_flight: int, attempt: int) -> list[Decision]:
        """Hand out at most ``in_flight`` runs at a time; return those to try again."""
        queue, pending, again = deque(due), dict[Future[Row], Decision](), list[Decision]()
        while queue or pending:
            while queue and len(pending) < max(1, in_flight):
                decision = queue.popleft()
                if self._stops(len(again) if attempt == 1 else 0):
                    self._waits(decision, self.night.stopped or "")
                    continue
                if attempt == 1 and not self._claimed(decision):
                    continue
                try:
                    pending[self.executor.submit(self.work, self._task(decision, attempt))] = decision
                except RuntimeError as error:
                    self._break(error)
                    queue.appendleft(decision)
            if not pending:
                continue
            for future in wait(pending, timeout=_RENEW_S, return_when=FIRST_COMPLETED).done:
                decision = pending.pop(future)
                if not self._finished(decision, future, attempt):
                    again.append(decision)
        return again

    def _break(self, error: Exception) -> None:
        self.night.stopped, self.broken = f"the workers cannot go on: {error}", True

    def _stops(self, again: int) -> bool:
        """Decide whether ``again`` first failures are too many (--max-failures)."""
        most = self.wanted.max_failures
        if most is not None and again > most:
            self.night.stopped = self.night.stopped or f"more than {most} runs failed (--max-failures)"
            return True
        return self.broken

    def _claimed(self, decision: Decision) -> bool:
        """Take a run's claim, unless another night has it or has finished the run."""
        path = places.claim(decision.run.id)
        try:
            if not self.claims.take(path):
                who = self.claims.holder(path)
                named = who and "hosts" not in self.wanted.options.redact
                self.claimed.append((decision, f"another night is at it ({who})" if named else "another night is at it"))
                return False
            row = read_row(self.out, decision.run.id)
        except InputError as error:
            if not self.night.rows:
                raise
            self.night.stopped, self.broken = str(error), True
            self._waits(decision, self.night.stopped)
            return False
        if row is None or row == decision.row or (row.fingerprint, row.options) != (decision.run.fingerprint, self.digest):
            return True
        self.claims.give_back(path)
        self.night.elsewhere.append(row)
        return False

    def _freed(self) -> Iterator[Decision]:
        """Yield the runs whose nights have died, when the rest is done."""
        claimed, self.claimed = {places.claim(one.run.id): (one, reason) for one, reason in self.claimed}, []
        if not self.broken and self.night.stopped is None:
            with suppress(InputError):  # the store failed: the next night reports them
                for path in self.claims.freed(claimed):
                    yield claimed.pop(path)[0]
        self.claimed += claimed.values()

    def _task(self, decision: Decision, attempt: int) -> Task:
        at = self.wanted.generated_at_ns if self.wanted.generated_at_ns is not None else self.began_ns
        return Task(
            decision.full_run, self.wanted.source, self.wanted.out, self.wanted.options, at, attempt, _tickets(decision), self.claims.night
        )

    def _finished(self, decision: Decision, future: Future[Row], attempt: int) -> bool:
        """Record the outcome of a run; return False if it failed and is tried again."""
        keep, worker_row = True, None
        fault: Fault
        try:
            row = future.result()
        except BrokenExecutor as error:  # all workers are lost: the next night reports the run
            self._break(error)
            self._waits(decision, self.night.stopped or "")
            return True
        except ObjectStoreError as error:
            reason, fault, keep = str(error), "store", False  # the store failed, or the run is being written: the next night tries again
        except (Exception, SystemExit) as error:
            reason = str(error) or type(error).__name__
            fault = _FAULTS.get(getattr(error, "cause", None), "crash")
            keep = fault != "machine"  # no worker could be started: not the run's fault
        else:
            if row.state == "reported":
                self._done(decision, row)
                return True
            reason, worker_row, keep = row.reason or "the report failed, and it is not known why", row, not row.of_machine
            fault = _fault(row)
        if attempt < _ATTEMPTS:
            return False
        self.night.faults[decision.run.id] = fault
        self._failed(decision, reason, attempt, keep=keep, worker_row=worker_row)
        return True

    def _failed(self, decision: Decision, reason: str, attempts: int, *, keep: bool, worker_row: Row | None) -> None:
        """Record a failed run.

        ``keep``: whether the next night skips the run until it changes. ``worker_row``: the row that its worker returned."""
        run = decision.run
        reason = self._written(reason, decision)
        row = Row(
            id=run.id, state="failed", kind=run.kind, fingerprint=run.fingerprint, options=self.digest, bytes=decision.bytes,
            files=decision.files, reason=reason, attempts=attempts, reported_at_ns=time.time_ns(), report_version=REPORT,
            postrun=__version__, tickets=_tickets(decision), night=self.claims.night,
        )  # fmt: skip
        if worker_row is not None:
            names = ("fingerprint", "bytes", "files", "seconds", "folder", "written", "of_machine")
            row = replace(row, **{name: getattr(worker_row, name) for name in names})
        if keep:
            with suppress(InputError, OSError):  # without a marker the next night repeats the run
                self.out.write(places.done(row.id), marker(row), content_type="application/json")
        else:
            self.night.open.append(row)
        self._done(decision, row)

    def _done(self, decision: Decision, row: Row) -> None:
        with suppress(InputError, OSError):
            self.claims.give_back(places.claim(decision.run.id))
        self.night.rows.append(row)
        self.tell(row, len(self.night.rows) + len(self.night.elsewhere), self.due)

    def _waits(self, decision: Decision, reason: str) -> None:
        with suppress(InputError, OSError):
            self.claims.give_back(places.claim(decision.run.id))
        self.night.open.append(_open(decision, "waiting", self._written(reason, decision), self.digest))

    def _written(self, reason: str, decision: Decision) -> str:
        wanted = self.wanted
        text = reasons.written(reason, decision.full_run, wanted.source, wanted.out, wanted.options.redact)
        return reasons.without_run(text, decision.run.id, wanted.source)


def _tickets(decision: Decision) -> tuple[str, ...]:
    return () if decision.row is None else decision.row.tickets


def _fault(row: Row) -> Fault:
    """Return why a worker could not report a run."""
    if row.of_machine:
        return "machine"
    reason = row.reason or ""
    return "memory" if hard_limit.is_reason(reason) else "internal" if reason.startswith(reasons.INTERNAL) else "input"


def _open(decision: Decision, state: Literal["running", "waiting"], reason: str | None, digest: str) -> Row:
    """Return the row of a run that is not up to date, based on its last report."""
    text = reason or ""
    if decision.row is not None and decision.row.state == "reported":
        return replace(decision.row, warnings=(*decision.row.warnings, f"{OUTDATED}{text}."))
    run = decision.run
    return Row(
        id=run.id, state=state, kind=run.kind, fingerprint=run.fingerprint, options=digest, bytes=decision.bytes, files=decision.files,
        reason=reason,
    )  # fmt: skip
