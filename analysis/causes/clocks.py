"""Clocks of processes, aligned by the ends of collectives that are matched over them.

The ranks of a collective that gives every rank the contribution of all leave it at the same time. The median difference of these ends
between two processes is the difference of their clocks, and its spread shows how far the alignment can be trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import polars as pl

ALL_TO_ALL: Final = ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "barrier")
"""Operations that no rank leaves before all have entered."""
_LEAST: Final = 2  # collectives of two processes from which their clocks are compared


class Edge(NamedTuple):
    """``ahead``: the clock of ``later`` minus that of ``first``. ``spread``: its median absolute deviation; None: one clock."""

    first: int
    later: int
    ahead: float
    spread: float | None


class Clocks(NamedTuple):
    """``shifts``: ns to add to the times of each process. ``nodes``: the median of these for each node.

    ``spread_ns``: how far the ends of collectives scatter around the offsets (which may be smaller): the largest median absolute deviation
    of the pairs of processes that align nodes; None if no two nodes are aligned. ``unaligned``: nodes whose collectives match none of the
    other nodes."""

    shifts: Mapping[int, int]
    nodes: Mapping[int, int]
    spread_ns: int | None
    unaligned: tuple[int, ...]


def aligned_clocks(calls: pl.DataFrame) -> Clocks:
    """Align the clocks of processes to that of the first one.

    ``calls``: process, node, start, end, match (may be null), group, operation, size. Processes that no collective connects have the
    same clock as the others of their node.
    """
    places = calls.select("process", "node").drop_nulls().unique().sort("node", "process")
    node_of = dict(places.rows())
    if not node_of:
        return Clocks({}, {}, None, ())
    kind = ("group", "operation", "size")
    ends = (
        calls.filter(pl.col("match").is_not_null(), pl.col("operation").is_in(ALL_TO_ALL))
        .group_by("match", "process", *kind)
        .agg(pl.col("end").max())
        .sort("match", "process")
        .with_columns(pl.col("process", "end").shift(1).over("match").name.suffix("_before"))
        .drop_nulls("process_before")
    )
    apart = pl.col("end") - pl.col("end_before")
    pair = ("process_before", "process")
    edges = (
        ends.group_by(*pair, *kind)
        .agg(count=pl.len(), ahead=apart.median(), spread=(apart - apart.median()).abs().median())
        .filter(pl.col("count") >= _LEAST)
        .sort("spread", *pair, "ahead")
        .unique(pair, keep="first", maintain_order=True)
        .select(*pair, "ahead", "spread")
    )
    same = places.with_columns(before=pl.col("process").shift(1).over("node")).drop_nulls("before")
    ties = [Edge(first, later, 0.0, None) for first, later in same.select("before", "process").rows()]
    return _aligned(node_of, [*map(Edge._make, edges.rows()), *ties])


def _aligned(node_of: Mapping[int, int], edges: Iterable[Edge]) -> Clocks:
    """Join the processes into parts with one clock, over the closest differences."""
    part = {process: process for process in node_of}
    members = {process: [process] for process in node_of}
    shifts = dict.fromkeys(node_of, 0)
    spreads = []
    for first, later, ahead, spread in edges:
        into, gone = part[first], part[later]
        if into == gone:
            continue
        move = round(shifts[first] - shifts[later] - ahead)  # of the part of the later one
        if len(members[into]) < len(members[gone]):
            into, gone, move = gone, into, -move
        for process in members[gone]:
            shifts[process] += move
            part[process] = into
        members[into] += members.pop(gone)
        if spread is not None and node_of[first] != node_of[later]:
            spreads.append(spread)
    nodes: dict[int, list[int]] = {}
    for process, node in node_of.items():
        nodes.setdefault(node, []).append(process)
    largest = max(members.values(), key=lambda processes: (len(processes), -min(processes)))
    origin = shifts[min(largest)]
    # Parts that nothing connects to the largest one keep their recorded times.
    main = part[largest[0]]
    shifts = {process: shift - (origin if part[process] == main else shifts[part[process]]) for process, shift in shifts.items()}
    medians = {node: sorted(shifts[process] for process in processes)[len(processes) // 2] for node, processes in nodes.items()}
    unaligned = tuple(node for node, processes in nodes.items() if not any(part[process] == main for process in processes))
    return Clocks(shifts, medians, round(max(spreads)) if spreads else None, unaligned)
