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
from .store.format_names import CAPTURE, DCGM, JOB, NSIGHT, NVIDIA_SMI, PYTHON_STATS, PYTHON_TREE, TENSORFLOW, TIMELINE, TRACE

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
    from .gpu_logs.dcgm import DcgmReader
    from .gpu_logs.nvidia_smi import SmiReader
    from .hosted.timelines import read_pevents
    from .kineto.reader import read_trace
    from .nsys.reader import read_export
    from .python_profiles.reader import read_dump, read_pyinstrument
    from .store.run_row import read_job
    from .tensorflow.reader import read_tensorflow

    # Recordings name their node and process; traces often do not, and are then matched with them. Timelines show whether the number in a
    # node's name is a process id or a rank. The other files determine the node and times of logs, once all are read (joining/). Files of
    # system metrics are read many at a time (reading.py).
    return {
        CAPTURE: lambda run, path, source, progress: run.captures.read(path, source, progress),
        NSIGHT: lambda run, path, source, progress: read_export(run.store, run.registry, run.placement, path, source, progress),
        TRACE: lambda run, path, source, progress: read_trace(
            run.store, run.placement, path, source, read_head(path, TRACE_HEAD_BYTES), progress
        ),
        TIMELINE: lambda run, path, source, progress: read_pevents(run.store, path, source, run.registry),
        TENSORFLOW: lambda run, path, source, progress: read_tensorflow(run.store, run.placement, path, source, progress),
        PYTHON_STATS: lambda run, path, source, progress: read_dump(run.store, run.registry, path, source),
        PYTHON_TREE: lambda run, path, source, progress: read_pyinstrument(run.store, run.registry, path, source),
        NVIDIA_SMI: lambda run, path, source, progress: SmiReader(run.store, run.logs, path, source).read(progress),
        DCGM: lambda run, path, source, progress: DcgmReader(run.store, run.logs, path, source).read(progress),
        JOB: lambda run, path, source, progress: run.job.update(read_job(run.store, path, source)),
    }
