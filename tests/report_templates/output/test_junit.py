"""report.junit.xml as CI systems read it: a case per rule with its outcome, with any text of the run."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from junit_reading import read
from postrun.analysis.report import Report, RuleResult
from postrun.report_templates.output.junit import junit

FINDING = "The CPU is the bottleneck in 61% of 2,400 snapshots."


def result(rule: str, verdict: str, **more: Any) -> RuleResult:
    arguments: dict[str, Any] = {
        "category": "system", "reason": None, "capture": None, "triggered": 0, "violations": 0, "datapoints": 0, "windows": 0,
        "windows_triggered": 0, "first_ns": None, "last_ns": None, "parameters": {"threshold": 50}, "changed_parameters": {},
        "parameter_table": (), "details": {}, "finding": None, "recommendation": None, "checks": "Looks.", "condition": "x > threshold",
        "advice": "Do less.", **more,
    }  # fmt: skip
    return RuleResult(rule=rule, verdict=verdict, **arguments)


@pytest.fixture
def judged(small_reports: dict[str, Report]) -> Report:
    empty = small_reports["empty"]
    rules = (
        result("ProfilerReport", "IssuesFound", category="report", finding="1 of 4 rules found an issue."),
        result("CPUBottleneck", "IssuesFound", finding=FINDING, recommendation="Set `num_workers=8`."),
        result("StepOutlier", "NoIssuesFound", category="framework"),
        result("OverallSystemUsage", "NoIssuesFound", informs=True),
        result("Dataloader", "NotEvaluated", category="framework", reason="no loader events in this run", capture="Profile the loader."),
        result("Mine", "Error", category="custom", reason="ValueError: no"),
    )  # fmt: skip
    return dataclasses.replace(empty, rules=rules, generator=dataclasses.replace(empty.generator, generated_at_ns=1_795_243_200 * 10**9))


def test_every_rule_is_a_case_with_the_outcome_of_its_verdict(judged: Report) -> None:
    root = read(junit(judged))
    suite = root[0]
    cases = {(case.get("classname"), case.get("name")): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases == {
        ("postrun.system", "CPUBottleneck"): ["failure"],
        ("postrun.framework", "StepOutlier"): [],
        ("postrun.system", "OverallSystemUsage"): ["system-out"],
        ("postrun.framework", "Dataloader"): ["skipped"],
        ("postrun.custom", "Mine"): ["error"],
    }
    for element in (root, suite):
        assert {key: element.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
            "tests": "5", "failures": "1", "errors": "1", "skipped": "1",
        }  # fmt: skip


def test_messages_are_those_of_the_report(judged: Report) -> None:
    root = read(junit(judged))
    failure, error, skipped = (root.find(f".//{tag}") for tag in ("failure", "error", "skipped"))
    assert failure is not None
    assert error is not None
    assert skipped is not None
    assert failure.attrib == {"message": FINDING, "type": "IssuesFound"}
    assert (failure.text or "").splitlines() == [
        "Set `num_workers=8`.",
        "CPUBottleneck finds an issue when x > threshold.",
        "Parameters: threshold = 50",
    ]
    assert error.attrib == {"message": "ValueError: no", "type": "Error"}
    assert skipped.attrib == {"message": "no loader events in this run"}
    assert skipped.text == "Profile the loader."
    assert [one.text for one in root.iter("system-out")] == ["OverallSystemUsage only informs; it finds no issue in any run."]


def test_properties_name_the_run_and_the_time(judged: Report) -> None:
    root = read(junit(judged))
    properties = {one.get("name"): one.get("value") for one in root.iter("property")}
    assert properties["run"] == judged.run.name
    assert properties["generated"] == "2026-11-21T06:40:00Z"
    assert root[0].get("timestamp") == "2026-11-21T06:40:00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x00b\x1bc\x0bd", r"a\x00b\x1bc\x0bd"),
        ("lone \ud800 half", r"lone \ud800 half"),
        ("not \ufffe a character \uffff", r"not \ufffe a character \uffff"),
        ("<failure/> & \"quoted\" 'so' ]]>", "<failure/> & \"quoted\" 'so' ]]>"),
        ("tab\tline\nüñ 𝛼", "tab\tline\nüñ 𝛼"),
    ],
)
def test_hostile_text_stays_text(judged: Report, text: str, expected: str) -> None:
    rules = (
        result(text, "IssuesFound", finding=text, recommendation=text, category="custom"),
        result("A", "NotEvaluated", reason=text, capture=text),
        result("B", "Error", reason=text),
    )
    root = read(junit(dataclasses.replace(judged, rules=rules, run=dataclasses.replace(judged.run, name=text))))
    failure, skipped, error = (root.find(f".//{tag}") for tag in ("failure", "skipped", "error"))
    assert failure is not None
    assert skipped is not None
    assert error is not None
    assert [one.get("message") for one in (failure, skipped, error)] == [expected] * 3
    assert (failure.text or "").startswith(expected + "\n")
    assert skipped.text == expected
    assert {one.get("name"): one.get("value") for one in root.iter("property")}["run"] == expected
    assert root.findall(".//testcase")[0].get("name") == expected


def test_equal_reports_give_equal_bytes(judged: Report) -> None:
    assert junit(judged) == junit(judged)
    assert junit(judged).startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites')


def test_a_report_without_rules_is_an_empty_suite(small_reports: dict[str, Report]) -> None:
    root = read(junit(dataclasses.replace(small_reports["empty"], rules=())))
    assert root[0].get("tests") == "0"
