"""The tickets of a night: a file of rules and the rows of the index -> actions, each of which is then sent.

    limit = 10                         # tickets per rule and night; the rest is in one summary

    [[rule]]
    name = "slow steps"
    to = "jira:PERF"                   # a project: opens a ticket, or comments on the one it opened; or a ticket, mailto:, https://
    regression = true
    run = ["gpt-*", "bert-*"]          # name of the run, its family, or its id
    labels = {team = "vision"}
    verdicts = ["LowGPUUtilization"]   # or ["any"]
    title = "{family}: {reason}"

All conditions of ``run`` and ``labels`` must hold, and at least one of ``verdicts``, ``regression`` and ``failed``.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ..analysis.rules.engine.catalogue import PROFILER_REPORT
from ..analysis.toolkit.wording import plural
from ..errors import InputError, UsageError
from ..report_templates.text.markdown import parted
from ..tickets import settings as ticket_settings
from ..tickets.http import Options, Upload
from ..tickets.markup import length, plain
from ..tickets.message import WORDS, Message, Verdict, from_report, marker, order, slug
from ..tickets.report_files import CONTENT_TYPES, FORMATS
from ..tickets.systems import delivery
from ..tickets.target import Target, parse
from ..tickets.tracker import NewTicket, Tracker
from .families import family_of
from .outbox import Entry

if TYPE_CHECKING:
    from .history import Finding
    from .model import Row

_TYPES: Final = {str: "a text", list: "a list of texts", dict: "a table of texts", bool: "true or false", int: "a whole number"}
_KEYS: Final = {
    "name": str, "to": str, "run": list, "labels": dict, "verdicts": list, "regression": bool, "failed": bool, "title": str, "attach": list,
    "issue_type": str, "ticket_labels": list, "per": str, "limit": int,
}  # fmt: skip
_FIELDS: Final = ("run", "family", "reason", "rule", "gpu", "status")
_LIMIT: Final = 10
_LINKING_TITLES: Final = {"gitlab", "github", "gitea"}  # Systems that look for mentions and issues in titles
_TITLE: Final = "postrun: {family}: {reason}"
_SUMMARY_ROWS: Final = 200
_OTHERS: Final = 20  # runs of the family that a message lists besides the newest


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    target: Target
    run: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    verdicts: tuple[str, ...] = ()
    regression: bool = False
    failed: bool = False
    title: str = _TITLE
    attach: tuple[str, ...] = ("pdf",)
    issue_type: str | None = None
    ticket_labels: tuple[str, ...] = ()
    per: str = "family"
    limit: int = _LIMIT


@dataclass(frozen=True, slots=True)
class Action:
    """One message to one target. ``ticket_key``: of the ticket to open or to find, if the target is a project. ``row``: of the
    run whose report is linked; ``files``: formats to attach. ``run``, ``reasons``: id of the run that it is about, and the first lines of
    the message; ``number`` of runs in a summary, which is about none."""

    rule: str
    target: Target
    title: str
    message: Message
    ticket_key: str
    row: Row | None = None
    files: tuple[str, ...] = ()
    issue_type: str | None = None
    ticket_labels: tuple[str, ...] = ()
    run: str | None = None
    reasons: tuple[str, ...] = ()
    number: int = 1


def load(path: Path, *, settings: ticket_settings.Settings | None = None) -> tuple[Rule, ...]:
    """Return the checked rules of a TOML file. Raise UsageError for a mistake."""
    checked = rules(ticket_settings.read_toml(path, "--attach"), str(path))
    known = settings or ticket_settings.load()
    for rule in checked:
        try:
            delivery(rule.target, known, Options())
        except UsageError as error:
            raise UsageError(f"{path}, rule {rule.name}: {error}") from None
    return checked


def rules(content: Mapping[str, Any], source: str) -> tuple[Rule, ...]:
    if unknown := sorted(content.keys() - {"rule", "limit"}):
        raise UsageError(f"{source}: {unknown[0]} is unknown; a file of rules has limit and [[rule]] tables")
    tables = content.get("rule")
    if not isinstance(tables, list) or not tables:
        raise UsageError(f"{source}: there is no [[rule]]")
    limit = _limit(content.get("limit", _LIMIT), f"{source}: limit")
    checked = tuple(_rule(table, f"{source}, rule {number}", limit) for number, table in enumerate(tables, 1))
    if repeated := next((name for name, number in Counter(rule.name for rule in checked).items() if number > 1), None):
        raise UsageError(f"{source}: two rules have the name {repeated!r}; the name tells their tickets apart")
    return checked


def _limit(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise UsageError(f"{where} is {value!r}; write a whole number from 1 to 1000")
    return value


def _rule(table: Any, where: str, limit: int) -> Rule:
    if not isinstance(table, dict):
        raise UsageError(f"{where} is not a table; write [[rule]] above its keys")
    table = {name: [value] if _KEYS.get(name) is list and isinstance(value, str) else value for name, value in table.items()}
    for name, value in table.items():
        if name not in _KEYS:
            raise UsageError(f"{where}: {name} is unknown; possible: {', '.join(_KEYS)}")
        kind = _KEYS[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise UsageError(f"{where}: {name} must be {_TYPES[kind]}")
        if isinstance(value, list) and not all(isinstance(text, str) and text for text in value):
            raise UsageError(f"{where}: {name} must be a list of texts")
    for name in ("name", "to"):
        if not table.get(name):
            raise UsageError(f"{where}: {name} is missing")
    if not (table.get("verdicts") or table.get("regression") or table.get("failed")):
        raise UsageError(f"{where}: no condition is set; set verdicts, regression = true or failed = true")
    if table.get("per", "family") not in ("family", "run"):
        raise UsageError(f"{where}: per is {table['per']!r}; write family (a ticket for all its runs) or run")
    if unknown := [kind for kind in table.get("attach", ()) if kind not in FORMATS]:
        raise UsageError(f"{where}: attach has {unknown[0]!r}; possible: {', '.join(FORMATS)}")
    try:
        table.get("title", _TITLE).format(**dict.fromkeys(_FIELDS, ""))
    except (KeyError, IndexError, ValueError, AttributeError):
        fields = ", ".join(f"{{{name}}}" for name in _FIELDS)
        raise UsageError(f"{where}: title {table['title']!r} has an unknown part; possible: {fields}") from None
    try:
        target = parse(table["to"], projects=True)
    except UsageError as error:
        raise UsageError(f"{where}: to: {error}") from None
    labels = tuple((str(name), str(value)) for name, value in table.get("labels", {}).items())
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in table.items() if name not in ("to", "labels")
    }
    values["limit"] = _limit(table["limit"], f"{where}: limit") if "limit" in table else limit
    return Rule(target=target, labels=labels, **values)


def actions(
    rules: Sequence[Rule],
    rows: Sequence[Row],
    regressions: Iterable[Finding],
    patterns: Sequence[re.Pattern[str]] = (),
    known: Mapping[str, Row] = MappingProxyType({}),
) -> list[Action]:
    """Return the actions rule by rule, one per ticket.

    Each is about the newest matching run and lists the others. They are in the order of the rows; one summary replaces those beyond the
    limit. ``rows``: those that are new this night. ``patterns``: of --family. ``known``: rows of all runs by id, for regressions of other
    runs."""
    worse: dict[str, list[str]] = {}
    for regression in regressions:
        worse.setdefault(regression.id, []).append(regression.text)
    new = {row.id for row in rows}
    others = [known[run_id] for run_id in worse if run_id not in new and run_id in known]
    runs = [_run(row, patterns, tuple(worse.get(row.id, ())), row.id in new) for row in (*rows, *others)]
    planned = []
    for rule in rules:
        tickets: dict[str, list[_Match]] = {}
        for run in runs:
            if reasons := _reasons(rule, run):
                tickets.setdefault(run.family if rule.per == "family" else run.row.id, []).append((run, reasons))
        groups = [sorted(group, key=lambda match: -match[0].row.at_ns) for group in tickets.values()]
        kept = groups if len(groups) <= rule.limit else groups[: rule.limit - 1]
        planned += [_action(rule, *group) for group in kept]
        if rest := [match for group in groups[len(kept) :] for match in group]:
            planned.append(_summary(rule, rest))
    return planned


@dataclass(frozen=True, slots=True)
class _Run:
    """A run with its family and the texts of its regressions. ``new``: this night reported it."""

    row: Row
    family: str
    worse: tuple[str, ...]
    new: bool


def _run(row: Row, patterns: Sequence[re.Pattern[str]], worse: tuple[str, ...] = (), new: bool = True) -> _Run:
    return _Run(row, family_of(row.name, row.id, row.labels, patterns), worse, new)


_Match = tuple[_Run, tuple[str, ...]]
"""A run and the reasons for which a rule matched it."""


def _reasons(rule: Rule, run: _Run) -> tuple[str, ...]:
    row = run.row
    if row.state not in ("reported", "failed"):
        return ()
    names = [row.id, row.name or "", run.family]
    if rule.run and not any(fnmatch.fnmatchcase(name, pattern) for pattern in rule.run for name in names):
        return ()
    if any(not fnmatch.fnmatchcase(row.labels.get(name, ""), pattern) or name not in row.labels for name, pattern in rule.labels):
        return ()
    reasons = list(run.worse) if rule.regression else []
    if not run.new:
        return tuple(reasons)
    if rule.failed and row.state == "failed":
        reasons.append(f"there is no report: {row.reason or 'no reason is known'}")
    issues = [name for name, verdict in row.verdicts.items() if verdict == "IssuesFound"]
    wanted = {name.lower() for name in rule.verdicts}
    of_any = {name for name in issues if name != PROFILER_REPORT} if "any" in wanted else set()
    if named := [name for name in issues if name in of_any or name.lower() in wanted]:
        reasons.append(f"issues found by {', '.join(named)}")
    return tuple(reasons)


def _action(rule: Rule, newest: _Match, *others: _Match) -> Action:
    row = newest[0].row
    return _about(rule, *newest, _listed(others, _OTHERS, "Also "), f"{rule.name}/{row.id}/{row.fingerprint}")


def _about(rule: Rule, run: _Run, reasons: tuple[str, ...], more: tuple[str, ...], key: str) -> Action:
    """Return the action about a run. ``more``: lines about other runs."""
    row = run.row
    origin = {"run": row.id, "rule": rule.name, "family": run.family}
    message = replace(_message(row), key=key, lines=(*reasons, *more), origin=origin)
    parts = {
        "run": row.name or row.id,
        "family": run.family,
        "reason": reasons[0],
        "rule": rule.name,
        "gpu": row.gpu_name or "",
        "status": row.status or row.state,
    }
    parts = {name: plain(text) for name, text in parts.items()}
    if rule.target.kind in _LINKING_TITLES:
        parts = {name: parted(text) for name, text in parts.items()}
    files = tuple(kind for kind in rule.attach if row.state == "reported" and f"report.{kind}" in row.written)
    return Action(
        rule=rule.name,
        target=rule.target,
        title=plain(rule.title).format(**parts).strip() or "postrun",
        message=message,
        ticket_key=f"{rule.name}/{run.family if rule.per == 'family' else row.id}",
        row=row if row.state == "reported" else None,  # a failed run's folder may have an older report
        files=files,
        issue_type=rule.issue_type,
        ticket_labels=rule.ticket_labels,
        run=row.id,
        reasons=reasons,
    )


def _message(row: Row) -> Message:
    """Return what the index contains about a run."""
    verdicts = tuple(
        Verdict(name, WORDS.get(verdict, verdict), "") for name, verdict in sorted(row.verdicts.items(), key=lambda item: order(item[1]))
    )
    return Message(
        key=row.id,
        run=row.name or row.id,
        status=row.status or row.state,
        headline=row.headline or "There is no report of this run.",
        verdicts=verdicts,
        issues=sum(verdict.verdict == "issue" for verdict in verdicts),
        warnings=row.warnings,
    )


def _listed(matches: Sequence[_Match], most: int, prefix: str = "") -> tuple[str, ...]:
    """Return a line per run, for the first ``most``."""
    lines = tuple(f"{prefix}{run.row.name or run.row.id}: {reasons[0]}" for run, reasons in matches[:most])
    more = len(matches) - len(lines)
    return (*lines, f"and {plural(more, 'more run')}; the index has them all") if more else lines


def _summary(rule: Rule, rest: Sequence[_Match]) -> Action:
    """One message for all runs beyond the limit."""
    digest = slug("\n".join(sorted(f"{run.row.id} {run.row.fingerprint}" for run, _ in rest)))
    return _summary_of(rule, len(rest), _listed(rest, _SUMMARY_ROWS), f"{rule.name}/summary/{digest}")


def _summary_of(rule: Rule, number: int, lines: tuple[str, ...], key: str) -> Action:
    headline = f"{number} more runs matched the rule {rule.name} than tickets are opened for in one night ({rule.limit})."
    message = Message(key, f"{number} runs", "summary", headline, lines=lines, origin={"rule": rule.name})
    return Action(
        rule.name, rule.target, plain(f"postrun: {rule.name}: {number} more runs"), message, f"{rule.name}/summary", number=number
    )


def entry(action: Action) -> Entry:
    """Return what the outbox keeps of an action; :func:`restored` is the inverse."""
    lines = action.message.lines[len(action.reasons) :]
    return Entry(action.rule, action.message.key, action.run, action.reasons, lines, action.number)


def restored(entry: Entry, rules: Sequence[Rule], rows: Mapping[str, Row], patterns: Sequence[re.Pattern[str]] = ()) -> Action | None:
    """Return the action of a message that was not sent; None if its run is unknown.

    ``rules``: with that of the entry."""
    rule = next(rule for rule in rules if rule.name == entry.rule)
    if entry.run is None:
        return _summary_of(rule, entry.number, entry.more, entry.key)
    row = rows.get(entry.run)
    return None if row is None else _about(rule, _run(row, patterns), entry.reasons, entry.more, entry.key)


def send(
    action: Action,
    read_file: Callable[[str], bytes],
    *,
    settings: ticket_settings.Settings | None = None,
    options: Options | None = None,
    link: str | None = None,
    alone: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> tuple[str, str]:
    """Send an action; return the outcome and the ticket.

    ``read_file``: reads below the output. ``alone``: keeps other nights from looking for a ticket, and opening one, at the same time."""
    known = settings or ticket_settings.load()
    options = options or Options(ca_bundle=known.environment.get(ticket_settings.CA_BUNDLE) or None)
    message = replace(_full(action, read_file), link=link, title=action.title.removeprefix("postrun: "))
    files = [_file(action, kind, read_file) for kind in action.files]
    opened, number, delivered = "", "", delivery(action.target, known, options)
    if isinstance(delivered, Tracker) and action.target.ticket is None:
        with alone():
            number, new = _ticket(delivered, action)
        delivered.target = replace(action.target, ticket=number)
        opened = f"opened {number}, " if new else f"{number}: "
    outcome = delivered.deliver(message, files)
    line = "; ".join(filter(None, (f"{action.rule}: {action.target.text}: {opened}{outcome.did}", *outcome.notes, outcome.problem)))
    return line, f"{action.target.text} {number}".strip()


def _full(action: Action, read_file: Callable[[str], bytes]) -> Message:
    """Add the findings of the run's report.json, if it can be read."""
    if action.row is None:
        return action.message
    try:
        full = from_report(json.loads(read_file(f"{action.row.folder}/report.json")))
    except (ValueError, OSError, InputError):
        return action.message
    return replace(full, key=action.message.key, lines=action.message.lines, origin=action.message.origin)


def _file(action: Action, kind: str, read_file: Callable[[str], bytes]) -> Upload:
    assert action.row is not None
    data = read_file(f"{action.row.folder}/report.{kind}")
    return Upload(f"{slug(action.message.key)}.{kind}", CONTENT_TYPES[kind], len(data), data=data)


def _ticket(tracker: Tracker, action: Action) -> tuple[str, bool]:
    """Return the open ticket of this rule and family, and whether it is new."""
    mark = marker(action.ticket_key)
    if (number := tracker.find(mark)) is not None:
        return number, False
    text = f"Opened by postrun nightly: the rule {action.rule} matched. What it finds each night is a comment here, until this is closed."
    dialect = tracker.dialect
    body = dialect.page.format("\n\n".join((dialect.strong.format(dialect.escape(action.title)), dialect.escape(text))), mark)
    title = action.title
    while length(title) > tracker.title_limit:
        title = title[:-1]
    ticket = NewTicket(title, body, mark, action.issue_type, action.ticket_labels)
    return tracker.repeated(lambda: tracker.open(ticket), lambda: tracker.find(mark)), True
