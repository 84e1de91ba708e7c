"""Jobs with planted causes as recordings of operations, in the columns of the published jobs: a row per operation of a rank and step.

Each stage of a replica runs a schedule of forward and backward passes, one forward and one backward in turn, or interleaved chunks. The
sends and receives of a rank between two passes are one batch: it begins together, and ends when all of it has arrived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import polars as pl

COLUMNS: Final = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc")
_TRANSFERS: Final = {
    "params-all-gather": 0.025,
    "grads-reduce-scatter": 0.055,
    "embedding-grads-all-reduce": 0.02,
    "optimizer-clip-main-grad": 0.012,
}
_WINDOW, _TYPICAL = 8192, 0.25  # tokens of a micro-batch; usual sum of the squared lengths of its documents / square of the window
Worker = tuple[int, int]  # replica, stage


@dataclass(frozen=True, slots=True)
class Recording:
    """A job. Times are in s.

    ``slow``: factor of the computation of ranks, in ``slow_steps`` (empty: all). ``stage``: factor of the forward passes of stages; half
    of it counts for backward passes. ``lengths``: share of the work that goes with the squares of the lengths of documents. ``pauses``:
    of the host, by replica, stage and step. ``noise``: relative standard deviation of durations. ``streams``: added to their numbers."""

    replicas: int = 4
    stages: int = 4
    chunks: int = 1
    micro_batches: int = 8
    steps: int = 6
    slow: Mapping[Worker, float] = field(default_factory=dict)
    slow_steps: tuple[int, ...] = ()
    stage: Mapping[int, float] = field(default_factory=dict)
    lengths: float = 0.0
    pauses: Mapping[tuple[int, int, int], float] = field(default_factory=dict)
    noise: float = 0.01
    groups: bool = True
    streams: int = 0
    seed: int = 0

    def number(self, worker: Worker) -> int:
        """Return the rank of a worker; the replicas of a stage are neighbors."""
        return worker[1] * self.replicas + worker[0]


# -- schedules: passes (way, chunk, micro-batch) and batches (("send" or "receive", way, stage), ...) -----------------------


def schedule(job: Recording, stage: int) -> list[tuple[Any, ...]]:
    """Return what a stage does in a step."""
    return _interleaved(job, stage) if job.chunks > 1 else _one_by_one(job, stage)


def _batch(*ends: tuple[str, str, int] | None) -> list[tuple[Any, ...]]:
    known = tuple(end for end in ends if end is not None)
    return [("batch", known)] if known else []


def _one_by_one(job: Recording, stage: int) -> list[tuple[Any, ...]]:
    first, last = stage == 0, stage == job.stages - 1
    get = None if first else ("recv", "forward", stage - 1)
    put = None if last else ("send", "forward", stage + 1)
    get_back = None if last else ("recv", "backward", stage + 1)
    put_back = None if first else ("send", "backward", stage - 1)
    warm = min(job.stages - stage - 1, job.micro_batches)
    done: list[tuple[Any, ...]] = []
    for number in range(warm):
        done += [*_batch(get), ("forward", 0, number), *_batch(put)]
    if warm < job.micro_batches:
        done += _batch(get)
    for number in range(job.micro_batches - warm):
        more = number < job.micro_batches - warm - 1
        done += [("forward", 0, warm + number), *_batch(put, get_back), ("backward", 0, number), *_batch(put_back, get if more else None)]
    for number in range(job.micro_batches - warm, job.micro_batches):
        done += [*_batch(get_back), ("backward", 0, number), *_batch(put_back)]
    return done


def _interleaved(job: Recording, stage: int) -> list[tuple[Any, ...]]:
    stages, total = job.stages, job.micro_batches * job.chunks
    first, last = stage == 0, stage == stages - 1
    before, after = (stage - 1) % stages, (stage + 1) % stages
    warm = total if job.micro_batches == stages else min(2 * (stages - stage - 1) + (job.chunks - 1) * stages, total)

    def chunk(number: int) -> int:
        return number % (stages * job.chunks) // stages

    def forward(number: int) -> tuple[str, int, int]:
        return "forward", chunk(number), number // (stages * job.chunks) * stages + number % stages

    def backward(number: int) -> tuple[str, int, int]:
        return "backward", job.chunks - 1 - chunk(number), forward(number)[2]

    def batch(put: bool = False, get: bool = False, put_back: bool = False, get_back: bool = False) -> list[tuple[Any, ...]]:
        return _batch(
            ("send", "forward", after) if put else None, ("recv", "forward", before) if get else None,
            ("send", "backward", before) if put_back else None, ("recv", "backward", after) if get_back else None,
        )  # fmt: skip

    top = job.chunks - 1
    done = batch(get=not first)
    for number in range(warm):
        done.append(forward(number))
        get = number < total - 1 and not (first and chunk(number + 1) == 0)
        put = not (last and chunk(number) == top)
        done += batch(put=put, get=get, get_back=number == warm - 1 < total - 1 and not last)
    for number in range(total - warm):
        ahead, more = number + warm, number < total - warm - 1
        done += [forward(ahead), backward(number)]
        done += batch(
            put=not (last and chunk(ahead) == top), get=more and not (first and chunk(ahead - stages + 1) == top),
            put_back=not (first and chunk(number) == top), get_back=not (last and chunk(number - stages + 1) == top),
        )  # fmt: skip
    if warm == total:
        done += batch(get_back=not last)
    for number in range(total - warm, total):
        done.append(backward(number))
        get_back = number < total - 1 and not (last and chunk(number + 1) == 0)
        done += batch(put_back=not (first and chunk(number) == top), get_back=get_back)
    return done


# -- a job in time ---------------------------------------------------------------------------------------------------------


def record(job: Recording) -> pl.DataFrame:
    """Return the operations of a job; times of a step count from its start."""
    chance = Random(f"recording.{job.seed}")
    workers = [(replica, stage) for stage in range(job.stages) for replica in range(job.replicas)]
    usual = {worker: chance.gauss(1, 0.003) for worker in workers}
    rows: list[tuple[Any, ...]] = []
    for step in range(job.steps):
        rows += _Step(job, step, usual, chance).rows()
    names = ("dp_rank", "stage", "step", "optype", "start_ts", "duration", "mc", "mb_id")
    frame = pl.DataFrame(rows, schema=names, orient="row").sort("step", "stage", "dp_rank", "start_ts")
    return frame.with_columns(
        rank=pl.col("stage") * job.replicas + pl.col("dp_rank"),
        seq_id=pl.int_range(pl.len()).over("stage", "dp_rank", "step", "optype"),
        gmc=pl.when(pl.col("mc") >= 0).then(pl.col("mc") * job.stages + pl.col("stage")).otherwise(-1),
    ).select(COLUMNS)  # fmt: skip


class _Step:
    """Runs the ranks of a step, each until it waits for another one."""

    def __init__(self, job: Recording, step: int, usual: Mapping[Worker, float], chance: Random) -> None:
        self.job, self.step, self.usual, self.chance = job, step, usual, chance
        self.clock = {worker: chance.uniform(0, 0.003) for worker in usual}
        self.work = {(replica, number): self._work() for replica in range(job.replicas) for number in range(job.micro_batches)}
        self.came: dict[Any, dict[Worker, float]] = defaultdict(dict)
        self.posted: dict[Any, float] = {}  # end of a connection, its number -> time
        self.sent: dict[Any, int] = defaultdict(int)
        self.numbers: dict[Any, list[int]] = {}
        self.transfers: dict[Any, float] = {}
        self.recorded: list[tuple[Any, ...]] = []

    def rows(self) -> list[tuple[Any, ...]]:
        left = {worker: self._program(worker) for worker in self.usual}
        moved = True
        while moved:
            moved = False
            for worker, program in left.items():
                while program and self._run(worker, program[0], len(program)):
                    program.pop(0)
                    moved = True
        assert not any(left.values()), "the schedule stops"
        return self.recorded

    def _work(self) -> float:
        if not self.job.lengths:
            return 1.0
        left, squares = _WINDOW, 0
        while left:
            length = min(left, max(32, int(self.chance.lognormvariate(6.6, 1.5))))
            left, squares = left - length, squares + length**2
        return 1 - self.job.lengths + self.job.lengths * squares / _WINDOW**2 / _TYPICAL

    def _varied(self, mean: float, spread: float) -> float:
        return mean * max(0.3, self.chance.gauss(1, spread))

    def _program(self, worker: Worker) -> list[tuple[Any, ...]]:
        _, stage = worker
        passes = schedule(self.job, stage)
        pause = self.job.pauses.get((*worker, self.step), 0.0)
        if pause:
            passes.insert(self.chance.randrange(1, len(passes)), ("pause", pause))
        ends = [("embedding-grads-all-reduce",)] if self.job.stages > 1 and stage in (0, self.job.stages - 1) else []
        after = [("layernorm-grads-all-reduce", 4e-5), *ends, ("grads-reduce-scatter",), ("optimizer-clip-main-grad",), ("optimizer", 0.04)]
        return [("params-all-gather",), *passes, *after]

    def _run(self, worker: Worker, operation: tuple[Any, ...], key: int) -> bool:
        """Run an operation unless it waits for another rank."""
        name, start = operation[0], self.clock[worker]
        if name == "pause":
            self.clock[worker] += operation[1]
        elif name in ("forward", "backward"):
            self._record(worker, f"{name}-compute", start + self._pass(worker, *operation), *operation[1:])
        elif name in ("optimizer", "layernorm-grads-all-reduce"):
            self._record(worker, name, start + self._varied(operation[1], self.job.noise))
        elif name == "batch":
            return self._batch(worker, operation[1], key)
        else:
            return self._collective(worker, name)
        return True

    def _pass(self, worker: Worker, way: str, chunk: int, micro_batch: int) -> float:
        replica, stage = worker
        longer = self.job.stage.get(stage, 1.0) - 1
        mean = 0.07 * (1 + longer) if way == "forward" else 0.14 * (1 + longer / 2)
        if self.step in (self.job.slow_steps or range(self.job.steps)):
            mean *= self.job.slow.get(worker, 1.0)
        return self._varied(mean / self.job.chunks * self.work[replica, micro_batch] * self.usual[worker], self.job.noise)

    def _collective(self, worker: Worker, name: str) -> bool:
        replica, stage = worker
        members = list(self.usual)
        if name.startswith("embedding"):
            members = [(replica, 0), (replica, self.job.stages - 1)]
        elif not name.startswith("optimizer"):
            members = [(partner, stage) for partner in range(self.job.replicas)]
        came = self.came[name, members[0]]
        came.setdefault(worker, self.clock[worker])
        if len(came) < len(members):
            return False
        transfer = self.transfers.setdefault((name, members[0]), self._varied(_TRANSFERS[name], self.job.noise))
        self._record(worker, name, max(came.values()) + transfer, 0 if "-scatter" in name or "-gather" in name else -1)
        return True

    def _batch(self, worker: Worker, ends: tuple[tuple[str, str, int], ...], key: int) -> bool:
        replica, start = worker[0], self.clock[worker]
        if (worker, key) not in self.numbers:
            self.numbers[worker, key] = [self.sent[end, worker] for end in ends]
            for end, number in zip(ends, self.numbers[worker, key], strict=True):
                self.sent[end, worker] += 1
                self.posted[end, worker, number] = start
        latest = start
        for (kind, way, peer), number in zip(ends, self.numbers[worker, key], strict=True):
            partner = (("send" if kind == "recv" else "recv", way, worker[1]), (replica, peer), number)
            if partner not in self.posted:
                return False
            latest = max(latest, self.posted[partner])
        for kind, way, _ in ends:
            self._record(worker, f"{way}-{kind}", latest + 0.0005, start=start)
        return True

    def _record(self, worker: Worker, name: str, end: float, chunk: int = -1, micro_batch: int = -1, start: float | None = None) -> None:
        begin = self.clock[worker] if start is None else start
        self.recorded.append((*worker, self.step, name, begin, end - begin, chunk, micro_batch))
        self.clock[worker] = end + self.chance.uniform(2e-6, 1e-5)
