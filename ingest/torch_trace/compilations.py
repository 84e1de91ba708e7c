"""Compilations of one structured log: entries -> a row per compilation, with its function, times, reason and failure.

The entries of a compilation have its id, ``frame_id`` and ``frame_compile_id``. Its reason and graph breaks come before its metrics, which
end it. A compilation without metrics did not end: the process was killed meanwhile, or still runs.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from ..store.texts import storable
from ..store.time_limits import LATEST_NS, LONGEST_NS, YEAR_2001_NS
from .entries import Entry

MOST: Final = 10_000  # compilations of a file; 256 of a function are the limit of PyTorch, and programs compile some hundred functions
_MOST_STRINGS: Final = 100_000  # file names that entries refer to by number
_LONGEST: Final = 1000  # letters of a text; the first line of a reason has some 300
_HIGHEST_ID: Final = 1 << 31
_ID: Final = re.compile(r"(?:!(\d{1,9})/)?(\d{1,9})/(\d{1,9})")
# Messages of PyTorch 2.3 to 2.13 at the limit of compilations of a function.
_LIMIT: Final = re.compile(r"(?:Cache|Recompile)LimitExceeded|\b(?:cache_size|recompile)[ _]limit\b", re.IGNORECASE)
_BREAK_AT: Final = re.compile(r"Graph break in user code at (.+:\d+)")
_BREAK_REASON: Final = re.compile(r"(?:Graph Break )?Reason: (.*)")
_OF_ENTRY: Final = re.compile(r"^!?[\d/]+(?:_\d+)?: ")  # the compilation that did not fit, before a reason
Id = tuple[str, int]


@dataclass(slots=True)
class Compilation:
    """A row of table ``compilation``. ``frame``: the function's number, ``version``: the number of its compilation, from 0."""

    frame: str
    version: int
    backward: bool = False
    function: str | None = None
    file: str | None = None
    line: int | None = None
    start_ns: int | None = None
    duration_ns: int | None = None
    reason: str | None = None
    graph_breaks: int = 0
    graph_break: str | None = None
    failure: str | None = None
    limit_reached: bool = False
    finished: bool = True


@dataclass(slots=True)
class _Open:
    """The entries of a compilation before its metrics."""

    reason: str | None = None
    breaks: list[str] = field(default_factory=list)
    start: tuple[str | None, Any, int | None] | None = None  # function, file or its number, line


