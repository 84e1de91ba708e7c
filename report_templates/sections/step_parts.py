"""The time of the average step by activity: a bar per process, and the process that is the best example."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...analysis.report.model import Report
from ...analysis.report.steps import StepParts
from ...analysis.toolkit import wording
from ..blocks import Figure, bar_rows, say
from ..figures.axes import time_unit
from ..figures.stacked_bars import Part, stacked_bars
from ..text import labels
from ..text.formats import capitalized, clip, count, duration, plural

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
_LOADINGS = 12  # names of ranges of data loading
_ALIKE = 0.01  # of the longest mean step; processes that wait for each other differ by less


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


def step_parts(report: Report) -> Figure | None:
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
