"""Recording while a program ends, cancels, forks, interrupts and changes things at any time.

One small C program with a behavior each; most of them also with sanitizers. The plain reader of tests/helpers reads the files.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import prt_reader
import pytest
from native_programs import Programs, call, check_whole, files, read

PROGRAM = "capture_hostile"
SANITIZED = pytest.mark.parametrize("variant", ["address", "thread", "plain"])
LEAKS = {  # where the program ends in the midst of something
    "ASAN_OPTIONS": "detect_leaks=0",
    "TSAN_OPTIONS": "halt_on_error=1 die_after_fork=0 atexit_sleep_ms=0 report_thread_leaks=0 report_signal_unsafe=0",  # exit() itself is
}


@SANITIZED
def test_a_signal_handler_ends_the_program(programs: Programs, variant: str, tmp_path: Path) -> None:
    """Also within start, flush and stop: the library's destructor waits for no thread."""
    for ticks in (5, 23, 50) if variant == "plain" else (20,):
        call(programs.program(PROGRAM, variant), "exit in a handler", tmp_path, ticks, timeout=60, **LEAKS)
    for file in files(tmp_path):
        data = file.read_bytes()
        assert [block.sequence for block in prt_reader.blocks(data)] == list(range(len(prt_reader.blocks(data))))


@SANITIZED
def test_what_is_recorded_at_the_end_is_counted_once(programs: Programs, variant: str, tmp_path: Path) -> None:
    """Ranges of a thread's last destructors are lost and counted."""
    output = call(programs.program(PROGRAM, variant), "at the end", tmp_path, 20)
    assert 0 < output["lost"] <= 20 * 20
    check_whole(files(tmp_path)[0].read_bytes())
    tables = read(tmp_path)
    assert sum(row["count"] for row in tables["loss"]) == output["lost"] == tables["end"][0]["lost"]


@pytest.mark.parametrize("variant", ["address", "plain"])  # the thread sanitizer refuses handlers that allocate memory
def test_handlers_that_record(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program(PROGRAM, variant), "handlers", tmp_path, 500)
    check_whole(files(tmp_path)[0].read_bytes())


@pytest.mark.parametrize("variant", ["thread", "plain"])  # the address sanitizer loses count of cancelled threads
def test_canceled_threads_leave_no_lock(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program(PROGRAM, variant), "cancelled", tmp_path, 60, timeout=120)
    for file in files(tmp_path):
        check_whole(file.read_bytes())


@pytest.mark.slow
@SANITIZED
def test_the_environment_changes_while_files_are_begun(programs: Programs, variant: str, tmp_path: Path) -> None:
    """Each file names the rank and the command as they were when the session began."""
    call(programs.program(PROGRAM, variant), "environment", tmp_path, 200, RANK="3", POSTRUN_REDACT="paths,users")
    processes = [prt_reader.read(file.read_bytes())["process"][0] for file in files(tmp_path)]
    assert len(processes) == 201
    assert {row["rank"] for row in processes} == {3}
    assert {row["command"] for row in processes} == {f"{PROGRAM} environment {tmp_path.name} 200"}


@pytest.mark.slow
def test_the_clock_is_set_back_an_hour(programs: Programs, tmp_path: Path) -> None:
    call(programs.program(PROGRAM, "plain"), "clock", tmp_path, 30)
    rows = read(tmp_path)["annotation"]
    assert all(0.1 <= row["duration_ns"] / 10**9 < 2 for row in rows)
    steps = [(b["start_ns"] - a["start_ns"]) / 10**9 for a, b in pairwise(rows)]
    assert [step for step in steps if not 0.1 <= step < 2] == pytest.approx([-3600], abs=4)


