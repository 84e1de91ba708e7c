"""Which function reads the files of which format, and in which order are they read?

A reader adds the events of one file to the run store and says what it added; None where a file has no events by its nature. What is
damaged is noted in the store; InputError and OSError say that nothing of the file can be read. `progress` takes the part that is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .chrome_trace.head import TRACE_HEAD_BYTES, read_head
from .store.format_names import CAPTURE, DCGM, JOB, NSIGHT, NVIDIA_SMI, PYTHON_STATS, PYTHON_TREE, TENSORFLOW, TIMELINE, TRACE

if TYPE_CHECKING:
    from .gpu_logs.rows import GpuLogs
    from .prt.reader import Captures
    from .store.identity import Placement
    from .store.registry import ReadResult, Registry
    from .store.store import Store


@dataclass(frozen=True, slots=True)
class Place:
    """Where the events of the files of one run go, and what is known of them so far. ``job``: what job.json says, filled by its reader."""

    store: Store
    registry: Registry
    placement: Placement
    captures: Captures
    logs: GpuLogs
    job: dict[str, Any]


Progress = Callable[[float], None]
Reader = Callable[[Place, Path, int, Progress], "ReadResult | None"]


def _capture(place: Place, path: Path, source: int, progress: Progress) -> ReadResult | None:
    return place.captures.read(path, source, progress)


def _trace(place: Place, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .kineto.reader import read_trace

    return read_trace(place.store, place.placement, path, source, read_head(path, TRACE_HEAD_BYTES), progress)


def _nsight(place: Place, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .nsys.reader import read_export

    return read_export(place.store, place.registry, place.placement, path, source, progress)


def _timeline(place: Place, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .hosted.timelines import read_pevents

    return read_pevents(place.store, path, source, place.registry)


def _tensorflow(place: Place, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .tensorflow.reader import read_tensorflow

    return read_tensorflow(place.store, place.placement, path, source, progress)


def _python_stats(place: Place, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .python_profiles.reader import read_dump

    return read_dump(place.store, place.registry, path, source)


def _python_tree(place: Place, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .python_profiles.reader import read_pyinstrument

    return read_pyinstrument(place.store, place.registry, path, source)


def _smi(place: Place, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .gpu_logs.nvidia_smi import read_smi

    return read_smi(place.store, place.logs, path, source, progress)


def _dcgm(place: Place, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .gpu_logs.dcgm import read_dcgm

    return read_dcgm(place.store, place.logs, path, source, progress)


def _job(place: Place, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .store.run_row import read_job

    place.job.update(read_job(place.store, path, source))
    return None


# In the order in which files are read: recordings name their machine and process; traces often do not, and are then found among them.
# Files of system metrics are read many at a time (load.py).
READERS: Final[Mapping[str, Reader]] = {
    CAPTURE: _capture,
    NSIGHT: _nsight,
    TRACE: _trace,
    TIMELINE: _timeline,
    TENSORFLOW: _tensorflow,  # timelines tell whether the number in a node's name is a process id or a rank
    PYTHON_STATS: _python_stats,
    PYTHON_TREE: _python_tree,
    NVIDIA_SMI: _smi,  # their machines and times are told by the others, when all are read (joined_sources.py)
    DCGM: _dcgm,
    JOB: _job,
}
