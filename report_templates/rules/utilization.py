"""Blocks of the rules over samples of GPUs: utilization, memory, the processors, and the balance between GPUs."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from ...analysis.report import rule_details
from ..blocks import BARS, Figure, of_all, say, spread
from ..blocks.spans import Span
from ..blocks.tables import Cell, Col, table
from ..figures.alike import alike_label, groups_alike, medians
from ..figures.dot_plot import Dots, dot_plot
from ..figures.matrix import matrix
from ..figures.svg import SMALL
from ..figures.workloads import Workload, workloads
from ..text.formats import UNKNOWN, clip, count, duration, percent, plural, threshold_text
from .rule_context import Blocks, RuleContext, device_cell, device_name, marked, points

_MEMORY: Final = {"footprint": "footprint (used of total)", "memory controller": "memory-controller utilization"}
_LOW: Final = ("under-utilized", "fluctuating", "unused")
_KINDS: Final = {"host": "CPU", "computation": "GPU", "memory": "GPU memory"}
_NEAR: Final = 0.1  # running sums of shares that are alike differ by at most this
_MATRIX_GPUS: Final = 64
_PDF_DEVICES: Final = 8  # the figure above has them all

SomeGpu = TypeVar("SomeGpu", rule_details.LowGpu, rule_details.ComparedGpu)


def low_gpu_utilization(context: RuleContext, details: rule_details.LowGPUUtilizationDetails) -> Blocks:
    devices = details.devices
    limits = [
        (limit, f"{name} {threshold_text(limit)}")
        for name, limit in (("p5", context.parameter("threshold_p5")), ("p95", context.parameter("threshold_p95")))
        if limit is not None
    ]
    low = [device for device in devices if device.state in _LOW]
    unusual = f"Low or fluctuating: {_list(low)}." if low else "No GPU lies below its thresholds."
    if len(low) == len(devices) > 1:
        unusual = f"All {plural(len(low), 'GPU')} are low or fluctuate."
    sources = {device.derived for device in devices}
    derived = " Derived from kernel activity." if sources == {True} else ""
    return [
        _samples(context, devices, limits, f"{unusual}{derived}"),
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
    rows: dict[tuple[str, str], Dots] = {}
    for device in kept:
        gpu = f"GPU {device.device}"
        for box, p95, name, meaning in (
            (device.boxes.cpu, device.cpu_p95, "CPU", "host"),
            (device.boxes.gpu, device.gpu_p95, gpu, "computation"),
            (device.boxes.gpu_memory, device.gpu_memory_p95, f"{gpu} memory", "memory"),
        ):
            if box:
                rows.setdefault((device.node, name), _dots(device.node, box, name, meaning=meaning, note=_p95(p95)))
    violations = sum(device.violations for device in devices)
    figure = devices[0].memory_figure if devices else None
    unusual = f"{plural(violations, 'violation')}: CPU, GPU and GPU memory low together" if violations else "never all three low together"
    memory = f" GPU memory is the {_MEMORY.get(figure, clip(figure, 40))}." if figure else ""
    return [
        _figure(
            f"{context.id}-samples",
            list(rows.values()),
            _together(limits),
            f"CPU, GPU and GPU memory utilization of {plural(len(kept), 'GPU')}: {unusual}",
            say("{}.{}{}", unusual[0].upper() + unusual[1:], memory, of_all(len(kept), len(devices), "GPU", "p95")),
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
    rows = [_dots(device.node, device.box, f"GPU {device.device}", meaning="memory", note=_slope(device)) for device in devices]
    drawn = spread(rows, BARS, lambda row: row.p95 - row.p5)
    worst = max(devices, key=lambda device: device.largest_increase or 0.0, default=None)
    unusual = "No increase was seen."
    if worst and worst.largest_increase is not None:
        unusual = f"Largest increase: {points(worst.largest_increase)} on {device_name(worst)}."
    episodes = [(device, episode) for device in devices for episode in device.episodes]
    return [
        _figure(
            f"{context.id}-samples",
            drawn,
            [],
            f"GPU memory utilization of {plural(len(rows), 'GPU')}. {unusual}",
            say("{} At the right: slope over the run.{}", unusual, of_all(len(drawn), len(rows), "GPU", "spread")),
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


def _samples(context: RuleContext, devices: Sequence[rule_details.LowGpu], limits: Sequence[tuple[float, str]], lead: str) -> Figure | None:
    """Draw the samples of each GPU; GPUs that are alike are one row."""
    known = [device for device in devices if device.histogram]
    if not known:
        return None
    rows = []
    for label, members, shares in _alike(known):
        p5, p95 = medians([(device.box.p5, device.box.p95) for device in members])
        rows.append(Workload(label, shares, note=_p95(p95), p5=p5, p95=p95))
    drawn = spread(rows, 8, lambda row: row.p95 or 0.0)
    lowest = min(known, key=lambda device: device.box.mean)
    ends = _ends(lowest, context.parameter("threshold_p5"), context.parameter("threshold_p95"))
    return Figure(
        f"{context.id}-samples",
        workloads(drawn, limits),
        f"Histograms of the utilization of {plural(len(known), 'GPU')}. {lead} {ends}",
        say("{} {}{}", lead, ends, of_all(len(drawn), len(rows), "row", "p95")),
    )


def _alike(devices: Sequence[SomeGpu]) -> Iterator[tuple[str, list[SomeGpu], Sequence[float]]]:
    """Yield the label, members, and histogram of each group of GPUs that are alike.

    Their running sums of shares are close.
    """
    running = [list(itertools.accumulate(device.histogram)) for device in devices]
    for group in groups_alike(running, _NEAR):
        members = [devices[number] for number in group]
        label = alike_label([device_name(device) for device in members], len(devices), "GPU")
        yield label, members, medians([device.histogram for device in members])


def _ends(device: rule_details.LowGpu, low: float | None, high: float | None) -> str:
    """Write the shares of the samples below and above the thresholds."""
    bins = len(device.histogram)
    if low is None or high is None or not 0 < low < high < 100:
        return ""
    below = sum(device.histogram[: round(low / 100 * bins)])
    above = sum(device.histogram[round(high / 100 * bins) :])
    where = f"Of the samples of {device_name(device)}, {percent(100 * below)} are below {threshold_text(low)} and"
    return f"{where} {percent(100 * above)} above {threshold_text(high)}."


def _figure(id: str, rows: Sequence[Dots], limits: Sequence[tuple[float, str]], alt: str, caption: object) -> Figure | None:
    if not rows:
        return None
    return Figure(id, dot_plot(_collapsed(rows), limits, "utilization over the run", "%", top=100.0), alt, say("{}", caption))


def _collapsed(rows: Sequence[Dots]) -> list[Dots]:
    """Merge rows of one kind that are alike."""
    result = []
    for kind in dict.fromkeys(row.meaning for row in rows):
        same = [row for row in rows if row.meaning == kind]
        for group in groups_alike([(row.p5, row.p50, row.p95) for row in same]):
            first = same[group[0]]
            if len(group) == 1:
                result.append(first)
                continue
            p5, p50, p95 = medians([(same[number].p5, same[number].p50, same[number].p95) for number in group])
            every = "all " if len(group) == len(same) else ""
            label = f"{every}{count(len(group))} alike, {_KINDS[kind]}"
            note = first.note if len({same[number].note for number in group}) == 1 else ""
            result.append(Dots(label, p5, p50, p95, note=note, meaning=kind))
    return result


def _dots(node: str, box: rule_details.Box, label: str, *, meaning: str = "computation", note: str = "") -> Dots:
    return Dots(f"{clip(node, 18)} {label}", box.p5, box.p50, box.p95, note, meaning)


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
    rows = [
        Workload(label, shares, mean := statistics.median(device.mean for device in members), f"mean {percent(mean)}")
        for label, members, shares in _alike(devices)
    ]
    kept = spread(rows, 8, lambda row: row.mean or 0.0)
    means = [device.mean for device in devices]
    apart = f"Means lie between {percent(min(means))} and {percent(max(means))}."
    derived = " Derived from kernel activity." if all(device.derived for device in devices) else ""
    return Figure(
        f"{context.id}-workloads",
        workloads(kept),
        f"Workload histograms of {plural(len(devices), 'GPU')}. {apart}",
        say(
            "{} For which share of the samples each GPU was how busy, in bins of 2%.{}{}",
            apart,
            derived,
            of_all(len(kept), len(rows), "row", "mean utilization"),
        ),
    )


def _matrix(context: RuleContext, details: rule_details.LoadBalancingDetails, threshold: float | None) -> Figure | None:
    devices, values = details.devices, details.matrix
    if values is None or not 2 <= len(devices) <= _MATRIX_GPUS or len(values) != len(devices):
        return None
    known = [entry for row, line in enumerate(values) for column, entry in enumerate(line) if entry is not None and row != column]
    if not known or (threshold is not None and max(known) < threshold / 2):  # the table names the furthest pairs
        return None
    names = [device_name(device) for device in devices]
    furthest = f"The largest distance is {_distance(max(known))}"
    compared = f"; the threshold is {threshold:g}." if threshold is not None else "."
    return Figure(
        f"{context.id}-matrix",
        matrix(names, values, "distance"),
        f"Distances between the workloads of {plural(len(devices), 'GPU')}. {furthest}{compared}",
        say(
            "Jensen-Shannon distance (logarithm base 2) between the workload histograms: 0 is equal, 1 is nothing in common. {}{}",
            furthest,
            compared,
        ),
        small=matrix(names, values, "distance", width=SMALL),
    )


def _distance(value: float) -> str:
    return f"{value:.3f}"
