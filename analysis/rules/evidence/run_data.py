"""What does a rule get to see of a run? The store, the samples in blocks, and every other analysis of the report.

Each analysis is made when first asked for: judging a few rules does not take the time of a whole report.
"""

from __future__ import annotations

from functools import cached_property

import polars as pl

from ....ingest.store.store import Store
from ...device.activity import activity
from ...device.idle import idle
from ...device.kernels import kernels
from ...device.launches import launches
from ...device.memory_operations import memory_operations
from ...device.operators import attribution
from ...device.precision import precision
from ...device.time_breakdown import time_breakdown, whole_devices
from ...framework.annotations import annotation_groups
from ...framework.framework import framework
from ...machine.system_usage import system_usage
from ...machine.utilisation import derived_utilisation
from ...report.model import (
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
from ...run import run_info
from ...run.job_statistics import job_statistics
from ...steps.steps import steps
from ...toolkit.options import AnalysisOptions
from ...toolkit.places import Places
from .blocks import Samples
from .device_gaps import DeviceGaps


class RunData:
    """A run and what the analyses find in it. The store is not to change meanwhile."""

    def __init__(self, store: Store, options: AnalysisOptions = AnalysisOptions()) -> None:  # noqa: B008  (AnalysisOptions is frozen)
        self.store = store
        self.places = Places(store)
        self.options = options

    @property
    def top(self) -> int:
        """How many rows lists in the details have at most."""
        return self.options.top

    @cached_property
    def derived(self) -> pl.DataFrame:
        """Utilisation of devices by their kernels, where nothing was sampled."""
        return derived_utilisation(self.store)

    @cached_property
    def samples(self) -> Samples:
        """Samples of the machines, and derived utilisation, in blocks."""
        return Samples(self.store, self.derived)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Machines of the run."""
        return run_info.nodes(self.store)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """GPUs of the run."""
        return run_info.devices(self.store)

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """Processes of the run."""
        return run_info.processes(self.store)

    @cached_property
    def job(self) -> JobStatistics:
        """Duration of the job, its initialisation and its loop."""
        return job_statistics(self.store)

    @cached_property
    def usage(self) -> SystemUsage:
        """Quantiles of the samples."""
        return system_usage(self.store, self.derived)

    @cached_property
    def breakdown(self) -> tuple[DeviceTime, ...]:
        """What the devices did: a row per (process, device)."""
        return time_breakdown(self.store)

    @cached_property
    def whole_devices(self) -> tuple[DeviceTime, ...]:
        """What the devices did: a row per device."""
        return whole_devices(self.store, self.breakdown)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Every kernel, most time first."""
        return kernels(self.store, self.whole_devices)

    @cached_property
    def precision(self) -> Precision:
        """Kernel time by precision."""
        return precision(self.kernels)

    @cached_property
    def activity(self) -> Activity:
        """Device activity by kind."""
        return activity(self.store)

    @cached_property
    def memory_operations(self) -> tuple[MemoryOperation, ...]:
        """Copies and fills by kind."""
        return memory_operations(self.store)

    @cached_property
    def launches(self) -> Launches:
        """Calls of the CUDA runtime and driver."""
        return launches(self.store, top=self.top)

    @cached_property
    def idle(self) -> tuple[Idle, ...]:
        """Idle time of the devices by cause."""
        return idle(self.store)

    @cached_property
    def steps(self) -> Steps:
        """Steps, their times and parts."""
        return steps(self.store)

    @cached_property
    def annotations(self) -> Annotations:
        """Annotated ranges by name."""
        return annotation_groups(self.store, self.options)

    @cached_property
    def attributed(self) -> pl.DataFrame:
        """Device work by the operator that launched it."""
        return attribution(self.store)

    @cached_property
    def framework(self) -> Framework:
        """Metrics of the framework: parts of steps, operators, collectives."""
        return framework(self.store, self.attributed)

    @cached_property
    def gaps(self) -> DeviceGaps:
        """Idle gaps of every device."""
        return DeviceGaps(self.store)