@pytest.mark.parametrize("variant", ["address", "plain"])
def test_a_hundred_thousand_names(programs: Programs, variant: str, tmp_path: Path) -> None:
    count = 100_000 if variant == "plain" else 20_000
    call(programs.program(PROGRAM, variant), "names", tmp_path, count)
    (file,) = files(tmp_path)
    check_whole(file.read_bytes())
    texts: dict[int, bytes] = {}
    for block in prt_reader.blocks(file.read_bytes()):
        if block.table == "strings":
            texts.update(zip(block.column(1) or [], block.column(2) or [], strict=True))
        if block.table == "annotation":
            for name, value in zip(block.column(1) or [], block.column(4) or [], strict=True):
                long = value % 1000 == 0
                assert texts[name].startswith(b"name %d" % value)
                assert len(texts[name]) == (4095 if long else len(f"name {value}"))
    assert len(texts) == count


@pytest.mark.slow
def test_an_idle_session_is_small(programs: Programs, tmp_path: Path) -> None:
    """With the sampler, 3 seconds."""
    assert call(programs.program(PROGRAM, "plain"), "idle", tmp_path, 30)["idle_kib"] < 4 << 10


@SANITIZED
def test_facts_that_change_all_the_time(programs: Programs, variant: str, tmp_path: Path) -> None:
    """The file has each value, and little more is kept than there are keys."""
    count = 100_000 if variant == "plain" else 20_000
    output = call(programs.program(PROGRAM, variant), "facts", tmp_path, count)
    assert output["refused"] == 0
    values = [int(row["value"]) for row in read(tmp_path)["meta"] if row["key"] == "step"]
    assert values == list(range(count - 1, 2 * count))
    if variant == "plain":
        assert output["grown_kib"] < 2 << 10


@SANITIZED
def test_a_loss_is_of_its_own_session(programs: Programs, variant: str, tmp_path: Path) -> None:
    output = call(programs.program(PROGRAM, variant), "overflow twice", tmp_path, 1000)
    actual = sorted(files(tmp_path), key=lambda file: int(file.name.split(".")[-2]))
    for file, session in zip(actual, ("first", "second"), strict=True):
        losses = prt_reader.read(file.read_bytes())["loss"]
        assert losses
        assert all(output[session] <= row["first_ns"] <= row["last_ns"] for row in losses)


@pytest.mark.parametrize("variant", ["thread", "plain"])  # the search for leaks needs descriptors
def test_no_descriptors_are_left(programs: Programs, variant: str, tmp_path: Path) -> None:
    """It is refused with its reason, without an empty file; a next file replaces it."""
    output = call(programs.program(PROGRAM, variant), "descriptors", tmp_path, 1)
    assert (output["written"], output["error"]) == (20000, 0)
    for file in files(tmp_path):
        check_whole(file.read_bytes())


def test_no_memory_is_left(programs: Programs, tmp_path: Path) -> None:
    call(programs.program(PROGRAM, "plain"), "memory", tmp_path, 1)
    for file in files(tmp_path):
        check_whole(file.read_bytes())


@pytest.mark.parametrize("variant", ["address", "plain"])
def test_a_daemon_follows_over_two_forks(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program(PROGRAM, variant), "daemon", tmp_path, 100, **LEAKS)
    rows = [len(prt_reader.read(file.read_bytes())["annotation"]) for file in files(tmp_path)]
    assert sorted(rows) == [10, 100]


def test_exec_ends_a_recording_as_a_kill_does(programs: Programs, tmp_path: Path) -> None:
    call(programs.program(PROGRAM, "plain"), "exec", tmp_path, 100)
    tables = read(tmp_path)
    assert len(tables["annotation"]) >= 100
    assert tables["end"] == []


@SANITIZED
def test_dlclose_takes_nothing_away(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program(PROGRAM, variant), "dlclose", tmp_path, 100)
    check_whole(files(tmp_path)[0].read_bytes())


@pytest.mark.slow
@SANITIZED
def test_metrics_alone_fill_files_that_are_rotated(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program(PROGRAM, variant), "metrics", tmp_path, 30)
    assert len(files(tmp_path)) > 1
    for file in files(tmp_path):
        check_whole(file.read_bytes())


def test_two_thousand_threads(programs: Programs, tmp_path: Path) -> None:
    output = call(programs.program("capture_threads", "plain"), "record", tmp_path, 2000, 8)
    assert (output["written"], output["lost"]) == (2000 * 10, 0)
