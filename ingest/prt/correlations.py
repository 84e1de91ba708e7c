"""Correlations of a tracer that counted its calls beyond 32 bits, restored so that each launch has its kernel execution.

Correlations are counted in 32 bits and begin again at 0. In order of time, consecutive calls or executions differ by far less than
half of that, so the full count follows from the differences.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..store.store import Store

HALF: Final = 1 << 31  # Correlations of one window that are this far apart are of a count that began again

_BITS: Final = f"""
    CREATE TEMP TABLE counted AS
    WITH both_sides AS (
        SELECT true AS host, id AS row, start_ns, correlation - $base AS c FROM host_event
        WHERE process = $process AND correlation BETWEEN $base AND $base + $most
        UNION ALL
        SELECT false, id, start_ns, correlation - $base FROM device_event
        WHERE process = $process AND correlation BETWEEN $base AND $base + $most
    ),
    ordered AS (SELECT *, row_number() OVER (ORDER BY start_ns, host DESC, c, row) AS place FROM both_sides),
    stepped AS (SELECT *, coalesce((c - lag(c) OVER (ORDER BY place) + {3 * HALF}) % {2 * HALF} - {HALF}, c) AS step FROM ordered)
    SELECT host, row, sum(step) OVER (ORDER BY place)::BIGINT AS full_count FROM stepped
    WHERE (SELECT max(c) - min(c) >= {HALF} AND max(c) < {2 * HALF} FROM both_sides)
"""


def count_on(store: Store, process: int, cycles: Iterable[int], distance: int) -> None:
    """Restore the full count in each of the ``cycles``, which are ``distance`` apart."""
    execute = store.connection.execute
    for cycle in cycles:
        base = cycle * distance
        execute(_BITS, {"base": base, "process": process, "most": distance - 1})
        ((least,),) = execute("SELECT min(full_count) FROM counted").fetchall()
        if least is not None:
            first = base - min(least // (2 * HALF), 0) * 2 * HALF
            for table, host in (("host_event", "host"), ("device_event", "NOT host")):
                execute(
                    f"UPDATE raw.{table} AS e SET correlation = ? + full_count FROM counted WHERE {host} AND counted.row = e.id", [first]
                )
        execute("DROP TABLE counted")
