"""A run that is read file by file equals the run that one process reads, whatever it contains and whatever fails.

The oracle is the code that reads the entire run; other tests compare it with the figures of other programs.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import kineto_to_prt
import pytest
import small_runs as small
from postrun.errors import InputError
from postrun.ingest import ingest, partial
from postrun.ingest.chrome_trace import batches as trace_batches
from postrun.ingest.chrome_trace import cycle_ids
from postrun.ingest.discover import find_files
from postrun.ingest.kineto import reader as kineto
from postrun.ingest.load import load
from postrun.ingest.object_store.objects import ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from postrun.ingest.store import Store
from postrun.ingest.store.schema import SCHEMA
from postrun.nightly import engines, partials, work
from postrun.nightly.model import FoundRun, Row, Task
from postrun.nightly.worker_process import WorkerDied
from postrun.simulate import write_demo
from slow_params import slow_except

NAMED = ("device_event", "host_event", "annotation")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simulate a run of two machines with four GPUs each.

    It has a trace per rank, and the hosted profiler's layout.
    """
    folder = tmp_path_factory.mktemp("demo") / "team" / "demo"
    write_demo(folder, steps=2)
    return folder


def contents(store: Store) -> dict[str, list[Any]]:
    """Return all rows of all tables.

    Names are texts, because their ids may be assigned in another order.
    """
    results: dict[str, list[Any]] = {}
    for table, columns in SCHEMA.items():
        wanted = [f'"{column}"' for column in columns if (table, column) != ("name", "id")]
        if table in NAMED:
            wanted = [f"(SELECT text FROM name AS n WHERE n.id = t.name) AS {one}" if one == '"name"' else one for one in wanted]
        order = "" if table == "ingest_note" else " ORDER BY ALL"  # notes come in the order in which they were made
        results[table] = store.frame(f"SELECT {', '.join(wanted)} FROM {table} AS t{order}").rows()
    return results


def in_parts(folder: Path, tables: Path) -> dict[str, list[Any]] | str:
    """Return the store's contents from files that are read separately, or an error."""
    tables.mkdir(parents=True)
    actual = find_files([folder])
    read = [one for one in actual if one.path.suffix != ".prt" and one.path.name != "job.json"]
    entries = {}
    for position in range(0, len(read), 7):
        some = read[position : position + 7]
        for file, entry in zip(some, partial.write(some, tables, f"{position}-", threads=1), strict=True):
            entries[file.path] = (json.loads(json.dumps(entry)), tables)
    partials = partial.Partials(entries)
    try:
        with load([*actual], [folder], partials=partials, threads=1) as store:
            return contents(store)
    except InputError as error:
        return str(error)


def read_at_once(folder: Path) -> dict[str, list[Any]] | str:
    try:
        with ingest([folder], threads=1) as store:
            return contents(store)
    except InputError as error:
        return str(error)


def assert_same(folder: Path, tables: Path) -> dict[str, list[Any]] | str:
    expected, actual = read_at_once(folder), in_parts(folder, tables)
    if isinstance(expected, str) or isinstance(actual, str):
        assert actual == expected
        return expected
    for table in SCHEMA:
        assert actual[table] == expected[table], table
    return expected


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


