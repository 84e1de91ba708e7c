"""A run that is read file by file has the report of one process, whatever fails, and nothing of its parts is left.

The oracle is the code that reads the entire run; other tests compare it with the figures of other programs.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections import namedtuple
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import kineto_to_prt
import pytest
import small_runs as small
from postrun.errors import InputError
from postrun.ingest.object_store.objects import ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import engines, partials, work
from postrun.nightly.model import FoundRun, Row, Task
from postrun.nightly.worker_process import WorkerDied
from postrun.simulate import write_demo
from read_in_parts import assert_same, cut, files


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simulate a run of two machines with four GPUs each.

    It has a trace per rank, and the hosted profiler's layout.
    """
    folder = tmp_path_factory.mktemp("demo") / "team" / "demo"
    write_demo(folder, steps=2)
    return folder


def only(source: str) -> FoundRun:
    (run,) = small.found_below(source)
    return run


def parted(task: Task, most: int) -> Row:
    for part in partials.parts(task, most):
        partials.read_part(part)
    return partials.report_parts(task, most)


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


@pytest.fixture(scope="module")
def trace(demo: Path) -> dict[str, Any]:
    """A small trace of one step."""
    actual: dict[str, Any] = json.loads(gzip.decompress(sorted((demo / "kineto").iterdir())[0].read_bytes()))
    return actual


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
@pytest.mark.parametrize("wrong", ["missing", "damaged", "of other files", "a table is gone", "a table is replaced"])
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
    elif wrong == "a table is gone":
        next(marker.parent.glob("00001-*.parquet")).unlink()
    else:
        names, names_of_first = (next(marker.parent.glob(f"{number}-*.name.parquet")) for number in ("00001", "00000"))
        names.write_bytes(names_of_first.read_bytes() + b"PAR1")
    with pytest.raises(ObjectStoreError, match="00001"):
        partials.report_parts(task, 1)
    assert not (out / "runs" / "run" / "done.json").exists()
    row = parted(task, 1)
    assert (out / str(row.folder) / "report.json").read_bytes() == expected


def test_tables_that_do_not_fit_the_disk_are_not_downloaded(run_of_two: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = small.task_of(only(run_of_two), run_of_two, str(tmp_path), formats=("json",))
    for part in partials.parts(task, 1):
        partials.read_part(part)
    needed = sum(len(data) for name, data in files(tmp_path).items() if name.endswith(".parquet"))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(needed, 0, needed))
    row = partials.report_parts(task, 1)
    assert row.state == "failed"
    assert re.search(r"MB are to be downloaded, but only .* set TMPDIR", row.reason or "")


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
    assert not (out / "runs" / "run" / "partial").exists()
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


def test_runs_that_are_read_in_parts_are_named(run_of_two: str, tmp_path: Path, here: Executor) -> None:
    task, lines = small.task_of(only(run_of_two), run_of_two, str(tmp_path / "out"), formats=("json",)), list[tuple[str, int]]()
    report: Callable[..., Any] = work.report_run
    bad: dict[int, Exception] = {0: ObjectStoreError("is not there")}
    with pytest.raises(ObjectStoreError):
        partials.Splitting(Noting(here, bad), 1, lambda *words: lines.append(words)).submit(report, task).result(60)
    assert lines == [(task.run.id, 2)]


def test_other_tasks_are_passed_on(here: Executor) -> None:
    noting = Noting(here)
    assert partials.Splitting(noting, 0).submit(len, "four").result(5) == 4
    assert noting.seen == ["len"]
