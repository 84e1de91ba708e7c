"""Steps and waits for data of programs that know nothing of postrun, with packages that imitate the frameworks."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_frameworks import write_frameworks
from postrun import native
from postrun.ingest.load import ingest
from postrun.native.record import profiling as record_profiling
from prt_reader import read

pytestmark = pytest.mark.skipif(not native.available(), reason="this installation has no C library")
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("POSTRUN_", "PYTHONPATH")) and key != "RANK"}


TORCH = """
import torch
from torch.utils.data.dataloader import DataLoader
A, B, V = list(range(5)), list(range(5)), list(range(3))
model, optimizer = torch.nn.modules.module.Module(), torch.optim.optimizer.Optimizer()
def step(optimizer=optimizer):
    model(1); optimizer.step()
"""
WAIT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.fixture(scope="module")
def frameworks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frameworks")
    write_frameworks(folder)
    return folder


def run(script: str, frameworks: Path, folder: Path, **variables: str) -> list[dict[str, Any]]:
    """The trace files of a process with the environment of a job."""
    of_job = {
        "POSTRUN_CAPTURE": "1", "POSTRUN_DIR": str(folder), "POSTRUN_FOLLOW_FORK": "1", "POSTRUN_HOOKS": "1",
        "PYTHONPATH": f"{record_profiling.STARTUP}:{frameworks}",
    }  # fmt: skip
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=CLEAN | of_job | variables, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [read(file.read_bytes()) for file in sorted(folder.glob("*.prt"))]


def steps_of(file: dict[str, Any]) -> list[int]:
    rows = [row for row in file["annotation"] if row["name"] == "step"]
    assert not [row for row in rows if row["flags"] & 1], "no step is left open"
    return [row["value"] for row in sorted(rows, key=lambda row: row["start_ns"])]


def source_of(file: dict[str, Any]) -> str | None:
    return {row["key"]: row["value"] for row in file["meta"]}.get("steps.source")


@pytest.mark.parametrize("before", ["", "import postrun.capture\n"])
@pytest.mark.parametrize("loop", ["range(10)", "DataLoader(A * 2)"])
def test_a_program_that_compiles_meets_no_hook_of_modules(before: str, loop: str, frameworks: Path, tmp_path: Path) -> None:
    compiled = f"{before}{TORCH}model = torch.compile(model)\nfor i in {loop}: step()"
    (file,) = run(compiled, frameworks, tmp_path)
    assert steps_of(file) == [*range(1, 10)]  # the start of the first one is not seen


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("for epoch in 0, 1:\n    for batch in DataLoader(A): step()", range(10)),
        ("for i in range(6): step()", range(6)),
        ("long = A * 2\nfor epoch in 0, 1:\n    for i, batch in enumerate(DataLoader(long)):\n"
         "        model(1)\n        if i % 2: optimizer.step()",
         range(10)),
        ("for a, b in zip(DataLoader(A), DataLoader(B)): step()", range(5)),
        # the iteration without a step of the optimizer, as with GradScaler, belongs to the next step
        ("for i, batch in enumerate(DataLoader(A)):\n    model(1)\n    if i != 2: optimizer.step()", range(4)),
        # a loop that loads a batch ahead, as Lightning and accelerate
        ("batches = iter(DataLoader(A))\nnow = next(batches)\nwhile now is not None:\n    now = next(batches, None)\n    step()\n"
         "with torch.no_grad(): list(DataLoader(V))", range(5)),
        ("second = torch.optim.optimizer.Optimizer()\nfor batch in DataLoader(A): step(); step(second)", range(5)),
        # a validation before the training
        ("for v in DataLoader(V):\n    with torch.no_grad(): model(1)\nfor batch in DataLoader(A): step()", range(5)),
    ],
)  # fmt: skip
def test_a_step_of_pytorch_is_one_of_the_optimizer(loop: str, expected: range, frameworks: Path, tmp_path: Path) -> None:
    (file,) = run(TORCH + loop, frameworks, tmp_path)
    assert (steps_of(file), source_of(file)) == ([*expected], "PyTorch optimizer")


@pytest.mark.parametrize("grad", ["with torch.no_grad(): ", ""])
def test_a_validation_is_in_no_step(grad: str, frameworks: Path, tmp_path: Path) -> None:
    loop = f"""
import time
for epoch in 0, 1:
    for i, batch in enumerate(DataLoader(A)):
        step()
        if i == 2:
            {grad}[time.sleep(0.05) for v in DataLoader(V)]
