"""How does device time divide into kernels, copies, memsets and synchronisation?"""

from __future__ import annotations

from typing import Final

from ...ingest.store.store import Store
from ..report.model import Activity, Share
from ..toolkit.shares import percent_of

_ORDER: Final = ("kernel", "memcpy", "memset", "sync")


def activity(store: Store) -> Activity:
    """Summed durations (not unions) of kernels, memcpy, memset and synchronisation, in this order; kinds that do not occur are left out.

    ``sync_source`` is "device" where the trace has synchronisation records of the device side, "host" where only the host's blocking
    calls tell it, and None without either. A run without kernels, copies and memsets has no shares.
    """
    sql = "SELECT kind::VARCHAR, sum(duration_ns)::BIGINT, count(*) FROM {} GROUP BY kind"
    found = {kind: (total, count) for kind, total, count in store.frame(sql.format("device_event")).rows()}
    if not found.keys() - {"sync"}:
        return Activity(shares=(), sync_source=None)
    source = "device" if "sync" in found else None
    if source is None:
        calls = store.frame(sql.format("host_event WHERE kind = 'sync'")).rows()
        if calls:
            found["sync"] = calls[0][1:]
            source = "host"
    whole = sum(total for total, _ in found.values())
    ordered = [(kind, *found[kind]) for kind in _ORDER if kind in found]
    return Activity(shares=tuple(Share(kind, total, count, percent_of(total, whole)) for kind, total, count in ordered), sync_source=source)
