"""Blocks of LoadBalancing: whether all GPUs had the same workload."""

from __future__ import annotations

from typing import Final

from ...analysis.report.rule_details import ComparedGpu, LoadBalancingDetails
from ..blocks import Figure, of_all, say, spread
from ..blocks.tables import Col, table
from ..figures.matrix import matrix
from ..figures.workloads import Workload, workloads
from ..text.formats import percent, plural
from .rule_context import Blocks, RuleContext, device_name, marked, points

_MATRIX: Final = 64


def load_balancing(context: RuleContext, details: LoadBalancingDetails) -> Blocks:
    mean = details.compared == "mean"
    return [
        _workloads(context, details),
        _matrix(context, details, context.parameter("threshold")),
        table(
            f"{context.id}-pairs",
            "GPUs furthest from the mean workload" if mean else "Pairs of GPUs with the most different workloads",
            details.pairs,
            Col("GPU", lambda pair: device_name(pair.a), kind="name"),
            Col("Compared with", lambda pair: device_name(pair.b) if pair.b else "mean of all GPUs"),
            Col("Distance", lambda pair: pair.distance, _distance),
            Col("Difference of means", lambda pair: pair.mean_difference, points),
            Col("Judged", lambda pair: marked(pair.violation)),
            pdf_rows=8,
        ),
    ]


def _workloads(context: RuleContext, details: LoadBalancingDetails) -> Figure | None:
    devices = [device for device in details.devices if device.histogram]
    if not devices:
        return None
    kept = spread(devices, 8, lambda device: device.mean)
    means = [device.mean for device in devices]
    apart = f"Means lie between {percent(min(means))} and {percent(max(means))}."
    derived = " Derived from kernel activity." if all(device.derived for device in devices) else ""
    return Figure(
        f"{context.id}-workloads",
        workloads([_workload(device) for device in kept]),
        f"Workload histograms of {plural(len(devices), 'GPU')}. {apart}",
        say(
            "For which share of the samples each GPU was how busy, in bins of 2 %. Even work looks alike in every row. {}{}{}",
            apart,
            derived,
            of_all(len(kept), len(devices), "GPU", "mean utilisation"),
        ),
    )


def _workload(device: ComparedGpu) -> Workload:
    return Workload(device_name(device), device.histogram, device.mean, f"mean {percent(device.mean)}")


def _matrix(context: RuleContext, details: LoadBalancingDetails, threshold: float | None) -> Figure | None:
    devices, values = details.devices, details.matrix
    if values is None or not 2 <= len(devices) <= _MATRIX or len(values) != len(devices):
        return None
    known = [entry for row, line in enumerate(values) for column, entry in enumerate(line) if entry is not None and row != column]
    if not known:
        return None
    furthest = f"The largest distance is {_distance(max(known))}"
    compared = f"; the threshold is {threshold:g}." if threshold is not None else "."
    return Figure(
        f"{context.id}-matrix",
        matrix([device_name(device) for device in devices], values, "distance"),
        f"Distances between the workloads of {plural(len(devices), 'GPU')}. {furthest}{compared}",
        say(
            "Jensen-Shannon distance (logarithm base 2) between the workload histograms: 0 is equal, 1 is nothing in common. {}{}",
            furthest,
            compared,
        ),
    )


def _distance(value: float) -> str:
    return f"{value:.3f}"
