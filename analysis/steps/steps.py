"""Training steps: durations, spread, trend, and the parts of the average step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from ...ingest.store.store import Store
from ..device.time_breakdown import COMMUNICATION, COMPUTATION
from ..report.model import Step, StepGroup, StepParts, Steps, StepTrend
from ..toolkit.intervals import sweep, union
from ..toolkit.places import Place, Places
from ..toolkit.quantiles import duration_histogram, quantiles
from ..toolkit.shared import shared
from ..toolkit.wording import count, numbered, plural
from .loading_ranges import loading_ranges
from .profiled import sentence as on_profiled
from .profiled import with_profiled
from .ranges import LOADING, NAMED, REMAINDER, loading_names, outermost_ranges
from .trend import middle_half, part_that_changed_most, sentence, trend_of

SLOWEST: Final = 10
LISTED: Final = 100  # listed steps per process and phase that neither a report nor a comparison examines
CUT_OFF: Final = 0.8  # a last step with less than this share of the previous step's device events was cut off by the end of the profile
_NEARLY_ALL: Final = 0.9  # share of traced steps from which the report does not mention the untraced ones
_NUMBERS: Final = 12  # listed step numbers
FEWEST: Final = 3  # steps with recorded events needed to represent all steps
FAR: Final = 2.0  # their mean duration must be within this factor of the median of all

# Classes of a step's wall time, in the order in which they claim it; each is a condition on device_event or host_event.
_CLASSES: Final = {
    "kernel": ("device_event", COMPUTATION),
    "memcpy": ("device_event", "e.kind = 'memcpy'"),
    "memset": ("device_event", "e.kind = 'memset'"),
    "communication": ("device_event", COMMUNICATION),
    "runtime": ("host_event", "e.kind IN ('launch', 'sync', 'call')"),
    "data_loader": ("host_event", "e.kind = 'loader'"),
    "cpu_op": ("host_event", "e.kind = 'operator'"),
}
# ``recorded``: events were recorded during the whole step: from the time the profiler was switched on until it was switched off, or, if
# that is unknown, from the first event to the end of the last. The trace of a configured profile begins shortly after the step began; there
# nearly all of the step is enough. ``touched``: there are events in the step, or in a part of it. If a process has a trace of PyTorch, the
# traces of other tracers do not count, because they contain no operators and loads.
_STEPS: Final = """
    WITH profiled AS (
        SELECT w.process, f.format = 'PyTorch profiler trace' AS of_torch, w.first_ns, w.last_ns,
            least(w.first_ns, w.on_ns) AS begin_ns, greatest(w.last_ns, w.off_ns) AS end_ns,
            bool_or(of_torch) OVER own AS any_of_torch, bool_or(NOT of_torch) OVER own AS any_other
        FROM profile_window AS w LEFT JOIN source AS f ON f.id = w.source WINDOW own AS (PARTITION BY w.process)
    ),
    known AS (FROM profiled WHERE of_torch OR NOT coalesce(any_of_torch, false))
    SELECT s.* EXCLUDE ("index"), s."index" AS number,
        NOT EXISTS (FROM profiled AS w WHERE w.process = s.process
            AND ((w.any_of_torch AND w.any_other) OR w.process IN (SELECT process FROM recorded_window)))
        OR EXISTS (FROM known AS w WHERE w.process = s.process AND (
            (w.begin_ns <= s.host_start_ns AND s.host_start_ns + s.host_duration_ns <= w.end_ns)
            OR (w.of_torch AND least(w.end_ns, s.host_start_ns + s.host_duration_ns) - greatest(w.begin_ns, s.host_start_ns)
                >= 0.9 * s.host_duration_ns))) AS recorded,
        EXISTS (FROM known AS w WHERE w.process = s.process AND w.first_ns < s.host_start_ns + s.host_duration_ns
                AND s.host_start_ns < w.last_ns) AS touched
    FROM step AS s
