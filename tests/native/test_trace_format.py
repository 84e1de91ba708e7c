"""The C reader returns the written rows, agrees with a second reader, and reports the exact losses of a damaged file."""

from __future__ import annotations

import json
import os
import random
import re
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("postrun.native._native")

import prt_reader
from postrun.errors import InputError
from postrun.ingest.prt.format import TABLES, TraceFile
from postrun.ingest.store.limits import cut_text
from postrun.native import _native
from prt_writer import DOUBLE, INT, TIME, PrtWriter, golden

GOLDEN = Path(__file__).parent / "golden"
ANCHORS = [(0, 0, 10**18), (10**9, 10**9, 10**18 + 10**9)]
needs_zstd = pytest.mark.skipif(not _native.zstd_available(), reason="libzstd.so.1 cannot be loaded")


def opened(tmp_path: Path, data: bytes, **options: Any) -> TraceFile:
    path = tmp_path / "t.prt"
    path.write_bytes(data)
    return TraceFile(path, **options)


def rows(trace: TraceFile) -> dict[str, list[dict[str, Any]]]:
    tables = {}
    for table in TABLES:
        read = trace.table(table).arrow()
        read.validate(full=True)
        tables[table] = read.to_pylist()
    return tables


def same(value: Any, expected: Any) -> bool:
    """Compare times within 1 ns of the exact ones, cut at the ends of 64 bits."""
    if isinstance(expected, Fraction):
        return value is not None and abs(value - min(max(expected, -(2**63)), 2**63 - 1)) <= 1
    if isinstance(expected, float) and expected != expected:
        return isinstance(value, float) and value != value
    return type(value) is type(expected) and value == expected


def agree(trace: TraceFile, data: bytes) -> None:
    """Both readers see the same rows."""
    expected = prt_reader.read(data)
    for table, got in rows(trace).items():
        assert len(got) == len(expected[table]), table
        for row, second in zip(got, expected[table], strict=True):
            assert row.keys() == second.keys()
            assert [(table, key, row[key], second[key]) for key in row if not same(row[key], second[key])] == []


def codes(trace: TraceFile) -> list[str]:
    return sorted(problem.code for problem in trace.problems())


# ---------------------------------------------------------------------------------------------------------------- round trips

INT64 = st.integers(-(2**63) + 1, 2**63 - 1)
COLUMN = st.one_of(
    st.lists(INT64, min_size=12, max_size=12),
    st.lists(st.integers(-3, 3), min_size=12, max_size=12),
    st.lists(st.integers(120, 9000), min_size=12, max_size=12),
    st.lists(st.sampled_from([0, 2**40]), min_size=12, max_size=12),
    st.integers(0, 2**40).map(lambda start: [start + 7 * i for i in range(12)]),
    st.just([5] * 12),
)
DOUBLES = st.lists(st.one_of(st.floats(), st.integers(-1000, 1000).map(lambda n: n / 100), st.just(-0.0)), min_size=12, max_size=12)


@given(number=st.integers(2, 20), values=COLUMN, names=st.lists(st.integers(0, 4), min_size=12, max_size=12), level=st.sampled_from([0, 3]))
def test_integers_come_back(tmp_path_factory: pytest.TempPathFactory, number: int, values: list[int], names: list[int], level: int) -> None:
    """Decode wide columns with the second reader, in every encoding."""
    writer = PrtWriter(zstd_level=level if _native.zstd_available() else 0)
    writer.add_raw(9, [(1, INT, names), (number, INT, values)])
    block = prt_reader.blocks(writer.data())[0]
    assert block.column(number) == values
    if number in (5, 6, 7, 16):
        trace = opened(tmp_path_factory.getbasetemp(), writer.data())
        assert trace.table("kernel").arrow().column(prt_reader.COLUMNS["kernel"][number]).to_pylist() == values


