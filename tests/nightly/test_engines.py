"""All engines run the same tasks with the same results, limits and errors."""

from __future__ import annotations

import concurrent.futures
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pool_tasks as tasks
import pytest
from call_nightly import nightly
from postrun.errors import InputError, UsageError
from postrun.nightly import engines
from postrun.nightly.worker_process import WorkerDied

MB = 1_000_000


@pytest.fixture(scope="module", params=["none", "processes", pytest.param("dask", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[str, Executor]]:
    if request.param == "dask":
        pytest.importorskip("distributed", reason="Dask is not installed (pip install 'postrun[dask]')")
    # Workers must be able to import the helper.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(tasks.__file__).parent)
    try:
        with engines.executor(request.param, workers=2, timeout_s=30, memory_bytes=400 * MB) as executor:
            yield request.param, executor
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


def test_results_and_exceptions_are_those_of_the_task(engine: tuple[str, Executor]) -> None:
    _, executor = engine
    futures = [executor.submit(tasks.add, n, two=1) for n in range(20)]
    assert [future.result(60) for future in futures] == list(range(1, 21))
    assert set(concurrent.futures.as_completed(futures)) == set(futures)
    assert list(executor.map(tasks.add, [1, 2], [3, 4])) == [4, 6]
    with pytest.raises(ValueError, match="a value"):
        executor.submit(tasks.fail, "value").result(60)


def test_tasks_run_where_they_should(engine: tuple[str, Executor]) -> None:
    kind, executor = engine
    assert (executor.submit(tasks.pid).result(60) == os.getpid()) == (kind == "none")


def test_a_poison_task_costs_itself_alone(engine: tuple[str, Executor]) -> None:
    kind, executor = engine
    if kind == "none":
        pytest.skip("runs in this process")
    before = [executor.submit(tasks.add, n) for n in range(5)]
    poison = [executor.submit(tasks.exit_with, 9), executor.submit(tasks.crash), executor.submit(tasks.grow, 600 * MB)]
    after = [executor.submit(tasks.add, n) for n in range(5)]
    assert [future.result(60) for future in before + after] == [*range(5), *range(5)]
    errors = [future.exception(60) for future in poison]
    assert all(isinstance(error, WorkerDied) for error in errors)
    assert [error.cause for error in errors if isinstance(error, WorkerDied)] == ["exit", "signal", "memory"]
    assert "exit code 9" in str(errors[0])


def test_threads_of_the_libraries_are_shared_out() -> None:
    with engines.executor("processes", workers=1000) as executor:
        assert executor.submit(tasks.variable, "POLARS_MAX_THREADS").result(60) == os.environ.get("POLARS_MAX_THREADS", "1")


@pytest.mark.parametrize("kind", ["none", "processes"])
def test_an_error_in_the_block_ends_what_runs(kind: str) -> None:
    began = time.monotonic()
    handed: list[tuple[Executor, concurrent.futures.Future[object]]] = []

    def fail() -> None:
        with engines.executor(kind, workers=1) as executor:
            handed.append((executor, executor.submit(tasks.sleep, 60 if kind == "processes" else 0)))
            raise KeyError("stop")

    with pytest.raises(KeyError):
        fail()
    executor, future = handed[0]
    assert future.done()
    assert time.monotonic() - began < 30
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(tasks.add, 1)


@pytest.mark.parametrize("wrong", ["", "threads", "dask:", "none:1", "processes:4", "Dask"])
def test_other_engines_are_refused_with_those_there_are(wrong: str) -> None:
    with pytest.raises(UsageError, match="accepted: none, processes, dask or dask:ADDRESS"), engines.executor(wrong):
        pass


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"postrun\[dask\]"), engines.executor("dask"):
        pass
    (tmp_path / "runs").mkdir()
    done = nightly(tmp_path / "runs", "--out", tmp_path / "out", "--engine", "dask", "--dry-run")
    assert (done.exit_code, "postrun[dask]" in done.output) == (2, True)


def test_a_scheduler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed (pip install 'postrun[dask]')")
    monkeypatch.setattr(engines, "_CONNECT_S", 1)
    with pytest.raises(InputError, match=r"tcp://127\.0\.0\.1:1"), engines.executor("dask:tcp://127.0.0.1:1"):
        pass


def test_importing_the_engines_imports_no_dask() -> None:
    import subprocess

    code = "import sys, postrun.nightly.engines; print('distributed' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
