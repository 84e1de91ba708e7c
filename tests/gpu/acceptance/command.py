"""The command line of the suite: options -> builds, cases, exit code."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .build import ROOT, BuildError, build, build_for_stubs
from .case import Case
from .runner import Suite, do_task
from .samples import nvidia_smi

PART_SECONDS = 480  # of one part, with the build
VERSION_SECONDS = 180  # for one version: the first import of PyTorch on a new machine reads gigabytes
OTHERS_LAST = 1000  # place of cases that are not decisive, after those that are


def main(accept: Path, arguments: Sequence[str] | None = None) -> int:
    from .table import CASES

    options = _parser(CASES).parse_args(arguments)
    if options.task:
        return do_task(options.task, CASES)
    if options.out is None:
        _parser(CASES).error("--out DIR is required")
    begun = time.monotonic()
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])  # CMake as a package
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    cases = _chosen(CASES, options.part, options.cases)
    seconds = options.seconds or PART_SECONDS * len({case.part for case in cases})
    with tempfile.TemporaryDirectory(prefix="postrun-accept-") as scratch, ThreadPoolExecutor(1) as pool:
        work = options.work.resolve() if options.work else Path(scratch)
        tools, why_not = None, ""
        actual = pool.submit(_versions)  # meanwhile; PyTorch is in memory when the first case imports it
        try:
            if options.stub:
                tools = build_for_stubs(work / "build", json.loads(options.stub.read_text()), options.scale)
            elif error := _no_device():
                why_not = f"no NVIDIA GPU can be used here, and this suite needs one: {error}"
            else:
                tools = build(work / "build")
        except BuildError as failed:
            why_not = f"the suite cannot be built: {failed}"
        versions = actual.result() | {"build_seconds": round(time.monotonic() - begun, 1)}
        suite = Suite(accept, out, work, begun + seconds, tools, versions)
        return suite.run(cases, why_not)


def _parser(cases: Sequence[Case]) -> argparse.ArgumentParser:
    text = "\n".join(f"  {case.number:2}  part {case.part}, at most {case.limit:3} s  {case.title}" for case in cases)
    parser = argparse.ArgumentParser(
        prog="accept.py", description="Accepts GPU recording on this machine.", epilog=f"cases:\n{text}",
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="folder for accept.json and the examples")
    parser.add_argument("--part", type=int, choices=(1, 2), help="only the cases of this part, at most 8 minutes (default: both)")
    parser.add_argument("--cases", type=_numbers, help="only these cases, such as 0,2,12")
    parser.add_argument("--seconds", type=float, help="no case starts that may end later than this")
    parser.add_argument("--work", type=Path, help="folder for programs and recordings, kept afterward (default: a temporary one)")
    parser.add_argument("--stub", type=Path, help="JSON file with the environment of stub libraries, instead of a GPU")
    parser.add_argument("--scale", type=float, default=1.0, help="with --stub: repetitions relative to those on a GPU")
    parser.add_argument("--task", type=Path, help=argparse.SUPPRESS)  # the process of one case
    return parser


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _chosen(cases: Sequence[Case], part: int | None, numbers: list[int] | None) -> list[Case]:
    """Decisive cases first, otherwise as listed."""
    chosen = [case for case in cases if (part is None or case.part in (0, part)) and (numbers is None or case.number in numbers)]
    if not chosen:
        raise SystemExit("accept.py: no such case")
    return sorted(chosen, key=lambda case: case.number if case.decisive else OTHERS_LAST)


def _no_device() -> str | None:
    """Why the CUDA driver of this machine has no device; None: it has one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return str(error)
    count = ctypes.c_int()
    result = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return f"the CUDA driver reports error {result}" if result else None if count.value else "the CUDA driver finds no device"


def _versions() -> dict[str, Any]:
    """Versions on the machine; those that cannot be determined are left out."""
    versions: dict[str, Any] = {"python": platform.python_version(), "system": platform.platform(), "executable": sys.executable}
    questions = {
        "commit": ["git", "-C", str(ROOT), "rev-parse", "HEAD"],
        "gpu": [nvidia_smi() or "nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
        "nvcc": ["nvcc", "--version"],
        "torch": [sys.executable, "-c", "import torch; print(torch.__version__, torch.version.cuda)"],
    }
    for name, command in questions.items():
        if shutil.which(command[0]):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_SECONDS, stdin=subprocess.DEVNULL)
            except (OSError, subprocess.TimeoutExpired):
                continue
            if done.returncode == 0 and done.stdout.strip():
                versions[name] = done.stdout.strip().splitlines()[-1]
    return versions
