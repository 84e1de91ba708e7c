"""The data model of a report: plain data with everything that HTML, PDF and report.json may show, and nothing else.

Units are in the names: ``*_ns`` nanoseconds (``*_at_ns``, ``start_ns``, ``first_ns``: since the Unix epoch, UTC, unless
``run.relative_times``), ``*_percent`` 0..100, ``*_bytes`` bytes, ``*_gb_per_s`` 10^9 bytes per second. ``None`` means "not known", never
zero; an empty tuple means "nothing of this kind in the run", and ``absent`` names the capture that would supply it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Final

from .causes import Gap, Iteration, IterationKind, Program, Role
from .collectives import Collective, CollectiveTotals
from .details import RuleDetails
from .device import (
    Activity,
    AllocatorMemory,
    DeviceTime,
    GpuTime,
    Idle,
    Kernel,
    LaunchConfigurations,
    Launches,
    LaunchQueue,
    MemoryOperation,
    OperatorAttribution,
    Precision,
)
from .efficiency import Efficiency
from .first_page import Actions, JobStrip
from .framework import Annotations, Framework
from .goodput import Goodput
from .json_text import json_text
from .machine import CounterSeries, GpuMemory, SystemUsage
from .modules import Module, ModuleCoverage, SourceLine
from .operator_calls import OperatorCalls
from .python_profile import PythonProfile
from .rows import Share
from .rules import Finding, RuleResult
from .run import Device, Generator, JobStatistics, Node, Note, Process, Run, Summary
from .steps import RankComparison, SlowSteps, StepBreakdown, Steps

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Report:
    """The complete report. ``rules``: in the order in which they ran, ProfilerReport first; ``findings``: by rank."""

    generator: Generator
    run: Run
    summary: Summary
    nodes: tuple[Node, ...]
    devices: tuple[Device, ...]
    processes: tuple[Process, ...]
    job_statistics: JobStatistics
    system_usage: SystemUsage
    time_breakdown: tuple[DeviceTime, ...]
    kernels: tuple[Kernel, ...]  # every kernel name, by total time, longest first
    categories: tuple[Share, ...]
    precision: Precision
    activity: Activity
    memory_operations: tuple[MemoryOperation, ...]
    launches: Launches
    idle: tuple[Idle, ...]
    steps: Steps
    annotations: Annotations
    framework: Framework
    python_profile: PythonProfile
    rules: tuple[RuleResult, ...]
    findings: tuple[Finding, ...]
    data_quality: tuple[Note, ...]
    options: dict[str, Any]  # effective options: top, histogram, ...
    counters: tuple[CounterSeries, ...] = ()  # by name, then process
    step_breakdown: StepBreakdown = field(default=StepBreakdown())
    rank_comparison: RankComparison = field(default=RankComparison())
    slow_steps: SlowSteps = field(default=SlowSteps())
    collectives: tuple[Collective, ...] = ()  # by operation, process group and size, longest total time first
    collective_totals: CollectiveTotals | None = None
    launch_configurations: LaunchConfigurations | None = None
    operators: OperatorAttribution | None = None
    launch_queue: LaunchQueue | None = None
    gpu_memory: tuple[GpuMemory, ...] = ()
    allocator_memory: tuple[AllocatorMemory, ...] = ()
    program: Program | None = None
    roles: tuple[Role, ...] = ()
    gaps: tuple[Gap, ...] = ()
    iterations: tuple[Iteration, ...] = ()  # the first in order of time
    iteration_kinds: tuple[IterationKind, ...] = ()  # figures of all iterations
    modules: tuple[Module, ...] = ()  # each before those within it, the longest first; the last one is outside of all modules
    module_kinds: tuple[Module, ...] = ()  # sums over modules whose paths differ in numbers alone; empty if there are none
    source_lines: tuple[SourceLine, ...] = ()  # by device time, longest first; the last one is unknown
    module_coverage: ModuleCoverage | None = None
    category_sources: tuple[Share, ...] = ()  # kernel time by what shows the category: operator, kernel name, unknown
    efficiency: Efficiency | None = None
    operator_calls: OperatorCalls = field(default=OperatorCalls())
    gpu_time: GpuTime | None = None  # of all GPUs; None without GPU activity
    job_strip: JobStrip | None = None  # None if nothing is known beyond the profile window
    actions: Actions | None = None  # None without findings
    goodput: Goodput | None = None  # None in a report of an earlier version
    schema_version: int = field(default=SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts, lists, strings and numbers."""
        fields: dict[str, Any] = plain(self._fields())
        return fields

    def _fields(self) -> dict[str, Any]:
        fields = fields_of(self)
        return {"schema_version": fields.pop("schema_version"), **fields}

    def to_json(self) -> str:
        """Return report.json, with floats rounded to 9 significant digits.

        UTF-8 text, keys in field order, ending with a line feed. Equal reports give equal text. Non-finite numbers do not occur; they
        would raise ValueError."""
        return json_text(self._fields(), fields_of)


def plain(value: Any) -> Any:
    """Convert every dataclass in ``value`` to a dict of its fields, tuples to lists."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return plain(fields_of(value)) if dataclasses.is_dataclass(value) else value


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, of rule details those with a value.

    Raise TypeError for another object."""
    fields = ((item, getattr(value, item.name)) for item in dataclasses.fields(value))
    optional = isinstance(value, RuleDetails)
    return {item.name: held for item, held in fields if held is not None or not optional or item.default is not None}
