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
    Series,
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
from postrun.analysis.report.causes import IterationKind
from postrun.analysis.report.efficiency import DevicePeaks, Efficiency, OperatorWork
from postrun.analysis.report.first_page import Action, Actions
from postrun.analysis.report.rules import Finding
from postrun.analysis.report.work_details import RecompilesDetails
from postrun.analysis.run.summary import summary
from postrun.analysis.run.summary_data import SummaryData
from postrun.analysis.run.summary_warnings import note_counts
from postrun.analysis.toolkit.labels import short_model
from postrun.analysis.toolkit.wording import duration as time_text
from postrun.analysis.toolkit.wording import percent, whole_percent

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


def sampled(mean: float, node: str = "host", metric: str = "gpu", derived: bool = False) -> Series:
    """Return a curve around ``mean``, which no quantile of it is."""
    values = (mean - 10, mean - 10, mean + 20)
    return Series(node, metric, "%", (0, 1, 2), values, values, values, derived)


def usage(metric: str, node: str = "host", derived: bool = False) -> MetricUsage:
    return MetricUsage(node, metric, "%", 9, 99, 98, 97, 34.4, 0, derived)


def summed(
    *, breakdown: Sequence[DeviceTime] = (), steps: Steps | None = None, series: Sequence[Series] = (), active: ActiveTime | None = None,
    matrix: Sequence[Share] = (), run: dict[str, Any] | None = None, nodes: Sequence[str] = (), devices: Sequence[Device] = (),
    processes: int = 0, loader: bool = True, notes: Sequence[Note] = (), duration: int | None = None, bars: StepBreakdown | None = None,
    findings: Sequence[Finding] = (), rules: Sequence[Any] = (), efficiency: Efficiency | None = None, actions: Actions | None = None,
    kinds: Sequence[IterationKind] = (),
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
        "system_usage": SystemUsage(
            tuple(usage(row.metric, row.node, row.derived) for row in series), (), active, None, tuple(series), (), None
        ),
        "precision": Precision((), tuple(matrix)),
        "steps": steps or Steps((), (), (), "none"),
        "step_breakdown": bars or StepBreakdown(),
        "data_quality": notes,
        "python_profile": None,
        "findings": findings,
        "rules": rules,
        "efficiency": efficiency,
        "actions": actions,
        "iteration_kinds": kinds,
        "framework": SimpleNamespace(collectives=(), step_parts=()),
    }
    report = Report(**(dict.fromkeys(field.name for field in dataclasses.fields(Report)) | sections))
    return summary(SummaryData(report, breakdown, loader))


def tile(result: Summary, key: str) -> Tile:
    (match,) = [t for t in result.figures if t.key == key]
    return match


def test_the_page_of_a_run_with_everything() -> None:
    result = summed(
        # busy (600 + 620) / 2000; exposed (20 + 190) / 2000, worst on rank 7 with 19%
        breakdown=[device_time(3, 1000 * MS, 600 * MS, 50 * MS, 20 * MS), device_time(7, 1000 * MS, 620 * MS, 200 * MS, 190 * MS)],
        steps=Steps((*row([170, 178, 250], 3), *row([170, 178, 250], 7)), (), (part(6 * MS, 178 * MS),), None),
        bars=average(6, 210 * MS),
        series=[sampled(50), sampled(60, "b")],
        matrix=[Share("FP32", 59, 5, 59.0), Share("BF16", 41, 4, 41.0)],
        nodes=["a", "b"],
        devices=[used(node, index) for node in "ab" for index in range(4)],
        run={"framework": "PyTorch 2.13"},
        processes=1,
        duration=1_122_000 * MS,
    )
    # 10.5% of the window is exposed communication.
    assert result.headline == (
        f"GPUs averaged {whole_percent(55)} utilization over 2 ns of samples. Exposed communication takes"
        f" {whole_percent(10.5)} of the GPU time in the profile window ({whole_percent(2)} on rank 3, {whole_percent(19)} on rank 7)."
    )
    assert result.subtitle == f"8 × H100 80GB, 2 nodes · PyTorch 2.13 · {time_text(1_122_000 * MS)} · completed · data: complete"
    assert [(t.key, t.value, t.detail) for t in result.tiles] == [
        ("gpu_utilization", whole_percent(55), "mean of the samples over 2 ns of samples"),
        ("step_time", "178 ms", "median of 3 steps, step to step, GPU time 174 ms"),
        ("exposed_communication", whole_percent(10.5), "of GPU time in the profile window"),
        ("data_loading", percent(3.4), "of the mean step, 6.00 ms in the profile window"),
    ]
    assert result.warnings == ()


