"""Encodes a Timeline for a page: one compressed block of bytes, as text, which timeline/data.js of templates/ reads.

The block: the length of the head (4 bytes, little-endian), the head (JSON), then the columns in the order that the head lists them. A
column consists of planes: the lowest byte of every value, then the next byte of every value, as many as its largest value needs. Planes of
high bytes are nearly constant, so that they need almost no space compressed. Equal timelines give equal text.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...analysis.timeline.model import Line, Timeline
from ..figures.marks import Mark
from ..text.formats import printable

Numbers = npt.NDArray[np.int64]


def encode(timeline: Timeline, marks: Sequence[Mark] = ()) -> str:
    """Return the compressed block in Base64.

    ``marks``: in ns since the origin of the timeline.
    """
    columns: list[tuple[str, bytes, int, int]] = []  # name, planes, how many planes, how many values

    def put(name: str, values: npt.NDArray[Any]) -> None:
        wide = _unsigned(values)
        count = max(1, -(-int(wide.max(initial=0)).bit_length() // 8))
        columns.append((name, _planes(wide, count), count, len(wide)))

    events = timeline.events
    put("events_of_track", np.bincount(events.track, minlength=len(timeline.tracks)))
    put("gap", _gaps(events.start_ns, events.track))
    put("duration", events.duration_ns)
    put("name", events.name)
    put("lane", events.lane)
    put("detail", events.detail.astype(np.int64) + 1)
    put("partner", _relative(events.partner))
    put("correlation", _relative(_correlations(timeline)))
    put("step", _relative(events.step))
    lines = [_line(number, line, put, columns) for number, line in enumerate(timeline.lines)]
    pairs = {pair: None for detail in timeline.details for pair in detail}
    index = {pair: number for number, pair in enumerate(pairs)}
    head = {
        "origin": timeline.origin_ns,
        "span": timeline.span_ns,
        "tracks": [
            [-1 if t.parent is None else t.parent, t.kind, printable(t.label), t.lanes, printable(t.detail), printable(t.narrow)]
            for t in timeline.tracks
        ],
        "names": [[printable(one.name), "" if one.short == one.name else printable(one.short), one.meaning] for one in timeline.names],
        "pairs": [[printable(key), printable(held)] for key, held in pairs],
        "details": [[index[pair] for pair in detail] for detail in timeline.details],
        "lines": lines,
        "views": [[v.key, printable(v.label), v.start_ns, v.end_ns, -1 if v.track is None else v.track] for v in timeline.views],
        "gaps": [[one.track, one.start_ns, one.end_ns] for one in timeline.gaps],
        "marks": [[one.kind, printable(one.label), printable(one.label + one.more), int(one.start), int(one.end)] for one in marks],
        "columns": [[name, planes, length] for name, _, planes, length in columns],
    }  # fmt: skip
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    block = struct.pack("<I", len(text)) + text + b"".join(data for _, data, _, _ in columns)
    compressed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=compressed, mtime=0) as file:
        file.write(block)
    return base64.b64encode(compressed.getvalue()).decode()


def _line(number: int, line: Line, put: Any, columns: list[tuple[str, bytes, int, int]]) -> list[object]:
    put(f"time{number}", _gaps(line.time_ns, np.zeros(len(line.time_ns), np.int32)))
    for word, values in (("mean", line.mean), ("low", line.low), ("high", line.high)):
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.int64)
        columns.append((f"{word}{number}", _planes(bits, 4), 4, len(bits)))
    return [line.track, printable(line.unit)]


def _unsigned(values: npt.NDArray[Any]) -> Numbers:
    wide = np.asarray(values).astype(np.int64)
    if len(wide) and int(wide.min()) < 0:
        raise ValueError("a column of a timeline must not be negative")
    return wide


def _planes(values: Numbers, count: int) -> bytes:
    return values.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :count].T.tobytes()


def _gaps(times: npt.NDArray[np.int64], track: npt.NDArray[np.int32]) -> Numbers:
    """Encode starts as zigzag differences from the event before on the same track.

    The first start of a track counts from the origin.
    """
    gaps = _differences(times)
    first = np.flatnonzero(np.diff(track, prepend=-1))
    gaps[first] = times[first]
    return _zigzag(gaps)


def _correlations(timeline: Timeline) -> Numbers:
    """Remove the correlations of device work whose launches are known."""
    events = timeline.events
    launch = np.array([name.meaning == "launch" for name in timeline.names] or [False], np.bool_)[events.name]
    return np.where((events.partner >= 0) & ~launch, -1, events.correlation)


def _relative(values: npt.NDArray[Any]) -> Numbers:
    """Encode -1 as 0, other values as 1 + the zigzag difference from the one before.

    Differences are small, because launches and their runs are mostly in the same order.
    """
    coded = np.zeros(len(values), np.int64)
    known = values >= 0
    coded[known] = _zigzag(_differences(values[known].astype(np.int64))) + 1
    return coded


def _differences(values: Numbers) -> Numbers:
    differences = values.copy()
    differences[1:] -= values[:-1]
    return differences


def _zigzag(values: Numbers) -> Numbers:
    """Encode 0, -1, 1, -2 as 0, 1, 2, 3."""
    return np.where(values < 0, -2 * values - 1, 2 * values)
