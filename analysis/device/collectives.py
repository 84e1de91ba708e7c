"""Collectives by operation and size, their speed, and the part of their time that is waiting for other ranks."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from ...ingest.store.store import Store
from ..report.model import Collective, Collectives, CollectiveWait
from ..toolkit.contents import communicates
from ..toolkit.places import Places
from ..toolkit.shares import percent_of

MOST: Final = 200

_ABSENT: Final = (
    "No communication kernel in this run. A profile of several ranks with activities CPU and CUDA shows them; PyTorch 2.3 or newer writes"
    " the sizes of collectives, too."
)

# First match decides, on lower-case letters alone: "_allgather_base", "nccl:all_reduce", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL".
_OPERATIONS: Final = (
    ("crossdevicereduce", "all-reduce"),
    ("quickreduce", "all-reduce"),
    ("reducescatter", "reduce-scatter"),
    ("allgather", "all-gather"),
    ("allreduce", "all-reduce"),
    ("alltoall", "all-to-all"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("sendrecv", "send/receive"),
    ("send", "send"),
    ("recv", "receive"),
    ("scatter", "scatter"),
    ("gather", "gather"),
    ("reduce", "reduce"),
)
_ONE_TO_ONE: Final = ("send", "receive", "send/receive")

# Operations in which only the part of the bytes that belongs to other ranks crosses the links of a rank, as in nccl-tests.
_ALL_BUT_OWN: Final = ("reduce-scatter", "all-gather", "all-to-all", "scatter", "gather")

_ELEMENT_BYTES: Final = {
    "double": 8, "float64": 8, "float": 4, "float32": 4, "half": 2, "float16": 2, "bfloat16": 2, "c10::half": 2, "c10::bfloat16": 2,
    "long": 8, "int64": 8, "int": 4, "int32": 4, "short": 2, "int16": 2, "byte": 1, "char": 1, "uint8": 1, "int8": 1, "bool": 1,
    "uint16": 2, "uint32": 4, "uint64": 8, "long int": 8, "signed char": 1, "unsigned char": 1,
    "complexhalf": 4, "complexfloat": 8, "complexdouble": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip

_CALL: Final = ("operation", "element_type", "in_elements", "out_elements", "group_name", "group_ranks", "group_size")
_ANY: Final = ", ".join(f"any_value({column}) AS {column}" for column in _CALL)
_CHOSEN: Final = ", ".join(f"CASE WHEN o.operation IS NULL THEN w.{column} ELSE o.{column} END AS {column}" for column in _CALL)

# The collective that the kernel's own record describes, else the framework's call that was running on the launching thread at its launch.
_KERNELS: Final = f"""
    WITH kernel AS (
        SELECT e.node, e.process, e.device, e.correlation, e.start_ns, e.duration_ns, coalesce(n.short, n.text) AS kernel
        FROM device_run AS e JOIN name AS n ON n.id = e.name WHERE e.communication
    ), own AS (
        SELECT process, correlation, start_ns, {_ANY}
        FROM collective WHERE on_device AND correlation IS NOT NULL GROUP BY process, correlation, start_ns
    ), launch AS (
        SELECT process, correlation, arg_min(tid, start_ns) AS tid, min(start_ns) AS launched_ns
        FROM host_event WHERE kind IN ('launch', 'call') AND correlation IN (SELECT correlation FROM kernel) GROUP BY process, correlation
    ), call AS (
        SELECT process, tid, start_ns AS call_ns, out_elements IS NULL AS shaped, max(start_ns + duration_ns) AS call_end_ns, {_ANY}
        FROM collective WHERE NOT on_device GROUP BY process, tid, start_ns, out_elements IS NULL
    ), within AS (
        SELECT l.process, l.correlation, c.* EXCLUDE (process)
        FROM (FROM launch, (VALUES (false), (true)) AS kind(shaped)) AS l ASOF JOIN call AS c
            ON l.process = c.process AND l.tid = c.tid AND l.shaped = c.shaped AND l.launched_ns >= c.call_ns
        WHERE l.launched_ns <= c.call_end_ns QUALIFY row_number() OVER (PARTITION BY l.process, l.correlation ORDER BY c.shaped) = 1
    )
    SELECT k.node, k.process, k.device, k.start_ns AS start, k.duration_ns AS duration, k.kernel, w.tid, w.call_ns, {_CHOSEN},
        o.operation IS NULL AND coalesce(w.shaped, false) AS shaped, p.world_size
    FROM kernel AS k
    LEFT JOIN own AS o ON o.process = k.process AND o.correlation = k.correlation AND o.start_ns = k.start_ns
    LEFT JOIN within AS w ON w.process = k.process AND w.correlation = k.correlation
    LEFT JOIN process AS p ON p.id = k.process
    ORDER BY k.process, k.start_ns, k.device, k.correlation
