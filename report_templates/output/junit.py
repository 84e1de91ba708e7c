"""Writes the verdicts as JUnit XML for CI systems: a test case per rule, with an issue as a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ...analysis.report.model import Report
from ...analysis.report.rules import RuleResult
from ...analysis.report.run import Generator
from ..text.formats import printable

FAILURE: Final = "failure"
ERROR: Final = "error"
SKIPPED: Final = "skipped"
OUTPUT: Final = "system-out"
_ATTRIBUTES: Final = {FAILURE: ("message", "type"), ERROR: ("message", "type"), SKIPPED: ("message",), OUTPUT: ()}


@dataclass(frozen=True, slots=True)
class Case:
    """A test case. ``outcome``: FAILURE, ERROR, SKIPPED, OUTPUT (passed, with a text), or None (passed). ``kind``: of a failure or an
    error."""

    group: str
    name: str
    outcome: str | None = None
    message: str = ""
    kind: str = ""
    text: str = ""


def junit(report: Report) -> bytes:
    """Return report.junit.xml; equal reports give equal bytes.

    A rule with an issue is a failure, a rule that was not evaluated is skipped, and a rule that failed is an error. The text of a failure
    begins with the rule that explains it, if one does. Rules that only inform pass and state so. ProfilerReport is omitted, because it is
    the sum of the others.
    """
    causes = {finding.rule: finding.explained_by for finding in report.findings if finding.explained_by}
    cases = [_case(result, causes.get(result.rule)) for result in report.rules if result.category != "report"]
    properties = {"run": report.run.name, "status": report.run.status, "headline": report.summary.headline}
    return document("postrun", cases, properties, report.generator)


def document(name: str, cases: Sequence[Case], properties: Mapping[str, str], generator: Generator) -> bytes:
    """Return the file of one suite."""
    outcomes = [case.outcome for case in cases]
    counts = {
        "tests": str(len(cases)),
        "failures": str(outcomes.count(FAILURE)),
        "errors": str(outcomes.count(ERROR)),
        "skipped": str(outcomes.count(SKIPPED)),
        "time": "0",
    }
    generated = datetime.fromtimestamp(generator.generated_at_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    root = Element("testsuites", {"name": name, **counts})
    suite = SubElement(root, "testsuite", {"name": name, **counts, "timestamp": generated})
    written = {**properties, "generated": f"{generated}Z", "generator": f"{generator.name} {generator.version}"}
    listed = SubElement(suite, "properties")
    for key, value in written.items():
        SubElement(listed, "property", {"name": key, "value": printable(value)})
    for case in cases:
        names = {"classname": printable(f"postrun.{case.group}"), "name": printable(case.name), "time": "0"}
        element = SubElement(suite, "testcase", names)
        if case.outcome is not None:
            attributes = {"message": case.message, "type": case.kind}
            result = SubElement(element, case.outcome, {key: printable(attributes[key]) for key in _ATTRIBUTES[case.outcome]})
            result.text = printable(case.text)
    indent(root, " ")
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode").encode() + b"\n"


def _case(result: RuleResult, cause: str | None) -> Case:
    group, name = result.category, result.rule
    if result.verdict == "IssuesFound":
        explained = f"Explained by {cause}: take that finding up first." if cause else None
        text = lines(explained, result.recommendation or result.advice, _judged(result))
        return Case(group, name, FAILURE, result.finding or result.reason or result.checks, result.verdict, text)
    if result.verdict == "Error":
        return Case(group, name, ERROR, result.reason or "the rule failed", result.verdict, _judged(result))
    if result.verdict == "NotEvaluated":
        return Case(group, name, SKIPPED, result.reason or "not evaluated", text=lines(result.capture))
    if result.informs:
        return Case(group, name, OUTPUT, text=lines(f"{name} only informs; it finds no issue in any run.", result.finding))
    return Case(group, name)


def _judged(result: RuleResult) -> str:
    """Write the condition of the rule and the values of its parameters."""
    condition = f"{result.rule} finds an issue when {result.condition.replace('`', '')}." if result.condition else None
    values = ", ".join(f"{name} = {value}" for name, value in result.parameters.items())
    return lines(condition, f"Parameters: {values}" if values else None)


def lines(*parts: str | None) -> str:
    """Write each part that there is on a line."""
    return "\n".join(part for part in parts if part)
