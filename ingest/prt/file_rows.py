"""Rows of one trace file of the capture library: each of its tables -> rows of the run store, some hundred thousand at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
import pyarrow as pa

from ..chrome_trace.batches import FLUSH_ROWS, Progress
from ..chrome_trace.cycle_ids import CYCLE_IDS
from ..store.identity import Placement
from ..store.limits import cut_text
from ..store.metrics import COUNTER, METRICS
from ..store.schema import ENUM_VALUES
from ..store.store import Store
from ..store.time_limits import LONGEST_NS, ROUNDING_NS, YEAR_2001_NS, possible_times
from .correlations import HALF
from .format import TraceFile
from .names import HOST_KINDS, NO_NAME, CaptureNames
from .processes import RecordedProcess
from .staged_rows import DRIVER, STAGED, StagedRows
from .windows import GpuWindows

_SIDE: Final = pl.Enum(["host"])  # DuckDB gets a number per row instead of a text
_ENDED_BY_STOP: Final = 1  # Flag of a range that ended because the recording stopped
_DEVICE_ENUM: Final = pl.Enum(ENUM_VALUES["DEVICE_KIND"])
_DEVICE_TABLES: Final = frozenset({"kernel", "memcpy", "memset", "sync"})
# Numbers of the device tracer for kinds of copies and of synchronization.
_COPY_KINDS: Final = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_WITH_HOST: Final = ("HtoD", "DtoH", "HtoA", "AtoH", "HtoH")  # only the host's memory is pageable or pinned
_MEMORIES: Final = {"HtoD": "{} -> Device", "DtoH": "Device -> {}"}
_SYNC_KINDS: Final = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_NO_STREAM: Final = 2**32 - 1  # In synchronization records without a stream; profilers show -1
_LOADER_MADE: Final = "DataLoaderIter.__init__"
_SHAPE: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_memory", "graph_node")


@dataclass(eq=False)
class CaptureFile:
    """One file: :meth:`read` stores its rows; then the attributes below contain its counts and times."""

    store: Store
    placement: Placement
    windows: GpuWindows
    staged: StagedRows
    opened: TraceFile
    process: RecordedProcess
    session: bytes
    source: int
    sampled_elsewhere: list[tuple[int, int]]  # times in which another process sampled the same node

    stored: int = 0  # rows
    first_ns: int | None = None
    last_ns: int | None = None
    dropped: dict[str, int] = field(default_factory=dict)  # rows by code of the reason
    devices: set[int] = field(default_factory=set)
    _calls_names: CaptureNames | None = None
    _span: tuple[int, int] | None = None  # of the samples
    _cores: frozenset[int] = frozenset()
    _gpus: frozenset[int] = frozenset()
    _quota: float | None = None

    def __post_init__(self) -> None:
        self.names = CaptureNames(self.store, [cut_text(text) for text in self.opened.names()])
        self.metadata = self.opened.metadata()
        self.starts = self.windows.add(self.process.id, self.session, self.source, self.metadata)
        self.lost_times_before = YEAR_2001_NS if (self.opened.header.get("created_ns") or 0) >= YEAR_2001_NS else None
        # A range may end in a later file than its thread did, and a file describes only the threads of its time.
        self.tids = self.process.tids.setdefault(self.session, {})

    def read(self, progress: Progress | None) -> bool:
        """Store all rows of the file; return whether all could be decoded."""
        readers: dict[str, Callable[[pl.DataFrame], tuple[str, pl.DataFrame]]] = {
            "annotation": self._annotations, "counter": self._counters, "metric": self._samples, "api": self._calls,
            "kernel": self._kernels, "memcpy": self._copies, "memset": self._memsets, "sync": self._syncs,
        }  # fmt: skip
        threads = pa.RecordBatchReader.from_stream(self.opened.table("thread"))
        with threads:
            for batch in threads:
                self.tids.update(zip(batch["source"].to_pylist(), batch["tid"].to_pylist(), strict=True))
        contents = self.opened.contents
        total = sum(contents[table].rows for table in readers) or 1
        done = 0
        complete = True
        for table, rows_of in readers.items():
            try:
                for frame in self._frames(table):
                    target, rows = rows_of(frame)
                    self._append(target, rows)
                    done += frame.height
                    if progress is not None:
                        progress(min(done / total, 1.0))
            except (pa.ArrowException, OSError) as error:
                text = f"Rows of kind {table} could not be decoded: {error}"
                self.store.note("error", "undecodable", text, source=self.source, file=self.opened.path.name)
                complete = False
        self._finish_samples()
        return complete

    def _frames(self, table: str) -> Iterator[pl.DataFrame]:
        """Yield the complete rows of a table, some hundred thousand at a time."""
        needed = ["time_ns", "value"] if table in {"counter", "metric"} else ["start_ns", "duration_ns"]
        waiting: list[pa.RecordBatch] = []
        rows = 0
        with pa.RecordBatchReader.from_stream(self.opened.table(table)) as batches:
            for batch in batches:
                waiting.append(batch)
                rows += batch.num_rows
                if rows >= FLUSH_ROWS:
                    yield self._checked(waiting, needed, table)
                    waiting, rows = [], 0
        if rows:
            yield self._checked(waiting, needed, table)

    def _checked(self, batches: list[Any], needed: list[str], table: str) -> pl.DataFrame:
        frame = pl.from_arrow(pa.Table.from_batches(batches))
        assert isinstance(frame, pl.DataFrame)
        complete = frame.drop_nulls(needed)
        self._drop("incomplete_record", frame.height - complete.height)
        sane = self._sane(complete, table) if "duration_ns" in needed else complete
        possible = possible_times(sane)
        self._drop("absurd_time", sane.height - possible.height)
        return possible

    def _sane(self, frame: pl.DataFrame, table: str) -> pl.DataFrame:
        """Remove rows with impossible times, and count them by kind."""
        duration = pl.col("duration_ns")
        tests = {"negative_duration": duration < -ROUNDING_NS}
        if table != "annotation":  # ranges of the program may be as long as it runs
            tests["absurd_duration"] = duration > LONGEST_NS
        if table in _DEVICE_TABLES and self.lost_times_before is not None:
            tests = {"zero_time": pl.col("start_ns") < self.lost_times_before, **tests}
        if frame.select(pl.any_horizontal(*tests.values(), duration < 0).any()).item():
            for code, test in tests.items():
                kept = frame.filter(~test)
                self._drop(code, frame.height - kept.height)
                frame = kept
            self._drop("rounded_duration", int((frame["duration_ns"] < 0).sum()))
            frame = frame.with_columns(duration.clip(0))
        return frame

    def _append(self, table: str, rows: pl.DataFrame) -> None:
        if rows.is_empty():
            return
        started = "time_ns" if table == "sample" else "start_ns"
        ended = pl.col(started) if table == "sample" else pl.col(started) + pl.col("duration_ns")
        first, last = rows.select(first=pl.col(started).min(), last=ended.max()).row(0)
        self.first_ns = first if self.first_ns is None else min(first, self.first_ns)
        self.last_ns = last if self.last_ns is None else max(last, self.last_ns)
        if table in STAGED:
            self.staged.add(table, rows, self.process, self.source)
        else:
            owner = {"node": self.process.node} | ({} if table == "sample" else {"process": self.process.id})
            rows = rows.with_columns(pl.lit(value, pl.Int32).alias(column) for column, value in owner.items())
            self.store.append(table, rows, source=self.source)
        self.stored += rows.height

    def _drop(self, code: str, count: int) -> None:
        if count:
            self.dropped[code] = self.dropped.get(code, 0) + count

    def _annotations(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        loader = self.names.loads(frame["name"])
        if loader.any():
            some = frame.filter(loader)
            kind = pl.lit("loader", pl.Enum(ENUM_VALUES["HOST_KIND"]))
            waits = some.select(
                tid=self._tids(some["source"]),
                kind=kind,
                name=self.names.ids(some["name"])[0],
                start_ns="start_ns",
                duration_ns="duration_ns",
            )
            self._append("host_event", waits)
            frame = frame.filter(~loader)
        ids, numbers = self.names.ids(frame["name"])
        return "annotation", frame.select(
            tid=self._tids(frame["source"]), side=pl.lit("host", _SIDE), name=ids, value=pl.coalesce("value", numbers), start_ns="start_ns",
            duration_ns="duration_ns", depth="depth", complete=pl.col("flags").fill_null(0) & _ENDED_BY_STOP == 0,
            arguments=self._loader_settings(frame),
        )  # fmt: skip

    def _loader_settings(self, frame: pl.DataFrame) -> pl.Expr:
        """Return settings of data loaders, as JSON, for ranges that create one."""
        texts = {key: self.metadata.get(f"dataloader.{key}", "") for key in ("num_workers", "pin_memory", "prefetch_factor")}
        settings: dict[str, int | bool] = {key: int(text) for key, text in texts.items() if text.isascii() and text.isdigit()}
        if not settings:
            return pl.lit(None, pl.String)
        if "pin_memory" in settings:
            settings["pin_memory"] = bool(settings["pin_memory"])
        creates = self.names.texts(frame["name"]).str.ends_with(_LOADER_MADE).fill_null(False)
        return pl.when(pl.lit(creates)).then(pl.lit(json.dumps(settings)))

    def _counters(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        text = self.names.texts(frame["name"]).fill_null(NO_NAME)
        process = pl.lit(self.process.id, pl.Int32)
        return "sample", frame.select(metric=COUNTER + text, unit=process, time_ns="time_ns", value="value")

    def _samples(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        rows = frame.select(
            metric=self.names.texts(frame["metric"]), unit=pl.when(pl.col("unit") >= 0).then("unit"), time_ns="time_ns", value="value"
        )
        known = rows.filter(pl.col("metric").is_in(list(METRICS)))
        self._drop("unknown_metric", rows.height - known.height)
        if self.sampled_elsewhere:
            alone = known.filter(~pl.any_horizontal(pl.col("time_ns").is_between(first, last) for first, last in self.sampled_elsewhere))
            self._drop("sampled_twice", known.height - alone.height)
            known = alone
        if known.height:
            self._sampled(known)
        return "sample", known

    def _calls(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        if self._calls_names is None:
            texts = self.names.without_versions()
            self._calls_names = CaptureNames(self.store, texts)
            self.process.calls_driver |= any(re.match(DRIVER, text) for text in texts)
        last = len(HOST_KINDS) - 1  # the kind of a number that is not one of them
        number = pl.when(pl.col("kind").is_between(0, last)).then("kind").otherwise(last)
        kind = pl.when(pl.col("kind").is_null()).then(self._calls_names.kinds(frame["name"])).otherwise(number)
        return "host_event", frame.select(
            tid="tid", kind=HOST_KINDS.gather(frame.select(kind).to_series()), name=self._calls_names.ids(frame["name"])[0],
            start_ns="start_ns", duration_ns="duration_ns", correlation=self._correlation(frame),
        )  # fmt: skip

    def _kernels(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        shape = {column: pl.col(column).cast(pl.Int64) for column in _SHAPE}
        shape["graph_node"] = pl.when(pl.col("graph_node") != 0).then("graph_node")
        return self._device_rows(frame, "kernel", self.names.ids(frame["name"])[0], **shape)

    def _copies(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        kind = frame["copy_kind"].replace_strict(_COPY_KINDS, default=None, return_dtype=pl.String)
        pageable = frame["pageable"].cast(pl.Boolean).set(~kind.is_in(_WITH_HOST).fill_null(False), None)
        host = pl.when("pageable").then(pl.lit("Pageable")).when(~pl.col("pageable")).then(pl.lit("Pinned"))
        memories = pl.coalesce(
            *(pl.when(kind=word).then(pl.format(text, host)) for word, text in _MEMORIES.items()),
            pl.when(pl.col("kind").is_in(["DtoD", "PtoP"])).then(pl.lit("Device -> Device")),
        )
        name = pl.DataFrame({"kind": kind, "pageable": pageable}).select(
            pl.concat_str(
                pl.lit("Memcpy "), pl.col("kind").fill_null("(unknown)"), pl.format(" ({})", memories).fill_null("")
            ).alias("name")
        )  # fmt: skip
        return self._device_rows(
            frame, "memcpy", self.names.store_ids(name["name"]), bytes=pl.col("bytes"), copy_kind=kind, pageable=pageable
        )

    def _memsets(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        name = pl.repeat("Memset (Device)", frame.height, dtype=pl.String, eager=True)
        return self._device_rows(frame, "memset", self.names.store_ids(name), bytes=pl.col("bytes"))

    def _syncs(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        name = frame["type"].replace_strict(_SYNC_KINDS, default="Sync", return_dtype=pl.String)
        contexts = self.process.contexts
        of_context = pl.col("context").replace_strict(list(contexts), list(contexts.values()), default=None, return_dtype=pl.Int32)
        known = pl.when(pl.col("device") >= 0).then("device")
        only = next(iter(devices)) if len(devices := set(contexts.values()) | self.devices) == 1 else None
        frame = frame.with_columns(
            device=pl.coalesce(known, of_context, pl.lit(only, pl.Int32)),
            stream=pl.when(pl.col("stream") == _NO_STREAM).then(-1).otherwise("stream"),
        )
        return self._device_rows(frame, "sync", self.names.store_ids(name))

    def _device_rows(self, frame: pl.DataFrame, kind: str, name: pl.Series, **more: pl.Expr | pl.Series) -> tuple[str, pl.DataFrame]:
        self._drop("device_unknown", int((frame["device"].fill_null(-1) < 0).sum()))
        device = pl.when(pl.col("device") >= 0).then("device").otherwise(0)
        rows = frame.select(
            device=device, context="context", stream="stream", kind=pl.lit(kind, _DEVICE_ENUM), name=name, start_ns="start_ns",
            duration_ns="duration_ns", correlation=self._correlation(frame), **more,
        )  # fmt: skip
        self.devices.update(rows["device"].unique())
        self._worked(frame)
        if kind != "sync":
            self.process.contexts.update(frame.filter(pl.col("device") >= 0).select("context", "device").unique().drop_nulls().iter_rows())
        return "device_event", rows

    def _worked(self, frame: pl.DataFrame) -> None:
        spans = {"first": pl.col("start_ns").min(), "last": (pl.col("start_ns") + pl.col("duration_ns")).max()}
        for window, first, last in frame.group_by(self._windows(frame).alias("window")).agg(**spans).iter_rows():
            self.windows.worked(self.process.id, self.session, window, first, last)

    def _correlation(self, frame: pl.DataFrame) -> pl.Expr:
        """Make the correlations of each count of the tracer unique in the process.

        The count goes on through all files of a session and begins anew in each window. A profiler of the same process has its own count.
        """
        known = pl.when(pl.col("correlation").is_between(1, CYCLE_IDS - 1)).then("correlation")
        self.process.many_calls |= bool((frame["correlation"] >= HALF).any())

        cycles = pl.Series([self._cycle(window) for window in range(len(self.starts) + 1)], dtype=pl.Int64)
        return known + cycles.gather(self._windows(frame)) * CYCLE_IDS

    def _windows(self, frame: pl.DataFrame) -> pl.Series:
        """Return the index of the GPU window in which each row starts."""
        return pl.Series(self.starts, dtype=pl.Int64).search_sorted(frame["start_ns"], side="right")

    def _cycle(self, window: int) -> int:
        key = (self.session, window)
        cycles = self.process.cycles
        if key not in cycles:
            source = self.source if window == 0 else -1 - len(cycles)  # negative: not the number of any file
            cycles[key] = self.placement.cycle(self.process.id, source)
        return cycles[key]

    def _tids(self, sources: pl.Series) -> pl.Series:
        """Return thread ids; a thread without a description has minus its number."""
        numbers = sources.unique().drop_nulls().to_list()
        self._drop("thread_unknown", int(sources.is_in([number for number in numbers if self.tids.get(number) is None]).sum()))
        tids = [-number if (tid := self.tids.get(number)) is None else tid for number in numbers]
        return sources.replace_strict(numbers, tids, default=None, return_dtype=pl.Int64)

    def _sampled(self, rows: pl.DataFrame) -> None:
        first, last = rows.select(pl.col("time_ns").min(), last=pl.col("time_ns").max()).row(0)
        self._span = (min(first, self._span[0]), max(last, self._span[1])) if self._span else (first, last)
        self._cores |= frozenset(rows.filter(pl.col("metric") == "cpu_utilization")["unit"].unique().drop_nulls())
        self._gpus |= frozenset(rows.filter(pl.col("metric") == "gpu_utilization")["unit"].unique().drop_nulls())
        quotas = rows.filter(pl.col("metric") == "cgroup.cpu_quota_cores").sort("time_ns")["value"]
        self._quota = quotas[-1] if len(quotas) else self._quota

    def _finish_samples(self) -> None:
        if self._span is not None:
            self.process.sampled.append(self._span)
            self.store.connection.execute(
                "UPDATE node SET cores = greatest(cores, ?), gpus = greatest(gpus, ?), quota = coalesce(?, quota) WHERE id = ?",
                [len(self._cores) or None, len(self._gpus) or None, self._quota, self.process.node],
            )
