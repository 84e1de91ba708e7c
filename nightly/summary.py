"""Messages about a night: lines for people, a summary for machines, and the words of --fail-on that match."""

from __future__ import annotations

import os
import shlex
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .. import modes
from ..analysis.report.rules import ERROR, ISSUES
from ..analysis.rules.engine.catalogue import PROFILER_REPORT
from ..ingest.object_store.folder import LINK
from ..ingest.object_store.objects import Objects
from ..ingest.object_store.urls import is_url
from ..version import REPORT, __version__
from . import places
from .model import Row
from .night import Night, why_running
from .run_night import Result

if TYPE_CHECKING:
    from .history import Finding

REGRESSION: Final = "regression"
_ANY: Final = "issues"
_FAILED: Final = "error"
_LENGTH: Final = 200
_MOST_FAILED: Final = 20
_NAMED: Final = 5
NOT_ONCE: Final = (
    "the store of --out ignores conditional writes (If-None-Match; in Google Cloud Storage x-goog-if-generation-match), so nights at the"
    " same time report runs twice; start one at a time, or use a store that knows them"
)


def _short(reason: str | None) -> str:
    """Shorten a reason to one line; the index contains all of it."""
    text = " ".join((reason or "").split())
    return text if len(text) <= _LENGTH else text[: text.rfind(" ", 0, _LENGTH)] + " ..."


def plan_lines(night: Night, limit: int | None) -> Iterator[str]:
    """Yield the decision about each run. ``limit``: the most runs of one night."""
    for decision in sorted(night.decisions, key=lambda one: one.run.id):
        run = decision.run
        if decision.due:
            yield f"{run.id}: {decision.why} ({run.kind}, {_count(decision.files, 'file')}, {decision.bytes / 1e6:.1f} MB)"
        elif decision.why == "running":
            yield f"{run.id}: not yet: {why_running(run)}"
    counts = Counter(one.why for one in night.decisions)
    due = sum(one.due for one in night.decisions)
    of = _count(len(night.decisions), "run")
    first = f", the {limit} first that have waited longest (--limit)" if limit is not None and limit < due else ""
    yield f"{due} of {of} would be reported{first}; unchanged: {counts['unchanged']}, running: {counts['running']}"


def plan_data(night: Night) -> dict[str, Any]:
    return {
        "runs": [
            {
                "id": one.run.id, "due": one.due, "why": one.why, "kind": one.run.kind, "files": one.files,
                "bytes": one.bytes, "modified_ns": one.modified_ns, "fingerprint": one.run.fingerprint,
            }
            for one in sorted(night.decisions, key=lambda one: one.run.id)
        ],
        "gone": list(night.gone),
        "left_out": list(night.not_read),
    }  # fmt: skip


def row_line(row: Row, done: int, due: int) -> str:
    """Describe one finished run."""
    took = "" if row.seconds is None else f" ({row.seconds:.1f} s)"
    text = f"failed: {_short(row.reason)}" if row.state == "failed" else row.headline or "reported"
    return f"[{done}/{due}] {row.id}{took}: {text}"


def lines(result: Result, out: Objects) -> Iterator[str]:
    """Yield the lines at the end of a night."""
    night = result.night
    states = Counter(row.state for row in night.rows)
    parts = [f"{states['reported']} reported", f"{states['failed']} failed", f"{result.unchanged} unchanged"]
    if result.taken_over:
        parts.append(f"{len(result.taken_over)} of an interrupted night")
    if result.elsewhere:
        parts.append(f"{result.elsewhere} by another night")
    for state, what in (("running", "still running"), ("waiting", "waiting")):
        if count := result.index.states.get(state, 0):
            parts.append(f"{count} {what}")
    yield f"{', '.join(parts)}; {_count(result.index.total, 'run')} in the index"
    yield out.place(places.INDEX_FILES[0])


def failure_notes(failed: Iterable[Row]) -> Iterator[str]:
    """Yield why runs could not be reported."""
    reasons = {row.id: row.reason for row in failed}
    for run_id, reason in sorted(reasons.items())[:_MOST_FAILED]:
        yield f"{run_id} failed: {_short(reason)}"
    if len(reasons) > _MOST_FAILED:
        yield f"{len(reasons) - _MOST_FAILED} more failed; the index lists all"


