"""Device work by owning operator call: hand-made traces with the results worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from postrun.analysis.efficiency.operator_work import OwnedWork, operator_work
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
Row = dict[str, Any]


def operator(name: str, start: int, end: int, **columns: Any) -> Row:
    return {"kind": "operator", "name": name, "start_ns": start, "duration_ns": end - start, **columns}


def launch(start: int, correlation: int, **columns: Any) -> Row:
    return {"kind": "launch", "name": "cudaLaunchKernel", "start_ns": start, "duration_ns": 1, "correlation": correlation, **columns}


def kernel(duration: int, correlation: int | None, **columns: Any) -> Row:
    return {"kind": "kernel", "name": "k", "start_ns": 1000, "duration_ns": duration, "correlation": correlation, **columns}


def times(owned: OwnedWork, *columns: str) -> dict[Any, int]:
    """Sum the time of the work by columns; a single column is the key itself."""
    rows = owned.work.group_by(columns).agg(pl.col("total").sum()).rows()
    return {row[0] if len(columns) == 1 else row[:-1]: row[-1] for row in rows}


def calls(owned: OwnedWork, *columns: str) -> dict[Any, int]:
    rows = owned.calls.group_by(columns).agg(pl.col("calls").sum()).rows()
    return {row[0] if len(columns) == 1 else row[:-1]: row[-1] for row in rows}


def test_the_outermost_owner_owns_what_is_launched_within_it(make_store: MakeStore) -> None:
    # linear 0..100 holds convolution 10..80, which holds _convolution 20..70 and in it fill_ 30..40. Launches: in fill_, _convolution,
    # convolution and linear. The layout change before the convolution is its own; relu owns nothing else.
    store = make_store(
        host_event=[
            operator("aten::linear", 0, 100, external_id=1), operator("aten::convolution", 10, 80, external_id=2, signature=5),
            operator("aten::_convolution", 20, 70, external_id=3), operator("aten::fill_", 30, 40, external_id=4),
            operator("aten::relu", 100, 120, external_id=5),
            launch(31, 1), launch(50, 2), launch(75, 3), launch(90, 4), launch(110, 5),
        ],
        device_event=[kernel(1, 1), kernel(2, 2), kernel(4, 3), kernel(8, 4), kernel(16, 5), kernel(32, None)],
    )  # fmt: skip
    owned = operator_work(store)
    assert times(owned, "operator") == {"aten::convolution": 7, "aten::linear": 8, "aten::relu": 16, None: 32}
    assert times(owned, "inner") == {
        "aten::fill_": 1, "aten::_convolution": 2, "aten::convolution": 4, "aten::linear": 8, "aten::relu": 16, None: 32,
    }  # fmt: skip
    assert calls(owned, "operator", "signature") == {("aten::convolution", 5): 1, ("aten::linear", None): 1, ("aten::relu", None): 1}


def test_of_owners_with_equal_times_the_first_is_the_outer_one(make_store: MakeStore) -> None:
    store = make_store(
        host_event=[
            operator("aten::_convolution", 0, 50, external_id=8), operator("aten::convolution", 0, 50, external_id=7), launch(9, 1)
        ],
        device_event=[kernel(3, 1)],
    )  # fmt: skip
    assert times(operator_work(store), "operator", "inner") == {("aten::convolution", "aten::_convolution"): 3}


def test_work_without_a_launch_goes_by_its_external_id(make_store: MakeStore) -> None:
    # The copy inside of mm (id 2) names its operator; mm owns it. An id that no operator has, and one that is the correlation, name none.
    store = make_store(
        host_event=[operator("aten::mm", 0, 100, external_id=1), operator("aten::copy_", 10, 20, external_id=2)],
        device_event=[kernel(3, 70, external_id=2), kernel(5, 71, external_id=99), kernel(7, 2, external_id=2)],
    )
    owned = operator_work(store)
    assert times(owned, "operator", "inner") == {("aten::mm", "aten::copy_"): 3, (None, None): 12}
    assert calls(owned, "operator") == {"aten::mm": 1}


def test_a_call_counts_once_whatever_it_launched(make_store: MakeStore) -> None:
    # Two calls of bmm with the same inputs, one with two kernels on two devices; a third call launches nothing.
    store = make_store(
        host_event=[
            *(operator("aten::bmm", start, start + 10, signature=3) for start in (0, 20, 40)), launch(1, 1), launch(2, 2), launch(21, 3)
        ],
        device_event=[kernel(5, 1), kernel(6, 2, device=1), kernel(7, 3)],
    )  # fmt: skip
    owned = operator_work(store)
    assert times(owned, "device") == {0: 12, 1: 6}
    assert calls(owned, "operator", "signature") == {("aten::bmm", 3): 2}


def test_matrix_calls_of_a_process_without_device_work_count(make_store: MakeStore) -> None:
    # Process 1 has no device work: its convolution and mm count, but not the mm within the convolution, nor relu.
    store = make_store(
        processes=[{"id": 0, "node": 0, "rank": 0}, {"id": 1, "node": 0, "rank": 1}],
        host_event=[
            operator("aten::mm", 0, 10), launch(1, 1), operator("aten::mm", 50, 60),
            operator("aten::convolution", 0, 50, process=1), operator("aten::mm", 10, 20, process=1),
            operator("aten::mm", 60, 70, process=1), operator("aten::relu", 80, 90, process=1),
        ],
        device_event=[kernel(5, 1)],
    )  # fmt: skip
    owned = operator_work(store)
    assert calls(owned, "process", "operator") == {(0, "aten::mm"): 1, (1, "aten::mm"): 1, (1, "aten::convolution"): 1}
    assert times(owned, "process") == {0: 5}


def test_calls_inside_of_windows(make_store: MakeStore) -> None:
    # The call counts, not its launch: mm begins at 10, before the window 15..50, and launches in it.
    store = make_store(
        host_event=[operator("aten::mm", 10, 30), operator("aten::mm", 40, 60), launch(20, 1), launch(55, 2), launch(48, 3, tid=2)],
        device_event=[kernel(1, 1), kernel(2, 2), kernel(4, 3), kernel(8, None)],
    )
    windows = pl.DataFrame({"process": [0], "start": [15], "end": [50]}, schema_overrides={"process": pl.Int32})
    assert times(operator_work(store, windows), "inside") == {False: 1, True: 6, None: 8}


def test_occupancy_is_weighted_by_time(make_store: MakeStore) -> None:
    store = make_store(
        host_event=[operator("aten::add", 0, 10), launch(1, 1)],
        device_event=[kernel(10, 1, occupancy=50.0), kernel(30, 1, occupancy=100.0), kernel(60, 1)],
    )
    (row,) = operator_work(store).work.select("occupancy", "occupancy_ns", "total").rows()
    assert row == (10 * 50.0 + 30 * 100.0, 40, 100)


def test_a_run_without_operators_has_its_kernels(make_store: MakeStore) -> None:
    owned = operator_work(make_store(device_event=[kernel(3, 1), kernel(4, 2), {**kernel(9, 1), "kind": "sync"}]))
    assert owned.work.select("operator", "count", "total").rows() == [(None, 2, 7)]
    assert owned.calls.is_empty()


NODE = "autograd::engine::evaluate_function: "


@pytest.mark.parametrize(
    ("backward", "again"),
    [
        # A node of a checkpoint runs the forward pass again, with a new graph.
        ([operator(NODE + "CheckpointFunctionBackward", 100, 200, sequence=1, forward_thread=1),
          operator("aten::mm", 110, 120, sequence=7, forward_thread=0),
          operator(NODE + "MmBackward0", 130, 190, sequence=7, forward_thread=2), operator("aten::mm", 140, 150)], True),
        # A node whose saved tensor is computed again: no node has the sequence number of that call.
        ([operator(NODE + "MmBackward0", 100, 200, sequence=1, forward_thread=1),
          operator("aten::mm", 110, 120, sequence=7, forward_thread=0), operator("aten::mm", 140, 150)], True),
        # A backward pass with a graph of its own, which another node differentiates.
        ([operator(NODE + "MmBackward0", 100, 200, sequence=1, forward_thread=1),
          operator("aten::mm", 110, 120, sequence=7, forward_thread=0), operator("aten::mm", 140, 150),
          operator(NODE + "MmBackward0", 300, 400, sequence=7, forward_thread=1)], False),
        # An ordinary backward pass.
        ([operator(NODE + "MmBackward0", 100, 200, sequence=1, forward_thread=1), operator("aten::mm", 110, 120),
          operator("aten::mm", 140, 150)], False),
    ],
)  # fmt: skip
def test_recomputed_forward_calls(make_store: MakeStore, backward: list[Row], again: bool) -> None:
    forward = operator("aten::mm", 10, 20, sequence=1, forward_thread=0)
    store = make_store(
        host_event=[forward, *backward, launch(11, 1), launch(111, 2), launch(141, 3)],
        device_event=[kernel(1, 1), kernel(2, 2), kernel(4, 3)],
    )
    assert times(operator_work(store), "backward", "recomputed") == (
        {(False, False): 1, (True, True): 2, (True, False): 4} if again else {(False, False): 1, (True, False): 6}
    )
