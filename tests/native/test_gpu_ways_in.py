"""`postrun record` and postrun.capture record GPU activity exactly, and only when they should.

Programs in the role of CUDA programs run with stub libraries, built here from the vendor's headers. The stub of the driver loads the
library of CUDA_INJECTION64_PATH like the driver; the stub of CUPTI plays a text whose numbers the report must show.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import stub_libraries
from native_programs import Programs, environment
from prt_reader import read

native = pytest.importorskip("postrun.native", reason="postrun is not installed")
if not native.available():
    pytest.skip("the C library was not built", allow_module_level=True)

VERSION = "12.4"
RECORD = [sys.executable, "-P", "-m", "postrun", "record", "--interval-ms", "0"]
MS = 1_000_000
GEMM, RELU = "volta_sgemm_128x64_nn", "relu_kernel"
KERNELS = {GEMM: 2 * MS, RELU: MS // 2}  # ns of one run
LATENCY = {GEMM: MS // 10, RELU: 2 * MS}  # from the start of the launch to the start of the run
COPIED = 4096 * 1024
# One iteration, in ns after its start; {n}: 10 times its number, {tid}: of the thread.
PLAYED = f"""\
runtime cudaLaunchKernel_v7000 {MS} {MS + 20000} {{tid}} {{n}}1
kernel {GEMM} {MS + LATENCY[GEMM]} {MS + LATENCY[GEMM] + KERNELS[GEMM]} 0 1 7 {{n}}1 128 2 1 256 1 1 64 0 0 0
runtime cudaLaunchKernel_v7000 {2 * MS} {2 * MS + 10000} {{tid}} {{n}}2
kernel {RELU} {2 * MS + LATENCY[RELU]} {2 * MS + LATENCY[RELU] + KERNELS[RELU]} 0 1 7 {{n}}2 64 1 1 128 1 1 16 0 0 0
runtime cudaMemcpyAsync_v3020 {5 * MS} {5 * MS + 5000} {{tid}} {{n}}3
memcpy 1 2 3 {COPIED} {6 * MS} {7 * MS} 0 1 7 {{n}}3
"""
CUDA_PROGRAM = f"""
import ctypes, json, os, signal, sys, threading, time
PLAYED = {PLAYED!r}

