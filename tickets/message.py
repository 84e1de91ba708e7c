"""What does a comment about a run say? Plain data from report.json, and its blocks; how they look is markup.py's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ..analysis.wording import duration, moment, percent, plural
from ..errors import InputError

WORDS: Final = {"IssuesFound": "issue", "NoIssuesFound": "fine", "NotEvaluated": "not evaluated", "Error": "failed"}
_ORDER: Final = ("IssuesFound", "Error", "NoIssuesFound", "NotEvaluated")
_TOP: Final = 3
_SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """``verdict``: issue, fine, informs, not evaluated or failed. ``note``: the finding, or why there is none."""

    rule: str
    verdict: str
    note: str


@dataclass(frozen=True, slots=True)
class Finding:
    title: str
    where: str
    cost: str
    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class Message:
    """``key``: what makes it the same comment when it is sent again. ``files``: what is sent along, ``left_out``: why others are not."""

    key: str
    name: str
    status: str
    headline: str
    subtitle: str
    figures: tuple[tuple[str, str], ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    counts: str = ""
    findings: tuple[Finding, ...] = ()
    issues: int = 0
    warnings: tuple[str, ...] = ()
    link: str | None = None
    made: str = ""
    left_out: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()  # what is said before all else, such as a regression

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "run": self.name,
            "status": self.status,
            "headline": self.headline,
            "subtitle": self.subtitle,
            "lines": list(self.lines),
            "figures": [{"label": label, "value": value} for label, value in self.figures],
            "verdicts": [{"rule": one.rule, "verdict": one.verdict, "note": one.note} for one in self.verdicts],
            "findings": [
                {"title": one.title, "where": one.where, "cost": one.cost, "text": one.text, "advice": one.advice} for one in self.findings
            ],
            "issues": self.issues,
            "warnings": list(self.warnings),
            "link": self.link,
            "made": self.made,
        }


def slug(key: str) -> str:
    """A name for files and markers: what of the key is a-z, 0-9, then a digest of all of it. Nothing in it means anything in a markup."""
    words = "-".join(re.findall(r"[a-z0-9]+", key.lower()))[:40].strip("-")
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{words}-x{digest}" if words else f"run-x{digest}"


def marker(key: str) -> str:
    """What a comment about this key holds, and no other."""
    return f"postrun:{slug(key)}"


def from_report(report: Mapping[str, Any], *, key: str | None = None, link: str | None = None, source: str = "report.json") -> Message:
    """The message of a report. Raises InputError where it is no report.json, or one of a later version."""
    version = report.get("schema_version") if isinstance(report, Mapping) else None
    if not isinstance(version, int) or not isinstance(report.get("summary"), Mapping) or not isinstance(report.get("run"), Mapping):
        raise InputError(f"{source} is no report.json of postrun; name a file that `postrun report` wrote, or its folder")
    if version > _SCHEMA:
        raise InputError(
            f"{source} was written by a later version of postrun (schema {version}, this one knows {_SCHEMA}); use that version"
        )
    try:
        return _message(report, key, link)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{source}: a part is missing or of another kind ({type(error).__name__}: {error}); write the report again"
        ) from None


def _message(report: Mapping[str, Any], key: str | None, link: str | None) -> Message:
    run, summary, generator = report["run"], report["summary"], report.get("generator", {})
    rules = [rule for rule in report.get("rules", ()) if rule.get("category") != "report"]
    findings = report.get("findings", ())
    made = f"postrun {generator.get('version', '')}".strip()
    if isinstance(generator.get("generated_at_ns"), int):
        made += f", {moment(generator['generated_at_ns'])}"
    verdicts = tuple(_verdict(rule) for rule in sorted(rules, key=lambda rule: place(rule["verdict"])))
    return Message(
        key=key or str(run["name"]),
        name=str(run["name"]),
        status=str(run.get("status", "unknown")),
        headline=str(summary["headline"]),
        subtitle=str(summary.get("subtitle", "")),
        figures=tuple((str(tile["label"]), str(tile["value"])) for tile in summary.get("tiles", ())),
        verdicts=verdicts,
        counts=counts(verdicts),
        findings=tuple(_finding(one) for one in findings[:_TOP]),
        issues=len(findings),
        warnings=tuple(map(str, summary.get("warnings", ()))),
        link=link,
        made=made,
    )


def place(verdict: str) -> int:
    """Of a verdict in a table: issues first."""
    return _ORDER.index(verdict) if verdict in _ORDER else len(_ORDER)


def _verdict(rule: Mapping[str, Any]) -> Verdict:
    verdict = rule["verdict"]
    word = "informs" if rule.get("informs") and verdict == "NoIssuesFound" else WORDS.get(verdict, str(verdict))
    return Verdict(str(rule["rule"]), word, str(rule.get("finding") or rule.get("reason") or ""))


def counts(verdicts: Sequence[Verdict]) -> str:
    """How many rules said what: "5 issues, 4 fine, 7 not evaluated"."""
    said = [one.verdict for one in verdicts]
    if not said:
        return ""
    parts = [plural(said.count("issue"), "issue")]
    shown = {"failed": "failed", "fine": "fine", "informs": "for information", "not evaluated": "not evaluated"}
    parts += [f"{said.count(word)} {text}" for word, text in shown.items() if word in said]
    return ", ".join(parts)


def _finding(one: Mapping[str, Any]) -> Finding:
    cost = [duration(one["cost_ns"])] if one.get("cost_ns") is not None else []
    if one.get("cost_percent") is not None:
        cost.append(f"{percent(one['cost_percent'])} of {one.get('base') or 'the time'}")
    return Finding(
        str(one["title"]), str(one.get("where") or ""), ", ".join(cost), str(one.get("text") or ""), str(one.get("recommendation") or "")
    )


# Blocks: what every markup can show.


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    text: str


@dataclass(frozen=True, slots=True)
class Link:
    text: str
    url: str


@dataclass(frozen=True, slots=True)
class FileLink:
    """A file that is attached beside the comment; ``url``: where, if the markup needs to know."""

    name: str
    url: str | None = None


Inline = Text | Strong | Link | FileLink


@dataclass(frozen=True, slots=True)
class Heading:
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    parts: tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class Items:
    """A numbered list."""

    items: tuple[tuple[Inline, ...], ...]


@dataclass(frozen=True, slots=True)
class Table:
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Heading | Paragraph | Items | Table


@dataclass(frozen=True, slots=True)
class Short:
    """How much is cut: to how many characters each text, to how many rows the table; whether findings and figures are left out."""

    texts: int | None = None
    rows: int | None = None
    bare: bool = False


_STEPS: Final = (Short(), Short(1000), Short(300), Short(120))
_WHOLE: Final = Short()


def blocks(message: Message, files: Sequence[FileLink] = (), *, note: str = "", short: Short = _WHOLE) -> list[Block]:
    """The comment, in blocks. ``note``: a sentence on what was cut."""

    def cut(text: str) -> str:
        return text if short.texts is None or len(text) <= short.texts else text[: short.texts - 1].rstrip() + "…"

    made: list[Block] = [Heading(f"Training run {cut(message.name)}")]
    made += [Paragraph((Strong(cut(line)),)) for line in (message.lines[:1] if short.bare else message.lines)]
    made.append(Paragraph((Strong(cut(message.headline)),)))
    if about := " · ".join(filter(None, (message.subtitle, f"status: {message.status}"))):
        made.append(Paragraph((Text(cut(about)),)))
    if not short.bare:
        made += [Paragraph((Text(f"Note: {cut(warning)}"),)) for warning in message.warnings[:5]]
        if message.figures:
            made.append(Paragraph((Text("; ".join(f"{cut(label)}: {cut(value)}" for label, value in message.figures)),)))
        if message.findings:
            more = f" of {message.issues}" if message.issues > len(message.findings) else ""
            made.append(Paragraph((Strong(f"What costs most ({len(message.findings)}{more})"),)))
            made.append(Items(tuple(_finding_parts(one, cut) for one in message.findings)))
        if message.verdicts:
            rows = message.verdicts if short.rows is None else message.verdicts[: short.rows]
            made.append(Paragraph((Strong(f"Rules: {message.counts}"),)))
            if rows:
                made.append(
                    Table(("Rule", "Verdict", "What was found"), tuple((cut(one.rule), one.verdict, cut(one.note)) for one in rows))
                )
            if len(rows) < len(message.verdicts):
                made.append(Paragraph((Text(f"{plural(len(message.verdicts) - len(rows), 'further rule')}: see the report."),)))
    if message.link and message.link.startswith(("https://", "http://")):
        made.append(Paragraph((Link("The whole report", message.link),)))
    elif message.link:  # a folder or an object store: nothing that a browser opens
        made.append(Paragraph((Text(f"The whole report: {message.link}"),)))
    if files:
        parts: list[Inline] = [Text("Attached: ")]
        for number, file in enumerate(files):
            parts += [*([Text(", ")] if number else []), file]
        made.append(Paragraph(tuple(parts)))
    made += [Paragraph((Text(f"Not attached: {one}"),)) for one in message.left_out]
    if note:
        made.append(Paragraph((Text(note),)))
    if message.made:
        made.append(Paragraph((Text(f"Written by {cut(message.made)}"),)))
    return made


def _finding_parts(one: Finding, cut: Callable[[str], str]) -> tuple[Inline, ...]:
    where = f" ({cut(one.where)})" if one.where and one.where not in one.title else ""
    parts: list[Inline] = [Strong(cut(one.title)), Text(where + (f": {one.cost}" if one.cost else "") + ".")]
    if one.text:
        parts.append(Text(f" {cut(one.text)}"))
    if one.advice:
        parts.append(Text(f" What to do: {cut(one.advice)}"))
    return tuple(parts)


def fitted(message: Message, files: Sequence[FileLink], render: Callable[[Sequence[Block]], str], limit: int | None) -> str:
    """The comment in at most ``limit`` UTF-16 units (what servers count at most), cut with a sentence that says so."""
    whole = render(blocks(message, files))
    if limit is None or length(whole) <= limit:
        return whole
    note = f"Cut: a comment here has at most {limit:,} characters; the rest is in the report."
    for step in _STEPS[1:]:
        text = render(blocks(message, files, note=note, short=step))
        if length(text) <= limit:
            return text
    low, high = 0, len(message.verdicts)
    best = None
    while low <= high:
        middle = (low + high) // 2
        text = render(blocks(message, files, note=note, short=Short(120, middle)))
        if length(text) <= limit:
            best, low = text, middle + 1
        else:
            high = middle - 1
    if best is not None:
        return best
    small = replace(message, left_out=message.left_out[:3])
    return render(blocks(small, files, note=note, short=Short(80, 0, bare=True)))


def length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
