"""Steps that a profiler, configured for some of them, made longer."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.steps import Step
from ..toolkit.wording import numbered, ordinal

ENOUGH: Final = 5  # other steps of a process and phase needed to exclude profiled ones from statements on long steps
_TOUCHES: Final = 0.05  # smallest share of a step that a window must cover to count

_TORCH: Final = "torch.profiler"
_NAMES: Final = {"cprofile": "cProfile", "pyinstrument": "Pyinstrument"}

# Processes that the capture library recorded: windows of Python profiles, and the traces of a configured detailed profile. A profiler that
# the program starts itself may be on in all steps.
_WINDOWS: Final = f"""
    WITH told AS (
        SELECT coalesce(metadata ->> '$."profiling.detailed.recorded"', metadata ->> '$."profiling.detailed"') AS detailed FROM run LIMIT 1
    )
    SELECT process, lower(profiler) AS profiler, start_ns AS first, start_ns + duration_ns AS last FROM python_window
    WHERE duration_ns > 0 AND process IN (SELECT process FROM recorded_window)
    UNION ALL
    SELECT w.process, '{_TORCH}', least(w.first_ns, w.on_ns), greatest(w.last_ns, w.off_ns)
    FROM profile_window AS w JOIN source AS f ON f.id = w.source
    WHERE f.format = 'PyTorch profiler trace' AND w.process IN (SELECT process FROM recorded_window)
        AND EXISTS (FROM told WHERE NOT starts_with(detailed, 'nothing'))
"""


def with_profiled(store: Store, rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``profiled``, the active profilers: "cProfile and torch.profiler", or null."""
    if rows.is_empty() or (windows := store.frame(_WINDOWS)).is_empty():
        return rows.with_columns(profiled=pl.lit(None, pl.String))
    steps = rows.with_row_index("row").select("row", "process", start="host_start_ns", length="host_duration_ns")
    pairs = steps.join(windows.with_columns(pl.col("process").cast(steps.schema["process"])), on="process").filter(
        pl.min_horizontal(pl.col("start") + pl.col("length"), "last") - pl.max_horizontal("start", "first") > _TOUCHES * pl.col("length")
    )
    named = (
        pairs.select("row", name=pl.col("profiler").replace(_NAMES))
        .unique()
        .sort("row", "name")
        .group_by("row", maintain_order=True)
        .agg(profiled=pl.col("name").str.join(" and "))
    )
    return rows.with_row_index("row").join(named, on="row", how="left", maintain_order="left").drop("row")


def without_profiled(rows: pl.DataFrame) -> pl.DataFrame:
    """Remove profiled steps from each process and phase with enough other steps."""
    others = pl.col("profiled").is_null()
    return rows.filter(others | (others.sum().over("process", "phase") < ENOUGH))


def others_of(steps: list[Step]) -> list[Step]:
    """Return ``steps`` without profiled ones if enough others remain."""
    others = [step for step in steps if step.profiled is None]
    return others if len(others) >= ENOUGH else steps


def sentence(rows: pl.DataFrame) -> str | None:
    """State which steps were profiled, and the consequence; None without any."""
    profiled = rows.filter(pl.col("profiled").is_not_null()).sort("host_start_ns")
    if profiled.is_empty():
        return None
    parts = []
    for (name,), members in profiled.group_by("profiled", maintain_order=True):
        numbers = members["number"].unique().to_list()
        parts.append(f"{'step' if len(numbers) == 1 else 'steps'} {numbered(numbers)} ({_time(members, rows)}{name})")
    several = profiled["number"].n_unique() > 1
    text = f"With a profiler on: {', '.join(parts)}. That makes {'them' if several else 'it'} longer"
    left = rows.height - without_profiled(rows).height
    if left == profiled.height:
        return f"{text}; {'they are' if several else 'it is'} left out of the longest step, of slow steps and of outliers."
    if left:
        return f"{text}; where enough other steps remain, they are left out of the longest step, of slow steps and of outliers."
    return f"{text}, and too few other steps remain to leave {'them' if several else 'it'} out of the longest step and of outliers."


def _time(members: pl.DataFrame, rows: pl.DataFrame) -> str:
    """Word which of several steps of one number it was: "2nd time, "; or empty."""
    if not rows["again"].max() or members["again"].n_unique() > 1:
        return ""
    return f"{ordinal(members['again'][0] + 1)} time, "
