"""What does a rule get to see of a run? The store, the samples in blocks, and every other analysis of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
from .device_gaps import DeviceGaps
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
    gaps: DeviceGaps = field(init=False, repr=False, compare=False)
    """Idle gaps of every device, found when first asked for."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gaps", DeviceGaps(self.store))
