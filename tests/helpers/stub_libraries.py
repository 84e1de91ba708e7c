"""Stub libraries of the CUDA driver and of CUPTI, built from the sources in tests/native."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import c_build
import cupti_headers
from native_programs import VARIANTS, Programs

SOURCES = Path(__file__).resolve().parents[1] / "native"
FLAGS = (*c_build.SHARED, "-std=gnu11", "-Wno-unused-result", "-Wno-pedantic")
RECORDS = {"KERNEL": "Kernel", "MEMCPY": "Memcpy", "PEER": "MemcpyPtoP", "MEMSET": "Memset", "SYNC": "Synchronization"}


def stub(source: str, built: Path, *flags: str, variant: str = "plain") -> Path:
    """Build a shared library from a source of tests/native."""
    return c_build.build([SOURCES / source], built, *VARIANTS[variant], *FLAGS, *flags)


def cuda(folder: Path, variant: str = "plain") -> Path:
    """Build the stub of the driver in ``folder``."""
    return stub("stub_cuda.c", folder / "libcuda.so.1", variant=variant)


def cupti(version: str, built: Path, *flags: str, variant: str = "plain") -> Path:
    """Build the stub of a version of CUPTI, with the vendor's headers of that version."""
    return stub("stub_cupti.c", built, *_cupti_flags(version), *flags, variant=variant)


@cache
def _cupti_flags(version: str) -> tuple[str, ...]:
    calls = cupti_headers.calls(version)
    lines = [f"{domain.upper()}({name}, {number})" for domain in calls for name, number in calls[domain].items()]
    generated = c_build.KEPT / f"calls-{version}"
    generated.mkdir(parents=True, exist_ok=True)
    c_build.write_changed(generated / "calls.inc", "\n".join(lines))
    types = [f"-D{macro}={cupti_headers.newest(version, record)}" for macro, record in RECORDS.items()]
    include = cupti_headers.include(version)
    if "cuptiSubscribe_v2" in (include / "cupti_callbacks.h").read_text():
        types.append("-DSUBSCRIBE_2")
    if "cuptiActivityEnableDriverApi" in (include / "cupti_activity.h").read_text(errors="replace"):
        types.append("-DCALL_SWITCHES")
    return (f"-I{generated}", *types, *cupti_headers.flags(version))


@cache
def launches(programs: Programs, variant: str) -> dict[str, str]:
    """Build a driver and a CUPTI that records launches; return the variables to set."""
    folder = programs.library(variant) / "launches"
    folder.mkdir()
    cuda(folder, variant)
    library = stub("stub_launches.c", folder / "libcupti.so.13", f"-I{programs.root / 'native' / 'src'}", variant=variant)
    return {"LD_LIBRARY_PATH": str(folder), "POSTRUN_CUPTI": str(library)}
