"""Which collectives took the time, how fast were they, and how much of it was waiting for other ranks?"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from ...ingest.store.store import Store
from ..report.model import Collective, Collectives, CollectiveWait
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

# Of the bytes of an operation the part that crosses the links of a rank, as nccl-tests counts it.
_ALL_BUT_OWN: Final = ("reduce-scatter", "all-gather", "all-to-all", "scatter", "gather")

_ELEMENT_BYTES: Final = {
    "double": 8, "float64": 8, "float": 4, "float32": 4, "half": 2, "float16": 2, "bfloat16": 2, "c10::half": 2, "c10::bfloat16": 2,
    "long": 8, "int64": 8, "int": 4, "int32": 4, "short": 2, "int16": 2, "byte": 1, "char": 1, "uint8": 1, "int8": 1, "bool": 1,
    "uint16": 2, "uint32": 4, "uint64": 8, "long int": 8, "signed char": 1, "unsigned char": 1,
    "complexhalf": 4, "complexfloat": 8, "complexdouble": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip

# What a kernel says of itself, else the framework's call that was running on the launching thread when it was launched.
_KERNELS: Final = """
    WITH kernel AS (
        SELECT e.node, e.process, e.device, e.correlation, e.start_ns, e.duration_ns, coalesce(n.short, n.text) AS kernel
        FROM device_event AS e JOIN name AS n ON n.id = e.name WHERE e.kind = 'kernel' AND n.category = 'communication'
    ), own AS (
        SELECT process, correlation, start_ns, any_value(operation) AS operation, any_value(element_type) AS element_type,
            any_value(in_elements) AS in_elements, any_value(out_elements) AS out_elements, any_value(group_name) AS group_name,
            any_value(group_ranks) AS group_ranks, any_value(group_size) AS group_size
        FROM collective WHERE on_device AND correlation IS NOT NULL GROUP BY process, correlation, start_ns
    ), launch AS (
        SELECT process, correlation, arg_min(tid, start_ns) AS tid, min(start_ns) AS launched_ns
        FROM host_event WHERE kind IN ('launch', 'call') AND correlation IN (SELECT correlation FROM kernel) GROUP BY process, correlation
    ), call AS (
        SELECT process, tid, start_ns AS call_ns, out_elements IS NULL AS shaped, max(start_ns + duration_ns) AS call_end_ns,
            any_value(operation) AS operation, any_value(element_type) AS element_type, any_value(in_elements) AS in_elements,
            any_value(out_elements) AS out_elements, any_value(group_name) AS group_name, any_value(group_ranks) AS group_ranks,
            any_value(group_size) AS group_size
        FROM collective WHERE NOT on_device GROUP BY process, tid, start_ns, out_elements IS NULL
    ), within AS (
        SELECT l.process, l.correlation, c.* EXCLUDE (process)
        FROM launch AS l ASOF JOIN (FROM call WHERE NOT shaped) AS c
            ON l.process = c.process AND l.tid = c.tid AND l.launched_ns >= c.call_ns
        WHERE l.launched_ns <= c.call_end_ns
        UNION ALL
        SELECT l.process, l.correlation, c.* EXCLUDE (process)
        FROM launch AS l ASOF JOIN (FROM call WHERE shaped) AS c
            ON l.process = c.process AND l.tid = c.tid AND l.launched_ns >= c.call_ns
        WHERE l.launched_ns <= c.call_end_ns
    ), said AS (
        FROM within QUALIFY row_number() OVER (PARTITION BY process, correlation ORDER BY shaped) = 1
    )
    SELECT k.node, k.process, k.device, k.start_ns AS start, k.duration_ns AS duration, k.kernel, w.tid, w.call_ns,
        CASE WHEN o.operation IS NULL THEN w.operation ELSE o.operation END AS operation,
        CASE WHEN o.operation IS NULL THEN w.element_type ELSE o.element_type END AS element_type,
        CASE WHEN o.operation IS NULL THEN w.in_elements ELSE o.in_elements END AS in_elements,
        CASE WHEN o.operation IS NULL THEN w.out_elements ELSE o.out_elements END AS out_elements,
        CASE WHEN o.operation IS NULL THEN w.group_name ELSE o.group_name END AS group_name,
        CASE WHEN o.operation IS NULL THEN w.group_ranks ELSE o.group_ranks END AS group_ranks,
        CASE WHEN o.operation IS NULL THEN w.group_size ELSE o.group_size END AS group_size,
        o.operation IS NULL AND coalesce(w.shaped, false) AS shaped, p.world_size
    FROM kernel AS k
    LEFT JOIN own AS o ON o.process = k.process AND o.correlation = k.correlation AND o.start_ns = k.start_ns
    LEFT JOIN said AS w ON w.process = k.process AND w.correlation = k.correlation
    LEFT JOIN process AS p ON p.id = k.process
    ORDER BY k.process, k.start_ns, k.device, k.correlation
