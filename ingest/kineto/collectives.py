"""What do the events of a Kineto trace say about the collectives that they are?"""

from __future__ import annotations

from typing import Final

import polars as pl

from ..chrome_trace.names import Names
from ..chrome_trace.tensors import output_and_input, tensors
from ..kernels.categories import DEVICE_KINDS
from ..store.tables import SCHEMA

_PREFIX: Final = "nccl:"  # Before the names of the ranges in which PyTorch's NCCL process group launches a collective
_GATHERS: Final = {
    "c10d::_allgather_base_": "_allgather_base",
    "c10d::allgather_": "allgather",
    "c10d::_reduce_scatter_base_": "_reduce_scatter_base",
    "c10d::reduce_scatter_": "reduce_scatter",
}
"""Operators around these ranges whose first two arguments are what a rank gets and gives: one is the other times the ranks of the group."""
_COLUMNS: Final = [column for column in SCHEMA["collective"] if column not in ("node", "process")]


def collective_rows(names: Names, events: pl.DataFrame) -> pl.DataFrame | None:
    """What events of other tables say beside about the collective that they are; None where there are none."""
    if events.is_empty():
        return None
    texts = {name: names.of(events[name], ["text"])["text"] for name in ("operation", "element_type", "group_name", "group_ranks")}
    on_device = pl.col("kind") < len(DEVICE_KINDS)
    return events.select(
        on_device=on_device,
        tid=pl.when(~on_device).then("tid"),
        start_ns="start_ns",
        duration_ns="duration_ns",
        correlation=pl.when(pl.col("correlation") != 0).then("correlation"),
        external_id="external_id",
        **texts,
        **{name: pl.col(name) for name in ("in_elements", "out_elements", "group_size")},
    ).select(_COLUMNS)


def shaped_rows(names: Names, events: pl.DataFrame) -> pl.DataFrame | None:
    """Collectives whose range says the shapes of the tensors that it was given, as older traces do; of the others it says no more."""
    known = events.filter(pl.col("shapes").is_not_null(), pl.col("element_types").is_not_null(), pl.col("duration_ns") >= 0)
    if known.is_empty():
        return None
    texts = {name: names.of(known[name], ["text"])["text"] for name in ("name", "shapes", "element_types")}
    known = known.with_columns(**texts).filter(pl.col("name").str.starts_with(_PREFIX))
    found = {key: tensors(*key) for key in known.select("shapes", "element_types").unique().rows()}
    given = [found[key] for key in known.select("shapes", "element_types").rows()]
    sized = known.with_columns(
        in_elements=pl.Series([one[0] for one in given], dtype=pl.Int64),
        element_type=pl.Series([one[1] for one in given], dtype=pl.String),
    ).filter(pl.col("in_elements").is_not_null())
    if sized.is_empty():
        return None
    absent = {name: pl.lit(None, pl.Int64) for name in ("correlation", "out_elements", "group_size")}
    return sized.select(
        "tid", "start_ns", "duration_ns", "external_id", "element_type", "in_elements",
        on_device=pl.lit(False),
        operation=pl.col("name").str.strip_prefix(_PREFIX),
        group_name=pl.lit(None, pl.String),
        group_ranks=pl.lit(None, pl.String),
        **absent,
    ).select(_COLUMNS)  # fmt: skip


def gather_rows(names: Names, events: pl.DataFrame) -> pl.DataFrame | None:
    """Operators of collectives that tell by the shapes of what they give and are given how many ranks take part."""
    known = events.filter(pl.col("shapes").is_not_null(), pl.col("element_types").is_not_null(), pl.col("duration_ns") >= 0)
    named = {name: operation for name in known["name"].unique().drop_nulls() if (operation := _GATHERS.get(names.text(name)))}
    if not named:
        return None
    found = []
    for row in known.filter(pl.col("name").is_in(list(named))).iter_rows(named=True):
        sizes = output_and_input(names.text(row["shapes"]), names.text(row["element_types"]))
        if sizes is not None and max(sizes[:2]) % min(sizes[:2]) == 0:
            taken, given, element_type = sizes
            found.append(
                {
                    **{name: row[name] for name in ("tid", "start_ns", "duration_ns", "external_id")},
                    "on_device": False, "operation": named[row["name"]], "element_type": element_type, "in_elements": given,
                    "out_elements": taken, "group_size": max(taken, given) // min(taken, given),
                }
            )  # fmt: skip
    if not found:
        return None
    types = {"BOOLEAN": pl.Boolean, "BIGINT": pl.Int64, "VARCHAR": pl.String}
    return pl.DataFrame(found, schema={name: types[SCHEMA["collective"][name]] for name in _COLUMNS})
