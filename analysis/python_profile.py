"""Which Python functions took the time, by a Python profile?"""

from __future__ import annotations

from ..ingest.store import Store
from .report import ProfileRow, PythonProfile

_ABSENT = (
    "No Python profile in this run: reading Python profiles (the files python_stats of the hosted profiler) is not part of this version."
)


def python_profile(store: Store) -> PythonProfile:
    """Every function of every Python profile; per timer and steps the one with most time of its own first. Functions of the same name,
    timer and steps are added up over processes."""
    rows = store.frame("""
        SELECT function, timer, first_step, last_step, sum(calls)::BIGINT AS calls,
            sum(total_s) AS total_s, sum(cumulative_s) AS cumulative_s
        FROM python_profile GROUP BY ALL
        ORDER BY first_step NULLS FIRST, last_step NULLS FIRST, timer, total_s DESC, function
    """).rows(named=True)
    return PythonProfile(rows=tuple(ProfileRow(**row) for row in rows), absent=None if rows else _ABSENT)
