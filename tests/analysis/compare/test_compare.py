"""Comparisons of hand-made reports: without steps, with few steps, of different runs, of kernels under other names."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Sequence
from itertools import compress
from random import Random
from typing import Any

import jsonschema
import pytest
from compared_runs import MS, communicating, device, kernel, pieces, with_
from judging import empty_report
from postrun.analysis.compare.build import compare
from postrun.analysis.machine.system_usage import system_usage
from postrun.analysis.report import (
    Device,
    Generator,
    MemoryOperation,
    MetricUsage,
    Process,
    Report,
    RuleResult,
    Series,
    Source,
    Step,
    StepParts,
)
from postrun.analysis.report import schema as schemas
from postrun.analysis.report.comparison import Comparison
from postrun.analysis.report.device import Idle
from postrun.analysis.report.load import is_report, report_of
from postrun.analysis.report.rows import Share
from postrun.ingest.store import Store
from postrun.report_templates.comparing import tables
from postrun.report_templates.comparing.kernels import kernels as kernels_compared
from postrun.report_templates.comparing.summary import summary
from postrun.report_templates.output.comparison_page import pages

GENERATOR = Generator("postrun", "0", 0, {})


@pytest.fixture
def empty() -> Report:
    return empty_report()


def compared(base: Report, new: Report, **options: Any) -> Comparison:
    comparison = compare(base, new, generator=GENERATOR, **options)
    jsonschema.validate(json.loads(comparison.to_json()), schemas.schema("comparison"))
    return comparison


def test_runs_without_anything(empty: Report) -> None:
    comparison = compared(empty, empty)
    assert (comparison.verdict, comparison.steps, comparison.changes, comparison.parts) == ("cannot say", None, (), ())
    assert comparison.headline == "No verdict: base and new have no steps."
    assert comparison.details == "Nothing changed by more than its spread and 3%."


def test_only_one_run_has_steps(empty: Report) -> None:
    comparison = compared(empty, with_(empty, lengths=[100] * 8))
    assert comparison.steps_absent == "base has no steps"
    assert comparison.verdict == "cannot say"
    assert comparison.judgment is not None
    assert (comparison.judgment.percent, comparison.judgment.evidence) == (None, None)


def test_four_steps_are_too_few_whatever_they_took(empty: Report) -> None:
    comparison = compared(with_(empty, lengths=[100] * 5), with_(empty, lengths=[200] * 5))
    assert comparison.steps is not None
    assert (comparison.verdict, comparison.steps.base.count, comparison.steps.p_value, comparison.steps.shift_percent) == (
        "cannot say",
        4,
        None,
        None,
    )
    assert comparison.headline == "No verdict: 4 and 4 steps are too few (median 100 ms → 200 ms per step)."


def test_a_difference_within_the_spread_is_none_and_one_beyond_it_is_slower(empty: Report) -> None:
    noisy = [100.0 + 20 * ((7 * i) % 10) / 10 for i in range(21)]
    within = compared(with_(empty, lengths=noisy), with_(empty, lengths=[noisy[0], *(length + 4 for length in noisy[1:])]))
    assert within.steps is not None
    assert within.steps.change_percent > 3
    assert within.verdict == "same"
    beyond = compared(with_(empty, lengths=noisy), with_(empty, lengths=[noisy[0], *(length + 25 for length in noisy[1:])]))
    assert beyond.verdict == "slower"
    assert compared(with_(empty, lengths=noisy), with_(empty, lengths=noisy), threshold_percent=0).verdict == "same"


def test_times_of_runs_without_steps_are_divided_by_the_span(empty: Report) -> None:
    # Half of the first second is idle; of the two seconds of the other run a quarter.
    comparison = compared(
        with_(empty, time_breakdown=(device(1000, idle_ms=500),)), with_(empty, time_breakdown=(device(2000, idle_ms=500),))
    )
    assert (comparison.basis.unit, comparison.basis.base, comparison.basis.new) == ("second", 1, 2)
    assert comparison.basis.why == "base: no steps with GPU work; new: no steps with GPU work"
    idle = next(part for part in comparison.parts if part.name == "idle")
    assert (idle.base_ns, idle.new_ns, idle.state) == (500 * MS, 250 * MS, "shrunk")
    assert "a second of GPU time" in next(one.text for one in comparison.changes if one.name == "idle")


def test_steps_that_cover_little_of_what_was_captured_divide_nothing(empty: Report) -> None:
    short = with_(empty, lengths=[10] * 8, time_breakdown=(device(1000),))
    comparison = compared(short, short)
    assert comparison.basis.unit == "second"
    assert comparison.basis.why is not None
    assert "cover less than 50%" in comparison.basis.why


def used(model: str) -> Device:
    return Device("node", 0, model, None, None, None, None, None, True)


def apart(lengths_ms: Sequence[float], pause_ms: float, *, first: int = 0, start_ms: float = 0, phase: str | None = None) -> list[Step]:
    """Steps with a pause before each but the first."""
    result, at = [], 10**18 + int(start_ms * MS)
    for index, length in enumerate(lengths_ms, first):
        result.append(Step("node", 0, 1, phase, index, at, int(length * MS), True, int(length * MS)))
        at += int((length + pause_ms) * MS)
    return result


def test_what_lies_between_steps_that_follow_each_other_is_covered(empty: Report) -> None:
    # 8 steps of 10 ms in 780 ms: with 100 ms between them; in two groups far apart; with steps of another phase between them.

    def units(listed: Sequence[Step]) -> str:
        run = with_(empty, time_breakdown=(device(780),), steps=dataclasses.replace(empty.steps, steps=tuple(listed), absent=None))
        return compared(run, run).basis.unit

    assert units(apart([10] * 8, 100)) == "step"
    assert units([*apart([10] * 4, 0), *apart([10] * 4, 0, first=100, start_ms=740)]) == "second"
    assert units([*apart([10] * 8, 100), *apart([5] * 7, 105, start_ms=50, phase="EVAL")]) == "second"


def loaded(report: Report, lengths: Sequence[float], idle_ms: float, loading_ms: float, **changes: Any) -> Report:
    """Steps on one GPU with idle time and data loading; both are those of a step."""
    span = device(sum(lengths), idle_ms=idle_ms * len(lengths))
    result = with_(report, lengths=lengths, time_breakdown=(span,), **changes)
    mean = sum(lengths) / len(lengths) * MS
    part = StepParts("node", 0, 1, len(lengths), mean, {"data_loader": loading_ms * MS, "other": mean - loading_ms * MS}, False, ())
    return dataclasses.replace(result, steps=dataclasses.replace(result.steps, parts=(part,)))


def test_waits_of_few_steps_are_undecided_and_told_before_lesser_changes(empty: Report) -> None:
    # Idle 64 ms longer, computation 6 ms; the first of five steps has no time from step to step.
    comparison = compared(loaded(empty, [100] * 4, 2, 1), loaded(empty, [170] * 4, 66, 61))
    states = {part.name: part.state for part in (*comparison.parts, *comparison.host_parts)}
    assert (states["idle"], states["data_loader"], states["computation"]) == ("undecided", "undecided", "grown")
    assert comparison.details == "Also undecided: idle is 64.0 ms a step longer, data loading 60.0 ms longer."
    assert {one.name for one in comparison.changes} == {"computation"}
    assert comparison.whole is not None
    assert comparison.whole.state == "undecided"
    most = compared(loaded(empty, [100] * 4, 2, 0), loaded(empty, [200] * 4, 12, 0))
    assert most.details == "Also undecided: idle is 10.0 ms a step longer."
    assert [one.text for one in most.changes] == ["Computation grew by 90.0 ms a step, from 98.0 ms to 188 ms (+91.8%)."]


def test_waits_below_the_threshold_are_the_same_whatever_the_steps(empty: Report) -> None:
    comparison = compared(loaded(empty, [100] * 4, 2, 1), loaded(empty, [100] * 4, 4, 3))
    assert {part.state for part in (*comparison.parts, *comparison.host_parts)} == {"same"}
    assert comparison.details == "Nothing else changed by more than its spread and 3%."


def test_enough_steps_decide_on_waits(empty: Report) -> None:
    comparison = compared(loaded(empty, [100] * 6, 2, 0), loaded(empty, [164] * 6, 66, 60))
    assert {one.name: one.state for one in (*comparison.parts, *comparison.host_parts)}["idle"] == "grown"
    assert "ndecided" not in comparison.headline + comparison.details
    assert comparison.headline == "The new run is 64.0% slower per step (median 100 ms → 164 ms), mostly from idle time (+64.0 ms)."


@pytest.mark.parametrize(
    ("long_ms", "effect_ms", "noise_ms", "state"),
    # 18 of 20 steps are 15 ms longer, the shift, and two are 35 or 615 ms longer: 17 or 75 ms in the mean.
    [(1035, 17, 4, "grown"), (1615, 75, 120, "same")],
)
def test_no_time_changes_by_less_than_its_noise(empty: Report, long_ms: float, effect_ms: float, noise_ms: float, state: str) -> None:
    base = loaded(empty, [100] * 9 + [1000] * 2 + [100] * 9, 10, 5)
    comparison = compared(base, loaded(empty, [115] * 9 + [long_ms] * 2 + [115] * 9, 10 + effect_ms, 20 + effect_ms))
    assert comparison.whole is not None
    # 2 (17 - 15) ms and 2 (75 - 15) ms; of the standard errors it would be more than 200 ms.
    waits = [comparison.whole, *(part for part in comparison.parts if part.name == "idle")]
    for wait in waits:
        assert wait.noise_ns is not None
        assert (wait.effect_ns / MS, round(wait.noise_ns / MS, 6), wait.state) == (effect_ms, noise_ms, state)
    loading = next(part for part in comparison.host_parts if part.name == "data_loader")
    assert (loading.state, loading.noise_ns == waits[1].noise_ns) == (state, state == "grown")
    assert {change.name for change in comparison.changes} == {"step time", *(("idle", "data loading") if state == "grown" else ())}


@pytest.mark.parametrize(("loading_ms", "contained"), [(14, True), (7.9, False)])
def test_idle_time_contains_the_wait_for_data_that_changed_alike(empty: Report, loading_ms: float, contained: bool) -> None:
    # A step takes 16 ms more, only idle time: 14 ms of data loading are at least half of that, 7.9 ms are not.
    runs = (loaded(empty, [length] * 8, 10 + more, 10 + loading) for length, more, loading in ((100, 0, 0), (116, 16, loading_ms)))
    comparison = compared(*runs)
    (idle,) = [one.text for one in comparison.changes if one.name == "idle"]
    assert idle == f"Idle grew by 16.0 ms a step, from 10.0 ms to 26.0 ms (2.6×){', including the wait for data' if contained else ''}."


@pytest.mark.parametrize(("copy_ms", "contained"), [(5, True), (2, False)])
def test_exposed_memory_operations_contain_the_copies_that_changed_alike(empty: Report, copy_ms: float, contained: bool) -> None:
    # 6 ms more of exposed memory operations; copies of 1 ms take 5 or 2 ms more.
    before = with_(empty, lengths=[100] * 8)

    def run(exposed_ms: float, each_ms: float) -> Report:
        time = dataclasses.replace(device(800), exposed_memory_ns=round(8 * exposed_ms * MS), memory_ns=round(8 * exposed_ms * MS))
        ns = round(each_ms * MS)
        copies = MemoryOperation("HtoD", "pageable", 8, 8 * ns, 8 * 10**6, 1.0, 10**6)
        return dataclasses.replace(before, time_breakdown=(time,), memory_operations=(copies,))

    comparison = compared(run(1, 1), run(7, 1 + copy_ms))
    (text,) = [one.text for one in comparison.changes if one.name == "exposed memory operations"]
    assert text.endswith("(7.0×), including HtoD pageable copies." if contained else "(7.0×).")


@pytest.mark.parametrize(("communication_ms", "same"), [(5.0, True), (50.0, False)])
def test_a_rule_whose_time_did_not_change_is_not_fixed(empty: Report, communication_ms: float, same: bool) -> None:
    # Steps of 80 to 120 ms: the noise is 2.58 √(2 · 1000/3 / 3 / 8) ms, about 31 ms, above the threshold of 3 ms and the effect of 5 ms.
    lengths = [80.0, 120.0] * 4

    def run(ms: float, verdict: str) -> Report:
        rules = (
            RuleResult(
                rule="ExposedCommunication", category="trace", verdict=verdict, reason=None, capture=None, triggered=0, violations=0,
                datapoints=0, windows=0, windows_triggered=0, first_ns=None, last_ns=None, parameters={}, changed_parameters={},
                parameter_table=(), details={}, finding=None, recommendation=None, checks="", condition="", advice="",
            ),
        )  # fmt: skip
        return with_(empty, lengths=lengths, time_breakdown=(device(800, 0, 8 * ms),), rules=rules)

    comparison = compared(run(10 + communication_ms, "IssuesFound"), run(10, "NoIssuesFound"))
    (rule,) = comparison.rules
    assert (rule.outcome, rule.measure_same) == ("mended", same)
    (change,) = [one for one in comparison.changes if one.area == "verdict"]
    assert change.text.startswith(f"ExposedCommunication {'is below its threshold now, but its time did not' if same else 'finds no'}")
    cells = tables.verdicts(comparison).tables["table"].rows[0]
    assert cells[3].text == ("≈ below its threshold now" if same else "✓ fixed")
    tile = next(tile for tile in summary(comparison).facts["tiles"] if tile.key == "exposed communication")
    assert tile.value == ("no change" if same else "−83.3%")
    assert ("15.0\u00a0ms → 10.0\u00a0ms, −33.3%, within ±" in tile.detail) == same


@pytest.mark.parametrize(
    ("long_ms", "effect_ms", "noise_ms", "state"),
    # 2 (17 - 15) ms and 2 (75 - 15) ms, as above
    [(1035, 17, 4, "grown"), (1615, 75, 120, "same")],
)
def test_all_pieces_of_a_wait_have_its_noise(empty: Report, long_ms: float, effect_ms: float, noise_ms: float, state: str) -> None:
    base = communicating(empty, [100] * 9 + [1000] * 2 + [100] * 9, 10)
    comparison = compared(base, communicating(empty, [115] * 9 + [long_ms] * 2 + [115] * 9, 10 + effect_ms))
    listed = pieces(comparison)
    assert {where: row.state for where, row in listed.items()} == dict.fromkeys(listed, state)
    exact = {where: round(row.noise_ns / MS, 6) for where, row in listed.items()}
    if state == "grown":
        assert exact == dict.fromkeys(exact, noise_ms)
    else:  # 2 of 19 times are 900 or 1500 ms longer: 2.58 √((900² + 1500²) · 34/19 / 18 / 19) ms
        assert exact.pop("part") == noise_ms
        assert {round(value, 1) for value in exact.values()} == {326.5}
    (work,) = [row for row in comparison.operators if row.name == "mm"]
    assert (work.state, work.noise_ns) == ("grown", None)  # work has no noise
    cells = {cells[0].text: cells[1].text for cells in kernels_compared(comparison).tables["table"].rows if len(cells) > 1}
    assert cells["nccl"] != "≈ in the spread"
    assert [change.state for change in comparison.changes if change.name == "nccl"] == ["grown"] * (state == "grown")


def test_a_communication_kernel_of_few_steps_is_undecided(empty: Report) -> None:
    comparison = compared(communicating(empty, [100] * 4, 10), communicating(empty, [120] * 4, 30))
    assert {row.state for row in pieces(comparison).values()} == {"undecided"}
    assert "nccl" not in {change.name for change in comparison.changes}
    # A kernel of one run only does not appear by chance.
    added = compared(communicating(empty, [100] * 4, 10), with_(communicating(empty, [120] * 4, 30), kernels=(kernel("k", "k", 4, 30),)))
    assert {row.short_name: row.state for row in added.kernels} == {"k": "added", "nccl": "vanished", "gemm": "vanished"}


def test_gaps_have_the_noise_of_idle_time(empty: Report) -> None:
    # As above: idle time, and the gaps that the host causes, grow by 17 ms; the noise of idle time is 4 ms.
    def run(lengths: Sequence[float], idle_ms: float) -> Report:
        total = round(len(lengths) * idle_ms * MS)
        return dataclasses.replace(loaded(empty, lengths, idle_ms, 0), idle=(Idle("node", 0, 0, 7, 9, total, 0, 0),))

    comparison = compared(run([100] * 9 + [1000] * 2 + [100] * 9, 10), run([115] * 9 + [1035] * 2 + [115] * 9, 27))
    host_wait, kernel_wait, _ = comparison.idle
    assert (host_wait.state, round((host_wait.noise_ns or 0.0) / MS, 6), kernel_wait.state) == ("grown", 4.0, "same")


def test_communication_of_kernels_is_a_wait(empty: Report) -> None:
    noisy = [20.0, 30, 18, 26, 40, 21, 22, 35]
    base, new = (
        with_(empty, lengths=noisy, categories=(Share("communication", total, 8, 50.0), Share("GEMM", total, 8, 50.0)))
        for total in (80 * MS, 96 * MS)
    )
    # Both categories take 2 ms a step more, which is 7.5%: the noise of waits is 2.58 standard errors of about 4 ms.
    assert {one.name: one.state for one in compared(base, new).categories} == {"communication": "same", "GEMM": "grown"}


def on_the_host(report: Report, lengths: Sequence[float], **parts_ms: float) -> Report:
    result = with_(report, lengths=lengths, on_device=False, time_breakdown=())
    parts = {name: value * MS for name, value in parts_ms.items()}
    total = StepParts("node", 0, 1, len(lengths), sum(lengths) / len(lengths) * MS, parts, True, ())
    return dataclasses.replace(result, steps=dataclasses.replace(result.steps, parts=(total,)))


def test_runs_without_gpus_are_told_by_the_parts_of_the_host(empty: Report) -> None:
    comparison = compared(
        on_the_host(empty, [20] * 8, forward=15, data_loader=4, update=1), on_the_host(empty, [46] * 8, forward=40, data_loader=5, update=1)
    )
    assert comparison.headline == "The new run takes 2.3× as long per step (median 20.0 ms → 46.0 ms), mostly from forward (+25.0 ms)."
    assert [(one.area, one.name, one.state) for one in comparison.changes] == [
        ("step", "step time", "slower"),
        ("host part", "forward", "grown"),
        ("data loading", "data loading", "grown"),
    ]
    assert (comparison.basis.unit, comparison.basis.base, comparison.basis.why, comparison.whole) == ("step", 8, None, None)


def test_a_part_of_the_host_within_the_spread_of_the_steps_is_the_same(empty: Report) -> None:
    noisy = [20.0, 30, 18, 26, 40, 21, 22, 35]
    base, new = (on_the_host(empty, noisy, forward=forward, update=2) for forward in (20, 22))
    assert {one.state for one in compared(base, new).host_parts} == {"same"}
    short_run = compared(on_the_host(empty, noisy[:3], forward=20), on_the_host(empty, noisy[:3], forward=22))
    assert {one.state for one in short_run.host_parts} == {"undecided"}
    assert short_run.details.startswith("Also undecided: forward is 2.00 ms a step longer. Nothing else changed")


def test_two_devices_of_a_process_have_the_same_steps(empty: Report) -> None:
    pair = (device(1000), dataclasses.replace(device(1000), device=1))
    run = with_(empty, lengths=[75] * 8, time_breakdown=pair)
    assert compared(run, run).basis.unit == "step"


def test_what_floats_round_is_no_change(empty: Report) -> None:
    comparison = compared(with_(empty, time_breakdown=(device(49 * 7.0),)), with_(empty, time_breakdown=(device(49 * 9.1),)))
    assert comparison.basis.unit == "second"
    assert {(part.effect_ns, part.change_percent or 0.0) for part in comparison.parts} == {(0.0, 0.0)}


def test_what_is_known_of_one_run_only_has_not_vanished(empty: Report) -> None:
    copies = (MemoryOperation("HtoD", "pinned", 10, 50 * MS, 10**9, 10.0, 100.0),)
    base = with_(empty, lengths=[100] * 9, kernels=(kernel("k", "k", 10, 20),), memory_operations=copies)
    for result in (compared(base, empty), compared(empty, base)):
        assert (result.kernels, result.categories, result.memory_operations, result.changes) == ((), (), (), ())
        assert next(one for one in result.differences if one.name == "GPU activity").limits


def test_steps_timed_on_the_host_of_one_run(empty: Report) -> None:
    comparison = compared(with_(empty, lengths=[100] * 9), with_(empty, lengths=[150] * 9, on_device=False))
    assert comparison.steps is not None
    assert (comparison.steps.measure, comparison.verdict) == ("host", "slower")
    assert next(one for one in comparison.differences if one.name == "kind of steps").limits


def test_kernels_meet_by_full_name_then_by_short_name_and_category(empty: Report) -> None:
    base = with_(
        empty,
        lengths=[100] * 10,
        kernels=(kernel("a<1>", "a", 10, 9), kernel("b<1>", "b", 10, 5), kernel("b<2>", "b #2", 10, 5), kernel("c<1>", "c", 10, 1)),
    )
    new = with_(
        empty,
        lengths=[100] * 10,
        kernels=(
            kernel("a<1>", "a", 10, 9),
            kernel("b<3>", "b", 10, 20),
            kernel("c<9>", "c", 10, 1, category="other"),
            kernel("d", "d", 10, 0.05),
        ),
    )
    result = {(one.short_name, one.category): one for one in compared(base, new).kernels}
    assert (result["a", "GEMM"].matched, result["a", "GEMM"].state) == ("name", "same")
    pair = result["b", "GEMM"]
    assert (pair.matched, pair.base_names, pair.new_names, pair.state) == ("short name", ("b<1>", "b<2>"), ("b<3>",), "grown")
    assert (pair.base_ns, pair.new_ns, pair.base_count) == (10 * MS, 20 * MS, 2)
    assert (result["c #2", "GEMM"].state, result["c #1", "other"].state) == ("vanished", "added")
    assert result["d", "GEMM"].state == "same"  # of too little time to be named


def test_categories_per_step_leave_out_work_launched_outside_of_the_steps(empty: Report) -> None:
    """20 runs of 9 ms; 10 of the base are from before its 10 steps."""

    def side(outside: int) -> Report:
        gemm = dataclasses.replace(kernel("a", "a", 20, 9), outside_ns=outside * 9 * MS, outside_count=outside)
        share = Share("GEMM", gemm.total_ns, gemm.count, 100.0)
        return with_(empty, lengths=[100] * 10, kernels=(gemm,), categories=(share,))

    comparison = compared(side(10), side(0))
    (category,), (row,) = comparison.categories, comparison.kernels
    assert (category.base_ns, category.new_ns, category.base_count, category.new_count) == (9 * MS, 18 * MS, 1, 2)
    assert (row.base_ns, row.new_ns) == (9 * MS, 18 * MS)


def test_kernels_of_one_short_name_are_told_apart_everywhere(empty: Report) -> None:
    # One variant in both runs, two that only base had: the first of either report has no number there.
    base = with_(
        empty,
        lengths=[100] * 10,
        kernels=(kernel("k<1>", "k", 10, 50), kernel("k<2>", "k #2", 10, 20), kernel("k<3>", "k #3", 10, 5, category="other")),
    )
    new = with_(empty, lengths=[100] * 10, kernels=(kernel("k<2>", "k", 10, 60),))
    comparison = compared(base, new)
    names = {one.base_names[0]: one.short_name for one in comparison.kernels}
    assert names == {"k<1>": "k #1", "k<2>": "k #2", "k<3>": "k #3"}
    assert {one.name for one in comparison.changes if one.area == "kernel"} == {"k #1", "k #2", "k #3"}
    assert comparison.changes[0].text == "k #1 vanished: it took 50.0 ms a step in 1 run."


def test_numbers_that_tell_kernels_apart_are_those_of_the_reports(empty: Report) -> None:
    listed = (kernel("k<1>", "k", 10, 1), kernel("k<2>", "k #2", 10, 50))
    base_run = with_(empty, lengths=[100] * 10, kernels=listed)
    changed_run = with_(empty, lengths=[100] * 10, kernels=(listed[0], kernel("k<2>", "k #2", 10, 60)))
    assert [(one.short_name, one.new_names) for one in compared(base_run, changed_run).kernels] == [
        ("k #2", ("k<2>",)),
        ("k #1", ("k<1>",)),
    ]


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (("NVIDIA A100-PG509-200", "AMD Radeon Graphics"), "A100 and AMD Radeon Graphics"),
        (("Tesla V100-SXM2-32GB", "Tesla V100-DGXS-32GB"), "Tesla V100-SXM2-32GB and Tesla V100-DGXS-32GB"),
        (("Tesla V100-SXM2-32GB", "NVIDIA H100 80GB HBM3"), "V100 and H100"),
    ],
)
def test_other_gpus_are_named(empty: Report, models: tuple[str, str], expected: str) -> None:
    sides = [with_(empty, lengths=[100] * 8, devices=(used(model),)) for model in models]
    assert compared(*sides).headline.startswith(f"On different GPUs ({expected}), no difference beyond the noise")


def test_a_mean_that_its_spread_allows_has_not_moved(empty: Report) -> None:
    base = with_(empty, lengths=[100] * 10, kernels=(kernel("k", "k", 10, 20, spread=0.9),))
    new = with_(empty, lengths=[100] * 10, kernels=(kernel("k", "k", 10, 22, spread=0.9),))
    steady = with_(empty, lengths=[100] * 10, kernels=(kernel("k", "k", 10, 22, spread=0.01),))
    narrow = with_(empty, lengths=[100] * 10, kernels=(kernel("k", "k", 10, 20, spread=0.01),))
    assert compared(base, new).kernels[0].state == "same"
    assert compared(narrow, steady).kernels[0].state == "grown"


@pytest.mark.parametrize(("runs", "state"), [((100, 120), "grown"), ((101, 109), "same"), ((101, 151), "grown")])
def test_a_profile_that_cuts_a_step_holds_a_part_of_its_kernels(empty: Report, runs: tuple[int, int], state: str) -> None:
    # Ten steps each: 10 runs a step, and 12; a few runs of a step that was cut; 5 runs a step more.
    base, new = (with_(empty, lengths=[100] * 10, kernels=(kernel("k", "k", count, 2, spread=0.5),)) for count in runs)
    assert compared(base, new).kernels[0].state == state


def test_copies_of_one_size_must_differ_by_more(empty: Report) -> None:
    def copies(total_ms: float, size: int) -> Report:
        return with_(
            empty, lengths=[100] * 10, memory_operations=(MemoryOperation("HtoD", "pinned", 10, int(total_ms * MS), size, 10.0, 100.0),)
        )

    assert compared(copies(100, 10**9), copies(106, 10**9)).memory_operations[0].state == "same"
    assert compared(copies(100, 10**9), copies(106, 2 * 10**9)).memory_operations[0].state == "grown"
    assert compared(copies(100, 10**9), copies(120, 10**9)).memory_operations[0].state == "grown"


def test_gpu_memory_is_memory_and_not_the_controller(empty: Report) -> None:
    def used(peak: float, unit: str) -> Report:
        usage = MetricUsage("node", "gpu_memory", unit, 10, peak, peak, peak, peak, 0.0, False)
        return with_(empty, system_usage=dataclasses.replace(empty.system_usage, nodes=(usage,)))

    comparison = compared(used(50, "% of device memory"), used(70, "% of device memory"))
    assert [(one.area, one.state) for one in comparison.changes] == [("gpu memory", "grown")]
    assert compared(used(50, "% of device memory"), used(54, "% of device memory")).changes == ()
    assert (
        compared(used(50, "% of time the memory controller was busy"), used(70, "% of time the memory controller was busy")).gpu_memory
        is None
    )


def test_a_run_and_itself(empty: Report) -> None:
    # By the bytes that were read; files without events, or whose bytes are not known, prove nothing.
    files = [Source(f"{name}.json", "kineto", 10, digest, 5, 0, 9) for name, digest in (("a", "11"), ("b", "22"))]
    base = with_(empty, lengths=[100] * 8, sources=tuple(files))
    moved = with_(empty, lengths=[100] * 8, sources=tuple(dataclasses.replace(file, path=f"x/{file.path}") for file in files[::-1]))
    changed_run = with_(empty, lengths=[100] * 8, sources=(files[0], dataclasses.replace(files[1], sha256="23")))
    unknown = with_(empty, lengths=[100] * 8, sources=(dataclasses.replace(files[0], sha256=None),))
    first = compared(base, moved).differences[0]
    assert (first.name, first.base, first.limits) == ("recording", "2 files", "both sides are one recording: there is no change to find")
    assert "recording" not in {
        one.name for pair in ((base, changed_run), (unknown, unknown), (empty, empty)) for one in compared(*pair).differences
    }


def test_what_makes_runs_unlike(empty: Report) -> None:
    ranks = tuple(Process("node", 1, rank, None, 4, None) for rank in (0, 1, 2))
    base = with_(empty, lengths=[100] * 8, world_size=4, hyperparameters={"batch_size": "32", "lr": "0.1"}, status="completed")
    new = with_(
        empty, lengths=[100] * 8, world_size=8, hyperparameters={"batch_size": "64", "lr": "0.2"}, status="partial", processes=ranks,
        framework="PyTorch 2.9",
    )  # fmt: skip
    result = {one.name: one for one in compared(base, new).differences}
    assert {name for name, one in result.items() if one.limits} == {"world size", "captured ranks", "capture", "hyperparameter batch_size"}
    assert (result["hyperparameter lr"].limits, result["hyperparameter lr"].new) == (None, "0.2")
    assert "framework" not in result  # an unknown value is not a difference
    names = [one.name for one in compared(base, new).differences]
    assert names.index("hyperparameter batch_size") < names.index("hyperparameter lr")


def test_a_report_read_back_is_the_same_report(empty: Report) -> None:
    report = with_(empty, lengths=[100.5] * 8, kernels=(kernel("k", "k", 3, 2),))
    data = json.loads(report.to_json())
    assert is_report(data)
    assert report_of(data).to_json() == report.to_json()
    assert compared(report_of(data), report).changes == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["run"].pop("status"), "report.run.status is missing"),
        (lambda data: data["run"].update(status=7), "report.run.status is 7"),
        (lambda data: data.update(kernels={}), "report.kernels is"),
        (lambda data: data.update(schema_version=99), "schema_version is 99"),
        (lambda data: data.update(steps=[1]), "report.steps is"),
    ],
)
def test_what_is_no_report_is_refused_by_its_place(empty: Report, change: Callable[[Any], object], message: str) -> None:
    data = copy.deepcopy(json.loads(empty.to_json()))
    change(data)
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        report_of(data)


@pytest.mark.parametrize(
    "data", [[], {}, {"traceEvents": []}, {"schema_version": 1, "generator": {"name": "other"}, "run": {}, "kernels": []}, None]
)
def test_other_json_is_no_report(data: object) -> None:
    assert not is_report(data)


def curve(metric: str, values: dict[float, float], *, node: str = "node", unit: str = "%", derived: bool = False) -> Series:
    """Values by milliseconds after the first step's begin."""
    times = tuple(10**18 + round(at * MS) for at in values)
    numbers = tuple(values.values())
    return Series(node, metric, unit, times, numbers, numbers, numbers, derived)


