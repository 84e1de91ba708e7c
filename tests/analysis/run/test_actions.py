"""Savings of findings on one base, computed on paper."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from postrun.analysis.report import Device, Finding, GpuTime, JobStatistics, StepParts
from postrun.analysis.run.actions import OF_DURATION, OF_RUN, OF_WINDOW, SCOPES, actions

S = 10**9
PROFILE, RUN, LOOP, STEPS = (
    "GPU time in the profile window",
    "GPU time of the run",
    "process time in the training loop",
    "time of the steps",
)


def finding(rank: int, rule: str, percent: float | None, base: str, **more: Any) -> Finding:
    values = {"cost_percent": percent, "saving_kind": "upper_bound", "explained_by": None, **more}
    return Finding(
        rank,
        rule,
        "low",
        "Do it",
        "So.",
        None,
        None,
        1,
        values["cost_percent"],
        None,
        1,
        percent,
        base,
        values["saving_kind"],
        values["explained_by"],
    )


def job(duration: int | None, loop: int | None = None, *, captured_only: bool = False) -> JobStatistics:
    share = None if loop is None or not duration else 100 * loop / duration
    return JobStatistics(0, duration, duration, None, None, loop, None, None, None, share, None, None, captured_only)


def report(*findings: Finding, statistics: JobStatistics, gpus: int = 0, window: int = 0, parts: tuple[StepParts, ...] = ()) -> Any:
    devices = [Device("a", index, None, None, None, None, None, None, True) for index in range(gpus)]
    gpu_time = GpuTime(gpus, 0, window, window * gpus, 0, 0, 0, 0) if window else None
    steps = SimpleNamespace(parts=parts)
    return SimpleNamespace(findings=findings, job_statistics=statistics, devices=devices, gpu_time=gpu_time, steps=steps)


def test_findings_of_a_profile_are_scaled_by_the_share_of_the_loop() -> None:
    # 8 GPUs for 1000 s, 700 s of it in the loop; 8 s were profiled. 20% of the profile are 14% of the run, 1120 of 8000 GPU-s.
    rows = (
        finding(1, "ExposedCommunication", 20.0, PROFILE),
        finding(2, "LowGPUUtilization", 19.0, RUN),
        finding(3, "StepOutlier", 10.0, LOOP),
        finding(4, "InputBound", 5.0, STEPS),
    )
    ranked, result = actions(report(*rows, statistics=job(1000 * S, 700 * S), gpus=8, window=8 * S))
    assert result is not None
    # The findings have the order and the numbers of the actions.
    assert [(row.rank, row.rule) for row in ranked] == [(row.finding, row.rule) for row in result.rows]
    assert [row.rank for row in ranked] == [1, 2, 3, 4]
    assert (result.base, result.base_ns, result.gpus) == (OF_RUN, 8000 * S, 8)
    assert [(row.rule, row.percent, row.time_ns, row.estimated) for row in result.rows] == [
        ("LowGPUUtilization", 19.0, 1520 * S, False),
        ("ExposedCommunication", pytest.approx(14.0), 1120 * S, True),
        ("StepOutlier", pytest.approx(7.0), 560 * S, False),
        ("InputBound", pytest.approx(3.5), 280 * S, True),
    ]


def test_a_profile_alone_is_its_own_base() -> None:
    # 2 GPUs x 10 s; the times of the trace are known, those of the job are not.
    _, result = actions(
        report(
            finding(1, "SyncBound", 25.0, PROFILE),
            finding(2, "StepOutlier", 5.0, LOOP),
            statistics=job(10 * S, 9 * S, captured_only=True),
            gpus=2,
            window=10 * S,
        )
    )
    assert result is not None
    assert (result.base, result.base_ns, result.gpus) == (OF_WINDOW, 20 * S, 2)
    assert [(row.percent, row.time_ns, row.estimated) for row in result.rows] == [(25.0, 5 * S, False), (5.0, S, False)]


def test_without_a_gpu_the_base_is_the_duration() -> None:
    _, result = actions(report(finding(1, "InputBound", 40.0, STEPS), statistics=job(100 * S, 90 * S)))
    assert result is not None
    assert (result.base, result.base_ns, result.gpus) == (OF_DURATION, 100 * S, 0)
    assert [(row.percent, row.time_ns, row.estimated) for row in result.rows] == [(pytest.approx(36.0), 36 * S, False)]


def test_what_cannot_be_converted_keeps_its_base() -> None:
    # The loop is unknown, so that the profile cannot be set against the run; nobody knows the base of the custom rule.
    rows = (finding(1, "SyncBound", 25.0, PROFILE), finding(2, "Mine", 30.0, "time of the moon"), finding(3, "LowGPUUtilization", 9.0, RUN))
    _, result = actions(report(*rows, statistics=job(100 * S), gpus=1, window=S))
    assert result is not None
    assert [(row.rule, row.percent, row.base) for row in result.rows] == [
        ("Mine", 30.0, "time of the moon"),
        ("SyncBound", 25.0, PROFILE),
        ("LowGPUUtilization", 9.0, None),
    ]
    _, nothing = actions(report(*rows, statistics=job(None)))
    assert nothing is not None
    assert nothing.base == ""
    assert actions(report(statistics=job(100 * S))) == ((), None)


def test_an_explained_finding_follows_its_cause() -> None:
    # The straggler is worth as much as the communication that it explains: it comes before the 10%. Little comes last.
    rows = (
        finding(1, "Little", 1.9, PROFILE),
        finding(2, "SyncBound", 10.0, PROFILE),
        finding(3, "StragglerRank", 6.0, PROFILE, saving_kind="predicted"),
        finding(4, "ExposedCommunication", 18.0, PROFILE, explained_by="StragglerRank"),
        finding(5, "Unknown", None, PROFILE, cost_percent=4.0),
    )
    _, result = actions(report(*rows, statistics=job(None), gpus=1, window=S))
    assert result is not None
    assert [row.rule for row in result.rows] == ["StragglerRank", "ExposedCommunication", "SyncBound", "Unknown", "Little"]
    assert [row.partly for row in result.rows] == [None, "StragglerRank", None, None, None]
    unknown = result.rows[3]
    assert (unknown.percent, unknown.time_ns, unknown.cost_percent) == (None, None, 4.0)


def test_a_circle_of_causes_ends() -> None:
    rows = (
        finding(1, "A", 5.0, PROFILE, explained_by="B"),
        finding(2, "B", 9.0, PROFILE, explained_by="A"),
        finding(3, "C", 7.0, PROFILE, explained_by="C"),
    )
    _, result = actions(report(*rows, statistics=job(None), gpus=1, window=S))
    assert result is not None
    assert sorted(row.finding for row in result.rows) == [1, 2, 3]


def test_every_base_of_the_rules_is_known() -> None:
    folder = Path(__file__).parents[3] / "analysis" / "rules"
    texts = [
        keyword.value.value
        for file in folder.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Cost"
        for keyword in call.keywords
        if keyword.arg == "base" and isinstance(keyword.value, ast.Constant)
    ]
    from postrun.analysis.rules.evidence.base import Cost

    assert {*texts, Cost("", 0, 0).base} <= SCOPES.keys()
    assert texts
