"""Totals that a report on the simulated run must contain, computed from the simulation's own interval lists."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .job import Job
from .training_run import DeviceEvent, Problems, Rank

Intervals = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class KernelTruth:
    """Launches of one kernel name and their summed duration in ns."""

    count: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class RankTruth:
    """Totals of one rank's profile in ns, as defined for the time breakdown of a report."""

    rank: int
    node: str
    pid: int
    device: int
    span_ns: int
    busy_ns: int
    idle_ns: int
    computation_ns: int
    communication_ns: int
    exposed_communication_ns: int
    memory_ns: int
    exposed_memory_ns: int
    memcpy_ns: int
    memset_ns: int
    pageable_copy_ns: int
    kernels: Mapping[str, KernelTruth]
    step_ns: tuple[int, ...]  # host durations of ProfilerStep#N
    device_step_ns: tuple[int, ...]  # first start to last end of the device work launched in each step


@dataclass(frozen=True, slots=True)
class DemoTruth:
    """Planted problems and the totals that follow. Times in ns since the epoch, durations in ns."""

    problems: Problems
    first_step: int
    ranks: tuple[RankTruth, ...]
    kernels: Mapping[str, KernelTruth]  # over all ranks
    job_start_ns: int  # first sample of the system metrics
    job_end_ns: int  # last sample
    training_start_ns: int  # of the first step, to the microsecond
    training_end_ns: int  # of the last step, to the microsecond
    training_steps: int  # TRAIN steps of one worker over the whole job
    evaluation_steps: int
    samples_per_series: int


def union(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """Return the same time without overlaps, in order."""
    merged: Intervals = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def length(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the time covered by intervals that may overlap."""
    return sum(end - start for start, end in union(intervals))


def kernel_totals(events: Iterable[DeviceEvent]) -> dict[str, KernelTruth]:
    """Return count and summed duration per kernel name, collectives included."""
    durations: dict[str, list[int]] = {}
    for event in events:
        if event.work.kind in ("kernel", "collective"):
            durations.setdefault(event.work.name, []).append(event.duration)
    return {name: KernelTruth(len(values), sum(values)) for name, values in durations.items()}


def _device_steps(rank: Rank) -> tuple[int, ...]:
    launches = {event.correlation: event.start for event in rank.host if event.callback}
    step_starts = [step.start for step in rank.steps]
    starts: list[list[int]] = [[] for _ in rank.steps]
    ends: list[list[int]] = [[] for _ in rank.steps]
    for event in rank.device_events:
        step = bisect_right(step_starts, launches[event.correlation]) - 1
        starts[step].append(event.start)
        ends[step].append(event.start + event.duration)
    return tuple(max(last) - min(first) for first, last in zip(starts, ends, strict=True))


def rank_truth(rank: Rank) -> RankTruth:
    """Return the totals of one rank."""
    by_kind: dict[str, Intervals] = {"kernel": [], "collective": [], "gpu_memcpy": [], "gpu_memset": []}
    for event in rank.device_events:
        by_kind[event.work.kind].append((event.start, event.start + event.duration))
    computation, communication = by_kind["kernel"], by_kind["collective"]
    memory = by_kind["gpu_memcpy"] + by_kind["gpu_memset"]
    everything = computation + communication + memory
    busy = length(everything)
    computation_and_communication = length(computation + communication)
    span = max(end for _, end in everything) - min(start for start, _ in everything)
    return RankTruth(
        rank=rank.rank,
        node=rank.node,
        pid=rank.pid,
        device=rank.device,
        span_ns=span,
        busy_ns=busy,
        idle_ns=span - busy,
        computation_ns=length(computation),
        communication_ns=length(communication),
        exposed_communication_ns=computation_and_communication - length(computation),
        memory_ns=length(memory),
        exposed_memory_ns=busy - computation_and_communication,
        memcpy_ns=length(by_kind["gpu_memcpy"]),
        memset_ns=length(by_kind["gpu_memset"]),
        pageable_copy_ns=sum(e.duration for e in rank.device_events if "Pageable" in e.work.name),
        kernels=kernel_totals(rank.device_events),
        step_ns=tuple(step.end - step.start for step in rank.steps),
        device_step_ns=_device_steps(rank),
    )


def demo_truth(problems: Problems, ranks: list[Rank], job: Job) -> DemoTruth:
    """Return the totals of the whole run."""
    workers = [job.steps_of(rank) for rank in job.lead_ranks]
    return DemoTruth(
        problems=problems,
        first_step=job.first_step,
        ranks=tuple(rank_truth(rank) for rank in ranks),
        kernels=kernel_totals(event for rank in ranks for event in rank.device_events),
        job_start_ns=job.sample_times[0],
        job_end_ns=job.sample_times[-1],
        training_start_ns=min(steps[0].start for steps in workers) // 1000 * 1000,
        training_end_ns=max(steps[-1].end for steps in workers) // 1000 * 1000,
        training_steps=sum(step.mode == "TRAIN" for step in workers[0]),
        evaluation_steps=sum(step.mode == "EVAL" for step in workers[0]),
        samples_per_series=len(job.sample_times),
    )
