"""The kernel stops a worker that allocates too much between two looks of the pool, and the reason is clear."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pool_tasks as tasks
import pytest
from postrun.nightly import hard_limit, work
from postrun.nightly.pool import SupervisedPool
from postrun.nightly.worker_process import WorkerDied

MB = 1_000_000
GB = 1_000_000_000
LIMIT = 600 * MB


def peak(pid: int) -> int:
    """Return the peak memory of a process in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def highest(pool: SupervisedPool, future: Future[int]) -> int:
    """The most memory that a worker of the pool had while the task ran."""
    most = 0
    while not future.done():
        most = max([most, *map(peak, pool.worker_pids())])
        time.sleep(0.001)
    return max([most, *map(peak, pool.worker_pids())])


@pytest.fixture(params=["rlimit", "cgroup"])
def limited(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, SupervisedPool]:
    if request.param == "rlimit":
        monkeypatch.setattr(hard_limit, "_delegated", lambda root: iter(()))
    elif not list(hard_limit._delegated(Path("/"))):
        pytest.skip("no cgroup v2 with a memory controller is delegated to this process")
    return request.param, SupervisedPool(1, memory_bytes=LIMIT)


@pytest.mark.parametrize("task", [tasks.allocate, tasks.allocate_in_a_library])
def test_one_large_allocation_stays_below_twice_the_limit(limited: tuple[str, SupervisedPool], task: object) -> None:
    kind, limited_pool = limited
    with limited_pool as pool:
        pool.submit(tasks.pid).result()
        future = pool.submit(task, 4 * GB)  # type: ignore[arg-type]
        # RLIMIT_DATA refuses the allocation as a whole; a group lets it grow to its limit.
        assert highest(pool, future) < (LIMIT if kind == "rlimit" else 2.1 * LIMIT)
        error = future.exception()
        assert isinstance(error, WorkerDied | MemoryError)
        assert "it needed more memory" in str(error)
        assert "than is allowed (600 MB)" in str(error)
        assert not isinstance(error, WorkerDied) or error.cause == "memory"
        assert pool.submit(tasks.add, 1).result() == 1


def test_what_stays_within_the_limit_goes_well(limited: tuple[str, SupervisedPool]) -> None:
    with limited[1] as pool:
        assert pool.submit(tasks.allocate, 500 * MB).result() == 500 * MB
        assert pool.submit(tasks.allocate_in_a_library, 300 * MB).result() == 300 * MB // 8


def test_a_worker_that_exits_for_want_of_memory_names_the_limit(limited: tuple[str, SupervisedPool]) -> None:
    kind, result = limited
    with result as pool:
        error = pool.submit(tasks.run_out_of_memory_outside_the_task).exception()
        assert isinstance(error, WorkerDied)
        if kind == "rlimit":
            assert (error.cause, error.reason) == ("memory", "it needed more memory than is allowed (600 MB); raise --memory")
        else:  # the kernel kills the processes of a group at its limit; this one was not killed
            assert (error.cause, error.reason) == ("exit", "the task ended its worker with exit code 1")
        unknown = pool.submit(tasks.exit_with, 1).exception()
        assert isinstance(unknown, WorkerDied)
        assert unknown.reason.startswith("the task ended its worker with exit code 1")
        assert ("or it needed more memory than is allowed (600 MB)" in unknown.reason) == (kind == "rlimit")


def test_an_error_that_a_library_lost_names_the_limit(limited: tuple[str, SupervisedPool]) -> None:
    with limited[1] as pool:
        error = pool.submit(tasks.lose_the_error).exception()
    assert isinstance(error, SystemError)
    assert str(error).startswith(
        "internal error: SystemError: error return without exception set, or it needed more memory than is allowed"
    )


def test_a_file_has_a_limit_that_only_a_full_disk_or_a_huge_file_meets(tmp_path: Path) -> None:
    free = shutil.disk_usage(tempfile.gettempdir()).free
    with SupervisedPool(1) as pool:
        core, file = pool.submit(tasks.limits).result()
        assert core == 0
        assert file >= 20 * GB
        assert file <= max(20 * GB, free)
        error = pool.submit(tasks.write_beyond_the_limit, str(tmp_path / "spill")).exception()
        assert pool.submit(tasks.add, 1).result() == 1  # SIGXFSZ did not end the worker
    assert isinstance(error, OSError)
    assert error.errno == errno.EFBIG