def cupti():  # which the recorder has loaded, or not
    try:
        return ctypes.CDLL(os.environ["POSTRUN_CUPTI"], mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return None

def attached():
    library = cupti()
    return bool(library and library.stub_attached())

def left():  # nothing listens any more, which is later than the first kind being switched off
    library = cupti()
    return not (library and library.stub_listened_to())

def wait_for(wanted):
    for _ in range(3000):
        if attached() if wanted else left():
            return
        time.sleep(0.01)
    sys.exit(f"attached is not {{wanted}}")

played = []
def play(number):
    "An iteration of 10 ms; whether somebody listened."
    library = cupti()
    text = PLAYED.replace("{{tid}}", str(threading.get_native_id())).replace("{{n}}", str(number + 1))
    base = time.time_ns()
    heard = bool(library and library.stub_play(text.encode(), ctypes.c_uint64(base)))
    if heard:
        played.append(number)
    time.sleep(0.01)
    return heard

def cuda_init():
    assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0

"""
END = "\nprint(json.dumps(played))\n"


@cache
def stubs(programs: Programs) -> dict[str, str]:
    """Where the stub libraries are, as variables."""
    folder = programs.folder / "ways_in"
    folder.mkdir()
    stub_libraries.cuda(folder)
    stub_libraries.cupti(VERSION, folder / "libcupti.so.11")
    return {"LD_LIBRARY_PATH": str(folder), "POSTRUN_CUPTI": str(folder / "libcupti.so.11")}


class Machine:
    """A machine with a GPU of stubs; ``variables`` is its environment."""

    def __init__(self, variables: Mapping[str, str], folder: Path) -> None:
        not_wanted = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "STUB_")
        self.variables = {key: value for key, value in environment().items() if not key.startswith(not_wanted)} | dict(variables)
        self.variables["STUB_LOG"] = str(folder / "calls.log")
        (folder / "calls.log").touch()
        self.folder, self.out = folder, folder / "run"
        self.messages = ""

    def python(self, script: str, **variables: str) -> list[int]:
        """A CUDA program; which of its iterations were heard."""
        return self._call([sys.executable, "-P", "-W", "always", "-c", CUDA_PROGRAM + script + END], variables)

    def record(self, *options: str, script: str, **variables: str) -> list[int]:
        return self._call([*RECORD, "--out", "run", *options, "--", sys.executable, "-P", "-c", CUDA_PROGRAM + script + END], variables)

    def _call(self, command: list[str], variables: Mapping[str, str]) -> list[int]:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.folder, env={**self.variables, **variables})
        self.messages = done.stderr
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout.splitlines()[-1]))

    def files(self) -> list[dict[str, list[dict[str, Any]]]]:
        return [read(path.read_bytes()) for path in sorted(self.out.glob("*.prt"))]

    def facts(self) -> dict[str, str]:
        """Of the program, not of the recorder."""
        actual = [{row["key"]: row["value"] for row in file["meta"]} for file in self.files()]
        (facts,) = [one for one in actual if "job.command" not in one]
        return facts

    def kernels(self) -> list[int]:
        """The iterations whose kernels are there, each as often as it is."""
        runs = [row for file in self.files() for row in file["kernel"]]
        assert len(set(Counter(row["name"] for row in runs).values())) <= 1
        return sorted(row["correlation"] // 10 - 1 for row in runs if row["name"] == GEMM)

    def report(self) -> dict[str, Any]:
        created_files = self.folder / "report"
        command = [sys.executable, "-P", "-m", "postrun", "report", str(self.out), "--format", "json", "-q", "-o", str(created_files)]
        subprocess.run(command, check=True, timeout=120, env=environment())
        return dict(json.loads((created_files / "report.json").read_bytes()))

    def store(self, query: str) -> list[tuple[Any, ...]]:
        from postrun.ingest import ingest

        with ingest([self.out]) as store:
            return store.frame(query).rows()


@pytest.fixture
def machine(programs: Programs, tmp_path: Path) -> Machine:
    return Machine(stubs(programs), tmp_path)


# -- from the stub to the report -------------------------------------------------------------------------------------------

UNMODIFIED = """
cuda_init()
wait_for(True)
for number in range(3):
    play(number)
"""


@pytest.mark.slow
def test_a_program_that_knows_nothing_of_postrun_is_recorded_and_reported(machine: Machine) -> None:
    assert machine.record(script=UNMODIFIED) == [0, 1, 2]
    assert machine.messages.startswith("postrun: recorded 1 window of GPU activity with 6 kernels, 1 process, ")
    assert machine.messages.endswith("postrun: recorded to run; report it with: postrun report run\n")
    assert machine.kernels() == [0, 1, 2]
    report = machine.report()
    table = {row["name"]: (row["count"], row["total_ns"]) for row in report["kernels"]}
    assert table.keys() == KERNELS.keys()
    for name, (count, total) in table.items():
        assert (count, abs(total - 3 * KERNELS[name]) <= 3) == (3, True), "up to 1 ns a run, which conversion to the file's clock takes"
    assert (report["launches"]["calls"], report["launches"]["pairs"], report["launches"]["runs_without_launch"]) == (9, 9, 0)
    assert [(row["kind"], row["count"], row["total_bytes"]) for row in report["memory_operations"]] == [("HtoD", 3, 3 * COPIED)]
    assert [(device["name"], device["memory_bytes"]) for device in report["devices"]] == [("Stub GPU 0", 80 << 30)]
    assert (report["run"]["status"], [note["code"] for note in report["data_quality"]]) == ("completed", ["few_steps"])
    latency = machine.store(
        "SELECT n.text, e.start_ns - h.start_ns FROM device_event e JOIN host_event h USING (process, correlation)"
        " JOIN name n ON n.id = e.name WHERE e.kind = 'kernel'"
    )
    assert sorted(Counter(name for name, _ in latency).items()) == sorted(dict.fromkeys(KERNELS, 3).items())
    assert all(abs(ns - LATENCY[name]) <= 2 for name, ns in latency), "up to what rounding to the clock takes"
    assert len(machine.store("SELECT * FROM profile_window")) == 1


STEPS = """
from postrun import capture
cuda_init()
for number in range(8):
    with capture.annotate("step", value=number):
        play(number)
"""


@pytest.mark.slow
def test_steps_open_and_close_the_window(machine: Machine) -> None:
    assert machine.record("--steps", "3:5", script=STEPS) == [3, 4]
    assert machine.kernels() == [3, 4]
    report = machine.report()
    assert {row["name"]: row["count"] for row in report["kernels"]} == dict.fromkeys(KERNELS, 2)
    ((first, last),) = machine.store("SELECT first_ns, last_ns FROM profile_window")
    steps = {
        index: (start, end)
        for index, start, end in machine.store("SELECT index, host_start_ns, host_start_ns + host_duration_ns FROM step")
    }
    assert sorted(steps) == list(range(8)), "all steps are there, with or without kernels"
    assert steps[2][1] <= first <= steps[3][0] + 1
    assert steps[4][1] - 1 <= last <= steps[5][0] + 1
    calls = Path(machine.variables["STUB_LOG"]).read_text().split()
    assert calls.count("cuptiFinalize") >= 1, "outside of the window nothing is attached"


@pytest.mark.slow
def test_a_window_that_is_not_reached_is_a_warning(machine: Machine) -> None:
    assert machine.record("--steps", "100:120", script=STEPS) == []
    notes = {note["code"]: note["message"] for note in machine.report()["data_quality"]}
    assert "it was asked for in steps 100:120, but the last step that began was 7" in notes["gpu_not_captured"]


@pytest.mark.slow
def test_a_window_of_steps_where_there_are_none(machine: Machine) -> None:
    assert machine.record("--steps", "2:4", script="cuda_init()\nplay(0)") == []
    notes = {note["code"]: note["message"] for note in machine.report()["data_quality"]}
    assert "but no step began: annotate them (a range named step)" in notes["gpu_not_captured"]


SECONDS = """
from postrun import capture
cuda_init()
wait_for(True)
play(0)
wait_for(False)
play(1)
"""


def test_seconds_open_and_close_the_window(machine: Machine) -> None:
    assert machine.record("--seconds", "0.2:2.5", script=SECONDS) == [0]
    assert machine.kernels() == [0]
    facts = machine.facts()
    begin, end = map(int, facts["gpu.window.0"].split())
    assert begin < end


SIGNALS = """
recorder = os.getppid()
os.kill(os.getpid(), signal.{name})  # nothing listens yet: it must not end the program
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.{name}])
os.kill(recorder, signal.{name})
signal.sigwait([signal.{name}])  # the recorder has passed it on
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.{name}])
{begin}
cuda_init()
play(0)
time.sleep(0.2)
assert not attached()
for number in (1, 3):
    os.kill(recorder, signal.{name})
    wait_for(True)
    play(number)
    os.kill(recorder, signal.{name})
    wait_for(False)
    play(number + 1)
