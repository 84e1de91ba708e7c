"""The last lines of `postrun record`: the contents of the recording, its losses, and the end of the disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from postrun import native
from postrun.capture import Config, SMProfiler
from postrun.commands import recording_summary as record_summary
from postrun.commands.inspect import contents
from postrun.native.record import gpu as record_gpu
from postrun.native.recording.loss_reasons import LOSS_REASONS, loss_reason

needs_library = pytest.mark.skipif(not native.available(), reason="this installation has no C library")
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("POSTRUN_", "PYTHONPATH")) and key != "RANK"}


def record(folder: Path, script: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "postrun", "record", "--out", "run", *options, "--", sys.executable, "-P", "-c", script]
    return subprocess.run(command, env=CLEAN | variables, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


STEPS = "from postrun import capture\nfor i in range(4):\n    with capture.annotate('step', value=i), capture.annotate('data'): pass\n"


@needs_library
def test_steps_waits_processes_and_samples_are_counted(tmp_path: Path) -> None:
    done = record(tmp_path, STEPS + "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import postrun.capture'])")
    assert done.returncode == 0
    pattern = r"postrun: recorded 4 steps \(annotations\), 4 waits for data, 2 processes, [\d,\u2009]+ values? of machine metrics"
    assert re.fullmatch(pattern, done.stderr.splitlines()[0])


@needs_library
def test_a_recording_without_steps_says_how_to_get_them(tmp_path: Path) -> None:
    output = record(tmp_path, "import postrun.capture").stderr
    assert "no training steps were found. Try: annotate the steps" in output
    assert record(tmp_path, "pass", "--out", "other").stderr.count("only the machine was recorded. Try: annotate") == 1


@needs_library
def test_a_large_recording_is_not_read_for_its_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert record(tmp_path, STEPS, "-q").returncode == 0
    monkeypatch.setattr(record_summary, "_MOST_BYTES", 100)
    (line,) = record_summary.lines(tmp_path / "run")
    assert re.fullmatch(r"recorded .* in 2 trace files", line)


# -- losses ----------------------------------------------------------------------------------------------------------------


def test_every_reason_of_a_loss_has_words(project_root: Path) -> None:
    source = (project_root / "native" / "src" / "format" / "block.h").read_text("utf-8")
    (names,) = re.findall(r"enum prt_loss_reason \{ PRT_LOSS_RING = 1,(.*?)\}", source, flags=re.DOTALL)
    numbers = range(1, names.count("PRT_LOSS_") + 2)
    assert sorted(LOSS_REASONS) == [*numbers]
    page = (project_root / "docs" / "trace-format.md").read_text("utf-8")
    assert all(f"{number} " in page for number in numbers)
    assert len({reason.code for reason in LOSS_REASONS.values()}) == len(LOSS_REASONS)
    assert loss_reason(99).name == "reason 99"


FULL = """
import resource, signal
from postrun import capture
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for i in range(200_000):
    with capture.annotate("name", value=i * i % 1_000_003): pass
print("done")
raise SystemExit(7)
"""


@needs_library
def test_what_a_full_disk_lost_is_reported_at_the_end(tmp_path: Path) -> None:
    done = record(tmp_path, FULL)
    assert (done.returncode, done.stdout) == (7, "done\n")
    (line,) = [line for line in done.stderr.splitlines() if " lost (disk)" in line]
    assert re.fullmatch(r"postrun: [\d,\u2009]+ records lost \(disk\)\. .*could not be written to disk\. Free some space.*", line)
    reasons = {loss["reason"] for file in (tmp_path / "run").glob("*.prt") for loss in contents(file)["losses"]}
    assert "disk" in reasons
    assert reasons <= {reason.name for reason in LOSS_REASONS.values()}


UNWRITABLE = """
import os, shutil
shutil.rmtree(os.environ["POSTRUN_DIR"], ignore_errors=True)
open(os.environ["POSTRUN_DIR"], "w").close()
from postrun import capture
with capture.session("x"):
    with capture.annotate("step", value=1): pass
