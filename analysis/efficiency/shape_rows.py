"""Operator calls of equal inputs, by process: their device time, their work and the peak that limits them."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..device.precision import MATRIX_CATEGORIES
from ..report.efficiency import DevicePeaks
from .call_shapes import FIGURES
from .operator_work import OwnedWork
from .roofline import with_least_times
from .signature_texts import TEXTS

KEY: Final = ("operator", *TEXTS[:3], *FIGURES)
"""Columns that rows of the report differ in. Concrete inputs count if the work differs by them, such as for the stride of a convolution."""

_TF32: Final = "tf32"
_NAMES: Final = """
    SELECT id AS kernel, precision, category, regexp_matches(text, 'DtoD|[Dd]evice.to.[Dd]evice') AS within_device
    FROM name WHERE list_contains(?, id)
"""
_CROSSING: Final = (pl.col("kind") == "memcpy") & ~pl.col("within_device").fill_null(False)


def shape_rows(store: Store, owned: OwnedWork, shapes: pl.DataFrame, peaks: dict[int | None, DevicePeaks]) -> pl.DataFrame:
    """Return a row per ``KEY``, process, ``inside`` and ``recomputed``, sorted.

    Further columns: calls, launches, device_ns (0 without device work), ``roof_type`` (type of the peak), compute_ns and memory_ns of
    :func:`.roofline.with_least_times`. ``shapes``: :func:`.call_shapes.call_shapes`."""
    key = [*KEY, "process", "inside", "recomputed"]
    on = ["operator", "signature"]
    calls = owned.calls.join(shapes, on=on, how="left", nulls_equal=True).group_by(key).agg(pl.col("calls").sum())
    work = owned.work.filter(pl.col("operator").is_not_null()).join(shapes, on=on, how="left", nulls_equal=True)
    work = work.join(kernel_names(store, owned), on="kernel", how="left").group_by(key).agg(
        launches=pl.col("count").sum(),
        device_ns=pl.col("total").sum(),
        full_precision=((pl.col("precision") == "FP32") | ~pl.col("category").is_in(list(MATRIX_CATEGORIES))).all()
        & (pl.col("precision") == "FP32").any(),
        crossing=_CROSSING.any(),
    )  # fmt: skip
    rows = calls.join(work, on=key, how="left", nulls_equal=True).with_columns(
        pl.col("launches", "device_ns").fill_null(0), pl.col("full_precision").fill_null(False)
    )
    # A product of FP32 inputs may run in TF32. Without a kernel that is known to compute in FP32, the higher peak applies if there is one.
    tf32 = pl.Series([process for process, known in peaks.items() if _TF32 in known.flop_per_s], dtype=pl.Int32)
    as_tf32 = (pl.col("compute_type") == "fp32") & pl.col("matrix") & ~pl.col("full_precision") & pl.col("process").is_in(tf32.implode())
    bounded = with_least_times(rows.with_columns(roof_type=pl.when(as_tf32).then(pl.lit(_TF32)).otherwise("compute_type")), peaks)
    # Copies from or to the host, or another GPU, are limited by a link, not by the memory.
    return bounded.with_columns(memory_ns=pl.when(~pl.col("crossing").fill_null(False)).then("memory_ns")).drop("crossing").sort(key)


def kernel_names(store: Store, owned: OwnedWork) -> pl.DataFrame:
    """Return the kernels with precision, category and within_device.

    ``within_device``: the name is that of a copy within a device."""
    ids = owned.work["kernel"].drop_nulls().unique().to_list()
    if not ids:
        return pl.DataFrame(schema={"kernel": pl.Int32, "precision": pl.String, "category": pl.String, "within_device": pl.Boolean})
    return store.frame(_NAMES, [ids])
