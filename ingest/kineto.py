"""What does a PyTorch profiler trace (Kineto; Chrome trace JSON, plain or compressed) say, and which rows does it become?

The text is inflated and scanned in one thread (:mod:`.trace_scan`) and turned into rows of the run store, column by column, in
another; memory does not grow with the length of the trace. Times are exact: microseconds as text -> int64 nanoseconds, plus
``baseTimeNanoseconds``, which may stand behind the events.

Every event is accounted for: X, B and E events in the file = rows stored + events that an ``ingest_note`` counts (codes in
``NOT_STORED``) + end events that closed a range.
"""

from __future__ import annotations

import json
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from .categories import ANNOTATION, DEVICE_ANNOTATION, DEVICE_KINDS, HOST_KINDS, ROUTE, SKIPPED, features, route_of
from .devices import add_devices, device_names
from .identity import Facts, Identity, Placement, identify
from .inflate import Inflate
from .ranges import BEGIN, END, depths, pair
from .registry import ReadResult
from .store import SCHEMA, Severity, Store
from .tensors import output_and_input, tensors
from .trace_notes import TRUNCATING, note_defects, note_info_lines
from .trace_scan import Arg, Batch, TraceScan, text_id

BATCH_BYTES: Final = 48 << 20
"""How much decompressed text is turned into rows at a time."""
FLUSH_ROWS: Final = 300_000
"""How many rows of a table are collected before they go to the store; traces with fewer are stored in one go."""
DEPTH_ROWS: Final = 2_000_000
"""Annotations up to this many per file get their nesting depth; beyond it ``depth`` stays null."""
YEAR_2001_NS: Final = 978_307_200 * 10**9
"""Times before are taken to count from an unknown moment, not from the Unix epoch."""
LONGEST_NS: Final = 7 * 86_400 * 10**9
"""Longer durations (236 years have been seen) are defects of the profiler."""
ROUNDING_NS: Final = 1_000
"""Negative durations down to this come from rounding to microseconds."""
HIGHEST_DEVICE: Final = 1024
"""A pid below this may be the index of a device."""
CYCLE_IDS: Final = 1 << 40
"""Correlations and external ids count from the start again in every file of a process; this much is between those of two files."""

NOT_STORED: Final = ("category_not_read", "zero_time", "absurd_duration", "negative_duration", "stray_end", "no_timestamp")
"""Codes of notes whose counts are X, B and E events of a file that gave no row."""

_ARGS: Final[Mapping[str, Arg]] = {
    "device": Arg("device", "int"),
    "context": Arg("context", "int"),
    "stream": Arg("stream", "int"),
    "correlation": Arg("correlation", "int"),
    "External id": Arg("external_id", "int"),
    "external id": Arg("external_id", "int"),
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
    "Process Group Ranks": Arg("group_ranks", "text"),
    "Group size": Arg("group_size", "int"),
    # of collectives: their tensors, where the shapes of operators were recorded
    "Input Dims": Arg("shapes", "text"),
    "Input type": Arg("element_types", "text"),
}
_WIDE_CATEGORIES: Final = ("user_annotation", "cpu_instant_event")
_WIDE_ARGS: Final[Mapping[str, Arg]] = {
    # of the allocator's events
    "Device Type": Arg("device_type", "int"),
    "Device Id": Arg("device_id", "int"),
    "Bytes": Arg("size", "int"),
    "Total Allocated": Arg("allocated", "int"),
    "Total Reserved": Arg("reserved", "int"),
}
_SESSION: Final = "trace"
"""Category, in small letters, of the markers of the profiler's own session."""
_PROFILER: Final = "PyTorch Profiler"
_ALLOCATION: Final = "[memory]"
_HOST_TYPE: Final = 0
"""PyTorch's number of the processor as a type of device."""
_COLLECTIVE: Final = "nccl:"
"""Before the names of the ranges in which PyTorch's NCCL process group launches a collective."""
_GATHERS: Final = {
    "c10d::_allgather_base_": "_allgather_base",
    "c10d::allgather_": "allgather",
    "c10d::_reduce_scatter_base_": "_reduce_scatter_base",
    "c10d::reduce_scatter_": "reduce_scatter",
}
"""Operators around these ranges whose first two arguments are what a rank gets and gives: one is the other times the ranks of the group."""
_DEVICE_ENUM: Final = pl.Enum(DEVICE_KINDS)
_HOST_ENUM: Final = pl.Enum(HOST_KINDS)
_CYCLE_COLUMNS: Final = ("correlation", "external_id")
_COLLECTIVE_COLUMNS: Final = [column for column in SCHEMA["collective"] if column not in ("node", "process")]
_FIRST_HOST: Final = len(DEVICE_KINDS)
_FIRST_ANNOTATION: Final = _FIRST_HOST + len(HOST_KINDS)

