"""Host and device activity of every rank while the simulated training run is profiled.

Each rank has a host thread that queues work ahead of its GPU, a compute stream, and a stream for collectives. An all-reduce starts on a
rank when the gradients are there and the stream is free, and ends on all ranks when the last one has joined and the data is through: a slow
rank makes the others wait inside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from . import schedule
from .changes import Changes
from .schedule import Work

STRAGGLER_SLOWDOWN = 1.12
LOADER_NS = 2_200_000
STALL_EVERY = 8
STALL_OFFSET = 5
STALL_NS = 48_000_000
SLOW_STEP_NS = 360_000_000
LOADER_NAME = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
_HOST_NS = {"Forward": 250_000, "Backward": 300_000, "Optimizer": 110_000, "DataLoader": 60_000, "Step": 40_000}
_CALLBACK_IDS = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
}
_CALL = {
    "kernel": "cudaLaunchKernel",
    "collective": "cudaLaunchKernelExC",
    "gpu_memcpy": "cudaMemcpyAsync",
    "gpu_memset": "cudaMemsetAsync",
}


@dataclass(frozen=True, slots=True)
class Problems:
    """Problems that are planted in the run; each can be switched off."""

    straggler_rank: int | None = 5  # computes 12% slower than the others
    exposed_communication: bool = True  # the last large gradient buckets are only reduced after backward
    idle_tail: bool = True  # the GPUs do nothing during the last minutes of the job
    data_stall: bool = True  # a loader that stalls every eighth step, once for long, and copies from pageable memory


class HostEvent(NamedTuple):
    """An operator, annotation or runtime call; times in ns since the epoch, ``callback`` 0 for all but calls."""

    category: str
    name: str
    thread: int
    start: int
    duration: int
    external: int
    correlation: int
    callback: int


class DeviceEvent(NamedTuple):
    """A piece of work as it ran on a stream; times in ns since the epoch."""

    work: Work
    stream: int
    start: int
    duration: int
    external: int
    correlation: int


class DeviceRange(NamedTuple):
    """An annotation of the host as its work ran on a stream; times in ns since the epoch."""

    name: str
    stream: int
    start: int
    duration: int
    external: int


class StepTimes(NamedTuple):
    """Host times of one step of one worker, ns since the epoch. ``mode`` is TRAIN or EVAL."""

    mode: str
    start: int
    loader_end: int
    forward_end: int
    backward_end: int
    end: int


class Rank:
    """One training process: its clocks, and everything it recorded."""

    def __init__(self, rank: int, gpus_per_node: int, start: int, seed: int, slowdown: float, changes: Changes) -> None:
        self.rank = rank
        self.device = rank % gpus_per_node
        self.node = f"algo-{rank // gpus_per_node + 1}"
        self.pid = 411 + self.device  # containers: the same numbers on every node
        self.autograd_thread = self.pid + 300
        self.slowdown = slowdown
        self.changes = changes
        self.forward, self.backward = changes.applied(schedule.FORWARD), changes.applied(schedule.BACKWARD)
        self.optimizer = changes.applied(schedule.OPTIMIZER)
        self.link_delay = changes.slow_link_ns if rank == changes.slow_link_rank else 0
        self.random = Random(seed * 10_007 + rank).random
        self.random_collective = Random(seed * 10_007 + 5_000 + rank).random  # apart: collectives are launched at other places
        self.clock = start
        self.stream_end = 0
        self.collectives_end = 0
        self.external = 0
        self.correlation = 0
        self.host: list[HostEvent] = []
        self.device_events: list[DeviceEvent] = []
        self.ranges: list[DeviceRange] = []
        self.steps: list[StepTimes] = []
        self.phase_ids: dict[str, int] = {}  # external ids of this step's annotations
        self.waiting: list[tuple[int, int, int]] = []  # all-reduces not yet run: ready time, external, correlation

    def annotate(self, name: str, start: int, end: int) -> None:
        """Record a host annotation."""
        self.external += 1
        self.phase_ids[name] = self.external
        self.host.append(HostEvent("user_annotation", name, self.pid, start, end - start, self.external, 0, 0))

    def call(self, name: str, thread: int, start: int, duration: int, external: int) -> int:
        """Record a runtime call and return its correlation id."""
        self.correlation += 1
        self.host.append(HostEvent("cuda_runtime", name, thread, start, duration, external, self.correlation, _CALLBACK_IDS[name]))
        return self.correlation

    def operator(self, name: str, thread: int, cost: int, jitter: float) -> tuple[int, int]:
        """Record a host operator; return its external id and when it launches its work."""
        start = self.clock + int(cost * (0.05 + 0.1 * jitter))
        self.external += 1
        self.host.append(HostEvent("cpu_op", name, thread, start, int(cost * (0.84 - 0.06 * jitter)), self.external, 0, 0))
        self.clock = start + int(cost * 0.85)
        return self.external, start + int(cost * 0.6)

    def queue(self, work: Work) -> int:
        """Launch ``work`` on the compute stream and return when it ends there."""
        thread = self.autograd_thread if work.phase == "Backward" else self.pid
        external, start = self.operator(work.operator, thread, _HOST_NS[work.phase], self.random())
        call_ns = 4_200 + int(2_600 * self.random())
        slowdown = self.slowdown if work.kind == "kernel" else 1.0
        duration = int(work.duration * slowdown * (0.97 + 0.06 * self.random()))
        begins = max(start + call_ns + 2_300, self.stream_end + 1_100)
        ends = begins + duration
        if "Pageable" in work.name:  # the call only returns when the copy is done
            call_ns = ends + 1_500 - start
            self.clock = start + call_ns + 5_000
            operator = self.host[-1]
            self.host[-1] = operator._replace(duration=self.clock - operator.start)
        correlation = self.call(_CALL[work.kind], thread, start, call_ns, external)
        self.device_events.append(DeviceEvent(work, schedule.STREAM_COMPUTE, begins, duration, external, correlation))
        self.stream_end = ends
        return ends

    def queue_all_reduce(self, work: Work, ready: int) -> None:
        """Launch an all-reduce that waits on the device for ``ready``."""
        external, start = self.operator(work.operator, self.autograd_thread, 90_000, self.random_collective())
        call_ns = 6_800 + int(2_000 * self.random_collective())
        correlation = self.call(_CALL[work.kind], self.autograd_thread, start, call_ns, external)
        self.waiting.append((max(ready, start + call_ns) + 2_900, external, correlation))

    def finish_all_reduce(self, work: Work, start: int, end: int) -> None:
        """Record the oldest waiting all-reduce as it ran."""
        _, external, correlation = self.waiting.pop(0)
        self.device_events.append(DeviceEvent(work, schedule.STREAM_COLLECTIVES, start, end - start, external, correlation))
        self.ranges.append(DeviceRange("nccl:all_reduce", schedule.STREAM_COLLECTIVES, start, end - start, external))
        self.collectives_end = end

    def read_loss(self) -> None:
        """Copy the loss to the host and wait for it, so that host and device meet."""
        ends = self.queue(schedule.LOSS_COPY)
        self.call("cudaStreamSynchronize", self.pid, self.clock, ends + 9_000 - self.clock, self.external)
        self.clock = ends + 15_000


def _loader_ns(step: int, steps: int, problems: Problems, jitter: float) -> int:
    """Return how long the step waits for its batch."""
    wait = int(LOADER_NS * (0.8 + 0.4 * jitter))
    if problems.data_stall and step == steps * 2 // 3:
        return wait + SLOW_STEP_NS
    if problems.data_stall and step % STALL_EVERY == STALL_OFFSET:
        return wait + int(STALL_NS * (0.9 + 0.2 * jitter))
    return wait


def _until_backward_ends(rank: Rank, step: int, steps: int, problems: Problems, buckets: tuple[Work, ...]) -> None:
    """Run a rank's step to its last backward kernel; all-reduces are only launched."""
    start = rank.clock
    loader_start = start + 24_000
    rank.clock = loader_start + _loader_ns(step, steps, problems, rank.random()) + rank.changes.slower_loading_ns
    loader_end = rank.clock
    rank.annotate(LOADER_NAME, loader_start, loader_end)
    rank.queue(schedule.TOKEN_COPY)
    rank.queue(rank.changes.batch_copy(problems.data_stall))
    forward_start = rank.clock
    for work in rank.forward:
        rank.queue(work)
    forward_end = rank.clock
    rank.annotate("Forward", forward_start, forward_end)

    count = len(rank.backward)
    overlapped = len(buckets) - 4 if problems.exposed_communication else len(buckets) - 1
    launches: dict[int, list[Work]] = {}
    for number, bucket in enumerate(buckets):
        filled_by = count * (number + 1) // len(buckets) - 1 if number < overlapped else count - 1
        launches.setdefault(filled_by, []).append(bucket)
    for number, work in enumerate(rank.backward):
        ready = rank.queue(work)
        for bucket in launches.get(number, ()):
            rank.queue_all_reduce(bucket, ready)
    rank.annotate("Backward", forward_end, rank.clock)
    rank.steps.append(StepTimes("TRAIN", start, loader_end, forward_end, rank.clock, 0))


