"""Operators and signatures of the run -> what the inputs are, and the work of a call."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from .operator_work import OwnedWork
from .signature_texts import TEXTS, signature_texts
from .signatures import parse
from .work import OWNERS, work_of

FIGURES: Final = {
    "flop": pl.Int64, "model_flop": pl.Int64, "bytes": pl.Int64, "compute_type": pl.String, "matrix": pl.Boolean,
}  # fmt: skip


def call_shapes(store: Store, owned: OwnedWork) -> pl.DataFrame:
    """Return a row per operator and signature of the calls.

    Columns: operator, signature (null: unknown), TEXTS (JSON, null if unknown), and FIGURES, those of
    :class:`.call_work.CallWork`, null if unknown."""
    used = owned.calls.select("operator", "signature").unique()
    texts = signature_texts(store, used["signature"].drop_nulls().unique())
    rows = used.join(texts, on="signature", how="left")
    # Signatures also differ by call stack and module: each distinct input is parsed once.
    inputs = rows.select("operator", *TEXTS).unique()
    figures = pl.DataFrame([_figures(*row) for row in inputs.iter_rows()], schema=FIGURES, orient="row")
    return rows.join(pl.concat([inputs, figures], how="horizontal"), on=["operator", *TEXTS], how="left", nulls_equal=True)


def _figures(operator: str, *texts: str | None) -> tuple[int | None, int | None, int | None, str | None, bool]:
    signature = parse(operator, *texts)
    if signature is None:
        return None, None, None, None, operator in OWNERS
    work = work_of(signature)
    return work.flop, work.model_flop, work.bytes, work.compute_type, work.matrix
