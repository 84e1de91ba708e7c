"""A run as the rules see it: the store, the samples in blocks, and every other analysis of the report.

Each analysis is computed at first use: a few rules do not take the time of a complete report.
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
    """A run and the results of its analysis functions. The store must not change meanwhile."""

    def __init__(self, store: Store, options: AnalysisOptions = AnalysisOptions()) -> None:  # noqa: B008  (AnalysisOptions is frozen)
        self.store = store
        self.places = Places(store)
        self.options = options

    @property
    def top(self) -> int:
        """Maximum number of rows of lists in the details."""
        return self.options.top

    @cached_property
    def derived(self) -> pl.DataFrame:
        """Utilization of devices without samples, from their kernels."""
        return derived_utilisation(self.store)

    @cached_property
    def samples(self) -> Samples:
        """Samples of the nodes, and derived utilization, in blocks."""
        return Samples(self.store, self.derived)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes of the run."""
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
        """Duration of the job, its initialization and its loop."""
        return job_statistics(self.store)

    @cached_property
    def usage(self) -> SystemUsage:
        """Quantiles of the samples."""
        return system_usage(self.store, self.derived)

    @cached_property
    def breakdown(self) -> tuple[DeviceTime, ...]:
        """Device activity: a row per (process, device)."""
        return time_breakdown(self.store)

    @cached_property
    def whole_devices(self) -> tuple[DeviceTime, ...]:
        """Device activity: a row per device."""
        return whole_devices(self.store, self.breakdown)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels, longest total time first."""
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
