"""Energy of the GPUs in the measured time and in the complete job, from samples of their power."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from ...ingest.store.store import Store
from ..report.efficiency import StepEnergy
from ..toolkit.intervals import intersection, union
from .measured_time import MeasuredTime

_SAMPLES: Final = """
    SELECT node, unit, time_ns, value FROM sample
    WHERE metric = 'gpu_power' AND unit IS NOT NULL AND value >= 0 AND isfinite(value) ORDER BY node, unit, time_ns
"""
_PROCESSES: Final = "SELECT id AS process, node FROM process"
_PAUSE: Final = 3  # sampling intervals; between samples further apart the power is not known
_LEAST_COVERED: Final = 0.95  # of the measured time of a GPU


def step_energy(store: Store, work: pl.DataFrame, measured: MeasuredTime, model_flop: float | None) -> StepEnergy | None:
    """Integrate the power of each GPU over the measured time of its processes.

    ``work``: process and device of the device work. Between two samples the power changes linearly. Times of unknown power count with
    the mean of the rest, which is at least 95% of the time. None unless all GPUs that worked have such samples."""
    if not store.has_rows("sample") or measured.elapsed.is_empty():
        return None
    samples = store.frame(_SAMPLES)
    if samples.is_empty():
        return None
    used = work.select("process", "device").drop_nulls().unique().join(store.frame(_PROCESSES), on="process")
    times = measured.elapsed.join(used, on="process").select("node", "device", "start", "end")
    if times.is_empty():
        return None
    series = dict(iter(samples.group_by("node", "unit", maintain_order=True)))
    joules = gpu_s = 0.0
    for (node, device), windows in times.group_by("node", "device"):
        windows = union(windows.select("start", "end"))
        watts = _mean_watts(series.get((node, device)), windows)
        if watts is None:
            return None
        seconds = int((windows["end"] - windows["start"]).sum()) / 1e9
        joules += watts * seconds
        gpu_s += seconds
    return StepEnergy(
        joules=joules,
        mean_watts=joules / gpu_s,
        joules_per_step=joules / measured.periods if measured.periods else None,
        joules_per_tflop=joules / (model_flop / 1e12) if model_flop else None,
    )


def job_energy(store: Store, start_ns: int, end_ns: int, gpus: int) -> float | None:
    """Integrate the power of all GPUs over the job (J), as :func:`step_energy` does.

    None unless each GPU has samples over at least 95% of the time."""
    if not gpus or not store.has_rows("sample"):
        return None
    job = pl.DataFrame({"start": [start_ns], "end": [end_ns]})
    watts = [_mean_watts(samples, job) for _, samples in store.frame(_SAMPLES).group_by("node", "unit", maintain_order=True)]
    known = [power for power in watts if power is not None]
    return sum(known) * (end_ns - start_ns) / 1e9 if len(known) == len(watts) == gpus else None


def _mean_watts(samples: pl.DataFrame | None, windows: pl.DataFrame) -> float | None:
    """Return the mean power (W) of a GPU over disjoint times; None if it is not known."""
    if samples is None or samples.height < 2:
        return None
    samples = samples.unique("time_ns", keep="last", maintain_order=True)
    at, watts = samples["time_ns"].to_numpy(), samples["value"].to_numpy()
    gaps = np.diff(at)
    if not len(gaps):
        return None
    parts = pl.DataFrame({"start": at[:-1], "end": at[1:]}).filter(pl.Series(gaps <= _PAUSE * np.median(gaps)))
    known = intersection(windows, parts)
    covered = int((known["end"] - known["start"]).sum())
    if not covered or covered < _LEAST_COVERED * int((windows["end"] - windows["start"]).sum()):
        return None
    energy = np.concatenate([[0.0], np.cumsum((watts[:-1] + watts[1:]) / 2 * gaps)])

    def until(times: Any) -> Any:
        number = np.clip(np.searchsorted(at, times, side="right") - 1, 0, len(at) - 2)
        elapsed = times - at[number]
        slope = (watts[number + 1] - watts[number]) / gaps[number]
        return energy[number] + elapsed * (watts[number] + slope * elapsed / 2)

    joules_ns = float(np.sum(until(known["end"].to_numpy()) - until(known["start"].to_numpy())))
    return joules_ns / covered