def sampled(report: Report, *series: Series) -> Report:
    return dataclasses.replace(report, system_usage=dataclasses.replace(report.system_usage, series=series))


def means(comparison: Comparison) -> list[tuple[str, float | None, float | None, float | None, str | None]]:
    return [(one.name, one.base_percent, one.new_percent, one.difference_points, one.absent) for one in comparison.sampling.means]


def test_sampled_utilization_in_the_time_of_the_steps(empty: Report) -> None:
    in_use = "% of device memory"
    runs = with_(empty, lengths=[10.0] * 6), with_(empty, lengths=[10.0] * 8)  # 60 and 80 ms
    base = sampled(
        runs[0],
        curve("gpu", {-5: 0, 0: 40, 30: 60, 60: 80, 60.1: 0}),  # 60 between the start and the end of the steps
        curve("gpu", {10: 20}, node="other"),
        curve("gpu_memory", {10: 30, 20: 50}, unit=in_use),
        curve("cpu", {-1: 9, 15: 12}),
        curve("io_wait", {20: 3}),
    )
    new = sampled(
        runs[1],
        curve("gpu", {10: 55, 75: 60}),
        curve("gpu_memory", {10: 99}, unit="% of time the memory controller was busy"),
        curve("io_wait", {-3: 1, 81: 7}),
        curve("cpu_memory", {10: 50}),
    )
    comparison = compared(base, new)
    assert comparison.sampling.over == "steps"
    assert means(comparison) == [
        ("GPU utilization", 40.0, 57.5, 17.5, None),  # (60 + 20) / 2
        ("GPU memory", 40.0, None, None, "new has no samples"),
        ("CPU utilization", 12.0, None, None, "new has no samples"),
        ("I/O wait", 3.0, None, None, "new has no samples in the time that is compared"),
    ]
    assert not [one for one in comparison.changes if "utilization" in one.text]
    page = pages(comparison, "html")
    assert "Sampled utilization" in page
    assert "GPU utilization 40.0% before, 57.5% now (+17.5\u00a0pp)" in page
    assert "I/O wait: new has no samples in the time that is compared." in page
    assert "GPU memory, CPU utilization: new has no samples." in page


