"""Collectives matched over the ranks of a run: calls of each rank -> the calls that are one collective, and the shifts of clocks.

A collective is one call in each rank of a process group. Its calls are matched by their order in the group if all recorded ranks have the
same sequence of operations, sizes and element types. Where the group is not recorded, ranks are taken as a group if their calls end
together: the ranks of a collective leave it at the same time, whenever they came.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..device.collectives import ONE_TO_ONE, collective_calls
from ..toolkit.places import Places
from ..toolkit.shared import shared
from .clocks import Clocks, aligned_clocks
from .groups import ProcessGroups, process_groups
from .pairs import paired

TOGETHER_NS: Final = 150_000
"""Median deviation up to which ranks leave a collective together; ranks of one group differ by some 50 µs, other ranks by milliseconds."""
_OF_DURATION: Final = 0.25  # of the median duration: short collectives of several groups can be close by chance
_SAME_NODE_NS: Final = 300_000  # up to which the clocks of the devices of a node differ
_OVERLAPPING: Final = 0.9  # share of the calls that have to run at the same time on all ranks, on aligned clocks
_LEAST: Final = 8  # calls of a rank from which a group can be recognized by their ends
_COMPARED: Final = 256  # calls of a rank that are compared, evenly distributed
_PASSES: Final = 512  # groups that are recognized by their ends, for each operation and size

_STEPS: Final = """
    SELECT process, "index" AS number, coalesce(device_start_ns, host_start_ns) AS begin,
        count(DISTINCT coalesce(phase, '')) OVER () AS phases,
        greatest(device_start_ns + device_duration_ns, host_start_ns + host_duration_ns) AS until
    FROM step WHERE process IS NOT NULL
"""

_SIGNATURE: Final = ("operation", "size", "element_type")
_MEMBER: Final = ("process", "device")

COLUMNS: Final = (
    "process", "node", "device", "stream", "start", "end", "duration", "kernels", "operation", "bytes", "element_type", "group",
    "group_description", "group_size", "known", "match", "assumed", "shift_ns", "peer",
)  # fmt: skip
_ADDED: Final = {"group": pl.String, "known": pl.UInt32, "match": pl.Int64, "shift_ns": pl.Int64, "peer": pl.Int32}


@shared
def matched_collectives(store: Store) -> pl.DataFrame:
    """Return a row for each call of a collective by a rank, by process and time.

    Columns: those of :func:`collective_calls`, and group (key; null if not recorded), known (processes of the group in this run), match
    (number of the collective, equal on all of its ranks; null if unmatched), assumed (the group was recognized by the ends of its calls,
    or is taken as all ranks), shift_ns (to add to start and end so that all clocks agree), peer (process at the other end of
    a send or receive).
    """
    return _matches(store)[0]


def matched_clocks(store: Store) -> Clocks:
    """Return how the clocks were aligned for :func:`matched_collectives`."""
    return _matches(store)[1]


@shared
def _matches(store: Store) -> tuple[pl.DataFrame, Clocks]:
    groups = process_groups(store)  # before the calls of a large run, which are not kept
    calls = collective_calls(store)
    if calls.is_empty():
        return calls.with_columns(**{name: pl.lit(None, kind) for name, kind in _ADDED.items()}).select(COLUMNS), Clocks({}, {}, None, ())
    calls, others = _in_common_steps(store, _with_groups(calls, groups))
    calls = _by_ends(_by_order(calls))
    clocks = _clocks(store, calls)
    shifts = pl.col("process").replace_strict(clocks.shifts, default=0, return_dtype=pl.Int64)
    calls = _at_one_time(calls.with_columns(shift_ns=shifts))
    sizes = store.frame("SELECT id AS process, world_size FROM process").filter(pl.col("process").is_in(calls["process"].implode()))
    world_size: int | None = sizes.select(pl.col("world_size").max()).item()
    if world_size is not None and calls["process"].n_unique() >= world_size:  # the recognized groups have no further ranks
        recognized = pl.col("group").is_null() & pl.col("match").is_not_null()
        members = pl.col("process").n_unique().over("match").cast(pl.Int64)
        calls = calls.with_columns(group_size=pl.when(recognized).then(members).otherwise("group_size"))
    calls = paired(calls, groups)
    if len(others):
        calls = pl.concat([calls, others.with_columns(shift_ns=shifts)], how="diagonal_relaxed").sort("row")
    return calls.select(COLUMNS), clocks


def _clocks(store: Store, calls: pl.DataFrame) -> Clocks:
    """Align the clocks in the order of hosts and ranks, not in that of the files."""
    places = Places(store)
    order = sorted(calls["process"].drop_nulls().unique(), key=lambda process: (places.process(process).order, process))
    number = pl.col("process").replace_strict(order, range(len(order)), default=None, return_dtype=pl.Int32)
    clocks = aligned_clocks(calls.with_columns(process=number))
    return clocks._replace(shifts={order[number]: shift for number, shift in clocks.shifts.items()})


def _in_common_steps(store: Store, calls: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divide calls into those to match and the others.

    If the ranks were profiled in different steps, only calls of the steps that all of them have are matched: their order is the same."""
    steps = store.frame(_STEPS)
    numbers = steps.group_by("process").agg(pl.col("number").unique().sort())["number"].to_list()
    common = set(numbers[0]).intersection(*numbers[1:]) if len(numbers) == calls["process"].n_unique() else set()
    if not common or all(len(own) == len(common) for own in numbers) or steps["phases"].max() != 1:
        return calls, calls.clear()
    begun = calls.sort("start").join_asof(steps.sort("begin"), left_on="start", right_on="begin", by="process", check_sortedness=False)
    inside = begun.filter(pl.col("number").is_in(list(common)), pl.col("start") < pl.col("until"))["row"].implode()
    return calls.filter(pl.col("row").is_in(inside)), calls.filter(~pl.col("row").is_in(inside))