capture.SMProfiler.instance().start_profiling()
with capture.session(): pass
raise SystemExit(3)
"""


@needs_library
def test_a_job_goes_on_where_it_cannot_write(tmp_path: Path) -> None:
    done = record(tmp_path, UNWRITABLE, "--interval-ms", "0")
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("is not recorded: cannot write to ") == 1
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fails)
    lines = [*record_summary.lines(tmp_path)]
    assert lines[-1].startswith(f"the disk of {tmp_path} is full")


# -- GPUs ------------------------------------------------------------------------------------------------------------------


def card(root: Path, number: int, vendor: str, address: str = "0000:03:00.0", vram: int | None = None) -> None:
    device = root / "sys/devices" / f"{number}" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n", "ascii")
    if vram is not None:
        (device / "mem_info_vram_total").write_text(f"{vram}\n", "ascii")
    path = root / "sys/class/drm" / f"card{number}"
    path.mkdir(parents=True)
    (path / "device").symlink_to(device)


def test_gpus_of_other_makers_are_found(tmp_path: Path) -> None:
    assert record_gpu.other_gpus(tmp_path) is None
    card(tmp_path, 0, "0x8086", "0000:00:02.0")
    card(tmp_path, 1, "0x1002", vram=512 << 20)
    card(tmp_path, 2, "0x10de")
    assert record_gpu.other_gpus(tmp_path) is None, "graphics of processors, and NVIDIA's"
    card(tmp_path, 3, "0x8086")
    assert record_gpu.other_gpus(tmp_path) == "Intel"
    card(tmp_path / "amd", 0, "0x1002", vram=64 << 30)
    assert record_gpu.other_gpus(tmp_path / "amd") == "AMD"
    node = tmp_path / "kfd/sys/class/kfd/kfd/topology/nodes"
    for number, gpu in enumerate(("0", "4660")):
        (node / str(number)).mkdir(parents=True)
        (node / str(number) / "gpu_id").write_text(f"{gpu}\n", "ascii")
    assert record_gpu.other_gpus(tmp_path / "kfd") == "AMD"


def test_gpus_of_other_makers_are_named_as_not_captured() -> None:
    nothing = record_gpu.Window()
    note = record_gpu.job_changes(None, nothing, {}, Path("lib"), explicit=False, driver=False, vendor="AMD")
    assert note.remarks == ("GPU activity is not captured on AMD GPUs; use PyTorch's profiler",)
    assert note.facts == {"capability.gpu": "AMD GPUs are not supported; use PyTorch's profiler"}
    assert "POSTRUN_GPU" not in note.variables
    assert record_gpu.job_changes(None, nothing, {}, Path("lib"), explicit=False, driver=True, vendor="AMD").remarks == ()
    assert record_gpu.job_changes(False, nothing, {}, Path("lib"), explicit=True, driver=False, vendor="AMD").remarks == ()


def test_there_is_one_profiler() -> None:
    profiler = SMProfiler()
    profiler.configure(Config(profiler={"EnableCuda": "0"}))
    assert SMProfiler() is profiler is SMProfiler.instance()
    assert dict(SMProfiler().config) == {"EnableCuda": "0"}
    profiler.configure(Config())


# -- the option ------------------------------------------------------------------------------------------------------------


@needs_library
@pytest.mark.parametrize(
    ("options", "variables", "expected"),
    [
        (["--gpu"], {}, "1 auto"),
        (["--gpu", "always"], {}, "1 None"),
        (["--gpu=off"], {}, "0 None"),
        (["--no-gpu"], {}, "0 None"),
        (["--no-gpu"], {"POSTRUN_GPU": "1"}, "0 None"),
        ([], {"POSTRUN_GPU": "true"}, "1 auto"),
        ([], {"POSTRUN_GPU": "0"}, "0 None"),
    ],
)
def test_the_modes_of_gpu_activity(options: list[str], variables: dict[str, str], expected: str, tmp_path: Path) -> None:
    script = "import os; print(os.environ.get('POSTRUN_GPU'), os.environ.get('POSTRUN_GPU_WINDOWS'))"
    assert record(tmp_path, script, "-q", "--interval-ms", "0", *options, **variables).stdout == expected + "\n"


@needs_library
def test_the_command_may_follow_the_option_and_have_one_of_its_name(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "postrun", "record", "-q", "--interval-ms", "0", "--out", "a", "--gpu", "echo", "--gpu", "x"]
    assert subprocess.run(command, env=CLEAN, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == "--gpu x\n"
    done = record(tmp_path, "pass", "--gpu", "always", "--steps", "1:2")
    assert (done.returncode, "--steps and --gpu always exclude each other" in done.stderr) == (2, True)
    done = record(tmp_path, "pass", "--gpu", "sometimes")
    assert (done.returncode, "sometimes" in done.stderr, "always" in done.stderr) == (2, True, True)
