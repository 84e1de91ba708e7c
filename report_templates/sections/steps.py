"""Section "Steps": step durations, their variation, and the parts of the average step."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from ...analysis.report.model import Report
from ...analysis.report.rows import Quantiles
from ...analysis.report.steps import Step, StepGroup, Steps
from ...analysis.steps.profiled import ENOUGH
from ...analysis.steps.step_time import (
    FROM_STEP_TO_STEP,
    lengths_by_step,
    main_steps,
    spread_of,
    step_times,
    times_by_step,
    work_overlaps,
)
from ...analysis.toolkit import wording
from ..blocks import FEWEST, Figure, Section, say, worth_drawing
from ..blocks.pooled import binned, pooled
from ..blocks.spans import step_span
from ..blocks.tables import Cell, Col, outliers_first, table
from ..figures import distribution
from ..figures.axes import time_unit
from ..figures.lines import Line, Panel, lines
from ..text import labels
from ..text.formats import capitalized, count, duration, plural, since
from .run_marks import step_marks
from .step_parts import step_parts
from .work_outside_steps import outside_sentence, outside_table

_SLOW: Final = 1.5  # times the median; a longer step has its number in the distribution
_POINTS = 400  # of one line
_ROWS: Final = 8  # of the figure of step times
_MIN_STEPS = 10  # steps at least for outer percentiles
_SLOWEST: Final = 10  # listed steps
_GROUPS: Final = 8  # processes and phases that the PDF lists
_Listed = defaultdict[tuple[object, ...], list[Step]]  # The steps that the report lists, by group


def steps(report: Report) -> Section:
    metrics = report.steps
    if not metrics.groups:
        return Section(
            "steps", "Steps", say("{}", metrics.absent or "No step is marked in this run: annotate steps, or call the profiler's step().")
        )
    groups = metrics.groups
    label = _labels(groups)
    listed = _by_group(metrics.steps)
    spreads = {_key(group): spread_of(listed[_key(group)]) if group.on_device else group.quantiles for group in groups}
    gpu_spreads = {_key(group): group.quantiles for group in groups if group.on_device}
    slowest, times = slowest_steps(metrics)
    crowded = len(groups) > _GROUPS
    began = since(report.run.started_at_ns or 0)
    blocks = [
        _distribution(groups, listed),
        table(
            "steps-groups",
            f"{_measures(any(spreads.values()), bool(gpu_spreads))} by process",
            _of_each_kind(groups) if crowded else groups,
            Col("Process", label, kind="name"),
            Col("Steps", lambda group: group.quantiles.count, count),
            *_spread_columns("Step time", spreads),
            *_spread_columns("GPU time", gpu_spreads),
            pdf_rows=_GROUPS,
            note="The rows farthest from the median of their kind come first, the kinds in turn." if crowded else None,
        ),
        _over_index(report, listed, groups),
        table(
            "steps-slowest",
            "Slowest steps",
            slowest,
            Col(
                "Step",
                lambda step: Cell(wording.step(step.index, step.again) + (f", {step.profiled}" if step.profiled else ""), sort=step.index),
                kind="name",
            ),
            Col("Process", lambda step: labels.process(step.node, step.rank, step.pid, step.phase)),
            Col("Began after", lambda row: row.start_ns, began, html_only=True, span=lambda row: step_span(row)),
            Col("Step time", times.get, duration),
            Col("GPU time", lambda step: step.duration_ns if step.on_device else None, duration),
            Col("On the host", lambda step: step.host_duration_ns, duration, when=any(step.on_device for step in slowest)),
            pdf_rows=6,
        ),
        step_parts(report),
    ]
    if metrics.outside:
        blocks.append(outside_table(metrics.outside))
    lead = " ".join(
        filter(None, (_step_time(report), _lead(groups, listed), outside_sentence(metrics.outside), metrics.profiled, metrics.trend))
    )
    return Section("steps", "Steps", say("{}", lead), blocks)


def _of_each_kind(groups: Sequence[StepGroup]) -> list[StepGroup]:
    """Sort groups by the distance from the median of their kind, the kinds in turn.

    Groups of one kind have the same phase and clock."""
    kinds: dict[tuple[str | None, bool], list[StepGroup]] = defaultdict(list)
    for group in groups:
        kinds[group.phase, group.on_device].append(group)
    ordered = [outliers_first(members, lambda group: group.quantiles.p50) for members in kinds.values()]
    return [group for turn in zip_longest(*ordered) for group in turn if group is not None]


def _measures(step_time: bool, gpu_time: bool) -> str:
    return capitalized(" and ".join(name for name, known in (("step time", step_time), ("GPU time per step", gpu_time)) if known))


def _spread_columns(name: str, spreads: Mapping[tuple[object, ...], Quantiles | None]) -> list[Col[StepGroup]]:
    """Make the columns of a measure; groups without it have no values there."""

    def column(label: str, field: str, *, fewest: int = 1, html_only: bool = True) -> Col[StepGroup]:
        def value(group: StepGroup) -> float | None:
            spread = spreads.get(_key(group))
            return getattr(spread, field) if spread is not None and spread.count >= fewest else None

        return Col(f"{name}: {label}", value, duration, html_only=html_only)

    return [
        column("median", "p50", html_only=False),
        column("p95", "p95", fewest=_MIN_STEPS),
        column("p99", "p99", fewest=_MIN_STEPS),
        column("max", "max", html_only=False),
        column("min", "min"),
        column("mean", "mean"),
    ]


def slowest_steps(metrics: Steps) -> tuple[list[Step], dict[Step, int]]:
    """Return the slowest steps by their step time, and the known step times.

    These are from step to step on the device. Steps without one come last, by GPU time."""
    candidates: dict[Step, None] = {}
    times: dict[Step, int] = {}
    listed = _by_group(metrics.steps)
    for group in metrics.groups:
        steps = dict.fromkeys((*group.slowest, *(listed[_key(group)] if group.on_device else ())))
        candidates |= steps
        times |= times_by_step(list(steps))
    return sorted(candidates, key=lambda step: (-times.get(step, 0), -step.duration_ns))[:_SLOWEST], times


def _step_time(report: Report) -> str:
    """Return the step time of the first page; "" if the groups are timed alike."""
    times = step_times(report.steps)
    if times is None or times.measure != FROM_STEP_TO_STEP:
        return ""
    number = times.counted if times.partly else plural(len(times.values), "step")
    overlap = (
        " The GPU work of steps overlaps, so the GPU time per step is longer." if work_overlaps(main_steps(report.steps.steps)) else ""
    )
    return f"The step time is {duration(times.median_ns)} (median of {number}, from step to step).{overlap}"


def _labels(groups: Sequence[StepGroup]) -> Callable[[StepGroup], str]:
    """Name groups by process, phase, and if needed, device or host."""

    def plain(group: StepGroup) -> str:
        return labels.process(group.node, group.rank, group.pid, group.phase)

    seen = Counter(plain(group) for group in groups)

    def label(group: StepGroup) -> str:
        name = plain(group)
        return name if seen[name] == 1 else f"{name} ({'device' if group.on_device else 'host'})"

    return label


def _main(groups: Sequence[StepGroup]) -> tuple[list[StepGroup], str]:
    """Return the comparable groups, and the name of their steps.

    These are the steps that a profiler marked (no phase), else those of training, else those of the most frequent phase. Timelines of the
    entire job contain the same steps again, or others.
    """
    totals = Counter({group.phase: 0 for group in groups})
    for group in groups:
        totals[group.phase] += group.quantiles.count
    phase = None if None in totals else next((p for p in totals if p and p.upper() == "TRAIN"), totals.most_common(1)[0][0])
    return [group for group in groups if group.phase == phase], phase or "profiled"


def _counted(groups: Sequence[StepGroup], *, named: bool = True) -> str:
    """Write "3 803 TRAIN and 90 EVAL steps on each of 2 processes"."""
    numbers: dict[str, Counter[tuple[object, ...]]] = defaultdict(Counter)
    for group in groups:
        numbers[group.phase or "profiled"][group.node, group.rank, group.pid] += group.quantiles.count
    parts: dict[str, list[str]] = defaultdict(list)
    single = True
    for phase, by_process in sorted(numbers.items(), key=lambda item: -item[1].total()):
        each = len(by_process) > 1 and len(set(by_process.values())) == 1
        total = next(iter(by_process.values())) if each else by_process.total()
        single &= total == 1
        where = "" if len(by_process) == 1 else f" {'on each of' if each else 'of'} {plural(len(by_process), 'process', 'processes')}"
        parts[where].append(f"{count(total)} {phase}" if named else count(total))
    noun = "step" if single else "steps"
    return ", ".join(f"{' and '.join(texts)}\u00a0{noun}{where}" for where, texts in parts.items())


def _lead(groups: Sequence[StepGroup], every: _Listed) -> str:
    main, name = _main(groups)
    others = [group for group in groups if group not in main]
    named = bool(others) or name != "profiled"
    # Times of the device and of the host do not compare.
    timed = [group for group in main if group.on_device] or main
    sentence = _durations(timed, _counted(timed, named=named), every)
    if host := [group for group in main if group not in timed]:
        sentence += f" Without recorded device work, timed on the host: {_durations(host, _counted(host, named=named), every)}"
    if not others:
        return sentence
    source = "Timelines of the whole job" if name == "profiled" else "Besides"
    return f"{sentence} {source}: {_counted(others)}."


def _durations(groups: Sequence[StepGroup], counted: str, every: _Listed) -> str:
    label = _labels(groups)
    slow, fast = max(groups, key=lambda g: g.quantiles.p50), min(groups, key=lambda g: g.quantiles.p50)
    worst = max(groups, key=lambda g: _longest(g, every)[0])
    longest, without = _longest(worst, every)
    q = slow.quantiles
    on_device = all(group.on_device for group in groups)
    gpu = ", GPU time per step" if on_device else ""
    slowest = f"{'longest' if on_device else 'slowest'}{without} {duration(longest)}"
    if len(groups) == 1:
        if q.count == 1:
            return f"{counted}{gpu}: it took {duration(q.max)}."
        if q.count < _MIN_STEPS:
            return f"{counted}{gpu}: median {duration(q.p50)}, {'shortest' if on_device else 'fastest'} {duration(q.min)}, {slowest}."
        return f"{counted}{gpu}: median {duration(q.p50)}, 95th percentile {duration(q.p95)}, {slowest}."
    low, high = duration(fast.quantiles.p50), duration(q.p50)
    medians = f"the median is {low} for each" if low == high else f"medians from {low} ({label(fast)}) to {high} ({label(slow)})"
    most = f"longest{without} is" if on_device else f"slowest step{without} took"
    return f"{counted}{gpu}: {medians}; the {most} {duration(longest)} ({label(worst)})."


def _longest(group: StepGroup, every: _Listed) -> tuple[float, str]:
    """Return the time of the longest step, and " without a profiler" if that applies.

    Steps with a profiler, which makes them longer, are ignored if enough others remain.
    """
    longest = group.quantiles.max, ""
    if not group.slowest or group.slowest[0].profiled is None:
        return longest
    others = [step for step in every[_key(group)] if step.profiled is None]
    plain = [step for step in group.slowest if step.profiled is None]
    if len(others) < ENOUGH or (not plain and len(every[_key(group)]) < group.quantiles.count):  # not all are listed
        return longest
    return max(step.duration_ns for step in plain or others), " without a profiler"


def _distribution(groups: Sequence[StepGroup], listed: _Listed) -> Figure | None:
    """Draw a row per phase over all processes, unless the table is enough."""
    if sum(group.quantiles.count for group in groups) < FEWEST or (len(groups) == 1 and not worth_drawing(groups[0].quantiles)):
        return None
    kinds = list(dict.fromkeys((group.phase, group.on_device) for group in groups))
    several = len({phase for phase, _ in kinds}) < len(kinds)
    rows, texts, medians, on_device = [], [], [], False
    longest_ns, longest_step = 0.0, ""
    for phase, device in kinds[:_ROWS]:
        members = [group for group in groups if (group.phase, group.on_device) == (phase, device)]
        lengths = _numbered([step for group in members for step in listed[_key(group)]]) if device else {}
        slow = sorted((step for group in members for step in group.slowest), key=lambda step: -step.duration_ns)
        if values := [length for each in lengths.values() for length in each]:
            edges, counts = binned(values)
            median = statistics.median(values)
            slowest = sorted(((float(max(each)), wording.step(index, again)) for (again, index), each in lengths.items()), reverse=True)
        else:
            edges, counts = pooled([group.histogram for group in members])
            median = statistics.median(group.quantiles.p50 for group in members)
            slowest = [(float(step.duration_ns), wording.step(step.index, step.again)) for step in slow]
            on_device |= device
        name = f"{phase or 'profiled'}{(' on device' if device else ' on host') if several else ''}"
        longest = {text: time for time, text in reversed(slowest) if time > _SLOW * median}
        named = sorted(((time, text) for text, time in longest.items()), reverse=True)[:3]
        rows.append(distribution.Row(name, edges, counts, median, named))
        times = f", slowest {slowest[0][1]} with {duration(slowest[0][0])}" if slowest and slowest[0][0] > 1.05 * median else ""
        texts.append(f"{name}: median {duration(median)}{times}")
        medians.append(f"{duration(median)} ({name})")
        if times and slowest[0][0] > longest_ns:
            longest_ns, longest_step = slowest[0]
    if len(rows) == 1:
        rows = [dataclasses.replace(rows[0], label="")]
        medians = [medians[0].partition(" (")[0]]
    outlier = f"; longest: {longest_step}, {duration(longest_ns)}" if longest_step else ""
    quantity = "GPU time per step" if on_device else "step time"
    return Figure(
        "steps-distribution",
        distribution.distribution(rows, quantity, "computation"),
        f"Distribution of the {quantity}. {'; '.join(texts)}",
        say("{} of all processes. Median: {}{}.", capitalized(quantity), ", ".join(medians), outlier),
    )


def _numbered(steps: Sequence[Step]) -> dict[tuple[int, int], list[int]]:
    """Return the times of all processes by step.

    They are from step to step on the device if known, else on the host.
    """
    if all(step.on_device for step in steps):
        return lengths_by_step(steps)
    times: dict[tuple[int, int], dict[tuple[object, ...], int]] = defaultdict(dict)
    for step in steps:
        times[step.again, step.index][_key(step)] = step.host_duration_ns
    return {number: list(each.values()) for number, each in sorted(times.items())}


def _whole_job(groups: Sequence[StepGroup]) -> tuple[list[StepGroup], str]:
    """Return the groups of the main steps, or those of the entire job if it has more."""
    main, name = _main(groups)
    phases = Counter[str | None]()
    for group in groups:
        if group not in main and not group.on_device:
            phases[group.phase] += group.quantiles.count
    if not phases or phases.most_common(1)[0][1] <= sum(group.quantiles.count for group in main):
        return main, name
    phase = phases.most_common(1)[0][0]
    return [group for group in groups if group.phase == phase and not group.on_device], phase or "profiled"


def _over_index(report: Report, series: _Listed, groups: Sequence[StepGroup]) -> Figure | None:
    """Draw the time of each step over their numbers, with the marks of the run."""
    main, what = _whole_job(groups)
    timed = [group for group in main if group.on_device] or main
    steps = [step for group in timed for step in (*series[_key(group)], *group.slowest)]
    lengths = _numbered(list(dict.fromkeys(steps)))
    measure, how = "step time", " from step to step" if timed[0].on_device else " on the host"
    if len(lengths) < 3 and timed[0].on_device:  # only some steps follow a recorded one
        measure, how, lengths = "GPU time per step", " of GPU time", defaultdict(list)
        for step in dict.fromkeys(steps):
            lengths[step.again, step.index].append(step.duration_ns)
    if len(lengths) < 3:
        return None
    # Numbers that begin anew in each epoch would draw the epochs on top of each other.
    anew = any(again for again, _ in lengths)
    points = [
        _Point(place if anew else index, index, again, statistics.median(each), min(each), max(each))
        for place, ((again, index), each) in enumerate(sorted(lengths.items()))
    ]
    # The first step often takes many times as long as any other: it is drawn at the edge, so that the others are distinct.
    limit = 1.5 * max(max(group.quantiles.p99 for group in timed), statistics.median(point.time for point in points))
    unit = time_unit(min(limit, max(point.time for point in points)))
    kept = _thinned(points)
    several = len({_key(step) for step in steps}) > 1
    low, high = ([point.low for point in kept], [point.high for point in kept]) if several else ([], [])
    y, lower, upper = ([min(time, limit) / unit.nanoseconds for time in times] for times in ([point.time for point in kept], low, high))
    drawn = Line(what, [point.x for point in kept], y, lower, upper)
    beyond = sum(point.time > limit for point in points)
    edge = f" {plural(beyond, 'step')} above {duration(limit)} at the upper edge." if beyond else ""
    slowest = max(points, key=lambda point: point.time)
    who = f" Median of {plural(len(timed), 'process', 'processes')}; band: all of them." if several else ""
    only = f" Only the {what} steps are drawn." if len(main) < len(groups) else ""
    profiled = [step for group in groups if group.on_device and group not in timed for step in series[_key(group)]]
    marks = [] if anew else step_marks(report, steps, profiled)
    median = statistics.median(point.time for point in points)
    name = wording.step(slowest.index, slowest.again)
    lead = f"The slowest, {name}, took {duration(slowest.time)}{how}; the median step {duration(median)}"
    return Figure(
        "steps-over-index",
        lines([Panel(measure, [drawn], unit=unit.name)], "steps before it" if anew else "step", x_time=False, height=80, marks=marks),
        f"Time of each step in their order. {lead}",
        say(
            "{}.{}{}{}{}",
            lead,
            only,
            who,
            " Numbers of steps repeat: the axis counts the steps before each." if anew else "",
            edge,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Point:
    """A step on the axis: its times on all processes in ns."""

    x: int
    index: int
    again: int
    time: float
    low: float
    high: float


def _key(row: Step | StepGroup) -> tuple[object, ...]:
    return row.node, row.rank, row.pid, row.phase, row.on_device


def _by_group(every: Sequence[Step]) -> _Listed:
    by_group: _Listed = defaultdict(list)
    for step in every:
        by_group[_key(step)].append(step)
    return by_group


def _thinned(points: Sequence[_Point]) -> Sequence[_Point]:
    """Choose the shortest and longest steps of equal ranges, so that no peak is lost."""
    if len(points) <= _POINTS:
        return points
    length = -(-2 * len(points) // _POINTS)
    kept = []
    for start in range(0, len(points), length):
        stretch = points[start : start + length]
        kept += sorted({min(stretch, key=lambda one: one.time).x, max(stretch, key=lambda one: one.time).x})
    chosen = set(kept)
    return [point for point in points if point.x in chosen]
