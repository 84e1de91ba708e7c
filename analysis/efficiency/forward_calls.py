"""Forward calls of nodes of autograd: a node has the sequence number of the forward operator that made it, and the number of its thread.

Sequence numbers count per thread. The profiler numbers threads in another way than the operating system. The thread of a number is the one
whose operators have the sequence numbers of the nodes, and that runs no operator during them, because it waits for the backward pass.
"""

from __future__ import annotations

from typing import Final

import polars as pl

_MOST_THREADS: Final = 16  # that have a sequence number; with more, its forward call is unknown
_OF_THREAD: Final = ["process", "forward_thread"]


def forward_calls(operators: pl.DataFrame, nodes: pl.Series) -> pl.DataFrame:
    """Return ``node`` (row), ``tid`` and ``time`` (ns) of the forward call of nodes.

    ``operators``: process, tid, start, end, sequence, forward_thread. ``nodes``: rows in it. Nodes without a known call are left out."""
    rows = nodes.drop_nulls().unique()
    of_node = operators.select("process", "tid", "start", "end", "sequence", "forward_thread")[rows].with_columns(node=rows)
    of_node = of_node.filter(pl.col("forward_thread") > 0).drop_nulls(["process", "sequence"])
    key = ["process", "sequence"]
    makers = operators.lazy().filter(pl.col("sequence").is_not_null(), pl.col("forward_thread").fill_null(0) <= 0)
    makers = makers.select("process", "sequence", maker="tid", time="start").join(of_node.lazy().select(key).unique(), on=key, how="semi")
    # Of the operators with a number the last one to begin made the node: the number grows with the next node.
    last = makers.group_by(*key, "maker").agg(pl.col("time").max()).filter(pl.len().over(key) <= _MOST_THREADS).collect()
    pairs = of_node.join(last, on=key).filter(pl.col("time") < pl.col("start"))
    if pairs.n_unique(["process", "forward_thread", "maker"]) > pairs.n_unique(_OF_THREAD):
        pairs = _of_waiting_thread(pairs, operators)
    return pairs.select("node", tid="maker", time="time")


def _of_waiting_thread(pairs: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """Keep the calls of the thread that waited during most nodes of a thread number."""
    makers = pairs.select("process", tid="maker").unique()
    begins = operators.join(makers, on=["process", "tid"], how="semi").select("process", maker="tid", begin="start").sort("begin")
    after = pairs.sort("start").with_columns(after=pl.col("start") + 1)
    later = after.join_asof(begins, left_on="after", right_on="begin", by=["process", "maker"], strategy="forward", check_sortedness=False)
    waited = (pl.col("maker") == pl.col("tid")) | (pl.col("begin") >= pl.col("end")).fill_null(True)
    votes = later.group_by(*_OF_THREAD, "maker").agg(votes=waited.sum())
    assigned = votes.clear()
    while votes.height:
        # A number without a rival for its best thread; two numbers are never of one thread.
        best = pl.col("votes") == pl.col("votes").max()
        sure = votes.filter(best.over(_OF_THREAD)).filter(pl.len().over(_OF_THREAD) == 1)
        sure = sure.filter(best.over("process", "maker")).filter(pl.len().over("process", "maker") == 1)
        if sure.is_empty():
            break
        assigned = pl.concat([assigned, sure])
        votes = votes.join(sure, on=_OF_THREAD, how="anti").join(sure, on=["process", "maker"], how="anti")
    return pairs.join(assigned, on=[*_OF_THREAD, "maker"], how="semi")
