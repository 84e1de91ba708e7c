"""Trace files for tests: rows as dictionaries of columns, written block by block by the library's own block writer."""

from __future__ import annotations

import array
from collections.abc import Sequence

import prt_reader
from postrun.native import _native

INT, TIME, DURATION, DOUBLE, TEXT = range(5)


class PrtWriter:
    """Collects blocks; :meth:`data` is the file. Column values are integers, floats or texts, by the kind that the format gives them."""

    def __init__(self, *, zstd_level: int = 0, created_ns: int = 1_700_000_000_000_000_000) -> None:
        self.parts = [_native.write_trace_header(bytes(range(16)), 4711, 42, 1, created_ns)]
        self.level = zstd_level
        self.sequence = 0

    def add(self, table: str, columns: dict[int, Sequence[object]], *, source: int = 0, first_time: int = 0) -> PrtWriter:
        kind = prt_reader.TYPES.index(table) + 1
        self.add_raw(kind, [(number, self._kind(table, number), values) for number, values in columns.items()], source, first_time)
        return self

    def add_raw(self, kind: int, columns: list[tuple[int, int, Sequence[object]]], source: int = 0, first_time: int = 0) -> None:
        count = len(columns[0][2]) if columns else 0
        packed = [(number, how, self._pack(how, values)) for number, how, values in columns]
        self.parts.append(_native.write_trace_block(kind, source, count, self.sequence, first_time, packed, self.level))
        self.sequence += 1

    @staticmethod
    def _kind(table: str, number: int) -> int:
        if (table, number) in prt_reader.TEXTS:
            return TEXT
        if (table, number) in prt_reader.DOUBLES:
            return DOUBLE
        if (table, number) in prt_reader.TIMES:
            return TIME
        return DURATION if table in prt_reader.RANGES and number == 3 else INT

    @staticmethod
    def _pack(kind: int, values: Sequence[object]) -> array.array[int] | array.array[float] | list[bytes]:
        if kind == TEXT:
            return [str(value).encode() for value in values]
        return array.array("d" if kind == DOUBLE else "q", values)  # type: ignore[arg-type]

    def prelude(self, names: Sequence[str], anchors: Sequence[tuple[int, int, int]], ticks_per_second: float = 1e9) -> PrtWriter:
        """Metadata, clock anchors (ticks, monotonic, realtime) and names with ids from 1."""
        self.add("meta", {1: ["clock.ticks_per_second"], 2: [repr(ticks_per_second)]})
        if anchors:
            ticks, monotonic, realtime = zip(*anchors, strict=True)
            self.add("clock", {1: ticks, 2: monotonic, 3: realtime, 4: [50] * len(ticks)})
        if names:
            self.add("strings", {1: range(1, len(names) + 1), 2: names})
        return self

    def end(self, written: int = 0) -> PrtWriter:
        return self.add("end", {1: [self.sequence], 2: [written], 3: [0]})

    def data(self) -> bytes:
        return b"".join(self.parts)


def golden() -> bytes:
    """Return tests/native/golden/v1.prt: some of everything, by version 1.0."""
    second = 2_600_000_000
    anchors = [(i * second, i * 10**9 + i, 1_700_000_000_000_000_000 + i * 10**9 + (3_600 * 10**9 if i >= 2 else 0)) for i in range(4)]
    writer = PrtWriter().prelude(["step", "forward", "é kernel", "loss", "cpu_utilization"], anchors, second)
    writer.add("process", {1: [4711], 2: [42], 3: [1_700_000_000_000_000_000], 4: ["python t.py"], 5: ["h1"], 6: [3], 7: [-1], 8: [8]})
    writer.add("thread", {1: [1, 2], 2: [4711, 4712], 3: ["MainThread", ""]})
    starts = [i * 50_000_000 + 777 * (i % 3) for i in range(40)]
    none = prt_reader.MISSING
    ranges = {1: [2, 2, 1, 2] * 10, 2: starts, 3: [1000 + i % 5 for i in range(40)], 4: [none, none, 7, none] * 10, 5: [1, 1, 0, 1] * 10}
    writer.add("annotation", {**ranges, 6: [0] * 39 + [1]}, source=1, first_time=starts[0])
    writer.add("counter", {1: [4, 4, 4], 2: [10, second, 2 * second], 3: [0.25, 1 / 3, -7.5]}, source=2, first_time=10)
    writer.add("api", {1: [2] * 3, 2: [100, 300, 900], 3: [50, 50, 51], 4: [1, 2, 3], 5: [0, 1, 2], 6: [4711, 4712, 4711]}, first_time=100)
    common = {2: [200, 5_000, 9_000, 12_000], 3: [4_000, 100, 3_000, 3], 4: [0, 1, 0, 1], 5: [1] * 4, 6: [7, 20, 7, 20], 7: [1, 2, 5, 4]}
    shape = {number: [number, 1, number, 1] for number in range(8, 16)}
    writer.add("kernel", {1: [3, 2, 3, 2], **common, **shape, 16: [none, none, 2**60, 0]}, first_time=200)
    writer.add("memcpy", {1: [0] * 4, **common, 8: [1, 2, 8, 10], 9: [4, 2**40, 0, 1], 10: [0, 1, none, 1]}, first_time=200)
    writer.add("memset", {1: [0] * 4, **common, 9: [4, 2**40, 0, 1]}, first_time=200)
    writer.add("sync", {1: [0] * 4, **common, 8: [1, 2, 3, 4]}, first_time=200)
    writer.add("metric", {1: [5] * 6, 2: [-1, 0, 1] * 2, 3: [0] * 3 + [second] * 3, 4: [50.5, 0.1, 99.9, 100.0, 0.0, 33.3]})
    writer.add("loss", {1: [1, 0], 2: [1, 2], 3: [12, 2**33], 4: [5, second], 5: [6, 3 * second]}, first_time=5)
    return writer.end(62).data()