Progress = Callable[[float], None]


def read_trace(
    store: Store, placement: Placement, path: Path, source: int, head: bytes = b"", progress: Progress | None = None
) -> TraceResult:
    """Store the events of the trace ``path`` and note everything that was repaired, dropped or guessed.

    ``head``: the beginning of the decompressed text, where it is known; what it says about the process saves work later.
    ``progress`` is called with the fraction that has been read. Damaged text never raises.
    """
    scan = TraceScan(args=_ARGS, wide_args=_WIDE_ARGS, wide_categories=_WIDE_CATEGORIES)
    inflate = Inflate(path)
    trace = _Trace(store, placement, path, source, header_members(head))
    for batch in batches(inflate, scan, path.stat().st_size, progress):
        trace.add(batch)
    return trace.finish(scan, inflate)


def header_members(head: bytes) -> dict[str, Any]:
    """The top-level members before ``traceEvents``, as far as the beginning of the text has them completely ({} where not)."""
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    before, found, _ = text.partition('"traceEvents"')
    if not found or not text.startswith("{"):
        return {}
    try:
        members = json.loads(before + '"traceEvents": []}', strict=False)
    except (ValueError, RecursionError):
        return {}
    return {key: value for key, value in members.items() if key != "traceEvents"} if isinstance(members, dict) else {}


def batches(inflate: Inflate, scan: TraceScan, size: int, progress: Progress | None) -> Iterator[Batch]:
    """Batches of the whole file. Inflating and scanning run in a thread of their own, at most two batches ahead."""
    ready: queue.Queue[Batch | BaseException | None] = queue.Queue(1)
    stop = threading.Event()

    def put(item: Batch | BaseException | None) -> None:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            fed = 0
            for chunk in inflate:
                scan.feed(chunk)
                fed += len(chunk)
                if fed >= BATCH_BYTES:
                    put(scan.take())
                    fed = 0
                if stop.is_set():
                    return
            scan.finish()
            put(scan.take())
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="postrun-scan", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            if progress is not None and size:
                progress(min(inflate.read_bytes / size, 1.0))
            yield item
    finally:
        stop.set()
        thread.join()


@dataclass(frozen=True, slots=True)
class TraceResult(ReadResult):
    """``metadata``: the small scalar members of the trace. ``process``: its row. ``framework``: PyTorch, or None where not said."""

    metadata: dict[str, Any] = field(default_factory=dict)
    process: int | None = None
    framework: str | None = None

    @property
    def processes(self) -> tuple[int, ...]:
        """The rows of all processes whose rank can be asked for."""
        return () if self.process is None else (self.process,)


@dataclass(slots=True)
class _Dropped:
    """Events of one kind that were not stored, or not as they stand."""

    count: int = 0
    first_ns: int | None = None
    last_ns: int | None = None


