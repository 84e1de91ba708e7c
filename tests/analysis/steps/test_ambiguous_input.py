"""Incomplete and odd traces: each value is right, or a sentence explains why there is none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from operator_rows import operators
from postrun.analysis.causes.collectives import collectives
from postrun.analysis.device.launch_queue import launch_queue
from postrun.analysis.steps.breakdown import step_breakdown
from postrun.analysis.steps.ranks import rank_comparison
from postrun.analysis.steps.slow import slow_steps
from postrun.analysis.steps.steps import steps
from postrun.ingest import ingest
from postrun.ingest.store import Store

T0 = 1_700_000_000_000_000  # microseconds
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"

Event = dict[str, Any]
Read = Callable[..., Store]


def event(category: str, name: str, start: float, duration: float, pid: int = 9, **arguments: Any) -> Event:
    """Make an event of a trace, without arguments that are None."""
    values = {key: value for key, value in arguments.items() if value is not None}
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": 1, "ts": T0 + start, "dur": duration, "args": values}


def training(
    count: int, *, first: int = 0, linked: bool = True, stream: int | None = 7, devices: tuple[int, ...] = (0,), side: str = "host",
    length: int = 1000, gemm: tuple[float, ...] = (300,),
) -> list[Event]:  # fmt: skip
    """Make steps every 1000 us with computation and a collective.

    The gemm takes 300 us from 100, the collective 200 us from 450. An operator at 10 launches each of them.
    """
    result = []
    for number in range(first, first + count):
        at, name = 1000 * number, f"ProfilerStep#{number}"
        if side == "host":
            result.append(event("user_annotation", name, at, length))
        else:
            result.append(event("gpu_user_annotation", name, at + 100, 550, 0, stream=7, device=0))
        result.append(event("cpu_op", "aten::mm", at + 10, 60))
        for device in devices:
            computes = gemm[(number - first) % len(gemm)] + 10 * device
            for index, kernel, start, duration, on in ((20, "gemm", 100, computes, stream), (40, NCCL, 450, 200, 20)):
                correlation = 10_000 * device + 10 * number + index // 20 if linked else None
                result.append(event("cuda_runtime", "cudaLaunchKernel", at + index, 5, correlation=correlation))
                run = event("kernel", kernel, at + start, duration, device, device=device, stream=on, correlation=correlation)
                result.append({**run, "tid": on if on is not None else "a queue"})
    return result


@pytest.fixture
def read(tmp_path: Path) -> Iterator[Read]:
    """Reads traces of one host each, by their events; ``rank``: the first one's is 0."""
    opened: list[Store] = []

    def store_of(*traces: list[Event], **members: Any) -> Store:
        for rank, events in enumerate(traces):
            head = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": len(traces)}, **members}
            (tmp_path / f"t{rank}.json").write_text(json.dumps({**head, "traceEvents": events}), encoding="utf-8")
        opened.append(ingest([tmp_path]))
        return opened[-1]

    yield store_of
    for store in opened:
        store.close()