def test_the_reasons_of_runs_name_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hard_limit, "_allowed", LIMIT)
    wrapped = RuntimeError("cannot read")
    wrapped.__cause__ = MemoryError()
    for error in (MemoryError("realloc of size 4000000000 failed"), wrapped, OSError(errno.ENOMEM, "Cannot allocate memory")):
        assert work._reason(error, "log") == "it needed more memory than is allowed (600 MB); raise --memory"
        assert not work._is_of_machine(error)
    lost = SystemError("error return without exception set")  # also a defect of a library can cause it
    assert (
        work._reason(lost, "log")
        == f"internal error: SystemError: {lost}, or it needed more memory than is allowed (600 MB); raise --memory"
    )
    assert "memory" not in work._reason(SystemError("bad call"), "log")
    monkeypatch.setattr(hard_limit, "_file_limit", 20 * GB)
    large = OSError(errno.EFBIG, "File too large", "spill")
    assert work._reason(large, "log") == "it wrote a temporary file larger than is allowed (20.00 GB)"
    assert not work._is_of_machine(large)
    monkeypatch.setattr(hard_limit, "_allowed", None)
    assert "not enough memory" in work._reason(MemoryError(), "log")


# -- groups, on a file system that looks like the kernel's -------------------------------------------------------------------


def cgroups(root: Path, group: str, *, controllers: str = "cpu memory", line: str | None = None) -> Path:
    """Create a cgroup v2 hierarchy with this process; return its group's folder."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(line or f"0::{group}\n")
    folder = root / "sys/fs/cgroup"
    for name in ("", *group.strip("/").split("/")):
        folder = folder / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text(controllers + "\n")
        (folder / "cgroup.subtree_control").write_text("")
        (folder / "cgroup.procs").write_text("")
    return folder


@pytest.mark.skipif(os.geteuid() != 0, reason="root uses delegated groups alone, others those that they can write to")
def test_root_leaves_groups_alone_that_are_not_delegated(tmp_path: Path) -> None:
    group = cgroups(tmp_path, "/system.slice/night.service/main")
    assert list(hard_limit._delegated(tmp_path)) == []
    try:
        os.setxattr(group.parent, "trusted.delegate", b"1")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    assert list(hard_limit._delegated(tmp_path)) == [group.parent]


@pytest.mark.parametrize(
    ("controllers", "line"),
    [("cpu pids", None), ("cpu memory", "4:memory:/night\n"), ("cpu memory", "0::/../night\n"), ("cpu memory", "")],
    ids=["no memory controller", "version 1", "outside of the namespace", "none"],
)
def test_without_a_group_of_version_2_there_is_none(
    tmp_path: Path, controllers: str, line: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hard_limit, "_is_ours", lambda group: True)
    cgroups(tmp_path, "/night", controllers=controllers, line=line)
    assert hard_limit.MemoryGroup.around(os.getpid(), LIMIT, tmp_path) is None


def test_a_worker_is_moved_into_a_group_with_twice_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hard_limit, "_is_ours", lambda group: group.name == "night.service")
    delegated = cgroups(tmp_path, "/night.service/main")
    files = ("memory.max", "memory.swap.max", "memory.oom.group", "cgroup.procs")
    result = Path.mkdir

    def mkdir(folder: Path, *words: int, **more: bool) -> None:
        result(folder, *words, **more)
        if folder.name.startswith("postrun-"):
            for file in files:
                (folder / file).touch()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    group = hard_limit.MemoryGroup.around(4711, LIMIT, tmp_path)
    assert group is not None
    folder = next(delegated.parent.glob("postrun-*"))
    assert [(folder / file).read_text() for file in files] == [str(2 * LIMIT), "0", "1", "4711"]
    assert (delegated.parent / "cgroup.subtree_control").read_text() == "+memory"
    assert not group.exceeded()
    (folder / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert group.exceeded()
    for file in (*files, "memory.events"):  # the kernel's files do not keep a group
        (folder / file).unlink()
    remover = threading.Thread(target=group.remove)
    remover.start()
    remover.join(5)
    assert not folder.exists()


def test_a_group_that_the_kernel_refuses_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a group whose processes forbid children with limits."""
    monkeypatch.setattr(hard_limit, "_is_ours", lambda group: True)
    delegated = cgroups(tmp_path, "/night")
    assert hard_limit.MemoryGroup.around(os.getpid(), LIMIT, tmp_path) is None
    assert not list(delegated.glob("postrun-*"))
