"""Reads a PyTorch profiler trace (Kineto; Chrome trace JSON, plain or compressed) -> rows of the run store.

One thread inflates and scans the text (:mod:`..chrome_trace.batches`), another converts it to rows, column by column (:mod:`.rows`); memory
does not grow with the length of the trace. Times are exact: microseconds as text -> int64 nanoseconds, plus ``baseTimeNanoseconds``. That
member and the members that identify the process may follow the events: at the end they go to the file's row of ``source_map``, which
applies to all rows.

Every event is accounted for: X, B and E events in the file = rows stored + events that an ``ingest_note`` counts (codes in
``NOT_STORED``) + end events that closed a range.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from ..chrome_trace.batches import DEPTH_ROWS, FLUSH_ROWS, Progress, batches
from ..chrome_trace.cycle_ids import CYCLE_IDS
from ..chrome_trace.inflate import Inflate
from ..chrome_trace.names import Names
from ..chrome_trace.notes import TRUNCATING, note_defects, note_info_lines
from ..chrome_trace.ranges import depths
from ..chrome_trace.scan import Batch, TraceScan
from ..store.devices import add_devices, device_names
from ..store.identity import Facts, Identity, Placement, identify
from ..store.result import TraceResult
from ..store.store import Store
from ..store.time_limits import YEAR_2001_NS
from .left_out import LeftOut, note_unread_phases
from .rows import ARGS, SPARSE_ARGS, WIDE_ARGS, WIDE_CATEGORIES, KinetoRows
from .signatures import MEMBERS

NOT_STORED: Final = (
    "category_not_read", "categories_not_read", "zero_time", "absurd_time", "absurd_duration", "negative_duration", "stray_end",
    "no_timestamp",
)  # fmt: skip
"""Codes of notes whose counts are X, B and E events of a file that gave no row."""


def read_trace(
    store: Store, placement: Placement, path: Path, source: int, head: bytes = b"", progress: Progress | None = None
) -> TraceResult:
    """Store the events of a trace, with notes on repairs, losses and guesses.

    ``head``: the beginning of the decompressed text, if known; its members about the process save corrections later.
    ``progress`` is called with the fraction that has been read. Damaged text never raises.
    """
    scan = TraceScan(args=ARGS, sparse_args=SPARSE_ARGS, wide_args=WIDE_ARGS, wide_categories=WIDE_CATEGORIES, parts=MEMBERS)
    inflate = Inflate(path, max_unpacked=store.max_unpacked)
    trace = _Trace(store, placement, path, source, header_members(head))
    for batch in batches(inflate, scan, path.stat().st_size, progress):
        trace.add(batch)
    return trace.finish(scan, inflate)


def header_members(head: bytes) -> dict[str, Any]:
    """Return the top-level members before ``traceEvents``, {} if some are cut."""
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    before, separator, _ = text.partition('"traceEvents"')
    if not separator or not text.startswith("{"):
        return {}
    try:
        members = json.loads(before + '"traceEvents": []}', strict=False)
    except (ValueError, RecursionError):
        return {}
    return {key: value for key, value in members.items() if key != "traceEvents"} if isinstance(members, dict) else {}


class _Trace:
    """One file on its way into the store."""

    def __init__(self, store: Store, placement: Placement, path: Path, source: int, header: dict[str, Any]) -> None:
        self.store = store
        self.placement = placement
        self.path = path
        self.source = source
        self.header = header
        self.left_out = LeftOut()
        self.rows = KinetoRows(Names(store), self.left_out)
        self.flushed = dict.fromkeys(self.rows.waiting, 0)
        self.source_id: int | None = None  # its row in source_map, once rows are stored
        self.owner: tuple[int, int] | None = None
        self.identity: Identity | None = None
        self.base_ns = _base_time(header)

    def add(self, batch: Batch) -> None:
        """Convert a batch to rows, and store full blocks of the rows of a table."""
        if not self.rows.add(batch):
            return
        for table in self.rows.waiting:
            if table != "annotation" and (rest := self.rows.beyond_blocks(table, FLUSH_ROWS)) is not None:
                self._flush(table)
                self.rows.waiting[table] = [rest]
        if sum(frame.height for frame in self.rows.waiting["annotation"]) >= DEPTH_ROWS:
            self._flush("annotation")

    def _flush(self, table: str) -> None:
        """Store the waiting rows of one table under the process known so far."""
        frames = self.rows.waiting[table]
        if not frames:
            return
        self.rows.waiting[table] = []
        if self.owner is None:
            self.identity = self._identify(self.header)
            self.owner = self.placement.assign(self.identity, self._facts(self.header), self.source, self.path.name)
        if self.source_id is None:
            self.source_id = self.store.map_source(self.source, **self._mapped(self.owner))
        rows = pl.concat(frames, how="vertical")
        self.flushed[table] += rows.height
        self.store.append(table, rows, source_id=self.source_id)

    def _mapped(self, owner: tuple[int, int]) -> dict[str, int]:
        """Return the facts that apply to all rows of the file."""
        node, process = owner
        id_offset = self.placement.cycle(process, self.source) * CYCLE_IDS
        return {"node": node, "process": process, "shift_ns": self.base_ns, "id_offset": id_offset}

    def _identify(self, members: Mapping[str, Any]) -> Identity:
        counted = self.rows.host_pids if any(self.rows.host_pids) else self.rows.python_pids
        pids = sorted(((count, -pid) for pid, count in counted.items() if pid > 0), reverse=True)
        return identify(members, self.path, -pids[0][1] if pids else None)

    def _facts(self, members: Mapping[str, Any]) -> Facts:
        first, last = self.rows.first_ns or 0, self.rows.last_ns or 0
        return Facts(device_names(members, self.rows.devices), frozenset(self.rows.devices), first + self.base_ns, last + self.base_ns)

    def finish(self, scan: TraceScan, inflate: Inflate) -> TraceResult:
        """Store the waiting rows, correct earlier ones, and write the notes."""
        members = {**self.header, **scan.members}
        self.rows.close_ranges()
        self._settle_base(_base_time(members))
        identity = self._identify(members)
        facts = self._facts(members)
        if self.owner is None:
            if any(self.rows.waiting.values()):  # a file without rows adds no machine and no process
                self.owner = self.placement.assign(identity, facts, self.source, self.path.name)
        elif identity != self.identity or any(self.flushed.values()):
            self._settle_place(identity, facts, members)
        self.identity = identity
        if self.source_id is not None and self.owner is not None:
            self.store.change_source(self.source_id, **self._mapped(self.owner))
        if self.rows.waiting["annotation"] and not self.flushed["annotation"]:
            rows = pl.concat(self.rows.waiting["annotation"])
            self.rows.waiting["annotation"] = [rows.with_columns(depth=depths(rows, ["side", "device", "tid"]))]
        for table in self.rows.waiting:
            self._flush(table)
        if "device_unknown" in self.left_out.dropped and self.source_id is not None:
            self._settle_device(self.source_id)
        if self.owner is None:
            return self._notes(scan, inflate, members)
        if any(self.flushed.values()) and self.rows.first_ns is not None and self.rows.last_ns is not None:
            window = {"first_ns": self.rows.first_ns + self.base_ns, "last_ns": self.rows.last_ns + self.base_ns}
            on = self.left_out.on
            if on is not None and on[0] < self.rows.last_ns and self.rows.first_ns < on[1]:
                window |= {"on_ns": on[0] + self.base_ns, "off_ns": on[1] + self.base_ns}
            self.store.insert("profile_window", {"process": self.owner[1], "source": self.source, **window})
        if add_devices(self.store, self.owner[0], members, self.rows.devices):
            text = f"The trace lists one device and uses one of another number; both are shown as device {min(self.rows.devices)}."
            self.store.note("info", "device_renumbered", text, source=self.source, file=self.path.name)
        return self._notes(scan, inflate, members)

    def _settle_base(self, base_ns: int) -> None:
        """Set the base time from the complete file, and move the stored rows."""
        if self.rows.first_ns is not None and base_ns and self.rows.first_ns >= YEAR_2001_NS:
            self.left_out.count("base_time_ignored", 1)
            base_ns = 0
        self.base_ns = base_ns

    def _settle_device(self, source_id: int) -> None:
        """Give events without a device the trace's only device, else device 0."""
        device = min(self.rows.devices) if len(self.rows.devices) == 1 else 0
        self.rows.devices.add(device)
        self.store.change_source(source_id, device=device)

    def _settle_place(self, identity: Identity, facts: Facts, members: Mapping[str, Any]) -> None:
        assert self.owner is not None
        self.owner = self.placement.replace(*self.owner, identity, facts, self.source, self.path.name)

    def _notes(self, scan: TraceScan, inflate: Inflate, members: Mapping[str, Any]) -> TraceResult:
        file = self.path.name
        defects = [*inflate.defects, *scan.defects]
        note_defects(self.store, self.source, file, defects)
        note_info_lines(self.store, self.source, file, members.get("INFO"))
        self.left_out.note(self.store, self.source, file, self.base_ns)
        note_unread_phases(self.store, self.source, file, scan.event_counts, self.rows.instants_read)
        # Rows of collectives are also events of other tables; allocations are instants.
        stored = sum(rows for table, rows in self.flushed.items() if table not in ("collective", "allocation"))
        relative = stored > 0 and self.rows.first_ns is not None and self.rows.first_ns + self.base_ns < YEAR_2001_NS
        if relative:
            text = "The trace has no absolute times; they count from an anchor of 0."
            self.store.note("info", "relative_times", text, source=self.source, file=file)
        others = {pid: n for pid, n in self.rows.host_pids.items() if pid > 0 and self.identity and pid != self.identity.pid}
        if others:
            text = (
                f"Host events of {len(others)} further process ids ({', '.join(map(str, sorted(others)[:5]))}) are shown as part of"
                f" process {self.identity.pid if self.identity else None}."
            )
            self.store.note("warning", "several_processes", text, count=sum(others.values()), source=self.source, file=file)
        if not stored:
            self.store.note("warning", "no_events", "The trace holds no event that is read.", count=0, source=self.source, file=file)
        return TraceResult(
            events=stored,
            first_ns=self.rows.first_ns + self.base_ns if self.rows.first_ns is not None else None,
            last_ns=self.rows.last_ns + self.base_ns if self.rows.last_ns is not None else None,
            relative=relative,
            partial=any(defect.code in TRUNCATING for defect in defects),
            metadata={key: value for key, value in members.items() if _is_small(key, value)},
            process=self.owner[1] if self.owner else None,
            framework="PyTorch" if "schemaVersion" in members or "deviceProperties" in members else None,
        )


def _base_time(members: Mapping[str, Any]) -> int:
    """Return ``baseTimeNanoseconds``, the offset of all times of the file, or 0."""
    value = members.get("baseTimeNanoseconds")
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else 0


def _is_small(key: str, value: object) -> bool:
    scalar = isinstance(value, int | float | bool) or (isinstance(value, str) and len(value) <= 200)
    return scalar and len(key) <= 60 and key not in {"schemaVersion", "baseTimeNanoseconds"}
