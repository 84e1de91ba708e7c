"""Blocks of the rules over samples of GPUs: utilization, memory, the processors, and the balance between GPUs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from ...analysis.report import rule_details
from ..blocks import BARS, Figure, of_all, say, spread
from ..blocks.spans import Span
from ..blocks.tables import Cell, Col, table
from ..figures.box_plot import Box, box_plot
from ..figures.matrix import matrix
from ..figures.workloads import Workload, workloads
from ..text.formats import UNKNOWN, clip, count, duration, percent, plural, threshold_text
from .rule_context import Blocks, RuleContext, device_cell, device_name, marked, points

HOW: Final = "Box: quartiles over the whole run, line: median; whiskers: the most extreme values within 1.5 IQR of the quartiles."
_MEMORY: Final = {"footprint": "footprint (used of total)", "memory controller": "memory-controller utilization"}
_LOW: Final = ("under-utilized", "fluctuating", "unused")
_MATRIX_GPUS: Final = 64
_PDF_DEVICES: Final = 8  # the figure above has them all


def low_gpu_utilization(context: RuleContext, details: rule_details.LowGPUUtilizationDetails) -> Blocks:
    devices = details.devices
    limits = [
        (limit, f"{name} {threshold_text(limit)}")
        for name, limit in (("p5", context.parameter("threshold_p5")), ("p95", context.parameter("threshold_p95")))
        if limit is not None
    ]
    boxes = [_box(device.node, device.box, f"GPU {device.device}", note=_p95(device.box.p95)) for device in devices]
    drawn = spread(boxes, BARS, lambda box: box.p95 if box.p95 is not None else box.p50)
    low = [device for device in devices if device.state in _LOW]
    unusual = f"Low or fluctuating: {_list(low)}." if low else "No GPU lies below its thresholds."
    sources = {device.derived for device in devices}
    derived = " Derived from kernel activity." if sources == {True} else ""
    return [
        _figure(
            f"{context.id}-boxes",
            drawn,
            limits,
            f"GPU utilization of {plural(len(boxes), 'GPU')}. {unusual}",
            say("{} {}{}{}", HOW, unusual, derived, of_all(len(drawn), len(boxes), "GPU", "p95")),
        ),
        table(
            f"{context.id}-devices",
            "GPU utilization by GPU",
            sorted(devices, key=lambda device: -device.triggered),
            Col("GPU", lambda row: device_cell(row), kind="name"),
            Col("State", lambda device: _state(device.state)),
            Col(
                "Windows triggered",
                lambda device: Cell(f"{count(device.triggered)} of {count(device.windows)}", sort=device.triggered),
                kind="number",
                html_only=True,
            ),
            Col("p95, last window", lambda device: device.p95, percent),
            Col("p5, last window", lambda device: device.p5, percent),
            Col("Median", lambda device: device.box.p50, percent),
            Col("Max", lambda device: device.box.max, percent, html_only=True),
            Col("Samples", lambda device: device.samples, count, html_only=True),
            Col("Low", _pattern, html_only=True),
            Col("First after", lambda device: context.after(device.first_ns), kind="number", html_only=True),
            Col("Last after", lambda device: context.after(device.last_ns), kind="number", html_only=True),
            Col("Source", lambda device: "derived" if device.derived else "sampled", when=len(sources) > 1, html_only=True),
            pdf_rows=_PDF_DEVICES,
        ),
    ]


def batch_size(context: RuleContext, details: rule_details.BatchSizeDetails) -> Blocks:
    devices = details.devices
    names = {"cpu": "CPU", "gpu": "GPU", "gpu_memory": "GPU memory"}
    limits = [(name, limit) for key, name in names.items() if (limit := context.parameter(f"{key}_threshold_p95")) is not None]
    kept = spread(devices, BARS // 3, lambda device: device.gpu_p95 or 0.0)
    boxes: dict[tuple[str, str], Box] = {}
    for device in kept:
        gpu = f"GPU {device.device}"
        for box, p95, name, meaning in (
            (device.boxes.cpu, device.cpu_p95, "CPU", "host"),
            (device.boxes.gpu, device.gpu_p95, gpu, "computation"),
            (device.boxes.gpu_memory, device.gpu_memory_p95, f"{gpu} memory", "memory"),
        ):
            if box:
                boxes.setdefault((device.node, name), _box(device.node, box, name, meaning=meaning, note=_p95(p95)))
    violations = sum(device.violations for device in devices)
    figure = devices[0].memory_figure if devices else None
    unusual = f"{plural(violations, 'violation')}: CPU, GPU and GPU memory low together" if violations else "never all three low together"
    memory = f" GPU memory is the {_MEMORY.get(figure, clip(figure, 40))}." if figure else ""
    return [
        _figure(
            f"{context.id}-boxes",
            sorted(boxes.values(), key=lambda box: box.group),
            _together(limits),
            f"CPU, GPU and GPU memory utilization of {plural(len(kept), 'GPU')}: {unusual}",
            say("{} {}.{}{}", HOW, unusual[0].upper() + unusual[1:], memory, of_all(len(kept), len(devices), "GPU", "p95")),
        ),
        table(
            f"{context.id}-devices",
            "CPU, GPU and GPU memory together",
            sorted(devices, key=lambda device: -device.violations),
            Col("GPU", lambda row: device_cell(row), kind="name"),
            Col("Violations", lambda device: device.violations, count),
            Col("CPU p95", lambda device: device.cpu_p95, percent),
            Col("GPU p95", lambda device: device.gpu_p95, percent),
            Col("GPU memory p95", lambda device: device.gpu_memory_p95, percent),
            Col("Windows", lambda device: device.windows, count, html_only=True),
            Col("Samples", lambda device: device.samples, count, html_only=True),
            Col("First after", lambda device: context.after(device.first_ns), kind="number", html_only=True),
            Col("Last after", lambda device: context.after(device.last_ns), kind="number", html_only=True),
        ),
    ]


def gpu_memory_increase(context: RuleContext, details: rule_details.GPUMemoryIncreaseDetails) -> Blocks:
    devices = details.devices
    boxes = [_box(device.node, device.box, f"GPU {device.device}", meaning="memory", note=_slope(device)) for device in devices]
    drawn = spread(boxes, BARS, lambda box: box.p75 - box.p25)
    worst = max(devices, key=lambda device: device.largest_increase or 0.0, default=None)
    unusual = "No increase was seen."
    if worst and worst.largest_increase is not None:
        unusual = f"Largest increase: {points(worst.largest_increase)} on {device_name(worst)}."
    episodes = [(device, episode) for device in devices for episode in device.episodes]
    return [
        _figure(
            f"{context.id}-boxes",
            drawn,
            [],
            f"GPU memory utilization of {plural(len(boxes), 'GPU')}. {unusual}",
            say("{} {} At the right: slope over the run.{}", HOW, unusual, of_all(len(drawn), len(boxes), "GPU", "spread")),
        ),
        table(
            f"{context.id}-devices",
            "GPU memory by GPU",
            sorted(devices, key=lambda device: -(device.largest_increase or 0.0)),
            Col("GPU", lambda row: device_cell(row), kind="name"),
            Col("Largest increase", lambda device: device.largest_increase, points),
            Col("Violations", lambda device: device.violations, count),
            Col("Episodes", lambda device: len(device.episodes), count),
            Col("Slope per hour", lambda device: device.slope_percent_per_hour, points),
            Col("Samples", lambda device: device.samples, count, html_only=True),
            Col("Median", lambda device: device.box.p50, percent, html_only=True),
            Col("Max", lambda device: device.box.max, percent, html_only=True),
            Col("Measured", lambda device: device.memory_figure, html_only=True),
        ),
        table(
            f"{context.id}-episodes",
            "Episodes of increase",
            sorted(episodes, key=lambda row: -row[1].largest),
            Col("GPU", lambda row: device_cell(row[0]), kind="name"),
            Col(
                "Began after",
                lambda row: context.after(row[1].start_ns),
                kind="number",
                span=lambda row: Span(row[1].start_ns, row[1].end_ns, row[0].rank),
            ),
            Col("Ended after", lambda row: context.after(row[1].end_ns), kind="number"),
            Col("Largest increase", lambda row: row[1].largest, points),
            Col("Samples", lambda row: row[1].samples, count),
            pdf_rows=8,
        ),
    ]


def _figure(id: str, boxes: Sequence[Box], limits: Sequence[tuple[float, str]], alt: str, caption: object) -> Figure | None:
    if not boxes:
        return None
    if len({box.group for box in boxes}) > 4:  # a heading each would take more room than the boxes
        boxes = [dataclasses.replace(box, label=f"{clip(box.group, 18)} {box.label}", group="") for box in boxes]
    return Figure(id, box_plot(boxes, limits, "%", top=100.0), alt, say("{}", caption))


def _box(node: str, box: rule_details.Box, label: str, *, meaning: str = "computation", note: str = "") -> Box:
    return Box(label, box.p25, box.p50, box.p75, box.whisker_lower, box.whisker_upper, box.p5, box.p95, node, note, meaning)


def _p95(value: float | None) -> str:
    return f"p95 {percent(value)}" if value is not None else ""


def _slope(device: rule_details.GrowingMemory) -> str:
    return f"{points(device.slope_percent_per_hour)}/h" if device.slope_percent_per_hour is not None else ""


def _state(state: str) -> Cell:
    return Cell(f"✕ {state}", mark="v-issue") if state in _LOW else Cell(clip(state or UNKNOWN, 40))


def _pattern(device: rule_details.LowGpu) -> str | None:
    ends = {"head": device.idle_head_ns, "tail": device.idle_tail_ns}
    lengths = [duration(length) for end, length in ends.items() if length and end in (device.pattern or "").split()]
    return f"{device.pattern} ({', '.join(lengths)})" if lengths else device.pattern


def _list(devices: Sequence[rule_details.LowGpu]) -> str:
    named = ", ".join(map(device_name, devices[:4]))
    return named if len(devices) <= 4 else f"{named} and {count(len(devices) - 4)} more"


def _together(limits: Sequence[tuple[str, float]]) -> list[tuple[float, str]]:
    """Merge the thresholds if they have the same value."""
    values = {limit for _, limit in limits}
    if len(values) == 1 and len(limits) > 1:
        (limit,) = values
        return [(limit, f"p95 thresholds {threshold_text(limit)}")]
    return [(limit, f"{label} {threshold_text(limit)}") for label, limit in limits]


def load_balancing(context: RuleContext, details: rule_details.LoadBalancingDetails) -> Blocks:
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
            Col("Verdict", lambda pair: marked(pair.violation)),
            pdf_rows=8,
        ),
    ]


def _workloads(context: RuleContext, details: rule_details.LoadBalancingDetails) -> Figure | None:
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
            "For which share of the samples each GPU was how busy, in bins of 2%. Even work looks alike in every row. {}{}{}",
            apart,
            derived,
            of_all(len(kept), len(devices), "GPU", "mean utilization"),
        ),
    )


def _workload(device: rule_details.ComparedGpu) -> Workload:
    return Workload(device_name(device), device.histogram, device.mean, f"mean {percent(device.mean)}")


def _matrix(context: RuleContext, details: rule_details.LoadBalancingDetails, threshold: float | None) -> Figure | None:
    devices, values = details.devices, details.matrix
    if values is None or not 2 <= len(devices) <= _MATRIX_GPUS or len(values) != len(devices):
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
