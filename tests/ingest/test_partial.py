"""The run store of files that are read separately equals that of one process, whatever is in them.

The oracle is the code that reads the entire run; other tests compare it with the figures of other programs.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from postrun.ingest import partial
from postrun.ingest.chrome_trace import batches as trace_batches
from postrun.ingest.chrome_trace import cycle_ids
from postrun.ingest.discover import find_files
from postrun.ingest.kineto import reader as kineto
from postrun.ingest.store import Store
from postrun.simulate import write_demo
from read_in_parts import assert_same, cut, files
from slow_params import slow_except


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simulate a run of two machines with four GPUs each.

    It has a trace per rank, and the hosted profiler's layout.
    """
    folder = tmp_path_factory.mktemp("demo") / "demo"
    write_demo(folder, steps=2)
    return folder


@pytest.fixture(scope="module")
def trace(demo: Path) -> dict[str, Any]:
    """A small trace of one step."""
    actual: dict[str, Any] = json.loads(gzip.decompress(sorted((demo / "kineto").iterdir())[0].read_bytes()))
    return actual


def test_signatures_of_operators(tmp_path: Path) -> None:
    """Files that share signatures have the ids of the run, also if read one by one."""
    for rank in range(3):
        events = [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": 1000 + 10 * n, "dur": 5,
             "args": {"Input Dims": [[(n * (rank + 1)) % 5, 2]], "Call stack": "a.py(1): f", "Sequence number": n, "Fwd thread id": rank}}
            for n in range(8)
        ]  # fmt: skip
        text = json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 3}, "traceEvents": events})
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        (folder / f"rank-{rank}.json").write_text(text)
    same = assert_same(tmp_path / "run", tmp_path / "tables")
    assert len(same["signature"]) == 5
    assert len(same["host_event"]) == 24


