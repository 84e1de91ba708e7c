"""The pool of supervised processes loses at most the task that fails, and otherwise behaves like any executor."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pool_tasks as tasks
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.nightly.pool import SupervisedPool
from postrun.nightly.watch import memory_of
from postrun.nightly.worker import TaskError
from postrun.nightly.worker_process import WorkerDied

MB = 1_000_000


def gone(pid: int) -> bool:
    """Whether no process has that id; a zombie counts as one that is there."""
    return not Path(f"/proc/{pid}").exists()


def no_longer_runs(pid: int) -> bool:
    """Whether a process that somebody else has to reap ends within a few seconds."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def becomes_empty(folder: Path) -> bool:
    """Decide whether a folder becomes empty within a few seconds.

    It is emptied after the processes have ended.
    """
    for _ in range(100):
        if not any(folder.iterdir()):
            return True
        time.sleep(0.05)
    return False


def appears(path: Path) -> str:
    for _ in range(400):
        if path.exists() and (text := path.read_text(encoding="utf-8")):
            return text
        time.sleep(0.05)
    raise AssertionError(f"{path} did not appear")


@pytest.fixture(scope="module")
def pool() -> Iterator[SupervisedPool]:
    with SupervisedPool(2, timeout_s=60, memory_bytes=300 * MB) as pool:
        yield pool


def died(pool: SupervisedPool, function: object, *arguments: object) -> WorkerDied:
    with pytest.raises(WorkerDied) as caught:
        pool.submit(function, *arguments).result(60)  # type: ignore[arg-type]
    return caught.value


def test_results_keep_their_place(pool: SupervisedPool) -> None:
    assert pool.submit(tasks.add, 1, two=2).result() == 3
    assert list(pool.map(tasks.add, range(50), range(50))) == [2 * n for n in range(50)]


def test_workers_are_other_processes_and_are_used_again(pool: SupervisedPool) -> None:
    used = set(pool.map(tasks.pid, range(40)))
    assert 1 <= len(used) <= 2
    assert os.getpid() not in used
    assert used <= set(pool.worker_pids())


@pytest.mark.slow
def test_two_hundred_tasks_of_which_every_tenth_kills_its_worker(pool: SupervisedPool) -> None:
    futures = {n: pool.submit(tasks.exit_with, 3) if n % 10 == 0 else pool.submit(tasks.add, n, 1) for n in range(200)}
    done, left = concurrent.futures.wait(futures.values(), 120)
    assert not left
    assert len(done) == 200
    for n, future in futures.items():
        if n % 10 == 0:
            assert isinstance(future.exception(), WorkerDied)
        else:
            assert future.result() == n + 1


def test_exit_is_told_with_its_code_and_the_last_output(pool: SupervisedPool) -> None:
    error = died(pool, tasks.exit_with, 3)
    assert (error.cause, error.reason) == ("exit", "the task ended its worker with exit code 3")
    assert error.output == "about to leave\n"


def test_a_crash_names_the_signal_and_keeps_the_stack(pool: SupervisedPool) -> None:
    error = died(pool, tasks.crash)
    assert error.cause == "signal"
    assert "SIGSEGV" in error.reason
    assert "pool_tasks.py" in error.output


def test_sigkill_from_outside_speaks_of_memory(pool: SupervisedPool) -> None:
    error = died(pool, tasks.kill_self, "SIGKILL")
    assert error.reason == "the worker was ended by SIGKILL, most likely by the machine for want of memory"


def test_sys_exit_in_a_task_is_an_exception_of_this_task(pool: SupervisedPool) -> None:
    assert isinstance(pool.submit(tasks.system_exit, 4).exception(), SystemExit)
    assert pool.submit(tasks.add, 1).result() == 1


def test_the_memory_limit_counts_the_task_and_its_children(pool: SupervisedPool) -> None:
    for function in (tasks.grow, tasks.grow_in_child):
        error = died(pool, function, 400 * MB)
        assert error.cause == "memory"
        assert "than is allowed (300 MB)" in error.reason
    assert pool.submit(tasks.grow, 100 * MB, 0.3).result() == 100 * MB


