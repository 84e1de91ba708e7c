"""Hand-made reports to compare: steps, devices and kernels of given lengths in ms."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from postrun.analysis.report import DeviceTime, Kernel, Report, Run, Step, StepParts
from postrun.analysis.report.comparison import Comparison, KernelChange
from postrun.analysis.report.device import DeviceOperator, OperatorAttribution, OperatorKernel
from postrun.analysis.report.rows import Share

MS = 1_000_000


def kernel(
    name: str, short: str, count: int, mean_ms: float, *, spread: float = 0.02, category: str = "GEMM", precision: str = "BF16"
) -> Kernel:
    mean = float(mean_ms * MS)
    return Kernel(
        name, short, category, precision, count, round(mean * count), round(mean * (1 - spread)), mean, round(mean * (1 + spread)), 0.0, 0.0
    )


def steps(lengths_ms: Sequence[float], *, on_device: bool = True) -> tuple[Step, ...]:
    result, start = [], 10**18
    for index, length in enumerate(lengths_ms):
        length_ns = int(length * MS)
        result.append(Step("node", 0, 1, None, index, start, length_ns, on_device, length_ns))
        start += length_ns
    return tuple(result)


def device(span_ms: float, idle_ms: float = 0.0, communication_ms: float = 0.0) -> DeviceTime:
    span, idle, communication = (int(value * MS) for value in (span_ms, idle_ms, communication_ms))
    return DeviceTime(
        "node", 0, 1, 0, "H100", 100, 10**18, span, span - idle, idle, span - idle - communication, communication, communication, 0.0,
        0, 0, 0, 0, span, span,
    )  # fmt: skip


def with_(report: Report, *, lengths: Sequence[float] = (), on_device: bool = True, **changes: Any) -> Report:
    if lengths:
        changes["steps"] = dataclasses.replace(report.steps, steps=steps(lengths, on_device=on_device), absent=None)
        changes.setdefault("time_breakdown", (device(sum(lengths)),))
    run = {name: changes.pop(name) for name in list(changes) if name in Run.__slots__ and name not in Report.__slots__}
    return dataclasses.replace(report, run=dataclasses.replace(report.run, **run), **changes)


def communicating(report: Report, lengths: Sequence[float], each_ms: float) -> Report:
    """Make steps with a collective each, of one kernel and one operator, on one GPU."""
    count, mean = len(lengths), sum(lengths) / len(lengths) * MS
    kernels = (kernel("nccl", "nccl", count, each_ms, category="communication"), kernel("gemm", "gemm", count, 1))
    total = kernels[0].total_ns
    operators = OperatorAttribution(
        (DeviceOperator("reduce", count, count, total, 90.0, 1), DeviceOperator("mm", count, count, total, 10.0, 1)),
        0,
        (OperatorKernel("reduce", "nccl", "kernel", count, total), OperatorKernel("mm", "gemm", "kernel", count, total)),
        100.0,
        None,
    )
    span = device(sum(lengths), communication_ms=each_ms * count)
    shares = (Share("communication", total, count, 50.0),)
    run = with_(report, lengths=lengths, time_breakdown=(span,), kernels=kernels, categories=shares, operators=operators)
    part = StepParts("node", 0, 1, count, mean, {"communication": each_ms * MS}, False, ())
    return dataclasses.replace(run, steps=dataclasses.replace(run.steps, parts=(part,)))


def pieces(comparison: Comparison) -> dict[str, Any]:
    """Return everything that shows the communication, by the part of the comparison."""
    communication = {"communication", "exposed communication", "nccl", "reduce"}
    rows = {
        "part": comparison.parts, "within": comparison.within, "category": comparison.categories, "host part": comparison.host_parts,
        "kernel": comparison.kernels, "operator": comparison.operators, "device": comparison.devices[0].parts,
    }  # fmt: skip
    result = {}
    for where, listed in rows.items():
        (result[where],) = [row for row in listed if (row.short_name if isinstance(row, KernelChange) else row.name) in communication]
    return result