def parts(store: Store) -> list[tuple[int, ...]]:
    """Of each step in microseconds: step, computation, exposed communication, idle."""
    bars = step_breakdown(store).mean
    return [(b.step_ns // 1000, b.computation_ns // 1000, b.exposed_communication_ns // 1000, b.idle_ns // 1000) for b in bars]


def test_no_correlation_is_no_link(read: Read) -> None:
    store = read(training(3, linked=False))
    for absent in (step_breakdown(store).absent, slow_steps(store).absent):
        assert absent is not None
        assert absent.startswith("Steps and device work, but no launch call")
    assert (operators(store).linked_percent, operators(store).rows) == (0.0, ())
    assert "launch call" in (operators(store).absent or "")
    assert "launch call" in (launch_queue(store).absent or "")
    assert [(row.count, row.total_ns) for row in collectives(store)[0]] == [(3, 600_000)]


def test_the_same_pid_on_two_hosts_is_two_processes(read: Read) -> None:
    # The second one's collectives are half as long: the first waits 100 us. Nothing is matched without records of the collectives.
    shorter = [{**one, "dur": 100} if one["name"] == NCCL else one for one in training(3)]
    store = read(training(3), shorter)
    result = rank_comparison(store)
    assert [(row.rank, row.pid, row.computation_ns, row.waiting_ns) for row in result.ranks] == [
        (0, 9, 300_000, 100_000),
        (1, 9, 300_000, 0),
    ]
    assert result.groups == 0
    assert operators(store).rows[0].calls == 6
    assert [(row.ranks, row.count, row.total_ns, row.waiting_ns) for row in collectives(store)[0]] == [(1, 6, 900_000, None)]
    assert [(queue.rank, queue.stream, queue.runs) for queue in launch_queue(store).streams] == [
        (0, 7, 3),
        (0, 20, 3),
        (1, 7, 3),
        (1, 20, 3),
    ]


def test_kernels_without_a_stream_are_a_stream_of_their_own(read: Read) -> None:
    # A launch ends at 25, its run begins at 100: 75 us of waiting in each step; from the launch at 20 of the first to 2400.
    store = read(training(3, stream=None))
    _, queue = launch_queue(store).streams
    assert (queue.stream, queue.runs, queue.linked, queue.max_depth, queue.busy_ns) == (None, 3, 3, 1, 900_000)
    assert queue.mean_depth == pytest.approx(3 * 75 / (2400 - 25))
    assert parts(store) == [(550, 300, 200, 50), (1000, 300, 200, 500), (1000, 300, 200, 500)]


def test_negative_durations_are_left_out_and_zero_ones_kept(read: Read) -> None:
    store = read(training(3, gemm=(300, -5, 0)))
    assert parts(store) == [(550, 300, 200, 50), (1000, 0, 200, 800), (1000, 0, 200, 800)]
    (row,) = operators(store).rows
    assert (row.calls, row.count, row.total_ns) == (3, 5, 900_000)
    assert store.frame("SELECT count FROM ingest_note WHERE code = 'negative_duration'").item() == 1


def test_steps_that_overlap_on_the_host_share_no_device_time(read: Read) -> None:
    # Steps of 1500 us every 1000: what is launched in two belongs to the one that began last.
    store = read(training(3, length=1500))
    assert parts(store) == [(550, 300, 200, 50), (1000, 300, 200, 500), (1000, 300, 200, 500)]
    mean = steps(store).parts[0]
    # Wall time: 1500, and from there to 2500 and 3500.
    assert (mean.steps, mean.mean_step_ns) == (3, pytest.approx((1500 + 1000 + 1000) * 1000 / 3))


def test_steps_on_the_device_alone_are_said(read: Read) -> None:
    store = read(training(3, side="device"))
    assert "stand on the GPU alone" in (steps(store).absent or "")
    assert step_breakdown(store).absent is not None


def test_ranks_with_different_numbers_of_steps(read: Read) -> None:
    # Both ranks have steps 2, 3 and 4: the second's wait before step 2 is not known, and its mean is of 3 and 4.
    store = read(training(5), training(3, first=2, gemm=(320,)))
    result = rank_comparison(store)
    assert (result.steps, [row.steps for row in result.ranks]) == (3, [3, 3])
    assert [row.step_ns for row in result.ranks] == [1_000_000, 1_000_000]
    assert [row.computation_ns for row in result.ranks] == [300_000, 320_000]
    breakdown = step_breakdown(store)
    assert [bar.steps for bar in breakdown.mean] == [1, 1, 2, 2, 2]


def test_ranks_without_a_common_step(read: Read) -> None:
    result = rank_comparison(read(training(3), training(3, first=7)))
    assert "recorded on two ranks" in (result.absent or "")


def test_of_two_devices_of_a_process_one_is_shown_and_it_is_said(read: Read) -> None:
    store = read(training(3, devices=(0, 1)))
    result = step_breakdown(store)
    assert (result.devices, parts(store)[0]) == (2, (550, 310, 200, 40))
    assert [(q.device, q.stream) for q in launch_queue(store).streams] == [(0, 7), (0, 20), (1, 7), (1, 20)]
    assert sum(row.count for row in operators(store).rows) == 12


def test_a_profile_in_windows(tmp_path: Path) -> None:
    # Two files of one process: the pause between them is part of no figure; correlations count from the start again.
    for name, first in (("a", 0), ("b", 500)):
        document = {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": training(3, first=first)}
        (tmp_path / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    with ingest([tmp_path]) as store:
        assert parts(store) == [(550, 300, 200, 50), (1000, 300, 200, 500), (1000, 300, 200, 500)] * 2
        gemm, nccl = launch_queue(store).streams
        assert (gemm.span_ns, nccl.span_ns) == (2 * (2400 - 25) * 1000, 2 * (2650 - 45) * 1000)
        assert nccl.mean_depth == pytest.approx(6 * (450 - 45) / (2 * (2650 - 45)))


def test_collectives_without_a_record_have_no_size(read: Read) -> None:
    (row,), result = collectives(read(training(2), training(2)))
    assert (row.operation, row.bytes, row.group_size, row.group_size_assumed, row.bus_gb_per_s) == ("all-reduce", None, None, False, None)
    assert (result.sized_percent, result.matched, result.unmatched) == (0.0, 0, 0)
