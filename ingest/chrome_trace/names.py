"""The distinct strings of a trace: what each means as the name of an event, and its id in the store."""

from __future__ import annotations

import polars as pl

from ..kernels.categories import features
from ..store.store import Store


class Names:
    """The distinct strings of one file, with their features and, once used as names, their ids in the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.table = pl.DataFrame(
            schema={"text": pl.String, "id": pl.Int32, "number": pl.Float64, **features(pl.Series([], dtype=pl.String)).schema}
        )

    def add(self, texts: list[str]) -> None:
        if not texts:
            return
        text = pl.Series("text", texts, pl.String)
        fresh = text.to_frame().with_columns(id=pl.lit(None, pl.Int32), number=_numbers()).hstack(features(text))
        self.table = pl.concat([self.table, fresh], how="vertical", rechunk=True)

    def text(self, index: int) -> str:
        return str(self.table.item(index, "text"))

    def intern(self, indices: pl.Series) -> None:
        """Give the strings at ``indices`` an id of the store."""
        used = indices.unique().drop_nulls()
        fresh = used.filter(self.table["id"].gather(used).is_null())
        if fresh.len():
            ids = self.store.name_ids(self.table["text"].gather(fresh).to_list())
            column = self.table["id"].scatter(fresh, pl.Series(ids, dtype=pl.Int32))
            self.table = self.table.with_columns(id=column)

    def of(self, indices: pl.Series, columns: list[str]) -> pl.DataFrame:
        """Return the columns of strings; a null name has the id of the empty name."""
        rows = self.table.select(pl.col(columns).gather(pl.lit(indices.cast(pl.UInt32))))
        if "id" in columns and indices.null_count():
            rows = rows.with_columns(pl.col("id").fill_null(self.store.name_ids([""])[0]))
        return rows

    def texts(self, indices: pl.Series) -> pl.Series:
        return self.of(indices, ["text"])["text"]


def _numbers() -> pl.Expr:
    """Return the finite numbers from 0 that texts represent, null for others."""
    number = pl.col("text").cast(pl.Float64, strict=False)
    return pl.when(number.is_finite() & (number >= 0)).then(number)
