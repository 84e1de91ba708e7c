"""Run stores made by hand, with values that can be computed on paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import polars as pl
import pytest
from empty_stores import empty_store
from postrun.ingest.store import Store
from postrun.ingest.store.schema import SCHEMA

Rows = list[dict[str, Any]]

# `name` columns hold text here; the maker turns them into ids. Kernel classes come from `names`: text -> (short, precision, category).
_NAMED = {"device_event", "host_event", "annotation"}
_POLARS = {
    "VARCHAR": pl.String, "BIGINT": pl.Int64, "INTEGER": pl.Int32, "DOUBLE": pl.Float64, "BOOLEAN": pl.Boolean, "DEVICE_KIND": pl.String,
    "HOST_KIND": pl.String,
}  # fmt: skip


class StoreMaker:
    """Makes stores in memory; every call makes a new one. Rows lack what they do not need: node and process 0, device 0, stream 7."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack

    def __call__(
        self,
        *,
        names: dict[str, tuple[str, str, str]] | None = None,
        nodes: Rows | None = None,
        processes: Rows | None = None,
        **tables: Rows,
    ) -> Store:
        store = self.stack.enter_context(empty_store())
        rows_of: dict[str, Rows] = {
            "node": [{"id": 0, "hostname": "host-0"}] if nodes is None else nodes,
            "process": [{"id": 0, "node": 0, "pid": 100, "rank": 0}] if processes is None else processes,
            **tables,
        }
        for table, rows in rows_of.items():
            if rows:
                self._append(store, table, [dict(row) for row in rows])
        for text, (short, precision, category) in (names or {}).items():
            store.name_ids([text])
            store.connection.execute(
                "UPDATE name SET short = ?, precision = ?, category = ? WHERE text = ?", [short, precision, category, text]
            )
        return store

    @staticmethod
    def _append(store: Store, table: str, rows: Rows) -> None:
        if table in _NAMED:
            defaults = {"node": 0, "process": 0, **({"device": 0, "stream": 7} if table == "device_event" else {"tid": 1})}
            rows = [{**defaults, **row} for row in rows]
            for row in rows:
                row["name"] = store.name_ids([row.get("name", "name")])[0]
        columns = {c: _POLARS[kind] for c, kind in SCHEMA[table].items() if any(c in row for row in rows)}
        store.append(table, pl.DataFrame([[row.get(c) for c in columns] for row in rows], schema=columns, orient="row"))


@pytest.fixture
def make_store() -> Iterator[Callable[..., Store]]:
    """Return a maker of stores from rows per table.

    Example: ``make_store(device_event=[{"kind": "kernel", "start_ns": 0, "duration_ns": 5}], ...)``.
    """
    with ExitStack() as stack:
        yield StoreMaker(stack)


@pytest.fixture(scope="module")
def make_module_store() -> Iterator[Callable[..., Store]]:
    """``make_store`` for fixtures of a module."""
    with ExitStack() as stack:
        yield StoreMaker(stack)


@pytest.fixture(scope="session")
def store_maker() -> Callable[[], AbstractContextManager[Callable[..., Store]]]:
    """``make_store`` as a context manager, for each example of a property test."""

    @contextmanager
    def opened() -> Iterator[Callable[..., Store]]:
        with ExitStack() as stack:
            yield StoreMaker(stack)

    return opened
