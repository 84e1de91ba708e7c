"""Time of every rank per step by activity, and the rank that the others wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..device.collectives import communication_kernels, rank_texts
from ..report.steps import RankComparison, RankRow, RankSpread
from ..toolkit.intervals import union
from ..toolkit.labels import place
from ..toolkit.quantiles import quantiles
from ..toolkit.wording import capitalized, duration, percent, plural, threshold_text
from .covered import sums_within
from .data import StepData
from .over_steps import THRESHOLD, RankOverSteps, compared_steps, ranked_steps, ranks_over_steps
from .times import PARTS, TIMES, host_time, no_device_steps, step_times, steps_with_start

SPREAD_FROM: Final = 16  # with more ranks than this, the comparison also has quantiles

LISTED_RANKS: Final = 8  # ranks of a process group that its label lists; a label of more has the first and the last one

_TOO_FEW: Final = "One rank or none is known: give the traces of all ranks."
_NO_STEPS: Final = (
    "No step with device work was recorded on two ranks: profile the same steps on every rank, with CUDA activity, and call step() once per"
    " training step."
)
_FIGURES: Final = {
    "step": "step_ns",
    "computation": "computation_ns",
    "communication": "communication_ns",
    "extra communication": "waiting_ns",
    "exposed communication": "exposed_communication_ns",
    "exposed memory operations": "exposed_memory_ns",
    "idle": "idle_ns",
    "data loading": "data_loading_ns",
}


_GROUP: Final = ("group_name", "group_ranks")
GROUPS: Final = 64  # process groups of a process that are compared apart, in every step; frameworks make some ten
_EVERY: Final = "all ranks"
_STEP: Final = ("phase", "number")


def rank_comparison(
    store: Store,
    threshold: float | None = None,
    times: pl.DataFrame | None = None,
    data: StepData | None = None,
    roles: Mapping[int, int] | None = None,
    *,
    roles_known: bool = True,
    numbers: Mapping[int, int] = MappingProxyType({}),
) -> RankComparison:
    """Compare the ranks over the steps that at least two of them have.

    A rank is over, and the others wait for it, as StragglerRank evaluates it at ``threshold`` (percent; None: its default). ``times``:
    :func:`step_times` of the store. ``data``: that of the store. ``roles``: of each process; ranks are compared with
    those of their role, None: with all. Without ``roles_known`` the others are never reported to wait for a rank. ``numbers``: the rank of
    each number in the process groups, if they number the ranks in another way.
    """
    data = data or StepData(store)
    limit = float(THRESHOLD if threshold is None else threshold)
    if len(data.ranked) < 2:
        return RankComparison(threshold_percent=limit, absent=_TOO_FEW)
    times = step_times(store, data) if times is None else times
    compared = compared_steps(ranked_steps(data, times), limit, roles, alone=True)
    if compared.is_empty():
        return RankComparison(threshold_percent=limit, absent=no_device_steps(store) if times.is_empty() else _NO_STEPS)
    kernels = communication_kernels(store, ("process", "device", "start", "duration", *_GROUP))
    in_groups, labels = _in_groups(compared, kernels, rank_texts(store), numbers)
    waits = _waits(compared.with_columns(group=pl.lit(0, pl.Int64)) if in_groups.is_empty() else in_groups)
    judged = ranks_over_steps(data.places, compared)
    if not roles_known:  # a rank that computes longer can have more work
        judged = [replace(rank, confirmed=None) for rank in judged]
    compared = compared.with_columns(loading=host_time(data.loads, compared))
    rows = _rows(_with_waiting(compared, waits).rename({"computation": "computing", "computed": "computation"}), judged, waits, labels)
    number = compared.select(pl.struct("phase", "number").n_unique()).item()
    return RankComparison(
        threshold_percent=limit,
        steps=number,
        ranks=rows,
        spread=_spread(rows) if len(rows) > SPREAD_FROM else (),
        sentences=_sentences(judged, rows, limit, roles, roles_known=roles_known),
        groups=0 if in_groups.is_empty() else in_groups["group"].n_unique(),
        timed_steps=steps_with_start(compared).select(pl.struct("phase", "number").n_unique()).item(),
    )


def _in_groups(
    compared: pl.DataFrame, kernels: pl.DataFrame, texts: Sequence[str], ranks: Mapping[int, int]
) -> tuple[pl.DataFrame, dict[int, str]]:
    """Divide ``communication`` by process group, and label the groups.

    Kernels without a group belong to all ranks if others have one. The result is empty if the run names no group, so that all ranks are
    one group.
    """
    keys = kernels.select(_GROUP).unique().filter(pl.any_horizontal(pl.col(_GROUP).is_not_null())).sort(_GROUP)
    named = ((name, None if members is None else texts[members]) for name, members in keys.rows())
    labels = dict(enumerate((_label(name, members, ranks) for name, members in named), start=1))
    numbers = keys.with_row_index("group", offset=1)
    numbered = kernels.join(numbers, on=_GROUP, how="left", nulls_equal=True).with_columns(pl.col("group").cast(pl.Int64).fill_null(0))
    if not labels:
        return compared.clear(), {0: _EVERY}
    if len(labels) > GROUPS:
        numbered = _largest(numbered)
    tracks = numbered.select("process", "device", "group").unique(maintain_order=True).with_row_index("track")
    intervals = numbered.join(tracks, on=["process", "device", "group"], nulls_equal=True).select(
        "track", "start", end=pl.col("start") + pl.col("duration")
    )
    rows = compared.join(tracks.cast({"device": pl.Int64}), on=["process", "device"], nulls_equal=True)
    taken = sums_within(union(intervals, ["track"]), rows.select("track", start="begin", end="until"), "track")
    return rows.select("process", *_STEP, "group", communication=taken["covered"]), labels | {0: _EVERY}


def _largest(numbered: pl.DataFrame) -> pl.DataFrame:
    """Leave each process its longest ``GROUPS`` groups; the rest belongs to all ranks."""
    sums = numbered.group_by("process", "group").agg(pl.col("duration").sum()).sort("duration", "group", descending=[True, False])
    rest = sums.filter(pl.int_range(pl.len()).over("process") >= GROUPS)["group"].unique()
    return numbered.with_columns(group=pl.when(pl.col("group").is_in(rest.implode())).then(0).otherwise("group"))


def _label(name: str | None, ranks: str | None, numbers: Mapping[int, int]) -> str:
    """Name a process group by its name and its ranks: "group 0 (ranks 0 to 15)"."""
    members = [] if ranks is None else ranks.strip("[] ").replace(" ", "").split(",")
    ranks_of = {str(number): rank for number, rank in numbers.items()}
    if all(member in ranks_of for member in members):
        members = [str(rank) for rank in sorted(ranks_of[member] for member in members)]
    members_text = f"ranks {', '.join(members) if len(members) <= LISTED_RANKS else f'{members[0]} to {members[-1]}'}" if members else ""
    if not name:
        return f"the group of {members_text}"
    return f"group {name} ({members_text})" if members_text else f"group {name}"


def _waits(communicated: pl.DataFrame) -> pl.DataFrame:
    """Return communication beyond that of the rank with the least.

    It is null in steps in which a rank has none, and in groups with only one known rank.
    """
    where = (*_STEP, "group")
    least = pl.col("communication").min().over(where)
    waiting = pl.when(least > 0, pl.len().over(where) > 1).then(pl.col("communication") - least)
    return communicated.select("process", *where, waiting=waiting)


def _with_waiting(compared: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Add ``waiting`` of each step, over the groups of the rank; null if unknown."""
    summed = waits.drop_nulls("waiting").group_by("process", *_STEP).agg(pl.col("waiting").sum())
    return compared.join(summed, on=["process", *_STEP], how="left", nulls_equal=True, maintain_order="left")


