"""How long did the training steps take, how evenly, and what was the average step spent on?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from ...ingest.store.store import Store
from ..report.model import Step, StepGroup, StepParts, Steps, StepTrend
from ..toolkit.intervals import sweep, union
from ..toolkit.places import Place, Places
from ..toolkit.quantiles import duration_histogram, quantiles
from ..toolkit.wording import count, numbered, plural
from .loading_ranges import loading_ranges
from .profiled import sentence as on_profiled
from .profiled import with_profiled
from .ranges import LOADING, NAMED, OTHER, loading_names, outermost_ranges
from .trend import middle_half, part_that_changed_most, sentence, trend_of

SLOWEST: Final = 10
LISTED: Final = 100  # Steps of a process and phase that are listed, where they are not what a report or a comparison looks at
CUT_OFF: Final = 0.8
"""A last step with fewer than this share of the device events of the one before is taken to be cut off by the end of the profile."""
_NEARLY_ALL: Final = 0.9  # of the steps were traced: that some were not is not told
_NUMBERS: Final = 12  # are listed
FEWEST: Final = 3  # Steps in which events were recorded, from which on they may stand for all
FAR: Final = 2.0  # Their mean duration lies within this factor of the median of all

# Classes of a step's wall time, in the order in which they claim it; each is a condition on device_event or host_event.
_CLASSES: Final = {
    "kernel": ("device_event", "e.kind = 'kernel' AND n.category IS DISTINCT FROM 'communication'"),
    "memcpy": ("device_event", "e.kind = 'memcpy'"),
    "memset": ("device_event", "e.kind = 'memset'"),
    "communication": ("device_event", "e.kind = 'kernel' AND n.category = 'communication'"),
    "runtime": ("host_event", "e.kind IN ('launch', 'sync', 'call')"),
    "data_loader": ("host_event", "e.kind = 'loader'"),
    "cpu_op": ("host_event", "e.kind = 'operator'"),
}
# ``recorded``: events were recorded all the time, or in all of the step: from when the profiler was switched on until it was switched off,
# or, where it does not say that, from the first event to the end of the last. The trace of a configured profile begins shortly after the
# step began: there nearly all of the step is enough. ``touched``: there are events in the step, or in a part of it. Beside a trace of
# PyTorch what another tracer recorded of the same process does not count, as it knows no operators and loads.
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
    """The steps of every process, their durations by (node, process, phase), and what the average step was spent on.

    Durations are those of the device work launched in a step. A group in which not even half of the steps launched any is timed on the
    host; in the other groups the steps without device work are timed on the host and form a group of their own. Where device activity was
    recorded in windows only, that is half of the steps inside of them; the average step is of these, too.
    """
    rows = timed_steps(store)
    if rows.is_empty():
        return Steps((), (), (), _ON_DEVICE_ONLY if store.frame(_STEPS_OF_DEVICE).item() else _ABSENT)
    places = Places(store)
    groups = []
    for (process, _, on_device), members in rows.group_by("process", "phase", "on_device"):
        place = places.process(process, members["node"][0])
        groups.append((place, _group(place, bool(on_device), members.sort("start", "duration"))))
    groups.sort(key=lambda item: (item[0].order, item[1].phase or "", not item[1].on_device))
    told = _told(rows)
    listed = _listed(told, places)
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
        left_out=rows.height - told.height,
        profiled=on_profiled(rows),
        parts_absent=parts_absent,
        traced=_traced_steps(store, rows),
    )


def main_steps(every: Sequence[Step]) -> list[Step]:
    """The steps timed on the device where there are any, else those timed on the host; of these, the phase that took most of the time:
    evaluation is not mixed with training, nor steps of a whole job with those that were profiled."""
    pool = [step for step in every if step.on_device] or list(every)
    time: Counter[str | None] = Counter()
    for step in pool:
        time[step.phase] += step.duration_ns
    main = min(time, key=lambda phase: (-time[phase], phase or ""), default=None)
    return [step for step in pool if step.phase == main]


def timed_steps(store: Store) -> pl.DataFrame:
    """The table of steps ("index" is called ``number``) with ``on_device``, ``start`` and ``duration``, as :func:`steps` times them, and
    with ``profiled`` (:func:`.profiled_steps.with_profiled`) and ``again``: how many steps of the same number came before."""
    return _timed(with_profiled(store, store.frame(_STEPS)))


def _timed(rows: pl.DataFrame) -> pl.DataFrame:
    """Steps with ``on_device``, ``start`` and ``duration``: of the device work, or of the host range."""
    worked = pl.col("device_duration_ns").is_not_null()
    mostly = worked.filter("recorded").mean().over("process", "phase").fill_null(0.0) >= 0.5
    again = (pl.col("host_start_ns").rank("ordinal").over("process", "phase", "number") - 1).cast(pl.Int64)
    return rows.with_columns(on_device=worked & mostly, again=again).with_columns(
        start=pl.when("on_device").then("device_start_ns").otherwise("host_start_ns"),
        duration=pl.when("on_device").then("device_duration_ns").otherwise("host_duration_ns"),
    )


def _step(row: dict[str, Any], phase: str | None, place: Place) -> Step:
    return Step(
        node=place.node,
        rank=place.rank,
        pid=place.pid,
        phase=phase,
        index=row["number"],
        start_ns=row["start"],
        duration_ns=row["duration"],
        on_device=bool(row["on_device"]),
        host_duration_ns=row["host_duration_ns"],
        profiled=row["profiled"],
        again=row["again"],
    )


def _told(rows: pl.DataFrame) -> pl.DataFrame:
    """All steps; where the main ones have no phase, all of these, all that are timed on the device, and of the others evenly spread ones of
    each process and phase, at most ``LISTED``. Thousands of steps of a job, of which a profiler saw a few, would be most of a report."""
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


def _listed(rows: pl.DataFrame, places: Places) -> list[tuple[Place, Step]]:
    return [
        (place, _step(row, row["phase"], place))
        for row in rows.iter_rows(named=True)
        for place in [places.process(row["process"], row["node"])]
    ]


def _group(place: Place, on_device: bool, members: pl.DataFrame) -> StepGroup:
    phase = members["phase"][0]
    spread = quantiles(members["duration"])
    bins = duration_histogram(members["duration"])
    assert spread is not None
    assert bins is not None
    slowest = members.sort("duration", "start", descending=[True, False]).head(SLOWEST)
    return StepGroup(
        node=place.node,
        rank=place.rank,
        pid=place.pid,
        phase=phase,
        on_device=on_device,
        quantiles=spread,
        histogram=bins,
        slowest=tuple(_step(row, phase, place) for row in slowest.iter_rows(named=True)),
    )


def _parts(store: Store, rows: pl.DataFrame, places: Places) -> tuple[tuple[StepParts, ...], str | None]:
    """Of every process: wall time of its steps, claimed class by class in the order of ``_CLASSES``. By the ranges that are annotated in
    its steps where it is without events, and where these reach fewer steps than the ranges; without either nothing is known. And why
    nothing is known of any process, where events were recorded in a part of its steps.

    A step reaches from where the one before it ended (where their numbers follow each other; else from its own start) to the end of its
    host range or of its last device event, whichever is later. The last one is left out where it was cut off. This is the definition of
    the PyTorch TensorBoard plugin, whose "kernel" is here divided into communication kernels and others. Of a process with events: of the
    steps in which they were recorded; ``typical`` says whether these may stand for all.
    """
    traced = _traced(store)
    found = []
    partly: set[int] = set()
    for (process,), every in rows.group_by("process"):
        own = every.filter("recorded") if process in traced else every
        named = _named(store, process, every, has_events=process in traced)
        annotated = named is not None
        if own.is_empty() and not annotated:
            partly.update(every.filter("touched")["number"])
            continue
        if process not in traced and not annotated:
            continue
        main = _main(every if annotated else own)
        windows = _windows(main)
        loading: tuple[str, ...] = ()
        if named is None:
            claimed = _claimed(windows, _classes(store, process, windows))
            loading = loading_names(loading_ranges(store, process), windows)
        else:
            claimed = _most(_claimed(windows, {name: union(parts) for name, parts in named.items()}))
            loading = loading_names(named[LOADING], windows) if LOADING in named else ()
        place = places.process(process, every["node"][0])
        many = windows.height
        mean = {name: claimed[name] / many for name in claimed}
        whole = float((windows["end"] - windows["start"]).sum() / many)
        alike = _main(every)
        some = () if annotated or main.height >= alike.height else tuple(main.sort("host_start_ns")["number"])
        part = tuple(alike.filter(pl.col("touched") & ~pl.col("recorded")).sort("host_start_ns")["number"]) if some else ()
        typical = not some or _typical(main, alike)
        made = StepParts(place.node, place.rank, place.pid, many, whole, mean, annotated, loading, some, alike.height, typical, part)
        found.append((place, made))
    absent = f"only a part of step {numbered(partly)} was traced" if partly and not found else None
    return tuple(parts for _, parts in sorted(found, key=lambda item: item[0].order)), absent


def _named(store: Store, process: int | None, every: pl.DataFrame, *, has_events: bool) -> dict[str, pl.DataFrame] | None:
    """The ranges annotated in the steps of a process, by which these are divided; None where events divide them, or nothing does.

    Ranges divide the steps of a process with events where these were recorded in some steps only, and are of too few steps or say nothing
    of a device. Then only names count that occur outside of the recorded steps, too: others are of the trace, not of the program.
    """
    main = _main(every)
    if main["phase"][0] is not None:
        return None
    if not has_events:
        return outermost_ranges(store, process, main) or None
    own = main.filter("recorded")
    if own.height == main.height:
        return None
    if own.height and _typical(own, main) and own["device_events"].fill_null(0).sum():
        return None
    elsewhere = main.filter(~pl.col("touched") & ~pl.col("recorded")).select(
        step="host_start_ns", step_end=pl.col("host_start_ns") + pl.col("host_duration_ns")
    ).sort("step")  # fmt: skip
    found = {}
    reached: set[int] = set()
    for key, ranges in outermost_ranges(store, process, main).items():
        inside = ranges.sort("start").join_asof(elsewhere, left_on="start", right_on="step", strategy="backward", check_sortedness=False)
        inside = inside.filter(pl.col("start") < pl.col("step_end"))
        kept = ranges.join(inside.select("name").unique(), on="name", how="semi", maintain_order="left")
        if kept.height:
            found[key] = kept
            reached.update(inside["step"])
    # Where most of the steps have none, the ranges do not tell what the average step was spent on either.
    return found if len(reached) >= max(1, elsewhere.height / 2) else None


def _typical(some: pl.DataFrame, every: pl.DataFrame) -> bool:
    """Whether recorded steps may stand for all: they are not few, and their mean is near to the median of all."""
    mean, median = some["host_duration_ns"].mean(), every["host_duration_ns"].median()
    if some.height < FEWEST or not isinstance(mean, float) or not isinstance(median, float):
        return False
    return median / FAR <= mean <= median * FAR


def _traced(store: Store) -> set[int | None]:
    """The processes of which events were recorded, and not only annotations."""
    return set(store.frame("SELECT process FROM device_event UNION SELECT process FROM host_event").to_series())


def _traced_steps(store: Store, rows: pl.DataFrame) -> str | None:
    """Which steps events of the host were recorded in, where these are fewer than all: "in 2 of 20 steps (5 and 6)"; else None."""
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
    """Of every (process, phase) whose steps became clearly longer or shorter over the run: see docs/definitions.md."""
    traced: set[int | None] | None = None
    found = []
    for (process, phase, on_device), members in rows.group_by("process", "phase", "on_device"):
        own = members.sort("start", "duration")
        trend = trend_of(own["duration"])
        if trend is None:
            continue
        traced = _traced(store) if traced is None else traced
        place = places.process(process, own["node"][0])
        part = _changed_part(store, process, own, annotated=process not in traced or not own["recorded"].all())
        made = StepTrend(place.node, place.rank, place.pid, phase, bool(on_device), own.height, *trend, part)
        found.append((place, made))
    return tuple(one for _, one in sorted(found, key=lambda item: (item[0].order, item[1].phase or "", not item[1].on_device)))


def _changed_part(store: Store, process: int | None, own: pl.DataFrame, *, annotated: bool) -> str | None:
    """Which part of the steps changed most from their first to their last quarter, by the steps of usual length in each."""
    windows = _windows(own)
    if not annotated:
        covered = _classes(store, process, windows)
    elif own["phase"][0] is None:
        covered = {name: union(parts) for name, parts in outermost_ranges(store, process, own).items()}
    else:
        return None
    quarter = windows.height // 4
    first, last = (
        {name: time / part.height for name, time in _claimed(part, covered).items()}
        for part in (middle_half(windows.head(quarter)), middle_half(windows.tail(quarter)))
    )
    return part_that_changed_most(first, last, OTHER)


def _classes(store: Store, process: int | None, windows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return {name: _covered(store, process, name, windows) for name in _CLASSES}


def _most(claimed: dict[str, int]) -> dict[str, int]:
    """The names with most time, and data loading, in their order; the rest is "other"."""
    named = {name: time for name, time in claimed.items() if name != OTHER and time > 0}
    kept = sorted(named, key=lambda name: (name != LOADING, -named[name]))[:NAMED]
    shown = {name: time for name, time in named.items() if name in kept}
    return {**shown, OTHER: sum(claimed.values()) - sum(shown.values())}


def _main(own: pl.DataFrame) -> pl.DataFrame:
    """One kind of steps of a process: those without a phase, else those of the phase with most time."""
    plain = own.filter(pl.col("phase").is_null())
    if plain.height:
        return plain
    longest = own.group_by("phase").agg(pl.col("host_duration_ns").sum()).sort("host_duration_ns", "phase", descending=[True, False])
    return own.filter(pl.col("phase") == longest["phase"][0])


def _windows(own: pl.DataFrame) -> pl.DataFrame:
    """The wall time of every step: columns ``start`` and ``end``, disjoint and in order; ``host_end``: when the host was through with it,
    ``followed``: the next step, by the usual distance of their numbers, comes after it."""
    ordered = own.sort("host_start_ns", "host_duration_ns")
    *_, last_but_one, last = [None, None, *ordered["device_events"]]
    if last_but_one is not None and last is not None and last < CUT_OFF * last_but_one:
        ordered = ordered.head(-1)
    host_end = pl.col("host_start_ns") + pl.col("host_duration_ns")
    end = pl.max_horizontal(host_end, pl.col("device_start_ns") + pl.col("device_duration_ns")).cum_max()
    before = pl.col("end").shift(1)
    further = pl.col("number") - pl.col("number").shift(1)
    start = pl.when(further == 1).then(before).otherwise(pl.max_horizontal("host_start_ns", before))
    usual = (further == 1) | (further == further.filter(further > 0).median()) | pl.col("number").is_null()  # they may count in tens
    return ordered.with_columns(end=end).select(
        start=start.fill_null(pl.col("host_start_ns")), end="end", host_end=host_end, followed=usual.shift(-1).fill_null(False)
    )


def _claimed(windows: pl.DataFrame, covered: dict[str, pl.DataFrame]) -> dict[str, int]:
    """Nanoseconds of the windows by class, each getting what those before it left; "other" is what no class claims."""
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
    claimed[OTHER] = claimed.get(OTHER, 0) + rest
    return claimed


def _covered(store: Store, process: int | None, name: str, windows: pl.DataFrame) -> pl.DataFrame:
    """When a class was active on any thread or stream of the process, from the first window to the last. Ranges named as data loading are
    data loading, too."""
    table, condition = _CLASSES[name]
    low, high = windows["start"].min(), windows["end"].max()
    found = store.frame(
        f'SELECT e.start_ns AS start, e.start_ns + e.duration_ns AS "end" FROM {table} AS e LEFT JOIN name AS n ON n.id = e.name'
        f" WHERE e.process IS NOT DISTINCT FROM ? AND {condition} AND e.start_ns < ? AND e.start_ns + e.duration_ns > ?",
        [process, high, low],
    )
    if name != LOADING:
        return union(found)
    named = loading_ranges(store, process).select("start", "end").filter(pl.col("start") < high, pl.col("end") > low)
    return union(_of_steps(pl.concat([found, named]), windows))


def _of_steps(loads: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Without the loads that begin when the host is through with a step that none follows: they are for no step, though the device may
    still work on that one."""
    begun = windows.select(step="start", through=pl.when(~pl.col("followed")).then("host_end"))
    around = loads.sort("start").join_asof(begun, left_on="start", right_on="step", strategy="backward", check_sortedness=False)
    return around.filter((pl.col("start") >= pl.col("through")).fill_null(False).not_()).select("start", "end")
