"""postrun record as users see it: the command runs as if started directly, and its folder records the run."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prt_reader import read

_native = pytest.importorskip("postrun.native._native", reason="the C library was not built")

RECORD = [sys.executable, "-P", "-m", "postrun", "record"]
TRAIN = """
import time
from postrun import capture
for i in range(8):
    with capture.annotate("step", value=i):
        time.sleep(0.01)
"""
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("POSTRUN_", "SLURM_", "OMPI_", "PMI"))}


@pytest.fixture(autouse=True)
def quit_ends_programs() -> Iterator[None]:
    """Reset SIGQUIT for the jobs of these tests.

    Programs that a shell starts in the background (``make test &`` in a script) ignore it.
    """
    before = signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGQUIT, before)


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes, and ends them by their id when the test is over."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*command: str | Path, **settings: Any) -> subprocess.Popen[bytes]:
        settings = {"env": CLEAN, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
        running.append(subprocess.Popen([str(one) for one in command], **settings))
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def record(*arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*RECORD, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**CLEAN, **(env or {})}, timeout=120, check=False)


def python(code: str) -> list[str]:
    return [sys.executable, "-P", "-c", code]


def files(folder: Path) -> list[dict[str, list[dict[str, Any]]]]:
    """The trace files of a folder, as the second reader of the format reads them."""
    return [read(path.read_bytes()) for path in sorted(folder.glob("*.prt"))]


def facts(file: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    return {row["key"]: row["value"] for row in file["meta"]}


def recorded_facts(folder: Path) -> dict[str, str]:
    """Return the facts in the recorder's file."""
    return next(found for file in files(folder) if "job.command" in (found := facts(file)))


def steps_of(folder: Path) -> list[int]:
    return sorted(row["value"] for file in files(folder) for row in file["annotation"] if row["name"] == "step")


def loaded(folder: Path) -> dict[str, Any]:
    """The run as the run store has it, with its notes."""
    from postrun.ingest import ingest

    with ingest([folder]) as store:
        run = store.frame("SELECT * FROM run").row(0, named=True)
        notes = store.frame("SELECT severity, code, message FROM ingest_note ORDER BY ALL").rows()
        steps = store.frame("SELECT p.rank, s.index FROM step s JOIN process p ON p.id = s.process ORDER BY ALL").rows()
        processes = store.frame("SELECT pid, rank, local_rank, world_size FROM process ORDER BY rank, pid").rows()
        machines = store.frame("SELECT count(*) FROM sample WHERE metric = 'memory_used_percent'").item()
        counters = store.frame("SELECT metric, unit, value FROM sample WHERE starts_with(metric, 'counter.') ORDER BY ALL").rows()
        memory = store.frame("SELECT memory_bytes FROM node").to_series().to_list()
    return {**run, "notes": notes, "memory": memory, "steps": steps, "processes": processes, "samples": machines, "counters": counters}


def codes(run: Mapping[str, Any]) -> set[str]:
    return {code for _, code, _ in run["notes"]} - {"not_captured"}


# -- what is written -------------------------------------------------------------------------------------------------------


