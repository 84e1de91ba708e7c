"""Calls of matrix operators that own the work launched within them: operators of a trace -> their owning calls.

The outermost call owns, because its FLOPs are those of the complete call. A transform of functions is the exception: under ``vmap`` an
outer call has the sizes of a single example, and under ``jvp`` it contains the products of the tangents. Then the calls within have more
FLOPs than the outer one, and own their work themselves.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.intervals import innermost, outermost
from .signature_texts import TEXTS, signature_texts
from .signatures import parse
from .work import work_of

_MOST_LEVELS: Final = 16  # of owners within owners; functorch nests a few calls per transform
_THREAD: Final = ["process", "tid"]
_INPUTS: Final = ["name", "signature"]


def owning_calls(store: Store, operators: pl.DataFrame, owners: dict[int, str]) -> pl.DataFrame:
    """Return the calls that own work.

    Columns: process, tid, start, end, call (row in ``operators``). ``operators``: process, tid, name, start, end, number, signature.
    ``owners``: id of the name -> operator."""
    calls = operators.with_row_index("call").filter(pl.col("name").is_in(list(owners)), pl.col("end") > pl.col("start"))
    calls = calls.sort("number", maintain_order=True).select(*_THREAD, "start", "end", "call", *_INPUTS)
    levels = _levels(calls)
    return (levels[0] if len(levels) == 1 else _largest(levels, _flop(store, calls, owners))).drop(_INPUTS)


def _levels(calls: pl.DataFrame) -> list[pl.DataFrame]:
    """Split calls by the number of calls around them, from the outermost."""
    levels: list[pl.DataFrame] = []
    while (calls.height or not levels) and len(levels) < _MOST_LEVELS:
        levels.append(outermost(calls, _THREAD))
        calls = calls.join(levels[-1].select("call"), on="call", how="anti", maintain_order="left")
    return levels


def _largest(levels: list[pl.DataFrame], flop: pl.DataFrame) -> pl.DataFrame:
    """Return the outermost calls.

    The calls within one replace it if they have more FLOPs together."""
    tables: list[pl.DataFrame] = []
    for level in levels:
        begin = level.select(*_THREAD, time="start")
        table = level.join(flop, on=_INPUTS, how="left", nulls_equal=True, maintain_order="left").with_row_index("row")
        around = innermost(begin, tables[-1], _THREAD) if tables else pl.lit(None, pl.UInt32)
        tables.append(table.with_columns(pl.col("flop").fill_null(0.0), around=around, replaced=pl.lit(False)))
    for depth in reversed(range(1, len(tables))):
        sums = tables[depth].group_by(row="around").agg(within=pl.col("flop").sum())
        outer = tables[depth - 1].join(sums, on="row", how="left", maintain_order="left")
        replaced = (pl.col("within") > pl.col("flop")).fill_null(False)
        tables[depth - 1] = outer.with_columns(replaced=replaced, flop=pl.max_horizontal("flop", "within")).drop("within")
    owning: list[pl.DataFrame] = []
    opened: pl.Series | None = None
    for table in tables:
        inside = table if opened is None else table.filter(pl.col("around").is_in(opened.implode()))
        owning.append(inside.filter(~pl.col("replaced")))
        opened = inside.filter("replaced")["row"]
    return pl.concat(owning).select(levels[0].columns).sort(*_THREAD, "start", "call")


def _flop(store: Store, calls: pl.DataFrame, owners: dict[int, str]) -> pl.DataFrame:
    """Return the FLOPs of each operator and signature.

    Columns: name, signature, flop (f64; null if unknown)."""
    used = calls.select(_INPUTS).unique()
    texts = used.join(signature_texts(store, used["signature"].drop_nulls().unique()), on="signature", how="left", nulls_equal=True)
    flop = []
    for name, *inputs in texts.select("name", *TEXTS).iter_rows():
        signature = parse(owners[name], *inputs)
        flop.append(None if signature is None else work_of(signature).flop)
    return texts.select(_INPUTS).with_columns(flop=pl.Series(flop, dtype=pl.Float64))
