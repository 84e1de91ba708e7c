"""Training steps: durations, spread, trend, and the parts of the average step."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from ...ingest.store.store import Store
from ..report.steps import Step, StepGroup, StepParts, Steps, StepTrend
from ..toolkit.places import Place, Places
from ..toolkit.quantiles import quantiles, tail_histogram
from ..toolkit.wording import count, numbered, plural
from .claims import CLASSES, claimed, covered_by_events, covered_by_names, step_windows
from .data import StepData
from .outside import sums_outside
from .profiled import sentence as on_profiled
from .ranges import LOADING, NAMED, REMAINDER, loading_names, outermost_ranges
from .step_time import from_step_to_step, main_steps
from .trend import middle_half, part_that_changed_most, sentence, trend_of

SLOWEST: Final = 10
LISTED: Final = 100  # listed steps per process and phase that neither a report nor a comparison examines
_NEARLY_ALL: Final = 0.9  # share of traced steps from which the report does not mention the untraced ones
_NUMBERS: Final = 12  # listed step numbers
FEWEST: Final = 3  # steps with recorded events needed to represent all steps
FAR: Final = 2.0  # their mean duration must be within this factor of the median of all

_STEPS_OF_DEVICE: Final = r"""
    SELECT EXISTS (FROM annotation AS a JOIN name AS n ON n.id = a.name WHERE a.side = 'device' AND regexp_full_match(n.text,
        '(?i)ProfilerStep#\d+|step[_ -]?\d+')) AS found
