"""A run store given as SOURCE is data: nothing in it runs, nothing else is read, and what it contains is checked."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner
from postrun.cli import main
from postrun.errors import InputError
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.ingest.store import files as store_files
from postrun.ingest.store import foreign as foreign_store
from postrun.ingest.store.foreign import Limits
from postrun.ingest.store.schema import STORED
from slow_params import slow_except

SECRET = "PLANTED_SECRET_31"
copied = functools.partial(foreign_store.copied, Store)
NOTE = (
    "CREATE VIEW ingest_note AS SELECT 0 AS source, 'f' AS file, 'info' AS severity, 'c' AS code, {} AS message, 1 AS count, 0 AS first_ns"
)
VIEW = f"DROP TABLE ingest_note; {NOTE}, 0 AS last_ns FROM {{}}"
DAMAGED = "the run store is damaged or hostile"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run store: one rank with kernels, launches, a copy, operators and steps."""
    folder = tmp_path_factory.mktemp("honest")
    events: list[dict[str, object]] = []
    for step in range(4):
        at = 1_700_000_000_000_000 + step * 10_000
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 7, "tid": 7, "ts": at, "dur": 9000})
        events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": at + 10, "dur": 90})
        call = {"correlation": step + 1, "External id": step + 1}
        events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": at + 20, "dur": 9, "args": call}
        )
        work = {**call, "device": 0, "stream": 7, "context": 1}
        events.append({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at + 100, "dur": 500, "args": work})
    properties = [{"id": 0, "name": "GPU", "totalGlobalMem": 1 << 34, "numSms": 80}]
    trace = {"schemaVersion": 1, "deviceProperties": properties, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": events}
    (folder / "trace.json").write_text(json.dumps(trace))
    ingest([folder / "trace.json"], folder / "run.duckdb").close()
    return folder / "run.duckdb"


def altered(honest: Path, folder: Path, sql: str, name: str = "run.duckdb") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    shutil.copyfile(honest, path)
    with duckdb.connect(path) as connection:
        connection.execute(sql)
    return path


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that nobody may contact."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server
        with pytest.raises(BlockingIOError):
            server.accept()


HOSTILE = {
    "environment": (VIEW.format("content", "read_text('/proc/self/environ')"), "view ingest_note"),
    "file": (VIEW.format("content", "read_text('{secret}')"), "view ingest_note"),
    "folder": (VIEW.format("file", "glob('{folder}/*')"), "view ingest_note"),
    "long text": (VIEW.format("repeat('x', 2000000000)", "range(9)"), "view ingest_note"),
    "endless": (VIEW.format("range::VARCHAR", "range(1000000000000)"), "view ingest_note"),
    "another view": ("CREATE VIEW more AS SELECT 1 AS a", "view more"),
    "own view": ("CREATE OR REPLACE VIEW device_event AS SELECT content FROM read_text('{secret}')", "definition of view device_event"),
    "version": ("DROP TABLE store_info; CREATE VIEW store_info AS SELECT 'format_version' AS key, '9' AS value", "view store_info"),
    "macro": ("CREATE MACRO count(x) AS 3", "macro count"),
    "catalog macro": ("CREATE MACRO duckdb_views() AS TABLE SELECT 1 AS view_name", "macro duckdb_views"),
    "index": ("CREATE INDEX names ON name(id)", "index names"),
    "generated": (
        'DROP TABLE name; CREATE TABLE name(id INTEGER, "text" VARCHAR AS (id::VARCHAR), short VARCHAR, "precision" VARCHAR,'
        " category VARCHAR)",
        "name.text VARCHAR GENERATED",
    ),
    "default": ("CREATE SEQUENCE ids; ALTER TABLE name ALTER id SET DEFAULT nextval('ids')", "sequence ids"),
    "constant default": ("ALTER TABLE name ALTER id SET DEFAULT 5", "name.id INTEGER DEFAULT 5"),
    "not null": ("ALTER TABLE node ALTER id SET NOT NULL", "node.id INTEGER NOT NULL"),
    "check": ("DROP TABLE store_info; CREATE TABLE store_info(key VARCHAR, value VARCHAR, CHECK (key <> value))", "constraint store_info"),
    "enum": (
        "CREATE TYPE other AS ENUM ('kernel', 'memcpy', 'memset', 'sync', '<b>'); ALTER TABLE raw.device_event ALTER kind TYPE other",
        "type other",
    ),
    "enum of our name": (
        "ALTER TABLE raw.device_event ALTER kind TYPE VARCHAR; DROP TYPE DEVICE_KIND; CREATE TYPE DEVICE_KIND AS ENUM ('kernel');"
        "ALTER TABLE raw.device_event ALTER kind TYPE DEVICE_KIND",
        "type DEVICE_KIND ENUM ['kernel']",
    ),
    "table": ("CREATE TABLE more(a INTEGER)", "table more"),
    "schema": ("CREATE SCHEMA more; CREATE TABLE more.node(a INTEGER)", "schema more"),
    "column": ("ALTER TABLE node ADD COLUMN more INTEGER", "column node.more INTEGER"),
    "type of a column": ("ALTER TABLE node ALTER id TYPE BIGINT", "column node.id BIGINT"),
}


@pytest.mark.parametrize("kind", slow_except(("catalog macro", "generated", "default", "enum", "table", "column"), HOSTILE))
def test_a_store_with_anything_but_our_tables_is_refused(
    kind: str, honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: socket.socket
) -> None:
    sql, named = HOSTILE[kind]
    (tmp_path / "secret.txt").write_text(SECRET)
    path = altered(honest, tmp_path / "in", sql.format(secret=tmp_path / "secret.txt", folder=tmp_path))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    began = time.monotonic()
    done = CliRunner().invoke(main, ["report", str(path), "-o", str(tmp_path / "out"), "--format", "html,json"])
    assert done.exit_code == 4, done.output
    assert f"{path}: contains something that no run store of postrun contains: " in done.output
    assert named in done.output
    assert SECRET not in done.output
    assert not (tmp_path / "out").exists()
    assert time.monotonic() - began < 30
    assert sorted(one.name for one in path.parent.iterdir()) == ["run.duckdb"]


def test_nothing_connects(honest: Path, tmp_path: Path, listener: socket.socket) -> None:
    """Patch a view of a URL in the file: DuckDB needs the extension to create one."""
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
    sql = VIEW.format("content", f"read_text('{'/' * len(url)}')")
    path = altered(honest, tmp_path, sql)
    patch(path, b"/" * len(url), url.encode())
    with pytest.raises(InputError, match="view ingest_note"):
        ingest([path])
    assert not list(tmp_path.glob("*.wal*"))


def patch(path: Path, old: bytes, new: bytes) -> None:
    """Replace bytes of the file, and its checksums."""
    from duckdb_blocks import blocks, write_block

    data = bytearray(path.read_bytes())
    places = [i for i in range(len(data)) if data.startswith(old, i)] if len(old) > 8 else []
    assert places
    for location in places:
        data[location : location + len(old)] = new
    for start, size in blocks(data):
        write_block(data, start, size)
    path.write_bytes(data)


def test_connections_are_locked(tmp_path: Path) -> None:
    names = ("enable_external_access", "autoinstall_known_extensions", "autoload_known_extensions", "allow_community_extensions")
    with Store.create(None) as memory, Store.temporary() as temporary, Store.create(tmp_path / "a.duckdb") as file:
        for store in (memory, temporary, file):
            values = store.connection.execute(
                "SELECT name, value FROM duckdb_settings() WHERE name IN (SELECT unnest(?))", [[*names, "lock_configuration"]]
            ).fetchall()
            assert dict(values) == {**dict.fromkeys(names, "false"), "lock_configuration": "true"}
            with pytest.raises(duckdb.PermissionException):
                store.connection.execute("SELECT content FROM read_text('/proc/self/environ')")
            with pytest.raises(duckdb.PermissionException):
                store.connection.execute(f"COPY (SELECT 1) TO '{tmp_path}/written'")
            with pytest.raises(duckdb.InvalidInputException, match="locked"):
                store.connection.execute("SET enable_external_access = true")


def test_rows_are_spilled_to_a_private_folder_that_closing_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"postrun-{os.getpid()}.tmp").symlink_to("/nowhere")
    with Store.create(None, memory_limit="60MB", threads=1) as store:
        store.connection.execute("CREATE TABLE t AS SELECT range AS a, hash(range) AS b FROM range(4_000_000)")
        [folder] = [one for one in tmp_path.iterdir() if one.is_dir()]
        assert any((folder / "spill").iterdir())
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert str(os.getpid()) not in folder.name
    assert not folder.exists()


