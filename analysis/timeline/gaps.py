"""When was a process not recorded although its run went on? A timeline must not show that as idle."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ...ingest.store.store import Store
from ..toolkit.intervals import union
from ..toolkit.windows import windows
from .model import Gap

_EDGE: Final = 0.01  # Of the time shown: what is missing before the first recording or after the last is told from this share on

Numbers = npt.NDArray[np.int64]


def recordings(store: Store, moved: dict[int, int]) -> dict[int, list[tuple[int, int]]]:
    """Start and end of each recording of every process that has any. ``moved``: what is added to the times of a process."""
    found: dict[int, list[tuple[int, int]]] = {}
    for process, start, end in windows(store, "process").select("process", "start", "end").iter_rows():
        if process in moved:
            found.setdefault(process, []).append((start + moved[process], end + moved[process]))
    return found


def gaps(recorded: dict[int, list[tuple[int, int]]], tracks: dict[int, list[int]], span_ns: int) -> tuple[Gap, ...]:
    """Of the time from 0 to ``span_ns`` what lies in no recording of a process. ``tracks``: those of the processes."""
    found = []
    for process, spans in recorded.items():
        for start, end in _between(spans, span_ns):
            found += [Gap(track, start, end) for track in tracks.get(process, ())]
    return tuple(sorted(found, key=lambda gap: (gap.track, gap.start_ns)))


def unrecorded_ns(recorded: dict[int, list[tuple[int, int]]], everyone: bool, span_ns: int) -> int:
    """How long no process at all was recorded between the first recording and the last. ``everyone``: of each it is known."""
    if not everyone or not recorded:
        return 0
    rows = [(start, end) for spans in recorded.values() for start, end in spans]
    covered = union(pl.DataFrame(rows, schema={"start": pl.Int64, "end": pl.Int64}, orient="row"))
    return sum(start - end for (_, end), (start, _) in pairwise(covered.select("start", "end").rows()))


def stretch(recorded: dict[int, list[tuple[int, int]]], process_of: dict[int, int], track: Numbers, start_ns: Numbers) -> Numbers:
    """The number of the recording of its process in which (or after which) each event starts; events by track."""
    found = np.zeros(len(track), np.int64)
    for number, process in process_of.items():
        if len(recorded.get(process, ())) > 1:
            low, high = np.searchsorted(track, [number, number + 1])
            starts = np.array([start for start, _ in recorded[process]], np.int64)
            found[low:high] = np.searchsorted(starts, start_ns[low:high], "right")
    return found


def _between(spans: list[tuple[int, int]], span_ns: int) -> list[tuple[int, int]]:
    edge = int(_EDGE * span_ns)
    first, last = spans[0][0], spans[-1][1]
    found = [(0, first)] if first > edge else []
    found += [(end, start) for (_, end), (start, _) in pairwise(spans)]
    return [*found, *([(last, span_ns)] if span_ns - last > edge else [])]