"""
    (file,) = run(TORCH + loop, frameworks, tmp_path)
    assert steps_of(file) == [*range(10)]
    assert max(row["duration_ns"] for row in file["annotation"] if row["name"] == "step") < 50_000_000


def test_waits_for_data_are_inside_of_their_steps(frameworks: Path, tmp_path: Path) -> None:
    (file,) = run(TORCH + "for batch in DataLoader(A): step()", frameworks, tmp_path)
    waits = [row for row in file["annotation"] if row["name"] == WAIT]
    assert len(waits) == 6, "the last one finds the end"
    steps = {row["value"]: row for row in file["annotation"] if row["name"] == "step"}
    inside = [
        sum(step["start_ns"] <= wait["start_ns"] < step["start_ns"] + step["duration_ns"] for wait in waits) for step in steps.values()
    ]
    assert inside == [0, 1, 1, 1, 1], "step 0 begins with the model"


def test_the_settings_of_data_loaders_reach_the_rule(frameworks: Path, tmp_path: Path) -> None:
    (file,) = run(TORCH + "for epoch in 0, 1:\n    for batch in DataLoader(A): step()", frameworks, tmp_path)
    assert {row["key"]: row["value"] for row in file["meta"] if "dataloader" in row["key"]} == {
        "dataloader.num_workers": "3", "dataloader.pin_memory": "1"
    }  # fmt: skip
    assert sum(row["name"] == "_SingleProcessDataLoaderIter.__init__" for row in file["annotation"]) == 2
    with ingest([tmp_path]) as store:
        rows = store.frame("SELECT DISTINCT arguments FROM annotation WHERE arguments IS NOT NULL")["arguments"].to_list()
    assert [json.loads(row) for row in rows] == [{"num_workers": 3, "pin_memory": True}]


@pytest.mark.parametrize(
    ("script", "source"),
    [
        (TORCH + "from postrun import capture\nfor i, b in enumerate(DataLoader(A)):\n"
         "    with capture.annotate('step', value=100 + i): step()", "annotations"),
        ("import jax\nf = jax.jit(lambda: 1)\nfor i in range(100, 105):\n    with jax.profiler.StepTraceAnnotation('t', step_num=i): f()",
         "annotations"),
    ],
)  # fmt: skip
def test_steps_that_the_program_marks_are_the_only_ones(script: str, source: str, frameworks: Path, tmp_path: Path) -> None:
    (file,) = run(script, frameworks, tmp_path)
    assert (steps_of(file), source_of(file)) == ([*range(100, 105)], source)


@pytest.mark.parametrize(
    ("script", "expected", "source"),
    [
        ("from keras.src.models.model import Model\nModel().fit(5, 2)", range(10), "Keras"),
        ("from keras.src.models.model import Model\nfor i in range(6): Model().train_on_batch(i)", range(5), "Keras, train_on_batch"),
        ("import tensorflow, keras\nfor i in range(6): keras.src.optimizers.base_optimizer.BaseOptimizer().apply_gradients(i)", range(5),
         "Keras optimizer"),
        ("import tensorflow as tf\nf = tf.function(lambda x: x)\nfor i in range(6): f(i)", range(1, 5), "TensorFlow, calls of <lambda>"),
        ("import jax\n@jax.jit\ndef train_step(x): return x\nfor i in range(6): train_step(i)", range(1, 5), "JAX, calls of train_step"),
        ("import jax\n@jax.jit(static_argnums=0)\ndef eval_step(x): return x\n@jax.jit\ndef f(x): return eval_step(x)\n"
         "for i in range(6): eval_step(i); f(i); eval_step(i)", range(1, 5), "JAX, calls of f"),
    ],
)  # fmt: skip
def test_steps_of_other_frameworks(script: str, expected: range, source: str, frameworks: Path, tmp_path: Path) -> None:
    (file,) = run(script, frameworks, tmp_path)
    assert (steps_of(file), source_of(file)) == ([*expected], source)


def test_what_jit_returns_works_as_before(frameworks: Path, tmp_path: Path) -> None:
    script = """
import copy, functools, jax
def f(x): "words"; return x
g = jax.jit(f)
assert (g(3), g.__wrapped__, g.__name__, g.__doc__, g.lower(1), g.clear_cache()) == (3, f, "f", "words", "lowered", "cleared")
class Model:
    @jax.jit
    def step(self, x): return self, x
    @functools.partial(jax.jit, static_argnums=0)
    def other(self, x): return self, x
model = Model()
assert model.step(1) == (model, 1) and model.other(2) == (model, 2) and len({g, g}) == 1
try:
    g.none
