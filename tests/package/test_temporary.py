"""The next run removes the temporary folders of killed processes, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from postrun import temporary

KEEPS = """
import sys, time
from pathlib import Path
from postrun import temporary
folder = temporary.Folder(Path(sys.argv[1]), prefix=sys.argv[2])
Path(folder.name, "data").write_text("x")
print(folder.name, flush=True)
time.sleep(60)
"""
# Reports as the command does, and stops for good when a file of this name is opened.
STOPS = """
import os, sys, time
def look(event, given):
    if event != "open" or os.path.basename(str(given[0])) != sys.argv[1]:
        return
    if os.listdir(os.environ["TMPDIR"]) or os.path.basename(os.path.dirname(given[0])).startswith(".postrun-"):
        os.write(1, b"stopped\\n")  # one write: several threads may open the file
        time.sleep(60)
sys.addaudithook(look)
from postrun.cli import main
main(sys.argv[2:])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """As in a process that has made no folder yet."""
    temporary._swept.clear()
    yield
    temporary._swept.clear()


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def keeper(folder: Path, prefix: str = "postrun-") -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-P", "-c", KEEPS, str(folder), prefix], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.parametrize("prefix", ["postrun-", ".postrun-", "postrun-worker-"])
def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_stays(folder: Path, prefix: str) -> None:
    process, left = keeper(folder, prefix)
    assert left.stat().st_mode & 0o777 == 0o700
    with temporary.Folder(folder) as mine:
        assert sorted(path.name for path in folder.iterdir()) == sorted([left.name, Path(mine).name])
    killed(process)
    temporary._swept.clear()
    with temporary.Folder(folder) as mine:
        assert [path.name for path in folder.iterdir()] == [Path(mine).name]
    assert list(folder.iterdir()) == []


def test_what_is_not_ours_stays(folder: Path, tmp_path: Path) -> None:
    (folder / "postrun-results").mkdir()
    (folder / "postrun-results" / "kept").touch()
    (folder / "postrun-empty").mkdir()
    (folder / "postrun-file").touch()
    # A folder of a user with a file of that name, but not ours; and with one that is a link, or a pipe.
    for name in ("postrun-other", "postrun-link", "postrun-pipe"):
        (folder / name).mkdir()
    (folder / "postrun-other" / temporary.LOCK).write_text("mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / temporary.LOCK).write_bytes(temporary._MARK)
    (elsewhere / "precious").touch()
    (folder / "postrun-link" / temporary.LOCK).symlink_to(elsewhere / temporary.LOCK)
    os.mkfifo(folder / "postrun-pipe" / temporary.LOCK)
    (folder / "postrun-xyz").symlink_to(elsewhere)
    before = sorted(folder.iterdir())
    with temporary.Folder(folder):
        pass
    assert sorted(folder.iterdir()) == before
    assert (elsewhere / "precious").exists()
    # The same folder without the link is one of ours, and its lock is free.
    elsewhere.rename(folder / "postrun-abcdefgh")
    temporary.sweep(str(folder))
    assert not (folder / "postrun-abcdefgh").exists()


def test_links_in_a_leftover_are_removed_and_not_followed(folder: Path, tmp_path: Path) -> None:
    process, left = keeper(folder)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (left / "link").symlink_to(tmp_path / "precious")
    killed(process)
    temporary.sweep(str(folder))
    assert not left.exists()
    assert (tmp_path / "precious" / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of another user")
def test_folders_of_other_users_stay(folder: Path) -> None:
    process, left = keeper(folder)
    os.chown(left, 12345, 12345)
    second, mark = keeper(folder)
    os.chown(mark / temporary.LOCK, 12345, 12345)
    killed(process)
    killed(second)
    temporary.sweep(str(folder))
    assert left.exists()
    assert mark.exists()


def test_a_child_does_not_keep_the_lock_and_does_not_give_it_up(folder: Path) -> None:
    code = KEEPS.replace(
        "print(",
        """
import os, subprocess
one = subprocess.Popen(["sleep", "60"], close_fds=False)
two = os.fork()
if not two:
    time.sleep(60)
print(one.pid, two, """,
    )
    process = subprocess.Popen([sys.executable, "-P", "-c", code, str(folder), "postrun-"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    *children, left = process.stdout.readline().split()
    try:
        temporary.sweep(str(folder))
        assert Path(left).exists()
        killed(process)
        until = time.monotonic() + 20
        while Path(left).exists() and time.monotonic() < until:  # the child may not have run yet
            temporary.sweep(str(folder))
        assert not Path(left).exists()
    finally:
        for child in children:
            os.kill(int(child), signal.SIGKILL)


def trace(folder: Path) -> Path:
    at = 1_700_000_000_000_000
    kernel = {"cat": "kernel", "name": "mm", "ts": at + 50, "dur": 20, "args": {"correlation": 1, "device": 0, "stream": 7}}
    launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 10, "dur": 5, "args": {"correlation": 1}}
    events = [{"ph": "X", "pid": 5, "tid": 5, **event} for event in (launch, kernel)]
    file = folder / "trace.json"
    file.write_text(json.dumps({"traceEvents": events}))
    return file


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["trace.json", "json"], ids=["early", "late"])
def test_a_killed_report_leaves_nothing_when_the_next_one_is_done(folder: Path, tmp_path: Path, moment: str) -> None:
    out = tmp_path / "out"
    words = ["report", str(trace(tmp_path)), "-o", str(out), "--format", "json", "--rules", "StepOutlier", "--quiet"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    stopped = subprocess.Popen(
        [sys.executable, "-P", "-c", STOPS, moment, *words], stdout=subprocess.PIPE, text=True, env=environment
    )  # fmt: skip
    assert stopped.stdout is not None
    assert stopped.stdout.readline() == "stopped\n"
    killed(stopped)
    assert list(folder.glob("postrun-*")) or list(out.glob(".postrun-*"))
    done = subprocess.run([sys.executable, "-P", "-m", "postrun.cli", *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    assert [path.name for path in out.iterdir()] == ["report.json"]


def test_the_search_is_quick(folder: Path) -> None:
    for number in range(2000):
        (folder / f"file{number}").touch()
    began = time.perf_counter()
    temporary.sweep(str(folder))
    assert time.perf_counter() - began < 0.5
