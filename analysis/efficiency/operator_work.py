"""Device work by the operator call that owns it: one pass over the device events -> small tables that all figures of efficiency share.

An operator of a matrix product or of attention owns everything that is launched within it, because its FLOPs are those of the complete
call. Other work belongs to the innermost operator around its launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.contents import kinds
from ..toolkit.intervals import first_of, innermost, length_inside
from ..toolkit.places import one_of, process_conditions
from .counterparts import captured_launches, replayed_sites
from .interrupted_calls import without_interrupted
from .owning_calls import owning_calls
from .recomputation import CHECKPOINT, recomputed
from .work import OWNERS

_GRAPH_LAUNCH: Final = "^(cu|cuda|hip)GraphLaunch"
_NODE: Final = "autograd::engine::evaluate_function"

# ``external``: some versions of the profiler write the correlation as external id; it identifies no operator.
_WORK: Final = """
    SELECT e.process, e.device, e.correlation AS number, e.name AS kernel, e.kind, e.duration_ns AS duration, e.occupancy,
        CASE WHEN e.external_id > 0 AND e.external_id IS DISTINCT FROM e.correlation THEN e.external_id END AS external{}
    FROM device_run AS e WHERE {}
"""
_KEYED: Final = """,
    e.stream, e.start_ns AS start, hash(e.name, e.grid_x, e.grid_y, e.grid_z, e.block_x, e.block_y, e.block_z) AS key"""
_LAUNCHES: Final = """
    SELECT e.process, e.tid, e.correlation AS number, e.start_ns AS "order"{} FROM host_event AS e
    WHERE e.kind IN ('launch', 'call') AND e.correlation IS NOT NULL AND {}
"""
# Sequence numbers are compared alone: 32 bits of them are enough in a profile.
_OPERATORS: Final = """
    SELECT e.process, e.tid, e.name, e.start_ns AS start, e.start_ns + e.duration_ns AS "end", e.external_id AS number, e.signature,
        CASE WHEN e.sequence >= 0 THEN (e.sequence & 4294967295)::UINTEGER END AS sequence,
        TRY_CAST(e.forward_thread AS SMALLINT) AS forward_thread
    FROM host_event AS e WHERE e.kind = 'operator' AND {}
"""
_UNLINKED: Final = """
    SELECT process, device, name AS kernel, kind, count(*)::UINTEGER AS count, sum(duration_ns)::BIGINT AS total,
        sum(occupancy * duration_ns) AS occupancy, coalesce(sum(duration_ns) FILTER (occupancy IS NOT NULL), 0)::BIGINT AS occupancy_ns
    FROM device_run GROUP BY ALL
