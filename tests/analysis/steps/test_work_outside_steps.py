"""Device work launched before, between and after the recorded steps is in no figure per step; worked out on paper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.compare.build import compare
from postrun.analysis.report import Report
from postrun.analysis.steps.step_time import step_times
from postrun.ingest import ingest
from postrun.nightly.work import figures
from postrun.report_templates.sections.step_breakdown import step_breakdown
from postrun.report_templates.sections.steps import steps as section

US = 1000
T0 = 1_700_000_000_000_000

Launch = tuple[int, int, int, int]
"""Time of the launch on the host (None in the trace if negative), stream, start and end of the kernel; us."""


def trace(
    path: Path,
    steps: Sequence[tuple[int, int, int]],
    launches: Sequence[Launch],
    nccl: Sequence[Launch] = (),
    copies: Sequence[Launch] = (),
) -> Report:
    """Report a trace of one rank.

    ``steps``: number, start and end on the host. Each of ``copies`` has 1000 bytes.
    """
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 100, "tid": 1, "ts": T0 + start, "dur": end - start}
        for number, start, end in steps
    ]
    work = [
        *(("gemm_kernel", launch) for launch in launches),
        *(("ncclDevKernel_AllReduce_Sum_f32_RING_LL", launch) for launch in nccl),
        *(("Memcpy HtoD (Pinned -> Device)", launch) for launch in copies),
    ]
    for correlation, (name, (launched, stream, start, end)) in enumerate(work, 1):
        args = {"device": 0, "stream": stream, "correlation": correlation, "bytes": 1000}
        category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream, "ts": T0 + start, "dur": end - start, "args": args}
        )
        if launched >= 0:
            call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": 1, "ts": T0 + launched, "dur": 1}
            events.append(call | {"args": {"correlation": correlation}})
    path.write_text(json.dumps({"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": events}))
    with ingest([path]) as store:
        return analyze(store, Options(generated_at_ns=0))


def step_tile(report: Report) -> tuple[str, str]:
    tile = next(tile for tile in report.summary.tiles if tile.key == "step_time")
    return tile.label, tile.value


def bars(report: Report) -> list[tuple[int, ...]]:
    """Return step, computation, exposed communication and idle of each step, in us."""
    return [
        tuple(ns // US for ns in (bar.step_ns, bar.computation_ns, bar.exposed_communication_ns, bar.idle_ns))
        for bar in report.step_breakdown.mean
    ]


# The device is behind: what a warm-up step launched (not in the trace) runs until 250, then steps of 100 follow each other.
QUEUE = [(3, 100, 140), (4, 140, 180), (5, 180, 400)]
AHEAD = [(110, 7, 250, 340), (150, 7, 350, 440), (190, 7, 450, 540)]
WARM_UP = [(-1, 7, 90, 250)]


def test_work_of_a_warm_up_step_is_in_no_figure_per_step(tmp_path: Path) -> None:
    report = trace(tmp_path / "trace.json", QUEUE, [*AHEAD, *WARM_UP], nccl=[(115, 20, 330, 350), (155, 20, 430, 450), (195, 20, 530, 550)])
    # Step 3 begins when the warm-up's work ends. Each computes 90 and waits 10 for communication; nothing is idle.
    assert bars(report) == [(100, 90, 10, 0)] * 3
    assert step_tile(report) == ("step time", "100 µs")
    (work,) = report.steps.outside
    assert (work.rank, work.when, work.runs, work.busy_ns, work.longest) == (0, "before", 1, 160 * US, "gemm_kernel")
    (parts,) = report.steps.parts
    assert (parts.mean_step_ns, parts.mean_ns["kernel"], parts.mean_ns["communication"]) == (100 * US, 90 * US, 10 * US)
    average = report.step_breakdown.average
    assert average is not None
    assert average.mean_ns("exposed_communication") == 10 * US


def test_copies_of_a_warm_up_step_are_not_compared(tmp_path: Path) -> None:
    """A copy before the steps takes 100, and one in each of three steps takes 10.

    The other run has no copy before the steps, and those in the steps take 20.
    """
    inside = [(112, 7, 340, 350), (152, 7, 440, 450), (192, 7, 540, 550)]
    base = trace(tmp_path / "base.json", QUEUE, AHEAD, copies=[(-1, 7, 90, 190), *inside])
    new = trace(tmp_path / "new.json", QUEUE, AHEAD, copies=[(at, stream, start - 10, end) for at, stream, start, end in inside])
    (copies,) = base.memory_operations
    assert (copies.count, copies.outside_count, copies.outside_ns, copies.outside_bytes) == (4, 1, 100 * US, 1000)
    (change,) = compare(base, new, generator=base.generator).memory_operations
    assert (change.base_count, change.new_count, change.base_bytes, change.new_bytes) == (1, 1, 1000, 1000)
    assert (change.base_ns, change.new_ns) == (10 * US, 20 * US)


@pytest.mark.parametrize("launched", [-1, 50])
def test_without_that_work_all_figures_per_step_are_equal(tmp_path: Path, launched: int) -> None:
    alone = trace(tmp_path / "alone.json", QUEUE, AHEAD)
    after = trace(tmp_path / "after.json", QUEUE, [*AHEAD, (launched, 7, 90, 240), (410, 7, 560, 900)])
    assert [(work.when, work.busy_ns) for work in after.steps.outside] == [("before", 150 * US), ("after", 340 * US)]
    assert alone.steps.outside == ()
    for field in ("step_breakdown", "rank_comparison"):
        assert getattr(after, field) == getattr(alone, field)
    assert step_tile(after) == step_tile(alone)


def test_a_step_begins_when_work_before_it_ended_on_another_stream(tmp_path: Path) -> None:
    # Work on stream 9 ends at 270, 20 after the first kernel of step 3 began: the step before it ended then, had it been recorded.
    report = trace(tmp_path / "trace.json", QUEUE, [*AHEAD, (-1, 9, 90, 270)])
    assert bars(report) == [(70, 70, 0, 0), (100, 90, 0, 10), (100, 90, 0, 10)]


def test_work_before_the_steps_that_outlasts_the_first_one_is_none_of_its_work(tmp_path: Path) -> None:
    # Step 3 computes from 250 to 280 and from 320 to 340. Work on stream 9 runs until 345 and fills the time between in no figure.
    work = [(110, 7, 250, 280), (115, 7, 320, 340), *AHEAD[1:], (-1, 9, 90, 345)]
    report = trace(tmp_path / "trace.json", QUEUE, work)
    assert bars(report) == [(90, 50, 0, 40), (100, 90, 0, 10), (100, 90, 0, 10)]
    assert [(work.when, work.busy_ns) for work in report.steps.outside] == [("before", 255 * US)]


def test_steps_of_a_second_profile_with_the_same_numbers_have_their_own_work(tmp_path: Path) -> None:
    steps = [*QUEUE[:2], (5, 180, 220), (3, 1000, 1040), (4, 1040, 1080)]
    work = [*AHEAD, (1010, 7, 1020, 1030), (1050, 7, 1060, 1070)]
    assert trace(tmp_path / "trace.json", steps, work).steps.outside == ()


def test_work_between_profiles_is_of_neither(tmp_path: Path) -> None:
    steps = [(3, 0, 40), (4, 100, 140), (40, 1000, 1040), (41, 1100, 1140)]
    work = [(10, 7, 20, 60), (110, 7, 120, 160), (500, 7, 950, 1010), (1010, 7, 1010, 1060), (1110, 7, 1120, 1160)]
    report = trace(tmp_path / "trace.json", steps, work)
    assert bars(report) == [(40, 40, 0, 0), (100, 40, 0, 60), (50, 50, 0, 0), (100, 40, 0, 60)]
    assert [(work.when, work.runs, work.busy_ns) for work in report.steps.outside] == [("between", 1, 60 * US)]
    average = report.step_breakdown.average
    assert average is not None
    assert (average.steps, average.step_ns, average.idle_ns) == (2, 200 * US, 120 * US)


def test_overlapping_steps_have_the_cadence(tmp_path: Path) -> None:
    # A stream of copies runs a step ahead: the GPU time per step is 180, and a step ends every 100.
    steps = [(number, 100 * number, 100 * number + 90) for number in range(1, 5)]
    work = [
        launch for n in range(1, 5) for launch in ((100 * n, 8, 100 * n + 5, 100 * n + 15), (100 * n + 10, 7, 100 * n + 90, 100 * n + 185))
    ]
    report = trace(tmp_path / "trace.json", steps, work)
    assert bars(report)[1:] == [(100, 95, 0, 5)] * 3
    assert step_tile(report) == ("step time", "100 µs")
    (group,) = report.steps.groups
    assert (group.quantiles.p50, group.step_time_ns) == (180 * US, 100 * US)
    detail = next(tile.detail for tile in report.summary.tiles if tile.key == "step_time")
    assert detail == "median of 3 steps, step to step, GPU time 180 µs (GPU work of steps overlaps)"
    assert "The GPU work of steps overlaps, so the GPU time per step is longer." in str(section(report).lead)


def test_the_slowest_steps_are_in_order_of_their_step_time(tmp_path: Path) -> None:
    # Step 2 works longest, because its work begins before that of step 1 ends; step 3 ends 90 us after step 2.
    steps = [(1, 0, 9), (2, 10, 19), (3, 30, 39)]
    work = [(5, 7, 10, 100), (15, 8, 20, 150), (35, 7, 160, 240)]
    tables = section(trace(tmp_path / "trace.json", steps, work)).tables
    assert [col.label for col in tables["slowest"].columns][2:] == ["Began after", "Step time", "GPU time", "On the host"]
    cells = [[row[at].text.replace("\u00a0", " ") for at in (0, 3, 4)] for row in tables["slowest"].rows]
    assert cells == [["step 3", "90.0 µs", "80.0 µs"], ["step 2", "50.0 µs", "130 µs"], ["step 1", "—", "90.0 µs"]]
    (row,) = tables["groups"].rows
    figures = {col.label: cell.text.replace("\u00a0", " ") for col, cell in zip(tables["groups"].columns, row, strict=True)}
    assert {label: text for label, text in figures.items() if "time: m" in label} == {
        "Step time: median": "70.0 µs",
        "Step time: max": "90.0 µs",
        "Step time: min": "50.0 µs",
        "Step time: mean": "70.0 µs",
        "GPU time: median": "90.0 µs",
        "GPU time: max": "130 µs",
        "GPU time: min": "80.0 µs",
        "GPU time: mean": "100 µs",
    }


def test_one_recorded_step_has_no_step_time(tmp_path: Path) -> None:
    report = trace(tmp_path / "trace.json", QUEUE[:1], [AHEAD[0], *WARM_UP])
    assert bars(report) == [(90, 90, 0, 0)]
    assert step_tile(report) == ("GPU time per step", "90.0 µs")
    times = step_times(report.steps)
    assert times is not None
    assert (times.measure, times.values) == ("device", (90_000.0,))
    assert [work.busy_ns for work in report.steps.outside] == [160 * US]


def test_slow_warm_up_steps_do_not_move_the_step_time(tmp_path: Path) -> None:
    # The first two steps compile: 5000 and 900, the others 100.
    ends = [0, 5000, 5900, 6000, 6100, 6200, 6300, 6400]
    steps: list[tuple[int, int, int]] = []
    work: list[Launch] = []
    for number, (start, end) in enumerate(pairwise(ends)):
        steps.append((number, start, end))
        work.append((end - 60, 7, end - 50, end))
    report = trace(tmp_path / "trace.json", steps, work)
    assert step_tile(report) == ("step time", "100 µs")
    assert report.steps.outside == ()


def test_unknown_launches_leave_the_work_where_it_ran(tmp_path: Path) -> None:
    # A stream without any launch in the trace, in the midst of the steps: nothing proves that it is not theirs.
    report = trace(tmp_path / "trace.json", QUEUE, [*AHEAD, (-1, 9, 340, 350)])
    assert report.steps.outside == ()
    assert bars(report)[1] == (100, 100, 0, 0)


def test_report_comparison_and_index_have_one_step_time(tmp_path: Path) -> None:
    steps = [(number, 100 * number, 100 * number + 90) for number in range(1, 8)]
    work = [(100 * n + 10, 7, 100 * n + 90, 100 * n + 160 + 3 * (n % 4)) for n in range(1, 8)]
    report = trace(tmp_path / "trace.json", steps, [*work, (-1, 7, 80, 150)])
    comparison = compare(report, report, generator=report.generator)
    assert comparison.steps is not None
    tile = next(tile for tile in report.summary.tiles if tile.key == "step_time")
    assert tile.number == comparison.steps.base.p50 == figures(report)["step_median_ns"] == report.steps.groups[0].step_time_ns
    assert plain(section(report).lead).startswith(f"The step time is {tile.value} (median of 6 steps, from step to step).")
    assert plain(step_breakdown(report).lead).startswith(f"The step time is {tile.value} (median).")


def plain(text: object) -> str:
    return str(text).replace("\u00a0", " ")
