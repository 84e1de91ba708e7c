"""Wall time of steps divided by what claims it first: windows of steps and recorded events -> time of each class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from ..toolkit.intervals import sweep_length, union
from ..toolkit.places import batches, one_of
from .data import StepData
from .ranges import LOADING, REMAINDER

CUT_OFF: Final = 0.8  # a last step with less than this share of the previous step's device events was cut off by the end of the profile

# In the order in which they claim the time: columns of device_run, then kinds of host_event.
_ON_DEVICE: Final = {"kernel": "computation", "memcpy": "memcpy", "memset": "memset", "communication": "communication"}
_ON_HOST: Final = {"runtime": "kind IN ('launch', 'sync', 'call')", LOADING: "kind = 'loader'", "cpu_op": "kind = 'operator'"}
CLASSES: Final = (*_ON_DEVICE, *_ON_HOST)
_SETS: Final = ["group", "number", "start", "end"]


def step_windows(members: pl.DataFrame, group: int) -> pl.DataFrame:
    """Return the wall times of the steps of a process, disjoint and in order.

    ``members``: steps with ``ahead`` (:attr:`.data.StepData.ahead`, else null), before which the device works for none. Columns: ``group``,
    ``process``, ``start``, ``end``. ``host_end``: end of the step on the host. ``followed``: the next step, by the usual distance of their
    numbers, comes after it. The last step is left out if it was cut off.
    """
    ordered = members.sort("host_start_ns", "host_duration_ns")
    *_, last_but_one, last = [None, None, *ordered["device_events"].tail(2)]
    if last_but_one is not None and last is not None and last < CUT_OFF * last_but_one:
        ordered = ordered.head(-1)
    host_end = pl.col("host_start_ns") + pl.col("host_duration_ns")
    end = pl.max_horizontal(host_end, pl.col("device_start_ns") + pl.col("device_duration_ns")).cum_max()
    before = pl.col("end").shift(1)
    further = pl.col("number") - pl.col("number").shift(1)
    start = pl.when(further == 1).then(before).otherwise(pl.max_horizontal("host_start_ns", before, "ahead"))
    usual = (further == 1) | (further == further.filter(further > 0).median()) | pl.col("number").is_null()  # numbers may count in tens
    return (
        ordered.lazy()
        .with_columns(end=end)
        .select(
            group=pl.lit(group, pl.Int32),
            process=pl.col("process").cast(pl.Int32),
            start=start.fill_null(pl.col("host_start_ns")),
            end="end",
            host_end=host_end,
            followed=usual.shift(-1).fill_null(False),
        )
        .collect()
    )


def claimed(windows: pl.DataFrame, covered: pl.DataFrame, names: Sequence[str]) -> dict[int, dict[str, int]]:
    """Divide the windows of each group by class, in order; the rest is "other".

    ``covered``: columns ``group``, ``number`` (index in ``names``), ``start`` and ``end``; intervals of a class may overlap.
    """
    inside, *flags = (f"class {number}" for number in range(-1, len(names)))
    sets = [windows.select("group", pl.lit(-1, pl.Int32).alias("number"), "start", "end"), covered.select(_SETS)]
    marked = pl.concat([
        rows.lazy().select("group", "start", "end", *((pl.col("number") == n).alias(flag) for n, flag in enumerate([inside, *flags], -1)))
        for rows in sets
    ]).collect()  # fmt: skip
    first = pl.coalesce(*(pl.when(flag).then(number) for number, flag in enumerate(flags)), len(names))
    times = (
        sweep_length(marked, ["group"], [inside, *flags])
        .lazy()
        .filter(inside)
        .group_by("group", first.alias("first"))
        .agg(pl.col("length").sum().alias("time"))
        .collect()
    )
    divided = {group: [0] * (len(names) + 1) for group in windows["group"].unique(maintain_order=True)}
    for group, number, time in times.iter_rows():
        divided[group][number] = time
    result = {}
    for group, (*claims, rest) in divided.items():
        by_name = dict(zip(names, claims, strict=True))
        by_name[REMAINDER] = by_name.get(REMAINDER, 0) + rest
        result[group] = by_name
    return result


def covered_by_names(ranges: dict[str, pl.DataFrame], group: int) -> pl.DataFrame:
    """Return annotated ranges by name as the classes of :func:`claimed`."""
    parts = [
        frame.select(group=pl.lit(group, pl.Int32), number=pl.lit(number, pl.Int32), start="start", end="end")
        for number, frame in enumerate(ranges.values())
    ]
    return pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(_SETS[:2], pl.Int32) | dict.fromkeys(_SETS[2:], pl.Int64))


def covered_by_events(data: StepData, windows: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """Yield the windows of some groups, and when each of ``CLASSES`` was active there.

    Events of all threads and streams count, from the first to the last window of a group. Ranges named as data loading count as such. Each
    group occurs once, with the others whose events are read together.
    """
    spans = windows.group_by("group", maintain_order=True).agg(
        pl.col("process").first(), low=pl.col("start").min(), high=pl.col("end").max()
    )
    loads = data.loading.join(spans.select("group", "process"), on="process", nulls_equal=True)
    named = loads.select("group", pl.lit(_LOADS, pl.Int32).alias("number"), "start", "end")
    for rows in batches((row, data.events.get(row[1], 0)) for row in spans.iter_rows()):
        together = pl.col("group").is_in([group for group, *_ in rows])
        inside = windows.filter(together)
        frames = [_of_steps(named.filter(together), inside)]
        number = sum(data.events.get(row[1], 0) for row in rows)
        sql = _events(rows)
        parts = data.store.batches(sql, rows=_ROWS_AT_ONCE) if number > _ROWS_AT_ONCE else [data.store.frame(sql)]
        for events in parts:
            loading = events.filter(pl.col("number") == _LOADS)
            frames += [union(events.filter(pl.col("number") != _LOADS), _SETS[:2]), _of_steps(loading, inside).select(_SETS)]
        yield inside, pl.concat(frames)


_LOADS: Final = CLASSES.index(LOADING)
_ROWS_AT_ONCE: Final = 500_000  # more events are read in parts, and only when each class was active is kept of a part


def _events(spans: Sequence[tuple[int, int | None, int, int]]) -> str:
    """Return SQL for the events of the spans (group, process, low, high)."""
    values = ", ".join(
        f"({group}::INTEGER, {'NULL' if process is None else process}::INTEGER, {low}::BIGINT, {high}::BIGINT)"
        for group, process, low, high in spans
    )

    def number(conditions: dict[str, str]) -> str:
        cases = " ".join(f"WHEN {condition} THEN {CLASSES.index(name)}" for name, condition in conditions.items())
        return f"(CASE {cases} END)::INTEGER AS number"

    within = "ON e.process IS NOT DISTINCT FROM s.process AND e.start_ns < s.high AND e.start_ns + e.duration_ns > s.low"
    these = one_of("e.process", {process for _, process, *_ in spans})  # the join alone reads the events of all processes
    return f"""
        WITH span("group", process, low, high) AS (VALUES {values})
        SELECT s."group", {number(_ON_DEVICE)}, e.start_ns AS start, e.end_ns AS "end" FROM device_run AS e JOIN span AS s {within}
        WHERE {these}
        UNION ALL
        SELECT s."group", {number(_ON_HOST)}, e.start_ns, e.start_ns + e.duration_ns FROM host_event AS e JOIN span AS s {within}
        WHERE {these} AND e.kind IN ('launch', 'sync', 'call', 'loader', 'operator')
    """


def _of_steps(loads: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Remove the loads that begin after the host finished a step without successor."""
    if loads.is_empty():
        return loads
    begun = windows.select("group", step="start", through=pl.when(~pl.col("followed")).then("host_end")).sort("step")
    around = loads.sort("start").join_asof(begun, left_on="start", right_on="step", by="group", strategy="backward", check_sortedness=False)
    return around.filter((pl.col("start") >= pl.col("through")).fill_null(False).not_()).select(_SETS)
