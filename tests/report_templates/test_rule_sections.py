"""The rules in the report: the findings first, all verdicts, and a section each, with any details."""

from __future__ import annotations

import dataclasses
import html
import random
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import HOSTILE, empty_report
from hand_made_rules import details, result, rule_results
from postrun.analysis.report import Action, Actions, Finding, Report, RuleResult
from postrun.analysis.report.communication_details import ExposedCommunicationDetails
from postrun.analysis.report.load import rule_details
from postrun.analysis.report.loop_details import StepOutlierDetails
from postrun.analysis.report.trace_details import InputBoundDetails
from postrun.report_templates.blocks import Figure, Section, coded
from postrun.report_templates.blocks.tables import Table
from postrun.report_templates.figures.dot_plot import Dots, dot_plot
from postrun.report_templates.figures.histogram import Bins, panels
from postrun.report_templates.figures.matrix import matrix
from postrun.report_templates.figures.paired_bars import paired_bars
from postrun.report_templates.figures.stacked_bars import Part, stacked_bars
from postrun.report_templates.figures.workloads import Workload, workloads
from postrun.report_templates.output.pages import page
from postrun.report_templates.output.section_list import context
from postrun.report_templates.rules.communication import exposed_collectives
from postrun.report_templates.rules.generic import written
from postrun.report_templates.rules.loop import input_bound, step_outlier
from postrun.report_templates.rules.rule_context import RuleContext
from postrun.report_templates.sections.actions import brief, gpu_time
from postrun.report_templates.sections.rules import rules
from postrun.report_templates.text.formats import duration, glued
from report_pages import html_of
from rule_details import details_from, plain_details
from slow_params import slow_except

SVG = "{http://www.w3.org/2000/svg}"
S = 10**9
NBSP = "\u00a0"


@pytest.fixture(scope="module")
def rich(rich: Report) -> Report:
    """Return the rich report with little data in sections other than the rules."""
    usage, steps = rich.system_usage, rich.steps
    return dataclasses.replace(
        rich,
        kernels=rich.kernels[:16],
        system_usage=dataclasses.replace(usage, series=usage.series[:1], heat=()),
        steps=dataclasses.replace(steps, steps=steps.steps[:40], groups=steps.groups[:1]),
    )


def quiet(text: str, fraction: float | None) -> None:
    """No progress."""


class _Words(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.feed(text)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "p", "li", "caption", "h3", "dd", "b"):
            self.parts.append(" ")

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def words(text: str) -> str:
    """Return the text of a page with equal blanks."""
    body = re.sub(r"<(script|style|svg)\b.*?</\1>", "", text, flags=re.DOTALL)
    return " ".join("".join(_Words(body).parts).replace("\u00a0", " ").replace("\u202f", " ").split())


def block(text: str, id: str, tag: str = "div") -> str:
    """Return the block with this id: a table with its notes, or a list."""
    match = re.search(rf'<{tag}[^>]* id="{id}".*?</{tag}>', text, re.DOTALL)
    assert match is not None, id
    return match[0]


def with_rules(report: Report, *rules: RuleResult) -> Report:
    return dataclasses.replace(report, rules=rules, findings=())


def parts_of(report: Report) -> dict[str, Section]:
    sections = [section for section in context(report, quiet).sections if section.id in ("findings", "rules")]
    return {part.id: part for section in sections for part in section.parts}


# -- the first page --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_the_three_findings_worth_most_are_the_actions(rich: Report, target: str) -> None:
    text = html_of(rich, target)
    first = words(block(text, "summary-actions"))
    assert first.startswith("Recommended actions")
    places = [first.index(finding.title) for finding in rich.findings[:3]]
    assert places == sorted(places)
    assert rich.findings[3].title not in first
    assert "StragglerRank · rank 7, node-1 GPU 3" in first
    assert "3 more findings: see Findings." in first
    listed = text[text.index('<section id="findings"') :]
    places = [words(listed).index(f"{finding.rank} {finding.title}") for finding in sorted(rich.findings, key=lambda row: row.rank)]
    assert places == sorted(places)
    assert text.index('id="summary-actions"') < text.index('id="summary-rules"') < text.index('<section id="findings"')


def test_causes_in_a_circle_are_all_listed(rich: Report) -> None:
    """A report.json from elsewhere can name causes that do not exist, or each other."""
    a, b, c = rich.findings[:3]
    circle = (
        dataclasses.replace(a, explained_by=b.rule),
        dataclasses.replace(b, explained_by=a.rule),
        dataclasses.replace(c, explained_by="X"),
    )
    first = words(block(html_of(dataclasses.replace(rich, findings=circle)), "summary-actions"))
    assert [finding.title in first for finding in circle] == [True] * 3


