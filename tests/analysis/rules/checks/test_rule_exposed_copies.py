"""Copies that no kernel covers, and the copies of DDP's buckets: figures worked out on paper."""

from __future__ import annotations

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

MakeStore = Callable[..., Store]
NAMES = {"gemm": ("gemm", "FP32", "GEMM"), "AllReduce": ("ncclAllReduce", "unknown", "communication")}
MS = 1_000_000
MIB = 2**20
BUCKET = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


def copy(start: int, end: int, kind: str = "HtoD", *, pageable: bool | None = False, size: int | None = MIB, **more: Any) -> dict[str, Any]:
    return {
        "kind": "memcpy", "name": f"Memcpy {kind}", "start_ns": start * MS, "duration_ns": (end - start) * MS, "copy_kind": kind,
        "pageable": pageable, "bytes": size, **more,
    }  # fmt: skip


def run(start: int, end: int, name: str = "gemm", **more: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": name, "start_ns": start * MS, "duration_ns": (end - start) * MS, **more}


def host(kind: str, start: int, end: int, name: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "start_ns": start * MS, "duration_ns": (end - start) * MS, **more}


def gpu(name: str = "NVIDIA A100-SXM4-80GB") -> list[dict[str, Any]]:
    return [{"node": 0, "index": 0, "name": name}]


def evaluated(store: Store, *rules: str) -> tuple[RuleResult, Finding | None]:
    report = rules_of(store, Options(generated_at_ns=0, selection=select(["ExposedCopies", *rules])))
    result = next(rule for rule in report.rules if rule.rule == "ExposedCopies")
    return result, next((finding for finding in report.findings if finding.rule == "ExposedCopies"), None)


def test_pinned_copies_that_nothing_overlaps(make_store: MakeStore) -> None:
    # Copies 0..30 and 20..40 on two streams, kernels 35..100: 35 of 100 exposed. Of 50 of copies, kernels cover 5.
    events = [copy(0, 30, size=480 * MIB, correlation=1), copy(20, 40, size=320 * MIB, stream=9), run(35, 100)]
    calls = [host("launch", 0, 1, "cudaMemcpyAsync", correlation=1), host("python", 0, 2, "train.py(7): load")]
    result, finding = evaluated(make_store(names=NAMES, device=gpu(), device_event=events, host_event=calls))
    assert finding is not None
    assert (result.triggered, finding.cost_ns, finding.saving_ns, finding.saving_kind) == (1, 35 * MS, 35 * MS, "upper_bound")
    assert finding.title == "Copy to the device while kernels run"
    assert result.finding == (
        "Copies and memsets that no kernel covers take 35.0 ms of 100 ms, 35.0% of the profile window of rank 0, host-0 GPU 0"
        " (threshold 10%)."
    )
    assert plain_details(result)["copies"] == [
        {
            "kind": "HtoD", "memory": "pinned", "operator": None, "count": 2, "bytes": 800 * MIB, "time_ns": 50 * MS,
            "exposed_ns": 45 * MS, "bandwidth_gb_per_s": 800 * MIB / (50 * MS), "link_gb_per_s": 32, "site": "train.py(7): load",
        }
    ]  # fmt: skip
    assert finding.recommendation == (
        "Keep on the GPU what is copied in every step, and copy the rest on a stream of its own while kernels run, because 2 pinned HtoD"
        " copies (800 MiB, 400 MiB each) took"
        " 50.0 ms, and kernels cover 10.0% of that. The longest comes from `train.py(7): load`. Copies from 1 MiB reach 16.8 GB/s, 52.4%"
        " of the 32 GB/s of PCIe."
    )


@pytest.mark.parametrize(("end", "verdict"), [(10, "NoIssuesFound"), (11, "IssuesFound")])
def test_the_threshold_is_strict(make_store: MakeStore, end: int, verdict: str) -> None:
    result, _ = evaluated(make_store(names=NAMES, device_event=[copy(0, end), run(end, 100)]))
    assert result.verdict == verdict


def test_copies_under_kernels_are_no_issue(make_store: MakeStore) -> None:
    result, _ = evaluated(make_store(names=NAMES, device_event=[run(0, 100), copy(0, 60, stream=9), run(90, 100, "AllReduce", stream=8)]))
    assert (result.verdict, plain_details(result)["devices"][0]["exposed_ns"]) == ("NoIssuesFound", 0)


@pytest.mark.parametrize(
    ("events", "title", "says"),
    [
        ([copy(0, 60, size=60 * 10 * MIB), run(60, 80)], "Copy less to the device", "Kernels run for 20.0 ms: they can hide no more"),
        ([copy(0, 40, size=40 * 10 * MIB), run(40, 80)], "Copy to the device while kernels run", "32.8% of the 32 GB/s of PCIe. Check"),
        ([copy(0, 40, "DtoD", pageable=None), run(40, 80)], "Avoid copies within the device", "1 DtoD copy (1.00 MiB) took"),
        ([copy(0, 40, "DtoH", pageable=True), run(40, 80)], "Use pinned memory for copies", "Keep the results on the device"),
        ([copy(0, 40, size=None), run(40, 80)], "Copy to the device while kernels run", "1 pinned HtoD copy took 40.0 ms"),
    ],
)
def test_the_advice_follows_the_longest_exposed_copies(make_store: MakeStore, events: list[Any], title: str, says: str) -> None:
    _, finding = evaluated(make_store(names=NAMES, device=gpu(), device_event=[*events, copy(80, 81, "PtoP")]))
    assert finding is not None
    assert (finding.title, says in str(finding.recommendation)) == (title, True), finding.recommendation


@pytest.mark.parametrize("name", ["NVIDIA GH200 480GB", "AMD Instinct MI250X", "NVIDIA GeForce RTX 4090", None])
def test_an_unknown_link_is_not_compared(make_store: MakeStore, name: str | None) -> None:
    result, finding = evaluated(make_store(names=NAMES, device=gpu(name) if name else [], device_event=[copy(0, 50), run(50, 99)]))
    assert finding is not None
    assert plain_details(result)["copies"][0]["link_gb_per_s"] is None
    assert "PCIe" not in str(finding.recommendation)


def test_copies_in_ranges_of_fsdp_are_its_offload(make_store: MakeStore) -> None:
    calls = [host("launch", 1, 2, "cudaMemcpyAsync", correlation=1)]
    ranges = [{"side": "host", "name": "FSDP::pre_forward (layers.3)", "start_ns": 0, "duration_ns": 5 * MS, "process": 0, "tid": 1}]
    store = make_store(names=NAMES, device_event=[copy(0, 50, correlation=1), run(50, 99)], host_event=calls, annotation=ranges)
    _, finding = evaluated(store)
    assert finding is not None
    assert finding.title == "Keep the parameters on the device"


def ranges(*names: str) -> list[dict[str, Any]]:
    return [{"side": "host", "name": name, "start_ns": 0, "duration_ns": 1} for name in names]


REPLAY = [{"kind": "launch", "name": "cudaGraphLaunch", "start_ns": 0, "duration_ns": 1}]
TRAINING = ranges("Optimizer.step#SGD.step")


@pytest.mark.parametrize(
    ("annotations", "calls", "kind", "words", "absent"),
    [
        (ranges("FSDP::pre_forward (layers.0)"), [], "HtoD", "CPUOffload", "offload_param"),
        (ranges("DeepSpeedEngine.forward"), [], "HtoD", "offload_param", "CPUOffload"),
        (ranges("step[DECODE bs=4 toks=4]"), [], "HtoD", "--cpu-offload-gb", "torch.cuda.stream"),
        (TRAINING, [], "HtoD", "torch.cuda.stream", "Offload"),
        (TRAINING, [], "DtoD", "contiguous", "torch.cuda.stream"),
        ([], REPLAY, "DtoD", "CUDA graphs", "offload"),
        ([], [], "PtoP", "between GPUs", "offload"),
    ],
)
def test_advice_follows_copy_and_program(
    make_store: MakeStore, annotations: list[dict[str, Any]], calls: list[dict[str, Any]], kind: str, words: str, absent: str
) -> None:
    work = [copy(0, 100, kind, pageable=False if kind == "HtoD" else None), run(100, 200)]
    operator = {"kind": "operator", "name": "aten::mm", "start_ns": 0, "duration_ns": 1}
    _, finding = evaluated(make_store(names=NAMES, device_event=work, annotation=annotations, host_event=[operator, *calls]))
    assert finding is not None
    assert words in str(finding.recommendation)
    assert absent not in str(finding.recommendation)
    assert f"{kind} copy" in str(finding.recommendation)


def test_a_kernel_of_a_collective_covers_and_memsets_count(make_store: MakeStore) -> None:
    # HtoD 0..40 and 20..60 on two streams, a kernel 30..35, a collective 50..100, DtoD 100..120, a memset 120..124, end at 200:
    # exposed 0..30, 35..50 and 100..124. On their streams 30 + 5 of the first copy, and 10 + 15 of the second, have no kernel.
    events = [
        copy(0, 40), copy(20, 60, stream=8), run(30, 35), run(50, 100, "AllReduce", stream=20), copy(100, 120, "DtoD", pageable=None),
        {"kind": "memset", "name": "Memset (Device)", "start_ns": 120 * MS, "duration_ns": 4 * MS, "bytes": 8}, run(199, 200),
    ]  # fmt: skip
    result, finding = evaluated(make_store(names=NAMES, device_event=events))
    assert finding is not None
    assert (finding.cost_ns, finding.saving_percent) == (69 * MS, 34.5)
    rows = [tuple(row[key] for key in ("kind", "memory", "count", "time_ns", "exposed_ns")) for row in plain_details(result)["copies"]]
    assert rows == [("HtoD", "pinned", 2, 80 * MS, 60 * MS), ("DtoD", None, 1, 20 * MS, 20 * MS), ("Memset", None, 1, 4 * MS, 4 * MS)]


def bucket_job(length: int) -> dict[str, Any]:
    """Return a copy of DDP's buckets of ``length`` of 1000 ms, and another of 5 ms."""
    events = [run(0, 500), copy(500, 500 + length, "DtoD", pageable=None, correlation=1), copy(600, 605, "DtoD", correlation=2)]
    calls = [
        host("operator", 10, 20, BUCKET), host("operator", 11, 19, "aten::copy_"), host("launch", 12, 13, "cudaMemcpyAsync", correlation=1),
        host("operator", 30, 40, "aten::cat"), host("launch", 32, 33, "cudaMemcpyAsync", correlation=2),
    ]  # fmt: skip
    return {"names": NAMES, "device_event": [*events, run(605, 1000)], "host_event": calls}


@pytest.mark.parametrize(("length", "verdict"), [(10, "NoIssuesFound"), (11, "IssuesFound")])
def test_copies_of_the_buckets_of_ddp_are_named(make_store: MakeStore, length: int, verdict: str) -> None:
    result, finding = evaluated(make_store(**bucket_job(length)))
    assert result.verdict == verdict
    assert str(result.finding).endswith(
        f" DDP copies gradients out of its buckets for {length}.0 ms, 1.{length - 10}% (threshold 1%);"
        " `DistributedDataParallel(..., gradient_as_bucket_view=True)` makes that needless."
    )
    (device,) = plain_details(result)["devices"]
    assert (device["exposed_ns"], device["bucket_ns"]) == ((length + 5) * MS, length * MS)
    assert plain_details(result)["copies"][0]["operator"] == BUCKET
    if finding is not None:
        assert (finding.title, finding.cost_ns) == ("Keep the gradients in the buckets of DDP", 11 * MS)


def test_without_the_operator_of_ddp_no_bucket_is_named(make_store: MakeStore) -> None:
    job = bucket_job(11)
    job["host_event"] = [event for event in job["host_event"] if event["name"] != BUCKET]
    result, _ = evaluated(make_store(**job))
    assert (result.verdict, "DDP" in str(result.finding), plain_details(result)["copies"]) == ("NoIssuesFound", False, [])


@pytest.mark.parametrize(("pageable", "explained"), [(40, "PageableCopies"), (10, None)])
def test_pageable_copies_explain_exposed_ones(make_store: MakeStore, pageable: int, explained: str | None) -> None:
    """Of 50 exposed, 40 or 10 are pageable."""
    events = [copy(0, pageable, pageable=True), copy(pageable, 50), run(50, 100)]
    _, finding = evaluated(make_store(names=NAMES, device_event=events), "PageableCopies")
    assert finding is not None
    assert finding.explained_by == explained


def test_not_evaluated(make_store: MakeStore) -> None:
    assert evaluated(make_store())[0].reason == "no device activity in this run"
    assert evaluated(make_store(names=NAMES, device_event=[run(0, 5)]))[0].reason == "no copies and memsets in this run"
    assert evaluated(make_store(device_event=[copy(0, 5)]))[0].reason == "no kernels in this run, only copies and memsets"


@pytest.mark.parametrize(
    ("file", "verdict", "says"),
    [
        ("nsys/h100_2gpu_1s.sqlite", "IssuesFound", "FSDP without `CPUOffload`"),
        ("kineto/diff_pair/v100_rank1_of_2.json.gz", "IssuesFound", "406 DtoD copies of `CompiledFunctionBackward`"),
        ("kineto/diff_pair/a100_rank3_of_8.json.gz", "NoIssuesFound", ""),
        ("kineto/v100_ddp", "NoIssuesFound", ""),
    ],
)
def test_real_traces(shared_data: Path, file: str, verdict: str, says: str) -> None:
    if not (shared_data / file).exists():
        pytest.skip(f"no such trace: {file}")
    with ingest([shared_data / file]) as store:
        result, _ = evaluated(store)
    assert result.verdict == verdict
    assert says in str(result.recommendation)
    assert ("DDP copies gradients out of its buckets for 2.67 ms, 0.6%" in str(result.finding)) == (file == "kineto/v100_ddp")