def test_sampled_utilization_of_runs_without_steps(empty: Report) -> None:
    runs = [with_(empty, time_breakdown=(device(40.0),)), with_(empty, time_breakdown=(device(20.0), device(30.0)))]
    curves = curve("gpu", {-10: 0, 10: 50, 25: 90, 35: 10}), curve("cpu", {5: 10, 50: 30})
    comparison = compared(*(sampled(run, *curves) for run in runs))
    assert comparison.sampling.over == "profile"
    assert means(comparison) == [("GPU utilization", 50.0, 70.0, 20.0, None), ("CPU utilization", 10.0, 10.0, 0.0, None)]
    # Where only one run has GPU work, all samples of both are compared.
    comparison = compared(sampled(runs[0], *curves), sampled(empty, *curves))
    assert comparison.sampling.over == "run"
    assert means(comparison) == [("GPU utilization", 37.5, 37.5, 0.0, None), ("CPU utilization", 20.0, 20.0, 0.0, None)]


def second_by_second(make_store: Callable[..., Store], empty: Report, load: Sequence[float], first_s: float, length_s: float) -> Report:
    """Make a run whose GPU is sampled every second.

    Ten steps take ``length_s``; the first begins ``first_s`` after the first sample.
    """
    begin = 10**18 - round(first_s * 1000 * MS)
    rows = [
        {"node": 0, "metric": "gpu_utilization", "unit": 0, "time_ns": begin + i * 1000 * MS, "value": value}
        for i, value in enumerate(load)
    ]
    run = with_(empty, lengths=[length_s * 100] * 10)
    return dataclasses.replace(run, system_usage=system_usage(make_store(sample=rows)))


