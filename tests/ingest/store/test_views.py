"""The views of a run store against plain Python over made events, and the comments of their columns."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from empty_stores import empty_store
from postrun.ingest.derive.steps import derive_steps
from postrun.ingest.store.schema import SCHEMA
from postrun.ingest.store.store import Store
from postrun.ingest.store.views import FILE, View, views

Row = dict[str, Any]
NAMES = ("ncclDevKernel_AllReduce", "gemm", "relu", None)
CATEGORIES = ("communication", "gemm", None, None)


@pytest.fixture
def store() -> Iterator[Store]:
    with empty_store() as empty:
        yield empty


def test_every_view_of_the_file_is_created_and_every_column_has_a_meaning(tmp_path: Path) -> None:
    path = tmp_path / "c.duckdb"  # c is also a name inside of a view
    with Store.create(path) as store:
        store.checkpoint()
    listed = [view.name for view in views()]
    assert FILE.read_text().count("CREATE VIEW") == len(listed)
    with duckdb.connect(str(path)) as connection:
        comments = dict(connection.execute("SELECT view_name, comment FROM duckdb_views() WHERE NOT internal").fetchall())
        assert sorted(comments) == sorted(listed)
        for view in views():
            columns = [name for name, *_ in connection.execute(f"DESCRIBE {view.name}").fetchall()]
            assert columns == list(view.columns), view.name
            assert comments[view.name].splitlines() == [view.meaning, *(f"{name}: {text}" for name, text in view.columns.items())]


@pytest.mark.parametrize("view", views(), ids=lambda view: view.name)
def test_a_meaning_is_a_text_of_its_own(view: View) -> None:
    assert view.meaning
    assert all(text and not text.endswith(".") for text in view.columns.values())


def random_run(random_numbers: random.Random) -> dict[str, list[Row]]:
    """Return the rows of a run of two processes, by table."""
    calls, device, windows, annotations = [], [], [], []
    for process in (0, 1):
        for correlation in range(1, 41):
            start = random_numbers.randrange(0, 4000)
            for again in range(random_numbers.choice((1, 1, 1, 2))):
                kind = random_numbers.choice(("launch", "launch", "call", "sync"))
                calls.append({"kind": kind, "tid": 5 + again, "start_ns": start + again, "duration_ns": random_numbers.randrange(9)})
                calls[-1] |= {"process": process, "node": 0, "name": 1, "correlation": correlation}
            for _ in range(random_numbers.choice((0, 1, 1, 3))):
                kind = random_numbers.choice(("kernel", "kernel", "memcpy", "memset", "sync"))
                device.append({"kind": kind, "device": process, "stream": random_numbers.randrange(2), "node": 0, "process": process})
                device[-1] |= {"name": random_numbers.choice((0, 1, 2, None)), "correlation": correlation}
                device[-1] |= {"start_ns": start + random_numbers.randrange(900), "duration_ns": random_numbers.randrange(50)}
        calls.append({"kind": "operator", "process": process, "node": 0, "tid": 5, "name": 1, "start_ns": 1, "duration_ns": 2})
        first = random_numbers.randrange(100)
        for _ in range(3):
            last = first + random_numbers.randrange(1500)
            windows.append({"process": process, "source": 0, "first_ns": first, "last_ns": last})
            first = last + random_numbers.choice((-20, 1, 2, 300))
        for number in range(4):
            annotations.append({"name": 3, "value": number, "start_ns": 1000 * number, "duration_ns": 800, "tid": 5, "side": "host"})
            annotations[-1] |= {"process": process, "node": 0}
    names: list[Row] = [{"id": i, "text": NAMES[i] or "step", "category": CATEGORIES[i]} for i in range(4)]
    processes = [{"id": 0, "node": 0, "rank": 3}, {"id": 1, "node": 0}]
    return {
        "name": names, "process": processes, "host_event": calls, "device_event": device, "profile_window": windows,
        "annotation": annotations,
    }  # fmt: skip


def fill(store: Store, tables: dict[str, list[Row]]) -> None:
    kinds = {"INTEGER": pl.Int32, "BIGINT": pl.Int64, "VARCHAR": pl.String}
    for table, rows in tables.items():
        columns = {name: kinds.get(kind, pl.String) for name, kind in SCHEMA[table].items() if any(name in row for row in rows)}
        store.append(table, pl.DataFrame([[row.get(name) for name in columns] for row in rows], schema=columns, orient="row"))


def window_of(windows: list[Row], process: int, start: int) -> int:
    joined: list[tuple[int, int]] = []
    for first, last in sorted((row["first_ns"], row["last_ns"]) for row in windows if row["process"] == process):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return max(0, sum(first <= start for first, _ in joined) - 1)


@pytest.mark.parametrize("seed", range(6))
def test_device_work_is_that_of_the_events(store: Store, seed: int) -> None:
    tables = random_run(random.Random(seed))
    fill(store, tables)
    expected = []
    for row in tables["device_event"]:
        if row["kind"] != "sync":
            kernel, name = row["kind"] == "kernel", row["name"]
            communication = kernel and name == 0
            expected.append((
                row["process"], 3 if row["process"] == 0 else None, row["start_ns"], row["start_ns"] + row["duration_ns"], kernel,
                row["kind"] == "memcpy", row["kind"] == "memset", not kernel, communication, kernel and not communication,
                None if name is None else NAMES[name], window_of(tables["profile_window"], row["process"], row["start_ns"]),
            ))  # fmt: skip
    actual = store.frame("""
        SELECT process, rank, start_ns, end_ns, kernel, memcpy, memset, memory, communication, computation, short_name, "window"
        FROM device_work
    """).rows()
    assert sorted(actual, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("seed", range(6))
def test_a_launch_is_the_first_of_its_correlation_with_the_first_work(store: Store, seed: int) -> None:
    tables = random_run(random.Random(seed))
    fill(store, tables)
    calls, runs = defaultdict(list), defaultdict(list)
    for row in tables["host_event"]:
        if row["kind"] == "launch":
            calls[row["process"], row["correlation"]].append((row["start_ns"], row["start_ns"] + row["duration_ns"], row["tid"]))
    for row in tables["device_event"]:
        if row["kind"] != "sync":
            runs[row["process"], row["correlation"]].append((row["start_ns"], row["device"], row["stream"]))
    expected = []
    for key, all_calls in calls.items():
        start, end, tid = min(all_calls)
        first = min(runs[key], default=(None, None, None))
        latency = None if first[0] is None else first[0] - end
        expected.append((*key, len(all_calls), tid, start, end, len(runs[key]), *first, latency))
    actual = store.frame("""
        SELECT process, correlation, calls, tid, start_ns, end_ns, runs, run_start_ns, run_device, run_stream, latency_ns FROM launch
    """).rows()
    assert sorted(actual) == sorted(expected)


@pytest.mark.parametrize("seed", range(6))
def test_the_device_work_of_a_step_is_that_which_ingest_derived(store: Store, seed: int) -> None:
    fill(store, random_run(random.Random(seed)))
    assert derive_steps(store) == 8
    assert store.frame("SELECT sum(device_events) AS n FROM step").item() > 20
    of_ingest = store.frame("""
        SELECT process, "index", host_start_ns, device_start_ns, device_duration_ns, device_events FROM step WHERE device_events > 0
        ORDER BY ALL
    """)
    derived = store.frame("""
        SELECT process, "index", step_start_ns AS host_start_ns, min(start_ns) AS device_start_ns,
            max(end_ns) - min(start_ns) AS device_duration_ns, count(*) AS device_events FROM step_device GROUP BY ALL ORDER BY ALL
    """)
    assert derived.rows() == of_ingest.rows()


def test_annotated_ranges_and_host_calls_have_their_names_and_ends(store: Store) -> None:
    tables = random_run(random.Random(1))
    fill(store, tables)
    ranges = store.frame("SELECT process, text, value, start_ns, end_ns FROM annotated ORDER BY ALL").rows()
    assert ranges == [(process, "step", number, 1000 * number, 1000 * number + 800) for process in (0, 1) for number in range(4)]
    calls = store.frame("SELECT process, kind::VARCHAR, runtime, text, start_ns, end_ns FROM host_call ORDER BY ALL").rows()
    assert calls == sorted(
        (row["process"], row["kind"], row["kind"] != "operator", "gemm", row["start_ns"], row["start_ns"] + row["duration_ns"])
        for row in tables["host_event"]
    )
