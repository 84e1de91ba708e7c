"""Inputs of operators as the store has them: ids of signatures -> their JSON texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import polars as pl

from ...ingest.store.store import Store

TEXTS: Final = ("input_dims", "input_types", "input_strides", "concrete_inputs")
ESTIMATE: Final = "kernel_flop"
_SIGNATURES: Final = f"SELECT id AS signature, {', '.join((*TEXTS, ESTIMATE))} FROM signature WHERE list_contains(?, id)"


def signature_texts(store: Store, ids: Iterable[int]) -> pl.DataFrame:
    """Return a row per signature: signature (id), TEXTS and ESTIMATE, null if unknown.

    ESTIMATE: floating-point operations of a compiled kernel by its compiler (f64)."""
    listed = list(ids)
    if not listed:
        return pl.DataFrame(schema={"signature": pl.Int32, **dict.fromkeys(TEXTS, pl.String), ESTIMATE: pl.Float64})
    return store.frame(_SIGNATURES, [listed])
