"""Tests of events with their sources: what the views show of raw rows, against plain Python, and that omissions can be undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from empty_stores import empty_store
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.ingest.store import Store
from postrun.ingest.store.schema import EVENTS, SCHEMA, STORED, TABLES
from postrun.ingest.store.views import FILE, views

MOST = 2**62 - 1
IDS = st.one_of(st.none(), st.integers(-1, 3), st.sampled_from([2**40 + 1, MOST, MOST + 1, 2**63 - 1]))
ROWS = st.lists(
    st.fixed_dictionaries({
        "source_id": st.integers(0, 2), "tid": st.integers(1, 3), "start_ns": st.integers(0, 9), "duration_ns": st.integers(0, 9),
        "name": st.integers(0, 3), "device": st.one_of(st.none(), st.integers(0, 2)), "correlation": IDS, "external_id": IDS,
    }),
    max_size=8,
)  # fmt: skip
MAPS = st.lists(
    st.fixed_dictionaries({
        "source": st.sampled_from([None, 0, 1]), "process": st.integers(0, 1), "node": st.integers(0, 1),
        "shift_ns": st.sampled_from([0, 0, 5, 10**18]), "id_offset": st.sampled_from([0, 0, 2**40]),
        "device": st.sampled_from([None, 7]),
    }),
    min_size=3, max_size=3,
)  # fmt: skip


def seen(
    rows: list[dict[str, Any]], maps: list[dict[str, Any]], threads: dict[Any, int], devices: dict[Any, int], names: dict[int, int],
    out: set[int],
) -> Any:  # fmt: skip
    """Compute row by row the rows that the views of device and host events show."""
    device, host = [], []
    for number, row in enumerate(rows):
        if number in out:
            continue
        of = maps[row["source_id"]]
        ids = [
            value + of["id_offset"] if value is not None and 1 <= value <= MOST else value
            for value in (row["correlation"], row["external_id"])
        ]
        start = row["start_ns"] + of["shift_ns"]
        unit = of["device"] if row["device"] is None else devices.get((row["source_id"], row["device"]), row["device"])
        name = names.get(row["name"], row["name"])
        device.append((number, of["source"], of["node"], of["process"], unit, name, start, row["duration_ns"], *ids))
        tid = threads.get((row["source_id"], row["tid"]), row["tid"])
        host.append((number, of["source"], of["node"], of["process"], tid, row["name"], start, row["duration_ns"], *ids))
    return device, host


@settings(deadline=None)
@given(
    rows=ROWS, maps=MAPS, threads=st.dictionaries(st.tuples(st.integers(0, 2), st.integers(1, 3)), st.integers(7, 9), max_size=2),
    devices=st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 2)), st.integers(7, 9), max_size=2),
    names=st.dictionaries(st.integers(0, 3), st.integers(7, 9), max_size=2), out=st.sets(st.integers(0, 7), max_size=3),
)  # fmt: skip
def test_views_show_what_the_source_map_says(
    rows: list[dict[str, Any]], maps: list[dict[str, Any]], threads: dict[Any, int], devices: dict[Any, int], names: dict[int, int],
    out: set[int],
) -> None:  # fmt: skip
    with empty_store() as store:
        for facts in maps:
            store.map_source(**facts)
        for row in rows:
            for table, column, kind in (("device_event", "device", "kernel"), ("host_event", "tid", "launch")):
                columns = ["start_ns", "duration_ns", "name", "correlation", "external_id", column]
                types = {key: pl.Int32 if key in ("name", "device") else pl.Int64 for key in columns}
                frame = pl.DataFrame([{key: row[key] for key in columns}], schema=types).with_columns(kind=pl.lit(kind))
                store.append(table, frame, source_id=row["source_id"])
        execute = store.connection.execute
        for (source_id, tid), alias in threads.items():
            execute("INSERT INTO thread_alias VALUES (?, ?, ?)", [source_id, tid, alias])
        for (source_id, device), alias in devices.items():
            execute("INSERT INTO device_alias VALUES (?, ?, ?)", [source_id, device, alias])
        for name, alias in names.items():
            execute("INSERT INTO name_alias VALUES (?, ?)", [name, alias])
        for table in ("device_event", "host_event"):
            for number in out:
                store.leave_out(table, "test", "SELECT ? AS id", [number])
        expected = seen(rows, maps, threads, devices, names, out)
        try:
            for _ in range(2):  # as defined, and without the joins that have one value or no row
                actual = [
                    store.frame(
                        f"SELECT id, source, node, process, {column}, name, start_ns, duration_ns, correlation, external_id"
                        f" FROM {table} ORDER BY id"
                    ).rows()
                    for table, column in (("device_event", "device"), ("host_event", "tid"))
                ]
                assert tuple(actual) == expected
                store.settle_views()
        finally:
            for view in views():
                execute(view.statement.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1))


def test_rows_of_a_reason_come_back() -> None:
    with empty_store() as store:
        row = {"node": 0, "process": 0, "tid": 1, "kind": "call", "name": 0, "duration_ns": 1}
        store.append("host_event", pl.DataFrame([{**row, "start_ns": start} for start in range(4)]), source=3)
        assert store.leave_out("host_event", "twice", "SELECT id FROM host_event WHERE start_ns < ?", [2]) == 2
        assert store.leave_out("host_event", "limit", "SELECT id FROM host_event WHERE start_ns = 3") == 1
        assert store.frame("SELECT start_ns FROM host_event").to_series().to_list() == [2]
        store.connection.execute("DELETE FROM left_out WHERE reason = 'twice'")
        assert store.frame("SELECT start_ns FROM host_event ORDER BY 1").to_series().to_list() == [0, 1, 2]


def test_ids_count_rows_of_the_source_and_rows_are_stored_by_time() -> None:
    with empty_store() as store:
        rows = [
            {"node": node, "process": process, "tid": 1, "kind": "call", "name": 0, "start_ns": start, "duration_ns": 1}
            for node, process, start in ((0, 0, 9), (0, 1, 3), (1, 2, 9), (0, 0, 1))
        ]
        store.append("host_event", pl.DataFrame(rows), source=5)
        store.append("host_event", pl.DataFrame(rows[:1]), source=6)
        raw = store.frame("SELECT id, start_ns FROM raw.host_event").rows()
        assert raw == [(3, 1), (1, 3), (0, 9), (2, 9), (4, 9)]
        in_view = store.frame("SELECT id, source, node, process, start_ns FROM host_event ORDER BY id").rows()
        assert in_view == [(0, 5, 0, 0, 9), (1, 5, 0, 1, 3), (2, 5, 1, 2, 9), (3, 5, 0, 0, 1), (4, 6, 0, 0, 9)]
        assert store.frame("SELECT count(*) FROM source_map").item() == 4


def test_a_source_is_removed_with_its_rows() -> None:
    with empty_store() as store:
        row = {"node": 0, "process": 0, "tid": 1, "kind": "call", "name": 0, "start_ns": 1, "duration_ns": 1}
        for source in (0, 1, 0):
            store.append("host_event", pl.DataFrame([row]), source=source)
        store.remove_source(0)
        assert store.frame("SELECT id, source FROM host_event").rows() == [(1, 1)]
        assert store.frame("SELECT source FROM source_map").to_series().to_list() == [1]
        store.append("host_event", pl.DataFrame([row]), source=0)
        assert store.frame("SELECT id, source FROM host_event ORDER BY id").rows() == [(1, 1), (3, 0)]


def test_times_are_possible_after_the_shift() -> None:
    with empty_store() as store:
        source_id = store.map_source(0, node=0, process=0, shift_ns=2**61)
        frame = pl.DataFrame({"start_ns": [2**61, 2**61 + 1, -(2**62), -(2**62) - 1], "duration_ns": [1] * 4})
        store.append("host_event", frame, source_id=source_id)
        assert store.left_out == 2
        assert store.frame("SELECT start_ns FROM host_event ORDER BY 1").to_series().to_list() == [-(2**61), 2**62]


# -- meanings -----------------------------------------------------------------------------------------------------------


def test_every_table_view_and_column_has_a_meaning(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run.duckdb") as store:
        columns = "SELECT column_name FROM duckdb_columns() WHERE schema_name = ? AND table_name = ? ORDER BY column_index"
        for name, table in TABLES.items():
            schema, _, short = name.rpartition(".")
            actual = [column for (column,) in store.connection.execute(columns, [schema or "main", short]).fetchall()]
            assert actual == list(table.columns) == list(table.meanings), name
            assert table.meaning
            assert all(len(meaning) > 3 for meaning in table.meanings.values()), name
        for view in views():
            actual = [column for column, *_ in store.connection.execute(f"DESCRIBE {view.name}").fetchall()]
            assert sorted(actual) == sorted(view.columns), view.name
            assert view.meaning
            assert all(len(meaning) > 3 for meaning in view.columns.values()), view.name
        text = FILE.read_text(encoding="utf-8")
        assert text.count("CREATE VIEW") == len(views())
        for table in EVENTS:
            actual = [column for column, *_ in store.connection.execute(f"DESCRIBE {table}").fetchall()]
            assert actual == [*SCHEMA[table], "id", "source"]
        store.checkpoint()
        stored = dict(store.connection.execute("SELECT table_name, comment FROM duckdb_tables() WHERE comment IS NOT NULL").fetchall())
        assert stored == {name.removeprefix("raw."): table.meaning for name, table in TABLES.items()}
        uncommented = "SELECT count(*) FROM duckdb_columns() JOIN duckdb_tables() USING (table_oid) WHERE duckdb_columns.comment IS NULL"
        assert store.connection.execute(uncommented).fetchall() == [(0,)]
        of_views = store.connection.execute("SELECT comment FROM duckdb_views() WHERE NOT internal").fetchall()
        assert len(of_views) == len(views())
        assert all(comment for (comment,) in of_views)


@pytest.mark.parametrize("table", STORED)
def test_statements_name_each_table_once(table: str) -> None:
    with empty_store() as store:
        assert store.frame(f"SELECT count(*) FROM {table} WHERE false").item() == 0
