"""Counters that the program itself recorded, such as the loss, over time."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.metrics import COUNTER
from ...ingest.store.store import Store
from ..report.machine import CounterSeries
from ..toolkit.places import Places

POINTS: Final = 400  # values per counter; more are averaged, with lowest and highest, over intervals of equal length
MOST: Final = 200  # counters per process, those with the largest number of values

_SERIES: Final = f"""
    SELECT node, unit, metric, count(*) AS values, count(*) FILTER (NOT isfinite(value)) AS not_finite,
        min(time_ns) FILTER (NOT isfinite(value)) AS first_not_finite_ns, min(time_ns) FILTER (isfinite(value)) AS start_ns,
        max(time_ns) FILTER (isfinite(value)) AS end_ns, arg_min(value, time_ns) FILTER (isfinite(value)) AS first,
        arg_max(value, time_ns) FILTER (isfinite(value)) AS last, min(value) FILTER (isfinite(value)) AS "min",
        max(value) FILTER (isfinite(value)) AS "max"
    FROM sample WHERE starts_with(metric, '{COUNTER}') GROUP BY node, unit, metric
    QUALIFY row_number() OVER (PARTITION BY node, unit ORDER BY count(*) DESC, metric) <= {MOST}
"""
# Rounding may move a mean beyond its ends.
_DRAWN: Final = f"""
    WITH series AS ({_SERIES})
    SELECT s.node, s.unit, s.metric, min(v.time_ns) AS time_ns, least(greatest(avg(v.value), min(v.value)), max(v.value)) AS mean,
        min(v.value) AS low, max(v.value) AS high
    FROM sample AS v JOIN series AS s ON v.node = s.node AND v.metric = s.metric AND v.unit IS NOT DISTINCT FROM s.unit
    WHERE isfinite(v.value)
    GROUP BY s.node, s.unit, s.metric, CASE WHEN s.values - s.not_finite <= {POINTS} THEN v.time_ns - s.start_ns
        ELSE (v.time_ns - s.start_ns) // ((s.end_ns - s.start_ns) // {POINTS} + 1) END
    ORDER BY time_ns
"""


def counters(store: Store) -> tuple[CounterSeries, ...]:
    """Return every counter of every process by name, from its finite values."""
    if not store.has_rows("sample"):
        return ()
    rows = store.frame(_SERIES)
    if rows.is_empty():
        return ()
    places = Places(store)
    drawn = store.frame(_DRAWN).partition_by("node", "unit", "metric", as_dict=True)
    ordered = []
    for row in rows.iter_rows(named=True):
        location = places.process(row["unit"], row["node"])
        points = drawn.get((row["node"], row["unit"], row["metric"]), pl.DataFrame(schema=["time_ns", "mean", "low", "high"]))
        name = row["metric"].removeprefix(COUNTER)
        fields = {column: row[column] for column in ("values", "not_finite", "first_not_finite_ns", "first", "last", "min", "max")}
        fields |= {column: tuple(points[column]) for column in ("time_ns", "mean", "low", "high")}
        ordered.append((name, location.order, CounterSeries(name, *location, **fields)))
    return tuple(series for _, _, series in sorted(ordered, key=lambda item: item[:2]))