"""
_SCHEMA: Final = {
    "node": pl.Int32, "process": pl.Int32, "device": pl.Int32, "start": pl.Int64, "duration": pl.Int64, "kernel": pl.String,
    "tid": pl.Int64, "call_ns": pl.Int64, "operation": pl.String, "element_type": pl.String, "in_elements": pl.Int64,
    "out_elements": pl.Int64, "group_name": pl.String, "group_ranks": pl.String, "group_size": pl.Int64, "shaped": pl.Boolean,
    "world_size": pl.Int32,
}  # fmt: skip
_SIZE: Final = ("operation", "element_type", "group_size", "assumed", "bytes")
_GROUP: Final = ("group_name", "group_ranks", "group_size")


def communication_kernels(store: Store) -> pl.DataFrame:
    """Return every communication kernel with its collective, by process and time."""
    return store.frame(_KERNELS) if communicates(store) else pl.DataFrame(schema=_SCHEMA)


def collectives(store: Store, kernels: pl.DataFrame | None = None) -> Collectives:
    """Combine communication kernels into collectives, summed by operation and size.

    A collective consists of the kernels of one call in each rank of a group. Ranks are matched by their order in the group, provided that
    all recorded ranks have the same sequence of operations and sizes; otherwise each rank counts alone. The clocks of ranks are never
    compared. ``kernels``: :func:`communication_kernels` of the store.
    """
    kernels = communication_kernels(store) if kernels is None else kernels
    if kernels.is_empty():
        return Collectives((), 0, 0, 0, None, 0, 0, (), _ABSENT)
    alone = _of_one_rank(kernels)
    numbered, unmatched = _matched(alone)
    every = numbered.group_by("match", maintain_order=True).agg(
        pl.col("operation", "element_type", "group_size", "assumed").first(),
        pl.col("bytes").max(),
        pl.col("kernels").sum(),
        ranks=pl.col("process").n_unique(),
        parts=pl.len(),
        total=pl.col("duration").sum(),
        shortest=pl.col("duration").min(),
    )
    speed = pl.when(pl.col("shortest") > 0).then(pl.col("bytes") / pl.col("shortest"))
    rows = (
        every.with_columns(speed=speed)
        .group_by(*_SIZE, "ranks")
        .agg(
            count=pl.len(),
            kernels=pl.col("kernels").sum(),
            total_ns=pl.col("total").sum(),
            shortest_ns=pl.col("shortest").sum(),
            wait_ns=(pl.col("total") - pl.col("parts") * pl.col("shortest")).sum(),
            best=pl.col("speed").max(),
        )
        .sort("total_ns", *_SIZE, "ranks", descending=[True, *(False for _ in _SIZE), False], nulls_last=True)
    )
    total = int(rows["total_ns"].sum())
    sized = int(rows.filter(pl.col("bytes").is_not_null())["total_ns"].sum())
    return Collectives(
        rows=tuple(_row(row) for row in rows.head(MOST).to_dicts()),
        further=max(0, len(rows) - MOST),
        further_ns=int(rows.slice(MOST)["total_ns"].sum()),
        total_ns=total,
        sized_percent=percent_of(sized, total),
        matched=every.filter(pl.col("ranks") > 1).height,
        unmatched=unmatched,
        waits=_waits(store, numbered),
        absent=None,
    )


def bus_factor(operation: str, ranks: int | None) -> float | None:
    """Return bandwidth of the links / (bytes / time); None if nothing crosses a link."""
    if ranks is None or ranks < 2 or operation == "barrier":
        return None
    if operation == "all-reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in _ALL_BUT_OWN else 1.0


def operation_of(text: str) -> str | None:
    """Return the operation in a name of a collective or kernel, or None."""
    letters = "".join(letter for letter in text.lower() if letter.isalpha())
    return next((name for part, name in _OPERATIONS if part in letters), None)


def element_bytes(element_type: str | None) -> int | None:
    return _ELEMENT_BYTES.get(element_type.lower()) if element_type is not None else None


def _of_one_rank(kernels: pl.DataFrame) -> pl.DataFrame:
    """Combine the kernels of each call of a rank; add ``operation`` and ``bytes``."""
    name = pl.coalesce("operation", "kernel")
    operations = {text: operation_of(text) or text for text in kernels.select(name.unique()).to_series()}
    types = {text: element_bytes(text) for text in kernels["element_type"].unique().drop_nulls()}
    sent, received = pl.col("in_elements"), pl.col("out_elements")
    largest = pl.max_horizontal(sent, received)
    gathers = pl.col("operation").is_in(["all-gather", "gather"])
    elements = (
        pl.when(pl.col("operation").is_in(["barrier", "send/receive"]))
        .then(None)
        # Shapes describe what a rank sends; it receives as much from every rank. In a scatter only one rank sends.
        .when("shaped")
        .then(pl.when(gathers).then(sent * pl.col("group_size")).when(~pl.col("operation").is_in(["scatter", "receive"])).then(sent))
        .when(pl.col("operation").is_in(["all-gather", "gather", "receive"]))
        .then(pl.when(pl.col("operation") == "gather").then(largest).otherwise(received))
        .when(pl.col("operation") == "scatter")
        .then(largest)
        .otherwise(sent)
    )
    return (
        kernels.with_columns(
            operation=name.replace_strict(operations, return_dtype=pl.String),
            width=pl.col("element_type").replace_strict(types, default=None, return_dtype=pl.Int64) if types else pl.lit(None, pl.Int64),
            alone=pl.when(pl.col("call_ns").is_null()).then(pl.int_range(pl.len())),
            # If a process belongs to a group of some ranks, its other groups need not contain all ranks.
            world_size=pl.when(~(pl.col("group_size") < pl.col("world_size")).any().over("process").fill_null(False)).then("world_size"),
        )
        .with_columns(
            assumed=pl.col("shaped") & pl.col("group_size").is_null() & pl.col("world_size").is_not_null(),
            group_size=pl.when("shaped").then(pl.coalesce("group_size", "world_size")).otherwise("group_size"),
        )
        .with_columns(bytes=pl.when(elements > 0).then(elements * pl.col("width")))
        .group_by("process", "node", "device", "tid", "call_ns", "alone", *_SIZE, "group_name", "group_ranks", maintain_order=True)
        .agg(kernels=pl.len(), start=pl.col("start").min(), duration=pl.col("duration").sum())
        .drop("tid", "call_ns", "alone")
    )


def _matched(alone: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Number the collectives in ``match``; also count the unmatched parts."""
    same: dict[Any, dict[Any, tuple[list[Any], list[int]]]] = {}  # group -> process -> its sequence of collectives, and their rows
    candidates = (
        alone.with_row_index("row")
        .filter(pl.col("group_size") > 1, ~pl.col("operation").is_in(_ONE_TO_ONE), pl.any_horizontal(pl.col(_GROUP[:2]).is_not_null()))
        .sort("start", "row")
    )
    for key, part in candidates.group_by("process", *_GROUP, maintain_order=True):
        size = pl.when(pl.col("operation") != "all-to-all").then("bytes")  # ranks may give different amounts
        signature = part.select("operation", size.alias("size"), "element_type").rows()
        same.setdefault(key[1:], {})[key[0]] = (signature, part["row"].to_list())
    numbers = list(range(len(alone)))
    unmatched = 0
    for members in same.values():
        if len(members) < 2:
            continue
        sequences = [signature for signature, _ in members.values()]
        if any(sequence != sequences[0] for sequence in sequences):
            unmatched += sum(map(len, sequences))
            continue
        for parts in zip(*(rows for _, rows in members.values()), strict=True):
            for row in parts:
                numbers[row] = parts[0]
    return alone.with_columns(match=pl.Series(numbers, dtype=pl.Int64)), unmatched