def contents(store: Store) -> dict[str, list[tuple[object, ...]]]:
    return {table: store.frame(f"SELECT * FROM {table} ORDER BY rowid").rows() for table in STORED}


def test_a_copy_has_the_same_rows_in_the_same_order(honest: Path, tmp_path: Path) -> None:
    with ingest([honest.with_name("trace.json")]) as read, copied(honest) as store:
        assert contents(store) == contents(read)
        assert store.path is not None
        assert store.path != honest
    (tmp_path / "link.duckdb").symlink_to(honest)
    with copied(tmp_path / "link.duckdb") as store:
        assert store.frame("SELECT count(*) FROM device_event").item() == 4


@pytest.mark.slow
def test_many_rows_and_long_texts_keep_their_order(honest: Path, tmp_path: Path) -> None:
    path = altered(
        honest, tmp_path, "INSERT INTO name BY NAME SELECT range + 100 AS id, repeat('n', 200) || range AS text FROM range(300_000)"
    )
    with copied(path, threads=2) as store:
        ids = store.frame("SELECT id, text FROM name ORDER BY rowid")
    assert ids["id"].to_list()[-300_000:] == list(range(100, 300_100))
    assert ids["text"][-1] == "n" * 200 + "299999"


SLOW = "import time\ntime.sleep(60)"
CRASH = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"
BUSY = "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 9))\nwhile True: pass"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (SLOW, "gave no answer for 1 s"),
        (CRASH, "ended with SIGSEGV"),
        (BUSY, "used too much processor time"),
        ("import os\nos.write(1, b'x' * 64)", "gave an answer that is not valid"),
        ("import os, struct\nos.write(1, struct.pack('=q', 4) + b'Tnam')", "gave an answer that is not valid"),
        ("import os, struct\nos.write(1, struct.pack('=q', 1) + b'E')", "gave an answer that is not valid"),
    ],
)
def test_a_child_that_fails_is_one_error(code: str, expected: str, honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    child = tmp_path / "child.py"
    child.write_text("import sys\nsys.stdin.buffer.read()\n" + code)
    with pytest.raises(InputError) as caught:
        copied(honest, child=child, limits=Limits(idle_seconds=1 if code == SLOW else 30))
    assert str(caught.value) == f"{honest}: {DAMAGED}: the process that reads it {expected}; ingest the sources again"
    assert list(tmp_path.iterdir()) == [child]


def test_the_child_gets_no_environment_and_can_use_little(honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "seen"
    child = tmp_path / "child.py"
    child.write_text(f"import os, sys\nopen({str(out)!r}, 'w').write(repr((dict(os.environ), os.getcwd())) + sys.stdin.read())")
    with pytest.raises(InputError, match="damaged"):
        copied(honest, child=child)
    assert SECRET not in out.read_text()
    assert '"RLIMIT_FSIZE": 0' in out.read_text()
    with pytest.raises(InputError, match=r"too much memory|SIGKILL|exit code|SIGSEGV|SIGABRT"):
        copied(honest, limits=Limits(data=80 << 20))


def test_a_store_with_too_much_data_is_refused(honest: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the run store has more than 1e-06 GB of data"):
        copied(honest, max_unpacked="1KB")
    path = altered(honest, tmp_path, "UPDATE name SET text = repeat('n', 65537) WHERE id = 0")
    with pytest.raises(InputError, match="a text in column text of table name is longer than 64 KiB"):
        ingest([path])


@pytest.mark.parametrize("name", ["sig", "term"])
def test_a_signal_ends_the_child_at_once(name: str, honest: Path, tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    pid = tmp_path / "pid"
    child.write_text(
        f"import os, signal, time\nsignal.signal(2, signal.SIG_IGN)\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    )
    code = f"""
import sys
from pathlib import Path
from postrun.ingest.store import foreign as foreign_store
from postrun.cli import run
foreign_store.copied.__kwdefaults__["child"] = Path({str(child)!r})
run(["report", {str(honest)!r}, "-o", {str(tmp_path / "out")!r}, "--format", "json"])
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path / "t")}
    (tmp_path / "t").mkdir()
    with subprocess.Popen([sys.executable, "-P", "-c", code], env=environment, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 30
        while not (pid.exists() and pid.read_text()) and time.monotonic() < end:
            time.sleep(0.02)
        began = time.monotonic()
        process.send_signal(signal.SIGINT if name == "sig" else signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == (130 if name == "sig" else 143)
    assert time.monotonic() - began < 10
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert list((tmp_path / "t").iterdir()) == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: data[: len(data) // 2], "cannot be opened as a run store|damaged or hostile"),
        (lambda data: data[:4096] + b"\0" * (len(data) - 4096), "cannot be opened as a run store|damaged or hostile"),
        (lambda data: b"DUCKDUCKDUCK", "cannot be opened as a run store"),
    ],
)
def test_a_damaged_file_is_one_error(change: object, expected: str, honest: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.duckdb"
    path.write_bytes(change(honest.read_bytes()))  # type: ignore[operator]
    with pytest.raises(InputError, match=expected):
        ingest([path])


def test_other_databases_and_versions_keep_their_messages(honest: Path, tmp_path: Path) -> None:
    with duckdb.connect(tmp_path / "other.duckdb") as connection:
        connection.execute("CREATE TABLE things(a INTEGER)")
    with pytest.raises(InputError, match=r"other.duckdb: a DuckDB file, but no run store of postrun; make one with"):
        ingest([tmp_path / "other.duckdb"])
    duckdb.connect(tmp_path / "empty.duckdb").close()
    with pytest.raises(InputError, match=r"a DuckDB file, but no run store of postrun; make one"):
        ingest([tmp_path / "empty.duckdb"])
    older = altered(honest, tmp_path, "UPDATE store_info SET value = '5' WHERE key = 'format_version'; DROP TABLE raw.sample", "old.duckdb")
    with pytest.raises(InputError, match=r"old.duckdb: run store of format 5, this postrun reads format 9; ingest the sources again"):
        ingest([older])


STEPS = "INSERT INTO step BY NAME SELECT 0 AS node, 0 AS process, range AS index, 5 AS host_start_ns, 5 AS host_duration_ns"
SAMPLES = "INSERT INTO raw.sample BY NAME SELECT range AS id, 0 AS source_id, 5 AS time_ns, 5.0 AS value"
CONTRADICTIONS = {
    "UPDATE raw.device_event SET name = 4711": "column name of table device_event has ids that table name has not (4 rows)",
    "UPDATE raw.host_event SET signature = 3": "column signature of table host_event has ids that table signature has not",
    "UPDATE raw.device_event SET occupancy = 'nan'": "column occupancy of table device_event has percentages that are not possible",
    "UPDATE raw.device_event SET multiprocessors = 0": "column multiprocessors of table device_event has numbers that no GPU has",
    "INSERT INTO signature BY NAME SELECT 0 AS id FROM range(2)": "column id of table signature has the same id in several rows",
    "UPDATE source_map SET process = 9": "column process of table source_map has ids that table process has not (1 rows)",
    "UPDATE raw.host_event SET source_id = 9": "column source_id of table raw.host_event has ids that table source_map has not",
    "UPDATE raw.host_event SET id = 0": "column id of table raw.host_event has the same id in several rows",
    "INSERT INTO source_map BY NAME SELECT 0 AS source_id, 0 AS shift_ns, 0 AS id_offset": (
        "column source_id of table source_map has the same id"
    ),
    "INSERT INTO thread_alias SELECT 0, 1, range FROM range(2)": "column source_id, tid of table thread_alias has the same id",
    "INSERT INTO device_alias SELECT 0, 0, range FROM range(2)": "column source_id, device of table device_alias has the same id",
    "INSERT INTO device_alias SELECT 0, 0, -1": "column alias of table device_alias has numbers that no GPU has",
    "UPDATE raw.host_event SET id = 1": "column id of table raw.host_event has the same id in several rows",
    "UPDATE raw.host_event SET id = 9e15 WHERE id > 1": "column id of table raw.host_event has the same id in several rows",
    "INSERT INTO source_map BY NAME SELECT range + 99 AS source_id, 0 AS shift_ns, 0 AS id_offset FROM range(500_000)": (
        "more than 500,000"
    ),
    "INSERT INTO name_alias SELECT 0, range FROM range(2)": "column name of table name_alias has the same id",
    "UPDATE source_map SET shift_ns = 4e18": "column start_ns of table device_event has times that are not possible",
    "UPDATE source_map SET shift_ns = 9e18": "column shift_ns of table source_map has times that are not possible",
    "UPDATE source_map SET id_offset = 9e18": "column id_offset of table source_map has offsets that are not possible",
    "INSERT INTO text VALUES (7, 'x'), (7, 'y')": "column id of table text has the same id in several rows",
    "INSERT INTO left_out VALUES ('step', 1, 'x')": "column table_name of table left_out has words that are not known (1 of 1 rows)",
    f"{SAMPLES}, 'counter.x' AS metric FROM range(1)": "column metric of table raw.sample has names of counters",
    "UPDATE process SET node = NULL": "column node of table process has no value (1 of 1 rows)",
    "UPDATE raw.device_event SET duration_ns = -5": "duration_ns of table device_event has durations that are not possible (4 of 4 rows)",
    "UPDATE step SET host_duration_ns = 9e18": "column host_duration_ns of table step has durations that are not possible",
    "UPDATE raw.annotation SET start_ns = 9e18": "column start_ns of table annotation has times that are not possible",
    "UPDATE run SET ended_ns = 9e18": "column ended_ns of table run has times that are not possible",
    "UPDATE run SET hyperparameters = '{'": "column hyperparameters of table run has text that is not JSON",
    "UPDATE run SET metadata = repeat('[', 100000)": "column metadata of table run has text that is not JSON",
    "INSERT INTO text VALUES (7, 'x'); UPDATE raw.annotation SET arguments = 7": (
        "column arguments of table annotation has text that is not JSON"
    ),
    "UPDATE raw.device_event SET device = -1": "column device of table device_event has numbers that no GPU has",
    "INSERT INTO run BY NAME SELECT 'x' AS status": "table run has 2 rows, more than 1",
    "DELETE FROM run": "table run has no row",
    "INSERT INTO node BY NAME SELECT 0 AS id, 'h' AS hostname": "column id of table node has the same id in several rows",
    "INSERT INTO device BY NAME SELECT 0 AS node, range AS index FROM range(49_999)": "table device has 50,000 rows, more than 16,384",
    "INSERT INTO source BY NAME SELECT range + 9 AS id, 'p' AS path, 'f' AS format, 1 AS events FROM range(100_000)": (
        "table source has 100,001 rows, more than 100,000"
    ),
    f"{STEPS}, NULL AS phase FROM range(1_000_000)": "table step has 1,000,004 rows, more than 1,000,000",
    f"{STEPS}, 'p' || range AS phase FROM range(1_001)": "columns phase of table step have more than 1,000 values",
    "INSERT INTO python_window BY NAME SELECT range AS id, 0 AS source, 0 AS node FROM range(100_001)": (
        "table python_window has 100,001 rows, more than 100,000"
    ),
    "INSERT INTO recorded_window BY NAME SELECT 0 AS process, 5 AS first_ns, 6 AS last_ns FROM range(100_001)": (
        "table recorded_window has 100,001 rows, more than 100,000"
    ),
    "INSERT INTO ingest_note BY NAME SELECT 'info' AS severity, 'c' AS code, 'm' AS message, 1 AS count FROM range(500_001)": (
        "more than 500,000"
    ),
    f"{SAMPLES}, 'm' || range AS metric, 0 AS unit FROM range(4_097)": "columns metric of table sample have more than 4,096 values",
    f"{SAMPLES}, 'm' AS metric, range AS unit FROM range(4_097)": "column unit of table sample has more than 4,096 values for one node",
    f"{SAMPLES}, 'm' || range // 4096 AS metric, range % 4096 AS unit FROM range(262_145)": (
        "columns node, metric, unit of table sample have more than 262,144 values"
    ),
    "INSERT INTO raw.device_event SELECT e.* REPLACE ('k' || range AS copy_kind, range + 9 AS id)"
    " FROM (FROM raw.device_event LIMIT 1) AS e, range(101)": ("columns copy_kind of table device_event have more than 100 values"),
    "UPDATE run SET labels = repeat('[', 65) || repeat(']', 65)": "column labels of table run has JSON with more than 64 levels",
    "UPDATE run SET metadata = repeat('{\"a\":', 65) || '1' || repeat('}', 65)": "column metadata of table run has JSON with more than 64",
    "UPDATE run SET labels = (SELECT to_json(map(list(range::VARCHAR), list(1))) FROM range(10_001))": (
        "column labels of table run has 10,001 values, more than 10,000"
    ),
    "INSERT INTO raw.sample BY NAME SELECT 0 AS id, 0 AS source_id, 'm' AS metric, 5 AS time_ns, 'nan'::DOUBLE AS value": (
        "values that are not finite"
    ),
    "INSERT INTO ingest_note BY NAME SELECT 'x' AS severity, 'c' AS code, 'm' AS message, 1 AS count": (
        "column severity of table ingest_note has words that are not known"
    ),
}


@pytest.mark.slow
def test_contradictory_contents_are_refused(honest: Path) -> None:
    from postrun.ingest.store.values import check
    from postrun.ingest.store.views import event_script

    with copied(honest) as store:
        for statement in event_script():  # the views as defined: a store is checked before they are made faster
            store.connection.execute(statement)
        for sql, expected in CONTRADICTIONS.items():
            check(store, "sound")
            store.connection.execute(f"BEGIN; {sql}")
            with pytest.raises(InputError) as caught:
                check(store, "x.duckdb")
            store.connection.execute("ROLLBACK")
            assert str(caught.value).startswith("x.duckdb: the run store has contents that no postrun writes: ")
            assert expected in str(caught.value)
        store.connection.execute(f"UPDATE raw.annotation SET duration_ns = {2**61}, complete = FALSE")
        check(store, "a clock that jumped")  # readers keep such ranges, and note them


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE raw.device_event SET bytes = 9e18, correlation = -9e18, grid_x = -9e18, block_x = 0, registers = 9e18",
        "DELETE FROM raw.device_event; DELETE FROM step",
        "UPDATE name SET short = NULL, precision = '\u202e<script>'; UPDATE run SET labels = '7', resources = '[]', metadata = '\"x\"'",
        "UPDATE step SET index = -9e18, device_events = 9e18; UPDATE raw.annotation SET depth = -5, value = 9e18, complete = NULL",
    ],
)
def test_odd_contents_end_in_a_report_or_one_error(sql: str, honest: Path, tmp_path: Path) -> None:
    path = altered(honest, tmp_path, sql)
    done = CliRunner().invoke(main, ["report", str(path), "-o", str(tmp_path / "out"), "--format", "html,json"])
    assert done.exit_code in (0, 4), done.output
    assert "internal error" not in done.output
    if done.exit_code == 4:
        assert f"{path}: the run store has contradictory contents" in done.output


@pytest.mark.slow
def test_an_unexpected_exception_names_the_store_and_others_stay(honest: Path) -> None:
    import polars as pl

    expected = r"run.duckdb: the run store has contradictory contents \(KeyError: 'x'\); ingest the sources again"
    with pytest.raises(InputError, match=expected), copied(honest):
        raise KeyError("x")
    with pytest.raises(InputError, match="PanicException"), copied(honest):
        raise pl.exceptions.PanicException("out of range")
    for error in (InputError("a"), FileNotFoundError("a"), KeyboardInterrupt(), SystemExit(3), duckdb.OutOfMemoryException("a")):
        with pytest.raises(type(error)), copied(honest):
            raise error
    with pytest.raises(KeyError), Store.temporary():
        raise KeyError("x")


# -- files next to the store, and other users who may replace it ------------------------------------------------------------


def test_a_store_with_a_log_next_to_it_is_refused_and_the_log_is_not_opened(honest: Path, tmp_path: Path) -> None:
    path, replacement = altered(honest, tmp_path / "in", "SELECT 1"), altered(honest, tmp_path / "other", "SELECT 1")
    with duckdb.connect(replacement) as connection:
        connection.execute("SET checkpoint_threshold = '1GB'; PRAGMA disable_checkpoint_on_shutdown")
        connection.execute(f"INSERT INTO ingest_note BY NAME SELECT 'info' AS severity, 'c' AS code, '{SECRET}' AS message, 1 AS count")
    assert SECRET.encode() in Path(f"{replacement}.wal").read_bytes()
    log = Path(f"{path}.wal")
    for kind in ("file", "link", "pipe"):
        if kind == "file":
            shutil.copyfile(f"{replacement}.wal", log)
        elif kind == "link":
            log.symlink_to(f"{replacement}.wal")
        else:
            os.mkfifo(log)
        began = time.monotonic()
        done = CliRunner().invoke(main, ["report", str(path), "-o", str(tmp_path / "out"), "--format", "json"])
        assert done.exit_code == 4, done.output
        assert f"{path}: has a write-ahead log next to it (run.duckdb.wal), so it is being written or its writer was killed" in done.output
        assert SECRET not in done.output
        assert not (tmp_path / "out").exists()
        assert time.monotonic() - began < 10
        log.unlink()
    log.touch()
    copied(path).close()


def test_the_child_reads_the_bytes_that_were_opened_and_not_the_path(honest: Path, tmp_path: Path) -> None:
    """Replace the file by a link to another store before the child reads it."""
    private = altered(honest, tmp_path / "private", f"UPDATE run SET name = '{SECRET}'")
    path = altered(honest, tmp_path / "in", "SELECT 1")
    child = tmp_path / "child.py"
    script = Path(foreign_store.__file__).with_name("foreign_child.py")
    swap = f"import os\nos.unlink({str(path)!r})\nos.symlink({str(private)!r}, {str(path)!r})\n"
    child.write_text(swap + script.read_text())
    with copied(path, child=child) as store:
        assert path.is_symlink()
        assert SECRET not in repr(store.frame("SELECT * FROM run").rows())


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.duckdb")
    with pytest.raises(InputError, match=r"run.duckdb: not a regular file; give the run store itself"):
        copied(tmp_path / "run.duckdb")


def test_the_copy_keeps_holes_and_is_bounded_by_the_disk(tmp_path: Path) -> None:
    source = tmp_path / "a"
    with source.open("wb") as file:
        file.write(b"begin")
        file.seek(50_000_000)
        file.write(b"middle")
        file.truncate(100_000_000)
    assert store_files.copy(source, tmp_path / "b", "a") == 100_000_000
    assert (tmp_path / "b").read_bytes() == source.read_bytes()
    assert (tmp_path / "b").stat().st_blocks * 512 < 10_000_000
    with source.open("r+b") as file:
        file.truncate(1 << 42)
    with pytest.raises(InputError, match=r"^a: 4398047 MB are to be copied, but only \d+ MB are free"):
        store_files.copy(source, tmp_path / "c", "a")
    assert not (tmp_path / "c").exists()


def test_the_child_ends_when_its_parent_is_killed(honest: Path, tmp_path: Path) -> None:
    script = Path(foreign_store.__file__).with_name("foreign_child.py").read_text()
    child, pid = tmp_path / "child.py", tmp_path / "pid"
    waits = f"open({str(pid)!r}, 'w').write(str(os.getpid()))\n    __import__('time').sleep(60)"
    assert "    order = json.loads(sys.stdin.buffer.read())\n" in script
    child.write_text(script.replace("    order = json.loads(sys.stdin.buffer.read())\n", f"    {waits}\n"))
    code = f"""
from pathlib import Path
from postrun.ingest.store.foreign import copied
from postrun.ingest.store import Store
copied(Store, Path({str(honest)!r}), child=Path({str(child)!r}))
"""
    with subprocess.Popen([sys.executable, "-P", "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}) as process:
        wait_for(lambda: pid.exists() and bool(pid.read_text()))
        process.kill()
    wait_for(lambda: not running(int(pid.read_text())))


def running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_an_exception_while_secrets_are_masked_names_the_store(honest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(store: Store, redact: object) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr("postrun.ingest.store.conceal.conceal", fail)
    with pytest.raises(InputError, match=r"run.duckdb: the run store has contradictory contents \(RecursionError: maximum"):
        ingest([honest])
