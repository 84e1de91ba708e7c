"""Which tickets does a night open or update? A file of rules and the rows of the index give actions; each is then sent.

    limit = 10                         # tickets per rule and night; what is more stands in one summary

    [[rule]]
    name = "slow steps"
    to = "jira:PERF"                   # a project: opens a ticket, or comments on the one it opened; or a ticket, mailto:, https://
    regression = true
    run = ["gpt-*", "bert-*"]          # name of the run, its family, or its id
    labels = {team = "vision"}
    verdicts = ["LowGPUUtilization"]   # or ["any"]
    title = "{family}: {reason}"

All kinds of conditions of ``run`` and ``labels`` must hold; of ``verdicts``, ``regression`` and ``failed`` one must.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..errors import InputError, UsageError
from . import settings as ticket_settings
from .http import LostAnswerError, Options, Upload
from .markup import parted, plain
from .message import WORDS, Message, Paragraph, Strong, Text, Verdict, counts, from_report, length, marker, place, slug
from .report_files import CONTENT_TYPES, FORMATS
from .target import Target, parse

if TYPE_CHECKING:
    from ..nightly.model import Row
    from .tracker import Tracker

_KEYS: Final = {
    "name": str, "to": str, "run": list, "labels": dict, "verdicts": list, "regression": bool, "failed": bool, "title": str, "attach": list,
    "issue_type": str, "ticket_labels": list, "per": str, "limit": int,
}  # fmt: skip
_FIELDS: Final = ("run", "family", "reason", "rule", "gpu", "status")
_LIMIT: Final = 10
_LINKING_TITLES: Final = {"gitlab", "github", "gitea"}
"""Systems that look for mentions and issues in titles."""
_TITLE: Final = "postrun: {family}: {reason}"
_SUMMARY_ROWS: Final = 200


class Regression(Protocol):
    """What became worse, as the history tells it. ``id``: of the row."""

    @property
    def id(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def text(self) -> str: ...


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
    """One message to one target. ``ticket_key``: of the ticket to open or to find, where the target is a project. ``folder``: of the run's
    files below the output; ``files``: which of them go along."""

    rule: str
    target: Target
    title: str
    message: Message
    ticket_key: str
    folder: str | None = None
    files: tuple[str, ...] = ()
    issue_type: str | None = None
    ticket_labels: tuple[str, ...] = ()


def load(path: Path, *, settings: ticket_settings.Settings | None = None) -> tuple[Rule, ...]:
    """The rules of a TOML file. Raises UsageError that names the rule, the key and what is accepted, or what is missing to reach a target:
    before the night, not after it."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; check --attach") from None
    made = rules(content, str(path))
    from .systems import delivery

    known = settings or ticket_settings.load()
    for rule in made:
        try:
            delivery(rule.target, known, Options())
        except UsageError as error:
            raise UsageError(f"{path}, rule {rule.name}: {error}") from None
    return made


def rules(content: Mapping[str, Any], source: str) -> tuple[Rule, ...]:
    if unknown := sorted(content.keys() - {"rule", "limit"}):
        raise UsageError(f"{source}: {unknown[0]} is unknown; a file of rules has limit and [[rule]] tables")
    tables = content.get("rule")
    if not isinstance(tables, list) or not tables:
        raise UsageError(f"{source}: there is no [[rule]]")
    limit = _limit(content.get("limit", _LIMIT), f"{source}: limit")
    made = [_rule(table, f"{source}, rule {number}", limit) for number, table in enumerate(tables, 1)]
    names = [rule.name for rule in made]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{source}: two rules have the name {name!r}; the name tells their tickets apart")
    return tuple(made)


