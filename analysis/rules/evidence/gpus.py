"""Words of the rules over samples: names of GPUs and nodes, sampled GPU time, and the reasons for missing or too few samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from ...machine.utilization import LABEL
from ...report.cause_details import ComparedRank
from ...report.detail_rows import ProfiledDevice
from ...report.sample_details import BatchSizeGpu, BottleneckNode, ComparedGpu, GrowingMemory, LowGpu
from ...toolkit.labels import place, ranks
from ...toolkit.places import in_order
from ...toolkit.wording import count, duration, plural
from .run_data import RunData

NO_GPU: Final = "no GPU utilization in this run"
NO_CPU: Final = "no CPU samples in this run"
NO_MEMORY: Final = "no GPU memory samples in this run"
IN_BYTES: Final = "GPU memory was sampled in bytes only, without the total of the GPU"
_LOG_TOTAL: Final = "Log the total, too: memory.total of nvidia-smi, or DCGM_FI_DEV_FB_FREE or DCGM_FI_DEV_FB_TOTAL of DCGM."
RECORD: Final = "Record the job with `postrun record`, or system metrics with the hosted profiler."
RECORD_LONGER: Final = "Record system metrics for longer, or at a shorter sampling interval."
MOST_ROWS: Final = 2000

_METRICS: Final = {NO_GPU: "the utilization of the GPUs", NO_CPU: "the utilization of the cores", NO_MEMORY: "GPU memory"}
_NAMED: Final = 3
_ENOUGH: Final = 100
_GAPLESS: Final = 0.95
_LEAST: Final = 50  # fewer samples of derived utilization mean nothing: no parameter is suggested that would evaluate them


T = TypeVar("T")
Ranked = TypeVar("Ranked", BatchSizeGpu, GrowingMemory, LowGpu)


OnGpu = BatchSizeGpu | ComparedGpu | GrowingMemory | LowGpu | ProfiledDevice | ComparedRank
Sampled = BatchSizeGpu | ComparedGpu | LowGpu


def gpu(row: OnGpu) -> str:
    """Name the GPU of a row: "node-1 GPU 3", with its rank if known."""
    return place(row.node, row.rank, row.device)


def with_ranks(rows: Iterable[Ranked], run: RunData) -> list[Ranked]:
    """Sort rows by node and GPU, and set the ``rank`` that used each GPU (or None)."""
    known = ranks(run.breakdown)
    pairs = ((row, known.get((row.node, row.device))) for row in rows)
    ranked = (row if row.rank == rank else dataclasses.replace(row, rank=rank) for row, rank in pairs)
    return sorted(ranked, key=lambda row: (in_order(row.node), row.device))


def record(run: RunData, missing: str) -> str:
    """Return which capture would supply ``missing``, the reason of "not evaluated"."""
    if not run.samples.metrics or missing not in _METRICS:
        return RECORD
    return f"Record {_METRICS[missing]}, too: the samples of this run are of other metrics."


def no_memory(run: RunData) -> tuple[str, str]:
    """Return why GPU memory in percent is missing, and which capture has it."""
    if "gpu_memory_used_bytes" in run.samples.metrics:
        return IN_BYTES, _LOG_TOTAL
    return NO_MEMORY, record(run, NO_MEMORY)


def where(rows: Sequence[OnGpu]) -> str:
    """Name up to three GPUs; count more of them, with their nodes."""
    if len(rows) <= _NAMED:
        return _joined([gpu(row) for row in rows], "; " if any(row.rank is not None for row in rows) else ", ")
    nodes = list(dict.fromkeys(row.node for row in rows))
    return f"{count(len(rows))} GPUs of {machines(nodes)}"


def machines(nodes: Sequence[str]) -> str:
    """Name up to three nodes; count more of them."""
    return _joined(nodes) if len(nodes) <= _NAMED else f"{count(len(nodes))} nodes"


def too_few(rule: str, samples: int, more_than: float, run: RunData, *, parameter: str, derived: bool, what: str = "samples") -> str:
    """Return why a rule was not evaluated: "612 of more than 1,000 samples needed".

    If the figures are derived and not too few, the reason also names the option that lowers the required number."""
    reason = f"{count(samples)} of more than {number(more_than)} {what} needed"
    if derived:
        buckets = f" in {duration(run.samples.bucket_ns)} buckets" if run.samples.bucket_ns else ""
        reason += f", {LABEL}{buckets}"
        if samples < _ENOUGH:
            reason += "; record for longer"
        else:
            reason += f"; --set {rule}_{parameter}={_ENOUGH if samples > _ENOUGH else _LEAST} needs fewer"
    return reason


def in_windows(some: int, windows: int) -> str:
    """Count the windows with an issue: "the only window", "3 of 12 windows"."""
    if some < windows:
        return f"{count(some)} of {plural(windows, 'window')}"
    return "the only window" if windows == 1 else f"all {count(windows)} windows"


def windows_by_gpu(windows: Sequence[int]) -> str:
    """Write "8 GPUs × 3 windows"; "" if GPUs differ, or for a single one."""
    return f"{count(len(windows))} GPUs × {plural(windows[0], 'window')}" if len(set(windows)) == 1 < len(windows) else ""


def gpu_time_ns(rows: Iterable[Sampled], run: RunData) -> float:
    """Sum the GPU time that samples represent: one bucket or sampling interval each."""
    return float(sum(row.samples * sample_ns(row.derived, run) for row in rows))


def covers(rows: Iterable[Sampled | BottleneckNode]) -> str:
    """Return what the samples of these GPUs cover: derived samples cover the profile."""
    derived = {row.derived for row in rows}
    return "profile" if derived == {True} else "run" if True not in derived else "run, where some GPUs were only profiled"


def gpu_time(rows: Iterable[Sampled | BottleneckNode], run: RunData | None = None) -> str:
    """Describe :func:`gpu_time_ns`; samples with gaps cover the sampled time only."""
    scope = covers(rows)
    if scope == "profile":
        return "GPU time in the profile window"
    return f"{'sampled ' if run is not None and scope == 'run' and _has_gaps(run) else ''}GPU time of the {scope}"


def _has_gaps(run: RunData) -> bool:
    """Return whether utilization samples cover less than 95% of the GPUs' time."""
    sql = f"""
        SELECT sum(n) * $1 < {_GAPLESS} * sum(span + $1) FROM (
            SELECT count(*) AS n, max(time_ns) - min(time_ns) AS span FROM sample
            WHERE metric = 'gpu_utilization' AND isfinite(value) GROUP BY node, unit
        )
    """
    return bool(run.store.frame(sql, [run.samples.interval_ns or 0]).item())


