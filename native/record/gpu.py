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

from ...errors import UsageError

GPU: Final = "POSTRUN_GPU"
"""1: a process of the job records what runs on the GPUs; 0: nothing of GPUs is recorded, neither that nor samples."""
INJECTION: Final = "CUDA_INJECTION64_PATH"
NVTX: Final = "NVTX_INJECTION64_PATH"  # Ranges that a program marks with NVTX become annotations; who has set it keeps them
STEPS: Final = "POSTRUN_GPU_STEPS"
SECONDS: Final = "POSTRUN_GPU_TIME"
SIGNAL: Final = "POSTRUN_GPU_SIGNAL"
WINDOWS: Final = "POSTRUN_GPU_WINDOWS"
"""Bounded windows that open again and again: ``auto``, or a list such as ``warmup=10,steps=20,every=600``; unset: all the time."""
_AUTO: Final = "auto"
_VENDORS: Final = {"0x1002": "AMD", "0x8086": "Intel"}
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
    typed: Collection[str], gpu: str | None, steps: str | None, seconds: str | None, window_signal: str | None
) -> tuple[bool | None, bool, Window]:
    """What is meant if several options are given: what was ``typed`` counts before what the environment says. Returns whether GPUs are
    recorded (None: if there is a driver), whether all of their activity is, and the window. Raises UsageError."""
    given = {"steps": steps, "seconds": seconds, "window_signal": window_signal}
    names = [name for name, value in given.items() if value is not None]
    strong = gpu if gpu in ("off", "always") and ("gpu" in typed or not set(names) & set(typed)) else None
    names = [name for name in names if name in typed] or ([] if strong else names)
    spelled = ["--" + name.replace("_", "-") for name in names]
    spelled += {"off": ["--no-gpu"], "always": ["--gpu always"]}.get(strong or "", [])
    if len(spelled) > 1:
        raise UsageError(f"{' and '.join(spelled)} exclude each other; give one of them")
    window = Window(**{name.removeprefix("window_"): value for name, value in given.items() if name in names})
    if strong == "off":
        return False, False, window
    return True if gpu not in (None, "off") else None, strong == "always", window


def other_gpus(root: Path = Path("/")) -> str | None:
    """The maker of the machine's GPUs that are not NVIDIA's: AMD, or Intel for a card with memory of its own; None: there are none."""
    for card in sorted((root / "sys/class/drm").glob("card*/device")):
        vendor = _VENDORS.get(_line(card / "vendor"), "")
        # Graphics in a processor have no memory of their own (AMD), or are at this address (Intel).
        if vendor == "AMD" and int(_line(card / "mem_info_vram_total") or 0) >= _DISCRETE_BYTES:
            return vendor
        if vendor == "Intel" and not card.resolve().name.endswith(":00:02.0"):
            return vendor
    for node in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")):
        if _line(node) not in ("", "0"):
            return "AMD"
    return None


def _line(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


_DISCRETE_BYTES: Final = 2 << 30  # Memory of a GPU; what a processor's graphics reserve is less


def told(
    gpu: bool | None,
    window: Window,
    environment: Mapping[str, str],
    library: Path,
    *,
    explicit: bool,
    driver: bool,
    always: bool = False,
    other: str | None = None,
) -> Told:
    """``gpu`` is what the user wants, None: where there is a ``driver``. ``explicit``: something about GPUs was asked for. ``environment``:
    the recorder's own. ``always``: all GPU activity, else that of bounded windows. ``other``: the maker of GPUs that are not NVIDIA's."""
    windows = {STEPS: window.steps, SECONDS: window.seconds, SIGNAL: window.signal}
    unused = frozenset(name for name, value in windows.items() if value is None)
    injected = environment.get(INJECTION)
    ours = injected is not None and _same(injected, library)
    ranges = {} if environment.get(NVTX) else {NVTX: os.fspath(library)}  # of processors, too
    if gpu is False:
        return Told({GPU: "0"} | ranges, unused | set(windows) | {WINDOWS} | ({INJECTION} if ours else set()))
    remarks, facts = [], {}
    if other and not driver:
        why = f"GPU activity is not captured on {other} GPUs; use PyTorch's profiler"
        remarks.append(why)
        facts["capability.gpu"] = f"{other} GPUs are not supported; use PyTorch's profiler"
    if not driver and not explicit:
        return Told(ranges, remarks=tuple(remarks), facts=facts)
    variables = {GPU: "1"} | ranges | {name: value for name, value in windows.items() if value is not None}
    if always or window != Window():
        unused |= {WINDOWS}
    else:
        variables[WINDOWS] = environment.get(WINDOWS) or _AUTO
    if explicit:
        facts["recording.gpu"] = "asked for"
    if not driver and not other:
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
    return Told(variables, unused, tuple(remarks), facts)


def _same(path: str, library: Path) -> bool:
    """Whether a path is this library, or the one of another installation of postrun."""
    return Path(path).name == library.name or os.path.realpath(path) == os.path.realpath(library)
