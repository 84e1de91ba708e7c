"""Perfetto traces of a run: TrackEvent packets, encoded by hand, many at a time.

Field numbers are those of Perfetto's published trace format. Every track has its parent in the tree of :mod:`.tree`. An event is a begin
and an end on one lane of its track, in nanoseconds since the Unix epoch as in the run store.
"""

from __future__ import annotations

from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .counts import Counts
from .events import ANNOTATION, DEVICE, HOST, STEP, Block, Events, Kind
from .lanes import Ends, Lanes
from .protobuf import Column, constant, data, enclosed, fixed64, integer, integers, joined, only, text
from .texts import codes_of, grouped, put
from .tree import Tree

_PACKET, _EVENT, _TRACK, _INTERNED, _CLOCKS = 1, 11, 60, 12, 6
_BEGIN, _END, _COUNTER = 1, 2, 4
_CATEGORY, _NAME, _KEY, _TEXT = 1, 2, 3, 29  # Kinds of interned texts: their fields in InternedData
_SEQUENCE: Final = integer(10, 1)
_CLEARED: Final = _SEQUENCE + integer(13, 1)
_NEEDS_STATE: Final = _SEQUENCE + integer(13, 2)
_BOOT, _REAL = 6, 1
_LANES: Final = 1 << 13
FIRST_EPOCH_NS: Final = 10**18
_KINDS: Final = (HOST, DEVICE, ANNOTATION, STEP)
_CATEGORIES: Final = (
    "launch", "sync", "call", "operator", "python", "loader", "overhead", "kernel", "memcpy", "memset", "annotation", "step",
)  # fmt: skip
_KEYS: Final = tuple(dict.fromkeys(key for kind in _KINDS for key, _ in kind.arguments))


def write(out: BinaryIO, tree: Tree, events: Events) -> Counts:
    """Write the whole run to ``out``."""
    return _Writer(out, tree, events).run()


