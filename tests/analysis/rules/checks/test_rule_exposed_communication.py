"""How much communication is exposed, on which collectives, and what is advised: figures worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl
import pytest
from empty_stores import empty_store
from hypothesis import given
from hypothesis import strategies as st
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.causes import exposed
from postrun.analysis.device import coverage
from postrun.analysis.device.coverage import with_covered
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.checks import exposed_communication
from postrun.analysis.rules.engine.selection import select
from postrun.analysis.toolkit.places import process_conditions
from postrun.ingest.store import Store
from rule_details import plain_details

NAMES = {
    "gemm": ("gemm", "FP32", "GEMM"),
    "AllReduce": ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "unknown", "communication"),
    "AllGather": ("ncclDevKernel_AllGather_RING_LL", "unknown", "communication"),
    "SendRecv": ("ncclDevKernel_SendRecv", "unknown", "communication"),
    "Broadcast": ("ncclDevKernel_Broadcast_RING_LL", "unknown", "communication"),
}


def run(start: int, end: int, name: str = "gemm", **more: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": name, "start_ns": start, "duration_ns": end - start, **more}


def judged(store: Store, **settings: float) -> tuple[RuleResult, Finding | None]:
    chosen = {f"ExposedCommunication_{name}": value for name, value in settings.items()}
    report = rules_of(store, Options(generated_at_ns=0, selection=select(["ExposedCommunication"], settings=chosen)))
    return report.rules[0], report.findings[0] if report.findings else None


def test_what_no_computation_covers_is_exposed(make_store: Callable[..., Store]) -> None:
    # computation 0..60 and 150..200; AllReduce 50..100 (exposed 60..100), AllGather 90..110 (exposed all 20); together 60..110: 50 of 200
    events = [run(0, 60), run(150, 200), run(50, 100, "AllReduce", stream=20), run(90, 110, "AllGather", stream=21)]
    result, finding = judged(make_store(names=NAMES, device_event=events))
    assert (result.verdict, result.triggered, result.violations, result.datapoints) == ("IssuesFound", 1, 1, 1)
    assert (result.windows, result.windows_triggered, result.first_ns, result.last_ns) == (1, 1, 0, 200)
    (device,) = plain_details(result)["devices"]
    assert device == {
        "node": "host-0", "rank": 0, "pid": 100, "device": 0, "span_ns": 200, "communication_ns": 60, "exposed_ns": 50,
        "exposed_percent": 25.0, "overlap_percent": pytest.approx(100 * 10 / 60), "issue": True,
    }  # fmt: skip
    assert plain_details(result)["kernels"] == [
        {"name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "count": 1, "time_ns": 50, "exposed_ns": 40},
        {"name": "ncclDevKernel_AllGather_RING_LL", "count": 1, "time_ns": 20, "exposed_ns": 20},
    ]
    assert (
        result.finding
        == "Exposed communication costs 50 ns of 200 ns, 25.0% of the profile window of rank 0, host-0 GPU 0 (threshold 10%)."
    )
    assert finding is not None
    assert (finding.cost_ns, finding.cost_percent, finding.saving_ns, finding.where) == (50, 25.0, 50, "rank 0, host-0 GPU 0")


@pytest.mark.parametrize(("exposed", "verdict"), [(100, "NoIssuesFound"), (101, "IssuesFound")])
def test_the_threshold_itself_is_no_issue(make_store: Callable[..., Store], exposed: int, verdict: str) -> None:
    events = [run(0, 1000 - exposed), run(1000 - exposed, 1000, "AllReduce", stream=20)]
    result, finding = judged(make_store(names=NAMES, device_event=events))
    assert result.verdict == verdict
    assert (finding is None) == (verdict == "NoIssuesFound")
    assert result.recommendation is None or verdict == "IssuesFound"


def test_another_threshold(make_store: Callable[..., Store]) -> None:
    events = [run(0, 900), run(900, 1000, "AllReduce", stream=20)]
    assert judged(make_store(names=NAMES, device_event=events), threshold=9.9)[0].verdict == "IssuesFound"


def test_runs_of_one_name_at_the_same_time_count_once(make_store: Callable[..., Store]) -> None:
    # AllReduce 0..50 and 20..80 on two streams: summed 110, union 80, computed during 60..80; Broadcast 90..100
    events = [run(0, 50, "AllReduce", stream=1), run(20, 80, "AllReduce", stream=2), run(60, 80), run(90, 100, "Broadcast", stream=1)]
    result, _ = judged(make_store(names=NAMES, device_event=events))
    assert [(k["count"], k["time_ns"], k["exposed_ns"]) for k in plain_details(result)["kernels"]] == [(2, 110, 60), (1, 10, 10)]
    # The only name there is: the same figures
    result, _ = judged(make_store(names=NAMES, device_event=events[:3]))
    assert [(k["count"], k["time_ns"], k["exposed_ns"]) for k in plain_details(result)["kernels"]] == [(2, 110, 60)]


def ranks(*spans: tuple[int, int], step: bool = False) -> dict[str, list[dict[str, Any]]]:
    """Return ranks that compute and then are in an all-reduce, one per pair of times.

    GPU and node by rank, two ranks per node."""
    events, processes, nodes, steps = [], [], [], []
    for rank, (computes, waits) in enumerate(spans):
        keys: dict[str, Any] = {"node": rank // 2, "process": rank, "device": rank % 2}
        events += [run(0, computes, **keys), run(computes, computes + waits, "AllReduce", stream=20, **keys)]
        processes.append({"id": rank, "node": rank // 2, "pid": 100 + rank, "rank": rank})
        if rank % 2 == 0:
            nodes.append({"id": rank // 2, "hostname": f"host-{rank // 2}"})
        if step:
            steps += [
                {
                    "node": rank // 2, "process": rank, "index": index, "host_start_ns": 20 * index, "host_duration_ns": 10,
                    "device_start_ns": 20 * index, "device_duration_ns": 20, "device_events": 1,
                }
                for index in range((computes + waits) // 20)
            ]  # fmt: skip
    return {"device_event": events, "processes": processes, "nodes": nodes, **({"step": steps} if step else {})}


def test_devices_are_judged_one_by_one(make_store: Callable[..., Store]) -> None:
    result, finding = judged(make_store(names=NAMES, **ranks((90, 10), (60, 40), (95, 5), (80, 20), step=True)))
    assert [device["issue"] for device in plain_details(result)["devices"]] == [False, True, False, True]
    assert (result.triggered, result.datapoints) == (2, 4)
    assert finding is not None
    # Of all four, 10 + 40 + 5 + 20 of 400 ns; all within the 5 steps of each of the four. 60 are of the two.
    assert (finding.cost_ns, finding.cost_percent, finding.cost_per_step_ns, finding.saving_ns) == (75, 18.75, 75 / 20, 60)
    assert finding.where == "2 of 4 GPUs, most on rank 1, host-0 GPU 1"
    assert result.finding == (
        "Exposed communication costs 75 ns, 18.8% of the GPU time in the profile window; 2 of 4 GPUs are above the threshold of 10%, the"
        " highest on rank 1, host-0 GPU 1 (40.0%)."
    )


def test_one_of_many_and_none_of_many(make_store: Callable[..., Store]) -> None:
    result, _ = judged(make_store(names=NAMES, **ranks((90, 10), (60, 40), (95, 5))))
    assert result.finding is not None
    assert result.finding.endswith(
        "18.3% of the GPU time in the profile window; of 3 GPUs, only rank 1, host-0 GPU 1 (40.0%) is above the threshold of 10%."
    )
    result, finding = judged(make_store(names=NAMES, **ranks((90, 10), (95, 5))))
    assert (result.verdict, finding) == ("NoIssuesFound", None)
    assert result.finding == (
        "Exposed communication costs at most 10 ns of 100 ns, 10.0% of the profile window of one GPU (rank 0, host-0 GPU 0; threshold 10%)."
    )


def test_no_more_can_be_saved_than_there_is_free_computation(make_store: Callable[..., Store]) -> None:
    # 30 ns of computation, 20 of them already hide communication: 10 are left to hide some of the 70 that are exposed
    events = [run(0, 30), run(10, 100, "AllReduce", stream=20)]
    _, finding = judged(make_store(names=NAMES, device_event=events))
    assert finding is not None
    assert (finding.cost_ns, finding.saving_ns) == (70, 10)


def test_nothing_to_look_at(make_store: Callable[..., Store]) -> None:
    result, _ = judged(make_store(names=NAMES, device_event=[run(0, 10)]))
    assert (result.verdict, result.reason) == ("NotEvaluated", "no collective kernels in this run")
    result, _ = judged(make_store())
    assert (result.verdict, result.reason) == ("NotEvaluated", "no device activity in this run")
    assert result.capture


def test_groups_of_processes_give_the_same(make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch) -> None:
    tables = ranks((90, 10), (60, 40), (95, 5), (80, 20))
    for rank in range(4):  # 10 ns of another collective, with computation in the last 5
        keys: dict[str, Any] = {"node": rank // 2, "process": rank, "device": rank % 2}
        tables["device_event"] += [run(100, 110, "AllGather", stream=21, **keys), run(105, 120, **keys)]
    store = make_store(names=NAMES, **tables)
    complete, _ = judged(store)
    for module in (exposed_communication, exposed, coverage):
        monkeypatch.setattr(module, "process_conditions", partial(process_conditions, rows=1))
    assert len(process_conditions(store, rows=1)) == 4
    divided, _ = judged(store)
    assert plain_details(divided) == plain_details(complete)
    assert [kernel["exposed_ns"] for kernel in plain_details(complete)["kernels"]] == [75, 20]


TICK = 300_000  # ns: a few ticks make one bucket of those by which kernels near the stretches are read
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 1)), max_size=12)


@given(kernels=SPANS, stretches=SPANS)
def test_coverage_is_what_counting_every_tick_gives(kernels: Any, stretches: Any) -> None:
    with empty_store() as store:
        ids = dict(zip(("copy", "gemm"), store.name_ids(["copy", "gemm"]), strict=True))
        rows = [(0, 0, device, "kernel", ids["gemm"], start * TICK, length * TICK) for start, length, device in kernels]
        rows += [(0, 0, device, "memcpy", ids["copy"], start * TICK, length * TICK) for start, length, device in stretches]
        columns = {"node": pl.Int32, "process": pl.Int32, "device": pl.Int32, "kind": pl.String, "name": pl.Int32}
        store.append("device_event", pl.DataFrame(rows, schema={**columns, "start_ns": pl.Int64, "duration_ns": pl.Int64}, orient="row"))
        asked = pl.DataFrame(
            [(0, 0, device, start * TICK, (start + length) * TICK, number) for number, (start, length, device) in enumerate(stretches)],
            schema={
                "node": pl.Int32, "process": pl.Int32, "device": pl.Int32, "start": pl.Int64, "end": pl.Int64, "number": pl.Int64,
            },
            orient="row",
        )  # fmt: skip
        near = with_covered(store, asked, "kernel", times="e.kind = 'memcpy'") if stretches else asked.with_columns(covered=0)
        actual = with_covered(store, asked, "computation").sort("number")["covered"].to_list()
    busy = [{t for start, length, on in kernels if on == device for t in range(start, start + length)} for device in (0, 1)]
    expected = [TICK * sum(t in busy[device] for t in range(start, start + length)) for start, length, device in stretches]
    assert actual == expected
    assert near.sort("number")["covered"].to_list() == expected


def test_a_pipeline_that_is_in_use_is_not_recommended(make_store: Callable[..., Store]) -> None:
    events = [run(0, 60), run(60, 100, "SendRecv", correlation=7)]
    exchange = [
        {"kind": "operator", "name": "All2All_Pooled_Req", "start_ns": 0, "duration_ns": 5},
        {"kind": "launch", "name": "cudaLaunchKernel", "start_ns": 2, "duration_ns": 1, "correlation": 7},
    ]
    record = {"node": 0, "process": 0, "on_device": True, "start_ns": 60, "duration_ns": 40, "correlation": 7, "operation": "all_to_all"}
    more: dict[str, Any] = {"host_event": exchange, "collective": [record]}
    plain, _ = judged(make_store(names=NAMES, device_event=events, **more))
    assert "`TrainPipelineSparseDist`" in str(plain.recommendation)
    ranges = [{"side": "host", "name": "## wait_sparse_data_dist ##", "start_ns": 0, "duration_ns": 5}]
    piped, finding = judged(make_store(names=NAMES, device_event=events, annotation=ranges, **more))
    assert "TrainPipelineSparseDist" not in str(piped.recommendation)
    assert "the next batch is already exchanged ahead" in str(piped.recommendation)
    assert finding is not None
    assert finding.title == "Reduce exposed all-to-all time"
