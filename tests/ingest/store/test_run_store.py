"""Tests that a run store is complete or absent, protected while in use, and able to store every text."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.errors import InputError, UsageError
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.ingest.store.texts import storable

EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 7, "ts": 1_700_000_000_000_000, "dur": 5}
METRIC = b'{"Type":"cpu","Name":"cpu0","Dimension":"CPUUtilization","Value":4.5,"NodeId":"algo-1","Timestamp":1700000000.5}\n'
TIMELINE = (
    b'[\n{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1700000000000000}},\n'
    b'{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Step:ModeKeys.TRAIN"}},\n'
    b'{"name": "Step:ModeKeys.TRAIN", "pid": 1, "ph": "X", "ts": 5, "dur": 9, "args": {"step_num": "3"}}\n]'
)


def trace(path: Path | str, count: int = 1) -> Path:
    events = [{**EVENT, "name": f"operator {i * 7919 % 99_991}", "ts": EVENT["ts"] + 10 * i} for i in range(count)]
    Path(path).write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return Path(path)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [300_000, 1_000_000])
def test_a_store_that_cannot_be_written_whole_is_an_error_and_leaves_nothing(tmp_path: Path, limit: int) -> None:
    source, target = trace(tmp_path / "a.json", 40_000), tmp_path / "out" / "r.duckdb"
    path = tmp_path / "whole.duckdb"
    ingest([source], path).close()
    assert path.stat().st_size > limit

    def bound() -> None:  # a file that may not grow stands for a disk that is full
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-m", "postrun.cli", "ingest", str(source), "-o", str(target)]
    done = subprocess.run(command, preexec_fn=bound, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "the database cannot read or write its file" in done.stderr
    assert "choose another place with -o" in done.stderr
    assert "internal error" not in done.stderr
    assert list(target.parent.iterdir()) == []


def test_a_finished_store_needs_nothing_of_closing_it(tmp_path: Path) -> None:
    target = tmp_path / "r.duckdb"
    with ingest([trace(tmp_path / "a.json", 100)], target):
        assert not (tmp_path / "r.duckdb.wal").exists()


def test_a_failed_checkpoint_is_an_error_that_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Store) -> None:
        raise duckdb.FatalException('FATAL Error: Failed to create checkpoint because of error: Could not write file "x": No space left')

    monkeypatch.setattr(Store, "checkpoint", fail)
    target = tmp_path / "r.duckdb"
    with pytest.raises(duckdb.IOException, match=r'^Could not write file "x": No space left$'):
        ingest([trace(tmp_path / "a.json")], target)
    assert not target.exists()


def test_a_store_that_another_program_writes_is_left_to_it(tmp_path: Path) -> None:
    source, target = trace(tmp_path / "a.json"), tmp_path / "r.duckdb"
    ingest([source], target).close()
    hold = textwrap.dedent(f"""
        import duckdb
        connection = duckdb.connect({str(target)!r})
        print("open", flush=True)
        input()
    """)
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        before = target.stat().st_ino
        with pytest.raises(InputError) as caught:
            ingest([source], target)
        assert str(caught.value) == f"{target}: another program has it open (PID {holder.pid}); wait for it or choose another place with -o"
        with pytest.raises(InputError, match=rf"another program has it open \(PID {holder.pid}\); wait for it$"):
            ingest([target])
        assert target.stat().st_ino == before
        holder.communicate("\n")
    with ingest([source], target) as store:
        assert store.frame("SELECT count(*) FROM host_event").item() == 1
        with pytest.raises(InputError, match=rf"this program has it open already \(PID {os.getpid()}\)"):
            ingest([source], target)


@pytest.mark.slow
def test_an_existing_file_is_replaced_without_opening_it_as_a_database(tmp_path: Path) -> None:
    source, target = trace(tmp_path / "a.json"), tmp_path / "r.duckdb"
    ingest([source], target).close()
    os.mkfifo(tmp_path / "r.duckdb.wal")
    code = f"from postrun.ingest import ingest\ningest([{str(source)!r}], {str(target)!r}).close()"
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=30)  # the database would wait for a writer of the pipe
    assert not (tmp_path / "r.duckdb.wal").exists()
    with ingest([target]) as store:
        assert store.frame("SELECT count(*) FROM host_event").item() == 1


@pytest.mark.parametrize("limit", ["much", "", "12", "99999999999TB"])
@pytest.mark.parametrize("location", [None, "r.duckdb"])
def test_a_bad_memory_limit_names_its_option_and_costs_no_file(tmp_path: Path, limit: str, location: str | None) -> None:
    target = None if location is None else tmp_path / location
    if target is not None:
        target.write_bytes(b"precious")
    with pytest.raises(UsageError, match=r"^--memory-limit ") as caught:
        Store.create(target, memory_limit=limit)
    assert "None" not in str(caught.value)
    if target is not None and limit != "99999999999TB":  # that one is a size, which only the database refuses
        assert target.read_bytes() == b"precious"


def test_a_bad_number_of_threads_names_its_option() -> None:
    with pytest.raises(UsageError, match=r"^--threads 0: at least 1"):
        Store.create(None, threads=0)


@given(st.text(st.characters(exclude_categories=())))
def test_every_text_can_be_stored_and_what_can_as_it_stands_is(text: str) -> None:
    stored = storable(text)
    stored.encode()
    assert storable(stored) == stored
    if not any(0xD800 <= ord(c) < 0xE000 for c in text):
        assert stored == text


def test_what_becomes_of_bytes_and_halves_of_pairs() -> None:
    assert storable(os.fsdecode(b"caf\xe9.json")) == r"caf\xe9.json"
    assert storable("a\ud800b") == r"a\ud800b"
    assert storable("r\udcc3\udca9sum\udcc3\udca9") == "résumé"  # as a locale without UTF-8 gives it


NAMES = [b"caf\xe9.json", "résumé 日本.json".encode()]


@pytest.mark.parametrize("name", NAMES, ids=["latin", "utf8"])
@pytest.mark.parametrize("alone", [True, False])
def test_files_with_names_of_any_bytes(tmp_path: Path, name: bytes, alone: bool) -> None:
    path = tmp_path / os.fsdecode(b"in\xff") / os.fsdecode(name)
    path.parent.mkdir()
    trace(path)
    given_path = path if alone else path.parent
    with ingest([given_path]) as store:
        assert store.frame("SELECT count(*) FROM host_event").item() == 1
        displayed = name.decode("utf-8", "backslashreplace")
        assert store.frame("SELECT path FROM source").item() == f"{tmp_path}/in\\xff/{displayed}"
        assert store.frame("SELECT label FROM process").item() == displayed
    with pytest.raises(UsageError, match=r"in\\xff.*not UTF-8.*rename it, or choose another"):
        Store.create(path.with_suffix(".duckdb"))


# A locale without UTF-8, in which Python decodes file names as ASCII.
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.slow
def test_hosted_files_of_any_name_in_any_locale(tmp_path: Path) -> None:
    run = tmp_path / "données"
    files = {
        b"system/incremental/2023111422/1700000040.algo-1.json": METRIC,
        b"system/caf\xe9/1700000100.algo-1.json": METRIC + METRIC,
        b"framework/pevents/2023111422/1700000000000014_905-h\xf4te_pythontimeline.json": TIMELINE,
    }
    for name, content in files.items():
        path = Path(os.fsdecode(os.fsencode(run) + b"/" + name))
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    target = tmp_path / "ré.duckdb"
    command = [sys.executable, "-m", "postrun.cli", "ingest", str(run), "-o", str(target), "--json"]
    done = subprocess.run(command, env={**os.environ, **PLAIN}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    with Store.open(target) as store:
        paths = [Path(path).relative_to(run).as_posix() for path in store.frame("SELECT path FROM source ORDER BY id").to_series()]
        assert paths == [
            r"framework/pevents/2023111422/1700000000000014_905-h\xf4te_pythontimeline.json",
            r"system/caf\xe9/1700000100.algo-1.json",
            "system/incremental/2023111422/1700000040.algo-1.json",
        ]
        assert store.frame("SELECT name FROM run").item() == "données"
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["algo-1", r"h\xf4te"]
        assert store.frame("SELECT count(*) FROM sample").item() == 1
        note = store.frame("SELECT file, severity, message FROM ingest_note WHERE code = 'unreadable'").row(0)
        assert note[:2] == ("1700000100.algo-1.json", "error")
        assert r"system/caf\xe9/1700000100.algo-1.json: the database opens no name that is not UTF-8; rename it" in note[2]


def test_the_documented_questions_have_right_answers(tmp_path: Path, project_root: Path) -> None:
    by_size: dict[str, Any] = {"cat": "kernel", "pid": 0, "tid": 7}
    for rank, host in enumerate(("a", "b")):
        wait = {**EVENT, "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "dur": 1}
        events = [wait] + [
            {**EVENT, **by_size, "name": f"f<{kind}>(x)", "dur": (1 + rank) * factor, "args": {"device": 0}}
            for kind, factor in (("int", 1000), ("float", 3000))
        ]
        members = {"host_name": host, "distributedInfo": {"rank": rank, "world_size": 2}}
        (tmp_path / f"{host}.json").write_text(json.dumps({"schemaVersion": 1, **members, "traceEvents": events}))
    text = (project_root / "docs" / "run-store.md").read_text()
    querying = text.partition("## Querying a store")[2]
    kernels, ranks, waits = querying.split("```sql\n")[1].split("```")[0].strip().split("\n\n")
    with ingest([tmp_path], tmp_path / "r.duckdb") as store:
        assert store.connection.sql(kernels).fetchall() == [
            ("b", 0, "f", 1, 6.0),
            ("a", 0, "f", 1, 3.0),
            ("b", 0, "f #2", 1, 2.0),
            ("a", 0, "f #2", 1, 1.0),
        ]
        assert store.connection.sql(ranks).fetchall() == [(0, 2, 4.0), (1, 2, 8.0)]
        assert store.connection.sql(waits).fetchall() == [("cudaDeviceSynchronize", 2, 0.002)]


def test_the_documented_definitions_and_omissions_are_those_of_the_views(project_root: Path) -> None:
    querying = (project_root / "docs" / "run-store.md").read_text().partition("## Querying a store")[2]
    definitions, omissions = (block.split("```")[0].strip().split("\n\n") for block in querying.split("```sql\n")[2:4])
    with Store.create(None) as store:
        execute = store.connection.execute
        execute("INSERT INTO process (id, node, rank) VALUES (0, 0, 3)")
        execute("INSERT INTO source (id, path) VALUES (0, 'a.json')")
        execute("INSERT INTO name (id, text, category) VALUES (0, 'nccl', 'communication'), (1, 'gemm', 'gemm')")
        execute('INSERT INTO step (node, process, "index", host_start_ns, host_duration_ns) VALUES (0, 0, 12, 0, 100)')
        owner = {"node": 0, "process": 0}
        work = [
            {**owner, "device": 0, "kind": kind, "name": name, "start_ns": start, "duration_ns": duration, "correlation": correlation}
            for kind, name, start, duration, correlation in (
                ("kernel", 0, 20, 1_000_000, 1), ("kernel", 1, 5_020, 3_000_000, 2), ("memset", 1, 50, 7, 9), ("kernel", 1, 60, 9, 8),
            )
        ]  # fmt: skip
        calls = [
            {**owner, "tid": 1, "kind": "launch", "name": 1, "start_ns": start, "duration_ns": 10, "correlation": correlation}
            for start, correlation in ((0, 1), (10, 2), (200, 3))
        ]
        store.append("device_event", pl.DataFrame(work), source=0)
        store.append("host_event", pl.DataFrame(calls), source=0)
        store.leave_out("device_event", "recorded twice", "SELECT id FROM device_event WHERE correlation = 8")
        communication, steps, launches = (execute(query).fetchall() for query in definitions)
        assert communication == [(3, 0.25)]
        assert steps == [(3, None, 12, 2, 3.0)]
        assert launches == [(3, 2, 2.505)]
        why, again, more = omissions
        assert execute(why).fetchall() == [("device_event", "recorded twice", "a.json", 1)]
        assert execute("SELECT count(*) FROM device_event").fetchall() == [(3,)]
        execute(again)
        assert execute("SELECT count(*) FROM device_event").fetchall() == [(4,)]
        execute(more)
        assert execute("SELECT DISTINCT kind::VARCHAR FROM device_event").fetchall() == [("kernel",)]


def test_closing_a_temporary_store_does_not_write_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.temporary()
    folder, path = store._folder, store.path
    assert folder is not None
    assert path is not None
    store.connection.execute("INSERT INTO name (id, text) SELECT range, 'kernel ' || range FROM range(50000)")
    before = path.stat().st_size
    monkeypatch.setattr(store, "_folder", None)  # which would remove the file
    store.close()
    assert path.stat().st_size == before
    folder.cleanup()


def test_a_long_query_shows_no_bar_where_python_has_no_script() -> None:
    code = """
from postrun.ingest.store import Store
with Store.temporary() as store:
    print(store.connection.execute("SELECT current_setting('enable_progress_bar')").fetchall())
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[(False,)]\n"
