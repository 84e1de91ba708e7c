"""Data of a timeline in plain columns: made by build.py, drawn by report_templates/timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

CAP: Final = 300_000  # default number of events that a report embeds


@dataclass(frozen=True, slots=True)
class Track:
    """A row of the tree; its number is its index in ``Timeline.tracks``, parents before children. ``kind``: node, cpu, gpus, process,
    ``utilization``, counter, device, stream, host, thread, steps or annotations. ``lanes``: nested levels of its events; 0 without events.
    ``detail``: the full name if ``label`` is abbreviated, else empty. ``narrow``: a shorter label for a narrow column, else empty."""

    parent: int | None
    kind: str
    label: str
    lanes: int = 0
    detail: str = ""
    narrow: str = ""


@dataclass(frozen=True, slots=True)
class Name:
    """``short``: as tables show it. ``meaning``: computation, communication, memory, sync, launch, host, annotation, step or merged."""

    name: str
    short: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Events:
    """One entry per event, by track and start. ``start_ns`` counts from the timeline's origin. ``partner``: index of the launch of a run on
    a device, or of the first run of a launch. ``detail``: index in ``Timeline.details``. ``correlation``: the number that links a launch to
    its runs. ``step``: the index of the step that launched it. -1 means none in all four."""

    track: npt.NDArray[np.int32]
    start_ns: npt.NDArray[np.int64]
    duration_ns: npt.NDArray[np.int64]
    name: npt.NDArray[np.int32]
    lane: npt.NDArray[np.int16]
    partner: npt.NDArray[np.int32]
    detail: npt.NDArray[np.int32]
    correlation: npt.NDArray[np.int64]
    step: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Line:
    """Samples of a track, thinned to a mean and the range of each bucket. ``unit``: percent, MiB, W, MHz or a word of its own."""

    track: int
    unit: str
    time_ns: npt.NDArray[np.int64]
    mean: npt.NDArray[np.float32]
    low: npt.NDArray[np.float32]
    high: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class View:
    """A time range worth a look. ``key``: slowest, typical, devices (time of device activity if that is a small part of the run) or whole.
    ``label``: "step 7 of rank 1, 243 ms: the slowest"."""

    key: str
    label: str
    start_ns: int
    end_ns: int
    track: int | None


@dataclass(frozen=True, slots=True)
class Gap:
    """Time without a recording of a process while its run went on, on a track of the process."""

    track: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A timeline. ``origin_ns``: time 0 in ns since the epoch. ``details``: launch configurations and sizes, as (word, value) pairs.
    ``events_total``: events of the run before merging. ``shown``: a sentence on merged and omitted events; None if there are none.
    ``views``: it opens with the first. ``gaps``: by track and start."""

    origin_ns: int
    span_ns: int
    tracks: tuple[Track, ...]
    names: tuple[Name, ...]
    events: Events
    details: tuple[tuple[tuple[str, str], ...], ...]
    lines: tuple[Line, ...]
    views: tuple[View, ...]
    events_total: int
    shown: str | None
    gaps: tuple[Gap, ...] = ()


NOTHING: Final = Timeline(
    0, 0, (), (),
    Events(*(np.zeros(0, kind) for kind in (np.int32, np.int64, np.int64, np.int32, np.int16, np.int32, np.int32, np.int64, np.int32))),  # type: ignore[arg-type]
    (), (), (), 0, None,
)  # fmt: skip
"""A run in which nothing has a time; the section states this."""
