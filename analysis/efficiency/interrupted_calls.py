"""Operator calls that a checkpoint interrupts: calls of a process without device work -> those that computed something.

Recomputation stops at the operator that wants the last tensor of the forward pass to be saved: its call raises an exception before it
computes, but the profiler records it. On a device such a call launches nothing; on the CPU it differs from the call of the forward pass in
that no operator runs within it.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from .signature_texts import TEXTS, signature_texts

_THREAD: Final = ["process", "tid"]


def without_interrupted(store: Store, calls: pl.Series, operators: pl.DataFrame, detaching: list[int]) -> pl.Series:
    """Return the calls that computed something.

    ``calls``: rows in ``operators``: process, tid, name, start, end, signature, sequence, forward_thread. A call is interrupted if it is
    forward work without operators within it, and another call with the same inputs has some. ``detaching``: names of operators that the
    hook of the checkpoint calls; these do not count."""
    forward_work = (pl.col("sequence") >= 0) & (pl.col("forward_thread").fill_null(0) <= 0)
    rows = operators[calls].with_columns(call=calls, inner=_with_inner(operators, detaching)[calls])
    suspects, complete = rows.filter(forward_work & ~pl.col("inner")), rows.filter("inner")
    if suspects.is_empty() or complete.is_empty():
        return calls
    texts = signature_texts(store, rows["signature"].drop_nulls().unique())
    suspects, complete = (frame.join(texts, on="signature") for frame in (suspects, complete))
    interrupted = suspects.join(complete, on=["process", "name", *TEXTS], how="semi", nulls_equal=True)["call"]
    return calls.filter(~calls.is_in(interrupted.implode()))


def _with_inner(operators: pl.DataFrame, detaching: list[int]) -> pl.Series:
    """Return whether an operator starts within each; false for those of ``detaching``."""
    rows = operators.with_row_index("row").filter(~pl.col("name").is_in(detaching))
    rows = rows.sort(*_THREAD, "start", "end", descending=[False, False, False, True], nulls_last=True, maintain_order=True)
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in _THREAD)
    inner = rows.filter(same & (pl.col("start").shift(-1) < pl.col("end")))["row"]
    return pl.Series([False]).new_from_index(0, operators.height).scatter(inner, True)
