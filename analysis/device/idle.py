"""Why did the streams of a device stand still?"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.model import Idle
from ..toolkit.places import Places, process_conditions
from ..toolkit.windows import windows, with_window

# A gap that a typical launch explains: 30 microseconds (other tools document 30 ns and compare with microseconds).
KERNEL_WAIT_NS: Final = 30_000

_STREAM: Final = ["node", "process", "device", "stream"]


def idle(store: Store) -> tuple[Idle, ...]:
    """Gaps between the runs of every stream by cause, by host name, rank, pid, device and stream; streams without gaps are left out.

    A gap lies between a kernel, copy or memset and the latest end of those before it on the same stream. Host wait: its launch call ended
    after that end. Kernel wait: its launch had ended and the gap is shorter than 30 microseconds. Other: the rest, also the runs whose
    launch is not in the trace. The time between two profiles of a process is no gap.
    """
    places = Places(store)
    profiled = windows(store, "process")
    rows = []
    for condition in process_conditions(store):
        for row in _gaps(with_window(_runs(store, condition), profiled)).iter_rows(named=True):
            place = places.process(row["process"], row["node"])
            found = Idle(
                node=place.node,
                rank=place.rank,
                device=row["device"],
                stream=row["stream"],
                gaps=row["gaps"],
                host_wait_ns=row["host_wait"],
                kernel_wait_ns=row["kernel_wait"],
                other_ns=row["other"],
            )
            rows.append((place.order, found))
    return tuple(found for _, found in sorted(rows, key=lambda item: (item[0], item[1].device, item[1].stream)))


def _runs(store: Store, condition: str) -> pl.DataFrame:
    return store.frame(f"""
        WITH launch AS (
            SELECT e.process, e.correlation, min({{'start': e.start_ns, 'end': e.start_ns + e.duration_ns}}) AS first
            FROM host_event AS e WHERE e.kind = 'launch' AND e.correlation IS NOT NULL AND {condition} GROUP BY e.process, e.correlation
        )
        SELECT e.node, e.process, e.device, coalesce(e.stream, 0) AS stream, e.start_ns AS start, e.start_ns + e.duration_ns AS "end",
               launch.first."end" AS launched
        FROM device_event AS e
        LEFT JOIN launch ON launch.process = e.process AND launch.correlation = e.correlation
        WHERE e.kind <> 'sync' AND {condition}
    """)


def _gaps(runs: pl.DataFrame) -> pl.DataFrame:
    before, launched, gap = pl.col("before"), pl.col("launched"), pl.col("gap")
    host_wait = (launched > before).fill_null(False)
    kernel_wait = (launched <= before).fill_null(False) & (gap < KERNEL_WAIT_NS)
    return (
        runs.sort(*_STREAM, "start", "end")
        .with_columns(before=pl.col("end").cum_max().shift(1).over(*_STREAM, "window"))
        .with_columns(gap=pl.col("start") - before)
        .filter(gap > 0)
        .group_by(_STREAM)
        .agg(
            gaps=pl.len(),
            host_wait=gap.filter(host_wait).sum(),
            kernel_wait=gap.filter(kernel_wait).sum(),
            other=gap.filter(~host_wait & ~kernel_wait).sum(),
        )
        .sort(_STREAM)
    )
