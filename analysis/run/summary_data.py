"""Input of a report's first page: the sections of one run that it summarizes, and the totals that headline and tiles share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from ..causes.program import INFERENCE
from ..report.causes import IterationKind
from ..report.device import DeviceTime
from ..report.machine import MetricUsage
from ..report.model import Report
from ..toolkit import wording
from ..toolkit.shares import percent_of_spans


@dataclass(frozen=True, slots=True)
class SummaryData:
    """A report, apart from its summary. Shares over several GPUs are sums over all: busy time of all / span of all.

    ``breakdown``: one row per device. ``traced``: processes with at least one event; None: all. ``loader_recorded``: the trace has
    data-loader events; without them a share of 0 would mean nothing.
    """

    report: Report
    breakdown: Sequence[DeviceTime]
    loader_recorded: bool
    traced: int | None = None

    @property
    def inference(self) -> bool:
        """Whether the run is inference."""
        return self.report.program is not None and self.report.program.kind == INFERENCE

    @property
    def main_iterations(self) -> IterationKind | None:
        """The kind of iterations with the largest total time; None without any."""
        return max(self.report.iteration_kinds, key=lambda kind: kind.count * kind.median_ns, default=None)

    @property
    def span_ns(self) -> int:
        """Sum of the devices' profile windows; 0 without GPU activity."""
        return sum(device.span_ns for device in self.breakdown)

    @property
    def busy_percent(self) -> float:
        """Busy time of all devices, in percent of :attr:`span_ns`."""
        return percent_of_spans(self.breakdown, attrgetter("busy_ns"))

    @property
    def exposed_communication_percent(self) -> float:
        """Exposed communication of all devices, in percent of :attr:`span_ns`."""
        return percent_of_spans(self.breakdown, attrgetter("exposed_communication_ns"))

    @property
    def gpu_samples(self) -> list[MetricUsage]:
        """Sampled GPU utilization, one row per node."""
        return [usage for usage in self.samples("gpu") if not usage.derived]

    def samples(self, metric: str) -> list[MetricUsage]:
        """Return the quantiles of ``metric``, one row per node."""
        return [usage for usage in self.report.system_usage.nodes if usage.metric == metric]


def median_range(usages: Sequence[MetricUsage]) -> str:
    """Word the medians of the nodes: "40%", "20–60%, depending on the node"."""
    low, high = min(usage.p50 for usage in usages), max(usage.p50 for usage in usages)
    if wording.whole_percent(low) == wording.whole_percent(high):
        return wording.whole_percent(low)
    return f"{low:.0f}–{wording.whole_percent(high)}, depending on the node"


def p95_text(usages: Sequence[MetricUsage]) -> str:
    """Word the highest p95 of the nodes: "97%", "up to 97%"."""
    return f"{'up to ' if len(usages) > 1 else ''}{wording.whole_percent(max(usage.p95 for usage in usages))}"
