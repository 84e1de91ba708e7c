"""Pairs begin and end events to ranges, and computes how deep ranges are nested."""

from __future__ import annotations

import polars as pl

BEGIN = ord("B")
END = ord("E")


def pair(events: pl.DataFrame, end_of_trace_ns: int) -> tuple[pl.DataFrame, int]:
    """Return begin and end events as ranges, and the number of ends without a begin.

    ``events``: rows with phase (``ord`` of B or E), pid, tid, start_ns, ordinal and any other columns. Per (pid, tid), in order of
    time, then of the file, an end closes the latest open begin, as the trace-event format has it. The result has the columns and
    rows of the begin events, with ``duration_ns`` and ``complete``; a begin without an end lasts until ``end_of_trace_ns`` and is not
    complete. Values of the end event replace nulls of the begin event.
    """
    thread = ["pid", "tid"]
    ordered = events.sort(["pid", "tid", "start_ns", "ordinal"], nulls_last=False).with_columns(
        change=pl.when(pl.col("phase") == BEGIN).then(1).otherwise(-1).cast(pl.Int64)
    )
    # An end is stray if it lowers the count of open ranges below zero and below all previous counts.
    open_now = pl.col("change").cum_sum().over(thread)
    ordered = ordered.with_columns(open=open_now).with_columns(
        lowest_before=pl.min_horizontal(pl.col("open").cum_min().shift(1).over(thread), pl.lit(0)).fill_null(0)
    )
    stray = (pl.col("phase") == END) & (pl.col("open") < pl.col("lowest_before"))
    strays = ordered.filter(stray).height
    matched = ordered.filter(~stray).with_columns(open=open_now)
    # A begin that makes n open ranges and the next end that leaves n - 1 belong together.
    level = pl.when(pl.col("phase") == BEGIN).then(pl.col("open")).otherwise(pl.col("open") + 1)
    matched = matched.with_columns(level=level)
    nest = [*thread, "level"]
    others = [c for c in events.columns if c not in {"phase", "pid", "tid", "start_ns", "ordinal", "duration_ns"}]
    end = pl.col("phase").shift(-1).over(nest) == END
    ranges = (
        matched.with_columns(
            *[pl.coalesce(c, pl.when(end).then(pl.col(c).shift(-1).over(nest))).alias(c) for c in others],
            complete=end.fill_null(False),
            closed_ns=pl.when(end).then(pl.col("start_ns").shift(-1).over(nest)).otherwise(pl.lit(end_of_trace_ns)),
        )
        .filter(pl.col("phase") == BEGIN)
        .with_columns(duration_ns=pl.max_horizontal(pl.col("closed_ns") - pl.col("start_ns"), pl.lit(0)))
    )
    return ranges.select(*events.columns, "complete").sort("ordinal"), strays


def depths(ranges: pl.DataFrame, thread: list[str]) -> pl.Series:
    """Return, per row, how many rows of the same thread enclose it (0: outermost).

    A range that starts at or after another's end is not enclosed; of two equal ranges the earlier row encloses the later one.
    A range that starts inside another and outlasts it counts as enclosed: profilers cut such ends by less than a microsecond.
    """
    length = pl.max_horizontal(pl.col("duration_ns"), pl.lit(0))
    rows = ranges.select(*thread, row=pl.int_range(pl.len()), start="start_ns", length=length)
    starts = rows.select(*thread, "row", at="start", change=pl.lit(1), turn=pl.lit(1), longest_first=-pl.col("length"))
    # Ends come before the starts of the same instant; only an empty range ends after its own start.
    turn = pl.when(pl.col("length") == 0).then(2).otherwise(0)
    ends = rows.select(*thread, "row", at=pl.col("start") + pl.col("length"), change=pl.lit(-1), turn=turn, longest_first="length")
    sweep = pl.concat([starts, ends], how="vertical_relaxed").sort([*thread, "at", "turn", "longest_first", "row"])
    open_before = pl.col("change").cum_sum().over(thread) - 1
    return sweep.with_columns(depth=open_before).filter(pl.col("change") > 0).sort("row").get_column("depth").cast(pl.Int32)
