"""The acceptance suite itself, with stub libraries instead of a GPU: it passes, and each case fails if a defect is planted.

POSTRUN_ACCEPT=all tries every defect with every case that sees it, and more versions of CUPTI.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from acceptance import command
from acceptance.bench import Tools
from acceptance.case import DECISIVE
from acceptance.command import main
from acceptance.runner import Suite
from acceptance.table import CASES

NEWEST = "13.5"
MORE_VERSIONS = ("12.6", "12.9", "13.0", "13.2")
ALL = os.environ.get("POSTRUN_ACCEPT") == "all"
SLOW = {16, 20} if not ALL else set()  # cases that take seconds, although they need little processor time
ACCEPT = Path(__file__).parent / "accept.py"
Run = Callable[..., dict[int, dict[str, Any]]]
Built = Callable[[str], Tools]


@pytest.fixture
def run(tools: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs cases with an environment; number -> result, and the exit code under -1."""

    def run(numbers: set[int], version: str = NEWEST, built: Tools | None = None, seconds: float = 400, **variables: str) -> Any:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        built = built or tools(version)
        suite = Suite(ACCEPT, tmp_path, tmp_path / "work", time.monotonic() + seconds, built, {})
        code = suite.run([case for case in CASES if case.number in numbers])
        assert json.loads((tmp_path / "accept.json").read_text())["cases"] == [suite.results[number] for number in sorted(suite.results)]
        return suite.results | {-1: {"code": code}}

    return run


def verdicts(results: dict[int, dict[str, Any]]) -> dict[int, str]:
    return {number: result["verdict"] for number, result in results.items() if number >= 0}


def test_every_number_is_there_once_and_parts_fit_their_time() -> None:
    assert sorted(case.number for case in CASES) == list(range(23))
    assert {case.number for case in CASES if case.decisive} == DECISIVE
    assert {case.part for case in CASES if case.decisive} == {1}, "the first part alone decides"


@pytest.mark.slow
def test_all_cases_pass_with_a_well_behaved_stub(run: Run, tmp_path: Path) -> None:
    wanted = {case.number for case in CASES} - SLOW
    results = run(wanted)
    reasons = {number: result["reason"] for number, result in results.items() if result.get("reason")}
    expected = {case.number: "PASS" if case.stub else "SKIP" for case in CASES if case.number in wanted}
    assert verdicts(results) == expected, reasons
    assert results[-1]["code"] == 0
    files = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert files == {"accept.json", "expected.json", "kernels.prt", "windows.prt", "graphs.prt", "conflict.prt", "injected_c.prt"}
    assert all(path.stat().st_size < 1 << 20 for path in tmp_path.glob("*.prt"))


# Defect of the device's stub -> cases that have to fail. Each case is there at least once, but those that plant their own.
DEFECTS = {
    "nothing": {1, 12, 13, 16, 20},
    "lose": {2, 5, 6, 7, 9, 15, 19},
    "late": {1, 4, 5},
    "twice": {2},
    "shape": {2},
    "bytes": {2},
    "thread": {9},
    "graph": {7},
    "capture": {8},
    "leak": {6},
}
IN_CI = {"nothing": {1, 12, 13}, "lose": {2, 5, 7, 15, 19}, "late": {4}, "thread": {9}, "capture": {8}, "leak": {6}}


@pytest.mark.slow
@pytest.mark.parametrize(("defect", "numbers"), (DEFECTS if ALL else IN_CI).items())
def test_a_planted_defect_is_found(defect: str, numbers: set[int], run: Run) -> None:
    results = run(numbers, STUB_DEVICE=defect)
    assert verdicts(results) == dict.fromkeys(numbers, "FAIL")
    assert all(results[number]["reason"] for number in numbers)
    assert results[-1]["code"] == 1


@pytest.mark.slow
def test_no_cupti_is_a_failure_with_its_reason(run: Run, tools: Built, tmp_path: Path) -> None:
    broken = replace(tools(NEWEST), stub={**(tools(NEWEST).stub or {}), "STUB_ERRORS": "cuptiActivityEnable.10=35"})
    results = run({0, 5}, built=broken)
    assert verdicts(results) == {0: "FAIL", 5: "FAIL"}
    assert "capability.gpu: " in results[0]["reason"]


@pytest.mark.slow
def test_a_clock_that_breaks_kernel_times_is_seen(run: Run) -> None:
    """CUPTI 13.0 loses kernels with a clock, so the recorder does not give it one."""
    results = run({5}, "13.0")
    figures = results[5]["figures"]
    assert verdicts(results) == {5: "PASS"}
    assert (figures["default"], figures["without_clock"]) == ("exact", "exact")
    assert any("kernels in window 0" in problem for problem in figures["with_clock"])