def _all_reduce(ranks: list[Rank], buckets: tuple[Work, ...], network: Random) -> None:
    """Run the waiting all-reduces of a step on all ranks together."""
    for bucket in buckets:
        starts = [max(rank.waiting[0][0], rank.collectives_end + 1_800) for rank in ranks]
        end = max(starts) + int(bucket.duration * (0.98 + 0.04 * network.random()))
        for rank, start in zip(ranks, starts, strict=True):
            rank.finish_all_reduce(bucket, start, end + rank.link_delay + int(3_000 * rank.random_collective()))


def _after_backward(rank: Rank, number: int, first_event: int) -> None:
    """Run the rest of a step: optimizer, reading the loss, and the step's annotations."""
    rank.stream_end = max(rank.stream_end, rank.collectives_end)
    optimizer_start = rank.clock
    for work in rank.optimizer:
        rank.queue(work)
    rank.annotate("Optimizer", optimizer_start, rank.clock)
    rank.read_loss()
    rank.clock += 30_000
    start = rank.steps[-1].start
    rank.steps[-1] = rank.steps[-1]._replace(end=rank.clock)
    rank.annotate(f"ProfilerStep#{number}", start, rank.clock)
    events = [e for e in rank.device_events[first_event:] if e.stream == schedule.STREAM_COMPUTE]
    for name in ("Forward", "Backward", "Optimizer", f"ProfilerStep#{number}"):
        inside = [e for e in events if e.work.phase == name] or events
        begin, last = inside[0].start, inside[-1]
        end = last.start + last.duration
        rank.ranges.append(DeviceRange(name, schedule.STREAM_COMPUTE, begin, end - begin, rank.phase_ids[name]))
    rank.phase_ids.clear()
    rank.clock += 6_000


def simulate(
    *,
    start: int,
    first_step: int,
    seed: int,
    steps: int,
    problems: Problems,
    nodes: int,
    gpus_per_node: int,
    changes: Changes = Changes(),  # noqa: B008  (Changes is frozen)
) -> list[Rank]:
    """Return all ranks with their records from ``start`` (ns) for ``steps`` steps.

    The random numbers of a rank do not depend on ``problems``: switching one off changes nothing else. ``changes``: how this run differs
    from others of the same job.
    """
    world = nodes * gpus_per_node
    buckets = schedule.gradient_buckets(world)
    network = Random(seed * 10_007 - 1)
    ranks = [
        Rank(
            number,
            gpus_per_node,
            start + 17_000 * number % 90_000,
            seed,
            STRAGGLER_SLOWDOWN if number == problems.straggler_rank else 1.0,
            changes,
        )
        for number in range(world)
    ]
    for step in range(steps):
        first_events = [len(rank.device_events) for rank in ranks]
        for rank in ranks:
            _until_backward_ends(rank, step, steps, problems, buckets)
        _all_reduce(ranks, buckets, network)
        for rank, first_event in zip(ranks, first_events, strict=True):
            _after_backward(rank, first_step + step, first_event)
    return ranks