@pytest.mark.parametrize(("few_events", "shared"), [(100_000, True), (1, False)])
def test_files_that_are_read_together_have_the_tables_of_each_alone(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_events: int, shared: bool
) -> None:
    """Small files share a database, from which nothing reaches the next file."""
    monkeypatch.setattr(partial, "_FEW_EVENTS", few_events)
    databases: list[Store] = []
    temporary = Store.temporary

    def counted(**options: Any) -> Store:
        databases.append(temporary(**options))
        return databases[-1]

    monkeypatch.setattr(Store, "temporary", counted)
    folder = tmp_path / "run"
    folder.mkdir()
    for number, name in enumerate(sorted((demo / "kineto").glob("*.json.gz"))[:3]):
        shutil.copy(name, folder / f"{number}.json.gz")
    (folder / "2-short.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1,
                                                     "tid": 1, "ts": 5, "dur": 5}, {"ph": "X", "name": "b"}]}))  # fmt: skip
    content = (folder / "1.json.gz").read_bytes()
    (folder / "1-cut.json.gz").write_bytes(content[: len(content) // 2])
    inputs = find_files([folder])
    assert len(inputs) == 5
    together, alone = tmp_path / "together", tmp_path / "alone"
    together.mkdir()
    alone.mkdir()
    entries = partial.write(inputs, together, "p-", threads=1)
    assert len(databases) == (1 if shared else 4)  # the short file has one event
    assert [bool(entry["read"]["notes"]) for entry in entries] == [False, True, False, True, False]
    renamed = {}
    for number, file in enumerate(inputs):
        [entry] = partial.write([file], alone, f"{number}-", threads=1)
        renamed.update({f"{number}-0000.{table}.parquet": name for table, name in entries[number]["read"]["tables"].items()})
        entry["read"]["tables"] = {table: renamed[name] for table, name in entry["read"]["tables"].items()}
        assert entry == entries[number]
    assert len(databases) == (6 if shared else 9)
    assert {renamed[name]: content for name, content in files(alone).items()} == files(together)


def test_after_a_reader_that_failed_the_next_file_has_a_new_database(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_trace = kineto.read_trace
    stores: list[Store] = []

    def fails_once(store: Store, *arguments: Any) -> Any:
        stores.append(store)
        result = read_trace(store, *arguments)
        if len(stores) == 1:
            raise RuntimeError("a defect of the reader")
        return result

    monkeypatch.setattr(kineto, "read_trace", fails_once)
    inputs = find_files(sorted((demo / "kineto").glob("*.json.gz"))[:3])
    tables = tmp_path / "tables"
    tables.mkdir()
    entries = partial.write(inputs, tables, "p-", threads=1)
    assert ["error" in entry["read"] for entry in entries] == [True, False, False]
    assert stores[0].connection is not stores[1].connection
    assert stores[1].connection is stores[2].connection


@pytest.mark.parametrize("name", ["kineto/diff_pair", "kineto/quirks", "kineto/h100", "smdebug/test_traces"])
def test_stores_of_real_files(shared_data: Path, tmp_path: Path, name: str) -> None:
    assert_same(shared_data / name, tmp_path / "tables")


def spoiled(folder: Path, chance: random.Random) -> None:
    """Damage some files of a run, and add more files."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        what = chance.randrange(8)
        data = path.read_bytes()
        if not data:
            continue
        if what == 0:
            path.write_bytes(data[: chance.randrange(len(data))])
        elif what == 1:
            at = chance.randrange(len(data))
            path.write_bytes(data[:at] + bytes(chance.randrange(256) for _ in range(20)) + data[at + 20 :])
        elif what == 2:
            shutil.copy(path, path.with_name("copy-" + path.name))
        elif what == 3 and path.suffix == ".json":
            path.write_bytes(data + b'{"Type": "cpu", "Name": \n\xff not a line\n')
    (folder / "notes.json").write_text('{"not": "a trace"}')
    (folder / "empty.pt.trace.json").write_bytes(b"")
    (folder / "kineto" / "zero.pt.trace.json").write_text('{"schemaVersion": 1, "traceEvents": []}')


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_damaged_files_duplicates_and_others(demo: Path, tmp_path: Path, seed: int) -> None:
    run = tmp_path / "run"
    shutil.copytree(demo, run)
    metrics = sorted((run / "profiler-output" / "system").rglob("*.json"))
    for path in (*sorted((run / "kineto").iterdir())[2:], *metrics[12:]):
        path.unlink()
    spoiled(run, random.Random(seed))
    stored = assert_same(run, tmp_path / "tables")
    assert isinstance(stored, dict)
    assert len(stored["ingest_note"]) > 3


def identities(trace: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return traces that identify their process in different ways.

    By the rank alone, not at all, by the name of the file, and in cycles of one process.
    """
    later = cut(trace)
    later["traceEvents"] = [{**event, "ts": event["ts"] + 60e6} for event in later["traceEvents"]]
    bare = {"traceEvents": cut(trace)["traceEvents"]}
    moved = {"traceEvents": later["traceEvents"]}
    ranked = {"rank": 3, "world_size": 8}
    return {
        "a.json": bare,
        "b.json": {**moved, "distributedInfo": ranked},
        "c_rank5.json": bare,
        "d_rank5.json": moved,
        "e.json": {"traceEvents": bare["traceEvents"], "host_name": "node7", "distributedInfo": ranked},
        "f.json": {"traceEvents": moved["traceEvents"], "host_name": "node7", "baseTimeNanoseconds": 10**9},
        "g.json": {"traceEvents": bare["traceEvents"], "deviceProperties": [{"id": 0, "name": "Other GPU", "totalGlobalMem": 5}]},
        "h.json": {"deviceProperties": [{"id": 9, "name": "NVIDIA H100"}], **moved},
    }


@pytest.mark.parametrize("flush", slow_except((50,), (300_000, 50)))
def test_machines_and_processes_that_only_all_files_tell(
    trace: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: int
) -> None:
    """With ``flush`` 50, rows go to the store before the entire file is known."""
    monkeypatch.setattr(kineto, "FLUSH_ROWS", flush)
    monkeypatch.setattr(trace_batches, "BATCH_BYTES", 20_000 if flush == 50 else trace_batches.BATCH_BYTES)
    run = tmp_path / "run"
    run.mkdir()
    for name, written in identities(trace).items():
        (run / name).write_text(json.dumps(written))
    stored = assert_same(run, tmp_path / "tables")
    assert isinstance(stored, dict)
    assert len(stored["node"]) > 2
    assert 4 < len(stored["process"]) < 8
    assert (
        max(row[8] or 0 for row in stored["host_event"]) >= cycle_ids.CYCLE_IDS
        or max(row[7] or 0 for row in stored["host_event"]) >= cycle_ids.CYCLE_IDS
    )


def test_a_run_without_anything_is_told_with_the_same_words(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "x.pt.trace.json").write_text('{"traceEvents": [')
    (run / "y.json").write_text("nothing")
    assert "nothing usable found" in str(assert_same(run, tmp_path / "tables"))
