"""`postrun record --shapes --stacks`: the options of PyTorch's profiler in its window, with an imitation of PyTorch and with PyTorch."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_frameworks import write_frameworks
from postrun import native
from postrun.native.profiling.plan import DetailedPlan, LoaderPlan, ProfilingPlan, Window, with_calls
from prt_reader import read

pytestmark = pytest.mark.skipif(not native.available(), reason="this installation has no C library")
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("POSTRUN_", "PYTHONPATH", "SLURM_")) and key != "RANK"}
TRAIN = """
import torch
model, optimizer = torch.nn.modules.module.Module(), torch.optim.optimizer.Optimizer()
for i in range(12):
    model(1); optimizer.step()
"""
NEITHER = {"record_shapes": False, "with_stack": False, "with_modules": False}
SHAPES = NEITHER | {"record_shapes": True}
STACKS = NEITHER | {"with_stack": True, "with_modules": True}
SHAPES_AND_STACKS = dict.fromkeys(NEITHER, True)


def record(*arguments: str, cwd: Path, program: str = TRAIN, path: Path | None = None, **variables: str) -> str:
    """Record a program to ``cwd/run``; return what the recorder and the program print."""
    environment = CLEAN | {"PYTHONPATH": str(path or cwd), "OMP_NUM_THREADS": "1"} | variables
    command = [sys.executable, "-P", "-m", "postrun", "record", "--out", "run", "--interval-ms", "0", *arguments, "--"]
    command += [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def traces(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(gzip.decompress(file.read_bytes())) for file in sorted(folder.rglob("*.pt.trace.json.gz"))]


def facts(folder: Path) -> dict[str, str]:
    return {row["key"]: row["value"] for file in sorted(folder.glob("*.prt")) for row in read(file.read_bytes())["meta"]}


DETAILED = "[framework_profile.detailed]\nstart_step = 2\nnum_steps = 2\n"
CASES = [
    ("", ["--shapes"], {}, "steps 5 to 7", SHAPES),
    ("", ["--shapes", "--stacks", "--no-hooks", "--steps", "3:5"], {}, "steps 3 to 4", SHAPES_AND_STACKS),
    ("", [], {"POSTRUN_STACKS": "yes"}, "steps 5 to 7", STACKS),
    (DETAILED, [], {}, "steps 2 to 3", NEITHER),
    (DETAILED, ["--stacks"], {}, "steps 2 to 3", STACKS),
    (DETAILED + "record_shapes = true\n", [], {}, "steps 2 to 3", SHAPES),
]


@pytest.mark.parametrize(("config", "arguments", "variables", "window", "expected"), CASES)
def test_the_window_has_the_options(
    config: str, arguments: list[str], variables: dict[str, str], window: str, expected: dict[str, bool], tmp_path: Path
) -> None:
    write_frameworks(tmp_path, profiler=True)
    if config:
        (tmp_path / "c.toml").write_text(config, "utf-8")
        arguments = [*arguments, "--profiler-config", "c.toml"]
    record(*arguments, cwd=tmp_path, **variables)
    (trace,) = traces(tmp_path / "run")
    assert trace["options"] == expected
    recorded = facts(tmp_path / "run")
    assert (recorded["profiling.detailed"], recorded["profiling.detailed.recorded"]) == (window, window)
    asked = ", ".join(name for name, value in expected.items() if value)
    assert recorded.get("profiling.detailed.calls", "") == asked


def test_an_old_pytorch_is_named(tmp_path: Path) -> None:
    write_frameworks(tmp_path)
    with (tmp_path / "torch" / "__init__.py").open("a") as file:
        file.write("__version__ = '1.7.1'\n")
    message = "PyTorch 1.7.1 has no torch.profiler; operators, shapes and stacks need PyTorch 1.8.1 or newer"
    assert message in record("--shapes", cwd=tmp_path)
    assert message in facts(tmp_path / "run")["profiling.detailed.recorded"]


def test_a_program_without_pytorch_is_named(tmp_path: Path) -> None:
    nobody = "detailed profiling recorded nothing: no process of the job annotated steps or trained with PyTorch"
    assert nobody in record("--shapes", "--stacks", cwd=tmp_path, program="pass")


def test_shapes_and_stacks_keep_the_other_parts_of_a_plan() -> None:
    window, loader = Window(2, 2), LoaderPlan(Window(7, 1))
    plan = ProfilingPlan(detailed=DetailedPlan(window, stacks=True), loader=loader)
    assert with_calls(plan, shapes=True, stacks=False, steps="1:9") == ProfilingPlan(
        detailed=DetailedPlan(window, True, True), loader=loader
    )
    assert with_calls(plan, shapes=False, stacks=False) is plan
    assert with_calls(None, shapes=False, stacks=False) is None
    disabled = ProfilingPlan(disabled=True)
    assert with_calls(disabled, shapes=True, stacks=True) is disabled
    for steps in (None, "", "9:3", "x:y", "5"):
        assert with_calls(None, shapes=True, stacks=False, steps=steps) == ProfilingPlan(detailed=DetailedPlan(Window(5, 3), shapes=True))


REAL = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(24, 8)
    def forward(self, x):
        return self.inner(x).relu()

model = Block()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(9):
    optimizer.zero_grad()
    model(torch.ones(5, 24)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_pytorch_writes_shapes_and_stacks(tmp_path: Path) -> None:
    torch = os.environ.get("POSTRUN_TORCH")
    if not torch:
        pytest.skip("POSTRUN_TORCH names no virtual environment with PyTorch")
    packages = next(Path(torch).glob(f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"), None)
    if packages is None:
        pytest.skip("POSTRUN_TORCH has another version of Python")
    record("--shapes", "--stacks", cwd=tmp_path, program=REAL, path=packages)
    (trace,) = traces(tmp_path / "run")
    events = trace["traceEvents"]
    products = [event for event in events if event.get("name") == "aten::addmm"]
    assert [event["args"]["Input Dims"][:3] for event in products] == 3 * [[[8], [5, 24], [24, 8]]]
    frames = [event["name"] for event in events if event.get("cat") == "python_function"]
    assert sum(name.startswith("nn.Module: Block") for name in frames) == 3
    assert sum(name.startswith("nn.Module: Linear") for name in frames) == 3
