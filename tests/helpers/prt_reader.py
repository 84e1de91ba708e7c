"""A second reader of trace files, slow and plain, written only by docs/trace-format.md, to check the first one against."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

MAGIC = b"\x89PRT\r\n\x1a\n"
TYPES = [
    *("meta", "strings", "clock", "process", "thread", "annotation", "counter", "api", "kernel", "memcpy", "memset", "sync"),
    *("metric", "loss", "end", "external"),
]
SPAN = {1: "name", 2: "start_ns", 3: "duration_ns"}
COMMON = SPAN | {4: "device", 5: "context", 6: "stream", 7: "correlation"}
COLUMNS: dict[str, dict[int, str]] = {
    "meta": {1: "key", 2: "value"},
    "strings": {1: "id", 2: "text"},
    "clock": {1: "ticks", 2: "monotonic_ns", 3: "realtime_ns", 4: "uncertainty_ns"},
    "process": {1: "pid", 2: "parent_pid", 3: "start_ns", 4: "command", 5: "host", 6: "rank", 7: "local_rank", 8: "world_size"},
    "thread": {1: "source", 2: "tid", 3: "name"},
    "annotation": SPAN | {4: "value", 5: "depth", 6: "flags"},
    "counter": {1: "name", 2: "time_ns", 3: "value"},
    "api": SPAN | {4: "correlation", 5: "kind", 6: "tid"},
    "kernel": COMMON
    | dict(
        zip(
            range(8, 17),
            ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_memory", "graph_node"],
            strict=True,
        )
    ),
    "memcpy": COMMON | {8: "copy_kind", 9: "bytes", 10: "pageable"},
    "memset": COMMON | {9: "bytes"},
    "sync": COMMON | {8: "type"},
    "metric": {1: "metric", 2: "unit", 3: "time_ns", 4: "value"},
    "loss": {1: "source", 2: "reason", 3: "count", 4: "first_ns", 5: "last_ns"},
    "end": {1: "blocks", 2: "written", 3: "lost"},
    "external": {1: "correlation", 2: "kind", 3: "id"},
}
TEXTS = {("meta", 1), ("meta", 2), ("strings", 2), ("process", 4), ("process", 5), ("thread", 3)}
DOUBLES = {("counter", 3), ("metric", 4)}
RANGES = ("annotation", "api", "kernel", "memcpy", "memset", "sync")
TIMES = {("clock", 1), ("counter", 2), ("metric", 3), ("loss", 4), ("loss", 5)} | {(table, 2) for table in RANGES}
MISSING = -(2**63)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def _crc_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_TABLE = [_crc_of(byte) for byte in range(256)]


def signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def unzigzag(value: int) -> int:
    return -(value + 1) // 2 if value & 1 else value // 2


class MalformedError(Exception):
    """A payload that the document does not allow."""


class Bytes:
    """Takes values off the front of a column."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise MalformedError("ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
            if shift >= 70:
                raise MalformedError("varint")
        if value >= 2**64:
            raise MalformedError("varint")
        return value

    def zigzags(self, count: int) -> list[int]:
        return [unzigzag(self.varint()) for _ in range(count)]

    def runs(self, count: int) -> list[int]:
        values: list[int] = []
        while len(values) < count:
            length, value = self.varint(), unzigzag(self.varint())
            if not 1 <= length <= count - len(values):
                raise MalformedError("run")
            values += [value] * length
        return values