"""
_SIZE: Final = ("operation", "element_type", "group_size", "assumed", "bytes")
_GROUP: Final = ("group_name", "group_ranks", "group_size")


def communication_kernels(store: Store) -> pl.DataFrame:
    """Every communication kernel with what the trace says of its collective, by process and time."""
    return store.frame(_KERNELS)


def collectives(store: Store, kernels: pl.DataFrame | None = None) -> Collectives:
    """Every communication kernel, put together to collectives: of one rank those of one call, and across ranks the same of one group.

    Across ranks they are matched by their order in the group, where all ranks that were recorded have the same sequence of operations and
    sizes; of others each rank's counts alone. No clock of one rank is compared with that of another. ``kernels``:
    :func:`communication_kernels` of the store.
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
            total=pl.col("total").sum(),
            shortest=pl.col("shortest").sum(),
            wait=(pl.col("total") - pl.col("parts") * pl.col("shortest")).sum(),
            best=pl.col("speed").max(),
        )
        .sort("total", *_SIZE, "ranks", descending=[True, *(False for _ in _SIZE), False], nulls_last=True)
    )
    total = int(rows["total"].sum())
    sized = int(rows.filter(pl.col("bytes").is_not_null())["total"].sum())
    return Collectives(
        rows=tuple(_row(row) for row in rows.head(MOST).to_dicts()),
        further=max(0, len(rows) - MOST),
        further_ns=int(rows.slice(MOST)["total"].sum()),
        total_ns=total,
        sized_percent=percent_of(sized, total),
        matched=every.filter(pl.col("ranks") > 1).height,
        unmatched=unmatched,
        waits=_waits(store, numbered),
        absent=None,
    )


def bus_factor(operation: str, ranks: int | None) -> float | None:
    """What the bytes per time of an operation are multiplied with for the bandwidth of the links; None where nothing crosses one."""
    if ranks is None or ranks < 2 or operation == "barrier":
        return None
    if operation == "all-reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in _ALL_BUT_OWN else 1.0


def operation_of(text: str) -> str | None:
    """The operation that a name of a collective or of its kernel tells, or None."""
    letters = "".join(letter for letter in text.lower() if letter.isalpha())
    return next((name for part, name in _OPERATIONS if part in letters), None)


def element_bytes(element_type: str | None) -> int | None:
    return _ELEMENT_BYTES.get(element_type.lower()) if element_type is not None else None


def _of_one_rank(kernels: pl.DataFrame) -> pl.DataFrame:
    """Collectives as one rank saw them: kernels that one call launched, or a kernel alone. Adds ``operation`` and ``bytes``."""
    told = pl.struct("operation", "kernel")
    texts = {
        (row["operation"], row["kernel"]): (operation_of(row["operation"]) or row["operation"])
        if row["operation"] is not None
        else (operation_of(row["kernel"]) or row["kernel"])
        for row in kernels.select("operation", "kernel").unique().to_dicts()
    }
    types = {text: element_bytes(text) for text in kernels["element_type"].unique().drop_nulls()}
    given, taken = pl.col("in_elements"), pl.col("out_elements")
    largest = pl.max_horizontal(given, taken)
    gathers = pl.col("operation").is_in(["all-gather", "gather"])
    elements = (
        pl.when(pl.col("operation").is_in(["barrier", "send/receive"]))
        .then(None)
        # Shapes are of what a rank gives: what it gets is that of every rank. Of a scatter only one rank gives.
        .when("shaped")
        .then(pl.when(gathers).then(given * pl.col("group_size")).when(~pl.col("operation").is_in(["scatter", "receive"])).then(given))
        .when(pl.col("operation").is_in(["all-gather", "gather", "receive"]))
        .then(pl.when(pl.col("operation") == "gather").then(largest).otherwise(taken))
        .when(pl.col("operation") == "scatter")
        .then(largest)
        .otherwise(given)
    )
    return (
        kernels.with_columns(
            operation=told.map_elements(lambda one: texts[(one["operation"], one["kernel"])], return_dtype=pl.String),
            width=pl.col("element_type").replace_strict(types, default=None, return_dtype=pl.Int64) if types else pl.lit(None, pl.Int64),
            alone=pl.when(pl.col("call_ns").is_null()).then(pl.int_range(pl.len())),
            # Where a process is seen in a group of some ranks, the others need not be of all.
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
    """``alone`` with ``match``: a number that the parts of one collective share; and how many could not be matched."""
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
    found = []
    for node, process, collectives, total, wait in waits.iter_rows():
        place = places.process(process, node)
        found.append((place.order, CollectiveWait(place.node, place.rank, place.pid, collectives, total, wait)))
    return tuple(wait for _, wait in sorted(found, key=lambda one: one[0]))


def _row(row: dict[str, object]) -> Collective:
    number = {key: value for key, value in row.items() if isinstance(value, int)}
    operation, size, ranks, best = str(row["operation"]), number.get("bytes"), number.get("group_size"), row["best"]
    factor = bus_factor(operation, ranks)
    shortest = number["shortest"]
    speed = size * number["count"] / shortest if size is not None and shortest else None  # bytes / ns = GB / s
    return Collective(
        operation=operation,
        bytes=size,
        element_type=None if row["element_type"] is None else str(row["element_type"]),
        group_size=ranks,
        ranks=number["ranks"],
        count=number["count"],
        kernels=number["kernels"],
        total_ns=number["total"],
        shortest_ns=shortest,
        wait_ns=number["wait"] if number["ranks"] > 1 else None,
        algorithm_gb_per_s=speed,
        bus_gb_per_s=None if speed is None or factor is None else speed * factor,
        best_bus_gb_per_s=best * factor if isinstance(best, float) and factor is not None else None,
        group_size_assumed=bool(row["assumed"]),
    )
