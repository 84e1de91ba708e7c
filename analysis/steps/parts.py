"""How is the time of the host in named ranges shared out among the parts of a step?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.model import Share
from ..toolkit.intervals import union_length
from ..toolkit.shares import shares
from .part_ranges import Parts

_UNLIKE: Final = 2
_ON: Final = "SELECT process, first_ns AS first, last_ns AS last FROM profile_window WHERE process IS NOT NULL"
_RECORDING: Final = " UNION ALL SELECT process, first_ns, last_ns FROM recorded_window WHERE process IS NOT NULL"
_CONFIGURED: Final = """
    SELECT count(*) > 0 FROM run, unnest(json_keys(coalesce(metadata, '{}'))) AS key(text) WHERE regexp_matches(key.text, '^profiling\\.')
"""


def step_parts(store: Store, ranges: Parts) -> tuple[tuple[Share, ...], str | None]:
    """Host time of each part of a step, largest share first, and what has to be known of the shares.

    Where one part was recorded in twice as many steps as another or more (a configuration of profiling gives each its own), ``percent`` is
    of the mean step, from the first to the last in which the part was recorded, and the sentence says so. A part that was recorded in all
    steps and is in few is no such.
    """
    found = shares((part, int(union_length(rows, ["process"])["length"].sum()), len(rows)) for part, (_, rows) in ranges.items())
    recorded = _steps(store, ranges)
    if len(recorded) < len(found) or not recorded:
        return found, None
    length = {part: last - first + 1 for part, (first, last) in recorded.items()}
    if max(length.values()) < _UNLIKE * min(length.values()):
        return found, None
    mean = {share.name: share.total_ns / length[share.name] for share in found}
    whole = sum(mean.values())
    by_mean = [replace(share, percent=100 * mean[share.name] / whole if whole else 0.0) for share in found]
    return tuple(sorted(by_mean, key=lambda share: -share.percent)), _sentence(recorded)


def _steps(store: Store, ranges: Parts) -> Mapping[str, tuple[int, int]]:
    """Of each part the first and the last number of a step in which it was recorded: at whose time one of its ranges began, or something
    that recorded one of them was on. What lies between two steps, as loading where the program annotates the rest of a step, is of the
    next one."""
    steps = store.frame("""
        SELECT process, "index" AS number, host_start_ns AS begin, host_start_ns + host_duration_ns AS stop FROM step
        WHERE "index" IS NOT NULL AND host_duration_ns > 0
    """).sort("stop")
    on = _on(store, steps)
    found = {}
    for part, (_, rows) in ranges.items():
        begun = rows.select("process", "start").sort("start")
        inside = begun.join_asof(
            steps, left_on="start", right_on="stop", by="process", strategy="forward", allow_exact_matches=False, check_sortedness=False
        ).drop_nulls("number")
        if inside.is_empty():
            continue
        held = [window for (process,), own in begun.group_by("process") for window in _holding(on, process, own["start"])]
        first, last = inside.select(pl.col("number").min(), last=pl.col("number").max()).row(0)
        found[part] = min([first, *(low for low, _ in held)]), max([last, *(high for _, high in held)])
    return found


def _on(store: Store, steps: pl.DataFrame) -> pl.DataFrame:
    """When profilers were on: ``process``, ``first`` and ``last`` (ns), and the numbers of the steps then, ``low`` and ``high``. A
    recording was on all the time, unless a configuration of profiling gave its parts windows, of which not all are known."""
    configured = store.frame(_CONFIGURED).item()
    return (
        store.frame(_ON + ("" if configured else _RECORDING))
        .join(steps, on="process")
        .filter(pl.col("begin") < pl.col("last"), pl.col("stop") > pl.col("first"))
        .group_by("process", "first", "last")
        .agg(low=pl.col("number").min(), high=pl.col("number").max())
    )


def _holding(on: pl.DataFrame, process: object, starts: pl.Series) -> list[tuple[int, int]]:
    """Low and high of the windows of a process in which something started; ``starts`` ascends."""
    own = on.filter(pl.col("process") == process)
    some = starts.search_sorted(own["last"], side="right") > starts.search_sorted(own["first"], side="left")
    return own.filter(some).select("low", "high").rows()


def _sentence(recorded: Mapping[str, tuple[int, int]]) -> str:
    windows: dict[tuple[int, int], list[str]] = {}
    for part, window in recorded.items():
        windows.setdefault(window, []).append(part)
    said = [
        f"{' and '.join(parts)} in {f'step {first}' if first == last else f'steps {first} to {last}'}"
        for (first, last), parts in sorted(windows.items(), key=lambda item: item[0][0] - item[0][1])
    ]
    return f"The parts of a step were not recorded in the same steps ({', '.join(said)}): their shares are of the mean step."
