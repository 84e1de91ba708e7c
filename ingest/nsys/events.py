"""Which rows of the run store do the rows of an Nsight Systems export's tables of events become? Column by column, one batch at a time.

A frame still has ``process`` (the global process id) and times of the session; nsys.py gives them their place. SQLite does not enforce
the types of columns: what is no whole number where one belongs counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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

LATEST_NS: Final = 2**61
"""Times of a session beyond this, or this far before it, are damage; so sums with the start of the session stay in range."""
_NO_STREAM: Final = 2**32 - 1
_HIGHEST_DEVICE: Final = 1024
_RANGE_TYPES: Final = (35, 37, 59, 60, 70, 71)
"""Ranges of NVTX: pushed and popped, started and ended; the first two where they were never closed."""
_OPEN_TYPES: Final = (35, 37)
_DOMAIN_TYPE: Final = 75
_WHOLE: Final = frozenset({int, type(None)})
_DEVICE_KIND: Final = pl.Enum(DEVICE_KINDS)
_HOST_KIND: Final = pl.Enum(HOST_KINDS)
# What PyTorch's emit_nvtx writes behind the name of an operator: its numbers, the shapes of its inputs.
_TORCH: Final = r", (?:seq|op_id) = -?\d+"
_TORCH_REST: Final = r"(?s)(?:, seq = -?\d+)?(?:, op_id = \d+)?(?:, sizes = \[.*)?(?:, input_op_ids = .*)?$"
_OPERATOR: Final = r"^(?:[a-z_][a-z0-9_]*::[\w.]+$|autograd::engine::evaluate_function: |\w+Backward\d*$)"
_VERSION: Final = r"_v\d{4,5}$"

Batch = Sequence[tuple[Any, ...]]


@dataclass(slots=True)
class Dropped:
    """What was left out or repaired, by the code of its note."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, code: str, count: int) -> None:
        if count:
            self.counts[code] = self.counts.get(code, 0) + count


class Names:
    """The names of one file: texts by their numbers, ids of the store by texts."""

    def __init__(self, export: Export, name_ids: Callable[[Sequence[str]], list[int]]) -> None:
        self.export = export
        self.name_ids = name_ids
        self.strings: dict[int, str | None] = {}
        self.unknown: set[int] = set()

    def texts(self, columns: Sequence[tuple[Any, ...]]) -> pl.Series:
        """Per row the text of the first of ``columns`` that has one: a text by itself, or the number of a string."""
        result = pl.Series([None] * len(columns[0]), dtype=pl.String)
        for values in columns:
            if result.null_count():
                result = result.to_frame("a").select(pl.coalesce("a", pl.lit(self._of(values)))).to_series()
        for values in columns:  # a number that stands for no string is better than none
            if result.null_count():
                numbers = whole(values)
                numbers = numbers.to_frame("n").select(pl.when(pl.col("n") > 0).then("n")).to_series()
                self.unknown.update(numbers.filter(result.is_null()).drop_nulls().unique().to_list()[: schema.MOST_ROWS])
                result = result.to_frame("a").select(pl.coalesce("a", pl.lit("name " + numbers.cast(pl.String)))).to_series()
        return result.fill_null("")

    def _of(self, values: tuple[Any, ...]) -> pl.Series:
        kinds = set(map(type, values))
        if kinds <= {type(None)}:
            return pl.Series([None] * len(values), dtype=pl.String)
        if str in kinds:
            texts = pl.Series([one if type(one) is str else None for one in values], dtype=pl.String)
            return texts.to_frame("t").select(pl.when(pl.col("t") != "").then("t")).to_series()
        numbers = whole(values)
        fresh = [one for one in numbers.unique().drop_nulls().to_list() if one not in self.strings]
        known = self.export.strings(fresh)
        self.strings.update({one: known.get(one) or None for one in fresh})
        found = {one: self.strings[one] for one in numbers.unique().drop_nulls().to_list()}
        return numbers.replace_strict(list(found), list(found.values()), default=None, return_dtype=pl.String)

    def ids(self, texts: pl.Series) -> pl.Series:
        distinct = texts.unique(maintain_order=True)
        return texts.replace_strict(distinct, self.name_ids(distinct.to_list()), return_dtype=pl.Int32)