def alarm_notes(rows: Iterable[Row], regressions: Sequence[Finding], fail_on: Sequence[str]) -> Iterator[str]:
    """Yield the details of --fail-on, which a quiet night also prints."""
    if REGRESSION in fail_on:
        yield from regression_notes(regressions, fail_on)
    if _FAILED in fail_on:
        yield from failure_notes(row for row in rows if row.state == "failed")


def notes(result: Result) -> Iterator[str]:
    """Yield notes on failures and on files that were left out."""
    night = result.night
    reasons = {row.id for row in night.failed}
    yield from failure_notes(night.failed)
    errors = Counter(rule for row in night.rows for rule, verdict in row.verdicts.items() if verdict == ERROR)
    for rule, number in errors.most_common(_NAMED):
        yield f"{rule} failed in {_count(number, 'run')}, so it is not known whether they have an issue; --fail-on error matches that"
    failed = [row for row in result.rows.values() if row.state == "failed" and row.id not in reasons]
    stores = [row.id for row in failed if row.kind == "store"]
    skipped = {one for one in stores if any(line.startswith(f"{one}: ") for line in result.left_out)}  # without --run-stores
    if before := len(failed) - len(skipped):
        yield f"{_count(before, 'run')} of earlier nights without a report; the index has the reasons, --retry-failed tries again"
    if not result.creates_once:
        yield NOT_ONCE
    if result.taken_over:
        taken = [row.id for row in result.taken_over]
        it = "it" if len(taken) == 1 else "them"
        yield f"an interrupted night reported {_count(len(taken), 'run')}; --fail-on and --attach include {it} now: {_named(taken)}"
    if night.stopped is not None:
        yield f"the night ended early: {night.stopped}"
    waiting = Counter(row.reason for row in night.open if row.state == "waiting")
    for reason, count in waiting.most_common(_NAMED):
        if reason != night.stopped:
            yield f"{_count(count, 'run')} left for another time: {reason}"
    running: dict[str, list[str]] = {}
    for decision in night.decisions:
        if decision.why == "running":
            running.setdefault(why_running(decision.run), []).append(decision.run.id)
    for reason, ids in running.items():
        yield f"{_count(len(ids), 'run')} left until the job ends ({reason}): {_named(ids)}"
    if earlier := sum(row.report_version != REPORT for row in result.rows.values() if row.state == "reported" and row.folder):
        yield f"{_count(earlier, 'report')} of an earlier version of postrun; --redo makes them again"
    if night.gone:
        yield f"{_count(len(night.gone), 'run')} in the index no longer at the source; the reports are kept"
    if dropped := result.index.dropped:
        yield f"{_count(len(dropped), 'run')} without a report left the index, because no night finds them anymore: {_named(dropped)}"
    yield from left_out([line for line in result.left_out if line not in result.refused])
    yield from result.refused[:_NAMED]
    if (more := len(result.refused) - _NAMED) > 0:
        yield f"{_count(more, 'more file')} below --out not as postrun nightly writes them (--json lists all)"
    if (alone := result.index.alone_told) is not None:
        yield "; ".join(alone)


def left_out(objects: Sequence[str]) -> Iterator[str]:
    """Yield all links, and the first of the other lines."""
    named = 0
    for line in objects:
        named += not line.endswith(LINK)
        if named <= _NAMED or line.endswith(LINK):
            yield f"left out: {line}"
    if named > _NAMED:
        yield f"left out: {named - _NAMED} more {'file or folder' if named == _NAMED + 1 else 'files or folders'} (--json lists all)"


def closed(out: str, mode: int) -> Iterator[str]:
    """Yield a note for folders that keep others from reports that ``mode`` opens.

    These are existing local folders: of the output, and above it those that the user owns."""
    if is_url(out):
        return
    opened = modes.folder_mode(mode) & 0o055
    words = ",".join(f"{who}=r{'w' * bool(mode >> shift & 2)}X" for who, shift in (("u", 6), ("g", 3), ("o", 0)) if mode >> shift & 4)
    for path in (Path(out), Path(out) / places.RUNS):
        if line := _closed(path, opened, f"chmod -R {words} {shlex.quote(out)}"):
            yield line
            break
    search = opened & 0o011
    added = "g" * bool(search & 0o010) + "o" * bool(search & 0o001)
    for path in Path(os.path.realpath(out)).parents:
        with suppress(OSError):
            if path.stat().st_uid == os.geteuid() and (line := _closed(path, search, f"chmod {added}+x {shlex.quote(str(path))}")):
                yield line


