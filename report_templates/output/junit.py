"""Writes the verdicts as JUnit XML for CI systems: a test case per rule, with an issue as a failure."""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ...analysis.report.model import Report
from ...analysis.report.rules import RuleResult
from ..text.formats import printable


def junit(report: Report) -> bytes:
    """Return report.junit.xml; equal reports give equal bytes.

    A rule with an issue is a failure, a rule that was not evaluated is skipped, and a rule that failed is an error. The text of a failure
    begins with the rule that explains it, if one does. Rules that only inform pass and state so. ProfilerReport is omitted, because it is
    the sum of the others.
    """
    rules = [result for result in report.rules if result.category != "report"]
    counts = {
        "tests": str(len(rules)),
        "failures": str(sum(result.verdict == "IssuesFound" for result in rules)),
        "errors": str(sum(result.verdict == "Error" for result in rules)),
        "skipped": str(sum(result.verdict == "NotEvaluated" for result in rules)),
        "time": "0",
    }
    generated = datetime.fromtimestamp(report.generator.generated_at_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    root = Element("testsuites", {"name": "postrun", **counts})
    suite = SubElement(root, "testsuite", {"name": "postrun", **counts, "timestamp": generated})
    properties = SubElement(suite, "properties")
    for name, value in (
        ("run", report.run.name),
        ("status", report.run.status),
        ("headline", report.summary.headline),
        ("generated", f"{generated}Z"),
        ("generator", f"{report.generator.name} {report.generator.version}"),
    ):
        SubElement(properties, "property", {"name": name, "value": printable(value)})
    causes = {finding.rule: finding.explained_by for finding in report.findings if finding.explained_by}
    for result in rules:
        _case(suite, result, causes.get(result.rule))
    indent(root, " ")
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode").encode() + b"\n"


def _case(suite: Element, result: RuleResult, cause: str | None) -> None:
    name = {"classname": printable(f"postrun.{result.category}"), "name": printable(result.rule), "time": "0"}
    case = SubElement(suite, "testcase", name)
    if result.verdict == "IssuesFound":
        attributes = {"message": printable(result.finding or result.reason or result.checks), "type": result.verdict}
        explained = f"Explained by {cause}: take that finding up first." if cause else None
        SubElement(case, "failure", attributes).text = printable(_lines(explained, result.recommendation or result.advice, _judged(result)))
    elif result.verdict == "Error":
        attributes = {"message": printable(result.reason or "the rule failed"), "type": result.verdict}
        SubElement(case, "error", attributes).text = printable(_judged(result))
    elif result.verdict == "NotEvaluated":
        SubElement(case, "skipped", {"message": printable(result.reason or "not evaluated")}).text = printable(_lines(result.capture))
    elif result.informs:
        SubElement(case, "system-out").text = printable(
            _lines(f"{result.rule} only informs; it finds no issue in any run.", result.finding)
        )


def _judged(result: RuleResult) -> str:
    """Write the condition of the rule and the values of its parameters."""
    condition = f"{result.rule} finds an issue when {result.condition.replace('`', '')}." if result.condition else None
    values = ", ".join(f"{name} = {value}" for name, value in result.parameters.items())
    return _lines(condition, f"Parameters: {values}" if values else None)


def _lines(*parts: str | None) -> str:
    return "\n".join(part for part in parts if part)
