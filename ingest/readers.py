"""Readers: the function that reads the files of each format, in the order in which formats are read.

A reader adds the events of one file to the run store and returns a result, or None if files of its format have no events. It notes damage
in the store; InputError and OSError mean that the file cannot be read at all. `progress` takes the fraction that is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .chrome_trace.head import TRACE_HEAD_BYTES, read_head
from .store.format_names import CAPTURE, DCGM, JOB, NSIGHT, NVIDIA_SMI, PYTHON_STATS, PYTHON_TREE, TENSORFLOW, TIMELINE, TORCH_TRACE, TRACE

if TYPE_CHECKING:
    from .gpu_logs.rows import GpuLogs
    from .prt.reader import Captures
    from .store.identity import Placement
    from .store.registry import ReadResult, Registry
    from .store.store import Store


@dataclass(frozen=True, slots=True)
class Destination:
    """Where readers put the events of a run, with what is known so far. ``job``: the contents of job.json, once it is read."""

    store: Store
    registry: Registry
    placement: Placement
    captures: Captures
    logs: GpuLogs
    job: dict[str, Any]


Progress = Callable[[float], None]
Reader = Callable[[Destination, Path, int, Progress], "ReadResult | None"]


def readers() -> Mapping[str, Reader]:
    """Return the reader of each format, in the order in which formats are read."""
    # Recordings name their node and process; traces often do not, and are then matched with them. Timelines show whether the number in a
    # node's name is a process id or a rank. The other files determine the node and times of logs, once all are read (joining/). Files of
    # system metrics are read many at a time (reading.py).
    return {
        CAPTURE: _capture,
        NSIGHT: _nsight,
        TRACE: _trace,
        TIMELINE: _timeline,
        TENSORFLOW: _tensorflow,
        PYTHON_STATS: _python_stats,
        PYTHON_TREE: _python_tree,
        TORCH_TRACE: _torch_trace,
        NVIDIA_SMI: _nvidia_smi,
        DCGM: _dcgm,
        JOB: _job,
    }


# A run has files of few formats: each reader is imported when the first file of its format is read.


def _capture(run: Destination, path: Path, source: int, progress: Progress) -> ReadResult | None:
    return run.captures.read(path, source, progress)


def _nsight(run: Destination, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .nsys.reader import read_export

    return read_export(run.store, run.registry, run.placement, path, source, progress)


def _trace(run: Destination, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .kineto.reader import read_trace

    return read_trace(run.store, run.placement, path, source, read_head(path, TRACE_HEAD_BYTES), progress)


def _timeline(run: Destination, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .hosted.timelines import read_pevents

    return read_pevents(run.store, path, source, run.registry)


def _tensorflow(run: Destination, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .tensorflow.reader import read_tensorflow

    return read_tensorflow(run.store, run.placement, path, source, progress)


def _python_stats(run: Destination, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .python_profiles.reader import read_dump

    return read_dump(run.store, run.registry, path, source)


def _python_tree(run: Destination, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .python_profiles.reader import read_pyinstrument

    return read_pyinstrument(run.store, run.registry, path, source)


def _torch_trace(run: Destination, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .torch_trace.reader import read_torch_trace

    return read_torch_trace(run.store, run.registry, run.placement, path, source, progress)


def _nvidia_smi(run: Destination, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .gpu_logs.nvidia_smi import SmiReader

    return SmiReader(run.store, run.logs, path, source).read(progress)


def _dcgm(run: Destination, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .gpu_logs.dcgm import DcgmReader

    return DcgmReader(run.store, run.logs, path, source).read(progress)


def _job(run: Destination, path: Path, source: int, progress: Progress) -> ReadResult | None:
    from .store.run_row import read_job

    run.job.update(read_job(run.store, path, source))
    return None
