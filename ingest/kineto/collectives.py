"""Rows of ``collective`` from the events of a Kineto trace: the arguments of collectives, or the shapes of their tensors."""

from __future__ import annotations

from typing import Final

import polars as pl

from ..chrome_trace.names import Names
from ..chrome_trace.tensors import output_and_input, tensors
from ..kernels.categories import DEVICE_KINDS
from ..store.schema import SCHEMA
from .signatures import TraceSignatures

_PREFIX: Final = "^[nhx]ccl:"  # of the ranges in which PyTorch's process groups launch a collective: NCCL, RCCL, HCCL, XCCL
_GATHERS: Final = {
    "c10d::_allgather_base_": "_allgather_base",
    "c10d::allgather_": "allgather",
    "c10d::_reduce_scatter_base_": "_reduce_scatter_base",
    "c10d::reduce_scatter_": "reduce_scatter",
}
"""Operators around these ranges. Their first two arguments are the output and the input of a rank; the group size is the ratio."""
_OF_GROUP: Final = ("group_name", "group_description", "group_ranks")
_COLUMNS: Final = [column for column in SCHEMA["collective"] if column not in ("node", "process")]
_SHAPED: Final = pl.col("shapes").is_not_null() & pl.col("element_types").is_not_null()


def collective_rows(names: Names, events: pl.DataFrame) -> pl.DataFrame | None:
    """Return the rows of events whose arguments describe a collective, or None."""
    if events.is_empty():
        return None
    texts = {name: names.texts(events[name]) for name in ("operation", "element_type", *_OF_GROUP)}
    on_device = pl.col("kind") < len(DEVICE_KINDS)
    correlation = pl.when(pl.col("correlation") != 0).then("correlation")
    # A send has the rank that it goes to, a receive the one that it comes from; either may also have its own rank.
    sends = texts["operation"].str.contains("(?i)send")
    peer = pl.when(sends).then(pl.coalesce("to_rank", "from_rank")).otherwise(pl.coalesce("from_rank", "to_rank"))
    rows = events.with_columns(on_device=on_device, tid=pl.when(~on_device).then("tid"), correlation=correlation, peer=peer, **texts)
    return rows.select(_COLUMNS)


def shaped_rows(names: Names, signatures: TraceSignatures, events: pl.DataFrame) -> pl.DataFrame | None:
    """Return the rows of ranges with shapes alone, as in older traces, or None."""
    known = events.filter(pl.col("combination").is_not_null() & (pl.col("duration_ns") >= 0))
    known = known.with_columns(name=names.texts(known["name"])).filter(pl.col("name").str.contains(_PREFIX))
    known = known.hstack(signatures.tensors(known["combination"])).filter(_SHAPED)
    if known.is_empty():
        return None
    sizes = {key: tensors(*key) for key in known.select("shapes", "element_types").unique().rows()}
    inputs = [sizes[key] for key in known.select("shapes", "element_types").rows()]
    sized = known.with_columns(
        in_elements=pl.Series([elements for elements, _ in inputs], dtype=pl.Int64),
        element_type=pl.Series([element_type for _, element_type in inputs], dtype=pl.String),
        on_device=pl.lit(False),
        operation=pl.col("name").str.replace(_PREFIX, ""),
        **{name: pl.lit(None, pl.Int64) for name in ("correlation", "out_elements", "group_size", "peer", "sequence")},
        **{name: pl.lit(None, pl.String) for name in _OF_GROUP},
    ).filter(pl.col("in_elements").is_not_null())
    return None if sized.is_empty() else sized.select(_COLUMNS)


def gather_rows(names: Names, signatures: TraceSignatures, events: pl.DataFrame) -> pl.DataFrame | None:
    """Return the rows of gathers and reduce-scatters by their shapes, or None."""
    named = {name: operation for name in events["name"].unique().drop_nulls() if (operation := _GATHERS.get(names.text(name)))}
    if not named:
        return None
    known = events.filter(pl.col("name").is_in(list(named)) & pl.col("combination").is_not_null() & (pl.col("duration_ns") >= 0))
    rows = []
    for row in known.hstack(signatures.tensors(known["combination"])).filter(_SHAPED).iter_rows(named=True):
        sizes = output_and_input(row["shapes"], row["element_types"])
        if sizes is not None and max(sizes[:2]) % min(sizes[:2]) == 0:
            received, sent, element_type = sizes
            rows.append({
                **{name: row[name] for name in ("tid", "start_ns", "duration_ns", "external_id")},
                "on_device": False, "operation": named[row["name"]], "element_type": element_type, "in_elements": sent,
                "out_elements": received, "group_size": max(received, sent) // min(received, sent),
            })  # fmt: skip
    if not rows:
        return None
    types = {"BOOLEAN": pl.Boolean, "BIGINT": pl.Int64, "VARCHAR": pl.String}
    return pl.DataFrame(rows, schema={name: types[SCHEMA["collective"][name]] for name in _COLUMNS})