@pytest.mark.skipif(not ALL, reason="POSTRUN_ACCEPT=all tries more versions of CUPTI")
@pytest.mark.parametrize("version", MORE_VERSIONS)
def test_other_versions_of_cupti(version: str, run: Run) -> None:
    wanted = {case.number for case in CASES if case.stub}
    results = run(wanted, version)
    too_old = {0} if version.startswith("12") else set()  # the machine that the suite is meant for has a newer one
    assert {number for number, verdict in verdicts(results).items() if verdict != "PASS"} == too_old, results


# -- the runner ------------------------------------------------------------------------------------------------------------


def program(tmp_path: Path, text: str) -> dict[str, str]:
    """A program instead of the workload."""
    path = tmp_path / "program.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"workload": str(path), "plain": str(path), "workload_per_thread": str(path)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kill -SEGV $$", "signal SIGSEGV"),
        ("echo 'no memory' >&2; exit 3", "exit code 3 instead of 0: no memory"),
        ("true", "no trace file was written"),
        ("echo '{'", "JSONDecodeError"),
    ],
)
def test_what_a_program_does_fails_its_case_and_not_the_suite(text: str, reason: str, run: Run, tools: Built, tmp_path: Path) -> None:
    results = run({2}, built=replace(tools(NEWEST), programs=program(tmp_path, text)))
    assert results[2]["verdict"] == "FAIL"
    assert reason in results[2]["reason"]


def test_a_hang_is_a_failure_and_nothing_of_it_stays(tools: Built, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.number == 2)
    pids = tmp_path / "pids"
    built = replace(tools(NEWEST), programs=program(tmp_path, f"sleep 300 & echo $! $$ > {pids}; wait"))
    suite = Suite(ACCEPT, tmp_path, tmp_path / "work", time.monotonic() + 100, built, {})
    assert suite.run([replace(case, limit=1)]) == 1
    assert "did not end within 1 s" in suite.results[2]["reason"]
    for pid in pids.read_text().split():
        for _ in range(50):
            if not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                break
            time.sleep(0.1)
        else:
            pytest.fail(f"process {pid} is still there")


def test_no_case_starts_without_its_time_and_a_skipped_decisive_case_is_no_pass(run: Run) -> None:
    results = run({2, 9}, seconds=5)
    assert verdicts(results) == {2: "SKIP", 9: "SKIP"}
    assert "5 s are left" in results[2]["reason"]
    assert results[-1]["code"] == 1
    assert run({9}, seconds=5)[-1]["code"] == 0


def test_results_of_an_earlier_part_stay(run: Run) -> None:
    run({2})
    assert verdicts(run({9}, seconds=5)) == {2: "PASS", 9: "SKIP"}


def test_an_example_that_does_not_match_is_found(run: Run, tmp_path: Path) -> None:
    assert verdicts(run({2, 22})) == {2: "PASS", 22: "PASS"}
    expected = json.loads((tmp_path / "expected.json").read_text())
    expected["kernels"]["memcpy"]["bytes"] += 1
    (tmp_path / "expected.json").write_text(json.dumps(expected))
    results = run({22})
    assert results[22]["verdict"] == "FAIL"
    assert "kernels: counts and sums" in results[22]["reason"]


@pytest.mark.slow
def test_command_line(tools: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variables = tmp_path / "stub.json"
    variables.write_text(json.dumps(tools(NEWEST).stub))
    options = ["--out", str(tmp_path / "out"), "--stub", str(variables), "--scale", "0.02", "--cases", "2,0"]
    assert main(ACCEPT, options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:12] for line in lines] == ["PASS case  0", "PASS case  2", "2 cases; not"]
    with pytest.raises(SystemExit):
        main(ACCEPT, ["--out", str(tmp_path / "out"), "--cases", "99"])
    assert main(ACCEPT, [*options, "--part", "1", "--seconds", "1"]) == 1


def test_the_first_import_of_pytorch_may_take_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would otherwise take them from the first case, whose limit it is beyond."""
    timeouts: dict[str, float] = {}

    def run(arguments: list[str], *, timeout: float, **options: Any) -> None:
        timeouts[arguments[-1]] = timeout
        raise OSError

    monkeypatch.setattr(command.subprocess, "run", run)
    command._versions()
    assert [seconds >= 120 for question, seconds in timeouts.items() if "import torch" in question] == [True]
