"""Tests that a store answers questions from its rows, and equal ones once while its rows are unchanged."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import polars as pl
import pytest
from postrun.analysis.toolkit.shared import shared
from postrun.ingest.store import Store


def test_a_query_that_fails_while_its_rows_are_read_raises_the_error_of_the_database() -> None:
    with Store.temporary() as store:
        with pytest.raises(duckdb.InvalidInputException, match=r"^Invalid Input Error: odd row$"):
            store.frame("SELECT CASE WHEN i = 150000 THEN error('odd row') END FROM range(200000) AS t(i)")
        with pytest.raises(duckdb.CatalogException, match="nowhere"):
            store.frame("SELECT * FROM nowhere")


def test_answers_are_kept_only_while_the_rows_are_unchanged() -> None:
    count, add = "SELECT count(*) AS n FROM node WHERE id < ?", "INSERT INTO node (id) VALUES (1)"
    with Store.temporary() as store:
        assert store.frame(count, [9]).item() == 0
        with store.unchanged():
            assert store.frame(count, [9]).item() == 0
            store.connection.execute(add)
            with store.unchanged():  # the inner promise ends with the outer one
                assert store.frame(count, [9]).item() == 0
            assert store.frame(count, [9]).item() == 0
            assert store.frame(count, [8]).item() == 1
        assert store.frame(count, [9]).item() == 1
        with store.unchanged():
            assert store.frame(count, [9]).item() == 1


def test_answers_are_kept_by_the_values_of_lists() -> None:
    with Store.temporary() as store, store.unchanged():
        assert store.frame("SELECT len(?)", [[1, 2]]).item() == 2
        assert store.frame("SELECT len(?)", [[1, 2, 3]]).item() == 3


def test_a_caller_that_changes_an_answer_changes_its_own() -> None:
    with Store.temporary() as store, store.unchanged():
        rows = store.frame("SELECT 1 AS a")
        rows.insert_column(0, pl.Series("b", [2]))
        assert store.frame("SELECT 1 AS a").columns == ["a"]


def test_a_shared_figure_is_computed_once_for_equal_arguments() -> None:
    calls = []

    @shared
    def figure(store: Store, number: int = 1) -> list[int]:
        calls.append(number)
        return [number]

    with Store.temporary() as store:
        assert figure(store) is not figure(store)
        with store.unchanged():
            assert figure(store) is figure(store)
            assert figure(store, 2) is figure(store, 2)
            assert figure(store, number=3) == [3]
    assert calls == [1, 1, 1, 2, 3]


def test_tables_with_rows() -> None:
    with Store.temporary() as store:
        assert not store.has_rows("node", "device_event")
        store.insert("node", {"id": 0})
        assert store.has_rows("node")
        assert store.has_rows("device_event", "node")
        assert not store.has_rows("device_event")
        with pytest.raises(KeyError, match="nods"):
            store.has_rows("nods", "node")


def test_a_program_that_reads_a_store_ends_without_messages(tmp_path: Path) -> None:
    """DuckDB's binding reports at the end each of its objects that is still in use."""
    program = "from postrun.ingest.store import Store\nwith Store.temporary() as store: print(store.frame('SELECT 1 AS a').item())"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_batches_have_all_rows_in_parts() -> None:
    with Store.temporary() as store:
        parts = list(store.batches("SELECT i FROM range(?) AS t(i)", [5000], rows=2048))
    assert max(part.height for part in parts) <= 2048
    assert sorted(pl.concat(parts)["i"]) == list(range(5000))


def test_columns_of_one_name_are_both_read() -> None:
    with Store.temporary() as store:
        assert store.frame("SELECT a.i, b.i, a.i FROM range(2) AS a(i), range(5, 6) AS b(i) ORDER BY ALL").rows() == [(0, 5, 0), (1, 5, 1)]


def test_answers_of_one_thread_do_not_outlast_those_of_another() -> None:
    with Store.temporary() as store:
        with ThreadPoolExecutor(1) as executor:
            mine, theirs = store.unchanged(), store.unchanged()
            mine.__enter__()
            executor.submit(theirs.__enter__).result()
            assert store.frame("SELECT count(*) FROM node").item() == 0
            mine.__exit__(None, None, None)
            executor.submit(theirs.__exit__, None, None, None).result()
        store.insert("node", {"id": 0, "hostname": "a"})
        assert store.frame("SELECT count(*) FROM node").item() == 1
