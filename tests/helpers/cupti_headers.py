"""Where do tests get the CUDA vendor's headers and libraries from? Wheels, fetched once; the licence keeps them out of this project."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CACHE = Path.home() / ".cache" / "postrun" / "cupti"
VERSIONS = {
    "11.7": "nvidia-cuda-cupti-cu11==11.7.101",
    "11.8": "nvidia-cuda-cupti-cu11==11.8.87",
    "12.1": "nvidia-cuda-cupti-cu12==12.1.105",
    "12.4": "nvidia-cuda-cupti-cu12==12.4.127",
    "12.6": "nvidia-cuda-cupti-cu12==12.6.80",
    "12.9": "nvidia-cuda-cupti-cu12==12.9.79",
    "13.0": "nvidia-cuda-cupti==13.0.85",
    "13.2": "nvidia-cuda-cupti==13.2.86",
    "13.5": "nvidia-cuda-cupti==13.5.25",
}
"""CUPTI of a CUDA toolkit, and the wheel that has it."""
_TYPES = (
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-cuda-crt==13.5.37",
)  # cuda.h and what it includes; newer ones serve older headers of CUPTI


@functools.cache
def wheel(requirement: str) -> Path:
    """The folder of an unpacked wheel; skips the test where it cannot be fetched."""
    name, _, version = requirement.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    CACHE.mkdir(parents=True, exist_ok=True)
    if not any(CACHE.glob(pattern)):
        command = [sys.executable, "-P", "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--retries", "1"]
        done = subprocess.run([*command, "--timeout", "20", "-d", str(CACHE), requirement], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{requirement} cannot be fetched: {done.stderr[-200:].strip()}")
    (archive,) = list(CACHE.glob(pattern))[:1]
    folder = CACHE / f"{name}-{version}"
    if not (folder / ".complete").exists():
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
        (folder / ".complete").touch()
    return folder


def include(version: str) -> Path:
    """The folder with cupti.h."""
    (header,) = wheel(VERSIONS[version]).rglob("cupti.h")
    return header.parent


def library(version: str) -> Path:
    """libcupti itself."""
    return next(path for path in sorted(wheel(VERSIONS[version]).rglob("libcupti.so*")) if path.is_file())


def flags(version: str) -> list[str]:
    """What a compiler needs for a source that includes cupti.h."""
    folders = [include(version)] + [next(wheel(one).rglob(file)).parent for one, file in zip(_TYPES, ("cuda.h", "crt"), strict=True)]
    return [part for folder in folders for part in ("-isystem", str(folder))]


def newest(version: str, record: str) -> str:
    """The name of the newest type of a record: CUpti_ActivityKernel9."""
    texts = [path.read_text(errors="replace") for path in include(version).glob("cupti_activity*.h")]
    numbers = [int(number or 1) for text in texts for number in re.findall(rf"\}} CUpti_Activity{record}(\d*);", text)]
    return f"CUpti_Activity{record}{max(numbers) if max(numbers) > 1 else ''}"


def calls(version: str) -> dict[str, dict[str, int]]:
    """Names and numbers of calls: "driver", "runtime"."""
    found: dict[str, dict[str, int]] = {}
    for domain in ("driver", "runtime"):
        text = (include(version) / f"cupti_{domain}_cbid.h").read_text()
        pairs = re.findall(rf"CUPTI_{domain.upper()}_TRACE_CBID_(\w+)\s*=\s*(\d+)", text)
        found[domain] = {name: int(number) for name, number in pairs if name not in ("INVALID", "SIZE", "FORCE_INT")}
    return found
