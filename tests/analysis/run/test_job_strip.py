"""The strip of a job made by hand: phases, dips and what explains them, computed on paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.report import JobStatistics, JobStrip, Series
from postrun.analysis.run.job_strip import job_strip, longer_than_profile
from postrun.ingest.derive.steps import derive_steps
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
S = 10**9
# 100 s: 10 s before the first step, steps of 2 s until 80 s, and 20 s after the last one.
FIRST, LAST, END = 10, 80, 100


def samples(values: Callable[[int], float], metric: str = "gpu_utilization", units: int = 1, node: int = 0) -> list[dict[str, Any]]:
    return [
        {"node": node, "metric": metric, "unit": unit, "time_ns": at * S, "value": values(at)}
        for at in range(END + 1)
        for unit in range(units)
    ]


def steps(lengths: list[int]) -> list[dict[str, Any]]:
    rows, at = [], FIRST * S
    for number, length in enumerate(lengths):
        rows.append(
            {
                "name": "step",
                "side": "host",
                "phase": "TRAIN",
                "value": number,
                "start_ns": at,
                "duration_ns": length,
                "complete": True,
                "process": 0,
            }
        )
        at += length
    assert at == LAST * S
    return rows


def strip(make_store: MakeStore, **tables: Any) -> JobStrip:
    store = make_store(**tables)
    derive_steps(store)
    result = analyze(store, Options(generated_at_ns=0)).job_strip
    assert result is not None
    return result


def busy(low: float = 90.0, start: int = 40, end: int = 50) -> Callable[[int], float]:
    return lambda at: 0.0 if at < FIRST or at >= LAST else low if start <= at < end else 90.0


EVEN = [2 * S] * 35
STALLED = [2 * S] * 15 + [10 * S] + [2 * S] * 15


def seconds(start_ns: int, end_ns: int) -> tuple[float, float]:
    return start_ns / S, end_ns / S


def test_phases_with_their_utilization(make_store: MakeStore) -> None:
    result = strip(make_store, sample=samples(busy()), annotation=steps(EVEN))
    assert [(phase.name, *seconds(phase.start_ns, phase.end_ns), phase.utilization_percent) for phase in result.phases] == [
        ("initialization", 0, FIRST, 0.0),
        ("training", FIRST, LAST, 90.0),
        ("idle tail", LAST, END, 0.0),
    ]
    assert (result.metric, len(result.time_ns), result.dips, result.window_start_ns) == ("gpu", 101, (), None)
    used = strip(make_store, sample=samples(lambda at: 0.0 if at < FIRST else 90.0), annotation=steps(EVEN))
    assert [phase.name for phase in used.phases] == ["initialization", "training", "finalization"]


def test_a_dip_without_evidence_is_unexplained(make_store: MakeStore) -> None:
    (dip,) = strip(make_store, sample=samples(busy(low=20)), annotation=steps(EVEN)).dips
    assert (*seconds(dip.start_ns, dip.end_ns), dip.mean_percent, dip.typical_percent) == (40, 50, 20.0, 90.0)
    assert (dip.rules, dip.evidence) == ((), ())


@pytest.mark.parametrize(("low", "end", "dips"), [(44.9, 50, 1), (45.0, 50, 0), (20.0, 41, 0), (20.0, 42, 1)])
def test_a_dip_is_below_half_of_the_median_for_two_samples(make_store: MakeStore, low: float, end: int, dips: int) -> None:
    assert len(strip(make_store, sample=samples(busy(low, end=end)), annotation=steps(EVEN)).dips) == dips


def test_slow_steps_that_cover_a_dip_explain_it(make_store: MakeStore) -> None:
    store = make_store(sample=samples(busy(low=20)), annotation=steps(STALLED))
    derive_steps(store)
    report = analyze(store, Options(generated_at_ns=0))
    details = next(rule.details for rule in report.rules if rule.rule == "StepOutlier")
    # The step from 40 to 50 s is far above the threshold: mean 70 / 31 s, and 10 s long.
    limits = [dataclasses.replace(group, issue=True, threshold_ns=9.0 * S) for group in details.groups]  # type: ignore[union-attr]
    issue = [
        dataclasses.replace(rule, verdict="IssuesFound", details=dataclasses.replace(details, groups=tuple(limits)))  # type: ignore[type-var]
        if rule.rule == "StepOutlier"
        else rule
        for rule in report.rules
    ]
    explained = job_strip(store, dataclasses.replace(report, rules=tuple(issue)))
    assert explained is not None
    assert [dip.rules for dip in explained.dips] == [("StepOutlier",)]
    # The same finding does not explain a dip at another time.
    moved = make_store(sample=samples(busy(low=20, start=60, end=70)), annotation=steps(STALLED))
    derive_steps(moved)
    later = dataclasses.replace(analyze(moved, Options(generated_at_ns=0)), rules=tuple(issue))
    result = job_strip(moved, later)
    assert result is not None
    assert [dip.rules for dip in result.dips] == [()]


def test_io_wait_that_rose_is_evidence(make_store: MakeStore) -> None:
    waits = samples(lambda at: 30.0 if 40 <= at < 50 else 2.0, "cpu_iowait")
    (dip,) = strip(make_store, sample=samples(busy(low=20)) + waits, annotation=steps(EVEN)).dips
    assert [text.replace("\u00a0", "").replace(" ", "") for text in dip.evidence] == ["I/Owait30%(otherwise2%)"]
    always = samples(lambda at: 30.0, "cpu_iowait")
    (dip,) = strip(make_store, sample=samples(busy(low=20)) + always, annotation=steps(EVEN)).dips
    assert dip.evidence == ()


def test_a_finding_on_the_time_of_the_dip_explains_it(make_store: MakeStore) -> None:
    store = make_store(sample=samples(busy(low=20)), annotation=steps(EVEN))
    derive_steps(store)
    report = analyze(store, Options(generated_at_ns=0))

    def rules_of(rule: str, first: int, last: int) -> tuple[str, ...]:
        result = dataclasses.replace(
            report.rules[1], rule=rule, verdict="IssuesFound", first_ns=first * S, last_ns=last * S, category="trace"
        )
        drawn = job_strip(store, dataclasses.replace(report, rules=(result,)))
        assert drawn is not None
        return drawn.dips[0].rules

    assert rules_of("HostPauses", 41, 49) == ("HostPauses",)
    assert rules_of("HostPauses", 0, 100) == ()  # on all of the run
    assert rules_of("HostPauses", 49, 60) == ()  # on a tenth of the dip
    assert rules_of("LowGPUUtilization", 41, 49) == ()  # finds the dip itself


def test_without_steps_the_dips_are_those_of_the_job(make_store: MakeStore) -> None:
    result = strip(make_store, sample=samples(lambda at: 20.0 if 40 <= at < 50 else 90.0))
    assert result.phases == ()
    assert [seconds(dip.start_ns, dip.end_ns) for dip in result.dips] == [(40, 50)]


def test_the_profile_window(make_store: MakeStore) -> None:
    work = [{"kind": "kernel", "name": "k", "start_ns": at * S, "duration_ns": S} for at in (30, 33)]
    result = strip(make_store, sample=samples(busy()), annotation=steps(EVEN), device_event=work)
    assert (result.window_start_ns, result.window_end_ns) == (30 * S, 34 * S)


def test_nodes_are_averaged_over_time(make_store: MakeStore) -> None:
    nodes = [{"id": 0, "hostname": "a"}, {"id": 1, "hostname": "b"}]
    same = strip(make_store, nodes=nodes, sample=samples(lambda at: 80.0) + samples(lambda at: 40.0, node=1))
    assert set(same.utilization) == {60.0}
    halves = [row for row in samples(lambda at: 40.0, node=1) if row["time_ns"] % (2 * S) == 0]
    mixed = strip(make_store, nodes=nodes, sample=samples(lambda at: 80.0) + halves)
    assert set(mixed.utilization) == {60.0}
    assert len(mixed.time_ns) == 51


def test_processors_have_a_curve_and_no_dips(make_store: MakeStore) -> None:
    result = strip(make_store, sample=samples(busy(low=5), "cpu_utilization"), annotation=steps(EVEN))
    assert (result.metric, result.dips) == ("cpu", ())
    assert [phase.name for phase in result.phases] == ["initialization", "training", "finalization"]


def test_a_job_that_is_its_profile_window_has_no_strip(make_store: MakeStore) -> None:
    work = [{"kind": "kernel", "name": "k", "start_ns": at * S, "duration_ns": S} for at in range(0, 100)]
    report = analyze(make_store(device_event=work), Options(generated_at_ns=0))
    assert report.job_strip is None


@pytest.mark.parametrize(
    ("length", "captured_only", "longer"), [(151, False, True), (150, False, False), (151, True, False), (None, False, False)]
)
def test_a_window_is_a_part_of_a_job_from_one_and_a_half(length: int | None, captured_only: bool, longer: bool) -> None:
    job = JobStatistics(0, length, length, *[None] * 9, captured_only)  # type: ignore[arg-type]
    report: Any = SimpleNamespace(job_statistics=job, gpu_time=SimpleNamespace(first_ns=0, last_ns=100))
    assert longer_than_profile(report) is longer


def test_a_gap_in_the_samples_ends_a_dip(make_store: MakeStore) -> None:
    # Low from 30 to 60 s, but nothing was sampled from 40 to 50 s.
    rows = [row for row in samples(busy(low=20, start=30, end=60)) if not 40 * S <= row["time_ns"] < 50 * S]
    result = strip(make_store, sample=rows, annotation=steps(EVEN))
    assert [seconds(dip.start_ns, dip.end_ns) for dip in result.dips] == [(30, 40), (50, 60)]


def test_a_late_sample_does_not_end_a_dip(make_store: MakeStore) -> None:
    # The sample of 20 s is 0.9 s late: 0.1 s before the next one.
    rows = [{**row, "time_ns": row["time_ns"] + (9 * S // 10 if row["time_ns"] == 20 * S else 0)} for row in samples(busy(low=20))]
    result = strip(make_store, sample=rows, annotation=steps(EVEN))
    assert [seconds(dip.start_ns, dip.end_ns) for dip in result.dips] == [(40, 50)]


def test_only_the_longest_dips_are_listed(make_store: MakeStore) -> None:
    # Seven dips of 2 s and more, all below half of the median; the fourth is 3 s long.
    starts = {12: 2, 20: 2, 28: 2, 36: 3, 44: 2, 52: 2, 60: 2}
    low = {at for start, length in starts.items() for at in range(start, start + length)}
    result = strip(make_store, sample=samples(lambda at: busy()(at) and (10.0 if at in low else 90.0)), annotation=steps(EVEN))
    assert (len(result.dips), result.dip_count) == (5, 7)
    assert (36, 39) in [seconds(dip.start_ns, dip.end_ns) for dip in result.dips]


def test_a_series_is_of_samples_only() -> None:
    derived = Series("a", "gpu", "%", (0, 1), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0), True)
    report: Any = SimpleNamespace(
        job_statistics=JobStatistics(0, 1000, 1000, *[None] * 9),  # type: ignore[arg-type]
        gpu_time=None, system_usage=SimpleNamespace(series=(derived,)),
    )  # fmt: skip
    assert job_strip(None, report) is None  # type: ignore[arg-type]
