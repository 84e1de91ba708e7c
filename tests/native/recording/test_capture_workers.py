"""Worker processes of torch's DataLoader and of multiprocessing record to files of their own that end properly.

The content of the files is compared with the program's known behavior; no code here is shared with the recorder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from postrun import native
from postrun.ingest.prt.format import TraceFile

pytestmark = pytest.mark.skipif(not native.available(), reason="this installation has no C library")

WORK = """
import multiprocessing, os, sys
from postrun import capture

def work(worker, items, queue):
    for i in range(items):
        with capture.annotate("item", value=i):
            queue.put((worker, i))
    if len(sys.argv) > 2 and sys.argv[2] == "killed":
        capture.flush()
        queue.close()
        queue.join_thread()
        os.kill(os.getpid(), 9)

def main():
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    workers = [context.Process(target=work, args=(worker, 10 + worker, queue)) for worker in range(2)]
    for worker in workers:
        worker.start()
    with capture.annotate("step", value=0):
        for _ in range(21):
            queue.get(timeout=60)
    for worker in workers:
        worker.join(60)
    print(os.getpid(), *(worker.pid for worker in workers))

if __name__ == "__main__":
    if capture.recording():
        main()
    else:
        with capture.session(sample_ms=100, follow_fork=True):
            main()
"""


def recorded(folder: Path, *arguments: str, **environment: str) -> tuple[int, list[int]]:
    """Runs the program; ids of the process and of its workers."""
    program = folder / "program.py"
    program.write_text(WORK)
    known = {key: value for key, value in os.environ.items() if not key.startswith("POSTRUN_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program), *arguments],
        env={**known, "POSTRUN_DIR": str(folder / "traces"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, *others = map(int, done.stdout.split())
    return first, others


def files(folder: Path) -> dict[int, TraceFile]:
    """By process; those in which anything was recorded."""
    opened = {int(path.name.split(".")[-3]): TraceFile(path) for path in (folder / "traces").glob("*.prt")}
    return {pid: trace for pid, trace in opened.items() if trace.table("annotation").arrow().num_rows}


def items(trace: TraceFile) -> Counter[tuple[str, Any]]:
    return Counter((row["name"], row["value"]) for row in trace.table("annotation").arrow().to_pylist())


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_record_in_files_of_their_own_that_end(tmp_path: Path, method: str) -> None:
    environment = {} if method == "fork" else {"POSTRUN_CAPTURE": "1", "POSTRUN_FOLLOW_FORK": "1"}
    parent, workers = recorded(tmp_path, method, **environment)
    actual = files(tmp_path)
    assert set(actual) == {parent, *workers}
    assert items(actual[parent]) == {("step", 0): 1}
    for number, pid in enumerate(workers):
        assert items(actual[pid]) == {("item", i): 1 for i in range(10 + number)}
    assert [problem.code for trace in actual.values() for problem in trace.problems()] == []


def test_a_forked_worker_does_not_sample_the_machine_again(tmp_path: Path) -> None:
    parent, workers = recorded(tmp_path, "fork")
    actual = files(tmp_path)
    assert actual[parent].table("metric").arrow().num_rows > 0
    assert actual[parent].metadata()["sample_ms"] == "100"
    for pid in workers:
        assert actual[pid].table("metric").arrow().num_rows == 0
        metadata = actual[pid].metadata()
        assert (metadata["sample_ms"], metadata["forked_from"]) == ("0", str(parent))


@pytest.mark.slow
def test_workers_that_were_ended_do_not_make_the_run_cut_off(tmp_path: Path) -> None:
    _, workers = recorded(tmp_path, "fork", "killed")
    actual = files(tmp_path)
    assert [[problem.code for problem in actual[pid].problems()] for pid in workers] == [["no_end"]] * 2
    done = subprocess.run(
        [sys.executable, "-P", "-m", "postrun", "report", str(tmp_path / "traces"), "-o", str(tmp_path / "report"), "--format", "json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["run"]["status"] == "unknown"
    notes = [note for note in report["data_quality"] if note["code"] == "no_end"]
    assert [note["severity"] for note in notes] == ["info"] * len(notes)
    assert sum(note["files"] for note in notes) == 2
    assert {group["name"]: group["quantiles"]["count"] for group in report["annotations"]["groups"]} == {"step": 1, "item": 21}
