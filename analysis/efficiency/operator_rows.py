"""Rows of the report: operators by the sizes, types and strides of their inputs, with rates, roof and lost time."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from ..report.efficiency import OperatorWork
from .json_arrays import json_array
from .operator_work import OwnedWork
from .roofline import with_bounds
from .shape_rows import KEY

MOST: Final = 500


def origins(owned: OwnedWork, shapes: pl.DataFrame, sites: pl.DataFrame) -> pl.DataFrame:
    """Return the module and the line that the calls of each row come from.

    Columns: KEY, module and line (null if there are several, or if those of some calls are unknown), modules (number of those known)."""
    calls = owned.calls.join(shapes, on=["operator", "signature"], how="left", nulls_equal=True)
    calls = calls.join(sites.select("site", "module", "line"), on="site", how="left", nulls_equal=True)
    known = {name: pl.when(pl.col(name) != "").then(name) for name in ("module", "line")}
    return calls.group_by(KEY).agg(
        *(pl.when(value.n_unique() == 1).then(value.first()).alias(name) for name, value in known.items()),
        modules=known["module"].drop_nulls().n_unique(),
    )


def operator_rows(rows: pl.DataFrame, code: pl.DataFrame, most: int = MOST) -> tuple[tuple[OperatorWork, ...], int]:
    """Return the rows with the longest device time, and how many others there are.

    ``rows``: :func:`.shape_rows.shape_rows`; ``code``: :func:`origins`."""
    bounded = bounded_rows(rows)
    order = pl.coalesce("model_flop", "flop", pl.lit(0)).cast(pl.Float64) * pl.col("calls")
    ranked = bounded.with_columns(order=order).sort(
        "device_ns", "order", *KEY, descending=[True, True, *(False for _ in KEY)], nulls_last=True
    )
    listed = ranked.head(most).join(code, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    return tuple(_row(row) for row in listed.iter_rows(named=True)), max(0, ranked.height - most)


def bounded_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum the rows over processes and windows.

    Adds the columns of :func:`.roofline.with_bounds`. Least times are null if they are unknown for a process with device time."""

    def total(column: str) -> pl.Expr:
        unknown = (pl.col(column).is_null() & (pl.col("device_ns") > 0)).any()
        return pl.when(~unknown).then(pl.col(column).filter(pl.col("device_ns") > 0).sum()).alias(column)

    summed = rows.group_by(KEY).agg(pl.col("calls", "launches", "device_ns").sum(), total("compute_ns"), total("memory_ns"))
    return with_bounds(summed)


def _row(row: dict[str, Any]) -> OperatorWork:
    device_ns, calls = row["device_ns"], row["calls"]
    flop = row["flop"] if row["model_flop"] is None else row["model_flop"]
    known = device_ns > 0 and not row["beyond"]
    return OperatorWork(
        operator=row["operator"],
        input_dims=_list(row["input_dims"]),
        input_types=_list(row["input_types"]),
        input_strides=_list(row["input_strides"]),
        calls=calls,
        device_ns=device_ns,
        flop_per_call=row["flop"],
        model_flop_per_call=row["model_flop"],
        bytes_per_call=row["bytes"],
        tflops=flop * calls / device_ns / 1e3 if known and flop is not None else None,
        gb_per_s=row["bytes"] * calls / device_ns if known and row["bytes"] is not None else None,
        intensity=flop / row["bytes"] if flop is not None and row["bytes"] else None,
        percent_of_roof=row["percent_of_roof"],
        bound=row["bound"],
        roof=row["roof"],
        lost_ns=row["lost_ns"],
        module=row["module"],
        source_line=row["line"],
        modules_seen=row["modules"],
        compute_type=row["compute_type"],
        flop_per_call_bounds=None if row["least_flop"] is None else (row["least_flop"], row["most_flop"]),
    )


def _list(text: str | None) -> list[Any]:
    """Return a JSON array, empty if it is unknown or unreadable."""
    return json_array(text) or []