def test_a_job_is_recorded_with_its_facts_and_its_annotations(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"optimizer": {"lr": 0.1, "name": "sgd"}, "layers": [1, 2], "debug": false}', "utf-8")
    before = time.time_ns()
    done = record("--out", "run", "--params", "p.json", "--param", "epochs=3", "--param", "optimizer.lr=0.2", "--name", "mine", "--",
                  *python("print('out')\n" + TRAIN), cwd=tmp_path)  # fmt: skip
    after = time.time_ns()
    assert (done.returncode, done.stdout) == (0, "out\n")
    lines = done.stderr.splitlines()
    assert re.fullmatch(r"postrun: recorded 8 steps \(annotations\), 1 process, [\d,\u2009]+ values? of machine metrics", lines[0])
    assert lines[1:] == ["postrun: recorded to run; report it with: postrun report run"]
    known = recorded_facts(tmp_path / "run")
    assert {key: value for key, value in known.items() if key.startswith("param.")} == {
        "param.optimizer.lr": "0.2", "param.optimizer.name": "sgd", "param.layers": "[1, 2]", "param.debug": "false", "param.epochs": "3",
    }  # fmt: skip
    assert (known["job.exit_code"], known["job.name"], known["job.directory"]) == ("0", "mine", str(tmp_path))
    assert known["job.command"].startswith(f"{sys.executable} -P -c 'print(")
    assert before < int(known["job.started_ns"]) < int(known["job.ended_ns"]) < after
    assert known["sample_ms"] == "500"
    assert steps_of(tmp_path / "run") == list(range(8))
    assert [facts(file)["sample_ms"] for file in files(tmp_path / "run") if file["annotation"]] == ["0"]
    run = loaded(tmp_path / "run")
    assert (run["name"], run["status"]) == ("mine", "completed")
    assert json.loads(run["hyperparameters"])["optimizer.lr"] == "0.2"
    assert json.loads(run["metadata"])["job.exit_code"] == "0"
    assert len(run["processes"]) == 1, "the recorder itself is no process of the job"
    assert codes(run) == set()
    meminfo = Path("/proc/meminfo").read_text("utf-8").split()
    assert run["memory"] == [int(meminfo[1]) * 1024]


@pytest.mark.slow
@pytest.mark.parametrize(("modules", "framework"), [(["torch"], "PyTorch"), (["jax"], "JAX"), (["torch", "tensorflow"], None), ([], None)])
def test_the_framework_is_what_the_job_had_imported(modules: list[str], framework: str | None, tmp_path: Path) -> None:
    for name in modules:
        (tmp_path / f"{name}.py").write_text("")
    imports = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + "".join(f"import {name}\n" for name in modules)
    imports += "import postrun.capture as c\n"
    code = imports + "with c.annotate('step', value=0): pass"
    assert record("--out", tmp_path / "run", *python(code), cwd=tmp_path).returncode == 0
    assert loaded(tmp_path / "run")["framework"] == framework
    program = imports + f"with c.session({str(tmp_path / 'own')!r}):\n    with c.annotate('step', value=0): pass"
    subprocess.run(python(program), check=True, cwd=tmp_path)
    assert loaded(tmp_path / "own")["framework"] == framework


def test_windows_that_no_process_of_the_job_recorded_are_told(tmp_path: Path) -> None:
    windows = {"DataloaderProfilingConfig": {"StartStep": 3, "NumSteps": 2}, "PythonProfilingConfig": {"StartStep": 9}}
    (tmp_path / "c.json").write_text(json.dumps({"ProfilingParameters": windows}), "utf-8")
    why = "no process of the job annotated steps or trained with PyTorch"
    done = record("--out", "run", "--profiler-config", "c.json", "--", *python("pass"), cwd=tmp_path)
    assert f"postrun: data-loader profiling and Python profiling recorded nothing: {why}\n" in done.stderr
    run = loaded(tmp_path / "run")
    metadata = json.loads(run["metadata"])
    assert {key: metadata.get(f"profiling.{key}") for key in ("loader", "loader.recorded", "python.recorded", "detailed.recorded")} == {
        "loader": "steps 3 to 4", "loader.recorded": f"nothing: {why}", "python.recorded": f"nothing: {why}", "detailed.recorded": None,
    }  # fmt: skip
    note = ("warning", "profiling_left_out", f"Data-loader profiling and Python profiling recorded nothing: {why}.")
    assert note in run["notes"]


def test_what_a_process_says_of_its_windows_is_not_said_for_it(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"ProfilingParameters": {"DataloaderProfilingConfig": {"StartStep": 3}}}', "utf-8")
    done = record("--out", "run", "--profiler-config", "c.json", "--", *python(TRAIN), cwd=tmp_path)
    why = "the program has not imported PyTorch's data loaders"
    assert f"data-loader profiling: {why}" in done.stderr
    assert "no process of the job" not in done.stderr
    assert json.loads(loaded(tmp_path / "run")["metadata"])["profiling.loader.recorded"] == f"nothing: {why}"


