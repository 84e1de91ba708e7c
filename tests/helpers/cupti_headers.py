"""NVIDIA's headers and libraries for tests: a CUDA version in, its CUPTI, CUDA, NVTX and NVML files out.

The license keeps them out of this project: ``.ci/cuda-wheels`` installs them from wheels, one folder per CUDA version.
$POSTRUN_CUPTI_WHEELS names the folder of these folders. Without it, each version is installed in the user's cache when first used.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_CI = Path(__file__).parents[2] / ".ci"
VERSIONS = sorted((lock.stem for lock in (_CI / "cuda").glob("*.lock")), key=lambda version: [int(part) for part in version.split(".")])
"""CUDA versions, oldest first."""
_NEWEST = VERSIONS[-1]  # Its folder also has cuda.h, which serves older CUPTI headers, and the newest headers of NVTX and NVML
_INSTALLED = os.environ.get("POSTRUN_CUPTI_WHEELS")
_FOLDER = Path(_INSTALLED or Path.home() / ".cache" / "postrun" / "cuda-wheels")


@functools.cache
def _problem(version: str) -> str:
    """Why the version's files cannot be had; empty if they are there."""
    if _INSTALLED:
        there = (_FOLDER / version / "installed.lock").exists()
        return "" if there else f"no CUPTI of CUDA {version} (bash .ci/cuda-wheels $POSTRUN_CUPTI_WHEELS installs it)"
    command = ["bash", str(_CI / "cuda-wheels"), str(_FOLDER), version]
    try:
        done = subprocess.run(command, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no CUPTI of CUDA {version}: {error}"
    return f"no CUPTI of CUDA {version}: {done.stderr.strip()[-200:]}" if done.returncode else ""


def wheels(version: str) -> Path:
    """The folder with a CUDA version's files. Skips the test if they cannot be had."""
    problem = _problem(version)
    if problem:
        pytest.skip(problem)
    return _FOLDER / version


def folder_of(version: str, header: str) -> Path:
    """The folder with a header."""
    return min(wheels(version).rglob(header), key=lambda path: len(path.parts)).parent


def include(version: str) -> Path:
    """The folder with cupti.h."""
    return folder_of(version, "cupti.h")


def nvtx() -> Path:
    """The folder to include nvtx3/nvToolsExt.h from."""
    return folder_of(_NEWEST, "nvToolsExt.h").parent


def library(version: str) -> Path:
    """libcupti itself."""
    (path,) = wheels(version).rglob("libcupti.so*")
    return path


def flags(version: str) -> list[str]:
    """Return the compiler flags of a source that includes cupti.h."""
    folders = dict.fromkeys([include(version), folder_of(_NEWEST, "cuda.h")])
    return [part for folder in folders for part in ("-isystem", str(folder))]


def newest(version: str, record: str) -> str:
    """The name of the newest type of a record: CUpti_ActivityKernel9."""
    texts = [path.read_text(errors="replace") for path in include(version).glob("cupti_activity*.h")]
    numbers = [int(number or 1) for text in texts for number in re.findall(rf"\}} CUpti_Activity{record}(\d*);", text)]
    return f"CUpti_Activity{record}{max(numbers) if max(numbers) > 1 else ''}"


def calls(version: str) -> dict[str, dict[str, int]]:
    """Names and numbers of calls: "driver", "runtime"."""
    results: dict[str, dict[str, int]] = {}
    for domain in ("driver", "runtime"):
        text = (include(version) / f"cupti_{domain}_cbid.h").read_text()
        pairs = re.findall(rf"CUPTI_{domain.upper()}_TRACE_CBID_(\w+)\s*=\s*(\d+)", text)
        results[domain] = {name: int(number) for name, number in pairs if name not in ("INVALID", "SIZE", "FORCE_INT")}
    return results
