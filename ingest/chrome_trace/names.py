"""What do the distinct strings of a trace say as names, and which id of the store has each?"""

from __future__ import annotations

import polars as pl

from ..kernels.categories import features
from ..store.store import Store


class Names:
    """The distinct strings of one file: what each says as a name, and its id in the store once it is used as one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.table = pl.DataFrame(schema={"text": pl.String, "id": pl.Int32, **features(pl.Series([], dtype=pl.String)).schema})

    def add(self, texts: list[str]) -> None:
        if not texts:
            return
        text = pl.Series("text", texts, pl.String)
        fresh = text.to_frame().with_columns(id=pl.lit(None, pl.Int32)).hstack(features(text))
        self.table = pl.concat([self.table, fresh], how="vertical", rechunk=True)

    def text(self, index: int) -> str:
        return str(self.table.item(index, "text"))

    def intern(self, indices: pl.Series) -> None:
        """Give the strings at ``indices`` an id of the store; events without a name share the empty one."""
        used = indices.unique().drop_nulls()
        fresh = used.filter(self.table["id"].gather(used).is_null())
        if fresh.len():
            ids = self.store.name_ids(self.table["text"].gather(fresh).to_list())
            column = self.table["id"].scatter(fresh, pl.Series(ids, dtype=pl.Int32))
            self.table = self.table.with_columns(id=column)

    def of(self, indices: pl.Series, columns: list[str]) -> pl.DataFrame:
        """The named columns for each of ``indices``; null where the index is."""
        found = self.table.select(pl.col(columns).gather(pl.lit(indices.cast(pl.UInt32))))
        if "id" in columns and indices.null_count():
            found = found.with_columns(pl.col("id").fill_null(self.store.name_ids([""])[0]))
        return found
