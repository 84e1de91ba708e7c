"""Steps of a run with the time that represents each: that of its device work, else that of its range on the host."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.shared import shared
from .profiled import with_profiled

# ``recorded``: events were recorded during the whole step: from the time the profiler was switched on until it was switched off, or, if
# that is unknown, from the first event to the end of the last. The trace of a configured profile begins shortly after the step began; there
# nearly all of the step is enough. ``touched``: there are events in the step, or in a part of it. If a process has a trace of PyTorch, the
# traces of other tracers do not count, because they contain no operators and loads.
_STEPS: Final = """
    WITH profiled AS (
        SELECT w.process, f.format = 'PyTorch profiler trace' AS of_torch, w.first_ns, w.last_ns,
            least(w.first_ns, w.on_ns) AS begin_ns, greatest(w.last_ns, w.off_ns) AS end_ns,
            bool_or(of_torch) OVER own AS any_of_torch, bool_or(NOT of_torch) OVER own AS any_other
        FROM profile_window AS w LEFT JOIN source AS f ON f.id = w.source WINDOW own AS (PARTITION BY w.process)
    ),
    known AS (FROM profiled WHERE of_torch OR NOT coalesce(any_of_torch, false))
    SELECT s.* EXCLUDE ("index"), s."index" AS number,
        NOT EXISTS (FROM profiled AS w WHERE w.process = s.process
            AND ((w.any_of_torch AND w.any_other) OR w.process IN (SELECT process FROM recorded_window)))
        OR EXISTS (FROM known AS w WHERE w.process = s.process AND (
            (w.begin_ns <= s.host_start_ns AND s.host_start_ns + s.host_duration_ns <= w.end_ns)
            OR (w.of_torch AND least(w.end_ns, s.host_start_ns + s.host_duration_ns) - greatest(w.begin_ns, s.host_start_ns)
                >= 0.9 * s.host_duration_ns))) AS recorded,
        EXISTS (FROM known AS w WHERE w.process = s.process AND w.first_ns < s.host_start_ns + s.host_duration_ns
                AND s.host_start_ns < w.last_ns) AS touched
    FROM step AS s
"""

_SCHEMA: Final = {
    "node": pl.Int32, "process": pl.Int32, "phase": pl.String, "host_start_ns": pl.Int64, "host_duration_ns": pl.Int64,
    "device_start_ns": pl.Int64, "device_duration_ns": pl.Int64, "device_events": pl.Int64, "number": pl.Int64, "recorded": pl.Boolean,
    "touched": pl.Boolean,
}  # fmt: skip


@shared
def timed_steps(store: Store) -> pl.DataFrame:
    """Return the steps of the store as :func:`.steps.steps` times them.

    "index" is called ``number``. ``profiled``: see :func:`.profiled.with_profiled`. ``again``: count of earlier steps of the same number.
    """
    steps = store.frame(_STEPS) if store.has_rows("step") else pl.DataFrame(schema=_SCHEMA)
    return _timed(with_profiled(store, steps))


def _timed(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``on_device``, ``start`` and ``duration`` of device work or host range."""
    worked = pl.col("device_duration_ns").is_not_null()
    mostly = worked.filter("recorded").mean().over("process", "phase").fill_null(0.0) >= 0.5
    again = (pl.col("host_start_ns").rank("ordinal").over("process", "phase", "number") - 1).cast(pl.Int64)
    return rows.with_columns(on_device=worked & mostly, again=again).with_columns(
        start=pl.when("on_device").then("device_start_ns").otherwise("host_start_ns"),
        duration=pl.when("on_device").then("device_duration_ns").otherwise("host_duration_ns"),
    )
