"""Periodic windows of GPU activity: when they open and close, their records, and their facts in the file.

A C program with steps runs next to a stub of the driver and one of CUPTI that records each launch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import prt_reader
import pytest
from native_programs import Programs, call, environment, files
from stub_libraries import launches

NS = 1_000_000_000


class Machine:
    """Runs the program with windows; reads what it recorded."""

    def __init__(self, programs: Programs, variant: str, folder: Path) -> None:
        self.program, self.folder = programs.program("gpu_windows", variant), folder
        self.variables = {"POSTRUN_CAPTURE": "1", "POSTRUN_GPU": "1", "POSTRUN_DIR": str(folder), **launches(programs, variant)}

    def run(self, windows: str, mode: str, *arguments: object, **variables: str) -> dict[str, int]:
        output = call(self.program, mode, *arguments, **self.variables, POSTRUN_GPU_WINDOWS=windows, **variables)
        (file,) = files(self.folder)
        self.tables: dict[str, list[dict[str, Any]]] = prt_reader.read(file.read_bytes())
        self.facts = {row["key"]: row["value"] for row in self.tables["meta"]}
        return output

    def kernels(self) -> list[int]:
        return sorted(row["correlation"] for row in self.tables["kernel"])

    def windows(self) -> list[tuple[int, int, str | None]]:
        """Start, end and reason of the end of each, in order."""
        numbers = range(sum(key.startswith("gpu.window.") and not key.endswith(".closed") for key in self.facts))
        spans = [tuple(map(int, self.facts[f"gpu.window.{n}"].split())) for n in numbers]
        return [(begin, end, self.facts.get(f"gpu.window.{n}.closed")) for n, (begin, end) in enumerate(spans)]

    def closed(self) -> list[str | None]:
        return [reason for _, _, reason in self.windows()]

    def steps(self) -> dict[int, tuple[int, int]]:
        rows = [row for row in self.tables["annotation"] if row["name"] == "step"]
        return {row["value"]: (row["start_ns"], row["start_ns"] + row["duration_ns"]) for row in rows}


@pytest.fixture
def machine(programs: Programs, tmp_path: Path) -> Callable[..., Machine]:
    def make(variant: str = "plain") -> Machine:
        return Machine(programs, variant, tmp_path)

    return make


@pytest.mark.parametrize("variant", ["plain", "address", "thread"])
def test_a_window_has_whole_steps_after_the_warm_up(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant)
    here.run("warmup=3,steps=2", "steps", 9, 1)
    assert here.kernels() == [3, 3, 4, 4]
    assert here.closed() == ["steps"]
    ((begin, end, _),), steps = here.windows(), here.steps()
    assert sorted(steps) == list(range(9)), "steps outside of the window are recorded as well"
    assert steps[2][1] <= begin <= steps[3][0] + 1
    assert steps[4][1] - 1 <= end <= steps[5][0] + 1
    assert here.facts["gpu.windows"] == "warmup=3,steps=2,seconds=20,every=600,mib=16,total_mib=256"
    assert "capability.gpu" not in here.facts


def test_windows_of_steps_come_again(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("warmup=1,steps=2,seconds=0.01,every=0.3", "steps", 150, 10)
    windows, steps = here.windows(), here.steps()
    assert len(windows) >= 2
    assert set(here.closed()[:-1]) == {"steps"}
    assert here.closed()[-1] in ("steps", "end")
    punctual = []
    for (first, *_), (second, *_) in pairwise(windows):
        assert second - first >= 0.3 * NS
        begun = sorted(start for start, _ in steps.values() if first + 0.3 * NS <= start)
        punctual.append(second <= max(begun[:5]) + 1)
    # The watching thread may come a little later, and much later where other programs use all processors.
    assert 2 * sum(punctual) > len(punctual), "at the first step that is due"
    inside = [n for n, (start, end) in steps.items() if any(begin <= start + 1 and end - 1 <= close for begin, close, _ in windows)]
    assert len(inside) >= 2 * (len(windows) - 1), "the program may end in the last window"
    assert here.kernels() == sorted(inside * 2)


@pytest.mark.parametrize("variant", ["plain", "thread"])
def test_without_steps_windows_last_seconds(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant)
    here.run("seconds=0.1,every=0.4", "no-steps", 0, 900)
    windows = here.windows()
    assert set(here.closed()[:-1]) == {"time"}
    assert len(windows) >= 2
    assert all(end - begin >= 0.1 * NS for begin, end, reason in windows if reason == "time")
    assert all(second[0] - first[0] >= 0.4 * NS for first, second in pairwise(windows))
    assert len(here.kernels()) > 20
    opens = 0.02 * NS  # kernels that start while a window opens or closes
    assert all(any(begin - opens <= row["start_ns"] <= end + opens for begin, end, _ in windows) for row in here.tables["kernel"])


def test_steps_end_windows_of_seconds(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("warmup=2,steps=1,seconds=0.2,every=60", "late-steps", 6, 20)
    assert here.closed() == ["steps", "steps"]
    assert [n for n in here.kernels() if n] == [2, 2, 100]


def test_a_window_of_slow_steps_ends_after_a_third_of_the_interval(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("warmup=0,steps=1000,seconds=0.1,every=0.9", "steps", 45, 20)
    begin, end, reason = here.windows()[0]
    assert reason == "time"
    assert 0.3 * NS <= end - begin < 0.6 * NS


def test_a_window_ends_by_its_size_and_the_process_has_a_total(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("seconds=0.9,every=1,mib=1,total_mib=1", "many", 6_000, 100)
    ((begin, end, reason),) = here.windows()
    assert reason == "size"
    assert end - begin < 0.9 * NS
    assert here.facts["capability.gpu.windows"] == "no more windows open: GPU activity of this process takes 1 MiB (total_mib)"
    assert 1 << 20 < files(here.folder)[0].stat().st_size < 4 << 20


def test_the_program_goes_first(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("warmup=0,steps=2,seconds=5,every=10", "program", 0, 1)
    assert here.kernels() == [1, 2, 4]
    assert here.closed() == ["program", None, None]


def test_the_program_can_close_a_window_for_good(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("seconds=0.1,every=0.2", "close", 0, 400)
    assert here.kernels() == [1]
    assert here.closed() == ["program"]


@pytest.mark.parametrize("variant", ["address", "thread"])
def test_steps_on_several_threads(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant)
    here.run("warmup=3,steps=5,seconds=0.004,every=0.005", "threads", 400)
    assert here.kernels()
    assert set(here.closed()) <= {"steps", "time", "end"}
    assert not here.tables["loss"]


def test_an_end_during_the_warm_up_is_reported(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("auto", "steps", 4, 1)
    expected = "no window opened: the program ended after 4 steps, and the first window opens after 10 warm-up steps"
    assert here.facts.get("capability.gpu") in (expected, None)
    assert ("capability.gpu" in here.facts) == (not here.windows())


def test_explicit_windows_exclude_periodic_ones(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("warmup=0,steps=1", "steps", 8, 1, POSTRUN_GPU_STEPS="5:7")
    assert here.kernels() == [5, 5, 6, 6]
    assert here.closed() == [None]
    assert "gpu.windows" not in here.facts


@pytest.mark.parametrize(
    "text",
    [
        "on",
        "steps",
        "steps=",
        "steps=0",
        "steps=1,",
        "steps=1;every=2",
        "every=1e3",
        "mib=0",
        "stepss=1",
        "seconds=600",
        "warmup=-1",
        "mib=1.5",
    ],
)
def test_a_wrong_text_is_a_reason(machine: Callable[..., Machine], text: str) -> None:
    here = machine()
    here.run(text, "steps", 3)
    assert here.facts["capability.gpu"].startswith(f"POSTRUN_GPU_WINDOWS={text}: ")
    assert not here.windows()


def test_reports_take_nothing_outside_of_windows_for_idle(machine: Callable[..., Machine]) -> None:
    pytest.importorskip("postrun.ingest", reason="postrun is not installed")
    from postrun.ingest import ingest

    here = machine()
    here.run("warmup=1,steps=2,seconds=0.01,every=0.2", "steps", 60, 10)
    with ingest([here.folder]) as store:
        spans = store.frame("SELECT first_ns, last_ns FROM profile_window ORDER BY first_ns").rows()
        assert "gpu.window" not in str(store.frame("SELECT * FROM run").rows()), "they are no facts of the run"
    assert spans == [(begin, end) for begin, end, _ in here.windows()]


# ---------------------------------------------------------------- Python

HEARTBEAT = """
import ctypes, json, sys, threading, time
from postrun import capture, native

