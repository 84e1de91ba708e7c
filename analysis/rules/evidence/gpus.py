"""How do the rules over samples name GPUs and machines, and say that there are too few samples?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from ...machine.utilisation import LABEL
from ...report.rule_details import BatchSizeGpu, BottleneckNode, ComparedGpu, ComparedRank, GrowingMemory, LowGpu, ProfiledDevice
from ...toolkit.labels import place, ranks
from ...toolkit.places import in_order
from ...toolkit.wording import count, duration, plural
from .run_data import RunData

NO_GPU: Final = "no GPU utilisation in this run"
NO_CPU: Final = "no CPU samples in this run"
NO_MEMORY: Final = "no GPU memory samples in this run"
IN_BYTES: Final = "GPU memory was sampled in bytes only, without the total of the GPU"
_LOG_TOTAL: Final = "Log the total, too: memory.total of nvidia-smi, or DCGM_FI_DEV_FB_FREE or DCGM_FI_DEV_FB_TOTAL of DCGM."
RECORD: Final = "Record the job with `postrun record`, or system metrics with the hosted profiler."
RECORD_LONGER: Final = "Record system metrics for longer, or at a shorter sampling interval."
MOST_ROWS: Final = 2000

_METRICS: Final = {NO_GPU: "the utilisation of the GPUs", NO_CPU: "the utilisation of the cores", NO_MEMORY: "GPU memory"}
_NAMED: Final = 3
_ENOUGH: Final = 100
_GAPLESS: Final = 0.95
_LEAST: Final = 50  # Fewer samples of derived utilisation than these tell nothing: no parameter is named that would have them judged


T = TypeVar("T")
Ranked = TypeVar("Ranked", BatchSizeGpu, GrowingMemory, LowGpu)


OnGpu = BatchSizeGpu | ComparedGpu | GrowingMemory | LowGpu | ProfiledDevice | ComparedRank
Sampled = BatchSizeGpu | ComparedGpu | LowGpu


def threshold(value: float) -> str:
    """A threshold in percent as it was given: 70 %, 2.5 %."""
    return f"{value:g} %"


def gpu(row: OnGpu) -> str:
    """The GPU of a row of the details: "node-1 GPU 3", "rank 5, node-1 GPU 3" where kernels tell the rank."""
    return place(row.node, row.rank, row.device)


def with_ranks(rows: Iterable[Ranked], run: RunData) -> list[Ranked]:
    """Rows of the details, in order of node and GPU, each with the ``rank`` that used the GPU (None if it is not known)."""
    known = ranks(run.breakdown)
    ranked = (dataclasses.replace(row, rank=known.get((row.node, row.device))) for row in rows)
    return sorted(ranked, key=lambda row: (in_order(row.node), row.device))


def record(run: RunData, missing: str) -> str:
    """Which capture would supply what ``missing`` (the reason why a rule was not evaluated) says; a run may have other samples."""
    if not run.samples.metrics or missing not in _METRICS:
        return RECORD
    return f"Record {_METRICS[missing]}, too: the samples of this run are of other metrics."


def no_memory(run: RunData) -> tuple[str, str]:
    """Why there is no GPU memory in percent, and which capture would supply it."""
    if "gpu_memory_used_bytes" in run.samples.metrics:
        return IN_BYTES, _LOG_TOTAL
    return NO_MEMORY, record(run, NO_MEMORY)


def where(rows: Sequence[OnGpu]) -> str:
    """The GPUs of rows of the details: up to three by name, more by their number and their machines."""
    if len(rows) <= _NAMED:
        return _joined([gpu(row) for row in rows], "; " if any(row.rank is not None for row in rows) else ", ")
    nodes = list(dict.fromkeys(row.node for row in rows))
    return f"{count(len(rows))} GPUs of {machines(nodes)}"


def machines(nodes: Sequence[str]) -> str:
    """Up to three machines by name, more by their number."""
    return _joined(nodes) if len(nodes) <= _NAMED else f"{count(len(nodes))} machines"


def too_few(rule: str, samples: int, more_than: float, run: RunData, *, parameter: str, derived: bool, what: str = "samples") -> str:
    """Why a rule was not evaluated: "612 of more than 1 000 samples needed"; where the figures are derived, also how to need fewer, if so
    few say anything at all."""
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
    """In how many of the evaluation windows of one GPU or several: "the only window", "all 12 windows", "3 of 12 windows"."""
    if some < windows:
        return f"{count(some)} of {plural(windows, 'window')}"
    return "the only window" if windows == 1 else f"all {count(windows)} windows"


def gpu_time_ns(rows: Iterable[Sampled], run: RunData) -> float:
    """Time that the samples of GPUs stand for: ``samples`` of each row, a bucket long where it is ``derived``, else a sampling interval."""
    return float(sum(row.samples * sample_ns(row.derived, run) for row in rows))


def covers(rows: Iterable[Sampled | BottleneckNode]) -> str:
    """What the samples of these GPUs cover: utilisation that is derived from kernel activity covers the profile and not the run."""
    derived = {row.derived for row in rows}
    return "profile" if derived == {True} else "run" if True not in derived else "run, where some GPUs were only profiled"


def gpu_time(rows: Iterable[Sampled | BottleneckNode], run: RunData | None = None) -> str:
    """What :func:`gpu_time_ns` of these rows is, in words: of a ``run`` whose samples have gaps the sampled time only."""
    whole = covers(rows)
    return f"{'sampled ' if run is not None and whole == 'run' and _has_gaps(run) else ''}GPU time of the {whole}"


def _has_gaps(run: RunData) -> bool:
    """Whether the samples of utilisation stand for less than 95 % of the time from the first to the last of each GPU."""
    sql = f"""
        SELECT sum(n) * $1 < {_GAPLESS} * sum(span + $1) FROM (
            SELECT count(*) AS n, max(time_ns) - min(time_ns) AS span FROM sample
            WHERE metric = 'gpu_utilization' AND isfinite(value) GROUP BY node, unit
        )
    """
    return bool(run.store.frame(sql, [run.samples.interval_ns or 0]).item())


def sample_ns(derived: bool, run: RunData) -> int:
    """How long a sample of a GPU lasts: a bucket if its utilization is derived, else a sampling interval."""
    return (run.samples.bucket_ns if derived else None) or run.samples.interval_ns or 0


def number(value: float) -> str:
    """A parameter that counts samples: 1 000, 2.5."""
    return count(int(value)) if value == int(value) else f"{value:g}"


def capped(rows: Sequence[T], important: Callable[[T], Any]) -> tuple[tuple[T, ...], int | None]:
    """At most 2,000 rows for the details, in order: ``important`` ones before others. And how many are left out (None: none)."""
    if len(rows) <= MOST_ROWS:
        return tuple(rows), None
    first = sorted(range(len(rows)), key=lambda at: (not important(rows[at]), at))[:MOST_ROWS]
    return tuple(rows[at] for at in sorted(first)), len(rows) - MOST_ROWS


def per_gpu(run: RunData, node: str) -> int | None:
    """Cores of a machine per GPU, where both are known: how many loader processes each worker can have."""
    for one in run.nodes:
        if one.hostname == node and one.cores and one.gpus:
            return max(one.cores // one.gpus, 1)
    return None


def also_too_few(rows: int) -> str:
    """The end of a finding where some GPUs could not be judged."""
    return f"; {plural(rows, 'GPU has', 'GPUs have')} too few samples to be judged" if rows else ""


def _joined(names: Sequence[str], between: str = ", ") -> str:
    return names[0] if len(names) == 1 else f"{between.join(names[:-1])} and {names[-1]}"