"""


@pytest.mark.parametrize("name", ["USR1", "USR2"])
def test_signals_to_the_recorder_open_and_close_windows(name: str, machine: Machine) -> None:
    script = SIGNALS.format(name=f"SIG{name}", begin="")
    assert machine.record("--window-signal", name, script=script) == [1, 3]
    assert machine.kernels() == [1, 3]
    assert len(machine.store("SELECT * FROM profile_window")) == 2
    assert sorted(key for key in machine.facts() if key.startswith("gpu.window.")) == ["gpu.window.0", "gpu.window.1"]


# -- the environment of the job ----------------------------------------------------------------------------------------------

AUTO = {"POSTRUN_GPU": "1", "POSTRUN_GPU_WINDOWS": "auto"}
NAMES = (
    "POSTRUN_GPU", "POSTRUN_GPU_WINDOWS", "POSTRUN_GPU_STEPS", "POSTRUN_GPU_TIME", "POSTRUN_GPU_SIGNAL", "CUDA_INJECTION64_PATH",
    "NVTX_INJECTION64_PATH",
)  # fmt: skip
SHOW = f"""
import json, os
print(json.dumps({{name: os.environ[name] for name in {NAMES} if name in os.environ}}))
"""


def variables_of(machine: Machine, *options: str, **variables: str) -> dict[str, str]:
    command = [*RECORD, "--out", "run", *options, "--", sys.executable, "-P", "-c", SHOW]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=machine.folder, env={**machine.variables, **variables})
    machine.messages = done.stderr
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {"code": str(done.returncode)}


LIBRARY = str(native.library())
INJECT, NVTX = {"CUDA_INJECTION64_PATH": LIBRARY}, {"NVTX_INJECTION64_PATH": LIBRARY}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "variables", "expected"),
    [
        ([], {}, AUTO | INJECT),
        (["--gpu"], {}, AUTO | INJECT),
        (["--gpu", "windows"], {"POSTRUN_GPU_WINDOWS": "steps=5"}, {"POSTRUN_GPU": "1", "POSTRUN_GPU_WINDOWS": "steps=5"} | INJECT),
        (["--gpu=always"], {"POSTRUN_GPU_WINDOWS": "steps=5"}, {"POSTRUN_GPU": "1"} | INJECT),
        (["--gpu", "off"], {"POSTRUN_GPU_WINDOWS": "steps=5"}, {"POSTRUN_GPU": "0"}),
        ([], {"POSTRUN_GPU": "always"}, {"POSTRUN_GPU": "1"} | INJECT),
        (["--no-gpu"], {}, {"POSTRUN_GPU": "0"}),
        (["--no-gpu"], INJECT | {"POSTRUN_GPU_STEPS": "1:2"}, {"POSTRUN_GPU": "0"}),
        (["--no-gpu"], {"CUDA_INJECTION64_PATH": "/o.so"}, {"POSTRUN_GPU": "0", "CUDA_INJECTION64_PATH": "/o.so"}),
        ([], {"NVTX_INJECTION64_PATH": "/o.so"}, AUTO | INJECT | {"NVTX_INJECTION64_PATH": "/o.so"}),
        ([], {"POSTRUN_GPU": "0"}, {"POSTRUN_GPU": "0"}),
        (["--gpu"], {"POSTRUN_GPU": "0"}, AUTO | INJECT),
        (["--steps", "1:2"], {}, {"POSTRUN_GPU": "1", "POSTRUN_GPU_STEPS": "1:2"} | INJECT),
        (["--steps", "1:2"], {"POSTRUN_GPU_TIME": "1:2"}, {"POSTRUN_GPU": "1", "POSTRUN_GPU_STEPS": "1:2"} | INJECT),
        (["--steps", "1:2"], {"POSTRUN_GPU": "0"}, {"POSTRUN_GPU": "1", "POSTRUN_GPU_STEPS": "1:2"} | INJECT),
        (["--seconds", ".5:1.25"], {}, {"POSTRUN_GPU": "1", "POSTRUN_GPU_TIME": ".5:1.25"} | INJECT),
        ([], {"POSTRUN_GPU_SIGNAL": "sigusr2"}, {"POSTRUN_GPU": "1", "POSTRUN_GPU_SIGNAL": "USR2"} | INJECT),
    ],
)  # fmt: skip
def test_the_job_is_told_by_its_environment(
    options: list[str], variables: dict[str, str], expected: dict[str, str], machine: Machine
) -> None:
    assert variables_of(machine, *options, **variables) == NVTX | expected


def test_without_a_driver_nothing_is_set_and_only_who_asked_is_told(machine: Machine) -> None:
    machine.variables["LD_LIBRARY_PATH"] = ""
    if native.gpu_driver():
        pytest.skip("this machine has a driver")
    assert variables_of(machine) == NVTX
    assert "driver" not in machine.messages
    machine.out.rename(machine.folder / "before")
    assert variables_of(machine, "--gpu") == AUTO | INJECT | NVTX
    assert machine.messages.startswith("postrun: there is no NVIDIA driver here")


@pytest.mark.parametrize("begin", ["s = capture.session('x', gpu=True)\n    s.__enter__()", "start_profiling()"])
def test_a_warning_that_is_an_error_leaves_no_session(machine: Machine, begin: str) -> None:
    machine.variables["LD_LIBRARY_PATH"] = ""
    if native.gpu_driver():
        pytest.skip("this machine has a driver")
    script = f"""
