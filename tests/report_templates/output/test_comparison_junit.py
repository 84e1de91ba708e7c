"""comparison.junit.xml as CI systems read it: a case per verdict, with regressions as failures."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree as ET

import pytest
from junit_reading import read
from made_comparison import amount, made_comparison
from postrun.analysis.report.comparison import Change, Comparison, Measure, MemoryChange, VerdictChange
from postrun.report_templates.output.comparison_junit import junit


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return made_comparison()


def outcomes(root: ET.Element) -> dict[str, str]:
    cases = {f"{case.get('classname')}: {case.get('name')}".removeprefix("postrun.compare."): case for case in root.iter("testcase")}
    return {name: case[0].tag if len(case) else "passed" for name, case in cases.items()}


def case(root: ET.Element, name: str) -> ET.Element:
    return next(case for case in root.iter("testcase") if case.get("name") == name)[0]


def test_every_verdict_is_a_case(comparison: Comparison) -> None:
    root = read(junit(comparison))
    assert outcomes(root) == {
        "time: time": "failure",
        "parts: computation": "passed",
        "parts: exposed communication": "failure",
        "parts: idle": "passed",
        "parts: data loading": "skipped",
        "categories: communication": "failure",
        "categories: GEMM": "passed",
        "kernels: kernels": "failure",
        "rules: HostBound": "passed",
        "rules: ExposedCommunication": "failure",
        "rules: StepOutlier": "skipped",
        "rules: LowPrecision": "passed",
    }
    for element in (root, root[0]):
        assert [element.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["12", "5", "0", "2"]
    properties = {one.get("name"): one.get("value") for one in root.iter("property")}
    assert (properties["base"], properties["verdict"], properties["threshold"]) == ("train", "slower", "3%")
    assert junit(comparison) == junit(comparison)


def test_failures_have_the_words_of_the_comparison(comparison: Comparison) -> None:
    root = read(junit(comparison))
    assert case(root, "time").attrib == {"message": comparison.headline, "type": "slower"}
    communication = case(root, "exposed communication")
    assert communication.attrib == {"message": "Exposed communication grew by 12.0 ms a step.", "type": "grown"}
    assert communication.text == "Threshold: 3% of a step\nNoise: ±1.00\u00a0ms"
    assert case(root, "kernels").get("message") == "nccl_reduce grew by 12.5 ms a step."
    assert case(root, "ExposedCommunication").attrib == {"message": "22% of 1 s on algo-1", "type": "IssuesFound"}
    assert case(root, "StepOutlier").get("message") == "a verdict is missing, or parameters or base runs differ"


def test_memory_and_failed_rules(comparison: Comparison) -> None:
    copies = MemoryChange("HtoD", "pageable", "added", 0, 1, 0.0, 1e6, 1e6, None, None, 1.0, None, 1.0)
    peak = Measure("highest sample of GPU memory", "percent", 50.0, 70.0, 40.0, "grown")
    changed = dataclasses.replace(
        comparison,
        memory_operations=(copies,),
        gpu_memory=peak,
        changes=(
            Change(1, "memory operation", "HtoD pageable copies", "added", 1e6, "HtoD pageable copies: 1.00 ms a step now, none before."),
            Change(2, "gpu memory", peak.name, "grown", None, "The highest sample of GPU memory grew from 50% to 70%."),
        ),
        rules=(VerdictChange("Mine", "NoIssuesFound", "Error", "other", None, "ValueError: no", False),),
    )
    root = read(junit(changed))
    assert case(root, "HtoD pageable copies").attrib["message"] == "HtoD pageable copies: 1.00 ms a step now, none before."
    assert case(root, "GPU memory").attrib == {"message": "The highest sample of GPU memory grew from 50% to 70%.", "type": "grown"}
    assert (case(root, "Mine").tag, case(root, "Mine").get("message")) == ("error", "ValueError: no")
    lacking = read(junit(dataclasses.replace(changed, gpu_memory=dataclasses.replace(peak, base=None))))
    assert case(lacking, "GPU memory").tag == "skipped"


def test_no_verdict_and_different_programs_are_skipped(comparison: Comparison) -> None:
    open_ = read(junit(dataclasses.replace(comparison, verdict="cannot say", headline="No verdict: 4 and 4 steps are too few.")))
    assert (case(open_, "time").tag, case(open_, "time").get("message")) == ("skipped", "No verdict: 4 and 4 steps are too few.")
    different = outcomes(read(junit(dataclasses.replace(comparison, different_programs=True))))
    assert {outcome for name, outcome in different.items() if not name.startswith("rules")} == {"skipped"}


def test_a_faster_run_passes(comparison: Comparison) -> None:
    faster = dataclasses.replace(comparison, verdict="faster", parts=(amount("idle", 9, 1, "shrunk"),), changes=(), kernels=())
    root = read(junit(faster))
    assert outcomes(root)["parts: idle"] == "passed"
    assert case(root, "time").tag == "system-out"


@pytest.mark.parametrize("text", ["a\x00b", "lone \ud800 half", "<failure/> & ]]>"])
def test_hostile_text_stays_text(comparison: Comparison, text: str) -> None:
    rules = (VerdictChange(text, "NoIssuesFound", "IssuesFound", "broken", text, text, False),)
    root = read(junit(dataclasses.replace(comparison, rules=rules, headline=text)))
    expected = text.replace("\x00", r"\x00").replace("\ud800", r"\ud800")
    assert case(root, expected).get("message") == expected