def _limit(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise UsageError(f"{where} is {value!r}; write a whole number from 1 to 1000")
    return value


def _rule(table: Any, where: str, limit: int) -> Rule:
    if not isinstance(table, dict):
        raise UsageError(f"{where} is no table; write [[rule]] above its keys")
    table = {name: [value] if _KEYS.get(name) is list and isinstance(value, str) else value for name, value in table.items()}
    for name, value in table.items():
        if name not in _KEYS:
            raise UsageError(f"{where}: {name} is unknown; possible: {', '.join(_KEYS)}")
        kind = _KEYS[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise UsageError(f"{where}: {name} must be {_TYPES[kind]}")
        if isinstance(value, list) and not all(isinstance(one, str) and one for one in value):
            raise UsageError(f"{where}: {name} must be a list of texts")
    for name in ("name", "to"):
        if not table.get(name):
            raise UsageError(f"{where}: {name} is missing")
    if not (table.get("verdicts") or table.get("regression") or table.get("failed")):
        raise UsageError(f"{where}: nothing makes it speak; set verdicts, regression = true or failed = true")
    if table.get("per", "family") not in ("family", "run"):
        raise UsageError(f"{where}: per is {table['per']!r}; write family (a ticket for all its runs) or run")
    if bad := [one for one in table.get("attach", ()) if one not in FORMATS]:
        raise UsageError(f"{where}: attach has {bad[0]!r}; possible: {', '.join(FORMATS)}")
    title = table.get("title", _TITLE)
    try:
        title.format(**dict.fromkeys(_FIELDS, ""))
    except (KeyError, IndexError, ValueError, AttributeError):
        raise UsageError(f"{where}: title {title!r} has a part that is none of {', '.join('{' + name + '}' for name in _FIELDS)}") from None
    try:
        target = parse(table["to"], projects=True)
    except UsageError as error:
        raise UsageError(f"{where}: to: {error}") from None
    if target.ticket is None and target.merge_request:
        raise UsageError(f"{where}: to: {table['to']!r} is no project")
    return Rule(
        name=table["name"],
        target=target,
        run=tuple(table.get("run", ())),
        labels=tuple((str(name), str(value)) for name, value in table.get("labels", {}).items()),
        verdicts=tuple(table.get("verdicts", ())),
        regression=table.get("regression", False),
        failed=table.get("failed", False),
        title=title,
        attach=tuple(table.get("attach", ("pdf",))),
        issue_type=table.get("issue_type"),
        ticket_labels=tuple(table.get("ticket_labels", ())),
        per=table.get("per", "family"),
        limit=_limit(table["limit"], f"{where}: limit") if "limit" in table else limit,
    )


_TYPES: Final = {str: "a text", list: "a list of texts", dict: "a table of texts", bool: "true or false", int: "a whole number"}


def actions(rules: Sequence[Rule], rows: Sequence[Row], regressions: Iterable[Regression]) -> list[Action]:
    """What to send, rule by rule, in the order of the rows; one action per rule and run at most. Beyond the limit: the first ones, and one
    summary of the rest. ``rows``: those that are new this night."""
    worse: dict[str, list[Regression]] = {}
    for one in regressions:
        worse.setdefault(one.id, []).append(one)
    made = []
    for rule in rules:
        matched = [(row, reasons) for row in rows if (reasons := _reasons(rule, row, worse.get(row.id, ())))]
        kept = matched if len(matched) <= rule.limit else matched[: rule.limit - 1]
        made += [_action(rule, row, reasons, _family(row, worse.get(row.id, ()))) for row, reasons in kept]
        if rest := matched[len(kept) :]:
            made.append(_summary(rule, rest))
    return made


def _family(row: Row, worse: Sequence[Regression]) -> str:
    return worse[0].family if worse else row.name or row.id


def _reasons(rule: Rule, row: Row, worse: Sequence[Regression]) -> tuple[str, ...]:
    if row.state not in ("reported", "failed"):
        return ()
    names = [row.id, row.name or "", _family(row, worse)]
    if rule.run and not any(fnmatch.fnmatchcase(name, pattern) for pattern in rule.run for name in names):
        return ()
    if any(not fnmatch.fnmatchcase(row.labels.get(name, ""), pattern) or name not in row.labels for name, pattern in rule.labels):
        return ()
    found = [one.text for one in worse] if rule.regression else []
    if rule.failed and row.state == "failed":
        found.append(f"there is no report: {row.reason or 'no reason is known'}")
    issues = [name for name, verdict in row.verdicts.items() if verdict == "IssuesFound"]
    wanted = {name.lower() for name in rule.verdicts}
    if named := [name for name in issues if "any" in wanted or name.lower() in wanted]:
        found.append(f"issues found by {', '.join(named)}")
    return tuple(found)


def _action(rule: Rule, row: Row, reasons: tuple[str, ...], family: str) -> Action:
    message = replace(_message(row), key=f"{rule.name}/{row.id}/{row.fingerprint}", lines=reasons)
    parts = {
        "run": row.name or row.id,
        "family": family,
        "reason": reasons[0],
        "rule": rule.name,
        "gpu": row.gpu_name or "",
        "status": row.status or row.state,
    }
    parts = {name: plain(text) for name, text in parts.items()}
    if rule.target.kind in _LINKING_TITLES:
        parts = {name: parted(text) for name, text in parts.items()}
    files = tuple(kind for kind in rule.attach if row.folder and f"report.{kind}" in row.written)
    return Action(
        rule=rule.name,
        target=rule.target,
        title=plain(rule.title).format(**parts).strip() or "postrun",
        message=message,
        ticket_key=f"{rule.name}/{family if rule.per == 'family' else row.id}",
        folder=row.folder if row.state == "reported" else None,  # beside the log of one that failed an older report may stand
        files=files,
        issue_type=rule.issue_type,
        ticket_labels=rule.ticket_labels,
    )


def _message(row: Row) -> Message:
    """What the index knows of a run."""
    verdicts = tuple(
        Verdict(name, WORDS.get(verdict, verdict), "") for name, verdict in sorted(row.verdicts.items(), key=lambda one: place(one[1]))
    )
    return Message(
        key=row.id,
        name=row.name or row.id,
        status=row.status or row.state,
        headline=row.headline or (f"No report: {row.reason}" if row.reason else "No report."),
        subtitle="",
        verdicts=verdicts,
        counts=counts(verdicts),
        issues=sum(one.verdict == "issue" for one in verdicts),
        warnings=row.warnings,
    )


def _summary(rule: Rule, rest: Sequence[tuple[Row, tuple[str, ...]]]) -> Action:
    """One message for all runs beyond the limit."""
    shown = rest[:_SUMMARY_ROWS]
    lines = tuple(f"{row.name or row.id}: {reasons[0]}" for row, reasons in shown)
    if len(rest) > len(shown):
        lines = (*lines, f"and {len(rest) - len(shown)} more; the index has them all")
    digest = slug("\n".join(sorted(f"{row.id} {row.fingerprint}" for row, _ in rest)))
    headline = f"{len(rest)} more runs matched the rule {rule.name} than tickets are opened for in one night ({rule.limit})."
    message = Message(f"{rule.name}/summary/{digest}", f"{len(rest)} runs", "summary", headline, "", lines=lines)
    return Action(rule.name, rule.target, plain(f"postrun: {rule.name}: {len(rest)} more runs"), message, f"{rule.name}/summary")


def send(
    action: Action,
    read_file: Callable[[str], bytes],
    *,
    settings: ticket_settings.Settings | None = None,
    options: Options | None = None,
    link: str | None = None,
) -> str:
    """Send one action; -> what was done, in words. ``read_file``: a file below the night's output. Raises TicketError, UsageError."""
    from .systems import delivery, tracker_of

    known = settings or ticket_settings.load()
    options = options or Options(ca_bundle=known.environment.get(ticket_settings.CA_BUNDLE) or None)
    message = replace(_full(action, read_file), link=link)
    files = [_file(action, kind, read_file) for kind in action.files]
    target, opened = action.target, ""
    if target.kind not in ("mail", "web") and target.ticket is None:
        tracker = tracker_of(target, known, options)
        assert tracker is not None
        number, new = _ticket(tracker, action)
        target = replace(target, ticket=number)
        opened = f"opened {number}, " if new else f"{number}: "
    outcome = delivery(target, known, options).deliver(message, files)
    told = f"{action.rule}: {action.target.text}: {opened}{outcome.did}"
    return told + "".join(f"; {one}" for one in (*outcome.notes, outcome.problem) if one)


def _full(action: Action, read_file: Callable[[str], bytes]) -> Message:
    """With the findings of the run's report.json, where it can be read."""
    import json

    if action.folder is None:
        return action.message
    try:
        report = json.loads(read_file(f"{action.folder}/report.json"))
        full = from_report(report)
    except (ValueError, OSError, InputError):
        return action.message
    return replace(full, key=action.message.key, lines=action.message.lines)


def _file(action: Action, kind: str, read_file: Callable[[str], bytes]) -> Upload:
    data = read_file(f"{action.folder}/report.{kind}")
    return Upload(f"{slug(action.message.key)}.{kind}", CONTENT_TYPES[kind], len(data), data=data)


def _ticket(tracker: Tracker, action: Action) -> tuple[str, bool]:
    """The open ticket of this rule and family, or a new one. One whose answer was lost is looked for before it is opened again."""
    from .tracker import NewTicket

    mark = marker(action.ticket_key)
    if (number := tracker.find(mark)) is not None:
        return number, False
    text = f"Opened by postrun nightly: the rule {action.rule} matched. What it finds each night is a comment here, until this is closed."
    body = tracker.markup([Paragraph((Strong(action.title),)), Paragraph((Text(text),))], mark)
    title = action.title
    while length(title) > tracker.title_limit:
        title = title[: len(title) - 1]
    ticket = NewTicket(title, body, mark, action.issue_type, action.ticket_labels)
    for attempt in range(3):
        try:
            return tracker.open(ticket), True
        except LostAnswerError:
            if attempt == 2:
                raise
            tracker.client.options.sleep(tracker.client.options.backoff_s * 2**attempt)
            if (number := tracker.find(mark)) is not None:
                return number, True
    raise AssertionError
