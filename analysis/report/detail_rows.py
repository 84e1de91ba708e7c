"""Rows that the details of several rules share: GPUs, processes, devices, box plots and times by name."""

from __future__ import annotations

from .details import DetailsRow


class Gpu(DetailsRow):
    node: str
    device: int


class ProcessRow(DetailsRow):
    node: str
    rank: int | None
    pid: int | None


class ProfiledDevice(ProcessRow):
    """A device of a profile, with the time from its first event to the end of its last."""

    device: int | None
    span_ns: int


class Box(DetailsRow):
    """A box plot in percent. ``lower``, ``upper``: fences at 1.5 IQR, cut to min and max. Whiskers end at the last value within them."""

    samples: int
    min: float
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float
    max: float
    mean: float
    lower: float
    upper: float
    whisker_lower: float
    whisker_upper: float


class NamedTime(DetailsRow):
    """``percent``: of the times of all names of the kind."""

    name: str
    time_ns: int
    percent: float


class CountedTime(DetailsRow):
    name: str
    count: int
    time_ns: int


class Active(DetailsRow):
    """Phases, annotations and operators that were active in a set of intervals, longest first."""

    phases: tuple[NamedTime, ...] = ()
    annotations: tuple[NamedTime, ...] = ()
    operators: tuple[NamedTime, ...] = ()
