"""The view of a run for a rule file written for the public rule and trial contract.

Such a file contains a class that is created with ``base_trial`` and its parameters, and called window by window. ``base_trial`` is a
:class:`Trial`. Times of the contract are microseconds; the additional frames contain nanoseconds, like everything else in postrun.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Final

import polars as pl

from ....ingest.store.store import Store
from ..evidence.run_data import RunData

ROWS_AT_ONCE: Final = 1_000_000  # Rows of one table that are held in memory while the windows pass over them

_MINUTE_NS: Final = 60_000_000_000
_LIMIT_NS: Final = 2**63 - 1

# Metric of the store -> type, name and dimension of the event; a name of None is the type and the number of the core or GPU.
_SYSTEM: Final[dict[str, tuple[str, str | None, str]]] = {
    "cpu_utilization": ("cpu", None, "CPUUtilization"),
    "cpu_iowait": ("cpu", None, "I/OWaitPercentage"),
    "gpu_utilization": ("gpu", None, "GPUUtilization"),
    "gpu_memory_controller": ("gpu", None, "GPUMemoryUtilization"),
    "gpu_memory_used_percent": ("gpu", None, "GPUMemoryUsedPercent"),
    "memory_used_percent": ("memory", "MemoryUsedPercent", ""),
    "disk_iops": ("i/o", "IOPS", ""),
    "disk_read": ("i/o", "ReadThroughputInBytesPerSecond", ""),
    "disk_write": ("i/o", "WriteThroughputInBytesPerSecond", ""),
    "network_receive": ("network", "ReceiveBytesPerSecond", "Algorithm"),
    "network_transmit": ("network", "TransmitBytesPerSecond", "Algorithm"),
    "network_receive_platform": ("network", "ReceiveBytesPerSecond", "Platform"),
    "network_transmit_platform": ("network", "TransmitBytesPerSecond", "Platform"),
}

_SAMPLES: Final = """
    SELECT coalesce(n.hostname, 'node-' || s.node) AS node, s.metric, s.unit, s.time_ns, s.value
    FROM sample s LEFT JOIN node n ON n.id = s.node WHERE isfinite(s.value)
"""
_LOCATION: Final = "coalesce(m.hostname, 'node-' || e.node) AS node, p.rank, p.pid"
_JOINED: Final = "LEFT JOIN name n ON n.id = e.name LEFT JOIN node m ON m.id = e.node LEFT JOIN process p ON p.id = e.process"
_ANNOTATIONS: Final = f"""
    SELECT {_LOCATION}, e.tid, e.side, e.device, n.text AS name, e.phase, e.value, e.start_ns, e.duration_ns, e.arguments
    FROM annotation e {_JOINED}
"""
_KERNELS: Final = f"""
    SELECT {_LOCATION}, e.device, e.stream, n.text AS name, n.short AS short_name, n.category, n.precision, e.start_ns, e.duration_ns
    FROM device_event e {_JOINED} WHERE e.kind = 'kernel'
"""
_STEPS: Final = f"""
    SELECT {_LOCATION}, e.phase, e."index", e.host_start_ns, e.host_duration_ns, e.device_start_ns, e.device_duration_ns
    FROM step e LEFT JOIN node m ON m.id = e.node LEFT JOIN process p ON p.id = e.process
    ORDER BY e.host_start_ns, e.node, e.process, e."index"
"""
_EVENT_PLACE: Final = "coalesce(p.label, m.hostname, 'node-' || e.node) AS node_id"
_FRAMEWORK: Final = f"""
    SELECT e.start_ns, e.duration_ns, n.text AS event_name,
        coalesce(e.phase, CASE e.side WHEN 'device' THEN 'gpu_functions-dev:' || e.device ELSE 'cpu_functions' END) AS event_phase,
        p.pid, e.tid, {_EVENT_PLACE}, e.value, e.arguments
    FROM annotation e {_JOINED} WHERE e.duration_ns IS NOT NULL
    UNION ALL
    SELECT e.start_ns, e.duration_ns, n.text, 'cpu_functions', p.pid, e.tid, {_EVENT_PLACE}, NULL, NULL
    FROM host_event e {_JOINED} WHERE e.kind IN ('operator', 'loader') AND e.duration_ns IS NOT NULL
    UNION ALL
    SELECT e.start_ns, e.duration_ns, n.text, 'gpu_functions-dev:' || e.device, p.pid, e.stream, {_EVENT_PLACE}, NULL, NULL
    FROM device_run e {_JOINED} WHERE e.duration_ns IS NOT NULL