class _Writer:
    def __init__(self, out: BinaryIO, tree: Tree, events: Events) -> None:
        self.out = out
        self.tree = tree
        self.events = events
        self.counts = Counts(tracks=len(tree.tracks))
        # Times of a trace are at least 0; only times without an epoch can be below.
        self.counts.shifted_ns = events.move_up()
        self._fresh: list[bytes] = []
        self._named = np.zeros(len(events.texts), np.bool_)  # which names the reader has, by index + 1; titles of steps have higher numbers
        self._words: dict[tuple[int, str], int] = {}

    def run(self) -> Counts:
        fixed = [data(kind, integer(1, number) + text(2, word)) for kind, words in ((_CATEGORY, _CATEGORIES), (_KEY, _KEYS))
                 for number, word in enumerate(words, 1)]  # fmt: skip
        self._packet(_CLEARED + data(_INTERNED, b"".join(fixed)))
        first = (self.events.first or 0) + self.counts.shifted_ns
        if first >= FIRST_EPOCH_NS:
            clocks = b"".join(data(1, integer(1, clock) + integer(2, first)) for clock in (_BOOT, _REAL))
            self._packet(_SEQUENCE + integer(8, first) + data(_CLOCKS, clocks))
        ranks: dict[int | None, int] = {}
        for number, track in enumerate(self.tree.tracks):
            rank = ranks[track.parent] = ranks.get(track.parent, -1) + 1
            self._describe(number, 0, rank, counter=track.kind == "counter")
        for kind in _KINDS:
            self._slices(kind)
        for block in self.events.values():
            self._values(block)
        self.counts.cut = self.events.cut
        return self.counts

    def _packet(self, message: bytes) -> None:
        self.out.write(data(_PACKET, message))

    def _describe(self, number: int, lane: int, rank: int, *, counter: bool) -> None:
        track = self.tree.tracks[number]
        message = integer(1, number * _LANES + lane + 1) + text(2, track.name) + integer(11, 3) + integer(12, rank)
        if track.parent is not None:
            message += integer(5, track.parent * _LANES + 1)
        if counter:
            message += data(8, text(6, track.unit) if track.unit else b"")
        self._packet(_SEQUENCE + data(_TRACK, message))

    # -- events ------------------------------------------------------------------------------------------------------------

    def _slices(self, kind: Kind) -> None:
        """Write begins and ends track by track; on a lane, ends precede later begins."""
        lanes = Lanes(nested=kind.nested)
        categories = np.array([_CATEGORIES.index(word.partition(" ")[0]) + 1 for word in kind.words])
        for block in self.events.blocks(kind):
            placed = lanes.assign(block.tracks, block.starts, block.ends)
            for track, lane in placed.fresh:
                self._describe(track, lane, 0, counter=False)
            self.counts.lanes += len(placed.fresh)
            self.counts.slices += len(block)
            flows, of_rows = self._flows(block)
            uuids = _uuids(block.tracks, placed.lanes)
            event = [constant(len(block), integer(9, _BEGIN)), *integers(11, uuids), *integers(10, self._names(block))]
            event += integers(3, categories[block.numbers("word")[0]])
            for key, columns in kind.arguments:
                if block.has(columns[0]):
                    event += self._argument(block, key, columns)
            begins = grouped(*joined(_packets(block.starts, event, np.diff(of_rows))))
            if self._fresh:
                self._packet(_NEEDS_STATE + data(_INTERNED, b"".join(self._fresh)))
                self._fresh.clear()
            put(self.out, [_ends(placed.ends, placed.over), begins, grouped(flows, of_rows)])
        rest = lanes.rest()
        put(self.out, [_ends(rest, np.array([0, len(rest.times)], np.int32))])

    def _flows(self, block: Block) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """Return the encoded ends of all arrows, and where those of each event begin."""
        if block.has("arrows"):
            numbers, of_rows = block.lists("arrows")
        elif block.has("arrow"):
            every, there = block.numbers("arrow")
            numbers, of_rows = every[there], np.concatenate(([0], np.cumsum(there))).astype(np.int32)
            self.counts.arrows += len(numbers)
        else:
            return np.empty(0, np.uint8), np.zeros(len(block) + 1, np.int32)
        flat, each = joined(fixed64(47, numbers))
        return flat, each[of_rows]

    def _names(self, block: Block) -> NDArray[np.int64]:
        if block.has("title"):
            return self._interned(_NAME, block.rows["title"], len(self._named))
        used = np.unique(block.names)
        for number in used[~self._named[used]].tolist():
            self._fresh.append(data(_NAME, integer(1, number + 1) + text(2, self.events.texts[number])))
        self._named[used] = True
        return block.names + 1

    def _argument(self, block: Block, key: str, columns: tuple[str, ...]) -> list[Column]:
        column = block.rows[columns[0]]
        there = column.is_valid().to_numpy(zero_copy_only=False)
        if len(columns) > 1:
            sizes = [block.rows[name].cast(pa.string()).fill_null("?") for name in columns]
            column = pc.binary_join_element_wise(*sizes, ", ")
        if pa.types.is_string(column.type):
            value = integers(17, self._interned(_TEXT, column, 0))
        elif pa.types.is_boolean(column.type):
            value = integers(2, block.numbers(columns[0])[0])
        else:
            value = integers(4, block.numbers(columns[0])[0])
        return only(there, enclosed(4, [constant(len(block), integer(1, _KEYS.index(key) + 1)), *value]))

    def _interned(self, kind: int, column: Any, above: int) -> NDArray[np.int64]:
        """Return the numbers of texts, from ``above``; write new texts before the block."""
        words, codes = codes_of(column)
        numbers = [0]  # without a text
        for word in words:
            number = self._words.get((kind, word))
            if number is None:
                number = self._words[kind, word] = above + len(self._words) + 1
                self._fresh.append(data(kind, integer(1, number) + text(2, word)))
            numbers.append(number)
        return np.array(numbers, np.int64)[codes + 1]

    def _values(self, block: Block) -> None:
        values = block.rows["value"].to_numpy(zero_copy_only=False)
        event = [constant(len(block), integer(9, _COUNTER)), *integers(11, _uuids(block.tracks, 0)), *fixed64(44, values)]
        put(self.out, [grouped(*joined(_packets(block.starts, event)))])
        self.counts.values += len(block)


def _packets(times: NDArray[np.int64], event: list[Column], more: NDArray[Any] | int = 0) -> list[Column]:
    """``more``: bytes of each event that are written after it."""
    event = enclosed(_EVENT, event, more)
    return enclosed(_PACKET, [*integers(8, times), constant(len(times), _NEEDS_STATE), *event], more)


def _ends(ends: Ends, over: NDArray[np.int32]) -> Any:
    event = [constant(len(ends.times), integer(9, _END)), *integers(11, _uuids(ends.tracks, ends.lanes))]
    flat, each = joined(_packets(ends.times, event))
    return grouped(flat, each[over])


def _uuids(tracks: NDArray[np.int64], lanes: NDArray[np.int64] | int) -> NDArray[np.int64]:
    return tracks * _LANES + lanes + 1
