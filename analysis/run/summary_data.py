"""Input of a report's first page: the sections of one run that it summarizes, and the totals that headline and tiles share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from ..causes.iterations import FORWARD
from ..causes.program import INFERENCE
from ..compare.utilization import sampled_mean
from ..report.causes import IterationKind
from ..report.device import DeviceTime
from ..report.machine import MetricUsage
from ..report.model import Report
from ..toolkit import wording
from ..toolkit.shares import percent_of_spans

_APART_NS: Final = 3_600 * 10**9  # between the profiles of two processes of one run at most
_COVERED: Final = 0.9  # of the job; samples that cover less do not make a mean of the job


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
        """The kind of iterations with the largest total time; None without any.

        A forward pass whose tokens are unknown is only a range on the host; if its steps are timed on the device, these count instead.
        """
        main = max(self.report.iteration_kinds, key=lambda kind: kind.count * kind.median_ns, default=None)
        steps = any(step.on_device for step in self.report.steps.steps)
        return None if main is not None and main.kind == FORWARD and main.tokens_per_s is None and steps else main

    @property
    def gpu_mean(self) -> float | None:
        """Mean of the sampled GPU utilization over time and nodes; None without samples."""
        return sampled_mean(self.report, "gpu")

    @property
    def cpu_mean(self) -> float | None:
        """Mean of the sampled CPU utilization over time and nodes; None without samples."""
        return sampled_mean(self.report, "cpu")

    def sampled_part_ns(self, metric: str) -> int | None:
        """Return the time that samples cover if it is only a part of the job; else None."""
        spans = [(row.time_ns[0], row.time_ns[-1]) for row in self.report.system_usage.series if row.metric == metric and row.time_ns]
        duration = self.report.job_statistics.duration_ns
        if not spans or not duration:
            return None
        covered = max(last for _, last in spans) - min(first for first, _ in spans)
        return covered if covered < _COVERED * duration else None

    @property
    def window_ns(self) -> int:
        """Length of the profile window, the time in which any process was profiled."""
        return profile_window(self.breakdown)[0]

    @property
    def apart_ns(self) -> int:
        """Time between the profiles of processes, if too long for one run; else 0."""
        pause = profile_window(self.breakdown)[1]
        return pause if pause > _APART_NS else 0

    @property
    def gpus(self) -> str:
        """Words for the GPUs: "The GPU", "GPUs"."""
        return "GPUs" if len(self.breakdown or [device for device in self.report.devices if device.used]) > 1 else "The GPU"

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


def profile_window(devices: Sequence[DeviceTime]) -> tuple[int, int]:
    """Return the time in which any process was profiled, and the longest pause (ns)."""
    spans: dict[tuple[str, int | None, int | None], tuple[int, int]] = {}
    for device in devices:
        process = (device.node, device.rank, device.pid)
        first, last = spans.get(process, (device.first_ns, 0))
        spans[process] = (min(first, device.first_ns), max(last, device.first_ns + device.span_ns))
    length, longest, end = 0, 0, None
    for first, last in sorted(spans.values()):
        longest = max(longest, first - end) if end is not None else 0
        begin = first if end is None else max(first, end)
        length += max(0, last - begin)
        end = max(begin, last)
    return length, longest


def brief_percent(value: float) -> str:
    """Format a share for a headline or tile with two or three digits: 59%, 4.3%."""
    return wording.whole_percent(value) if value == 0 or value >= 10 else wording.percent(value)
