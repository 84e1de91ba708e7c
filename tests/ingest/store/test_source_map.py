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
from postrun.ingest.store.views import FILE, event_script, faster_events, views

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
            for statement in event_script():
                execute(statement)


SOME_ID = st.one_of(st.none(), st.integers(0, 2))
FACTS = st.fixed_dictionaries({
    "source": SOME_ID, "process": SOME_ID, "node": SOME_ID, "shift_ns": st.sampled_from([0, 0, 5, -7, -(2**40)]),
    "id_offset": st.sampled_from([0, 0, 2**40]), "device": SOME_ID,
})  # fmt: skip
ALIASES = {"thread_alias": 2, "device_alias": 2, "name_alias": 1}
SMALL: dict[str, st.SearchStrategy[Any]] = {
    "BIGINT": st.sampled_from([None, -1, 0, 1, 2, MOST, MOST + 1]), "INTEGER": SOME_ID, "BOOLEAN": st.sampled_from([None, False, True]),
    "VARCHAR": st.sampled_from([None, "", "a", "counter.a", "counter.b"]), "DOUBLE": st.sampled_from([0.0, 1.5]),
    "DEVICE_KIND": st.sampled_from(["kernel", "sync"]), "HOST_KIND": st.sampled_from(["launch", "call"]),
}  # fmt: skip


@given(data=st.data())
def test_faster_views_have_the_rows_of_the_views_as_defined(data: st.DataObject) -> None:
    with empty_store() as store:
        execute = store.connection.execute
        same = data.draw(st.booleans(), "all sources have equal facts")
        facts = data.draw(st.lists(FACTS, min_size=3, max_size=3), "source_map")
        for entry in facts:
            store.map_source(**(facts[0] if same else entry))
        expected: dict[str, list[Any]] = {}
        for table in EVENTS:
            columns = {name: kind for name, kind in SCHEMA[table].items() if name not in ("node", "process")}
            for source_id in data.draw(st.lists(st.integers(0, 2), max_size=4, unique=True), table):
                row = {name: data.draw(SMALL[kind], name) for name, kind in columns.items()}
                row |= {name: data.draw(st.integers(0, 9), name) for name in ("start_ns", "time_ns", "duration_ns") if name in columns}
                types = {name: {"INTEGER": pl.Int32, "BIGINT": pl.Int64, "DOUBLE": pl.Float64, "BOOLEAN": pl.Boolean} for name in columns}
                frame = pl.DataFrame([row], schema={name: types[name].get(kind, pl.String) for name, kind in columns.items()})
                store.append(table, frame, source_id=source_id)
        for table, keys in ALIASES.items():
            aliases = data.draw(st.dictionaries(st.tuples(*[st.integers(0, 2)] * keys), st.integers(0, 2), max_size=2), table)
            for key, alias in aliases.items():
                execute(f"INSERT INTO {table} VALUES ({', '.join('?' * (keys + 1))})", [*key, alias])
        for table, number in data.draw(st.sets(st.tuples(st.sampled_from(EVENTS), st.integers(0, 4)), max_size=4), "left_out"):
            store.leave_out(table, "test", "SELECT ? AS id", [number])
        try:
            for table in EVENTS:
                expected[table] = store.frame(f"SELECT * FROM {table} ORDER BY id").rows()
            types = {table: execute(f"DESCRIBE {table}").fetchall() for table in EVENTS}
            store.settle_views()
            for table in EVENTS:
                assert store.connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall() == expected[table], table
                assert execute(f"DESCRIBE {table}").fetchall() == types[table]
        finally:
            for statement in event_script():
                execute(statement)


def test_a_run_of_one_source_needs_no_join() -> None:
    for statement in faster_events(lambda query: [(0, 1, 2, None, -5, 0, None)] if "FROM source_map" in query else _one_source(query)):
        assert "JOIN" not in statement
        assert "m." not in statement


def _one_source(query: str) -> list[tuple[int]]:
    return [(0,)] if query.startswith("SELECT DISTINCT source_id") else []


def test_changes_after_the_views_were_made_faster_are_seen() -> None:
    row = {"tid": 1, "kind": "call", "name": 0, "duration_ns": 1, "start_ns": 1}
    with Store.create(None) as store:
        first, second = (store.map_source(0, node=0, process=process) for process in (0, 1))
        store.append("host_event", pl.DataFrame([row, row]), source_id=first)

        def rows_of_view() -> list[Any]:
            return store.frame("SELECT id, process, start_ns FROM host_event ORDER BY id").rows()

        def joins() -> int:
            return str(store.connection.execute("SELECT sql FROM duckdb_views() WHERE view_name = 'host_event'").fetchall()).count("JOIN")

        store.settle_views()
        assert joins() == 0
        assert store.leave_out("host_event", "test", "SELECT 0 AS id") == 1
        assert rows_of_view() == [(1, 0, 1)]
        store.settle_views()
        assert joins() == 1
        store.append("host_event", pl.DataFrame([row]), source_id=second)
        assert rows_of_view() == [(1, 0, 1), (2, 1, 1)]
        store.settle_views()
        store.change_source(second, shift_ns=8)
        assert rows_of_view() == [(1, 0, 1), (2, 1, 9)]
        store.settle_views()
        assert store.append_samples("SELECT 0 AS source_id, 'm' AS metric, 1 AS time_ns, 2.0 AS value") == 1
        assert store.frame("SELECT node, metric, value FROM sample").rows() == [(0, "m", 2.0)]


def test_texts_of_events_are_in_a_table_of_their_own() -> None:
    with empty_store() as store:
        owner = {"node": 0, "process": 0}
        times = {"start_ns": 1, "duration_ns": 1}
        ranges = [{**owner, **times, "side": "host", "name": 0, "arguments": text} for text in ("{}", None, "{}", "[1]")]
        store.append("annotation", pl.DataFrame(ranges), source=0)
        store.append("annotation", pl.DataFrame(ranges[1:2]), source=0)
        store.append("collective", pl.DataFrame([{**owner, **times, "on_device": True, "group_name": "{}"}]), source=0)
        values = [{"node": 0, "metric": metric, "time_ns": 1, "value": 1.0} for metric in ("counter.a", "cpu_utilization", "counter.a")]
        store.append("sample", pl.DataFrame(values), source=0)
        store.append("sample", pl.DataFrame(values[1:2]), source=0)
        assert store.frame("SELECT arguments FROM annotation ORDER BY id").to_series().to_list() == ["{}", None, "{}", "[1]", None]
        assert store.frame("SELECT group_name FROM collective").to_series().to_list() == ["{}"]
        assert store.frame("SELECT metric FROM sample ORDER BY id").to_series().to_list() == [
            *(v["metric"] for v in values),
            "cpu_utilization",
        ]
        assert store.frame("SELECT text FROM text ORDER BY id").to_series().to_list() == ["{}", "[1]", "{}", "counter.a"]
        assert store.frame("SELECT DISTINCT metric FROM raw.sample ORDER BY 1 NULLS LAST").rows() == [("cpu_utilization",), (None,)]


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
