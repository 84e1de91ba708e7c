"""Events of a timeline that are merged while they are read: the same result as of all events at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from postrun.analysis.timeline import reduction
from postrun.analysis.timeline.lanes import Columns, assign_lanes
from postrun.analysis.timeline.merge import WIDTHS
from postrun.analysis.timeline.model import View
from postrun.analysis.timeline.reduction import Reduction
from postrun.analysis.timeline.views import Stretch

Event = tuple[int, int, int]  # track, start, duration
Result = list[tuple[int, int, int, int, int]]  # row, track, lane, members, time

_EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 400_000), st.sampled_from([0, 1, 300, 900, 1_500, 7_000, 30_000, 120_000])),
    min_size=1,
    max_size=60,
)
_STEP = st.tuples(st.integers(0, 400_000), st.integers(1, 60_000))


def part_of(rows: list[tuple[int, Event]]) -> Columns:
    row, track, start, duration = ([*column] for column in zip(*((row, *event) for row, event in rows), strict=True)) if rows else ([],) * 4
    part = {"row": np.array(row, np.int64), "track": np.array(track, np.int16), "start": np.array(start, np.int64)}
    part["duration"] = np.array(duration, np.int64)
    assign_lanes(part)
    return part


def recording(pause: int) -> Callable[[npt.NDArray[np.int32], npt.NDArray[np.int64]], npt.NDArray[np.int64]]:
    return lambda track, start: ((start >= pause) & (track == 1)).astype(np.int64)


def reduced(events: list[Event], at_once: int, cap: int, steps: list[tuple[int, int]], pause: int) -> tuple[Result, object]:
    """Read the tracks one after the other, and merge from ``at_once`` events."""
    stretches = [Stretch(View("slowest", "", first, first + length, 0), first, first + length) for first, length in steps]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduction, "AT_ONCE", at_once)
        read = Reduction(cap, stretches, recording(pause))
        for track in (2, 0, 1):
            read.add(part_of([(row, event) for row, event in enumerate(events) if event[0] == track]))
        ordered, merged = read.merged()
    columns = [ordered[column][merged.first].tolist() for column in ("row", "track", "lane")]
    assert read.total == len(events)
    assert read.whole_ns == sum(duration for _, _, duration in events)
    rows = list(zip(*columns, merged.count.tolist(), merged.duration_ns.tolist(), strict=True))
    return rows, (merged.width_ns, merged.level, merged.dropped)


@settings(max_examples=examples(300))
@given(events=_EVENTS, cap=st.integers(1, 40), steps=st.lists(_STEP, max_size=2), pause=st.integers(0, 400_000), at_once=st.integers(1, 30))
# Intervals of 2 µs would cross those of 5 µs, the final width.
@example(events=[(0, 500 * number, 300) for number in range(80)], cap=8, steps=[], pause=400_000, at_once=5)
def test_merging_while_reading_changes_nothing(
    events: list[Event], cap: int, steps: list[tuple[int, int]], pause: int, at_once: int
) -> None:
    assert reduced(events, at_once, cap, steps, pause) == reduced(events, 1_000_000, cap, steps, pause)


@given(events=_EVENTS, cap=st.integers(1, 40), pause=st.integers(0, 400_000), at_once=st.integers(1, 30))
def test_merged_events_are_the_short_neighbors_of_an_interval(events: list[Event], cap: int, pause: int, at_once: int) -> None:
    rows, (width, _, dropped) = reduced(events, at_once, cap, [], pause)  # type: ignore[misc]
    lanes: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for track in (0, 1, 2):
        part = part_of([(row, event) for row, event in enumerate(events) if event[0] == track])
        for row, lane, start, duration in zip(*(part[column].tolist() for column in ("row", "lane", "start", "duration")), strict=True):
            lanes.setdefault((track, lane), []).append((row, start, duration))
    expected: Result = []
    for (track, lane), members in sorted(lanes.items()):
        before: tuple[int, bool] | None = None
        for row, start, duration in members:
            short = width is not None and duration < width
            interval = (start // width if width is not None else row, bool(track == 1 and start >= pause))
            if short and before == interval:
                expected[-1] = (*expected[-1][:3], expected[-1][3] + 1, expected[-1][4] + duration)
            else:
                expected.append((row, track, lane, 1, duration))
            before = interval if short else None
    if not dropped:
        assert rows == expected
    else:
        assert len(rows) == cap
        assert set(rows) <= set(expected)


def test_events_are_merged_before_all_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "AT_ONCE", 100)
    read = Reduction(10, [], recording(2**62))
    for track in range(20):
        read.add(part_of([(row, (track, 100 * row, 50)) for row in range(500)]))
        assert read._size <= 1_000
    ordered, merged = read.merged()
    assert len(ordered["row"]) < 1_000
    assert merged.count.sum() + merged.dropped == 10_000


def test_each_width_divides_the_powers_of_ten_above_it() -> None:
    powers = [width for width in WIDTHS if str(width).strip("0") == "1"]
    assert all(power % width == 0 for power in powers for width in WIDTHS if width <= power)
    assert all(width % power == 0 for power in powers for width in WIDTHS if width >= power)
