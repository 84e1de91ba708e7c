"""When was a GPU busy, by what the run store knows of it?"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from .clock_offset import Activity, activity_of_samples, series_of
from .store import Store

MOST_GPUS: Final = 16
"""GPUs of one machine whose samples are held against their activity at once."""
MOST_SAMPLES: Final = 2_000_000


def gpu_activity(store: Store, node: int, device: int) -> Activity | None:
    """When a GPU was busy, by its kernels and copies, else by another sampler."""
    # Where samples are, they span the run; where only a short profile is, that.
    rows = store.frame(
        "SELECT time_ns, value FROM sample WHERE node = ? AND unit = ? AND metric = 'gpu_utilization' AND isfinite(value)"
        f" ORDER BY time_ns LIMIT {MOST_SAMPLES}",
        [node, device],
    )
    if rows.height >= 2:
        series = series_of(rows["time_ns"].to_numpy(), rows["value"].to_numpy())
        gaps = np.diff(series.time_ns)
        gaps = gaps[gaps > 0]
        return activity_of_samples(series, int(np.median(gaps))) if len(gaps) else None
    return device_activity(store, node, device)


def device_activity(store: Store, node: int, device: int, only: tuple[int, int] | None = None) -> Activity | None:
    """By kernels and copies. ``only``: from which row of device_event to which."""
    where = f" AND rowid >= {only[0]} AND rowid < {only[1]}" if only else ""
    busy = store.frame(
        f"""
        WITH event AS (
            SELECT process, start_ns AS s, start_ns + duration_ns AS e FROM device_event
            WHERE node = ? AND device = ? AND kind <> 'sync' AND duration_ns > 0 {where}
        ), marked AS (
            SELECT s, e, max(e) OVER (ORDER BY s, e ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM event
        ), grouped AS (
            SELECT s, e, sum((before IS NULL OR s > before)::INTEGER) OVER (ORDER BY s, e ROWS UNBOUNDED PRECEDING) AS part FROM marked
        )
        SELECT min(s) AS s, max(e) AS e FROM grouped GROUP BY part ORDER BY s
        """,
        [node, device],
    )
    if busy.is_empty():
        return None
    start, end = busy["s"].to_numpy(), busy["e"].to_numpy()
    windows = store.frame(
        "SELECT DISTINCT w.first_ns, w.last_ns FROM profile_window AS w JOIN process AS p ON p.id = w.process WHERE p.node = ? ORDER BY 1",
        [node],
    ).rows()
    inside = [(max(first, int(start[0])), min(last, int(end[-1]))) for first, last in windows] if only is None else []
    known: list[tuple[int, int]] = []
    for first, last in sorted(window for window in inside if window[0] < window[1]):
        if known and first <= known[-1][1]:
            known[-1] = (known[-1][0], max(known[-1][1], last))
        else:
            known.append((first, last))
    return Activity(start, end, np.ones(len(start)), tuple(known) or ((int(start[0]), int(end[-1])),))


def busy_before(
    activity: Activity, time_ns: npt.NDArray[np.int64], window_ns: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """The share of the window before each time in which a GPU was busy, and whether nearly all of that window is known."""
    covered = _share(activity.start_ns, activity.end_ns, activity.share, time_ns, window_ns)
    starts, ends = (np.array([span[place] for span in activity.known], np.int64) for place in (0, 1))
    return covered, _share(starts, ends, np.ones(len(starts)), time_ns, window_ns) > 0.99


def _share(
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    share: npt.NDArray[np.float64],
    time_ns: npt.NDArray[np.int64],
    window_ns: int,
) -> npt.NDArray[np.float64]:
    """How much of the window before each time spans cover that do not overlap, in order."""
    base = int(start[0])
    at = np.column_stack([start, end]).ravel() - base
    length = (end - start) * share
    whole = np.column_stack([np.cumsum(length) - length, np.cumsum(length)]).ravel()
    covered: npt.NDArray[np.float64] = np.interp(time_ns - base, at, whole) - np.interp(time_ns - window_ns - base, at, whole)
    return covered / window_ns
