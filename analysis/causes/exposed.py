"""Exposed communication call by call: what of a collective no computation covers, waiting or transfer, who arrives last, who launched it.

A rank waits in a collective from its own start to that of the last rank, on clocks that the ends of collectives align. The rest is
transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..device.coverage import DEVICE
from ..report.communication_details import ExposedCollective
from ..toolkit.contents import kinds
from ..toolkit.intervals import length_inside, union
from ..toolkit.places import Places, process_conditions
from .launchers import with_launchers
from .matching import matched_collectives

LEAD: Final = ("operation", "group_description", "group_size", "launcher", "part")  # one cause and one advice
ROW: Final = (*LEAD, "stream", "bytes", "element_type", "assumed")
_ROWS: Final = 500_000  # calls that are summed at a time
_EQUAL_CALLS: Final = 3  # fewer equal calls do not show what the shortest possible duration is
_AT_ONCE_NS: Final = 100_000  # a collective that begins this soon after its launch did not queue
_ALONE: Final = 0.95  # share of a collective that is exposed if no computation runs next to it
_READY_NS: Final = 10_000  # computation launched this long before the end of a collective was ready to run earlier
_MOST_NAMED: Final = 50  # calls, longest exposed first, whose Python function is looked up
_MOST_FOLLOWED: Final = 1000  # calls, longest exposed first, whose following computation is looked up
_MATCHING: Final = ("kernels", "known", "shift_ns", "peer", "begin", "latest")  # columns that only find the waits

_COMPUTATION: Final = """
    SELECT e.node, e.process, e.device, e.start_ns AS start, e.end_ns AS "end", e.correlation FROM device_run AS e
    WHERE e.computation AND {}