def _waits(store: Store, numbered: pl.DataFrame) -> tuple[CollectiveWait, ...]:
    parts = numbered.filter(pl.col("process").n_unique().over("match") > 1)
    if parts.is_empty():
        return ()
    places = Places(store)
    waits = (
        parts.with_columns(wait=pl.col("duration") - pl.col("duration").min().over("match"))
        .group_by("node", "process")
        .agg(pl.len(), pl.col("duration").sum(), pl.col("wait").sum())
    )
    rows = []
    for node, process, collectives, total, wait in waits.iter_rows():
        location = places.process(process, node)
        rows.append((location.order, CollectiveWait(*location, collectives, total, wait)))
    return tuple(wait for _, wait in sorted(rows, key=lambda one: one[0]))


def _row(row: dict[str, Any]) -> Collective:
    factor, best = bus_factor(row["operation"], row["group_size"]), row.pop("best")
    size, shortest = row["bytes"], row["shortest_ns"]
    speed = size * row["count"] / shortest if size is not None and shortest else None  # bytes / ns = GB / s
    wait = row.pop("wait_ns")
    return Collective(
        wait_ns=wait if row["ranks"] > 1 else None,
        algorithm_gb_per_s=speed,
        bus_gb_per_s=None if speed is None or factor is None else speed * factor,
        best_bus_gb_per_s=best * factor if best is not None and factor is not None else None,
        group_size_assumed=row.pop("assumed"),
        **row,
    )
