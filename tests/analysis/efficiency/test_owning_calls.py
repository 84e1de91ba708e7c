"""Owners under transforms of functions, and calls that a checkpoint interrupts: hand-made traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import polars as pl
from postrun.analysis.efficiency.operator_work import operator_work
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
Row = dict[str, Any]


def operator(name: str, start: int, end: int, signature: int | None = None, **columns: Any) -> Row:
    return {"kind": "operator", "name": name, "start_ns": start, "duration_ns": end - start, "signature": signature, **columns}


def signature(number: int, *dims: list[int]) -> Row:
    return {"id": number, "input_dims": json.dumps(dims), "input_types": json.dumps(["float"] * len(dims))}


EXAMPLE = signature(1, [5, 6], [6, 7])  # 420 FLOPs
BATCH = signature(2, [4, 5, 6], [4, 6, 7])  # 1680


def calls(store: Store) -> dict[tuple[str, int | None], int]:
    rows = operator_work(store).calls.group_by("operator", "signature").agg(pl.col("calls").sum()).rows()
    return {(name, inputs): count for name, inputs, count in rows}


def test_under_vmap_the_call_of_the_batch_owns(make_store: MakeStore) -> None:
    # A call of the interpreter, one per transform, and the product of the batch in them; a further product without a transform.
    store = make_store(
        signature=[EXAMPLE, BATCH],
        host_event=[
            operator("aten::mm", 0, 100, 1), operator("aten::mm", 10, 90, 1), operator("aten::bmm", 20, 40, 2),
            operator("aten::mm", 200, 300, 1),
        ],
    )  # fmt: skip
    assert calls(store) == {("aten::bmm", 2): 1, ("aten::mm", 1): 1}


def test_device_work_under_vmap(make_store: MakeStore) -> None:
    store = make_store(
        signature=[EXAMPLE, BATCH],
        host_event=[
            operator("aten::mm", 0, 100, 1),
            operator("aten::bmm", 20, 40, 2),
            {"kind": "launch", "name": "cudaLaunchKernel", "start_ns": 30, "duration_ns": 1, "correlation": 7},
            {"kind": "launch", "name": "cudaLaunchKernel", "start_ns": 60, "duration_ns": 1, "correlation": 8},
        ],
        device_event=[
            {"kind": "kernel", "name": "k", "start_ns": 1000, "duration_ns": 5, "correlation": 7},
            {"kind": "kernel", "name": "k", "start_ns": 1010, "duration_ns": 3, "correlation": 8},
        ],
    )
    work = operator_work(store).work
    assert sorted(work.select("operator", "signature", "total").rows()) == [("aten::bmm", 2, 5), ("aten::mm", 1, 3)]


def test_products_of_tangents_count_beside_the_product_of_the_data(make_store: MakeStore) -> None:
    # jvp of mm: within the call of the transform the product itself, and one for each tangent.
    inner = [operator("aten::mm", start, start + 9, 1) for start in (20, 30, 40)]
    store = make_store(signature=[EXAMPLE], host_event=[operator("aten::mm", 0, 100, 1), operator("aten::mm", 10, 90, 1), *inner])
    assert calls(store) == {("aten::mm", 1): 3}


def test_parts_of_a_complete_call_do_not_replace_it(make_store: MakeStore) -> None:
    # A grouped product computes its groups one by one, an operator with unknown inputs has known ones within.
    groups = [operator("aten::mm", start, start + 9, 1) for start in (20, 30, 40, 50)]
    store = make_store(signature=[EXAMPLE, BATCH], host_event=[operator("aten::bmm", 0, 100, 2), *groups])
    assert calls(store) == {("aten::bmm", 2): 1}
    store = make_store(signature=[EXAMPLE], host_event=[operator("aten::_convolution", 0, 9), operator("aten::cudnn_convolution", 1, 8)])
    assert calls(store) == {("aten::_convolution", None): 1}


def test_a_deep_nest_ends(make_store: MakeStore) -> None:
    store = make_store(signature=[EXAMPLE], host_event=[operator("aten::mm", n, 10_000 - n, 1) for n in range(3000)])
    assert calls(store) == {("aten::mm", 1): 1}


def test_a_call_that_a_checkpoint_interrupts_does_not_count(make_store: MakeStore) -> None:
    # The call of the forward pass and that of the backward pass contain operators; the recomputed one only the detach of the hook.
    forward = {"sequence": 3, "forward_thread": 0}
    elsewhere = {**EXAMPLE, "id": 3, "call_stack": "elsewhere"}
    rows = [
        operator("aten::mm", 0, 50, 1, **forward), operator("aten::resolve_conj", 10, 20),
        operator("aten::mm", 100, 150, 3, **forward), operator("aten::detach", 110, 120), operator("detach", 112, 118),
        operator("aten::mm", 200, 250, 1, sequence=None),
    ]  # fmt: skip
    assert calls(make_store(signature=[EXAMPLE, elsewhere], host_event=rows)) == {("aten::mm", 1): 2}
    # Small products contain no operators at all.
    assert sum(calls(make_store(signature=[EXAMPLE, elsewhere], host_event=[rows[0], *rows[2:]])).values()) == 3
