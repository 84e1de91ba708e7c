"""Section "System usage": utilization of GPUs, processors, memory, disks, and network."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from markupsafe import Markup

from ...analysis.report.machine import ActiveTime, GpuClocks, MetricUsage, Series, UnitHeat
from ...analysis.report.model import Report
from ..blocks import Block, Figure, Only, Section, Slice, Texts, of_all, ring, say, spread
from ..blocks.tables import Cell, Col, Table, amount, outliers_first, table
from ..figures import heat_map, lines
from ..figures.alike import alike_lines
from ..figures.svg import THIRD
from ..text.formats import clip, count, duration, percent, plural, quantity
from .run_marks import time_marks

_AXIS_UNITS: Final = {"percent": "%", "% of time the memory controller was busy": "% of time"}  # of units that are too long for an axis
_ALIKE = 2.0  # percentage points between means of units
_NAMES = {
    "gpu": "GPU utilization",
    "gpu_memory": "GPU memory utilization",
    "cpu": "CPU utilization",
    "io_wait": "I/O wait",
    "cpu_memory": "Main memory",
    "network": "Network",
    "disk_read": "Disk reads",
    "disk_write": "Disk writes",
    "gpu_engine_active": "Graphics or compute engine active",
    "gpu_sm_active": "Multiprocessors active",
    "gpu_sm_occupancy": "Occupancy of multiprocessors",
    "gpu_tensor_active": "Tensor cores active",
    "gpu_fp64_active": "FP64 units active",
    "gpu_fp32_active": "FP32 units active",
    "gpu_fp16_active": "FP16 units active",
    "gpu_dram_active": "Device memory interface active",
    "gpu_throttle_power": "Time at lower clocks because of the power cap",
    "gpu_throttle_thermal": "Time at lower clocks because of heat",
    "gpu_temperature": "GPU temperature",
    "gpu_memory_temperature": "GPU memory temperature",
    "gpu_pcie": "PCIe, both directions, per GPU",
    "gpu_nvlink": "NVLink, both directions, per GPU",
    "infiniband": "InfiniBand or RoCE, both directions, per port",
}
_NAMED = 6
_LINES = 32
_POINTS = 150  # of one line; more are indistinct in a small panel


def system_usage(report: Report) -> Section:
    usage = report.system_usage
    statements = _statements(usage.statements) + _statements(usage.throttling)
    short: list[str] = []
    heat_maps: list[Block | Only] = []
    for metric, unit in (("gpu", "GPU"), ("cpu", "core")):
        maps = [heat for heat in usage.heat if heat.metric == metric and heat.units and heat.time_ns]
        short += [f"{clip(heat.node, 40)} (each {unit})" for heat in maps if heat.time_ns[0] == heat.time_ns[-1]]
        if drawn := _heat([heat for heat in maps if heat.time_ns[0] < heat.time_ns[-1]], metric, unit):
            # The PDF has the cores only without GPUs: their mean and range are above.
            heat_maps.append(Only("html", drawn) if heat_maps else drawn)
    sampled_once = f"Sampled once only, so that nothing is to be drawn over time: {', '.join(short[:8])}."
    rings = (
        _active("system-usage-gpu-active", "GPU active time", usage.gpu_active, "computation"),
        _active("system-usage-cpu-active", "CPU active time", usage.cpu_active, "host"),
    )
    blocks = [
        *([Texts("statements", statements)] if statements else []),
        *(Only("dashboard", ring) for ring in rings if ring),
        *_over_time(report),
        table(
            "system-usage-nodes",
            "Utilization by node: quantiles over samples, each the mean of the node's units",
            _by_metric(usage.nodes),
            Col("Node", lambda row: clip(row.node, 40), kind="name"),
            Col("Metric", lambda row: Cell(_NAMES.get(row.metric, row.metric) + (" (derived)" if row.derived else ""))),
            Col("max", lambda row: amount(row.max, row.unit), kind="number"),
            Col("p99", lambda row: amount(row.p99, row.unit), kind="number"),
            Col("p95", lambda row: amount(row.p95, row.unit), kind="number"),
            Col("p50", lambda row: amount(row.p50, row.unit), kind="number"),
            Col("min", lambda row: amount(row.min, row.unit), kind="number"),
            Col("Samples", lambda row: row.samples, count, html_only=True),
            pdf_rows=8,
        ),
        _clocks(usage.gpu_clocks),
        *heat_maps,
        *([Texts("more", sampled_once)] if short else []),
    ]
    return Section("system-usage", "System usage", say("{}", usage.absent or _lead(report)), [*blocks, None] if any(blocks) else ())


def _by_metric(nodes: Sequence[MetricUsage]) -> list[MetricUsage]:
    """Put the metrics in the order of _NAMES, and in each the outliers first.

    The PDF has the first rows only.
    """
    metrics = dict.fromkeys([*_NAMES, *(row.metric for row in nodes)])
    return [row for metric in metrics for row in outliers_first([row for row in nodes if row.metric == metric], lambda row: row.p50)]


def _clocks(every: Sequence[GpuClocks]) -> Table | None:
    """List the GPUs, or if too many, those with the longest times at low clocks."""
    if not every:
        return None
    held = sorted(every, key=lambda row: (-(row.heat_ns or 0), -(row.power_ns or 0) - (row.hardware_ns or 0)))[:64]
    listed = sorted(held, key=lambda row: (row.node, row.device))
    caption = "Power and clock of each GPU"
    times = any(time is not None for row in listed for time in (row.heat_ns, row.power_ns, row.hardware_ns))
    if times:
        caption += ", and for how long the clock was held down for heat, for power, or by the hardware for one of them"
    if len(listed) < len(every):
        caption += f"; {count(len(listed))} of {count(len(every))} GPUs{', those that were held down longest' if times else ''}"
    return table(
        "system-usage-clocks",
        caption,
        listed,
        Col("Node", lambda row: clip(row.node, 40), kind="name"),
        Col("GPU", lambda row: row.device, count),
        Col("Power p50", lambda row: amount(row.power_p50_w, "W"), kind="number"),
        Col("max", lambda row: amount(row.power_max_w, "W"), kind="number"),
        Col("Clock p50", lambda row: amount(row.sm_clock_p50_mhz, "MHz"), kind="number"),
        Col("min", lambda row: amount(row.sm_clock_min_mhz, "MHz"), kind="number"),
        Col("max", lambda row: amount(row.sm_clock_max_mhz, "MHz"), kind="number"),
        Col("Heat", lambda row: row.heat_ns, duration, when=times),
        Col("Power", lambda row: row.power_ns, duration, when=times),
        Col("Hardware", lambda row: row.hardware_ns, duration, when=times),
    )


def _statements(every: Sequence[tuple[str, str]]) -> list[Markup]:
    """Write nodes and their sentences; nodes with the same sentence share an entry."""
    nodes: dict[str, list[str]] = {}
    for node, sentence in every:
        nodes.setdefault(sentence, []).append(clip(node, 60))
    return [
        say(
            "<bdi>{}</bdi>: <bdi>{}</bdi>",
            ", ".join(named) if len(named) <= _NAMED else f"{', '.join(named[:2])} and {count(len(named) - 2)} more",
            sentence,
        )
        for sentence, named in nodes.items()
    ]


def _lead(report: Report) -> str:
    """Compare the nodes by the median utilization of GPUs, or else of processors."""
    for metric, what in (("gpu", "GPU utilization"), ("cpu", "CPU utilization")):
        rows = sorted((row for row in report.system_usage.nodes if row.metric == metric), key=lambda row: row.p50)
        if len(rows) == 1:
            return f"The median {what} was {percent(rows[0].p50)}, the 95th percentile {percent(rows[0].p95)}."
        if rows:
            low, high = rows[0], rows[-1]
            if percent(low.p50) == percent(high.p50):
                every = "both" if len(rows) == 2 else f"all {count(len(rows))}"
                return f"The median {what} was {percent(low.p50)} on {every} nodes."
            return (
                f"The median {what} of the nodes was between {percent(low.p50)} ({clip(low.node, 40)}) "
                f"and {percent(high.p50)} ({clip(high.node, 40)})."
            )
    return "Utilization was not sampled in this run."


def _active(id: str, what: str, active: ActiveTime | None, meaning: str) -> Figure | None:
    if active is None or not active.points:
        return None
    idle = active.points - active.active
    source = " Derived from kernel activity: no utilization was sampled." if active.derived else ""
    return ring(
        id,
        say("Samples above 0% count as active, over every unit of every node.{}", source),
        what,
        [
            Slice("active", meaning, active.active_percent, (count(active.active),)),
            Slice("idle", "idle", 100 - active.active_percent, (count(idle),)),
        ],
        ("State", "Samples", "Share"),
        middle=(percent(active.active_percent), "active"),
    )


def _over_time(report: Report) -> list[Figure]:
    """Draw a panel per metric, with a line per node."""
    every = [series for series in report.system_usage.series if len(series.time_ns) > 1]
    metrics = [metric for metric in _NAMES if any(series.metric == metric for series in every)]
    start = min((series.time_ns[0] for series in every), default=0)
    marks = time_marks(report, start)
    figures = []
    for metric in metrics:
        those = [series for series in every if series.metric == metric]
        named = _chosen(those, _NAMED)
        drawn = [series for series in those if series.node in _chosen(those, _LINES) | named]
        figures.append(
            Figure(
                f"system-usage-{metric.replace('_', '-')}-over-time",
                lines.lines(
                    [panel(metric, drawn, named, start)], "time since the first sample", x_time=True, height=58, width=THIRD, marks=marks
                ),
                f"{_NAMES[metric]} over time; {_finding(those)}",
                say(
                    "{}{}{}{}",
                    f"{_NAMES[metric]}: {_finding(those)}.",
                    _derived(those) if metric == "gpu" else "",
                    _named({metric: drawn}, {metric: named}, _NAMED),
                    _drawn({metric: those}, {metric: drawn}),
                ),
            )
        )
    return figures


def _chosen(every: Sequence[Series], most: int) -> set[str]:
    return {series.node for series in spread(every, most, _mean)}


def _derived(every: Sequence[Series]) -> str:
    """Write that GPU utilization is derived, and on how many nodes."""
    derived = sum(series.derived for series in every)
    some = f" of {count(derived)} of {plural(len(every), 'node')}" if derived < len(every) else ""
    return f" GPU utilization{some} is derived from kernel activity." if derived else ""


def _named(drawn: Mapping[str, Sequence[Series]], named: Mapping[str, Collection[str]], most: int) -> str:
    if all(len(series) == len(named[metric]) for metric, series in drawn.items()):
        return ""
    which = "of most and of least" if most < 3 else "of most, of least and of median"
    of = "of it" if len(drawn) > 1 else _NAMES[next(iter(drawn))]
    return f" Named{' in each panel' if len(drawn) > 1 else ''}: the nodes {which} {of}; gray: the others."


def _drawn(by_metric: Mapping[str, Sequence[Series]], drawn: Mapping[str, Sequence[Series]]) -> str:
    """Write how many nodes are drawn if not all are, grouped by equal counts."""
    counts: dict[tuple[int, int], list[str]] = {}
    for metric, those in by_metric.items():
        if len(drawn[metric]) < len(those):
            counts.setdefault((len(drawn[metric]), len(those)), []).append(_NAMES[metric])
    return "".join(
        f" {', '.join(names)}: {count(shown)} of the {count(all_)} nodes that have it are drawn, those of most and of least of it and the"
        " median one."
        for (shown, all_), names in counts.items()
    )


def panel(metric: str, all_series: Sequence[Series], named: Collection[str], start: int) -> lines.Panel:
    """Make the panel of one metric; nodes that are not ``named`` are gray."""
    factor, unit = _scale(max(max(series.high) for series in all_series), all_series[0].unit)
    drawn = []
    for series in all_series:
        length = -(-len(series.time_ns) // _POINTS)
        starts = range(0, len(series.time_ns), length)
        drawn.append(
            lines.Line(
                clip(series.node, 20) if series.node in named else None,
                [series.time_ns[i] - start for i in starts],
                [statistics.fmean(series.mean[i : i + length]) / factor for i in starts],
                [min(series.low[i : i + length]) / factor for i in starts],
                [max(series.high[i : i + length]) / factor for i in starts],
            )
        )
    top = 100.0 if metric in ("gpu", "cpu") else None
    return lines.Panel(_NAMES[metric], alike_lines(drawn, "node", top=top), top, unit)


def _mean(series: Series) -> float:
    return statistics.fmean(series.mean)


def _finding(series: Sequence[Series]) -> str:
    low, high = min(series, key=_mean), max(series, key=_mean)
    if len(series) > 1 and quantity(_mean(low), low.unit) == quantity(_mean(high), high.unit):
        every = "both" if len(series) == 2 else f"all {count(len(series))}"
        return f"{every} nodes on average {quantity(_mean(high), high.unit)}"
    finding = f"{clip(high.node, 40)} on average {quantity(_mean(high), high.unit)}"
    return finding if low is high else f"{finding}, {clip(low.node, 40)} {quantity(_mean(low), low.unit)}"


def _scale(largest: float, unit: str) -> tuple[float, str]:
    """Return the divisor for short numbers on an axis, and their unit."""
    base, slash, per = unit.partition("/")
    if base not in ("B", "bytes", "byte"):
        return 1.0, _AXIS_UNITS.get(unit, unit)
    power = min(5, max(0, math.floor(math.log2(max(largest, 1)) / 10)))
    return 1024.0**power, ("B", "KiB", "MiB", "GiB", "TiB", "PiB")[power] + slash + per


def _mean_heat(heat: UnitHeat) -> float:
    known = [value for row in heat.values for value in row if value is not None]
    return statistics.fmean(known) if known else 0.0


def _heat(every: Sequence[UnitHeat], metric: str, unit: str) -> Figure | None:
    if not every:
        return None
    drawn = spread(every, 4, _mean_heat)
    start = min(heat.time_ns[0] for heat in drawn)
    blocks = [
        heat_map.Heat(
            clip(heat.node, 60),
            heat.units,
            heat.values,
            heat.time_ns[0] - start,
            heat.time_ns[-1] - start + heat.time_ns[1] - heat.time_ns[0],
        )
        for heat in drawn
    ]
    means = {
        (heat.node, index): sum(known) / len(known)
        for heat in every
        for index, row in zip(heat.units, heat.values, strict=True)
        if (known := [value for value in row if value is not None])
    }
    gaps = any(value is None for heat in drawn for row in heat.values for value in row)
    finding = "no samples"
    if means:
        low, high = min(means, key=lambda at: means[at]), max(means, key=lambda at: means[at])
        finding = f"{unit} {high[1]} of {clip(high[0], 40)} busiest with {percent(means[high])} on average"
        if len(means) > 1 and means[high] - means[low] < _ALIKE:
            ends = dict.fromkeys((percent(means[low]), percent(means[high])))
            finding = f"all {count(len(means))} alike with {'–'.join(ends)} on average"
        elif low != high:
            finding += f", {unit} {low[1]} of {clip(low[0], 40)} least with {percent(means[low])}"
    return Figure(
        f"system-usage-{metric}-heat",
        heat_map.heat_map(blocks, unit),
        f"Utilization of each {unit}: {finding}",
        say(
            "Each {} over time: {}.{}{}",
            unit,
            finding,
            " Open cells have no sample." * gaps,
            of_all(len(drawn), len(every), "node", "utilization"),
        ),
    )
