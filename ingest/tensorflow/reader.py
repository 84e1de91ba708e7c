"""Reads a trace of TensorFlow's profiler (XLA and JAX use the same format) -> rows of the run store.

Kernels, copies and memsets of the GPUs' streams become device events; host activity becomes calls, operators (``name:Type``), Python
functions and ranges. Lines that are derived from the streams are left out and counted: they repeat device time. Times count from the start
of the profile, which a file next to the trace may state (:mod:`.session`).

Every complete event is accounted for: stored, or counted by an ``ingest_note`` (codes in ``NOT_STORED``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from ..chrome_trace.batches import DEPTH_ROWS, FLUSH_ROWS, Progress, batches
from ..chrome_trace.cycle_ids import of_cycle
from ..chrome_trace.inflate import Inflate
from ..chrome_trace.names import Names
from ..chrome_trace.notes import TRUNCATING, note_defects
from ..chrome_trace.ranges import depths
from ..chrome_trace.scan import Arg, Batch, TraceScan, text_id
from ..store.devices import add_devices
from ..store.registry import UNKNOWN_HOST
from ..store.result import TraceResult
from ..store.schema import ENUM_VALUES
from ..store.store import Store
from ..store.tables import Severity
from ..store.time_limits import LONGEST_NS, ROUNDING_NS, YEAR_2001_NS
from .lanes import Lanes
from .session import Session, is_copy, session_of

if TYPE_CHECKING:
    from ..store.identity import Placement

NOT_STORED: Final = (
    "derived_lines", "no_device_work", "absurd_time", "absurd_duration", "negative_duration", "begin_and_end", "no_timestamp",
)  # fmt: skip
"""Codes of notes whose counts are X, B and E events of a file that gave no row."""
STEP_PHASE: Final = "step"
"""``annotation.phase`` of the ranges that the profiler marks as training steps, whatever their name is."""
DATA_PHASE: Final = "DataIterator"
"""``annotation.phase`` of the ranges in which the input pipeline makes a batch, as the hosted profiler names it."""
HELD_ROWS: Final = 1_000_000  # this many events may precede the names of their processes and threads
PAUSE_NS: Final = 10**9  # between two profiles of a machine if only their order is known

_ARGS: Final[Mapping[str, Arg]] = {
    "correlation_id": Arg("correlation", "int"),
    "group_id": Arg("group", "int"),
    "step_num": Arg("step_num", "int"),
    "step_name": Arg("step_name", "text"),
    "kernel_details": Arg("kernel", "text"),
    "memcpy_details": Arg("details", "text"),
    "memset_details": Arg("details", "text"),
    "Memset_details": Arg("details", "text"),
    "details": Arg("details", "text"),
    "bytes": Arg("bytes", "int"),
    "hlo_op": Arg("hlo_op", "text"),
}
_COPY_KINDS: Final = {
    "h2d": "HtoD", "d2h": "DtoH", "d2d": "DtoD", "p2p": "PtoP", "h2h": "HtoH",
    "htod": "HtoD", "dtoh": "DtoH", "dtod": "DtoD", "ptop": "PtoP", "htoh": "HtoH",
}  # fmt: skip
_COPY: Final = r"(?i)^memcpy[ _-]?([hdp](?:2|to)[hdp])?"
_MEMSET: Final = r"(?i)^memset"
_NO_WORK: Final = r"(?i)^memory ?(alloc|free|residency)"
_CALL: Final = r"^(cuda|cu|hip)[A-Z]\w*$"
_OPERATOR: Final = r"^[^:\s$][^:\s]*:_?[A-Z]\w*$"
# Events in which a step waits for its batch, on any thread, and events that make batches.
_WAIT: Final = r"^(MultiDevice)?IteratorGetNext\w*Op::DoCompute$"
_BATCH: Final = r"^(dataset::GetNext|Iterator::[^:]+)$"
_OF_TENSORFLOW: Final = r"^(Eager(Local|Kernel)?Execute|TFE_Py_|ExecutorState::|FunctionRun$|TensorHandle::)"
_ANNOTATION: Final = ("tid", "side", "device", "name", "value", "start_ns", "duration_ns", "complete", "phase")
_HOST_KINDS: Final = pl.Enum(ENUM_VALUES["HOST_KIND"])
_DEVICE_KINDS: Final = pl.Enum(ENUM_VALUES["DEVICE_KIND"])
_LATEST_NS: Final = 2**62


def read_tensorflow(store: Store, placement: Placement, path: Path, source: int, progress: Progress | None = None) -> TraceResult:
    """Store the events of a trace with notes; damaged text never raises."""
    if is_copy(path):
        text = "The same events as in the .trace.json.gz beside it; give that one. JAX writes this copy for another viewer."
        store.note("info", "duplicate", text, source=source, file=path.name)
        return TraceResult(0, None, None)
    scan = TraceScan(args=_ARGS)
    inflate = Inflate(path, max_unpacked=store.max_unpacked)
    trace = _Trace(store, placement, path, source)
    for batch in batches(inflate, scan, path.stat().st_size, progress):
        trace.add(batch)
    return trace.finish(scan, inflate)


class _Trace:
    """One file on its way into the store."""

    def __init__(self, store: Store, placement: Placement, path: Path, source: int) -> None:
        self.store = store
        self.path = path
        self.source = source
        self.names = Names(store)
        self.lanes = Lanes()
        self.session = session_of(path)
        self.node, self.process = _node_and_process(store, placement, self.session, path, source)
        self.cycle = placement.cycle(self.process, source)
        self.waiting: dict[str, list[pl.DataFrame]] = {"device_event": [], "host_event": [], "annotation": []}
        self.flushed = dict.fromkeys(self.waiting, 0)
        self.held: list[pl.DataFrame] = []  # events whose threads have no name yet
        self.counts = Counter[str]()
        self.left_out = Counter[str]()
        self.steps = 0
        self.tensorflow = "/framework/tensorflow/" in path.absolute().as_posix()
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.base_ns: int | None = None  # known with the first events
        self.behind = False

    def add(self, batch: Batch) -> None:
        self.names.add(batch.strings)
        self.lanes.add(batch.metadata)
        events = pl.DataFrame(batch.events)
        complete = events.filter(pl.col("phase") == ord("X"))
        self.counts["begin_and_end"] += events.height - complete.height
        self._rows(complete)

    def _rows(self, events: pl.DataFrame, *, last: bool = False) -> None:
        """Sort events into the tables; hold those of unnamed threads unless ``last``."""
        events = self._sane(events)
        if events.is_empty():
            return
        pairs = events.select("pid", "tid").unique(maintain_order=True)
        words = [(self._word(pid), self._word(tid)) for pid, tid in pairs.rows()]
        lanes = [self.lanes.of(*pair) for pair in words]
        room = HELD_ROWS - sum(frame.height for frame in self.held)
        ready = [last or room <= 0 or self.lanes.is_named(*pair) for pair in words]
        thread_lanes = pairs.with_columns(
            ready=pl.Series(ready, dtype=pl.Boolean),
            lane=pl.Series([lane.kind for lane in lanes], dtype=pl.String),
            line=pl.Series([lane.line for lane in lanes], dtype=pl.String),
            device=pl.Series([lane.device for lane in lanes], dtype=pl.Int32),
            stream=pl.Series([lane.stream for lane in lanes], dtype=pl.Int64),
        )
        placed = events.join(thread_lanes, on=["pid", "tid"], how="left", nulls_equal=True, maintain_order="left")
        if not all(ready):
            self.held.append(placed.filter(~pl.col("ready")).select(events.columns))
            placed = placed.filter("ready")
        for line, count in placed.filter(pl.col("lane") == "derived").group_by("line").len().rows():
            self.left_out[line] += count
        placed = placed.filter(pl.col("lane") != "derived")
        if placed.is_empty():
            return
        self.names.intern(placed["name"])
        placed = placed.with_columns(
            **self.names.of(placed["name"], ["id", "text", "call"]).rename({"id": "name_id"}).to_dict(),
        ).with_columns(pl.col("text").fill_null(""), pl.col("call").cast(pl.String))
        self._device_rows(placed.filter(pl.col("lane") == "stream"))
        self._step_lines(placed.filter(pl.col("lane") == "steps"))
        self._host_rows(placed.filter(pl.col("lane") == "host"))
        for table, frames in self.waiting.items():
            if sum(frame.height for frame in frames) >= (DEPTH_ROWS if table == "annotation" else FLUSH_ROWS):
                self._flush(table)

    def _word(self, number: int | None) -> str:
        string = None if number is None else text_id(number)
        return str(number) if string is None else self.names.text(string)

    def _sane(self, events: pl.DataFrame) -> pl.DataFrame:
        """Drop impossible events and repair durations; count both."""
        if events.is_empty():
            return events
        start, duration = pl.col("start_ns"), pl.col("duration_ns")
        drops = {
            "absurd_time": ~start.is_between(-LONGEST_NS, _LATEST_NS),
            "absurd_duration": duration > LONGEST_NS,
            "negative_duration": duration < -ROUNDING_NS,
        }
        for code, test in drops.items():
            kept = events.filter(~test.fill_null(False))
            self.counts[code] += events.height - kept.height
            events = kept
        self.counts["no_duration"] += events["duration_ns"].null_count()
        return events.with_columns(duration_ns=pl.max_horizontal(duration.fill_null(0), pl.lit(0)))

    def _device_rows(self, events: pl.DataFrame) -> None:
        no_work = pl.col("text").str.contains(_NO_WORK)
        self.counts["no_device_work"] += events.filter(no_work).height
        events = events.filter(~no_work)
        if events.is_empty():
            return
        self._span(events)
        events = events.with_columns(details=self.names.texts(events["details"]), launch=self.names.texts(events["kernel"]))
        name, details, launch = pl.col("text"), pl.col("details"), pl.col("launch")
        is_copied, is_set = name.str.contains(_COPY), name.str.contains(_MEMSET)
        kind = pl.when(is_copied).then(pl.lit("memcpy")).when(is_set).then(pl.lit("memset")).otherwise(pl.lit("kernel"))
        copy = name.str.extract(_COPY, 1).str.to_lowercase().replace_strict(_COPY_KINDS, default=None, return_dtype=pl.String)
        pageable = pl.when(details.str.contains("pageable")).then(pl.lit(True)).when(details.str.contains("pinned")).then(pl.lit(False))
        shared = [_number(launch, rf"\b{word}:(\d{{1,12}})\b") for word in ("shared", "static_shared", "dynamic_shared")]
        size = r"\d{1,10}"
        axes = {"x": rf"({size}),{size},{size}", "y": rf"{size},({size}),{size}", "z": rf"{size},{size},({size})"}
        sizes = {f"{size}_{axis}": _number(launch, rf"\b{size}:{three}\b") for size in ("grid", "block") for axis, three in axes.items()}
        self.waiting["device_event"].append(events.select(
            "device", "stream", "start_ns", "duration_ns",
            kind=kind.cast(_DEVICE_KINDS),
            name="name_id",
            correlation=pl.when(pl.col("correlation") != 0).then("correlation"),
            bytes=pl.when(is_copied | is_set).then(pl.coalesce("bytes", _number(details, r"\bsize:(\d{1,18})\b"))),
            copy_kind=pl.when(is_copied).then(copy),
            pageable=pl.when(is_copied).then(pageable),
            **sizes,
            registers=_number(launch, r"\bregs:(\d{1,6})\b"),
            shared_memory=pl.when(pl.any_horizontal(size.is_not_null() for size in shared)).then(pl.sum_horizontal(shared)),
        ))  # fmt: skip

    def _step_lines(self, events: pl.DataFrame) -> None:
        """Add the steps of the devices, one row per step and device."""
        if events.is_empty():
            return
        self._span(events)
        events = events.with_columns(step_text=self.names.texts(events["step_name"]))
        rows = events.with_columns(value=pl.coalesce(*self._step_numbers(), _number(pl.col("text"), r"(\d{1,18})$"), "group"))
        numbers = rows["value"].unique(maintain_order=True)
        ids = self.store.name_ids([f"step {value}" if value is not None else "step" for value in numbers])
        named = pl.DataFrame({"value": numbers, "named": pl.Series(ids, dtype=pl.Int32)})
        rows = rows.join(named, on="value", how="left", nulls_equal=True, maintain_order="left").with_columns(
            tid=pl.lit(None, pl.Int64), side=pl.lit("device"), name="named", complete=pl.lit(True), phase=pl.lit(None, pl.String)
        )
        self.waiting["annotation"].append(rows.select(_ANNOTATION))

    def _host_rows(self, events: pl.DataFrame) -> None:
        if events.is_empty():
            return
        self._span(events)
        text = pl.col("text")
        self.tensorflow = self.tensorflow or bool(events.select(text.str.contains(_OF_TENSORFLOW).any()).item())
        called = pl.col("correlation").fill_null(0) != 0
        call = text.str.contains(_CALL)
        events = events.with_columns(
            kind=pl.when(called & text.str.contains(f"{_COPY}|{_MEMSET}"))
            .then(pl.lit("launch"))
            .when(called | call)
            .then("call")
            .when(text.str.contains(_WAIT))
            .then(pl.lit("loader"))
            .when(text.str.starts_with("$"))
            .then(pl.lit("python"))
            .when(text.str.contains(_OPERATOR) | pl.col("hlo_op").is_not_null())
            .then(pl.lit("operator")),
            step_text=self.names.texts(events["step_name"]),
        )
        # A step is an event with a step number or a step name. The group is shared by all events of the step.
        is_step = pl.col("step_num").is_not_null() | pl.col("step_text").is_not_null()
        ranges = events.filter(is_step | pl.col("kind").is_null())
        rows = events.filter(~is_step, pl.col("kind").is_not_null())
        self.steps += events.filter(is_step).height
        if rows.height:
            kind, correlation = pl.col("kind").cast(_HOST_KINDS), pl.when(called).then("correlation")
            self.waiting["host_event"].append(
                rows.select("tid", "start_ns", "duration_ns", kind=kind, name="name_id", correlation=correlation)
            )
        if ranges.height:
            ranges = ranges.with_columns(
                side=pl.lit("host"),
                device=pl.lit(None, pl.Int32),
                name="name_id",
                value=pl.when(is_step).then(pl.coalesce(*self._step_numbers(), "group")),
                complete=pl.lit(True),
                phase=pl.when(is_step).then(pl.lit(STEP_PHASE)).when(text.str.contains(_BATCH)).then(pl.lit(DATA_PHASE)),
            )
            self.waiting["annotation"].append(ranges.select(_ANNOTATION))

    def _step_numbers(self) -> tuple[pl.Expr, ...]:
        """Return expressions for the number of a step; the first non-null one counts.

        Profilers that know no number name a step by its group, which counts from 0.
        """
        name = pl.col("step_text")
        counted = _number(name, r"^(\d{1,9})$") + (self.session.step or 0)
        return pl.col("step_num"), counted, _number(name, r"(\d{1,18})$")

    def _span(self, events: pl.DataFrame) -> None:
        first, last = events.select(
            pl.col("start_ns").min().alias("first"), (pl.col("start_ns") + pl.col("duration_ns")).max().alias("last")
        ).row(0)
        self.first_ns = first if self.first_ns is None else min(self.first_ns, first)
        self.last_ns = last if self.last_ns is None else max(self.last_ns, last)
        if self.base_ns is None:
            self.base_ns = self._base(first)

    def _base(self, first_ns: int) -> int:
        """Return the offset to all times: the start of the profile, or 0 for epoch times.

        A profile without a known start follows the earlier ones of the machine without a known start.
        """
        if first_ns >= YEAR_2001_NS:
            return 0
        if self.session.start_us is not None:
            return self.session.start_us * 1000
        [(before,)] = self.store.connection.execute(
            "SELECT max(w.last_ns) FROM profile_window w JOIN process p ON p.id = w.process"
            " WHERE p.node = ? AND w.last_ns < ? AND w.source <> ?",
            [self.node, YEAR_2001_NS, self.source],
        ).fetchall()
        self.behind = before is not None
        return 0 if before is None else before + PAUSE_NS - min(first_ns, 0)

    def _flush(self, table: str) -> None:
        frames, self.waiting[table] = self.waiting[table], []
        if not frames:
            return
        rows = pl.concat(frames)
        if table == "annotation" and not self.flushed[table] and rows.height < DEPTH_ROWS:
            rows = rows.with_columns(depth=depths(rows, ["side", "device", "tid"]))
        rows = rows.with_columns(
            pl.col("start_ns") + (self.base_ns or 0), node=pl.lit(self.node, pl.Int32), process=pl.lit(self.process, pl.Int32)
        )
        if self.cycle and "correlation" in rows.columns:
            rows = rows.with_columns(of_cycle("correlation", self.cycle))
        self.flushed[table] += rows.height
        self.store.append(table, rows, source=self.source)

    def finish(self, scan: TraceScan, inflate: Inflate) -> TraceResult:
        if self.held:
            held, self.held = pl.concat(self.held), []
            self._rows(held, last=True)
        for table in self.waiting:
            self._flush(table)
        stored = sum(self.flushed.values())
        base = self.base_ns or 0
        first, last = (None if time is None else time + base for time in (self.first_ns, self.last_ns))
        if stored:
            self.store.insert("profile_window", {"process": self.process, "source": self.source, "first_ns": first, "last_ns": last})
        add_devices(self.store, self.node, {}, self.lanes.devices())
        relative = first is not None and first < YEAR_2001_NS
        defects = [*inflate.defects, *scan.defects]
        self._notes(scan, stored, relative=relative)
        # The profiler ends its list of events with an empty one.
        kept = [defect for defect in defects if (defect.code, defect.count) != ("no_phase", 1)]
        note_defects(self.store, self.source, self.path.name, kept)
        return TraceResult(
            stored, first, last, relative=relative, partial=any(defect.code in TRUNCATING for defect in defects),
            process=self.process if stored else None, framework="TensorFlow" if self.tensorflow else None,
        )  # fmt: skip

    def _notes(self, scan: TraceScan, stored: int, *, relative: bool) -> None:
        def note(severity: Severity, code: str, message: str, count: int = 1) -> None:
            self.store.note(severity, code, message, count=count, source=self.source, file=self.path.name)

        if relative:
            why = self.session.doubt or "no .metadata file names the start of the profile"
            order = " They come behind those of the earlier profiles of the machine; how long after is not known." if self.behind else ""
            note("info", "relative_times", f"The times count from the start of the profile: {why}.{order}")
        if derived := sum(self.left_out.values()):
            lines = [f"{line[:60]} ({count:,})" for line, count in sorted(self.left_out.items(), key=lambda item: (-item[1], item[0]))]
            listed = ", ".join(lines[:6]) + (f" and {len(lines) - 6} more" if len(lines) > 6 else "")
            note("info", "derived_lines", f"Lines of devices that are no streams of a GPU are not read: {listed}.", derived)
        for code, (severity, text) in _MESSAGES.items():
            if self.counts[code]:
                note(severity, code, text, self.counts[code])
        if unread := sum(count for (phase, _), count in scan.event_counts.items() if phase not in ("X", "B", "E", "M")):
            note("info", "phase_not_read", "Counters, flow arrows and instants are not stored.", unread)
        if not stored:
            note("warning", "no_events", "The trace holds no event that is read.", 0)


_MESSAGES: Final[dict[str, tuple[Severity, str]]] = {
    "no_device_work": ("info", "Records of memory that was reserved or released are no work of a device; they are not stored."),
    "absurd_time": ("warning", "Events whose times are of no possible day were dropped."),
    "absurd_duration": ("warning", "Events longer than seven days were dropped: their durations cannot be right."),
    "negative_duration": ("warning", "Events with a negative duration were dropped."),
    "begin_and_end": ("warning", "Begin and end events, which this profiler does not write, were dropped."),
    "no_duration": ("info", "Complete events without a duration were given the duration 0."),
}


def _number(text: pl.Expr, pattern: str) -> pl.Expr:
    return text.str.extract(pattern, 1).cast(pl.Int64, strict=False)


def _node_and_process(store: Store, placement: Placement, session: Session, path: Path, source: int) -> tuple[int, int]:
    """Return the node and the process of a trace.

    The number in the node's name is a process id, or the rank if timelines of this node have it as the rank.
    """
    registry = placement.registry
    node = registry.node(session.hostname or UNKNOWN_HOST)
    if session.node is None:
        return node, registry.process(node, None, label=session.hostname or path.name, source=source)
    label = re.sub(r"^(.*)-(algo.*)$", r"\2-\1", session.node)
    known: list[tuple[Any, ...]] = store.connection.execute(
        "SELECT pid, rank FROM process WHERE node = ? AND label = ? AND pid IS NOT NULL ORDER BY id LIMIT 1", [node, label]
    ).fetchall()
    pid, rank = known[0] if known else (session.number, None)
    return node, registry.process(node, pid, rank=rank, label=label, source=source)
