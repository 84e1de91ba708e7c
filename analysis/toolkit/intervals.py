"""Interval algebra over Polars frames: unions, differences, coverage and their lengths, one vectorized pass each.

A frame of intervals has integer columns ``start`` and ``end`` (half open,
nanoseconds, any origin; absolute values up to 4.6e18, so that differences fit int64) and any columns that name the group it belongs to
(``by``). Intervals that are empty (``end <= start``) cover nothing. Results are sorted by group and start.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def union(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the union as disjoint segments per group; touching intervals join.

    Columns: ``by``, ``start``, ``end``."""
    kept = intervals.filter(pl.col("end") > pl.col("start"))
    if kept.height < 2:
        return kept.select(*by, "start", "end")
    opening = kept.select(*by, time="start", delta=pl.lit(1, pl.Int32))
    closing = kept.select(*by, time="end", delta=pl.lit(-1, pl.Int32))
    # Openings sort before closings of the same time, so that touching intervals never bring the count to 0 between them. The count
    # returns to 0 at the end of every group: it needs no reset.
    points = (
        pl.concat([opening, closing])
        .sort(*by, "time", "delta", descending=[*(False for _ in by), False, True])
        .with_columns(open=pl.col("delta").cum_sum())
    )
    starts = points.filter((pl.col("delta") == 1) & (pl.col("open") == 1)).select(*by, start="time")
    ends = points.filter(pl.col("open") == 0).get_column("time")
    return starts.with_columns(ends.alias("end"))


def outermost(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the intervals that no other of their group contains, sorted.

    All their columns are kept, by group and start; the first of equal intervals remains."""
    ordered = intervals.sort(*by, "start", "end", descending=[*(False for _ in by), False, True], maintain_order=True)
    before = pl.col("end").cum_max().shift(1)
    return ordered.filter((pl.col("end") > (before.over(*by) if by else before)).fill_null(True))


def sweep(intervals: pl.DataFrame, by: Sequence[str], flags: Sequence[str]) -> pl.DataFrame:
    """Return elementary segments of every group with the classes active in each.

    ``flags`` are boolean columns of ``intervals``: the classes of an interval (null counts as false). Returns ``by``, ``start``, ``end``
    and the flags; a flag is true if an interval of that class covers the segment. Segments are disjoint, not empty, and no flag changes
    inside a segment; stretches without an active class are left out. Lengths of any set expression follow by summing, e.g. A minus B is
    the sum of the segments with A and not B."""
    kept = intervals.filter(pl.col("end") > pl.col("start")).with_columns(pl.col(f).fill_null(False).cast(pl.Int32) for f in flags)
    opening = kept.select(*by, pl.col("start").alias("time"), *flags)
    closing = kept.select(*by, pl.col("end").alias("time"), *(-pl.col(f) for f in flags))
    return (
        pl.concat([opening, closing])
        .sort(*by, "time")
        .with_columns(pl.col(f).cum_sum() > 0 for f in flags)  # every count is 0 again at a group's end
        .with_columns(end=pl.col("time").shift(-1))
        .filter(pl.any_horizontal(*flags) & (pl.col("end") > pl.col("time")))
        .select(*by, pl.col("time").alias("start"), "end", *flags)
    )


def union_length(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the length of the union per group: ``by``, ``length`` (int64, may be 0)."""
    return _lengths(intervals, union(intervals, by), by)


def difference(a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the segments that ``a`` covers and ``b`` does not: ``by``, start, end."""
    return union(_two_sets(a, b, by).filter(pl.col("a") & ~pl.col("b")), by)


def intersection(a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the segments that ``a`` and ``b`` cover, per group: ``by``, start, end."""
    return union(_two_sets(a, b, by).filter(pl.col("a") & pl.col("b")), by)


def difference_length(a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the length of ``a`` minus ``b`` per group of ``a``: ``by``, ``length``."""
    return _lengths(a, difference(a, b, by), by)


def _two_sets(a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    sets = [frame.select(*by, "start", "end", a=pl.lit(i == 0), b=pl.lit(i == 1)) for i, frame in enumerate((a, b))]
    return sweep(pl.concat(sets), by, ("a", "b"))


def _lengths(intervals: pl.DataFrame, segments: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    length = (pl.col("end") - pl.col("start")).sum().alias("length")
    if not by:
        return segments.select(length)
    lengths = segments.group_by(*by).agg(length)
    groups = intervals.select(*by).unique().sort(*by)
    return groups.join(lengths, on=list(by), how="left", nulls_equal=True, maintain_order="left").with_columns(
        pl.col("length").fill_null(0)
    )


def length_inside(intervals: pl.DataFrame, segments: pl.DataFrame, by: str) -> pl.Series:
    """Return the part of each interval that the segments of its group cover (int64).

    Segments must be disjoint within their group."""
    known = _cumulated(segments, by)

    def until(column: str) -> pl.Series:
        points = intervals.select(by, time=column).with_row_index("number").sort("time")
        return _covered(points, known, by).sort("number")["covered"]

    return until("end") - until("start")


def _cumulated(segments: pl.DataFrame, by: str) -> pl.DataFrame:
    """Sort disjoint segments by start, each with the earlier length in its group."""
    length = pl.col("end") - pl.col("start")
    return segments.sort("start").select(by, "start", "end", before=length.cum_sum().over(by) - length)


def _covered(points: pl.DataFrame, known: pl.DataFrame, by: str) -> pl.DataFrame:
    """Add ``covered``, the group's length before each point (``by``, time; sorted)."""
    segments = known.with_columns(time="start")
    matched = points.join_asof(segments, on="time", by=by, strategy="backward", check_sortedness=False)
    return matched.with_columns(covered=(pl.col("before") + pl.min_horizontal("time", "end") - pl.col("start")).fill_null(0))
