"""InputBound: hand-made steps and waits for data -> verdict, cost and advice, worked out on paper."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
Rows = list[dict[str, Any]]
MS = 1_000_000
WAIT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def evaluated(store: Store, **settings: Any) -> tuple[RuleResult, tuple[Finding, ...]]:
    values = {f"InputBound_{name}": value for name, value in settings.items()}
    report = rules_of(store, Options(selection=select(["InputBound"], settings=values), generated_at_ns=0))
    [result] = report.rules
    assert result.verdict != "Error", result.reason
    return result, report.findings


def training(wait_ms: int, steps: int = 20, *, process: int = 0) -> dict[str, Rows]:
    """Steps of 100 ms without gaps; each begins with a wait for data."""
    starts = [number * 100 * MS for number in range(steps)]
    return {
        "step": [
            {"node": 0, "process": process, "index": number, "host_start_ns": start, "host_duration_ns": 100 * MS}
            for number, start in enumerate(starts)
        ],
        "host_event": [
            {"kind": "loader", "name": WAIT, "process": process, "start_ns": start, "duration_ns": wait_ms * MS}
            for start in starts
            if wait_ms
        ],
    }


def machine(cores: int, busy: float | None = None) -> dict[str, Rows]:
    samples = [
        {"node": 0, "metric": "cpu_utilization", "unit": unit, "time_ns": number * 500 * MS, "value": busy}
        for unit in range(cores) for number in range(4)
    ]  # fmt: skip
    return {"nodes": [{"id": 0, "hostname": "host-0", "cores": cores, "gpus": 0}], "sample": samples if busy is not None else []}


def loader(workers: int) -> Rows:
    settings = {"num_workers": workers, "pin_memory": False, "prefetch_factor": 2}
    return [{"name": "__init__", "side": "host", "start_ns": 0, "duration_ns": 5, "phase": "DataLoaderIterInitialize",
             "complete": True, "arguments": json.dumps(settings)}]  # fmt: skip


def test_waits_of_57_percent_are_an_issue_with_their_cost(make_store: MakeStore) -> None:
    # 20 steps of 100 ms, in each 57 ms of waiting: 1.14 s of 2 s.
    store = make_store(**training(57), **machine(2, 99.0), annotation=loader(2))
    result, [finding] = evaluated(store)
    assert (result.verdict, result.triggered, result.violations, result.datapoints) == ("IssuesFound", 1, 1, 1)
    assert result.finding == (
        "Waiting for data costs 1.14 s of 2.00 s of step time (57.0%, threshold 20%); its data loader has num_workers=2, prefetch_factor=2."
    )
    assert (finding.cost_ns, finding.saving_ns, finding.cost_percent) == (1140 * MS, 1140 * MS, 57.0)
    assert (finding.cost_per_step_ns, finding.base, finding.severity) == (57 * MS, "time of the steps", "high")
    [row] = plain_details(result)["processes"]
    assert row == {
        "node": "host-0", "rank": 0, "pid": 100, "steps": 20, "steps_ns": 2000 * MS, "waiting_ns": 1140 * MS, "percent": 57.0,
        "issue": True,
    }  # fmt: skip


@pytest.mark.parametrize(("wait", "verdict"), [(1, "NoIssuesFound"), (20, "NoIssuesFound"), (21, "IssuesFound")])
def test_the_threshold_is_strict(make_store: MakeStore, wait: int, verdict: str) -> None:
    result, findings = evaluated(make_store(**training(wait), **machine(4)))
    assert (result.verdict, bool(findings)) == (verdict, verdict == "IssuesFound")
    assert f"({wait:.1f}%, threshold 20%)" in (result.finding or "")


@pytest.mark.parametrize(
    ("cores", "busy", "workers", "advice", "not_advice"),
    [
        (2, 99.0, 2, "More loader processes cannot help, because its 2 cores were busy for 99.0% of the time. This is the", "num_workers="),
        (2, 99.0, 2, "This is the load of all programs on the node, not of the training alone.", "num_workers="),
        (8, 30.0, 2, "Set `num_workers=8`: 2 loader processes feed the training process, and host-0 has 8 cores.", "cheaper"),
        (8, 30.0, 0, "Set `num_workers=8`: the training process loads its data itself", "cheaper"),
        (8, None, 1, "1 loader process feeds the training process", "cheaper"),
        (
            4,
            30.0,
            4,
            "load further ahead (`prefetch_factor=4`, `persistent_workers=True`), or make preprocessing cheaper",
            "Set `num_workers",
        ),
    ],
)
def test_the_advice_follows_from_the_workers_and_the_cores(
    make_store: MakeStore, cores: int, busy: float | None, workers: int, advice: str, not_advice: str
) -> None:
    result, _ = evaluated(make_store(**training(50), **machine(cores, busy), annotation=loader(workers)))
    assert advice in (result.recommendation or "")
    assert not_advice not in (result.recommendation or "")


def test_without_settings_the_advice_is_general(make_store: MakeStore) -> None:
    result, _ = evaluated(make_store(**training(50)))
    assert "waits 50.0 ms per step" in (result.recommendation or "")


def test_the_worst_of_several_processes_is_named(make_store: MakeStore) -> None:
    # 30 of 100 ms and 60 of 100 ms: 1.8 s of 4 s.
    first, second = training(30), training(60, process=1)
    processes = [{"id": 0, "node": 0, "pid": 100, "rank": 0}, {"id": 1, "node": 0, "pid": 101, "rank": 1}]
    combined = {table: first[table] + second[table] for table in first}
    result, [finding] = evaluated(make_store(processes=processes, **combined))
    assert result.finding == (
        "Waiting for data costs 2 of 2 processes more than 20% of step time, 1.80 s of 4.00 s in all (45.0%); most in rank 1, host-0:"
        " 60.0%."
    )
    assert (finding.cost_ns, finding.where) == (1800 * MS, None)
    assert evaluated(make_store(processes=processes, **combined), threshold=50)[1][0].where == "rank 1, host-0"


def test_what_cannot_be_evaluated_says_why(make_store: MakeStore) -> None:
    kernel = [{"kind": "kernel", "name": "k", "start_ns": 0, "duration_ns": 5}]
    used = [{"node": 0, "metric": "gpu_utilization", "unit": 0, "time_ns": 0, "value": 40.0}]
    unused = [{**used[0], "value": 0.0}]
    cases = [
        ({**training(57), "device_event": kernel}, "HostBound evaluates runs with device activity"),
        ({**training(57), "sample": used}, "a GPU was in use, and whether it worked during the waits was not recorded"),
        ({}, "no steps in this run"),
        (training(0), "no waits for data were recorded in the steps of this run"),
        (training(57, steps=10), "10 of more than 10 steps needed"),
    ]
    for tables, reason in cases:
        result, _ = evaluated(make_store(**tables))
        assert (result.verdict, result.reason) == ("NotEvaluated", reason)
    assert evaluated(make_store(**training(57), sample=unused))[0].verdict == "IssuesFound"