def test_what_a_task_leaves_in_memory_is_not_held_against_the_next() -> None:
    with SupervisedPool(1, memory_bytes=300 * MB) as pool:
        pids = [pool.submit(tasks.keep, 120 * MB).result() for _ in range(6)]
    assert len(set(pids)) > 1


def test_memory_of_sees_a_process_as_the_kernel_does() -> None:
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    anonymous = next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) << 10
    assert memory_of(os.getpid()) == pytest.approx(anonymous, rel=0.5, abs=50 * MB)
    assert memory_of(2**30) == 0


def test_the_time_limit_ends_the_task_its_children_and_nothing_else(tmp_path: Path) -> None:
    with SupervisedPool(2, timeout_s=2) as pool:
        slow = pool.submit(tasks.child_that_sleeps, str(tmp_path / "pids"))
        assert [pool.submit(tasks.add, n).result() for n in range(20)] == list(range(20))
        error = slow.exception(30)
    assert isinstance(error, WorkerDied)
    assert (error.cause, error.reason) == ("time", "it took longer than the 2 s that are allowed")
    assert "in child_that_sleeps" in error.output  # the position where it hung
    for pid in appears(tmp_path / "pids").split():
        assert no_longer_runs(int(pid))


def test_a_child_that_outlives_the_worker_neither_hides_its_death_nor_stays(pool: SupervisedPool, tmp_path: Path) -> None:
    error = died(pool, tasks.fork_and_die, str(tmp_path / "pid"))
    assert error.reason == "the task ended its worker with exit code 7"
    assert no_longer_runs(int(appears(tmp_path / "pid")))


@pytest.mark.parametrize(("kind", "expected"), [("value", ValueError), ("memory", MemoryError), ("interrupt", KeyboardInterrupt)])
def test_exceptions_come_back_as_they_are_with_their_traceback(pool: SupervisedPool, kind: str, expected: type) -> None:
    error = pool.submit(tasks.fail, kind).exception()
    assert type(error) is expected
    assert "in fail" in str(error.__cause__)


@pytest.mark.parametrize(
    ("kind", "message"),
    [("badly", "PicklesBadlyError: this and that"), ("lock", "NoPickleError: holds a lock"), ("local", "LocalError: of a function")],
)
def test_exceptions_that_cannot_be_pickled_are_told_in_words(pool: SupervisedPool, kind: str, message: str) -> None:
    error = pool.submit(tasks.fail, kind).exception()
    assert type(error) is TaskError
    assert str(error) == message
    assert "in fail" in str(error.__cause__)


def test_what_cannot_be_pickled_fails_alone(pool: SupervisedPool) -> None:
    error = pool.submit(tasks.unpicklable).exception()
    assert type(error) is TaskError
    assert "lock" in str(error)
    assert pool.submit(lambda: 1).exception() is not None
    assert pool.submit(tasks.add, 2).result() == 2


def test_a_task_that_kills_whoever_unpickles_it_is_blamed(pool: SupervisedPool) -> None:
    assert died(pool, tasks.same, tasks.CrashesWhenRead()).reason == "the task ended its worker with exit code 5"


def test_huge_tasks_and_results(pool: SupervisedPool) -> None:
    value = os.urandom(30 * MB)
    with SupervisedPool(1) as unbound:
        assert unbound.submit(tasks.same, value).result() == value