"""
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


def steps(store: Store) -> Steps:
    """Return the steps of every process, their durations, and their average parts.

    Durations are those of the device work launched in a step. A group in which fewer than half of the steps launched any is timed on the
    host. In the other groups, the steps without device work are timed on the host and form a group of their own. If device activity was
    recorded in windows only, this refers to the steps inside of them, and so does the average step.
    """
    rows = timed_steps(store)
    if rows.is_empty():
        return Steps((), (), (), _ON_DEVICE_ONLY if store.frame(_STEPS_OF_DEVICE).item() else _ABSENT)
    places = Places(store)
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
    every, trends = tuple(step for _, step in listed), _trends(store, rows, places)
    parts, parts_absent = _parts(store, rows, places)
    return Steps(
        steps=every,
        groups=tuple(group for _, group in groups),
        parts=parts,
        absent=None,
        trends=trends,
        trend=sentence(main_steps(every), trends),
        left_out=rows.height - reported.height,
        profiled=on_profiled(rows),
        parts_absent=parts_absent,
        traced=_traced_steps(store, rows),
    )


def main_steps(every: Sequence[Step]) -> list[Step]:
    """Return the steps that represent the run.

    These are the steps timed on the device if any are, else those timed on the host, of the phase that took longest. Evaluation is not
    mixed with training, nor steps of a whole job with those that were profiled.
    """
    pool = [step for step in every if step.on_device] or list(every)
    time: Counter[str | None] = Counter()
    for step in pool:
        time[step.phase] += step.duration_ns
    main = min(time, key=lambda phase: (-time[phase], phase or ""), default=None)
    return [step for step in pool if step.phase == main]


@shared
def timed_steps(store: Store) -> pl.DataFrame:
    """Return the steps of the store as :func:`steps` times them.

    "index" is called ``number``. ``profiled``: see :func:`.profiled.with_profiled`. ``again``: count of earlier steps of the same number.
    """
    return _timed(with_profiled(store, store.frame(_STEPS)))


def _timed(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``on_device``, ``start`` and ``duration`` of device work or host range."""
    worked = pl.col("device_duration_ns").is_not_null()
    mostly = worked.filter("recorded").mean().over("process", "phase").fill_null(0.0) >= 0.5
    again = (pl.col("host_start_ns").rank("ordinal").over("process", "phase", "number") - 1).cast(pl.Int64)
    return rows.with_columns(on_device=worked & mostly, again=again).with_columns(
        start=pl.when("on_device").then("device_start_ns").otherwise("host_start_ns"),
        duration=pl.when("on_device").then("device_duration_ns").otherwise("host_duration_ns"),
    )


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
    bins = duration_histogram(members["duration"])
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


def _parts(store: Store, rows: pl.DataFrame, places: Places) -> tuple[tuple[StepParts, ...], str | None]:
    """Divide the wall time of the steps of every process by ``_CLASSES``, in order.

    A process without events, or with events in fewer steps than its annotated ranges, is divided by the ranges instead. A process without
    either has no parts. The second result is the reason for that if events were recorded in only a part of a step.

    A step lasts from the end of the step before it (if their numbers are consecutive; else from its own start) to the end of its host range
    or of its last device event, whichever is later. The last step is left out if it was cut off. This is the definition of the PyTorch
    TensorBoard plugin, whose "kernel" is divided here into communication kernels and others. If a process has events, only steps with
    recorded events count; ``typical`` is whether these represent all steps.
    """
    traced = _traced(store)
    ordered = []
    partly: set[int] = set()
    for (process,), every in rows.group_by("process"):
        recorded = every.filter("recorded") if process in traced else every
        named = _named(store, process, every, has_events=process in traced)
        annotated = named is not None
        if recorded.is_empty() and not annotated:
            partly.update(every.filter("touched")["number"])
            continue
        if process not in traced and not annotated:
            continue
        main = _main(every if annotated else recorded)
        windows = _windows(main)
        loading: tuple[str, ...] = ()
        if named is None:
            claimed = _claimed(windows, _classes(store, process, windows))
            loading = loading_names(loading_ranges(store, process), windows)
        else:
            claimed = _most(_claimed(windows, {name: union(parts) for name, parts in named.items()}))
            loading = loading_names(named[LOADING], windows) if LOADING in named else ()
        location = places.process(process, every["node"][0])
        number = windows.height
        mean = {name: claimed[name] / number for name in claimed}
        mean_step = float((windows["end"] - windows["start"]).sum() / number)
        alike = _main(every)
        some = () if annotated or main.height >= alike.height else tuple(main.sort("host_start_ns")["number"])
        part = tuple(alike.filter(pl.col("touched") & ~pl.col("recorded")).sort("host_start_ns")["number"]) if some else ()
        typical = not some or _typical(main, alike)
        step_parts = StepParts(*location, number, mean_step, mean, annotated, loading, some, alike.height, typical, part)
        ordered.append((location, step_parts))
    absent = f"only a part of step {numbered(partly)} was traced" if partly and not ordered else None
    return tuple(parts for _, parts in sorted(ordered, key=lambda item: item[0].order)), absent


def _named(store: Store, process: int | None, every: pl.DataFrame, *, has_events: bool) -> dict[str, pl.DataFrame] | None:
    """Return the ranges that divide a process's steps; None if events or nothing do.

    Ranges divide the steps of a process with events if the events cover only some steps, and are too few or have no device work. Then only
    names that also occur outside of the recorded steps count: the others belong to the trace, not to the program.
    """
    main = _main(every)
    if main["phase"][0] is not None:
        return None
    if not has_events:
        return outermost_ranges(store, process, main) or None
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
    for key, ranges in outermost_ranges(store, process, main).items():
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


def _traced(store: Store) -> set[int | None]:
    """Return the processes with recorded events, not only annotations."""
    return set(store.frame("SELECT process FROM device_event UNION SELECT process FROM host_event").to_series())


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


