"""Sends matched with receives: send k of a rank to another one is receive k of that rank from it.

The rank at the other end is recorded, or the group has two ranks. Otherwise the streams of a pipeline's rank are assigned to its
neighbors: all sends of a stream end together with the receives of one stream of a neighbor. Numbers of streams do not matter.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from .groups import ProcessGroups

_SENDS: Final = "send"
_RECEIVES: Final = "receive"
_STREAMS: Final = 8  # streams with sends and receives of a rank in a group; a pipeline uses one for each direction and neighbor
_OVERLAPPING: Final = 0.9  # share of the pairs that have to run at the same time, on aligned clocks
_LEAST: Final = 2  # pairs from which two streams are recognized as the ends of one connection


def paired(calls: pl.DataFrame, groups: ProcessGroups) -> pl.DataFrame:
    """Match sends and receives; fill ``peer``, the process at the other end."""
    ends = calls.filter(pl.col("operation").is_in([_SENDS, _RECEIVES]), pl.col("group").is_not_null() | pl.col("peer").is_not_null())
    if ends.is_empty():
        return calls
    ends = ends.sort("start", "row").with_columns(begin=pl.col("start") + pl.col("shift_ns"), until=pl.col("end") + pl.col("shift_ns"))
    peers = pl.concat([_of_two(ends), _by_streams(ends, groups)]) if ends["peer"].null_count() else ends.select("row", "peer").clear()
    ends = ends.join(peers.rename({"peer": "found"}), on="row", how="left", maintain_order="left")
    ends = ends.with_columns(peer=pl.coalesce("peer", "found")).drop("found")
    sends = pl.col("operation") == _SENDS
    known = ends.filter(pl.col("peer").is_not_null()).with_columns(
        sender=pl.when(sends).then("process").otherwise("peer"), receiver=pl.when(sends).then("peer").otherwise("process")
    )
    link = ("group", "sender", "receiver")
    known = known.with_columns(place=pl.int_range(pl.len(), dtype=pl.Int64).over(*link, "operation"))
    pair = (*link, "place")
    complete = (pl.len().over(pair) == 2) & (pl.col("operation").n_unique().over(pair) == 2)
    alike = pl.struct("bytes", "element_type").n_unique().over(pair) == 1
    meet = pl.col("begin").max().over(pair) < pl.col("until").min().over(pair)
    known = known.with_columns(complete=complete & alike, meet=meet)
    fits = pl.col("complete").all().over(link) & (pl.col("meet").mean().over(link) >= _OVERLAPPING)
    matched = known.filter(fits).select("row", number=pl.struct(*pair).rank("dense").cast(pl.Int64))
    first = calls["match"].max()
    offset = 0 if first is None else int(first) + 1  # type: ignore[arg-type]
    joined = calls.join(ends.select("row", found="peer"), on="row", how="left", maintain_order="left").join(
        matched, on="row", how="left", maintain_order="left"
    )
    return joined.with_columns(peer=pl.coalesce("peer", "found"), match=pl.coalesce("match", pl.col("number") + offset)).drop(
        "found", "number"
    )


def _of_two(ends: pl.DataFrame) -> pl.DataFrame:
    """Return the other process of groups of two, both of which are recorded."""
    two = ends.filter(pl.col("peer").is_null(), pl.col("group_size") == 2, pl.col("known") == 2)
    members = two.select("group", "process").unique()
    opposite = members.join(members, on="group", suffix="_of_peer").filter(pl.col("process") != pl.col("process_of_peer"))
    return two.join(opposite, on=("group", "process")).select("row", peer="process_of_peer")


def _by_streams(ends: pl.DataFrame, groups: ProcessGroups) -> pl.DataFrame:
    """Return the neighbors whose streams end together with those of a process."""
    lane = ("group", "process", "device", "stream", "operation")
    unknown = ends.filter(pl.col("peer").is_null(), pl.col("group_size") > 2)
    lanes = unknown.group_by(lane, maintain_order=True).agg(count=pl.len()).with_row_index("lane")
    lanes = lanes.filter(pl.len().over("group", "process") <= _STREAMS)
    places = {(process, key): groups.position(process, key) for key, process in lanes.select("group", "process").unique().rows()}
    positions = [places[process, key] for key, process in lanes.select("group", "process").rows()]
    lanes = lanes.with_columns(place=pl.Series(positions, dtype=pl.Int64), size=_sizes(lanes, groups)).filter(pl.col("place").is_not_null())
    sends, receives = (lanes.filter(pl.col("operation") == operation).drop("operation") for operation in (_SENDS, _RECEIVES))
    # Every stage sends to the next one and to the one before; with interleaved stages the last one also sends to the first.
    steps = [sends.with_columns(at=(pl.col("place") + step) % pl.col("size")) for step in (1, -1)]
    pairs = (
        pl.concat(steps)
        .join(receives, left_on=("group", "at", "count"), right_on=("group", "place", "count"), suffix="_received")
        .select("lane", "lane_received", "process", "process_received")
        .unique(maintain_order=True)
    )
    numbered = unknown.join(lanes.select(*lane, "lane"), on=lane, nulls_equal=True).with_columns(
        place=pl.int_range(pl.len(), dtype=pl.Int64).over("lane")
    )
    calls = numbered.select("lane", "place", "begin", "until")
    times = pairs.join(calls, on="lane").join(calls, left_on=("lane_received", "place"), right_on=("lane", "place"), suffix="_received")
    meet = (pl.col("begin") < pl.col("until_received")) & (pl.col("begin_received") < pl.col("until"))
    apart = (pl.col("until") - pl.col("until_received")).abs().median()
    scores = (
        times.group_by("lane", "lane_received", "process", "process_received", maintain_order=True)
        .agg(apart=apart, meet=meet.mean(), count=pl.len())
        .filter(pl.col("meet") >= _OVERLAPPING, pl.col("count") >= _LEAST)
    )
    least = pl.col("apart").min()
    best = scores.filter(pl.col("apart") == least.over("lane"), pl.col("apart") == least.over("lane_received"))
    best = best.filter(pl.len().over("lane") == 1, pl.len().over("lane_received") == 1)
    peers = pl.concat([
        best.select("lane", peer="process_received"), best.select(pl.col("lane_received").alias("lane"), peer="process")
    ])  # fmt: skip
    return numbered.drop("peer").join(peers, on="lane").select("row", "peer")


def _sizes(lanes: pl.DataFrame, groups: ProcessGroups) -> pl.Series:
    sizes = {key: len(group.members) for key, group in groups.groups.items()}
    return pl.Series([sizes[key] for key in lanes["group"]], dtype=pl.Int64)
