"""Kernels by name and by category, with their share of the time."""

from __future__ import annotations

from collections.abc import Iterable

from ...ingest.store.store import Store
from ..report.device import DeviceTime, Kernel
from ..report.rows import Share
from ..toolkit.shares import percent_of, shares


def kernels(store: Store, breakdown: Iterable[DeviceTime]) -> tuple[Kernel, ...]:
    """Return every kernel name, merged over all devices, longest total first.

    ``share_of_kernel_time``: percent of the summed durations of all kernels. ``share_of_profile``: percent of the summed profile windows of
    the devices in ``breakdown``. Concurrent kernels of one device each count in full, so these shares can exceed 100 in total.
    """
    profile = sum(device.span_ns for device in breakdown)
    rows = store.frame("""
        SELECT coalesce(n.text, '') AS name, coalesce(n.short, n.text, '') AS short_name, coalesce(n.category, 'other') AS category,
               coalesce(n.precision, 'unknown') AS precision, t.count, t.total_ns, t.min_ns, t.max_ns
        FROM (
            SELECT name, count(*) AS count, sum(duration_ns)::BIGINT AS total_ns, min(duration_ns) AS min_ns, max(duration_ns) AS max_ns
            FROM device_event WHERE kind = 'kernel' GROUP BY name
        ) AS t LEFT JOIN name AS n ON n.id = t.name
        ORDER BY t.total_ns DESC, 1
    """).rows(named=True)
    total = sum(row["total_ns"] for row in rows)
    return tuple(
        Kernel(
            mean_ns=row["total_ns"] / row["count"],
            share_of_kernel_time=percent_of(row["total_ns"], total),
            share_of_profile=percent_of(row["total_ns"], profile),
            **row,
        )
        for row in rows
    )


def categories(kernels: Iterable[Kernel]) -> tuple[Share, ...]:
    """Sum kernel time by category, longest first, in percent of all kernels."""
    return shares((kernel.category, kernel.total_ns, kernel.count) for kernel in kernels)
