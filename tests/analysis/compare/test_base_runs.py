"""Comparisons with several base runs, of hand-made reports: how much equal runs differ, and what is beyond that."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from compared_runs import MS, communicating, device, kernel, pieces, with_
from judging import empty_report
from postrun.analysis.compare.base_runs import limit
from postrun.analysis.compare.basis import Noise
from postrun.analysis.compare.build import compare
from postrun.analysis.report import Generator, Report, StepParts
from postrun.analysis.report.comparison import Amount, Comparison
from postrun.analysis.report.device import DeviceOperator, OperatorAttribution
from postrun.analysis.report.operator_calls import OperatorCall, OperatorCalls
from postrun.analysis.report.rows import Share
from postrun.analysis.report.rules import FINE, ISSUES, RuleResult
from postrun.analysis.report.run import Source

GENERATOR = Generator("postrun", "0", 0, {})


def compared(base: Report, new: Report, base_runs: Sequence[Report], **options: Any) -> Comparison:
    listed = [(run, f"runs/{number}", "traces") for number, run in enumerate(base_runs)]
    return compare(base, new, generator=GENERATOR, baselines=listed, **options)


def run(step_ms: float, steps: int = 10, **changes: Any) -> Report:
    """Make equal steps, whose GPU time is a kernel of the same length."""
    changes.setdefault("kernels", (kernel("k", "k", 10, step_ms, spread=0.001),))
    return with_(empty_report(), lengths=[step_ms] * steps, **changes)


def test_the_limit_of_equal_runs() -> None:
    # s = 1.29099 of 100, 102, 101, 103; t = 5.841
    assert limit([100, 102, 101, 103]) == pytest.approx(5.841 * 2**0.5 * 1.2909944)
    assert limit([100, 102]) == pytest.approx(63.657 * 2)  # s = √2
    assert limit([7.0] * 20) == 0
    values = [0.0, 1.0] * 10
    assert limit(values) == pytest.approx(3.169 * 2**0.5 * (20 * 0.25 / 19) ** 0.5)


@pytest.mark.parametrize(
    ("new_ms", "verdict", "part"),
    # Base runs of 100, 104, 98 and 102 ms: s = √(20/3) = 2.582, limit 5.841 · √2 · s = 21.33 ms or percent.
    [(115, "cannot say", "same"), (130, "slower", "grown"), (100, "cannot say", "same")],
)
def test_a_change_is_beyond_the_spread_of_the_base_runs(new_ms: float, verdict: str, part: str) -> None:
    comparison = compared(run(100), run(new_ms), [run(104), run(98), run(102)])
    judgment = comparison.judgment
    assert judgment is not None
    assert judgment.runs_percent == pytest.approx(21.328, abs=0.001)
    assert (judgment.low_percent, judgment.high_percent) == pytest.approx((new_ms - 121.328, new_ms - 78.672), abs=0.001)
    assert comparison.verdict == verdict
    computation = comparison.parts[0]
    assert (computation.state, (computation.noise_ns or 0.0) / MS) == (part, pytest.approx(21.328, abs=0.001))
    assert (comparison.kernels[0].state, (comparison.kernels[0].noise_ns or 0.0) / MS) == (part, pytest.approx(21.328, abs=0.001))
    assert {change.area for change in comparison.changes} == ({"step", "part", "kernel"} if part == "grown" else set())
    assert "Equal runs differ by up to 21.3% in 99 of 100 pairs, from 4 base runs." in comparison.details
    assert ("the base runs vary too much" in comparison.headline) == (verdict == "cannot say")


@pytest.mark.parametrize(("new_ms", "verdict"), [(102, "same"), (106, "slower")])
def test_base_runs_that_are_alike_decide(new_ms: float, verdict: str) -> None:
    # 100, 101, 100 and 101 ms: s = 0.577, limit 4.769 percent; 2% more is the same, because more than 10% is ruled out.
    comparison = compared(run(100), run(new_ms), [run(101), run(100), run(101)])
    assert comparison.verdict == verdict
    assert comparison.steps is not None
    assert comparison.steps.verdict == verdict
    assert [side.given for side in comparison.baselines] == ["runs/0", "runs/1", "runs/2"]


def test_base_runs_decide_on_waits_of_few_steps() -> None:
    # 10, 10.5, 11 and 10.5 ms of communication: s = 0.408, limit 3.372 ms. Four steps have no known noise.
    base, new = communicating(empty_report(), [100] * 4, 10), communicating(empty_report(), [120] * 4, 30)
    runs = [communicating(empty_report(), [100] * 4, each) for each in (10.5, 11, 10.5)]
    listed = pieces(compared(base, new, runs))
    assert {where: row.state for where, row in listed.items()} == dict.fromkeys(listed, "grown")
    assert {round(row.noise_ns / MS, 3) for row in listed.values()} == {3.372}
    assert {row.state for row in pieces(compared(base, new, [])).values()} == {"undecided"}


def test_pieces_have_at_least_the_noise_of_their_part() -> None:
    # Exposed communication of the base runs differs more than the kernel does.
    base, new = communicating(empty_report(), [100] * 10, 10), communicating(empty_report(), [110] * 10, 20)
    runs = [exposing(base, each) for each in (16, 10, 16)]
    listed = pieces(compared(base, new, runs))
    # s = 3.464 of 10, 16, 10 and 16: limit 28.61 ms
    assert {round((row.noise_ns or 0.0) / MS, 2) for row in listed.values()} == {28.61}
    assert {row.state for row in listed.values()} == {"same"}


def busy(step_ms: float, call_ms: float | None = None, dims: str = "8x8", **changes: Any) -> Report:
    """Make ten equal steps, each of which is one call of an operator."""
    calls = (OperatorCall("layer", "aten::mm", dims, "bf16", ("k",), None, 10, round(10 * (call_ms or step_ms) * MS)),)
    return run(step_ms, operator_calls=OperatorCalls(calls), **changes)


def states(comparison: Comparison) -> dict[str, str | None]:
    """Return every verdict on computation."""
    assert comparison.device_steps is not None
    assert comparison.whole is not None
    assert comparison.steps is not None
    (kernel_row,), (call,) = comparison.kernels, comparison.operator_calls
    return {
        "verdict": comparison.verdict,
        "steps": comparison.steps.verdict,
        "device steps": comparison.device_steps.verdict,
        "whole": comparison.whole.state,
        "part": comparison.parts[0].state,
        "device": comparison.devices[0].parts[0].state,
        "kernel": kernel_row.state,
        "duration": kernel_row.duration_state,
        "call": call.state,
    }


def test_all_verdicts_have_the_spread_of_the_base_runs() -> None:
    # Base runs of 100, 104, 98 and 102 ms: a change below 21.33 ms is within their spread.
    runs = [busy(104), busy(98), busy(102)]
    within = states(compared(busy(100), busy(115), runs))
    assert within.pop("verdict") == "cannot say"
    assert within == dict.fromkeys(within, "same")
    changed = {"verdict": "slower", "steps": "slower", "device steps": "slower", "whole": "grown", "part": "grown", "device": "grown"}
    changed |= {"kernel": "grown", "duration": "longer", "call": "slower"}
    assert states(compared(busy(100), busy(130), runs)) == changed
    assert states(compared(busy(100), busy(115), [])) == changed


@pytest.mark.parametrize(
    ("new_ms", "base_ms", "text"),
    [
        (115, (104, 98, 102), "The base runs vary too much to tell: 100 ms before, 115 ms now (median, +15.0%, -6.3% to +36.3% with the"
         " spread of the base runs). Equal runs differ by up to 21.3% in 99 of 100 pairs, from 4 base runs."),
        (130, (104, 98, 102), "A step takes 30.0% longer: 100 ms before, 130 ms now (median, +30.0%, +8.7% to +51.3% with the spread of the"
         " base runs). Equal runs differ by up to 21.3% in 99 of 100 pairs, from 4 base runs."),
        (104, (101, 100, 101), "A step takes as long as before: 100 ms before, 104 ms now (median, +4.0%, -0.8% to +8.8% with the spread of"
         " the base runs). Equal runs differ by up to 4.8% in 99 of 100 pairs, from 4 base runs."),
    ],
)  # fmt: skip
def test_the_text_of_the_verdict_is_that_of_its_final_state(new_ms: float, base_ms: Sequence[float], text: str) -> None:
    judgment = compared(run(100), run(new_ms), [run(each) for each in base_ms]).judgment
    assert judgment is not None
    assert judgment.text.replace("\u00a0", " ") == text


def test_what_a_base_run_lacks_is_undecided() -> None:
    # The second base run calls the operator with another shape, does not list its time, and its kernel has another name.
    def listing(report: Report, ms: float) -> Report:
        rows = (DeviceOperator("aten::mm", 10, 10, round(10 * ms * MS), 100.0, 1),)
        return dataclasses.replace(report, operators=OperatorAttribution(rows, 0, (), 100.0, None))

    third = busy(100, dims="16x16", kernels=(kernel("other", "other", 10, 100, spread=0.001),))
    comparison = compared(listing(busy(100), 100), listing(busy(130), 130), [listing(busy(100), 100), third])
    assert [(row.name, row.state) for row in comparison.operators] == [("aten::mm", "undecided")]
    verdicts = states(comparison)
    # The kernel took 100, 100 and 0 ms in the base runs: s = 57.7, limit 9.925 · √2 · 57.7 = 810 ms.
    assert (verdicts["part"], verdicts["kernel"], verdicts["duration"], verdicts["call"]) == ("grown", "same", None, "undecided")
    assert (comparison.kernels[0].noise_ns or 0.0) / MS == pytest.approx(810.4, abs=0.1)
    assert [change.area for change in comparison.changes] == ["step", "part"]


@pytest.mark.parametrize(("other_ms", "state"), [(0, "added"), (8, "same")])
def test_a_kernel_that_the_base_lacks_took_no_time_there(other_ms: float, state: str) -> None:
    # It takes 10 ms in new. In base runs 0, 0, 0 and 8 ms: s = 4, limit 5.841 · √2 · 4 = 33.0 ms.
    def with_kernel(each_ms: float) -> Report:
        extra = (kernel("extra", "extra", 10, each_ms),) if each_ms else ()
        return run(100, kernels=(kernel("k", "k", 10, 90), *extra))

    comparison = compared(with_kernel(0), with_kernel(10), [with_kernel(0), with_kernel(0), with_kernel(other_ms)])
    assert {row.short_name: row.state for row in comparison.kernels} == {"k": "same", "extra": state}


def launching(ns: int, bf16: int) -> Report:
    """Make ten steps with a launch of ``ns`` each, and ``bf16`` percent in BF16."""
    empty = empty_report()
    launches = dataclasses.replace(empty.launches, calls=10, call_time=(Share("cudaLaunchKernel", 10 * ns, 10, 100.0),))
    percents = {"BF16": bf16, "FP32": 100 - bf16}
    shares = tuple(Share(name, percent, percent, float(percent)) for name, percent in percents.items() if percent)
    return run(100, launches=launches, precision=dataclasses.replace(empty.precision, matrix=shares))


def test_launches_and_precision_have_the_spread_of_the_base_runs() -> None:
    # Host time of 1000, 1040, 980 and 1020 ns: limit 213.3 ns; shares of 50, 54, 48 and 52%: limit 21.3 points.
    runs = [launching(1040, 54), launching(980, 48), launching(1020, 52)]
    for new, expected in ((launching(1200, 70), "same"), (launching(1300, 80), "grown")):
        comparison = compared(launching(1000, 50), new, runs)
        assert comparison.launches[1].state == expected
        assert {row.name: row.state for row in comparison.precision}["BF16"] == expected


def test_no_noise_makes_a_small_effect_a_change() -> None:
    # 2% is below the threshold, and the base runs do not differ at all.
    comparison = compared(busy(100), busy(102), [busy(100), busy(100)])
    assert states(comparison) == dict.fromkeys(states(comparison), "same")


def exposing(report: Report, exposed_ms: float) -> Report:
    """Return a run with this exposed communication in each of ten steps."""
    (time,) = report.time_breakdown
    ns = round(10 * exposed_ms * MS)
    time = dataclasses.replace(time, exposed_communication_ns=ns, computation_ns=time.span_ns - time.idle_ns - ns)
    return dataclasses.replace(report, time_breakdown=(time,))


def test_a_piece_that_changes_against_its_part_has_its_own_noise() -> None:
    # Exposed communication of 10, 16, 10 and 16 ms: limit 28.61 ms. It grows by 40 ms, its kernel shrinks from 10 to 4 ms.
    base = communicating(empty_report(), [100] * 10, 10)
    new = exposing(communicating(empty_report(), [100] * 10, 4), 50)
    listed = pieces(compared(base, new, [exposing(base, each) for each in (16, 10, 16)]))
    assert (listed["part"].state, round(listed["part"].noise_ns / MS, 2)) == ("grown", 28.61)
    assert (listed["kernel"].state, listed["kernel"].noise_ns) == ("shrunk", None)


def loading(idle_ms: float, loading_ms: float) -> Report:
    """Make ten steps of 100 ms with idle time and a wait for data."""
    report = run(100, time_breakdown=(device(1000, idle_ms=10 * idle_ms),))
    part = StepParts("node", 0, 1, 10, 100.0 * MS, {"data_loader": loading_ms * MS}, False, ())
    return dataclasses.replace(report, steps=dataclasses.replace(report.steps, parts=(part,)))


@pytest.mark.parametrize(("new_ms", "state"), [(30, "same"), (50, "grown")])
def test_data_loading_has_at_least_the_noise_of_idle_time(new_ms: float, state: str) -> None:
    # Idle time of 10, 16, 10 and 16 ms: limit 28.61 ms. Data loading is 10 ms in all base runs.
    comparison = compared(loading(10, 10), loading(new_ms, new_ms), [loading(each, 10) for each in (16, 10, 16)])
    rows = [next(row for row in comparison.parts if row.name == "idle"), *comparison.host_parts]
    assert [(row.name, row.state, round((row.noise_ns or 0.0) / MS, 2)) for row in rows] == [
        ("idle", state, 28.61),
        ("data_loader", state, 28.61),
    ]


def test_a_base_run_of_a_different_program_is_not_used() -> None:
    # Four steps have no evidence, which each base run would share. 100 and 200 ms: limit 6366 ms.
    call = OperatorCall("elsewhere", "aten::conv", "8x8", "bf16", ("conv",), None, 4, 800 * MS)
    unlike = run(200, 4, kernels=(kernel("conv", "conv", 4, 200),), operator_calls=OperatorCalls((call,)))
    comparison = compared(busy(100, steps=4), busy(130, steps=4), [unlike])
    computation = comparison.parts[0]
    assert (computation.state, computation.noise_ns, comparison.baselines) == ("grown", None, ())
    assert [row.limits for row in comparison.differences if row.name.endswith(" of a base run")] == [
        "the spread of the base runs is without this run"
    ]


def test_a_base_run_with_other_evidence_is_not_used() -> None:
    # Four steps are too few for the evidence that ten are.
    comparison = compared(run(100), run(115), [run(104), run(98), run(102), run(300, 4)])
    assert comparison.judgment is not None
    assert comparison.judgment.runs_percent == pytest.approx(21.328, abs=0.001)
    assert "from 4 base runs" in comparison.details
    assert [(row.name, row.base, row.new) for row in comparison.differences if row.limits] == [
        ("evidence of a base run", "steps, from step to step", f"none ({run(300).run.name})")
    ]


def test_the_noise_of_a_part_is_that_of_waits_in_its_direction() -> None:
    idle = Amount("idle", 10.0, 20.0, 10.0, 100.0, "grown", noise_ns=2.0)
    noise = Noise(5.0, (idle,))
    assert [noise.of(part, effect) for part, effect in (("idle", 3), ("idle", -3), ("exposed communication", 3))] == [2.0, 5.0, 5.0]
    assert Noise(5.0, (dataclasses.replace(idle, state="same"),)).of("idle", 3) == 5.0


def test_a_precision_that_the_base_runs_lack_is_added() -> None:
    comparison = compared(launching(1000, 100), launching(1000, 50), [launching(1000, 100), launching(1000, 100)])
    assert {row.name: row.state for row in comparison.precision} == {"BF16": "shrunk", "FP32": "added"}


def on_two_ranks(*computation_ms: float) -> Report:
    """Make ten steps of 100 ms on two ranks with these times of computation."""
    report = run(100)
    (time,) = report.time_breakdown
    works = [round(10 * ms * MS) for ms in computation_ms]
    times = [
        dataclasses.replace(time, rank=rank, pid=rank, computation_ns=work, idle_ns=time.span_ns - work) for rank, work in enumerate(works)
    ]
    steps = tuple(dataclasses.replace(step, rank=rank, pid=rank) for rank in range(2) for step in report.steps.steps)
    return dataclasses.replace(report, time_breakdown=tuple(times), steps=dataclasses.replace(report.steps, steps=steps))


def test_the_parts_of_devices_have_at_least_the_noise_of_all_devices() -> None:
    # The mean of both ranks is 50, 54, 50 and 54 ms in the base runs: s = 2.309, limit 19.08 ms. Rank 0 is 50 ms in all of them.
    comparison = compared(on_two_ranks(50, 50), on_two_ranks(60, 50), [on_two_ranks(50, each) for each in (58, 50, 58)])
    rows = [comparison.parts[0], comparison.devices[0].parts[0]]
    assert [(row.name, row.state, round((row.noise_ns or 0.0) / MS, 2)) for row in rows] == [("computation", "same", 19.08)] * 2
    assert compared(on_two_ranks(50, 50), on_two_ranks(60, 50), []).devices[0].parts[0].state == "grown"


def test_steps_that_a_base_run_does_not_time_are_undecided() -> None:
    # Five steps have four times from step to step. The base run has none, because its numbers do not follow each other.
    apart = run(100, 5)
    steps = tuple(dataclasses.replace(step, index=2 * step.index) for step in apart.steps.steps)
    apart = dataclasses.replace(apart, steps=dataclasses.replace(apart.steps, steps=steps))
    base, new = run(100, 5), run(130, 5)
    for runs, verdict in (([], "slower"), ([run(100, 5)], "slower"), ([apart], "undecided")):
        device_steps = compared(base, new, runs).device_steps
        assert device_steps is not None
        assert device_steps.verdict == verdict


def recorded(report: Report, *digests: str | None) -> Report:
    """Return a report of files with these checksums."""
    sources = tuple(Source(f"{number}.json", "kineto", 10, digest, 5, 0, 9) for number, digest in enumerate(digests))
    return dataclasses.replace(report, run=dataclasses.replace(report.run, sources=sources))


def test_a_recording_counts_once() -> None:
    # Copies of base, new and the first base run; 100, 104, 98 and 102 ms remain.
    base, new, first = recorded(run(100), "a", "b"), recorded(run(115), "c"), recorded(run(104), "d")
    runs = [first, recorded(run(100), "b", "a"), recorded(run(98), "e"), recorded(run(104), "d"), recorded(run(102), "f"), new]
    comparison = compared(base, new, runs)
    assert comparison.judgment is not None
    assert comparison.judgment.runs_percent == pytest.approx(21.328, abs=0.001)
    assert "from 4 base runs" in comparison.details
    assert [side.given for side in comparison.baselines] == ["runs/0", "runs/2", "runs/4"]
    limits = "a recording counts once: the spread of the base runs is without this repetition"
    assert [(row.name, row.base, row.new, row.limits) for row in comparison.differences if "runs/" in row.new] == [
        ("recording of a base run", "2 files", "the same (runs/1)", limits),
        ("recording of a base run", "1 file", "the same (runs/3)", limits),
        ("recording of a base run", "1 file", "the same (runs/5)", limits),
    ]


def test_recordings_of_unknown_files_are_not_the_same() -> None:
    runs = [recorded(run(each), None) for each in (104, 98, 102)]
    assert len(compared(recorded(run(100), None), recorded(run(115), None), runs).baselines) == 3


def rule(verdict: str) -> tuple[RuleResult, ...]:
    return (
        RuleResult(
            rule="HostBound", category="trace", verdict=verdict, reason=None, capture=None, triggered=0, violations=0, datapoints=0,
            windows=0, windows_triggered=0, first_ns=None, last_ns=None, parameters={}, changed_parameters={}, parameter_table=(),
            details={}, finding=None, recommendation=None, checks="", condition="", advice="",
        ),
    )  # fmt: skip


@pytest.mark.parametrize(("verdicts", "outcome"), [((FINE, FINE), "broken"), ((FINE, ISSUES), "other")])
def test_an_issue_of_another_base_run_is_not_new(verdicts: Sequence[str], outcome: str) -> None:
    runs = [run(100, rules=rule(verdict)) for verdict in verdicts]
    comparison = compared(run(100, rules=rule(FINE)), run(100, rules=rule(ISSUES)), runs)
    assert [row.outcome for row in comparison.rules] == [outcome]


def test_base_runs_of_another_unit_are_not_used_and_differences_are_listed() -> None:
    short = with_(empty_report(), lengths=[10] * 8, time_breakdown=run(100).time_breakdown, world_size=2)
    comparison = compared(run(100, world_size=1), run(130, world_size=1), [short])
    assert comparison.judgment is not None
    assert (comparison.verdict, comparison.judgment.runs_percent) == ("slower", None)
    limits = {row.name: (row.base, row.limits) for row in comparison.differences}
    assert limits["world size of a base run"] == ("1", "the spread of the base runs is without this run")
    assert limits["divisor of a base run"] == ("step", "the spread of the base runs is without this run")
    used = compared(run(100, world_size=1), run(130, world_size=1), [run(100, world_size=2)])
    assert {row.limits for row in used.differences if row.name.startswith("world")} == {
        "the spread of the base runs contains this difference"
    }


def test_one_base_run_changes_nothing() -> None:
    plain = compare(run(100), run(130), generator=GENERATOR)
    assert compared(run(100), run(130), []) == plain
