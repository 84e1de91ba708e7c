"""Links from findings, steps and dips to the timeline: only with evidence of a time, and only on a page with a timeline."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from made_timeline import two_ranks
from postrun.analysis.report import Report
from postrun.analysis.report.first_page import Dip, JobPhase, JobStrip
from postrun.analysis.report.loop_details import StepOutlierDetails
from postrun.analysis.report.rules import RuleResult
from postrun.analysis.report.steps import SlowSteps, Step, StepDifference
from postrun.report_templates.blocks.spans import Span
from postrun.report_templates.output.pages import page
from postrun.report_templates.output.section_list import context
from postrun.report_templates.rules.spans import span_of
from postrun.report_templates.sections.run_marks import time_marks
from postrun.report_templates.sections.slow_steps import slow_steps
from postrun.report_templates.sections.summary import summary

S = 1_000_000_000
MS = 1_000_000


def rule_of(report: Report, name: str, **changes: Any) -> RuleResult:
    rule = next(rule for rule in report.rules if rule.rule == name)
    return dataclasses.replace(rule, **{"verdict": "IssuesFound", **changes})


def quiet(text: str, fraction: float | None) -> None:
    """Take the progress of the drawing."""


def html(report: Report, target: str = "html", *, timeline: bool = True) -> str:
    events = two_ranks(report.run.started_at_ns or 0, 1122 * S, "gemm") if timeline else None
    return page(context(report, quiet, events), target)


def test_the_worst_case_comes_before_the_times_of_the_violations(rich: Report) -> None:
    outlier = rule_of(rich, "StepOutlier", first_ns=1, last_ns=2)
    slowest = outlier.details.slowest[0]  # type: ignore[union-attr]
    assert span_of(outlier) == Span(slowest.start_ns, slowest.start_ns + slowest.duration_ns, slowest.rank)


def test_a_straggler_is_named_with_the_times_of_the_violations(rich: Report) -> None:
    assert span_of(rule_of(rich, "StragglerRank", first_ns=10, last_ns=20)) == Span(10, 20, 7)
    assert span_of(rule_of(rich, "ExposedCommunication", first_ns=10, last_ns=20)) == Span(10, 20)


def test_without_a_time_or_an_issue_there_is_no_span(rich: Report) -> None:
    assert span_of(rule_of(rich, "StragglerRank", first_ns=None, last_ns=None)) is None
    assert span_of(rule_of(rich, "StepOutlier", verdict="NoIssuesFound", first_ns=1, last_ns=2)) is None


def test_the_longest_idle_tail_is_shown(rich: Report) -> None:
    low = rule_of(rich, "LowGPUUtilization")
    first, *others = low.details.devices  # type: ignore[union-attr]
    tails = [
        dataclasses.replace(first, idle_tail_starts_ns=100, idle_tail_ns=50),
        dataclasses.replace(first, idle_tail_starts_ns=80, idle_tail_ns=70),
        *(dataclasses.replace(device, idle_tail_starts_ns=None, idle_tail_ns=None) for device in others),
    ]
    assert span_of(dataclasses.replace(low, details=dataclasses.replace(low.details, devices=tuple(tails)))) == Span(80, 150)  # type: ignore[type-var]


def test_slow_steps_reach_from_the_end_of_the_step_before(rich: Report) -> None:
    """Step 2 waits 40 ms; the number 5 occurs twice, so that its time is not known."""
    base = rich.steps.steps[0]
    times = ((1, 0, 100), (2, 140, 100), (5, 400, 100), (5, 900, 100))
    steps = tuple(
        dataclasses.replace(base, index=index, start_ns=start * MS, duration_ns=length * MS, on_device=True)
        for index, start, length in times
    )
    part = StepDifference("part", "step", 2, 1, 1, 1, 1, 1, True)
    slow = SlowSteps(base.node, base.rank, base.pid, steps=4, slow=(5, 2, 9), typical=1, parts=(part,))
    report = dataclasses.replace(rich, slow_steps=slow, steps=dataclasses.replace(rich.steps, steps=steps))
    links = slow_steps(report).blocks_for("html")[0]
    assert links.texts == [("step 2", Span(100 * MS, 240 * MS, base.rank))]  # type: ignore[union-attr]
    assert isinstance(steps[0], Step)


def test_the_strip_of_the_job_links_its_dips_and_phases(rich: Report) -> None:
    strip = JobStrip(
        1000 * S, 2000 * S, (JobPhase("training", 1000 * S, 1700 * S), JobPhase("idle tail", 1700 * S, 2000 * S, rule="LowGPUUtilization")),
        dips=(Dip(1100 * S, 1200 * S, 18.0, 91.0),), dip_count=1, window_start_ns=1300 * S, window_end_ns=1310 * S,
    )  # fmt: skip
    links = summary(dataclasses.replace(rich, job_strip=strip)).blocks_for("html")[-1]
    assert links.texts == [  # type: ignore[union-attr]
        ("dip at 1\u00a0min\u00a040\u00a0s", Span(1100 * S, 1200 * S)),
        ("idle tail", Span(1700 * S, 2000 * S)),
        ("profile window", Span(1300 * S, 1310 * S)),
    ]


def test_the_marks_have_the_words_of_the_strip_in_every_figure_over_time(rich: Report) -> None:
    """The origin moves the marks; the words count from the start of the job.

    The slow step is within the dip, which has the name.
    """
    (details,) = (rule.details for rule in rich.rules if isinstance(rule.details, StepOutlierDetails))
    step = dataclasses.replace(details.slowest[0], index=7, start_ns=1150 * S, duration_ns=3 * S, outlier=True)
    rules = [
        dataclasses.replace(rule, details=dataclasses.replace(details, slowest=(step,))) for rule in rich.rules if rule.details is details
    ]
    dips = (Dip(1100 * S, 1200 * S, 18.0, 91.0, ("StepOutlier",)),)
    strip = JobStrip(1000 * S, 2000 * S, dips=dips, window_start_ns=1300 * S, window_end_ns=1310 * S)
    marks = time_marks(dataclasses.replace(rich, job_strip=strip, rules=tuple(rules)), 990 * S)
    assert [(mark.kind, mark.label, (mark.label + mark.more).replace("\u00a0", " "), mark.start / S, mark.end / S) for mark in marks] == [
        ("dip", "dip", "dip to 18%, 1 min 40 s to 3 min 20 s: StepOutlier", 110, 210),
        ("window", "profile window", "profile window, 10.0 s", 310, 320),
        ("slow", "", "slow step 7, 3.00 s", 160, 163),
    ]


@pytest.mark.parametrize(("target", "timeline", "links"), [("html", True, True), ("html", False, False), ("pdf", True, False)])
def test_links_need_a_timeline_that_can_be_moved(rich: Report, target: str, timeline: bool, links: bool) -> None:
    text = html(rich, target, timeline=timeline)
    addresses = re.findall(r'<(?:td class="n"[^>]*|a href="#timeline") data-at="([^"]*)"', text)
    assert bool(addresses) is links
    assert ("Show in the timeline" in text) is links