def _with_groups(calls: pl.DataFrame, groups: ProcessGroups) -> pl.DataFrame:
    """Add ``group``, its size and ``known``, and the parts of signatures."""
    descriptions = {key: group.description for key, group in groups.groups.items()}
    sizes = {key: group.size for key, group in groups.groups.items()}
    numbers = {number: process for process, number in groups.number.items()}
    known = pl.col("process").n_unique().over("group")
    return (
        calls.join(groups.keys, on=groups.keys.columns[:-1], how="left", nulls_equal=True, maintain_order="left")
        .with_row_index("row")
        .with_columns(
            group_description=pl.col("group").replace_strict(descriptions, default=None, return_dtype=pl.String),
            group_size=pl.coalesce(pl.col("group").replace_strict(sizes, default=None, return_dtype=pl.Int64), "group_size"),
            known=pl.when(pl.col("group").is_not_null()).then(known),
            size=pl.when(pl.col("operation") != "all-to-all").then("bytes"),  # ranks may give different amounts
            one_to_one=pl.col("operation").is_in(ONE_TO_ONE),
            peer=pl.col("peer").replace_strict(numbers, default=None, return_dtype=pl.Int32),
            match=pl.lit(None, pl.Int64),
        )
    )


def _by_order(calls: pl.DataFrame) -> pl.DataFrame:
    """Match the calls of recorded groups by their numbers, else by their order."""
    candidates = calls.filter(pl.col("group").is_not_null(), ~pl.col("one_to_one"), pl.col("group_size").fill_null(2) > 1)
    candidates = candidates.filter(pl.col("process").n_unique().over("group") > 1).sort("start", "row")
    member = pl.struct(*_MEMBER)
    counted = pl.col("sequence").is_not_null().all() & (pl.struct(*_MEMBER, "sequence").n_unique() == pl.len())
    ordered = candidates.with_columns(
        numbered=counted.over("group"), place=pl.int_range(pl.len(), dtype=pl.Int64).over("group", *_MEMBER)
    ).with_columns(
        place=pl.when("numbered").then("sequence").otherwise("place"),
        members=member.n_unique().over("group"),
    )
    collective = ("group", "place")
    ordered = ordered.with_columns(
        whole=(pl.len().over(collective) == pl.col("members")) & (pl.struct(*_SIGNATURE).n_unique().over(collective) == 1),
    )
    fits = pl.col("members") <= pl.col("group_size").fill_null(pl.col("members"))
    matched = ordered.filter(fits, pl.col("whole") & (pl.col("numbered") | pl.col("whole").all().over("group")))
    return _numbered(calls, matched.select("row", number=pl.struct(*collective).rank("dense")))


