"""The plan of a recording, as plain values: the profiled parts of the framework, and their steps or times.

:mod:`.config_json` and :mod:`.config_file` make it from configuration classes and files; the capture side reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

Timer = Literal["total_time", "cpu_time", "off_cpu_time", "default"]
"""The clock of a Python profile: wall-clock time, processor time, or the difference; "default": one after the other, a step each."""


@dataclass(frozen=True, slots=True)
class Window:
    """Steps ``first_step`` to ``first_step + steps - 1``, or ``duration_s`` seconds after ``start_s``.

    By steps: ``first_step`` is a number; ``steps`` None: the window has no end. By time: ``start_s`` is in seconds since the Unix epoch
    (None: the start of the recording); ``duration_s`` None: the single step that begins at or after ``start_s``.
    """

    first_step: int | None = None
    steps: int | None = None
    start_s: float | None = None
    duration_s: float | None = None

    @property
    def by_steps(self) -> bool:
        """Whether the window is bounded by steps rather than times."""
        return self.first_step is not None

    def holds(self, step: int) -> bool:
        """Whether a window by steps contains this step."""
        return self.first_step is not None and self.first_step <= step and (self.steps is None or step < self.first_step + self.steps)


@dataclass(frozen=True, slots=True)
class DetailedPlan:
    """Operators and kernels. ``shapes``: with shapes and types of operators' inputs; ``stacks``: with Python frames and modules."""

    window: Window
    shapes: bool = False
    stacks: bool = False


@dataclass(frozen=True, slots=True)
class LoaderPlan:
    """Iterations of data loaders and their workers whose metric's name matches the regular expression ``metrics_regex``."""

    window: Window
    metrics_regex: str = ".*"


@dataclass(frozen=True, slots=True)
class PythonPlan:
    """A profile of Python functions for each step of the window. ``timer``: of cProfile; Pyinstrument uses wall-clock time."""

    window: Window
    profiler: Literal["cprofile", "pyinstrument"] = "cprofile"
    timer: Timer = "total_time"


@dataclass(frozen=True, slots=True)
class ProfilingPlan:
    """The plan of a recording. None: the default (the system sampler), or off (the five kinds of profiling).

    ``sample_ms``: interval of the system sampler; ``cpu_seconds``: how long processors are sampled; ``rotate_s``: age in seconds at which a
    trace file is closed and the next begun (None: never). ``local_path``: folder of the files of framework profiling (None: the
    recording's own); ``max_file_bytes``, ``close_interval_s``: size and age at which a timeline file is closed and the next begun;
    ``open_fail_threshold``: failures to open a file in a row after which no further file is opened.
    ``horovod``, ``smdataparallel``: the timelines of these libraries.
    """

    disabled: bool = False
    sample_ms: int | None = None
    cpu_seconds: int | None = None
    rotate_s: int | None = None
    local_path: str | None = None
    max_file_bytes: int = 10_485_760
    close_interval_s: float = 60
    open_fail_threshold: int = 50
    detailed: DetailedPlan | None = None
    loader: LoaderPlan | None = None
    python: PythonPlan | None = None
    horovod: Window | None = None
    smdataparallel: Window | None = None

    @property
    def of_framework(self) -> bool:
        """Whether anything besides the system is profiled."""
        return not self.disabled and any((self.detailed, self.loader, self.python, self.horovod, self.smdataparallel))


DEFAULT_WINDOW: Final = Window(first_step=5, steps=3)
"""Steps whose operators are recorded if a job requests shapes or stacks without steps: three after the first ones, which warm up."""


def with_calls(plan: ProfilingPlan | None, *, shapes: bool, stacks: bool, steps: str | None = None) -> ProfilingPlan | None:
    """Add shapes and stacks of operators to a plan.

    A plan without operators gets a window for them: the ``A:B`` of ``steps`` (A to B-1), else ``DEFAULT_WINDOW``.
    """
    if not (shapes or stacks) or (plan is not None and plan.disabled):
        return plan
    plan = plan or ProfilingPlan()
    detailed = plan.detailed
    if detailed is None:
        first, _, end = (steps or "").partition(":")
        is_range = first.isdecimal() and end.isdecimal() and int(first) < int(end)
        detailed = DetailedPlan(Window(first_step=int(first), steps=int(end) - int(first)) if is_range else DEFAULT_WINDOW)
    return replace(plan, detailed=replace(detailed, shapes=detailed.shapes or shapes, stacks=detailed.stacks or stacks))
