"""Plain data on causes: the program, the roles of its ranks, the gaps of its devices, the iterations of inference."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a run. ``kind``: training, inference or unknown. ``frameworks``: from the outermost to the innermost ("Megatron",
    "PyTorch"). ``evidence``: a sentence for each fact that the trace shows."""

    kind: str
    frameworks: tuple[str, ...]
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Role:
    """Coordinates of a rank in the parallel layout of the job, from 0; None if unknown. ``source``: where they come from: groups (the
    process groups), work (ranks with the same kernels), same (no rank sends to a single rank, so all do the same), or unknown."""

    node: str
    rank: int | None
    pid: int | None
    pipeline_stage: int | None
    data_parallel: int | None
    tensor_parallel: int | None
    expert_parallel: int | None
    context_parallel: int | None
    source: str


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which a device ran nothing. ``cause``: a sentence. ``before``, ``after``: the work that ran before and after it, by its
    short name. ``frame``: the function, operator or range that was open on the host; None if unknown. ``kind``: the cause in one or two
    words. ``host_ns``: until the launch call of ``after`` had ended; None if it is not in the trace. ``module``, ``source_line``
    (file:line): open on the thread that launched ``after`` for at least half of the time until then."""

    node: str
    rank: int | None
    device: int
    start_ns: int
    duration_ns: int
    cause: str
    before: str | None
    after: str | None
    frame: str | None
    kind: str = "unknown"
    host_ns: int | None = None
    stream_before: int | None = None
    stream_after: int | None = None
    module: str | None = None
    source_line: str | None = None


@dataclass(frozen=True, slots=True)
class Iteration:
    """An iteration of an inference engine. ``kind``: prefill, decode, mixed, denoise, or forward (a forward pass of unknown kind).
    ``duration_ns``: of its range. ``gap_ns``: from the end of the one before. ``tokens``: computed in it. ``graph``: a CUDA graph was
    launched in it. ``busy_percent``: share of the time to the next iteration in which the devices of the process were busy."""

    node: str
    rank: int | None
    kind: str
    start_ns: int
    duration_ns: int
    gap_ns: int | None
    batch: int | None
    tokens: int | None
    graph: bool | None = None
    busy_percent: float | None = None


@dataclass(frozen=True, slots=True)
class IterationKind:
    """All iterations of one kind; values are medians unless their name is another statistic. ``tokens_per_s``: of a process, tokens by the
    time from the start of each to the start of the next iteration. ``gap_ns``: before the iteration. ``graph_percent``: share that
    launches a graph."""

    kind: str
    count: int
    median_ns: float
    p90_ns: float
    batch: float | None
    tokens: float | None
    tokens_per_s: float | None
    gap_ns: float | None
    graph_percent: float | None
    busy_percent: float | None


@dataclass(frozen=True, slots=True)
class Iterations:
    """Iterations of inference. ``rows``: the first in order of time. ``kinds``: figures of all."""

    rows: tuple[Iteration, ...]
    kinds: tuple[IterationKind, ...]
