"""Timeline files are complete, named and rotated as the hosted profiler's, even if the disk is full or a process is killed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun import native
from postrun.ingest.hosted.timelines import read_pevents
from postrun.ingest.store import Store
from postrun.ingest.store.registry import Registry
from postrun.native.profiling.engine import timeline_writer
from postrun.native.profiling.engine.part import FileLimits
from postrun.native.profiling.engine.timeline_writer import TimelineWriter, finish_leftovers
from postrun.native.record.profiling import Profiling

SECOND = 1_000_000_000


def files_of(folder: Path) -> list[Path]:
    """The files that have a name, in order of the ends of their last events."""
    return sorted((folder / "framework" / "pevents").glob("[!.]*/*.json"))


def hidden_of(folder: Path) -> list[Path]:
    return sorted((folder / "framework" / "pevents").rglob(".*"))


def events_of(path: Path) -> list[tuple[str, str, int, int, dict[str, Any]]]:
    """Parse a file by the rules of the format, in plain Python.

    Return phase, name, start and end in microseconds, and arguments.
    """
    base, phases, results = 0, {}, []
    for record in json.loads(path.read_text(encoding="utf-8")):
        arguments = record["args"]
        if record["ph"] == "M" and record["name"] == "process_name":
            if record["pid"] == 0:
                base = arguments["start_time_since_epoch_in_micros"]
            else:
                phases[record["pid"]] = arguments["name"]
        elif record["ph"] == "X":
            assert record["dur"] >= 0
            start = base + record["ts"]
            results.append((phases[record["pid"]], record["name"], start, start + record["dur"], arguments))
    return results


def write_many(writer: TimelineWriter, numbers: range) -> None:
    for number in numbers:
        writer.add("p", "e", time.time_ns(), 1000, {"n": number})


def test_a_file_is_as_the_hosted_writer_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu_node/7")
    start = 1_700_000_000 * SECOND
    writer = TimelineWriter(tmp_path, FileLimits(), base_ns=start)
    writer.add("Step:ModeKeys.TRAIN", "Step:ModeKeys.TRAIN", start, 2 * SECOND, {"step_num": "0"})
    writer.add("DataLoaderIter", "next", start + 5_000, 1_999, {"num_workers": 2})
    writer.add("DataLoaderIter", "next", start + SECOND, 0)
    assert files_of(tmp_path) == []
    writer.close()
    (path,) = files_of(tmp_path)
    hour = datetime.fromtimestamp(1_700_000_002, tz=UTC).strftime("%Y%m%d%H")
    assert path.name == f"1700000002000000_{os.getpid()}-gpu-node-7_pythontimeline.json"
    assert path.parent.name == hour == "2023111422"
    assert hidden_of(tmp_path) == []
    pid = os.getpid()
    assert json.loads(path.read_text()) == [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1_700_000_000_000_000}},
        {"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Step:ModeKeys.TRAIN"}},
        {"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},
        {"name": "Step:ModeKeys.TRAIN", "pid": 1, "ph": "X", "ts": 0, "dur": 2_000_000, "args": {"pid": pid, "step_num": "0"}},
        {"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "DataLoaderIter"}},
        {"name": "process_sort_index", "ph": "M", "pid": 2, "args": {"sort_index": 2}},
        {"name": "next", "pid": 2, "ph": "X", "ts": 5, "dur": 1, "args": {"pid": pid, "num_workers": 2}},
        {"name": "next", "pid": 2, "ph": "X", "ts": 1_000_000, "dur": 0, "args": {"pid": pid}},
    ]


def test_the_reader_of_hosted_files_reads_it(tmp_path: Path) -> None:
    start = time.time_ns()
    writer = TimelineWriter(tmp_path, FileLimits())
    arguments = {"thread_id": 12, "worker_id": 1, "num_workers": 2, "pin_memory": True, "prefetch_factor": 4}
    writer.add("DataLoaderWorker", "DataLoaderWorker", start, 7_000_000, arguments)
    writer.close()
    (path,) = files_of(tmp_path)
    store = Store.create(None)
    result = read_pevents(store, path, 0, Registry(store))
    assert (result.events, result.relative, result.partial) == (1, False, False)
    (row,) = store.frame("SELECT phase, tid, start_ns, duration_ns, arguments FROM annotation").to_dicts()
    assert (row["phase"], row["tid"], row["start_ns"]) == ("DataLoaderWorker", 12, start // 1000 * 1000)
    assert abs(row["duration_ns"] - 7_000_000) <= 1000
    assert json.loads(row["arguments"]) == {"num_workers": 2, "pin_memory": True, "worker_id": 1, "prefetch_factor": 4}
    assert store.frame("SELECT pid FROM process").rows() == [(os.getpid(),)]
    assert store.frame("SELECT code FROM ingest_note").rows() == []


@pytest.mark.parametrize("most", [1, 1000, 1500])
def test_no_file_is_larger_than_the_limit_unless_one_event_is(tmp_path: Path, most: int) -> None:
    writer = TimelineWriter(tmp_path, FileLimits(max_bytes=most))
    start = time.time_ns()
    for number in range(40):
        writer.add(f"phase {number % 3}", "event", start + number * SECOND, SECOND // 2, {"n": number})
    writer.close()
    files = files_of(tmp_path)
    read = [events_of(path) for path in files]
    assert [event[4]["n"] for events in read for event in events] == list(range(40))
    for path, events in zip(files, read, strict=True):
        assert path.stat().st_size <= most or len(events) == 1
        assert path.name.split("_")[0] == str(max(event[3] for event in events))
    assert len(files) == 40 if most == 1 else 2 < len(files) < 40


def test_a_file_is_closed_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(timeline_writer.time, "monotonic", lambda: now[0])
    writer = TimelineWriter(tmp_path, FileLimits(close_interval_s=60))
    for at in (0, 59, 60, 61, 120, 200):
        now[0] = 100.0 + at
        writer.add("p", "e", time.time_ns(), 10_000, {"at": at})
    writer.close()
    assert sorted([event[4]["at"] for event in events_of(path)] for path in files_of(tmp_path)) == [[0, 59, 60], [61, 120], [200]]


def test_two_files_that_end_in_the_same_microsecond_stay_two(tmp_path: Path) -> None:
    for _ in range(3):
        writer = TimelineWriter(tmp_path, FileLimits(), base_ns=SECOND)
        writer.add("p", "e", SECOND, 5_000)
        writer.close()
    assert [path.name.split("_")[0] for path in files_of(tmp_path)] == ["1000005", "1000006", "1000007"]


def test_threads_share_a_file(tmp_path: Path) -> None:
    writer = TimelineWriter(tmp_path, FileLimits(max_bytes=4000))

    def write(thread: int) -> None:
        for number in range(50):
            writer.add(f"thread {thread}", "e", time.time_ns(), 1000, {"n": number})

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    actual = sorted((event[0], event[4]["n"]) for path in files_of(tmp_path) for event in events_of(path))
    assert actual == [(f"thread {thread}", number) for thread in range(4) for number in range(50)]


def test_where_no_file_can_be_opened_it_is_given_up_with_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "framework").write_text("in the way")
    writer = TimelineWriter(tmp_path, FileLimits(open_fail_threshold=3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            writer.add("p", "e", time.time_ns(), 1)
        assert caught == []
        for _ in range(5):
            writer.add("p", "e", time.time_ns(), 1)
        writer.close()
    (warning,) = caught
    assert "after 3 failures in a row no more is tried" in str(warning.message)
    assert "framework/pevents" in str(warning.message)


def test_failures_that_end_are_told_at_the_end(tmp_path: Path) -> None:
    blocker = tmp_path / "framework"
    blocker.write_text("in the way")
    writer = TimelineWriter(tmp_path, FileLimits(open_fail_threshold=3))
    for _ in range(2):
        writer.add("p", "e", time.time_ns(), 1)
    blocker.unlink()
    writer.add("p", "e", time.time_ns(), 1)
    blocker.rename(tmp_path / "kept")
    blocker.write_text("in the way")
    writer.add("p", "e", time.time_ns(), 1)  # the first failure of a new row
    with pytest.warns(RuntimeWarning, match="could not be written") as caught:
        writer.close()
    assert len(caught) == 1


def test_a_full_disk_leaves_whole_files_and_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, room = os.pwrite, [800]

    def limited(descriptor: int, text: bytes, at: int) -> int:
        """Simulate a disk that limits the size of a file.

        The last call that reaches the end writes a part.
        """
        left = max(room[0], os.fstat(descriptor).st_size) - at
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, text[:left], at)

    monkeypatch.setattr(timeline_writer.os, "pwrite", limited)
    writer = TimelineWriter(tmp_path, FileLimits(open_fail_threshold=2))
    for number in range(6):
        writer.add("p", "e", time.time_ns(), 1000, {"n": number})
    room[0] = 60  # less than the first lines
    with pytest.warns(RuntimeWarning, match=re.escape(f"({os.strerror(errno.ENOSPC)}); after 2 failures")) as caught:
        write_many(writer, range(6, 20))
    writer.close()
    assert len(caught) == 1
    actual = [event[4]["n"] for path in files_of(tmp_path) for event in events_of(path)]
    assert actual == [0, 1, 2, 3, 4]  # 5 was written in part
    assert hidden_of(tmp_path) == []


def test_a_killed_process_loses_nothing_that_it_had_recorded(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        try:
            writer = TimelineWriter(tmp_path, FileLimits(), "t")
            for number in range(3):
                writer.add("p", "e", time.time_ns(), 1000, {"n": number})
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert files_of(tmp_path) == []
    finish_leftovers(tmp_path, "another")
    assert files_of(tmp_path) == []
    finish_leftovers(tmp_path, "t")
    (path,) = files_of(tmp_path)
    assert [(event[4]["n"], event[4]["pid"]) for event in events_of(path)] == [(number, child) for number in range(3)]
    assert path.name.split("_")[0] == str(max(event[3] for event in events_of(path)))
    assert path.name.split("_")[1] == f"{child}-{socket.gethostname().replace('_', '-')}"
    assert hidden_of(tmp_path) == []


def test_a_process_whose_file_was_finished_goes_on_with_a_new_one(tmp_path: Path) -> None:
    writer = TimelineWriter(tmp_path, FileLimits(), "t", base_ns=SECOND)
    writer.add("p", "e", SECOND, 1000, {"n": 0})
    finish_leftovers(tmp_path, "t")
    (first,) = files_of(tmp_path)
    before = first.read_bytes()
    writer.add("p", "e", 2 * SECOND, 1000, {"n": 1})
    writer.close()
    assert first.read_bytes() == before
    assert [[event[4]["n"] for event in events_of(path)] for path in files_of(tmp_path)] == [[0], [1]]
    writer.close()
    assert len(files_of(tmp_path)) == 2


@given(st.data())
def test_what_breaks_off_anywhere_is_cut_after_its_last_event(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("cut")
    writer = TimelineWriter(folder, FileLimits(), "t", base_ns=SECOND)
    for number in range(4):
        writer.add(f"phase {number % 2}", "e", SECOND + number * SECOND, SECOND // 2, {"n": number, "text": "]\n\u2028,"})
    (hidden,) = hidden_of(folder)
    everything = hidden.read_bytes()
    cut = data.draw(st.integers(0, len(everything)))
    hidden.write_bytes(everything[:cut] + data.draw(st.sampled_from([b"", b"\0\0\0", b"{", b"\n]\n]\n"])))
    finish_leftovers(folder, "t")
    assert hidden_of(folder) == []
    # The lines of the file that end before the cut and are events.
    expected = [json.loads(line.rstrip(b",\n"))["args"]["n"] for line in everything[:cut].splitlines() if complete(line)]
    actual = [event for path in files_of(folder) for event in events_of(path)]
    assert [event[4]["n"] for event in actual] == expected
    assert len(files_of(folder)) == bool(expected)
    writer._file.close()  # type: ignore[union-attr]


def complete(line: bytes) -> bool:
    with contextlib.suppress(ValueError):
        return json.loads(line.rstrip(b","))["ph"] == "X"
    return False


KILLED = """
import os, time
from pathlib import Path
from postrun.native.profiling.engine.part import FileLimits
from postrun.native.profiling.engine.timeline_writer import TimelineWriter
writer = TimelineWriter(Path(os.environ["POSTRUN_DIR"]), FileLimits(), f"loader-{os.getpid()}-{time.time_ns():x}")
writer.add("p", "e", time.time_ns(), 1000, {"n": 1})
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(not native.available(), reason="this installation has no C library")
def test_the_recorder_of_a_killed_job_names_its_files(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "postrun", "record", "--out", str(tmp_path / "r"), sys.executable, "-P", "-c", KILLED]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POSTRUN_")}
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == -signal.SIGKILL
    (file,) = files_of(tmp_path / "r")
    assert [event[4]["n"] for event in events_of(file)] == [1]
    assert hidden_of(tmp_path / "r") == []


def test_files_of_ranks_that_run_and_of_other_machines_stay(tmp_path: Path) -> None:
    writer = TimelineWriter(tmp_path, FileLimits(), "loader-1-ab")
    write_many(writer, range(1))
    (mine,) = hidden_of(tmp_path)
    second = mine.with_name(".loader-1-ab-77-elsewhere--1.part")
    second.write_bytes(mine.read_bytes())
    assert Profiling().finish(tmp_path, alone=False) == ()
    assert hidden_of(tmp_path) == sorted([mine, second])
    assert Profiling().finish(tmp_path, alone=True) == ()
    assert (hidden_of(tmp_path), len(files_of(tmp_path))) == ([second], 1)
    writer.close()
