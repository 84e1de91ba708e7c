"""Operator calls that compute the forward pass again during the backward pass, as activation checkpointing does."""

from __future__ import annotations

from typing import Final

import polars as pl

CHECKPOINT: Final = r"Checkpoint\w*Backward"


def recomputed(points: pl.DataFrame, operators: pl.DataFrame, checkpoints: list[int]) -> pl.Series:
    """Return whether each call is forward work inside of a node of autograd.

    In a backward pass only forward work builds a graph, so only it has a sequence number of its own. It is a recomputation inside of the
    node of a checkpoint (``checkpoints``: their names), and if no other node differentiates it: the backward pass of a backward pass
    (``create_graph=True``) is differentiated. ``points`` and ``operators``: as in :data:`.operator_work.Sites`."""
    forward_work = (pl.col("sequence") >= 0) & (pl.col("forward_thread").fill_null(0) <= 0)
    inside = points.with_row_index("point").filter(pl.col("node").is_not_null() & forward_work)
    if inside.is_empty():
        return pl.repeat(False, points.height, dtype=pl.Boolean, eager=True)
    checkpointed = operators["name"].gather(inside["node"]).is_in(checkpoints)
    nodes = operators.filter((pl.col("forward_thread") > 0) & (pl.col("sequence") >= 0))
    nodes = nodes.select("process", "forward_thread", "sequence").unique()
    # Nodes number the threads of the forward pass otherwise than the trace: most of their sequence numbers are on that thread.
    key = ["process", "forward_thread"]
    forward = operators.filter(forward_work).select("process", "tid", "sequence").unique()
    threads = forward.join(nodes, on=["process", "sequence"]).group_by("process", "tid", "forward_thread").len()
    threads = threads.sort("len", "tid", descending=[True, False]).unique(key, keep="first", maintain_order=True)
    differentiated = nodes.join(threads, on=key).select("process", "tid", "sequence").unique().with_columns(again=True)
    again = inside.join(differentiated, on=["process", "tid", "sequence"], how="left", maintain_order="left")["again"].is_not_null()
    known = inside["point"].filter(checkpointed | ~again)
    return pl.repeat(False, points.height, dtype=pl.Boolean, eager=True).scatter(known, True)