def test_the_savings_are_on_one_base(rich: Report) -> None:
    first, second, third, *_ = rich.findings
    rows = (
        Action(first.rank, first.rule, 19.1, 1720 * 10**9, "upper_bound"),
        Action(second.rank, second.rule, 4.3, 389 * 10**9, "predicted", estimated=True),
        Action(third.rank, third.rule, None, None, None, cost_percent=12.0, partly=second.rule),
    )
    actions = Actions("GPU time of the run", 8976 * 10**9, 8, rows)
    text = words(block(html_of(dataclasses.replace(rich, actions=actions), "pdf"), "summary-actions"))
    each = duration(1122 * 10**9).replace(NBSP, " ")
    assert f"Percent of the GPU time of the run, 8 × {each} = 2.49 GPU-h. Savings overlap; do not add them." in text
    assert "Estimates assume that the profiled steps are typical." in text
    assert "Saves, % of the run" in text
    for part in (
        f"up to {brief(19.1)} 28.7 GPU-min",
        f"predicted {brief(4.3)} 6.48 GPU-min estimate",
        f"costs {brief(12.0)}",
        "the same as #2.",
    ):
        assert part.replace("\u00a0", " ") in re.sub(r"(?<=%)(?=\d)|(?<=min)(?=estimate)", " ", text.replace("\u00a0", " ")), part
    single = dataclasses.replace(actions, rows=rows[:1])
    assert "overlap" not in words(block(html_of(dataclasses.replace(rich, actions=single)), "summary-actions"))


def test_findings_have_the_numbers_and_savings_of_the_actions(rich: Report) -> None:
    first, second, *_ = rich.findings
    rows = (
        Action(first.rank, first.rule, 19.1, 1720 * 10**9, "upper_bound"),
        Action(second.rank, second.rule, 4.3, 389 * 10**9, "predicted", estimated=True),
    )
    actions = Actions("GPU time of the run", 8976 * 10**9, 8, rows)
    for target in ("html", "pdf"):
        text = html_of(dataclasses.replace(rich, actions=actions), target)
        listed = words(text[text.index('<section id="findings"') :])
        assert listed.index(f"1 {first.title}") < listed.index(f"2 {second.title}")
        assert f"Saves up to {brief(19.1)} of the run (28.7 GPU-min)".replace("\u00a0", " ") in listed
        assert f"Saves predicted {brief(4.3)} of the run (6.48 GPU-min, estimate)".replace("\u00a0", " ") in listed


def test_costs_have_the_base_of_the_savings(rich: Report) -> None:
    """The cost of 17.6% of the window is 12.2% of the run.

    That of the second finding has a base of its own."""
    first, second, *others = rich.findings
    findings = (
        dataclasses.replace(first, cost_percent=17.6, base="GPU time in the profile window", cost_per_step_ns=34_600_000.0),
        dataclasses.replace(second, cost_percent=30.0, base="time of the moon", cost_per_step_ns=None),
        *others,
    )
    rows = (
        Action(first.rank, first.rule, 12.0, 1077 * 10**9, "upper_bound", cost_percent=12.2),
        Action(second.rank, second.rule, None, None, None, base="time of the moon", cost_percent=30.0),
    )
    actions = Actions("GPU time of the run", 8976 * 10**9, 8, rows)
    text = html_of(dataclasses.replace(rich, findings=findings, actions=actions), "pdf")
    listed = words(text[text.index('<section id="findings"') :])
    assert f"Costs {brief(12.2)} of the run, 34.6 ms per step on average · Saves up to".replace("\u00a0", " ") in listed
    assert f"Costs {brief(30.0)} of the time of the moon".replace("\u00a0", " ") in listed


@pytest.mark.parametrize(
    ("ns", "gpus", "text"),
    [
        (10_440e9, 8, "2.90 GPU-h"),
        (3600e9, 1, "1.00 GPU-h"),
        (3540e9, 1, "59.0 GPU-min"),
        (59e9, 1, "59.0 GPU-s"),
        (2e6, 1, "2.00 GPU-ms"),
        (2e9, 0, "2.00 s"),
    ],
)
def test_gpu_time_in_its_units(ns: float, gpus: int, text: str) -> None:
    assert gpu_time(ns, gpus).replace("\u00a0", " ") == text


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_the_rules_are_one_line_with_links(rich: Report, target: str) -> None:
    text = html_of(rich, target)
    lines = block(text, "summary-rules", "ul")
    assert words(lines).startswith("Rules: 6 issues, 1 error, 14 passed, 2 informational, 2 not evaluated")
    links = re.findall(r'href="#([^"]*)"', lines)
    assert links[1] == "rule-CPUBottleneck"
    assert "rules-absent" in links
    assert all(f'id="{link}"' in text for link in links)