def _by_ends(calls: pl.DataFrame) -> pl.DataFrame:
    """Match calls without a recorded group on ranks that leave them together."""
    candidates = calls.filter(pl.col("group").is_null(), ~pl.col("one_to_one")).sort("start", "row")
    candidates = candidates.with_columns(
        place=pl.int_range(pl.len(), dtype=pl.Int64).over(*_MEMBER, *_SIGNATURE),
        count=pl.len().over(*_MEMBER, *_SIGNATURE),
        kind=pl.struct(*_SIGNATURE, pl.len().over(*_MEMBER, *_SIGNATURE).alias("count")).rank("dense"),
    ).with_columns(member=pl.struct(*_MEMBER).rank("dense"))
    left = candidates.filter(pl.col("count") >= _LEAST, pl.col("process").n_unique().over("kind") > 1)
    if left.is_empty():
        return calls
    rows = []
    stride = (pl.col("count") // _COMPARED).clip(1)
    sample = left.filter(pl.col("place") % stride == 0)
    for number in range(_PASSES):
        if sample.is_empty():
            break
        # Each pass compares the first rank that is left, of every operation and size, with the others.
        first = sample.filter(pl.col("member") == pl.col("member").min().over("kind"))
        compared = sample.join(first.select("kind", "place", "node", "start", "end"), on=("kind", "place"), suffix="_of_first")
        together = compared.group_by("kind", "member").agg(_leaves_together().alias("together")).filter("together")
        members = together.with_columns(size=pl.len().over("kind"))
        chosen = left.join(members.filter(pl.col("size") > 1), on=("kind", "member"), how="semi")
        rows.append(chosen.select("row", number=pl.struct(pl.lit(number), "kind", "place")))
        gone = pl.concat([together.select("kind", "member"), first.select("kind", "member")]).unique()
        sample = sample.join(gone, on=("kind", "member"), how="anti")
    matched = pl.concat(rows)
    assumed = pl.col("row").is_in(matched["row"].implode())
    return _numbered(calls, matched.with_columns(number=pl.col("number").rank("dense"))).with_columns(assumed=pl.col("assumed") | assumed)


def _leaves_together() -> pl.Expr:
    """Return whether a rank and the first one run and leave their calls together."""
    apart = pl.col("end") - pl.col("end_of_first")
    shift = apart.median()  # on two nodes, the difference of their clocks
    clocks = (pl.col("node").first() != pl.col("node_of_first").first()) | (shift.abs() <= _SAME_NODE_NS)
    duration = pl.min_horizontal(pl.col("end") - pl.col("start"), pl.col("end_of_first") - pl.col("start_of_first"))
    near = pl.min_horizontal(pl.lit(TOGETHER_NS), duration.median() * _OF_DURATION)
    same_time = (pl.col("start") - shift < pl.col("end_of_first")) & (pl.col("start_of_first") < pl.col("end") - shift)
    return clocks & ((apart - shift).abs().median() <= near) & (same_time.mean() >= _OVERLAPPING)


def _at_one_time(calls: pl.DataFrame) -> pl.DataFrame:
    """Take back matches whose calls do not run at the same time on all ranks.

    Such calls are not one collective, even if the profiler records the same group for them. If they are a tenth of the calls of a group
    with an operation and size, no such call of the group is matched.
    """
    begin, end = pl.col("start") + pl.col("shift_ns"), pl.col("end") + pl.col("shift_ns")
    met = begin.max().over("match") < end.min().over("match")
    matched = pl.when(pl.col("match").is_not_null()).then(met)
    kind = ("group", *_SIGNATURE)
    calls = calls.with_columns(met=matched)
    often = pl.col("met").mean().over(kind) >= _OVERLAPPING
    return calls.with_columns(match=pl.when(pl.col("met") & often).then("match")).drop("met")


def _numbered(calls: pl.DataFrame, matched: pl.DataFrame) -> pl.DataFrame:
    """Give the calls ``match`` numbers that follow those that are taken."""
    first = calls["match"].max()
    offset = 0 if first is None else int(first) + 1  # type: ignore[arg-type]
    numbers = matched.select("row", number=pl.col("number").cast(pl.Int64) + offset)
    joined = calls.join(numbers, on="row", how="left", maintain_order="left")
    return joined.with_columns(match=pl.coalesce("match", "number")).drop("number")