@dataclass
class Block:
    table: str
    count: int
    source: int
    sequence: int
    first_time: int
    payload: bytes
    columns: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        data = Bytes(self.payload)
        while data.at < len(self.payload):
            number, encoding, _, length = struct.unpack("<BBHI", data.take(8))
            self.columns.setdefault(number, (encoding, data.take(length)))

    def column(self, number: int) -> list[Any] | None:
        """Return the values of a column; None if it is missing or of unknown encoding."""
        if number not in self.columns or self.columns[number][0] > 10:
            return None
        encoding, raw = self.columns[number]
        data = Bytes(raw)
        if (self.table, number) in TEXTS:
            if encoding != 6:
                raise MalformedError("text")
            values: list[Any] = [data.take(data.varint()) for _ in range(self.count)]
        elif (self.table, number) in DOUBLES:
            values = self.doubles(encoding, data)
        else:
            values = [signed(value) for value in self.integers(number, encoding, data)]
        if data.at != len(raw):
            raise MalformedError("bytes left over")
        return values

    def doubles(self, encoding: int, data: Bytes) -> list[float]:
        if encoding == 0:
            return [struct.unpack("<d", data.take(8))[0] for _ in range(self.count)]
        exponent = data.take(1)[0]
        if encoding != 9 or exponent > 9:
            raise MalformedError("double")
        number, values = 0, []
        for step in data.zigzags(self.count):
            number = signed(number + step)
            values.append(float(number) / float(10**exponent))
        return values

    def integers(self, number: int, encoding: int, data: Bytes) -> list[int]:
        base = self.first_time if (self.table, number) in TIMES else 0
        if encoding == 0:
            return [struct.unpack("<q", data.take(8))[0] for _ in range(self.count)]
        if encoding == 1:
            return [data.varint() for _ in range(self.count)]
        if encoding == 2:
            return data.zigzags(self.count)
        if encoding == 4:
            return data.runs(self.count)
        steps = data.runs(self.count) if encoding in (5, 10) else data.zigzags(self.count)
        values = []
        if encoding in (3, 5):
            for step in steps:
                base = signed(base + step)
                values.append(base)
        elif encoding in (7, 10):
            names = None if number == 1 else self.column(1)
            if names is None or any(not 0 <= name < 2**20 for name in names):
                raise MalformedError("same name")
            last: dict[int, int] = {}
            for name, step in zip(names, steps, strict=True):
                last[name] = signed(last.get(name, 0) + step)
                values.append(last[name])
        elif encoding == 8 and number == 2 and self.table in RANGES:
            zeros = [0] * self.count
            durations = self.column(3) or zeros
            devices = (self.column(4) if self.table not in ("annotation", "api") else None) or zeros
            streams = (self.column(6) if self.table != "annotation" else None) or zeros
            ends: dict[tuple[int, int], int] = {}
            for step, *stream, duration in zip(steps, devices, streams, durations, strict=True):
                start = signed(ends.get(tuple(stream), self.first_time) + step)
                ends[tuple(stream)] = signed(start + duration)
                values.append(start)
            if len(ends) > 256:
                raise MalformedError("streams")
        else:
            raise MalformedError("encoding")
        return values


def blocks(data: bytes) -> list[Block]:
    """Every intact block, in file order."""
    if data[:8] != MAGIC or len(data) < 64:
        raise ValueError("no trace file")
    at = struct.unpack_from("<I", data, 12)[0] if crc32c(data[:60]) == struct.unpack_from("<I", data, 60)[0] else 64
    blocks = []
    while (at := data.find(b"PRBK", at)) >= 0 and at + 48 <= len(data):
        header = data[at : at + 48]
        _, kind, codec, _, stored, raw, count, source, sequence, first, own_sum, file_sum = struct.unpack("<IHBBIIIIQqII", header)
        payload = data[at + 48 : at + 48 + stored]
        within = stored <= 16 << 20 and raw <= 64 << 20 and count <= 1 << 20 and (codec or raw == stored)
        if crc32c(header[:40]) != own_sum or not within or len(payload) < stored or crc32c(header[:44] + payload) != file_sum:
            at += 1
            continue
        at += 48 + stored
        if not 1 <= kind <= 16 or codec not in (0, 2):
            continue
        if codec == 2:
            import zstandard  # only for compressed files

            payload = zstandard.ZstdDecompressor().decompress(payload, max_output_size=raw)
        with suppress(MalformedError):
            blocks.append(Block(TYPES[kind - 1], count, source, sequence, first, payload))
    return blocks