def test_only_system_metrics_are_said_as_such() -> None:
    result = summed(series=[sampled(34, metric="cpu"), sampled(50, metric="cpu_memory")])
    assert result.headline == f"CPU utilization averaged {whole_percent(34)}. Nothing was recorded of a GPU, and no steps."
    assert summed(series=[sampled(50, metric="cpu_memory")]).headline == (
        "Nothing was recorded of a GPU, and no steps: there are only system metrics."
    )


@pytest.mark.parametrize(("recompilations", "words"), [(0, ""), (1, " (1 recompilation)"), (5, " (5 recompilations)")])
def test_a_log_of_compilations_alone_is_the_headline(recompilations: int, words: str) -> None:
    details = RecompilesDetails((), 0, 0, 0, 0, 0, 0, 0, None, None, 0, 9, recompilations, 695_000_000)
    result = summed(rules=[SimpleNamespace(details=details)])
    assert result.headline == f"torch.compile logged 9 compilations{words}, which took 695 ms; no profile shows the cost."


def test_nothing_known_is_said_as_such() -> None:
    result = summed()
    assert result.headline == "No GPU activity, no steps and no utilization in this run: there is nothing to time."
    assert result.subtitle == "completed"
    assert result.tiles == ()
    assert {t.value for t in result.figures} == {"—"}
    assert {"gpu_busy", "step_time", "exposed_communication", "data_loading", "lower_precision"} <= {t.key for t in result.figures}
    assert all(t.detail for t in result.figures)


def test_one_gpu_without_collectives_or_steps() -> None:
    result = summed(breakdown=[device_time(0, 200, 122)], processes=1, nodes=["a"], devices=[used("a", 3)])
    assert result.headline == f"The GPU was busy {whole_percent(61)} of the 200 ns profile window."
    assert result.subtitle == "1 × H100 80GB, 1 node · completed · data: complete"
    assert (tile(result, "gpu_busy").value, tile(result, "gpu_busy").detail) == (whole_percent(61), "of the 200 ns profile window")
    assert (tile(result, "exposed_communication").value, tile(result, "exposed_communication").detail) == (
        "—",
        "no collective kernels recorded",
    )


def test_the_largest_loss_is_named() -> None:
    loading = Steps((step(10),), (), (part(33.4, 100),), None)
    busy = [device_time(0, 100, 61, 10, 8)]
    window = "of the GPU time in the profile window."
    exposed, loads = f"Exposed communication takes {percent(8)} {window}", f"Data loading takes {whole_percent(33.4)} of the mean step."
    assert summed(breakdown=busy, steps=loading).headline.endswith(loads)
    assert summed(breakdown=busy, steps=loading, loader=False).headline.endswith(exposed)
    assert (
        summed(breakdown=[device_time(0, 100, 61, 10, 4)]).headline == f"The GPU was busy {whole_percent(61)} of the 100 ns profile window."
    )
    copying = [dataclasses.replace(one, exposed_memory_ns=9) for one in busy]
    assert summed(breakdown=copying).headline.endswith(f"Exposed copies and memsets take {percent(9)} {window}")
    copying = [dataclasses.replace(one, exposed_memory_ns=7) for one in busy]
    assert summed(breakdown=copying).headline.endswith(exposed)


def test_hidden_communication_is_none_exposed() -> None:
    result = summed(breakdown=[device_time(0, 100, 61, 10, 0), device_time(1, 100, 61, 10, 0)])
    assert tile(result, "exposed_communication").value == whole_percent(0)
    assert tile(result, "gpu_busy").detail == "of the 100 ns profile window, 2 GPUs"


def action(rule: str, percent: float | None, *, kind: str = "upper_bound", cost: float | None = None, partly: str | None = None) -> Action:
    return Action(hash(rule), rule, percent, None, kind, cost_percent=cost, partly=partly)


def with_actions(*rows: Action, base: str = "GPU time of the run") -> dict[str, Any]:
    findings = [Finding(row.finding, row.rule, "low", "Do it", "So.", None, "rank 5, b GPU 1", 1, 9.0, None, 1, 9.0, base) for row in rows]
    return {"findings": findings, "actions": Actions(base, 1, 1, rows)}


