"""Time in copies that no kernel hides, by kind, and the advice for each: figures worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.report import Report
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

NAMES = {"gemm": ("gemm", "FP32", "GEMM"), "AllReduce": ("ncclAllReduce", "unknown", "communication")}
MIB = 1024 * 1024


def copy(start: int, end: int, kind: str = "HtoD", *, pageable: bool | None = False, **more: Any) -> dict[str, Any]:
    return {
        "kind": "memcpy", "name": "Memcpy", "start_ns": start, "duration_ns": end - start, "copy_kind": kind, "pageable": pageable,
        "bytes": 30 * MIB, **more,
    }  # fmt: skip


def run(start: int, end: int, name: str = "gemm", **more: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": name, "start_ns": start, "duration_ns": end - start, **more}


def judged(store: Store, *rules: str, **settings: float) -> Report:
    chosen = {f"ExposedCopies_{name}": value for name, value in settings.items()}
    return rules_of(store, Options(generated_at_ns=0, selection=select([*rules, "ExposedCopies"], settings=chosen)))


# HtoD 0..40 and 20..60 on two streams, a kernel 30..35, a collective 50..100, DtoD 100..120, a memset 120..124, end at 200:
# exposed 0..30, 35..50 and 100..124, that is 45 of HtoD, 20 of DtoD and 4 of memsets.
EVENTS = [
    copy(0, 40), copy(20, 60, stream=8), run(30, 35), run(50, 100, "AllReduce", stream=20), copy(100, 120, "DtoD", pageable=None),
    {"kind": "memset", "name": "Memset (Device)", "start_ns": 120, "duration_ns": 4, "bytes": 8}, run(199, 200),
]  # fmt: skip


def test_only_time_without_a_kernel_counts(make_store: Callable[..., Store]) -> None:
    report = judged(make_store(names=NAMES, device_event=EVENTS))
    (result,), (finding,) = report.rules, report.findings
    assert result.verdict == "IssuesFound"
    assert (finding.cost_ns, finding.saving_ns, finding.saving_percent) == (69, 69, 34.5)
    details = plain_details(result)
    assert [(row["exposed_ns"], row["exposed_percent"], row["issue"]) for row in details["devices"]] == [(69, 34.5, True)]
    rows = [tuple(row[key] for key in ("kind", "memory", "count", "bytes", "time_ns", "exposed_ns")) for row in details["copies"]]
    assert rows == [("HtoD", "pinned", 2, 60 * MIB, 80, 45), ("DtoD", None, 1, 30 * MIB, 20, 20), ("Memset", None, 1, 8, 4, 4)]


@pytest.mark.parametrize(("threshold", "verdict"), [(34.5, "NoIssuesFound"), (34.4, "IssuesFound")])
def test_the_threshold_is_strict(make_store: Callable[..., Store], threshold: float, verdict: str) -> None:
    assert judged(make_store(names=NAMES, device_event=EVENTS), threshold=threshold).rules[0].verdict == verdict


def test_pageable_copies_are_the_cause(make_store: Callable[..., Store]) -> None:
    events = [copy(0, 100, pageable=True), run(100, 200)]
    report = judged(make_store(names=NAMES, device_event=events), "PageableCopies")
    causes = [(finding.rule, finding.explained_by) for finding in report.findings]
    assert causes == [("PageableCopies", None), ("ExposedCopies", "PageableCopies")]


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
    make_store: Callable[..., Store],
    annotations: list[dict[str, Any]],
    calls: list[dict[str, Any]],
    kind: str,
    words: str,
    absent: str,
) -> None:
    work = [copy(0, 100, kind, pageable=False if kind == "HtoD" else None), run(100, 200)]
    operator = {"kind": "operator", "name": "aten::mm", "start_ns": 0, "duration_ns": 1}
    store = make_store(names=NAMES, device_event=work, annotation=annotations, host_event=[operator, *calls])
    advice = judged(store).findings[0].recommendation or ""
    assert words in advice
    assert absent not in advice
    assert f"1 {kind} copy" in advice


def test_without_device_activity_it_is_not_evaluated(make_store: Callable[..., Store]) -> None:
    assert judged(make_store()).rules[0].verdict == "NotEvaluated"