def sample_ns(derived: bool, run: RunData) -> int:
    """Return the time that one sample covers: a bucket if derived, else an interval."""
    return (run.samples.bucket_ns if derived else None) or run.samples.interval_ns or 0


def number(value: float) -> str:
    """Format a parameter that counts samples: 1,000, 2.5."""
    return count(int(value)) if value == int(value) else f"{value:g}"


def capped(rows: Sequence[T], important: Callable[[T], Any]) -> tuple[tuple[T, ...], int | None]:
    """Return at most 2,000 rows in order, and how many were left out (or None)."""
    if len(rows) <= MOST_ROWS:
        return tuple(rows), None
    first = sorted(range(len(rows)), key=lambda at: (not important(rows[at]), at))[:MOST_ROWS]
    return tuple(rows[at] for at in sorted(first)), len(rows) - MOST_ROWS


def per_gpu(run: RunData, node: str) -> int | None:
    """Return a node's cores per GPU, the limit of loader processes, or None."""
    shares = (one.cores // one.gpus for one in run.nodes if one.hostname == node and one.cores and one.gpus)
    return next((max(share, 1) for share in shares), None)


def also_too_few(rows: int) -> str:
    """Return the clause on GPUs with too few samples; empty if there are none."""
    return f"; {plural(rows, 'GPU has', 'GPUs have')} too few samples to be evaluated" if rows else ""


def _joined(names: Sequence[str], between: str = ", ") -> str:
    return names[0] if len(names) == 1 else f"{between.join(names[:-1])} and {names[-1]}"
