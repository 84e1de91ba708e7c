"""Step durations and parts of the average step, compared with worked examples, a plain loop, and published figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.steps import claims
from postrun.analysis.steps.step_time import main_steps
from postrun.analysis.steps.steps import steps
from postrun.ingest import ingest
from postrun.ingest.store import Store

CLASSES = ("kernel", "memcpy", "memset", "communication", "runtime", "data_loader", "cpu_op", "other")


def step(index: int, start: int, duration: int, device: tuple[int, int, int] | None = None, **more: Any) -> dict[str, Any]:
    work = {} if device is None else dict(zip(("device_start_ns", "device_duration_ns", "device_events"), device, strict=True))
    return {
        "node": 0,
        "process": 0,
        "index": index,
        "host_start_ns": start,
        "host_duration_ns": duration,
        "device_events": 0,
        **work,
        **more,
    }


def test_without_steps_it_says_how_to_get_them(make_store: Callable[..., Store]) -> None:
    result = steps(make_store())
    assert (result.steps, result.groups, result.parts) == ((), (), ())
    assert "step()" in (result.absent or "")


def test_device_durations_and_host_durations_are_kept_apart(make_store: Callable[..., Store]) -> None:
    rows = [step(i, 100 * i, 90, (100 * i + 10, 200 + i, 5)) for i in range(4)] + [step(4, 400, 50)]
    rows += [step(i, 1000 + i, 7, (1000, 3, 1) if i == 0 else None, phase="TRAIN") for i in range(3)]
    result = steps(make_store(step=rows))
    assert [(g.phase, g.on_device, g.quantiles.count, g.quantiles.min, g.quantiles.max) for g in result.groups] == [
        (None, True, 4, 200, 203), (None, False, 1, 50, 50), ("TRAIN", False, 3, 7, 7),
    ]  # fmt: skip
    first = result.steps[0]
    assert (first.index, first.start_ns, first.duration_ns, first.on_device, first.host_duration_ns) == (0, 10, 200, True, 90)
    assert [s.index for s in result.groups[0].slowest] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("before", "last", "kept"), [(10, 7, 2), (10, 8, 3), (None, 7, 3), (10, None, 3), (None, None, 3)]
)  # fmt: skip
def test_a_last_step_is_cut_off_only_where_both_counts_are_known(
    make_store: Callable[..., Store], before: int | None, last: int | None, kept: int
) -> None:
    rows = [step(n, 100 * n, 50, (100 * n, 40, 0), device_events=many) for n, many in enumerate((10, before, last))]
    events = [{"kind": "kernel", "start_ns": 100 * n, "duration_ns": 40} for n in range(3)]
    assert [parts.steps for parts in steps(make_store(step=rows, device_event=events)).parts] == [kept]


def test_of_steps_of_the_whole_job_only_some_are_listed_beside_profiled_ones(make_store: Callable[..., Store]) -> None:
    profiled = [step(i, 1000 * i, 90, (1000 * i + 10, 200, 5)) for i in range(300)]
    job = [step(i, 1000 * i, 50, phase="TRAIN") for i in range(350)] + [step(i, 400_000 + i, 5, phase="EVAL") for i in range(100)]
    pair = steps(make_store(step=[*job, *profiled]))
    listed = {phase: [s.index for s in pair.steps if s.phase == phase] for phase in (None, "TRAIN", "EVAL")}
    assert listed == {None: list(range(300)), "TRAIN": list(range(0, 350, 4)), "EVAL": list(range(100))}
    assert pair.left_out == 350 - 88
    assert [(g.phase, g.quantiles.count) for g in pair.groups] == [(None, 300), ("EVAL", 100), ("TRAIN", 350)]
    assert main_steps(pair.steps) == [s for s in pair.steps if s.phase is None]
    alone = steps(make_store(step=job))
    assert (len(alone.steps), alone.left_out) == (450, 0)


def test_slowest_ten_and_order_of_processes(make_store: Callable[..., Store]) -> None:
    processes = [{"id": 0, "node": 0, "pid": 1, "rank": 1}, {"id": 1, "node": 0, "pid": 2, "rank": 0}]
    rows = [step(i, 100 * i, (i * 7) % 30 + 1, process=process) for process in (0, 1) for i in range(30)]
    result = steps(make_store(step=rows, processes=processes))
    assert [group.rank for group in result.groups] == [0, 1]
    assert [s.duration_ns for s in result.groups[0].slowest] == list(range(30, 20, -1))
    assert [(s.rank, s.index) for s in result.steps] == [(rank, i) for rank in (0, 1) for i in range(30)]
    assert result.parts == ()  # without events the parts of the steps are unknown


def test_wall_time_is_claimed_in_order_and_sums_to_the_step(make_store: Callable[..., Store]) -> None:
    """Two steps, [0, 100) and [100, 260): the second one lasts until its kernel ends.

    0..10 nothing, 10..20 operator, 20..30 runtime inside the operator, 30..40 loader, 40..60 kernel over a copy and a collective,
    60..70 the rest of the copy, 70..75 the rest of the collective, 75..100 nothing; 240..260 kernel after the host's end.
    """
    host = [
        {"kind": "operator", "start_ns": 10, "duration_ns": 22}, {"kind": "launch", "start_ns": 20, "duration_ns": 10},
        {"kind": "loader", "start_ns": 25, "duration_ns": 15}, {"kind": "python", "start_ns": 0, "duration_ns": 300},
        {"kind": "overhead", "start_ns": 0, "duration_ns": 300}, {"kind": "sync", "start_ns": 300, "duration_ns": 50},
    ]  # fmt: skip
    device = [
        {"kind": "kernel", "start_ns": 40, "duration_ns": 20}, {"kind": "memcpy", "start_ns": 50, "duration_ns": 20},
        {"kind": "kernel", "name": "ncclDevKernel", "start_ns": 50, "duration_ns": 25},
        {"kind": "kernel", "start_ns": 240, "duration_ns": 20},
        {"kind": "sync", "start_ns": 0, "duration_ns": 300},
    ]  # fmt: skip
    rows = [step(0, 0, 100, (40, 35, 3)), step(1, 101, 100, (240, 20, 3))]
    names = {"ncclDevKernel": ("nccl", "unknown", "communication")}
    parts = steps(make_store(step=rows, host_event=host, device_event=device, names=names)).parts[0]
    assert (parts.steps, parts.mean_step_ns) == (2, 130)
    total = {name: 2 * ns for name, ns in parts.mean_ns.items()}
    assert total == {
        "kernel": 40, "memcpy": 10, "memset": 0, "communication": 5, "runtime": 10, "data_loader": 10, "cpu_op": 10, "other": 175,
    }  # fmt: skip


def test_time_between_runs_of_steps_is_no_part_of_a_step_and_a_cut_off_last_one_is_left_out(make_store: Callable[..., Store]) -> None:
    rows = [step(5, 0, 10, (0, 10, 10)), step(6, 11, 9, (11, 9, 10)), step(50, 1000, 10, (1000, 10, 10)), step(51, 1010, 10, (1010, 2, 7))]
    kernel = [{"kind": "kernel", "start_ns": 0, "duration_ns": 2000}]
    parts = steps(make_store(step=rows, device_event=kernel)).parts[0]
    assert (parts.steps, parts.mean_step_ns, parts.mean_ns["kernel"], parts.mean_ns["other"]) == (3, 10, 10, 0)


@pytest.mark.parametrize("stride", [1, 10])
def test_loading_between_two_steps_counts_whatever_their_numbers_count_in(make_store: Callable[..., Store], stride: int) -> None:
    # The host works 40 on a step and then loads for 55, the device until 99: in ten steps nine loads are for another one.
    result = make_store(
        step=[step(stride * n, 100 * n, 40, (100 * n + 10, 89, 2)) for n in range(10)],
        host_event=[{"kind": "loader", "start_ns": 100 * n + 40, "duration_ns": 55} for n in range(10)],
        device_event=[
            {"kind": "kernel", "start_ns": 100 * n + at, "duration_ns": length} for n in range(10) for at, length in ((10, 20), (97, 2))
        ],
    )
    mean = steps(result).parts[0].mean_ns
    assert (mean["kernel"], mean["data_loader"]) == (22, 49.5)


EVENT = st.tuples(st.sampled_from(["kernel", "memcpy", "memset", "launch", "loader", "operator"]), st.integers(0, 60), st.integers(0, 25))


@pytest.mark.parametrize("rows_at_once", [3, 500_000])
@given(lengths=st.lists(st.integers(1, 15), min_size=1, max_size=4), events=st.lists(EVENT, max_size=12))
def test_parts_equal_a_count_of_every_nanosecond(rows_at_once: int, lengths: list[int], events: list[tuple[str, int, int]]) -> None:
    store = Store.create(None)
    start, rows = 0, []
    for i, length in enumerate(lengths):
        rows.append(step(i, start, length))
        start += length
    store.append("step", pl.DataFrame(rows))
    on_device = {"kernel", "memcpy", "memset"}
    for table, kinds in (("device_event", on_device), ("host_event", {"launch", "loader", "operator"})):
        for kind, begin, duration in events:
            if kind in kinds:
                store.insert(table, {"node": 0, "process": 0, "kind": kind, "start_ns": begin, "duration_ns": duration})
    order = {"kernel": "kernel", "memcpy": "memcpy", "memset": "memset", "launch": "runtime", "loader": "data_loader", "operator": "cpu_op"}
    expected = dict.fromkeys(CLASSES, 0)
    for moment in range(start):
        active = {kind for kind, begin, duration in events if begin <= moment < begin + duration}
        expected[next((name for kind, name in order.items() if kind in active), "other")] += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "_ROWS_AT_ONCE", rows_at_once)
        parts = steps(store).parts
    store.close()
    if not events:
        assert parts == ()
        return
    assert {name: round(ns * len(lengths)) for name, ns in parts[0].mean_ns.items()} == expected


def test_published_step_breakdown_of_a_real_trace(shared_data: Path) -> None:
    # Figures that the PyTorch TensorBoard plugin published for this trace, in whole microseconds.
    store = ingest([shared_data / "kineto" / "v100_old_schema" / "resnet50_num_workers_0.json.gz"])
    parts = steps(store).parts[0]
    assert parts.steps == 6
    assert round(parts.mean_step_ns / 1000) == 177592
    published = {"kernel": 98589, "memcpy": 1915, "memset": 89, "runtime": 2908, "data_loader": 59262, "cpu_op": 13674, "other": 1156}
    for name, microseconds in published.items():
        assert abs(parts.mean_ns[name] / 1000 - microseconds) <= 0.5, name
    assert parts.mean_ns["communication"] == 0
    assert sum(parts.mean_ns.values()) == pytest.approx(parts.mean_step_ns)
