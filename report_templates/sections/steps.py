"""Section "Steps": step durations, their variation, and the parts of the average step."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...analysis.report.model import Report
from ...analysis.report.steps import Step, StepGroup, StepParts
from ...analysis.steps.profiled import ENOUGH
from ...analysis.steps.step_time import FROM_STEP_TO_STEP, step_times
from ...analysis.toolkit import wording
from ..blocks import Figure, Section, bar_rows, bins_of, of_all, say, spread, worth_drawing
from ..blocks.tables import Cell, Col, table
from ..figures.axes import time_unit
from ..figures.histogram import histogram
from ..figures.lines import Line, Panel, lines
from ..figures.stacked_bars import Part, stacked_bars
from ..text import labels
from ..text.formats import capitalized, clip, count, duration, plural, since
from .work_outside_steps import outside_sentence, outside_table

PARTS: Final = {
    "kernel": Part("kernels", "computation"),
    "communication": Part("communication", "communication"),
    "memcpy": Part("copies", "memory"),
    "memset": Part("memsets", "memory", 0.45),
    "data_loader": Part("data loading", "loading"),
    "runtime": Part("runtime calls", "host"),
    "cpu_op": Part("CPU operators", "operator"),
    "other": Part("other", "idle"),
}
# Ranges that the program annotated, by how their names begin.
_ANNOTATED: Final = {
    "forward": ("computation", 1.0),
    "backward": ("computation", 0.45),
    "optim": ("operator", 1.0),
    "zero": ("operator", 0.45),
}
_HOST_SHADES = (1.0, 0.45, 0.72, 0.3, 0.86, 0.58)
_LINES = 32  # of processes in the figure over the index
_LOADINGS = 12  # names of ranges of data loading
_POINTS = 400  # of one line
_ROWS: Final = 8  # of the figure of step times
_MIN_STEPS = 10  # steps at least for outer percentiles
_Listed = defaultdict[tuple[object, ...], list[Step]]  # The steps that the report lists, by group
_ALIKE = 0.01  # of the longest mean step; processes that wait for each other differ by less


def steps(report: Report) -> Section:
    metrics = report.steps
    if not metrics.groups:
        return Section(
            "steps", "Steps", say("{}", metrics.absent or "No step is marked in this run: annotate steps, or call the profiler's step().")
        )
    groups = metrics.groups
    label = _labels(groups)
    outer = any(group.quantiles.count >= _MIN_STEPS for group in groups)
    listed = _by_group(metrics.steps)
    slowest = sorted((step for group in groups for step in group.slowest), key=lambda step: -step.duration_ns)[:10]
    blocks = [
        _distribution(groups, listed),
        table(
            "steps-groups",
            f"{_measure(groups)} by process",
            groups,
            Col("Process", label, kind="name"),
            Col("Steps", lambda group: group.quantiles.count, count),
            Col("Step time (median)", lambda group: group.step_time_ns, duration, when=any(group.step_time_ns for group in groups)),
            Col("max", lambda group: group.quantiles.max, duration),
            Col(
                "p99",
                lambda group: group.quantiles.p99 if group.quantiles.count >= _MIN_STEPS else None,
                duration,
                when=outer,
                html_only=True,
            ),
            Col("p95", lambda group: group.quantiles.p95 if group.quantiles.count >= _MIN_STEPS else None, duration, when=outer),
            Col("p50", lambda group: group.quantiles.p50, duration),
            Col("min", lambda group: group.quantiles.min, duration, html_only=True),
            Col("Mean", lambda group: group.quantiles.mean, duration, html_only=True),
            Col("Deviation", lambda group: group.quantiles.std, duration, html_only=True),
            Col("Measured", lambda group: "on device" if group.on_device else "on host", html_only=True),
            pdf_rows=8,
        ),
        _over_index(listed, groups),
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
            Col("Began after", lambda step: step.start_ns, since(report.run.started_at_ns or 0), html_only=True),
            Col("GPU time" if all(step.on_device for step in slowest) else "Duration", lambda step: step.duration_ns, duration),
            Col("On the host", lambda step: step.host_duration_ns, duration, when=any(step.on_device for step in slowest)),
            pdf_rows=6,
        ),
        _parts(report),
    ]
    if metrics.outside:
        blocks.append(outside_table(metrics.outside))
    lead = " ".join(
        filter(None, (_step_time(report), _lead(groups, listed), outside_sentence(metrics.outside), metrics.profiled, metrics.trend))
    )
    return Section("steps", "Steps", say("{}", lead), blocks)


def _measure(groups: Sequence[StepGroup]) -> str:
    return "GPU time per step" if all(group.on_device for group in groups) else "Step durations"


def _step_time(report: Report) -> str:
    """Return the step time of the first page; "" if the groups are timed alike."""
    times = step_times(report.steps)
    if times is None or times.measure != FROM_STEP_TO_STEP:
        return ""
    number = times.counted if times.partly else plural(len(times.values), "step")
    return f"The step time is {duration(times.median_ns)} (median of {number}, from step to step)."


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
    slowest = f"slowest{without} {duration(longest)}"
    gpu = ", GPU time per step" if all(group.on_device for group in groups) else ""
    if len(groups) == 1:
        if q.count == 1:
            return f"{counted}{gpu}: it took {duration(q.max)}."
        if q.count < _MIN_STEPS:
            return f"{counted}{gpu}: median {duration(q.p50)}, fastest {duration(q.min)}, {slowest}."
        return f"{counted}{gpu}: median {duration(q.p50)}, 95th percentile {duration(q.p95)}, {slowest}."
    low, high = duration(fast.quantiles.p50), duration(q.p50)
    medians = (
        f"the median is {low} on every one" if low == high else f"the median lies between {low} ({label(fast)}) and {high} ({label(slow)})"
    )
    return f"{counted}{gpu}: {medians}; the slowest single step{without} took {duration(longest)} ({label(worst)})."


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


def _distribution(groups: Sequence[StepGroup], every: _Listed) -> Figure | None:
    """Draw a row of bars per group, unless the table is enough."""
    label = _labels(groups)
    drawn = spread(groups, _ROWS, lambda group: group.quantiles.p50)
    if not any(group.quantiles.count > 4 for group in drawn) or (len(drawn) == 1 and not worth_drawing(drawn[0].quantiles)):
        return None
    on_device = {group.on_device for group in groups}
    kind = (
        "GPU time per step, host durations where a step launched no GPU work"
        if len(on_device) == 2
        else "GPU time per step"
        if True in on_device
        else "host durations"
    )
    # A few steps that took a minute would press all others into one bar.
    limit = max(1.5 * group.quantiles.p95 for group in drawn) if not any(group.histogram.logarithmic for group in drawn) else math.inf
    bins = [bins_of(label(group) if len(drawn) > 1 else "", group.histogram, group.quantiles.p50, limit) for group in drawn]
    cut = [group for group in bins if group.beyond]
    ends = {duration(group.edges[-1]) for group in cut}
    where = f"above {min(ends)}" if len(ends) == 1 else "above the end of their row"
    missing = say(" {} {} not drawn.", plural(sum(group.beyond for group in cut), "step"), where) if cut else ""
    return Figure(
        "steps-distribution",
        histogram(bins, "computation", "steps"),
        f"Distribution of step durations. {_lead(groups, every)}",
        say(
            "Step durations ({}). A long tail to the right means some steps waited.{}{}",
            kind,
            missing,
            of_all(len(drawn), len(groups), "group", "median duration"),
        ),
    )


def _over_index(series: _Listed, groups: Sequence[StepGroup]) -> Figure | None:
    """Draw step durations over step indices, a line per group."""
    main, what = _main(groups)
    label = _labels(main)
    drawable = [group for group in main if len(series[_key(group)]) > 2]
    if not drawable:
        return None
    named = spread(drawable, 3, lambda group: group.quantiles.p50)
    drawn = spread(drawable, _LINES, lambda group: group.quantiles.p50)
    # The first step often takes many times as long as any other: it is drawn at the edge, so that the others are to be told apart.
    limit = 1.5 * max(group.quantiles.p99 for group in drawn)
    unit = time_unit(min(limit, max(group.quantiles.max for group in drawn)))
    beyond = 0
    drawn_lines = []
    # Numbers that begin anew in each epoch would draw the epochs on top of each other.
    anew = any(step.again for group in drawn for step in series[_key(group)])
    for group in drawn:
        ordered = sorted(series[_key(group)], key=lambda step: (0 if anew else step.index, step.start_ns))
        beyond += sum(1 for step in ordered if step.duration_ns > limit)
        points = _thinned(ordered)
        position = {id(step): place for place, step in enumerate(ordered)}
        drawn_lines.append(
            Line(
                label(group) if group in named else None,
                [position[id(step)] if anew else step.index for step in points],
                [min(step.duration_ns, limit) / unit.nanoseconds for step in points],
            )
        )
    edge = say(" {} above {} at the upper edge.", plural(beyond, "step"), duration(limit)) if beyond else ""
    only = f" Only the {what} steps are drawn." if len(main) < len(groups) else ""
    who = f" Of {label(named[0])}." if len(drawable) == 1 else ""
    gray = " Named: the slowest, the median and the fastest by median duration; gray: the others." if len(drawn) > len(named) else ""
    return Figure(
        "steps-over-index",
        lines(
            [Panel(f"{'GPU time' if all(group.on_device for group in drawn) else 'step duration'}, {unit.name}", drawn_lines)],
            "steps before it" if anew else "step",
            x_time=False,
            height=120,
        ),
        f"Duration of each step. {_lead(groups, series)}",
        say(
            "Steps in their order. Single peaks are disturbances; a slope is a trend.{}{}{}{}{}{}",
            " Numbers of steps repeat: the axis counts the steps before each." if anew else "",
            only,
            who,
            edge,
            gray,
            of_all(len(drawn), len(drawable), "process", "median duration"),
        ),
    )


def _key(row: Step | StepGroup) -> tuple[object, ...]:
    return row.node, row.rank, row.pid, row.phase, row.on_device


def _by_group(every: Sequence[Step]) -> _Listed:
    by_group: _Listed = defaultdict(list)
    for step in every:
        by_group[_key(step)].append(step)
    return by_group


def _thinned(steps: Sequence[Step]) -> Sequence[Step]:
    """Choose the shortest and longest steps of equal ranges, so that no peak is lost."""
    if len(steps) <= _POINTS:
        return steps
    length = -(-2 * len(steps) // _POINTS)
    kept = []
    for start in range(0, len(steps), length):
        stretch = steps[start : start + length]
        ends = {min(stretch, key=lambda s: s.duration_ns).start_ns, max(stretch, key=lambda s: s.duration_ns).start_ns}
        kept += [step for step in stretch if step.start_ns in ends]
    return kept


@dataclass(frozen=True, slots=True)
class Telling:
    """The process whose average step is the best example.

    ``alike``: all processes take the same time, and this one computes longest. ``sentence``: for a caption.
    Both state that it is wall time, because the tile shows device time.
    """

    part: StepParts
    alike: bool
    sentence: str


def telling(every: Sequence[StepParts], noun: str = "step") -> Telling:
    """Choose the slowest process, or if all are alike, that of largest kernel time.

    ``noun``: name of a step, such as "iteration" in an inference."""
    slowest = max(every, key=lambda part: part.mean_step_ns)
    if len(every) == 1:
        what = f"{_what(slowest, noun)}, wall time"
        text = f"{what}: {duration(slowest.mean_step_ns)}"
        return Telling(slowest, False, f"{text[0].lower()}{text[1:]}")
    ranks = all(part.rank is not None for part in every)
    member = "rank" if ranks else "process"
    where = plural(len(every), member, "ranks" if ranks else "processes")
    mean = f"average {noun}" if any(part.steps > 1 for part in every) else noun
    if all(part.numbers for part in every):
        mean = f"{mean} that was traced"
    if slowest.mean_step_ns - min(part.mean_step_ns for part in every) >= _ALIKE * slowest.mean_step_ns:
        name = labels.process(slowest.node, slowest.rank, slowest.pid)
        return Telling(slowest, False, f"the slowest is {name}, whose {mean} takes {duration(slowest.mean_step_ns)} of wall time")
    kernels = [part.mean_ns.get("kernel", 0.0) for part in every]
    part = every[kernels.index(max(kernels))]
    name = labels.process(part.node, part.rank, part.pid)
    low, high = duration(min(part.mean_step_ns for part in every)), duration(slowest.mean_step_ns)
    long, on = (high, "on each of") if low == high else (f"{low} to {high}", "on")
    sentence = f"the {mean} takes {long} of wall time {on} {where}"
    if max(kernels) > 0:
        compared = f"computes longest ({duration(max(kernels))}; the median {member} {duration(statistics.median(kernels))})"
        sentence += f"; {name} {compared}"
    return Telling(part, True, sentence)


def _what(part: StepParts, noun: str) -> str:
    """Name the steps of the parts: "Average of the 2 traced steps of 19 (5 and 6)"."""
    if not part.numbers:
        return f"Average {noun}" if part.steps > 1 else noun.capitalize()
    if part.steps == 1 and len(part.numbers) == 1:
        complete = f" as a whole (of step {wording.numbered(part.partly)} only a part)" if part.partly else ""
        return f"Step {part.numbers[0]}, of {count(part.of)} the only one traced{complete}"
    which = f" ({wording.numbered(part.numbers)})" if len(part.numbers) <= _LOADINGS else ""
    return f"Average of the {count(part.steps)} traced steps of {count(part.of)}{which}"


def parts_of(every: Sequence[StepParts]) -> dict[str, Part]:
    """Return the parts of steps: classes of events, annotated ranges, and the rest."""
    if not any(part.annotated for part in every):
        return PARTS
    time: Counter[str] = Counter()
    for part in every:
        for key, mean in part.mean_ns.items():
            time[key] += round(mean)
    kept = {key for key, _ in time.most_common(9)} - {"other"}
    classes = {} if all(part.annotated for part in every) else {key: part for key, part in PARTS.items() if key != "other"}
    names = [key for key in dict.fromkeys(key for part in every for key in part.mean_ns) if key in kept and key not in classes]
    shades = iter(_HOST_SHADES * (1 + len(names) // len(_HOST_SHADES)))
    return {**classes, **{key: PARTS[key] if key in PARTS else _annotated(key, shades) for key in names}, "other": PARTS["other"]}


def _annotated(name: str, shades: Iterator[float]) -> Part:
    for start, (meaning, shade) in _ANNOTATED.items():
        if name.lower().startswith(start):
            return Part(clip(name, 24), meaning, shade)
    return Part(clip(name, 24), "host", next(shades))


def _parts(report: Report) -> Figure | None:
    every = report.steps.parts
    if not every:
        return None
    example = telling(every)
    parts = parts_of(every)
    unit = time_unit(max(part.mean_step_ns for part in every) or 1)
    rows, more = bar_rows(
        [(labels.process(part.node, part.rank, part.pid), [value / unit.nanoseconds for value in _values(part, parts)]) for part in every],
        ("process", "processes"),
        "mean step",
        lambda row: sum(row[1]),
    )
    largest = max(example.part.mean_ns, key=lambda key: example.part.mean_ns[key])
    name = parts[largest].name if largest in parts else clip(largest, 40)
    order = (
        "by the ranges annotated in it"
        if all(part.annotated for part in every)
        else "overlaps count once, with the precedence of the PyTorch TensorBoard plugin"
    )
    finding = example.sentence
    if not (example.alike and largest == "kernel"):  # already in the sentence
        finding += f"; its largest part is {name} with {duration(example.part.mean_ns[largest])}"
    return Figure(
        "steps-parts",
        stacked_bars(tuple(parts.values()), rows, unit.name),
        f"Parts of the {'average of the traced steps' if all(part.numbers for part in every) else 'average step'}: {finding}",
        say(
            "Time of {}{} {}. {}.{}{}",
            "the average of the steps that were traced" if all(part.numbers for part in every) else "the average step",
            "," if order.startswith("by") else ";",
            order,
            capitalized(finding),
            _loading(every),
            more,
        ),
    )


def _loading(every: Sequence[StepParts]) -> str:
    """Name the annotated ranges that count as data loading, or return ""."""
    names = list(dict.fromkeys(name for part in every for name in part.loading_names))
    if not names:
        return ""
    more = f" and {plural(len(names) - _LOADINGS, 'more name')}" if len(names) > _LOADINGS else ""
    return f" Data loading: {'ranges' if len(names) > 1 else 'the range'} {', '.join(clip(name, 40) for name in names[:_LOADINGS])}{more}."


def _values(part: StepParts, parts: Mapping[str, Part]) -> list[float]:
    """Return the nanoseconds of each of ``parts``; the rest is added to "other"."""
    values = [part.mean_ns.get(key, 0.0) for key in parts]
    values[list(parts).index("other")] += sum(mean for key, mean in part.mean_ns.items() if key not in parts)
    return values