class _Trace:
    """One file on its way into the store."""

    def __init__(self, store: Store, placement: Placement, path: Path, source: int, header: dict[str, Any]) -> None:
        self.store = store
        self.placement = placement
        self.path = path
        self.source = source
        self.header = header
        self.names = Names(store)
        self.waiting: dict[str, list[pl.DataFrame]] = {
            "device_event": [], "host_event": [], "annotation": [], "collective": [], "allocation": [],
        }  # fmt: skip
        self.flushed = dict.fromkeys(self.waiting, 0)
        self.first_row: dict[str, int] = {}
        self.open_ranges: list[pl.DataFrame] = []
        self.dropped: dict[str, _Dropped] = {}
        self.host_pids: Counter[int] = Counter()
        self.python_pids: Counter[int] = Counter()
        self.devices: set[int] = set()
        self.instants_read = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.on: tuple[int, int] | None = None
        self.place: tuple[int, int] | None = None
        self.identity: Identity | None = None
        self.base_ns = _base_time(header)

    # -- taking in -----------------------------------------------------------------------------------------------------

    def add(self, batch: Batch) -> None:
        """Turn a batch into rows; those of its begin and end events have to wait for the end of the file."""
        self.names.add(batch.strings)
        events, wide = pl.from_arrow(batch.events), pl.from_arrow(batch.wide)
        assert isinstance(events, pl.DataFrame)
        assert isinstance(wide, pl.DataFrame)
        if wide.height:
            self._allocation_rows(wide.filter(pl.col("phase") == INSTANT))
            wide = wide.filter(pl.col("phase") != INSTANT)
            self._shaped_rows(wide)
            events = pl.concat([events, wide.select(events.columns)], how="vertical")
        if events.is_empty():
            return
        self._gather_rows(events)
        ranges = events.filter(pl.col("phase").is_in([BEGIN, END])).sort("ordinal")
        if ranges.height:
            self.open_ranges.append(ranges)
            events = events.filter(~pl.col("phase").is_in([BEGIN, END]))
        self._rows(events.with_columns(complete=pl.lit(True)), other=SKIPPED)
        for table, frames in self.waiting.items():
            if table != "annotation" and sum(frame.height for frame in frames) >= FLUSH_ROWS:
                self._flush(table)
        if sum(frame.height for frame in self.waiting["annotation"]) >= DEPTH_ROWS:
            self._flush("annotation")

    def _rows(self, events: pl.DataFrame, other: str) -> None:
        """Sort events into the tables. ``other``: where events of an unknown category go."""
        events = events.with_columns(route=self._routes(events["category"], other))
        events = self._sane(events)
        if events.is_empty():
            return
        self.names.intern(events["name"])
        kind = events["route"].to_physical()
        known = self.names.of(events["name"], ["id", "call", "loader", "step", "value"])
        events = events.with_columns(kind=kind, name_id=known["id"], value=known["value"])
        host = pl.col("kind").is_between(_FIRST_HOST, _FIRST_ANNOTATION)  # annotation included, device annotation not
        route = (
            pl.when(host & known["loader"].fill_null(False) & (pl.col("route") != "python"))
            .then(pl.lit("loader", ROUTE))
            .when((pl.col("route") == "operator") & known["step"].fill_null(False))
            .then(pl.lit(ANNOTATION, ROUTE))
            .when(pl.col("route") == "call")
            .then(known["call"])
            .otherwise("route")
        )
        events = events.with_columns(route=route).with_columns(kind=pl.col("route").to_physical())
        first, last = events.select(
            pl.col("start_ns").min().alias("first"), (pl.col("start_ns") + pl.col("duration_ns")).max().alias("last")
        ).row(0)
        self.first_ns = first if self.first_ns is None else min(self.first_ns, first)
        self.last_ns = last if self.last_ns is None else max(self.last_ns, last)
        if "operation" in events.columns:  # ranges of begin and end events have no such
            self._collective_rows(events.filter(pl.col("operation").is_not_null()))
        self._device_rows(events.filter(pl.col("kind") < _FIRST_HOST))
        self._host_rows(events.filter(pl.col("kind").is_between(_FIRST_HOST, _FIRST_ANNOTATION - 1)))
        self._annotation_rows(events.filter(pl.col("kind") >= _FIRST_ANNOTATION))

    def _routes(self, categories: pl.Series, other: str) -> pl.Series:
        """Where each event goes, by its category."""
        found = {None: other}
        for category in categories.unique().drop_nulls():
            route = route_of(self.names.text(category))
            found[category] = other if route == SKIPPED else route
        return categories.replace_strict(list(found), list(found.values()), return_dtype=ROUTE)

    def _sane(self, events: pl.DataFrame) -> pl.DataFrame:
        """Without the events that cannot be, each kind counted; small repairs of durations, counted too."""
        skipped = events.filter(pl.col("route") == SKIPPED)
        if skipped.height:
            for category, count in skipped.group_by("category").len().sort("category").iter_rows():
                text = self.names.text(category) if category is not None else ""
                own = skipped.filter(pl.col("category").eq_missing(category))
                self._count(f"category_not_read:{text}", count, own)
                if text.lower() == _SESSION:
                    self._session(own)
            events = events.filter(pl.col("route") != SKIPPED)
        duration, start = pl.col("duration_ns"), pl.col("start_ns")
        device = pl.col("route").to_physical() < _FIRST_HOST
        drops = {
            "zero_time": device & (start == 0) & (duration.fill_null(0) == 0),
            "absurd_duration": duration > LONGEST_NS,
            "negative_duration": duration < -ROUNDING_NS,
        }
        repairs = {"no_duration": duration.is_null(), "rounded_duration": duration.is_between(-ROUNDING_NS, -1)}
        counts = events.select(**{code: test.sum() for code, test in (drops | repairs).items()}).row(0, named=True)
        for code, test in drops.items():
            if counts[code]:
                self._count(code, counts[code], events.filter(test))
                events = events.filter(~test.fill_null(False))
        for code, test in repairs.items():
            if counts[code]:
                self._count(code, counts[code], events.filter(test))
        if counts["no_duration"] or counts["rounded_duration"]:
            events = events.with_columns(duration_ns=pl.max_horizontal(duration.fill_null(0), pl.lit(0)))
        return events

    def _session(self, markers: pl.DataFrame) -> None:
        """When the profiler was on, by its own markers."""
        named = self.names.of(markers["name"], ["text"])["text"].str.starts_with(_PROFILER)
        spans = markers.filter(named.fill_null(False) & pl.col("duration_ns").is_between(0, LONGEST_NS))
        for start, duration in spans.select("start_ns", "duration_ns").iter_rows():
            first, last = self.on or (start, start + duration)
            self.on = min(first, start), max(last, start + duration)

    def _count(self, code: str, count: int, events: pl.DataFrame | None = None) -> None:
        times = [] if events is None else [_int(events["start_ns"].min()), _int(events["start_ns"].max())]
        known = self.dropped.setdefault(code, _Dropped())
        known.count += count
        known.first_ns = min((t for t in [known.first_ns, *times] if t is not None), default=None)
        known.last_ns = max((t for t in [known.last_ns, *times] if t is not None), default=None)

    def _device_rows(self, events: pl.DataFrame) -> None:
        if events.is_empty():
            return
        copy = self.names.of(events["name"], ["copy_kind", "pageable"])
        by_kind = self.names.of(events["kind_text"], ["copy_kind"])
        is_copy = pl.col("route") == "memcpy"
        rows = events.select(
            device=pl.coalesce(pl.when(pl.col("device") >= 0).then("device"), _device_of_pid()).cast(pl.Int32, strict=False),
            context="context",
            stream=pl.coalesce("stream", self._stream_of_tid(events["tid"])),
            kind=pl.col("kind").cat.to(_DEVICE_ENUM),
            name="name_id",
            start_ns="start_ns",
            duration_ns="duration_ns",
            correlation=_no_zero("correlation"),
            external_id="external_id",
            bytes="bytes",
            copy_kind=pl.when(is_copy).then(pl.coalesce(copy["copy_kind"], by_kind["copy_kind"])),
            pageable=pl.when(is_copy).then(copy["pageable"]),
            **{name: pl.col(name) for name in events.columns if name.startswith(("grid_", "block_"))},
            registers="registers",
            shared_memory="shared_memory",
            graph_node="graph_node",
        )
        self.devices.update(rows["device"].unique().drop_nulls())
        if unknown := rows["device"].null_count():
            self._count("device_unknown", unknown, events.filter(rows["device"].is_null()))
        self.waiting["device_event"].append(rows)

    def _collective_rows(self, events: pl.DataFrame) -> None:
        """What events of other tables say beside about the collective that they are."""
        if events.is_empty():
            return
        texts = {name: self.names.of(events[name], ["text"])["text"] for name in ("operation", "element_type", "group_name", "group_ranks")}
        on_device = pl.col("kind") < _FIRST_HOST
        self.waiting["collective"].append(
            events.select(
                on_device=on_device,
                tid=pl.when(~on_device).then("tid"),
                start_ns="start_ns",
                duration_ns="duration_ns",
                correlation=_no_zero("correlation"),
                external_id="external_id",
                **texts,
                **{name: pl.col(name) for name in ("in_elements", "out_elements", "group_size")},
            ).select(_COLLECTIVE_COLUMNS)
        )

    def _shaped_rows(self, events: pl.DataFrame) -> None:
        """Collectives whose range says the shapes of the tensors that it was given, as older traces do; of the others it says no more."""
        known = events.filter(pl.col("shapes").is_not_null(), pl.col("element_types").is_not_null(), pl.col("duration_ns") >= 0)
        if known.is_empty():
            return
        texts = {name: self.names.of(known[name], ["text"])["text"] for name in ("name", "shapes", "element_types")}
        known = known.with_columns(**texts).filter(pl.col("name").str.starts_with(_COLLECTIVE))
        found = {key: tensors(*key) for key in known.select("shapes", "element_types").unique().rows()}
        given = [found[key] for key in known.select("shapes", "element_types").rows()]
        sized = known.with_columns(
            in_elements=pl.Series([one[0] for one in given], dtype=pl.Int64),
            element_type=pl.Series([one[1] for one in given], dtype=pl.String),
        ).filter(pl.col("in_elements").is_not_null())
        if sized.height:
            absent = {name: pl.lit(None, pl.Int64) for name in ("correlation", "out_elements", "group_size")}
            self.waiting["collective"].append(
                sized.select(
                    "tid", "start_ns", "duration_ns", "external_id", "element_type", "in_elements",
                    on_device=pl.lit(False),
                    operation=pl.col("name").str.strip_prefix(_COLLECTIVE),
                    group_name=pl.lit(None, pl.String),
                    group_ranks=pl.lit(None, pl.String),
                    **absent,
                ).select(_COLLECTIVE_COLUMNS)
            )  # fmt: skip

    def _gather_rows(self, events: pl.DataFrame) -> None:
        """Operators of collectives that tell by the shapes of what they give and are given how many ranks take part."""
        known = events.filter(pl.col("shapes").is_not_null(), pl.col("element_types").is_not_null(), pl.col("duration_ns") >= 0)
        named = {name: operation for name in known["name"].unique().drop_nulls() if (operation := _GATHERS.get(self.names.text(name)))}
        if not named:
            return
        found = []
        for row in known.filter(pl.col("name").is_in(list(named))).iter_rows(named=True):
            sizes = output_and_input(self.names.text(row["shapes"]), self.names.text(row["element_types"]))
            if sizes is not None and max(sizes[:2]) % min(sizes[:2]) == 0:
                taken, given, element_type = sizes
                found.append(
                    {
                        **{name: row[name] for name in ("tid", "start_ns", "duration_ns", "external_id")},
                        "on_device": False, "operation": named[row["name"]], "element_type": element_type, "in_elements": given,
                        "out_elements": taken, "group_size": max(taken, given) // min(taken, given),
                    }
                )  # fmt: skip
        if found:
            types = {"BOOLEAN": pl.Boolean, "BIGINT": pl.Int64, "VARCHAR": pl.String}
            schema = {name: types[SCHEMA["collective"][name]] for name in _COLLECTIVE_COLUMNS}
            self.waiting["collective"].append(pl.DataFrame(found, schema=schema))

    def _allocation_rows(self, events: pl.DataFrame) -> None:
        """Allocations and releases on devices; those of main memory are counted alone."""
        if events.is_empty():
            return
        names = self.names.of(events["name"], ["text"])["text"]
        events = events.filter(names == _ALLOCATION)
        on_device = (pl.col("device_type") != _HOST_TYPE) & pl.col("device_id").is_between(0, HIGHEST_DEVICE - 1)
        rows = events.filter(on_device, pl.col("allocated").is_not_null())
        self.instants_read += events.height
        if left_out := events.height - rows.height:
            self._count("host_allocations", left_out)
        if rows.height:
            self.waiting["allocation"].append(
                rows.select(
                    pl.col("device_id").cast(pl.Int32).alias("device"), "start_ns", bytes="size", allocated="allocated", reserved="reserved"
                )
            )

    def _host_rows(self, events: pl.DataFrame) -> None:
        if events.is_empty():
            return
        self._count_pids(events)
        self.waiting["host_event"].append(
            events.select(
                tid="tid",
                kind=(pl.col("kind") - _FIRST_HOST).cat.to(_HOST_ENUM),
                name="name_id",
                start_ns="start_ns",
                duration_ns="duration_ns",
                correlation=_no_zero("correlation"),
                external_id="external_id",
            )
        )

    def _annotation_rows(self, events: pl.DataFrame) -> None:
        if events.is_empty():
            return
        on_device = pl.col("route") == DEVICE_ANNOTATION
        self._count_pids(events.filter(~on_device))
        rows = events.select(
            tid="tid",
            side=pl.when(on_device).then(pl.lit("device")).otherwise(pl.lit("host")),
            device=pl.when(on_device).then(pl.coalesce("device", _device_of_pid())).cast(pl.Int32, strict=False),
            stream=pl.when(on_device).then(pl.coalesce("stream", self._stream_of_tid(events["tid"]))),
            name="name_id",
            value="value",
            start_ns="start_ns",
            duration_ns="duration_ns",
            complete="complete",
        )
        self.waiting["annotation"].append(rows)

    def _count_pids(self, events: pl.DataFrame) -> None:
        """Which process ids host events carry; Python functions are counted apart, some traces give them pid 0."""
        for pid, python, count in events.group_by("pid", pl.col("route") == "python").len().iter_rows():
            if pid is not None and pid >= 0:
                (self.python_pids if python else self.host_pids)[pid] += count

    def _stream_of_tid(self, tids: pl.Series) -> pl.Series:
        """Device rows of a trace carry the stream as their thread: a number, or a text such as "stream 7"."""
        found: dict[int, int | None] = {}
        for tid in tids.unique().drop_nulls():
            string = text_id(tid)
            digits = self.names.text(string).rpartition(" ")[2] if string is not None else ""
            found[tid] = tid if string is None else int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 18 else None
        return tids.replace_strict(list(found), list(found.values()), default=None, return_dtype=pl.Int64)

    # -- giving out ----------------------------------------------------------------------------------------------------

    def _flush(self, table: str) -> None:
        """Rows of one table to the store, under the process that the file seems to belong to so far."""
        frames = self.waiting[table]
        if not frames:
            return
        self.waiting[table] = []
        if self.place is None:
            self.identity = self._identify(self.header)
            self.place = self.placement.place(self.identity, self._facts(self.header), self.source, self.path.name)
        if table not in self.first_row:
            self.first_row[table] = _int(self.store.connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
        node, process = self.place
        rows = pl.concat(frames, how="vertical")
        rows = rows.with_columns(pl.col("start_ns") + self.base_ns, node=pl.lit(node, pl.Int32), process=pl.lit(process, pl.Int32))
        if cycle := self.placement.cycle(process, self.source):
            rows = rows.with_columns(of_cycle(column, cycle) for column in _CYCLE_COLUMNS if column in rows.columns)
        self.flushed[table] += rows.height
        self.store.append(table, rows)

    def _identify(self, members: Mapping[str, Any]) -> Identity:
        counted = self.host_pids if any(self.host_pids) else self.python_pids
        pids = sorted(((count, -pid) for pid, count in counted.items() if pid > 0), reverse=True)
        return identify(members, self.path, -pids[0][1] if pids else None)

    def _facts(self, members: Mapping[str, Any]) -> Facts:
        first, last = self.first_ns or 0, self.last_ns or 0
        return Facts(device_names(members, self.devices), frozenset(self.devices), first + self.base_ns, last + self.base_ns)

    def finish(self, scan: TraceScan, inflate: Inflate) -> TraceResult:
        """Store what has waited for the end of the file, correct what was stored on less knowledge, write the notes."""
        members = {**self.header, **scan.members}
        self._close_ranges()
        self._settle_base(_base_time(members))
        identity = self._identify(members)
        facts = self._facts(members)
        if self.place is None:
            self.place = self.placement.place(identity, facts, self.source, self.path.name)
        elif identity != self.identity or any(self.flushed.values()):
            self._settle_place(identity, facts, members)
        self.identity = identity
        if self.waiting["annotation"] and not self.flushed["annotation"]:
            rows = pl.concat(self.waiting["annotation"])
            depth = depths(rows, ["side", "device", "tid"])
            self.waiting["annotation"] = [rows.with_columns(depth=depth)]
        for table in self.waiting:
            self._flush(table)
        if "device_unknown" in self.dropped:
            self._settle_device()
        if any(self.flushed.values()) and self.first_ns is not None and self.last_ns is not None:
            window = {"first_ns": self.first_ns + self.base_ns, "last_ns": self.last_ns + self.base_ns}
            if self.on is not None and self.on[0] < self.last_ns and self.first_ns < self.on[1]:
                window |= {"on_ns": self.on[0] + self.base_ns, "off_ns": self.on[1] + self.base_ns}
            self.store.insert("profile_window", {"process": self.place[1], "source": self.source, **window})
        if add_devices(self.store, self.place[0], members, self.devices):
            self.store.note(
                "info",
                "device_renumbered",
                f"The trace lists one device and uses one of another number; both are shown as device {min(self.devices)}.",
                source=self.source,
                file=self.path.name,
            )
        return self._notes(scan, inflate, members)

    def _close_ranges(self) -> None:
        if not self.open_ranges:
            return
        events = pl.concat(self.open_ranges)
        self.open_ranges = []
        last = _int(events["start_ns"].max())
        ranges, strays = pair(events, last if self.last_ns is None else max(last, self.last_ns))
        if strays:
            self._count("stray_end", strays)
        if open_ones := ranges.filter(~pl.col("complete")).height:
            self._count("unclosed_begin", open_ones, ranges.filter(~pl.col("complete")))
        self._rows(ranges, other=ANNOTATION)

    def _settle_base(self, base_ns: int) -> None:
        """Take the base time that the whole file gives; rows that went to the store with another one are moved."""
        if self.first_ns is not None and base_ns and self.first_ns >= YEAR_2001_NS:
            self._count("base_time_ignored", 1)
            base_ns = 0
        for table, first_row in self.first_row.items():
            if base_ns != self.base_ns:
                self.store.connection.execute(
                    f"UPDATE {table} SET start_ns = start_ns + ? WHERE rowid >= ?", [base_ns - self.base_ns, first_row]
                )
        self.base_ns = base_ns

    def _settle_device(self) -> None:
        """Give the events that name no device the trace's only one, else number 0: a device has to be one of the machine's."""
        device = min(self.devices) if len(self.devices) == 1 else 0
        self.devices.add(device)
        self.store.connection.execute(
            "UPDATE device_event SET device = ? WHERE rowid >= ? AND device IS NULL", [device, self.first_row["device_event"]]
        )

    def _settle_place(self, identity: Identity, facts: Facts, members: Mapping[str, Any]) -> None:
        assert self.place is not None
        place = self.placement.replace(*self.place, identity, facts, self.source, self.path.name)
        if place != self.place:
            before, after = (self.placement.cycle(process, self.source) for process in (self.place[1], place[1]))
            for table, first_row in self.first_row.items():
                self.store.connection.execute(f"UPDATE {table} SET node = ?, process = ? WHERE rowid >= ?", [*place, first_row])
                for column in _CYCLE_COLUMNS if before != after and _CYCLE_COLUMNS[0] in SCHEMA[table] else ():
                    self.store.connection.execute(
                        f"UPDATE {table} SET {column} = {column} + ? WHERE rowid >= ? AND {column} BETWEEN ? AND ?",
                        [(after - before) * CYCLE_IDS, first_row, before * CYCLE_IDS + 1, (before + 1) * CYCLE_IDS - 1],
                    )
        self.place = place

    def _notes(self, scan: TraceScan, inflate: Inflate, members: Mapping[str, Any]) -> TraceResult:
        file = self.path.name
        defects = [*inflate.defects, *scan.defects]
        note_defects(self.store, self.source, file, defects)
        note_info_lines(self.store, self.source, file, members.get("INFO"))
        for code, dropped in sorted(self.dropped.items()):
            self._note_dropped(code, dropped)
        unread = sum(n for (phase, _), n in scan.event_counts.items() if phase not in _READ_PHASES) - self.instants_read
        if unread:
            kinds = Counter[str]()
            for (phase, _), n in scan.event_counts.items():
                kinds[_PHASES.get(phase, "other")] += n if phase not in _READ_PHASES else 0
            kinds["instants"] -= self.instants_read
            parts = ", ".join(f"{n:,} {kind}" for kind, n in sorted(kinds.items()) if n)
            self.store.note(
                "info", "phase_not_read", f"Events without a duration are not stored: {parts}.",
                count=unread, source=self.source, file=file,
            )  # fmt: skip
        # Rows of collectives are events of the other tables, too; allocations are instants.
        stored = sum(rows for table, rows in self.flushed.items() if table not in ("collective", "allocation"))
        relative = stored > 0 and self.first_ns is not None and self.first_ns + self.base_ns < YEAR_2001_NS
        if relative:
            self.store.note(
                "info", "relative_times", "The trace has no absolute times; they count from an anchor of 0.", source=self.source, file=file
            )
        others = {pid: n for pid, n in self.host_pids.items() if pid > 0 and self.identity and pid != self.identity.pid}
        if others:
            self.store.note(
                "warning", "several_processes",
                f"Host events of {len(others)} further process ids ({', '.join(map(str, sorted(others)[:5]))}) are shown as part of"
                f" process {self.identity.pid if self.identity else None}.",
                count=sum(others.values()), source=self.source, file=file,
            )  # fmt: skip
        if not stored:
            self.store.note("warning", "no_events", "The trace holds no event that is read.", count=0, source=self.source, file=file)
        return TraceResult(
            events=stored,
            first_ns=self.first_ns + self.base_ns if self.first_ns is not None else None,
            last_ns=self.last_ns + self.base_ns if self.last_ns is not None else None,
            relative=relative,
            partial=any(defect.code in TRUNCATING for defect in defects),
            metadata={key: value for key, value in members.items() if _is_small(key, value)},
            process=self.place[1] if self.place else None,
            framework="PyTorch" if "schemaVersion" in members or "deviceProperties" in members else None,
        )

    def _note_dropped(self, code: str, dropped: _Dropped) -> None:
        code, _, category = code.partition(":")
        severity, text = _MESSAGES[code]
        if code == "category_not_read":
            shown = repr(category[:60]) if category else "none"
            if category.lower() == _SESSION:
                severity, text = "info", "Markers of the profiler's own session (category {category}) are not stored."
            text = text.format(category=shown)
        self.store.note(
            severity, code, text, count=dropped.count, source=self.source, file=self.path.name,
            first_ns=None if dropped.first_ns is None else dropped.first_ns + self.base_ns,
            last_ns=None if dropped.last_ns is None else dropped.last_ns + self.base_ns,
        )  # fmt: skip


class Names:
    """The distinct strings of one file: what each says as a name, and its id in the store once it is used as one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.table = pl.DataFrame(schema={"text": pl.String, "id": pl.Int32, **features(pl.Series([], dtype=pl.String)).schema})

    def add(self, texts: list[str]) -> None:
        if not texts:
            return
        text = pl.Series("text", texts, pl.String)
        fresh = text.to_frame().with_columns(id=pl.lit(None, pl.Int32)).hstack(features(text))
        self.table = pl.concat([self.table, fresh], how="vertical", rechunk=True)

    def text(self, index: int) -> str:
        return str(self.table.item(index, "text"))

    def intern(self, indices: pl.Series) -> None:
        """Give the strings at ``indices`` an id of the store; events without a name share the empty one."""
        used = indices.unique().drop_nulls()
        fresh = used.filter(self.table["id"].gather(used).is_null())
        if fresh.len():
            ids = self.store.name_ids(self.table["text"].gather(fresh).to_list())
            column = self.table["id"].scatter(fresh, pl.Series(ids, dtype=pl.Int32))
            self.table = self.table.with_columns(id=column)

    def of(self, indices: pl.Series, columns: list[str]) -> pl.DataFrame:
        """The named columns for each of ``indices``; null where the index is."""
        found = self.table.select(pl.col(columns).gather(pl.lit(indices.cast(pl.UInt32))))
        if "id" in columns and indices.null_count():
            found = found.with_columns(pl.col("id").fill_null(self.store.name_ids([""])[0]))
        return found


INSTANT: Final = ord("i")
_READ_PHASES: Final = frozenset({"X", "B", "E", "M"})
_PHASES: Final = {
    "s": "flow arrows", "t": "flow arrows", "f": "flow arrows", "i": "instants", "I": "instants", "R": "instants", "C": "counters",
    "b": "asynchronous", "e": "asynchronous", "n": "asynchronous", "S": "asynchronous", "F": "asynchronous", "T": "asynchronous",
    "p": "asynchronous", "N": "object snapshots", "O": "object snapshots", "D": "object snapshots",
}  # fmt: skip

_MESSAGES: Final[dict[str, tuple[Severity, str]]] = {
    "category_not_read": ("info", "Events of category {category} are of no kind that is read; they are not stored."),
    "zero_time": ("warning", "Device events with start 0 and duration 0 were dropped: the profiler lost their times."),
    "absurd_duration": ("warning", "Events longer than seven days were dropped: their durations cannot be right."),
    "negative_duration": ("warning", "Events with a negative duration were dropped."),
    "rounded_duration": ("info", "Durations down to -1 us, a product of rounding, were taken as 0."),
    "no_duration": ("info", "Complete events without a duration were given the duration 0."),
    "device_unknown": ("warning", "Device events that name no device are shown as of the trace's only one, or else of device 0."),
    "stray_end": ("warning", "End events without a begin were dropped."),
    "unclosed_begin": ("warning", "Ranges that were begun and never ended were closed at the end of the trace."),
    "host_allocations": ("info", "Memory events of the processor, and those without totals, are not stored."),
    "base_time_ignored": ("warning", "The trace has absolute times and a base time; the base time was not added."),
}


def _base_time(members: Mapping[str, Any]) -> int:
    """``baseTimeNanoseconds``: what is to be added to every time of the file; 0 where there is none."""
    value = members.get("baseTimeNanoseconds")
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else 0


def _device_of_pid() -> pl.Expr:
    return pl.when(pl.col("pid").is_between(0, HIGHEST_DEVICE - 1)).then("pid")


def _no_zero(column: str) -> pl.Expr:
    return pl.when(pl.col(column) != 0).then(column)


def of_cycle(column: str, cycle: int) -> pl.Expr:
    """Ids that count from the start in every file, moved to a range of this file's own; 0 and what is no such number stay."""
    return pl.when(pl.col(column).is_between(1, CYCLE_IDS - 1)).then(pl.col(column) + cycle * CYCLE_IDS).otherwise(column).alias(column)


def _is_small(key: str, value: object) -> bool:
    scalar = isinstance(value, int | float | bool) or (isinstance(value, str) and len(value) <= 200)
    return scalar and len(key) <= 60 and key not in {"schemaVersion", "baseTimeNanoseconds"}


def _int(value: object) -> int:
    """An aggregate of an integer column without nulls."""
    assert isinstance(value, int)
    return value
