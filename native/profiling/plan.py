"""The plan of a recording, as plain values: which parts of the framework are profiled, in which steps or times.

:mod:`.profiler_config` makes it from the configuration classes, :mod:`.config_file` from files; the capture side reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Timer = Literal["total_time", "cpu_time", "off_cpu_time", "default"]
"""What a Python profile counts: wall-clock time, processor time, or the difference; "default": one after the other, a step each."""


@dataclass(frozen=True, slots=True)
class Window:
    """Steps ``first_step`` to ``first_step + steps - 1``, or the time from ``start_s`` on, for ``duration_s``.

    By steps: ``first_step`` is a number; ``steps`` is None where the window has no end. By time: ``start_s`` is seconds since the Unix
    epoch (None: from the start of the recording on); ``duration_s`` None: the one step that begins at or after ``start_s``.
    """

    first_step: int | None = None
    steps: int | None = None
    start_s: float | None = None
    duration_s: float | None = None

    @property
    def by_steps(self) -> bool:
        """Whether steps, not times, bound it."""
        return self.first_step is not None

    def holds(self, step: int) -> bool:
        """Whether a window by steps has this step."""
        return self.first_step is not None and self.first_step <= step and (self.steps is None or step < self.first_step + self.steps)


@dataclass(frozen=True, slots=True)
class LoaderPlan:
    """Iterations of data loaders, and of their workers, whose metric's name matches the regular expression ``metrics_regex``."""

    window: Window
    metrics_regex: str = ".*"


@dataclass(frozen=True, slots=True)
class PythonPlan:
    """A profile of Python functions for each step of the window. ``timer`` is of cProfile; Pyinstrument takes wall-clock time."""

    window: Window
    profiler: Literal["cprofile", "pyinstrument"] = "cprofile"
    timer: Timer = "total_time"


@dataclass(frozen=True, slots=True)
class ProfilingPlan:
    """What to record. None: not said (the system sampler), or not at all (the five kinds of profiling).

    ``sample_ms``: interval of the system sampler; ``cpu_seconds``: how long processors are sampled; ``rotate_s``: after how many seconds a
    trace file is closed and the next one begun (None: never). ``local_path``: where the files of framework profiling go (None: the
    recording's own folder); ``max_file_bytes``, ``close_interval_s``: when a timeline file is closed and the next one begun;
    ``open_fail_threshold``: after how many files that could not be opened in a row none is tried any more.
    ``detailed``: operators and kernels. ``horovod``, ``smdataparallel``: the timelines of these libraries.
    """

    disabled: bool = False
    sample_ms: int | None = None
    cpu_seconds: int | None = None
    rotate_s: int | None = None
    local_path: str | None = None
    max_file_bytes: int = 10_485_760
    close_interval_s: float = 60
    open_fail_threshold: int = 50
    detailed: Window | None = None
    loader: LoaderPlan | None = None
    python: PythonPlan | None = None
    horovod: Window | None = None
    smdataparallel: Window | None = None

    @property
    def of_framework(self) -> bool:
        """Whether anything but the system is to be profiled."""
        return not self.disabled and any((self.detailed, self.loader, self.python, self.horovod, self.smdataparallel))