def whole(values: tuple[Any, ...]) -> pl.Series:
    """A column of whole numbers; null what is none."""
    if set(map(type, values)) <= _WHOLE:
        return pl.Series(values, dtype=pl.Int64)
    return pl.Series([one if type(one) is int else None for one in values], dtype=pl.Int64)


def _frame(names: Sequence[str], batch: Batch) -> pl.DataFrame:
    return pl.DataFrame([whole(values).alias(name) for name, values in zip(names, batch, strict=True)])


def _sane(rows: pl.DataFrame, dropped: Dropped, *, unclosed: bool = False) -> pl.DataFrame:
    """Without the rows whose times cannot be, each kind counted; with ``duration_ns``. ``unclosed``: a range need not have an end."""
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
        dropped.add(code, count)
    return rows.filter(pl.col("reason").is_null()).drop("reason")


@dataclass(slots=True)
class Reader:
    """Reads the tables of one export into frames of the tables of the store."""

    export: Export
    session: Session
    names: Names
    dropped: Dropped
    only_process: int | None
    """Of rows that name no process: the one that the others name."""
    contexts: Mapping[tuple[int | None, int | None], int]
    """The device of a context of a process, as its kernels and copies say."""
    of_torch: bool = False
    """Whether there are operators of PyTorch."""

    def read(self) -> Iterator[tuple[str, str, pl.DataFrame, int]]:
        """Name of the table read, table of the store, rows, and how many rows of the table read they come from."""
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
            table = self.export.table(names)
            if table is not None:
                for store_table, rows, count in read(table):
                    yield table, store_table, rows, count

    # -- on the device -------------------------------------------------------------------------------------------------

    _BASIC = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphNodeId")

    def _device(self, kind: str, rows: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
        """Rows of device_event; ``columns`` beside those that all kinds have."""
        process = pl.coalesce("globalPid", pl.lit(self.only_process, pl.Int64))
        return self._devices(kind, rows).select(
            process.alias("process"),
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
        """The GPU of each row: the process's own number of it, as the GPU of the machine that it is.

        Of a synchronisation the device of its context is taken where that is known: what it names itself is that of the calling thread.
        """
        places = rows.select("globalPid", "contextId", "deviceId").unique()
        devices, unknown = [], []
        for process, context, number in places.rows():
            process = self.only_process if process is None else process
            if number is None or kind == "sync":
                number = self.contexts.get((process, context), self.session.contexts.get((process, context), number))
            device = self.session.devices.get((process, number), number)
            known = device is not None and 0 <= device < _HIGHEST_DEVICE
            devices.append(device if known else 0)
            unknown.append(not known)
        places = places.with_columns(device=pl.Series(devices, dtype=pl.Int64), device_unknown=pl.Series(unknown, dtype=pl.Boolean))
        rows = rows.join(places, on=["globalPid", "contextId", "deviceId"], how="left", nulls_equal=True, maintain_order="left")
        self.dropped.add("device_unknown", int(rows["device_unknown"].sum()))
        return rows

    def up_to_damage(self, table: str) -> Iterator[pl.DataFrame]:
        """GPU and times of the rows of a table of the device that can be read, in the order of the file: process, device, start_ns, end_ns.
        They end at a row without a start, too: of a page that is cut within, SQLite reads as nothing what is missing."""
        numbers = ("start", "end", "deviceId", "contextId", "globalPid")
        kind = "sync" if table == self.export.table(schema.SYNC) else "kernel"
        for batch in self.export.batches(table, numbers):
            rows = _frame(numbers, batch)
            empty = rows["start"].is_null().arg_true()
            rows = self._devices(kind, rows.head(empty[0]) if len(empty) else rows)
            process = pl.coalesce("globalPid", pl.lit(self.only_process, pl.Int64))
            yield rows.filter(pl.col("end") >= pl.col("start")).select(process=process, device="device", start_ns="start", end_ns="end")
            if len(empty):
                return

    def kernels(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        numbers = (
            *self._BASIC, "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "staticSharedMemory",
            "dynamicSharedMemory",
        )  # fmt: skip
        texts = ("mangledName", "demangledName", "shortName", "name")  # symbols become names as those of other sources do
        for batch in self.export.batches(table, (*numbers, *texts)):
            rows = _frame(numbers, batch[: len(numbers)])
            name = self.names.ids(self.names.texts(batch[len(numbers) :]))
            yield (
                DEVICE,
                self._device(
                    "kernel",
                    _sane(rows.with_columns(name=name), self.dropped),
                    **{f"{of}_{axis}": pl.col(f"{of}{axis.upper()}") for of in ("grid", "block") for axis in "xyz"},
                    registers=pl.col("registersPerThread"),
                    shared_memory=pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory"),
                ),
                rows.height,
            )

    def graphs(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        """Runs of whole CUDA graphs, which is what is recorded of a graph unless its nodes are asked for: as one kernel each."""
        numbers = (*self._BASIC, "graphId")
        for batch in self.export.batches(table, numbers):
            rows = _frame(numbers, batch)
            texts = rows.select(pl.format("CUDA graph {} (as a whole)", pl.col("graphId").fill_null(0))).to_series()
            kept = _sane(rows.with_columns(name=self.names.ids(texts)), self.dropped)
            self.dropped.add("whole_graphs", kept.height)
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
            kept = _sane(rows.with_columns(name=self.names.ids(texts.fill_null("Memset"))), self.dropped)
            yield DEVICE, self._device("memset", kept, bytes=pl.col("bytes")), rows.height

    def _sized(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Sizes below 0 are damage: such an operation has its time, and no size."""
        below = rows["bytes"] < 0
        self.dropped.add("negative_bytes", int(below.fill_null(False).sum()))
        return rows.with_columns(bytes=pl.when(pl.col("bytes") >= 0).then("bytes"))

    def syncs(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        numbers = (*self._BASIC, "syncType", "deprecatedSyncType")
        kinds = sync_kinds(self.export)
        for batch in self.export.batches(table, numbers):
            rows = _frame(numbers, batch)
            kind = rows.select(pl.coalesce("syncType", "deprecatedSyncType")).to_series()
            texts = kind.replace_strict(list(kinds), list(kinds.values()), default="Synchronisation", return_dtype=pl.String)
            yield DEVICE, self._device("sync", _sane(rows.with_columns(name=self.names.ids(texts)), self.dropped)), rows.height

    # -- on the host ---------------------------------------------------------------------------------------------------

    def _host(self, kinds: pl.Expr, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(
            *self._thread(),
            kind=kinds.cast(_HOST_KIND),
            name="name",
            start_ns="start",
            duration_ns="duration_ns",
            correlation=_no_zero("correlationId"),
        )

    def _thread(self) -> tuple[pl.Expr, pl.Expr]:
        """The process and the thread that a global thread id names."""
        thread = pl.col("globalTid")
        return pl.coalesce(thread - (thread & 0xFFFFFF), pl.lit(self.only_process, pl.Int64)).alias("process"), (thread & 0xFFFFFF).alias(
            "tid"
        )

    def calls(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        numbers = ("start", "end", "globalTid", "correlationId")
        for batch in self.export.batches(table, (*numbers, "nameId", "name")):
            rows = _frame(numbers, batch[:4])
            texts = self.names.texts(batch[4:]).str.replace(_VERSION, "")
            kept = _sane(rows.with_columns(name=self.names.ids(texts), call=self._features(texts)["call"]), self.dropped)
            yield HOST, self._host(pl.col("call").cast(pl.String), kept), rows.height

    def overhead(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        numbers = ("start", "end", "globalTid", "correlationId")
        for batch in self.export.batches(table, (*numbers, "nameId", "name")):
            rows = _frame(numbers, batch[:4])
            kept = _sane(rows.with_columns(name=self.names.ids(self.names.texts(batch[4:]))), self.dropped)
            # Its correlation is that of the call beside it, which is no launch of its own.
            kept = kept.with_columns(correlationId=pl.lit(None, pl.Int64))
            yield HOST, self._host(pl.lit("overhead"), kept), rows.height

    def _features(self, texts: pl.Series) -> pl.DataFrame:
        """What the names say (categories.py), asked once per distinct name."""
        distinct = texts.unique(maintain_order=True)
        known = distinct.to_frame("text").hstack(features(distinct))
        return texts.to_frame("text").join(known, on="text", how="left", maintain_order="left")

    # -- NVTX ----------------------------------------------------------------------------------------------------------

    def ranges(self, table: str) -> Iterator[tuple[str, pl.DataFrame, int]]:
        """Ranges as annotations; those that PyTorch's emit_nvtx wrote of operators as operators, without their numbers."""
        domains = self._domains(table)
        numbers: tuple[str, ...] = ("start", "end", "eventType", "globalTid", "domainId")
        if not self.export.has(table, "eventType"):  # then there are no marks
            numbers = ("start", "end", "globalTid", "domainId")
        for batch in self.export.batches(table, (*numbers, "text", "textId")):
            rows = _frame(numbers, batch[: len(numbers)])
            if "eventType" not in rows.columns:
                rows = rows.with_columns(eventType=pl.lit(59, pl.Int64))
            is_range = rows["eventType"].is_in(_RANGE_TYPES).fill_null(False)
            self.dropped.add("marks", int((~is_range & (rows["eventType"] != _DOMAIN_TYPE).fill_null(True)).sum()))
            self.dropped.add("domains", int((rows["eventType"] == _DOMAIN_TYPE).sum()))
            texts = self.names.texts(batch[len(numbers) :])
            features = self._told(texts)
            open_now = pl.col("end").is_null() | pl.col("eventType").is_in(_OPEN_TYPES) | ((pl.col("end") == 0) & (pl.col("start") > 0))
            kept = rows.hstack(features).with_columns(end=pl.when(~open_now).then("end")).filter(is_range)
            kept = _sane(kept, self.dropped, unclosed=True).with_columns(
                complete=pl.col("end").is_not_null(), correlationId=pl.lit(None, pl.Int64)
            )
            operator = pl.col("kind").is_not_null() & pl.col("complete")
            self.of_torch = self.of_torch or "operator" in kept["kind"]
            yield HOST, self._host(pl.col("kind"), kept.filter(operator)), rows.height
            yield RANGES, self._ranges(kept.filter(~operator), domains), 0

    def _told(self, texts: pl.Series) -> pl.DataFrame:
        """Per text: id of its name, the number at its end, and the kind of host event that it is (null: an annotation)."""
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
        table = distinct.to_frame().with_columns(name=self.names.ids(stripped), value=known["value"], kind=kind)
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
        """The names of the domains of NVTX by process and number."""
        names: dict[tuple[int | None, int], str] = {}
        if self.export.has(table, "eventType"):
            columns = ("globalTid", "domainId", "text", "textId")
            for threads, numbers, *texts in self.export.batches(table, columns, schema.MOST_ROWS, ("eventType", _DOMAIN_TYPE)):
                named = pl.DataFrame(
                    [whole(threads).alias("thread"), whole(numbers).alias("number"), self.names.texts(texts).alias("text")]
                )
                for thread, number, text in named.rows():
                    if number is not None and text:
                        process = self.only_process if thread is None else thread - (thread & 0xFFFFFF)
                        names.setdefault((process, number), text[:200])
        processes, numbers = zip(*names, strict=True) if names else ((), ())
        kinds = {"process": pl.Int64, "domainId": pl.Int64, "domain": pl.String}
        return pl.DataFrame({"process": processes, "domainId": numbers, "domain": list(names.values())}, schema=kinds)


def _copy(kind: str | None, source: str | None, target: str | None) -> tuple[str, str | None, bool | None]:
    """Name, direction and pageability of copies of one sort, as traces of PyTorch name them."""
    direction = kind.removeprefix("unified ") if kind else None
    unified = kind is not None and kind.startswith("unified ")
    places = f"({source} -> {target})" if source and target else "(Unified)" if unified else ""
    name = " ".join(part for part in ("Memcpy", direction, places) if part)
    ends = {source, target}
    pageable = None if unified else True if "Pageable" in ends else False if "Pinned" in ends else None
    return name, direction if direction in ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH") else None, pageable


def _no_zero(column: str) -> pl.Expr:
    return pl.when(pl.col(column) != 0).then(column)
