"""The files that the recording library writes, and its effects on a program when it cannot write.

Small C programs use it, built with sanitizers; the plain reader of tests/helpers reads their files.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import prt_reader
import pytest
from native_programs import VARIANTS, Programs, call, check_whole, environment, files, read

CLOSED_BY_STOP, BY_HANDLE = 1, 2
RING_FULL, DISK, DEPTH = 1, 2, 4


@pytest.fixture(params=sorted(VARIANTS))
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---------------------------------------------------------------- what is written


def test_nested_ranges(programs: Programs, variant: str, tmp_path: Path) -> None:
    before = time.time_ns()
    output = call(programs.program("capture_ranges", variant), "nesting", tmp_path)
    after = time.time_ns()
    assert (output["recorded"], output["written"], output["lost"], output["unbalanced"], output["error"]) == (300, 300, 0, 0, 0)
    (file,) = files(tmp_path)
    check_whole(file.read_bytes())
    assert output["bytes"] == file.stat().st_size
    assert output["blocks"] == len(prt_reader.blocks(file.read_bytes()))
    tables = read(tmp_path)
    steps = [row for row in tables["annotation"] if row["name"] == "step"]
    inner = [row for row in tables["annotation"] if row["name"] == "forward"]
    assert [row["value"] for row in steps] == list(range(100))
    assert [row["value"] for row in inner] == [None] * 100
    assert {row["depth"] for row in steps} == {0}
    assert {row["depth"] for row in inner} == {1}
    assert {row["flags"] for row in tables["annotation"]} == {0}
    for step, forward, counter in zip(steps, inner, tables["counter"], strict=True):
        end = step["start_ns"] + step["duration_ns"]
        assert (
            before <= step["start_ns"] <= forward["start_ns"] <= forward["start_ns"] + forward["duration_ns"] <= counter["time_ns"] <= end
        )
        assert end <= after + 1000  # the reader's clock may be off by its uncertainty
    assert [row["value"] for row in tables["counter"]] == [1 / (i + 1) for i in range(100)]
    (end_row,) = tables["end"]
    assert (end_row["written"], end_row["lost"], end_row["blocks"]) == (300, 0, output["blocks"] - 1)
    (process,) = tables["process"]
    assert process["parent_pid"] == os.getpid()
    assert (process["rank"], process["local_rank"], process["world_size"]) == (-1, -1, -1)
    assert "capture_ranges nesting" in process["command"]
    assert before - 2 * 10**9 < process["start_ns"] < after
    (thread,) = tables["thread"]
    assert (thread["tid"], thread["name"]) == (process["pid"], "capture_ranges"[:15])
    assert file.name.startswith(f"{process['host']}.{process['pid']}.")
    facts = {row["key"]: row["value"] for row in tables["meta"]}
    assert facts["before"] == "start"
    assert facts["clock"] in ("tsc", "cntvct", "monotonic")
    assert facts["host"] == process["host"]
    assert float(facts["clock.ticks_per_second"]) > 1e6
    assert len(tables["clock"]) >= 2


def test_ranges_too_deep_are_counted(programs: Programs, variant: str, tmp_path: Path) -> None:
    output = call(programs.program("capture_ranges", variant), "deep", tmp_path)
    assert (output["written"], output["unbalanced"], output["lost"]) == (65, 36, 0)
    tables = read(tmp_path)
    assert [row["value"] for row in tables["annotation"]] == [*range(63, -1, -1), 1000]
    assert [row["depth"] for row in tables["annotation"]] == [*range(63, -1, -1), 0]
    assert [(row["reason"], row["count"]) for row in tables["loss"]] == [(DEPTH, 36)]


def test_ends_without_a_begin_are_counted(programs: Programs, variant: str, tmp_path: Path) -> None:
    output = call(programs.program("capture_ranges", variant), "unbalanced", tmp_path)
    assert (output["written"], output["unbalanced"]) == (2, 3)
    assert [(row["value"], row["depth"]) for row in read(tmp_path)["annotation"]] == [(1, 0), (2, 0)]


def test_stop_closes_what_is_open(programs: Programs, variant: str, tmp_path: Path) -> None:
    output = call(programs.program("capture_ranges", variant), "open", tmp_path)
    assert (output["recorded"], output["written"]) == (4, 4)
    rows = {row["name"]: (row["value"], row["depth"], row["flags"]) for row in read(tmp_path)["annotation"]}
    closed = {"outer": (1, 0, CLOSED_BY_STOP), "inner": (2, 1, CLOSED_BY_STOP), "handle": (3, 2, CLOSED_BY_STOP | BY_HANDLE)}
    assert rows == {"done": (0, 0, 0)} | closed


def test_handles_on_two_threads(programs: Programs, variant: str, tmp_path: Path) -> None:
    """A range belongs to the thread on which it began."""
    output = call(programs.program("capture_ranges", variant), "handles", tmp_path)
    assert (output["recorded"], output["written"]) == (1001, 1001)
    tables = read(tmp_path)
    assert sorted(row["value"] for row in tables["annotation"]) == list(range(1001))
    assert {row["flags"] for row in tables["annotation"]} == {BY_HANDLE}
    (main_thread,) = [row["source"] for row in tables["thread"] if row["tid"] == tables["process"][0]["pid"]]
    assert {row["source"] for row in tables["annotation"]} == {main_thread}


def test_extreme_values(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program("capture_ranges", variant), "values", tmp_path)
    tables = read(tmp_path)
    assert [row["value"] for row in tables["annotation"]] == [0, -1, 1, 2**63 - 1, -(2**63) + 1, None, 1]
    assert tables["annotation"][-1]["name"] == "?name#987654"
    assert [row["value"] for row in tables["counter"]] == [0, -1.5, 1e300, 0.1, 12345.678]


def test_facts(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program("capture_ranges", variant), "facts", tmp_path)
    facts = [(row["key"], row["value"]) for row in read(tmp_path)["meta"]]
    assert [value for key, value in facts if key == "model"] == ["ResNet-50 é"]
    assert [value for key, value in facts if key == "batch"] == ["32", "64"]


RANKS = {
    "torchrun": ({"RANK": "9", "LOCAL_RANK": "1", "WORLD_SIZE": "16"}, (9, 1, 16)),
    "OpenMPI": ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, (3, 0, 4)),
    "PMI": ({"PMI_RANK": "2", "PMI_SIZE": "8"}, (2, -1, 8)),
    "Slurm": ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "6"}, (5, 1, 6)),
    "mpirun in sbatch": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (3, -1, 4)),
    "nonsense": ({"RANK": "first", "WORLD_SIZE": "-3", "PMI_RANK": "99999999999999999999"}, (-1, -1, -1)),
}


@pytest.mark.parametrize("launcher", RANKS)
def test_ranks(programs: Programs, launcher: str, tmp_path: Path) -> None:
    variables, expected = RANKS[launcher]
    call(programs.program("capture_ranges", "plain"), "unbalanced", tmp_path, **variables)
    (process,) = read(tmp_path)["process"]
    assert (process["rank"], process["local_rank"], process["world_size"]) == expected


# ---------------------------------------------------------------- many threads


def test_names_of_many_threads(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program("capture_threads", variant), "names", tmp_path, 16, 0)
    rows = read(tmp_path)["annotation"]
    assert Counter(row["name"] for row in rows) == {f"name {n}": 16 for n in range(500)}
    assert all(row["name"] == f"name {row['value']}" for row in rows)


def test_five_hundred_threads(programs: Programs, variant: str, tmp_path: Path) -> None:
    output = call(programs.program("capture_threads", variant), "record", tmp_path, 500, 40)
    tables = read(tmp_path)
    assert output["lost"] == 0
    assert len({row["source"] for row in tables["thread"]}) == len({row["tid"] for row in tables["thread"]} | {-1}) - 1 == 500
    assert Counter(row["source"] for row in tables["annotation"]) == {row["source"]: 40 for row in tables["thread"]}


def test_a_full_ring_is_counted(programs: Programs, variant: str, tmp_path: Path) -> None:
    """The program itself checks that recorded and lost add up to the calls."""
    output = call(programs.program("capture_threads", variant), "overflow", tmp_path, 4, 20000)
    assert output["lost"] > 0
    tables = read(tmp_path)
    assert len(tables["annotation"]) + len(tables["counter"]) == output["written"]
    assert sum(row["count"] for row in tables["loss"]) == output["lost"]
    assert {row["reason"] for row in tables["loss"]} == {RING_FULL}
    assert all(row["first_ns"] <= row["last_ns"] for row in tables["loss"])


def test_stop_while_others_record(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program("capture_threads", variant), "stop", tmp_path, 3, 15)
    for file in files(tmp_path):
        check_whole(file.read_bytes())


# ---------------------------------------------------------------- sessions


@pytest.mark.slow
def test_start_and_stop_leave_nothing_behind(programs: Programs, variant: str, tmp_path: Path) -> None:
    rounds = 3000 if variant == "plain" else 400
    output = call(programs.program("capture_sessions", variant), "loop", tmp_path, rounds)
    if variant == "plain":  # sanitizers keep what was freed, and have a thread of their own
        assert output["grown_kib"] < 512
        assert output["threads"] == 1


def test_rotation(programs: Programs, variant: str, tmp_path: Path) -> None:
    output = call(programs.program("capture_sessions", variant), "rotate", tmp_path, 20)
    actual = files(tmp_path)
    assert len(actual) == 21
    texts = [file.read_bytes() for file in actual]
    assert len({text[24:40] for text in texts}) == 1
    assert sorted(int.from_bytes(text[56:60], "little") for text in texts) == list(range(1, 22))
    for text in texts:
        check_whole(text)
        tables = prt_reader.read(text)
        assert {row["name"] for row in tables["annotation"]} <= {"step"}
        assert ("fact", "in every file") in {(row["key"], row["value"]) for row in tables["meta"]}
        assert len(tables["process"]) == 1
        assert tables["end"][0]["written"] == len(tables["annotation"])
    assert sum(row["written"] for text in texts for row in prt_reader.read(text)["end"]) == output["written"] == 10000
    assert {file.name.split(".")[-2].partition("-")[2] for file in actual} == {"", *map(str, range(2, 22))}


def test_files_end_at_their_age(programs: Programs, variant: str, tmp_path: Path) -> None:
    output = call(programs.program("capture_sessions", variant), "aged", tmp_path, 50)
    texts = parts(tmp_path)
    tables = [prt_reader.read(text) for text in texts]
    for text, table in zip(texts, tables, strict=True):
        check_whole(text)
        assert ("fact", "in every file") in {(row["key"], row["value"]) for row in table["meta"]}
        assert len(table["process"]) == len({row["source"] for row in table["thread"]}) == 1
        assert table["end"][0]["written"] == len(table["annotation"]) + len(table["counter"]) > 0
    rows = [[row for row in table["annotation"] if row["name"] != "all"] for table in tables]
    assert [(row["name"], row["value"]) for part in rows for row in part] == [("early" if i < 25 else "late", i) for i in range(50)]
    assert [row["value"] for table in tables for row in table["counter"]] == list(range(50))
    assert sum(table["end"][0]["written"] for table in tables) == output["written"] == 101
    (complete,) = (row for row in tables[-1]["annotation"] if row["name"] == "all")  # begun in the first file, ended in the last
    assert complete["start_ns"] <= rows[0][0]["start_ns"]
    # Each of the 50 takes at least 50 ms: three files, or more where the machine is slow, each for at least a second but the last.
    created_files = [created(text) for text in texts]
    assert len(texts) >= 3
    assert all(b - a >= 0.999e9 for a, b in pairwise(created_files))
    for part, next_made in zip(rows, created_files[1:], strict=False):
        assert max(row["start_ns"] + row["duration_ns"] for row in part) <= next_made


def test_a_forked_child_ends_its_files_at_their_age(programs: Programs, tmp_path: Path) -> None:
    call(programs.program("capture_sessions", "plain"), "aged child", tmp_path, 30)
    values = [[row["value"] for row in prt_reader.read(text)["annotation"] if row["name"] != "all"] for text in parts(tmp_path)]
    assert sorted(value for part in values for value in part) == list(range(1000, 1030))
    assert sum(bool(part) for part in values) >= 2


@pytest.mark.slow
@pytest.mark.parametrize(("variable", "expected"), [("1", [[0], [1], [2]]), ("", [[0, 1, 2]]), ("0", [[0, 1, 2]]), ("3600", [[0, 1, 2]])])
def test_an_idle_session_makes_no_empty_files(programs: Programs, variable: str, expected: list[list[int]], tmp_path: Path) -> None:
    """Two files are old before the first and the second record come."""
    call(programs.program("capture_sessions", "plain"), "idle", tmp_path, 3, POSTRUN_ROTATE_S=variable)
    assert [[row["value"] for row in prt_reader.read(text)["annotation"]] for text in parts(tmp_path)] == expected


@pytest.mark.parametrize("variable", ["soon", "-1", "1.5", " 1", "99999999999999999999"])
def test_an_age_of_files_that_is_no_number_is_told(programs: Programs, variable: str, tmp_path: Path) -> None:
    call(programs.program("capture_sessions", "plain"), "idle", tmp_path, 1, POSTRUN_ROTATE_S=variable)
    expected = f"POSTRUN_ROTATE_S={variable} is not heeded: a whole number of seconds is expected"
    assert {row["key"]: row["value"] for row in read(tmp_path)["meta"]}["capability.rotation"] == expected


def test_samples_alone_end_files_at_their_age(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program("capture_sessions", variant), "sampled", tmp_path, 25, POSTRUN_ROTATE_S="1")
    texts = parts(tmp_path)
    assert len(texts) >= 2
    times = [[row["time_ns"] for row in prt_reader.read(text)["metric"] if row["metric"] == "memory_used_percent"] for text in texts]
    assert all(times)
    together = [time for part in times for time in part]
    assert together == sorted(set(together))
    assert len(together) >= 10


def parts(folder: Path) -> list[bytes]:
    """The files of sessions in the order in which they were begun."""
    return sorted((file.read_bytes() for file in files(folder)), key=created)


def created(text: bytes) -> int:
    """Return when a file was begun, by its header: nanoseconds since 1970 in UTC."""
    return int.from_bytes(text[48:56], "little")


def test_limits_of_the_configuration(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program("capture_sessions", variant), "limits", tmp_path, 0)


def test_signals_stay_with_the_program(programs: Programs, tmp_path: Path) -> None:
    call(programs.program("capture_sessions", "plain"), "signals", tmp_path, 100)


def test_the_end_of_the_program_stops(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program("capture_sessions", variant), "exit", tmp_path, 100)
    (file,) = files(tmp_path)
    check_whole(file.read_bytes())
    assert len(read(tmp_path)["annotation"]) == 100


def test_an_end_without_handlers_loses_one_drain_period(programs: Programs, tmp_path: Path) -> None:
    call(programs.program("capture_sessions", "plain"), "quick", tmp_path, 100)
    tables = read(tmp_path)
    assert [row["name"] for row in tables["annotation"]][:100] == ["step"] * 100
    assert tables["end"] == []


def test_start_by_the_environment(programs: Programs, variant: str, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    program = programs.program("capture_sessions", variant)
    call(program, "environment", "-", 10, POSTRUN_CAPTURE="1", POSTRUN_DIR=str(folder))
    assert len(read(folder)["annotation"]) == 10


@pytest.mark.parametrize("recorder", [False, True], ids=["environment", "recorder"])
def test_a_program_with_sessions_of_its_own_runs_as_it_is(programs: Programs, variant: str, recorder: bool, tmp_path: Path) -> None:
    """The environment begins the first session; under a recorder all go to the job."""
    job, rows = tmp_path / "job", tmp_path / "own"
    known = {"POSTRUN_CAPTURE": "1", "POSTRUN_DIR": str(job)} | ({"POSTRUN_RECORDER": "host:1"} if recorder else {})
    call(programs.program("capture_sessions", variant), "own", rows, 10, **known)
    actual = sorted((*files(job), *files(rows)), key=lambda path: int(path.name.split(".")[-2]))
    assert [path.parent for path in actual] == [job, job if recorder else rows]
    first, second = (prt_reader.read(path.read_bytes()) for path in actual)
    assert [row["value"] for row in first["annotation"]] == list(range(20))
    assert [row["value"] for row in second["annotation"]] == list(range(20, 30))
    assert (first["metric"], bool(second["metric"])) == ([], not recorder)
    for path in actual:
        check_whole(path.read_bytes())


def test_a_forked_child_of_the_environment_runs_as_it_is(programs: Programs, tmp_path: Path) -> None:
    known = {"POSTRUN_CAPTURE": "1", "POSTRUN_FOLLOW_FORK": "1", "POSTRUN_DIR": str(tmp_path)}
    call(programs.program("capture_sessions", "plain"), "own child", tmp_path / "own", 10, **known)
    rows = [[row["value"] for row in prt_reader.read(path.read_bytes())["annotation"]] for path in files(tmp_path)]
    assert sorted(rows) == [list(range(10)), list(range(10, 20))]
    for path in files(tmp_path):
        check_whole(path.read_bytes())


def test_the_sampler_runs_in_the_session(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program("capture_sessions", variant), "sampled", tmp_path, 5)
    tables = read(tmp_path)
    assert "cpu_utilization" in {row["metric"] for row in tables["metric"]}
    assert len({row["time_ns"] for row in tables["metric"]}) >= 3
    assert ("sample_ms", "100") in {(row["key"], row["value"]) for row in tables["meta"]}


def test_compression(programs: Programs, variant: str, tmp_path: Path) -> None:
    call(programs.program("capture_sessions", variant), "compressed", tmp_path, 5000)
    assert [row["value"] for row in read(tmp_path)["annotation"]] == list(range(5000))


# ---------------------------------------------------------------- forks


def sanitized_fork(variant: str, behavior: str) -> dict[str, str]:
    """A child does not touch inherited state; a sanitizer's malloc may stay locked."""
    alone = variant != "plain" and behavior not in ("exec", "spawn", "vfork")
    return {"ASAN_OPTIONS": "detect_leaks=0"} | ({"ALONE": "1"} if alone else {})


