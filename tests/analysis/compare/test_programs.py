"""Runs that execute different programs: names of kernels, operators and modules of hand-made reports, and what is not compared then."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping, Sequence

import pytest
from judging import empty_report
from postrun.analysis.compare.build import compare
from postrun.analysis.compare.programs import differ, evidence
from postrun.analysis.compare.shares import percent_pairs
from postrun.analysis.report import Device, Generator, Kernel, Report
from postrun.analysis.report.comparison import Comparison, SampledMean, Sampling, ShareChange, SharedNames
from postrun.analysis.report.device import DeviceOperator, DeviceTime, GpuTime, OperatorAttribution
from postrun.analysis.report.operator_calls import OperatorCall, OperatorCalls
from postrun.analysis.report.rules import FINE, ISSUES, RuleResult
from postrun.analysis.report.steps import Step
from postrun.report_templates.comparing.summary import summary
from postrun.report_templates.output.comparison_page import pages

MS = 1_000_000


def kernel(name: str, ms: float, category: str) -> Kernel:
    total = round(ms * MS)
    return Kernel(name, name, category, "BF16", 1, total, total, float(total), total, 0.0, 0.0)


def program(
    kernels: Mapping[str, float] | None = None, operators: Mapping[str, float] | None = None, modules: Mapping[str, float] | None = None, *,
    step_ms: float = 100, gpu: str = "H100", rules: Sequence[RuleResult] = (),
) -> Report:  # fmt: skip
    """Return a run of 8 steps on one GPU; the mappings have milliseconds by name."""
    step = round(step_ms * MS)
    steps = tuple(Step("node", 0, 1, None, number, 10**18 + number * step, step, True, step) for number in range(8))
    span = 8 * step
    work = DeviceTime("node", 0, 1, 0, gpu, 100, 10**18, span, span, 0, span, 0, 0, 0.0, 0, 0, 0, 0, span, span)
    empty = empty_report()
    rows = tuple(DeviceOperator(name, 1, 1, round(ms * MS), 0.0, 1) for name, ms in (operators or {}).items())
    calls = tuple(OperatorCall(name, "aten::mm", "8x8", "bf16", (), None, 8, round(ms * MS)) for name, ms in (modules or {}).items())
    return dataclasses.replace(
        empty,
        steps=dataclasses.replace(empty.steps, steps=steps, absent=None),
        time_breakdown=(work,),
        gpu_time=GpuTime(1, 10**18, 10**18 + span, span, span, 0, 0, 0),
        devices=(Device("node", 0, gpu, None, None, None, None, None, True),),
        kernels=tuple(kernel(name, ms, "communication" if name.startswith("nccl") else "GEMM") for name, ms in (kernels or {}).items()),
        operators=OperatorAttribution(rows, 0, (), None, None),
        operator_calls=OperatorCalls(calls),
        rules=tuple(rules),
    )


def compared(base: Report, new: Report) -> Comparison:
    return compare(base, new, generator=Generator("postrun", "0", 0, {}))


def shares(comparison: Comparison) -> dict[str, tuple[float, float]]:
    return {names.kind: (names.base_percent, names.new_percent) for names in comparison.shared_names}


def test_shares_of_the_time_in_common_names_without_communication() -> None:
    # Common: 30 of 120 ms and 30 of 60 ms of kernels; 40 of 50 ms and 10 of 40 ms of operators.
    base = program({"a": 30, "b #2": 90, "nccl": 500}, {"aten::mm": 40, "aten::conv": 10, "c10d::allreduce_": 500})
    new = program({"a": 20, "a #2": 10, "c": 30, "nccl": 500}, {"aten::mm": 10, "aten::bmm": 30, "c10d::allreduce_": 500})
    assert shares(compared(base, new)) == {"kernels": (25.0, 50.0), "operators": (80.0, 25.0)}


def kinds(**least: float) -> list[SharedNames]:
    return [SharedNames(kind, percent, 90.0) for kind, percent in least.items()]


@pytest.mark.parametrize(
    ("shared", "different"),
    [
        (kinds(), False),
        (kinds(kernels=10), True),
        (kinds(kernels=10, operators=95), False),  # another precision, or another GPU
        (kinds(kernels=32.9, operators=32.9), True),
        (kinds(kernels=32.9, operators=33), False),
        (kinds(kernels=10, operators=95, modules=95), False),
        (kinds(kernels=90, operators=95, modules=0), False),  # a wrapped model
        (kinds(kernels=10, operators=95, modules=0), True),  # two transformers
    ],
)
def test_the_majority_of_the_kinds_of_names_decides(shared: list[SharedNames], different: bool) -> None:
    assert differ(shared, same_gpu=True) == different


def test_kernels_alone_are_no_evidence_between_gpus() -> None:
    assert not differ(kinds(kernels=0), same_gpu=False)
    comparison = compared(program({"ampere_gemm": 50}, gpu="A100"), program({"sm90_gemm": 50}, gpu="H100"))
    assert (comparison.different_programs, comparison.verdict) == (False, "same")


def rule(verdict: str) -> RuleResult:
    return RuleResult(
        rule="IOBottleneck", category="system", verdict=verdict, reason=None, capture=None, triggered=0, violations=0, datapoints=0,
        windows=0, windows_triggered=0, first_ns=None, last_ns=None, parameters={}, changed_parameters={}, parameter_table=(), details={},
        finding=None, recommendation=None, checks="", condition="", advice="",
    )  # fmt: skip


@pytest.fixture(scope="module")
def unrelated() -> Comparison:
    return compared(
        program({"conv": 50, "relu": 1}, {"aten::conv": 50}, {"ResNet_0": 50}, step_ms=100, rules=[rule(ISSUES)]),
        program({"gemm": 50, "relu": 1}, {"aten::mm": 50}, {"Bert_0": 50}, step_ms=40, rules=[rule(FINE)]),
    )


def test_different_programs_have_no_verdict_and_no_list_of_calls(unrelated: Comparison) -> None:
    assert unrelated.headline == "These runs execute different programs; compare totals with care."
    assert unrelated.details == (
        "Share of the time in common names, in base and in new: kernels 2% and 2%. The runs have no operators or modules in common."
        " In runs of one program, most of these are at least 33%. The median step takes 100 ms in base and 40.0 ms in new."
    )
    assert (unrelated.verdict, unrelated.operator_calls) == ("cannot say", ())
    assert evidence([SharedNames(kind, 0.0, 0.0) for kind in ("kernels", "operators", "modules")]) == (
        "The runs have no kernels, operators or modules in common, apart from communication. In runs of one program, most of these are at"
        " least 33%."
    )
    assert unrelated.steps is not None
    assert (unrelated.steps.verdict, unrelated.steps.p_value, unrelated.steps.shift_percent) == ("undecided", None, None)
    assert [change.area for change in unrelated.changes if change.area == "step"] == []
    assert [(row.base, row.new, row.outcome) for row in unrelated.rules] == [(ISSUES, FINE, "other")]
    assert (unrelated.differences[0].name, bool(unrelated.differences[0].limits)) == ("program", True)


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_no_page_claims_that_a_different_program_is_faster(unrelated: Comparison, target: str) -> None:
    text = pages(unrelated, target).partition("<body")[2]
    assert "faster" not in text.replace("Slower or faster where a rank-sum test", "")
    tiles = [(tile.value.replace("\u00a0", " "), tile.detail) for tile in summary(unrelated).facts["tiles"]]
    # All of the GPU time is computation: neither run has another part.
    assert tiles == [("100 ms → 40.0 ms", "different programs"), ("100% → 100%", "of GPU time; 100\u00a0ms → 40.0\u00a0ms per step")]


def test_percentages_replace_the_changes_of_different_programs(unrelated: Comparison) -> None:
    base, new = GpuTime(1, 0, 10, 100, 90, 0, 0, 10), GpuTime(2, 0, 10, 60, 30, 0, 0, 30)
    precision = (ShareChange("BF16", 0.0, 75.0, 0.0, 50.0, "added"), ShareChange("FP64", 0.0, 0.0, 0.0, 0.0, "same"))
    means = SampledMean("GPU utilization", None, 40.0, None, "base has no samples"), SampledMean("I/O wait", None, None, None, "no samples")
    pairs = percent_pairs(base, new, precision, Sampling("run", means))
    assert [(pair.name, pair.of, pair.base_percent, pair.new_percent) for pair in pairs] == [
        ("computation", "GPU time", 90.0, 50.0),
        ("idle", "GPU time", 10.0, 50.0),
        ("BF16 arithmetic", "time in matrix kernels", 0.0, 75.0),
        ("GPU utilization", "samples", None, 40.0),
    ]
    assert [pair.base_percent for pair in percent_pairs(None, new, (), Sampling("run", ()))] == [None, None]
    assert [pair.name for pair in unrelated.percentages] == ["computation"]
    text = pages(unrelated, "html").partition("<main")[2]
    assert ("summary-comparable" in text, "summary-changes" in text) == (True, False)


def test_percentages_of_different_programs_are_those_of_the_reports() -> None:
    # 8 steps of 100 ms; the profile window of 1 s also contains 200 ms without a step, which are idle.
    base, new = (program({name: 50}, {name: 50}, {name: 50}) for name in ("conv", "gemm"))
    time = GpuTime(1, 10**18, 10**18 + 1000 * MS, 1000 * MS, 800 * MS, 0, 0, 200 * MS)
    comparison = compared(dataclasses.replace(base, gpu_time=time), new)
    assert [(pair.name, pair.base_percent, pair.new_percent) for pair in comparison.percentages] == [
        ("computation", 80.0, 100.0),
        ("idle", 20.0, 0.0),
    ]


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_no_difference_of_different_programs_is_a_change(unrelated: Comparison, target: str) -> None:
    assert {"added", "vanished"} <= {kernel.state for kernel in unrelated.kernels}
    (part, *parts), (step, *_) = unrelated.parts, unrelated.host_parts or unrelated.parts
    shrunk, undecided = (dataclasses.replace(part, state=state) for state in ("shrunk", "undecided"))
    comparison = dataclasses.replace(unrelated, parts=(shrunk, undecided, *parts), host_parts=(dataclasses.replace(step, state="same"),))
    text = pages(comparison, target).partition("<main")[2]
    for word in ("Verdict<", "grew", "shrank", "added", "vanished", "undecided", "≈", "Changed", "Too few steps", "Change<"):
        assert word not in text
    assert "A GPU's span per step (mean): 100\u00a0ms before" in html.unescape(text)
    assert "Of 3\u00a0kernels 1 run in both programs." in text
