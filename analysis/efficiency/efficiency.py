"""Efficiency of the GPUs: operators against the peaks, utilization of the steps, and energy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.efficiency import DevicePeaks, Efficiency
from ..toolkit.contents import kinds
from .energy import step_energy
from .measured_time import MeasuredTime
from .operator_rows import operator_rows, origins
from .operator_work import OwnedWork
from .peaks import peaks_of
from .shape_rows import shape_rows
from .utilization import LOWER_BOUND_PERCENT, utilization

_NO_OPERATORS: Final = (
    "No operator in this run: profile PyTorch with ProfilerActivity.CPU and ProfilerActivity.CUDA, and with record_shapes=True."
)
_NO_WORK: Final = "No operator of this run launched device work, and none is a matrix product, convolution or attention."
_DEVICES: Final = """
    SELECT p.id AS process, d."index" AS device, d.name, d.memory_bytes, d.sm_count, d.compute_capability
    FROM process AS p JOIN device AS d ON d.node = p.node
"""


def no_efficiency(store: Store) -> Efficiency:
    """Return the figures of a run without calls of operators."""
    return Efficiency(absent=_NO_WORK if "operator" in kinds(store, "host_event") else _NO_OPERATORS)


def efficiency(
    store: Store,
    owned: OwnedWork,
    shapes: pl.DataFrame,
    measured: MeasuredTime,
    peaks: dict[int | None, DevicePeaks],
    sites: pl.DataFrame,
) -> Efficiency:
    """Return the figures of the report.

    ``shapes``: :func:`.call_shapes.call_shapes`; ``peaks``: :func:`device_peaks`; ``sites``: module and line ("" if unknown) of each
    site of the calls."""
    rows = shape_rows(store, owned, shapes, peaks)
    operators, further = operator_rows(rows, origins(owned, shapes, sites))
    used = utilization(store, owned, rows, shapes, measured, peaks)
    known = used.mfu_percent is not None
    return Efficiency(
        operators=operators,
        further=further,
        peaks=tuple({(each.device_name, each.product): each for each in peaks.values()}.values()),
        mfu_percent=used.mfu_percent,
        hfu_percent=used.hfu_percent,
        coverage_percent=used.coverage_percent,
        lower_bound=known and (used.coverage_percent or 0.0) < LOWER_BOUND_PERCENT,
        no_mfu=used.reason,
        energy=step_energy(store, owned.work, measured, used.model_flop),
        measured_over=measured.basis if known else None,
    )


def device_peaks(store: Store, work: pl.DataFrame, overrides: Mapping[str, float] | None = None) -> dict[int | None, DevicePeaks]:
    """Return the peaks of the GPUs of each process.

    Processes whose GPUs are unknown or differ are left out. ``work``: process and device of the device work. ``overrides``: peaks that the
    user sets."""
    used = work.select("process", "device").drop_nulls().unique()
    if used.is_empty():
        return {}
    rows = used.join(store.frame(_DEVICES), on=["process", "device"], how="left").sort("process", "device")
    peaks: dict[int | None, list[DevicePeaks | None]] = {}
    for process, _, *facts in rows.iter_rows():
        peaks.setdefault(process, []).append(peaks_of(*facts, overrides=overrides))
    return {process: first for process, (first, *rest) in peaks.items() if first is not None and all(other == first for other in rest)}
