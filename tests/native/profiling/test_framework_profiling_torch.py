"""A real PyTorch training, with a data loader of two workers, records the configured steps and no others.

The recorded data is read from the files in plain Python. One process trains under every configuration, because importing torch takes long;
another one is run by `postrun record` and does not use postrun.
"""

from __future__ import annotations

import ast
import gzip
import importlib.util
import json
import os
import pstats
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from postrun import native
from postrun.native.profiling.engine.one_function import RECORDING
from prt_reader import read

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (pip install torch)"),
    pytest.mark.skipif(not native.available(), reason="this installation has no C library"),
]
RECORDER = str(Path(native.__file__).parent)
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("POSTRUN_", "PYTHONPATH")) and key != "RANK"}
CLEAN |= {"OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "99"}

MODEL = """
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __init__(self, steps):
        self.steps = steps
    def __len__(self):
        return 4 * self.steps
    def __getitem__(self, i):
        return torch.full((8,), float(i)), i % 2

def made(steps):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 2)
    loader = DataLoader(Numbers(steps), batch_size=4, num_workers=2, multiprocessing_context="fork")
    return model, torch.optim.SGD(model.parameters(), lr=1e-6), loader

def train(model, optimizer, x, y):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
PLAIN = (
    MODEL
    + """
if __name__ == "__main__":
    model, optimizer, loader = made(13)
    for x, y in loader:
        train(model, optimizer, x, y)
"""
)
SESSIONS = (
    MODEL
    + """
import sys, time, warnings
from pathlib import Path
from postrun import DetailedProfilingConfig, FrameworkProfile, ProfilerConfig, capture

def run(name, config, steps=6, own=()):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with capture.session(Path(sys.argv[1]) / name, sample_ms=0, gpu=False, profiler_config=config):
            model, optimizer, loader = made(steps)
            batches, profiler = iter(loader), None
            for i in range(steps):
                with capture.annotate("step", value=i):
                    x, y = next(batches)
                    if own and i == own[0]:
                        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
                        profiler.start()
                    train(model, optimizer, x, y)
                    if own and i == own[1]:
                        profiler.stop()
                        print(name, "own", sum(e.name == "aten::linear" for e in profiler.events()))
    for one in told:
        if one.category is RuntimeWarning:
            print(name, "warned", one.message)

def framework(**given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ProfilerConfig(framework_profile_params=FrameworkProfile(**given))

if __name__ == "__main__":
    run("steps", framework(start_step=2, num_steps=2), steps=12)
    run("time", framework(start_unix_time=int(time.time()) - 10, duration=10_000))
    run("later", framework(start_unix_time=int(time.time()) + 10_000))
    run("defaults", framework(), steps=13)
    run("disabled", ProfilerConfig(disable_profiler=True))
    run("detailed", framework(detailed_profiling_config=DetailedProfilingConfig(start_step=3, num_steps=1)))
    run("before", framework(detailed_profiling_config=DetailedProfilingConfig(start_step=2, num_steps=3)), own=(1, 4))
    run("within", framework(detailed_profiling_config=DetailedProfilingConfig(start_step=2, num_steps=3)), own=(3, 5))
"""
)


@dataclass
class Recorded:
    """The content of one run's files. ``linear``: the model's calls in the trace, by step; ``outside``: operators outside of its
    window."""

    steps: dict[int, tuple[int, int]]
    facts: dict[str, str]
    traces: list[list[tuple[str, int, int]]]
    iterations: list[tuple[int, int]]
    fetches: int
    functions: dict[str, list[tuple[str, str, str]]]

    def traced(self) -> list[int]:
        """Return the step in which each call of the model began in the traces, or -1."""
        return sorted(self._step_of(start) for trace in self.traces for name, start, _ in trace if name == "aten::linear")

    def _step_of(self, start: int) -> int:
        return next((step for step, (begin, end) in self.steps.items() if begin <= start < end), -1)

    def iterated(self) -> list[int]:
        """The step in which each batch was waited for."""
        return sorted(
            next((step for step, (begin, end) in self.steps.items() if begin <= start <= end), -1) for start, _ in self.iterations
        )

    def profiled(self) -> list[int]:
        """Return the steps with Python profiles."""
        return sorted({int(start[1]) for start in self.functions.values()})  # type: ignore[arg-type]


def recorded(folder: Path) -> Recorded:
    steps, facts = {}, {}
    for path in folder.glob("*.prt"):
        file = read(path.read_bytes())
        actual = {row["key"]: row["value"] for row in file["meta"]}
        if "profiling.plan" in actual:
            facts = actual
            steps = {
                int(row["value"]): (int(row["start_ns"]), int(row["start_ns"] + row["duration_ns"]))
                for row in file["annotation"]
                if row["name"] == "step" and not row["flags"] & 1
            }
    traces = []
    for path in sorted(folder.rglob("*.pt.trace.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
        base = trace.get("baseTimeNanoseconds", 0)
        rows = [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
        traces.append([(row["name"], base + int(Decimal(row["ts"]) * 1000), int(Decimal(row["dur"]) * 1000)) for row in rows])
    iterations, fetches = [], 0
    for path in folder.rglob("*_pythontimeline.json"):
        origin, phases = 0, {}
        for event in json.loads(path.read_bytes()):
            arguments = event.get("args", {})
            if event["ph"] == "M" and "start_time_since_epoch_in_micros" in arguments:
                origin = arguments["start_time_since_epoch_in_micros"]
            elif event["ph"] == "M" and "name" in arguments:
                phases[event["pid"]] = arguments["name"]
            elif event["ph"] == "X" and phases[event["pid"]] == "DataLoaderIter":
                iterations.append(((origin + event["ts"]) * 1000, event["dur"] * 1000))
            elif event["ph"] == "X" and phases[event["pid"]] == "DataLoaderWorker":
                fetches += 1
    functions: dict[str, Any] = {}
    for path in folder.rglob("python_stats"):
        functions[path.parent.name] = path.parent.name.split("_")[0].split("-")
    return Recorded(steps, facts, traces, iterations, fetches, functions)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("sessions")
    (folder / "train.py").write_text(SESSIONS, "utf-8")
    done = subprocess.run(
        [sys.executable, "-P", str(folder / "train.py"), str(folder)], env=CLEAN, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout.splitlines()


def test_by_step(sessions: tuple[Path, list[str]]) -> None:
    actual = recorded(sessions[0] / "steps")
    assert sorted(actual.steps) == list(range(12))
    assert (actual.traced(), actual.iterated(), actual.profiled()) == ([2, 3], [2, 3], [2, 3])
    assert 1 <= actual.fetches <= 6, "each worker is at most two batches ahead, and one is asked for in each step"
    (trace,) = actual.traces
    slack = 100_000  # two clocks
    assert all(actual.steps[2][0] - slack <= start and start + dur <= actual.steps[3][1] + slack for _, start, dur in trace)
    assert {kind: actual.facts[f"profiling.{kind}.recorded"] for kind in ("detailed", "loader", "python")} == dict.fromkeys(
        ("detailed", "loader", "python"), "steps 2–3"
    )
    assert actual.facts["profiling.horovod.recorded"] == "nothing: Horovod is not in use"


def test_by_time(sessions: tuple[Path, list[str]]) -> None:
    actual = recorded(sessions[0] / "time")
    assert (actual.traced(), actual.iterated(), actual.profiled()) == (list(range(6)), list(range(6)), list(range(6)))
    assert len(actual.traces) == 1
    later = recorded(sessions[0] / "later")
    assert sorted(later.steps) == list(range(6))
    assert (later.traces, later.iterations, later.functions) == ([], [], {})


def test_the_defaults(sessions: tuple[Path, list[str]]) -> None:
    actual = recorded(sessions[0] / "defaults")
    assert sorted(actual.steps) == list(range(13))
    assert (actual.traced(), actual.iterated(), actual.profiled()) == ([5], [7], [9, 10, 11])
    assert ast.literal_eval(actual.facts["profiling.plan"].replace("false", "False"))["python"]["timer"] == "default"


def test_disabled(sessions: tuple[Path, list[str]]) -> None:
    assert not (sessions[0] / "disabled").exists()


def test_detailed_profiling_alone(sessions: tuple[Path, list[str]]) -> None:
    actual = recorded(sessions[0] / "detailed")
    assert actual.traced() == [3]
    assert (actual.iterations, actual.functions) == ([], {})
    assert not (sessions[0] / "detailed" / "framework").exists()


def test_a_profiler_of_the_program_is_left_alone(sessions: tuple[Path, list[str]]) -> None:
    folder, message = sessions
    assert recorded(folder / "before").traces == []
    assert "before own 4" in message, "its own has steps 1–4"
    assert [line for line in message if line.startswith("before warned")] == [
        "before warned detailed profiling: the program runs torch.profiler itself, which is left alone"
    ]
    assert recorded(folder / "within").traced() == [2], "ours ends where the program's begins, in step 3"
    assert "within own 3" in message
    assert sum(line.startswith("within warned") for line in message) == 1
    others = [line for line in message if "warned" in line and not line.startswith(("before", "within", "later"))]
    assert others == []
    (later,) = [line for line in message if line.startswith("later warned")]
    assert "Python profiling: no step began after its start, at 20" in later


def test_a_script_that_knows_nothing_of_postrun(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN, "utf-8")
    parts = {
        "DetailedProfilingConfig": '{"StartStep": 0, "NumSteps": 2, }',
        "DataloaderProfilingConfig": '{"StartStep": 7, "NumSteps": 1, "MetricsRegex": ".*", }',
        "PythonProfilingConfig": '{"StartStep": 9, "NumSteps": 3, "ProfilerName": "cprofile", "cProfileTimer": "default", }',
    }
    (tmp_path / "c.json").write_text(json.dumps({"ProfilingIntervalInMilliseconds": 1000, "ProfilingParameters": parts}), "utf-8")
    command = [sys.executable, "-P", "-m", "postrun", "record", "-q", "--out", "run", "--profiler-config", "c.json", "--", sys.executable]
    done = subprocess.run([*command, "train.py"], env=CLEAN, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    actual = recorded(tmp_path / "run")
    assert actual.facts["profiling.steps"] == "optimizer"
    assert sorted(actual.steps) == list(range(13))
    assert actual.traced() == [0, 1]
    assert (actual.iterated(), actual.profiled()) == ([7], [9, 10, 11])
    assert len(list((tmp_path / "run").glob("*.prt"))) == 2
    for path in (tmp_path / "run").rglob("python_stats"):
        functions = pstats.Stats(str(path)).stats  # type: ignore[attr-defined]
        assert not [name for name in functions if name[0].startswith(RECORDER) or "postrun." in name[2]]
        assert not [name for name, of in functions.items() if RECORDING in of[4]], "the recorder calls nothing that is seen"
