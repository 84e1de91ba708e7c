"""Converts batches of events of a Kineto trace to rows of the store's tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import polars as pl
import polars.selectors as cs

from ..chrome_trace.names import Names
from ..chrome_trace.ranges import BEGIN, END, pair
from ..chrome_trace.scan import EVENT_COLUMNS, Arg, Batch, text_id
from ..kernels.categories import ANNOTATION, DEVICE_ANNOTATION, DEVICE_KINDS, HOST_KINDS, ROUTE, SKIPPED, route_of
from ..store.time_limits import HIGHEST_DEVICE
from .collectives import collective_rows, gather_rows, shaped_rows
from .left_out import LeftOut
from .signatures import TraceSignatures

COMPLETE: Final = ord("X")
INSTANT: Final = ord("i")
ARGS: Final[Mapping[str, Arg]] = {
    "correlation": Arg("correlation", "int"),
    "External id": Arg("external_id", "int"),
    "external id": Arg("external_id", "int"),
    "Sequence number": Arg("autograd_sequence", "int"),
    "Fwd thread id": Arg("forward_thread", "int"),
}
SPARSE_ARGS: Final[Mapping[str, Arg]] = {
    "device": Arg("device", "int"),
    "context": Arg("context", "int"),
    "stream": Arg("stream", "int"),
    "bytes": Arg("bytes", "int"),
    "kind": Arg("kind_text", "text"),
    "grid": Arg("grid", "int3"),
    "block": Arg("block", "int3"),
    "registers per thread": Arg("registers", "int"),
    "shared memory": Arg("shared_memory", "int"),
    "graph node id": Arg("graph_node", "int"),
    "Collective name": Arg("operation", "text"),
    "dtype": Arg("element_type", "text"),
    "In msg nelems": Arg("in_elements", "int"),
    "Out msg nelems": Arg("out_elements", "int"),
    "Process Group Name": Arg("group_name", "text"),
    "Process Group Description": Arg("group_description", "text"),
    "Process Group Ranks": Arg("group_ranks", "text"),
    "Group size": Arg("group_size", "int"),
    "Src Rank": Arg("from_rank", "int"),
    "Dst Rank": Arg("to_rank", "int"),
    "Seq": Arg("sequence", "int"),
    "est. achieved occupancy %": Arg("occupancy", "text"),
    "blocks per SM": Arg("blocks_per_sm", "text"),
}
WIDE_CATEGORIES: Final = ("user_annotation", "cpu_instant_event")
WIDE_ARGS: Final[Mapping[str, Arg]] = {
    # of the allocator's events
    "Device Type": Arg("device_type", "int"),
    "Device Id": Arg("device_id", "int"),
    "Bytes": Arg("size", "int"),
    "Total Allocated": Arg("allocated", "int"),
    "Total Reserved": Arg("reserved", "int"),
}
_ALLOCATION: Final = "[memory]"
_HOST_TYPE: Final = 0  # PyTorch's number of the processor as a type of device
_BOTH_SIDES: Final = "hpu_op"  # Gaudi's bridge records the calls of the host in the category of the device's work
_MULTIPROCESSORS: Final = 10_000  # of a device, at most; large ones have some 300
_MOST_SHARED_MEMORY: Final = 49_152  # bytes of a block without opting in; beyond, Kineto computes an occupancy of 0
_DEVICE_ENUM: Final = pl.Enum(DEVICE_KINDS)
_HOST_ENUM: Final = pl.Enum(HOST_KINDS)
_FIRST_HOST: Final = len(DEVICE_KINDS)
_FIRST_ANNOTATION: Final = _FIRST_HOST + len(HOST_KINDS)


class KinetoRows:
    """Rows of one trace that wait for the store, by table, and facts about its events.

    Times are in nanoseconds of the trace's clock. ``first_ns``, ``last_ns``: earliest start and latest end. ``host_pids``, ``python_pids``:
    number of host events by process id. ``devices``: indices of devices with events. ``instants_read``: events of the allocator.
    """

    def __init__(self, names: Names, left_out: LeftOut) -> None:
        self.names = names
        self.signatures = TraceSignatures(names.store)
        self.left_out = left_out
        tables = ("device_event", "host_event", "annotation", "collective", "allocation")
        self.waiting: dict[str, list[pl.DataFrame]] = {table: [] for table in tables}
        self.open_ranges: list[pl.DataFrame] = []
        self.host_pids: Counter[int] = Counter()
        self.python_pids: Counter[int] = Counter()
        self.devices: set[int] = set()
        self.instants_read = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def add(self, batch: Batch) -> bool:
        """Convert a batch to rows; return whether it has events besides allocations.

        Begin and end events wait for :meth:`close_ranges`.
        """
        self.names.add(batch.strings)
        self.signatures.add(batch.combinations)
        events, sparse, wide = (pl.DataFrame(rows) for rows in (batch.events, batch.sparse, batch.wide))
        places = pl.repeat(None, events.height, dtype=pl.UInt32, eager=True)
        places.scatter(sparse["row"], pl.int_range(sparse.height, dtype=pl.UInt32, eager=True))
        events, sparse = events.with_columns(sparse=places), sparse.drop("row")
        if wide.height:
            self._allocation_rows(wide.filter(pl.col("phase") == INSTANT))
            wide = wide.filter(pl.col("phase") != INSTANT)
            self._wait("collective", shaped_rows(self.names, self.signatures, wide))
            wide = wide.with_columns(sparse=pl.int_range(sparse.height, sparse.height + pl.len(), dtype=pl.UInt32))
            events = pl.concat([events, wide.select(events.columns)], how="vertical")
            sparse = pl.concat([sparse, wide.select(sparse.columns)], how="vertical")
        if events.is_empty():
            return False
        self._wait("collective", gather_rows(self.names, self.signatures, events))
        if (events["phase"] != COMPLETE).any():
            ranges = events.filter(pl.col("phase").is_in([BEGIN, END])).sort("ordinal")
            self.open_ranges.append(_completed(ranges, sparse))
            events = events.filter(~pl.col("phase").is_in([BEGIN, END]))
        self._rows(events.with_columns(complete=pl.lit(True)), sparse, unknown_route=SKIPPED)
        return True

    def close_ranges(self) -> None:
        """Convert the begin and end events to rows when all of them are known."""
        if not self.open_ranges:
            return
        events = pl.concat(self.open_ranges)
        self.open_ranges = []
        last: int = events.select(pl.col("start_ns").max()).item()
        ranges, strays = pair(events, last if self.last_ns is None else max(last, self.last_ns))
        if strays:
            self.left_out.count("stray_end", strays)
        if open_ones := ranges.filter(~pl.col("complete")).height:
            self.left_out.count("unclosed_begin", open_ones, ranges.filter(~pl.col("complete")))
        kept = [*EVENT_COLUMNS, *dict.fromkeys(arg.column for arg in ARGS.values()), "combination", "complete"]
        sparse = ranges.drop(kept)
        ranges = ranges.select(*kept, sparse=pl.int_range(pl.len(), dtype=pl.UInt32))
        self._rows(ranges, sparse, unknown_route=ANNOTATION)

    def beyond_blocks(self, table: str, block: int) -> pl.DataFrame | None:
        """Remove the last rows, which fill no block of ``block`` rows.

        Returns them, or None if there is no full block.
        """
        if sum(frame.height for frame in self.waiting[table]) < block:
            return None
        rows = pl.concat(self.waiting[table], how="vertical", rechunk=True)  # DuckDB would share out its chunks to threads
        end = rows.height // block * block
        self.waiting[table] = [rows[:end]]
        return rows[end:]

    def _wait(self, table: str, rows: pl.DataFrame | None) -> None:
        if rows is not None:
            self.waiting[table].append(rows)

    def _rows(self, events: pl.DataFrame, sparse: pl.DataFrame, unknown_route: str) -> None:
        """Sort events into the tables. Their column ``sparse`` is the row in ``sparse``."""
        events = events.with_columns(route=self._routes(events["category"], unknown_route))
        events = self.left_out.sane(events, self.names)
        if events.is_empty():
            return
        self.names.intern(events["name"])
        kind = events["route"].to_physical()
        known = self.names.of(events["name"], ["id", "call", "loader", "step", "dma", "value"])
        events = events.with_columns(kind=kind, name_id=known["id"], value=known["value"])
        host = pl.col("kind").is_between(_FIRST_HOST, _FIRST_ANNOTATION)  # annotation included, device annotation not
        route = (
            pl.when(host & known["loader"].fill_null(False) & (pl.col("route") != "python"))
            .then(pl.lit("loader", ROUTE))
            .when((pl.col("route") == "operator") & known["step"].fill_null(False))
            .then(pl.lit(ANNOTATION, ROUTE))
            .when((pl.col("route") == "call") | self._of_host(events))
            .then(known["call"])
            .when((pl.col("route") == "kernel") & known["dma"].fill_null(False))
            .then(pl.lit("memcpy", ROUTE))
            .otherwise("route")
        )
        events = events.with_columns(route=route).with_columns(kind=pl.col("route").to_physical())
        first, last = events.select(
            pl.col("start_ns").min().alias("first"), (pl.col("start_ns") + pl.col("duration_ns")).max().alias("last")
        ).row(0)
        self.first_ns = first if self.first_ns is None else min(self.first_ns, first)
        self.last_ns = last if self.last_ns is None else max(self.last_ns, last)
        if sparse["operation"].null_count() < sparse.height:
            described = _completed(events.filter(pl.col("sparse").is_not_null()), sparse).filter(pl.col("operation").is_not_null())
            self._wait("collective", collective_rows(self.names, described))
        self._device_rows(_completed(events.filter(pl.col("kind") < _FIRST_HOST), sparse))
        self._host_rows(events.filter(pl.col("kind").is_between(_FIRST_HOST, _FIRST_ANNOTATION - 1)))
        self._annotation_rows(_completed(events.filter(pl.col("kind") >= _FIRST_ANNOTATION), sparse))

    def _routes(self, categories: pl.Series, unknown_route: str) -> pl.Series:
        """Return the route of each event by its category."""
        routes = {None: unknown_route}
        for category in categories.unique().drop_nulls():
            route = route_of(self.names.text(category))
            routes[category] = unknown_route if route == SKIPPED else route
        return categories.replace_strict(list(routes), list(routes.values()), return_dtype=ROUTE)

    def _of_host(self, events: pl.DataFrame) -> pl.Expr:
        """Return which events are calls, though their category also has device events."""
        shared = [category for category in events["category"].unique().drop_nulls() if self.names.text(category).lower() == _BOTH_SIDES]
        return pl.col("category").is_in(shared) & ~pl.col("pid").is_between(0, HIGHEST_DEVICE - 1) if shared else pl.lit(False)

    def _device_rows(self, events: pl.DataFrame) -> None:
        if events.is_empty():
            return
        copy = self.names.of(events["name"], ["copy_kind", "pageable"])
        by_kind = self.names.of(events["kind_text"], ["copy_kind"])
        is_copy = pl.col("route") == "memcpy"
        rows = events.select(
            "context", "start_ns", "duration_ns", "external_id", "registers", "shared_memory", "graph_node",
            cs.starts_with("grid_", "block_"),
            bytes=pl.when(pl.col("bytes") >= 0).then("bytes"),
            device=pl.coalesce(pl.when(pl.col("device") >= 0).then("device"), _device_of_pid()).cast(pl.Int32, strict=False),
            stream=pl.coalesce("stream", self._stream_of_tid(events["tid"])),
            kind=pl.col("kind").cat.to(_DEVICE_ENUM),
            name="name_id",
            correlation=_no_zero("correlation"),
            copy_kind=pl.when(is_copy).then(pl.coalesce(copy["copy_kind"], by_kind["copy_kind"])),
            pageable=pl.when(is_copy).then(copy["pageable"]),
            occupancy=_occupancy(self._number(events["occupancy"]), events["shared_memory"]),
            multiprocessors=_multiprocessors(events, self._number(events["blocks_per_sm"])),
        )  # fmt: skip
        self.devices.update(rows["device"].unique().drop_nulls())
        if unknown := rows["device"].null_count():
            self.left_out.count("device_unknown", unknown, events.filter(rows["device"].is_null()))
        self.waiting["device_event"].append(rows)

    def _allocation_rows(self, events: pl.DataFrame) -> None:
        """Add allocations and releases on devices; count those of main memory."""
        if events.is_empty():
            return
        events = events.filter(self.names.texts(events["name"]) == _ALLOCATION)
        on_device = (pl.col("device_type") != _HOST_TYPE) & pl.col("device_id").is_between(0, HIGHEST_DEVICE - 1)
        rows = events.filter(on_device, pl.col("allocated").is_not_null())
        self.instants_read += events.height
        if left_out := events.height - rows.height:
            self.left_out.count("host_allocations", left_out)
        if rows.height:
            rows = rows.with_columns(device=pl.col("device_id").cast(pl.Int32), bytes="size")
            self.waiting["allocation"].append(rows.select("device", "start_ns", "bytes", "allocated", "reserved"))

    def _host_rows(self, events: pl.DataFrame) -> None:
        if events.is_empty():
            return
        self._count_pids(events)
        rows = events.select(
            "tid", "start_ns", "duration_ns", "external_id",
            kind=(pl.col("kind") - _FIRST_HOST).cat.to(_HOST_ENUM),
            name="name_id",
            correlation=_no_zero("correlation"),
            signature=self.signatures.ids(events["combination"]),
            sequence=pl.when(pl.col("autograd_sequence") >= 0).then("autograd_sequence"),
            forward_thread=pl.when(pl.col("forward_thread") >= 0).then("forward_thread"),
        )  # fmt: skip
        self.waiting["host_event"].append(rows)

    def _annotation_rows(self, events: pl.DataFrame) -> None:
        if events.is_empty():
            return
        on_device = pl.col("route") == DEVICE_ANNOTATION
        self._count_pids(events.filter(~on_device))
        rows = events.select(
            "tid", "value", "start_ns", "duration_ns", "complete",
            side=pl.when(on_device).then(pl.lit("device")).otherwise(pl.lit("host")),
            device=pl.when(on_device).then(pl.coalesce("device", _device_of_pid())).cast(pl.Int32, strict=False),
            stream=pl.when(on_device).then(pl.coalesce("stream", self._stream_of_tid(events["tid"]))),
            name="name_id",
        )  # fmt: skip
        self.waiting["annotation"].append(rows)

    def _count_pids(self, events: pl.DataFrame) -> None:
        """Count host events by process id. Some traces give Python functions pid 0."""
        for pid, python, count in events.group_by("pid", pl.col("route") == "python").len().iter_rows():
            if pid is not None and pid >= 0:
                (self.python_pids if python else self.host_pids)[pid] += count

    def _number(self, indices: pl.Series) -> pl.Series:
        return self.names.of(indices, ["number"])["number"]

    def _stream_of_tid(self, tids: pl.Series) -> pl.Series:
        """Return the streams that threads name: a number, or text like "stream 7"."""
        streams: dict[int, int | None] = {}
        for tid in tids.unique().drop_nulls():
            string = text_id(tid)
            digits = self.names.text(string).rpartition(" ")[2] if string is not None else ""
            streams[tid] = tid if string is None else int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 18 else None
        return tids.replace_strict(list(streams), list(streams.values()), default=None, return_dtype=pl.Int64)


def _completed(events: pl.DataFrame, sparse: pl.DataFrame) -> pl.DataFrame:
    """Return the events with the columns of their sparse arguments."""
    return events.drop("sparse").hstack(sparse.select(pl.all().gather(pl.lit(events["sparse"]))))


def _device_of_pid() -> pl.Expr:
    return pl.when(pl.col("pid").is_between(0, HIGHEST_DEVICE - 1)).then("pid")


def _occupancy(percent: pl.Series, shared_memory: pl.Series) -> pl.Series:
    """Return the occupancy, null if it is unknown.

    The profiler's calculator writes 0 for kernels with more shared memory than it knows."""
    percent = percent.set(percent > 100, None)
    return percent.set((percent == 0) & (shared_memory > _MOST_SHARED_MEMORY).fill_null(True), None)


def _multiprocessors(events: pl.DataFrame, blocks_each: pl.Series) -> pl.Series:
    """Return the multiprocessors by the blocks of grids and the blocks of each one.

    Null where they contradict each other. Profilers write ``blocks_each`` with six decimals or as float32.
    """
    blocks = pl.col("grid_x").cast(pl.Float64) * pl.col("grid_y") * pl.col("grid_z")
    number = (blocks / blocks_each).round()
    fits = number.is_between(1, _MULTIPROCESSORS) & ((blocks / number - blocks_each).abs() <= 1e-6 + 1e-5 * blocks_each)
    return events.select(pl.when(fits).then(number).cast(pl.Int32)).to_series()


def _no_zero(column: str) -> pl.Expr:
    return pl.when(pl.col(column) != 0).then(column)
