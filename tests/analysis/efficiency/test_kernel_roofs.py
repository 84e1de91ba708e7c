"""Roof and module of kernels, worked out on paper."""

from __future__ import annotations

import dataclasses
from itertools import permutations
from typing import Any

from postrun.analysis.efficiency.kernel_classes import KernelGroup
from postrun.analysis.efficiency.kernel_roofs import located
from postrun.analysis.efficiency.operator_classes import KernelClass
from postrun.analysis.efficiency.signatures import Signature
from postrun.analysis.report.device import Kernel
from postrun.analysis.report.efficiency import OperatorWork

MM = Signature("", [[8, 8], [8, 8]], ["float", "float"], [[8, 1], [8, 1]])
SUMS = [{"id": 1, "name": "gemm"}]
CLASS = KernelClass("GEMM", "operator", "FP32", "operator")


def kernel(total: int) -> Kernel:
    return Kernel("gemm", "gemm", "GEMM", "FP32", 1, total, 1, 1.0, 1, 100.0, 100.0)


def group(total: int, signature: int | None = 1, site: int | None = None) -> KernelGroup:
    return KernelGroup(0, 0, 1, "aten::mm", "aten::mm", signature, site, CLASS, 1, total, 0.0, 0)


def row(device_ns: int, roof: float | None, **changes: Any) -> OperatorWork:
    listed = OperatorWork(
        "aten::mm", MM.dims, MM.types, MM.strides, 1, device_ns, 1024, 1024, 768, 1.0, 1.0, 1.0, roof, "compute", 0, None, None, 0
    )  # type: ignore[arg-type]
    return dataclasses.replace(listed, **changes)


def roof(
    total: int, groups: list[KernelGroup], rows: list[OperatorWork], inputs: dict[int | None, Signature] | None = None
) -> float | None:
    (result,) = located([kernel(total)], SUMS, groups, rows, {1: MM, 2: MM} if inputs is None else inputs, {})
    return result.percent_of_roof


def test_the_roof_is_that_of_the_calls_that_the_kernel_does() -> None:
    assert roof(100, [group(100)], [row(100, 40.0)]) == 40.0
    # Signatures that differ in members which the row does not have: 60 + 40 ns are all of its time.
    assert roof(100, [group(60), group(40, signature=2)], [row(100, 40.0)]) == 40.0
    # Two rows of 50 ns: least times 20 + 5 of 100 ns.
    bias = dataclasses.replace(MM, dims=[[4, 8], [8, 8]])
    rows = [row(50, 40.0), row(50, 10.0, input_dims=bias.dims)]
    assert roof(100, [group(50), group(50, signature=2)], rows, {1: MM, 2: bias}) == 25.0


def test_an_unknown_roof() -> None:
    assert roof(100, [group(89)], [row(100, 40.0)]) is None  # another kernel does 11% of the operator
    assert roof(100, [group(49), group(51, signature=None)], [row(49, 40.0)]) is None  # most of its time is of unknown calls
    assert roof(100, [group(100)], [row(100, None)]) is None
    assert roof(100, [group(100)], [row(100, 40.0), row(100, 40.0)]) is None  # which row is unknown
    assert roof(0, [group(0)], [row(0, 40.0)]) is None
    assert roof(100, [group(100)], []) is None


def test_the_module_has_half_of_the_time() -> None:
    origins = {1: ("net_0/layer_1", "x.py:1"), 2: ("net_0/layer_2", "x.py:2"), 3: ("", "")}
    modules = [
        located([kernel(10)], SUMS, [group(total, site=site) for site, total in times], [], {}, origins)[0].module
        for times in (((1, 6), (2, 4)), ((1, 4), (2, 4), (3, 2)), ((1, 4), (3, 6)), ((None, 1),))
    ]
    assert modules == ["net_0/layer_1", "net_0/layer_*", None, None]


def test_the_order_of_calls_does_not_change_a_digit() -> None:
    inputs: dict[int | None, Signature] = {n: dataclasses.replace(MM, dims=[[n, 8], [8, 8]]) for n in range(1, 5)}
    parts = [(30, 10.1), (70, 20.2), (11, 30.3), (13, 0.7)]
    rows = [row(time, percent, input_dims=inputs[n].dims) for n, (time, percent) in enumerate(parts, 1)]
    groups = [group(time, signature=n) for n, (time, _) in enumerate(parts, 1)]
    assert len({roof(124, list(order), rows, inputs) for order in permutations(groups)}) == 1
