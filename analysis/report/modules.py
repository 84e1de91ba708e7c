"""Plain data on the modules and source lines that device work comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the program, or the work outside of all modules (path ""). Self times add up to the time of all device work.

    ``path``: names from the outermost module, joined by "/". ``device_ns``: of its kernels, copies and memsets, with those of the modules
    within it; ``self_device_ns``: without. ``backward_ns``: the part of ``device_ns`` that the backward pass launched. ``calls``: calls of
    the module; ``launches``: kernels, copies and memsets. ``host_ns``: time of its calls on the host. ``waits_ns``: time that the host
    waited in it for the device or the loader.
    """

    path: str
    device_ns: int
    self_device_ns: int
    backward_ns: int
    calls: int
    launches: int
    host_ns: int
    waits_ns: int


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's program that launched device work or waited, or unknown ("").  ``line``: file:line. Times as in Module; each
    piece of device work counts for one line."""

    line: str
    function: str | None
    module: str | None
    device_ns: int
    backward_ns: int
    launches: int
    host_ns: int
    waits_ns: int


@dataclass(frozen=True, slots=True)
class ModuleCoverage:
    """``known_percent``: device time with a module, in percent of all; ``lines_percent``: with a line. ``source``: what named the modules
    (module calls, named ranges, operators of FSDP, ...), None without any. ``absent``: what would name them. ``attributed_percent``:
    device time with an operator or a module, None if the run has neither."""

    known_percent: float | None = None
    lines_percent: float | None = None
    source: str | None = None
    absent: str | None = None
    attributed_percent: float | None = None