def test_the_headline_lists_the_two_largest_losses() -> None:
    busy = [device_time(0, 100, 61, 10, 8)]
    first, second = action("InputBound", 19.1), action("StragglerRank", 4.3, kind="predicted")
    explained, third = action("ExposedCommunication", 12.2, partly="StragglerRank"), action("SyncBound", 3.0)
    text = summed(breakdown=busy, **with_actions(first, second, explained, third)).headline
    assert text.endswith(
        f" The largest avoidable losses are waiting for data (up to {whole_percent(19)} of the run) and slow rank 5"
        f" (predicted {percent(4.3)}; with exposed communication, up to {whole_percent(12)})."
    )
    # A share of another base does not compare with them.
    text = summed(breakdown=busy, **with_actions(first, dataclasses.replace(second, base="of the steps"), explained)).headline
    assert text.endswith(f"and slow rank 5 (with exposed communication, up to {whole_percent(12)}).")
    # A cause that is worth half as much as the findings that it explains, or more, is named alone.
    text = summed(breakdown=busy, **with_actions(first, action("StragglerRank", 6.5, kind="predicted"), explained)).headline
    assert text.endswith(f"and slow rank 5 (predicted {percent(6.5)}).")
    text = summed(breakdown=busy, **with_actions(first, action("StragglerRank", 13.0, kind="predicted"), explained)).headline
    assert text.endswith(f"and slow rank 5 (predicted {whole_percent(13)}).")
    text = summed(breakdown=busy, **with_actions(action("InputBound", None, cost=19.1), base="GPU time in the profile window")).headline
    assert text.endswith(f" The largest loss is waiting for data ({whole_percent(19)} of the window).")
    # A saving below 2% is not named, but the exposed communication is.
    assert "Exposed communication takes" in summed(breakdown=busy, **with_actions(action("InputBound", 1.9))).headline


def test_mfu_states_its_divisor() -> None:
    def operator(kind: str, flop: int) -> OperatorWork:
        return OperatorWork("mm", [], [], [], 2, 1, flop, flop, 1, None, None, None, None, "compute", None, None, None, 0, kind)

    peaks = DevicePeaks("H100", "H100 SXM", {"bf16": 989e12, "fp32": 67e12}, None, None, "a paper")
    work = Efficiency((operator("fp32", 10), operator("bf16", 90)), 0, (peaks,), 41.2, 41.2, 80.0, True, measured_over="steps")
    result = tile(summed(efficiency=work), "mfu")
    assert (result.value, result.detail) == (
        f"at least {whole_percent(41)}",
        "model FLOPs over step time × dense peaks (BF16 989, FP32 67.0 TFLOPS)",
    )
    matrix = (Share("BF16", 993, 1, 99.3), Share("FP32", 7, 1, 0.7))
    ran = tile(summed(efficiency=work, matrix=matrix), "mfu")
    assert ran.detail == "model FLOPs over step time × dense peak (BF16 989 TFLOPS)"
    assert tile(summed(efficiency=Efficiency(no_mfu="No shapes.")), "mfu").detail == "No shapes."


@pytest.mark.parametrize(("until", "words"), [(89, "over 89 ns of samples"), (90, "over the 100 ns job")])
def test_a_mean_is_of_the_job_only_if_the_samples_cover_it(until: int, words: str) -> None:
    """Nine tenths of the job make a mean of the job: samples end at ``until``."""
    values = (40.0, 60.0)
    series = Series("host", "gpu", "%", (0, until), values, values, values, False)
    result = summed(series=[series], devices=[used("a", 0)], duration=100)
    assert result.headline.startswith(f"The GPU averaged {whole_percent(50)} utilization {words}.")
    assert words.replace("100 ns ", "") in tile(result, "gpu_utilization").detail


def test_samples_come_before_the_busy_share_of_the_window() -> None:
    result = summed(series=[sampled(38), sampled(50, "b")], breakdown=[device_time(0, 100, 61)], devices=[used("a", 0), used("b", 0)])
    assert result.headline == f"The GPU averaged {whole_percent(44)} utilization over the samples."
    assert [t.key for t in result.tiles] == ["gpu_utilization"]
    assert summed(series=[sampled(10)], active=ActiveTime(9, 0, 0.0, False)).headline == "No GPU was active in any sample."
    assert tile(summed(series=[sampled(38, derived=True)]), "gpu_utilization").value == "—"


def test_host_only_trace() -> None:
    result = summed(processes=2, steps=Steps(tuple(row([10, 20, 30], on_device=False)[1:]), (), (), None))
    assert result.headline == "No GPU activity was recorded; 2 processes were traced. A step took 20.0 ms (median of 3)."
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
    assert (result.value, result.detail) == ("100 ms", "median of 3 steps, step to step, GPU time 100 ms")