def narrower(out: str, file: str, mode: int) -> Iterator[str]:
    """Yield a note if fewer users can read a file than the index next to it."""
    with suppress(OSError):
        index = 0 if is_url(out) else stat.S_IMODE((Path(out) / places.INDEX_FILES[0]).stat().st_mode) & 0o666
        if index & 0o044 & ~mode:
            yield f"{file} has mode {mode:04o}, and {places.INDEX_FILES[0]} next to it {index:04o}; --mode {index:04o} publishes both"


def _closed(folder: Path, wanted: int, command: str) -> str | None:
    try:
        has = stat.S_IMODE(folder.stat().st_mode)
    except OSError:
        return None
    if not (missing := wanted & ~has):
        return None
    who = "other users" if missing & 0o007 else "its group"
    return f"{folder} has mode {has:04o}, so {who} cannot read the reports; run `{command}`"


def regression_line(finding: Finding) -> str:
    return f"regression of {finding.family} in {finding.id}: {finding.text}"


def summary(
    result: Result, out: Objects, regressions: Sequence[Finding], tickets: Sequence[Mapping[str, Any]], fail_on: Sequence[str]
) -> dict[str, Any]:
    """Return what --json prints.

    ``tickets``: what --attach did, or could not do. ``fail_on``: what matched."""
    night = result.night
    return {
        "version": __version__,
        "index": {name.rpartition(".")[2]: out.place(name) for name in places.INDEX_FILES},
        "found": len(night.decisions),
        "unchanged": sum(one.why == "unchanged" for one in night.decisions),
        "reported": [row.id for row in night.rows if row.state == "reported"],
        "failed": [{"id": row.id, "reason": row.reason} for row in night.failed],
        "taken_over": [row.id for row in result.taken_over],
        "elsewhere": [row.id for row in night.elsewhere],
        "open": [{"id": row.id, "state": row.state, "reason": row.reason} for row in night.open if row.state in ("running", "waiting")],
        "gone": list(night.gone),
        "dropped": list(result.index.dropped),
        "regressions": [{"id": one.id, "family": one.family, "text": one.text} for one in regressions],
        "tickets": list(tickets),
        "fail_on": list(fail_on),
        "stopped": night.stopped,
        "left_out": list(result.left_out),
        "conditional_writes": result.creates_once,
        "seconds": round(night.seconds, 3),
        "seconds_of": {row.id: round(row.seconds, 3) for row in night.rows if row.seconds is not None},
        "runs": result.index.total,
    }


def regression_notes(regressions: Sequence[Finding], fail_on: Sequence[str]) -> list[str]:
    """Return a line for each regression that the line of --fail-on does not name."""
    return [regression_line(finding) for finding in regressions[_NAMED * (REGRESSION in fail_on) :]]


def matched(rows: Iterable[Row], regressed: Sequence[str], fail_on: Sequence[str]) -> str | None:
    """Describe the matching words of --fail-on. ``regressed``: regression lines."""
    rows = list(rows)
    matches = []
    names = {word for word in fail_on if word not in (_ANY, _FAILED, REGRESSION)}
    if _ANY in fail_on:
        names |= {rule for row in rows for rule in row.verdicts if rule != PROFILER_REPORT}
    rules_of = {row.id: [rule for rule, verdict in row.verdicts.items() if verdict == ISSUES and rule in names] for row in rows}
    issues = {run_id: rules for run_id, rules in rules_of.items() if rules}
    if issues:
        counts = Counter(rule for rules in issues.values() for rule in rules)
        matches.append(f"issues in {_named(issues)} ({', '.join(rule for rule, _ in counts.most_common(_NAMED))})")
    if _FAILED in fail_on:
        if failed := [row.id for row in rows if row.state == "failed"]:
            matches.append(f"no report of {_named(failed, most=_MOST_FAILED)}")
        if broken := [row.id for row in rows if ERROR in row.verdicts.values()]:
            matches.append(f"rules that failed in {_named(broken)}")
    if REGRESSION in fail_on and regressed:
        matches.append(_named(regressed, "; "))
    return "; ".join(matches) or None


def _named(ids: Iterable[str], separator: str = ", ", most: int = _NAMED) -> str:
    named = list(ids)
    return separator.join(named[:most]) + (f" and {len(named) - most} more" if len(named) > most else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