def _trends(store: Store, rows: pl.DataFrame, places: Places) -> tuple[StepTrend, ...]:
    """Return the trends of the (process, phase) groups, see docs/definitions.md."""
    traced: set[int | None] | None = None
    trends = []
    for (process, phase, on_device), members in rows.group_by("process", "phase", "on_device"):
        ordered = members.sort("start", "duration")
        trend = trend_of(ordered["duration"])
        if trend is None:
            continue
        traced = _traced(store) if traced is None else traced
        location = places.process(process, ordered["node"][0])
        part = _changed_part(store, process, ordered, annotated=process not in traced or not ordered["recorded"].all())
        row = StepTrend(*location, phase, bool(on_device), ordered.height, *trend, part)
        trends.append((location, row))
    return tuple(one for _, one in sorted(trends, key=lambda item: (item[0].order, item[1].phase or "", not item[1].on_device)))


def _changed_part(store: Store, process: int | None, members: pl.DataFrame, *, annotated: bool) -> str | None:
    """Return the part of the steps that changed most from first to last quarter.

    Each quarter counts by its steps of usual length.
    """
    windows = _windows(members)
    if not annotated:
        covered = _classes(store, process, windows)
    elif members["phase"][0] is None:
        covered = {name: union(parts) for name, parts in outermost_ranges(store, process, members).items()}
    else:
        return None
    quarter = windows.height // 4
    first, last = (
        {name: time / part.height for name, time in _claimed(part, covered).items()}
        for part in (middle_half(windows.head(quarter)), middle_half(windows.tail(quarter)))
    )
    return part_that_changed_most(first, last, REMAINDER)


def _classes(store: Store, process: int | None, windows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return {name: _covered(store, process, name, windows) for name in _CLASSES}


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


def _windows(members: pl.DataFrame) -> pl.DataFrame:
    """Return the wall times of the steps, disjoint and in order.

    Columns: ``start``, ``end``. ``host_end``: end of the step on the host. ``followed``: the next step, by the usual distance of their
    numbers, comes after it.
    """
    ordered = members.sort("host_start_ns", "host_duration_ns")
    *_, last_but_one, last = [None, None, *ordered["device_events"]]
    if last_but_one is not None and last is not None and last < CUT_OFF * last_but_one:
        ordered = ordered.head(-1)
    host_end = pl.col("host_start_ns") + pl.col("host_duration_ns")
    end = pl.max_horizontal(host_end, pl.col("device_start_ns") + pl.col("device_duration_ns")).cum_max()
    before = pl.col("end").shift(1)
    further = pl.col("number") - pl.col("number").shift(1)
    start = pl.when(further == 1).then(before).otherwise(pl.max_horizontal("host_start_ns", before))
    usual = (further == 1) | (further == further.filter(further > 0).median()) | pl.col("number").is_null()  # numbers may count in tens
    return ordered.with_columns(end=end).select(
        start=start.fill_null(pl.col("host_start_ns")), end="end", host_end=host_end, followed=usual.shift(-1).fill_null(False)
    )


def _claimed(windows: pl.DataFrame, covered: dict[str, pl.DataFrame]) -> dict[str, int]:
    """Divide the windows by class, in order; the rest is "other"."""
    flags = {name: f"class {number}" for number, name in enumerate(covered)}
    sets = {"inside": union(windows), **{flags[name]: frame for name, frame in covered.items()}}
    segments = sweep(
        pl.concat([frame.select("start", "end", *(pl.lit(flag == own).alias(flag) for flag in sets)) for own, frame in sets.items()]),
        [],
        list(sets),
    ).filter("inside")
    length = pl.col("end") - pl.col("start")
    claimed: dict[str, int] = {}
    for name, flag in flags.items():
        claimed[name] = int(segments.select(length.filter(pl.col(flag)).sum()).item())
        segments = segments.filter(~pl.col(flag))
    rest = int(segments.select(length.sum()).item())
    claimed[REMAINDER] = claimed.get(REMAINDER, 0) + rest
    return claimed


def _covered(store: Store, process: int | None, name: str, windows: pl.DataFrame) -> pl.DataFrame:
    """Return when a class was active on any thread or stream during the windows.

    Ranges named as data loading count as data loading.
    """
    table, condition = _CLASSES[name]
    low, high = windows["start"].min(), windows["end"].max()
    events = store.frame(
        f'SELECT e.start_ns AS start, e.start_ns + e.duration_ns AS "end" FROM {table} AS e LEFT JOIN name AS n ON n.id = e.name'
        f" WHERE e.process IS NOT DISTINCT FROM ? AND {condition} AND e.start_ns < ? AND e.start_ns + e.duration_ns > ?",
        [process, high, low],
    )
    if name != LOADING:
        return union(events)
    named = loading_ranges(store, process).select("start", "end").filter(pl.col("start") < high, pl.col("end") > low)
    return union(_of_steps(pl.concat([events, named]), windows))


def _of_steps(loads: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Remove the loads that begin after the host finished a step without successor."""
    begun = windows.select(step="start", through=pl.when(~pl.col("followed")).then("host_end"))
    around = loads.sort("start").join_asof(begun, left_on="start", right_on="step", strategy="backward", check_sortedness=False)
    return around.filter((pl.col("start") >= pl.col("through")).fill_null(False).not_()).select("start", "end")
