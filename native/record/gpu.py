"""The environment that determines whether, when and how processes of a job record GPU activity.

A process records it if it imports postrun.capture, or if the CUDA driver loads the C library into it, named by CUDA_INJECTION64_PATH.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...errors import UsageError
from .facts import first_line

GPU: Final = "POSTRUN_GPU"
"""1: a process of the job records GPU activity; 0: neither GPU activity nor samples of GPUs are recorded."""
INJECTION: Final = "CUDA_INJECTION64_PATH"
NVTX: Final = "NVTX_INJECTION64_PATH"  # ranges marked with NVTX become annotations; a value that the user set stays
STEPS: Final = "POSTRUN_GPU_STEPS"
SECONDS: Final = "POSTRUN_GPU_TIME"
SIGNAL: Final = "POSTRUN_GPU_SIGNAL"
WINDOWS: Final = "POSTRUN_GPU_WINDOWS"
"""Bounded windows that open repeatedly: ``auto``, or a list such as ``warmup=10,steps=20,every=600``; unset: all the time."""
_AUTO: Final = "auto"
_VENDORS: Final = {"0x1002": "AMD", "0x8086": "Intel"}
_NSIGHT: Final = "NSYS_PROFILING_SESSION_ID"
_SECONDS: Final = r"\d{1,9}(?:\.\d{0,9})?|\.\d{1,9}"


@dataclass(frozen=True, slots=True)
class Window:
    """The part of the job to record; at most one is set: ``A:B`` steps, ``A:B`` seconds, or the name of a signal."""

    steps: str | None = None
    seconds: str | None = None
    signal: str | None = None

    @property
    def signal_number(self) -> int | None:
        """Return the number of the signal that opens and closes windows."""
        return None if self.signal is None else int(signal.Signals["SIG" + self.signal])


@dataclass(frozen=True, slots=True)
class JobChanges:
    """Changes to the environment of the job, remarks for the user, and facts for the recording."""

    variables: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def steps(text: str) -> str:
    """Check an ``A:B`` of steps. Raise UsageError."""
    return _range(text, r"\d{1,18}", int, "steps; write A:B with whole numbers, A less than B, such as 10:20 (steps 10 to 19)")


def seconds(text: str) -> str:
    """Check an ``A:B`` of seconds. Raise UsageError."""
    return _range(text, _SECONDS, float, "time; write A:B in seconds after the start, A less than B, such as 60:90 or 0.5:2")


def _range(text: str, number: str, read: Callable[[str], float], what: str) -> str:
    match = re.fullmatch(rf"({number}):({number})", text.strip(), re.ASCII)
    if not match or read(match[1]) >= read(match[2]):
        raise UsageError(f"{text!r} is not a range of {what}")
    return match[0]


def signal_name(text: str) -> str:
    """Return USR1 or USR2. Raise UsageError."""
    name = text.strip().upper().removeprefix("SIG")
    if name not in {"USR1", "USR2"}:
        raise UsageError(f"{text!r} opens no window; choose USR1 or USR2")
    return name


def chosen(
    typed: Collection[str], gpu: str | None, steps: str | None, seconds: str | None, window_signal: str | None
) -> tuple[bool | None, bool, Window]:
    """Resolve the GPU options; those in ``typed`` have priority. Raise UsageError.

    Returns whether GPUs are recorded (None: if there is a driver), whether all of their activity is, and the window.
    """
    options = {"steps": steps, "seconds": seconds, "window_signal": window_signal}
    names = [name for name, value in options.items() if value is not None]
    strong = gpu if gpu in ("off", "always") and ("gpu" in typed or not set(names) & set(typed)) else None
    names = [name for name in names if name in typed] or ([] if strong else names)
    spelled = ["--" + name.replace("_", "-") for name in names]
    spelled += {"off": ["--no-gpu"], "always": ["--gpu always"]}.get(strong or "", [])
    if len(spelled) > 1:
        raise UsageError(f"{' and '.join(spelled)} exclude each other; give one of them")
    window = Window(**{name.removeprefix("window_"): value for name, value in options.items() if name in names})
    if strong == "off":
        return False, False, window
    return True if gpu not in (None, "off") else None, strong == "always", window


def other_gpus(root: Path = Path("/")) -> str | None:
    """Return the vendor of non-NVIDIA GPUs, without integrated ones, or None."""
    for card in sorted((root / "sys/class/drm").glob("card*/device")):
        vendor = _VENDORS.get(first_line(card / "vendor") or "")
        # Integrated graphics have no memory of their own (AMD), or are at this address (Intel).
        if vendor == "AMD" and int(first_line(card / "mem_info_vram_total") or 0) >= _DISCRETE_BYTES:
            return vendor
        if vendor == "Intel" and not card.resolve().name.endswith(":00:02.0"):
            return vendor
    for node in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")):
        if first_line(node) not in (None, "0"):
            return "AMD"
    return None


_DISCRETE_BYTES: Final = 2 << 30  # memory of a GPU; integrated graphics reserve less


def job_changes(
    gpu: bool | None,
    window: Window,
    environment: Mapping[str, str],
    library: Path,
    *,
    explicit: bool,
    driver: bool,
    always: bool = False,
    vendor: str | None = None,
) -> JobChanges:
    """Return the changes for recording GPUs.

    ``gpu``: the user's choice; None: if there is a ``driver``. ``explicit``: the user set an option about GPUs. ``environment``: of the
    recorder. ``always``: all GPU activity instead of bounded windows. ``vendor``: of GPUs that are not NVIDIA's.
    """
    windows = {STEPS: window.steps, SECONDS: window.seconds, SIGNAL: window.signal}
    unused = frozenset(name for name, value in windows.items() if value is None)
    injected = environment.get(INJECTION)
    ours = injected is not None and (Path(injected).name == library.name or os.path.realpath(injected) == os.path.realpath(library))
    ranges = {} if environment.get(NVTX) else {NVTX: os.fspath(library)}  # ranges on the CPU count as well
    if gpu is False:
        return JobChanges({GPU: "0"} | ranges, unused | set(windows) | {WINDOWS} | ({INJECTION} if ours else set()))
    remarks, facts = [], {}
    if vendor and not driver:
        why = f"GPU activity is not captured on {vendor} GPUs; use PyTorch's profiler"
        remarks.append(why)
        facts["capability.gpu"] = f"{vendor} GPUs are not supported; use PyTorch's profiler"
    if not driver and not explicit:
        return JobChanges(ranges, remarks=tuple(remarks), facts=facts)
    variables = {GPU: "1"} | ranges | {name: value for name, value in windows.items() if value is not None}
    if always or window != Window():
        unused |= {WINDOWS}
    else:
        variables[WINDOWS] = environment.get(WINDOWS) or _AUTO
    if explicit:
        facts["recording.gpu"] = "asked for"
    if not driver and not vendor:
        remarks.append("there is no NVIDIA driver here (libcuda.so.1); what runs on GPUs is recorded where the job finds one")
        facts["capability.gpu"] = "no NVIDIA driver: libcuda.so.1 is not on this machine"
    if injected and not ours:
        tool = "NVIDIA Nsight Systems" if environment.get(_NSIGHT) else injected
        why = f"{INJECTION} is kept as it is set ({tool}): what runs on GPUs is recorded only of programs that import postrun.capture"
        remarks.append(f"{why}, and only where no other profiler uses CUPTI")
        facts["capability.gpu.injection"] = why
    else:
        variables[INJECTION] = os.fspath(library)
        if environment.get(_NSIGHT):
            remarks.append("NVIDIA Nsight Systems profiles this job: where it uses CUPTI, kernels are left to it, and the report says so")
    return JobChanges(variables, unused, tuple(remarks), facts)