"""
_IDLE: Final = "SELECT id FROM process WHERE id NOT IN (SELECT process FROM device_run WHERE process IS NOT NULL) ORDER BY id"

_CALL: Final[dict[str, type[pl.DataType]]] = {
    "operator": pl.Int32, "signature": pl.Int32, "site": pl.UInt32, "backward": pl.Boolean, "recomputed": pl.Boolean,
    "inside": pl.Boolean,
}  # fmt: skip
_EVENT: Final[dict[str, type[pl.DataType]]] = {
    "process": pl.Int32,
    "device": pl.Int32,
    "kernel": pl.Int32,
    "kind": pl.String,
    "inner": pl.Int32,
}
_SUMS: Final[dict[str, type[pl.DataType]]] = {"count": pl.UInt32, "total": pl.Int64, "occupancy": pl.Float64, "occupancy_ns": pl.Int64}
_NAME: Final[dict[str, type[pl.DataType]]] = {"id": pl.Int32, "text": pl.String}
_TEXTS: Final[dict[str, type[pl.DataType]]] = {"operator": pl.String, "inner": pl.String}
_CALLS: Final[dict[str, type[pl.DataType]]] = {"process": pl.Int32, **_CALL, "operator": pl.String, "calls": pl.UInt32}
_INNER: Final[dict[str, type[pl.DataType]]] = {"inner": pl.String, "calls": pl.UInt32}
_ATTRIBUTED: Final[dict[str, type[pl.DataType]]] = {
    "operator": pl.String, "kernel": pl.String, "kind": pl.String, "calls": pl.UInt32, "count": pl.UInt32, "total": pl.Int64,
}  # fmt: skip

_NO_CAPTURE: Final = pl.DataFrame(schema={"process": pl.Int32, "tid": pl.Int64, "time": pl.Int64, "capture": pl.Int64})
_POINT: Final = ("process", "tid", "name", "signature", "sequence", "forward_thread")

# Points and operators of some processes -> the number of the site of each point, null if unknown. Points: process, tid, time (start of the
# operator call; of work without operator, that of the launch call), name (id of the operator or null), sequence, forward_thread, node (row
# in operators of the node of autograd around it, or null). Operators: process, tid, name, start, end, number (external id), signature,
# sequence, forward_thread; sorted by none.
Sites = Callable[[pl.DataFrame, pl.DataFrame], pl.Series]


class OwnedWork(NamedTuple):
    """Device work and operator calls, grouped. Times are in ns.

    ``work``: process, device, kernel (id in ``name``), kind; ``operator``: the owner, ``inner``: the innermost operator around the launch
    (texts, null without one); signature (id), site, ``backward``: within a node of autograd, ``recomputed``: forward work within one,
    ``inside``: called in one of the windows; count, total; ``occupancy``: sum of occupancy (percent) times duration over
    ``occupancy_ns``. A row per combination; totals add up to the time of all device work.
    ``calls``: process, operator, signature, site, backward, recomputed, inside, calls. Of processes without any device work, these are all
    calls of owners; of others, the calls with device work.
    ``inner``: inner, calls with device work of its own."""

    work: pl.DataFrame
    calls: pl.DataFrame
    inner: pl.DataFrame


def operator_work(store: Store, windows: pl.DataFrame | None = None, sites: Sites | None = None) -> OwnedWork:
    """Group device work by kernel and owning operator call.

    ``windows``: disjoint times of processes (process, start, end) whose calls are ``inside``; None: all are. ``sites``: see ``Sites``."""
    if "operator" not in kinds(store, "host_event") and sites is None:
        return _without_operators(store)
    names = _Names(store)
    work, calls, inner = [], [], []
    for condition in process_conditions(store):
        grouped = _owned(store, condition, names, windows, sites)
        work.append(grouped.work)
        calls.append(grouped.calls)
        inner.append(grouped.inner)
    if names.owners:
        calls.append(_without_work(store, names, windows, sites))
    return OwnedWork(
        names.named(pl.concat(work)) if work else pl.DataFrame(schema=_EVENT | _CALL | _SUMS | _TEXTS),
        names.named(pl.concat(calls)) if calls else pl.DataFrame(schema=_CALLS),
        names.named(pl.concat(inner)).group_by("inner").agg(pl.col("calls").sum()) if inner else pl.DataFrame(schema=_INNER),
    )


def _without_operators(store: Store) -> OwnedWork:
    columns = _EVENT | _CALL | _SUMS | _TEXTS
    work = pl.DataFrame(schema=columns)
    if store.has_rows("device_event"):
        unlinked = store.frame(_UNLINKED)
        work = _typed(unlinked.with_columns(pl.lit(None).alias(name) for name in (*_CALL, "inner")), columns)
    return OwnedWork(work, pl.DataFrame(schema=_CALLS), pl.DataFrame(schema=_INNER))


def attributed(store: Store, owned: OwnedWork) -> pl.DataFrame:
    """Sum device work by the innermost operator around its launch.

    Columns: operator, kernel (as reports show it), kind, calls (of the operator, that launched any work), count, total (ns)."""
    if owned.inner.is_empty():
        return pl.DataFrame(schema=_ATTRIBUTED)
    key = ["operator", "kernel", "kind"]
    linked = owned.work.filter(pl.col("inner").is_not_null())
    texts = store.frame("SELECT id, coalesce(short, text) AS text FROM name")
    kernel = pl.col("kernel").replace_strict(texts["id"], texts["text"], default="", return_dtype=pl.String)
    summed = linked.group_by(pl.col("inner").alias("operator"), kernel, "kind").agg(pl.col("count", "total").sum())
    return summed.join(owned.inner.rename({"inner": "operator"}), on="operator").select(*key, "calls", "count", "total")


class _Names:
    """Names of operators: those that own work, and those of nodes of autograd."""

    def __init__(self, store: Store) -> None:
        self._texts = store.frame("SELECT id, text FROM name") if store.has_rows("host_event") else pl.DataFrame(schema=_NAME)
        self.owners = dict(self._texts.filter(pl.col("text").is_in(list(OWNERS))).iter_rows())
        self.nodes = self._ids(pl.col("text").str.starts_with(_NODE))
        self.graphs = self._ids(pl.col("text").str.contains(_GRAPH_LAUNCH))
        self.detaching = self._ids(pl.col("text").is_in(["aten::detach", "detach"]))
        self.checkpoints = self._ids(pl.col("text").str.contains(CHECKPOINT))

    def _ids(self, condition: pl.Expr) -> list[int]:
        return self._texts.filter(condition)["id"].to_list()

    def named(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Replace the ids of operators by their texts."""
        columns = [column for column in _TEXTS if column in rows.columns]
        return rows.with_columns(
            pl.col(columns).replace_strict(self._texts["id"], self._texts["text"], default=None, return_dtype=pl.String)
        )