def test_files_that_are_read_together_have_the_tables_of_each_alone(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share a database, and nothing of a file reaches the tables of the next one."""
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
    assert len(databases) == 1
    assert [bool(entry["read"]["notes"]) for entry in entries] == [False, True, False, True, False]
    renamed = {}
    for number, file in enumerate(inputs):
        [entry] = partial.write([file], alone, f"{number}-", threads=1)
        renamed.update({f"{number}-0000.{table}.parquet": name for table, name in entries[number]["read"]["tables"].items()})
        entry["read"]["tables"] = {table: renamed[name] for table, name in entry["read"]["tables"].items()}
        assert entry == entries[number]
    assert len(databases) == 6
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


def only(source: str) -> FoundRun:
    (run,) = small.found_below(source)
    return run


def parted(task: Task, most: int) -> Row:
    for part in partials.parts(task, most):
        partials.read_part(part)
    return partials.report_parts(task, most)


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def assert_same_report(source: str, tmp_path: Path, most: int, formats: tuple[str, ...] = ("json",), **options: Any) -> Row:
    """Reports of both paths are the same bytes, and nothing is left of the parts."""
    run = only(source)
    rows = []
    for name, report in (("one", work.report_run), ("parts", lambda task: parted(task, most))):
        rows.append(report(small.task_of(run, source, str(tmp_path / name), formats=formats, **options)))
    assert [row.state for row in rows] == ["reported", "reported"], rows
    assert rows[0].folder is not None
    kept_rows = [replace(row, seconds=None, reported_at_ns=None) for row in rows]
    assert kept_rows[0] == kept_rows[1]
    first, two = (files(tmp_path / name) for name in ("one", "parts"))
    assert list(first) == list(two)
    for kind in formats:
        report = f"{rows[0].folder}/report.{kind}"
        assert first[report] == two[report], kind
    return rows[0]


# -- the same report -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_simulated_run_of_eight_ranks_in_the_hosted_layout(demo: Path, tmp_path: Path) -> None:
    source = f"memory://{tmp_path.name}/in"
    store = open_objects(source)
    for path, data in files(demo.parent.parent).items():
        store.write(path, data)
    row = assert_same_report(source, tmp_path, 2_000_000)
    assert (row.id, row.ranks, row.steps is not None, row.files) == ("team/demo", 8, True, len(files(demo)))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [16, 64])
def test_a_simulated_run_of_many_ranks(tmp_path: Path, ranks: int) -> None:
    """Match and simulate the ranks together, however their files are read."""
    write_demo(tmp_path / "demo", steps=2, nodes=ranks // 8, gpus_per_node=8)
    source = tmp_path / "source"
    source.mkdir()
    (tmp_path / "demo" / "kineto").rename(source / "run")
    row = assert_same_report(str(source), tmp_path, 200_000, formats=("html", "json"))
    report = json.loads((tmp_path / "parts" / str(row.folder) / "report.json").read_bytes())
    assert (row.ranks, row.files) == (ranks, ranks)
    assert {collective["ranks"] for collective in report["collectives"]} == {ranks}


def test_real_traces_of_two_ranks(shared_data: Path, tmp_path: Path) -> None:
    shutil.copytree(shared_data / "kineto" / "sampled_2_ranks", tmp_path / "source" / "run")
    assert_same_report(str(tmp_path / "source"), tmp_path, 1)


@pytest.mark.slow
def test_a_profile_of_tensorflow_is_read_whole_with_the_file_that_times_it(tmp_path: Path) -> None:
    host = {"ph": "M", "pid": 9, "name": "process_name", "args": {"name": "/host:CPU"}}
    work_of = [{"ph": "X", "pid": 9, "tid": 1, "name": f"dense/MatMul_{i}:MatMul", "ts": 10 * i, "dur": 5} for i in range(50)]
    source = f"memory://{tmp_path.name}/in"
    store = open_objects(source)
    step = "run/framework/tensorflow/detailed_profiling/2024010100/000000005"
    store.write(f"{step}/12-algo-1_1704067200000000_1704067201000000.metadata", b"")
    store.write(
        f"{step}/plugins/profile/2024_01_01/ip-10-0-0-1.trace.json.gz",
        gzip.compress(json.dumps({"traceEvents": [host, *work_of]}).encode()),
    )
    row = assert_same_report(source, tmp_path, 1)
    assert (row.id, row.files) == ("run", 2)


@pytest.mark.parametrize("name", ["kineto/diff_pair", "kineto/quirks", "kineto/h100", "smdebug/test_traces"])
def test_stores_of_real_files(shared_data: Path, tmp_path: Path, name: str) -> None:
    assert_same(shared_data / name, tmp_path / "tables")


@pytest.fixture(scope="module")
def trace(demo: Path) -> dict[str, Any]:
    """A small trace of one step."""
    actual: dict[str, Any] = json.loads(gzip.decompress(sorted((demo / "kineto").iterdir())[0].read_bytes()))
    return actual


def cut(trace: dict[str, Any], **members: Any) -> dict[str, Any]:
    """Some events of a trace, under other members."""
    some = [event for event in trace["traceEvents"] if event.get("ph") == "X"][:400]
    return {**{key: value for key, value in trace.items() if key not in ("traceEvents", *members)}, **members, "traceEvents": some}


@pytest.mark.slow
def test_recordings_of_several_processes_beside_traces(demo: Path, tmp_path: Path) -> None:
    """Read two recordings, a trace of one of their processes, and job.json.

    The trace repeats the device activity of its process.
    """
    run = tmp_path / "source" / "run"
    run.mkdir(parents=True)
    traces = sorted((demo / "kineto").iterdir())[:2]
    for number, path in enumerate(traces):
        actual = kineto_to_prt.document(path)
        (run / f"host.{number + 1}.1.prt").write_bytes(kineto_to_prt.convert(actual, host="algo-1", pid=411 + number, seed=number))
    shutil.copy(traces[0], run)
    shutil.copy(demo / "job.json", run)
    source = str(tmp_path / "source")
    divided = partials.parts(small.task_of(only(source), source, ""))
    assert [one.path.rpartition("/")[2] for part in divided for one in part.objects] == [traces[0].name]
    assert_same_report(source, tmp_path, 1)
    stored = assert_same(run, tmp_path / "tables")
    assert isinstance(stored, dict)
    assert len(stored["process"]) >= 2
    assert {note[3] for note in stored["ingest_note"]} & {"recorded_twice"}


# -- the same run store, whatever is in the files ----------------------------------------------------------------------------


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


# -- nothing lost, nothing doubled -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_of_two(trace: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of a run of two files, which no test changes."""
    source = tmp_path_factory.mktemp("source")
    (source / "run").mkdir()
    for rank in range(2):
        (source / "run" / f"trace_rank{rank}.json").write_text(json.dumps(cut(trace, distributedInfo={"rank": rank, "world_size": 2})))
    return str(source)


@pytest.fixture(scope="module")
def expected(run_of_two: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The report of the run of two files by one process."""
    out = tmp_path_factory.mktemp("one")
    row = work.report_run(small.task_of(only(run_of_two), run_of_two, str(out), formats=("json",)))
    return (out / str(row.folder) / "report.json").read_bytes()


@pytest.mark.slow
def test_a_part_that_is_read_again_counts_once(run_of_two: str, expected: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    task = small.task_of(only(run_of_two), run_of_two, str(out), formats=("json",))
    first, second = partials.parts(task, 1)
    partials.read_part(first)
    before = files(out)
    partials.read_part(first)  # done already
    assert files(out) == before
    marker = out / first.marker
    with monkeypatch.context() as at_once:  # two that begin at once: each finds no marker, one is first to write it
        at_once.setattr(partials.opened(str(out)), "head", lambda _: None)
        partials.read_part(first)
    assert files(out) == before
    # Killed in the middle: some tables, no marker.
    (marker.parent / f"{second.number:05}-0123456789ab-0000.device_event.parquet").write_bytes(b"half of a")
    partials.read_part(second)
    row = partials.report_parts(task, 1)
    assert (out / str(row.folder) / "report.json").read_bytes() == expected
    assert list(out.glob("runs/**/partial")) == []


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["missing", "damaged", "of other files", "a table is gone"])
def test_a_part_that_is_not_there_is_the_stores_fault_and_can_be_read_again(
    run_of_two: str, expected: bytes, tmp_path: Path, wrong: str
) -> None:
    out = tmp_path / "out"
    task = small.task_of(only(run_of_two), run_of_two, str(out), formats=("json",))
    divided = partials.parts(task, 1)
    for part in divided:
        partials.read_part(part)
    marker = out / divided[1].marker
    if wrong == "missing":
        marker.unlink()
    elif wrong == "damaged":
        marker.write_bytes(marker.read_bytes()[:100])
    elif wrong == "of other files":
        marker.write_bytes((out / divided[0].marker).read_bytes())
    else:
        next(marker.parent.glob("00001-*.parquet")).unlink()
    with pytest.raises(ObjectStoreError, match="00001"):
        partials.report_parts(task, 1)
    assert not (out / "runs" / "run" / "done.json").exists()
    row = parted(task, 1)
    assert (out / str(row.folder) / "report.json").read_bytes() == expected


def test_a_file_that_changes_is_told(run_of_two: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(run_of_two, source)
    task = small.task_of(only(str(source)), str(source), str(tmp_path / "out"))
    part = partials.parts(task, 1)[0]
    path = source / part.objects[0].path
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(ObjectStoreError, match="changed"):
        partials.read_part(part)
    assert not (tmp_path / "out" / part.marker).exists()


def test_parts_of_a_run_inside_of_a_run_stay(run_of_two: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    row = parted(small.task_of(only(run_of_two), run_of_two, str(out), formats=("json",)), 1)
    inner = out / "runs" / "run" / "partial" / "0123456789abcdef-0123456789ab"
    inner.mkdir(parents=True)
    (inner / "done.json").write_text("of a run of that name")
    partials.remove(open_objects(out), only(run_of_two))
    assert (inner / "done.json").exists()
    assert (out / str(row.folder) / "report.json").exists()


# -- the executor that divides -----------------------------------------------------------------------------------------------


class Noting(Executor):
    """Passes on, and notes what is submitted; ``bad``: number of a part -> what it fails with."""

    def __init__(self, inner: Executor, bad: dict[int, Exception] | None = None) -> None:
        self.inner = inner
        self.bad = bad or {}
        self.seen: list[str] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        self.seen.append(fn.__name__)
        if isinstance(args[0], partials.Part) and args[0].number in self.bad:
            return self.inner.submit(fail, self.bad[args[0].number])
        return self.inner.submit(fn, *args, **named)


def fail(error: Exception) -> None:
    raise error


@pytest.fixture
def here() -> Iterator[Executor]:
    with engines.executor("none") as executor:
        yield executor


@pytest.mark.slow
def test_only_large_runs_of_several_parts_are_divided(run_of_two: str, tmp_path: Path, here: Executor) -> None:
    run = only(run_of_two)
    for above, seen in ((run.bytes, ["report_run"]), (1000, ["read_part", "read_part", "report_parts"])):
        noting = Noting(here)
        task = small.task_of(run, run_of_two, str(tmp_path / str(above)), formats=("json",))
        report: Callable[..., Any] = work.report_run
        row = partials.Splitting(noting, above).submit(report, task).result(60)
        assert (row.state, noting.seen) == ("reported", seen)


def test_the_file_whose_part_fails_is_named_and_the_others_are_kept(run_of_two: str, tmp_path: Path, here: Executor) -> None:
    task = small.task_of(only(run_of_two), run_of_two, str(tmp_path / "out"), formats=("json",))
    report: Callable[..., Any] = work.report_run
    splitting = partials.Splitting(Noting(here, {1: WorkerDied("the worker was ended by SIGSEGV", "signal")}), 1)
    with pytest.raises(InputError, match=r"run/trace_rank1\.json \(part 2 of 2\): the worker was ended by SIGSEGV"):
        splitting.submit(report, task).result(60)
    with pytest.raises(ObjectStoreError, match="is not there"):
        partials.Splitting(Noting(here, {0: ObjectStoreError("is not there")}), 1).submit(report, task).result(60)
    markers = [path for path in files(tmp_path / "out") if path.endswith(".json")]
    assert [path.rpartition("/")[2] for path in markers] == ["00000.json", "00001.json"]
    again = Noting(here)
    assert partials.Splitting(again, 1).submit(report, task).result(60).state == "reported"


def test_other_tasks_are_passed_on(here: Executor) -> None:
    noting = Noting(here)
    assert partials.Splitting(noting, 0).submit(len, "four").result(5) == 4
    assert noting.seen == ["len"]
