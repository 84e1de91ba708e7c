"""Evidence of a report's figures: JSON pointers into report.json, and the statements on the run store that compute them again.

A statement returns the values of the pointers, in one row or one value per row. It names no text of the run, so that it cannot contain one.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...analysis.report.json_text import json_text
from ...analysis.report.model import Report, plain
from ...analysis.report.rules import Finding

_SHARED: Final = "processes share a GPU, and their profile windows differ"
_BY_OPERATOR: Final = "the categories and types come from the operators around the kernels"
_SEVERAL: Final = "several queries compute it; `postrun rules explain` describes the rule"

_WINDOW: Final = "SELECT min(start_ns), max(end_ns) FROM device_run;"
# A row per moment at which the active work of a GPU changes: +1 at a start, -1 at an end.
_GPU_TIME: Final = """\
WITH edge AS (SELECT process, device, computation::INT AS c, communication::INT AS m, unnest([start_ns, end_ns]) AS t,
    unnest([1, -1]) AS n FROM device_run),
part AS (SELECT lead(t) OVER w - t AS ns, sum(n) OVER w AS n, sum(n * c) OVER w AS c, sum(n * m) OVER w AS m
  FROM edge WINDOW w AS (PARTITION BY process, device ORDER BY t ROWS UNBOUNDED PRECEDING)),
