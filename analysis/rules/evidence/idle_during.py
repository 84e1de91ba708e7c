"""The idle time of devices during something that their processes do."""

from __future__ import annotations

import polars as pl

from ...toolkit.intervals import intersection
from .run_data import RunData


def idle_during(run: RunData, stretches: pl.DataFrame) -> pl.DataFrame:
    """Return the gaps of devices within stretches of time of their processes.

    ``stretches``: process, start, end (ns), name, kind. Columns: process, device (number in its group), start, end, name, kind."""
    parts = []
    key = ["process", "name", "kind"]
    for group in run.gaps.groups():
        users = group.rows().with_columns(pl.col("process").cast(pl.Int64))
        gaps = group.gaps.select("row", "start", "end").join(users, on="row")
        for (row, name, kind), part in stretches.join(users, on="process").group_by("row", "name", "kind"):
            of_device = gaps.filter(pl.col("row") == row)
            within = intersection(of_device.select("process", "start", "end"), part.select("process", "start", "end"), ["process"])
            parts.append(
                within.with_columns(device=pl.lit(row, pl.Int64), name=pl.lit(name), kind=pl.lit(kind)).select(
                    *key, "device", "start", "end"
                )
            )
    empty = pl.DataFrame(
        schema={"process": pl.Int64, "name": pl.String, "kind": pl.String, "device": pl.Int64, "start": pl.Int64, "end": pl.Int64}
    )
    return pl.concat([empty, *(part.cast(empty.schema) for part in parts)])
