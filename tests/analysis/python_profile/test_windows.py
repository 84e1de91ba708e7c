"""Processes that were profiled twice: no figure includes the time between the profiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis.device.idle import idle
from postrun.analysis.device.time_breakdown import time_breakdown
from postrun.analysis.framework.framework import framework
from postrun.analysis.machine.utilization import derived_utilization
from postrun.analysis.report import Share
from postrun.analysis.toolkit.windows import pauses_ns, windows
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
MS = 1_000_000
LATER = 3_600_000 * MS  # an hour


def run(start: int, end: int, **columns: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": "k", "start_ns": start, "duration_ns": end - start, **columns}


def window(first: int, last: int, process: int = 0) -> dict[str, Any]:
    return {"process": process, "first_ns": first, "last_ns": last}


def test_span_idle_and_gaps(make_store: MakeStore) -> None:
    store = make_store(
        profile_window=[window(LATER, LATER + 50 * MS), window(0, 100 * MS)],
        device_event=[
            run(10 * MS, 20 * MS),
            run(30 * MS, 40 * MS),
            run(LATER + 5 * MS, LATER + 10 * MS),
            run(LATER + 12 * MS, LATER + 20 * MS),
        ],
    )
    (device,) = time_breakdown(store)
    assert (device.first_ns, device.span_ns, device.busy_ns, device.idle_ns) == (10 * MS, 45 * MS, 33 * MS, 12 * MS)
    assert (device.events, device.kernel_total_ns) == (4, 33 * MS)
    (stream,) = idle(store)
    assert (stream.gaps, stream.other_ns) == (2, 12 * MS)


def test_time_outside_of_the_steps(make_store: MakeStore) -> None:
    starts = [0, 10, 30, LATER, LATER + 15]  # each 10 long: other is 20..30 of the first profile, 5 of the second
    store = make_store(
        profile_window=[window(0, 100), window(LATER, LATER + 100)],
        step=[{"node": 0, "process": 0, "index": i, "host_start_ns": at, "host_duration_ns": 10} for i, at in enumerate(starts)],
    )
    assert framework(store).phases == (
        Share("step", 50, 5, pytest.approx(100 * 50 / 65)),
        Share("other", 15, 0, pytest.approx(100 * 15 / 65)),
    )


def test_phases_last_over_the_pauses(make_store: MakeStore) -> None:
    store = make_store(
        profile_window=[window(0, 10), window(90, 100)],
        step=[{"node": 0, "process": 0, "phase": "TRAIN", "host_start_ns": at, "host_duration_ns": 10} for at in (0, 90)],
    )
    assert framework(store).phases == (Share("TRAIN", 20, 2, 20.0), Share("other", 80, 0, 80.0))


def test_windows_that_overlap_are_one(make_store: MakeStore) -> None:
    store = make_store(
        processes=[{"id": 0, "node": 0, "pid": 1}, {"id": 1, "node": 0, "pid": 2}],
        profile_window=[window(0, 10), window(11, 20), window(15, 30), window(100, 110), window(25, 90, process=1)],
    )
    assert windows(store, "process").rows() == [(0, 0, 31, 0), (0, 100, 111, 1), (1, 25, 91, 0)]
    assert windows(store, "node").rows() == [(0, 0, 91, 0), (0, 100, 111, 1)]
    assert pauses_ns(windows(store, "process")) == 9
    assert pauses_ns(windows(make_store(), "process")) == 0


def test_derived_utilization_has_no_points_between(make_store: MakeStore) -> None:
    store = make_store(
        profile_window=[window(0, 4 * MS), window(LATER, LATER + 4 * MS)],
        device_event=[run(0, MS), run(3 * MS // 2, 2 * MS), run(LATER + MS // 4, LATER + MS // 2), run(LATER + MS, LATER + 3 * MS // 2)],
    )
    # Buckets of 1 ms, as for a profile of 8 ms. The second profile begins at 0.25 ms of its first bucket, ends at 0.5 ms of the next.
    assert derived_utilization(store).select("time_ns", "value").rows() == [
        (0, 100.0),
        (MS, 50.0),
        (LATER, 100.0 / 3),
        (LATER + MS, 100.0),
    ]