import warnings
from postrun import capture
from postrun.capture import Config, SMProfiler
warnings.simplefilter("error")
SMProfiler.instance().configure(Config(profiler={{"EnableCuda": "1"}}))
start_profiling = SMProfiler.instance().start_profiling
try:
    {begin}
except RuntimeWarning as error:
    assert "no NVIDIA driver" in str(error), error
else:
    raise SystemExit("no warning")
assert not capture.recording()
"""
    machine.python(script)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps", "5:5"], "'5:5' is not a range of steps; write A:B"),
        (["--steps", "-1:5"], "'-1:5' is not a range of steps"),
        (["--seconds", "2"], "'2' is not a range of time; write A:B in seconds"),
        (["--seconds", "1e3:2e3"], "'1e3:2e3' is not a range of time"),
        (["--window-signal", "TERM"], "'TERM' opens no window; choose USR1 or USR2"),
        (["--steps", "1:2", "--seconds", "1:2"], "--steps and --seconds exclude each other"),
        (["--window-signal", "USR1", "--no-gpu"], "--window-signal and --no-gpu exclude each other"),
    ],
)
def test_what_makes_no_sense_is_refused(options: list[str], message: str, machine: Machine) -> None:
    assert variables_of(machine, *options) == {"code": "2"}
    assert message in machine.messages
    assert not machine.out.exists()


def test_no_gpu_records_no_kernels(machine: Machine) -> None:
    script = "cuda_init()\ntime.sleep(0.2)\nplay(0)"
    assert machine.record("--no-gpu", script=script) == []
    assert machine.kernels() == []


# -- other profilers -------------------------------------------------------------------------------------------------------

WITH_OTHERS = """
from postrun import capture
cuda_init()
time.sleep(0.3)
for number in range(3):
    with capture.annotate("step", value=number):
        play(number)