except AttributeError:
    pass
else:
    raise SystemExit("no AttributeError")
"""
    run(script, frameworks, tmp_path)


NVTX = """
import ctypes
from postrun import native
slots = [ctypes.c_void_p(1) for _ in range(20)]
table = (ctypes.POINTER(ctypes.c_void_p) * 20)(*[ctypes.pointer(slot) for slot in slots])
MODULE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint))
def module(number, found, size):
    found[0], size[0] = ctypes.addressof(table), 20
    return number == 1
class Callbacks(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("module", MODULE)]
callbacks = Callbacks(ctypes.sizeof(Callbacks), MODULE(module))
get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(lambda _: ctypes.addressof(callbacks))
ctypes.CDLL(str(native.library())).InitializeInjectionNvtx2(get)
push, pop = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(slots[9].value), ctypes.CFUNCTYPE(ctypes.c_int)(slots[11].value)
for number, batch in enumerate(DataLoader(A)):
    push(b"step_%d" % number); step(); pop()
"""


def test_steps_that_nvtx_marks_are_the_only_ones(frameworks: Path, tmp_path: Path) -> None:
    (file,) = run(TORCH + NVTX, frameworks, tmp_path)
    assert (steps_of(file), source_of(file)) == ([], "annotations")
    assert [row["name"] for row in file["annotation"] if row["name"].startswith("step")] == [f"step_{number}" for number in range(5)]


@pytest.mark.parametrize(("version", "maker"), [("hip='6.0', xpu=None", "AMD"), ("hip=None, xpu='2025'", "Intel")])
def test_pytorch_for_other_gpus_is_named(version: str, maker: str, frameworks: Path, tmp_path: Path) -> None:
    script = TORCH + f"import types\ntorch.version = types.SimpleNamespace({version})\nfor batch in DataLoader(A): step()"
    (file,) = run(script, frameworks, tmp_path)
    known = {row["key"]: row["value"] for row in file["meta"]}
    assert known["capability.gpu"] == f"{maker} GPUs are not supported; use PyTorch's profiler"


def test_a_forked_trainer_has_steps_of_its_own(frameworks: Path, tmp_path: Path) -> None:
    script = (
        TORCH
        + """
import os
for batch in DataLoader(A): step()
if os.fork() == 0:
    for batch in DataLoader(B): step()
else:
    os.wait()
"""
    )
    assert [steps_of(file) for file in run(script, frameworks, tmp_path)] == [[*range(5)]] * 2


@pytest.mark.parametrize("variables", [{"POSTRUN_HOOKS": ""}, {"POSTRUN_CAPTURE": ""}])
def test_without_the_variables_nothing_is_hooked(variables: dict[str, str], frameworks: Path, tmp_path: Path) -> None:
    script = TORCH + "import sys\nfor b in DataLoader(A): step()\nassert not [n for n in sys.modules if n.startswith('postrun')]"
    assert run(script, frameworks, tmp_path, **variables) == []


def test_a_launcher_that_imports_a_framework_is_not_recorded(frameworks: Path, tmp_path: Path) -> None:
    assert run("import torch, jax, tensorflow, keras", frameworks, tmp_path) == []


def record(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "postrun", "record", "--out", "run", *arguments]
    return subprocess.run(command, env=CLEAN, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_no_hooks_leaves_the_environment_alone(tmp_path: Path) -> None:
    code = "import os; print(os.environ.get('POSTRUN_HOOKS'), os.environ.get('PYTHONPATH'))"
    assert record("-q", "--no-hooks", "--", sys.executable, "-c", code, folder=tmp_path).stdout == "None None\n"


REAL = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
loader = DataLoader(TensorDataset(torch.randn(1280, 8)), batch_size=4, num_workers=2)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters())
for (x,) in loader:
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (pip install torch)")
def test_an_unmodified_training_with_pytorch_is_reported(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(REAL, "utf-8")
    done = record("--report", "--format", "json", "--", sys.executable, "train.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "postrun: recorded 320 steps (PyTorch optimizer), 321 waits for data, 1 process, " in done.stderr
    report = json.loads((tmp_path / "run" / "report" / "report.json").read_bytes())
    assert len(report["steps"]["steps"]) == 320
    rules = {rule["rule"]: rule for rule in report["rules"]}
    assert rules["StepOutlier"]["reason"] is None
    loading = [part for part in report["framework"]["step_parts"] if part["name"] == "data loading"]
    assert loading, "the share of data loading is in the report"