@pytest.mark.parametrize("behavior", ["quiet", "while recording", "exec", "spawn", "vfork", "raw"])
def test_a_child_leaves_alone_what_it_inherits(programs: Programs, variant: str, behavior: str, tmp_path: Path) -> None:
    if behavior == "raw" and variant != "plain":
        pytest.skip("the sanitizer must know of a fork")
    call(programs.program("capture_forks", variant), behavior, tmp_path, 15, **sanitized_fork(variant, behavior))
    (file,) = files(tmp_path)
    check_whole(file.read_bytes())
    tables = read(tmp_path)
    assert "child" not in {row["name"] for row in tables["annotation"]}
    parents = [row for row in tables["annotation"] if row["name"] == "parent"]
    assert len(parents) == 30
    assert {row["flags"] for row in parents} == {0, BY_HANDLE}


@pytest.mark.parametrize("behavior", ["own", "follow", "children", "exit"])
def test_a_child_records_to_its_own_file(programs: Programs, variant: str, behavior: str, tmp_path: Path) -> None:
    if variant == "thread":
        pytest.skip("this sanitizer has no threads in a child of several threads")
    call(programs.program("capture_forks", variant), behavior, tmp_path, 10, **sanitized_fork(variant, behavior))
    actual = [file.read_bytes() for file in files(tmp_path)]
    assert len(actual) == 11
    processes = {prt_reader.read(text)["process"][0]["pid"]: text for text in actual}
    assert len(processes) == 11
    (parent,) = [pid for pid, text in processes.items() if any(row["name"] == "parent" for row in prt_reader.read(text)["annotation"])]
    for pid, text in processes.items():
        check_whole(text)
        assert pid == int.from_bytes(text[40:44], "little")
        if pid == parent:
            continue
        tables = prt_reader.read(text)
        assert [row["name"] for row in tables["annotation"]][:1] == ["child"]
        assert (text[24:40] == processes[parent][24:40]) == (behavior != "own")
        if behavior != "children":
            assert tables["process"][0]["parent_pid"] == parent


