"""Copies and memsets with the part that no kernel covers, by kind, host memory and launching operator."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import polars as pl

from ....ingest.store.store import Store
from ...causes.links import host_gb_per_s
from ...device.coverage import DEVICE, with_covered
from ...report.trace_details import ExposedCopy
from ...toolkit.intervals import length_inside, union
from ...toolkit.places import process_conditions
from .idle_findings import names
from .sync_calls import call_sites, with_operator

BUCKET: Final = "torch.distributed.ddp.reducer::copy_bucket_to_grad"  # operator that DDP records without gradient_as_bucket_view
_LARGE: Final = 2**20  # bytes; the bandwidth of smaller copies is bounded by latency
_TIMES: Final = "e.kind IN ('memcpy', 'memset')"

_COPIES: Final = """
    SELECT e.node, e.process, e.device, e.start_ns AS start, e.start_ns + e.duration_ns AS "end", e.correlation, e.bytes,
        CASE WHEN e.kind = 'memset' THEN 'Memset' ELSE coalesce(e.copy_kind, n.text, 'unknown') END AS kind,
        CASE WHEN e.pageable THEN 'pageable' WHEN NOT e.pageable THEN 'pinned' END AS memory
    FROM device_event AS e LEFT JOIN name AS n ON n.id = e.name WHERE e.kind IN ('memcpy', 'memset') AND {}
"""
_CALLS: Final = """
    SELECT h.process, h.correlation, arg_min(h.tid, h.start_ns) AS tid, min(h.start_ns) AS launched FROM host_event AS h
    WHERE h.kind IN ('launch', 'call') AND h.correlation IS NOT NULL AND EXISTS (FROM device_event AS e
        WHERE e.kind IN ('memcpy', 'memset') AND e.process = h.process AND e.correlation = h.correlation) GROUP BY ALL
"""
_BUCKETS: Final = """
    SELECT h.process, h.tid, h.start_ns AS start, h.start_ns + h.duration_ns AS "end" FROM host_event AS h
    WHERE h.kind = 'operator' AND h.name IN (SELECT id FROM name WHERE text = ?)
"""
_OF_COPIES: Final = "SELECT id FROM name WHERE regexp_matches(text, '^aten::(copy_|clone|to|_to_copy|contiguous|pin_memory)$')"
_GROUP: Final = ("kind", "memory", "operator", "bucket")


def copied_buckets(store: Store) -> bool:
    """Return whether DDP copies gradients out of its buckets."""
    return bool(store.frame("SELECT count(*) > 0 FROM name WHERE text = ?", [BUCKET]).item())


def copies(store: Store, *, buckets: bool) -> pl.DataFrame:
    """Return the copies and memsets of all devices, with ``exposed`` ns.

    Columns: DEVICE, start, end, correlation, bytes, kind, memory, exposed; tid, ``launched`` (start of the launch call) and ``operator``
    (name id of the innermost one that does more than copy), null if the trace does not have them; ``bucket``: DDP copies a bucket."""
    parts = []
    for group in process_conditions(store):
        events = with_covered(store, store.frame(_COPIES.format(group)), "kernel", group=group, times=_TIMES)
        parts.append(events.with_columns(exposed=pl.col("end") - pl.col("start") - pl.col("covered")).drop("covered"))
    events = pl.concat(parts).join(store.frame(_CALLS), on=["process", "correlation"], how="left")
    calls = events.filter(pl.col("launched").is_not_null()).select("process", "tid", start="launched").unique()
    operators = with_operator(store, calls, store.frame(_OF_COPIES)["id"].to_list()).rename({"start": "launched"})
    events = events.join(operators, on=["process", "tid", "launched"], how="left", nulls_equal=True)
    if not buckets:
        return events.with_columns(bucket=pl.lit(False))
    moments = events.select("process", "tid", start="launched", end=pl.col("launched") + 1).with_columns(
        pl.col("start", "end").fill_null(0)
    )
    ranges = union(store.frame(_BUCKETS, [BUCKET]), ["process", "tid"])
    inside = length_inside(moments, ranges, ["process", "tid"]) > 0
    return events.with_columns(bucket=pl.lit(inside) & pl.col("launched").is_not_null())


def rows(store: Store, events: pl.DataFrame, models: Collection[str | None], most: int) -> tuple[ExposedCopy, ...]:
    """Sum copies by kind, memory and operator, longest exposed first.

    ``models``: of the GPUs; the link is known if all of theirs are."""
    longest = pl.col("process", "tid", "launched").sort_by("exposed", "start", descending=[True, False]).first()
    sized = pl.col("bytes") >= _LARGE
    summed = (
        events.group_by(_GROUP)
        .agg(
            longest,
            count=pl.len(),
            bytes=pl.when(pl.col("bytes").count() > 0).then(pl.col("bytes").sum()),
            time=(pl.col("end") - pl.col("start")).sum(),
            exposed=pl.col("exposed").sum(),
            large=pl.col("bytes").filter(sized).sum(),
            large_time=(pl.col("end") - pl.col("start")).filter(sized).sum(),
        )
        .sort("exposed", "time", *_GROUP, descending=[True, True, *(False for _ in _GROUP)], nulls_last=True)
        .head(most)
    )
    text = names(store, summed["operator"])
    sites = call_sites(store, summed.rename({"launched": "start"}).with_row_index("number"))
    speeds = [host_gb_per_s(model) for model in models]
    link = min((speed for speed in speeds if speed), default=None) if all(speeds) else None
    return tuple(_row(row, text, sites.get(number), link) for number, row in enumerate(summed.iter_rows(named=True)))


def of_devices(events: pl.DataFrame, processes: Collection[int | None]) -> pl.DataFrame:
    """Return the copies of some processes."""
    return events.filter(pl.col("process").is_in([process for process in processes if process is not None]))


def bucket_times(events: pl.DataFrame) -> dict[tuple[int | None, int | None, int], int]:
    """Return the time of DDP's copies of buckets by node, process and device."""
    merged = union(events.filter("bucket"), DEVICE).group_by(DEVICE).agg((pl.col("end") - pl.col("start")).sum())
    return {(node, process, device): time for node, process, device, time in merged.iter_rows()}


def _row(row: dict[str, Any], text: dict[int | None, str], site: str | None, link: int | None) -> ExposedCopy:
    return ExposedCopy(
        kind=row["kind"],
        memory=row["memory"],
        operator=BUCKET if row["bucket"] else text.get(row["operator"]),
        count=row["count"],
        bytes=row["bytes"],
        time_ns=row["time"],
        exposed_ns=row["exposed"],
        bandwidth_gb_per_s=row["large"] / row["large_time"] if row["large_time"] else None,
        link_gb_per_s=link if row["kind"] in ("HtoD", "DtoH") else None,
        site=site,
    )
