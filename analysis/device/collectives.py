"""Communication kernels, and the calls of collectives by a rank that they belong to, with operation, size and process group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.contents import communicates
from ..toolkit.shared import shared, shared_if_small

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
ONE_TO_ONE: Final = ("send", "receive", "send/receive")

# Operations in which only the part of the bytes that belongs to other ranks crosses the links of a rank, as in nccl-tests.
_ALL_BUT_OWN: Final = ("reduce-scatter", "all-gather", "all-to-all", "scatter", "gather")

_ELEMENT_BYTES: Final = {
    "double": 8, "float64": 8, "float": 4, "float32": 4, "half": 2, "float16": 2, "bfloat16": 2, "c10::half": 2, "c10::bfloat16": 2,
    "long": 8, "int64": 8, "int": 4, "int32": 4, "short": 2, "int16": 2, "byte": 1, "char": 1, "uint8": 1, "int8": 1, "bool": 1,
    "uint16": 2, "uint32": 4, "uint64": 8, "long int": 8, "signed char": 1, "unsigned char": 1,
    "complexhalf": 4, "complexfloat": 8, "complexdouble": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip

_GROUP: Final = ("group_name", "group_description", "group_ranks")
_CALL: Final = ("operation", "element_type", "in_elements", "out_elements", *_GROUP, "group_size", "peer", "sequence")
_ANY: Final = ", ".join(f"any_value({column}) AS {column}" for column in _CALL)
_CHOSEN: Final = ", ".join(f"CASE WHEN o.operation IS NULL THEN w.{column} ELSE o.{column} END AS {column}" for column in _CALL)

# The collective that the kernel's own record describes, else the framework's call that was running on the launching thread at its launch.
_KERNELS: Final = f"""
    WITH listed AS (
        SELECT text, (row_number() OVER (ORDER BY text) - 1)::INTEGER AS id
        FROM (SELECT DISTINCT group_ranks AS text FROM collective WHERE group_ranks IS NOT NULL)
    ), record AS (
        SELECT c.* EXCLUDE (group_ranks), l.id AS group_ranks FROM collective AS c LEFT JOIN listed AS l ON l.text = c.group_ranks
    ), kernel AS (
        SELECT e.node, e.process, e.device, e.stream, e.correlation, e.start_ns, e.duration_ns, coalesce(n.short, n.text) AS kernel
        FROM device_run AS e JOIN name AS n ON n.id = e.name WHERE e.communication
    ), own AS (
        SELECT process, correlation, start_ns, {_ANY}
        FROM record WHERE on_device AND correlation IS NOT NULL GROUP BY process, correlation, start_ns
    ), launch AS (
        SELECT process, correlation, arg_min(tid, start_ns) AS tid, min(start_ns) AS launched_ns
        FROM host_event WHERE kind IN ('launch', 'call') AND correlation IN (SELECT correlation FROM kernel) GROUP BY process, correlation
    ), call AS (
        SELECT process, tid, start_ns AS call_ns, out_elements IS NULL AS shaped, max(start_ns + duration_ns) AS call_end_ns, {_ANY}
        FROM record WHERE NOT on_device GROUP BY process, tid, start_ns, out_elements IS NULL
    ), within AS (
        SELECT l.process, l.correlation, c.* EXCLUDE (process)
        FROM (FROM launch, (VALUES (false), (true)) AS kind(shaped)) AS l ASOF JOIN call AS c
            ON l.process = c.process AND l.tid = c.tid AND l.shaped = c.shaped AND l.launched_ns >= c.call_ns
        WHERE l.launched_ns <= c.call_end_ns QUALIFY row_number() OVER (PARTITION BY l.process, l.correlation ORDER BY c.shaped) = 1
    )
    SELECT k.node, k.process, k.device, k.stream, k.start_ns AS start, k.duration_ns AS duration, k.kernel, w.tid, w.call_ns, {_CHOSEN},
        o.operation IS NULL AND coalesce(w.shaped, false) AS shaped, p.world_size
    FROM kernel AS k
    LEFT JOIN own AS o ON o.process = k.process AND o.correlation = k.correlation AND o.start_ns = k.start_ns
    LEFT JOIN within AS w ON w.process = k.process AND w.correlation = k.correlation
    LEFT JOIN process AS p ON p.id = k.process
    ORDER BY k.process, k.start_ns, k.device, k.correlation
