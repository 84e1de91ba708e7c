"""Operator calls of hand-made stores: rows by module, operator and inputs, with times worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from postrun.analysis.efficiency import operator_calls as tested
from postrun.analysis.efficiency.call_sites import CallSites
from postrun.analysis.report.operator_calls import OperatorCall, OperatorCalls
from postrun.analysis.rules.evidence.run_data import RunData
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
NAMES = {
    "ampere_sgemm_128x64_nn": ("ampere_sgemm_128x64_nn #2", "FP32", "GEMM"),
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL": ("ncclDevKernel_AllReduce_Sum", "FP32", "communication"),
}
MM = {"id": 1, "input_dims": "[[4,8],[8,16]]", "input_types": '["float","float"]'}
ADD = {"id": 2, "input_dims": "[[4,16],[],[]]", "input_types": '["c10::BFloat16","Scalar","Scalar"]'}
FOREACH = {"id": 3, "input_dims": "[[[7],[5,5]]]", "input_types": '[""]'}
FURTHER = {"id": 4, "input_dims": "[[[7],[5,6]]]", "input_types": '[""]'}
HOSTILE = {"id": 5, "input_dims": '[["x",-1],[1e400]]', "input_types": "{"}


def rows_of(make_store: MakeStore, calls: list[tuple[str, int | None, str, int]]) -> OperatorCalls:
    """Each call: operator, signature, name and duration (ns) of its kernel."""
    host: list[dict[str, Any]] = []
    device: list[dict[str, Any]] = []
    for number, (operator, signature, kernel, duration) in enumerate(calls, 1):
        at = 100 * number
        host.append({"kind": "operator", "name": operator, "start_ns": at, "duration_ns": 50, "signature": signature})
        host.append({"kind": "launch", "name": "cudaLaunchKernel", "start_ns": at + 1, "duration_ns": 2, "correlation": number})
        device.append({"kind": "kernel", "name": kernel, "start_ns": 10**6 + 1000 * number, "duration_ns": duration, "correlation": number})
    store = make_store(names=NAMES, host_event=host, device_event=device, signature=[MM, ADD, FOREACH, FURTHER, HOSTILE])
    with store.unchanged():
        data = RunData(store)
        return tested.operator_calls(store, data.operator_work, data.kernel_groups, CallSites(store))


def test_calls_with_the_same_inputs_are_one_row(make_store: MakeStore) -> None:
    """mm: 300 + 100 + 30 = 430 ns in 3 calls, the last kernel with less than a tenth."""
    calls: list[tuple[str, int | None, str, int]] = [
        ("aten::mm", 1, "ampere_sgemm_128x64_nn", 300),
        ("aten::mm", 1, "ampere_sgemm_64x64_nn", 100),
        ("aten::mm", 1, "splitKreduce_kernel", 30),
        ("aten::add", 2, "vectorized_add", 40),
        ("aten::add", None, "vectorized_add", 5),
        ("c10d::allreduce_", 2, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 900),
    ]
    result = rows_of(make_store, calls)
    assert result.rows[:1] == (
        OperatorCall(None, "aten::mm", "4x8, 8x16", "fp32", ("ampere_sgemm_128x64_nn", "ampere_sgemm_64x64_nn"), "FP32", 3, 430),
    )
    assert [(row.operator, row.dims, row.types, row.calls, row.device_ns) for row in result.rows[1:]] == [
        ("aten::add", "4x16", "bf16", 1, 40),
        ("aten::add", "", "", 1, 5),
    ]
    assert (result.further, result.further_ns, result.unlinked_ns) == (0, 0, 0)


def test_lists_of_tensors_stay_different(make_store: MakeStore) -> None:
    result = rows_of(make_store, [("aten::_foreach_add_", 3, "k", 10), ("aten::_foreach_add_", 4, "k", 9)])
    dims = [row.dims for row in result.rows]
    assert [text.partition(" #")[0] for text in dims] == ["2 tensors", "2 tensors"]
    assert len(set(dims)) == 2


def test_unreadable_inputs_are_unknown(make_store: MakeStore) -> None:
    (row,) = rows_of(make_store, [("aten::mm", 5, "k", 10)]).rows
    assert (row.dims, row.types, row.device_ns) == ("", "", 10)


def test_the_list_is_bounded(make_store: MakeStore, monkeypatch: Any) -> None:
    monkeypatch.setattr(tested, "MOST_ROWS", 1)
    result = rows_of(make_store, [("aten::mm", 1, "k", 10), ("aten::add", 2, "k", 4), ("aten::add", None, "k", 3)])
    assert [row.operator for row in result.rows] == ["aten::mm"]
    assert (result.further, result.further_ns) == (2, 7)


def test_work_without_operators_is_counted(make_store: MakeStore) -> None:
    store = make_store(device_event=[{"kind": "kernel", "name": "k", "start_ns": 5, "duration_ns": 7}])
    with store.unchanged():
        data = RunData(store)
        assert tested.operator_calls(store, data.operator_work, data.kernel_groups, data.sites) == OperatorCalls(unlinked_ns=7)