COARSE = "the curve of base is too coarse for the time that is compared; the curve of new is too coarse for the time that is compared"


@pytest.mark.parametrize("first_s", [1800, 1803, 1804.5])  # stretches of 9 s begin, or do not, within the 6 s of the steps
def test_steps_shorter_than_the_curve_tells_have_no_mean(make_store: Callable[..., Store], empty: Report, first_s: float) -> None:
    loads = [[high if first_s <= second <= first_s + 6 else 20.0 for second in range(3600)] for high in (90.0, 50.0)]
    comparison = compared(*(second_by_second(make_store, empty, load, first_s, 6) for load in loads))
    assert means(comparison) == [("GPU utilization", None, None, None, COARSE)]
    # If a stretch is uniform, the curve gives its exact mean.
    comparison = compared(*(second_by_second(make_store, empty, [load] * 3600, first_s, 6) for load in (90.0, 50.0)))
    assert means(comparison) == [("GPU utilization", 90.0, 50.0, -40.0, None)]


@pytest.mark.slow
def test_a_mean_that_is_told_of_a_long_run_is_that_of_its_samples(make_store: Callable[..., Store], empty: Report) -> None:
    random = Random(7)
    expected = 0
    for length_s in (3, 15, 60, 200, 400, 900, 1500, 3000):
        for _ in range(3):
            first_s = random.uniform(0, 3590 - length_s)
            load = [random.choice((0.0, 100.0)) if first_s <= second <= first_s + length_s else 10.0 for second in range(3600)]
            run = second_by_second(make_store, empty, load, first_s, length_s)
            ((_, mean, again, _, absent),) = means(compared(run, run))
            inside = [value for second, value in enumerate(load) if first_s <= second <= first_s + length_s]
            assert mean == again
            if mean is None:
                assert absent == COARSE
            else:
                expected += 1
                assert mean == pytest.approx(sum(inside) / len(inside), abs=1.0 + 100 / length_s)  # one sample more or less
            assert mean is not None or length_s < 900
    assert expected >= 9