"""
_ABSENT: Final = (
    "No steps: the run has neither ProfilerStep#N nor step_N ranges, nor step phases. Call step() of the profiler once per training step,"
    " or annotate the steps."
)


_ON_DEVICE_ONLY: Final = (
    "No steps: the ranges of steps stand on the GPU alone, and when a step began and ended on the host is not known. Profile with CPU"
    " activity, too."
)


def _only_on_device(store: Store) -> bool:
    return store.has_rows("annotation") and bool(store.frame(_STEPS_OF_DEVICE).item())


def steps(store: Store, data: StepData | None = None) -> Steps:
    """Return the steps of every process, their durations, and their average parts.

    Durations are those of the device work launched in a step. A group in which fewer than half of the steps launched any is timed on the
    host. In the other groups, the steps without device work are timed on the host and form a group of their own. If device activity was
    recorded in windows only, this refers to the steps inside of them, and so does the average step. ``data``: that of the store, if known.
    """
    data = data or StepData(store)
    rows = data.timed.join(data.ahead, on=["process", "host_start_ns"], how="left", nulls_equal=True, maintain_order="left")
    if rows.is_empty():
        return Steps((), (), (), _ON_DEVICE_ONLY if _only_on_device(store) else _ABSENT)
    places = data.places
    groups = []
    for (process, _, on_device), members in rows.group_by("process", "phase", "on_device"):
        location = places.process(process, members["node"][0])
        groups.append((location, _group(location, bool(on_device), members.sort("start", "duration"))))
    groups.sort(key=lambda item: (item[0].order, item[1].phase or "", not item[1].on_device))
    reported = _reported(rows)
    listed = []
    for row in reported.iter_rows(named=True):
        location = places.process(row["process"], row["node"])
        listed.append((location, _step(row, row["phase"], location)))
    listed.sort(key=lambda item: (item[0].order, item[1].phase or "", item[1].start_ns))
    every, trends = tuple(step for _, step in listed), _trends(data, rows, places)
    of_group: dict[tuple[Any, ...], list[Step]] = {}
    for step in every:
        of_group.setdefault((step.node, step.rank, step.pid, step.phase), []).append(step)
    parts, parts_absent = _parts(data, rows, places)
    return Steps(
        steps=every,
        groups=tuple(_with_step_time(group, of_group.get((group.node, group.rank, group.pid, group.phase), ())) for _, group in groups),
        parts=parts,
        absent=None,
        trends=trends,
        trend=sentence(main_steps(every), trends),
        left_out=rows.height - reported.height,
        profiled=on_profiled(rows),
        parts_absent=parts_absent,
        traced=_traced_steps(store, rows),
        outside=sums_outside(store, places, data.outside),
    )


def _with_step_time(group: StepGroup, every: Sequence[Step]) -> StepGroup:
    """Add the median time from step to step; ``every``: steps of process and phase."""
    if not group.on_device:
        return group
    times = from_step_to_step([step for step in every if step.on_device])
    return replace(group, step_time_ns=statistics.median(times) if times else None)


def _step(row: dict[str, Any], phase: str | None, location: Place) -> Step:
    return Step(
        *location,
        phase=phase,
        index=row["number"],
        start_ns=row["start"],
        duration_ns=row["duration"],
        on_device=bool(row["on_device"]),
        host_duration_ns=row["host_duration_ns"],
        profiled=row["profiled"],
        again=row["again"],
    )


def _reported(rows: pl.DataFrame) -> pl.DataFrame:
    """Select the steps that a report lists.

    These are all steps, unless the main ones have no phase. Then they are all without a phase, all timed on the device, and at most
    ``LISTED`` evenly spread ones of each other process and phase. Otherwise the thousands of steps of a job with a few profiled ones would
    fill most of the report.
    """
    time = rows.group_by("on_device", "phase").agg(pl.col("duration").sum()).sort("on_device", "duration", descending=True)
    if time["phase"][0] is not None:
        return rows
    ordered = rows.with_row_index("row").sort("start", "duration", "row")
    spread = ordered.filter(
        pl.col("phase").is_null()
        | pl.col("on_device")
        | (pl.int_range(pl.len()) % ((pl.len() + LISTED - 1) // LISTED) == 0).over("process", "phase")
    )
    return spread.sort("row").drop("row")


def _group(location: Place, on_device: bool, members: pl.DataFrame) -> StepGroup:
    phase = members["phase"][0]
    spread = quantiles(members["duration"])
    bins = tail_histogram(members["duration"])
    assert spread is not None
    assert bins is not None
    slowest = members.sort("duration", "start", descending=[True, False]).head(SLOWEST)
    return StepGroup(
        *location,
        phase=phase,
        on_device=on_device,
        quantiles=spread,
        histogram=bins,
        slowest=tuple(_step(row, phase, location) for row in slowest.iter_rows(named=True)),
    )


def _parts(data: StepData, rows: pl.DataFrame, places: Places) -> tuple[tuple[StepParts, ...], str | None]:
    """Divide the wall time of the steps of every process by ``CLASSES``, in order.

    A process without events, or with events in fewer steps than its annotated ranges, is divided by the ranges instead. A process without
    either has no parts. The second result is the reason for that if events were recorded in only a part of a step.

    A step lasts from the end of the step before it (if their numbers are consecutive; else from its own start) to the end of its host range
    or of its last device event, whichever is later. The last step is left out if it was cut off. This is the definition of the PyTorch
    TensorBoard plugin, whose "kernel" is divided here into communication kernels and others. If a process has events, only steps with
    recorded events count; ``typical`` is whether these represent all steps.
    """
    divided: list[_Divided] = []
    partly: set[int] = set()
    for (process,), every in rows.group_by("process"):
        has_events = process in data.events
        recorded = every.filter("recorded") if has_events else every
        named = _named(data, process, every, has_events=has_events)
        if recorded.is_empty() and named is None:
            partly.update(every.filter("touched")["number"])
        elif has_events or named is not None:
            main = _main(recorded if named is None else every)
            divided.append(_Divided(process, every, main, step_windows(main, len(divided)), named))
    by_events = [part.windows for part in divided if part.named is None]
    times: dict[int, dict[str, int]] = {}
    for windows, covered in covered_by_events(data, pl.concat(by_events)) if by_events else ():
        times |= claimed(windows, covered, CLASSES)
    ordered = []
    for group, part in enumerate(divided):
        location = places.process(part.process, part.every["node"][0])
        ordered.append((location, _divided_parts(data, part, location, times.get(group))))
    absent = f"only a part of step {numbered(partly)} was traced" if partly and not ordered else None
    return tuple(parts for _, parts in sorted(ordered, key=lambda item: item[0].order)), absent


@dataclass(frozen=True, slots=True)
class _Divided:
    """A process with parts: all its steps, those that count, their wall times, and the ranges that divide them (None: its events do)."""

    process: int | None
    every: pl.DataFrame
    main: pl.DataFrame
    windows: pl.DataFrame
    named: dict[str, pl.DataFrame] | None


def _divided_parts(data: StepData, part: _Divided, location: Place, times: Mapping[str, int] | None) -> StepParts:
    """Return the average step of a process; ``times``: what events claim, if they do."""
    windows, named = part.windows, part.named
    loading: tuple[str, ...] = ()
    if named is None:
        loading = loading_names(data.loading.filter(pl.col("process").eq_missing(part.process)), windows)
    elif LOADING in named:
        loading = loading_names(named[LOADING], windows)
    if named is not None:
        group = windows["group"][0]
        times = _most(claimed(windows, covered_by_names(named, group), list(named))[group])
    assert times is not None
    number = windows.height
    mean = {name: time / number for name, time in times.items()}
    mean_step = float((windows["end"] - windows["start"]).sum() / number)
    alike = _main(part.every)
    some = () if named is not None or part.main.height >= alike.height else tuple(part.main.sort("host_start_ns")["number"])
    partly = tuple(alike.filter(pl.col("touched") & ~pl.col("recorded")).sort("host_start_ns")["number"]) if some else ()
    typical = not some or _typical(part.main, alike)
    return StepParts(*location, number, mean_step, mean, named is not None, loading, some, alike.height, typical, partly)


def _named(data: StepData, process: int | None, every: pl.DataFrame, *, has_events: bool) -> dict[str, pl.DataFrame] | None:
    """Return the ranges that divide a process's steps; None if events or nothing do.

    Ranges divide the steps of a process with events if the events cover only some steps, and are too few or have no device work. Then only
    names that also occur outside of the recorded steps count: the others belong to the trace, not to the program.
    """
    main = _main(every)
    if main["phase"][0] is not None:
        return None
    if not has_events:
        return outermost_ranges(data.on_step_threads(process), main) or None
    recorded = main.filter("recorded")
    if recorded.height == main.height:
        return None
    if recorded.height and _typical(recorded, main) and recorded["device_events"].fill_null(0).sum():
        return None
    elsewhere = main.filter(~pl.col("touched") & ~pl.col("recorded")).select(
        step="host_start_ns", step_end=pl.col("host_start_ns") + pl.col("host_duration_ns")
    ).sort("step")  # fmt: skip
    kept_ranges = {}
    reached: set[int] = set()
    for key, ranges in outermost_ranges(data.on_step_threads(process), main).items():
        inside = ranges.sort("start").join_asof(elsewhere, left_on="start", right_on="step", strategy="backward", check_sortedness=False)
        inside = inside.filter(pl.col("start") < pl.col("step_end"))
        kept = ranges.join(inside.select("name").unique(), on="name", how="semi", maintain_order="left")
        if kept.height:
            kept_ranges[key] = kept
            reached.update(inside["step"])
    # Ranges that most of the steps lack do not describe the average step either.
    return kept_ranges if len(reached) >= max(1, elsewhere.height / 2) else None


def _typical(some: pl.DataFrame, every: pl.DataFrame) -> bool:
    """Return whether recorded steps represent all: not few, with a typical mean."""
    mean, median = some["host_duration_ns"].mean(), every["host_duration_ns"].median()
    if some.height < FEWEST or not isinstance(mean, float) or not isinstance(median, float):
        return False
    return median / FAR <= mean <= median * FAR


def _traced_steps(store: Store, rows: pl.DataFrame) -> str | None:
    """Word which steps have host events: "in 2 of 20 steps (5 and 6)"; None if all."""
    traced = store.frame("SELECT DISTINCT process FROM host_event WHERE kind = 'operator'")["process"]
    every = [_main(own) for _, own in rows.filter(pl.col("process").is_in(traced.to_list())).group_by("process")]
    if not every:
        return None
    known = pl.concat(every)
    some = known.filter(pl.col("recorded") | pl.col("touched"))
    if known["recorded"].all() or some.is_empty() or some.height >= _NEARLY_ALL * known.height:
        return None
    numbers = some["number"].unique().to_list()
    which = f" ({'step' if len(numbers) == 1 else 'steps'} {numbered(numbers)})" if len(numbers) <= _NUMBERS else ""
    return f"in {count(some.height)} of {plural(known.height, 'step')}{which}"


def _trends(data: StepData, rows: pl.DataFrame, places: Places) -> tuple[StepTrend, ...]:
    """Return the trends of the (process, phase) groups, see docs/definitions.md."""
    groups = []
    for (process, phase, on_device), members in rows.group_by("process", "phase", "on_device"):
        ordered = members.sort("start", "duration")
        trend = trend_of(ordered["duration"])
        if trend is not None:
            location = places.process(process, ordered["node"][0])
            groups.append((location, ordered, StepTrend(*location, phase, bool(on_device), ordered.height, *trend, None)))
    parts = _changed_parts(data, [members for _, members, _ in groups])
    trends = [(location, replace(row, part=part)) for (location, _, row), part in zip(groups, parts, strict=True)]
    return tuple(row for _, row in sorted(trends, key=lambda item: (item[0].order, item[1].phase or "", not item[1].on_device)))


def _changed_parts(data: StepData, groups: Sequence[pl.DataFrame]) -> list[str | None]:
    """Return the part of the steps of each group that changed most.

    The change is that from the first to the last quarter; each quarter counts by its steps of usual length.
    """
    windows = [step_windows(members, group) for group, members in enumerate(groups)]
    changed: dict[int, str | None] = {}
    by_events = []
    for group, members in enumerate(groups):
        if members["process"][0] in data.events and members["recorded"].all():
            by_events.append(windows[group])
        elif members["phase"][0] is None:
            ranges = outermost_ranges(data.on_step_threads(members["process"][0]), members)
            changed[group] = _changed_part(windows[group], covered_by_names(ranges, group), tuple(ranges))
    for some, covered in covered_by_events(data, pl.concat(by_events)) if by_events else ():
        sets = covered.partition_by("group", as_dict=True)
        for group in some["group"].unique().to_list():
            changed[group] = _changed_part(windows[group], sets.get((group,), covered.clear()), CLASSES)
    return [changed.get(group) for group in range(len(groups))]


def _changed_part(windows: pl.DataFrame, sets: pl.DataFrame, names: Sequence[str]) -> str | None:
    quarter = windows.height // 4
    halves = [middle_half(part) for part in (windows.head(quarter), windows.tail(quarter))]
    group = windows["group"][0]
    first, last = ({name: time / half.height for name, time in claimed(half, sets, names)[group].items()} for half in halves)
    return part_that_changed_most(first, last, REMAINDER)


def _most(claimed: dict[str, int]) -> dict[str, int]:
    """Return the largest names and data loading, in their order; the rest is "other"."""
    named = {name: time for name, time in claimed.items() if name != REMAINDER and time > 0}
    kept = sorted(named, key=lambda name: (name != LOADING, -named[name]))[:NAMED]
    kept_times = {name: time for name, time in named.items() if name in kept}
    return {**kept_times, REMAINDER: sum(claimed.values()) - sum(kept_times.values())}


def _main(members: pl.DataFrame) -> pl.DataFrame:
    """Return a process's steps without a phase, else those of the longest phase."""
    plain = members.filter(pl.col("phase").is_null())
    if plain.height:
        return plain
    longest = members.group_by("phase").agg(pl.col("host_duration_ns").sum()).sort("host_duration_ns", "phase", descending=[True, False])
    return members.filter(pl.col("phase") == longest["phase"][0])
