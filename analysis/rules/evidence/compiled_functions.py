"""Sums of compilations by function: those within the profile, and those of the logs."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import polars as pl

from ...report.work_details import CompiledFunction
from ...toolkit.intervals import union_length
from .recompile_advice import kind_of

MOST: Final = 100  # functions in the details
_FACTS: Final = ("function", "file", "line")
_SUMS: Final = ("compilations", "recompilations", "time_ns", "late_ns", "idle_ns")
_LOG_SUMS: Final = ("logged_compilations", "logged_recompilations", "logged_ns")
_LEADING: Final = ("idle_ns", "late_ns", "recompilations", "limit_reached", "time_ns", "logged_ns")  # of the order, largest first


def with_keys(rows: pl.DataFrame, log: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add ``key``, the number of the function, to the compilations of profile and log.

    Functions are one if name, file and line are equal, in all processes. Without a name the number in the process decides, else the module
    and the caller."""
    line, process = pl.col("line").cast(pl.String), pl.col("process").cast(pl.String)
    named = pl.concat_str([pl.lit("named"), "function", "file", line], separator="\0", ignore_nulls=True)
    numbered = pl.concat_str([pl.lit("numbered"), process, "frame"], separator="\0")
    called = pl.concat_str([pl.lit("called"), process, "module", "caller"], separator="\0")
    known = pl.when(pl.col("function").is_not_null()).then(named).otherwise(numbered)
    texts = pl.concat([rows.select(key=pl.coalesce(known, called)), log.select(key=known)])["key"]
    keys = texts.rank("dense").cast(pl.Int64)
    return rows.with_columns(key=keys.head(rows.height)), log.with_columns(key=keys.tail(log.height))


def compiled_functions(rows: pl.DataFrame, log: pl.DataFrame, idle: pl.DataFrame, most: int) -> tuple[CompiledFunction, ...]:
    """Return the functions, those that cost most first.

    ``rows``, ``log``: compilations of the profile and of logs, with keys. ``idle``: key, process, device, start, end of gaps of devices.
    ``most``: number of functions without those at the limit."""
    late = rows.filter("late")
    of_profile = rows.group_by("key").agg(
        compilations=(~pl.col("backward")).sum(), recompilations=(pl.col("late") & ~pl.col("backward")).sum()
    )
    of_log = log.group_by("key").agg(
        logged_compilations=(~pl.col("backward")).sum(),
        logged_recompilations=((pl.col("version") > 0) & ~pl.col("backward") & ~pl.col("limit_reached")).sum(),
        limit_reached=pl.col("limit_reached").any(),
    )
    table = of_profile.join(of_log, on="key", how="full", coalesce=True)
    lengths = {
        "time_ns": _lengths(rows, ["key", "process"]),
        "late_ns": _lengths(late, ["key", "process"]),
        "idle_ns": _lengths(idle, ["key", "process", "device"]),
        "logged_ns": _lengths(log.drop_nulls("end"), ["key", "process"]),
    }
    for column, length in lengths.items():
        table = table.join(length.rename({"length": column}), on="key", how="left")
    table = table.with_columns(pl.col(*_SUMS, *_LOG_SUMS).fill_null(0).cast(pl.Int64), pl.col("limit_reached").fill_null(False))
    table = table.sort(*_LEADING, "key", descending=[*[True] * len(_LEADING), False])
    kept = table.with_row_index("row").filter((pl.col("row") < most) | pl.col("limit_reached")).head(MOST)
    keys = kept["key"].to_list()
    rows, log = rows.filter(pl.col("key").is_in(keys)), log.filter(pl.col("key").is_in(keys))
    return tuple(
        _function(sums, rows.filter(pl.col("key") == sums["key"]), log.filter(pl.col("key") == sums["key"]))
        for sums in kept.iter_rows(named=True)
    )


def _lengths(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return the time of each function, added up over processes and devices."""
    if rows.is_empty():
        return pl.DataFrame(schema={"key": pl.Int64, "length": pl.Int64})
    lengths = union_length(rows.select(*by, "start", "end"), by)
    return lengths.group_by("key").agg(pl.col("length").sum())


def _function(sums: dict[str, Any], rows: pl.DataFrame, log: pl.DataFrame) -> CompiledFunction:
    shared = ("process", *_FACTS)
    everything = pl.concat([rows.select(shared), log.select(shared)])
    facts: dict[str, Any] = {column: next(iter(everything[column].drop_nulls()), None) for column in _FACTS}
    return CompiledFunction(
        **facts,
        module=_usual(rows["module"]),
        caller=_usual(rows["caller"]),
        ranks=everything["process"].n_unique(),
        **{name: sums[name] for name in (*_SUMS, *_LOG_SUMS)},
        reason=_reason(rows, log),
        limit_reached=bool(sums["limit_reached"]),
        graph_breaks=int(log["graph_breaks"].sum()),
        graph_break=next(iter(log["graph_break"].drop_nulls()), None),
    )


def _reason(rows: pl.DataFrame, log: pl.DataFrame) -> str | None:
    """Return the first reason of the most frequent kind, of late ones if any."""
    for reasons in (rows.filter("late")["reason"], rows["reason"], log["reason"]):
        known = reasons.drop_nulls().to_list()
        if known:
            kinds = [kind_of(reason) for reason in known]
            return str(known[kinds.index(Counter(kinds).most_common(1)[0][0])])
    return None


def _usual(texts: pl.Series) -> str | None:
    known = [text for text in texts if text]
    return Counter(known).most_common(1)[0][0] if known else None