@settings(max_examples=examples(25))
@given(st.recursive(st.none() | st.integers() | st.text() | st.binary(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_values_come_back_equal(pool: SupervisedPool, value: object) -> None:
    assert pool.submit(tasks.same, value).result() == value


def test_only_the_end_of_the_output_is_kept(pool: SupervisedPool) -> None:
    error = died(pool, tasks.write_much, 5000)
    assert len(error.output) <= 65536
    assert "line 4999" in error.output
    assert "line 10 " not in error.output


def test_a_worker_that_dies_while_idle_costs_no_task() -> None:
    with SupervisedPool(1) as pool:
        first = pool.submit(tasks.end_soon, 0.1).result()
        assert no_longer_runs(first)
        assert pool.submit(tasks.pid).result() != first


def test_workers_are_replaced_after_so_many_tasks() -> None:
    with SupervisedPool(1, max_tasks_per_worker=2) as pool:
        pids = [pool.submit(tasks.pid).result() for _ in range(5)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    assert all(gone(pid) for pid in set(pids))


def test_a_waiting_task_can_be_canceled() -> None:
    with SupervisedPool(1) as pool:
        running = pool.submit(tasks.sleep, 0.5)
        waiting = [pool.submit(tasks.add, n) for n in range(3)]
        assert waiting[1].cancel()
        assert [future.result() for future in (running, waiting[0], waiting[2])] == [0.5, 0, 2]
        assert waiting[1].cancelled()
        assert set(concurrent.futures.as_completed([running, *waiting])) == {running, *waiting}


def test_shutdown_can_drop_what_waits_and_nothing_is_taken_afterward() -> None:
    pool = SupervisedPool(1)
    running = pool.submit(tasks.sleep, 0.5)
    pid = 0
    while not pid:
        pid = next(iter(pool.worker_pids()), 0)
    waiting = pool.submit(tasks.add, 1)
    pool.shutdown(cancel_futures=True)
    assert running.result() == 0.5
    assert waiting.cancelled()
    assert gone(pid)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(tasks.add, 1)


def test_shutdown_without_waiting_still_does_what_was_submitted() -> None:
    pool = SupervisedPool(1)
    futures = [pool.submit(tasks.add, n) for n in range(3)]
    pool.shutdown(wait=False)
    assert [future.result(30) for future in futures] == [0, 1, 2]


def test_kill_ends_everything_at_once(tmp_path: Path) -> None:
    pool = SupervisedPool(1)
    running = pool.submit(tasks.touch_and_sleep, str(tmp_path / "pid"), 60)
    waiting = pool.submit(tasks.add, 1)
    pid = int(appears(tmp_path / "pid"))
    pool.kill()
    error = running.exception()
    assert isinstance(error, WorkerDied)
    assert error.cause == "ended"
    assert waiting.cancelled()
    assert gone(pid)


def test_temporary_files_of_a_worker_go_with_it() -> None:
    with SupervisedPool(1, environment={"POOL_TEST": "1"}) as pool:
        folder = Path(pool.submit(tasks.folder).result())
        assert folder.is_dir()
        assert pool.submit(tasks.variable, "POOL_TEST").result() == "1"
        with pytest.raises(WorkerDied):
            pool.submit(tasks.exit_with, 1).result()
        assert not folder.parent.exists()


@pytest.mark.parametrize("busy", [True, False])
def test_no_worker_outlives_a_killed_parent(tmp_path: Path, busy: bool) -> None:
    code = f"""
import sys, time
sys.path.append({str(Path(tasks.__file__).parent)!r})
import pool_tasks as tasks
from postrun.nightly.pool import SupervisedPool
pool = SupervisedPool(1)
pool.submit(tasks.folder).result()
pool.submit(tasks.touch_and_sleep, {str(tmp_path / "pid")!r}, {60 if busy else 0}).result()
time.sleep(60)
"""
    (tmp_path / "temporary").mkdir()
    parent = subprocess.Popen([sys.executable, "-P", "-c", code], env={**os.environ, "TMPDIR": str(tmp_path / "temporary")})
    try:
        worker = int(appears(tmp_path / "pid"))
        time.sleep(0 if busy else 0.3)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert no_longer_runs(worker)
    assert becomes_empty(tmp_path / "temporary")


def test_the_end_of_the_program_waits_for_what_was_submitted(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.append({str(Path(tasks.__file__).parent)!r})
import pool_tasks as tasks
from postrun.nightly.pool import SupervisedPool
pool = SupervisedPool(1)
for _ in range(2):
    pool.submit(tasks.sleep, 0.2)
last = pool.submit(tasks.touch_and_sleep, {str(tmp_path / "pid")!r}, 0)
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert no_longer_runs(int((tmp_path / "pid").read_text(encoding="utf-8")))


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"max_tasks_per_worker": 0}])
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        SupervisedPool(**wrong)