# ---------------------------------------------------------------- kills


@pytest.mark.slow
def test_every_complete_block_survives_a_kill(programs: Programs, tmp_path: Path) -> None:
    program = programs.program("capture_kill", "plain")
    random_source = random.Random(1)
    steps = 0
    for round_number in range(30):
        folder = tmp_path / str(round_number)
        with subprocess.Popen([str(program), str(folder)], stdout=subprocess.PIPE, env=environment()) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"recording\n"
            time.sleep(random_source.random() * 0.1)
            process.send_signal(signal.SIGKILL)
            process.wait()
        values: dict[int, list[int]] = {}
        begun = [file for file in files(folder) if file.stat().st_size]  # the kill may fall between making a file and its header
        assert len(files(folder)) - len(begun) <= 1
        *earlier, last = sorted(begun, key=lambda file: int.from_bytes(file.read_bytes()[56:60], "little"))
        for file in earlier:
            check_whole(file.read_bytes())
        for file in [*earlier, last]:
            data = file.read_bytes()
            blocks = prt_reader.blocks(data)
            assert [block.sequence for block in blocks] == list(range(len(blocks)))
            texts: dict[int, bytes] = {}
            for block in blocks:
                if block.table == "strings":
                    texts.update(zip(block.column(1) or [], block.column(2) or [], strict=True))
                elif block.table == "annotation":
                    names, of_rows = block.column(1) or [], block.column(4) or [None] * block.count
                    of_steps = [value for name, value in zip(names, of_rows, strict=True) if texts[name] == b"step"]
                    values.setdefault(block.source, []).extend(of_steps)
            size = 64 + sum(48 + int.from_bytes(data[at + 8 : at + 12], "little") for at in block_offsets(data))
            assert len(data) - size < 200000
        for of_thread in values.values():
            assert of_thread == list(range(len(of_thread)))  # nothing is missing in between
            steps += len(of_thread)
    assert steps > 1000


