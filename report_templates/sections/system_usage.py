"""How busy were GPUs, processors, memory, disks and network?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...analysis.report import ActiveTime, Report, Series, UnitHeat
from ..blocks import Cell, Column, Figure, Section, Slice, heaviest, of_all, ring, say, table
from ..figures import heat_map, lines
from ..formats import clip, count, percent, quantity

_NAMES = {
    "gpu": "GPU utilisation",
    "gpu_memory": "GPU memory utilisation",
    "cpu": "CPU utilisation",
    "io_wait": "I/O wait",
    "cpu_memory": "Main memory",
    "network": "Network",
    "disk_read": "Disk reads",
    "disk_write": "Disk writes",
}
_HEAT_MAPS = 4


def system_usage(report: Report) -> Section:
    usage = report.system_usage
    made = Section("system-usage", "System usage", say("{}", usage.absent or _lead(report)))
    made.facts.update({"statements": usage.statements} if usage.statements else {})
    made.add(
        table(
            "system-usage-nodes",
            "Utilisation by node: quantiles over the samples",
            [
                Column("Node", "name"),
                Column("Metric"),
                *(Column(label, "number") for label in ("max", "p99", "p95", "p50", "min")),
                Column("Samples", "number", html_only=True),
            ],
            [
                [
                    Cell(clip(row.node, 40)),
                    Cell(_NAMES.get(row.metric, row.metric) + (" (derived)" if row.derived else "")),
                    *(Cell(quantity(x, row.unit), sort=x) for x in (row.max, row.p99, row.p95, row.p50, row.min)),
                    Cell(count(row.samples), sort=row.samples),
                ]
                for row in usage.nodes
            ],
        ),
        _active("system-usage-gpu-active", "GPU active time", usage.gpu_active, "computation"),
        _active("system-usage-cpu-active", "CPU active time", usage.cpu_active, "host"),
    )
    for metric in _NAMES:
        made.add(_over_time(metric, [series for series in usage.series if series.metric == metric]))
    for metric, unit in (("gpu", "GPU"), ("cpu", "core")):
        maps = [heat for heat in usage.heat if heat.metric == metric and heat.units and heat.time_ns]
        for number, heat in enumerate(maps[:_HEAT_MAPS]):
            made.add(_heat(heat, unit, number, len(maps)))
    return made


def _lead(report: Report) -> str:
    """Busiest and least busy node by the median of what matters most: GPUs, or processors without them."""
    for metric, what in (("gpu", "GPU utilisation"), ("cpu", "CPU utilisation")):
        rows = sorted((row for row in report.system_usage.nodes if row.metric == metric), key=lambda row: row.p50)
        if len(rows) == 1:
            return f"The median {what} was {percent(rows[0].p50)}, the 95th percentile {percent(rows[0].p95)}."
        if rows:
            low, high = rows[0], rows[-1]
            return (
                f"The median {what} of the nodes was between {percent(low.p50)} ({clip(low.node, 40)}) "
                f"and {percent(high.p50)} ({clip(high.node, 40)})."
            )
    return "No utilisation was sampled in this run."


def _active(id: str, what: str, active: ActiveTime | None, meaning: str) -> Figure | None:
    if active is None or not active.points:
        return None
    idle = active.points - active.active
    source = " Derived from kernel activity: no utilisation was sampled." if active.derived else ""
    return ring(
        id,
        say("Samples above 0 % count as active, over every unit of every node.{}", source),
        what,
        [
            Slice("active", meaning, active.active_percent, (Cell(count(active.active)),)),
            Slice("idle", "idle", 100 - active.active_percent, (Cell(count(idle)),)),
        ],
        ("State", "Samples", "Of samples"),
        middle=(percent(active.active_percent), "active"),
    )


def _over_time(metric: str, given: Sequence[Series]) -> Figure | None:
    given = [series for series in given if series.time_ns]
    if not given:
        return None
    name = _NAMES[metric]
    start = min(series.time_ns[0] for series in given)
    named = heaviest(given, lines.MOST, lambda series: -sum(series.mean) / len(series.mean))
    unit = given[0].unit
    factor, shown_unit = _scale(max(max(series.high) for series in given), unit)
    drawn = [
        lines.Line(
            clip(series.node, 20) if series in named else None,
            [time - start for time in series.time_ns],
            *([number / factor for number in numbers] for numbers in (series.mean, series.low, series.high)),
        )
        for series in heaviest(given, 32, lambda series: -sum(series.mean) / len(series.mean))
    ]
    mean = {series.node: sum(series.mean) / len(series.mean) for series in given}
    low, high = min(mean, key=lambda node: mean[node]), max(mean, key=lambda node: mean[node])
    finding = f"{clip(high, 40)} on average {quantity(mean[high], unit)}"
    if low != high:
        finding += f", {clip(low, 40)} {quantity(mean[low], unit)}"
    band = " The band spans the lowest and the highest unit." if len(named) <= 4 else ""
    grey = " Grey: further nodes, of higher mean." if len(given) > len(named) else ""
    derived = " Derived from kernel activity." if given[0].derived else ""
    return Figure(
        f"system-usage-{metric.replace('_', '-')}-over-time",
        lines.lines(
            drawn,
            f"{name}, {shown_unit}",
            "time since the first sample",
            x_time=True,
            top=100 if metric in ("gpu", "cpu") else None,
        ),
        f"{name} over time: {finding}",
        say("{} over time, mean of the node's units.{}{}{}{}", name, band, grey, derived, of_all(len(drawn), len(given), "node")),
    )


def _scale(largest: float, unit: str) -> tuple[float, str]:
    """What to divide by for short numbers on an axis, and the unit after that."""
    base, slash, per = unit.partition("/")
    if base not in ("B", "bytes", "byte"):
        return 1.0, "%" if unit == "percent" else unit
    power = min(5, max(0, math.floor(math.log2(max(largest, 1)) / 10)))
    return 1024.0**power, ("B", "KiB", "MiB", "GiB", "TiB", "PiB")[power] + slash + per


def _heat(heat: UnitHeat, unit: str, number: int, total: int) -> Figure:
    means = {
        index: sum(known) / len(known)
        for index, row in zip(heat.units, heat.values, strict=True)
        if (known := [value for value in row if value is not None])
    }
    finding = "no samples"
    if means:
        low, high = min(means, key=lambda i: means[i]), max(means, key=lambda i: means[i])
        finding = f"{unit} {high} busiest with {percent(means[high])} on average, {unit} {low} least with {percent(means[low])}"
    more = of_all(min(total, _HEAT_MAPS), total, "node") if number == 0 else ""
    step = heat.time_ns[1] - heat.time_ns[0] if len(heat.time_ns) > 1 else 0
    return Figure(
        f"system-usage-{heat.metric}-heat-{number}",
        heat_map.heat_map(heat.values, heat.units, heat.time_ns[-1] - heat.time_ns[0] + step, unit),
        f"Utilisation of each {unit} of {clip(heat.node, 40)}: {finding}",
        say("Each {} of {} over time: {}. Open cells have no sample.{}", unit, clip(heat.node, 40), finding, more),
    )