"""


def exposed_calls(store: Store) -> pl.DataFrame:
    """Return the calls of :func:`matched_collectives` with their exposed time.

    Adds the columns of :func:`with_launchers`, ``duration``, ``exposed``; ``waiting`` and ``exposed_waiting``, null if fewer than two ranks
    of the call are known; ``last``, the process that arrived last; ``fastest``, the shortest duration of equal calls of the process;
    ``next_correlation``, that of the first computation after it; ``before_end``, the end of the last computation before it. The columns of
    ``_MATCHING`` are left out. Times are in ns.
    """
    calls = matched_collectives(store)
    if calls.is_empty():
        return calls
    matched = pl.col("match").is_not_null() & (pl.col("process").n_unique().over("match") > 1)
    begin = pl.col("start") + pl.col("shift_ns")
    calls = calls.with_columns(
        duration=pl.col("end") - pl.col("start"), begin=begin, latest=pl.when(matched).then(begin.max().over("match"))
    ).with_columns(
        waiting=pl.min_horizontal(pl.col("latest") - pl.col("begin"), "duration"),
        last=pl.when(matched, pl.col("begin").min().over("match") < pl.col("latest")).then(
            pl.col("process").sort_by("begin", "process", descending=[True, False]).first().over("match")
        ),
        fastest=pl.col("duration").min().over("process", "operation", "bytes", "element_type", "group", "group_size"),
        equal=pl.len().over("process", "operation", "bytes", "element_type", "group", "group_size"),
    )
    calls = calls.with_columns(waiting=pl.when(pl.col("latest").is_not_null()).then("waiting"))
    parts = []
    for condition in process_conditions(store):
        exposed = _exposed(store, condition, calls)
        if exposed.height:
            parts.append(with_launchers(store, exposed, condition))
    return pl.concat(parts)


def _exposed(store: Store, condition: str, calls: pl.DataFrame) -> pl.DataFrame:
    """Add the exposed times to the calls of a group of processes."""
    computation = store.frame(_COMPUTATION.format(condition)).sort("start")
    processes = store.frame(f"SELECT DISTINCT e.process FROM device_run AS e WHERE {condition}")["process"]
    here = calls.filter(pl.col("process").is_in(processes.implode(), nulls_equal=True)).sort("end")
    busy = union(computation, DEVICE)
    covered = length_inside(here.select(*DEVICE, "start", "end"), busy, DEVICE)
    waits = here.select(*DEVICE, "start", end=pl.col("start") + pl.col("waiting").fill_null(0))
    covered_wait = length_inside(waits, busy, DEVICE)
    following = computation.select(*DEVICE, next_start="start", next_correlation="correlation")
    before = busy.select(*DEVICE, before_end="end").sort("before_end")
    exposed = here.with_columns(exposed=pl.col("duration") - covered, exposed_waiting=pl.col("waiting") - covered_wait).join_asof(
        following, left_on="end", right_on="next_start", by=DEVICE, strategy="forward", check_sortedness=False
    )
    preceded = exposed.sort("start").join_asof(before, left_on="start", right_on="before_end", by=DEVICE, check_sortedness=False)
    return preceded.drop(_MATCHING, "next_start").sort("end")


def exposed_rows(store: Store, calls: pl.DataFrame) -> tuple[ExposedCollective, ...]:
    """Sum exposed calls by operation, size, group, stream, part and launcher."""
    if calls.is_empty():
        return ()
    places = Places(store)
    parts = [part.group_by(ROW).agg(*_sums()) for part in calls.iter_slices(_ROWS)]  # of all at once, the keys would be a copy of the calls
    waiting = pl.when(pl.col("waiting_ns").is_not_null().all()).then(pl.col("waiting_ns").sum())
    sums = pl.concat(parts).group_by(ROW).agg(pl.col("count", "time_ns", "exposed_ns").sum(), waiting_ns=waiting)
    rows = sums.with_columns(transfer_ns=pl.col("exposed_ns") - pl.col("waiting_ns"))
    rows = rows.join(_last(calls, ROW), on=ROW, how="left", nulls_equal=True)
    rows = rows.sort("exposed_ns", "time_ns", *ROW, descending=[True, True, *(False for _ in ROW)], nulls_last=True)
    return tuple(
        ExposedCollective.of(
            row,
            group=row["group_description"],
            group_size_assumed=bool(row["assumed"]),
            last_rank=places.process(row["last"]).rank if row["last"] is not None else None,
        )
        for row in rows.iter_rows(named=True)
    )


def _sums() -> list[pl.Expr]:
    """Sum the columns of calls; waiting is null unless it is known of all of them."""
    known = pl.col("exposed_waiting").is_not_null().all()
    return [
        pl.len().alias("count"),
        pl.col("duration").sum().alias("time_ns"),
        pl.col("exposed").sum().alias("exposed_ns"),
        pl.when(known).then(pl.col("exposed_waiting").sum()).alias("waiting_ns"),
    ]


def _last(calls: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return the process that causes most of the exposed waiting, and that time.

    Columns: ``by``, last, ``caused``."""
    late = calls.select(*by, "last", caused="exposed_waiting")
    slices = late.clear(), *late.iter_slices(_ROWS)
    parts = [part.drop_nulls("last").group_by(*by, "last").agg(pl.col("caused").sum()) for part in slices]
    caused = pl.concat(parts).group_by(*by, "last").agg(pl.col("caused").sum())
    return caused.sort("caused", "last", descending=[True, False]).unique(list(by), keep="first", maintain_order=True)


