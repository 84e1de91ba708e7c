"""Content of a comment about a run: report.json -> plain data, which comment.py writes in a markup."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from ..analysis.report.first_page import Action
from ..analysis.run.actions import worth_words
from ..analysis.toolkit.wording import moment, verdict_counts
from ..errors import InputError

WORDS: Final = {"IssuesFound": "issue", "Error": "error", "NoIssuesFound": "passed", "NotEvaluated": "not evaluated"}
"""The verdicts of report.json in words, issues first."""
_TOP: Final = 3
_SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """``verdict``: issue, error, passed, informational or not evaluated. ``note``: the finding, or why there is none."""

    rule: str
    verdict: str
    note: str


@dataclass(frozen=True, slots=True)
class Finding:
    title: str
    where: str
    worth: str
    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class Message:
    """``key`` identifies the comment when it is sent again. ``lines`` come before everything else, such as a regression. ``issues`` counts
    all findings of the report, ``findings`` has the first. ``warnings``: with the caveats of the first page, which come first. ``title``:
    of a mail; "" for the run and its number of issues. ``origin``: of a message of a night, run (its id), rule and family."""

    key: str
    run: str
    status: str
    headline: str
    subtitle: str = ""
    lines: tuple[str, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    issues: int = 0
    warnings: tuple[str, ...] = ()
    link: str | None = None
    made: str = ""
    title: str = ""
    origin: Mapping[str, str] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        values = asdict(self) | {"figures": [{"label": label, "value": value} for label, value in self.figures]}
        del values["origin"]
        return values


def slug(key: str) -> str:
    """Return the key's a-z and 0-9 with a digest, harmless in every markup."""
    words = "-".join(re.findall(r"[a-z0-9]+", key.lower()))[:40].strip("-")
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{words or 'run'}-x{digest}"


def marker(key: str) -> str:
    """Return the text by which the comment about this key is found again."""
    return f"postrun:{slug(key)}"


def fingerprint(message: Message, files: Sequence[Any]) -> str:
    """Return a digest of a message and its files (uploads)."""
    return hashlib.sha256(repr((message, [(file.name, file.size) for file in files])).encode("utf-8", "replace")).hexdigest()[:24]


def from_report(report: Mapping[str, Any], *, key: str | None = None, link: str | None = None, source: str = "report.json") -> Message:
    """Return the message of a report. Raise InputError for other content."""
    version = report.get("schema_version") if isinstance(report, Mapping) else None
    if not isinstance(version, int) or not isinstance(report.get("summary"), Mapping) or not isinstance(report.get("run"), Mapping):
        raise InputError(f"{source} is not a report.json of postrun; name a file that `postrun report` wrote, or its folder")
    if version > _SCHEMA:
        raise InputError(
            f"{source} was written by a later version of postrun (schema {version}, this one reads {_SCHEMA}); use that version"
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
    findings, worths = report.get("findings", ()), _worths(report.get("actions") or {})
    writer = f"postrun {generator.get('version', '')}".strip()
    if isinstance(generator.get("generated_at_ns"), int):
        writer += f", {moment(generator['generated_at_ns'])}"
    return Message(
        key=key or str(run["name"]),
        run=str(run["name"]),
        status=str(run.get("status", "unknown")),
        headline=str(summary["headline"]),
        subtitle=str(summary.get("subtitle", "")),
        figures=tuple((str(tile["label"]), str(tile["value"])) for tile in summary.get("tiles", ())),
        verdicts=tuple(_verdict(rule) for rule in sorted(rules, key=lambda rule: order(rule["verdict"]))),
        findings=tuple(_finding(finding, worths.get(finding.get("rank"), "")) for finding in findings[:_TOP]),
        issues=len(findings),
        warnings=tuple(str(text) for name in ("caveats", "warnings") for text in summary.get(name, ())),
        link=link,
        made=writer,
    )


def order(verdict: str) -> int:
    """Return the place of a verdict of report.json in a table."""
    return list(WORDS).index(verdict) if verdict in WORDS else len(WORDS)


def _verdict(rule: Mapping[str, Any]) -> Verdict:
    verdict = rule["verdict"]
    word = "informational" if rule.get("informs") and verdict == "NoIssuesFound" else WORDS.get(verdict, str(verdict))
    return Verdict(str(rule["rule"]), word, str(rule.get("finding") or rule.get("reason") or ""))


def counts(verdicts: Sequence[Verdict]) -> str:
    """Count the rules by verdict: "5 issues, 4 passed, 7 not evaluated"."""
    words = [verdict.verdict for verdict in verdicts]
    return verdict_counts(*map(words.count, ("issue", "error", "passed", "informational", "not evaluated")))


def _worths(actions: Mapping[str, Any]) -> dict[int, str]:
    """Return the worth of each finding in words by its rank."""
    names = [field.name for field in fields(Action)]
    rows = [Action(**{name: row.get(name) for name in names}) for row in actions.get("rows", ())]
    return {row.finding: worth_words(row, actions["base"]) for row in rows}


def _finding(finding: Mapping[str, Any], worth: str) -> Finding:
    where, text, advice = (str(finding.get(name) or "") for name in ("where", "text", "recommendation"))
    if cause := finding.get("explained_by"):
        text = f"{text} Explained by {cause}: take that finding up first.".strip()
    return Finding(str(finding["title"]), where, worth, text, advice)