class Clock:
    """Ticks to nanoseconds, exactly."""

    def __init__(self, anchors: list[tuple[int, int, int]], ticks_per_second: float) -> None:
        anchors = sorted(anchors, key=lambda anchor: anchor[0])
        self.segments: list[tuple[int, int, int, Fraction, Fraction]] = []
        from_ = anchors[0]
        for to in anchors[1:]:
            ticks, monotonic, real = (b - a for a, b in zip(from_, to, strict=True))
            if ticks <= 0 or (monotonic <= 0 and real <= 0):
                continue
            rate = Fraction(monotonic if monotonic > 0 else real, ticks)
            real_rate = Fraction(real, ticks)
            if real <= 0 or (monotonic > 0 and abs(real - monotonic) > 1_000_000 + monotonic // 1000):
                real_rate = rate
            self.segments.append((*from_, rate, real_rate))
            from_ = to
        if not self.segments:
            rate = Fraction(10**9) / Fraction(ticks_per_second or 1e9)
            self.segments.append((*from_, rate, rate))

    def segment(self, ticks: int) -> tuple[int, int, int, Fraction, Fraction]:
        before = [segment for segment in self.segments if segment[0] <= ticks]
        return before[-1] if before else self.segments[0]

    def realtime(self, ticks: int) -> Fraction:
        at, _, real, _, rate = self.segment(ticks)
        return real + (ticks - at) * rate

    def monotonic(self, ticks: int) -> Fraction:
        at, monotonic, _, rate, _ = self.segment(ticks)
        return monotonic + (ticks - at) * rate


def read(data: bytes) -> dict[str, list[dict[str, Any]]]:
    """Return every table as rows: exact times, names as texts, None for null."""
    texts: dict[int, str] = {}
    anchors: list[tuple[int, int, int]] = []
    rate = 0.0
    complete = []
    for block in blocks(data):
        try:
            columns = {number: block.column(number) for number in COLUMNS[block.table]}
        except MalformedError:
            continue
        complete.append((block, columns))
        if block.table == "strings":
            for number, text in zip(columns[1] or [], columns[2] or [], strict=True):
                texts.setdefault(number, text.decode())
        elif block.table == "clock":
            anchors += zip(columns[1] or [], columns[2] or [], columns[3] or [], strict=True)
        elif block.table == "meta":
            rate = float(dict(zip(columns[1] or [], columns[2] or [], strict=True)).get(b"clock.ticks_per_second", rate))
    clock = Clock(anchors or [(0, 0, 0)], rate)
    tables: dict[str, list[dict[str, Any]]] = {table: [] for table in TYPES}
    for block, columns in complete:
        for i in range(block.count):
            row = {COLUMNS[block.table][number]: None if values is None else values[i] for number, values in columns.items()}
            tables[block.table].append(_finished(block, row, clock, texts))
    return tables


def _finished(block: Block, row: dict[str, Any], clock: Clock, texts: dict[int, str]) -> dict[str, Any]:
    times = [COLUMNS[table][number] for table, number in TIMES if table == block.table and table != "clock"]
    if row.get("duration_ns") is not None:
        start = row["start_ns"]
        row["duration_ns"] = None if start is None else clock.monotonic(start + row["duration_ns"]) - clock.monotonic(start)
    for column in times:
        if row[column] is not None:
            row[column] = clock.realtime(row[column])
    for column, value in row.items():
        if column in ("name", "metric") and block.table != "thread":
            row[column] = None if not value else texts.get(value, f"?name#{value}")
        elif isinstance(value, bytes):
            row[column] = value.decode()
        elif value == MISSING:
            row[column] = None
    if block.table in ("annotation", "counter"):
        row["source"] = block.source
    return row
