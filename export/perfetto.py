"""How does a run become a Perfetto trace? TrackEvent packets, written by hand and one after the other.

Field numbers are those of Perfetto's published trace format. Every track lies in the tree of :mod:`.tree` through its parent; an event is
a begin and an end on one lane of its track, in nanoseconds since the Unix epoch as the run store has them.
"""

from __future__ import annotations

from typing import Any, BinaryIO, Final

from . import events as rows
from .counts import Counts
from .events import Events
from .lanes import Lanes
from .protobuf import data, fixed, real, text, whole
from .tree import Tree

_PACKET, _EVENT, _TRACK, _INTERNED, _CLOCKS = 1, 11, 60, 12, 6
_BEGIN, _END, _COUNTER = 1, 2, 4
_SEQUENCE: Final = whole(10, 1)
_CLEARED: Final = _SEQUENCE + whole(13, 1)
_NEEDS_STATE: Final = _SEQUENCE + whole(13, 2)
_BOOT, _REAL = 6, 1
_LANES: Final = 1 << 13
FIRST_EPOCH_NS: Final = 10**18


def write(out: BinaryIO, tree: Tree, events: Events) -> Counts:
    """Write the whole run to ``out``."""
    return _Writer(out, tree, events).run()


class _Writer:
    def __init__(self, out: BinaryIO, tree: Tree, events: Events) -> None:
        self.out = out
        self.tree = tree
        self.events = events
        self.counts = Counts(tracks=len(tree.tracks))
        self._words: dict[tuple[int, str], int] = {}
        self._fresh: list[bytes] = []
        self._pending: list[bytes] = []
        span = events.span()
        # A trace counts from 0 upwards; only times without an epoch can lie below.
        self.shift = self.counts.shifted_ns = max(0, -span[0]) if span else 0
        self.first = span[0] + self.shift if span else 0

    def run(self) -> Counts:
        self._packet(_CLEARED + data(_INTERNED, b""))
        if self.first >= FIRST_EPOCH_NS:
            clocks = b"".join(data(1, whole(1, clock) + whole(2, self.first)) for clock in (_BOOT, _REAL))
            self._packet(_SEQUENCE + whole(8, self.first) + data(_CLOCKS, clocks))
        ranks: dict[int | None, int] = {}
        for number, track in enumerate(self.tree.tracks):
            rank = ranks[track.parent] = ranks.get(track.parent, -1) + 1
            self._describe(number, 0, rank, counter=track.kind == "counter")
        self._slices(self.events.host(), self.tree.host, True, lambda row: (self._name(row), row["word"], rows.host_arguments(row)))
        self._slices(
            self.events.device(), self.tree.device, False,
            lambda row: (self._name(row), row["word"], rows.device_arguments(row, self.events)),
        )  # fmt: skip
        self._slices(
            self.events.annotations(),
            self.tree.annotation,
            True,
            lambda row: (self._name(row), "annotation", rows.annotation_arguments(row)),
        )
        self._slices(self.events.steps(), self.tree.step, True, lambda row: (f"step {row['index']}", "step", rows.step_arguments(row)))
        for samples, track_of in ((self.events.averages(), self.tree.average), (self.events.samples(), self.tree.sample)):
            for row in samples:
                self._counter(track_of(row), row["time_ns"], row["value"])
        self._flush()
        return self.counts

    # -- packets -------------------------------------------------------------------------------------------------------

    def _packet(self, message: bytes) -> None:
        self._pending.append(data(_PACKET, message))
        if len(self._pending) >= 4096:
            self._flush()

    def _flush(self) -> None:
        self.out.write(b"".join(self._pending))
        self._pending.clear()

    def _describe(self, number: int, lane: int, rank: int, *, counter: bool) -> None:
        track = self.tree.tracks[number]
        message = whole(1, _uuid(number, lane)) + text(2, track.name) + whole(11, 3) + whole(12, rank)
        if track.parent is not None:
            message += whole(5, _uuid(track.parent, 0))
        if counter:
            message += data(8, text(6, track.unit) if track.unit else b"")
        self._packet(_SEQUENCE + data(_TRACK, message))

    def _slices(self, found: Any, track_of: Any, nested: bool, told: Any) -> None:
        """Begins and ends, track by track: what ended on a lane is written before what begins there."""
        at: int | None = None
        lanes, known = Lanes(nested=nested), 1
        for row in found:
            number = track_of(row)
            if number != at:
                self._ends(at, lanes.rest())
                at, lanes, known = number, Lanes(nested=nested), 1
            start = row["start_ns"] + self.shift
            lane, over = lanes.place(start, start + (row["duration_ns"] or 0))
            if lane >= known:
                self._describe(number, lane, 0, counter=False)
                known += 1
                self.counts.lanes += 1
            if over:
                self._ends(number, [(lane, over)])
            self._begin(number, lane, start, row, *told(row))
            self.counts.slices += 1
        self._ends(at, lanes.rest())

    def _begin(self, number: int, lane: int, start: int, row: dict[str, Any], name: str, category: str, arguments: dict[str, Any]) -> None:
        event = [
            whole(9, _BEGIN),
            whole(11, _uuid(number, lane)),
            whole(10, self._interned(2, name)),
            whole(3, self._interned(1, category)),
        ]
        event.extend(self._argument(key, value) for key, value in arguments.items())
        arrow = row.get("arrow")
        if arrow is not None:
            event.append(fixed(47, arrow))
            self.counts.arrows += 1
        for one in row.get("arrows") or ():
            event.append(fixed(47, one))
        self._event(start, b"".join(event))

    def _ends(self, number: int | None, over: list[tuple[int, list[int]]]) -> None:
        if number is None:
            return
        for lane, ends in over:
            event = whole(9, _END) + whole(11, _uuid(number, lane))
            for end in ends:
                self._event(end, event)

    def _counter(self, number: int, time_ns: int, value: float) -> None:
        self._event(time_ns + self.shift, whole(9, _COUNTER) + whole(11, _uuid(number, 0)) + real(44, value))
        self.counts.values += 1

    def _event(self, time_ns: int, event: bytes) -> None:
        message = whole(8, time_ns) + _NEEDS_STATE
        if self._fresh:
            message += data(_INTERNED, b"".join(self._fresh))
            self._fresh.clear()
        self._packet(message + data(_EVENT, event))

    def _argument(self, key: str, value: Any) -> bytes:
        if isinstance(value, list):
            value = ", ".join("?" if one is None else str(one) for one in value)
        message = whole(1, self._interned(3, key))
        if isinstance(value, bool):
            message += whole(2, value)
        elif isinstance(value, int):
            message += whole(4, value)
        elif isinstance(value, float):
            message += real(5, value)
        else:
            message += whole(17, self._interned(29, str(value)))
        return data(4, message)

    def _interned(self, kind: int, word: str) -> int:
        """The number of a text; told to the reader with the next event. ``kind``: its field in InternedData."""
        number = self._words.get((kind, word))
        if number is None:
            number = self._words[kind, word] = len(self._words) + 1
            self._fresh.append(data(kind, whole(1, number) + text(2, word)))
        return number

    def _name(self, row: dict[str, Any]) -> str:
        return self.events.name(row["name"])


def _uuid(number: int, lane: int) -> int:
    return number * _LANES + lane + 1