def test_profiled_steps_are_not_mixed_with_those_of_the_whole_job() -> None:
    whole_job = [step(50 * MS, phase="TRAIN", on_device=False)] * 1000
    steps = Steps((*whole_job, *row([40] * 8)), (), (), None)
    assert tile(summed(steps=steps), "step_time").value == "40.0 ms"


@pytest.mark.parametrize(
    ("matrix", "value", "detail"),
    [
        ([("BF16", 60), ("FP8", 30), ("FP32", 10)], "90.0%", "of 100 ns in matrix kernels, 60% BF16 and 30% FP8"),
        ([("FP32", 90), ("FP64", 10)], "0%", "of 100 ns in matrix kernels"),
        ([("FP16", 60), ("unknown", 40)], "60.0%", "of 100 ns in matrix kernels, FP16, 40% unknown"),
        ([("unknown", 100)], "—", "precision of the matrix kernels is unknown"),
    ],
)
def test_lower_precision(matrix: list[tuple[str, int]], value: str, detail: str) -> None:
    result = tile(summed(matrix=[Share(name, time, 1, float(time)) for name, time in matrix]), "lower_precision")
    assert (result.value, result.detail) == (value, detail)


def test_no_loader_events_is_not_zero() -> None:
    steps = Steps((step(10),), (), (part(0, 100),), None)
    assert tile(summed(steps=steps, loader=False), "data_loading").value == "—"
    assert (tile(summed(steps=steps), "data_loading").value, tile(summed(steps=steps), "data_loading").number) == (whole_percent(0), 0.0)


def test_warnings() -> None:
    notes = [Note(None, "error", "c", "trace a.json ends in the middle", 1, None, None)] + [
        Note(None, "warning", "c", "m", 1, None, None)
    ] * 2
    result = summed(run={"status": "partial", "relative_times": True}, notes=notes)
    assert result.warnings == (
        "partial: the run or a trace of it was cut off",
        "no wall-clock time in the input; times start at 0",
        "trace a.json ends in the middle",
        "2 input warnings; see Data quality",
    )
    assert summed(run={"status": "failed"}).warnings == ("the run failed",)


def test_machines_of_the_subtitle() -> None:
    def machines(**more: Any) -> str:
        return summed(**more).subtitle.split(" · ")[0]

    assert machines(nodes=["a", "b"], devices=[used("a", 0), used("a", 1), used("b", 0)]) == "3 × H100 80GB, 2 nodes"
    assert machines(nodes=["a"], devices=[used("a", 0), used("a", 1, "Tesla T4")]) == "2 GPUs, 1 node"
    assert machines(nodes=["a"], devices=[used("a", 0, None)]) == "1 GPU, 1 node"
    assert machines(nodes=["a"], devices=[used("a", 0, "Tesla V100-SXM2-32GB")]) == "1 × V100 32GB, 1 node"
    assert summed(nodes=["a"], run={"started_at_ns": 5, "ended_at_ns": 5 + 12_400 * MS}).subtitle == "1 node · 12.4 s · completed"


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
    assert (result.label, result.value, result.detail) == ("step time", "178 ms", "median of 3 steps, step to step, GPU time 118 ms")
    alone = tile(summed(steps=Steps((step(119 * MS),), (), (), None)), "step_time")
    assert (alone.label, alone.value, alone.detail) == ("GPU time per step", "119 ms", "one step, without the wait before it")


def test_tiles_carry_their_numbers() -> None:
    result = summed(breakdown=[device_time(0, 200, 122, 20, 10)], steps=Steps((step(10),), (), (part(33.4, 100),), None))
    numbers = {t.key: (t.number, t.unit) for t in result.figures if t.number is not None}
    assert numbers == {
        "gpu_busy": (61.0, "percent"),
        "step_time": (10.0, "ns"),
        "exposed_communication": (5.0, "percent"),
        "data_loading": (pytest.approx(33.4), "percent"),
        "copies": (0.0, "percent"),
    }


def test_a_trace_cut_off_before_any_device_work() -> None:
    result = summed(processes=1, run={"status": "partial"})
    assert result.headline == "No GPU activity in what could be read: the trace was cut off."


def test_doubt_about_the_whole_run_is_said_on_the_first_page() -> None:
    notes = [Note(None, "warning", "several_runs", "rank 0 occurs 4 times", 1, None, None), Note(None, "warning", "c", "m", 1, None, None)]
    assert summed(notes=notes).warnings == ("rank 0 occurs 4 times", "1 input warning; see Data quality")


