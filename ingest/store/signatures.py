"""Distinct signatures of operators -> ids of the table ``signature``, which all files of a run share.

A signature is the combination of the columns of that table. The dictionary keeps a digest of each one, not its texts.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from .limits import SIGNATURE_BYTES, SIGNATURES
from .schema import STORED

if TYPE_CHECKING:
    import polars as pl

COLUMNS: Final = tuple(column for column in STORED["signature"] if column != "id")
TEXT_COLUMNS: Final = tuple(column for column in COLUMNS if STORED["signature"][column] == "VARCHAR")


class Signatures:
    """The signatures of a run store by digest. ``append`` adds rows to the table.

    ``left_out``: signatures without an id, because the run has more than ``SIGNATURES``, or more than ``SIGNATURE_BYTES`` of them.
    """

    def __init__(self, append: Callable[[str, pl.DataFrame], None]) -> None:
        self._append = append
        self._ids: dict[bytes, int] = {}
        self._bytes = 0
        self.left_out = 0

    def ids(self, rows: pl.DataFrame) -> pl.Series:
        """Return the ids of signatures (int32), one per row; add new ones.

        ``rows``: any of ``COLUMNS``. Null for a row without values, and for one beyond the limits.
        """
        import polars as pl

        types = {column: pl.Float64 if column == "kernel_flop" else pl.String for column in COLUMNS}
        rows = rows.select(
            (pl.col(column) if column in rows.columns else pl.lit(None)).cast(kind).alias(column) for column, kind in types.items()
        )
        ids: list[int | None] = []
        fresh: list[tuple[Any, ...]] = []
        first = len(self._ids)
        for row in rows.iter_rows():
            if all(value is None for value in row):
                ids.append(None)
                continue
            raw = repr(row).encode("utf-8", "surrogatepass")
            digest = blake2b(raw, digest_size=16).digest()
            known = self._ids.get(digest)
            if known is None:
                if len(self._ids) >= SIGNATURES or self._bytes + len(raw) > SIGNATURE_BYTES:
                    self.left_out += 1
                    ids.append(None)
                    continue
                known = self._ids[digest] = len(self._ids)
                self._bytes += len(raw)
                fresh.append(row)
            ids.append(known)
        if fresh:
            new = pl.DataFrame(fresh, schema=rows.schema, orient="row")
            self._append("signature", new.with_row_index("id", first).with_columns(pl.col("id").cast(pl.Int32)))
        return pl.Series(ids, dtype=pl.Int32)