ended, longest = threading.Event(), [0.0]

def beat():
    before = time.monotonic()
    while not ended.is_set():
        time.sleep(0.002)
        now = time.monotonic()
        longest[0] = max(longest[0], now - before)
        before = now

cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
assert cuda.cuCtxSetCurrent(ctypes.c_void_p(1)) == 0
held, released = (kind(str(native.library())) for kind in (ctypes.PyDLL, ctypes.CDLL))
for library in (held, released):
    library.postrun_begin.argtypes = [ctypes.c_uint32, ctypes.c_int64]
    library.postrun_name.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

def annotate(number):
    with capture.annotate("step", value=number):
        pass

def begin(number):
    capture.begin("step", number)
    capture.end()

def by_handle(number):
    capture.range_end(capture.range_begin("step", number))

def native_calls(library):
    def step(number):
        library.postrun_begin(library.postrun_name(b"step", 4), number)
        library.postrun_end()
    return step

steps = {"annotate": annotate, "begin": begin, "handle": by_handle, "held": native_calls(held), "released": native_calls(released)}
step = steps[sys.argv[1]]
thread = threading.Thread(target=beat)
thread.start()
time.sleep(0.05)
for number in range(4):
    step(number)
ended.set()
thread.join()
print(json.dumps(longest[0]))
"""


EXPLICIT, PERIODIC = {"POSTRUN_GPU_STEPS": "1:3"}, {"POSTRUN_GPU_WINDOWS": "warmup=1,steps=2,seconds=0.001,every=60"}


@pytest.mark.parametrize(
    ("caller", "windows"),
    [("annotate", EXPLICIT), ("begin", PERIODIC), ("handle", EXPLICIT), ("held", PERIODIC), ("released", PERIODIC)],
)
def test_other_threads_of_python_run_while_a_step_opens_or_closes_a_window(
    programs: Programs, tmp_path: Path, caller: str, windows: dict[str, str]
) -> None:
    """``held``: Python calls a C function without releasing the GIL, as for NVTX."""
    native = pytest.importorskip("postrun.native", reason="postrun is not installed")
    if not native.available():
        pytest.skip("the C library was not built")
    variables = {"POSTRUN_CAPTURE": "1", "POSTRUN_GPU": "1", "POSTRUN_DIR": str(tmp_path), **launches(programs, "plain"), **windows}
    command = [sys.executable, "-P", "-c", HEARTBEAT, caller]
    slow = {"STUB_BUSY": "1", "STUB_SLOW_ATTACH": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(**variables, **slow))
    assert done.returncode == 0, done.stderr
    (file,) = files(tmp_path)
    tables = prt_reader.read(file.read_bytes())
    facts = {row["key"]: row["value"] for row in tables["meta"]}
    last = max(int(key.split(".")[2]) for key in facts if key.startswith("gpu.window."))
    begin, end = map(int, facts[f"gpu.window.{last}"].split())
    assert end - begin > 0.9 * NS, "it waits for the device"
    assert json.loads(done.stdout) < 0.3, "far below the 0.7 s of an opening and the 1 s of a close"