def test_a_configuration_that_the_environment_names_makes_no_windows_of_the_recorder(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"ProfilingParameters": {"PythonProfilingConfig": {"StartStep": 1, "NumSteps": 2}}}', "utf-8")
    named = {"POSTRUN_PROFILER_CONFIG": str(tmp_path / "c.json")}
    done = record("--out", "run", "--", *python(TRAIN), cwd=tmp_path, env=named)
    assert (done.returncode, "profiled" in done.stderr) == (0, False), done.stderr
    recorded = [facts(one).get("profiling.python.recorded") for one in files(tmp_path / "run")]
    assert sorted(recorded, key=str) == [None, "steps 1 to 2"]


@pytest.mark.slow
def test_files_of_the_job_and_of_the_recorder_end_at_the_age_that_the_configuration_says(tmp_path: Path) -> None:
    """No part of it is missing in what is read, and each part can be read alone."""
    (tmp_path / "c.json").write_text('{"ProfilingParameters": {"SMPFileRotationSecs": "1"}}', "utf-8")
    train = TRAIN.replace("range(8)", "range(50)").replace("0.01", "0.05")
    arguments = ("--profiler-config", "c.json", "--interval-ms", "100", "--", *python(train))
    assert record("--out", "run", *arguments, cwd=tmp_path).returncode == 0
    parts = files(tmp_path / "run")
    assert sum("job.command" in facts(part) for part in parts) >= 2
    assert sum(bool(part["annotation"]) for part in parts) >= 2
    assert all(part["annotation"] or part["metric"] for part in parts)
    assert steps_of(tmp_path / "run") == list(range(50))
    run = loaded(tmp_path / "run")
    assert (run["status"], codes(run)) == ("completed", set())
    assert [index for _, index in run["steps"]] == list(range(50))
    assert len(run["processes"]) == 1
    assert json.loads(run["metadata"])["job.exit_code"] == "0"
    samples = [row["time_ns"] for part in parts for row in part["metric"] if row["metric"] == "memory_used_percent"]
    assert run["samples"] == len(samples) == len(set(samples)) >= 10


def test_a_recorder_with_several_files_says_that_nothing_else_was_recorded(tmp_path: Path) -> None:
    done = record("--out", "run", "--interval-ms", "100", "--", "sleep", "1.6", cwd=tmp_path, env={"POSTRUN_ROTATE_S": "1"})
    assert len(files(tmp_path / "run")) >= 2
    assert "only the machine was recorded" in done.stderr


