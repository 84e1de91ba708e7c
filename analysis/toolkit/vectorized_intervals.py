"""Interval algebra in Polars alone: the functions of :mod:`.intervals`, vectorized, for installations without the C extension."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def union(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the union as disjoint segments."""
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
    """Return the intervals that no other of their group contains."""
    ordered = intervals.sort(*by, "start", "end", descending=[*(False for _ in by), False, True], maintain_order=True)
    before = pl.col("end").cum_max().shift(1)
    return ordered.filter((pl.col("end") > (before.over(*by) if by else before)).fill_null(True))


def sweep(intervals: pl.DataFrame, by: Sequence[str], flags: Sequence[str]) -> pl.DataFrame:
    """Return the segments of every group with the classes active in each."""
    kept = intervals.filter(pl.col("end") > pl.col("start")).with_columns(pl.col(f).fill_null(False).cast(pl.Int32) for f in flags)
    opening = kept.select(*by, pl.col("start").alias("time"), *flags)
    closing = kept.select(*by, pl.col("end").alias("time"), *(-pl.col(f) for f in flags))
    segments = (
        pl.concat([opening, closing])
        .sort(*by, "time")
        .with_columns(pl.col(f).cum_sum() > 0 for f in flags)  # every count is 0 again at a group's end
        .with_columns(end=pl.col("time").shift(-1))
        .filter(pl.any_horizontal(*flags) & (pl.col("end") > pl.col("time")))
        .select(*by, pl.col("time").alias("start"), "end", *flags)
    )
    changes = pl.any_horizontal(
        pl.col("start") != pl.col("end").shift(1), *(pl.col(c).ne_missing(pl.col(c).shift(1)) for c in (*by, *flags))
    )
    merged = segments.group_by(changes.fill_null(True).cum_sum().alias("#"), maintain_order=True)
    return merged.agg(pl.col(*by, "start").first(), pl.col("end").last(), pl.col(*flags).first()).drop("#")


def sweep_length(intervals: pl.DataFrame, by: Sequence[str], flags: Sequence[str]) -> pl.DataFrame:
    """Return the summed lengths of the segments of :func:`sweep` by their flags."""
    length = (pl.col("end") - pl.col("start")).sum().alias("length")
    return sweep(intervals, by, flags).group_by(*by, *flags).agg(length).sort(*by, *reversed(flags))


def union_length(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the length of the union per group."""
    return _lengths(intervals, union(intervals, by), by)


def difference(a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the segments that ``a`` covers and ``b`` does not."""
    return union(_two_sets(a, b, by).filter(pl.col("a") & ~pl.col("b")), by)


def intersection(a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the segments that ``a`` and ``b`` cover."""
    return union(_two_sets(a, b, by).filter(pl.col("a") & pl.col("b")), by)


def difference_length(a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the length of ``a`` minus ``b`` per group of ``a``."""
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


def length_inside(intervals: pl.DataFrame, segments: pl.DataFrame, by: Sequence[str] = ()) -> pl.Series:
    """Return the part of each interval that the segments of its group cover."""
    if not by:
        group = pl.lit(0).alias("group")
        return length_inside(intervals.with_columns(group), segments.with_columns(group), ["group"])
    length = pl.col("end") - pl.col("start")
    known = segments.sort("start").select(*by, "start", "end", time="start", before=length.cum_sum().over(by) - length)

    def until(column: str) -> pl.Series:
        points = intervals.select(*by, time=column).with_row_index("number").sort("time")
        matched = points.join_asof(known, on="time", by=list(by), strategy="backward", check_sortedness=False)
        covered = (pl.col("before") + pl.min_horizontal("time", "end") - pl.col("start")).fill_null(0)
        return matched.with_columns(covered=covered).sort("number")["covered"]

    return until("end") - until("start")


def gaps(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the times between an interval and the latest end of those before it."""
    ordered = intervals.with_row_index("row").drop_nulls(["start", "end"]).sort(*by, "start", "end", maintain_order=True)
    before = pl.max_horizontal("start", "end").cum_max().shift(1)
    gap = ordered.with_columns(before=before.over(*by) if by else before).filter(pl.col("start") > pl.col("before"))
    return gap.select("row", start="before", end="start")


def innermost(points: pl.DataFrame, ranges: pl.DataFrame, by: Sequence[str], order: Sequence[str] = ()) -> pl.Series:
    """Return the row number in ``ranges`` of the innermost range around each point."""
    numbered = (
        ranges.with_row_index("range").filter(pl.col("end") > pl.col("start")).join(points.select(by).unique(), on=list(by), how="semi")
    )
    begins = numbered.select(*by, *order, "range", time="start", delta=pl.lit(1, pl.Int32), other=-pl.col("end"))
    ends = numbered.select(*by, time="end", delta=pl.lit(-1, pl.Int32), other=-pl.col("start"))
    # At equal times, ends come before starts; of ranges that start together the longest is the outermost.
    changes = pl.concat([begins, ends], how="diagonal").sort(*by, "time", "delta", "other", *order, "range")
    depth = pl.col("delta").cum_sum().over(*by)
    # After a range has ended, the innermost range is the last one that started at the remaining depth.
    changes = (
        changes.with_columns(depth=depth)
        .with_columns(pl.col("range").forward_fill().over(*by, "depth"))
        .with_columns(pl.when(pl.col("depth") > 0).then(pl.col("range")))
        .unique([*by, "time"], keep="last", maintain_order=True)
        .select(*by, "time", "range")
    )
    moments = points.select(*by, pl.col("time").cast(pl.Int64)).with_row_index("point").sort("time")
    joined = moments.join_asof(changes.sort("time"), on="time", by=list(by), strategy="backward", check_sortedness=False)
    return joined.sort("point")["range"]


def nested(ranges: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return the row number of the innermost range around each range, and its end."""
    rows = ranges.with_row_index("row").drop_nulls(["start", "end"])
    rows = rows.sort(*by, "start", "end", "row", descending=[*(False for _ in by), False, True, False])
    group = rows.select(pl.struct(by).rle_id()).to_series().to_list()
    numbers, starts, ends = rows["row"].to_list(), rows["start"].to_list(), rows["end"].to_list()
    parents: list[int | None] = []
    stack: list[int] = []
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if i and group[i] != group[i - 1]:
            stack.clear()
        while stack:
            last = stack[-1]
            inside = ends[last] - start
            if inside > 0:
                if end <= ends[last]:
                    break
                if 2 * inside >= end - start:
                    ends[i] = ends[last]
                    break
                ends[last] = start
            stack.pop()
        parents.append(numbers[stack[-1]] if stack else None)
        if end > start:
            stack.append(i)
    known = pl.DataFrame({"row": numbers, "parent": parents, "end": ends}, schema={"row": pl.UInt32, "parent": pl.UInt32, "end": pl.Int64})
    return ranges.select("start").with_row_index("row").join(known, on="row", how="left", maintain_order="left").select("parent", "end")


def first_of(points: pl.DataFrame, rows: pl.DataFrame, by: Sequence[str], order: Sequence[str]) -> pl.Series:
    """Return the number of the first row with the group and number of each point."""
    keys = [*by, "number"]
    known = rows.with_row_index("row").drop_nulls([*keys, order[0]]).sort(order, maintain_order=True)
    firsts = known.unique(keys, keep="first", maintain_order=True).select(*keys, "row")
    return points.select(keys).join(firsts, on=keys, how="left", maintain_order="left")["row"]
