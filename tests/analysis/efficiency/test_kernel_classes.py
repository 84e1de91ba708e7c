"""Shares of categories and precisions, and rows of kernels, from operators: traces made by hand, with results on paper."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis.device.kernels import kernel_sums, kernels
from postrun.analysis.efficiency.call_sites import CallSites
from postrun.analysis.efficiency.kernel_classes import categories, category_sources, described, kernel_groups, precision
from postrun.analysis.efficiency.operator_work import operator_work
from postrun.analysis.report.device import Kernel, Precision
from postrun.analysis.report.rows import Share
from postrun.analysis.toolkit.wording import shape_text
from postrun.ingest.store import Store

BF16 = "c10::BFloat16"
NAMES = {
    "gemm_like": ("gemm_like", "FP32", "GEMM"),  # what a library calls its product, whatever it computes
    "attn_fwd": ("attn_fwd", "unknown", "attention"),
    "topk": ("topk", "unknown", "embedding/index"),
    "add": ("add", "FP32", "elementwise"),
    "mystery": ("mystery", "unknown", "other"),
}
# Operators one after the other, each with its kernels: (operator, input types, input dims, [(kernel, ns)]).
Calls = list[tuple[str, list[str], list[Any], list[tuple[str, int]]]]


def rows_of(calls: Calls, **more: Any) -> dict[str, Any]:
    """Return tables in which each kernel is launched 1 ns after the one before."""
    signature, host, device = [], [], []
    now = number = 0
    for index, (operator, types, dims, launched) in enumerate(calls):
        signature.append({"id": index, "input_dims": json.dumps(dims), "input_types": json.dumps(types)})
        length = 2 * len(launched) + 1
        host.append({"kind": "operator", "name": operator, "start_ns": now, "duration_ns": length, "signature": index})
        for offset, (kernel, duration) in enumerate(launched):
            number += 1
            start = now + 2 * offset + 1
            host.append({"kind": "launch", "name": "cudaLaunchKernel", "start_ns": start, "duration_ns": 1, "correlation": number})
            device.append(
                {"kind": "kernel", "name": kernel, "start_ns": 1000 * number, "duration_ns": duration, "correlation": number, **more}
            )
        now += length + 1
    return {"signature": signature, "host_event": host, "device_event": device}


def results(store: Store) -> tuple[tuple[Share, ...], tuple[Share, ...], Precision, dict[str, Kernel]]:
    sums = kernel_sums(store)
    groups = kernel_groups(store, operator_work(store), sums)
    listed = described(kernels(sums, ()), sums, groups, store)
    return categories(groups), category_sources(groups), precision(groups), {kernel.name: kernel for kernel in listed}


def plain(shares: tuple[Share, ...]) -> list[tuple[str, int, int]]:
    return [(share.name, share.total_ns, share.count) for share in shares]


def test_shares_are_added_up_from_operator_calls(make_store: Callable[..., Store]) -> None:
    calls: Calls = [
        ("aten::cudnn_convolution", [BF16, BF16], [[8, 3, 32, 32], [16, 3, 3, 3]], [("gemm_like", 300)]),
        ("aten::mm", ["float", "float"], [[64, 32], [32, 16]], [("gemm_like", 100)]),
        ("aten::_flash_attention_forward", [BF16] * 3, [[1, 8, 4, 64]] * 3, [("attn_fwd", 200)]),
        ("_moe_C::topk_softmax", ["float", "int"], [[8, 4], [8, 2]], [("topk", 50)]),
        ("CompiledFunction", ["float"], [[8]], [("add", 30), ("mystery", 20)]),
    ]
    by_category, sources, by_precision, listed = results(make_store(names=NAMES, **rows_of(calls)))
    assert plain(by_category) == [
        ("convolution", 300, 1), ("attention", 200, 1), ("GEMM", 100, 1), ("MoE routing", 50, 1), ("elementwise", 30, 1), ("other", 20, 1),
    ]  # fmt: skip
    assert plain(sources) == [("operator", 650, 4), ("kernel name", 30, 1), ("unknown", 20, 1)]
    # FP32: mm 100, topk 50 by the type of the scores, add 30 by its name
    assert plain(by_precision.shares) == [("BF16", 500, 2), ("FP32", 180, 3), ("unknown", 20, 1)]
    assert plain(by_precision.matrix) == [("BF16", 500, 2), ("FP32", 100, 1)]
    assert plain(by_precision.sources) == [("operator", 650, 4), ("kernel name", 30, 1), ("unknown", 20, 1)]
    row = listed["gemm_like"]
    assert (row.category, row.precision, row.operator, row.shape) == (
        "convolution",
        "BF16",
        "aten::cudnn_convolution",
        "8x3x32x32, 16x3x3x3",
    )
    assert (listed["attn_fwd"].precision, listed["mystery"].operator) == ("BF16", "CompiledFunction")


def test_a_kernel_of_many_operators_and_sizes_has_none(make_store: Callable[..., Store]) -> None:
    # gemm_like: mm 40 + 30 of 100, each size below half; add: three operators below half each
    calls: Calls = [
        ("aten::mm", ["float", "float"], [[64, 32], [32, 16]], [("gemm_like", 40)]),
        ("aten::mm", ["float", "float"], [[64, 32], [32, 8]], [("gemm_like", 30)]),
        ("aten::bmm", ["float", "float"], [[2, 64, 32], [2, 32, 8]], [("gemm_like", 30)]),
        *((f"aten::{name}", ["float"], [[8]], [("add", 10)]) for name in ("add", "mul", "sub")),
    ]
    listed = results(make_store(names=NAMES, **rows_of(calls)))[3]
    assert (listed["gemm_like"].operator, listed["gemm_like"].shape) == ("aten::mm", None)
    assert (listed["add"].operator, listed["add"].shape, listed["add"].category) == (None, None, "elementwise")


def test_kernels_without_operators_are_classified_by_name(make_store: Callable[..., Store]) -> None:
    events = [{"kind": "kernel", "name": name, "start_ns": 0, "duration_ns": 10} for name in ("gemm_like", "mystery")]
    by_category, sources, by_precision, listed = results(make_store(names=NAMES, device_event=events))
    assert plain(by_category) == [("GEMM", 10, 1), ("other", 10, 1)]
    assert plain(sources) == plain(by_precision.sources) == [("kernel name", 10, 1), ("unknown", 10, 1)]
    assert (listed["gemm_like"].operator, listed["gemm_like"].shape, listed["gemm_like"].occupancy_percent) == (None, None, None)


def test_occupancy_is_weighted_by_time_and_the_grid_is_that_of_all(make_store: Callable[..., Store]) -> None:
    def run(name: str, duration: int, occupancy: float | None, grid: tuple[int | None, int | None, int | None]) -> dict[str, Any]:
        sizes = dict(zip(("grid_x", "grid_y", "grid_z"), grid, strict=True))
        return {"kind": "kernel", "name": name, "start_ns": 0, "duration_ns": duration, "occupancy": occupancy, **sizes}

    store = make_store(
        names=NAMES,
        device_event=[
            run("add", 30, 20.0, (4, 2, 1)), run("add", 10, 60.0, (4, 2, 1)), run("add", 50, None, (4, 2, 1)),
            run("topk", 5, 0.0, (4, 1, 1)), run("topk", 5, 0.0, (5, 1, 1)), run("mystery", 1, None, (4, 1, 1)),
            run("mystery", 1, None, (None, None, None)), run("attn_fwd", 1, None, (7, None, None)),
        ],
    )  # fmt: skip
    listed = results(store)[3]
    assert {name: (row.occupancy_percent, row.grid) for name, row in listed.items()} == {
        "add": (30.0, (4, 2, 1)),  # (30 * 20 + 10 * 60) / 40
        "topk": (0.0, None),
        "mystery": (None, None),
        "attn_fwd": (None, (7, 1, 1)),
    }


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ([[32, 128], [128, 64]], "32x128, 128x64"),
        ([[], [8], []], "8"),
        ([[[2, 3], [4]], []], "2 tensors"),
        ([[1], [2], [3], [4], [5]], "1, 2, 3, 4, ..."),
        ([[0, 4]], "0x4"),
        ([], None),
        ([[]], None),
        ([[-1]], None),
        ([[10**18]], None),
        ([[True]], None),
        ([["4"]], None),
        ([[1.5]], None),
        ([[None]], None),
        ([[4, [4]]], None),
        (["4", 4, None, {}], None),
    ],
)
def test_text_of_a_shape(dims: list[Any], text: str | None) -> None:
    assert shape_text(dims) == text


def test_hostile_signatures_leave_the_operator(make_store: Callable[..., Store]) -> None:
    rows = rows_of([("aten::mm", ["float", "float"], [[8, 8], [8, 8]], [("gemm_like", 10)])])
    for dims, types in (("[" * 100_000, '["float"]'), ("null", "1"), ("[[8,8],[NaN,8]]", '["float",{}]'), (None, None), ("[[1]]", "[]")):
        rows["signature"] = [{"id": 0, "input_dims": dims, "input_types": types}]
        listed = results(make_store(names=NAMES, **rows))[3]
        assert (listed["gemm_like"].category, listed["gemm_like"].operator, listed["gemm_like"].shape) == ("GEMM", "aten::mm", None)


def test_selection_is_routing_within_a_mixture_of_experts_alone(make_store: Callable[..., Store]) -> None:
    """The first selection is in the block of the experts, the second behind it."""
    topk = ("aten::topk", [BF16], [[8, 16]], [("topk", 30)])
    rows = rows_of([topk, topk])
    rows["host_event"].append({"kind": "python", "name": "nn.Module: MixtralSparseMoeBlock_0", "start_ns": 0, "duration_ns": 3})
    store = make_store(names=NAMES, **rows)
    sites, sums = CallSites(store), kernel_sums(store)
    owned = operator_work(store, None, sites.of)
    origins = {site: (module, line) for site, module, line in sites.table().select("site", "module", "line").iter_rows()}
    shares = categories(kernel_groups(store, owned, sums, origins))
    assert sorted(plain(shares)) == [("MoE routing", 30, 1), ("embedding/index", 30, 1)]
