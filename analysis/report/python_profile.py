"""Plain data on Python profiles: functions, groups of windows, and flame graphs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One function of a Python profile, over the windows of one group; seconds.

    ``function``: as pstats prints it; ``short``: with the shortest unique path. ``kind``: own code, library, standard library, built-in,
    profiler (time of profilers). ``calls``: None if the profiler samples. ``total_s``: own time. ``cumulative_s``: including its calls.
    ``timer``: total_time, cpu_time, off_cpu_time; None if unknown. ``label``: the ``label`` of its group."""

    function: str
    timer: str | None
    first_step: int | None
    last_step: int | None
    calls: int | None
    total_s: float
    cumulative_s: float
    primitive_calls: int | None = None
    short: str = ""
    kind: str = ""
    profiler: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class ProfileGroup:
    """Windows of Python profiles that belong together by one question; seconds.

    ``by``: steps, training phase, modes, job phase. ``label``: the steps or the phase, in words. ``wall_ns``: total length of the
    windows, None if one is unknown. ``total_s``: own time of all functions. ``rows``: the functions that take longest by own time, out of
    ``functions``; those of groups by steps are in :attr:`PythonProfile.rows`."""

    by: str
    label: str
    profiler: str
    timer: str | None
    windows: int
    processes: int
    wall_ns: int | None
    total_s: float
    calls: int | None
    functions: int
    rows: tuple[ProfileRow, ...] = ()


@dataclass(frozen=True, slots=True)
class FlameFrame:
    """A function as it was called on one path from the root; seconds. ``start_s``: its position on the axis. ``own_s``: time outside of
    its calls. ``kind``: as of functions; "other" for functions too small to be shown, "recursion" for calls back into a function
    above."""

    short: str
    function: str
    kind: str
    depth: int
    start_s: float
    total_s: float
    own_s: float


@dataclass(frozen=True, slots=True)
class FlameGraph:
    """The call tree of one profiler, timer and part of the job. ``exact``: the profiler recorded the tree; else it is estimated from
    callers and callees. ``folded``: frames that are not shown by themselves. ``deepest``: depth of the deepest frame shown, from 0."""

    label: str
    profiler: str
    timer: str | None
    exact: bool
    windows: int
    processes: int
    total_s: float
    frames: tuple[FlameFrame, ...]
    folded: int
    deepest: int


@dataclass(frozen=True, slots=True)
class PythonProfile:
    """``rows``: by profiler, timer and steps the functions that take longest by own time. ``groups``: of the same steps, and of phases.
    ``notes``: facts that a reader needs to interpret them."""

    rows: tuple[ProfileRow, ...]
    absent: str | None
    groups: tuple[ProfileGroup, ...] = ()
    flames: tuple[FlameGraph, ...] = ()
    notes: tuple[str, ...] = ()
