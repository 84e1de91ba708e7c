"""MFU and HFU: FLOPs of matrix operators over what the peaks of the GPUs allow in the measured time.

FLOPs of each type count against the peak of that type, so a step of mixed precision is measured by the time that its products would
take at their peaks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import polars as pl

from ...ingest.store.store import Store
from ..device.precision import MATRIX_CATEGORIES
from ..report.efficiency import DevicePeaks
from .measured_time import MeasuredTime
from .operator_work import OwnedWork
from .shape_rows import kernel_names

LOWER_BOUND_PERCENT: Final = 95.0  # of the time of matrix kernels; MFU is a lower bound if the FLOPs of less are known
LEAST_PERCENT: Final = 1.0  # of the time of matrix kernels; a lower bound from less is too far from the value

_NO_DEVICE: Final = "The run has no device work."
_NO_TIME: Final = "No process has measured time on a GPU."
_NO_PEAKS: Final = "The peaks of {} are not known: set them with --peak."
_LITTLE: Final = "FLOPs are known for less than {:g}% of the time of matrix kernels: profile with record_shapes=True in a recent PyTorch."
_NO_WORK: Final = "No matrix operator in the measured time has known FLOPs: profile with record_shapes=True."


class Utilization(NamedTuple):
    """Percentages, None if unknown. ``model_flop``: in the measured time, without recomputation. ``reason``: why there is no MFU."""

    mfu_percent: float | None
    hfu_percent: float | None
    coverage_percent: float | None
    model_flop: float | None
    reason: str | None


def utilization(
    store: Store, owned: OwnedWork, rows: pl.DataFrame, shapes: pl.DataFrame, measured: MeasuredTime, peaks: dict[int | None, DevicePeaks]
) -> Utilization:
    """Return MFU and HFU over the measured time.

    ``rows``: :func:`.shape_rows.shape_rows`; ``shapes``: :func:`.call_shapes.call_shapes`; ``peaks``: by process."""
    if owned.work.is_empty():
        return Utilization(None, None, None, None, _NO_DEVICE)
    devices = owned.work.filter(pl.col("device").is_not_null()).group_by("process").agg(devices=pl.col("device").n_unique())
    elapsed = measured.elapsed.group_by("process").agg(elapsed=(pl.col("end") - pl.col("start")).sum())
    available = elapsed.join(devices, on="process", nulls_equal=True).filter(pl.col("elapsed") > 0)
    matrix = rows.filter(pl.col("matrix"), pl.col("inside"), pl.col("device_ns") > 0)
    matrix = matrix.join(available.select("process"), on="process", how="semi", nulls_equal=True)
    flop = pl.coalesce("model_flop", "flop").cast(pl.Float64) * pl.col("calls")
    model_flop = float(matrix.filter(~pl.col("recomputed")).select(flop.sum()).item() or 0.0) or None
    least = matrix.filter(pl.col("compute_ns").is_not_null())
    counted = matrix.filter(pl.col("compute_ns").is_not_null() | (pl.col("flop").is_not_null() & ~pl.col("process").is_in(list(peaks))))
    coverage = _coverage(store, owned, shapes, available, measured, int(counted["device_ns"].sum()))
    if available.is_empty():
        return Utilization(None, None, coverage, model_flop, _NO_TIME)
    if coverage is not None and 0 < coverage < LEAST_PERCENT:
        return Utilization(None, None, coverage, model_flop, _LITTLE.format(LEAST_PERCENT))
    unknown = [process for process in available["process"].to_list() if process not in peaks]
    if unknown:
        return Utilization(None, None, coverage, model_flop, _NO_PEAKS.format(_names(store, unknown)))
    if least.is_empty():
        return Utilization(None, None, coverage, model_flop, _NO_WORK)
    time = float(available.select((pl.col("elapsed") * pl.col("devices")).sum()).item())
    hardware = float(least["compute_ns"].sum())
    model = float(least.filter(~pl.col("recomputed"))["compute_ns"].sum())
    return Utilization(100 * model / time, 100 * hardware / time, coverage, model_flop, None)


def _coverage(
    store: Store, owned: OwnedWork, shapes: pl.DataFrame, available: pl.DataFrame, measured: MeasuredTime, known_ns: int
) -> float | None:
    """Return ``known_ns`` in percent of the time of all matrix kernels.

    Matrix kernels are those of a matrix operator, and those that are one by their name. Work whose launch is unknown was launched before
    the profile began, so it is part of the measured time only if that is the profile window."""
    inside = pl.col("inside").fill_null(measured.launching is None)
    work = owned.work.filter(inside).join(available, on="process", how="semi", nulls_equal=True)
    matrix = shapes.select("operator", "signature", "matrix")
    work = work.join(matrix, on=["operator", "signature"], how="left", nulls_equal=True)
    work = work.join(kernel_names(store, owned), on="kernel", how="left")
    by_name = (pl.col("kind") == "kernel") & pl.col("category").is_in(list(MATRIX_CATEGORIES))
    total = int(work.filter(pl.col("matrix").fill_null(False) | by_name.fill_null(False))["total"].sum())
    return 100 * known_ns / total if total else None


def _names(store: Store, processes: list[int | None]) -> str:
    names = store.frame(
        "SELECT DISTINCT d.name FROM device AS d JOIN process AS p ON p.node = d.node WHERE list_contains(?, p.id) ORDER BY d.name",
        [[process for process in processes if process is not None]],
    )["name"]
    return ", ".join(name or "an unknown GPU" for name in names) or "the GPUs"