def test_a_pause_of_the_sampler_has_no_samples(make_store: Callable[..., Store], empty: Report) -> None:
    run = second_by_second(make_store, empty, [50.0] * 3600, 1803, 6)
    (curve_,) = [one for one in run.system_usage.series if one.metric == "gpu"]
    paused = [not 1700e9 < time - curve_.time_ns[0] < 1900e9 for time in curve_.time_ns]
    parts = {name: tuple(compress(getattr(curve_, name), paused)) for name in ("time_ns", "mean", "low", "high")}
    comparison = compared(sampled(run, dataclasses.replace(curve_, **parts)), run)
    assert means(comparison) == [("GPU utilization", None, 50.0, None, "base has no samples in the time that is compared")]


def test_utilization_that_was_derived_is_not_sampled(empty: Report) -> None:
    comparison = compared(sampled(empty, curve("gpu", {0: 50}, derived=True)), empty)
    assert comparison.sampling.means == ()
    assert "No samples of GPUs or processors in both runs." in pages(comparison, "html")
    comparison = compared(sampled(empty, curve("gpu", {0: 50}, derived=True)), sampled(empty, curve("gpu", {0: 50})))
    assert means(comparison) == [("GPU utilization", None, 50.0, None, "base has no samples")]


def test_the_headline_names_what_made_a_run_slower(empty: Report) -> None:
    # A step takes 60 ms more: kernel a takes 40 of these, b 20 and c 5; kernel d is 30 ms faster.
    def run(length: float, *times: float) -> Report:
        kernels = tuple(kernel(name, name, 10, time) for name, time in zip("abcd", times, strict=True))
        return loaded(empty, [length] * 10, 2, 0, kernels=kernels)

    comparison = compared(run(100, 10, 10, 10, 60), run(160, 50, 30, 15, 30))
    assert comparison.verdict == "slower"
    assert comparison.headline == "The new run is 60.0% slower per step (median 100 ms → 160 ms), mostly from computation (+60.0 ms)."
    assert [(one.name, one.effect_ns) for one in comparison.changes[1:]] == [
        ("computation", 60e6), ("a", 40e6), ("d", -30e6), ("b", 20e6), ("c", 5e6),
    ]  # fmt: skip
    back = compared(run(160, 50, 30, 15, 30), run(100, 10, 10, 10, 60))
    assert back.headline == "The new run is 37.5% faster per step (median 160 ms → 100 ms), mostly from computation (-60.0 ms)."


def test_a_part_with_less_than_half_of_the_change_is_named_as_a_part_of_it(empty: Report) -> None:
    # 40 ms more: 18 ms of communication, 14 ms of idle time, 8 ms of computation.
    def run(length: float, idle: float, communication: float) -> Report:
        return with_(empty, lengths=[length] * 8, time_breakdown=(device(8 * length, 8 * idle, 8 * communication),))

    comparison = compared(run(100, 10, 10), run(140, 24, 28))
    assert (
        comparison.headline
        == "The new run is 40.0% slower per step (median 100 ms → 140 ms), partly from exposed communication (+18.0 ms)."
    )


def test_steps_that_differ_by_less_than_the_threshold(empty: Report) -> None:
    comparison = compared(with_(empty, lengths=[100] * 9), with_(empty, lengths=[102] * 9))
    assert comparison.headline == "No difference beyond the threshold of 3% (median 100 ms → 102 ms per step, 99% interval +2.0% to +2.0%)."