"""
_EXTENT: Final = """
    SELECT min(first), max(last) FROM (
        SELECT min(time_ns) AS first, max(time_ns) + 1 AS last FROM sample WHERE isfinite(value)
        UNION ALL SELECT min(start_ns), max(start_ns + greatest(duration_ns, 1)) FROM annotation
        UNION ALL SELECT min(start_ns), max(start_ns + greatest(duration_ns, 1)) FROM host_event
        UNION ALL SELECT min(start_ns), max(start_ns + greatest(duration_ns, 1)) FROM device_event
    )
"""


@dataclass(slots=True)
class SystemEvent:
    """A value of a system metric. ``type``: cpu, gpu, memory, i/o, network. ``name``: "cpu3", "gpu0", "MemoryUsedPercent". ``dimension``:
    "GPUUtilization" and so on. ``node_id``: host name. ``timestamp``: seconds since the epoch."""

    type: str
    name: str
    dimension: str
    value: float
    node_id: str
    timestamp: float


@dataclass(slots=True)
class FrameworkEvent:
    """A step, annotation, operator or device activity. ``start_time``, ``end_time``, ``duration``: microseconds. ``event_phase``: the
    phase of the source ("Step:ModeKeys.TRAIN"), else "cpu_functions" or "gpu_functions-dev:0". ``node_id``: the source's name of the
    process ("algo-1-27"), else the host name. ``event_args``: "step_num" (text) and other arguments of the source; may be empty."""

    event_name: str | None
    event_phase: str
    start_time: float
    end_time: float
    duration: float
    pid: int | None
    tid: int | None
    node_id: str
    event_args: dict[str, Any]


class Trial:
    """A finished run, as the ``base_trial`` of a rule.

    ``first_timestamp``: start of the first evaluation window, a full minute, in microseconds. ``last_timestamp``: the first microsecond
    after the last sample and event. ``window``: (start, end) of the window that is being evaluated. Ranges are half open: an event at
    ``start`` belongs to it, an event at ``end`` does not."""

    def __init__(self, run: RunData, scan_interval_us: float) -> None:
        store = run.store
        first, last = store.frame(_EXTENT).row(0)
        self.name: str = (store.frame("SELECT name FROM run").to_series().to_list() or [None])[0] or "run"
        self.logger = logging.getLogger("postrun.rules")
        self.interval_ns = max(round(scan_interval_us * 1000), 1)
        self.empty = first is None
        self.first_ns = 0 if self.empty else _origin_ns(run, first, self.interval_ns)
        self.last_ns: int = 0 if self.empty else last
        self.first_timestamp = self.first_ns // 1000
        self.last_timestamp = -(-self.last_ns // 1000)
        self.window: tuple[float, float] = (self.first_timestamp, self.last_timestamp)
        self.asked = self.delivered = 0
        """Number of the rule's requests for data, and of the rows in the answers."""
        self._store = store
        system = dict(_SYSTEM)
        if "gpu_memory_controller" not in run.samples.metrics:  # then the memory in use has the name of its utilization
            system["gpu_memory_used_percent"] = system["gpu_memory_controller"]
        self._system = pl.DataFrame(
            [(metric, *event) for metric, event in system.items()],
            schema=dict.fromkeys(("metric", "type", "name", "dimension"), pl.String),
            orient="row",
        )
        self._samples = _Timeline(store, _SAMPLES, "time_ns", "time_ns, node, metric, unit")
        self._framework = _Timeline(store, _FRAMEWORK, "start_ns", "start_ns, duration_ns DESC, node_id, pid, tid, event_name")
        self._annotations = _Timeline(store, _ANNOTATIONS, "start_ns", "start_ns, duration_ns DESC, node, pid, tid, name")
        self._kernels = _Timeline(store, _KERNELS, "start_ns", "start_ns, node, pid, device, stream")

    @property
    def windows(self) -> int:
        """Number of evaluation windows; the last one may be partial."""
        return -(-(self.last_ns - self.first_ns) // self.interval_ns)

    # -- the contract ------------------------------------------------------------------------------------------------------

    def get_system_metrics(self, start_us: float, end_us: float) -> list[SystemEvent]:
        """Return samples with ``start_us <= time < end_us``, in the order of time."""
        rows = self.samples(_nanoseconds(start_us), _nanoseconds(end_us)).join(
            self._system, on="metric", how="inner", maintain_order="left"
        )
        unit = pl.col("unit").cast(pl.String).fill_null("")
        events = rows.select(
            "type", pl.coalesce("name", pl.col("type") + unit), "dimension", "value", "node", pl.col("time_ns") / 1_000_000_000
        )
        return [SystemEvent(*row) for row in events.iter_rows()]

    def get_framework_metrics(self, start_us: float, end_us: float) -> list[FrameworkEvent]:
        """Return events with ``start_us <= start < end_us``, in the order of their start."""
        rows = self._counted(self._framework.between(_nanoseconds(start_us), _nanoseconds(end_us)))
        return [
            FrameworkEvent(name, phase, in_us(start), in_us(start + duration), in_us(duration), pid, tid, node, _arguments(value, text))
            for start, duration, name, phase, pid, tid, node, value, text in rows.iter_rows()
        ]

    def wait_for_data(self, end_us: float = 0, start_us: float = 0) -> None:
        """Return at once: the run is over, all of its data is here."""

    def wait_for_steps(self, steps: Sequence[int] = (), mode: object = None) -> None:
        """Return at once: the run is over, all of its steps are here."""

    def job_finished(self) -> bool:
        """Return True: the run is over."""
        return True

    def get_latest_timestamp(self) -> int:
        """Return ``last_timestamp``."""
        return self.last_timestamp

    # -- the same as frames ------------------------------------------------------------------------------------------------

    def samples(self, start_ns: int | None = None, end_ns: int | None = None) -> pl.DataFrame:
        """Return samples in the order of time_ns.

        Columns: node (host name), metric (docs/run-store.md), unit (core or GPU), time_ns, value."""
        return self._counted(self._samples.between(start_ns, end_ns))

    def annotations(self, start_ns: int | None = None, end_ns: int | None = None) -> pl.DataFrame:
        """Return annotated ranges in the order of start_ns.

        Columns: node, rank, pid, tid, side, device, name, phase, value, start_ns, duration_ns, arguments (JSON)."""
        return self._counted(self._annotations.between(start_ns, end_ns))

    def kernels(self, start_ns: int | None = None, end_ns: int | None = None) -> pl.DataFrame:
        """Return kernels in the order of start_ns.

        Columns: node, rank, pid, device, stream, name, short_name, category, precision, start_ns, duration_ns."""
        return self._counted(self._kernels.between(start_ns, end_ns))

    def steps(self) -> pl.DataFrame:
        """Return the training steps of the run in the order of host_start_ns.

        Columns: node, rank, pid, phase, index, host_start_ns, host_duration_ns, device_start_ns, device_duration_ns (null if the step
        launched no device work)."""
        return self._counted(self._store.frame(_STEPS))

    def _counted(self, rows: pl.DataFrame) -> pl.DataFrame:
        self.asked += 1
        self.delivered += rows.height
        return rows


class _Timeline:
    """The rows of a query by time. Windows mostly follow each other, so a stretch of the rows is kept in memory for the next windows."""

    def __init__(self, store: Store, sql: str, time: str, order: str) -> None:
        self._store = store
        self._sql = sql
        self._time = time
        self._order = order
        self._rows: pl.DataFrame | None = None
        self._held = (0, 0)

    def between(self, start_ns: int | None, end_ns: int | None) -> pl.DataFrame:
        """Return rows of ``start_ns <= time < end_ns``; None: from the start, to the end."""
        first, last, stretch = self._extent
        start = first if start_ns is None else min(max(start_ns, first), last)
        end = last if end_ns is None else max(min(end_ns, last), start)
        if self._rows is None or not self._held[0] <= start <= end <= self._held[1]:
            self._held = (start, max(end, min(start + stretch, last)))
            self._rows = self._store.frame(
                f"SELECT * FROM ({self._sql}) WHERE {self._time} >= ? AND {self._time} < ? ORDER BY {self._order}", list(self._held)
            )
        times = self._rows[self._time]
        low, high = (int(times.search_sorted(value, side="left")) for value in (start, end))
        return self._rows.slice(low, high - low)

    @cached_property
    def _extent(self) -> tuple[int, int, int]:
        """Return the first time, the end, and the length of ROWS_AT_ONCE rows."""
        count, first, last = self._store.frame(f"SELECT count(*), min({self._time}), max({self._time}) FROM ({self._sql})").row(0)
        length = 0 if first is None else last + 1 - first
        stretch = length if count <= ROWS_AT_ONCE else max(length * ROWS_AT_ONCE // count, 1)
        return first or 0, (first or 0) + length, stretch


def _origin_ns(run: RunData, first: int, interval_ns: int) -> int:
    """Return the start of the first window, which is at or before ``first``."""
    sampled = bool(run.samples.metrics) or len(run.samples.derived) > 0
    origin = run.samples.origin_ns if sampled else first // _MINUTE_NS * _MINUTE_NS
    return origin + min((first - origin) // interval_ns, 0) * interval_ns


def _nanoseconds(us: float) -> int:
    if math.isnan(us):
        raise ValueError("a time must be a number of microseconds, not NaN")
    if math.isinf(us):
        return _LIMIT_NS if us > 0 else -_LIMIT_NS
    return us * 1000 if isinstance(us, int) else round(us * 1000)


def in_us(ns: int) -> float:
    """Return ``ns`` in microseconds; a whole number of them is an integer."""
    return ns // 1000 if ns % 1000 == 0 else ns / 1000


def _arguments(value: int | None, text: str | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {} if text is None else {key: item for key, item in json.loads(text).items() if item is not None}
    return arguments if value is None else {"step_num": str(value), **arguments}


# -- the names that rule files import --------------------------------------------------------------------------------------


class RuleEvaluationConditionMet(Exception):  # noqa: N818  (the contract's name)
    """Raised by a rule whose condition is met: the rule is triggered."""

    def __init__(self, rule_name: str = "", step: int = 0, end_of_rule: bool = False) -> None:
        super().__init__(f"{rule_name}: condition met at {step}")
        self.rule_name = rule_name
        self.step = step
        self.end_of_rule = end_of_rule


class ContractRule:
    """The base class ``Rule`` of the contract: keeps ``base_trial``, has a ``report``, a ``rule_name`` and a ``logger``."""

    def __init__(self, base_trial: Trial, action_str: str = "", other_trials: Sequence[Trial] | None = None) -> None:
        self.base_trial = base_trial
        self.other_trials = other_trials
        self.trials = [base_trial, *(other_trials or ())]
        self.rule_name = type(self).__name__
        self.logger = base_trial.logger
        self.report: dict[str, Any] = {"RuleTriggered": 0, "Violations": 0, "Details": {}, "Datapoints": 0, "RuleParameters": ""}

    def invoke_at_step(self, step: int) -> Any:
        """Return whether the condition is met; to be overridden."""
        return False

    def invoke(self, step: int) -> None:
        """Raise RuleEvaluationConditionMet if :meth:`invoke_at_step` returns true."""
        if self.invoke_at_step(step):
            raise RuleEvaluationConditionMet(self.rule_name, step)


def stand_ins() -> dict[str, ModuleType]:
    """Return modules with the contract's base class and exception under their names."""
    root = _StandIn("smdebug", {})
    rule = _StandIn("smdebug.rules.rule", {"Rule": ContractRule})
    rules = _StandIn("smdebug.rules", {"Rule": ContractRule, "rule": rule})
    exceptions = _StandIn("smdebug.exceptions", {"RuleEvaluationConditionMet": RuleEvaluationConditionMet})
    root.__dict__.update(rules=rules, exceptions=exceptions)
    return {module.__name__: module for module in (root, rules, rule, exceptions)}


class _StandIn(ModuleType):
    def __init__(self, name: str, content: dict[str, object]) -> None:
        super().__init__(name, "Stands in for the names that a rule file needs, where smdebug is not installed.")
        self.__dict__.update(content)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(
            f"{self.__name__}.{name} needs smdebug, which is not installed; without it rule files can import"
            " Rule (smdebug.rules.rule) and RuleEvaluationConditionMet (smdebug.exceptions)"
        )
