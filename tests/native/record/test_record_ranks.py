"""Distributed jobs under postrun record: one folder, one sampler per machine, one report, with any launcher."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from postrun.errors import PostrunError
from postrun.ingest import ingest
from postrun.native.record.ranks import Folder, LaunchedRank, default_folder, launched_rank
from prt_reader import read

pytest.importorskip("postrun.native._native", reason="the C library was not built")

RECORD = [sys.executable, "-P", "-m", "postrun", "record", "--interval-ms", "100"]
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("POSTRUN_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_"))}
TRAIN = """
import os, sys, time
from postrun import capture
rank = next(int(os.environ[name]) for name in ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID") if name in os.environ)
for i in range(4):
    with capture.annotate("step", value=i):
        time.sleep(0.05)
    capture.counter("loss", 10 * rank + i)
sys.exit(5 if str(rank) in sys.argv[1:] else 0)
"""
# The behavior of torchrun that a process sees: each rank's environment; the first failure ends the other ranks.
LAUNCHER = """
import os, signal, subprocess, sys, time
count, run_id, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
workers = []
for rank in range(count):
    environment = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
                   "TORCHELASTIC_RUN_ID": run_id, "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    workers.append(subprocess.Popen(command, env=environment))
code = 0
while any(worker.poll() is None for worker in workers):
    if code == 0 and any(worker.returncode for worker in workers):
        code = 1
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
    time.sleep(0.02)
sys.exit(code or any(worker.returncode for worker in workers))
"""


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    words = [str(one) for one in command]
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, env={**CLEAN, **(env or {})}, timeout=180, check=False)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN, "utf-8")
    (tmp_path / "launch.py").write_text(LAUNCHER, "utf-8")
    return tmp_path


def launch(count: int, *command: str, run_id: str = "none") -> list[str]:
    return [sys.executable, "launch.py", str(count), run_id, *command]


TRAINING = [sys.executable, "-P", "train.py"]


def facts(folder: Path) -> list[dict[str, Any]]:
    """Return facts of each trace file of the job or its recorders.

    Metadata, steps, counters, and whether the machine was sampled.
    """
    results = []
    for path in sorted(folder.glob("*.prt")):
        file = read(path.read_bytes())
        values = {row["key"]: row["value"] for row in file["meta"]}
        process = file["process"][0]
        results.append({**values, "rank": process["rank"], "steps": len(file["annotation"]), "sampled": bool(file["metric"])})
    return results


def check(folder: Path, ranks: int, *, recorders: int, status: str = "completed") -> dict[str, Any]:
    """Check the report and files of a run with ``ranks`` ranks.

    Each has its steps and its own counters; there is one sampler.
    """
    files = facts(folder)
    assert sorted(one["rank"] for one in files if one["steps"]) == list(range(ranks))
    assert len([one for one in files if "job.command" in one]) == recorders
    assert len([one for one in files if one["sampled"]]) == 1
    report: dict[str, Any] = json.loads((folder / "report" / "report.json").read_bytes())
    assert report["run"]["status"] == status
    assert sorted(one["rank"] for one in report["processes"]) == list(range(ranks))
    assert {one["world_size"] for one in report["processes"]} == {ranks}
    with ingest([folder]) as store:
        counters = store.frame("""
            SELECT p.rank, list(s.value ORDER BY s.time_ns) FROM sample s JOIN process p ON p.id = s.unit
            WHERE s.metric = 'counter.loss' GROUP BY p.rank
        """).rows()
    assert all(values == [10 * rank + i for i in range(len(values))] for rank, values in counters)
    assert sorted(rank for rank, _ in counters) == list(range(ranks))
    return report


REPORT = ["--report", "--format", "json"]


@pytest.mark.slow
def test_one_recorder_around_the_launcher(work: Path) -> None:
    done = run(*RECORD, "--out", "run", *REPORT, "--", *launch(3, *TRAINING), cwd=work)
    assert (done.returncode, done.stdout) == (0, "")
    check(work / "run", 3, recorders=1)


@pytest.mark.slow
def test_a_recorder_per_rank_and_no_folder_given(work: Path) -> None:
    for _ in range(2):  # the launcher's variables are the same in both runs
        done = run(*launch(3, *RECORD, *REPORT, "--", *TRAINING), cwd=work)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("report.json") == 1, "only the first rank reports"
    folders = sorted((work / "postrun-runs").iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert folder.name.startswith("train-torchrun-")
        report = check(folder, 3, recorders=3)
        assert [note["code"] for note in report["data_quality"] if note["severity"] != "info"] == []


@pytest.mark.slow
def test_recorders_of_ranks_inside_of_a_recorded_launch_join_it(work: Path) -> None:
    done = run(*RECORD, "--out", "run", *REPORT, "--", *launch(2, *RECORD, "--", *TRAINING), cwd=work)
    assert done.returncode == 0, done.stderr
    check(work / "run", 2, recorders=3)
    assert not (work / "postrun-runs").exists()
    assert done.stderr.count("postrun: ") == 1, "the inner ones leave it to the outer one to tell"


@pytest.mark.slow
def test_a_rank_that_fails_is_named_and_the_others_are_stopped(work: Path) -> None:
    done = run(*launch(2, *RECORD, "--out", "run", *REPORT, "--", *TRAINING, "1"), cwd=work)
    assert done.returncode == 1
    report = check(work / "run", 2, recorders=2, status="failed")
    messages = [note["message"] for note in report["data_quality"]]
    assert any(text.startswith("Rank 1 of the job ended with exit code 5 after") for text in messages)


@pytest.mark.slow
def test_the_first_rank_reports_though_another_does_not_end(work: Path) -> None:
    """Rank 1 is on a machine that cannot be queried, and writes no more."""
    environment = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "shared",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "1",
    }
    marks = work / "run" / ".postrun-run"
    marks.mkdir(parents=True)
    (marks / "launch.json").write_text(json.dumps({"launch": launched_rank(environment).launch}), "utf-8")
    (marks / "rank-1").write_text(json.dumps({"host": "another machine", "pid": 1}), "utf-8")
    done = run(*RECORD, "--out", "run", *REPORT, "--", *TRAINING, "0", cwd=work, env=environment)
    assert done.returncode == 5
    assert "rank 1 had not ended after 5 s; the report has what was recorded so far" in done.stderr
    assert (work / "run" / "report" / "report.json").exists()


@pytest.mark.slow
def test_parameters_that_differ_between_ranks_are_told(work: Path) -> None:
    for rank in ("1", "0"):
        environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
        parameters = ["--param", f"shard={rank}", "--param", "lr=0.1"]
        assert run(*RECORD, "-q", "--out", "run", *parameters, "--", *TRAINING, cwd=work, env=environment).returncode == 0
    done = run(sys.executable, "-P", "-m", "postrun", "report", "run", "--format", "json", "--output", "report", cwd=work)
    assert done.returncode == 0, done.stderr
    report = json.loads((work / "report" / "report.json").read_bytes())
    assert report["run"]["hyperparameters"] == {"lr": "0.1", "shard": "0"}
    assert any("differ between the recorders" in note["message"] and "shard" in note["message"] for note in report["data_quality"])


@pytest.mark.slow
def test_a_rank_that_was_started_again_counts_as_it_ended_at_last(work: Path) -> None:
    launcher = {"WORLD_SIZE": "16", "TORCHELASTIC_RUN_ID": "x", "RANK": "1", "LOCAL_RANK": "0"}
    for attempt, failing in (("0", "1"), ("1", "none")):
        environment = {**launcher, "TORCHELASTIC_RESTART_COUNT": attempt}
        done = run(*RECORD, "-q", "--out", "run", "--", *TRAINING, failing, cwd=work, env=environment)
        assert done.returncode == (5 if attempt == "0" else 0)
    assert run(sys.executable, "-P", "-m", "postrun", "report", "run", "--format", "json", "--output", "report", cwd=work).returncode == 0
    report = json.loads((work / "report" / "report.json").read_bytes())
    assert report["run"]["status"] == "completed"
    failures = [(note["severity"], note["message"]) for note in report["data_quality"] if note["code"] == "job_failed"]
    assert [severity for severity, _ in failures] == ["warning"]
    assert failures[0][1].endswith("and was started again.")


def test_mpirun_in_both_orders(work: Path) -> None:
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("mpirun is not installed (Debian, Ubuntu: openmpi-bin)")
    start = [mpirun, *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe", "-n", "2"]
    if run(*start, "true", cwd=work).returncode != 0:
        pytest.skip("mpirun starts nothing here")
    inner = run(*start, *RECORD, *REPORT, "--", *TRAINING, cwd=work)
    assert inner.returncode == 0, inner.stderr
    check(next((work / "postrun-runs").iterdir()), 2, recorders=2)
    outer = run(*RECORD, "--out", "run", *REPORT, "--", *start, *TRAINING, cwd=work)
    assert outer.returncode == 0, outer.stderr
    check(work / "run", 2, recorders=1)


# -- windows of a profiling configuration ---------------------------------------------------------------------------------

NOBODY = "postrun: Python profiling recorded nothing: no process of the job annotated steps or trained with PyTorch\n"
MACHINE = "postrun: only the machine was recorded"
ALL_RANKS = "import os, sys, time; time.sleep(0.3 * (int(os.environ['RANK']) == int(sys.argv[1])))"
AS_MPIRUN = """
import os, subprocess, sys
count, command = int(sys.argv[1]), sys.argv[3:]
started = [subprocess.Popen(command, env={**os.environ, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
           "OMPI_COMM_WORLD_SIZE": str(count), "OMPI_COMM_WORLD_LOCAL_SIZE": str(count)}) for rank in range(count)]
sys.exit(any([one.wait() for one in started]))
"""


def profiled(work: Path) -> list[str]:
    (work / "c.json").write_text('{"ProfilingParameters": {"PythonProfilingConfig": {"StartStep": 1, "NumSteps": 2}}}', "utf-8")
    return [*RECORD, "--out", "run", "--profiler-config", "c.json"]


def of_windows(folder: Path) -> list[dict[str, str]]:
    """Return the facts of each file about the window of Python functions."""
    keys = ("profiling.python", "profiling.python.recorded")
    return [{key: one[key] for key in keys} for one in facts(folder) if keys[1] in one]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
@pytest.mark.parametrize("recorders", ["outside", "each", "both"])
def test_a_window_for_which_no_rank_recorded_is_told_once(work: Path, recorders: str, launcher: str) -> None:
    if launcher == "mpirun":
        (work / "launch.py").write_text(AS_MPIRUN, "utf-8")
    record = profiled(work)
    inner = [] if recorders == "outside" else [*record, "--"]
    outer = [] if recorders == "each" else [*record, "--"]
    done = run(*outer, *launch(3, *inner, sys.executable, "-c", "pass"), cwd=work)
    assert done.returncode == 0, done.stderr
    assert (done.stderr.count(NOBODY), done.stderr.count(MACHINE)) == (1, 1), done.stderr
    assert "no step began" not in done.stderr, "recorders have no steps"
    why = "no process of the job annotated steps or trained with PyTorch"
    assert of_windows(work / "run") == [{"profiling.python": "steps 1 to 2", "profiling.python.recorded": f"nothing: {why}"}]
    with ingest([work / "run"]) as store:
        notes = store.frame("SELECT message FROM ingest_note WHERE code = 'profiling_left_out'").rows()
    assert notes == [(f"Python profiling recorded nothing: {why}.",)]


@pytest.mark.slow
@pytest.mark.parametrize("last", ["0", "2"])
def test_whichever_rank_ends_last_tells_it(work: Path, last: str) -> None:
    done = run(*launch(3, *profiled(work), "--", sys.executable, "-c", ALL_RANKS, last), cwd=work)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(NOBODY) == 1, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("recorders", ["outside", "each", "both"])
def test_a_window_that_one_rank_recorded_is_not_told(work: Path, recorders: str) -> None:
    (work / "train.py").write_text(
        f"import os\nif os.environ['RANK'] == '1':\n    {TRAIN.strip().replace(chr(10), chr(10) + '    ')}\n", "utf-8"
    )
    record = profiled(work)
    inner = [] if recorders == "outside" else [*record, "--"]
    outer = [] if recorders == "each" else [*record, "--"]
    done = run(*outer, *launch(2, *inner, *TRAINING), cwd=work)
    assert done.returncode == 0, done.stderr
    assert (done.stderr.count(NOBODY), done.stderr.count(MACHINE)) == (0, 0), done.stderr
    assert "no step began" not in done.stderr, "recorders have no steps"
    assert of_windows(work / "run") == [{"profiling.python": "steps 1 to 2", "profiling.python.recorded": "steps 1 to 2"}]


# torchrun with failing ranks that may be restarted.
AGAIN = """
import os, subprocess, sys
for attempt in (0, 1):
    said = {**os.environ, "TORCHELASTIC_MAX_RESTARTS": "1", "TORCHELASTIC_RESTART_COUNT": str(attempt), "TORCHELASTIC_RUN_ID": "x",
            "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [subprocess.Popen(sys.argv[1:], env={**said, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in (0, 1)]
    code = max([rank.wait() for rank in ranks])
sys.exit(code)
"""


@pytest.mark.slow
@pytest.mark.parametrize("trains", [True, False])
def test_nothing_is_told_of_ranks_that_are_started_again(work: Path, trains: bool) -> None:
    """The first attempt records nothing and fails; the second trains or fails."""
    (work / "launch.py").write_text(AGAIN, "utf-8")
    first = "import os, sys\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n    sys.exit(3)\n"
    (work / "train.py").write_text(first + (TRAIN if trains else "sys.exit(4)"), "utf-8")
    done = run(sys.executable, "launch.py", *profiled(work), "--", *TRAINING, cwd=work)
    assert done.returncode == (0 if trains else 4), done.stderr
    assert done.stderr.count(NOBODY) == (0 if trains else 1), done.stderr
    recorded = [one["profiling.python.recorded"].partition(":")[0] for one in of_windows(work / "run")]
    assert recorded == (["steps 1 to 2"] * 2 if trains else ["nothing"])


@pytest.mark.slow
def test_nothing_is_told_where_one_rank_failed_and_the_last_one_did_not(work: Path) -> None:
    """A launcher ends the other ranks normally, and restarts all of them."""
    (work / "launch.py").write_text(AGAIN, "utf-8")
    first = "import os, sys, time\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
    first += "    time.sleep(2 * int(os.environ['RANK']))\n    sys.exit(0 if os.environ['RANK'] == '1' else 3)\n"
    (work / "train.py").write_text(first + TRAIN, "utf-8")
    done = run(sys.executable, "launch.py", *profiled(work), "--", *TRAINING, cwd=work)
    assert done.returncode == 0, done.stderr
    assert (done.stderr.count(NOBODY), done.stderr.count(MACHINE)) == (0, 0), done.stderr
    assert [one["profiling.python.recorded"].partition(":")[0] for one in of_windows(work / "run")] == ["steps 1 to 2"] * 2


def test_it_is_known_when_the_last_of_all_ranks_has_ended(tmp_path: Path) -> None:
    first, second = (Folder(tmp_path / "run", LaunchedRank("slurm", rank, rank, 3, "slurm-1-0")) for rank in range(2))
    assert not first.of_nobody(failed=False), "ranks 1 and 2 could record still"
    assert not second.of_nobody(failed=False), "rank 2 has not begun"
    third = Folder(tmp_path / "run", LaunchedRank("slurm", 2, 2, 3, "slurm-1-0"))
    assert third.of_nobody(failed=False)
    assert not third.of_nobody(failed=False), "it is told once"
    unknown = Folder(tmp_path / "other", LaunchedRank("mpi", 0, 0, None, "mpi-1"))
    assert not unknown.of_nobody(failed=False), "nobody says how many ranks there are"


# mpirun after the failure of a rank: SIGTERM to the process group of each, and soon SIGKILL.
KILLER = """
import os, signal, subprocess, sys, time
workers = []
for rank in (0, 1):
    environment = {**os.environ, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2",
                   "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    workers.append(subprocess.Popen(sys.argv[1:], env=environment, process_group=0))
workers[1].wait()
for number, pause in ((signal.SIGTERM, 2), (signal.SIGKILL, 0)):
    os.killpg(workers[0].pid, number)
    time.sleep(pause)
workers[0].wait()
sys.exit(workers[1].returncode)
"""
FAIL = """
import os, sys, time
from postrun import capture
for i in range(4):
    with capture.annotate("step", value=i):
        time.sleep(0.05)
    capture.counter("loss", 10 * int(os.environ["OMPI_COMM_WORLD_RANK"]) + i)
time.sleep(1 if os.environ["OMPI_COMM_WORLD_RANK"] == "1" else 60)
sys.exit(5)
"""


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["mpirun", "own"])
def test_a_launcher_that_kills_the_recorder_does_not_end_the_report(work: Path, launcher: str) -> None:
    (work / "launch.py").write_text(KILLER, "utf-8")
    (work / "train.py").write_text(FAIL, "utf-8")
    start = [sys.executable, "launch.py"]
    if launcher == "mpirun":
        start = [shutil.which("mpirun") or "", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe", "-n", "2"]
        if not start[0] or run(*start, "true", cwd=work).returncode != 0:
            pytest.skip("mpirun starts nothing here (Debian, Ubuntu: openmpi-bin)")
    done = run(*start, *RECORD, "--out", "run", *REPORT, "--", *TRAINING, cwd=work)
    assert done.returncode == 5, done.stderr
    assert "the report is still being made, in run/report (else: postrun report run)" in done.stderr
    actual = work / "run" / "report" / "report.json"
    until = time.monotonic() + 100
    while not actual.exists() and time.monotonic() < until:
        time.sleep(0.1)
    report = check(work / "run", 2, recorders=2, status="failed")
    assert any("Rank 1" in note["message"] and "exit code 5" in note["message"] for note in report["data_quality"])


@pytest.mark.slow
def test_a_rank_that_is_asked_to_end_while_it_reports_goes_on(work: Path) -> None:
    environment = {**CLEAN, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    command = [*RECORD, "--out", "run", *REPORT, "--", "true"]
    with subprocess.Popen(command, cwd=work, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + 60
            while not list((work / "run").glob(".postrun-run/*.said")) and time.monotonic() < until:
                time.sleep(0.01)
            process.terminate()
            _, errors = process.communicate(timeout=100)
        finally:
            process.kill()
    assert process.returncode == 0
    asked = errors.index("postrun: asked to end; the report is still being made, in run/report")
    rest = errors[asked:].splitlines()
    assert str(work / "run" / "report" / "report.json") in rest
    assert (work / "run" / "report" / "report.json").exists()
    assert not list((work / "run").glob(".postrun-run/*.said"))


# -- messages of the launcher ----------------------------------------------------------------------------------------------

SLURM = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "2"}
TORCHRUN = {"RANK": "9", "LOCAL_RANK": "1", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "n0"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, LaunchedRank(None, None, None, None, "")),
        (SLURM, LaunchedRank("slurm", 3, 1, 8, "slurm-77-2")),
        (
            {key: value for key, value in SLURM.items() if key != "SLURM_STEP_ID"},
            LaunchedRank(None, None, None, None, ""),
        ),  # a batch script
        (SLURM | TORCHRUN, LaunchedRank("torchrun", 9, 1, 16, "torchrun-x", again=True)),
        (TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "2"}, LaunchedRank("torchrun", 9, 1, 16, "torchrun-x", 2, again=True)),
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}, LaunchedRank("torchrun", 9, 1, 16, "torchrun-none-n0")),
        ({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "n0"}, LaunchedRank("launch", 1, None, 4, "launch-n0")),  # not by torchrun
        ({"RANK": "x", "PMI_RANK": "1", "PMI_SIZE": "2"}, LaunchedRank("mpi", 1, None, 2, "")),
        ({"RANK": "-1"}, LaunchedRank(None, None, None, None, "")),
    ],
)
def test_which_rank_of_which_launch(environment: dict[str, str], expected: LaunchedRank) -> None:
    assert launched_rank(environment) == expected


def test_recorders_that_cannot_find_each_other_ask_for_a_folder(tmp_path: Path) -> None:
    with pytest.raises(PostrunError, match="give all of them the same --out"):
        default_folder("train", LaunchedRank("mpi", 1, None, 2, ""), tmp_path)


def test_one_rank_of_each_machine_samples_where_the_launcher_does_not_number_them(tmp_path: Path) -> None:
    folders = [Folder(tmp_path / "run", LaunchedRank("mpi", rank, None, 3, "mpi-1")) for rank in range(3)]
    assert [folder.samples() for folder in folders] == [True, False, False]


def test_a_folder_is_of_one_launch_and_each_rank_is_there_once(tmp_path: Path) -> None:
    first = Folder(tmp_path / "run", LaunchedRank("slurm", 0, 0, 2, "slurm-1-0"))
    second = Folder(tmp_path / "run", LaunchedRank("slurm", 1, 1, 2, "slurm-1-0"))
    assert first.unfinished() == [1]
    for another in (
        LaunchedRank("slurm", 1, 1, 2, "slurm-1-0"),
        LaunchedRank("slurm", 2, 0, 2, "slurm-2-0"),
        LaunchedRank(None, None, None, None, ""),
    ):
        with pytest.raises(PostrunError, match="holds a recording already"):
            Folder(tmp_path / "run", another)
    second.ended()
    assert first.unfinished() == []
    Folder(tmp_path / "run", LaunchedRank("slurm", 1, 1, 2, "slurm-1-0", attempt=1))  # started again by the launcher


def test_ranks_that_are_started_again_join_the_folder_though_nobody_counts(tmp_path: Path) -> None:
    where = [LaunchedRank("torchrun", rank, 0, 2, "torchrun-x", again=True) for rank in range(2)]
    first, second = (Folder(tmp_path / "run", one) for one in where)
    with pytest.raises(PostrunError, match="of the same rank"):
        Folder(tmp_path / "run", where[1])  # the first one is still there
    first.ended()
    second.ended()
    again = Folder(tmp_path / "run", where[0])
    assert again.unfinished() == []
    another = Folder(tmp_path / "run", where[1])
    assert again.unfinished() == [1]
    another.ended()
    assert again.unfinished() == []


def test_a_rank_whose_recorder_died_is_not_waited_for(tmp_path: Path) -> None:
    first = Folder(tmp_path / "run", LaunchedRank("slurm", 0, 0, 2, "slurm-1-0"))
    code = "from postrun.native.record.ranks import *; Folder(Path('run'), LaunchedRank('slurm', 1, 1, 2, 'slurm-1-0'))"
    assert run(sys.executable, "-P", "-c", code, cwd=tmp_path).returncode == 0
    assert (tmp_path / "run" / ".postrun-run" / "rank-1").exists()
    assert first.unfinished() == []