"""
_SCHEMA: Final = {
    "node": pl.Int32, "process": pl.Int32, "device": pl.Int32, "stream": pl.Int64,
    "start": pl.Int64, "duration": pl.Int64, "kernel": pl.String,
    "tid": pl.Int64, "call_ns": pl.Int64, "operation": pl.String, "element_type": pl.String, "in_elements": pl.Int64,
    "out_elements": pl.Int64, "group_name": pl.String, "group_description": pl.String, "group_ranks": pl.Int32, "group_size": pl.Int64,
    "peer": pl.Int64, "sequence": pl.Int64, "shaped": pl.Boolean, "world_size": pl.Int32,
}  # fmt: skip
CALLS: Final = {
    "process": pl.Int32, "node": pl.Int32, "device": pl.Int32, "stream": pl.Int64, "operation": pl.String, "element_type": pl.String,
    "bytes": pl.Int64, "group_name": pl.String, "group_description": pl.String, "group_ranks": pl.Int32, "group_size": pl.Int64,
    "assumed": pl.Boolean, "peer": pl.Int64, "sequence": pl.Int64, "kernels": pl.UInt32, "start": pl.Int64, "end": pl.Int64,
    "duration": pl.Int64,
}  # fmt: skip
"""Columns of :func:`collective_calls`."""
_ROWS: Final = 250_000  # kernels that are combined at a time, or those of one process
_SIZE: Final = ("operation", "element_type", "group_size", "assumed", "bytes")


def communication_kernels(store: Store, columns: Sequence[str]) -> pl.DataFrame:
    """Return columns of every communication kernel and its collective.

    By process and time.
    ``group_ranks`` is a number in :func:`rank_texts`: a job of 512 ranks records a text of kilobytes with each kernel. The rows of a large
    job are not kept in memory: what is needed of them more often is in :func:`collective_calls`."""
    if not communicates(store):
        return pl.DataFrame(schema=_SCHEMA).select(columns)
    return store.frame(f"SELECT {', '.join(columns)} FROM ({_KERNELS})")


@shared
def rank_texts(store: Store) -> list[str]:
    """Return the distinct lists of ranks of process groups, as recorded, in order."""
    if not store.has_rows("collective"):
        return []
    return store.frame("SELECT DISTINCT group_ranks FROM collective WHERE group_ranks IS NOT NULL ORDER BY 1")["group_ranks"].to_list()


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


@shared_if_small
def collective_calls(store: Store) -> pl.DataFrame:
    """Combine the kernels of each call of a collective by a rank, by process and time.

    Columns: ``CALLS``. assumed: the group is not recorded, and all ranks of the job are assumed. peer: a rank. duration: of the kernels.
    """
    return pl.concat([pl.DataFrame(schema=CALLS), *(_calls(kernels) for kernels in _of_processes(store) if kernels.height)])


def _of_processes(store: Store) -> Iterator[pl.DataFrame]:
    """Yield every communication kernel with its collective, whole processes at a time."""
    if not communicates(store):
        return
    rest = pl.DataFrame(schema=_SCHEMA)
    for batch in store.batches(_KERNELS, rows=_ROWS):
        rows = rest.vstack(batch)
        unfinished = pl.col("process").eq_missing(rows["process"].last())
        yield rows.filter(~unfinished)
        rest = rows.filter(unfinished)
    yield rest


def _calls(kernels: pl.DataFrame) -> pl.DataFrame:
    name = pl.coalesce("operation", "kernel")
    texts = kernels.select(pl.concat([pl.col("operation"), pl.col("kernel")]).unique()).to_series().drop_nulls()
    operations = {text: operation_of(text) for text in texts}
    called, ran = (pl.col(column).replace_strict(operations, return_dtype=pl.String) for column in ("operation", "kernel"))
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
            operation=pl.coalesce(called, ran, name),
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
        .group_by("process", "node", "device", "tid", "call_ns", "alone", *_SIZE, *_GROUP, "peer", "sequence", maintain_order=True)
        .agg(
            pl.col("stream").first(),
            kernels=pl.len(),
            start=pl.col("start").min(),
            end=(pl.col("start") + pl.col("duration")).max(),
            duration=pl.col("duration").sum(),
        )
        .select(list(CALLS))
    )