class Compilations:
    """The compilations of one process. ``counts``: entries that were left out, by reason."""

    def __init__(self) -> None:
        self.rows: list[Compilation] = []
        self.counts = Counter[str]()
        self.pid: int | None = None
        self.rank: int | None = None
        self._open: dict[Id, _Open] = {}
        self._strings: dict[int, str] = {}
        self._functions: dict[str, tuple[str | None, str | None, int | None]] = {}

    def add(self, entry: Entry) -> None:
        """Add an entry; those of other processes and without an id are counted."""
        body = entry.body
        if "str" in body:
            self._string(body["str"])
            return
        if self.pid is None:
            self.pid = entry.pid
        elif self.pid != entry.pid:
            self.counts["other_process"] += 1
            return
        rank = entry.rank if entry.rank is not None else _number(body.get("rank"))
        self.rank = rank if self.rank is None else self.rank
        for member, backward in (("compilation_metrics", False), ("bwd_compilation_metrics", True)):
            if isinstance(metrics := body.get(member), dict):
                self._metrics(body, metrics, backward=backward)
                return
        artifact = body.get("artifact")
        name = artifact.get("name") if isinstance(artifact, dict) else None
        start = body.get("dynamo_start")
        if name in ("recompile_reasons", "dynamo_graph_break_reason") or isinstance(start, dict):
            self._before(body, name, start, entry.payload)

    def close(self) -> list[Compilation]:
        """Return all compilations, those that did not end last."""
        for (frame, version), known in self._open.items():
            if known.start is not None:
                row = Compilation(frame, version, reason=known.reason, finished=False)
                row.function, row.file, row.line = known.start[0], self._file(known.start[1]), known.start[2]
                self._set_breaks(row, known)
                self._append(row)
        self._open.clear()
        for row in self.rows:  # the entry of a compilation beyond the limit does not name the function
            if row.function is None:
                row.function, row.file, row.line = self._functions.get(row.frame, (row.function, row.file, row.line))
        return self.rows

    def _string(self, pair: Any) -> None:
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and len(self._strings) < _MOST_STRINGS:
            number = _number(pair[1])
            if number is not None:
                self._strings[number] = storable(pair[0][:_LONGEST])

    def _file(self, name: Any) -> str | None:
        number = _number(name)
        return _text(name) if number is None else self._strings.get(number)

    def _id(self, body: dict[str, Any], metrics: dict[str, Any] | None = None) -> Id | None:
        frame, version = _number(body.get("frame_id")), _number(body.get("frame_compile_id"))
        if frame is not None and version is not None:
            graph = _number(body.get("compiled_autograd_id"))
            return (str(frame) if graph is None else f"!{graph}/{frame}"), version
        written = (metrics or {}).get("compile_id")
        match = _ID.fullmatch(written) if isinstance(written, str) else None
        if match is not None:
            return (match[2] if match[1] is None else f"!{match[1]}/{match[2]}"), int(match[3])
        self.counts["no_id"] += 1
        return None

    def _before(self, body: dict[str, Any], name: str | None, start: Any, payload: list[str]) -> None:
        known_id = self._id(body)
        if known_id is None:
            return
        if known_id not in self._open and len(self._open) >= MOST:
            self.counts["left_out"] += 1
            return
        known = self._open.setdefault(known_id, _Open())
        if name == "recompile_reasons":
            known.reason = _reason(payload) or known.reason
        elif name is not None:
            known.breaks.append(_graph_break(payload))
            del known.breaks[_MOST_STRINGS:]
        else:
            known.start = _innermost(start)

    def _metrics(self, body: dict[str, Any], metrics: dict[str, Any], *, backward: bool) -> None:
        known_id = self._id(body, metrics)
        if known_id is None:
            return
        known = None if backward else self._open.pop(known_id, None)
        row = Compilation(*known_id, backward=backward)
        row.function, row.line = _text(metrics.get("co_name")), _number(metrics.get("co_firstlineno"))
        row.file = _text(metrics.get("co_filename"))
        if known is not None:
            row.reason = known.reason
            self._set_breaks(row, known)
            if row.function is None and known.start is not None:
                row.function, row.file, row.line = known.start[0], self._file(known.start[1]), known.start[2]
        if row.function is not None:
            self._functions.setdefault(row.frame, (row.function, row.file, row.line))
        row.reason = row.reason or _first_line(metrics.get("recompile_reason"))
        self._set_times(row, metrics)
        kind, why = _text(metrics.get("fail_type")), metrics.get("fail_reason")
        row.failure = ": ".join(text for text in (kind, _first_line(why)) if text) or None
        row.limit_reached = _LIMIT.search(f"{kind or ''} {why if isinstance(why, str) else ''}"[: 4 * _LONGEST]) is not None
        self._append(row)

    def _set_breaks(self, row: Compilation, known: _Open) -> None:
        row.graph_breaks = len(known.breaks)
        row.graph_break = next((text for text in known.breaks if text), None)

    def _set_times(self, row: Compilation, metrics: dict[str, Any]) -> None:
        start = _nanoseconds(metrics.get("start_time_us"), 1000) or _nanoseconds(metrics.get("start_time"), 10**9)
        duration = _nanoseconds(metrics.get("duration_us"), 1000)
        if duration is None:
            duration = _nanoseconds(metrics.get("entire_frame_compile_time_s"), 10**9)
        if start is not None and not YEAR_2001_NS <= start <= LATEST_NS - LONGEST_NS:
            start = None
        if duration is not None and duration > LONGEST_NS:
            duration = None
        row.start_ns, row.duration_ns = start, duration
        self.counts["no_time"] += start is None or duration is None

    def _append(self, row: Compilation) -> None:
        if len(self.rows) < MOST:
            self.rows.append(row)
        else:
            self.counts["left_out"] += 1


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _HIGHEST_ID else None


def _text(value: Any) -> str | None:
    return storable(value[:_LONGEST]) if isinstance(value, str) and value else None


def _nanoseconds(value: Any, factor: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not 0 <= value < 2**63 / factor:
        return None
    return value * factor if isinstance(value, int) else round(value * (factor // 1000)) * 1000  # the clock counts microseconds


def _first_line(value: Any) -> str | None:
    """Return the first line of a reason, without the compilation that it names."""
    if not isinstance(value, str):
        return None
    line = " ".join(value[: 8 * _LONGEST].partition("\n")[0].split())
    return storable(_OF_ENTRY.sub("", line)[:_LONGEST]) or None


def _reason(payload: list[str]) -> str | None:
    """Return why the latest compilation of the function did not fit.

    The payload is the reason, or a list of reasons with that of the latest compilation first."""
    if not payload:
        return None
    first = payload[0].strip()
    if not first.startswith("["):
        return _first_line(first)
    if first == "[":
        return _first_line(_decoded(payload[1].strip().removesuffix(",")) if len(payload) > 1 else None)
    values = _decoded(first)
    return _first_line(values[0] if isinstance(values, list) and values else None)


def _graph_break(payload: list[str]) -> str:
    """Return place and reason of a graph break in one line, "" if unknown."""
    location = _BREAK_AT.match(payload[0]) if payload else None
    after = next((number for number, line in enumerate(payload) if _BREAK_REASON.match(line)), None)
    reason = None
    if after is not None and (match := _BREAK_REASON.match(payload[after])) is not None:
        lines = [match[1], *payload[after + 1 :]]
        lines = lines[1:] if lines[0].startswith("Encountered graph break") else lines
        reason = next((line.strip() for line in lines if line.strip()), None)
    return storable(": ".join(text[: _LONGEST // 2] for text in (location and location[1], reason) if text))


def _innermost(start: dict[str, Any]) -> tuple[str | None, Any, int | None]:
    """Return function, file and line of the last frame of a stack."""
    stack = start.get("stack")
    frame = stack[-1] if isinstance(stack, list) and stack else None
    if not isinstance(frame, dict):
        return None, None, None
    return _text(frame.get("name")), frame.get("filename"), _number(frame.get("line"))


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
