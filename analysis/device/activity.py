"""Summed device time by kind: kernels, copies, memsets and synchronization."""

from __future__ import annotations

from typing import Final

from ...ingest.store.store import Store
from ..report.device import Activity
from ..report.rows import Share
from ..toolkit.contents import kinds
from ..toolkit.shares import percent_of

_ORDER: Final = ("kernel", "memcpy", "memset", "sync")


def activity(store: Store) -> Activity:
    """Sum durations (not unions) by kind: kernels, memcpy, memset and sync.

    Kinds that do not occur have no share. ``sync_source`` is "device" if the trace has synchronization records of the device, "host" if
    only the host's blocking calls show it, None without either. A run without kernels, copies and memsets has no shares.
    """
    if not store.has_rows("device_event"):
        return Activity(shares=(), sync_source=None)
    sql = "SELECT kind::VARCHAR, sum(duration_ns)::BIGINT, count(*) FROM {} GROUP BY kind"
    totals = {kind: (total, count) for kind, total, count in store.frame(sql.format("device_event")).rows()}
    if not totals.keys() - {"sync"}:
        return Activity(shares=(), sync_source=None)
    source = "device" if "sync" in totals else None
    if source is None and "sync" in kinds(store, "host_event"):
        calls = store.frame(sql.format("host_event WHERE kind = 'sync'")).rows()
        if calls:
            totals["sync"] = calls[0][1:]
            source = "host"
    everything = sum(total for total, _ in totals.values())
    ordered = [(kind, *totals[kind]) for kind in _ORDER if kind in totals]
    return Activity(tuple(Share(kind, total, count, percent_of(total, everything)) for kind, total, count in ordered), source)
