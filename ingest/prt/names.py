"""Names of one trace file -> ids of the run store; a name gets an id when the first stored row uses it."""

from __future__ import annotations

from typing import Final

import polars as pl

from ..kernels.categories import features
from ..store.schema import ENUM_VALUES
from ..store.store import Store

NO_NAME: Final = "(no name)"
# Kinds of calls by the number in a row; the last one represents all other numbers.
HOST_KINDS: Final = pl.Series(["launch", "sync", "call"], dtype=pl.Enum(ENUM_VALUES["HOST_KIND"]))
# The tracer adds two parts to the names of calls: their version and the kind of their default stream.
_VERSION: Final = r"^(cuda[A-Z]\w*?)(?:_ptsz|_ptds)?(?:_v\d{4,})?$|^(cu[A-Z]\w*?)(?:_ptsz|_ptds)?$"
_LOADER: Final = "enumerate(DataLoader)#"


class CaptureNames:
    """The names of one file, addressed by their number in it."""

    def __init__(self, store: Store, texts: list[str]) -> None:
        self.store = store
        self._texts = pl.Series("text", texts, pl.String)
        self._ids = pl.Series([None] * len(texts), dtype=pl.Int32)
        self._features = features(self._texts)
        self._loads = self._texts.str.starts_with(_LOADER)

    def texts(self, column: pl.Series) -> pl.Series:
        """Return the text of each name; null without one."""
        return self._texts.gather(column)

    def ids(self, column: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return ids in the store, and the numbers at the ends of the names."""
        used = column.unique().drop_nulls()
        fresh = used.filter(self._ids.gather(used).is_null())
        if len(fresh):
            self._ids = self._ids.scatter(fresh, self.store.name_ids(self._texts.gather(fresh).to_list()))
        ids = self._ids.gather(column)
        if ids.null_count():
            ids = ids.fill_null(self.store.name_ids([NO_NAME])[0])
        return ids, self._features["value"].gather(column)

    def loads(self, column: pl.Series) -> pl.Series:
        """Whether each name is the framework's range around waiting for the data loader."""
        return self._loads.gather(column).fill_null(False)

    def kinds(self, column: pl.Series) -> pl.Series:
        """Return the kind of call by each name, as an index of ``HOST_KINDS``."""
        indices = {kind: index for index, kind in enumerate(HOST_KINDS)}
        kinds = self._features["call"].cast(pl.String).replace_strict(indices, return_dtype=pl.Int32)
        return kinds.gather(column).fill_null(len(indices) - 1)

    def without_versions(self) -> list[str]:
        """Return all texts, those of calls without the additions of the tracer."""
        text = pl.col("text")
        plain = pl.coalesce(text.str.extract(_VERSION, 1), text.str.extract(_VERSION, 2), text)
        return self._texts.to_frame().select(plain.alias("text"))["text"].to_list()

    def store_ids(self, texts: pl.Series) -> pl.Series:
        """Return ids in the store for texts with few distinct values."""
        distinct = texts.unique(maintain_order=True).to_list()
        return texts.replace_strict(distinct, self.store.name_ids(distinct), return_dtype=pl.Int32)
