"""Host time of the parts of a step: ranges by part -> shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.rows import Share
from ..toolkit.intervals import union_length
from ..toolkit.shares import shares
from .part_ranges import PARTS, part_ranges

_UNLIKE: Final = 2
# When profilers were on. A recording was on all the time, unless a configuration of profiling gave its parts windows.
_ON: Final = r"""
    SELECT process, first_ns AS first, last_ns AS last FROM profile_window WHERE process IS NOT NULL
    UNION ALL
    SELECT process, first_ns, last_ns FROM recorded_window WHERE process IS NOT NULL AND NOT EXISTS (
        FROM run, unnest(json_keys(coalesce(metadata, '{}'))) AS key(text) WHERE regexp_matches(key.text, '^profiling\.'))
"""


def step_parts(store: Store) -> tuple[tuple[Share, ...], str | None]:
    """Return the host time of each part of a step, and a remark on the shares.

    If a part was recorded in at least twice as many steps as another, ``percent`` is of the mean step, from the first to the last step in
    which the part was recorded, and the remark states this. A configuration of profiling can cause this by a window per part. A part that
    was recorded in all steps and occurs in few does not count as such.
    """
    shares_of_parts = shares(
        (part, int(union_length(rows, ["process"])["length"].sum()), len(rows))
        for ranges in part_ranges(store)
        for part, (_, rows) in ranges.items()
    )
    recorded = _steps(store) if shares_of_parts else {}
    if len(recorded) < len(shares_of_parts) or not recorded:
        return shares_of_parts, None
    length = {part: last - first + 1 for part, (first, last) in recorded.items()}
    if max(length.values()) < _UNLIKE * min(length.values()):
        return shares_of_parts, None
    mean = {share.name: share.total_ns / length[share.name] for share in shares_of_parts}
    mean_total = sum(mean.values())
    by_mean = [replace(share, percent=100 * mean[share.name] / mean_total if mean_total else 0.0) for share in shares_of_parts]
    return tuple(sorted(by_mean, key=lambda share: -share.percent)), _sentence(recorded)


def _steps(store: Store) -> Mapping[str, tuple[int, int]]:
    """Return the first and last number of the steps in which each part was recorded.

    These are the steps at whose time a range of the part began, or during which a recorder of such a range was on. Time between two steps
    belongs to the next one: the program may annotate a step without its loading.
    """
    steps = store.frame("""
        SELECT process, "index" AS number, host_start_ns AS begin, host_start_ns + host_duration_ns AS stop FROM step
        WHERE "index" IS NOT NULL AND host_duration_ns > 0
    """).sort("stop")
    on = _on(store, steps)
    windows: dict[str, list[tuple[int, int]]] = {}
    for part, rows in ((part, rows) for ranges in part_ranges(store) for part, (_, rows) in ranges.items()):
        begun = rows.select("process", "start").sort("start")
        inside = begun.join_asof(
            steps, left_on="start", right_on="stop", by="process", strategy="forward", allow_exact_matches=False, check_sortedness=False
        ).drop_nulls("number")
        if inside.is_empty():
            continue
        held = [window for (process,), own in begun.group_by("process") for window in _holding(on, process, own["start"])]
        first, last = inside.select(pl.col("number").min(), last=pl.col("number").max()).row(0)
        windows.setdefault(part, []).extend([(first, last), *held])
    return {part: (min(low for low, _ in windows[part]), max(high for _, high in windows[part])) for part in PARTS if part in windows}


def _on(store: Store, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the windows in which profilers were on, with the range of their steps.

    Columns: ``process``, ``first`` and ``last`` (ns), and step numbers ``low`` and ``high``. Not all windows of a configured profile are
    known.
    """
    return (
        store.frame(_ON)
        .join(steps, on="process")
        .filter(pl.col("begin") < pl.col("last"), pl.col("stop") > pl.col("first"))
        .group_by("process", "first", "last")
        .agg(low=pl.col("number").min(), high=pl.col("number").max())
    )


def _holding(on: pl.DataFrame, process: object, starts: pl.Series) -> list[tuple[int, int]]:
    """Return low and high of a process's windows in which something started."""
    windows = on.filter(pl.col("process") == process)
    some = starts.search_sorted(windows["last"], side="right") > starts.search_sorted(windows["first"], side="left")
    return windows.filter(some).select("low", "high").rows()


def _sentence(recorded: Mapping[str, tuple[int, int]]) -> str:
    windows: dict[tuple[int, int], list[str]] = {}
    for part, window in recorded.items():
        windows.setdefault(window, []).append(part)
    clauses = [
        f"{' and '.join(parts)} in {f'step {first}' if first == last else f'steps {first} to {last}'}"
        for (first, last), parts in sorted(windows.items(), key=lambda item: item[0][0] - item[0][1])
    ]
    return f"The parts of a step were not recorded in the same steps ({', '.join(clauses)}): their shares are of the mean step."
