"""How much time goes into pageable copies, and what of it could be saved: figures worked out on paper."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest import ingest
from postrun.ingest.store import Store
from rule_details import plain_details

NAMES = {"gemm": ("gemm", "FP32", "GEMM"), "AllReduce": ("ncclAllReduce", "unknown", "communication")}
MIB = 1024 * 1024


def copy(start: int, end: int, kind: str = "HtoD", *, pageable: bool | None = True, size: int = 10, **more: Any) -> dict[str, Any]:
    return {
        "kind": "memcpy", "name": "Memcpy", "start_ns": start, "duration_ns": end - start, "copy_kind": kind, "pageable": pageable,
        "bytes": size, **more,
    }  # fmt: skip


def run(start: int, end: int, name: str = "gemm", **more: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": name, "start_ns": start, "duration_ns": end - start, **more}


def judged(store: Store, **settings: float) -> tuple[RuleResult, Finding | None]:
    chosen = {f"PageableCopies_{name}": value for name, value in settings.items()}
    report = rules_of(store, Options(generated_at_ns=0, selection=select(["PageableCopies"], settings=chosen)))
    return report.rules[0], report.findings[0] if report.findings else None


def test_union_and_exposed_part(make_store: Callable[..., Store]) -> None:
    # pageable 0..40 and 20..60 (union 60), under computation 50..100 and a collective 30..35: 45 exposed. Span 200.
    events = [
        copy(0, 40, size=20 * MIB), copy(20, 60, stream=8, size=20 * MIB), copy(190, 200, pageable=False, size=30 * MIB),
        run(50, 100), run(30, 35, "AllReduce", stream=20),
    ]  # fmt: skip
    result, finding = judged(make_store(names=NAMES, device_event=events))
    assert (result.verdict, result.triggered, result.datapoints) == ("IssuesFound", 1, 1)
    assert plain_details(result)["devices"] == [
        {
            "node": "host-0", "rank": 0, "pid": 100, "device": 0, "span_ns": 200, "pageable_ns": 60, "percent": 30.0, "exposed_ns": 45,
            "issue": True, "caused_idle_ns": 0,
        }
    ]  # fmt: skip
    assert plain_details(result)["copies"] == [
        {
            "kind": "HtoD", "count": 2, "time_ns": 80, "bytes": 40 * MIB, "bandwidth_gb_per_s": 40 * MIB / 80,
            "pinned_bandwidth_gb_per_s": 30 * MIB / 10,
        }
    ]  # fmt: skip
    assert result.finding == (
        "Copies from or to pageable host memory take 60 ns of 200 ns, 30.0% of the profile window of rank 0, host-0 GPU 0 (threshold 1%)."
    )
    assert finding is not None
    assert (finding.cost_ns, finding.cost_percent, finding.saving_ns) == (60, 30.0, 45)
    assert result.recommendation is not None
    assert "`DataLoader(..., pin_memory=True)`" in result.recommendation
    assert "where pinned memory reached" in result.recommendation


@pytest.mark.parametrize(("length", "verdict"), [(10, "NoIssuesFound"), (11, "IssuesFound")])
def test_the_threshold_itself_is_no_issue(make_store: Callable[..., Store], length: int, verdict: str) -> None:
    assert judged(make_store(names=NAMES, device_event=[copy(0, length), run(500, 1000)]))[0].verdict == verdict


def test_copies_to_the_host(make_store: Callable[..., Store]) -> None:
    result, _ = judged(make_store(names=NAMES, device_event=[copy(0, 50, "DtoH"), copy(60, 70), run(70, 100)]))
    assert result.recommendation is not None
    assert result.recommendation.startswith("Keep the results on the device")
    assert "GB/s" not in result.recommendation  # 10 bytes show no bandwidth
    assert [copies["kind"] for copies in plain_details(result)["copies"]] == ["DtoH", "HtoD"]
    assert [copies["pinned_bandwidth_gb_per_s"] for copies in plain_details(result)["copies"]] == [None, None]


def test_devices_are_judged_one_by_one(make_store: Callable[..., Store]) -> None:
    # device 0: 5 of 100; device 1: pinned only; device 2: no copy has a known kind, so it is not evaluated
    events = [copy(0, 5), run(5, 100), copy(0, 50, pageable=False, device=1), run(50, 100, device=1)]
    events += [copy(0, 90, "DtoD", pageable=None, device=2), run(90, 100, device=2)]
    result, finding = judged(make_store(names=NAMES, device_event=events))
    assert [(d["pageable_ns"], d["issue"]) for d in plain_details(result)["devices"]] == [(5, True), (0, False), (None, None)]
    assert (result.triggered, result.datapoints) == (1, 2)
    assert finding is not None
    assert finding.cost_ns == 5
    assert finding.cost_percent == pytest.approx(5 / 3)
    assert finding.where == "rank 0, host-0 GPU 0"


def test_all_pinned_is_fine(make_store: Callable[..., Store]) -> None:
    result, finding = judged(make_store(names=NAMES, device_event=[copy(0, 50, pageable=False), run(50, 100)]))
    assert (result.verdict, finding, plain_details(result)["copies"], result.recommendation) == ("NoIssuesFound", None, [], None)
    assert result.finding == (
        "Copies from or to pageable host memory take 0 ns of 100 ns, 0% of the profile window of rank 0, host-0 GPU 0 (threshold 1%)."
    )


def test_nothing_to_look_at(make_store: Callable[..., Store]) -> None:
    assert judged(make_store())[0].reason == "no device activity in this run"
    result, _ = judged(make_store(names=NAMES, device_event=[run(0, 9), copy(9, 20, "DtoD", pageable=None)]))
    assert (result.verdict, result.reason) == ("NotEvaluated", "no copies between host and device in this run")
    result, _ = judged(make_store(device_event=[copy(0, 10, pageable=None), copy(10, 20, pageable=None)]))
    assert result.reason == "the trace does not say of any of the 2 copies between host and device whether its host memory was pageable"
    assert result.capture


def test_cost_per_step(make_store: Callable[..., Store]) -> None:
    steps = [
        {
            "node": 0, "process": 0, "index": index, "host_start_ns": 50 * index, "host_duration_ns": 50, "device_start_ns": 50 * index,
            "device_duration_ns": 50, "device_events": 2,
        }
        for index in range(2)
    ]  # fmt: skip
    _, finding = judged(make_store(names=NAMES, step=steps, device_event=[copy(0, 10), run(10, 50), copy(50, 64), run(64, 100)]))
    assert finding is not None
    assert (finding.cost_ns, finding.cost_per_step_ns) == (24, 12.0)


def test_how_long_the_calls_held_the_host(make_store: Callable[..., Store]) -> None:
    def call(start: int, end: int, correlation: int, **more: Any) -> dict[str, Any]:
        return {
            "kind": "launch", "name": "cudaMemcpyAsync", "start_ns": start, "duration_ns": end - start, "correlation": correlation, **more,
        }  # fmt: skip

    events = [copy(300, 302, "DtoH", correlation=1), copy(302, 303, "DtoH", correlation=2), copy(400, 405, pageable=False, correlation=3)]
    calls = [call(50, 302, 1), call(200, 303, 2, tid=2), call(310, 390, 3), call(0, 10, 9)]
    result, _ = judged(make_store(names=NAMES, device_event=[run(0, 10_000), *events], host_event=calls))
    # 252 on one thread and 103 on another; the pinned copy and the call without a copy do not count
    assert (result.verdict, plain_details(result)["host_calls"], plain_details(result)["host_blocked_ns"]) == ("NoIssuesFound", 2, 355)
    assert str(result.finding).endswith(" The host was in 2 calls of such copies for 355 ns; they return when the data is there.")
    # With an issue the text is part of the advice: 40 of 1,000 are above the threshold.
    result, _ = judged(make_store(names=NAMES, device_event=[run(0, 1000), copy(300, 340, "DtoH", correlation=1)], host_event=calls[:1]))
    assert result.verdict == "IssuesFound"
    assert "The host was in" not in str(result.finding)
    assert str(result.recommendation).endswith(" The host was in 1 call of such copies for 252 ns; they return when the data is there.")


def test_the_calls_of_a_real_trace(shared_data: Path) -> None:
    trace = shared_data / "kineto" / "diff_pair" / "a100_rank3_of_8.json.gz"
    if not trace.exists():
        pytest.skip(f"no such trace: {trace}")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    pageable = {e["args"]["correlation"] for e in events if e.get("cat") == "gpu_memcpy" and "Pageable" in e["name"]}
    calls = [e for e in events if e.get("cat") == "cuda_runtime" and e["args"].get("correlation") in pageable]
    with ingest([trace]) as store:
        result, _ = judged(store)
    # no two of these calls overlap on one thread
    assert (plain_details(result)["host_calls"], plain_details(result)["host_blocked_ns"]) == (
        len(calls),
        sum(round(e["dur"] * 1000) for e in calls),
    )
    assert "75.7 ms" in str(result.finding)


def call(start: int, end: int, correlation: int, name: str = "cudaMemcpyAsync", **more: Any) -> dict[str, Any]:
    return {"kind": "launch", "name": name, "start_ns": start, "duration_ns": end - start, "correlation": correlation, **more}


def frame(start: int, end: int, name: str) -> dict[str, Any]:
    return {"kind": "python", "name": name, "start_ns": start, "duration_ns": end - start}


def blocked_job(kind: str = "HtoD", length: int = 50) -> dict[str, Any]:
    """Return a copy whose call blocks from 100 to 500; the next launch returns at 800.

    The call causes 300 of idle time, of a span of 2000."""
    events = [run(0, 450, correlation=1), copy(500 - length, 500, kind, correlation=2), run(800, 2000, correlation=3)]
    calls = [
        call(0, 10, 1, "cudaLaunchKernel"),
        call(100, 500, 2),
        call(790, 800, 3, "cudaLaunchKernel"),
        frame(90, 600, "train.py(7): step"),
    ]
    return {"names": NAMES, "device_event": events, "host_event": calls}


def test_an_upload_is_charged_with_the_idle_time_that_its_call_causes(make_store: Callable[..., Store]) -> None:
    result, finding = judged(make_store(**blocked_job()))
    assert finding is not None
    assert (finding.cost_ns, finding.saving_ns) == (350, 350)  # a copy of 50 that no kernel covers, and the wait of 300
    assert str(result.finding).endswith(" Calls that copy to the device caused another 300 ns of idle time.")
    assert str(result.recommendation).endswith(" The costliest call comes from `train.py(7): step`.")
    details = plain_details(result)
    assert ([row["caused_idle_ns"] for row in details["devices"]], details["site"]) == ([300], "train.py(7): step")


def test_a_read_is_not_charged_because_pinned_memory_waits_as_well(make_store: Callable[..., Store]) -> None:
    result, finding = judged(make_store(**blocked_job("DtoH")))
    assert finding is not None
    assert (finding.cost_ns, finding.saving_ns, plain_details(result)["devices"][0]["caused_idle_ns"]) == (50, 50, 0)


@pytest.mark.parametrize(
    ("kind", "length", "explained"),
    [
        ("HtoD", 50, {"PageableCopies": None, "SyncBound": "PageableCopies"}),  # pinned memory removes the idle time
        ("DtoH", 50, {"PageableCopies": None, "SyncBound": None}),  # 50 of copy, 300 of idle time: no time is in both
        ("HtoD", 10, {"SyncBound": None}),  # 0.5% of the time is in the copy: the call alone costs
    ],
)
def test_idle_time_of_blocking_copies_has_one_lead(
    make_store: Callable[..., Store], kind: str, length: int, explained: dict[str, str | None]
) -> None:
    selection = select(["PageableCopies", "SyncBound"])
    report = rules_of(make_store(**blocked_job(kind, length)), Options(generated_at_ns=0, selection=selection))
    assert {finding.rule: finding.explained_by for finding in report.findings} == explained
    if length == 10:
        assert str(report.findings[0].recommendation).startswith("Copy to the device from pinned memory (")


def test_uploads_that_cause_the_smaller_part_are_folded(make_store: Callable[..., Store]) -> None:
    """A synchronization causes 400 more, so that the uploads have 300 of 700."""
    job = blocked_job()
    job["device_event"] += [run(2400, 2500, correlation=5)]
    job["host_event"] += [
        {"kind": "sync", "name": "cudaDeviceSynchronize", "start_ns": 1500, "duration_ns": 500},
        call(2390, 2400, 5, "cudaLaunchKernel"),
    ]
    report = rules_of(make_store(**job), Options(generated_at_ns=0, selection=select(["PageableCopies", "SyncBound"])))
    assert {finding.rule: finding.explained_by for finding in report.findings} == {"SyncBound": None, "PageableCopies": "SyncBound"}


@pytest.mark.parametrize(
    ("mib", "frame", "title", "words"),
    [
        (30, "diffusers/pipelines/flux/pipeline_flux.py(620): __call__", "Keep weights on the GPU", "enable_model_cpu_offload"),
        (3, "diffusers/pipelines/flux/pipeline_flux.py(620): __call__", "Use pinned memory for host-to-device copies", "pin_memory"),
        (30, "train.py(3): step", "Use pinned memory for host-to-device copies", "DataLoader"),
    ],
)
def test_large_copies_of_inference_are_weights(make_store: Callable[..., Store], mib: int, frame: str, title: str, words: str) -> None:
    """Inputs of inference are small; batches of training may be large."""
    names = ["aten::addmm"] * 10 + ["aten::gelu"] + ["aten::relu_backward"] * ("train" in frame)
    calls = [{"kind": "operator", "name": name, "start_ns": 0, "duration_ns": 1} for name in names]
    calls.append({"kind": "python", "name": frame, "start_ns": 0, "duration_ns": 1})
    store = make_store(names=NAMES, device_event=[copy(0, 100, size=mib * MIB), run(100, 200)], host_event=calls)
    _, finding = judged(store)
    assert finding is not None
    assert finding.title == title
    assert words in (finding.recommendation or "")