@pytest.mark.parametrize(
    ("passed", "absent", "sentence"),
    [
        (1, 15, "No issues found, but only 1 of 16 rules had enough data."),
        (3, 0, "No issues found; 3 rules evaluated the run."),
        (0, 2, "No rule could evaluate the run."),
    ],
)
def test_without_an_issue(rich: Report, passed: int, absent: int, sentence: str) -> None:
    rules = [result(f"P{number}", "system", "NoIssuesFound", "f.") for number in range(passed)]
    rules += [result(f"N{number}", "system", "NotEvaluated", reason="no samples") for number in range(absent)]
    assert sentence in words(html_of(with_rules(rich, *rules)))


def test_rules_without_a_verdict_are_a_line_in_the_pdf(rich: Report) -> None:
    text = html_of(rich, "pdf")
    assert text[: text.index('id="contents"')].count("<tr>") < 40
    assert "! Error: PageableCopies (KeyError: 'kind')." in words(text)


def test_a_report_of_no_rules_says_so(small_reports: dict[str, Report]) -> None:
    text = words(html_of(small_reports["empty"]))
    assert "No rule was selected for this report" in text
    assert "Recommended actions" not in text


def test_a_report_of_nothing_evaluated(small_reports: dict[str, Report]) -> None:
    rules = [result(name, "system", "NotEvaluated", reason="no samples", capture="Record them.") for name in ("A", "B")]
    for target in ("html", "pdf"):
        text = html_of(with_rules(small_reports["empty"], *rules), target)
        assert ("None of 2 rules could be evaluated" in words(text)) is (target == "html")  # the PDF has no empty chapter
        assert "No rule could evaluate the run." in words(text)
        assert "no samples" in words(text)


# -- the chapter of the rules ----------------------------------------------------------------------------------------------


def test_the_summary_has_issues_first_and_then_what_triggered_most_often(rich: Report) -> None:
    table = block(html_of(rich), "rules-overview")
    names = [words(row).split()[0] for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)[1:]]
    expected = [rule for rule in rich.rules if rule.verdict in ("IssuesFound", "NoIssuesFound")]
    expected = [rule for rule in expected if rule.rule != "ProfilerReport"]
    order = sorted(expected, key=lambda rule: (rule.verdict != "IssuesFound", rule.informs, -rule.triggered, rule.rule))
    assert names == [rule.rule for rule in order]
    rows = [words(row) for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)[1:]]
    # The advice of the finding, or that of the rule if the finding has none.
    for row, rule in zip(rows, order, strict=True):
        advice = (rule.recommendation or rule.advice).replace("`", "")[:12]
        assert (advice in row) == (rule.verdict == "IssuesFound"), rule.rule
    assert any("Raise num_workers=8 so that" in row for row in rows)
    assert "6 of 20 evaluated rules found an issue. Findings are heuristics: verify them before you act." in words(html_of(rich))


def test_every_evaluated_rule_has_a_section_with_its_texts(rich: Report) -> None:
    content = context(rich, quiet)
    text = page(content, "html")
    for rule in rich.rules[1:]:
        evaluated = rule.verdict in ("IssuesFound", "NoIssuesFound")
        assert (f'<div class="rule" id="rule-{rule.rule}">' in text) == evaluated
        assert f"What {rule.rule} looks at, in one sentence." in text or not evaluated
    text_words = words(text)
    assert "Do: Raise num_workers=8 so that the processors load ahead" in text_words
    assert "<code>num_workers=8</code>" in text
    assert (
        "Triggered 36 times; 36 violations at 2,400 data points; in 12 of 20 windows; from 1 min to 16 min 40 s after the run began."
        in text_words
    )


def test_changed_parameters_are_marked_and_given_as_time(rich: Report) -> None:
    for target in ("html", "pdf"):
        text_words = words(html_of(rich, target))
        assert "▲ patience 100 samples (50.0 s; changed; default 1,000)" in text_words
        assert (", window 500 samples (4 min 10 s)" in text_words) == (target == "html")
        assert "Preset: documented. Changed: LowGPUUtilization_patience = 100." in text_words
        assert "▲ stddev 3 factor (changed; default 5)" in text_words
    assert "LowGPUUtilization_patience = 100" in words(html_of(rich, "pdf")).split("Options in effect")[1]


