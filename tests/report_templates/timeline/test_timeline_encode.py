"""The events of a timeline in the page; the tests unpack the block in plain Python, value by value."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import struct
from typing import Any

import numpy as np
import pytest
from made_timeline import empty, large, small
from postrun.analysis.timeline.model import Gap, Name, Timeline, Track
from postrun.report_templates.figures.marks import Mark
from postrun.report_templates.timeline.encode import encode


def unpacked(text: str) -> tuple[dict[str, Any], dict[str, list[int]]]:
    block = gzip.decompress(base64.b64decode(text))
    (length,) = struct.unpack_from("<I", block)
    head = json.loads(block[4 : 4 + length])
    at, columns = 4 + length, {}
    for name, planes, size in head["columns"]:
        parts = [block[at + plane * size : at + (plane + 1) * size] for plane in range(planes)]
        columns[name] = [sum(part[i] << 8 * plane for plane, part in enumerate(parts)) for i in range(size)]
        at += planes * size
    assert at == len(block)
    return head, columns


def straight(coded: int) -> int:
    return -(coded + 1) // 2 if coded % 2 else coded // 2


def straightened(coded: list[int]) -> list[int]:
    """Decode 0 as -1, other values as differences from the last one that is not -1."""
    values, last = [], 0
    for value in coded:
        last += straight(value - 1) if value else 0
        values.append(last if value else -1)
    return values


def rows_of(columns: dict[str, list[int]]) -> list[tuple[int, ...]]:
    """Track, start, duration, name, lane, partner, detail of every event."""
    rows, i, last = [], 0, 0
    for track, number in enumerate(columns["events_of_track"]):
        start = 0
        for _ in range(number):
            start += straight(columns["gap"][i])
            partner = -1
            if columns["partner"][i]:
                last += straight(columns["partner"][i] - 1)
                partner = last
            rows.append((track, start, columns["duration"][i], columns["name"][i], columns["lane"][i], partner, columns["detail"][i] - 1))
            i += 1
    return rows


def given_rows(timeline: Timeline) -> list[tuple[int, ...]]:
    events = timeline.events
    parts = (events.track, events.start_ns, events.duration_ns, events.name, events.lane, events.partner, events.detail)
    return list(zip(*(part.tolist() for part in parts), strict=True))


@pytest.mark.parametrize("timeline", [small(), large(3000, 3), empty()], ids=["small", "large", "empty"])
def test_every_event_comes_back(timeline: Timeline) -> None:
    head, columns = unpacked(encode(timeline))
    assert rows_of(columns) == given_rows(timeline)
    assert [row[2] for row in head["tracks"]] == [track.label for track in timeline.tracks]
    assert [row[0] for row in head["names"]] == [name.name for name in timeline.names]
    assert [tuple(tuple(head["pairs"][place]) for place in detail) for detail in head["details"]] == list(timeline.details)


def test_correlations_and_steps_come_back() -> None:
    """Device work with a known launch has no number; readers take that of the launch."""
    timeline = small()
    _, columns = unpacked(encode(timeline))
    assert straightened(columns["correlation"]) == [-1, -1, -1, -1, 77, -1, 41, -1, 42]
    assert straightened(columns["step"]) == timeline.events.step.tolist() == [-1, -1, 0, 1, 0, 0, 0, 1, 1]


def test_gaps_and_narrow_labels_come_back() -> None:
    head, _ = unpacked(encode(dataclasses.replace(small(), gaps=(Gap(3, 10, 20),))))
    assert head["gaps"] == [[3, 10, 20]]
    assert head["tracks"][3][2:] == ["HOST-0 PID-7", 0, "", "PID-7"]


def test_marks_come_back_with_their_names_and_all_their_words() -> None:
    marks = [Mark("dip", " to 19%", 10.0, 20.0), Mark("", "slow step 7, 3.00 s", 12, 15, "slow")]
    head, _ = unpacked(encode(small(), marks))
    assert head["marks"] == [["dip", "dip", "dip to 19%", 10, 20], ["slow", "", "slow step 7, 3.00 s", 12, 15]]


def test_samples_come_back_bit_by_bit() -> None:
    timeline = small()
    head, columns = unpacked(encode(timeline))
    assert head["lines"] == [[1, "percent"]]
    times, at = [], 0
    for coded in columns["time0"]:
        at += straight(coded)
        times.append(at)
    assert times == timeline.lines[0].time_ns.tolist()
    for word in ("mean", "low", "high"):
        held = [struct.unpack("<f", struct.pack("<I", bits))[0] for bits in columns[f"{word}0"]]
        assert held == getattr(timeline.lines[0], word).tolist()


def test_equal_timelines_give_equal_text_and_the_time_of_making_is_not_in_it() -> None:
    assert encode(small()) == encode(small())
    assert gzip.decompress(base64.b64decode(encode(small())))
    assert base64.b64decode(encode(small()))[4:8] == bytes(4)


def test_a_hundred_thousand_events_stay_below_0_7_megabytes() -> None:
    assert len(encode(large(100_000))) < 700_000


def test_long_times_starts_out_of_order_and_odd_names() -> None:
    timeline = small()
    late = dataclasses.replace(timeline.events, start_ns=timeline.events.start_ns + 40 * 86_400 * 10**9)
    late.start_ns[3] = 7
    odd = (Track(None, "node", "a</script>\u2028\x00\ud800"), *timeline.tracks[1:])
    changed = dataclasses.replace(timeline, events=late, tracks=odd, names=(Name("\ud800<b>", "<b>", "step"), *timeline.names[1:]))
    head, columns = unpacked(encode(changed))
    assert rows_of(columns) == given_rows(changed)
    assert head["tracks"][0][2] == r"a</script>\u2028\x00\ud800"


def test_a_negative_duration_is_refused() -> None:
    timeline = small()
    wrong = dataclasses.replace(timeline.events, duration_ns=np.array([-1] * 9))
    with pytest.raises(ValueError, match="negative"):
        encode(dataclasses.replace(timeline, events=wrong))
