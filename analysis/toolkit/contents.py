"""Contents of a run store: its small tables, read once, and the kinds of its events."""

from __future__ import annotations

from typing import Final, Literal

import polars as pl

from ...ingest.store.store import Store
from .shared import shared

RUN: Final = "SELECT * FROM run"
NODES: Final = "SELECT * FROM node ORDER BY id"
PROCESSES: Final = "SELECT * FROM process ORDER BY id"
SOURCES: Final = "SELECT * FROM source ORDER BY path, id"

Table = Literal["device_event", "host_event"]


@shared
def kinds(store: Store, table: Table) -> frozenset[str]:
    """Return the kinds of events that the table has."""
    if not store.has_rows(table):
        return frozenset()
    return frozenset(store.frame(f"SELECT DISTINCT kind FROM {table}")["kind"].cast(pl.String))


@shared
def communicates(store: Store) -> bool:
    """Return whether the run has names of communication kernels."""
    return bool(store.frame("SELECT EXISTS (FROM communication_name) AS found").item())


def stated(store: Store, column: str) -> str | None:
    """Return the text in a column of ``run``, or None."""
    texts: list[str] = store.frame(RUN)[column].drop_nulls().to_list()
    return texts[0] if texts else None


def formats(store: Store) -> frozenset[str | None]:
    """Return the formats of the files of the run."""
    return frozenset(store.frame(SOURCES)["format"])
