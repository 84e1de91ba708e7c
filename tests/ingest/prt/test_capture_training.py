"""Tests for the report of a recorded training on two GPUs; the expected figures can be computed on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("postrun.native._native")

from gpu_training import (
    ADAM,
    ENDED,
    GEMM,
    LOOP,
    MODEL,
    MS,
    NORM,
    PERIOD,
    REDUCE,
    SECOND,
    START,
    STEP,
    STEPS,
    US,
    UUIDS,
    Rank,
    files,
    recorder,
    samples,
)  # fmt: skip
from postrun.analysis import Options, analyze
from postrun.analysis.report import Report
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.report_templates.sections.steps import steps


def report_of(folder: Path) -> Report:
    with ingest([folder]) as store:
        return analyze(store, Options(generated_at_ns=0))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with ingest([files(tmp_path_factory.mktemp("training") / "run")]) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def report(store: Store) -> Report:
    return analyze(store, Options(generated_at_ns=0))


# Of one step: the copy, the memset, ten kernels of 2.5 ms with 5 us between them (forward), from 41 ms on ten of 3 ms with 5 us between
# them (backward, to 71.045 ms), the reduction from 60 to 75 ms on rank 0 and to 72 ms on rank 1, three of 1 ms, the copy back.
FORWARD, BACKWARD, OPTIMIZER = 25 * MS, 30 * MS, 3 * MS
COPIES, FILL = 2 * MS + 10 * US, 100 * US
GAPS_BEFORE_60 = 6 * 5 * US  # of backward's nine; in the others the reduction runs
REDUCTION = (15 * MS, 12 * MS)
FIRST, LAST = 10_050 * US, 90_060 * US


def test_where_the_time_of_each_gpu_went(report: Report) -> None:
    assert [(row.rank, row.device, row.device_name, row.events) for row in report.time_breakdown] == [
        (0, 0, MODEL, 27 * STEPS), (1, 1, MODEL, 27 * STEPS),
    ]  # fmt: skip
    for row, end in zip(report.time_breakdown, (75 * MS, 72 * MS), strict=True):
        busy = COPIES + FILL + FORWARD + (end - 41 * MS - GAPS_BEFORE_60) + OPTIMIZER
        # After 60 ms backward runs (its kernel since 59.03 ms) to 71.045 ms, with three gaps.
        exposed = (end - 71_045 * US) + 3 * 5 * US
        assert (row.first_ns, row.span_ns) == (START + LOOP + FIRST, (STEPS - 1) * PERIOD + LAST - FIRST)
        assert (row.busy_ns, row.idle_ns) == (STEPS * busy, row.span_ns - STEPS * busy)
        assert row.computation_ns == STEPS * (FORWARD + BACKWARD + OPTIMIZER)
        assert (row.communication_ns, row.exposed_communication_ns) == (STEPS * (end - 60 * MS), STEPS * exposed)
        assert (row.memcpy_ns, row.memset_ns, row.exposed_memory_ns) == (STEPS * COPIES, STEPS * FILL, STEPS * (COPIES + FILL))
        assert row.linked_busy_ns == row.busy_ns


def test_kernels_and_activity(report: Report) -> None:
    gemm, norm = 2 * STEPS * (5 * 2_500 * US + BACKWARD), 2 * STEPS * 5 * 2_500 * US
    reduce, adam = STEPS * sum(REDUCTION), 2 * STEPS * OPTIMIZER
    total = gemm + norm + reduce + adam
    assert [(one.short_name, one.count, one.total_ns) for one in report.kernels] == [
        (GEMM, 2 * STEPS * 15, gemm), (REDUCE, 2 * STEPS, reduce), ("layer_norm", 2 * STEPS * 5, norm), (ADAM, 2 * STEPS * 3, adam),
    ]  # fmt: skip
    assert [one.name for one in report.kernels if one.short_name == "layer_norm"] == ["layer_norm(float*, int)"]
    assert NORM.startswith("_Z")
    assert [one.share_of_kernel_time for one in report.kernels] == pytest.approx(
        [100 * part / total for part in (gemm, reduce, norm, adam)]
    )
    shares = {one.name: (one.total_ns, one.count) for one in report.activity.shares}
    assert shares == {
        "kernel": (total, 2 * STEPS * 24), "memcpy": (2 * STEPS * COPIES, 4 * STEPS), "memset": (2 * STEPS * FILL, 2 * STEPS),
        "sync": (2 * STEPS * 480 * US, 2 * STEPS),
    }  # fmt: skip
    assert report.activity.sync_source == "device"


def test_copies(report: Report) -> None:
    assert [
        (one.kind, one.memory, one.count, one.total_ns, one.total_bytes, one.bandwidth_gb_per_s) for one in report.memory_operations
    ] == [
        ("HtoD", "pinned", 2 * STEPS, 2 * STEPS * 2 * MS, 2 * STEPS * 50_000_000, 25.0),
        ("Memset", None, 2 * STEPS, 2 * STEPS * FILL, 2 * STEPS * 1_000_000, 10.0),
        ("DtoH", "pageable", 2 * STEPS, 2 * STEPS * 10 * US, 2 * STEPS * 4, pytest.approx(0.0004)),
    ]


def test_launches(report: Report) -> None:
    launches = report.launches
    # A step: copy, memset, 10 + 10 kernels, the reduction, the graph, the copy back.
    assert (launches.calls, launches.pairs, launches.graph_runs) == (2 * STEPS * 25, 2 * STEPS * 25, 2 * STEPS * 2)
    assert (launches.runs_without_launch, launches.launches_without_run, launches.negative) == (0, 0, 0)
    # Of a call of 8 us at 10.1 ms + i x 20 us to the run at 13 ms + i x 2.505 ms, and so on.
    latencies = [40 * US, 12_500 * US - 10_035 * US, 60 * MS - 40_510 * US, 80_100 * US - 80_030 * US, 90_050 * US - 90_020 * US]
    latencies += [13 * MS + i * 2_505 * US - 10_108 * US - i * 20 * US for i in range(10)]
    latencies += [41 * MS + i * 3_005 * US - 40_108 * US - i * 20 * US for i in range(10)]
    latency = launches.latency
    assert latency is not None
    assert (latency.count, latency.min, latency.max) == (2 * STEPS * 25, min(latencies), max(latencies))
    assert latency.mean == pytest.approx(sum(latencies) / 25)
    assert latency.p50 == sorted(latencies)[12]
    calls = {row.name: (row.total_ns, row.count) for row in launches.call_time}
    assert calls == {
        "cudaStreamSynchronize": (2 * STEPS * 500 * US, 2 * STEPS), "cudaLaunchKernel": (2 * STEPS * 20 * 8 * US, 2 * STEPS * 20),
        "cudaGraphLaunch": (2 * STEPS * 30 * US, 2 * STEPS), "cudaMemcpyAsync": (2 * STEPS * 30 * US, 4 * STEPS),
        "cudaLaunchKernelExC": (2 * STEPS * 10 * US, 2 * STEPS), "cudaMemsetAsync": (2 * STEPS * 5 * US, 2 * STEPS),
    }  # fmt: skip


def test_every_stream_and_why_it_stood_still(report: Report) -> None:
    actual = {(row.rank, row.device, row.stream): (row.gaps, row.host_wait_ns, row.kernel_wait_ns, row.other_ns) for row in report.idle}
    assert actual.keys() == {(rank, rank, stream) for rank in range(2) for stream in (7, 20, 21)}
    for rank in range(2):
        # Stream 20: the copy alone, of 2 ms every 100 ms; stream 21: the reduction alone. Each launched after the one before, and 40 us and
        # 19.49 ms after the end of its launch call.
        copy, reduction = PERIOD - 2 * MS, PERIOD - REDUCTION[rank]
        assert actual[rank, rank, 20] == (STEPS - 1, (STEPS - 1) * (copy - 40 * US), 0, (STEPS - 1) * 40 * US)
        assert actual[rank, rank, 21] == (STEPS - 1, (STEPS - 1) * (reduction - 19_490 * US), 0, (STEPS - 1) * 19_490 * US)
        # Stream 7 in a step: from the memset to forward 400 us (launched long before: other), nine gaps of 5 us (kernel wait) each in
        # forward and backward, and waits for launches: before backward, the graph, the copy back, and from there to the next memset.
        # These end 892, 70, 30 and 2465 us before the work begins.
        forward_end, backward_end, copied = 13 * MS + 9 * 2_505 * US + 2_500 * US, 71_045 * US, 90_060 * US
        inside = (40_108 * US - forward_end) + (80_030 * US - backward_end) + (90_020 * US - 83_100 * US)
        host = STEPS * inside + (STEPS - 1) * (PERIOD - copied + 10_035 * US)
        queued = STEPS * (400 + 892 + 70 + 30) * US + (STEPS - 1) * 2_465 * US
        assert actual[rank, rank, 7] == (STEPS * 22 + STEPS - 1, host, STEPS * 18 * 5 * US, queued)


def test_steps_of_annotations_and_of_nvtx_ranges(report: Report, store: Store) -> None:
    actual = {(step.rank, step.index): step for step in report.steps.steps}
    assert actual.keys() == {(rank, step) for rank in range(2) for step in range(STEPS)}
    for (_, number), step in actual.items():
        assert (step.on_device, step.duration_ns, step.host_duration_ns) == (True, LAST - FIRST, STEP)
        assert step.start_ns == START + LOOP + number * PERIOD + FIRST
    texts = store.frame(
        "SELECT DISTINCT rank, n.text FROM annotation a JOIN name n ON n.id = a.name JOIN process p ON p.id = a.process"
    ).rows()
    assert {text for rank, text in texts if rank == 0} == {"step", "data_loading", "forward", "backward", "optimizer"}
    assert {text for rank, text in texts if rank == 1 and text.startswith("step")} == {f"step {i}" for i in range(STEPS)}
    groups = {group.name: (group.processes, group.quantiles.count, group.total_ns) for group in report.annotations.groups}
    assert groups == {
        name: (2, 2 * STEPS, 2 * STEPS * length) for name, length in {
            "step": STEP, "backward": 40 * MS, "forward": 30 * MS, "optimizer": 15 * MS, "data_loading": 10 * MS
        }.items()
    }  # fmt: skip
    # The average step is 100 ms from one to the next, except the last with 96 ms.
    for parts, end in zip(report.steps.parts, (75 * MS, 72 * MS), strict=True):
        assert parts.mean_step_ns == ((STEPS - 1) * PERIOD + STEP) / STEPS
        assert parts.mean_ns["kernel"] == FORWARD + BACKWARD + OPTIMIZER
        assert (parts.mean_ns["memcpy"], parts.mean_ns["memset"]) == (COPIES, FILL)
        assert parts.mean_ns["communication"] == (end - 71_045 * US) + 3 * 5 * US


def test_samples_of_the_driver(report: Report) -> None:
    usage = report.system_usage
    [gpu] = [one for one in usage.series if one.metric == "gpu"]
    [memory] = [one for one in usage.series if one.metric == "gpu_memory"]
    times = [i * SECOND // 2 for i in range(10)]
    assert [time - START for time in gpu.time_ns] == times
    busy = [4 <= i < 8 for i in range(10)]
    assert (gpu.mean, gpu.low, gpu.high) == tuple(tuple(value if one else 0.0 for one in busy) for value in (70.0, 60.0, 80.0))
    assert memory.mean == tuple(75.0 if one else 5.0 for one in busy)
    assert usage.gpu_active is not None
    assert (usage.gpu_active.points, usage.gpu_active.active, usage.gpu_active.derived) == (20, 8, False)
    clocks = usage.gpu_clocks
    assert [(one.device, one.power_p50_w, one.power_max_w, one.sm_clock_min_mhz, one.heat_ns, one.sampled_ns) for one in clocks] == [
        (0, 120.0, 650.0, 1980.0, 0, 5 * SECOND), (1, 120.0, 650.0, 1410.0, SECOND, 5 * SECOND),
    ]  # fmt: skip
    assert usage.throttling == (("h1", "The clock of GPU 1 of 2 GPUs was held down for heat for 1.00 s, 20.0% of the time sampled."),)


def test_what_the_host_did_is_not_looked_for_in_call_stacks_of_a_recording(report: Report) -> None:
    [rule] = [rule for rule in report.rules if rule.rule == "HostBound"]
    assert rule.verdict == "IssuesFound"
    assert (rule.recommendation or "").startswith(
        "Trace some steps with the framework's profiler (PyTorch: `with_stack=True`), or annotate more of the loop,"
    )


def test_of_what_the_job_was_made(report: Report) -> None:
    assert [(one.index, one.uuid, one.sm_count, one.used) for one in report.devices] == [(i, UUIDS[i], 132, True) for i in range(2)]
    assert (report.run.status, report.run.world_size, report.job_statistics.duration_ns) == ("completed", 2, ENDED)
    assert {note.code for note in report.data_quality} == {"device_renumbered"}


@pytest.mark.slow
@pytest.mark.parametrize(("first", "end"), [(8, 14), (4, 18)])
def test_a_window_of_steps_and_a_device_clock_that_is_behind(tmp_path: Path, first: int, end: int) -> None:
    # gpu.window is the time of the window. The GPU's clock is 100 us behind, so the copies (40 and 30 us after their calls) and the graph
    # (70 us) seem to run before their calls end.
    begin, close = LOOP + first * PERIOD - 2 * MS, LOOP + (end - 1) * PERIOD + 98 * MS
    window = {"gpu.window.0": f"{START + begin} {START + close}"}
    for rank in range(2):
        recording = Rank(rank, recorded=range(first, end), skew_ns=-100 * US, metadata=window)
        (tmp_path / f"{rank}.prt").write_bytes(recording.data())
    (tmp_path / "r.prt").write_bytes(recorder(samples()))
    report = report_of(tmp_path)
    launches, inside = report.launches, end - first
    assert (launches.pairs, launches.negative, launches.runs_without_launch) == (2 * inside * 25, 2 * inside * 3, 0)
    assert launches.latency is not None
    assert launches.latency.count == 2 * inside * 22
    assert len(report.steps.steps) == 2 * STEPS
    [message] = [note.message for note in report.data_quality if note.code == "gpu_windows"]
    length, total = inside * PERIOD, (STEPS - 1) * PERIOD + STEP
    assert message == (
        f"GPU activity was recorded in a window only, {length // MS} ms of {total / SECOND:.2f} s (where longest, of 2 recordings);"
        " figures of GPUs are of that time."
    ).replace("1400 ms", "1.40 s")
    # Those inside of the window are timed on the device; what comes first are they, and the average step is one of them.
    assert {step.index: step.on_device for step in report.steps.steps} == {i: first <= i < end for i in range(STEPS)}
    assert {step.duration_ns for step in report.steps.steps if step.on_device} == {LAST - FIRST}
    assert PERIOD == 100 * MS  # from step to step; the device works for 80 ms of it
    assert [tile.value for tile in report.summary.tiles if tile.key == "step_time"] == ["100 ms"]
    assert str(steps(report).lead).replace("\u00a0", " ").replace("\u202f", " ") == (
        f"The step time is 100 ms (median of {inside - 1} steps, from step to step). {inside} steps on each of 2 processes, GPU time per"
        " step: the median is 80.0 ms for each; the longest is 80.0 ms (rank 0). Without"
        f" recorded device work, timed on the host: {STEPS - inside} steps on each of 2 processes: the median is 96.0 ms for each; the"
        " slowest step took 96.0 ms (rank 0)."
    )
    for rank, parts in enumerate(report.steps.parts):
        assert parts.steps == inside
        assert parts.mean_step_ns == ((inside - 1) * PERIOD + STEP) / inside
        assert parts.mean_ns["kernel"] == FORWARD + BACKWARD + OPTIMIZER
        assert parts.mean_ns["communication"] == (75 - 3 * rank) * MS - 71_045 * US + 3 * 5 * US
    assert [row.span_ns for row in report.time_breakdown] == [(inside - 1) * PERIOD + LAST - FIRST] * 2
    assert [row.first_ns for row in report.time_breakdown] == [START + LOOP + first * PERIOD + FIRST - 100 * US] * 2
