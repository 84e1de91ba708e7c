"""Counts of the SQL statements and Polars queries that a piece of work makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import polars as pl
from postrun.ingest.store.queries import Queries


@dataclass
class QueryCounts:
    """``statements``: that the store answered, without those whose answer it kept. ``collects``: of Polars, eager steps included."""

    statements: int = 0
    collects: int = 0


@contextmanager
def query_counts() -> Iterator[QueryCounts]:
    """Count until the end of the block."""
    counts = QueryCounts()
    read, batches, collect, eager = Queries._read, Queries.batches, pl.LazyFrame.collect, pl.LazyFrame._collect_eager

    def counted(name: str, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            setattr(counts, name, getattr(counts, name) + 1)
            return original(*args, **kwargs)

        return call

    try:
        Queries._read = counted("statements", read)  # type: ignore[method-assign]
        Queries.batches = counted("statements", batches)  # type: ignore[method-assign]
        pl.LazyFrame.collect = counted("collects", collect)  # type: ignore[method-assign]
        pl.LazyFrame._collect_eager = counted("collects", eager)  # type: ignore[method-assign]
        yield counts
    finally:
        Queries._read = read  # type: ignore[method-assign]
        Queries.batches = batches  # type: ignore[method-assign]
        pl.LazyFrame.collect = collect  # type: ignore[method-assign]
        pl.LazyFrame._collect_eager = eager  # type: ignore[method-assign]