def test_the_default_folder_is_named_by_script_and_time(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("", "utf-8")
    for _ in range(2):
        assert record("-q", "--", sys.executable, "train.py", "--x", cwd=tmp_path).returncode == 0
    first, second = sorted((tmp_path / "postrun-runs").iterdir())
    assert first.name.startswith("train-")
    assert len(first.name) == len("train-20260101-000000")
    assert second.name > first.name
    assert recorded_facts(first)["job.command"].endswith("train.py --x")


@pytest.mark.slow
def test_a_program_that_knows_nothing_of_postrun_is_reported_and_the_report_says_how_to_see_more(tmp_path: Path) -> None:
    done = record("--out", "run", "--report", "--format", "json", "--interval-ms", "100", "--", "sleep", "0.5", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == ""
    assert "run/report/report.json" in done.stderr
    report = json.loads((tmp_path / "run" / "report" / "report.json").read_bytes())
    assert report["run"]["status"] == "completed"
    notes = {note["code"]: note["message"] for note in report["data_quality"]}
    assert "capture.annotate" in notes["only_system"]
    assert report["run"]["metadata"]["job.command"] == "sleep 0.5"
    assert [node["hostname"] for node in report["nodes"]] == [recorded_facts(tmp_path / "run")["host"]]


def test_without_sampling_only_what_the_job_says_is_recorded(tmp_path: Path) -> None:
    assert record("-q", "--out", "run", "--interval-ms", "0", "--", *python(TRAIN), cwd=tmp_path).returncode == 0
    assert all(file["metric"] == [] for file in files(tmp_path / "run"))
    run = loaded(tmp_path / "run")
    assert (run["status"], len(run["steps"]), codes(run)) == ("completed", 8, set())


CUSTOM = """
import warnings
warnings.simplefilter("error")
from postrun import capture
def step(i):
    with capture.annotate("step", value=i):
        pass
with capture.session("elsewhere"):
    step(1)
profiler, config = capture.SMProfiler.instance(), capture.Config({"EnableCuda": "0"})
profiler.configure(config)
profiler.start_profiling()
step(2)
profiler.stop_profiling()
step(99)
profiler.configure(config)
profiler.start_profiling()
step(3)
profiler.stop_profiling()
with capture.session("elsewhere", sample_ms=100):
    step(4)
"""


def test_a_script_with_sessions_of_its_own_records_into_the_folder_without_a_warning(tmp_path: Path) -> None:
    done = record("-q", "--out", "run", "--", *python(CUSTOM), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert steps_of(tmp_path / "run") == [1, 2, 3, 4], "after stop_profiling nothing is recorded until the next start"
    assert not (tmp_path / "elsewhere").exists()
    assert [len(file["metric"]) for file in files(tmp_path / "run") if "job.command" not in facts(file)] == [0, 0, 0]
    assert len(loaded(tmp_path / "run")["processes"]) == 1


WORKERS = """
import multiprocessing, subprocess, sys
from postrun import capture
def work(i):
    with capture.annotate("step", value=i):
        pass
if __name__ == "__main__":
    for i, method in enumerate(["fork", "spawn"]):
        worker = multiprocessing.get_context(method).Process(target=work, args=(i,))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
    subprocess.run([sys.executable, "-P", "-c", "from postrun import capture; capture.begin('step', 2); capture.end()"], check=True)
    work(3)
"""


def test_workers_by_fork_by_spawn_and_as_programs_record_too(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(WORKERS, "utf-8")
    done = record("-q", "--out", "run", "--", sys.executable, "-P", "job.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert steps_of(tmp_path / "run") == [0, 1, 2, 3]
    run = loaded(tmp_path / "run")
    assert len(run["processes"]) == 4
    assert codes(run) == set()


def test_a_command_of_postrun_inside_of_a_job_is_not_recorded(tmp_path: Path) -> None:
    script = f"{sys.executable} -P -m postrun inspect run/*.prt"
    assert record("-q", "--out", "run", "--", "sh", "-c", script, cwd=tmp_path).returncode == 0
    assert len(files(tmp_path / "run")) == 1


# -- how it ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "note"), [(3, "failed", "exit code 3"), (143, "stopped", "exit code 143"), (0, "completed", None)]
)
def test_the_exit_code_passes_through(code: int, status: str, note: str | None, tmp_path: Path) -> None:
    done = record("-q", "--out", "run", "--", "sh", "-c", f"exit {code}", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    run = loaded(tmp_path / "run")
    assert run["status"] == status
    messages = [message for _, one, message in run["notes"] if one.startswith("job_")]
    assert messages == ([] if note is None else [messages[0]])
    assert all(str(note) in message for message in messages)


def test_a_killed_job_is_told_and_the_recorder_dies_of_the_same_signal(tmp_path: Path) -> None:
    kill = "import os, signal, time\n" + TRAIN + "time.sleep(0.2)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    done = record("-q", "--out", "run", "--report", "--format", "json", "--", *python(kill), cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert recorded_facts(tmp_path / "run")["job.signal"] == "SIGKILL"
    assert steps_of(tmp_path / "run") == list(range(8))
    report = json.loads((tmp_path / "run" / "report" / "report.json").read_bytes())
    assert report["run"]["status"] == "failed"
    assert any("ended by SIGKILL after" in text for text in report["summary"]["warnings"])


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT])
def test_a_signal_to_the_recorder_reaches_the_job_and_ends_both(
    sent: signal.Signals, tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    job = started(*RECORD, "-q", "--out", "run", "--", "sh", "-c", "echo ready; exec sleep 60", cwd=tmp_path)
    assert job.stdout is not None
    assert job.stdout.readline() == b"ready\n"
    job.send_signal(sent)
    assert job.wait(30) == -sent
    assert recorded_facts(tmp_path / "run")["job.signal"] == sent.name
    assert loaded(tmp_path / "run")["status"] == "stopped"


STUBBORN = """
import os, signal, sys, time
come, told = os.pipe()  # a byte for each signal; handlers in Python may run once for two
os.set_blocking(told, False)
signal.set_wakeup_fd(told)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
    signal.signal(number, lambda *_: None)
print("ready", flush=True)
count = len(os.read(come, 1))
print("came", flush=True)
time.sleep(0.5)
os.set_blocking(come, False)
try:
    count += len(os.read(come, 100))
except BlockingIOError:
    pass
print(count, flush=True)
sys.exit(7)
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2])
def test_a_job_that_handles_a_signal_gets_it_once_and_goes_on(
    sent: signal.Signals, tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    job = started(*RECORD, "-q", "--out", "run", "--", *python(STUBBORN), cwd=tmp_path)
    assert job.stdout is not None
    assert job.stdout.readline() == b"ready\n"
    job.send_signal(sent)
    assert (job.stdout.readline(), job.stdout.readline()) == (b"came\n", b"1\n")
    assert job.wait(30) == 7


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGUSR2])
def test_a_signal_to_all_processes_of_the_job_is_not_passed_on_once_more(
    sent: signal.Signals, tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """As of timeout, mpirun, schedulers, systemd."""
    job = started(*RECORD, "-q", "--out", "run", "--", *python(STUBBORN), cwd=tmp_path, process_group=0)
    assert job.stdout is not None
    assert job.stdout.readline() == b"ready\n"
    job.send_signal(signal.SIGSTOP)  # two that come at once would be one
    os.killpg(job.pid, sent)
    assert job.stdout.readline() == b"came\n"
    job.send_signal(signal.SIGCONT)
    assert job.stdout.readline() == b"1\n"
    assert job.wait(30) == 7
    with pytest.raises(ProcessLookupError):
        os.killpg(job.pid, 0)


@pytest.mark.slow
def test_timeout_ends_a_job_with_one_signal(tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]]) -> None:
    """It signals the recorder, and at once the whole group."""
    job = started("timeout", "5", *RECORD, "-q", "--out", "run", "--", *python(STUBBORN), cwd=tmp_path)
    assert job.stdout is not None
    assert job.stdout.read() == b"ready\ncame\n1\n"
    assert job.wait(30) == 124


def test_the_job_begins_with_the_signals_that_a_shell_gives_it(tmp_path: Path) -> None:
    show = ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]
    direct = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    recorded = record("-q", "--out", "run", "--", *show, cwd=tmp_path).stdout
    reserved = 1 << 31 | 1 << 32  # signals 32 and 33 are the C library's; it ignores them in what it spawns
    kinds = [[(line.split()[0], int(line.split()[1], 16) & ~reserved) for line in text.splitlines()] for text in (direct, recorded)]
    assert kinds[0] == kinds[1]
    assert [kind for kind, _ in kinds[0]] == ["SigBlk:", "SigIgn:"]


def test_descriptors_input_and_environment_pass_through(tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]]) -> None:
    ours, theirs = os.pipe()
    show = f"""import os, sys
print(sys.stdin.read(), os.environ["POSTRUN_CAPTURE"], os.environ["POSTRUN_DIR"], os.environ["MINE"])
os.write({theirs}, b"held")"""
    job = started(*RECORD, "-q", "--out", "run", "--", *python(show), cwd=tmp_path, stdin=subprocess.PIPE, pass_fds=[theirs],
                  env={**CLEAN, "MINE": "caf\u00e9"})  # fmt: skip
    os.close(theirs)
    out, error = job.communicate(b"given", 30)
    assert (out.decode(), error) == (f"given 1 {tmp_path}/run caf\u00e9\n", b"")
    with os.fdopen(ours, "rb") as pipe:
        assert pipe.read() == b"held"


def test_the_job_goes_on_when_the_recorder_is_killed(tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]]) -> None:
    code = TRAIN + "print('ready', flush=True)\ninput()\nopen('after', 'w').close()\nprint('done', flush=True)"
    job = started(*RECORD, "-q", "--out", "run", "--", *python(code), cwd=tmp_path, stdin=subprocess.PIPE)
    assert job.stdout is not None
    assert job.stdin is not None
    assert job.stdout.readline() == b"ready\n"
    job.kill()
    job.wait(30)
    job.stdin.write(b"\n")
    job.stdin.close()
    assert job.stdout.readline() == b"done\n"
    assert (tmp_path / "after").exists()
    run = loaded(tmp_path / "run")
    assert {"job_end_unknown", "no_end"} <= codes(run)
    assert (run["status"], len(run["steps"])) == ("partial", 8)


# -- terminal --------------------------------------------------------------------------------------------------------------


def in_terminal(*command: str, cwd: Path) -> tuple[int, int]:
    """Start a command as the first of a terminal; return pid and terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execve(command[0], list(command), CLEAN)
    return pid, terminal


def until(terminal: int, text: bytes) -> bytes:
    output = b""
    while text not in output:
        try:
            more = os.read(terminal, 4096)
        except OSError:
            more = b""
        assert more, output
        output += more
    return output


def end_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_ctrl_c_reaches_the_job_once(tmp_path: Path) -> None:
    pid, terminal = in_terminal(*RECORD, "-q", "--out", "run", "--", *python(STUBBORN), cwd=tmp_path)
    try:
        until(terminal, b"ready")
        os.write(terminal, b"\x03")
        assert until(terminal, b"1\r\n")
        assert end_of(pid) == 7
    finally:
        os.close(terminal)


def test_ctrl_c_ends_a_job_that_does_not_handle_it_as_it_would_without_a_recorder(tmp_path: Path) -> None:
    pid, terminal = in_terminal(*RECORD, "--out", "run", "--", "sh", "-c", "echo ready; sleep 60", cwd=tmp_path)
    try:
        until(terminal, b"ready")
        os.write(terminal, b"\x03")
        assert until(terminal, b"postrun report run")
        assert end_of(pid) == -signal.SIGINT
    finally:
        os.close(terminal)
    assert recorded_facts(tmp_path / "run")["job.signal"] == "SIGINT"


SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(pid, os.WUNTRACED)
print("stopped", os.WIFSTOPPED(status), flush=True)
os.tcsetpgrp(0, pid)
os.killpg(pid, signal.SIGCONT)
_, status = os.waitpid(pid, 0)
os.tcsetpgrp(0, os.getpid())
print("ended", os.waitstatus_to_exitcode(status), flush=True)
"""


def test_ctrl_z_stops_job_and_recorder_and_the_shell_continues_both(tmp_path: Path) -> None:
    command = [*RECORD, "-q", "--out", "run", "--", "sh", "-c", "echo ready; read line; exit 9"]
    pid, terminal = in_terminal(sys.executable, "-c", SHELL, *command, cwd=tmp_path)
    try:
        until(terminal, b"ready")
        os.write(terminal, b"\x1a")
        until(terminal, b"stopped True")
        os.write(terminal, b"go\n")
        until(terminal, b"ended 9")
        assert end_of(pid) == 0
    finally:
        os.close(terminal)


# -- what cannot be started ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--", "no-such-command-here"], 127, "no-such-command-here: command not found"),
        (["--", "./absent"], 127, "./absent: cannot be found"),
        (["--", "./plain"], 126, "./plain: is not a file that can be executed"),
        (["--", "./folder"], 126, "./folder: is not a file that can be executed"),
        (["--", "./broken"], 127, "./broken: the interpreter of its first line is not there"),
        (["--", ""], 127, "command not found"),
        (["--interval-ms", "300", "--", "true"], 2, "choose from 0, 100, 200, 500, 1000, 5000, 60000"),
        (["--interval-ms", "fast", "--", "true"], 2, "choose from 0, 100"),
        (["--param", "lr", "--", "true"], 2, "'lr' is not a parameter; write it like learning_rate=0.1"),
        (["--param", "=1", "--", "true"], 2, "is not a parameter"),
        (["--params", "absent.json", "--", "true"], 2, "absent.json: cannot be read"),
        (["--params", "bad.json", "--", "true"], 2, "bad.json: no valid JSON: Expecting ',' delimiter in line 2, column 1"),
        (["--params", "bad.toml", "--", "true"], 2, "bad.toml: no valid TOML"),
        (["--params", "list.json", "--", "true"], 2, "list.json: holds a list, not an object"),
        (["--format", "doc", "--", "true"], 2, "doc is not a report format"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_cannot_be_started_is_told_and_leaves_nothing_behind(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x", "utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n", "utf-8")
    (tmp_path / "broken").chmod(0o755)
    (tmp_path / "bad.json").write_text('{"a": 1\n"b": 2}', "utf-8")
    (tmp_path / "bad.toml").write_text("a = \n", "utf-8")
    (tmp_path / "list.json").write_text("[1]", "utf-8")
    done = record("--out", "new/run", *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new" / "run").exists()


def test_a_script_without_an_interpreter_line_runs_as_in_a_shell(tmp_path: Path) -> None:
    (tmp_path / "script").write_text('echo "$1"', "utf-8")
    (tmp_path / "script").chmod(0o755)
    assert record("-q", "--out", "run", "--", "./script", "given", cwd=tmp_path).stdout == "given\n"


def test_a_folder_with_a_recording_is_refused_and_one_with_other_files_is_not(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine", "utf-8")
    assert record("-q", "--out", "run", "--", "true", cwd=tmp_path).returncode == 0
    again = record("-q", "--out", "run", "--", "touch", "started", cwd=tmp_path)
    assert again.returncode == 125
    assert "holds a recording already" in again.stderr
    assert "--out" in again.stderr
    assert not (tmp_path / "started").exists()
    (tmp_path / "other").mkdir()
    shutil.copy(next((tmp_path / "run").glob("*.prt")), tmp_path / "other")
    assert record("-q", "--out", "other", "--", "true", cwd=tmp_path).returncode == 125
    assert not (tmp_path / "other" / ".postrun-run").exists()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    for out in ("file/run", "/proc/run"):
        done = record("--out", out, "--", "touch", "started", cwd=tmp_path)
        assert done.returncode == 125
        assert "choose another" in done.stderr
    assert record("--out", "file", "--", "touch", "started", cwd=tmp_path).returncode == 2
    assert not (tmp_path / "started").exists()


def test_without_the_c_library_the_command_is_not_started(tmp_path: Path) -> None:
    code = "import sys; sys.modules['postrun.native._native'] = None; from postrun.cli import main; main()"
    command = [sys.executable, "-P", "-c", code, "record", "--out", "run", "--", "touch", "started"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=CLEAN, check=False)
    assert done.returncode == 125
    assert "needs the C library" in done.stderr
    assert sorted(tmp_path.iterdir()) == []


def test_a_full_disk_ends_the_recording_and_not_the_job(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", path], check=False).returncode != 0:
        pytest.skip("a small tmpfs cannot be mounted here")
    try:
        code = "import os\nos.system('head -c 1000000 /dev/zero > small/fill')\n" + TRAIN + "print('done')"
        done = record("--out", "small/run", "--interval-ms", "100", "--", *python(code), cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "done\n")
        assert "No space left on device" in done.stderr
    finally:
        subprocess.run(["umount", path], check=True)


def test_a_report_that_fails_keeps_the_exit_code_of_the_job(tmp_path: Path) -> None:
    code = "import os, pathlib\npathlib.Path(os.environ['POSTRUN_DIR'], 'report').write_text('a file')\nraise SystemExit(6)"
    done = record("--out", "run", "--report", "--", *python(code), cwd=tmp_path)
    assert done.returncode == 6
    assert "the report was not made (exit code " in done.stderr
    assert "try again with: postrun report run" in done.stderr


@pytest.mark.slow
def test_a_job_of_which_only_its_end_is_known_is_reported(tmp_path: Path) -> None:
    done = record("--out", "run", "--report", "--interval-ms", "0", "--", "sh", "-c", "exit 6", cwd=tmp_path)
    assert done.returncode == 6
    assert "The job ended with exit code 6" in done.stderr
    assert (tmp_path / "run" / "report" / "report.json").is_file()
