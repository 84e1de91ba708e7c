"""Converts the event tables of an Nsight Systems export to rows of the run store, column by column, one batch at a time.

Frames have the global process id as ``process`` and times of the session; :mod:`.reader` replaces both. SQLite does not enforce the types
of columns: a value that is not an integer in a column of integers counts as absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from ..kernels.categories import DEVICE_KINDS, HOST_KINDS, features
from ..store.time_limits import LONGEST_NS
from . import schema as schema
from .schema import Export
from .session import Session, copy_kinds, memory_kinds, sync_kinds

DEVICE: Final = "device_event"
HOST: Final = "host_event"
RANGES: Final = "annotation"

LATEST_NS: Final = 2**61  # times of a session beyond this, in both directions, are damage; sums with its start stay in range
_NO_STREAM: Final = 2**32 - 1
_HIGHEST_DEVICE: Final = 1024
_OPEN_TYPES: Final = (35, 37)  # ranges of NVTX that were never closed
_RANGE_TYPES: Final = (*_OPEN_TYPES, 59, 60, 70, 71)
_DOMAIN_TYPE: Final = 75
_DEVICE_KIND: Final = pl.Enum(DEVICE_KINDS)
_HOST_KIND: Final = pl.Enum(HOST_KINDS)
# PyTorch's emit_nvtx appends numbers and the shapes of the inputs to the name of an operator.
_TORCH: Final = r", (?:seq|op_id) = -?\d+"
_TORCH_REST: Final = r"(?s)(?:, seq = -?\d+)?(?:, op_id = \d+)?(?:, sizes = \[.*)?(?:, input_op_ids = .*)?$"
_SEQUENCE: Final = r", seq = (\d{1,18})\b"
_SIZES: Final = r", sizes = (\[[\[\]\d, -]*\])(?:, input_op_ids = |$)"
_OPERATOR: Final = r"^(?:[a-z_][a-z0-9_]*::[\w.]+$|autograd::engine::evaluate_function: |\w+Backward\d*$)"
_VERSION: Final = r"_v\d{4,5}$"

Batch = Sequence[tuple[Any, ...]]


class Names:
    """The names of one file: texts by their numbers, ids of the store by texts."""

    def __init__(
        self, export: Export, name_ids: Callable[[Sequence[str]], list[int]], signature_ids: Callable[[pl.DataFrame], pl.Series]
    ) -> None:
        self.export = export
        self.name_ids = name_ids
        self.signature_ids = signature_ids
        self.strings: dict[int, str | None] = {}
        self.unknown: set[int] = set()

    def texts(self, columns: Sequence[tuple[Any, ...]]) -> pl.Series:
        """Return the first text of each row; columns have texts or numbers of strings."""
        result = pl.Series([None] * len(columns[0]), dtype=pl.String)
        for values in columns:
            if result.null_count():
                result = result.to_frame("a").select(pl.coalesce("a", pl.lit(self._of(values)))).to_series()
        for values in columns:  # the number of an unknown string is better than nothing
            if result.null_count():
                numbers = integers(values)
                numbers = numbers.to_frame("n").select(pl.when(pl.col("n") > 0).then("n")).to_series()
                self.unknown.update(numbers.filter(result.is_null()).drop_nulls().unique().to_list()[: schema.MOST_ROWS])
                result = result.to_frame("a").select(pl.coalesce("a", pl.lit("name " + numbers.cast(pl.String)))).to_series()
        return result.fill_null("")

    def _of(self, values: tuple[Any, ...]) -> pl.Series:
        kinds = set(map(type, values))
        if kinds <= {type(None)}:
            return pl.Series([None] * len(values), dtype=pl.String)
        if str in kinds:
            return pl.Series([value if type(value) is str and value else None for value in values], dtype=pl.String)
        numbers = integers(values)
        distinct = numbers.unique().drop_nulls().to_list()
        fresh = [number for number in distinct if number not in self.strings]
        known = self.export.strings(fresh)
        self.strings.update({number: known.get(number) or None for number in fresh})
        texts = [self.strings[number] for number in distinct]
        return numbers.replace_strict(distinct, texts, default=None, return_dtype=pl.String)

    def ids(self, texts: pl.Series) -> pl.Series:
        distinct = texts.unique(maintain_order=True)
        return texts.replace_strict(distinct, self.name_ids(distinct.to_list()), return_dtype=pl.Int32)


def integers(values: tuple[Any, ...]) -> pl.Series:
    """Return a column of integers; other values become null."""
    if set(map(type, values)) <= {int, type(None)}:
        return pl.Series(values, dtype=pl.Int64)
    return pl.Series([value if type(value) is int else None for value in values], dtype=pl.Int64)


def _frame(names: Sequence[str], batch: Batch) -> pl.DataFrame:
    """Return the first columns of a batch as integers."""
    return pl.DataFrame([integers(values).alias(name) for name, values in zip(names, batch, strict=False)])


def _sane(rows: pl.DataFrame, dropped: Counter[str], *, unclosed: bool = False) -> pl.DataFrame:
    """Drop and count rows with impossible times; add ``duration_ns``.

    ``unclosed``: the end may be missing.
    """
    start, end = pl.col("start"), pl.col("end")
    possible = start.is_between(-LATEST_NS, LATEST_NS) & end.is_between(-LATEST_NS, LATEST_NS)
    rows = rows.with_columns(duration_ns=pl.when(possible).then(end - start))
    tests = {
        "no_timestamp": start.is_null(),
        "zero_time": (start == 0) & (end.fill_null(0) == 0),
        "impossible_time": ~start.is_between(-LATEST_NS, LATEST_NS) | ~end.is_between(-LATEST_NS, LATEST_NS).fill_null(True),
        "no_duration": pl.lit(False) if unclosed else end.is_null(),
        "absurd_duration": pl.col("duration_ns") > LONGEST_NS,
        "negative_duration": pl.col("duration_ns") < 0,
    }
    # The first reason that applies counts.
    reason = pl.coalesce(*(pl.when(test.fill_null(False)).then(pl.lit(code)) for code, test in tests.items()))
    rows = rows.with_columns(reason=reason)
    if rows["reason"].null_count() == rows.height:
        return rows.drop("reason")
    for code, count in rows["reason"].drop_nulls().value_counts(sort=True, name="count").sort("reason").iter_rows():
        dropped[code] += count
    return rows.filter(pl.col("reason").is_null()).drop("reason")


@dataclass(slots=True)
class Reader:
    """Reads the tables of one export into frames of the tables of the store."""

    export: Export
    session: Session
    names: Names
    dropped: Counter[str]  # by the code of the note
    only_process: int | None  # process of rows that name none, if the others name only one
    contexts: Mapping[tuple[int | None, int | None], int]  # process, context -> device, from kernels and copies
    of_torch: bool = False  # whether there are operators of PyTorch

    def read(self) -> Iterator[tuple[str, pl.DataFrame, int]]:
        """Yield a table of the store, its rows, and the number of rows of the export."""
        for names, read in (
            (schema.KERNEL, self.kernels),
            (schema.GRAPH, self.graphs),
            (schema.MEMCPY, self.copies),
            (schema.MEMSET, self.memsets),
            (schema.SYNC, self.syncs),
            (schema.RUNTIME, self.calls),
            (schema.DRIVER, self.calls),
            (schema.OVERHEAD, self.overhead),
            (schema.PROFILER_OVERHEAD, self.overhead),
            (schema.NVTX, self.ranges),
        ):
            if (table := self.export.table(names)) is not None:
                yield from read(table)

    # -- on the device -------------------------------------------------------------------------------------------------

    _BASIC = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphNodeId")

    def _device(self, kind: str, rows: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
        """Return rows of device_event with additional ``columns``."""
        return self._devices(kind, rows).select(
            "process",
            pl.col("device").cast(pl.Int32),
            context="contextId",
            stream=pl.when(pl.col("streamId") != _NO_STREAM).then("streamId"),
            kind=pl.lit(kind, _DEVICE_KIND),
            name="name",
            start_ns="start",
            duration_ns="duration_ns",
            correlation=_no_zero("correlationId"),
            graph_node=_no_zero("graphNodeId"),
            **columns,
        )

    def _devices(self, kind: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Add the process and the GPU, as the machine numbers it, to each row.

        A synchronization names the device of the calling thread, so the device of its context is used if known.
        """
        keys = rows.select("globalPid", "contextId", "deviceId").unique()
        devices, unknown = [], []
        for process, context, number in keys.rows():
            process = self.only_process if process is None else process
            if number is None or kind == "sync":
                number = self.contexts.get((process, context), self.session.contexts.get((process, context), number))
            device = self.session.devices.get((process, number), number)
            known = device is not None and 0 <= device < _HIGHEST_DEVICE
            devices.append(device if known else 0)
            unknown.append(not known)
        process_column = pl.coalesce("globalPid", pl.lit(self.only_process, pl.Int64))
        keys = keys.with_columns(
            process=process_column, device=pl.Series(devices, dtype=pl.Int64), device_unknown=pl.Series(unknown, dtype=pl.Boolean)
        )
        rows = rows.join(keys, on=["globalPid", "contextId", "deviceId"], how="left", nulls_equal=True, maintain_order="left")
        self.dropped["device_unknown"] += int(rows["device_unknown"].sum())
        return rows

    def up_to_damage(self, table: str) -> Iterator[pl.DataFrame]:
        """Yield process, device, start_ns and end_ns of the readable rows of a table.

        They also end at a row without a start: SQLite reads the missing part of a cut page as nulls.
        """
        numbers = ("start", "end", "deviceId", "contextId", "globalPid")
        kind = "sync" if table == self.export.table(schema.SYNC) else "kernel"
        for batch in self.export.batches(table, numbers):
            rows = _frame(numbers, batch)
            empty = rows["start"].is_null().arg_true()
            rows = self._devices(kind, rows.head(empty[0]) if len(empty) else rows)
            yield rows.filter(pl.col("end") >= pl.col("start")).select("process", "device", start_ns="start", end_ns="end")
            if len(empty):
                return

    def _named(self, rows: pl.DataFrame, texts: pl.Series) -> pl.DataFrame:
        """Return the rows with possible times, with the ids of their names."""
        return _sane(rows.with_columns(name=self.names.ids(texts)), self.dropped)

    def kernels(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        numbers = (
            *self._BASIC, "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "staticSharedMemory",
            "dynamicSharedMemory",
        )  # fmt: skip
        texts = ("mangledName", "demangledName", "shortName", "name")  # symbols become names as those of other sources do
        for batch in self.export.batches(table, (*numbers, *texts)):
            rows = _frame(numbers, batch)
            kernels = self._device(
                "kernel",
                self._named(rows, self.names.texts(batch[len(numbers) :])),
                **{f"{size}_{axis}": pl.col(f"{size}{axis.upper()}") for size in ("grid", "block") for axis in "xyz"},
                registers=pl.col("registersPerThread"),
                shared_memory=pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory"),
            )
            yield DEVICE, kernels, rows.height

    def graphs(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        """Yield executions of CUDA graphs recorded without their nodes, as kernels."""
        numbers = (*self._BASIC, "graphId")
        for batch in self.export.batches(table, numbers):
            rows = _frame(numbers, batch)
            texts = rows.select(pl.format("CUDA graph {} (as a whole)", pl.col("graphId").fill_null(0))).to_series()
            kept = self._named(rows, texts)
            self.dropped["whole_graphs"] += kept.height
            yield DEVICE, self._device("kernel", kept), rows.height

    def copies(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        numbers = (*self._BASIC, "bytes", "copyKind", "srcKind", "dstKind")
        kinds, memory = copy_kinds(self.export), memory_kinds(self.export)
        for batch in self.export.batches(table, numbers):
            rows = self._sized(_frame(numbers, batch))
            sorts = rows.select("copyKind", "srcKind", "dstKind").unique(maintain_order=True)
            described = [_copy(kinds.get(kind), memory.get(source), memory.get(target)) for kind, source, target in sorts.rows()]
            sorts = sorts.with_columns(
                name=pl.Series(self.names.name_ids([name for name, _, _ in described]), dtype=pl.Int32),
                copy_kind=pl.Series([kind for _, kind, _ in described], dtype=pl.String),
                pageable=pl.Series([pageable for _, _, pageable in described], dtype=pl.Boolean),
            )
            kept = _sane(rows, self.dropped).join(
                sorts, on=["copyKind", "srcKind", "dstKind"], how="left", nulls_equal=True, maintain_order="left"
            )
            columns = {name: pl.col(name) for name in ("bytes", "copy_kind", "pageable")}
            yield DEVICE, self._device("memcpy", kept, **columns), rows.height

    def memsets(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        numbers = (*self._BASIC, "bytes", "memKind")
        memory = memory_kinds(self.export)
        for batch in self.export.batches(table, numbers):
            rows = self._sized(_frame(numbers, batch))
            where = {kind: f"Memset ({memory.get(kind, 'Unknown')})" for kind in rows["memKind"].unique().drop_nulls().sort().to_list()}
            texts = rows["memKind"].replace_strict(list(where), list(where.values()), default=None, return_dtype=pl.String)
            kept = self._named(rows, texts.fill_null("Memset"))
            yield DEVICE, self._device("memset", kept, bytes=pl.col("bytes")), rows.height

    def _sized(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Replace negative sizes, which are damage, by null; the operation keeps its time."""
        self.dropped["negative_bytes"] += rows.filter(pl.col("bytes") < 0).height
        return rows.with_columns(bytes=pl.when(pl.col("bytes") >= 0).then("bytes"))

    def syncs(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        numbers = (*self._BASIC, "syncType", "deprecatedSyncType")
        kinds = sync_kinds(self.export)
        for batch in self.export.batches(table, numbers):
            rows = _frame(numbers, batch)
            kind = rows.select(pl.coalesce("syncType", "deprecatedSyncType")).to_series()
            texts = kind.replace_strict(list(kinds), list(kinds.values()), default="Synchronization", return_dtype=pl.String)
            yield DEVICE, self._device("sync", self._named(rows, texts)), rows.height

    # -- on the host ---------------------------------------------------------------------------------------------------

    def _host(self, kinds: pl.Expr, rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
        """Return rows of host_event with additional ``columns``."""
        kind, correlation = kinds.cast(_HOST_KIND), _no_zero("correlationId")
        return rows.select(*self._thread(), "name", "duration_ns", *columns, kind=kind, start_ns="start", correlation=correlation)

    def _thread(self) -> tuple[pl.Expr, pl.Expr]:
        """Return the process and the thread that a global thread id names."""
        thread = pl.col("globalTid") & 0xFFFFFF
        process = pl.coalesce(pl.col("globalTid") - thread, pl.lit(self.only_process, pl.Int64))
        return process.alias("process"), thread.alias("tid")

    def calls(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        numbers = ("start", "end", "globalTid", "correlationId")
        for batch in self.export.batches(table, (*numbers, "nameId", "name")):
            rows = _frame(numbers, batch)
            texts = self.names.texts(batch[4:]).str.replace(_VERSION, "")
            kept = self._named(rows.with_columns(call=self._features(texts)["call"]), texts)
            yield HOST, self._host(pl.col("call").cast(pl.String), kept), rows.height

    def overhead(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        numbers = ("start", "end", "globalTid", "correlationId")
        for batch in self.export.batches(table, (*numbers, "nameId", "name")):
            rows = _frame(numbers, batch)
            # The correlation is dropped: it is that of the call next to it, and this is not another launch.
            kept = self._named(rows, self.names.texts(batch[4:])).with_columns(correlationId=pl.lit(None, pl.Int64))
            yield HOST, self._host(pl.lit("overhead"), kept), rows.height

    def _features(self, texts: pl.Series) -> pl.DataFrame:
        """Return the features of names (categories.py), computed once per distinct name."""
        distinct = texts.unique(maintain_order=True)
        known = distinct.to_frame("text").hstack(features(distinct))
        return texts.to_frame("text").join(known, on="text", how="left", maintain_order="left")

    # -- NVTX ----------------------------------------------------------------------------------------------------------

    def ranges(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        """Yield ranges as annotations; those of PyTorch's emit_nvtx as operators."""
        domains = self._domains(table)
        numbers: tuple[str, ...] = ("start", "end", "eventType", "globalTid", "domainId")
        if not self.export.has(table, "eventType"):  # then there are no marks
            numbers = ("start", "end", "globalTid", "domainId")
        for batch in self.export.batches(table, (*numbers, "text", "textId")):
            rows = _frame(numbers, batch)
            if "eventType" not in rows.columns:
                rows = rows.with_columns(eventType=pl.lit(59, pl.Int64))
            is_range = rows["eventType"].is_in(_RANGE_TYPES).fill_null(False)
            self.dropped["marks"] += int((~is_range & (rows["eventType"] != _DOMAIN_TYPE).fill_null(True)).sum())
            self.dropped["domains"] += int((rows["eventType"] == _DOMAIN_TYPE).sum())
            named = rows.hstack(self._range_columns(self.names.texts(batch[len(numbers) :])))
            open_now = pl.col("end").is_null() | pl.col("eventType").is_in(_OPEN_TYPES) | ((pl.col("end") == 0) & (pl.col("start") > 0))
            kept = named.with_columns(end=pl.when(~open_now).then("end")).filter(is_range)
            kept = _sane(kept, self.dropped, unclosed=True).with_columns(
                complete=pl.col("end").is_not_null(), correlationId=pl.lit(None, pl.Int64)
            )
            operator = pl.col("kind").is_not_null() & pl.col("complete")
            self.of_torch = self.of_torch or "operator" in kept["kind"]
            yield HOST, self._host(pl.col("kind"), kept.filter(operator), "signature", "sequence"), rows.height
            yield RANGES, self._ranges(kept.filter(~operator), domains), 0

    def _range_columns(self, texts: pl.Series) -> pl.DataFrame:
        """Return name id, final number, kind, signature and sequence number.

        The kind is that of a host event, null for an annotation."""
        distinct = texts.unique(maintain_order=True).alias("text")
        of_torch = distinct.str.contains(_TORCH)
        stripped = distinct.to_frame().select(
            pl.when(of_torch).then(pl.col("text").str.replace(_TORCH_REST, "")).otherwise("text").alias("short")
        )["short"]
        known = self._features(stripped)
        kind = (
            pl.when(known["loader"])
            .then(pl.lit("loader"))
            .when(of_torch & stripped.str.contains(_OPERATOR) & ~known["step"])
            .then(pl.lit("operator"))
        )
        numbers = distinct.to_frame().select(
            dims=pl.when(of_torch).then(pl.col("text").str.extract(_SIZES, 1)),
            sequence=pl.when(of_torch).then(pl.col("text").str.extract(_SEQUENCE, 1)).cast(pl.Int64),
        )
        dims = numbers["dims"].unique(maintain_order=True)
        signatures = numbers["dims"].replace_strict(dims, self.names.signature_ids(dims.to_frame("input_dims")), return_dtype=pl.Int32)
        table = distinct.to_frame().with_columns(
            name=self.names.ids(stripped), value=known["value"], kind=kind, signature=signatures, sequence=numbers["sequence"]
        )
        return texts.to_frame("text").join(table, on="text", how="left", maintain_order="left").drop("text")

    def _ranges(self, rows: pl.DataFrame, domains: pl.DataFrame) -> pl.DataFrame:
        process, thread = self._thread()
        return (
            rows.with_columns(process, thread)
            .join(domains, on=["process", "domainId"], how="left", maintain_order="left")
            .select(
                "process", "tid", "name", "value", "complete", side=pl.lit("host"), start_ns="start",
                duration_ns=pl.col("duration_ns").cast(pl.Int64),
                arguments=pl.when(pl.col("domain").is_not_null()).then(pl.struct("domain").struct.json_encode()),
            )
        )  # fmt: skip

    def _domains(self, table: str) -> pl.DataFrame:
        """Return the names of the domains of NVTX by process and number."""
        domains: dict[tuple[int | None, int], str] = {}
        if self.export.has(table, "eventType"):
            columns = ("globalTid", "domainId", "text", "textId")
            for threads, numbers, *texts in self.export.batches(table, columns, schema.MOST_ROWS, ("eventType", _DOMAIN_TYPE)):
                for thread, number, text in zip(integers(threads), integers(numbers), self.names.texts(texts), strict=True):
                    if number is not None and text:
                        process = self.only_process if thread is None else thread - (thread & 0xFFFFFF)
                        domains.setdefault((process, number), text[:200])
        kinds = {"process": pl.Int64, "domainId": pl.Int64, "domain": pl.String}
        return pl.DataFrame([(*key, name) for key, name in domains.items()], schema=kinds, orient="row")


def _copy(kind: str | None, source: str | None, target: str | None) -> tuple[str, str | None, bool | None]:
    """Return name, direction and pageability of copies as PyTorch's traces do."""
    direction = kind.removeprefix("unified ") if kind else None
    unified = direction != kind
    ends_text = f"({source} -> {target})" if source and target else "(Unified)" if unified else ""
    name = " ".join(part for part in ("Memcpy", direction, ends_text) if part)
    ends = {source, target}
    pageable = None if unified else True if "Pageable" in ends else False if "Pinned" in ends else None
    return name, direction if direction in ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH") else None, pageable


def _no_zero(column: str) -> pl.Expr:
    return pl.when(pl.col(column) != 0).then(column)