"""


@pytest.mark.slow
def test_another_profiler_is_named_and_the_rest_is_recorded(machine: Machine) -> None:
    machine.record("--gpu", "always", script=WITH_OTHERS, STUB_OTHER="Kineto", NSYS_PROFILING_SESSION_ID="1")
    assert "NVIDIA Nsight Systems profiles this job" in machine.messages
    assert machine.kernels() == []
    assert machine.facts()["capability.gpu"] == "another profiler uses CUPTI: probably NVIDIA Nsight Systems"
    report = machine.report()
    notes = {note["code"]: note["message"] for note in report["data_quality"]}
    assert notes["gpu_not_captured"] == "GPU activity was not recorded: another profiler uses CUPTI: probably NVIDIA Nsight Systems."
    assert report["run"]["status"] == "completed"
    assert machine.store("SELECT index, device_events FROM step ORDER BY index") == [(0, 0), (1, 0), (2, 0)]


OWN_PROFILER = """
from enum import Enum
from types import ModuleType
Activity = Enum("Activity", ["CUDA"])
torch = sys.modules["torch.autograd.profiler"] = ModuleType("torch.autograd.profiler")
torch._enable_profiler = lambda config, activities: cupti().stub_other_subscribe(b"PyTorch", 0)
torch._disable_profiler = lambda: cupti().stub_other_finalize()

