"""Inputs of operators as the store has them: ids of signatures -> their JSON texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import polars as pl

from ...ingest.store.store import Store

TEXTS: Final = ("input_dims", "input_types", "input_strides", "concrete_inputs")
_SIGNATURES: Final = f"SELECT id AS signature, {', '.join(TEXTS)} FROM signature WHERE list_contains(?, id)"


def signature_texts(store: Store, ids: Iterable[int]) -> pl.DataFrame:
    """Return a row per signature: signature (id) and TEXTS, null if unknown."""
    listed = list(ids)
    if not listed:
        return pl.DataFrame(schema={"signature": pl.Int32, **dict.fromkeys(TEXTS, pl.String)})
    return store.frame(_SIGNATURES, [listed])
