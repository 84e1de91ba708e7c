"""First page of reports made by hand, with known and with unknown values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from postrun.analysis.report import (
    ActiveTime,
    Device,
    DeviceTime,
    JobStatistics,
    MetricUsage,
    Node,
    Note,
    Precision,
    Process,
    Report,
    Run,
    Share,
    Step,
    StepBar,
    StepBreakdown,
    StepParts,
    Steps,
    Summary,
    SystemUsage,
    Tile,
)
from postrun.analysis.report.rules import Finding
from postrun.analysis.report.work_details import RecompilesDetails
from postrun.analysis.run.summary import summary
from postrun.analysis.run.summary_data import SummaryData
from postrun.analysis.toolkit.labels import short_model

MS = 1_000_000


def device_time(rank: int | None, span: int, busy: int, communication: int = 0, exposed: int = 0, device: int = 0) -> DeviceTime:
    return DeviceTime(
        node="host", rank=rank, pid=rank, device=device, device_name=None, events=1, first_ns=0, span_ns=span, busy_ns=busy,
        idle_ns=span - busy, computation_ns=busy - exposed, communication_ns=communication, exposed_communication_ns=exposed,
        overlap_percent=None, memory_ns=0, exposed_memory_ns=0, memcpy_ns=0, memset_ns=0, kernel_total_ns=busy, linked_busy_ns=busy,
    )  # fmt: skip


def step(duration: int, rank: int | None = 0, phase: str | None = None, on_device: bool = True) -> Step:
    return Step("host", rank, rank, phase, 0, 0, duration, on_device, duration)


def row(durations: Sequence[int], rank: int | None = 0, phase: str | None = None, on_device: bool = True, wait: int = 0) -> list[Step]:
    """Return a step of 1 ms and steps of ``durations`` ms, ``wait`` ms apart."""
    steps, end = [], 0
    for index, duration in enumerate((1, *durations)):
        start = end + wait * MS
        end = start + duration * MS
        steps.append(Step("host", rank, rank, phase, index, start, duration * MS, on_device, duration * MS))
    return steps


def average(steps: int, exposed: int) -> StepBreakdown:
    return StepBreakdown(average=StepBar(0, steps, steps, 9 * exposed, 0, exposed, 0, 0, 0))


def part(loader: float, mean: float, steps: int = 10) -> StepParts:
    return StepParts("host", 0, 0, steps, mean, {"kernel": mean - loader, "data_loader": loader})


def used(node: str, index: int, name: str | None = "NVIDIA H100 80GB HBM3") -> Device:
    return Device(node, index, name, None, None, None, None, None, True)


def gpu(p50: float, p95: float, node: str = "host", derived: bool = False) -> MetricUsage:
    return MetricUsage(node, "gpu", "%", 9, 99, p95, p95, p50, 0, derived)


def summed(
    *, breakdown: Sequence[DeviceTime] = (), steps: Steps | None = None, gpus: Sequence[MetricUsage] = (), active: ActiveTime | None = None,
    matrix: Sequence[Share] = (), run: dict[str, Any] | None = None, nodes: Sequence[str] = (), devices: Sequence[Device] = (),
    processes: int = 0, loader: bool = True, notes: Sequence[Note] = (), duration: int | None = None, bars: StepBreakdown | None = None,
    findings: Sequence[Finding] = (), rules: Sequence[Any] = (),
) -> Summary:  # fmt: skip
    plain_run: dict[str, Any] = {
        "name": "run", "status": "completed", "started_at_ns": None, "ended_at_ns": None, "relative_times": False, "framework": None,
        "instance_type": None, "world_size": None, "resources": (), "hyperparameters": {}, "labels": {}, "metadata": {}, "sources": (),
    }  # fmt: skip
    sections: dict[str, Any] = {
        "run": Run(**(plain_run | (run or {}))),
        "nodes": [Node(name, None, None, None) for name in nodes],
        "devices": devices,
        "processes": [Process("host", i, i, None, None, None) for i in range(processes)],
        "job_statistics": JobStatistics(None, None, duration, *[None] * 9),
        "system_usage": SystemUsage(tuple(gpus), (), active, None, (), (), None),
        "precision": Precision((), tuple(matrix)),
        "steps": steps or Steps((), (), (), "none"),
        "step_breakdown": bars or StepBreakdown(),
        "data_quality": notes,
        "python_profile": None,
        "findings": findings,
        "rules": rules,
        "framework": SimpleNamespace(collectives=(), step_parts=()),
    }
    report = Report(**(dict.fromkeys(field.name for field in dataclasses.fields(Report)) | sections))
    return summary(SummaryData(report, breakdown, loader))


def tile(result: Summary, key: str) -> Tile:
    (match,) = [t for t in result.tiles if t.key == key]
    return match


def test_the_page_of_a_run_with_everything() -> None:
    result = summed(
        # busy (600 + 620) / 2000; exposed (20 + 190) / 2000, worst on rank 7 with 19%
        breakdown=[device_time(3, 1000 * MS, 600 * MS, 50 * MS, 20 * MS), device_time(7, 1000 * MS, 620 * MS, 200 * MS, 190 * MS)],
        steps=Steps((*row([170, 178, 250], 3), *row([170, 178, 250], 7)), (), (part(6 * MS, 178 * MS),), None),
        bars=average(6, 210 * MS),
        gpus=[gpu(60, 97)],
        matrix=[Share("FP32", 59, 5, 59.0), Share("BF16", 41, 4, 41.0)],
        nodes=["a", "b"],
        devices=[used(node, index) for node in "ab" for index in range(4)],
        run={"framework": "PyTorch 2.13"},
        duration=1_122_000 * MS,
    )
    # 1 s of a job of 18 min 42 s was profiled; 10.5% of the span is exposed communication.
    assert result.headline == (
        "GPUs were busy 61% of the 1.00 s that were profiled."
        " For 10% of the time they only waited for communication, from 2% on rank 3 to 19% on rank 7."
    )
    assert result.subtitle == "2 nodes x 4 H100 · PyTorch 2.13 · 18 min 42 s"
    assert [(t.key, t.value, t.detail) for t in result.tiles] == [
        ("gpu_busy", "61.0%", "p95 of utilization 97%"),
        ("step_time", "178 ms", "median of 3 steps"),
        ("exposed_communication", "10.5%", "35.0 ms per step"),
        ("data_loading", "3.4%", "6.00 ms per step"),
        ("lower_precision", "41.0%", "of 100 ns in matrix kernels, BF16"),
    ]
    assert result.warnings == ()


def test_only_system_metrics_are_said_as_such() -> None:
    cpu, memory = (MetricUsage("a", metric, "%", 9, 99, 98, 97, 34.4, 0, False) for metric in ("cpu", "cpu_memory"))
    result = summed(gpus=[cpu, memory])
    assert result.headline == "CPU utilization was 34% (median of the samples). Nothing was recorded of a GPU, and no steps."
    assert summed(gpus=[memory]).headline == "Nothing was recorded of a GPU, and no steps: there are only system metrics."


@pytest.mark.parametrize(("recompilations", "words"), [(0, ""), (1, " (1 recompilation)"), (5, " (5 recompilations)")])
def test_a_log_of_compilations_alone_is_the_headline(recompilations: int, words: str) -> None:
    details = RecompilesDetails((), 0, 0, 0, 0, 0, 0, 0, None, None, 0, 9, recompilations, 695_000_000)
    result = summed(rules=[SimpleNamespace(details=details)])
    assert result.headline == f"torch.compile logged 9 compilations{words}, which took 695 ms; no profile shows the cost."


def test_nothing_known_is_said_as_such() -> None:
    result = summed()
    assert result.headline == "No GPU activity, no steps and no utilization in this run: there is nothing to time."
    assert result.subtitle == ""
    assert [(t.key, t.value) for t in result.tiles] == [
        (key, "–") for key in ("gpu_busy", "step_time", "exposed_communication", "data_loading", "lower_precision")
    ]
    assert all(t.detail for t in result.tiles)


def test_one_gpu_without_collectives_or_steps() -> None:
    result = summed(breakdown=[device_time(0, 200, 122)], processes=1, nodes=["a"], devices=[used("a", 3)])
    assert result.headline == "The GPU was busy 61% of the time."
    assert result.subtitle == "1 node x 1 H100"
    assert (tile(result, "gpu_busy").value, tile(result, "gpu_busy").detail) == ("61.0%", "of the span of 1 GPU")
    assert (tile(result, "exposed_communication").value, tile(result, "exposed_communication").detail) == (
        "–",
        "no collective kernels recorded",
    )


def test_the_largest_loss_is_named() -> None:
    loading = Steps((step(10),), (), (part(33.4, 100),), None)
    busy = [device_time(0, 100, 61, 10, 8)]
    assert summed(breakdown=busy, steps=loading).headline.endswith("33% of a step went to data loading.")
    assert summed(breakdown=busy, steps=loading, loader=False).headline.endswith("For 8% of the time it only waited for communication.")
    assert summed(breakdown=[device_time(0, 100, 61, 10, 4)]).headline == "The GPU was busy 61% of the time."
    copying = [dataclasses.replace(one, exposed_memory_ns=9) for one in busy]
    assert summed(breakdown=copying).headline.endswith("For 9% of the time it only copied or set memory.")
    copying = [dataclasses.replace(one, exposed_memory_ns=7) for one in busy]
    assert summed(breakdown=copying).headline.endswith("For 8% of the time it only waited for communication.")


def test_hidden_communication_is_none_exposed() -> None:
    result = summed(breakdown=[device_time(0, 100, 61, 10, 0), device_time(1, 100, 61, 10, 0)])
    assert (tile(result, "exposed_communication").value, tile(result, "exposed_communication").detail) == ("0%", "of the span of 2 GPUs")


def test_a_process_without_steps_does_not_dilute_the_time_per_step() -> None:
    result = summed(
        breakdown=[device_time(0, 100, 60, 10, 8), device_time(1, 100, 60, 10, 90)],
        steps=Steps((step(10), step(10)), (), (), None),
        bars=average(2, 8),
    )
    assert tile(result, "exposed_communication").detail == "4 ns per step"


@pytest.mark.parametrize(
    ("ranks", "gpus", "subject"), [((0,), 1, "it was"), ((0,), 4, "the GPUs were"), ((0, 1), 2, "they were"), ((0, 1), 8, "they were")]
)
def test_activity_over_the_whole_job_is_of_the_gpus_that_were_sampled(ranks: tuple[int, ...], gpus: int, subject: str) -> None:
    result = summed(
        breakdown=[device_time(rank, 1000 * MS, 900 * MS, device=rank) for rank in ranks],
        devices=[used("a", index) for index in range(gpus)],
        active=ActiveTime(200, 21, 10.5, False),
        duration=60_000 * MS,
    )
    assert result.headline.endswith(f" of the 1.00 s that were profiled. Over the whole job {subject} active in 10.5% of the samples.")


def test_sampled_utilization_stands_in_for_device_work() -> None:
    result = summed(gpus=[gpu(38.4, 90), gpu(50, 97, "b")])
    assert result.headline == "GPU utilization was 38–50%, depending on the node (median of the samples)."
    assert (tile(result, "gpu_busy").label, tile(result, "gpu_busy").value) == (
        "GPU utilization (median)",
        "38–50%, depending on the node",
    )
    assert tile(result, "gpu_busy").detail == "p95 of utilization up to 97%"
    assert summed(gpus=[gpu(38.4, 90)]).headline == "GPU utilization was 38% (median of the samples)."
    assert summed(gpus=[gpu(0, 0)], active=ActiveTime(9, 0, 0.0, False)).headline == "No GPU was active in any sample."
    assert tile(summed(gpus=[gpu(38, 90, derived=True)]), "gpu_busy").value == "–"


def test_host_only_trace() -> None:
    result = summed(processes=2, steps=Steps(tuple(row([10, 20, 30], on_device=False)[1:]), (), (), None))
    assert result.headline == "No GPU activity in this run, 2 processes traced. A step took 20.0 ms (median of 3)."
    assert tile(result, "step_time").detail == "median of 3 steps on the host"


def test_step_times_of_a_part_of_the_steps_name_it() -> None:
    # Of eight steps, 1 to 3 and 12 and 13 follow a recorded step.
    numbers = (0, 1, 2, 3, 11, 12, 13, 40)
    steps = [dataclasses.replace(step(10 * MS), index=number, start_ns=20 * MS * number) for number in numbers]
    result = tile(summed(steps=Steps(tuple(steps), (), (), None)), "step_time")
    assert (result.value, result.detail.partition(",")[0]) == ("20.0 ms", "median of the 5 of 8 steps whose previous step was recorded")


def test_evaluation_steps_are_not_mixed_with_training_steps() -> None:
    steps = Steps((*row([100] * 3, phase="TRAIN"), *row([10] * 9, phase="EVAL", on_device=False)), (), (), None)
    result = tile(summed(steps=steps), "step_time")
    assert (result.value, result.detail) == ("100 ms", "median of 3 steps")


def test_profiled_steps_are_not_mixed_with_those_of_the_whole_job() -> None:
    whole_job = [step(50 * MS, phase="TRAIN", on_device=False)] * 1000
    steps = Steps((*whole_job, *row([40] * 8)), (), (), None)
    result = summed(steps=steps, breakdown=[device_time(0, 320 * MS, 300 * MS, 80 * MS, 16 * MS)], bars=average(8, 16 * MS))
    assert tile(result, "step_time").value == "40.0 ms"
    assert tile(result, "exposed_communication").detail == "2.00 ms per step"


@pytest.mark.parametrize(
    ("matrix", "value", "detail"),
    [
        ([("BF16", 60), ("FP8", 30), ("FP32", 10)], "90.0%", "of 100 ns in matrix kernels, 60% BF16 and 30% FP8"),
        ([("FP32", 90), ("FP64", 10)], "0%", "of 100 ns in matrix kernels"),
        ([("FP16", 60), ("unknown", 40)], "60.0%", "of 100 ns in matrix kernels, FP16, 40% unknown"),
        ([("unknown", 100)], "–", "precision of the matrix kernels is unknown"),
    ],
)
def test_lower_precision(matrix: list[tuple[str, int]], value: str, detail: str) -> None:
    result = tile(summed(matrix=[Share(name, time, 1, float(time)) for name, time in matrix]), "lower_precision")
    assert (result.value, result.detail) == (value, detail)


def test_no_loader_events_is_not_zero() -> None:
    steps = Steps((step(10),), (), (part(0, 100),), None)
    assert tile(summed(steps=steps, loader=False), "data_loading").value == "–"
    assert (tile(summed(steps=steps), "data_loading").value, tile(summed(steps=steps), "data_loading").detail) == ("0%", "0 ns per step")


def test_warnings() -> None:
    notes = [Note(None, "error", "c", "trace a.json ends in the middle", 1, None, None)] + [
        Note(None, "warning", "c", "m", 1, None, None)
    ] * 2
    result = summed(run={"status": "partial", "relative_times": True}, notes=notes)
    assert result.warnings == (
        "partial: the run or a trace of it was cut off",
        "times are relative: no source has the time of day",
        "trace a.json ends in the middle",
        "2 warnings of the readers: see data quality",
    )
    assert summed(run={"status": "failed"}).warnings == ("the run failed",)


def test_machines_of_the_subtitle() -> None:
    assert summed(nodes=["a", "b"], devices=[used("a", 0), used("a", 1), used("b", 0)]).subtitle == "3 H100 on 2 nodes"
    assert summed(nodes=["a"], devices=[used("a", 0), used("a", 1, "Tesla T4")]).subtitle == "1 node x 2 GPUs"
    assert summed(nodes=["a"], devices=[used("a", 0, None)]).subtitle == "1 node x 1 GPU"
    assert summed(nodes=["a"], run={"started_at_ns": 5, "ended_at_ns": 5 + 12_400 * MS}).subtitle == "1 node · 12.4 s"


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Quadro RTX 6000", "RTX 6000"),
        ("something", "something"),
        ("", None),
        (None, None),
    ],
)
def test_short_model(name: str | None, model: str | None) -> None:
    assert short_model(name) == model


def test_step_time_is_from_step_to_step() -> None:
    # Device work of 119 ms in steps that follow each other every 178 ms.
    steps = Steps(tuple(row([118, 119, 120], wait=59)), (), (part(59 * MS, 178 * MS, 3),), None)
    result = tile(summed(steps=steps), "step_time")
    assert (result.label, result.value, result.detail) == ("step time", "178 ms", "median of 3 steps, GPU time per step 118 ms")
    alone = tile(summed(steps=Steps((step(119 * MS),), (), (), None)), "step_time")
    assert (alone.label, alone.value, alone.detail) == ("GPU time per step", "119 ms", "one step, without the wait before it")


def test_tiles_carry_their_numbers() -> None:
    result = summed(breakdown=[device_time(0, 200, 122, 20, 10)], steps=Steps((step(10),), (), (part(33.4, 100),), None))
    numbers = {t.key: (t.number, t.unit) for t in result.tiles}
    assert numbers == {
        "gpu_busy": (61.0, "percent"),
        "step_time": (10.0, "ns"),
        "exposed_communication": (5.0, "percent"),
        "data_loading": (pytest.approx(33.4), "percent"),
        "lower_precision": (None, "percent"),
    }


def test_a_trace_cut_off_before_any_device_work() -> None:
    result = summed(processes=1, run={"status": "partial"})
    assert result.headline == "No GPU activity in what could be read: the trace was cut off."


def test_doubt_about_the_whole_run_is_said_on_the_first_page() -> None:
    notes = [Note(None, "warning", "several_runs", "rank 0 occurs 4 times", 1, None, None), Note(None, "warning", "c", "m", 1, None, None)]
    assert summed(notes=notes).warnings == ("rank 0 occurs 4 times", "1 warning of the readers: see data quality")


def test_ranks_that_were_not_captured_are_said() -> None:
    result = summed(processes=2, nodes=["a"], devices=[used("a", 0), used("a", 1)], run={"world_size": 128})
    assert result.subtitle == "1 node x 2 H100 · 2 of 128 ranks"
    assert summed(processes=2, nodes=["a"], run={"world_size": 2}).subtitle == "1 node"


def test_machines_that_no_file_names_are_not_counted() -> None:
    result = summed(processes=2, nodes=["unknown host"], devices=[used("unknown host", 0), used("unknown host", 1)])
    assert result.subtitle == "2 H100, host unknown"


def test_an_outer_percentile_needs_several_steps() -> None:
    steps = Steps(tuple(row(range(100, 121))), (), (), None)  # 21 steps: p95 is the twentieth, 119 ms
    assert tile(summed(steps=steps), "step_time").detail == "p95 119 ms"


def finding(cost: float | None, saving: float | None = None) -> Finding:
    return Finding(1, "Rule", "low", "Do it", "It is so.", None, None, 1, cost, None, 1, saving, "GPU time of the profile")


@pytest.mark.parametrize(
    ("findings", "little"),
    [
        ((), False),
        ((finding(1.9),), True),
        ((finding(1.9), finding(30.0, saving=0.5)), True),
        ((finding(1.9), finding(2.0)), False),
        ((finding(1.9), finding(None)), False),
    ],
)
def test_a_headline_without_a_finding_of_worth(findings: Sequence[Finding], little: bool) -> None:
    """The limit is 2% of the saving, else of the cost."""
    text = summed(breakdown=[device_time(0, 1000, 900)], findings=findings).headline
    assert text.endswith("No finding is worth 2% of the time or more.") is little
