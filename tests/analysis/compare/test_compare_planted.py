"""Pairs of simulated runs that differ in one planted way: the comparison finds that difference and nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.compare.build import compare
from postrun.analysis.report import Generator, Report
from postrun.analysis.report.comparison import Comparison
from postrun.commands.demo import demo
from postrun.ingest import ingest
from postrun.simulate import Changes, DemoTruth, Problems, write_demo
from postrun.simulate.changes import NAMED

NONE = Problems(straggler_rank=None, exposed_communication=False, idle_tail=False, data_stall=False)
GENERATOR = Generator("postrun", "0", 0, {})
ATTENTION = "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel"
SLOWER_LOADING = {("step", "step time", "slower"), ("part", "idle", "grown"), ("data loading", "data loading", "grown")}
# Rules that find what follows from it: GPUs that wait.
WAITING = {("verdict", rule, "broken") for rule in ("LowGPUUtilization", "HostBound")}
SimulatedRun = tuple[DemoTruth, Report]
Claims = set[tuple[str, str, str]]


def run(folder: Path, **options: Any) -> SimulatedRun:
    truth = write_demo(folder, **{"steps": 7, "problems": NONE, "gpus_per_node": 1, **options})
    with ingest([folder / "kineto"]) as store:
        return truth, analyze(store, Options(generated_at_ns=0))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> SimulatedRun:
    return run(tmp_path_factory.mktemp("base"))


@pytest.fixture
def against(base: SimulatedRun, tmp_path: Path) -> Callable[..., tuple[Comparison, DemoTruth]]:
    def compared(**options: Any) -> tuple[Comparison, DemoTruth]:
        truth, report = run(tmp_path / "new", **options)
        return compare(base[1], report, generator=GENERATOR), truth

    return compared


def claims(comparison: Comparison) -> Claims:
    return {(one.area, one.name.rpartition("::")[2], one.state) for one in comparison.changes}


def per_step(truth: DemoTruth, figure: str) -> float:
    """A figure of the truth, by the steps of all ranks."""
    return sum(getattr(rank, figure) for rank in truth.ranks) / sum(len(rank.device_step_ns) for rank in truth.ranks)


def same_hardware(comparison: Comparison) -> None:
    assert [one.name for one in comparison.differences if one.limits] == []
    assert comparison.basis.unit == "step"


def test_another_seed_is_noise(against: Callable[..., tuple[Comparison, DemoTruth]]) -> None:
    comparison, _ = against(seed=2)
    assert (claims(comparison), comparison.verdict) == (set(), "same")
    same_hardware(comparison)
    assert comparison.headline.startswith("No difference beyond the noise (median 142 ms → 142 ms per step, 99% interval ")
    assert comparison.details == "Nothing else changed by more than its spread and 3%."


@pytest.mark.slow
@pytest.mark.parametrize("problems", [NONE, Problems(straggler_rank=1)], ids=["healthy", "stalls"])
def test_more_steps_are_no_change(problems: Problems, tmp_path: Path) -> None:
    short_run, long_run = (run(tmp_path / str(steps), steps=steps, problems=problems)[1] for steps in (9, 18))
    comparison = compare(short_run, long_run, generator=GENERATOR)
    assert [one for one in claims(comparison) if one[0] != "verdict"] == []
    # Steps that stall vary so much that a change of more than 10% cannot be ruled out.
    assert comparison.verdict == ("same" if problems is NONE else "cannot say")
    assert comparison.steps is not None
    assert comparison.steps.verdict == "same"
    assert {one.name: (one.base, one.new) for one in comparison.differences}["steps captured"] == ("18", "36")
    assert [one.name for one in comparison.differences if one.limits] == []


def test_slower_data_loading(base: SimulatedRun, against: Callable[..., tuple[Comparison, DemoTruth]]) -> None:
    comparison, truth = against(changes=Changes(slower_loading_ns=25_000_000))
    assert SLOWER_LOADING <= claims(comparison) <= SLOWER_LOADING | WAITING
    same_hardware(comparison)
    idle = next(part for part in comparison.parts if part.name == "idle")
    assert idle.effect_ns == pytest.approx(per_step(truth, "idle_ns") - per_step(base[0], "idle_ns"))
    loading = next(part for part in comparison.host_parts if part.name == "data_loader")
    assert loading.effect_ns == pytest.approx(25e6, rel=0.01)
    assert comparison.steps is not None
    assert comparison.steps.change_ns == pytest.approx(25e6, rel=0.02)
    assert comparison.steps.measure == "from step to step"
    # The GPU work of a step knows nothing of it.
    assert comparison.device_steps is not None
    assert comparison.device_steps.verdict == "same"


@pytest.mark.slow
def test_slower_data_loading_is_seen_between_steps_that_stall(tmp_path: Path) -> None:
    stalls = Problems(straggler_rank=None, exposed_communication=False, idle_tail=False)
    calm, slow = (
        run(tmp_path / str(extra), steps=14, problems=stalls, changes=Changes(slower_loading_ns=extra))[1] for extra in (0, 12_000_000)
    )
    comparison = compare(calm, slow, generator=GENERATOR)
    assert SLOWER_LOADING <= claims(comparison) <= SLOWER_LOADING | WAITING


@pytest.mark.slow
@pytest.mark.parametrize("steps", [4, 12])
def test_data_loading_that_more_than_doubles_a_step_leaves_the_kernels_alone(steps: int, tmp_path: Path) -> None:
    calm, slow = (run(tmp_path / str(extra), steps=steps, changes=Changes(slower_loading_ns=extra))[1] for extra in (0, 200_000_000))
    comparison = compare(calm, slow, generator=GENERATOR)
    same_hardware(comparison)
    assert {one.state for one in comparison.kernels} == {"same"}
    assert next(part for part in comparison.parts if part.name == "computation").effect_ns == 0
    expected = "undecided" if steps == 4 else "grown"
    assert {one.name for one in (*comparison.parts, *comparison.host_parts) if one.state == expected} == {"idle", "data_loader"}
    assert {one.state for one in (*comparison.parts, *comparison.host_parts)} == {"same", expected}
    assert ("Also undecided: data loading is 200 ms a step longer" in comparison.details) == (steps == 4)
    assert "finds" not in comparison.headline + comparison.details


def test_one_slower_kernel(base: SimulatedRun, against: Callable[..., tuple[Comparison, DemoTruth]]) -> None:
    comparison, truth = against(changes=Changes(slower_kernel=("bwd_dq_dk_dv", 1.3)))
    assert claims(comparison) == {("step", "step time", "slower"), ("part", "computation", "grown"), ("kernel", ATTENTION, "grown")}
    kernel = comparison.kernels[0]
    (name,) = kernel.new_names
    steps = [sum(len(rank.device_step_ns) for rank in one.ranks) for one in (base[0], truth)]
    totals = [one.kernels[name].total_ns / n for one, n in zip((base[0], truth), steps, strict=True)]
    assert (kernel.base_ns, kernel.new_ns) == pytest.approx(tuple(totals))
    assert kernel.change_percent == pytest.approx(30, abs=0.5)
    assert kernel.base_count == kernel.new_count == 12
    assert {one.state for one in comparison.kernels[1:]} == {"same"}
    assert [one.name for one in comparison.categories if one.state != "same"] == ["attention"]


@pytest.mark.slow
def test_a_kernel_of_little_time_is_told_though_the_step_is_not_faster(base: SimulatedRun, tmp_path: Path) -> None:
    report = run(tmp_path, changes=Changes(vanished_kernel=True))[1]
    comparison = compare(base[1], report, generator=GENERATOR)
    assert {(area, state) for area, _, state in claims(comparison)} == {("kernel", "vanished")}
    assert comparison.verdict == "same"
    assert comparison.headline.startswith("No difference beyond the threshold of 3%")
    assert comparison.kernels[0].new_names == ()
    assert "GeluCUDAKernelImpl" in comparison.kernels[0].short_name
    comparison = compare(base[1], report, generator=GENERATOR, threshold_percent=1.0)
    assert comparison.verdict == "faster"
    assert {area for area, _, _ in claims(comparison)} == {"step", "part", "kernel"}


@pytest.mark.slow
def test_an_extra_kernel(against: Callable[..., tuple[Comparison, DemoTruth]]) -> None:
    comparison, _ = against(changes=Changes(extra_kernel=True))
    assert claims(comparison) == {
        ("step", "step time", "slower"),
        ("part", "computation", "grown"),
        ("kernel", "fused_dropout_kernel_vec", "added"),
    }
    assert (comparison.kernels[0].base_names, comparison.kernels[0].new_count) == ((), 12)


def test_matrix_work_in_fp32(against: Callable[..., tuple[Comparison, DemoTruth]]) -> None:
    comparison, _ = against(changes=Changes(fp32_matrix=True))
    changed = claims(comparison)
    kernels = {(name, state) for area, name, state in changed if area == "kernel"}
    assert len(kernels) == 8
    assert all(state == ("added" if name.startswith("cutlass_80_simt") else "vanished") for name, state in kernels)
    assert {one for one in changed if one[0] != "kernel"} == {
        ("step", "step time", "slower"),
        ("part", "computation", "grown"),
        ("precision", "BF16", "shrunk"),
        ("precision", "FP32", "grown"),
        ("verdict", "LowPrecision", "broken"),
    }
    assert {one.name: (one.base, one.new) for one in comparison.differences}["precision of most matrix work"] == ("BF16", "FP32")


def test_a_slow_link_of_one_rank(against: Callable[..., tuple[Comparison, DemoTruth]]) -> None:
    comparison, _ = against(changes=Changes(slow_link_rank=1, slow_link_ns=8_000_000))
    assert {one for one in claims(comparison) if one[0] != "verdict"} == {
        ("step", "step time", "slower"),
        ("part", "exposed communication", "grown"),
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "grown"),
    }
    assert "wait for other ranks" in next(one.text for one in comparison.changes if one.area == "kernel")
    assert len(comparison.devices) == 2


@pytest.mark.slow
def test_copies_from_pageable_memory(base: SimulatedRun, tmp_path: Path) -> None:
    truth, report = run(tmp_path, changes=Changes(pageable_copies=True))
    comparison = compare(base[1], report, generator=GENERATOR)
    assert claims(comparison) == {
        ("memory operation", "HtoD pageable copies", "added"),
        ("memory operation", "HtoD pinned copies", "shrunk"),
        ("verdict", "PageableCopies", "broken"),
    }
    assert base[0].ranks[0].pageable_copy_ns == 0
    added = next(one for one in comparison.memory_operations if one.memory == "pageable")
    assert added.new_ns == pytest.approx(per_step(truth, "pageable_copy_ns"))
    back = claims(compare(report, base[1], generator=GENERATOR))
    assert {("verdict", "PageableCopies", "mended"), ("memory operation", "HtoD pageable copies", "vanished")} <= back


def test_a_run_compared_with_itself(base: SimulatedRun) -> None:
    comparison = compare(base[1], base[1], generator=GENERATOR)
    assert (comparison.changes, [one.name for one in comparison.differences], comparison.verdict) == ((), ["recording"], "same")
    assert {one.effect_ns for one in (*comparison.parts, *comparison.kernels, *comparison.categories, *comparison.host_parts)} == {0.0}


def test_the_demo_knows_all_changes() -> None:
    (change,) = (option for option in demo.params if option.name == "change")
    assert tuple(change.type.choices) == tuple(NAMED)  # type: ignore[attr-defined]
    assert set(NAMED.values()) >= {Changes(fp32_matrix=True), Changes(extra_kernel=True), Changes(pageable_copies=True)}
    assert Changes() not in NAMED.values()


@pytest.mark.slow
def test_the_utilization_of_the_steps_is_compared_and_not_that_of_the_job(tmp_path: Path) -> None:
    """Logs of GPUs that were used while steps ran, and idle for the rest of the job."""
    reports = []
    for name, used in (("base", 40), ("new", 70)):
        _, report = run(tmp_path / name)
        begin = min(step.start_ns for step in report.steps.steps)
        end = max(step.start_ns + step.duration_ns for step in report.steps.steps)
        lines = ["timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]"]
        for at in range(begin // 10**8 * 10**8 - 20 * 10**9, end + 60 * 10**9, 10**8):
            value = used if begin - 10**9 < at < end + 10**9 else 0
            time = datetime.fromtimestamp(at // 10**8 / 10, UTC)
            lines.append(f"{time:%Y/%m/%d %H:%M:%S}.{at // 10**6 % 1000:03}, 0, {value}%, {1000 + 10 * used} MiB, 2000 MiB")
        (tmp_path / name / "nvidia-smi.csv").write_text("\n".join(lines) + "\n")
        with ingest([tmp_path / name / "kineto", tmp_path / name / "nvidia-smi.csv"]) as store:
            reports.append(analyze(store, Options(generated_at_ns=0)))
    comparison = compare(*reports, generator=GENERATOR)
    assert comparison.sampling.over == "steps"
    result = [dataclasses.astuple(one) for one in comparison.sampling.means]
    # 40 and 70% of the time; 1400 and 1700 of 2000 MiB.
    assert result == [("GPU utilization", 40.0, 70.0, 30.0, None), ("GPU memory", 70.0, 85.0, 15.0, None)]