def _owned(store: Store, condition: str, names: _Names, windows: pl.DataFrame | None, sites: Sites | None) -> OwnedWork:
    """Group the work of the processes of a condition."""
    keyed = sites is not None and len(names.graphs) > 0
    work = store.frame(_WORK.format(_KEYED if keyed else "", condition))
    launches = store.frame(_LAUNCHES.format(", e.name AS called" if keyed else "", condition))
    launch = first_of(work, launches, ["process"], ["order"])
    begin = launches.select("tid", time="order")[launch].insert_column(0, work["process"])
    replay = _replay(launches, launch, names) if keyed else None
    del launches
    operators = store.frame(_OPERATORS.format(condition))
    inner = innermost(begin, operators, ["process", "tid"], ["number", "name"])
    called = _called(work, launch, operators)
    if called is not None:
        inner = inner.zip_with(launch.is_not_null(), called)
        starts = operators.select("process", "tid", time="start")[called]
        begin = begin.select(pl.when(launch.is_not_null()).then(name).otherwise(starts[name]).alias(name) for name in begin.columns)
    owners = owning_calls(store, operators, names.owners)
    owner = owners["call"].gather(innermost(begin, owners, ["process", "tid"]))
    call = owner.zip_with(owner.is_not_null(), inner)
    # Work without an operator has the time of its launch call as its call, numbered after the operators.
    begin = begin.insert_column(0, launch.alias("launch"))
    bare = begin.filter(call.is_null() & launch.is_not_null()).unique("launch")
    work = work.drop("number", "external")
    del begin, owner, owners, called
    calls = call.drop_nulls().unique()
    captured = captured_launches(store, condition) if replay is not None else _NO_CAPTURE
    within = captured.select("process", "tid", "time")
    points = pl.concat([operators.select(*_POINT, time="start")[calls], bare.drop("launch"), within], how="diagonal_relaxed")
    grouped = _grouped(points, operators, names, windows, sites)
    numbers = pl.concat([calls, bare["launch"] + operators.height])
    size = operators.height + max(bare["launch"].to_list(), default=-1) + 1
    key = pl.select(pl.coalesce(call, pl.when(call.is_null()).then(launch) + operators.height)).to_series()
    group = pl.Series([None], dtype=pl.UInt32).new_from_index(0, size).scatter(numbers, grouped.of_point.head(numbers.len())).gather(key)
    occupancy = pl.col("occupancy")
    # Kernels of graphs have the sites of kernels that are launched one by one, or within a capture.
    site = grouped.groups["site"]
    captured = captured.with_columns(site=site.gather(grouped.of_point.tail(len(captured))))
    eager = pl.lit(None, pl.UInt32) if replay is None else replayed_sites(work, replay, site.gather(group), captured)
    event = work.select("process", "device", "kernel", "kind", "duration", "occupancy", eager=eager)
    summed = (
        event.with_columns(inner=operators["name"].gather(inner), group=group)
        .group_by("process", "device", "kernel", "kind", "inner", "group", "eager")
        .agg(
            count=pl.len(), total=pl.col("duration").sum(), occupancy=(occupancy * pl.col("duration")).sum(),
            occupancy_ns=pl.col("duration").filter(occupancy.is_not_null()).sum(),
        )
    )  # fmt: skip
    joined = summed.join(grouped.groups.drop("process", "calls"), on="group", how="left").with_columns(site=pl.coalesce("eager", "site"))
    inners = pl.DataFrame({"call": inner, "inner": operators["name"].gather(inner)}).drop_nulls("call")
    return OwnedWork(
        _typed(joined, _EVENT | _CALL | _SUMS),
        _typed(grouped.groups.filter(pl.col("operator").is_not_null()), {"process": pl.Int32, **_CALL, "calls": pl.UInt32}),
        inners.group_by("inner").agg(calls=pl.col("call").n_unique()).cast({"inner": pl.Int32, "calls": pl.UInt32}),
    )


