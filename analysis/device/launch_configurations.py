"""Launch configurations of the kernels: grid, block, registers and shared memory, and the time of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import Any, Final

from ...ingest.store.store import Store
from ..report.device import LaunchConfiguration, LaunchConfigurations
from ..toolkit.shares import percent_of

MOST: Final = 500

_ABSENT: Final = "No kernel in this run: record the job with `postrun record`, or profile it with ProfilerActivity.CUDA."
_UNKNOWN: Final = "The sources of this run do not say how kernels were launched; traces of the PyTorch profiler do."

_ROWS: Final = """
    SELECT coalesce(n.text, '') AS name, coalesce(n.short, n.text, '') AS short_name, coalesce(n.category, 'other') AS category, t.*
    FROM (
        SELECT name AS id, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, shared_memory, d.sm_count,
            count(*) AS count, sum(duration_ns)::BIGINT AS total
        FROM device_event AS e
        LEFT JOIN (SELECT node, index, any_value(sm_count) AS sm_count FROM device GROUP BY node, index) AS d
            ON d.node = e.node AND d.index = e.device
        WHERE kind = 'kernel' GROUP BY ALL
    ) AS t LEFT JOIN name AS n ON n.id = t.id
    ORDER BY t.total DESC, 1, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, shared_memory, sm_count
"""


def launch_configurations(store: Store, categories: Mapping[str, str] | None = None) -> LaunchConfigurations:
    """Sum kernels by name and configuration, separately per number of SMs.

    ``categories``: by the full name of a kernel; None: by its name alone.
    """
    rows = store.frame(_ROWS).to_dicts()
    for row in rows if categories else ():
        row["category"] = (categories or {}).get(row["name"], row["category"])
    total = sum(row["total"] for row in rows)
    known = [row for row in rows if _three(row, "grid") is not None and _three(row, "block") is not None]
    if not known:
        return LaunchConfigurations((), 0, None, None, _UNKNOWN if rows else _ABSENT)
    measured = [(row, blocks) for row in known if (blocks := _blocks_per_sm(row)) is not None]
    small = sum(row["total"] for row, blocks in measured if blocks < 1 and row["category"] != "communication")
    by_category: Counter[str] = Counter()
    for row in rows:
        by_category[row["category"]] += row["total"]
    kept = sorted(rows[:MOST], key=lambda row: (-by_category[row["category"]], row["category"], -row["total"]))
    return LaunchConfigurations(
        rows=tuple(
            LaunchConfiguration(
                grid=_three(row, "grid"),
                block=_three(row, "block"),
                blocks_per_sm=_blocks_per_sm(row),
                total_ns=row["total"],
                share_of_kernel_time=percent_of(row["total"], total),
                **{column: row[column] for column in ("name", "short_name", "category", "registers", "shared_memory", "count")},
            )
            for row in kept
        ),
        total=len(rows),
        known_percent=percent_of(sum(row["total"] for row in known), total),
        small_percent=percent_of(small, total) if measured else None,
        absent=None,
        kernels=len({row["name"] for row in rows}),
    )


def _three(row: dict[str, Any], what: str) -> tuple[int, int, int] | None:
    x, y, z = (row[f"{what}_{axis}"] for axis in "xyz")
    return None if x is None else (x, 1 if y is None else y, 1 if z is None else z)


def _blocks_per_sm(row: dict[str, Any]) -> float | None:
    grid = _three(row, "grid")
    return prod(grid) / row["sm_count"] if grid is not None and row["sm_count"] else None
