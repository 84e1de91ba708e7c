"""Gaps in the recording of a process while its run went on, which a timeline must not show as idle time."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ...ingest.store.store import Store
from ..toolkit.intervals import union
from ..toolkit.windows import windows
from .lanes import of_track
from .model import Gap

_EDGE: Final = 0.01  # smallest share of the shown time before the first or after the last recording that counts as a gap

Numbers = npt.NDArray[np.int64]


def recordings(store: Store, moved: dict[int, int]) -> dict[int, list[tuple[int, int]]]:
    """Return start and end of each recording, by process; ``moved``: time offsets."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for process, start, end in windows(store, "process").select("process", "start", "end").iter_rows():
        if process in moved:
            spans.setdefault(process, []).append((start + moved[process], end + moved[process]))
    return spans


def gaps(recorded: dict[int, list[tuple[int, int]]], tracks: dict[int, list[int]], span_ns: int) -> tuple[Gap, ...]:
    """Return the times from 0 to ``span_ns`` without a recording, per track."""
    missing = []
    for process, spans in recorded.items():
        for start, end in _between(spans, span_ns):
            missing += [Gap(track, start, end) for track in tracks.get(process, ())]
    return tuple(sorted(missing, key=lambda gap: (gap.track, gap.start_ns)))


def unrecorded_ns(recorded: dict[int, list[tuple[int, int]]], everyone: bool, span_ns: int) -> int:
    """Return the time between recordings in which no process was recorded.

    ``everyone``: the recordings of all processes are known; else the result is 0.
    """
    if not everyone or not recorded:
        return 0
    rows = [(start, end) for spans in recorded.values() for start, end in spans]
    covered = union(pl.DataFrame(rows, schema={"start": pl.Int64, "end": pl.Int64}, orient="row"))
    return sum(start - end for (_, end), (start, _) in pairwise(covered.select("start", "end").rows()))


def stretch(recorded: dict[int, list[tuple[int, int]]], process_of: dict[int, int], track: Numbers, start_ns: Numbers) -> Numbers:
    """Number the recording of its process in or after which each event starts."""
    numbers = np.zeros(len(track), np.int64)
    for number, process in process_of.items():
        if len(recorded.get(process, ())) > 1:
            part = of_track(track, number)
            starts = np.array([start for start, _ in recorded[process]], np.int64)
            numbers[part] = np.searchsorted(starts, start_ns[part], "right")
    return numbers


def _between(spans: list[tuple[int, int]], span_ns: int) -> list[tuple[int, int]]:
    edge = int(_EDGE * span_ns)
    first, last = spans[0][0], spans[-1][1]
    missing = [(0, first)] if first > edge else []
    missing += [(end, start) for (_, end), (start, _) in pairwise(spans)]
    return [*missing, *([(last, span_ns)] if span_ns - last > edge else [])]
