"""Data loading processes are counted, compared with the cores and evaluated as on paper and by a plain loop."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.checks.dataloader import seconds_of
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
Rows = list[dict[str, Any]]
SECOND = 1_000_000_000
MULTI = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def judged(store: Store, **settings: Any) -> tuple[RuleResult, tuple[Finding, ...]]:
    values = {f"Dataloader_{name}": value for name, value in settings.items()}
    report = rules_of(store, Options(selection=select(["Dataloader"], settings=values), generated_at_ns=0))
    [result] = report.rules
    assert result.verdict != "Error", result.reason
    return result, report.findings


def machine(cores: int | None) -> Rows:
    return [{"id": 0, "hostname": "host-0", "cores": cores}]


def loads(seconds: int, *, workers: int = 1, phase: str = "DataLoaderIter", length: int = SECOND // 2, **more: Any) -> Rows:
    """Return an interval of each worker in each second, all at the same time."""
    return [
        {"name": "GetNext", "side": "host", "tid": worker, "start_ns": second * SECOND, "duration_ns": length, "phase": phase,
         "complete": True, **more}
        for second in range(seconds)
        for worker in range(workers)
    ]  # fmt: skip


def configured(workers: int | None, *, pin: bool | None = None, process: int = 0, **more: Any) -> Rows:
    arguments = {"num_workers": workers, "worker_id": None, "prefetch_factor": None, "pin_memory": pin, **more}
    return [
        {"name": "__init__", "side": "host", "process": process, "start_ns": 0, "duration_ns": 5, "phase": "DataLoaderIterInitialize",
         "complete": True, "arguments": json.dumps(arguments)}
    ]  # fmt: skip


def waits(seconds: int, name: str, **more: Any) -> Rows:
    return [{"kind": "loader", "name": name, "start_ns": second * SECOND, "duration_ns": SECOND // 4, **more} for second in range(seconds)]


def test_without_loader_events(make_store: MakeStore) -> None:
    result, _ = judged(make_store(nodes=machine(4)))
    assert (result.verdict, result.reason) == ("NotEvaluated", "no data loader events in this run")
    assert "DataLoader" in (result.capture or "")


@pytest.mark.parametrize(("workers", "verdict"), [(6, "IssuesFound"), (7, "NoIssuesFound"), (20, "NoIssuesFound"), (21, "IssuesFound")])
def test_thresholds_are_no_issue_themselves(make_store: MakeStore, workers: int, verdict: str) -> None:
    # Ten cores: 7 are exactly 70%, 20 exactly 200%.
    result, _ = judged(make_store(nodes=machine(10), annotation=loads(11) + configured(workers)))
    [row] = plain_details(result)["nodes"]
    assert (result.verdict, row["issue"], row["percent_of_cores"]) == (verdict, verdict == "IssuesFound", workers * 10.0)
    assert (row["loaders"], row["source"], row["seconds"], row["cores"]) == (workers, "num_workers", 11, 10)
    side = "below" if workers == 6 else "above" if workers == 21 else "between"
    assert f"{side} the threshold" in (result.finding or "")
    if workers in (6, 21):
        assert (result.recommendation or "").startswith("Set `num_workers=10`")


def test_more_than_patience_seconds_are_needed(make_store: MakeStore) -> None:
    result, _ = judged(make_store(nodes=machine(10), annotation=loads(10) + configured(2)))
    assert (result.verdict, result.reason) == ("NotEvaluated", "10 of more than 10 seconds with data loading needed")
    assert (result.datapoints, plain_details(result)["nodes"][0]["issue"], plain_details(result)["nodes"][0]["loaders"]) == (10, None, 2)
    assert judged(make_store(nodes=machine(10), annotation=loads(11) + configured(2)))[0].verdict == "IssuesFound"
    assert judged(make_store(nodes=machine(10), annotation=loads(10) + configured(2)), patience=9)[0].verdict == "IssuesFound"
    result, _ = judged(make_store(nodes=machine(10), annotation=configured(2)))
    assert result.reason == "0 of more than 10 seconds with data loading needed"


def test_seconds_without_loading_do_not_count(make_store: MakeStore) -> None:
    # Every fifth second only: 11 of them make an evaluation, and one loader is one loader.
    rows = [{**row, "start_ns": row["start_ns"] * 5} for row in loads(11)]
    result, _ = judged(make_store(nodes=machine(1), annotation=rows))
    assert [(row["loaders"], row["source"], row["seconds"], row["issue"]) for row in plain_details(result)["nodes"]] == [
        (1, "overlap", 11, False)
    ]


def test_overlapping_intervals_are_counted_at_their_peak(make_store: MakeStore) -> None:
    # Three at a time in seven seconds, one in six: median 3.
    rows = loads(7, workers=3) + [{**row, "start_ns": row["start_ns"] + 7 * SECOND} for row in loads(6)]
    result, _ = judged(make_store(nodes=machine(4), annotation=rows))
    [row] = plain_details(result)["nodes"]
    assert (row["loaders"], row["source"], row["percent_of_cores"], result.verdict) == (3, "overlap", 75, "NoIssuesFound")
    assert "3 data loading processes (median of the overlapping loader intervals per second)" in (result.finding or "")
    assert judged(make_store(nodes=machine(6), annotation=rows))[0].verdict == "IssuesFound"


def test_calls_inside_of_a_call_are_one_loader(make_store: MakeStore) -> None:
    rows = loads(11, phase="DataIterator")
    rows += [{**row, "start_ns": row["start_ns"] + 10, "duration_ns": 20} for row in rows]
    result, _ = judged(make_store(nodes=machine(1), annotation=rows))
    assert plain_details(result)["nodes"][0]["loaders"] == 1


def test_loads_that_a_trace_recorded_too_count_once(make_store: MakeStore) -> None:
    """Twelve loads of the loader's profile, nine of a trace, four of them the same.

    The profile's timeline numbers threads of its own; the trace has the loads of the last four seconds and one more."""
    rows = loads(12, tid=900)
    traced = [{**row, "start_ns": row["start_ns"] + 10, "duration_ns": SECOND // 2 - 20} for row in waits(13, MULTI, tid=7)[8:]]
    result, _ = judged(make_store(nodes=machine(1), annotation=rows, host_event=traced))
    loading = plain_details(result)["loading"]
    assert (loading["count"], loading["total_ns"]) == (13, 8 * (SECOND // 2) + 5 * (SECOND // 2 - 20))
    assert plain_details(result)["nodes"][0]["seconds"] == 13
    # Calls inside of a call of the loader are none of their own.
    nested = [*rows, *({**row, "start_ns": row["start_ns"] + 10, "duration_ns": 20} for row in rows)]
    assert plain_details(judged(make_store(nodes=machine(1), annotation=nested))[0])["loading"]["count"] == 12


def test_worker_events_count_before_those_of_the_training_process(make_store: MakeStore) -> None:
    rows = loads(11) + [{**row, "tid": 100 + row["tid"]} for row in loads(11, workers=4, phase="DataLoaderWorker", length=SECOND // 3)]
    result, _ = judged(make_store(nodes=machine(4), annotation=rows))
    assert plain_details(result)["nodes"][0]["loaders"] == 4
    assert (plain_details(result)["loading"]["count"], plain_details(result)["loading"]["p50_ns"]) == (11, SECOND // 2)


def test_workers_of_all_training_processes_are_added(make_store: MakeStore) -> None:
    # Two processes with 3 (of 2 and 3, the larger) and 2 workers on 16 cores: 5 loaders; 8 for each would make one per core.
    processes = [{"id": i, "node": 0, "pid": i, "rank": i} for i in (0, 1)]
    rows = loads(11) + configured(2) + configured(3) + configured(2, process=1)
    result, _ = judged(make_store(nodes=machine(16), processes=processes, annotation=rows))
    assert (plain_details(result)["nodes"][0]["loaders"], plain_details(result)["nodes"][0]["training_processes"]) == (5, 2)
    assert "Set `num_workers=8` for each of the 2 training processes" in (result.recommendation or "")
    assert [(row["num_workers"], row["count"]) for row in plain_details(result)["configurations"]] == [(2, 2), (3, 1)]


def test_workers_that_repeat_their_number_are_not_added(make_store: MakeStore) -> None:
    rows = loads(11) + configured(4)
    for worker in range(4):
        [row] = configured(4, process=1 + worker)
        arguments = json.dumps({"num_workers": 4, "worker_id": worker, "prefetch_factor": None, "pin_memory": None})
        rows.append({**row, "phase": "DataLoaderWorker", "arguments": arguments})
    processes = [{"id": i, "node": 0, "pid": i, "rank": None} for i in range(5)]
    result, _ = judged(make_store(nodes=machine(4), processes=processes, annotation=rows))
    assert plain_details(result)["nodes"][0]["loaders"] == 4


@pytest.mark.parametrize(("processes", "cores", "workers", "wanted"), [(2, 3, 1, 2), (8, 2, 1, 0), (4, 8, 8, 2), (1, 4, 2, 4)])
def test_the_number_that_is_recommended_is_no_issue(make_store: MakeStore, processes: int, cores: int, workers: int, wanted: int) -> None:
    rows = loads(11)
    for process in range(processes):
        rows += configured(workers, process=process)
    process_rows = [{"id": i, "node": 0, "pid": i, "rank": i} for i in range(processes)]
    result, _ = judged(make_store(nodes=machine(cores), processes=process_rows, annotation=rows))
    assert result.verdict == "IssuesFound"
    assert (result.recommendation or "").startswith(f"Set `num_workers={wanted}`")
    assert wanted != workers
    assert wanted == 0 or 70 <= 100 * processes * wanted / cores <= 200


def test_without_cores(make_store: MakeStore) -> None:
    result, _ = judged(make_store(nodes=machine(None), annotation=loads(11) + configured(2)))
    assert (result.verdict, result.reason) == ("NotEvaluated", "the number of cores of the node is unknown")
    assert result.capture
    sample = [{"node": 0, "metric": "cpu_utilization", "unit": unit, "time_ns": 0, "value": 1.0} for unit in range(4)]
    result, _ = judged(make_store(nodes=machine(None), annotation=loads(11) + configured(2), sample=sample))
    assert (result.verdict, plain_details(result)["nodes"][0]["cores"]) == ("IssuesFound", 4)  # those that were sampled


def test_waits_for_workers_do_not_tell_how_many_there_are(make_store: MakeStore) -> None:
    result, _ = judged(make_store(nodes=machine(16), host_event=waits(20, MULTI)))
    assert result.verdict == "NotEvaluated"
    assert "num_workers" in (result.reason or "")
    assert (plain_details(result)["nodes"][0]["loaders"], plain_details(result)["loading"]["count"]) == (None, 20)


def test_a_training_process_that_loads_itself_is_one_loader(make_store: MakeStore) -> None:
    result, _ = judged(make_store(nodes=machine(16), host_event=waits(20, SINGLE)))
    [row] = plain_details(result)["nodes"]
    assert (result.verdict, row["loaders"], row["source"], row["percent_of_cores"]) == ("IssuesFound", 1, "num_workers", 6.25)


def test_cost_is_what_the_steps_wait(make_store: MakeStore) -> None:
    # 20 steps of one second, each with a wait of a quarter of a second for the loader.
    steps = [
        {"node": 0, "process": 0, "index": i, "host_start_ns": i * SECOND, "host_duration_ns": SECOND, "device_events": 0}
        for i in range(20)
    ]
    result, [finding] = judged(make_store(nodes=machine(16), host_event=waits(20, SINGLE), step=steps))
    assert (finding.cost_ns, finding.cost_percent, finding.cost_per_step_ns) == (5 * SECOND, 25.0, SECOND / 4)
    assert (finding.title, finding.where, finding.base) == ("Load data with more processes", "host-0", "time of the steps")
    assert "the average step waits 250 ms for data" in (result.recommendation or "")
    _, [finding] = judged(make_store(nodes=machine(4), annotation=loads(11) + configured(2)))
    assert finding.cost_ns is None  # how long the steps waited is not recorded


@pytest.mark.parametrize(
    ("workers", "pin", "gpus", "expected"), [(4, False, 1, True), (2, False, 1, True), (4, True, 1, False), (4, False, 0, False)]
)
def test_pinned_memory_is_recommended_where_there_is_a_gpu(
    make_store: MakeStore, workers: int, gpus: int, *, pin: bool, expected: bool
) -> None:
    device = [{"node": 0, "index": index} for index in range(gpus)]
    result, _ = judged(make_store(nodes=machine(4), device=device, annotation=loads(11) + configured(workers, pin=pin)))
    assert ("`pin_memory=True`" in (result.recommendation or "")) is expected
    assert plain_details(result)["configurations"][0]["pin_memory"] is pin
    assert result.verdict == ("IssuesFound" if workers == 2 else "NoIssuesFound")


def test_each_machine_is_judged_on_its_own(make_store: MakeStore) -> None:
    nodes = [{"id": 0, "hostname": "a", "cores": 4}, {"id": 1, "hostname": "b", "cores": 4}, {"id": 2, "hostname": "c", "cores": None}]
    processes = [{"id": i, "node": i, "pid": i, "rank": i} for i in range(3)]
    rows: Rows = []
    for node, workers in enumerate((4, 1, 1)):
        rows += [{**row, "node": node, "process": node} for row in [*loads(70), *configured(workers)]]
    result, _ = judged(make_store(nodes=nodes, processes=processes, annotation=rows))
    assert [(row["node"], row["issue"]) for row in plain_details(result)["nodes"]] == [("a", False), ("b", True), ("c", None)]
    # 70 seconds are two windows of 60; only those of b are triggered.
    assert (result.datapoints, result.violations, result.triggered, result.windows, result.windows_triggered) == (210, 70, 2, 2, 2)
    assert (result.first_ns, result.last_ns) == (0, 69 * SECOND)
    assert result.finding == (
        "1 data loading process (num_workers) on 4 cores of b make 25.0% of the cores, below the threshold of 70%;"
        " 1 node could not be evaluated."
    )


def test_loading_times(make_store: MakeStore) -> None:
    rows = [{**row, "duration_ns": (i + 1) * 100} for i, row in enumerate(loads(21))]
    result, _ = judged(make_store(nodes=machine(1), annotation=rows))
    assert plain_details(result)["loading"] == {
        "count": 21, "p25_ns": 600, "p50_ns": 1100, "p95_ns": 2000, "max_ns": 2100, "total_ns": 23_100,
    }  # fmt: skip
    assert sum(plain_details(result)["histogram"]["counts"]) + plain_details(result)["histogram"]["beyond"] == 21


@pytest.mark.parametrize("seed", range(8))
def test_overlap_per_second_against_a_plain_loop(seed: int) -> None:
    rng = random.Random(seed)
    rows = []
    for _ in range(rng.randrange(1, 120)):
        start = rng.randrange(80) * SECOND // 4 if rng.random() < 0.5 else rng.randrange(20 * SECOND)
        length = rng.choice([1, SECOND // 4, SECOND, rng.randrange(1, 3 * SECOND)])
        rows.append((rng.randrange(3), rng.randrange(3), start, start + length))
    outer = [
        row
        for i, row in enumerate(rows)
        if not any(
            other[:2] == row[:2] and other[2] <= row[2] and other[3] >= row[3] and (other[2:] != row[2:] or j < i)
            for j, other in enumerate(rows)
            if j != i
        )
    ]
    expected: dict[int, int] = {}
    for _, _, start, end in outer:
        for second in range(start // SECOND, (end - 1) // SECOND + 1):
            # The largest number is reached where an interval begins, or at the beginning of the second.
            moments = [second * SECOND, *(other[2] for other in outer if other[2] // SECOND == second)]
            expected[second] = max(sum(other[2] <= moment < other[3] for other in outer) for moment in moments)
    frame = pl.DataFrame(rows, schema={"process": pl.Int32, "tid": pl.Int64, "start": pl.Int64, "end": pl.Int64}, orient="row")
    actual = dict(seconds_of(frame).rows())
    assert actual == expected
    assert statistics.median(actual.values()) >= 1


def test_processes_whose_loaders_were_not_recorded_count_like_those_whose_were(make_store: MakeStore) -> None:
    # Two of four training processes record 3 and 2 workers: (3 + 2) / 2 x 4 = 10 on 16 cores, 62.5%.
    processes = [{"id": i, "node": 0, "pid": 100 + i, "rank": i} for i in range(4)]
    steps = [{"node": 0, "process": i, "index": 0, "host_start_ns": 0, "host_duration_ns": SECOND} for i in range(4)]
    texts = configured(3) + configured(2, process=1)
    result, _ = judged(make_store(nodes=machine(16), processes=processes, step=steps, annotation=loads(11) + texts))
    [row] = plain_details(result)["nodes"]
    assert (row["loaders"], row["percent_of_cores"], row["recorded_processes"], row["training_processes"]) == (10, 62.5, 2, 4)
    assert "num_workers of 2 of 4 training processes, assumed for all" in (result.finding or "")
    assert (result.recommendation or "").startswith("Set `num_workers=4` for each of the 4 training processes")