def _rows(compared: pl.DataFrame, judged: Sequence[RankOverSteps], waits: pl.DataFrame, labels: Mapping[int, str]) -> tuple[RankRow, ...]:
    mean = steps_with_start(compared).group_by("process").agg(pl.col(*TIMES, "waiting", "loading").mean())
    by_process = {row["process"]: row for row in mean.iter_rows(named=True)}
    longest = waits.group_by("process", "group").agg(pl.col("waiting").sum()).filter(pl.col("waiting") > 0)
    several = waits["group"].n_unique() > 1  # a single group needs no name
    named = longest.sort("waiting", "group", descending=[False, True]).select("process", "group").rows() if several else []
    groups = {process: labels[group] for process, group in named}  # the last group of a process has the longest waits
    return tuple(
        RankRow(
            node=rank.node,
            rank=rank.rank,
            pid=rank.pid,
            device=rank.device,
            steps=rank.steps,
            data_loading_ns=row["loading"],
            **{f"{name}_ns": row[name] for name in ("step", *PARTS, "communication", "waiting")},
            excess_percent=rank.excess_percent,
            steps_over=rank.steps_over,
            others_wait_ns=rank.waits_ns if rank.over else None,
            straggler=rank.straggler,
            waiting_group=groups.get(rank.process),
        )
        for rank in judged
        for row in [by_process[rank.process]]
    )