@given(values=DOUBLES)
def test_doubles_come_back_to_the_bit(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    writer = PrtWriter()
    writer.add_raw(7, [(1, INT, [0] * 12), (2, TIME, [0] * 12), (3, DOUBLE, values)])
    expected = [struct.pack("<d", value) for value in values]
    got = opened(tmp_path_factory.getbasetemp(), writer.data()).table("counter").arrow().column("value").to_pylist()
    assert [struct.pack("<d", value) for value in got] == expected
    again = prt_reader.blocks(writer.data())[0].column(3)
    assert again is not None
    assert [struct.pack("<d", value) for value in again] == expected


def spans(seed: int) -> bytes:
    """Return a file with ranges of one type, jumping anchors and missing names."""
    chance = random.Random(seed)
    table = chance.choice(prt_reader.RANGES)
    count = chance.randint(1, 30)
    first = chance.choice([0, -(2**40), 2**60, chance.randrange(2**50)])
    starts = [first]
    for _ in range(count - 1):
        starts.append(starts[-1] + chance.choice([0, 1, 1000, 2**30, -(2**20), chance.randrange(2**20)]))

    def some(*choices: int) -> list[int]:
        return [chance.choice(choices) for _ in range(count)]

    columns: dict[int, Sequence[int]] = {1: some(0, 1, 2, 3, 4, 5), 2: starts, 3: some(0, 1, -5, 300, 2**20, 2**33)}
    for number in prt_reader.COLUMNS[table]:
        if number > 3 and chance.random() < 0.7:
            columns[number] = chance.choice([some(-2, 0, 3), some(chance.randrange(-(2**31), 2**31)), [*range(count)]])
    anchors, ticks, monotonic, real = [], first, 10**12, 17 * 10**17
    for _ in range(chance.randint(1, 6)):
        anchors.append((ticks, monotonic, real))
        passed = chance.choice([7, 10**9, chance.randrange(7, 2**31)])
        ticks += int(passed * chance.choice([1, 2.6, 0.1]) + 1)
        monotonic += passed
        real += passed + chance.choice([0, 1, -1, 10**6, 10**13, -(10**13)])
    chance.shuffle(anchors)
    writer = PrtWriter().prelude(["a", "b", "é"], anchors, chance.choice([1e9, 2.6e9, 1e6]))
    return writer.add(table, columns, first_time=first, source=chance.randrange(9)).end().data()


@given(seed=st.integers(0, 2**32))
def test_both_readers_agree(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    data = spans(seed)
    agree(opened(tmp_path_factory.getbasetemp(), data), data)


def test_texts(tmp_path: Path) -> None:
    texts = ["", "a", "é\U0001f600", "x" * 70_000, "\0"]
    trace = opened(tmp_path, PrtWriter().add("meta", {1: texts, 2: texts[::-1]}).end().data())
    assert trace.table("meta").arrow().to_pylist() == [{"key": k, "value": v} for k, v in zip(texts, texts[::-1], strict=True)]
    assert trace.metadata()["a"] == cut_text("x" * 70_000)


@needs_zstd
def test_zstd_makes_blocks_smaller_and_changes_nothing(tmp_path: Path) -> None:
    files = []
    for level in (0, 3):
        writer = PrtWriter(zstd_level=level).prelude(["a"], ANCHORS)
        writer.add("kernel", {1: [1] * 5000, 2: [i * i % 977 + i * 1000 for i in range(5000)], 3: [i % 60 for i in range(5000)]})
        files.append(writer.end().data())
    assert len(files[1]) < len(files[0]) * 0.8
    assert rows(opened(tmp_path, files[0])) == rows(opened(tmp_path, files[1]))


# ---------------------------------------------------------------------------------------------------------------- the golden file


def test_the_golden_file_reads_as_ever(tmp_path: Path) -> None:
    trace = TraceFile(GOLDEN / "v1.prt")
    newer = {"external": []}  # tables that came after 1.0
    assert rows(trace) == json.loads((GOLDEN / "v1.json").read_text(encoding="utf-8")) | newer
    assert trace.problems() == []
    assert {k: trace.header[k] for k in ("major", "minor", "pid", "parent_pid", "number")} == {
        "major": 1, "minor": 0, "pid": 4711, "parent_pid": 42, "number": 1,
    }  # fmt: skip
    agree(trace, (GOLDEN / "v1.prt").read_bytes())


def test_what_is_written_today_holds_what_the_golden_file_holds(tmp_path: Path) -> None:
    assert rows(opened(tmp_path, golden())) == rows(TraceFile(GOLDEN / "v1.prt"))


DAMAGE = """
import re, sys, time
from pathlib import Path
from postrun.native import _native
data = bytearray(Path(sys.argv[1]).read_bytes())
path = sys.argv[2]
full = sum(n for _, _, n, _, _ in _native.TraceReader(sys.argv[1]).counts())
tables = [c[0] for c in _native.TraceReader(sys.argv[1]).counts()]
slowest = refused = partial = 0
def check(damaged):
    global slowest, refused, partial
    with open(path, "wb") as file: file.write(damaged)
    began = time.perf_counter()
    try:
        reader = _native.TraceReader(path)
    except ValueError:
        refused += 1
    else:
        got = sum(reader.drain(table) for table in tables)
        assert got <= full, (got, full)
        assert reader.problems(), "damage that nobody is told of"
        partial += 1
    slowest = max(slowest, time.perf_counter() - began)
for i in range(len(data)):
    for value in {data[i] ^ 1, data[i] ^ 128, 0, 255} - {data[i]}:
        data[i], kept = value, data[i]
        check(data)
        data[i] = kept
for length in range(len(data)):
    check(data[:length])
# Not ru_maxrss: that begins with the peak of whoever started this process.
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())
print(refused, partial, slowest, peak[1] if peak else 0)
"""


@pytest.mark.slow
def test_every_damaged_byte_and_every_truncation_is_told(tmp_path: Path) -> None:
    script = tmp_path / "damage.py"
    script.write_text(DAMAGE)
    command = [sys.executable, str(script), str(GOLDEN / "v1.prt"), str(tmp_path / "d.prt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    refused, partial, slowest, peak_kib = (float(word) for word in done.stdout.split())
    size = (GOLDEN / "v1.prt").stat().st_size
    assert refused + partial > 3 * size
    assert refused <= 4 * 8 + 64  # the magic, and what ends within the header
    assert slowest < 5
    assert peak_kib < 200 << 10


# ---------------------------------------------------------------------------------------------------------------- what is lost


def file_of_blocks(count: int = 6) -> tuple[bytes, list[int]]:
    """A second per block of 100 annotations; where each block begins."""
    writer = PrtWriter().prelude(["a", "b"], ANCHORS)
    offsets = []
    for i in range(count):
        offsets.append(len(writer.data()))
        columns = {1: [1, 2] * 50, 2: [i * 10**9 + k * 10**6 for k in range(100)], 3: [1000 + k for k in range(100)]}
        writer.add("annotation", columns, first_time=i * 10**9, source=1)
    offsets.append(len(writer.data()))
    return writer.end().data(), offsets


def test_a_damaged_block_costs_itself_and_its_time_is_told(tmp_path: Path) -> None:
    data, offsets = file_of_blocks()
    broken = bytearray(data)
    broken[offsets[2] + 100] ^= 4
    trace = opened(tmp_path, bytes(broken))
    assert trace.contents["annotation"].rows == 500
    [problem] = trace.problems()
    assert (problem.code, problem.offset, problem.bytes, problem.blocks) == ("damaged", offsets[2], offsets[3] - offsets[2], 1)
    assert (problem.first_ns, problem.last_ns) == (10**18 + 10**9, 10**18 + 3 * 10**9)
    agree(trace, bytes(broken))


@pytest.mark.parametrize("where", ["inserted", "removed", "zeros"])
def test_bytes_too_many_or_too_few(tmp_path: Path, where: str) -> None:
    data, offsets = file_of_blocks()
    middle = offsets[3] + 150
    broken = {
        "inserted": data[:middle] + b"PRBK\x06\0" * 50 + data[middle:],
        "removed": data[:middle] + data[middle + 20 :],
        "zeros": data[: offsets[3]] + bytes(offsets[4] - offsets[3] + 60) + data[offsets[4] + 60 :],
    }[where]
    trace = opened(tmp_path, broken)
    assert trace.contents["annotation"].rows == (400 if where == "zeros" else 500)
    [problem] = trace.problems()
    assert (problem.code, problem.blocks) == ("damaged", 2 if where == "zeros" else 1)
    agree(trace, broken)


def test_a_block_cut_out_is_missed(tmp_path: Path) -> None:
    data, offsets = file_of_blocks()
    trace = opened(tmp_path, data[: offsets[1]] + data[offsets[4] :])
    [problem] = trace.problems()
    assert (problem.code, problem.bytes, problem.blocks) == ("missing_blocks", 0, 3)
    assert (problem.first_ns, problem.last_ns) == (10**18, 10**18 + 4 * 10**9)


def test_a_file_that_ends_early(tmp_path: Path) -> None:
    data, offsets = file_of_blocks()
    trace = opened(tmp_path, data[: offsets[5] + 70])
    assert codes(trace) == ["no_end", "truncated"]
    assert trace.contents["annotation"].rows == 500
    assert codes(opened(tmp_path, data[: offsets[5]])) == ["no_end"]
    assert codes(opened(tmp_path, data[:64])) == ["no_end"]


def test_a_lost_string_block(tmp_path: Path) -> None:
    writer = PrtWriter().prelude(["a"], ANCHORS)
    begin = len(writer.data())
    writer.add("strings", {1: [2], 2: ["b"]})
    end = len(writer.data())
    data = writer.add("kernel", {1: [1, 2, 2, 0], 2: [5, 6, 7, 8], 3: [1] * 4}).end().data()
    trace = opened(tmp_path, data[:begin] + data[end:])
    assert trace.table("kernel").arrow().column("name").to_pylist() == ["a", "?name#2", "?name#2", None]
    assert [(problem.code, problem.rows) for problem in trace.problems()] == [("missing_blocks", 0), ("unresolved_name", 2)]


def crafted(kind: int, payload: bytes, count: int, *, codec: int = 0, raw: int | None = None) -> bytes:
    """A block with right checksums and any payload."""
    raw = len(payload) if raw is None else raw
    header = struct.pack("<4sHBBIIIIQqI", b"PRBK", kind, codec, 0, len(payload), raw, count, 0, 0, 0, 0)[:40]
    header += struct.pack("<I", prt_reader.crc32c(header))
    return header + struct.pack("<I", prt_reader.crc32c(header + payload)) + payload


def column(number: int, encoding: int, data: bytes) -> bytes:
    return struct.pack("<BBHI", number, encoding, 0, len(data)) + data


MALFORMED = {
    "column longer than the payload": struct.pack("<BBHI", 5, 1, 0, 100) + b"123",
    "half a column header": b"\5\1\0",
    "varint too long": column(5, 1, b"\xff" * 10 + b"\1\1\1"),
    "varint of 65 bits": column(5, 1, b"\xff" * 9 + b"\2" + b"\1\1\1"),
    "too few rows": column(5, 1, b"\1\1"),
    "too many rows": column(5, 1, b"\1\1\1\1\1"),
    "run of 0": column(5, 4, b"\0\1\4\1"),
    "run beyond the rows": column(5, 4, b"\5\1"),
    "run without end": column(5, 4, b"\4"),
    "huge run": column(5, 4, b"\xff" * 9 + b"\1\1"),
    "fixed of a wrong length": column(5, 0, bytes(31)),
    "same name without a name": column(5, 7, b"\1\1\1\1"),
    "same name of itself": column(1, 7, b"\1\1\1\1"),
    "same name of a gap": column(1, 8, b"\1\1\1\1") + column(5, 7, b"\1\1\1\1"),
    "names that are too large": column(1, 4, b"\4\x80\x80\x80\x01") + column(5, 10, b"\4\2"),
    "negative names": column(1, 4, b"\4\1") + column(5, 10, b"\4\2"),
    "gap in a device": column(4, 8, b"\1\1\1\1"),
    "gap of gaps": column(2, 8, b"\1\1\1\1") + column(3, 8, b"\1\1\1\1") + column(4, 8, b"\1\1\1\1"),
    "text for numbers": column(5, 6, b"\0\0\0\0"),
    "doubles for numbers": column(5, 9, b"\0\1\1\1\1"),
}


def test_a_block_without_rows_whose_columns_refer_to_names(tmp_path: Path) -> None:
    """In a process of its own: the reader once wrote through a null pointer here."""
    for kind, encoding in [(kind, encoding) for kind in range(1, 17) for encoding in (7, 10)]:
        path = tmp_path / f"{kind}-{encoding}.prt"
        path.write_bytes(PrtWriter().data() + crafted(kind, column(1, 0, b"") + column(2, encoding, b""), 0))
    code = "import sys; from postrun.native import _native; [_native.TraceReader(path).problems() for path in sys.argv[1:]]; print('read')"
    command = [sys.executable, "-P", "-c", code, *map(str, tmp_path.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr


@pytest.mark.parametrize("what", sorted(MALFORMED))
def test_a_block_that_makes_no_sense_is_left_out(tmp_path: Path, what: str) -> None:
    writer = PrtWriter().prelude([], ANCHORS)
    good = writer.add("kernel", {1: [0], 2: [1], 3: [2]}).end().data()
    trace = opened(tmp_path, good + crafted(9, MALFORMED[what], 4))
    assert len(trace.table("kernel").arrow()) == 1
    assert "undecodable" in codes(trace)
    trace.table("kernel").arrow()
    assert codes(trace).count("undecodable") == 1  # reported once, however often it is read
    agree(trace, good + crafted(9, MALFORMED[what], 4))


def test_what_a_reader_does_not_know_is_skipped(tmp_path: Path) -> None:
    payload = column(5, 4, b"\4\2") + column(200, 77, b"?") + column(31, 1, b"\xff") + column(7, 99, b"new")
    data = PrtWriter().data() + crafted(9, payload, 4) + crafted(77, b"whatever", 3) + crafted(9, b"z", 3, codec=9, raw=50)
    trace = opened(tmp_path, data)
    table = trace.table("kernel").arrow()
    assert table.column("context").to_pylist() == [1] * 4
    assert table.column("correlation").to_pylist() == [None] * 4
    assert {"unknown_type", "unknown_codec", "unknown_encoding"} <= set(codes(trace))


def test_a_small_file_stands_for_no_more_rows_than_it_warrants(tmp_path: Path) -> None:
    bomb = crafted(9, column(5, 4, b"\x80\x80\x40\2"), 1 << 20)
    trace = opened(tmp_path, PrtWriter().data() + bomb * 400)
    rows_read = trace.contents["kernel"].rows
    assert rows_read <= (1 << 20) + 32 * trace.header["bytes"]
    problems = {problem.code: problem for problem in trace.problems()}
    assert problems["row_limit"].rows == (400 << 20) - rows_read
    assert len(opened(tmp_path, PrtWriter().data() + bomb, row_limit=1000).table("kernel").arrow()) == 0


@needs_zstd
def test_compressed_payloads_that_lie_about_their_length(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor().compress(bytes(60 << 20))
    for raw in (10, 60 << 20, 64 << 20):
        trace = opened(tmp_path, PrtWriter().data() + crafted(9, packed, 4, codec=2, raw=raw))
        assert len(trace.table("kernel").arrow()) in (0, 4)
    trace = opened(tmp_path, PrtWriter().data() + crafted(9, b"no zstd at all", 4, codec=2, raw=100))
    assert len(trace.table("kernel").arrow()) == 0
    assert "undecodable" in codes(trace)


def test_hostile_headers_take_linear_time(tmp_path: Path) -> None:
    """Headers with a right checksum each claim the rest of a large file."""
    header = struct.pack("<4sHBBIIIIQq", b"PRBK", 9, 0, 0, 8 << 20, 8 << 20, 1, 0, 0, 0)
    header += struct.pack("<I", prt_reader.crc32c(header)) + b"bad!"
    began = time.process_time()
    trace = opened(tmp_path, PrtWriter().data() + header * (16 << 20 >> 5))
    assert time.process_time() - began < 20
    assert trace.contents["kernel"].blocks == 0


# ---------------------------------------------------------------------------------------------------------------- refusals and clocks


def test_what_is_no_trace_file(tmp_path: Path) -> None:
    path = tmp_path / "x.prt"
    for data in (b"", b"\x89PRT\r\n\x1a\n", b"{}" * 100, golden()[:63]):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"x\.prt"):
            TraceFile(path)
    with pytest.raises(InputError, match="No such file"):
        TraceFile(tmp_path / "none.prt")
    with pytest.raises(InputError, match="not a regular file"):
        TraceFile(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        TraceFile(tmp_path / "pipe")


def test_newer_versions(tmp_path: Path) -> None:
    def header(at: int, value: int) -> bytes:
        data = bytearray(golden())
        data[at] = value
        data[60:64] = struct.pack("<I", prt_reader.crc32c(bytes(data[:60])))
        return bytes(data)

    assert codes(opened(tmp_path, header(10, 9))) == []
    assert codes(opened(tmp_path, header(16, 1))) == []
    with pytest.raises(InputError, match=r"version 2\.1"):
        opened(tmp_path, header(8, 2))
    with pytest.raises(InputError, match="features 0x4"):
        opened(tmp_path, header(20, 4))


def test_no_clock_and_one_anchor(tmp_path: Path) -> None:
    columns = {1: [0, 0], 2: [1000, 3000], 3: [10, 10]}
    trace = opened(tmp_path, PrtWriter().add("kernel", columns, first_time=1000).end().data())
    assert trace.table("kernel").arrow().column("start_ns").to_pylist() == [1_700_000_000_000_000_000, 1_700_000_000_000_002_000]
    assert codes(trace) == ["no_clock"]
    item = PrtWriter().prelude([], [(1000, 5, 10**18)], 500_000_000).add("kernel", columns, first_time=1000).end().data()
    table = opened(tmp_path, item).table("kernel").arrow()
    assert table.column("start_ns").to_pylist() == [10**18, 10**18 + 4000]
    assert table.column("duration_ns").to_pylist() == [20, 20]


def test_durations_do_not_see_the_clock_being_set(tmp_path: Path) -> None:
    hour = 3600 * 10**9
    anchors = [(0, 0, 10**18), (10**9, 10**9, 10**18 + 10**9 - hour), (2 * 10**9, 2 * 10**9, 10**18 + 2 * 10**9 - hour)]
    columns = {1: [0] * 3, 2: [5 * 10**8, 9 * 10**8, 15 * 10**8], 3: [10**8, 10**9, 10**8]}
    table = opened(tmp_path, PrtWriter().prelude([], anchors).add("kernel", columns).end().data()).table("kernel").arrow()
    assert table.column("duration_ns").to_pylist() == [10**8, 10**9, 10**8]
    assert [t - 10**18 for t in table.column("start_ns").to_pylist()] == [5 * 10**8, 9 * 10**8, 15 * 10**8 - hour]


# ---------------------------------------------------------------------------------------------------------------- consumers


def test_duckdb_and_polars_read_streams(tmp_path: Path) -> None:
    import duckdb
    import polars as pl

    trace = TraceFile(GOLDEN / "v1.prt")
    kernel = trace.table("kernel")
    assert duckdb.connect().sql("SELECT name, count(*) FROM kernel GROUP BY name ORDER BY name").fetchall() == [
        ("forward", 2),
        ("é kernel", 2),
    ]
    assert pl.DataFrame(kernel)["correlation"].to_list() == [1, 2, 5, 4]
    ids = TraceFile(GOLDEN / "v1.prt", name_ids=True)
    assert ids.table("kernel").arrow().schema.field("name").type == pa.int32()
    assert [ids.names()[i] for i in ids.table("kernel").arrow().column("name").to_pylist()] == ["é kernel", "forward"] * 2


def test_streams_outlive_the_file_object(tmp_path: Path) -> None:
    tables = [TraceFile(GOLDEN / "v1.prt").table("kernel") for _ in range(20)]
    reader = pa.RecordBatchReader.from_stream(tables[0])
    del tables
    batch = reader.read_next_batch()
    del reader
    assert batch.column(0).to_pylist() == ["é kernel", "forward"] * 2
    with pytest.raises(KeyError):
        TraceFile(GOLDEN / "v1.prt").table("nothing")


def test_reading_again_and_again_takes_no_more_memory(tmp_path: Path) -> None:
    data, _ = file_of_blocks(50)

    def resident_kib() -> int:
        for _ in range(150):
            trace = opened(tmp_path, data)
            for table in ("annotation", "strings", "meta"):
                trace.table(table).arrow()
            iter(pa.RecordBatchReader.from_stream(trace.table("annotation"))).__next__()
        actual = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())  # its peak may have been long ago
        return int(actual[1]) if actual else 0

    before = resident_kib()
    assert resident_kib() - before < 8 << 10


def test_threads_may_read_at_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    data, _ = file_of_blocks(40)
    broken = bytearray(data)
    for i in random.Random(1).sample(range(500, len(data)), 5):
        broken[i] ^= 255
    trace = opened(tmp_path, bytes(broken))
    with ThreadPoolExecutor(4) as pool:
        lengths = set(pool.map(lambda _: len(trace.table("annotation").arrow()), range(40)))
    assert lengths == {trace.contents["annotation"].rows}
