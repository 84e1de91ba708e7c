"""Tests that device activity of a damaged export ends, for all tables, at the end of the cut table.

Every file is made here: kernels of 50 us every 100 us, so that a GPU is busy for half of the time, and copies of 10 us every 1,000 us in
the other half. Pages are damaged by their content; SQLite itself determines how many rows are still readable.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from postrun.analysis.device.time_breakdown import time_breakdown
from postrun.errors import InputError
from postrun.ingest import ingest
from postrun.ingest.nsys.reader import NOT_STORED
from postrun.ingest.store import Store

EPOCH = 1_700_000_000_000_000_000
P = (1 << 48) | (77 << 24)
PAGE = 4096
US, MS = 1_000, 1_000_000
COLUMNS = "start, end, deviceId, contextId, streamId, correlationId, globalPid"
KERNELS, COPIES, SYNCS = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "SYNCHRONIZATION"))
Rows = list[tuple[int, ...]]


def every(step: int, length: int, count: int, *, first: int = 100 * MS, device: int = 0) -> Rows:
    return [(first + i * step, first + i * step + length, device, 1 + device, 7, 0, P) for i in range(count)]


def kernels(count: int, device: int = 0) -> Rows:
    return every(100 * US, 50 * US, count, device=device)


def copies(count: int, device: int = 0) -> Rows:
    return every(MS, 10 * US, count, first=100 * MS + 60 * US, device=device)


def write(path: Path, tables: dict[str, Rows]) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs)")
        connection.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (EPOCH,))
        for name, rows in tables.items():
            connection.execute(f"CREATE TABLE {name} ({COLUMNS})")
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * 7)})", rows)
        connection.commit()
    return path


def damage(path: Path, row: tuple[int, ...]) -> None:
    """Overwrite the page that contains the row with this start and end."""
    raw = bytearray(path.read_bytes())
    page = raw.index(row[0].to_bytes(4) + row[1].to_bytes(4)) // PAGE
    raw[page * PAGE : (page + 1) * PAGE] = b"\xff" * PAGE
    path.write_bytes(raw)


def readable(path: Path, table: str) -> Rows:
    """The rows that SQLite reads before the damage."""
    rows: Rows = []
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        try:
            rows.extend(connection.execute(f"SELECT * FROM {table}"))  # keeps what is read before the error
        except sqlite3.DatabaseError:
            return rows
    raise AssertionError(f"{table} is not damaged")


def noted(store: Store, code: str) -> list[tuple[str, int]]:
    return store.frame("SELECT message, count FROM ingest_note WHERE code = ?", [code]).rows()


def starts(store: Store, kind: str, device: int = 0) -> list[int]:
    query = "SELECT start_ns FROM device_event WHERE kind = ? AND device = ? ORDER BY start_ns"
    return [start - EPOCH for (start,) in store.frame(query, [kind, device]).rows()]


def begun(rows: Iterable[tuple[int, ...]], until: int) -> list[int]:
    return [row[0] for row in rows if row[1] <= until]


def test_copies_after_the_last_kernel_that_can_be_read_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNELS: kernels(4_000), COPIES: copies(400)})
    damage(path, kernels(4_000)[2_345])
    read = readable(path, KERNELS)
    assert 2_200 < len(read) <= 2_345
    until = read[-1][1]
    store = ingest([path])
    kept = begun(copies(400), until)
    assert starts(store, "kernel") == [row[0] for row in read]
    assert starts(store, "memcpy") == kept
    [device] = time_breakdown(store)
    assert device.span_ns == until - 100 * MS
    assert device.busy_ns == len(read) * 50 * US + len(kept) * 10 * US
    [(message, count)] = noted(store, "after_damage")
    assert count == 400 - len(kept)
    assert message.startswith(f"Device activity is known until {(until - 100 * MS) / MS:.0f} ms after its begin, as table {KERNELS} could")
    assert len(noted(store, "damaged")) == 1


def test_kernels_after_the_last_copy_that_can_be_read_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNELS: kernels(4_000), COPIES: copies(400)})
    damage(path, copies(400)[222])
    read = readable(path, COPIES)
    assert 100 < len(read) <= 222
    store = ingest([path])
    kept = begun(kernels(4_000), read[-1][1])
    assert starts(store, "kernel") == kept
    assert starts(store, "memcpy") == [row[0] for row in read]
    assert noted(store, "after_damage")[0][1] == 4_000 - len(kept)


def test_of_a_page_that_is_cut_within_the_rows_before_it_count(tmp_path: Path) -> None:
    """SQLite reads missing rows as nulls, and then the rows of the cut page."""
    path = write(tmp_path / "a.sqlite", {COPIES: copies(400), KERNELS: kernels(4_000)})
    raw = path.read_bytes()
    offset = raw.index(b"".join(number.to_bytes(4) for number in kernels(4_000)[2_345][:2]))
    path.write_bytes(raw[: offset // PAGE * PAGE + PAGE * 3 // 4])
    read = readable(path, KERNELS)
    first_empty = next(i for i, row in enumerate(read) if row[0] is None)
    assert read[-1][0] is not None
    until = read[first_empty - 1][1]
    store = ingest([path])
    assert starts(store, "kernel") == begun(kernels(4_000), until)
    assert starts(store, "memcpy") == begun(copies(400), until)
    counted = {code: sum(count for _, count in noted(store, code)) for code in NOT_STORED}
    stored = store.frame("SELECT count(*) FROM device_event").item()
    assert counted["no_timestamp"] == sum(row[0] is None for row in read)
    assert stored + sum(counted.values()) == len(read) + 400


def test_in_the_order_of_time_all_gpus_are_known_up_to_the_cut(tmp_path: Path) -> None:
    """The last kernel of the second GPU is long before the cut, which is known."""
    early = kernels(100, device=1)
    expected = sorted([*kernels(4_000), *early])
    path = write(tmp_path / "a.sqlite", {KERNELS: expected, COPIES: [*copies(400), *copies(400, device=1)]})
    damage(path, kernels(4_000)[2_345])
    until = readable(path, KERNELS)[-1][1]
    store = ingest([path])
    assert starts(store, "kernel", 1) == [row[0] for row in early]
    assert starts(store, "memcpy", 1) == starts(store, "memcpy", 0) == begun(copies(400), until)


def test_one_gpu_after_the_other_each_is_known_up_to_its_own_last_row(tmp_path: Path) -> None:
    """The rows of GPU 1 are complete, those of GPU 0 are cut, those of GPU 2 missing."""
    path = write(
        tmp_path / "a.sqlite",
        {
            KERNELS: [*kernels(1_000, device=1), *kernels(4_000), *kernels(4_000, device=2)],
            COPIES: [row for device in (0, 1, 2) for row in copies(400, device)],
        },
    )
    raw = path.read_bytes()
    again = b"".join(number.to_bytes(4) for number in kernels(4_000)[2_345][:2])
    assert raw.count(again) == 2  # GPU 0 comes before GPU 2
    damage(path, kernels(4_000)[2_345])
    of_first = [row for row in readable(path, KERNELS) if row[2] == 0]
    assert 2_200 < len(of_first) <= 2_345
    store = ingest([path])
    assert starts(store, "memcpy", 0) == begun(copies(400), of_first[-1][1])
    assert starts(store, "memcpy", 1) == begun(copies(400), kernels(1_000)[-1][1])
    assert starts(store, "kernel", 1) == [row[0] for row in kernels(1_000)]
    assert starts(store, "memcpy", 2) == starts(store, "kernel", 2) == []
    [(message, _)] = noted(store, "after_damage")
    assert f"known until 100 ms to {(of_first[-1][1] - 100 * MS) / MS:.0f} ms, depending on the GPU, after" in message


def test_without_a_kernel_that_can_be_read_copies_make_no_activity(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNELS: kernels(50), COPIES: copies(400), "NVTX_EVENTS": every(MS, MS, 3)})
    damage(path, kernels(50)[0])
    assert readable(path, KERNELS) == []
    store = ingest([path])
    assert store.frame("SELECT count(*) FROM device_event").item() == 0
    assert time_breakdown(store) == ()
    [(message, count)] = noted(store, "after_damage")
    assert message == (f"What the GPUs did is not known, as table {KERNELS} cannot be read; what other tables hold of it was left out.")
    assert count == 400


def test_without_a_synchronization_that_can_be_read_activity_is_as_without_their_table(tmp_path: Path) -> None:
    syncs = every(MS, 5 * US, 50, first=100 * MS + 80 * US)
    path = write(tmp_path / "a.sqlite", {KERNELS: kernels(4_000), SYNCS: syncs})
    damage(path, syncs[0])
    store = ingest([path])
    assert len(starts(store, "kernel")) == 4_000
    assert not noted(store, "after_damage")
    assert len(noted(store, "damaged")) == 1


def test_rows_without_a_start_in_a_whole_file_are_no_cut(tmp_path: Path) -> None:
    odd: Rows = [(None, 5, 0, 1, 7, 0, P)]  # type: ignore[list-item]
    path = write(tmp_path / "a.sqlite", {KERNELS: [*kernels(10), *odd, *kernels(20)[10:]], COPIES: copies(400)})
    store = ingest([path])
    assert len(starts(store, "kernel")) == 20
    assert len(starts(store, "memcpy")) == 400
    assert not noted(store, "after_damage")


def test_nothing_that_can_be_read_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNELS: kernels(50)})
    damage(path, kernels(50)[0])
    with pytest.raises(InputError, match="cannot be read"):
        ingest([path])