def block_offsets(data: bytes) -> list[int]:
    """Where blocks begin that follow each other without a gap."""
    offsets, at = [], 64
    while data[at : at + 4] == b"PRBK" and len(data) >= at + 48 + int.from_bytes(data[at + 8 : at + 12], "little"):
        offsets.append(at)
        at += 48 + int.from_bytes(data[at + 8 : at + 12], "little")
    return offsets


# ---------------------------------------------------------------- disks


LOSS_BYTES = 100  # no block that reports a loss is longer


def check_loss_is_told(folder: Path, output: dict[str, int], room: Callable[[int], int]) -> None:
    """Check that a loss is reported if there is ``room`` for its block."""
    (file,) = files(folder)
    data = file.read_bytes()
    tables = prt_reader.read(data)
    offsets = block_offsets(data)
    assert len(tables["annotation"]) == output["written"]
    assert sum(48 + int.from_bytes(data[at + 8 : at + 12], "little") for at in offsets) == len(data) - 64
    losses = [row for row in tables["loss"] if row["reason"] == DISK]
    if losses or room(offsets[-1] if tables["end"] else len(data)) >= LOSS_BYTES:
        assert 0 < sum(row["count"] for row in losses) <= output["lost"]


def test_a_limit_on_file_sizes(programs: Programs, variant: str, tmp_path: Path) -> None:
    output = call(programs.program("capture_disk", variant), "limit", tmp_path)
    check_loss_is_told(tmp_path, output, lambda used: 200_000 - used)
    (file,) = files(tmp_path)
    assert 100000 < file.stat().st_size <= 200000