@dataclass(frozen=True, slots=True)
class Lead:
    """The calls of one operation, kind of group, launcher and part with the largest exposed time, and what the trace shows of them.

    ``of_ns``: exposed time of all calls. ``known_ns``: exposed time of the calls with at least two known ranks; ``waiting_ns``: the
    wait in it; ``late``: per process group the process that arrived last in more than half of its wait, most first; ``caused_ns``: the wait
    for these. ``excess_ns``: exposed time of the other calls
    beyond the shortest call of equal size in the same process. ``smallest``, ``largest``: bytes of a call, None if unknown.
    ``held_up_percent``: share of the exposed time after which computation starts that was launched before the call ended, so that it waited
    for it; ``at_once_percent``: share of the exposed time of calls that began less than 100 µs after their launch, or after the computation
    that they had to wait for; ``queued_percent``: of the latter alone. ``launched``: whether the trace has launch calls of them. ``frame``:
    the Python function of the program that launched most of them, None without stacks."""

    operation: str
    group: str | None
    group_size: int | None
    launcher: str | None
    part: str | None
    count: int
    processes: int
    streams: tuple[int, ...]
    element_types: tuple[str, ...]
    smallest: int | None
    largest: int | None
    time_ns: int
    exposed_ns: int
    of_ns: int
    known_ns: int
    waiting_ns: int
    excess_ns: int
    late: tuple[int, ...]
    caused_ns: int
    held_up_percent: float
    at_once_percent: float
    queued_percent: float
    launched: bool
    frame: str | None = None

    @property
    def hidden_percent(self) -> float:
        """Share of their time that computation covers already."""
        return 100 * (self.time_ns - self.exposed_ns) / self.time_ns

    @property
    def mean_ns(self) -> float:
        return self.time_ns / self.count

    @property
    def waits(self) -> bool:
        """Whether more than half of the exposed time is known to be waiting."""
        return 2 * self.waiting_ns > self.exposed_ns

    @property
    def varies(self) -> bool:
        """Whether most of the exposed time is beyond the shortest equal call."""
        return not self.waits and 2 * self.excess_ns > self.exposed_ns


def lead(store: Store, calls: pl.DataFrame, processes: Sequence[int]) -> Lead | None:
    """Return the group of calls of these processes with the largest exposed time."""
    of_processes = pl.col("process").is_in(processes), pl.col("exposed") > 0
    exposed = calls.select(*LEAD, "process", "exposed").filter(of_processes)  # all columns would be a copy of the calls
    if exposed.is_empty():
        return None
    groups = exposed.group_by(LEAD).agg(pl.col("exposed").sum()).with_columns(together=pl.col("exposed").sum().over(LEAD[:-1]))
    top = groups.sort("together", "exposed", *LEAD, descending=[True, True, *(False for _ in LEAD)], nulls_last=True).head(1)
    top = top.drop("together")
    alike = (pl.col(name).eq_missing(pl.lit(value, top.schema[name])) for name, value in top.select(LEAD).row(0, named=True).items())
    top_calls = calls.filter(*of_processes, *alike)
    known = top_calls.select("group", "last", "exposed", "exposed_waiting").drop_nulls("exposed_waiting")
    varied = top_calls.filter(pl.col("exposed_waiting").is_null(), pl.col("bytes").is_not_null(), pl.col("equal") >= _EQUAL_CALLS)
    exposed_ns = int(top_calls["exposed"].sum())
    sized = top_calls["bytes"].null_count() == 0
    late = _late(known)
    at_once = pl.col("start") - pl.col("launch_end_ns") < _AT_ONCE_NS
    # Nothing covers a collective that waits for the computation before it, and that the computation after it waits for.
    behind = (
        (pl.col("before_end") > pl.col("launch_end_ns"))
        & (pl.col("start") - pl.col("before_end") < _AT_ONCE_NS)
        & (pl.col("exposed") >= _ALONE * pl.col("duration"))
    )
    alone = top_calls.select(at_once=pl.col("exposed").filter(at_once | behind).sum(), behind=pl.col("exposed").filter(behind).sum())
    return Lead(
        **top.drop("exposed").rename({"group_description": "group"}).row(0, named=True),
        count=top_calls.height,
        processes=top_calls["process"].n_unique(),
        streams=tuple(top_calls["stream"].unique().drop_nulls().sort()),
        element_types=tuple(top_calls["element_type"].unique().drop_nulls().sort()),
        smallest=int(top_calls["bytes"].min()) if sized else None,  # type: ignore[arg-type]
        largest=int(top_calls["bytes"].max()) if sized else None,  # type: ignore[arg-type]
        time_ns=int(top_calls["duration"].sum()),
        exposed_ns=exposed_ns,
        of_ns=int(exposed["exposed"].sum()),
        known_ns=int(known["exposed"].sum()),
        waiting_ns=int(known["exposed_waiting"].sum()),
        excess_ns=int(varied.select(pl.min_horizontal("exposed", pl.col("duration") - pl.col("fastest")).sum()).item()),
        late=tuple(late["last"].unique(maintain_order=True)),
        caused_ns=int(late["caused"].sum()),
        held_up_percent=_held_up(store, top_calls),
        at_once_percent=100 * int(alone["at_once"].item()) / exposed_ns,
        queued_percent=100 * int(alone["behind"].item()) / exposed_ns,
        launched=top_calls["launch_ns"].null_count() < top_calls.height,
        frame=_frame(store, top_calls),
    )


