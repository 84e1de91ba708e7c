"""What does a recorder tell the processes of a job about GPUs: whether to record what runs on them, when, and by which way in?

A process records it that imports postrun.capture, or into which the CUDA driver loads the C library, as CUDA_INJECTION64_PATH says.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .errors import UsageError

GPU: Final = "POSTRUN_GPU"
"""1: a process of the job records what runs on the GPUs; 0: nothing of GPUs is recorded, neither that nor samples."""
INJECTION: Final = "CUDA_INJECTION64_PATH"
NVTX: Final = "NVTX_INJECTION64_PATH"
"""Ranges that a program marks with NVTX become annotations; who has set it keeps them."""
STEPS: Final = "POSTRUN_GPU_STEPS"
SECONDS: Final = "POSTRUN_GPU_TIME"
SIGNAL: Final = "POSTRUN_GPU_SIGNAL"
_NSIGHT: Final = "NSYS_PROFILING_SESSION_ID"
_SECONDS: Final = r"\d{1,9}(?:\.\d{0,9})?|\.\d{1,9}"


@dataclass(frozen=True, slots=True)
class Window:
    """In which part of the job; at most one of them: ``A:B``, ``A:B``, a signal's name."""

    steps: str | None = None
    seconds: str | None = None
    signal: str | None = None

    @property
    def signal_number(self) -> int | None:
        """Of the signal that opens and closes windows."""
        return None if self.signal is None else int(signal.Signals["SIG" + self.signal])


@dataclass(frozen=True, slots=True)
class Told:
    """What the environment of the job gets and loses, what the user is told, and what the recording says of it."""

    variables: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def steps(text: str) -> str:
    """Raises UsageError where it is no ``A:B``."""
    found = re.fullmatch(r"(\d{1,18}):(\d{1,18})", text.strip(), re.ASCII)
    if not found or int(found[1]) >= int(found[2]):
        raise UsageError(f"{text!r} is no range of steps; write A:B with whole numbers, A less than B, such as 10:20 (steps 10 to 19)")
    return found[0]


def seconds(text: str) -> str:
    """Raises UsageError where it is no ``A:B``."""
    found = re.fullmatch(rf"({_SECONDS}):({_SECONDS})", text.strip(), re.ASCII)
    if not found or float(found[1]) >= float(found[2]):
        raise UsageError(f"{text!r} is no range of time; write A:B in seconds after the start, A less than B, such as 60:90 or 0.5:2")
    return found[0]


def signal_name(text: str) -> str:
    """USR1 or USR2. Raises UsageError."""
    name = text.strip().upper().removeprefix("SIG")
    if name not in {"USR1", "USR2"}:
        raise UsageError(f"{text!r} opens no window; choose USR1 or USR2")
    return name


def chosen(
    typed: Collection[str], gpu: bool | None, steps: str | None, seconds: str | None, window_signal: str | None
) -> tuple[bool | None, Window]:
    """What is meant, where several are given: what was ``typed`` counts before what the environment says. Raises UsageError."""
    given = {"steps": steps, "seconds": seconds, "window_signal": window_signal}
    names = [name for name, value in given.items() if value is not None]
    off = gpu is False and ("gpu" in typed or not set(names) & set(typed))
    names = [name for name in names if name in typed] or ([] if off else names)
    spelled = ["--" + name.replace("_", "-") for name in names] + (["--no-gpu"] if off else [])
    if len(spelled) > 1:
        raise UsageError(f"{' and '.join(spelled)} exclude each other; give one of them")
    window = Window(**{name.removeprefix("window_"): value for name, value in given.items() if name in names})
    return False if off else gpu or None, window


def told(gpu: bool | None, window: Window, environment: Mapping[str, str], library: Path, *, explicit: bool, driver: bool) -> Told:
    """``gpu`` is what the user wants, None: where there is a ``driver``. ``explicit``: something about GPUs was asked for. ``environment``:
    the recorder's own."""
    windows = {STEPS: window.steps, SECONDS: window.seconds, SIGNAL: window.signal}
    unused = frozenset(name for name, value in windows.items() if value is None)
    other = environment.get(INJECTION)
    ours = other is not None and _same(other, library)
    ranges = {} if environment.get(NVTX) else {NVTX: os.fspath(library)}  # of processors, too
    if gpu is False:
        return Told({GPU: "0"} | ranges, unused | set(windows) | ({INJECTION} if ours else set()))
    if not driver and not explicit:
        return Told(ranges)
    variables = {GPU: "1"} | ranges | {name: value for name, value in windows.items() if value is not None}
    remarks, facts = [], {}
    if explicit:
        facts["recording.gpu"] = "asked for"
    if not driver:
        remarks.append("there is no NVIDIA driver here (libcuda.so.1); what runs on GPUs is recorded where the job finds one")
        facts["capability.gpu"] = "no NVIDIA driver: libcuda.so.1 is not on this machine"
    if other and not ours:
        tool = "NVIDIA Nsight Systems" if environment.get(_NSIGHT) else other
        why = f"{INJECTION} is kept as it is set ({tool}): what runs on GPUs is recorded only of programs that import postrun.capture"
        remarks.append(f"{why}, and only where no other profiler uses CUPTI")
        facts["capability.gpu.injection"] = why
    else:
        variables[INJECTION] = os.fspath(library)
        if environment.get(_NSIGHT):
            remarks.append("NVIDIA Nsight Systems profiles this job: where it uses CUPTI, kernels are left to it, and the report says so")
    return Told(variables, unused, tuple(remarks), facts)


def _same(path: str, library: Path) -> bool:
    """Whether a path is this library, or the one of another installation of postrun."""
    return Path(path).name == library.name or os.path.realpath(path) == os.path.realpath(library)