from postrun import capture
with capture.session("run", gpu=True, sample_ms=0):
    play(0)
    assert torch._enable_profiler(None, {Activity.CUDA}) == 0
    assert not play(1)
    torch._disable_profiler()
    wait_for(True)
    play(2)
"""


def test_a_profiler_that_the_program_starts_goes_first(machine: Machine) -> None:
    """It finds CUPTI free, and the recorder takes it up again afterward."""
    assert machine.python(OWN_PROFILER) == [0, 2]
    assert machine.kernels() == [0, 2]
    facts = machine.facts()
    assert facts["capability.gpu"].startswith("PyTorch's profiler was used by the program")
    assert {"gpu.window.0", "gpu.window.1"} <= set(facts)


@pytest.mark.slow
def test_an_injection_that_the_user_has_set_is_kept_and_told(machine: Machine) -> None:
    machine.record("--interval-ms", "100", script="cuda_init()", CUDA_INJECTION64_PATH="/opt/other/libToolsInjection64.so")
    assert "CUDA_INJECTION64_PATH is kept as it is set (/opt/other/libToolsInjection64.so)" in machine.messages
    assert machine.kernels() == []
    notes = " ".join(note["message"] for note in machine.report()["data_quality"])
    assert "gpu.injection (CUDA_INJECTION64_PATH is kept as it is set" in notes


def test_a_program_that_imports_postrun_needs_no_injection(machine: Machine) -> None:
    script = STEPS.replace("cuda_init()", "cuda_init(); wait_for(True)")
    assert machine.record("-q", "--gpu", "always", script=script, CUDA_INJECTION64_PATH="/none.so") == [*range(8)]
    assert machine.messages == ""
    assert machine.kernels() == [*range(8)]


# -- from Python -----------------------------------------------------------------------------------------------------------

HOSTED = """
from postrun import capture as smprof
profiler, config = smprof.SMProfiler.instance(), smprof.Config()
config.profiler = {"EnableCuda": "1"}
profiler.configure(config)
play(0)
profiler.start_profiling()
for number in range(1, 4):
    with smprof.annotate("step_" + str(number)):
        play(number)
profiler.stop_profiling()
play(4)
"""


def test_enable_cuda_records_from_start_to_stop(machine: Machine) -> None:
    assert machine.python(HOSTED, POSTRUN_DIR="run") == [1, 2, 3]
    assert machine.messages == ""
    assert machine.kernels() == [1, 2, 3]
    assert machine.store("SELECT index, device_events FROM step ORDER BY index") == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"STUB_ERRORS": "cuInit=100"}, "cuInit: CUDA_ERROR_NO_DEVICE (100)"),
        ({"STUB_DEVICES": "0"}, "no CUDA device is visible"),
        ({"STUB_OTHER": "x", "NSYS_PROFILING_SESSION_ID": "1"}, "another profiler uses CUPTI: probably NVIDIA Nsight Systems"),
        ({"POSTRUN_CUPTI": "/none/libcupti.so"}, "no CUPTI: /none/libcupti.so"),
    ],
)
def test_where_the_gpu_cannot_be_recorded_one_warning_says_why(variables: dict[str, str], reason: str, machine: Machine) -> None:
    script = HOSTED.replace("play(0)", "").replace("play(4)", "").replace("play(number)", "pass")
    machine.python(script, POSTRUN_DIR="run", **variables)
    warnings = [line for line in machine.messages.splitlines() if "RuntimeWarning" in line]
    assert len(warnings) == 1
    assert f"<string>:{(CUDA_PROGRAM + script).splitlines().index('profiler.start_profiling()') + 1}: " in warnings[0]
    assert f"RuntimeWarning: GPU activity is not recorded: {reason}" in warnings[0]
    assert machine.facts()["capability.gpu"].startswith(reason)
    assert len([row for file in machine.files() for row in file["annotation"]]) == 3


SESSIONS = """
from postrun import capture
{before}
with capture.session("run", gpu={gpu!r}, sample_ms=0):
    {inside}
    for number in range(6):
        if {windows} and number % 3 == 1:
            with capture.gpu_window():
                assert not capture.gpu_start()
                play(number)
        else:
            play(number)
