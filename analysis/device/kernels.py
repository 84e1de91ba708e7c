"""Which kernels took the time, and which kinds of kernels?"""

from __future__ import annotations

from collections.abc import Iterable

from ...ingest.store.store import Store
from ..report.model import DeviceTime, Kernel, Share
from ..toolkit.shares import percent_of, shares


def kernels(store: Store, breakdown: Iterable[DeviceTime]) -> tuple[Kernel, ...]:
    """Every kernel name, merged over all devices, longest total first (then by name); empty without kernels.

    ``share_of_kernel_time``: percent of the summed durations of all kernels. ``share_of_profile``: percent of (profile span x devices),
    that is of the spans of all rows of ``breakdown``, one per device, added up; kernels of one device that run at the same time count
    each, so these shares can add up to more than 100.
    """
    profile = sum(device.span_ns for device in breakdown)
    rows = store.frame("""
        SELECT coalesce(n.text, '') AS name, coalesce(n.short, n.text, '') AS short_name, coalesce(n.category, 'other') AS category,
               coalesce(n.precision, 'unknown') AS precision, t.count, t.total, t.shortest, t.longest
        FROM (
            SELECT name, count(*) AS count, sum(duration_ns)::BIGINT AS total, min(duration_ns) AS shortest, max(duration_ns) AS longest
            FROM device_event WHERE kind = 'kernel' GROUP BY name
        ) AS t LEFT JOIN name AS n ON n.id = t.name
        ORDER BY t.total DESC, 1
    """).rows(named=True)
    total = sum(row["total"] for row in rows)
    return tuple(
        Kernel(
            name=row["name"],
            short_name=row["short_name"],
            category=row["category"],
            precision=row["precision"],
            count=row["count"],
            total_ns=row["total"],
            min_ns=row["shortest"],
            mean_ns=row["total"] / row["count"],
            max_ns=row["longest"],
            share_of_kernel_time=percent_of(row["total"], total),
            share_of_profile=percent_of(row["total"], profile),
        )
        for row in rows
    )


def categories(kernels: Iterable[Kernel]) -> tuple[Share, ...]:
    """Summed kernel time by category, longest first; percent of the time of all kernels."""
    return shares((kernel.category, kernel.total_ns, kernel.count) for kernel in kernels)
