"""What does a rule get to see of a run? The store, the samples in blocks, and every other analysis of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ingest.store import Store
from ..places import Places
from ..report import (
    Activity,
    Annotations,
    Device,
    DeviceTime,
    Framework,
    Idle,
    JobStatistics,
    Kernel,
    Launches,
    MemoryOperation,
    Node,
    Precision,
    Process,
    Steps,
    SystemUsage,
)
from .samples import Samples


@dataclass(frozen=True, slots=True)
class RunData:
    """A run and what the analyses found. ``breakdown``: a row per (process, device); ``whole_devices``: a row per device. ``top``: how many
    rows lists in the details have at most."""

    store: Store
    places: Places
    samples: Samples
    nodes: Sequence[Node]
    devices: Sequence[Device]
    processes: Sequence[Process]
    job: JobStatistics
    usage: SystemUsage
    breakdown: Sequence[DeviceTime]
    whole_devices: Sequence[DeviceTime]
    kernels: Sequence[Kernel]
    precision: Precision
    activity: Activity
    memory_operations: Sequence[MemoryOperation]
    launches: Launches
    idle: Sequence[Idle]
    steps: Steps
    annotations: Annotations
    framework: Framework
    top: int = 15