@pytest.mark.parametrize("number", [1, 2])
def test_the_share_of_a_single_device_has_no_figure(rich: Report, number: int) -> None:
    """The finding states it; two devices are compared."""
    of_all = next(rule for rule in rich.rules if rule.rule == "ExposedCommunication")
    assert isinstance(of_all.details, ExposedCommunicationDetails)
    some = dataclasses.replace(of_all, details=dataclasses.replace(of_all.details, devices=of_all.details.devices[:number]))
    rules = tuple(some if rule is of_all else rule for rule in rich.rules)
    part = parts_of(dataclasses.replace(rich, rules=rules))["rule-ExposedCommunication"]
    assert ("bars" in part.figures) is (number == 2)
    assert len(part.tables["devices"].rows) == number


def test_every_rule_shows_its_figures_and_tables(rich: Report) -> None:
    parts = parts_of(rich)
    figures = {id.removeprefix("rule-"): sorted(part.figures) for id, part in parts.items()}
    assert figures["LowGPUUtilization"] == ["samples"]
    assert figures["LoadBalancing"] == ["matrix", "workloads"]
    assert figures["CPUBottleneck"] == ["annotations", "operators", "phases", "slices"]
    assert figures["IOBottleneck"] == ["slices"]
    assert figures["MaxInitializationTime"] == ["parts"]
    for rule in ("BatchSize", "GPUMemoryIncrease"):
        assert figures[rule] == ["samples"]
    for rule in ("HostBound", "ExposedCommunication", "ShortKernels", "StragglerRank"):
        assert figures[rule] == ["bars"]
    assert figures["LowPrecision"] == ["shares"]
    tables = {id.removeprefix("rule-"): sorted(part.tables) for id, part in parts.items()}
    assert tables["GPUMemoryIncrease"] == ["devices", "episodes"]
    assert tables["StepOutlier"] == ["active", "groups", "slowest"]
    assert tables["TemperatureRule"] == ["list-1", "values"]
    assert tables["OverallSystemUsage"] == []
    assert parts["rule-OverallSystemUsage"].facts["parameter_table"]


def test_no_figure_has_more_than_twelve_rows(rich: Report) -> None:
    held = details()
    for rule in ("LowGPUUtilization", "BatchSize", "GPUMemoryIncrease", "HostBound", "StragglerRank", "LoadBalancing"):
        key = "ranks" if rule == "StragglerRank" else "devices"
        rows = [
            row | {"node": f"node-{i // 8:03d}", "device": i % 8, "rank": i if "rank" in row else None}
            for i, row in enumerate(held[rule][key] * 16)
        ]
        new_details = held[rule] | {key: rows, "matrix": []}
        part = parts_of(with_rules(rich, result(rule, "system", "IssuesFound", "x.", details=details_from(rule, new_details))))[
            f"rule-{rule}"
        ]
        for figure in part.figures.values():
            height = float(re.search(r'height="([\d.]+)"', figure.svg)[1])  # type: ignore[index]
            assert height <= 460, figure.id
            assert "of 128" in figure.caption or "alike" in figure.svg, figure.id
        table = part.table(key)
        assert table is None or table.total == 128


def test_equal_names_and_odd_names_have_sections_of_their_own(rich: Report) -> None:
    rules = [result(name, "custom", "NoIssuesFound", "f.", details={"a": 1}) for name in ("same", "same", "a b", "a-b", "<i>", "")]
    text = html_of(with_rules(rich, *rules))
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert sum(id.startswith("rule-") and "-" not in id[5:] for id in ids) == 6


def loaded(rule: RuleResult, data: Any) -> Any:
    """Load the details as from a report.json; a value that is not a dict stays."""
    return rule_details(rule.rule, rule.category, data) if isinstance(data, dict) else data


def hostile(value: Any, texts: Iterator[str]) -> Any:
    """``value`` with every text replaced by a hostile one."""
    if isinstance(value, dict):
        return {key: hostile(item, texts) for key, item in value.items()}
    if isinstance(value, list):
        return [hostile(item, texts) for item in value]
    return next(texts) if isinstance(value, str) else value


