"""GPU-hours in the index: parts that add up exactly, activity only from samples, and cost only with a price."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.report.goodput import Goodput, GoodputPart
from postrun.analysis.report.machine import UnitHeat
from postrun.analysis.run.goodput import PARTS
from postrun.nightly.gpu_hours import LONGEST, apportioned, column, columns
from postrun.nightly.model import ReportOptions, Row
from postrun.nightly.places import options_digest

HOUR = 3600 * 10**9


def report(**more: Any) -> Any:
    """Make a report of a job of 100 ns on two GPUs, without goodput and samples."""
    job = {"started_at_ns": 1000, "ended_at_ns": 1100, "captured_only": False} | more.pop("job", {})
    plain: dict[str, Any] = {
        "job_statistics": SimpleNamespace(**job),
        "devices": [SimpleNamespace(used=True)] * more.pop("gpus", 2) + [SimpleNamespace(used=False)] * 6,
        "goodput": None,
        "system_usage": SimpleNamespace(heat=more.pop("heat", ())),
        "options": {},
        "steps": SimpleNamespace(steps=(), left_out=0),
    }
    return SimpleNamespace(**plain | more)


def goodput(ranks: int = 2, percent: float | None = 50.0, **times: int | None) -> Goodput:
    return Goodput(percent, 100, ranks, tuple(GoodputPart(name, time, None, None) for name, time in times.items()))


def heat(times: tuple[int, ...], *values: tuple[float | None, ...], derived: bool = False) -> UnitHeat:
    return UnitHeat("node", "gpu", tuple(range(len(values))), times, values, derived)


def test_every_part_of_the_goodput_has_a_column() -> None:
    assert {column(part) for part in PARTS} == {name for name in Row.__slots__ if name.startswith("allocated_")} - {"allocated_ns"}
    assert set(columns(report(options={"price_per_gpu_hour": [1.0, "USD"]}))) <= set(Row.__slots__)


def test_with_a_gpu_per_rank_the_parts_are_those_of_the_report() -> None:
    row = columns(report(goodput=goodput(initialization=31, productive=162, tail=7, checkpoint=None)))
    assert row == {
        "allocated_ns": 200, "allocated_initialization_ns": 31, "allocated_productive_ns": 162, "allocated_tail_ns": 7,
    }  # fmt: skip


def test_parts_of_other_ranks_than_gpus_still_add_up() -> None:
    # Three ranks: 300 rank-ns for 200 GPU-ns. Exact: 66 2/3, 100, 33 1/3; the largest remainder gets the ns that is left.
    row = columns(report(goodput=goodput(3, initialization=100, productive=150, tail=50)))
    assert (row["allocated_initialization_ns"], row["allocated_productive_ns"], row["allocated_tail_ns"]) == (67, 100, 33)


@given(st.integers(0, 10**18), st.lists(st.integers(0, 10**15), max_size=12))
def test_apportioned_parts_add_up_and_are_next_to_the_exact_ones(total: int, weights: list[int]) -> None:
    parts = apportioned(total, weights)
    assert len(parts) == len(weights)
    if any(weights):
        assert sum(parts) == total
        for part, weight in zip(parts, weights, strict=True):
            assert abs(part - Fraction(total * weight, sum(weights))) < 1
    else:
        assert not any(parts)


@pytest.mark.parametrize(
    "more",
    [
        {"job": {"captured_only": True}},
        {"job": {"started_at_ns": None}},
        {"job": {"ended_at_ns": None}},
        {"job": {"ended_at_ns": 1000}},
        {"gpus": 0},
        {"job": {"ended_at_ns": 1000 + LONGEST // 2 + 1}},
    ],
)
def test_a_job_without_limits_or_gpus_has_no_gpu_hours(more: dict[str, Any]) -> None:
    assert columns(report(goodput=goodput(productive=200), **more)) == {}


def test_a_job_without_steps_has_gpu_hours_without_parts() -> None:
    assert columns(report(goodput=Goodput(absent="no steps"))) == {"allocated_ns": 200}


def test_only_a_price_makes_runs_due() -> None:
    plain = ReportOptions()
    without = {name: getattr(plain, name) for name in plain.__slots__ if name not in ("price_per_gpu_hour", "max_unpacked", "redact")}
    hidden = ("custom_rules", "memory_limit", "threads", "mode", "custom_files", "rule_timeout")
    earlier = json.dumps({name: value for name, value in without.items() if name not in hidden}, sort_keys=True, default=repr)
    assert options_digest(plain) == hashlib.sha256(earlier.encode()).hexdigest()[:12]  # as before there was a price
    assert options_digest(ReportOptions(price_per_gpu_hour=(2.5, "USD"))) != options_digest(plain)


# -- activity --------------------------------------------------------------------------------------------------------------


def test_samples_of_zero_are_inactive_until_the_next_sample() -> None:
    # Intervals of 20 ns from 1000; the last one is as long as the others.
    row = columns(report(heat=[heat((1000, 1020, 1040, 1060, 1080), (0, 0, 50, 0.5, 0), (90, None, 90, 90, 90))]))
    assert (row["sampled_ns"], row["inactive_ns"]) == (100 + 80, 60)


def test_only_time_of_the_job_with_samples_counts() -> None:
    # The job is from 1000 to 1100. Intervals: 990 to 1000 is before it; 1000 to 1010; after 1010 nothing was sampled for 70 ns, and
    # twice the usual 10 ns count; 1080 to 1090; 1090 to 1100; 1110 is after it.
    row = columns(report(gpus=1, heat=[heat((990, 1000, 1010, 1080, 1090, 1110), (0.0,) * 6)]))
    assert (row["sampled_ns"], row["inactive_ns"]) == (10 + 20 + 10 + 10, 50)


@pytest.mark.parametrize(
    "heats",
    [
        [],
        [heat((1000, 1050), (0, 0), derived=True)],
        [heat((1000,), (0,))],
        [UnitHeat("node", "cpu", (0,), (1000, 1050), ((0, 0),), False)],
        # More GPUs than the job used.
        [heat((1000, 1050), *[(0.0, 0.0)] * 8)],
    ],
)
def test_without_samples_of_the_gpus_the_activity_is_unknown(heats: list[UnitHeat]) -> None:
    assert columns(report(heat=heats)) == {"allocated_ns": 200}


# -- cost ------------------------------------------------------------------------------------------------------------------


def steps(*numbers: tuple[int, int], left_out: int = 0, phase: str | None = None) -> Any:
    # Some steps were profiled, and so have device work; all are steps of the job.
    listed = (SimpleNamespace(index=index, again=again, on_device=index == 0, phase=phase, duration_ns=1) for index, again in numbers)
    return SimpleNamespace(steps=tuple(listed), left_out=left_out)


def test_cost_is_the_price_of_all_gpu_hours_and_per_step_of_each_step_once() -> None:
    # Two GPUs for 3 hours at 2.50; steps 0 and 1 of two ranks, step 1 also after a restart, and step 0 of a second epoch: three steps.
    job = {"ended_at_ns": 1000 + 3 * HOUR}
    price = {"price_per_gpu_hour": [2.5, "USD"]}
    listed = steps((0, 0), (1, 0), (0, 0), (1, 0), (1, 0), (0, 1))
    row = columns(report(job=job, options=price, steps=listed, goodput=goodput(productive=200)))
    assert (row["price_per_gpu_hour"], row["currency"], row["cost"], row["cost_per_step"]) == (2.5, "USD", 15.0, 5.0)
    phases = steps((0, 0), (1, 0), phase="TRAIN").steps + steps((2, 0), phase="EVAL").steps + listed.steps
    row = columns(report(job=job, options=price, steps=SimpleNamespace(steps=phases, left_out=0), goodput=goodput(productive=200)))
    assert row["cost_per_step"] == 7.5
    for unknown in ({"goodput": None}, {"goodput": goodput(percent=None, productive=200)}, {"steps": steps((0, 0), left_out=1)}):
        row = columns(report(job=job, options=price, **{"steps": listed, "goodput": goodput(productive=200)} | unknown))
        assert (row["cost"], row["cost_per_step"]) == (15.0, None)
    assert "cost" not in columns(report(job=job, steps=listed, goodput=goodput(productive=200)))
