"""Time of several measures within spans of time: disjoint segments and spans of the same groups -> sums in ns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

ANY: Final = {"covered": pl.lit(True)}


def sums_within(segments: pl.DataFrame, spans: pl.DataFrame, by: str, measures: Mapping[str, pl.Expr] = ANY) -> pl.DataFrame:
    """Return the time of each measure in each of the spans, in their order, in ns.

    ``segments``: ``by``, ``start``, ``end``; disjoint, in order of group and start. ``measures``: conditions on segments, by name.
    ``spans``: ``by``, ``start``, ``end``; they may overlap. Groups without nulls.
    """
    length, inside = pl.col("end") - pl.col("start"), pl.min_horizontal("time", "end") - pl.col("start")
    summed = (
        segments.lazy()
        .select(by, "start", "end", **{name: where.cast(pl.Int64) for name, where in measures.items()})
        # Over all groups, because only differences within a group count.
        .with_columns((pl.col(name) * length).cum_sum().alias(f"{name} after") for name in measures)
        .with_columns((pl.col(f"{name} after") - pl.col(name) * length).alias(f"{name} before") for name in measures)
    )
    least = summed.group_by(by).agg(pl.col(f"{name} before").first().alias(f"{name} least") for name in measures)
    numbered = spans.lazy().with_row_index("row").select("row", by, "start", "end")
    points = pl.concat([
        numbered.select("row", by, time="start"),
        numbered.select(pl.col("row") + len(spans), by, time="end"),
    ])  # fmt: skip
    # join_asof needs the order of times within a group only.
    until = (
        points.sort("time")
        .join_asof(summed, left_on="time", right_on="start", by=by, strategy="backward", check_sortedness=False)
        .join(least, on=by, how="left")
        .sort("row")
        .select(
            pl.coalesce(pl.col(f"{name} before") + pl.col(name) * inside, f"{name} least", 0).alias(name) for name in measures
        )
        .collect()
    )  # fmt: skip
    return until.slice(len(spans)) - until.head(len(spans))
