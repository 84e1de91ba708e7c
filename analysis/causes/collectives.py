"""Collectives by operation, process group and size: transfer and waiting, who comes last, and bandwidths of the transfer alone."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import polars as pl

from ...ingest.store.store import Store
from ..device.collectives import ONE_TO_ONE, bus_factor
from ..report.collectives import Collective, CollectiveGroup, CollectiveTotals, CollectiveWait, WaitLink
from ..toolkit.places import Places
from ..toolkit.shares import percent_of
from ..toolkit.wording import duration, plural
from .bandwidth import group_links
from .clocks import Clocks
from .groups import process_groups
from .links import Link
from .matching import matched_clocks, matched_collectives

MOST: Final = 200
_MATTERS: Final = 0.1  # share of a rank's time in collectives from which its wait for another rank is listed
_LISTED: Final = 8  # ranks of a group that a text lists

_ABSENT: Final = (
    "No communication kernel in this run. A profile of several ranks with activities CPU and CUDA shows them; PyTorch 2.3 or newer also"
    " writes the sizes of collectives."
)
_ROW: Final = ("operation", "element_type", "group_size", "assumed", "bytes", "group")


def collectives(store: Store, places: Places | None = None) -> tuple[tuple[Collective, ...], CollectiveTotals]:
    """Combine the calls of collectives, summed by operation, group and size, by time."""
    calls = matched_collectives(store)
    if calls.is_empty():
        return (), CollectiveTotals(0, 0, 0, None, 0, 0, (), _ABSENT)
    places = places or Places(store)
    parts = _parts(calls)
    every = _every(parts)
    keys = (*_ROW, "ranks")
    rows = (
        every.group_by(keys)
        .agg(
            *_SUMS,
            group_description=pl.col("group_description").first(),
            skew_ns=pl.col("skew").mean(),
            best=pl.col("speed").max(),
            partial=pl.col("partial").any(),
        )
        .sort("total_ns", *keys, descending=[True, *(False for _ in keys)], nulls_last=True)
    )
    rows = _with_last(rows, every, keys)
    total = int(rows["total_ns"].sum())
    sized = int(rows.filter(pl.col("bytes").is_not_null())["total_ns"].sum())
    labels = _labels(store)
    links = group_links(store)
    listed = tuple(_row(row, labels, links, places) for row in rows.head(MOST).to_dicts())
    unmatched = parts.filter(pl.col("known") > 1, pl.col("ranks") == 1).height
    return listed, CollectiveTotals(
        further=max(0, len(rows) - MOST),
        further_ns=int(rows.slice(MOST)["total_ns"].sum()),
        total_ns=total,
        sized_percent=percent_of(sized, total),
        matched=every.filter(pl.col("ranks") > 1).height,
        unmatched=unmatched,
        waits=_waits(parts, places),
        absent=None,
        groups=_groups(store, every, labels, places),
        clocks=_clocks(matched_clocks(store), places),
        renumbered=bool(process_groups(store).ranks),
        chain=_chain(parts, labels, places),
    )


_SUMS: Final = (
    pl.len().alias("count"),
    pl.col("kernels").sum(),
    pl.col("total").sum().alias("total_ns"),
    pl.col("transfer").sum().alias("transfer_ns"),
    pl.col("waiting").sum().alias("waiting_ns"),
)


def _with_last(rows: pl.DataFrame, every: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Add the process that starts last most often, and in how many collectives."""
    counted = every.drop_nulls("last").group_by(*keys, "last").agg(last_count=pl.len()).sort("last_count", "last", descending=[True, False])
    return rows.join(counted.unique(keys, keep="first", maintain_order=True), on=keys, how="left", nulls_equal=True, maintain_order="left")


def _parts(calls: pl.DataFrame) -> pl.DataFrame:
    """Add to each call its times on the aligned clock, and those of its collective.

    A call that is not matched is a collective of one rank.
    """
    begin, end = pl.col("start") + pl.col("shift_ns"), pl.col("end") + pl.col("shift_ns")
    numbered = calls.with_columns(
        match=pl.coalesce("match", -1 - pl.int_range(pl.len(), dtype=pl.Int64)), begin=begin, until=end
    ).with_columns(
        ranks=pl.col("process").n_unique().over("match"),
        latest=pl.col("begin").max().over("match"),
    )
    # A pair of a send and a receive is one transfer.
    pair = pl.col("operation").is_in(ONE_TO_ONE) & (pl.col("ranks") > 1)
    return numbered.with_columns(
        operation=pl.when(pair).then(pl.lit(ONE_TO_ONE[-1])).otherwise("operation"),
        group_size=pl.when(pair).then(2).otherwise("group_size"),
        known=pl.when(pair).then(2).otherwise("known"),
        wait=pl.when(pl.col("ranks") > 1).then(pl.min_horizontal(pl.col("latest") - pl.col("begin"), "duration")),
    )