def test_hostile_texts_stay_text(rich: Report) -> None:
    def endless() -> Iterator[str]:
        while True:
            yield from HOSTILE

    texts = endless()
    rules = []
    for rule in rule_results():
        bad = {field: next(texts) for field in ("finding", "recommendation", "reason", "capture", "checks", "condition", "advice")}
        kept = rule.details if rule.category == "report" else loaded(rule, hostile(plain_details(rule), texts))
        parameters = tuple(
            dataclasses.replace(one, unit=next(texts), meaning=next(texts), value=next(texts)) for one in rule.parameter_table
        )
        rules.append(dataclasses.replace(rule, details=kept, parameter_table=parameters, parameters={"mode": next(texts)}, **bad))
    rules.append(result(HOSTILE[0], "custom", "IssuesFound", "f.", details={HOSTILE[1]: HOSTILE[0], "rows": [{HOSTILE[0]: HOSTILE[1]}]}))
    findings = tuple(
        Finding(rank, rules[rank].rule, "high", next(texts), next(texts), next(texts), next(texts), 5, 5.0, 5.0, 5, 5.0, next(texts))
        for rank in range(1, 8)
    )
    report = dataclasses.replace(rich, rules=tuple(rules), findings=findings)
    for target in ("html", "pdf"):
        text = html_of(report, target)
        assert not re.search(r"<(iframe|object|i)\b", text)
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        tags = re.sub(r">[^<]*<", "><", text)
        assert not re.search(r"\son\w+=", re.sub(r'"[^"]*"', '""', tags))
        assert not set(text) & {chr(code) for code in range(32) if chr(code) not in "\n\t"}
        assert "alert(1)" in html.unescape(text)
        longest = max(words(text).split(), key=len)
        assert len(longest) < 900, words(text)[words(text).index(longest) - 300 :][:330]


# -- whatever the details hold ---------------------------------------------------------------------------------------------


def damaged(value: Any, chance: random.Random, share: float) -> Any:
    """``value`` with some of its parts missing or of another kind."""
    if chance.random() < share:
        return chance.choice([None, {}, [], "text", -1, 0, float("nan"), True, [None], [{}], {"a": None}])
    if isinstance(value, dict):
        return {key: damaged(item, chance, share) for key, item in value.items() if chance.random() >= share}
    if isinstance(value, list):
        return [damaged(item, chance, share) for item in value]
    return value


@pytest.mark.parametrize("seed", slow_except(range(0, 40, 4), range(40)))
def test_whatever_is_missing_the_report_is_made(rich: Report, seed: int) -> None:
    chance = random.Random(seed)
    rules = tuple(
        dataclasses.replace(rule, details=loaded(rule, damaged(plain_details(rule), chance, 0.01 * 1.18**seed % 0.5)))
        for rule in rule_results()
    )
    content = context(dataclasses.replace(rich, rules=rules), quiet)
    for target in ("html", "pdf"):
        assert "nan" not in words(page(content, target)).split()


@pytest.mark.parametrize("details", [{}, None, [], "text"])
def test_no_details_at_all(rich: Report, details: Any) -> None:
    rules = tuple(dataclasses.replace(rule, details=details) for rule in rule_results())
    text = html_of(dataclasses.replace(rich, rules=rules))
    assert "rule-LowGPUUtilization" in text


def test_an_unknown_verdict_reads_as_an_error(rich: Report) -> None:
    rule = dataclasses.replace(result("Odd", "custom", "Whatever", "f."), category="custom")
    assert "1 error" in words(block(html_of(with_rules(rich, rule)), "summary-rules", "ul"))


# -- figures ---------------------------------------------------------------------------------------------------------------


