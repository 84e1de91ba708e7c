"""Operators and signatures of the run -> what the inputs are, and the work of a call."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from .operator_work import OwnedWork
from .signature_texts import ESTIMATE, TEXTS, signature_texts
from .signatures import parse
from .template_work import template_work
from .work import OWNERS, CallWork, work_of

FIGURES: Final = {
    "flop": pl.Int64, "model_flop": pl.Int64, "bytes": pl.Int64, "compute_type": pl.String, "matrix": pl.Boolean,
    "least_flop": pl.Int64, "most_flop": pl.Int64,
}  # fmt: skip


def call_shapes(store: Store, owned: OwnedWork) -> pl.DataFrame:
    """Return a row per operator and signature of the calls.

    Columns: operator, signature (null: unknown), TEXTS (JSON, null if unknown), and FIGURES, those of
    :class:`.call_work.CallWork` with ``flop_bounds`` as two columns, null if unknown."""
    used = owned.calls.select("operator", "signature").unique()
    texts = signature_texts(store, used["signature"].drop_nulls().unique())
    rows = used.join(texts, on="signature", how="left")
    # Signatures also differ by call stack and module: each distinct input is parsed once.
    key = ["operator", *TEXTS, ESTIMATE]
    inputs = rows.select(key).unique()
    figures = pl.DataFrame([_figures(*row) for row in inputs.iter_rows()], schema=FIGURES, orient="row")
    return rows.join(pl.concat([inputs, figures], how="horizontal"), on=key, how="left", nulls_equal=True).drop(ESTIMATE)


def _figures(
    operator: str, dims: str | None, types: str | None, strides: str | None, concrete: str | None, estimate: float | None
) -> tuple[int | None, int | None, int | None, str | None, bool, int | None, int | None]:
    signature = parse(operator, dims, types, strides, concrete)
    work = template_work(operator, signature, estimate) or (work_of(signature) if signature else CallWork(matrix=operator in OWNERS))
    return work.flop, work.model_flop, work.bytes, work.compute_type, work.matrix, *(work.flop_bounds or (None, None))
