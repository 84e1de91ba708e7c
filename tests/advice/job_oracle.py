"""The what-if analysis of arXiv 2505.05713 on a recording: the time of a step with ideal durations, and the shares M_W and M_S.

Its dependencies come from the kinds of operations, as the paper states them, and not from times. It gives the published figures of the two
published jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import numpy as np
import polars as pl

Operation = tuple[str, int, int]
"""Kind, number among its kind in the step, and stage. Its values are arrays over replicas and steps."""
_NEXT: Final = {"forward-send": 1, "forward-recv": -1, "backward-send": -1, "backward-recv": 1}  # stage at the partner end
_OF_REPLICAS: Final = ("params-all-gather", "grads-reduce-scatter", "optimizer-clip-main-grad")
_PASSES: Final = ("forward-compute", "backward-compute")
_COMPUTED: Final = (*_PASSES, "optimizer", "gc")
_LAST: Final = (
    "gc", "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "grads-reduce-scatter", "optimizer-clip-main-grad", "optimizer",
)  # fmt: skip
_CLOCKS_S: Final = 0.01  # by which the clocks of ranks may differ


class Oracle:
    """``step``, ``ideal``: mean time of a step without waits for the host, and with all operations ideal, in s."""

    def __init__(self, recording: pl.DataFrame) -> None:
        rows = recording.with_columns(pl.col("optype").cast(pl.String), pl.col("start_ts", "duration").cast(pl.Float64))
        line = ("dp_rank", "step", "stage", "optype")
        rows = rows.sort(*line, "start_ts", "seq_id").with_columns(number=pl.int_range(pl.len()).over(line))
        numbers = {step: index for index, step in enumerate(sorted(rows["step"].unique()))}
        self.replicas, self.stages = int(rows["dp_rank"].max()) + 1, int(rows["stage"].max()) + 1  # type: ignore[arg-type]
        self.shape = self.replicas, len(numbers)
        self.start: dict[Operation, Any] = defaultdict(lambda: np.full(self.shape, np.nan))
        self.duration: dict[Operation, Any] = defaultdict(lambda: np.full(self.shape, np.nan))
        self.part: dict[Operation, int] = {}  # of the model
        columns = rows.select("optype", "number", "stage", "dp_rank", "step", "start_ts", "duration", "gmc")
        for kind, number, stage, replica, step, start, duration, part in columns.iter_rows():
            operation = kind, number, stage
            self.start[operation][replica, numbers[step]] = start
            self.duration[operation][replica, numbers[step]] = duration
            self.part[operation] = part
        self.after: dict[Operation, list[Operation]] = defaultdict(list)
        self.group: dict[Operation, Any] = {}
        for stage in range(self.stages):
            self._order(stage)
        self.members: dict[Any, list[Operation]] = defaultdict(list)
        for operation in self.duration:
            self.members[self.group.get(operation, operation)].append(operation)
        self.sorted = self._sorted()
        self.recorded = {operation: self._duration_of(operation) for operation in self.duration}
        self.typical = self._typical()
        self.step, self.ideal = self.time(self.recorded), self.time(self.typical)

    def _order(self, stage: int) -> None:
        def named(kind: str) -> list[Operation]:
            operations = [operation for operation in self.duration if operation[0] == kind and operation[2] == stage]
            return sorted(operations, key=lambda operation: operation[1])

        passes = sorted((one for kind in _PASSES for one in named(kind)), key=lambda operation: self.start[operation][0, 0])
        self._chain(passes)
        last_part = max(self.part.values())
        for kind, partner in _NEXT.items():
            way, end = kind.split("-")
            calls, same = named(kind), named(f"{way}-compute")
            self._chain(calls)
            edge = 0 if kind in ("forward-recv", "backward-send") else last_part
            connected = [number for number, one in enumerate(same) if self.part[one] != edge] if self.stages > 1 else []
            for position, (call, number) in enumerate(zip(calls, connected, strict=True)):
                if end == "send":
                    self.after[call].append(same[number])
                else:
                    self.after[same[number]].append(call)
                    self.after[call] += same[number - 1 : number] if number else []
                receiver = (stage + partner) % self.stages if end == "send" else stage
                self.group[call] = way, receiver, position
        back = next(number for number, one in enumerate(passes) if one[0] == "backward-compute")
        for kind in ("backward-recv", "backward-send"):
            if back >= 2 and named(kind):
                self.after[named(kind)[0]].append(passes[back - 2])
        self.after[passes[0]] += named("params-all-gather")
        self._chain([passes[-1], *(one for kind in _LAST for one in named(kind))])
        for kind in _OF_REPLICAS:
            self.group.update({one: (kind, None if kind.startswith("optimizer") else stage) for one in named(kind)})
        self.group.update(dict.fromkeys(named("embedding-grads-all-reduce"), "embedding"))

    def _chain(self, operations: list[Operation]) -> None:
        for before, operation in pairwise(operations):
            self.after[operation].append(before)

    def _sorted(self) -> list[Any]:
        node = {operation: self.group.get(operation, operation) for operation in self.duration}
        before = {key: {node[one] for operation in members for one in self.after[operation]} for key, members in self.members.items()}
        ordered: dict[Any, None] = {}
        while len(ordered) < len(before):
            ready = [key for key, needed in before.items() if key not in ordered and needed <= ordered.keys()]
            assert ready, "operations wait for each partner"
            ordered |= dict.fromkeys(ready)
        return list(ordered)

    def _duration_of(self, operation: Operation) -> Any:
        """Return the duration of computation, and the transfer of communication."""
        if operation not in self.group:
            return self.duration[operation]
        latest = np.maximum.reduce([self.start[one] for one in self.members[self.group[operation]]])
        if operation[0] in _OF_REPLICAS:
            latest = np.broadcast_to(latest.max(axis=0), self.shape)
        transfer = self.start[operation] + self.duration[operation] - latest
        return np.where(transfer <= -_CLOCKS_S, 0, transfer)

    def _typical(self) -> dict[Operation, Any]:
        kinds: dict[str, list[Any]] = defaultdict(list)
        for (kind, _, _), values in self.recorded.items():
            kinds[kind].append(values)
        mean = {kind: (np.mean if kind in _COMPUTED else np.median)(np.stack(values)) for kind, values in kinds.items()}
        return {operation: np.full(self.shape, mean[operation[0]]) for operation in self.recorded}

    def time(self, values: dict[Operation, Any]) -> float:
        """Return the mean time of a step with these durations, in s."""
        ends: dict[Operation, Any] = {}
        for key in self.sorted:
            members = self.members[key]
            begin = np.maximum.reduce([np.zeros(self.shape), *(ends[one] for member in members for one in self.after[member])])
            if members[0][0] in _OF_REPLICAS:
                begin = np.broadcast_to(begin.max(axis=0), self.shape)
            ends |= {member: begin + values[member] for member in members}
        return float(np.maximum.reduce(list(ends.values())).max(axis=0).mean())

    def _with(self, values: dict[Operation, Any], others: dict[Operation, Any], where: Callable[[int, int], bool]) -> float:
        mixed = {}
        for operation in values:
            chosen = np.array([[where(replica, operation[2])] for replica in range(self.replicas)])
            mixed[operation] = np.where(chosen, others[operation], values[operation])
        return self.time(mixed)

    def saved(self, where: Callable[[int, int], bool] = lambda replica, stage: True) -> float:
        """Return the percentage of a step that ideal workers (replica, stage) save."""
        return 100 * (self.step - self._with(self.recorded, self.typical, where)) / self.step

    def explained(self, where: Callable[[int, int], bool]) -> float:
        """Return the saving as a part of the saving if all workers are ideal."""
        return self.saved(where) / (100 * (self.step - self.ideal) / self.step)

    def slowest(self) -> list[tuple[int, int]]:
        """Return the slowest 3% of the workers, by what they add to an ideal job."""

        def added(where: Callable[[int, int], bool]) -> float:
            return self._with(self.typical, self.recorded, where)

        replicas = [added(lambda replica, stage, number=number: replica == number) for number in range(self.replicas)]  # type: ignore[misc]
        stages = [added(lambda replica, stage, number=number: stage == number) for number in range(self.stages)]  # type: ignore[misc]
        places = [(replica, stage) for stage in range(self.stages) for replica in range(self.replicas)]
        scores = {(replica, stage): min(replicas[replica], stages[stage]) for replica, stage in places}
        ordered = sorted(scores, key=lambda place: -scores[place])
        return ordered[: -(-3 * len(ordered) // 100)]
