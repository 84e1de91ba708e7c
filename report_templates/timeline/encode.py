"""How does a Timeline get into a page? One block of bytes, compressed, as text; timeline.js of templates/ reads it.

The block: the length of the head (4 bytes, little-endian), the head (JSON), then the columns in the order that the head lists them. A
column lies in planes: the lowest byte of every value, then the next byte of every value, as many as its largest value needs. Planes of high
bytes are nearly constant, so they cost next to nothing compressed. Equal timelines give equal text.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from ...analysis.timeline.model import Line, Timeline
from ..text.formats import printable

Numbers = npt.NDArray[np.int64]


def encode(timeline: Timeline) -> str:
    """Base64 of the compressed block."""
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
    put("partner", _partners(events.partner))
    put("correlation", _relative(_correlations(timeline)))
    put("step", _relative(events.step))
    lines = [_line(number, line, put, columns) for number, line in enumerate(timeline.lines)]
    pairs = {pair: None for detail in timeline.details for pair in detail}
    place = {pair: number for number, pair in enumerate(pairs)}
    head = {
        "origin": timeline.origin_ns,
        "span": timeline.span_ns,
        "tracks": [
            [-1 if one.parent is None else one.parent, one.kind, _text(one.label), one.lanes, _text(one.detail), _text(one.narrow)]
            for one in timeline.tracks
        ],
        "names": [[_text(one.name), "" if one.short == one.name else _text(one.short), one.meaning] for one in timeline.names],
        "pairs": [[_text(key), _text(held)] for key, held in pairs],
        "details": [[place[pair] for pair in detail] for detail in timeline.details],
        "lines": lines,
        "views": [[one.key, _text(one.label), one.start_ns, one.end_ns, -1 if one.track is None else one.track] for one in timeline.views],
        "gaps": [[one.track, one.start_ns, one.end_ns] for one in timeline.gaps],
        "columns": [[name, planes, length] for name, _, planes, length in columns],
    }  # fmt: skip
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    block = struct.pack("<I", len(text)) + text + b"".join(data for _, data, _, _ in columns)
    return base64.b64encode(_compressed(block)).decode()


def _line(number: int, line: Line, put: Any, columns: list[tuple[str, bytes, int, int]]) -> list[object]:
    put(f"time{number}", _gaps(line.time_ns, np.zeros(len(line.time_ns), np.int32)))
    for word, values in (("mean", line.mean), ("low", line.low), ("high", line.high)):
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.int64)
        columns.append((f"{word}{number}", _planes(bits, 4), 4, len(bits)))
    return [line.track, _text(line.unit)]


def _text(text: str) -> str:
    """Without what neither a page nor UTF-8 can hold."""
    return printable(text)


def _unsigned(values: npt.NDArray[Any]) -> Numbers:
    wide = np.asarray(values).astype(np.int64)
    if len(wide) and int(wide.min()) < 0:
        raise ValueError("a column of a timeline must not be negative")
    return wide


def _planes(values: Numbers, count: int) -> bytes:
    return values.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :count].T.tobytes()


def _gaps(times: npt.NDArray[np.int64], track: npt.NDArray[np.int32]) -> Numbers:
    """From the start of the event before on the same track; of its first event from the origin. Zigzag: 0, -1, 1, -2 as 0, 1, 2, 3."""
    gaps = _differences(times)
    first = np.flatnonzero(np.diff(track, prepend=-1))
    gaps[first] = times[first]
    return _zigzag(gaps)


def _correlations(timeline: Timeline) -> Numbers:
    """Without those of runs whose launch is there: it has the same number."""
    events = timeline.events
    launch = np.array([name.meaning == "launch" for name in timeline.names] or [False], np.bool_)[events.name]
    return np.where((events.partner >= 0) & ~launch, -1, events.correlation)


def _relative(values: npt.NDArray[Any]) -> Numbers:
    return _partners(values.astype(np.int64))


def _partners(partner: npt.NDArray[Any]) -> Numbers:
    """0 for none (-1); else the zigzag difference to the partner before, plus 1: launches and their runs mostly stand in the same order."""
    coded = np.zeros(len(partner), np.int64)
    known = partner >= 0
    coded[known] = _zigzag(_differences(partner[known].astype(np.int64))) + 1
    return coded


def _differences(values: Numbers) -> Numbers:
    found = values.copy()
    found[1:] -= values[:-1]
    return found


def _zigzag(values: Numbers) -> Numbers:
    return np.where(values < 0, -2 * values - 1, 2 * values)


def _compressed(data: bytes) -> bytes:
    held = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=held, mtime=0) as file:
        file.write(data)
    return held.getvalue()
