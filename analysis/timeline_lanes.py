"""In which lane of its track does an event lie, so that no two events of a lane overlap?

The first free lane from the top: what is nested lies below what it is nested in.
"""

from __future__ import annotations

from typing import Final

import polars as pl

MOST: Final = 1000
"""Lanes of one track; an event for which none of these is free gets lane -1."""


def with_lanes(events: pl.DataFrame) -> pl.DataFrame:
    """``events`` (columns track, start, duration; no duration below 0) sorted by track and start, longest first, with ``lane``."""
    order = [column for column in ("source", "row") if column in events.columns]
    ordered = (
        events.sort("track", "start", "duration", *order, descending=[False, False, True, *(False for _ in order)])
        .with_row_index("place")
        .with_columns(end=pl.col("start") + pl.col("duration"))
        .with_columns(before=pl.col("end").cum_max().shift(1).over("track"))
        # A stretch in which each event overlaps one before it.
        .with_columns(cluster=(pl.col("before").is_null() | (pl.col("start") >= pl.col("before"))).cum_sum())
    )
    overlapping = ordered.filter(pl.col("start") < pl.col("before"))["cluster"].unique()
    if overlapping.is_empty():
        return ordered.with_columns(lane=pl.lit(0, pl.Int16)).drop("place", "end", "before", "cluster")
    crowded = ordered.filter(pl.col("cluster").is_in(overlapping.implode())).select("place", "track", "start", "duration", "end", "cluster")
    nested = _depths(crowded)
    # Where events overlap without nesting, the depth of one may be the lane of another that is still going on.
    crossing = nested.filter(pl.col("start") < pl.col("end").cum_max().shift(1).over("cluster", "lane"))["cluster"].unique()
    found = nested.select("place", "lane")
    if crossing.len():
        mixed = pl.col("cluster").is_in(crossing.implode())
        found = pl.concat([nested.filter(~mixed).select("place", "lane"), _first_free(nested.filter(mixed).sort("place"))])
    lanes = ordered.join(found, on="place", how="left").with_columns(pl.col("lane").fill_null(0)).sort("place")
    return lanes.with_columns(pl.when(pl.col("lane") < MOST).then("lane").otherwise(-1).cast(pl.Int16).alias("lane")).drop(
        "place", "end", "before", "cluster"
    )


def _depths(events: pl.DataFrame) -> pl.DataFrame:
    """With ``lane``: how many other events of its cluster are going on when an event starts. Those without duration take up no lane."""
    long = pl.col("duration") > 0
    points = pl.concat(
        [
            events.filter(long).select("cluster", "place", time="end", order=pl.lit(0, pl.Int8), delta=pl.lit(-1, pl.Int32)),
            events.filter(long).select("cluster", "place", time="start", order=pl.lit(1, pl.Int8), delta=pl.lit(1, pl.Int32)),
            events.filter(~long).select("cluster", "place", time="start", order=pl.lit(2, pl.Int8), delta=pl.lit(0, pl.Int32)),
        ]
    ).sort("cluster", "time", "order", "place")
    # Every cluster ends with nothing going on: the sum needs no reset.
    opened = points.with_columns(lane=pl.col("delta").cum_sum() - pl.col("delta")).filter(pl.col("order") > 0)
    return events.join(opened.select("place", "lane"), on="place").sort("place")


def _first_free(events: pl.DataFrame) -> pl.DataFrame:
    """Lane by lane from the top. Only for events that overlap without nesting, which are few."""
    lanes: list[int] = []
    ends: list[int] = []
    last = None
    for cluster, start, end in events.select("cluster", "start", "end").iter_rows():
        if cluster != last:
            ends, last = [], cluster
        lane = next((place for place, busy in enumerate(ends) if busy <= start), len(ends))
        if lane == len(ends) and lane < MOST:
            ends.append(end)
        elif lane < MOST:
            ends[lane] = end
        lanes.append(lane)
    return events.select("place", lane=pl.Series(lanes, dtype=pl.Int32))