def test_ranks_that_were_not_captured_are_said() -> None:
    result = summed(processes=2, nodes=["a"], devices=[used("a", 0), used("a", 1)], run={"world_size": 128})
    assert result.subtitle == "2 × H100 80GB, 1 node · completed · data: 2 of 128 ranks"
    assert result.caveats == ("Only 2 of 128 ranks were captured: waits for other ranks count as communication.",)
    (line,) = summed(processes=1, run={"world_size": 8}).caveats
    assert line == "Only rank 0 of 8 was captured: waits for other ranks count as communication."
    assert summed(processes=2, run={"world_size": 2}).caveats == ()


@pytest.mark.parametrize(
    ("steps", "words"), [(6, "Only 6 steps (60.0 ms) were profiled."), (1, "Only 1 step (60.0 ms) was profiled."), (10, None)]
)
def test_few_profiled_steps_are_a_caveat(steps: int, words: str | None) -> None:
    listed = [dataclasses.replace(step(MS), index=number) for number in range(steps)]
    result = summed(breakdown=[device_time(0, 60 * MS, 50 * MS)], steps=Steps(tuple(listed), (), (), None))
    assert result.caveats == ((words,) if words else ())


def test_the_profiled_step_of_a_forward_pass_is_a_caveat() -> None:
    """Iterations of known tokens are the figures of a run instead of its steps."""
    for tokens, words in ((None, ("Only 1 step (60.0 ms) was profiled.",)), (100.0, ())):
        kind = IterationKind("forward", 1, 60.0 * MS, 60.0 * MS, None, tokens, tokens, None, None, None)
        result = summed(breakdown=[device_time(0, 60 * MS, 50 * MS)], steps=Steps((step(MS),), (), (), None), kinds=[kind])
        assert result.caveats == words


def test_profiles_from_different_times_are_not_one_window() -> None:
    """Two processes profiled 40 and 60 ms long, 2 h apart; the first has two GPUs."""
    late = dataclasses.replace(device_time(1, 60 * MS, 30 * MS), first_ns=7_200_000 * MS + 40 * MS)
    early = [device_time(0, 40 * MS, 20 * MS), dataclasses.replace(device_time(0, 30 * MS, 15 * MS, device=1), first_ns=10 * MS)]
    result = summed(breakdown=[*early, late], steps=Steps((step(MS),), (), (), None), duration=7_200_100 * MS)
    assert result.headline.startswith(
        "The files are from different times (2 h apart): report each file on its own."
        f" GPUs were busy {whole_percent(50)} of the 100 ms profile window."
    )
    assert tile(result, "gpu_busy").detail == "of the 100 ms profile window, 3 GPUs"
    assert result.caveats == ("Only 1 step (100 ms) was profiled.",)
    assert "2 h" not in result.subtitle
    near = dataclasses.replace(late, first_ns=41 * MS)  # clocks of two nodes differ by more than the profile is long
    assert summed(breakdown=[*early, near]).headline.startswith(f"GPUs were busy {whole_percent(50)} of the 100 ms profile window.")


def test_the_state_of_the_data_is_in_the_subtitle() -> None:
    notes = [Note(None, "warning", "c", "m", 1, None, None), Note(None, "info", "c", "m", 1, None, None)]
    assert summed(processes=1, notes=notes).subtitle == "completed · data: 1 warning"
    notes += [Note(None, severity, "c", "m", 1, None, None) for severity in ("warning", "error", "info")]
    assert summed(processes=1, notes=notes).subtitle == "completed · data: 1 error, 2 warnings"
    assert note_counts(notes) == ["1 error", "2 warnings", "2 notes"]
    assert summed(processes=1, notes=notes, run={"status": "partial"}).subtitle == "partial · data: incomplete"


def test_machines_that_no_file_names_are_not_counted() -> None:
    result = summed(processes=2, nodes=["unknown host"], devices=[used("unknown host", 0), used("unknown host", 1)])
    assert result.subtitle.split(" · ")[0] == "2 × H100 80GB"


def finding(cost: float | None, saving: float | None = None) -> Finding:
    return Finding(1, "Rule", "low", "Do it", "It is so.", None, None, 1, cost, None, 1, saving, "GPU time in the profile window")


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
    assert text.endswith(f"No finding is worth {whole_percent(2)} of the time or more.") is little
