"""Operator calls of two runs, aligned: hand-made pairs, with verdicts and effects worked out on paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from judging import empty_report
from postrun.analysis.compare.calls import operator_calls
from postrun.analysis.report.comparison import Basis, OperatorChange
from postrun.analysis.report.operator_calls import OperatorCall, OperatorCalls

MS = 1_000_000
STEPS = Basis("step", 10, 10, None)
SGEMM, TENSOR = "ampere_sgemm_128x64_tn", "cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4"


def row(
    operator: str = "aten::mm", module: str | None = "Net/Linear_0", dims: str = "64x256, 256x512", calls: int = 10, ms: float = 10.0,
    kernel: str = SGEMM, types: str = "fp32", precision: str = "FP32",
) -> OperatorCall:  # fmt: skip
    return OperatorCall(module, operator, dims, types, (kernel,), precision, calls, round(ms * MS))


def changes(
    base: Sequence[OperatorCall],
    new: Sequence[OperatorCall],
    on: Basis = STEPS,
    *,
    further: tuple[int, int] = (0, 0),
    whole_ms: float = 100,
) -> list[OperatorChange]:
    reports = [
        dataclasses.replace(empty_report(), operator_calls=OperatorCalls(tuple(rows), count))
        for rows, count in zip((base, new), further, strict=True)
    ]
    return list(operator_calls(*reports, on, whole_ms * MS, 3.0))


def short(change: OperatorChange) -> tuple[str, tuple[str, ...], float]:
    return change.operator, change.reasons, round(change.effect_ns / MS, 6)


def test_equal_runs_are_the_same() -> None:
    rows = [row(), row("aten::add", ms=2)]
    assert [short(change) for change in changes(rows, rows)] == [("aten::add", (), 0), ("aten::mm", (), 0)]
    assert {change.state for change in changes(rows, rows)} == {"same"}


def test_another_kernel() -> None:
    """10 steps: 10 ms of FP32 are 1 ms per step, 4 ms of TF32 are 0.4."""
    (change,) = changes([row()], [row(ms=4, kernel=TENSOR, precision="TF32")])
    assert short(change) == ("aten::mm", ("other kernel", "faster"), -0.6)
    assert (change.state, change.matched, change.change_percent) == ("other kernel", "inputs", pytest.approx(-60))
    assert (change.base_precision, change.new_precision, change.base_kernels, change.new_kernels) == ("FP32", "TF32", (SGEMM,), (TENSOR,))


def test_a_second_kernel_is_not_another_kernel() -> None:
    """A kernel near the limit of the list must not look like a change."""
    splitk = dataclasses.replace(row(), kernels=(SGEMM, "splitKreduce_kernel"))
    assert changes([row()], [splitk])[0].reasons == ()


def test_another_shape() -> None:
    """Twice the batch changes other dims of the forward product and of the gradient."""
    base = [row(ms=10), row("aten::mm", dims="256x64, 64x512", ms=6)]
    new = [row(ms=19, dims="128x256, 256x512"), row("aten::mm", dims="256x128, 128x512", ms=12)]
    result = changes(base, new)
    assert [short(change) for change in result] == [("aten::mm", ("other shape",), 0.9), ("aten::mm", ("other shape",), 0.6)]
    assert [(change.base_dims, change.new_dims) for change in result] == [
        ("64x256, 256x512", "128x256, 256x512"),
        ("256x64, 64x512", "256x128, 128x512"),
    ]


def test_another_type() -> None:
    (change,) = changes([row()], [row(types="bf16", kernel=TENSOR, precision="BF16", ms=2)])
    assert short(change) == ("aten::mm", ("other type", "other kernel", "faster"), -0.8)


def test_twice_the_calls() -> None:
    """20 calls of 1 ms in 10 steps are 2 ms per step; a call takes as long as before."""
    (change,) = changes([row()], [row(calls=20, ms=20)])
    assert short(change) == ("aten::mm", ("more calls",), 1.0)
    assert (change.base_calls, change.new_calls) == (1, 2)
    (change,) = changes([row(calls=20, ms=20)], [row(ms=14)])
    assert short(change) == ("aten::mm", ("fewer calls", "slower"), -0.6)


def test_calls_per_second_are_not_compared() -> None:
    second = Basis("second", 2.0, 1.0, "no steps")
    (change,) = changes([row(calls=20, ms=20)], [row(calls=20, ms=20)], second)
    assert change.reasons == ()


def test_a_fused_operator() -> None:
    """Softmax and two products of attention became one call in the same module."""
    attention = "Net/Attention"
    base = [row("aten::bmm", attention, ms=8), row("aten::_softmax", attention, "8x64x64", ms=5), row(ms=1)]
    new = [row("aten::_scaled_dot_product_flash_attention", attention, "8x4x64x32", ms=4), row(ms=1)]
    result = changes(base, new)
    assert [(change.operator, change.state, change.instead) for change in result] == [
        ("aten::bmm", "gone", ("aten::_scaled_dot_product_flash_attention",)),
        ("aten::_softmax", "gone", ("aten::_scaled_dot_product_flash_attention",)),
        ("aten::_scaled_dot_product_flash_attention", "new", ()),
        ("aten::mm", "same", ()),
    ]
    assert [change.effect_ns for change in result] == [-0.8 * MS, -0.5 * MS, 0.4 * MS, 0]


def test_renamed_modules() -> None:
    """Each path of a wrapped model changes.

    Layers 2 and 10 keep their order. One layer became slower."""
    base = [row(module=f"Net/Layer_{number}", ms=10 + number) for number in (2, 10)] + [row("aten::add", "Net/Layer_2", ms=1)]
    base.append(row("aten::add", "Net/Layer_10", ms=1))
    new = [dataclasses.replace(one, module=f"Wrapped/{one.module}") for one in base]
    new[1] = dataclasses.replace(new[1], device_ns=30 * MS)
    result = changes(base, new)
    assert short(result[0]) == ("aten::mm", ("other module", "slower"), 1.0)
    assert {(change.base_module, change.module) for change in result} == {
        ("Net/Layer_2", "Wrapped/Net/Layer_2"),
        ("Net/Layer_10", "Wrapped/Net/Layer_10"),
    }
    assert {change.matched for change in result} == {"inputs"}


def test_a_renamed_module_with_another_batch() -> None:
    (change,) = changes([row(module="A")], [row(module="B", dims="128x256, 256x512", ms=20)])
    assert (change.reasons, change.base_module, change.module) == (("other shape", "other module"), "A", "B")


def test_modules_of_one_run_only_do_not_count() -> None:
    (change,) = changes([row(module=None, calls=20, ms=20)], [row(module="A", ms=10), row(module="B", ms=10)])
    assert (change.reasons, change.module, change.effect_ns) == ((), None, 0)


def test_many_shapes_are_one_row() -> None:
    """Sizes of copies depend on the data: 10 shapes of one call before, 12 others now."""
    base = [row("aten::copy_", "M", f"{100 + number}", calls=1, ms=1) for number in range(10)]
    new = [row("aten::copy_", "M", f"{200 + number}", calls=1, ms=1) for number in range(12)]
    (change,) = changes(base, new)
    assert (change.base_dims, change.new_dims, change.matched, change.base_calls, change.new_calls) == (
        "10 shapes", "12 shapes", "several", 1, 1.2,
    )  # fmt: skip
    assert change.effect_ns == pytest.approx(0.2 * MS)


def test_other_products_without_modules_are_gone_and_new() -> None:
    result = changes([row(module=None)], [row(module=None, dims="7x9, 9x11", calls=30, ms=1)])
    assert [(change.state, change.effect_ns) for change in result] == [("gone", -MS), ("new", 0.1 * MS)]


def test_rows_that_the_other_list_may_leave_out_are_unknown() -> None:
    """If new lists rows of at least 5 ms, one of 6 ms is gone, one of 4 ms may be."""
    base = [row("aten::a", ms=6), row("aten::b", ms=4)]
    result = changes(base, [row("aten::c", ms=5)], further=(0, 3))
    assert [(change.operator, change.state) for change in result] == [("aten::a", "gone"), ("aten::c", "new")]


def test_small_effects_are_not_slower() -> None:
    """The limit is 0.2 percent of a step of 100 ms: 0.2 ms."""
    assert changes([row(ms=10)], [row(ms=11.9)])[0].reasons == ()
    assert changes([row(ms=10)], [row(ms=12.1)])[0].reasons == ("slower",)


def test_a_report_without_operators_is_not_compared() -> None:
    assert changes([], [row()]) == []