def on_tmpfs(program: Path, behavior: str, options: str, folder: Path, copy: Path) -> dict[str, int]:
    """Runs it with a small file system of its own, and copies what is left there."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare (apt-get install util-linux)")
    folder.mkdir()
    script = f'mount -t tmpfs -o "{options}" none "{folder}" && "{program}" {behavior} "{folder}" && cp -r "{folder}" "{copy}"'
    done = subprocess.run([unshare, "-rm", "sh", "-c", script], capture_output=True, text=True, timeout=120, env=environment())
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"no file system can be mounted: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stderr
    return {key: int(value) for key, value in (line.split() for line in done.stdout.splitlines())}


def test_a_full_disk(programs: Programs, tmp_path: Path) -> None:
    output = on_tmpfs(programs.program("capture_disk", "plain"), "full", "size=300k", tmp_path / "disk", tmp_path / "copy")
    check_loss_is_told(tmp_path / "copy", output, lambda used: -used % os.sysconf("SC_PAGE_SIZE"))


def test_a_disk_that_is_full_at_the_start(programs: Programs, tmp_path: Path) -> None:
    output = on_tmpfs(programs.program("capture_disk", "plain"), "start", "nr_inodes=1", tmp_path / "disk", tmp_path / "copy")
    assert output["start"] == -28  # ENOSPC


def test_a_read_only_folder(programs: Programs, tmp_path: Path) -> None:
    output = on_tmpfs(programs.program("capture_disk", "plain"), "start", "ro", tmp_path / "disk", tmp_path / "copy")
    assert output["start"] == -30  # EROFS


@pytest.mark.parametrize("behavior", ["deleted", "gone"])
def test_a_folder_that_disappears(programs: Programs, variant: str, behavior: str, tmp_path: Path) -> None:
    call(programs.program("capture_disk", variant), behavior, tmp_path / "traces")


def test_descriptors_that_the_program_closes(programs: Programs, tmp_path: Path) -> None:
    call(programs.program("capture_disk", "plain"), "closed", tmp_path)
    assert (tmp_path / "own").read_text() == "mine"


def test_folders_that_cannot_be_written(programs: Programs, variant: str, tmp_path: Path) -> None:
    program = programs.program("capture_disk", variant)
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    assert call(program, "start", tmp_path / "file")["start"] == -20  # ENOTDIR
    assert call(program, "start", tmp_path / "file" / "below")["start"] == -20
    assert call(program, "start", tmp_path / "loop")["start"] == -40  # ELOOP
    assert call(program, "start", tmp_path / ("x" * 300))["start"] == -36  # ENAMETOOLONG
    assert call(program, "start", "/proc/nowhere")["start"] in (-2, -13)  # ENOENT, EACCES
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    if os.access(closed, os.W_OK):
        pytest.skip("root may write anywhere")
    assert call(program, "start", closed)["start"] == -13
