"""Idle time of the streams of a device by cause, and the one definition of these causes."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.device import Idle
from ..toolkit.intervals import first_of, gaps
from ..toolkit.places import Places, process_conditions
from ..toolkit.windows import windows, with_window

# A gap that a typical launch explains: 30 microseconds.
KERNEL_WAIT_NS: Final = 30_000

_STREAM: Final = ["node", "process", "device", "stream"]


def idle(store: Store) -> tuple[Idle, ...]:
    """Sum the gaps in every stream by cause; streams without gaps have no row.

    A gap is between a kernel, copy or memset and the latest end of those before it on the same stream; :func:`by_cause` divides it. The
    time between two profiles of a process does not count.
    """
    places = Places(store)
    profiled = windows(store, "process")
    rows = []
    for condition in process_conditions(store):
        runs = stream_runs(store, condition).with_columns(pl.col("stream").fill_null(0))
        for row in _gaps(with_window(runs, profiled)).iter_rows(named=True):
            location = places.process(row.pop("process"), row.pop("node"))
            rows.append((location.order, Idle(node=location.node, rank=location.rank, **row)))
    return tuple(row for _, row in sorted(rows, key=lambda item: (item[0], item[1].device, item[1].stream)))


def stream_runs(store: Store, condition: str) -> pl.DataFrame:
    """Return kernels, copies and memsets, with ``launched``: end of the launch call."""
    runs = store.frame(f"""
        SELECT e.node, e.process, e.device, e.stream, e.start_ns AS start, e.end_ns AS "end", e.correlation AS number
        FROM device_run AS e WHERE {condition}
    """)
    launches = launch_calls(store, condition)
    launch = first_of(runs, launches, ["process"], ["start", "end"])
    return runs.drop("number").with_columns(launched=launches["end"].gather(launch))


def launch_calls(store: Store, condition: str) -> pl.DataFrame:
    """Return launch calls with process, ``number`` (correlation), start and end (ns)."""
    return store.frame(f"""
        SELECT e.process, e.correlation AS number, e.start_ns AS start, e.start_ns + e.duration_ns AS "end" FROM host_event AS e
        WHERE e.kind = 'launch' AND e.correlation IS NOT NULL AND {condition}
    """)


def _gaps(runs: pl.DataFrame) -> pl.DataFrame:
    between = gaps(runs, [*_STREAM, "window"])
    return (
        runs.select(pl.col(*_STREAM, "launched").gather(between["row"]))
        .with_columns(between["start"], between["end"])
        .with_columns(ready())
        .group_by(_STREAM)
        .agg(gaps=pl.len(), **by_cause())
        .sort(_STREAM)
    )


def ready() -> pl.Expr:
    """Return when the work after a gap was ready: null if its launch is unknown.

    Columns: ``start`` and ``end`` of the gap, ``launched``, the end of the launch call of that work. Until then the gap is the host's."""
    return pl.col("launched").clip(pl.col("start"), pl.col("end")).alias("ready")


def by_cause() -> dict[str, pl.Expr]:
    """Return the sums of gaps (``start``, ``ready``, ``end``) by cause, in ns.

    A gap is divided where the launch call of the work after it ended. Before: host wait. After: kernel wait if that part is shorter than 30
    microseconds, which a typical launch explains; else other, which also has the gaps before work whose launch is not in the trace.
    ``waiting_ns``: the part of other after a launch."""
    length, waited = pl.col("end") - pl.col("start"), pl.col("end") - pl.col("ready")
    short = (waited < KERNEL_WAIT_NS).fill_null(False)
    return {
        "host_wait_ns": (pl.col("ready") - pl.col("start")).sum(),
        "kernel_wait_ns": waited.filter(short).sum(),
        "other_ns": pl.when(pl.col("ready").is_null()).then(length).otherwise(waited).filter(~short).sum(),
        "waiting_ns": waited.filter(~short).sum(),
    }
