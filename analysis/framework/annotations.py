"""Durations of annotated ranges by name: totals and distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from ...errors import UsageError
from ...ingest.store.store import Store
from ..report.framework import AnnotationGroup, Annotations
from ..toolkit.contents import SOURCES
from ..toolkit.names import base_name
from ..toolkit.options import AnalysisOptions
from ..toolkit.quantiles import duration_histogram, quantiles

MOST_GROUPS: Final = 1000  # groups; the shorter rest is one group per side, "other names"
DRAWN: Final = 6  # histograms that are drawn unless names are chosen
REMAINDER: Final = "(other names)"

_COUNTED: Final = "complete IS NOT FALSE AND duration_ns IS NOT NULL"
_SUMS: Final = f"SELECT name, side, phase, sum(duration_ns)::BIGINT AS total FROM annotation WHERE {_COUNTED} GROUP BY ALL ORDER BY ALL"
# The ranges with the number of their group: its texts would take more memory than they do.
_MEMBERS: Final = f"""
    WITH member AS (
        SELECT unnest(?::INTEGER[]) AS name, unnest(?::VARCHAR[]) AS side, unnest(?::VARCHAR[]) AS phase, unnest(?::INTEGER[]) AS "group"
    )
    SELECT m."group", a.process, a.source, a.duration_ns AS duration FROM annotation AS a
    JOIN member AS m ON m.name = a.name AND m.side = a.side::VARCHAR AND m.phase IS NOT DISTINCT FROM a.phase
    WHERE {_COUNTED}
"""

_ABSENT: Final = "No annotated ranges: wrap parts of the step in torch.profiler.record_function()."


def annotation_groups(store: Store, options: AnalysisOptions = AnalysisOptions()) -> Annotations:  # noqa: B008  (AnalysisOptions is frozen)
    """Group the ranges by base name, side and phase, longest total first.

    The side is host or device. Ranges that never ended are left out. ``histograms``: the names chosen in the options, else those with the
    longest total. Raises UsageError for a chosen name that no range has, unless names are chosen for the runs that have them.
    """
    if not store.has_rows("annotation") or (sums := store.frame(_SUMS)).is_empty():
        _chosen(options, [])
        return Annotations((), (), _ABSENT)
    keys = ["base", "side", "phase"]
    names = store.frame("SELECT id AS name, text FROM name WHERE id IN (SELECT DISTINCT name FROM annotation)")
    named = sums.join(names.select("name", base=base_name(pl.col("text"))), on="name", how="left")
    totals = named.group_by(keys).agg(pl.col("total").sum()).sort("total", *keys, descending=[True, False, False, False])
    kept_keys = totals.head(MOST_GROUPS).with_columns(kept=pl.lit(True)).select(*keys, "kept")
    merged = named.join(kept_keys, on=keys, how="left", nulls_equal=True).with_columns(
        base=pl.when("kept").then("base").otherwise(pl.lit(REMAINDER)), phase=pl.when("kept").then("phase"), recorded_phase="phase"
    )
    numbers = merged.select(keys).unique().with_row_index("group")
    of_recorded = merged.join(numbers, on=keys, nulls_equal=True).select("name", "side", "recorded_phase", "group")
    members = store.frame(_MEMBERS, [column.to_list() for column in of_recorded])
    of_group = {group: part for (group,), part in members.group_by("group")}
    formats = dict(store.frame(SOURCES).select("id", "format").rows())
    groups = [_group(base, side, phase, of_group[group], formats) for group, base, side, phase in numbers.iter_rows()]
    groups.sort(key=lambda group: (group.name == REMAINDER, -group.total_ns, group.name, group.side, group.phase or ""))
    present = list(dict.fromkeys(group.name for group in groups))
    return Annotations(tuple(groups), _chosen(options, present) or tuple(present[:DRAWN]), None)


def _group(base: object, side: object, phase: object, members: pl.DataFrame, formats: Mapping[int, str]) -> AnnotationGroup:
    spread, bins = quantiles(members["duration"]), duration_histogram(members["duration"])
    assert spread is not None
    assert bins is not None
    return AnnotationGroup(
        name=str(base),
        side=str(side),
        phase=None if phase is None else str(phase),
        processes=members["process"].n_unique(),
        total_ns=int(members["duration"].sum()),
        quantiles=spread,
        histogram=bins,
        formats=tuple(sorted({formats[source] for source in members["source"].unique() if source in formats})),
    )


def _chosen(options: AnalysisOptions, present: Sequence[str]) -> tuple[str, ...]:
    for name in options.histograms:
        if name not in present and not options.histograms_if_present:
            listed = ", ".join(repr(one) for one in present[:10]) + (f" and {len(present) - 10} more" if len(present) > 10 else "")
            raise UsageError(f"--histogram {name}: no annotated range has this name; there are {listed or 'none'}")
    return tuple(name for name in options.histograms if name in present)
