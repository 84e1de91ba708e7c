"""Discrete simulation of a job: host programs that launch work into device streams, and collectives that wait for all members.

A host program is a generator. It runs on the clock of its own rank and yields a piece of device work when it must wait until that work
has ended. All times are in ns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

US = 1_000
MS = 1_000_000
COMPUTE = 7
LAUNCH_NS = 5 * US
LATENCY_NS = 4 * US
GAP_NS = 1 * US  # between two kernels of a stream that are both queued

Program = Iterator["Work"]


@dataclass(slots=True, eq=False)
class Work:
    """A kernel, copy or collective of one rank. ``key``: the same on all ``members`` of a collective; ``duration``: then its transfer."""

    name: str
    category: str
    stream: int
    duration: int
    ready: int
    correlation: int
    external: int
    before: Work | None
    waits: tuple[Work, ...]
    args: dict[str, Any]
    key: tuple[Any, ...] | None = None
    members: tuple[int, ...] = ()
    launched: int = 0
    delay: int = 0  # the work waits this long for something that the trace does not show
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class HostRecord:
    """An event of the host as the trace shows it."""

    category: str
    name: str
    thread: int
    start: int
    end: int
    args: dict[str, Any]


@dataclass(slots=True)
class Rank:
    """One process with its device. ``ahead``: launches that may be queued before the next launch call blocks."""

    number: int
    pid: int
    random: Random
    ahead: int = 100
    host_ns: int = 9 * US  # of an operator around its launch call
    launch_call: str = "cudaLaunchKernel"
    slowdown: float = 1.0
    stacks: bool = False
    clock: int = 0
    thread: int = 0
    records: list[HostRecord] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    last: dict[int, Work] = field(default_factory=dict)
    sequence: dict[tuple[Any, ...], int] = field(default_factory=dict)
    frames: list[int] = field(default_factory=list)
    ids: int = 0
    blocked: int = 0

    def __post_init__(self) -> None:
        self.thread = self.pid

    def spend(self, ns: float) -> None:
        """Let the host work for some time without any event."""
        self.clock += int(ns * (1 + 0.02 * self.random.random()))

    def record(self, category: str, name: str, start: int, end: int, **args: Any) -> None:
        self.records.append(HostRecord(category, name, self.thread, start, end, args))

    def new_id(self) -> int:
        self.ids += 1
        return self.ids

    @contextmanager
    def range(self, name: str | None, category: str = "user_annotation") -> Iterator[None]:
        """Record a range around the body; without a name, none."""
        start, external = self.clock, self.new_id()
        if name:
            self.clock += 2 * US
        yield
        if name:
            self.clock += 2 * US
            self.record(category, name, start, self.clock, **{"External id": external})

    @contextmanager
    def frame(self, name: str) -> Iterator[None]:
        """Record a Python function around the body if the profile has stacks."""
        if not self.stacks:
            yield
            return
        start, number = self.clock, self.new_id()
        parent = self.frames[-1] if self.frames else None
        self.frames.append(number)
        self.clock += 1 * US
        yield
        self.clock += 1 * US
        self.frames.pop()
        self.record("python_function", name, start, self.clock, **{"Python id": number, "Python parent id": parent})

    @contextmanager
    def autograd(self) -> Iterator[None]:
        """Run the body on the thread of autograd."""
        self.thread = self.pid + 7
        yield
        self.thread = self.pid

    def launch(
        self,
        operator: str | None,
        name: str,
        ns: float,
        *,
        stream: int = COMPUTE,
        category: str = "kernel",
        waits: Sequence[Work] = (),
        call: str | None = None,
        noise: float = 0.01,
        key: tuple[Any, ...] | None = None,
        members: tuple[int, ...] = (),
        **args: Any,
    ) -> Work:
        """Launch work from an operator; ``key`` and ``members`` make it a collective."""
        external, correlation, begin = self.new_id(), self.new_id(), self.clock
        self.clock += int(self.host_ns * (0.4 + 0.2 * self.random.random()))
        start = self.clock
        self.clock += LAUNCH_NS + self.blocked
        self.blocked = 0
        self.record(
            "cuda_runtime", call or self.launch_call, start, self.clock,
            **{"External id": external, "cbid": 211, "correlation": correlation},
        )  # fmt: skip
        launched = self.clock
        self.clock += int(self.host_ns * 0.5)
        if operator:
            self.record("cpu_op", operator, begin, self.clock, **{"External id": external})
        factor = self.slowdown if key is None and category == "kernel" else 1.0
        duration = int(ns * factor * (1 + noise * self.random.gauss(0, 1))) if noise else int(ns * factor)
        if key is not None:
            count = self.sequence.get((*key, members), 0)
            self.sequence[(*key, members)] = count + 1
            key = (*key, members, count)
        work = Work(
            name, category, stream, max(duration, 1 * US), launched + LATENCY_NS, correlation, external,
            self.last.get(stream), tuple(waits), args, key, members, launched=start,
        )  # fmt: skip
        self.last[stream] = work
        self.works.append(work)
        return work

    def throttle(self) -> Program:
        """Block the next launch call while too many launches are queued."""
        if len(self.works) > self.ahead:
            work = self.works[-self.ahead]
            yield work
            self.blocked = max(0, (work.end or 0) - self.clock)

    def wait(self, work: Work | None, call: str = "cudaStreamSynchronize") -> Program:
        """Block the host until work has ended."""
        start = self.clock
        self.clock += 3 * US
        if work is not None:
            yield work
            self.clock = max(self.clock, (work.end or 0) + 4 * US)
        correlation = self.new_id()
        self.record("cuda_runtime", call, start, self.clock, **{"External id": self.ids - 1, "cbid": 131, "correlation": correlation})

    def item(self, nbytes: int = 4, *, line: str = "train.py(88): train_step", operator: str | None = "aten::item") -> Program:
        """Read a value back: a small copy to the host and the wait for it."""
        with self.frame(line), self.range(operator, "cpu_op"), self.range(operator and "aten::_local_scalar_dense", "cpu_op"):
            work = self.launch(
                None, "Memcpy DtoH (Device -> Pageable)", 2 * US, category="gpu_memcpy", call="cudaMemcpyAsync", bytes=nbytes,
            )  # fmt: skip
            yield from self.wait(work)

    def blocking_copy(self, nbytes: int, *, to_host: bool = True, gb_per_s: float = 6.0) -> Program:
        """Copy from or to pageable memory; the call returns when the copy has ended."""
        kind = "Memcpy DtoH (Device -> Pageable)" if to_host else "Memcpy HtoD (Pageable -> Device)"
        with self.range("aten::to", "cpu_op"), self.range("aten::copy_", "cpu_op"):
            ns = max(2 * US, nbytes / gb_per_s)
            work = self.launch(None, kind, ns, category="gpu_memcpy", call="cudaMemcpyAsync", bytes=nbytes)
            yield work
            call = self.records[-1]
            end = max(self.clock, (work.end or 0) + 2 * US)
            self.records[-1] = HostRecord(call.category, call.name, call.thread, call.start, end, call.args)
            self.clock = end


@dataclass(slots=True)
class Engine:
    """All ranks of a job. ``settle`` gives device work its times if they are known."""

    ranks: list[Rank]
    done: dict[tuple[int, int], int] = field(default_factory=dict)  # (rank, stream) -> works that have an end
    queues: dict[tuple[int, int], list[Work]] = field(default_factory=dict)
    queued: dict[int, int] = field(default_factory=dict)
    meetings: dict[tuple[Any, ...], list[Work]] = field(default_factory=dict)

    def settle(self) -> bool:
        """Return whether the end of any work became known."""
        progress, again = False, True
        for rank in self.ranks:
            first = self.queued.get(rank.number, 0)
            for work in rank.works[first:]:
                self.queues.setdefault((rank.number, work.stream), []).append(work)
            self.queued[rank.number] = len(rank.works)
        while again:
            again = False
            for stream, queue in self.queues.items():
                while (at := self.done.get(stream, 0)) < len(queue) and self._ends(queue[at]):
                    self.done[stream] = at + 1
                    again = progress = True
        return progress

    def _ends(self, work: Work) -> bool:
        if work.end is not None:
            return True
        if work.start is None:
            if any(other.end is None for other in work.waits):
                return False
            begins = [work.ready, *((other.end or 0) + GAP_NS for other in work.waits)]
            if work.before is not None:
                begins.append((work.before.end or 0) + GAP_NS)
            work.start = max(begins) + work.delay
            if work.key is not None:
                self.meetings.setdefault(work.key, []).append(work)
        if work.key is None:
            work.end = work.start + work.duration
            return True
        members = self.meetings[work.key]
        if len(members) < len(work.members):
            return False
        end = max(member.start or 0 for member in members) + max(member.duration for member in members)
        for member in members:
            member.end = end
        return True

    def run(self, programs: dict[int, Program]) -> None:
        """Run all host programs to their ends."""
        waiting: dict[int, Work | None] = dict.fromkeys(programs)
        while waiting:
            progress = False
            for number in list(waiting):
                work = waiting[number]
                while work is None or work.end is not None:
                    progress = True
                    try:
                        work = next(programs[number])
                    except StopIteration:
                        del waiting[number]
                        break
                else:
                    waiting[number] = work
            if not self.settle() and not progress:
                raise RuntimeError(f"ranks {sorted(waiting)} wait for each other")
        self.settle()
        left = [work for rank in self.ranks for work in rank.works if work.end is None]
        if left:
            raise RuntimeError(f"{len(left)} pieces of work never end, such as {left[0].name} {left[0].key}")
