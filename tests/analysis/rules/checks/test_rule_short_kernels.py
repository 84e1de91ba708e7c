"""ShortKernels: the share of short kernel runs and the idle gaps before them, worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from judging import Judged, rules_of
from postrun.analysis.options import Options
from postrun.analysis.report import RuleResult
from postrun.analysis.rules.checks import short_kernels
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
US = 1000


def run(start: int, end: int, name: str = "k", **fields: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": name, "start_ns": start * US, "duration_ns": (end - start) * US, **fields}


def report(store: Store, **settings: float) -> Judged:
    values = {f"ShortKernels_{name}": value for name, value in settings.items()}
    return rules_of(store, Options(selection=select(["ShortKernels"], settings=values)))


def judge(store: Store, **settings: float) -> RuleResult:
    (actual,) = report(store, **settings).rules
    return actual


EVENTS = [
    run(0, 40, "long"),
    run(45, 50, "add"),  # short, gap of 5
    run(46, 49, "add", stream=20),  # short, overlaps another: no gap
    {**run(60, 61, "copy"), "kind": "memcpy"},  # no kernel: its gap of 10 is not counted
    run(64, 74, "exact"),  # exactly 10 µs is not short; its gap of 3 is not counted
    run(79, 82, "mul"),  # short, gap of 5
    run(82, 100, "long"),
]


def test_short_runs_and_the_gaps_before_them(make_store: MakeStore) -> None:
    outcome = judge(make_store(device_event=EVENTS), count_threshold=49, time_threshold=9)
    (device,) = plain_details(outcome)["devices"]
    assert device == {
        "node": "host-0", "rank": 0, "pid": 100, "device": 0, "span_ns": 100 * US, "launches": 6, "short": 3, "short_percent": 50.0,
        "gap_ns": 10 * US, "gap_percent": 10.0, "issue": True,
    }  # fmt: skip
    assert plain_details(outcome)["kernels"] == [
        {"name": "add", "count": 2, "mean_ns": 4000.0, "gap_ns": 5 * US},
        {"name": "mul", "count": 1, "mean_ns": 3000.0, "gap_ns": 5 * US},
    ]
    assert outcome.finding == (
        "3 of 6 kernel runs were shorter than 10.0 µs (50.0%, threshold 49%) and the idle gaps before them took 10.0 µs of 100 µs"
        " (10.0%, threshold 9%)."
    )
    assert (outcome.triggered, outcome.datapoints, outcome.windows, outcome.first_ns, outcome.last_ns) == (1, 1, 1, 0, 100 * US)


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ({"count_threshold": 50, "time_threshold": 9}, "NoIssuesFound"),  # not above 50%
        ({"count_threshold": 49, "time_threshold": 10}, "NoIssuesFound"),  # not above 10%
        ({"count_threshold": 49.9, "time_threshold": 9.9}, "IssuesFound"),
        ({"short_us": 10.001, "count_threshold": 66, "time_threshold": 12.9}, "IssuesFound"),  # "exact" counts: 4 of 6, 13 µs
        ({"short_us": 3, "count_threshold": 0, "time_threshold": 0}, "NoIssuesFound"),  # none below 3 µs
    ],
)
def test_thresholds_are_strict(make_store: MakeStore, settings: dict[str, float], verdict: str) -> None:
    assert judge(make_store(device_event=EVENTS), **settings).verdict == verdict


def test_cost_and_place(make_store: MakeStore) -> None:
    store = make_store(
        processes=[{"id": 0, "node": 0, "rank": 0, "pid": 1}, {"id": 1, "node": 0, "rank": 1, "pid": 2}],
        device_event=[run(0, 50), run(60, 100), run(0, 1, device=1, process=1), run(99, 100, device=1, process=1)],
        step=[
            {"node": 0, "process": 1, "index": i, "host_start_ns": 50 * i, "host_duration_ns": 50, "device_start_ns": 50 * i,
             "device_duration_ns": 50, "device_events": 1}
            for i in range(7)
        ],
    )  # fmt: skip
    (finding,) = report(store).findings
    assert (finding.cost_ns, finding.saving_ns, finding.cost_percent, finding.cost_per_step_ns) == (98 * US, 98 * US, 49.0, 14 * US)
    assert (finding.where, finding.base) == ("rank 1, host-0 GPU 1", "GPU time in the profile window")


def test_not_evaluated(make_store: MakeStore) -> None:
    outcome = judge(make_store())
    assert (outcome.verdict, outcome.reason) == ("NotEvaluated", "no device activity in this run")
    outcome = judge(make_store(device_event=[{**run(0, 5), "kind": "memcpy"}]))
    assert (outcome.verdict, outcome.reason) == ("NotEvaluated", "no kernels in this run, only copies and memsets")
    assert outcome.capture


def test_one_kernel_without_duration(make_store: MakeStore) -> None:
    outcome = judge(make_store(device_event=[run(5, 5)]))
    assert (outcome.verdict, plain_details(outcome)["devices"][0]["gap_percent"]) == ("NoIssuesFound", 0.0)


@pytest.mark.parametrize(
    ("kernel", "fused"),
    [
        ("multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>", True),
        ("multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>", True),
        ("multi_tensor_apply_kernel<at::native::BinaryOpListAlphaFunctor<float, 3, 2, 0>>", False),
    ],
)
def test_kernels_of_fused_optimizers(kernel: str, fused: bool) -> None:
    assert bool(short_kernels._FUSED.search(kernel)) == fused
