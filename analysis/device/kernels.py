"""Kernels by name, with their share of the time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ...ingest.store.store import Store
from ..report.device import DeviceTime, Kernel
from ..toolkit.shares import percent_of

_COPIED: Final = ("name", "short_name", "category", "precision", "count", "total_ns", "min_ns", "max_ns")
_SUMS: Final = """
    SELECT t.name AS id, coalesce(n.text, '') AS name, coalesce(n.short, n.text, '') AS short_name,
           coalesce(n.category, 'other') AS category, coalesce(n.precision, 'unknown') AS precision, t.* EXCLUDE (name)
    FROM (
        SELECT name, count(*) AS count, sum(duration_ns)::BIGINT AS total_ns, min(duration_ns) AS min_ns, max(duration_ns) AS max_ns,
            CASE WHEN count(*) = count(grid_x) AND min(grid_x) = max(grid_x) THEN min(grid_x) END AS grid_x,
            CASE WHEN min(coalesce(grid_y, 1)) = max(coalesce(grid_y, 1)) THEN min(coalesce(grid_y, 1)) END AS grid_y,
            CASE WHEN min(coalesce(grid_z, 1)) = max(coalesce(grid_z, 1)) THEN min(coalesce(grid_z, 1)) END AS grid_z
        FROM device_event WHERE kind = 'kernel' GROUP BY name
    ) AS t LEFT JOIN name AS n ON n.id = t.name
    ORDER BY t.total_ns DESC, 2
"""


def kernel_sums(store: Store) -> list[dict[str, Any]]:
    """Return every kernel name, merged over all devices, longest total first.

    Keys: id (in ``name``), name, short_name; category and precision by the name; count; total_ns, min_ns, max_ns; grid_x, grid_y, grid_z:
    blocks, null unless they are the same in all executions.
    """
    return store.frame(_SUMS).rows(named=True)


def kernels(sums: Sequence[dict[str, Any]], breakdown: Iterable[DeviceTime]) -> tuple[Kernel, ...]:
    """Return the kernels of :func:`kernel_sums`, classified by their names.

    ``share_of_kernel_time``: percent of the summed durations of all kernels. ``share_of_profile``: percent of the summed profile windows of
    the devices in ``breakdown``. Concurrent kernels of one device each count in full, so these shares can exceed 100 in total.
    """
    profile = sum(device.span_ns for device in breakdown)
    total = sum(row["total_ns"] for row in sums)
    return tuple(
        Kernel(
            mean_ns=row["total_ns"] / row["count"],
            share_of_kernel_time=percent_of(row["total_ns"], total),
            share_of_profile=percent_of(row["total_ns"], profile),
            grid=_grid(row),
            **{key: row[key] for key in _COPIED},
        )
        for row in sums
    )


def _grid(row: dict[str, Any]) -> tuple[int, int, int] | None:
    x, y, z = row["grid_x"], row["grid_y"], row["grid_z"]
    return None if x is None or y is None or z is None else (x, y, z)