"""


@pytest.mark.parametrize(
    ("gpu", "before", "inside", "windows", "heard"),
    [
        (True, "", "", False, range(6)),
        (None, "cuda_init()", "wait_for(True)", False, range(6)),
        (None, "", "cuda_init(); wait_for(True)", False, range(6)),
        (None, "", "", False, ()),
        (False, "cuda_init()", "", True, ()),
        ("windows", "cuda_init()", "", True, (1, 4)),
        ("windows", "", "cuda_init()", True, (1, 4)),
        (True, "", "capture.gpu_stop()", True, (1, 4)),
        (True, "", "", True, range(6)),
    ],
)
def test_sessions_and_windows(gpu: object, before: str, inside: str, windows: bool, heard: list[int], machine: Machine) -> None:
    script = SESSIONS.format(gpu=gpu, before=before, inside=inside or "pass", windows=windows)
    assert machine.python(script) == list(heard)
    assert machine.messages == ""
    assert machine.kernels() == list(heard)
    calls = Path(machine.variables["STUB_LOG"]).read_text().split()
    if gpu is None and not before and not inside:
        assert "cuInit" not in calls, "CUDA is left to the program"


def test_postrun_gpu_0_turns_everything_off_and_is_told_where_the_script_asks(machine: Machine) -> None:
    script = SESSIONS.format(gpu=True, before="", inside="pass", windows=True)
    assert machine.python(script, POSTRUN_GPU="0") == []
    assert machine.facts()["capability.gpu"].startswith("POSTRUN_GPU=0")


@pytest.mark.parametrize(("off", "heard"), [({}, [0]), ({"POSTRUN_GPU": "0"}, [])])
def test_an_injected_library_does_nothing_where_gpus_are_off(machine: Machine, off: dict[str, str], heard: list[int]) -> None:
    injected = {"CUDA_INJECTION64_PATH": str(native.library()), "POSTRUN_DIR": str(machine.out)}
    script = "cuda_init()\n" + ("wait_for(True)\n" if heard else "") + "play(0)"
    assert machine.python(script, **injected, **off) == heard
    assert machine.out.exists() == bool(heard)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("errors", "state", "detail"),
    [("", "ok", "CUDA and CUPTI work here"), ("cuptiSubscribe=39", "warning", "another profiler"), ("cuInit=100", "warning", "cuInit")],
)
def test_the_doctor_tries_to_record(machine: Machine, errors: str, state: str, detail: str) -> None:
    command = [sys.executable, "-P", "-m", "postrun.cli", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**machine.variables, "STUB_ERRORS": errors})
    (actual,) = [one for one in json.loads(done.stdout) if one["name"] == "GPU recording"]
    assert (actual["state"], detail in actual["detail"]) == (state, True), actual


def test_windows_of_the_script_hold_under_the_recorder(machine: Machine) -> None:
    script = "cuda_init()\nwait_for(True)\n" + SESSIONS.format(gpu="windows", before="", inside="pass", windows=True)
    assert machine.record(script=script) == [1, 4]
    assert machine.kernels() == [1, 4]


@pytest.mark.parametrize("gpu", ["window", 3, "True"])
def test_wrong_values_of_gpu_are_refused(gpu: Any) -> None:
    from postrun import capture

    with pytest.raises(ValueError, match="'windows'"):
        capture.session(gpu=gpu)
