"""OverallSystemUsage gives the quantiles of every node, as information only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from judging import rules_of
from postrun.analysis.options import Options
from postrun.analysis.report import FINE, NOT_EVALUATED, RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details
from sample_rules import CORE, GPU, IOWAIT, SECOND, Sample, line, sampled

START = 1_700_000_040 * SECOND


def judge(store: Store) -> RuleResult:
    (result,) = rules_of(store, Options(selection=select(["OverallSystemUsage"]))).rules
    return result


def test_quantiles_of_every_machine() -> None:
    values = [float(number) for number in range(101)]  # quantiles are their own number
    samples: list[Sample] = [
        *line(0, GPU, 0, values, start=START),
        *line(0, GPU, 1, [100 - value for value in values], start=START),  # the mean of both is 50 all the time
        *line(0, CORE, 0, values, start=START),
        *line(0, IOWAIT, 0, [0.0] * 101, start=START),
        *line(0, "network_receive", None, [100.0] * 101, start=START),
        *line(0, "network_transmit", None, [11.0] * 101, start=START),
        *line(0, "disk_read", None, [5.0] * 101, start=START),
        *line(1, CORE, 0, [90.0] * 101, start=START + 30 * SECOND),
    ]
    with sampled(samples) as store:
        outcome = judge(store)
    assert (outcome.verdict, outcome.triggered, outcome.violations, outcome.first_ns) == (FINE, 0, 0, None)
    first, second = plain_details(outcome)["nodes"]
    metrics = {row["metric"]: row for row in first["metrics"]}
    assert set(metrics) == {"gpu", "cpu", "io_wait", "network"}  # disks are in the section on system usage
    assert {key: metrics["cpu"][key] for key in ("max", "p99", "p95", "p50", "min")} == {
        "max": 100.0, "p99": 99.0, "p95": 95.0, "p50": 50.0, "min": 0.0
    }  # fmt: skip
    assert metrics["gpu"]["min"] == metrics["gpu"]["max"] == 50.0
    assert (metrics["network"]["p50"], metrics["network"]["unit"], metrics["gpu"]["derived"]) == (111.0, "B/s", False)
    assert first["statement"] == "GPUs under-used, likely waiting for the CPU: the 95th percentile of the GPUs is 50%, of the CPU 95%."
    assert second["statement"] == (
        "Well used: the 95th percentile of the CPU is 90%, its median 90%; this is the whole machine, not the job alone."
    )
    assert outcome.datapoints == 5 * 101
    assert outcome.finding == "2 nodes: 1 well used, 1 with GPUs under-used, likely waiting for the CPU."


def test_one_machine_gets_its_sentence() -> None:
    with sampled(line(0, GPU, 0, [20.0] * 5, start=START) + line(0, CORE, 0, [20.0] * 5, start=START)) as store:
        outcome = judge(store)
    assert outcome.finding == (
        "m0: Under-utilized: the 95th percentile of the GPUs is 20%, of the CPU 20%; a smaller instance would do."
    )  # fmt: skip


def test_nothing_to_look_at(make_store: Callable[..., Store]) -> None:
    outcome = judge(make_store())
    assert (outcome.verdict, outcome.reason) == (NOT_EVALUATED, "no system metrics and no kernel activity in this run")
    assert outcome.capture
    with sampled(line(0, "disk_read", None, [5.0] * 5, start=START)) as store:
        assert judge(store).verdict == NOT_EVALUATED


def test_derived_utilization(make_store: Callable[..., Store]) -> None:
    kernel: dict[str, Any] = {"kind": "kernel", "name": "k", "start_ns": START, "duration_ns": 10_000_000}
    outcome = judge(make_store(device_event=[kernel, {**kernel, "start_ns": START + 20_000_000}]))
    assert outcome.verdict == FINE
    assert [(row["metric"], row["derived"]) for row in plain_details(outcome)["nodes"][0]["metrics"]] == [("gpu", True)]
    assert "derived from kernel activity" in str(outcome.finding)