def _spread(rows: Sequence[RankRow]) -> tuple[RankSpread, ...]:
    spreads = []
    for name, attribute in _FIGURES.items():
        known = [(getattr(row, attribute), row.rank) for row in rows if getattr(row, attribute) is not None]
        q = quantiles(pl.Series([value for value, _ in known], dtype=pl.Float64)) if known else None
        if q is not None:
            least, most = min(known, key=lambda item: item[0]), max(known, key=lambda item: item[0])
            spreads.append(RankSpread(name, len(known), q.min, q.p5, q.p50, q.p95, q.max, least_rank=least[1], most_rank=most[1]))
    return tuple(spreads)


def _sentences(
    judged: Sequence[RankOverSteps], rows: Sequence[RankRow], limit: float, roles: Mapping[int, int] | None, *, roles_known: bool
) -> tuple[str, ...]:
    stragglers = sorted((rank for rank in judged if rank.straggler), key=lambda rank: -rank.excess_percent)
    worst = stragglers[0] if stragglers else max(judged, key=lambda rank: (rank.over, rank.excess_percent))
    where = place(worst.node, worst.rank, worst.device)
    peers = len(judged) if roles is None else sum(role == roles[worst.process] for role in roles.values())
    among = plural(peers, "rank") if roles is None else f"the {plural(peers, 'rank')} of its role"
    how = f"{percent(worst.excess_percent)} longer per step than the median of {among}"
    if peers == 2:  # the median is halfway between the two
        how += f" ({duration(2 * worst.excess_ns)} longer than the other)"
    often = f"exceeds it by more than {threshold_text(limit)} in {worst.steps_over} of {plural(worst.steps, 'step')}"
    if not roles_known:
        first = f"The roles of the ranks are unknown, so a rank that computes longer may have more work: {where} computes {how}."
    elif stragglers:
        also = "" if len(stragglers) == 1 else f" They also wait for {plural(len(stragglers) - 1, 'more rank')}."
        first = (
            f"The others wait for {where}: it computes {how} and {often}. They spend {duration(worst.waits_ns or 0.0)} more per step"
            f" in collectives.{also}"
        )
    elif worst.over and worst.confirmed is None:
        unknown = "without collective kernels it is not known whether the others wait for it"
        first = f"{capitalized(where)} computes {how} and {often}; {unknown}."
    elif worst.over:
        longer = f"only {duration(worst.waits_ns)} per step" if worst.waits_ns and worst.waits_ns > 0 else "not"
        first = (
            f"{capitalized(where)} computes {how} and {often}, but the others do not wait for it: they are {longer} longer in collectives."
        )
    elif worst.excess_percent > 0:
        longest = ", which computes longest," if roles is None else ""
        first = f"The others wait for no rank: {where}{longest} computes {how}, and {often}."
    else:
        first = f"The others wait for no rank: none computes longer than the median of {among}."
    known = [(row.waiting_ns, row) for row in rows if row.waiting_ns is not None]
    if not known:
        return (first,)
    extra, row = max(known, key=lambda item: item[0])
    if not extra or (stragglers and not row.waiting_group):  # the first sentence has the extra time because of a straggler
        return (first,)
    group = f", most of it in {row.waiting_group}" if row.waiting_group else ""
    return (
        first,
        f"{capitalized(place(row.node, row.rank, row.device))} communicates for {duration(row.communication_ns)} per step,"
        f" {duration(extra)} more than the rank with the least communication{group}.",
    )