profile AS (SELECT max(end_ns) - min(start_ns) AS ns FROM device_work GROUP BY process, device, "window"),
total AS (SELECT sum(ns) AS span FROM profile)
SELECT span, coalesce(sum(ns) FILTER (c > 0), 0), coalesce(sum(ns) FILTER (m > 0 AND c = 0), 0),
  coalesce(sum(ns) FILTER (n > 0 AND m = 0 AND c = 0), 0), span - sum(ns) FILTER (n > 0) FROM part, total GROUP BY span;"""
_KERNELS: Final = """\
SELECT sum(duration_ns) FROM device_work WHERE kernel GROUP BY text ORDER BY sum(duration_ns) DESC LIMIT {rows};"""
_GAPS: Final = """\
WITH gap AS (SELECT *, start_ns - max(end_ns) OVER (PARTITION BY node, device, "window" ORDER BY start_ns, end_ns
  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS idle_ns FROM device_work)
"""
_HOST_WAIT: Final = (
    _GAPS
    + """\
SELECT max(ns) FROM (SELECT sum(greatest(0, least(idle_ns, l.end_ns - (gap.start_ns - idle_ns)))) AS ns
  FROM gap JOIN launch AS l USING (process, correlation) WHERE idle_ns > 0 GROUP BY node, device);"""
)
_SHORT_KERNELS: Final = (
    _GAPS
    + """\
SELECT max(ns) FROM (SELECT sum(idle_ns) AS ns FROM gap
  WHERE idle_ns > 0 AND kernel AND duration_ns < {short_us} * 1000 GROUP BY node, device);"""
)
_CHAINS: Final = """\
WITH work AS (SELECT *, coalesce(category IN ('elementwise', 'reduction', 'memory', 'normalisation', 'softmax')
    AND contains(text, 'at::native::') AND NOT contains(text, 'multi_tensor_apply'), false) AS fusible FROM device_work WHERE kernel),
chained AS (SELECT *, count(*) FILTER (NOT fusible) OVER (PARTITION BY process, device, stream ORDER BY start_ns, fusible) AS chain
  FROM work)
SELECT max(ns) FROM (SELECT sum(ns) AS ns FROM (SELECT process, device, sum(duration_ns) - max(duration_ns) AS ns
  FROM chained WHERE fusible GROUP BY process, device, stream, chain) GROUP BY process, device);"""
_FP32: Final = """\
SELECT max(ns) FROM (SELECT sum(duration_ns) AS ns FROM device_work
  WHERE category IN ('GEMM', 'attention', 'convolution') AND precision = 'FP32' GROUP BY node, device);"""
_PAGEABLE: Final = """\
WITH copy AS (SELECT *, coalesce(max(end_ns) OVER (PARTITION BY process, device ORDER BY start_ns
  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM device_run WHERE memcpy AND pageable)
SELECT max(ns) FROM (SELECT sum(greatest(0, end_ns - greatest(start_ns, before))) AS ns FROM copy GROUP BY process, device);"""
_OUTLIERS: Final = """\
WITH timed AS (SELECT process, phase, {duration} AS ns FROM step WHERE {condition}),
spread AS (SELECT *, avg(ns) OVER g AS mean, stddev_pop(ns) OVER g AS std FROM timed WINDOW g AS (PARTITION BY process, phase))
SELECT max(n) FROM (SELECT count(*) FILTER (ns > mean + {stddev} * std) AS n FROM spread GROUP BY process, phase);"""
_QUANTILES: Final = """\
WITH latest AS (SELECT *, row_number() OVER (PARTITION BY node, unit ORDER BY time_ns DESC) AS n FROM sample
  WHERE metric = 'gpu_utilization')
SELECT min(p95), min(p5) FROM (SELECT quantile_cont(value, 0.95) AS p95, quantile_cont(value, 0.05) AS p5
  FROM latest WHERE n <= {window} GROUP BY node, unit);"""
_SMALL_GRIDS: Final = """\
SELECT max(ns) FROM (SELECT sum(duration_ns) AS ns FROM device_work AS w JOIN device AS d ON d.node = w.node AND d.index = w.device
  WHERE kernel AND NOT communication
    AND 100 * grid_x * coalesce(grid_y, 1) * coalesce(grid_z, 1) <= {filled} * d.sm_count GROUP BY w.name);"""
_COMPUTATION: Final = """\
WITH work AS (SELECT *, coalesce(max(end_ns) OVER (PARTITION BY process, step_start_ns ORDER BY start_ns
  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM step_device WHERE computation AND phase IS NULL),
step AS (SELECT process, sum(greatest(0, end_ns - greatest(start_ns, before))) AS ns FROM work GROUP BY process, step_start_ns)
SELECT max(ns) FROM (SELECT median(ns) AS ns FROM step GROUP BY process);"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Values of report.json and their paths. ``label``: their name. ``sql``: the statement that returns them; None if none does, for the
    reason ``why``."""

    label: str
    paths: tuple[tuple[str | int, ...], ...]
    values: tuple[int | float | None, ...]
    sql: str | None = None
    why: str | None = None

    @property
    def pointers(self) -> tuple[str, ...]:
        """JSON pointers of the values (RFC 6901)."""
        return tuple(map(pointer, self.paths))

    @property
    def texts(self) -> tuple[str, ...]:
        """The values, as report.json writes them."""
        return tuple(json_text(value).strip() for value in self.values)


def pointer(path: Sequence[str | int]) -> str:
    """Write a JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _at(report: Report, path: Sequence[str | int]) -> Any:
    value: Any = report
    for part in path:
        value = getattr(value, str(part)) if dataclasses.is_dataclass(value) else value[part]
    return value


def _evidence(report: Report, label: str, paths: Sequence[tuple[str | int, ...]], sql: str | None = None, why: str = "") -> Evidence:
    return Evidence(label, tuple(paths), tuple(_at(report, path) for path in paths), sql, None if sql else why)


def shared_gpus(report: Report) -> bool:
    """Return whether several processes of the run use one GPU."""
    users = Counter((row.node, row.device) for row in report.time_breakdown)
    return max(users.values(), default=0) > 1


def of_window(report: Report) -> Evidence:
    """Return first start and last end of the GPU activity."""
    return _evidence(report, "First start and last end of GPU activity", [("gpu_time", "first_ns"), ("gpu_time", "last_ns")], _WINDOW)


def of_gpu_time(report: Report) -> Evidence:
    """Return the GPU time and its parts."""
    parts = ("span_ns", "computation_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns")
    shared = shared_gpus(report)
    return _evidence(report, "GPU time and its parts", [("gpu_time", part) for part in parts], None if shared else _GPU_TIME, _SHARED)


def of_kernels(report: Report, rows: int) -> Evidence:
    """Return the total times of the longest kernels."""
    return _evidence(
        report, "Time of the longest kernels", [("kernels", row, "total_ns") for row in range(rows)], _KERNELS.format(rows=rows)
    )


def of_finding(report: Report, number: int) -> Evidence:
    """Return the measured value of the rule, else the cost of the finding.

    It is that of the GPU or process that exceeds the threshold most."""
    finding = report.findings[number]
    measure = _MEASURES.get(finding.rule)
    measured = measure(_Result(report, finding)) if measure else None
    if measured is not None:
        return measured
    cost = "cost_ns" if finding.cost_ns is not None else "rank"
    label = "Cost of the finding" if finding.cost_ns is not None else "Place of the finding"
    return _evidence(report, label, [("findings", number, cost)], why=_SEVERAL)


class _Result:
    """The result of a finding's rule, with lists of its details as plain data."""

    def __init__(self, report: Report, finding: Finding) -> None:
        self.report, self.finding = report, finding
        self.index = next((i for i, rule in enumerate(report.rules) if rule.rule == finding.rule), -1)
        self.result = report.rules[self.index] if self.index >= 0 else None
        self._rows: dict[str, list[Mapping[str, Any]]] = {}

    def number(self, name: str) -> str | None:
        """Return a parameter as a literal of SQL; None if it is not a number."""
        value = self.result.parameters.get(name) if self.result else None
        return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def rows(self, key: str) -> Sequence[Mapping[str, Any]]:
        """Return the rows of a list of the details, which are dicts."""
        if key not in self._rows:
            details = self.result.details if self.result else None
            rows = plain(details.get(key) if isinstance(details, Mapping) else getattr(details, key, None))
            self._rows[key] = rows if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else []
        return self._rows[key]

    def extreme(self, key: str, column: str, choose: Callable[..., Any] = max) -> Mapping[str, Any] | None:
        """Return the row with the largest value (or the one of ``choose``)."""
        rows = [row for row in self.rows(key) if isinstance(row.get(column), int | float)]
        return choose(rows, key=lambda row: row[column]) if rows else None

    def evidence(
        self, label: str, rows: Sequence[tuple[str, Mapping[str, Any] | None, str]], sql: str | None, why: str = _SEVERAL
    ) -> Evidence | None:
        """Return evidence of values: the list of a row, the row, and its column."""
        paths: list[tuple[str | int, ...]] = []
        values = []
        for key, row, column in rows:
            if row is None:
                return None
            number = next(i for i, listed in enumerate(self.rows(key)) if listed is row)
            paths.append(("rules", self.index, "details", key, number, column))
            values.append(row[column])
        return Evidence(label, tuple(paths), tuple(values), sql, None if sql else why)

    def largest(self, label: str, key: str, column: str, sql: str | None, why: str = _SEVERAL) -> Evidence | None:
        """Return evidence of the largest value of a column."""
        return self.evidence(label, [(key, self.extreme(key, column), column)], sql, why)


def _of_devices(label: str, column: str, sql: str, *parameters: str) -> Callable[[_Result], Evidence | None]:
    """Make the measure of a rule whose statement holds if no GPU is shared."""

    def measure(result: _Result) -> Evidence | None:
        values = {name: result.number(name) for name in parameters}
        shared = shared_gpus(result.report)
        usable = not shared and None not in values.values()
        return result.largest(label, "devices", column, sql.format(**values) if usable else None, _SHARED if shared else _SEVERAL)

    return measure


def _of_gpu_time(part: str) -> Callable[[_Result], Evidence | None]:
    """Make the measure of a rule whose cost is a part of the GPU time."""

    def measure(result: _Result) -> Evidence | None:
        gpu_time = result.report.gpu_time
        return of_gpu_time(result.report) if gpu_time and getattr(gpu_time, part) == result.finding.cost_ns else None

    return measure


def _low_precision(result: _Result) -> Evidence | None:
    """The statement knows the names of the kernels alone."""
    by_operator = any(share.name == "operator" for share in (*result.report.category_sources, *result.report.precision.sources))
    return result.largest("Most FP32 time of a GPU in matrix kernels", "devices", "fp32_ns", None if by_operator else _FP32, _BY_OPERATOR)


def _step_outlier(result: _Result) -> Evidence | None:
    """Steps with a phase and those without are the same steps twice."""
    group, stddev = result.extreme("groups", "outliers"), result.number("stddev")
    if group is None:
        return None
    on_device, phase = group.get("on_device"), "NOT NULL" if group.get("phase") else "NULL"
    condition = f"phase IS {phase}" + (" AND device_duration_ns IS NOT NULL" if on_device else "")
    same = [other for other in result.rows("groups") if bool(other.get("phase")) == bool(group.get("phase"))]
    every = result.result is not None and result.result.parameters.get("mode") is None and result.report.steps.profiled is None
    usable = every and stddev and all(other.get("on_device") == on_device for other in same)
    sql = _OUTLIERS.format(duration="device_duration_ns" if on_device else "host_duration_ns", condition=condition, stddev=stddev)
    return result.evidence("Most outliers of a process and phase", [("groups", group, "outliers")], sql if usable else None)


def _low_gpu_utilization(result: _Result) -> Evidence | None:
    low95, low5 = (result.extreme("devices", column, min) for column in ("p95", "p5"))
    derived = any(row.get("derived") for row in result.rows("devices"))
    window = result.number("window")
    sql = None if derived or window is None else _QUANTILES.format(window=window)
    return result.evidence(
        "Lowest p95 and p5 of the latest samples of a GPU",
        [("devices", low95, "p95"), ("devices", low5, "p5")],
        sql,
        "the utilization comes from kernel activity",
    )


def _low_occupancy(result: _Result) -> Evidence | None:
    filled, listed = result.number("filled"), result.report.launch_configurations
    complete = filled and listed is not None and listed.total == len(listed.rows)
    return result.largest(
        "Most time of a kernel with small grids", "kernels", "time_ns", _SMALL_GRIDS.format(filled=filled) if complete else None
    )


def _straggler_rank(result: _Result) -> Evidence | None:
    sql = None if shared_gpus(result.report) else _COMPUTATION
    return result.largest("Longest computation of a rank per step", "ranks", "computation_per_step_ns", sql, _SHARED)


_MEASURES: Final[Mapping[str, Callable[[_Result], Evidence | None]]] = {
    "ExposedCommunication": _of_gpu_time("exposed_communication_ns"),
    "ExposedCopies": _of_gpu_time("exposed_memory_ns"),
    "HostBound": _of_devices("Most idle time of a GPU before its work was launched", "host_wait_ns", _HOST_WAIT),
    "LowGPUUtilization": _low_gpu_utilization,
    "LowOccupancy": _low_occupancy,
    "LowPrecision": _low_precision,
    "PageableCopies": _of_devices("Most time of a GPU in pageable copies", "pageable_ns", _PAGEABLE),
    "ShortKernels": _of_devices("Most idle time of a GPU before short kernels", "gap_ns", _SHORT_KERNELS, "short_us"),
    "StepOutlier": _step_outlier,
    "StragglerRank": _straggler_rank,
    "UnfusedElementwise": _of_devices("Most time of a GPU in chains beyond their longest kernels", "extra_ns", _CHAINS),
}
"""Rule -> its measured value, where a statement or at least a row of its details has one."""
