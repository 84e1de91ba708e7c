"""Queries over a run store: SQL -> Polars frames.

An analysis asks many small questions more than once. While :meth:`Queries.unchanged` lasts, a query is answered once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from threading import local
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import duckdb
    import polars as pl

_KEPT_ROWS: Final = 10_000  # Longest result that is kept: some 100 KB. Larger ones take more memory than a second query is worth.


class Queries:
    """Reads the tables of an open run store."""

    connection: duckdb.DuckDBPyConnection

    def __init__(self) -> None:
        self._of_thread = local()

    @property
    def answers(self) -> dict[Hashable, Any] | None:
        """Results that :meth:`unchanged` keeps for this thread, or None."""
        return getattr(self._of_thread, "answers", None)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Answer equal questions of this thread once.

        The caller ensures that no row changes meanwhile.
        """
        earlier = self.answers
        self._of_thread.answers = {} if earlier is None else earlier
        try:
            yield
        finally:
            self._of_thread.answers = earlier

    def frame(self, sql: str, parameters: Sequence[Any] | None = None) -> pl.DataFrame:
        """Return the result of ``sql`` as a Polars frame; raises duckdb.Error."""
        answers = self.answers
        if answers is None:
            return self._read(sql, parameters)
        key = (sql, repr(parameters))
        rows: pl.DataFrame | None = answers.get(key)
        if rows is None:
            rows = self._read(sql, parameters)
            if rows.height <= _KEPT_ROWS:
                answers[key] = rows
        return rows.clone()

    def batches(self, sql: str, parameters: Sequence[Any] | None = None, *, rows: int) -> Iterator[pl.DataFrame]:
        """Yield the result of ``sql``, one frame of at most ``rows`` rows at a time."""
        import polars as pl

        result = self.connection.cursor().sql(sql, params=list(parameters) if parameters else None)
        for batch in result.to_arrow_reader(rows):
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            yield frame

    def _read(self, sql: str, parameters: Sequence[Any] | None) -> pl.DataFrame:
        import polars as pl

        result = self.connection.cursor().sql(sql, params=list(parameters) if parameters else None)
        if len(set(result.columns)) < len(result.columns):
            frame: pl.DataFrame = result.pl()  # gives columns of one name different names
            return frame
        try:
            return pl.DataFrame(_Rows(result))
        except pl.exceptions.ComputeError as error:
            raise _of_database(error) from error

    def has_rows(self, *tables: str) -> bool:
        """Whether any of ``tables`` may have rows.

        False is certain; rows that were deleted may still count.
        """
        rows = dict(self.frame("SELECT table_name, estimated_size FROM duckdb_tables()").iter_rows())
        return bool(sum(rows[table] for table in tables))


class _Rows:
    """Rows of a query as an Arrow stream, which Polars reads without pyarrow.

    Polars keeps the classes of its arguments. If it kept a class of DuckDB, that module would report leaks on standard error as the
    process ends.
    """

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        return self._rows.__arrow_c_stream__(requested_schema)


def _of_database(error: Exception) -> Exception:
    """Return the duckdb.Error that stopped Polars, or ``error`` itself."""
    import duckdb

    text = str(error).removeprefix("got external error: ")
    kind = text.partition(" Error:")[0].replace(" ", "").lower() + "exception"
    kinds = {name.lower(): value for name, value in vars(duckdb).items() if name.endswith("Exception")}
    return kinds[kind](text) if kind in kinds else error
