"""How long did a step take, how much did steps vary, and what was the average step spent on?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...analysis.report import Report, Step, StepGroup
from ..blocks import BARS, Cell, Column, Figure, Section, heaviest, of_all, say, table, value
from ..figures.axes import time_unit
from ..figures.histogram import Bins, histogram
from ..figures.lines import MOST, Line, lines
from ..figures.stacked_bars import Part, stacked_bars
from ..formats import count, duration, plural
from . import labels

_PARTS = {
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
_POINTS = 600  # of one line


def steps(report: Report) -> Section:
    found = report.steps
    if not found.groups:
        return Section(
            "steps", "Steps", say("{}", found.absent or "No step is marked in this run: annotate steps, or call the profiler's step().")
        )
    groups = found.groups
    made = Section("steps", "Steps", say("{}", _lead(groups)))
    shown = heaviest(groups, BARS, lambda group: group.quantiles.p50)
    on_device = all(group.on_device for group in groups)
    kind = (
        "device durations"
        if on_device
        else "host durations"
        if not any(g.on_device for g in groups)
        else "device durations, host where no device work"
    )
    # A single step that took a minute would press all others into one bar.
    limit = 1.5 * max(group.quantiles.p95 for group in shown)
    bins = [_within(group, limit) for group in shown]
    beyond = sum(sum(group.histogram.counts) for group in shown) - sum(sum(b.counts) for b in bins)
    made.add(
        Figure(
            "steps-distribution",
            histogram(bins, "computation", "steps"),
            f"Distribution of step durations. {_lead(groups)}",
            say(
                "Step durations ({}). A long tail to the right means some steps waited.{}{}",
                kind,
                say(" {} above {} are not drawn.", plural(beyond, "step"), duration(limit)) if beyond else "",
                of_all(len(shown), len(groups), "group"),
            ),
        ),
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
                    Cell(_label(group)),
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
        )
    )
    return made


def _label(group: StepGroup) -> str:
    return labels.process(group.node, group.rank, group.pid, group.phase)


def _within(group: StepGroup, limit: float) -> Bins:
    edges, counts = group.histogram.edges, group.histogram.counts
    kept = max(1, sum(1 for edge in edges[1:] if edge <= limit))
    return Bins(_label(group), edges[: kept + 1], counts[:kept], group.quantiles.p50)


def _lead(groups: Sequence[StepGroup]) -> str:
    total = sum(group.quantiles.count for group in groups)
    slow, fast = max(groups, key=lambda g: g.quantiles.p50), min(groups, key=lambda g: g.quantiles.p50)
    worst = max(groups, key=lambda g: g.quantiles.max)
    if len(groups) == 1:
        q = slow.quantiles
        return f"{plural(total, 'step')}: median {duration(q.p50)}, 95th percentile {duration(q.p95)}, slowest {duration(q.max)}."
    processes = len({(group.node, group.rank, group.pid) for group in groups})
    return (
        f"{plural(total, 'step')} of {plural(processes, 'process', 'processes')}: "
        f"the median lies between {duration(fast.quantiles.p50)} ({_label(fast)}) and "
        f"{duration(slow.quantiles.p50)} ({_label(slow)}); the slowest single step took {duration(worst.quantiles.max)} ({_label(worst)})."
    )


def _over_index(every: Sequence[Step], groups: Sequence[StepGroup]) -> Figure | None:
    """Step duration over step index, one line per group; the groups with the longest medians are named."""
    series: dict[tuple[str, int | None, int | None, str | None], list[Step]] = defaultdict(list)
    for step in every:
        series[step.node, step.rank, step.pid, step.phase].append(step)
    drawable = [g for g in groups if len(series[g.node, g.rank, g.pid, g.phase]) > 1]
    if not drawable:
        return None
    named = heaviest(drawable, MOST, lambda group: group.quantiles.p50)
    drawn = heaviest(drawable, _LINES, lambda group: group.quantiles.p50)
    # The first step often takes many times as long as any other: it is drawn at the edge, so that the others are to be told apart.
    limit = 1.5 * max(group.quantiles.p99 for group in drawn)
    unit = time_unit(min(limit, max(group.quantiles.max for group in drawn)))
    beyond = 0
    made = []
    for group in drawn:
        points = _thinned(sorted(series[group.node, group.rank, group.pid, group.phase], key=lambda step: (step.index, step.start_ns)))
        beyond += sum(1 for step in series[group.node, group.rank, group.pid, group.phase] if step.duration_ns > limit)
        made.append(
            Line(
                _label(group) if group in named else None,
                [step.index for step in points],
                [min(step.duration_ns, limit) / unit.nanoseconds for step in points],
            )
        )
    edge = say(" {} above {} at the upper edge.", plural(beyond, "step"), duration(limit)) if beyond else ""
    grey = " Grey: further processes, of shorter median." if len(drawn) > len(named) else ""
    return Figure(
        "steps-over-index",
        lines(made, f"step duration, {unit.name}", "step", x_time=False),
        f"Duration of each step. {_lead(groups)}",
        say(
            "Each step in its order. Single peaks are disturbances, a slope is a trend.{}{}{}",
            edge,
            grey,
            of_all(len(drawn), len(drawable), "process"),
        ),
    )


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
    shown = heaviest(every, BARS, lambda part: part.mean_step_ns)
    unit = time_unit(max(part.mean_step_ns for part in shown) or 1)
    rows = [
        (labels.process(part.node, part.rank, part.pid), [part.mean_ns.get(key, 0.0) / unit.nanoseconds for key in _PARTS])
        for part in shown
    ]
    longest = max(shown, key=lambda part: part.mean_step_ns)
    largest = max(longest.mean_ns, key=lambda key: longest.mean_ns[key])
    finding = (
        f"{labels.process(longest.node, longest.rank, longest.pid)} has the longest mean step, {duration(longest.mean_step_ns)}; "
        f"its largest part is {_PARTS[largest].name if largest in _PARTS else largest} with {duration(longest.mean_ns[largest])}"
    )
    return Figure(
        "steps-parts",
        stacked_bars(tuple(_PARTS.values()), rows, unit.name),
        f"Parts of the average step: {finding}",
        say(
            "What the average step was spent on; each moment counts once, in the order of the PyTorch TensorBoard plugin. {}.{}",
            finding,
            of_all(len(shown), len(every), "process"),
        ),
    )