def _late(known: pl.DataFrame) -> pl.DataFrame:
    """Return the process that causes more than half of the wait in each group.

    Columns: group, last, ``caused`` (the exposed wait for it); most first."""
    total = known.group_by("group").agg(total=pl.col("exposed_waiting").sum())
    return (
        _last(known, ["group"])
        .join(total, on="group", nulls_equal=True)
        .filter(2 * pl.col("caused") > pl.col("total"))
        .sort("caused", "last", descending=[True, False])
    )


def _frame(store: Store, calls: pl.DataFrame) -> str | None:
    """Return the innermost program function around most of the longest launches."""
    longest = calls.select("process", "tid", "launch_ns", "start", "exposed").drop_nulls(["launch_ns", "tid"])
    longest = longest.sort("exposed", "start", descending=[True, False]).head(_MOST_NAMED)
    if longest.is_empty() or "python" not in kinds(store, "host_event"):
        return None
    values = ", ".join(f"({process}, {tid}, {at})" for process, tid, at in longest.select("process", "tid", "launch_ns").iter_rows())
    frames = store.frame(
        f"""
        WITH call(process, tid, moment) AS (VALUES {values}), around AS (
            SELECT c.process, c.tid, c.moment, arg_max(n.text, h.start_ns) AS frame FROM call AS c
            JOIN host_event AS h ON h.process = c.process AND h.tid = c.tid AND h.start_ns <= c.moment
                AND h.start_ns + h.duration_ns > c.moment
            JOIN name AS n ON n.id = h.name WHERE h.kind = 'python' AND regexp_matches(n.text, ?) AND NOT regexp_matches(n.text, ?)
            GROUP BY ALL
        )
        SELECT frame, count(*) AS n FROM around GROUP BY ALL ORDER BY n DESC, frame LIMIT 1
        """,
        [r"\.py\(\d+\): ", r"(^|/)(torch|site-packages|dist-packages|lib/python[0-9.]+)/|^<built-in|^nn\.Module"],
    )
    return str(frames["frame"][0]) if len(frames) and 2 * frames["n"][0] > longest.height else None


def _held_up(store: Store, calls: pl.DataFrame) -> float:
    """Return the share of exposed time that waiting computation follows."""
    columns = ("process", "start", "end", "exposed", "next_correlation")  # sorting all would copy them
    longest = calls.select(columns).sort("exposed", "start", descending=[True, False]).head(_MOST_FOLLOWED)
    numbers = longest["next_correlation"].drop_nulls().unique().to_list()
    total = int(longest["exposed"].sum())
    if not numbers or not total:
        return 0.0
    launched = store.frame(
        """
        SELECT process, correlation AS next_correlation, min(start_ns + duration_ns) AS next_launched FROM host_event
        WHERE kind = 'launch' AND correlation IN (SELECT unnest(?)) GROUP BY ALL
        """,
        [numbers],
    )
    held = longest.join(launched, on=["process", "next_correlation"]).filter(pl.col("next_launched") <= pl.col("end") - _READY_NS)
    return 100 * int(held["exposed"].sum()) / total