def _replay(launches: pl.DataFrame, launch: pl.Series, names: _Names) -> pl.Series:
    """Return the launch of work that a graph launches, null for other work."""
    return pl.select(pl.when(launches["called"].gather(launch).is_in(names.graphs)).then(launch)).to_series()


def _called(work: pl.DataFrame, launch: pl.Series, operators: pl.DataFrame) -> pl.Series | None:
    """Return the operator of work without a launch in the trace, by its external id.

    Null for other work; None if no work has such an id."""
    unlaunched = work.filter(launch.is_null()).select("process", number="external").drop_nulls("number")
    if unlaunched.is_empty():
        return None
    called = operators.select("process", "number", "name", order=pl.col("end") - pl.col("start")).with_row_index("call")
    called = called.join(unlaunched, on=["process", "number"], how="semi").sort("name", maintain_order=True)
    numbers = work.select("process", number=pl.when(launch.is_null()).then("external"))
    return called["call"].gather(first_of(numbers, called, ["process"], ["order"]))


class _Grouped(NamedTuple):
    of_point: pl.Series  # group of each point
    groups: pl.DataFrame  # group, process, _CALL, calls


def _grouped(points: pl.DataFrame, operators: pl.DataFrame, names: _Names, windows: pl.DataFrame | None, sites: Sites | None) -> _Grouped:
    """Group calls that differ only in time and thread."""
    nodes = operators.with_row_index("row").filter(pl.col("name").is_in(names.nodes) | (pl.col("forward_thread") > 0))
    node = nodes["row"].gather(innermost(points, nodes, ["process", "tid"], ["number", "name"]))
    points = points.with_columns(node=node)
    begin = points.select("process", start="time", end=pl.col("time") + 1)
    rows = points.select(
        "process",
        "signature",
        operator="name",
        site=pl.lit(None, pl.UInt32) if sites is None else sites(points, operators),
        backward=node.is_not_null(),
        recomputed=recomputed(points, operators, names.checkpoints),
        inside=pl.lit(True) if windows is None else length_inside(begin, windows, ["process"]) > 0,
    )
    groups = rows.with_row_index("point").group_by("process", *_CALL).agg("point", calls=pl.len()).with_row_index("group")
    members = groups.select("group", "point").explode("point")
    return _Grouped(members.sort("point")["group"], groups.drop("point"))


def _without_work(store: Store, names: _Names, windows: pl.DataFrame | None, sites: Sites | None) -> pl.DataFrame:
    """Return the calls of owners in processes without device work."""
    schema: dict[str, type[pl.DataType]] = {"process": pl.Int32, **_CALL, "calls": pl.UInt32}
    processes = store.frame(_IDLE)["id"].to_list()
    if not processes:
        return pl.DataFrame(schema=schema)
    operators = store.frame(_OPERATORS.format(one_of("e.process", processes)))
    calls = without_interrupted(store, owning_calls(store, operators, names.owners)["call"], operators, names.detaching)
    points = operators.select(*_POINT, time="start")[calls]
    return _typed(_grouped(points, operators, names, windows, sites).groups, schema)


def _typed(rows: pl.DataFrame, schema: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    return rows.select(pl.col(name).cast(dtype) for name, dtype in schema.items())
