"""Bus bandwidth of process groups: transfers of collectives matched over all their ranks, the link of the group, and groups of its kind.

A transfer lasts from the arrival of the last rank to the last end, so that it does not contain waiting. A collective counts if its size and
group are recorded and all ranks of the group are in the run.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..device.collectives import ONE_TO_ONE, bus_factor
from ..toolkit.labels import UNKNOWN_HOST
from ..toolkit.places import Places
from ..toolkit.shared import shared
from .links import Link, group_link
from .matching import matched_collectives

SHORTEST_NS: Final = 200_000  # transfers that the link allows in less are bound by latency
PER_RANK_NS: Final = 20_000  # of latency for each rank of a group
SMALLEST_BYTES: Final = 4 << 20  # the same bound where the link is unknown

KIND: Final = ("group_description", "group_size", "nodes", "operation", "bytes")  # equal work over equal links
_SCHEMA: Final = {
    "match": pl.Int64, "group": pl.String, "group_description": pl.String, "group_size": pl.Int64, "operation": pl.String,
    "bytes": pl.Int64, "transfer": pl.Int64, "bus": pl.Float64, "nodes": pl.UInt32, "expected": pl.Float64, "peers": pl.Float64,
    "peer_groups": pl.UInt32,
}  # fmt: skip


def group_transfers(store: Store) -> tuple[pl.DataFrame, dict[str, Link]]:
    """Return the large collectives whose ranks are all in the run, and the links.

    Columns: match, group, group_description, group_size, operation, bytes, ``transfer`` (ns), ``bus`` (GB/s), ``nodes`` (number of nodes
    of the group), ``expected`` (GB/s of the link; null if unknown, or if latency bounds the collective), ``peers`` (median GB/s of equal
    collectives in other groups of the kind; null without any), and ``peer_groups`` (their number). Links are by group.
    """
    calls = matched_collectives(store)
    if calls.is_empty():
        return pl.DataFrame(schema=_SCHEMA), {}
    complete = calls.filter(
        pl.col("match").is_not_null(),
        ~pl.col("operation").is_in(ONE_TO_ONE),
        ~pl.col("assumed").fill_null(True),
        pl.col("group_size") > 1,
        pl.col("group_size") == pl.col("process").n_unique().over("match"),
        pl.col("bytes").is_not_null().all().over("match"),
    ).with_columns(pl.col("start", "end") + pl.col("shift_ns"))
    if complete.is_empty():
        return pl.DataFrame(schema=_SCHEMA), {}
    links = group_links(store)
    speeds = {group: link.gb_per_s for group, link in links.items()}
    large = complete.group_by("match").agg(
        pl.col("group", "group_description", "group_size", "operation").first(),
        pl.col("bytes").max(),
        transfer=pl.col("end").max() - pl.col("start").max(),
        nodes=pl.col("node").n_unique(),
    )
    factors = large.select("operation", "group_size").unique()
    factors = factors.with_columns(factor=pl.Series([bus_factor(*key) for key in factors.rows()], dtype=pl.Float64))
    moved = pl.col("bytes") * pl.col("factor")
    large = (
        large.filter(pl.col("transfer") > 0)
        .join(factors, on=["operation", "group_size"], maintain_order="left")
        .with_columns(expected=pl.col("group").replace_strict(speeds, default=None, return_dtype=pl.Float64))
        .filter(pl.col("factor").is_not_null())
        .with_columns(bus=moved / pl.col("transfer"))
        .with_columns(
            expected=pl.when(moved / pl.col("expected") >= pl.max_horizontal(SHORTEST_NS, PER_RANK_NS * pl.col("group_size"))).then(
                "expected"
            )
        )
        .filter(pl.col("expected").is_not_null() | (pl.col("bytes") >= SMALLEST_BYTES))
    )
    return _with_peers(large).select(list(_SCHEMA)), links


def _with_peers(large: pl.DataFrame) -> pl.DataFrame:
    """Add the bandwidth and number of equal collectives in groups of the kind."""
    typical = large.group_by("group", *KIND).agg(bus=pl.col("bus").median())
    pairs = typical.join(typical, on=KIND, nulls_equal=True, suffix="_peer").filter(pl.col("group") != pl.col("group_peer"))
    peers = pairs.group_by("group", *KIND).agg(peers=pl.col("bus_peer").median(), peer_groups=pl.len())
    return large.join(peers, on=["group", *KIND], how="left", nulls_equal=True, maintain_order="left")


def bus_of_all() -> pl.Expr:
    """Return the bus bandwidth in GB/s of all calls: summed sizes / transfers."""
    return (pl.col("bus") * pl.col("transfer")).sum() / pl.col("transfer").sum()


@shared
def group_links(store: Store) -> dict[str, Link]:
    """Return the links of recorded groups, by group.

    All ranks of such a group are in the run. A group is left out if the model of its GPUs or the node of a rank is unknown."""
    calls = matched_collectives(store)
    members = calls.filter(pl.col("group").is_not_null(), pl.col("group_size") > 1, pl.col("group_size") == pl.col("known"))
    members = members.select("group", "process", "node", "device").unique().sort("group", "process", "device")
    if members.is_empty():
        return {}
    places = Places(store)
    devices = store.frame('SELECT node, "index" AS device, name FROM device').unique(["node", "device"], keep="first")
    counts = dict(devices.group_by("node").len().rows())
    models = {(node, device): name for node, device, name in devices.rows()}
    declared = dict(store.frame("SELECT id, gpus FROM node WHERE gpus IS NOT NULL").rows())
    instance_type = next(iter(store.frame("SELECT instance_type FROM run").to_series()), None)
    links = {}
    for (group,), ranks in members.group_by("group", maintain_order=True):
        used = ranks.select("node", "device").rows()
        nodes = [node for node, _ in used]
        names = {models.get(gpu) for gpu in used}
        if len(names) != 1 or any(node is None or places.node(node).startswith(UNKNOWN_HOST) for node in nodes):
            continue
        gpus = {declared.get(node) or counts.get(node) for node in nodes}
        link = group_link(names.pop(), nodes, gpus.pop() if len(gpus) == 1 else None, instance_type)
        if link is not None:
            links[str(group)] = link
    return links
