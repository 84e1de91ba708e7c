"""How long did a step take, how much did steps vary, and what was the average step spent on?"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from ...analysis.report import Report, Step, StepGroup
from ..blocks import BARS, Cell, Column, Figure, Section, of_all, say, spread, table, value
from ..figures.axes import time_unit
from ..figures.histogram import histogram
from ..figures.lines import Line, Panel, lines
from ..figures.stacked_bars import Part, stacked_bars
from ..formats import count, duration, plural
from . import labels
from .distribution import bins_of, worth_drawing

PARTS: Final = {
    "kernel": Part("kernels", "computation"),
    "communication": Part("communication", "communication"),
    "memcpy": Part("copies", "memory"),
    "memset": Part("memsets", "memory", 0.55),
    "data_loader": Part("data loading", "loading"),
    "runtime": Part("runtime calls", "host"),
    "cpu_op": Part("CPU operators", "operator"),
    "other": Part("other", "idle"),
}
_LINES = 32  # of processes in the figure over the index
_NAMED = 3
_POINTS = 400  # of one line


def steps(report: Report) -> Section:
    found = report.steps
    if not found.groups:
        return Section(
            "steps", "Steps", say("{}", found.absent or "No step is marked in this run: annotate steps, or call the profiler's step().")
        )
    groups = found.groups
    label = _labels(groups)
    made = Section("steps", "Steps", say("{}", _lead(groups)))
    made.add(
        _distribution(groups),
        _over_index(found.steps, groups),
        _parts(report),
        table(
            "steps-groups",
            "Step durations by process",
            [
                Column("Process", "name"),
                Column("Steps", "number"),
                *(Column(label, "number") for label in ("max", "p99", "p95", "p50", "min")),
                Column("Mean", "number", html_only=True),
                Column("Deviation", "number", html_only=True),
                Column("Measured", html_only=True),
            ],
            [
                [
                    Cell(label(group)),
                    value(group.quantiles.count, count),
                    *(
                        value(x, duration)
                        for x in (
                            group.quantiles.max,
                            group.quantiles.p99,
                            group.quantiles.p95,
                            group.quantiles.p50,
                            group.quantiles.min,
                            group.quantiles.mean,
                            group.quantiles.std,
                        )
                    ),
                    Cell("on device" if group.on_device else "on host"),
                ]
                for group in groups
            ],
            pdf_rows=8,
        ),
    )
    slowest = sorted((step for group in groups for step in group.slowest), key=lambda step: -step.duration_ns)[:10]
    start = report.run.started_at_ns or 0
    made.add(
        table(
            "steps-slowest",
            "Slowest steps",
            [
                Column("Step", "name"),
                Column("Process"),
                Column("Began after", "number"),
                Column("Duration", "number"),
                Column("On the host", "number"),
            ],
            [
                [
                    Cell(f"step {step.index}", sort=step.index),
                    Cell(labels.process(step.node, step.rank, step.pid, step.phase)),
                    Cell(duration(step.start_ns - start), sort=step.start_ns),
                    value(step.duration_ns, duration),
                    value(step.host_duration_ns, duration),
                ]
                for step in slowest
            ],
            pdf_rows=5,
        )
    )
    return made


def _labels(groups: Sequence[StepGroup]) -> Callable[[StepGroup], str]:
    """How a group is called: by its process and phase, and by where it was measured if that process has both kinds."""

    def plain(group: StepGroup) -> str:
        return labels.process(group.node, group.rank, group.pid, group.phase)

    seen = Counter(plain(group) for group in groups)

    def label(group: StepGroup) -> str:
        name = plain(group)
        return name if seen[name] == 1 else f"{name} ({'device' if group.on_device else 'host'})"

    return label


def _lead(groups: Sequence[StepGroup]) -> str:
    label = _labels(groups)
    total = sum(group.quantiles.count for group in groups)
    slow, fast = max(groups, key=lambda g: g.quantiles.p50), min(groups, key=lambda g: g.quantiles.p50)
    worst = max(groups, key=lambda g: g.quantiles.max)
    if len(groups) == 1:
        q = slow.quantiles
        if q.count == 1:
            return f"One step was recorded: it took {duration(q.max)}."
        return f"{plural(total, 'step')}: median {duration(q.p50)}, 95th percentile {duration(q.p95)}, slowest {duration(q.max)}."
    number = len({(group.node, group.rank, group.pid) for group in groups})
    return (
        f"{plural(total, 'step')} of {plural(number, 'process', 'processes')}: "
        f"the median lies between {duration(fast.quantiles.p50)} ({label(fast)}) and "
        f"{duration(slow.quantiles.p50)} ({label(slow)}); the slowest single step took {duration(worst.quantiles.max)} ({label(worst)})."
    )


def _distribution(groups: Sequence[StepGroup]) -> Figure | None:
    """A row of bars per group; nothing where the table says it all."""
    label = _labels(groups)
    shown = spread(groups, BARS, lambda group: group.quantiles.p50)
    if not any(group.quantiles.count > 4 for group in shown) or (len(shown) == 1 and not worth_drawing(shown[0].quantiles)):
        return None
    on_device = {group.on_device for group in groups}
    kind = (
        "device durations, host durations where a step launched no device work"
        if len(on_device) == 2
        else "device durations"
        if True in on_device
        else "host durations"
    )
    # A few steps that took a minute would press all others into one bar.
    limit = max(1.5 * group.quantiles.p95 for group in shown) if not any(group.histogram.logarithmic for group in shown) else math.inf
    bins = [bins_of(label(group) if len(shown) > 1 else "", group.histogram, group.quantiles.p50, limit) for group in shown]
    cut = [group for group in bins if group.beyond]
    ends = {duration(group.edges[-1]) for group in cut}
    where = f"above {min(ends)}" if len(ends) == 1 else "above the end of their row"
    missing = say(" {} {} not drawn.", plural(sum(group.beyond for group in cut), "step"), where) if cut else ""
    return Figure(
        "steps-distribution",
        histogram(bins, "computation", "steps"),
        f"Distribution of step durations. {_lead(groups)}",
        say(
            "Step durations ({}). A long tail to the right means some steps waited.{}{}",
            kind,
            missing,
            of_all(len(shown), len(groups), "group", "median duration"),
        ),
    )


def _over_index(every: Sequence[Step], groups: Sequence[StepGroup]) -> Figure | None:
    """Step duration over step index, one line per group; the slowest, the median and the fastest group are named."""
    label = _labels(groups)
    series: dict[tuple[object, ...], list[Step]] = defaultdict(list)
    for step in every:
        series[_key(step)].append(step)
    drawable = [group for group in groups if len(series[_key(group)]) > 2]
    if not drawable:
        return None
    named = spread(drawable, _NAMED, lambda group: group.quantiles.p50)
    drawn = spread(drawable, _LINES, lambda group: group.quantiles.p50)
    # The first step often takes many times as long as any other: it is drawn at the edge, so that the others are to be told apart.
    limit = 1.5 * max(group.quantiles.p99 for group in drawn)
    unit = time_unit(min(limit, max(group.quantiles.max for group in drawn)))
    beyond = 0
    made = []
    for group in drawn:
        own = sorted(series[_key(group)], key=lambda step: (step.index, step.start_ns))
        beyond += sum(1 for step in own if step.duration_ns > limit)
        points = _thinned(own)
        made.append(
            Line(
                label(group) if group in named else None,
                [step.index for step in points],
                [min(step.duration_ns, limit) / unit.nanoseconds for step in points],
            )
        )
    edge = say(" {} above {} at the upper edge.", plural(beyond, "step"), duration(limit)) if beyond else ""
    who = f" Of {label(named[0])}." if len(drawable) == 1 else ""
    grey = " Named: the slowest, the median and the fastest by median duration; grey: the others." if len(drawn) > len(named) else ""
    return Figure(
        "steps-over-index",
        lines([Panel(f"step duration, {unit.name}", made)], "step", x_time=False, height=120),
        f"Duration of each step. {_lead(groups)}",
        say(
            "Each step in its order. Single peaks are disturbances, a slope is a trend.{}{}{}{}",
            who,
            edge,
            grey,
            of_all(len(drawn), len(drawable), "process", "median duration"),
        ),
    )


def _key(row: Step | StepGroup) -> tuple[object, ...]:
    return row.node, row.rank, row.pid, row.phase, row.on_device


def _thinned(steps: Sequence[Step]) -> Sequence[Step]:
    """At most _POINTS steps: of every stretch its shortest and its longest, so that no peak is lost."""
    if len(steps) <= _POINTS:
        return steps
    length = -(-2 * len(steps) // _POINTS)
    kept = []
    for start in range(0, len(steps), length):
        stretch = steps[start : start + length]
        ends = {min(stretch, key=lambda s: s.duration_ns).start_ns, max(stretch, key=lambda s: s.duration_ns).start_ns}
        kept += [step for step in stretch if step.start_ns in ends]
    return kept


def _parts(report: Report) -> Figure | None:
    every = report.steps.parts
    if not every:
        return None
    shown = spread(every, BARS, lambda part: part.mean_step_ns)
    unit = time_unit(max(part.mean_step_ns for part in shown) or 1)
    rows = [
        (labels.process(part.node, part.rank, part.pid), [part.mean_ns.get(key, 0.0) / unit.nanoseconds for key in PARTS]) for part in shown
    ]
    longest = max(shown, key=lambda part: part.mean_step_ns)
    largest = max(longest.mean_ns, key=lambda key: longest.mean_ns[key])
    finding = (
        f"{labels.process(longest.node, longest.rank, longest.pid)} has the longest mean step, {duration(longest.mean_step_ns)}; "
        f"its largest part is {PARTS[largest].name if largest in PARTS else largest} with {duration(longest.mean_ns[largest])}"
    )
    return Figure(
        "steps-parts",
        stacked_bars(tuple(PARTS.values()), rows, unit.name),
        f"Parts of the average step: {finding}",
        say(
            "What the average step was spent on; each moment counts once, in the order of the PyTorch TensorBoard plugin. {}.{}",
            finding[0].upper() + finding[1:],
            of_all(len(shown), len(every), "process", "mean step"),
        ),
    )
