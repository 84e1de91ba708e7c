"""Verdicts of hand-made pairs of runs: by steps, by repeated ranges, by the counts of kernels, and none."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import polars as pl
import pytest
from judging import empty_report
from postrun.analysis.compare.build import compare
from postrun.analysis.report import Generator, Kernel, Report
from postrun.analysis.report.comparison import Comparison, Verdict
from postrun.analysis.report.device import DeviceTime
from postrun.analysis.report.framework import AnnotationGroup, Annotations
from postrun.analysis.report.steps import Step
from postrun.analysis.toolkit.quantiles import duration_histogram, quantiles
from postrun.report_templates.comparing.summary import summary

MS = 1_000_000


def report(
    span_ms: float, communication_ms: float = 0, computation_ms: float = 0, *, kernels: Sequence[Kernel] = (), ranges: Sequence[float] = (),
    steps: Sequence[float] = (),
) -> Report:  # fmt: skip
    """Return a run of one GPU; ``ranges`` and ``steps``: durations of successive ones."""
    span, communication, computation = (round(ms * MS) for ms in (span_ms, communication_ms, computation_ms))
    busy = communication + computation
    row = DeviceTime(
        "node", 0, 1, 0, "H100", 100, 10**18, span, busy, span - busy, computation, communication, communication, 0.0, 0, 0, 0, 0, busy,
        busy,
    )  # fmt: skip
    empty = empty_report()
    values = pl.Series([ms * MS for ms in ranges], dtype=pl.Float64)
    spread, bins = quantiles(values), duration_histogram(values)
    group = AnnotationGroup("decode", "host", None, 1, int(values.sum()), spread, bins) if spread and bins else None
    listed, end = [], 10**18
    for number, ms in enumerate(steps):
        listed.append(Step("node", 0, 1, None, number, end, round(ms * MS), True, round(ms * MS)))
        end += round(ms * MS)
    return dataclasses.replace(
        empty,
        time_breakdown=(row,),
        kernels=tuple(kernels),
        annotations=Annotations((group,) if group else (), (), None),
        steps=dataclasses.replace(empty.steps, steps=tuple(listed)),
    )


def kernel(name: str, count: int, mean_ms: float) -> Kernel:
    mean = mean_ms * MS
    return Kernel(name, name, "GEMM", "BF16", count, round(mean * count), round(0.99 * mean), mean, round(1.01 * mean), 0.0, 0.0)


def judged(base: Report, new: Report) -> tuple[Comparison, Verdict]:
    comparison = compare(base, new, generator=Generator("postrun", "0", 0, {}))
    assert comparison.judgment is not None
    assert comparison.judgment.state == comparison.verdict
    assert comparison.judgment.state in ("slower", "faster") or comparison.headline.startswith(("No difference beyond ", "No verdict: "))
    return comparison, comparison.judgment


def tile(comparison: Comparison, key: str) -> tuple[str, str]:
    figure = next(tile for tile in summary(comparison).facts["tiles"] if tile.key == key)
    return figure.value.replace("\u00a0", " "), figure.detail.replace("\u00a0", " ")


def layers(number: int, gemm_ms: float = 6.0) -> Report:
    """Return a second of GPU time with layers of gemm and 3 ms of attention."""
    kernels = [kernel("gemm", number, gemm_ms), kernel("attention", number, 3.0)]
    return report(1000, 0, number * (gemm_ms + 3.0), kernels=kernels)


def test_fewer_layers_in_the_same_time_are_slower() -> None:
    # 100 and 88 layers of 9 ms in a second: the same work takes 100 / 88 of the time, and nothing computes less.
    comparison, verdict = judged(layers(100), layers(88))
    assert (verdict.state, verdict.evidence) == ("slower", "counts")
    assert comparison.headline == "The new run is 13.6% slower for the same work (1.00 s → 1.14 s), mostly from idle time (+136 ms)."
    assert comparison.details == verdict.text
    assert verdict.percent == pytest.approx(100 * (100 / 88 - 1))
    assert (verdict.low_percent, verdict.high_percent) == pytest.approx((verdict.percent - 2.136, verdict.percent + 2.136), abs=0.001)
    assert (comparison.basis.unit, comparison.basis.base, comparison.basis.new) == ("work", 1.0, pytest.approx(0.88))
    states = {part.name: part.state for part in comparison.parts}
    assert (states["computation"], states["idle"]) == ("same", "grown")
    assert [(row.state, row.duration_state, row.count_state) for row in comparison.kernels] == [("same", "same", "same")] * 2
    assert not any("shrank" in change.text for change in comparison.changes)


def test_kernels_that_take_longer_are_apart_from_their_number() -> None:
    # 90 layers whose gemm takes 7 ms instead of 6: for the same work the second became 100 / 90 as long.
    comparison, verdict = judged(layers(100), layers(90, gemm_ms=7.0))
    assert verdict.state == "slower"
    assert {row.short_name: (row.state, row.duration_state, row.count_state) for row in comparison.kernels} == {
        "gemm": ("grown", "longer", "same"), "attention": ("same", "same", "same"),
    }  # fmt: skip


def test_the_same_work_in_the_same_time_is_the_same_with_its_bound() -> None:
    comparison, verdict = judged(layers(100), layers(100))
    assert comparison.headline == "No difference beyond the edges of the profiles (1.00 s → 1.00 s for the same work)."
    assert (verdict.state, verdict.percent, verdict.low_percent, verdict.high_percent) == ("same", 0.0, -2.0, 2.0)
    assert "-2.0% to +2.0%" in verdict.text.replace("\u00a0", " ")


def test_unlike_work_cannot_be_compared() -> None:
    before, after = (report(1000, 0, 900, kernels=[kernel("a", a, 4.0), kernel("b", b, 4.0)]) for a, b in ((100, 100), (180, 40)))
    comparison, verdict = judged(before, after)
    assert (verdict.state, verdict.percent, verdict.evidence, comparison.basis.unit) == ("cannot say", None, None, "second")
    assert comparison.headline == "No verdict: base and new have no steps, and no range or kernel shows how much work both did."
    assert {row.count_state for row in comparison.kernels} == {None}
    assert all("a second of GPU time" in change.text for change in comparison.changes if change.area in ("kernel", "part"))


def test_repeated_ranges_have_an_interval() -> None:
    # 20 iterations of 40 ms, +-1 ms: the mean moves by 4 ms, 10%; each mean has a variance of 1 / 19.
    base, new = (report(mean * 20 + 50, 0, 700, ranges=[mean - 1, mean + 1] * 10) for mean in (40, 44))
    comparison, verdict = judged(base, new)
    error = 100 * 2.58 * math.sqrt(2 / 19) / 40
    assert (verdict.state, verdict.evidence, verdict.percent) == ("slower", "ranges", pytest.approx(10.0))
    assert (verdict.low_percent, verdict.high_percent) == (pytest.approx(10 - error), pytest.approx(10 + error))
    assert (comparison.basis.unit, comparison.basis.name, comparison.basis.base) == ("range", "decode", 20)
    assert comparison.headline == "The new run is 10.0% slower per range decode (mean 40.0 ms → 44.0 ms), mostly from idle time (+4.00 ms)."


def test_ranges_that_vary_too_much_prove_nothing() -> None:
    base, new = (report(mean * 6 + 50, 0, 200, ranges=[mean - 30, mean + 30] * 3) for mean in (40, 41))
    comparison, verdict = judged(base, new)
    assert verdict.state == "cannot say"
    assert comparison.headline == "No verdict: the ranges decode vary too much (mean 40.0 ms → 41.0 ms, 99% interval -119.9% to +124.9%)."


def test_steps_that_vary_too_much_prove_nothing() -> None:
    lengths = [100, 70, 150, 90, 160, 60, 140, 80]
    comparison, verdict = judged(*(report(sum(steps), steps=steps) for steps in (lengths, [100, *(ms + 5 for ms in lengths[1:])])))
    assert (verdict.state, verdict.evidence) == ("cannot say", "steps")
    assert comparison.steps is not None
    assert comparison.steps.verdict == "same"
    assert "99% interval" in verdict.text
    assert comparison.headline == "No verdict: the steps vary too much (median 90.0 ms → 95.0 ms, 99% interval -50.0% to +121.4%)."


def test_a_change_within_the_noise_is_no_change_with_its_size() -> None:
    # 6 ms and 8 ms of 1000 ms, each in 10 steps of 100: 0.2 ms, within 2.58 standard errors of the mean step.
    lengths = [100.0 + number % 3 for number in range(10)]
    comparison, verdict = judged(report(sum(lengths), 6, 500, steps=lengths), report(sum(lengths), 8, 500, steps=lengths))
    assert (verdict.state, verdict.percent) == ("same", 0.0)
    value, detail = tile(comparison, "exposed communication")
    assert value == "no change"
    assert detail.startswith("600 µs → 800 µs, +33.3%, within ±")
    assert tile(comparison, "computation")[0] == "no change"
    assert tile(comparison, "time") == ("no change", "101 ms → 101 ms, −1.0% to +1.0%, p95 0%")