def _every(parts: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each collective."""
    several = pl.col("ranks") > 1
    every = parts.group_by("match", maintain_order=True).agg(
        pl.col("operation", "element_type", "group_size", "assumed", "group", "group_description", "ranks", "known").first(),
        pl.col("bytes").max(),
        pl.col("kernels").sum(),
        total=pl.col("duration").sum(),
        transfer=pl.col("until").max() - pl.col("latest").first(),
        waiting=pl.col("wait").sum(),
        skew=pl.col("latest").first() - pl.col("begin").min(),
        last=pl.col("process").filter(pl.col("begin") == pl.col("latest")).min(),
        longest=pl.col("duration").max(),
    )
    return every.with_columns(
        # The transfer of one rank is its duration: the sum of its kernels.
        transfer=pl.when(several).then("transfer").otherwise("longest"),
        waiting=pl.when(several).then("waiting"),
        skew=pl.when(several).then("skew"),
        last=pl.when(several, pl.col("skew") > 0).then("last"),
        partial=~several | (pl.col("ranks") < pl.col("group_size").fill_null(pl.col("ranks") + 1)),
    ).with_columns(speed=pl.when(pl.col("transfer") > 0).then(pl.col("bytes") / pl.col("transfer")))


def _row(row: dict[str, Any], labels: dict[str, str], links: dict[str, Link], places: Places) -> Collective:
    factor, size, transfer = bus_factor(row["operation"], row["group_size"]), row["bytes"], row["transfer_ns"]
    speed = size * row["count"] / transfer if size is not None and transfer > 0 else None  # bytes / ns = GB / s
    best, several, link = row["best"], row["ranks"] > 1, links.get(row["group"])
    return Collective(
        operation=row["operation"],
        group=labels.get(row["group"]),
        group_description=row["group_description"],
        group_size=row["group_size"],
        ranks=row["ranks"],
        count=row["count"],
        kernels=row["kernels"],
        bytes=size,
        element_type=row["element_type"],
        total_ns=row["total_ns"],
        transfer_ns=transfer,
        waiting_ns=row["waiting_ns"] if several else None,
        skew_ns=row["skew_ns"],
        last_rank=_rank(row["last"], places),
        last_count=row["last_count"],
        algorithm_gb_per_s=speed,
        bus_gb_per_s=None if speed is None or factor is None else speed * factor,
        best_bus_gb_per_s=best * factor if best is not None and factor is not None else None,
        at_least=row["partial"],
        group_size_assumed=row["assumed"],
        expected_bus_gb_per_s=link.gb_per_s if factor is not None and link is not None else None,
    )


def _rank(process: int | None, places: Places) -> int | None:
    return None if process is None else places.process(process).rank


def _waits(parts: pl.DataFrame, places: Places) -> tuple[CollectiveWait, ...]:
    matched = parts.filter(pl.col("ranks") > 1)
    # A rank comes last if no other does.
    last = (pl.col("begin") == pl.col("latest")) & ((pl.col("begin") == pl.col("latest")).sum().over("match") == 1)
    waits = matched.with_columns(last=last).group_by("node", "process").agg(
        pl.len(), pl.col("duration").sum(), pl.col("wait").sum(), pl.col("last").sum()
    )  # fmt: skip
    rows = []
    for node, process, count, total, wait, last_count in waits.iter_rows():
        location = places.process(process, node)
        rows.append((location.order, CollectiveWait(*location, count, total, wait, last_count)))
    return tuple(wait for _, wait in sorted(rows, key=lambda row: row[0]))


def _chain(parts: pl.DataFrame, labels: dict[str, str], places: Places) -> tuple[WaitLink, ...]:
    """Return the rank that each rank waits for longest, by total wait.

    Ranks that wait for the same rank in the same group are one link. Waits below a tenth of a rank's time in collectives are left out.
    """
    first = pl.col("begin") == pl.col("latest")
    last = pl.col("process").filter(first).min().over("match")
    waits = parts.filter(pl.col("ranks") > 1).with_columns(last=last).filter(pl.col("process") != pl.col("last"))
    total = parts.group_by("process").agg(total=pl.col("duration").sum())
    longest = (
        waits.group_by("process", "last", "group")
        .agg(pl.col("wait").sum())
        .join(total, on="process")
        .filter(pl.col("wait") >= _MATTERS * pl.col("total"), pl.col("wait") > 0)
        .sort("wait", "last", "group", descending=[True, False, False])
        .unique("process", keep="first", maintain_order=True)
    )
    links: dict[tuple[int, str | None], list[tuple[int, int]]] = {}
    for process, last_process, group, wait in longest.select("process", "last", "group", "wait").iter_rows():
        ranks = _rank(process, places), _rank(last_process, places)
        if ranks[0] is not None and ranks[1] is not None:
            links.setdefault((ranks[1], labels.get(group)), []).append((ranks[0], wait))
    chain = [
        WaitLink(tuple(sorted(rank for rank, _ in rows)), late, group, sum(ns for _, ns in rows)) for (late, group), rows in links.items()
    ]
    return tuple(sorted(chain, key=lambda link: (-link.waiting_ns, link.late_rank)))


def _groups(store: Store, every: pl.DataFrame, labels: dict[str, str], places: Places) -> tuple[CollectiveGroup, ...]:
    """Return the recorded groups, longest total time first."""
    recorded = process_groups(store)
    known = Counter(key for keys in recorded.of_process.values() for key in keys)
    sums = every.drop_nulls("group").group_by("group").agg(
        *_SUMS, matched=(pl.col("ranks") > 1).sum()
    ).sort("total_ns", "group", descending=[True, False])  # fmt: skip
    rows = _with_last(sums.head(MOST), every, ("group",))
    return tuple(
        CollectiveGroup(
            group=labels[row["group"]],
            description=group.description,
            members=rank_text(recorded.members(row["group"])),
            size=group.size,
            known=known[row["group"]],
            count=row["count"],
            matched=row["matched"],
            total_ns=row["total_ns"],
            waiting_ns=row["waiting_ns"] if row["matched"] else None,
            last_rank=_rank(row["last"], places),
            last_count=row["last_count"],
        )
        for row in rows.to_dicts()
        if (group := recorded.groups.get(row["group"])) is not None
    )


def _labels(store: Store) -> dict[str, str]:
    """Return a short text for each group: its name, and its ranks if others have it."""
    recorded = process_groups(store)
    groups = recorded.groups
    names: dict[str, int] = {}
    for group in groups.values():
        names[group.name or ""] = names.get(group.name or "", 0) + 1
    labels = {}
    for key, group in groups.items():
        ranks = rank_text(recorded.members(key))
        if group.name is not None and names[group.name] == 1:
            labels[key] = group.name
        else:
            labels[key] = " ".join(part for part in (group.name, f"({ranks})" if ranks else None) if part) or key
    return labels


def rank_text(members: tuple[int, ...]) -> str | None:
    """Return the ranks of a group as text, the first and the last of many."""
    if not members:
        return None
    if len(members) <= _LISTED:
        return f"ranks {', '.join(map(str, members))}" if len(members) > 1 else f"rank {members[0]}"
    return f"{len(members)} ranks from {members[0]} to {members[-1]}"


def _clocks(clocks: Clocks, places: Places) -> str | None:
    if len(clocks.nodes) < 2:
        return None
    if clocks.spread_ns is None:
        return "No collective is matched over two nodes, so it is not known whether their clocks agree."
    moves = {node: shift for node, shift in clocks.nodes.items() if node not in clocks.unaligned}
    widest = max(moves.values()) - min(moves.values())
    text = (
        f"The clocks of {plural(len(moves), 'node')} were aligned by the ends of their collectives. The largest offset was"
        f" {duration(widest)}; the ends scatter around the offsets by {duration(clocks.spread_ns)} (median absolute deviation)."
    )
    if clocks.unaligned:
        named = ", ".join(places.node(node) for node in clocks.unaligned[:_LISTED])
        text += f" No collective connects {named} with the others."
    return text
