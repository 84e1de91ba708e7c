"""Tests that files of several runs are distinguished from files of one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from postrun.ingest import ingest

START_US = 1_700_000_000_000_000
HOUR_US = 3_600_000_000


def trace(folder: Path, name: str, hours: float = 0.0, pid: int = 7, start: int = START_US, **members: Any) -> None:
    """A trace of one event of 1 us, ``hours`` after the start."""
    event = {"ph": "X", "cat": "cpu_op", "name": name, "pid": pid, "tid": pid, "ts": start + int(hours * HOUR_US), "dur": 1}
    (folder / name).write_text(json.dumps({"schemaVersion": 1, **members, "traceEvents": [event]}))


def metrics(folder: Path, minute: int) -> None:
    line = {"Type": "cpu", "Name": "cpu0", "Dimension": "CPUUtilization", "Value": 4.5, "NodeId": "algo-1", "Timestamp": minute + 0.5}
    (folder / f"{minute}.algo-1.json").write_text(json.dumps(line) + "\n")


def warnings(folder: Path) -> list[str]:
    """The evidence in the warnings."""
    with ingest([folder]) as store:
        actual = store.frame("SELECT severity, message FROM ingest_note WHERE code = 'several_runs'").rows()
    if len(actual) == 1 and actual[0][1].startswith("The files may not be of one run: "):
        return [actual[0][1]]
    before, after = "The files cannot all be of one run: ", ". Their figures are mixed here; give the files of one run."
    assert all(severity == "warning" and text.startswith(before) and text.endswith(after) for severity, text in actual)
    return [text.removeprefix(before).removesuffix(after) for _, text in actual]


def rank(number: int, world_size: int = 2) -> dict[str, Any]:
    return {"distributedInfo": {"rank": number, "world_size": world_size}}


@pytest.mark.parametrize("hours", [0, 2])
def test_one_rank_in_two_processes(tmp_path: Path, hours: float) -> None:
    trace(tmp_path, "a.json", **rank(0))
    trace(tmp_path, "b.json", **rank(1), pid=8)
    assert warnings(tmp_path) == []
    trace(tmp_path, "c.json", hours, **rank(0), pid=9)
    assert warnings(tmp_path) == ["rank 0 occurs 2 times"]
    trace(tmp_path, "d.json", hours, **rank(1), pid=10)
    trace(tmp_path, "e.json", hours, **rank(1), pid=11)
    assert warnings(tmp_path) == ["rank 1 occurs 3 times (2 ranks occur more than once)"]


def test_one_rank_and_pid_on_two_machines(tmp_path: Path) -> None:
    trace(tmp_path, "a.json", **rank(0), host_name="one")
    trace(tmp_path, "b.json", 1, **rank(0), host_name="two")
    assert warnings(tmp_path) == ["rank 0 occurs 2 times"]


@pytest.mark.parametrize("members", [{}, {"host_name": "one"}])
def test_cycles_of_one_process_are_one_run_however_far_apart(tmp_path: Path, members: dict[str, Any]) -> None:
    for cycle, hours in enumerate((0, 1, 100, 2000)):
        trace(tmp_path, f"rank0.{cycle}.json", hours, **rank(0), **members)
        trace(tmp_path, f"rank1.{cycle}.json", hours + 0.5, **rank(1), **members, pid=8)
    assert warnings(tmp_path) == []


def test_world_sizes(tmp_path: Path) -> None:
    trace(tmp_path, "a.json", **rank(0, 8))
    trace(tmp_path, "b.json", **rank(1, 2), pid=8)
    trace(tmp_path, "c.json", pid=9)
    assert warnings(tmp_path) == ["world sizes are 2, 8"]


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        ((0, 23), []),
        ((0, 23, 46, 69), []),
        ((0, 25), ["more than a day lies between one file and the next"]),
        ((0, 2, 36243, 36244), ["up to 1,510 days lie between one file and the next"]),
    ],
)
def test_times_of_files_that_say_no_rank(tmp_path: Path, hours: tuple[int, ...], expected: list[str]) -> None:
    for number, hour in enumerate(hours):
        trace(tmp_path, f"{number}.json", hour, pid=7 + number)
    assert warnings(tmp_path) == expected


def test_times_without_an_epoch_are_no_evidence(tmp_path: Path) -> None:
    trace(tmp_path, "a.json", pid=7)
    trace(tmp_path, "b.json", pid=8, start=1000)
    assert warnings(tmp_path) == []


def test_what_else_was_recorded_in_between_makes_it_one_run(tmp_path: Path) -> None:
    trace(tmp_path, "a.json", pid=7)
    trace(tmp_path, "b.json", 60, pid=8)
    assert warnings(tmp_path) == ["up to 2 days lie between one file and the next"]
    for hour in range(10, 60, 10):
        metrics(tmp_path, (START_US + hour * HOUR_US) // 10**6 // 60 * 60)
    assert warnings(tmp_path) == []


@pytest.mark.parametrize(
    ("hours", "first", "second", "warned"),
    [
        (20.7, {"host_name": "one"}, {"host_name": "two", "pid": 8}, True),
        (1.0, {"host_name": "one"}, {"host_name": "two", "pid": 8}, False),  # too short a pause
        (20.7, {"host_name": "one"}, {"host_name": "one", "pid": 8}, False),  # a machine in common
        (20.7, {"host_name": "one"}, {"host_name": "two"}, False),  # a pid in common: the machine may have two names
        (20.7, {"host_name": "one"}, {"pid": 8}, False),  # a machine that is not known
        (20.7, {"host_name": "one", **rank(0)}, {"host_name": "two", "pid": 8, **rank(1)}, False),  # ranks that are those of one run
    ],
)
def test_a_long_pause_between_strangers(
    tmp_path: Path, hours: float, first: dict[str, Any], second: dict[str, Any], *, warned: bool
) -> None:
    trace(tmp_path, "a.json", **first)
    trace(tmp_path, "b.json", hours, **second)
    expected = (
        "The files may not be of one run: 20.7 hours lie between what one and what two recorded, which have no machine, process or rank in"
        " common. If they are not, their figures are mixed here; give the files of one run."
    )
    assert warnings(tmp_path) == ([expected] if warned else [])


def test_what_a_stranger_recorded_in_the_pause_makes_it_one_run(tmp_path: Path) -> None:
    trace(tmp_path, "a.json", host_name="one")
    trace(tmp_path, "b.json", 1.5, host_name="two", pid=8)
    assert len(warnings(tmp_path)) == 1
    metrics(tmp_path, (START_US + HOUR_US) // 10**6 // 60 * 60)
    assert warnings(tmp_path) == []