def texts_of(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_dots_stand_where_their_percentiles_are() -> None:
    svg = dot_plot([Dots("GPU 0", 5.0, 40.0, 90.0)], [(70.0, "p95 70%")], "utilization", "%", top=100.0)
    root = ElementTree.fromstring(svg)
    ticks = {text.text: float(text.get("x", "0")) for text in root.iter(f"{SVG}text") if text.text in ("0", "20", "40", "60", "80", "100%")}
    span, median = ((float(rect.get("x", "0")), float(rect.get("width", "0"))) for rect in root.iter(f"{SVG}rect"))
    assert median[0] + median[1] / 2 == pytest.approx(ticks["40"], abs=0.02)
    unit = (ticks["100%"] - ticks["0"]) / 100
    p5, p95 = (float(circle.get("cx", "0")) for circle in root.iter(f"{SVG}circle"))
    assert ((p5 - ticks["0"]) / unit, (p95 - ticks["0"]) / unit) == (pytest.approx(5, abs=0.1), pytest.approx(90, abs=0.1))
    assert span == (pytest.approx(p5, abs=0.02), pytest.approx(p95 - p5, abs=0.02))
    assert "utilization" in texts_of(svg)
    limit = [line for line in root.iter(f"{SVG}line") if line.get("stroke-dasharray") == "4 3"]
    assert [(float(line.get("x1", "0")) - ticks["0"]) / unit for line in limit] == [pytest.approx(70, abs=0.1)]


def test_names_of_near_thresholds_do_not_overlap() -> None:
    svg = dot_plot([Dots("a", 1, 2, 3)], [(70.0, "cpu 70%"), (71.0, "gpu 71%"), (72.0, "memory 72%")], "utilization", "%", top=100.0)
    lines = [
        float(text.get("y", "0"))
        for text in ElementTree.fromstring(svg).iter(f"{SVG}text")
        if (text.text or "").endswith(("70%", "71%", "72%"))
    ]
    assert len(set(lines)) == 3


def low_gpus(*histograms: tuple[float, ...]) -> Figure:
    rows = [
        {"node": "n", "device": number, "rank": number, "state": "fluctuating", "triggered": 1, "histogram": shares,
         "box": {"p5": 0.0, "p50": 90.0, "p95": 92.0 + number, "mean": 60.0 - number}}
        for number, shares in enumerate(histograms)
    ]  # fmt: skip
    measured = details_from("LowGPUUtilization", {"devices": rows})
    parameters = {"threshold_p5": (10, "%", 10, False, None), "threshold_p95": (70, "%", 70, False, None)}
    rule = result("LowGPUUtilization", "system", "IssuesFound", "x.", details=measured, given=parameters)
    part = parts_of(with_rules(empty_report(), rule))["rule-LowGPUUtilization"]
    figure = part.figure("samples")
    assert figure is not None
    return figure


def test_two_humps_of_utilization_are_drawn_with_thresholds_and_alike_gpus_are_one_row() -> None:
    humps = (0.3, *[0.0] * 44, 0.7, *[0.0] * 4)
    nearby = (0.28, 0.02, *[0.0] * 43, 0.7, *[0.0] * 4)
    figure = low_gpus(humps, humps, nearby)
    root = ElementTree.fromstring(figure.svg)
    labels = [text.replace("\u00a0", " ") for text in texts_of(figure.svg)]
    assert {"all 3 GPUs alike", "p5 10%", "p95 70%", "p95 93.0%"} <= set(labels)
    (bars,) = (path.get("d", "") for path in root.iter(f"{SVG}path"))
    # Medians per bin: 30% of the samples in the first bin, 70% in that from 90%; the highest fills the row.
    heights = [float(base) - float(top) for base, top in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", bars)]
    assert heights[0] / heights[1] == pytest.approx(0.3 / 0.7, abs=0.01)
    # 0 to 2% of GPU 2, whose mean is lowest, and 2 to 4%: together 30%.
    assert words(str(figure.caption)) == (
        "All 3 GPUs are low or fluctuate. Of the samples of rank 2 · n GPU 2, 30.0% are below 10% and 70.0% above 70%."
    )


def test_gpus_with_different_work_are_rows() -> None:
    labels = texts_of(low_gpus((1.0, *[0.0] * 49), (0.5, *[0.0] * 48, 0.5)).svg)
    assert {"rank 0 · n GPU 0", "rank 1 · n GPU 1"} <= set(labels)


def test_a_matrix_shows_its_numbers_up_to_sixteen() -> None:
    assert texts_of(matrix(["a", "b"], [[0.0, 0.83], [0.83, None]], "distance")).count("0.83") == 2
    large = [[abs(a - b) / 40 for b in range(40)] for a in range(40)]
    svg = matrix([f"GPU {i}" for i in range(40)], large, "distance")
    assert not [text for text in texts_of(svg) if re.fullmatch(r"\d\.\d\d", text)]
    assert len(svg) < 60_000
    fields = [path.get("d", "") for path in ElementTree.fromstring(svg).iter(f"{SVG}path")]
    assert sum(field.count("M") for field in fields) == 1600


def test_workloads_are_on_one_scale() -> None:
    svg = workloads([Workload("a", [0.0, 0.5, 0.25], 50.0), Workload("b", [1.0, 0.0, 0.0], 0.0)])
    paths = list(ElementTree.fromstring(svg).iter(f"{SVG}path"))
    tops = [(float(base), float(top)) for path in paths for base, top in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", path.get("d", ""))]
    heights = [base - top for base, top in tops]
    assert [path.get("data-bins") for path in paths] == ["0 100 even % 0 50 25", "0 100 even % 100 0 0"]
    assert [height / heights[2] for height in heights] == pytest.approx([0.5, 0.25, 1.0], abs=0.01)


def test_a_threshold_in_bars_is_at_its_value_and_named() -> None:
    svg = stacked_bars([Part("x", "host")], [("a", [20.0]), ("b", [5.0])], "%", axis_end=25.0, limit=(10.0, "threshold 10%"))
    root = ElementTree.fromstring(svg)
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    left, wide = float(bars[0].get("x", "0")), float(bars[0].get("width", "0"))
    places = {float(line.get("x1", "0")) for line in root.iter(f"{SVG}line") if line.get("stroke-dasharray")}
    assert any(place == pytest.approx(left + wide / 2, abs=0.02) for place in places)
    assert "threshold 10%" in texts_of(svg)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("48.0% of 12 ms", "48.0% of 12\u00a0ms"),
        ("3 machines, 5 min 2 s", "3 machines, 5\u00a0min 2\u00a0s"),
        ("4 hours and 5 MiB", "4 hours and 5\u00a0MiB"),
        ("1,300 times", "1,300 times"),
    ],
)
def test_numbers_stay_with_their_units(text: str, expected: str) -> None:
    assert glued(text) == expected


def test_code_in_a_sentence() -> None:
    assert coded("Set `a<b` now") == "Set <code>a&lt;b</code> now"
    assert coded("one ` alone <i>") == "one ` alone &lt;i&gt;"


def test_values_of_a_custom_rule_as_text() -> None:
    assert written("time_ns", 12_000_000) == "12.0\u00a0ms"
    assert written("share", 0.123456) == "0.123"
    assert written("flag", True) == "yes"
    assert written("names", ["a", 2]) == "a, 2"
    assert written("nothing", None) == "—"
    assert written("many", list(range(20))).endswith("… (20 in all)")


# -- measures that overlap, and values that are not drawn -------------------------------------------------------------------


def test_bars_of_measures_that_overlap_all_begin_at_zero() -> None:
    parts = (Part("computation", "computation"), Part("in collectives", "communication"))
    drawn = ElementTree.fromstring(
        paired_bars(parts, [("rank 0", [138.0, 77.7]), ("rank 5", [154.0, None])], "ms", limit=(138.0, "median"))
    )
    bars = [rect for rect in drawn.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    assert [bar[0].text for bar in bars] == [
        "rank 0, computation: 138 ms",
        "rank 0, in collectives: 77.7 ms",
        "rank 5, computation: 154 ms",
    ]
    assert len({bar.get("x") for bar in bars}) == 1
    widths = [float(bar.get("width") or 0) for bar in bars]
    assert widths[1] / widths[0] == pytest.approx(77.7 / 138.0, abs=0.001)
    assert widths[2] / widths[0] == pytest.approx(154.0 / 138.0, abs=0.001)
    assert len({bar.get("y") for bar in bars}) == 3


def test_a_panel_counts_what_lies_beyond_it_shows_single_steps_and_has_one_tick_for_equal_values() -> None:
    cut = Bins("rank 0 TRAIN: all steps", [100e6, 200e6, 300e6], [9000, 1], 150e6, beyond=39)
    flat = Bins("EVAL", [400_000_000.0, 400_000_100.0, 400_000_200.0], [3, 4], 400_000_100.0)
    drawn = ElementTree.fromstring(panels([cut, flat], ["a", "b"], ["computation"] * 2))
    texts = ["".join(text.itertext()).replace("\u00a0", " ") for text in drawn.iter(f"{SVG}text")]
    assert "39 above 300 ms not drawn" in texts
    assert sum(text.startswith("400") for text in texts) == 1
    first = next(path.get("d") or "" for path in drawn.iter(f"{SVG}path"))
    heights = [float(found) for found in re.findall(r"V([0-9.]+)H", first)]
    base = float(re.findall(r"V([0-9.]+)Z", first)[-1])
    assert base - heights[1] >= 1.0, "one step beside 9,000 is to be seen"


def test_groups_that_were_judged_are_drawn_before_those_that_were_not() -> None:
    def group(phase: str, steps: int, judged: bool) -> dict[str, Any]:
        edges = [1e8 * n for n in range(1, 5)]
        common = {"node": "n", "rank": 0, "pid": 1, "phase": phase, "steps": steps, "evaluable": judged, "outliers": 0 if judged else None}
        times = {"mean_ns": 2e8, "std_ns": 1e7, "threshold_ns": 3e8, "max_ns": 9e8, "p50_ns": 2e8}
        return common | times | {"histogram": {"edges": edges, "counts": [1, 2, 1], "beyond": 2, "logarithmic": False}}

    rule_result = result("StepOutlier", "framework", "NoIssuesFound", "Fine.")
    found_details = details_from("StepOutlier", {"groups": [group("EVAL", 5, False), group("TRAIN", 900, True)]})
    assert isinstance(found_details, StepOutlierDetails)
    blocks = step_outlier(RuleContext("rule-StepOutlier", rule_result, 0), found_details)
    figure = blocks[0]
    table = next(block for block in blocks if isinstance(block, Table) and block.id.endswith("-groups"))
    assert isinstance(figure, Figure)
    assert isinstance(table, Table)
    assert words(figure.alt).endswith(". TRAIN: 0 outliers among 900 steps")
    caption = words(str(figure.caption))
    assert "Not drawn: 2 steps above 400 ms, the longest 900 ms." in caption
    assert [row[0].text for row in table.rows] == ["rank 0 TRAIN", "rank 0 EVAL"]
    assert "Robust outliers are longer than the median" in (table.html_note or "")


@pytest.mark.parametrize(
    ("workers", "note"), [(2, "CPU use: of all"), (None, "The recording contains no settings of the data loader. CPU use")]
)
def test_waits_for_data_and_the_loader_are_tables_with_labels(workers: int | None, note: str) -> None:
    """Rank 1 waits for 57 ms of 100 ms, rank 0 for 10 ms."""
    of_process = {"node": "n", "steps": 20, "steps_ns": 2 * S}
    rows = [
        {**of_process, "rank": 0, "pid": 1, "waiting_ns": S // 5, "percent": 10.0, "issue": False},
        {**of_process, "rank": 1, "pid": 2, "waiting_ns": 1140 * S // 1000, "percent": 57.0, "issue": True},
    ]
    loader = {"num_workers": workers, "prefetch_factor": None, "pin_memory": None, "cores": 2, "core_percent": 99.5, "processes": 2}
    details = details_from("InputBound", {"processes": rows, "loader": loader})
    assert isinstance(details, InputBoundDetails)
    rule_result = result("InputBound", "trace", "IssuesFound", "So.", given={"threshold": (20, "%", 20, False, None)})
    processes, settings = input_bound(RuleContext("rule-InputBound", rule_result, 0), details)
    assert isinstance(processes, Table)
    assert isinstance(settings, Table)
    times = [duration(1140 * S // 1000), duration(2 * S), "20", duration(57_000_000)]
    assert [cell.text for cell in processes.rows[0]] == ["rank 1", "✕ over", "57.0%", *times]
    assert processes.note == "Share of the time of the steps; more than 20% is an issue."
    texts = {column.label: cell.text for column, cell in zip(settings.columns, settings.rows[0], strict=True)}
    assert (texts["Process"], texts["Cores of the node"], texts["CPU use of the node"]) == ("rank 1", "2", "99.5%")
    assert texts.get("num_workers", "—") == ("—" if workers is None else "2")
    assert (settings.note or "").startswith(note)


@pytest.mark.parametrize(
    ("waiting", "columns", "note"),
    [
        (5_000_000, ["Waiting", "Last rank"], "Waiting: until the last rank of the group arrives."),
        (None, [], "How long they wait for other ranks is unknown, because these are not in the run."),
    ],
)
def test_exposed_collectives_explain_the_columns_that_they_have(waiting: int | None, columns: list[str], note: str) -> None:
    collective = {"operation": "all-reduce", "count": 2, "time_ns": S, "exposed_ns": S // 2, "waiting_ns": waiting}
    exposed = details_from("ExposedCommunication", {"collectives": [{**collective, "last_rank": None if waiting is None else 5}]})
    assert isinstance(exposed, ExposedCommunicationDetails)
    table = exposed_collectives(RuleContext("rule-X", result("ExposedCommunication", "trace", "IssuesFound", "So."), 0), exposed)
    assert table is not None
    assert [column.label for column in table.columns if column.label in ("Waiting", "Transfer", "Last rank", "Group")] == columns
    assert note in (table.html_note or "")


@pytest.mark.parametrize("text", ["none of its 9 rules could be evaluated", "2 of 9 documented rules found an issue."])
def test_the_summary_of_the_rules_is_a_sentence(rich: Report, text: str) -> None:
    summary = dataclasses.replace(rich.rules[0], finding=None, reason=text)
    listed = rules(dataclasses.replace(rich, rules=(summary, *rich.rules[1:])))
    assert str(listed.facts["summary"]) == f"ProfilerReport: {text.removesuffix('.')}."
