"""The signatures of operators in one trace: combinations of the scanner -> texts of their tensors, and ids of the store."""

from __future__ import annotations

from typing import Final

import polars as pl

from ..store.signatures import COLUMNS, TEXT_COLUMNS
from ..store.store import Store

MEMBERS: Final = (
    "Input Dims", "Input type", "Input Strides", "Concrete Inputs", "Call stack", "Module Hierarchy", "kernel_file", "kernel_flop",
)  # fmt: skip
"""Members of ``args`` that are the signature, in the order of :data:`..store.signatures.COLUMNS`."""
_TEXTS: Final = dict.fromkeys(COLUMNS, pl.String())
_JSON: Final = r"^(input|concrete)_.*$"


class TraceSignatures:
    """The distinct signatures of one file, by the scanner's ids, with their ids in the store once operators use them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.table = pl.DataFrame(schema={**_TEXTS, "used": pl.Boolean, "id": pl.Int32})

    def add(self, combinations: list[tuple[str | None, ...]]) -> None:
        if combinations:
            fresh = pl.DataFrame(combinations, schema=_TEXTS, orient="row").with_columns(used=pl.lit(False), id=pl.lit(None, pl.Int32))
            self.table = pl.concat([self.table, fresh], how="vertical", rechunk=True)

    def tensors(self, indices: pl.Series) -> pl.DataFrame:
        """Return sizes and types of inputs as JSON texts: ``shapes``, ``element_types``."""
        return self.table.select(pl.col(c).gather(pl.lit(indices)) for c in COLUMNS[:2]).rename(
            dict(zip(COLUMNS[:2], ("shapes", "element_types"), strict=True))
        )

    def ids(self, indices: pl.Series) -> pl.Series:
        """Return the ids of the store; null without a signature, or beyond the limits."""
        used = indices.unique().drop_nulls()
        fresh = used.filter(~self.table["used"].gather(used))
        if fresh.len():
            rows = self.table.select(pl.col(COLUMNS).gather(pl.lit(fresh)))
            ids = self.table["id"].scatter(fresh, self.store.signatures.ids(_stored(rows)))
            self.table = self.table.with_columns(id=ids, used=self.table["used"].scatter(fresh, True))
        return self.table["id"].gather(indices)


def _stored(rows: pl.DataFrame) -> pl.DataFrame:
    """Return signatures as the store has them; empty texts are unknown."""
    flop = pl.col("kernel_flop").cast(pl.Float64, strict=False)
    return rows.with_columns(
        pl.col(_JSON).str.replace_all(r"\s*\n\s*", ""),  # some programs write one number per line
        kernel_flop=pl.when(flop.is_finite() & (flop >= 0)).then(flop),
    ).with_columns(pl.col(TEXT_COLUMNS).replace("", None))
