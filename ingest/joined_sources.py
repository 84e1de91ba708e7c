"""How do several sources of one run become one: same machine, same process, one clock, and nothing counted twice?

Asked once, when all files are read. What is joined, shifted or left out is told in notes; what is not clear stays as it is, with a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from .clock_offset import (
    DOUBTFUL_CORRELATION,
    DOUBTFUL_SAMPLES,
    FURTHEST_ZONE_NS,
    SECOND,
    ZONES,
    Activity,
    Offset,
    Series,
    Unclear,
    activity_of_samples,
    busy_offset,
    commensurate,
    event_offset,
    series_of,
    step_offset,
    told,
    zone_of,
    zone_offset,
)
from .gpu_log import HOW_TO_NAME, GpuLogs, Log, Placed, model
from .registry import UNKNOWN_HOST, ReadResult
from .store import SCHEMA, Severity, Store, storable

TABLES: Final = ("device_event", "host_event", "annotation", "collective", "allocation")
"""Tables of events whose rows are known by the source that they came from."""
CYCLE_IDS: Final = 1 << 40
_MOST_GPUS: Final = 16
"""GPUs of one machine whose samples are held against their activity at once."""
_MOST_SAMPLES: Final = 2_000_000
_MOST_KERNELS: Final = 2_000_000
_KERNEL_SPREAD_NS: Final = 10**6
LEAST_SAME: Final = 8
"""Kernels of two sources that are compared; of fewer it is not told whether they are the same."""


@dataclass(slots=True)
class SourceRows:
    """What one file brought into the store. ``rows``: first and last rowid + 1 in each table of ``TABLES``."""

    id: int
    format: str
    path: Path
    result: ReadResult
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return storable(self.path.name)


@dataclass(frozen=True, slots=True)
class Clock:
    """What was added to the times of a source, and why; ``uncertainty_ns`` of it."""

    offset_ns: int
    evidence: str


def row_counts(store: Store) -> dict[str, int]:
    """The next rowid of every table of ``TABLES``."""
    return {table: store.connection.execute(f"SELECT coalesce(max(rowid) + 1, 0) FROM {table}").fetchall()[0][0] for table in TABLES}


class Joining:
    """The sources of one run: :meth:`settle` joins them; then ``clocks`` and ``results`` tell what became of each."""

    def __init__(self, store: Store, logs: GpuLogs, sources: Sequence[SourceRows], several_tracers: Iterable[str]) -> None:
        self.store = store
        self.logs = logs
        self.sources = list(sources)
        self.tracers = frozenset(several_tracers)
        self.clocks: dict[int, Clock] = {}
        self.results: dict[int, ReadResult] = {source.id: source.result for source in sources}

    def settle(self) -> None:
        self._join_machines()
        if self.logs.logs:
            self.logs.place()
            self._join_machines()
            self.results.update(self.logs.store_samples({}, zoned=True))
        self._relative()
        self._logs()
        self._two_names()
        self._twice()

    # -- machines ------------------------------------------------------------------------------------------------------

    def _join_machines(self) -> None:
        """The only machine without a name is the only one with a name, where their GPUs and processes agree."""
        nodes = dict(self.store.connection.execute("SELECT id, hostname FROM node").fetchall())
        nameless = [node for node, name in nodes.items() if name.startswith(UNKNOWN_HOST)]
        named = [node for node in nodes if node not in nameless]
        if len(nameless) != 1 or len(named) != 1:
            return
        mine, theirs = nameless[0], named[0]
        if self.logs.decided(mine) and not self.logs.decided(theirs):
            return
        why = self._same_machine(mine, theirs)
        if why is None:
            return
        self._merge(mine, theirs)
        text = f"Files that name no machine are taken to be of {nodes[theirs]}, the only machine of the run: {why}."
        self.store.note("info", "machine_joined", text)

    def _two_names(self) -> None:
        """A machine that only tracers know and one that only samplers know may be one under two names; nothing is joined then."""
        rows = self.store.frame(
            """
            SELECT id, hostname, (SELECT count(DISTINCT device) FROM device_event WHERE node = n.id AND device IS NOT NULL),
                (SELECT count(DISTINCT unit) FROM sample WHERE node = n.id AND starts_with(metric, 'gpu_') AND unit IS NOT NULL)
            FROM node AS n ORDER BY id
            """
        ).rows()
        if len(rows) != 2 or any(name.startswith(UNKNOWN_HOST) for _, name, *_ in rows):
            return
        traced = [row for row in rows if row[2] and not row[3]]
        sampled = [row for row in rows if row[3] and not row[2]]
        if len(traced) != 1 or len(sampled) != 1:
            return
        (mine, name, gpus, _), (theirs, other, _, units) = traced[0], sampled[0]
        spans = [self._span(node) for node in (mine, theirs)]
        if gpus != units or spans[0] is None or spans[1] is None or not (spans[0][0] <= spans[1][1] and spans[1][0] <= spans[0][1]):
            return
        of_log = any(placed.node == theirs for placed in self.logs.placed)
        step = f" If so, name the log after it (nvidia-smi.{name}.csv)." if of_log else " They are shown as two."
        counted = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
        text = (
            f"{name} has traces and no samples of its GPUs, {other} has samples and no traces, of {counted} each and at the same time: they"
            f" may be one machine under two names.{step}"
        )
        self.store.note("info", "two_names", text)

    def _same_machine(self, mine: int, theirs: int) -> str | None:
        """Why two machines can be one; None where something speaks against it, or nothing for it."""
        frame = self.store.frame
        names: dict[int, dict[int, str]] = {
            node: dict(frame('SELECT "index", name FROM device WHERE node = ? AND name IS NOT NULL', [node]).rows())
            for node in (mine, theirs)
        }
        if any(model(names[theirs].get(index, name)) != model(name) for index, name in names[mine].items()):
            return None
        used = {
            node: set(
                frame(
                    "SELECT DISTINCT device FROM device_event WHERE node = ? AND device IS NOT NULL UNION"
                    " SELECT DISTINCT unit FROM sample WHERE node = ? AND starts_with(metric, 'gpu_') AND unit IS NOT NULL UNION"
                    ' SELECT "index" FROM device WHERE node = ?',
                    [node, node, node],
                ).to_series().to_list()
            )
            for node in (mine, theirs)
        }  # fmt: skip
        if used[mine] and used[theirs] and not (used[mine] <= used[theirs] or used[theirs] <= used[mine]):
            return None
        processes = {
            node: frame("SELECT pid, rank FROM process WHERE node = ? AND pid IS NOT NULL", [node]).rows() for node in (mine, theirs)
        }
        pids = {pid for pid, _ in processes[mine]} & {pid for pid, _ in processes[theirs]}
        ranks = {node: {rank for _, rank in processes[node] if rank is not None} for node in (mine, theirs)}
        if not pids and processes[mine] and processes[theirs] and ranks[mine] & ranks[theirs]:
            return None
        for pid in pids:
            said = {rank for one, rank in (*processes[mine], *processes[theirs]) if one == pid and rank is not None}
            if len(said) > 1:
                return None
        spans = [self._span(node) for node in (mine, theirs)]
        apart = None not in spans and not (spans[0][0] <= spans[1][1] and spans[1][0] <= spans[0][1])  # type: ignore[index]
        if apart and not pids:
            return None
        if pids:
            return f"{'the process id is' if len(pids) == 1 else f'{len(pids)} process ids are'} the same"
        if names[mine] and names[theirs]:
            return (
                "their GPUs have the same names, and they recorded at the same time"
                if None not in spans
                else "their GPUs have the same names"
            )
        if used[mine] and used[theirs]:
            return "their GPUs have the same numbers" + (", and they recorded at the same time" if None not in spans else "")
        return "they recorded at the same time" if None not in spans else None

    def _span(self, node: int) -> tuple[int, int] | None:
        """From when to when anything of a machine was recorded, where its times are of the epoch."""
        first, last = self.store.frame(
            """
            SELECT min(first), max(last) FROM (
                SELECT min(start_ns) AS first, max(start_ns + duration_ns) AS last FROM annotation WHERE node = $node
                UNION ALL SELECT min(start_ns), max(start_ns + duration_ns) FROM device_event WHERE node = $node
                UNION ALL SELECT min(start_ns), max(start_ns + duration_ns) FROM host_event WHERE node = $node
                UNION ALL SELECT min(time_ns), max(time_ns) FROM sample WHERE node = $node)
            """.replace("$node", str(int(node)))
        ).row(0)
        if first is None:
            placed = [one.log for one in self.logs.placed if one.node == node and one.log.zoned and one.log.first_ns is not None]
            first = min((log.first_ns for log in placed if log.first_ns is not None), default=None)
            last = max((log.last_ns for log in placed if log.last_ns is not None), default=None)
        return None if first is None or last is None or first < _EPOCH_NS else (first, last)

    def _merge(self, mine: int, theirs: int) -> None:
        """All rows of one machine to another; processes of one pid become one."""
        execute = self.store.connection.execute
        known = {
            pid: process
            for process, pid in execute(
                "SELECT id, pid FROM process WHERE node = ? AND pid IS NOT NULL ORDER BY id DESC", [theirs]
            ).fetchall()
        }
        same = [
            (process, known[pid])
            for process, pid in execute("SELECT id, pid FROM process WHERE node = ?", [mine]).fetchall()
            if pid in known
        ]
        for table in self._tables("node"):
            if table != "device":
                execute(f"UPDATE {table} SET node = ? WHERE node = ?", [theirs, mine])
        for gone, stays in same:
            self._apart(gone, stays)
            for table in self._tables("process"):
                execute(f"UPDATE {table} SET process = ? WHERE process = ?", [stays, gone])
            execute(
                "UPDATE process SET rank = coalesce(process.rank, o.rank), local_rank = coalesce(process.local_rank, o.local_rank),"
                " world_size = coalesce(process.world_size, o.world_size), command = coalesce(process.command, o.command)"
                " FROM (SELECT * FROM process WHERE id = ?) AS o WHERE process.id = ?",
                [gone, stays],
            )
            execute("DELETE FROM process WHERE id = ?", [gone])
            for source, result in self.results.items():
                changes: dict[str, Any] = {}
                if getattr(result, "process", None) == gone:
                    changes["process"] = stays
                if gone in getattr(result, "ranked", ()):
                    changes["ranked"] = tuple(stays if one == gone else one for one in result.ranked)  # type: ignore[attr-defined]
                if changes:
                    self.results[source] = replace(result, **changes)
        execute(
            'UPDATE device SET node = ? WHERE node = ? AND "index" NOT IN (SELECT "index" FROM device WHERE node = ?)',
            [theirs, mine, theirs],
        )
        facts = [column for column in SCHEMA["device"] if column not in ("node", "index")]
        execute(
            f"UPDATE device SET {', '.join(f'{column} = coalesce(device.{column}, o.{column})' for column in facts)}"
            ' FROM (SELECT * FROM device WHERE node = ?) AS o WHERE device.node = ? AND device."index" = o."index"',
            [mine, theirs],
        )
        execute("DELETE FROM device WHERE node = ?", [mine])
        execute(
            "UPDATE node SET cores = coalesce(node.cores, o.cores), memory_bytes = coalesce(node.memory_bytes, o.memory_bytes),"
            " gpus = greatest(node.gpus, o.gpus), quota = coalesce(node.quota, o.quota)"
            " FROM (SELECT * FROM node WHERE id = ?) AS o WHERE node.id = ?",
            [mine, theirs],
        )
        execute("DELETE FROM node WHERE id = ?", [mine])
        for placed in self.logs.placed:
            placed.node = theirs if placed.node == mine else placed.node

    def _apart(self, gone: int, stays: int) -> None:
        """Correlations and external ids of two sources of one process are kept apart."""
        execute = self.store.connection.execute
        for column in ("correlation", "external_id"):
            ((most,),) = execute(
                f"SELECT max({column}) FROM (SELECT {column} FROM device_event WHERE process = ? UNION ALL SELECT {column} FROM host_event"
                " WHERE process = ?)",
                [stays, stays],
            ).fetchall()
            if most is None or most <= 0:
                continue
            by = (most // CYCLE_IDS + 1) * CYCLE_IDS
            for table in self._tables(column):
                execute(f"UPDATE {table} SET {column} = {column} + ? WHERE process = ? AND {column} > 0", [by, gone])

    @staticmethod
    def _tables(column: str) -> list[str]:
        return [table for table, columns in SCHEMA.items() if column in columns]

    # -- clocks --------------------------------------------------------------------------------------------------------

    def _logs(self) -> None:
        """One clock for the logs of GPUs and the rest of the run; then their rows become samples."""
        shifts: dict[int, int] = {}
        for log in self.logs.logs:
            if log.zoned or log.first_ns is None or log.last_ns is None:
                continue
            placed = [one for one in self.logs.placed if one.log is log]
            found, doubt = self._fit(placed)
            if doubt is not None and log.source in self.logs.guessed:
                (node,) = self.store.frame("SELECT hostname FROM node WHERE id = ?", [placed[0].node]).row(0)
                text = (
                    f"The log may be of another machine than {node}: {doubt.reason} over {doubt.samples:,} samples, and it names no"
                    f" machine. {HOW_TO_NAME}"
                )
                self._note_log("warning", "machine_doubtful", text, log)
            run = self._run_span(log.source)
            here = (log.first_ns, log.last_ns)
            if isinstance(found, Offset):
                best, zone = found, zone_of(found)
                if zone is None:
                    text = (
                        f"The log's times have no zone. Its utilisation fits the GPUs' activity best when shifted by {told(best.shift_ns)}"
                        f" ({best.evidence}), but no time zone ({ZONES}) is within a minute of that: its clock may have been"
                        " wrong, or it may be of another run or machine. Its times were taken for UTC and not shifted. Log with TZ=UTC."
                    )
                    self._note_log("warning", "clock_doubtful", text, log)
                    continue
                found = zone
                if not found.shift_ns:
                    text = f"The log's times have no zone; taken for UTC they fit the GPUs' activity ({found.evidence})."
                    self._note_log("info", "clock_agrees", text, log)
                    continue
            elif run is not None and not (here[0] <= run[1] and run[0] <= here[1]):
                why = found.reason
                found = zone_offset(here, run)
                if isinstance(found, Unclear):
                    text = (
                        "The log's times have no zone; taken for UTC they are not of the time of the run, and which zone they are of"
                        f" cannot be told: {found.reason}; {why}. They were not shifted. Log with TZ=UTC."
                    )
                    self._note_log("warning", "clock_unknown", text, log)
                    continue
                found = replace(found, evidence=f"{found.evidence}; the utilisation does not tell: {why}")
            else:
                reason = f": {found.reason}" if run is not None else ""
                text = f"The log's times have no zone; they are taken for UTC, and were not checked against other sources{reason}."
                self._note_log("info", "times_without_zone", text, log)
                continue
            shifts[log.source] = found.shift_ns
            within = f", +/- {told(found.uncertainty_ns)[1:]}" if found.uncertainty_ns else ""
            self.clocks[log.source] = Clock(found.shift_ns, f"{found.evidence}{within}")
            text = f"Times of {log.file} were shifted by {told(found.shift_ns)} ({found.evidence}{within}): the log's times have no zone."
            self._note_log("info" if found.uncertainty_ns else "warning", "clock_shifted", text, log)
        self.results.update(self.logs.store_samples(shifts, zoned=False))

    def _note_log(self, severity: Severity, code: str, text: str, log: Log) -> None:
        self.store.note(severity, code, text, source=log.source, file=log.file)

    def _fit(self, placed: Sequence[Placed]) -> tuple[Offset | Unclear, Unclear | None]:
        """The utilisation of a log against what the other sources know of the same GPUs; second, what speaks against the same machine."""
        series: list[Series] = []
        activity: list[Activity] = []
        for one in placed:
            for gpu in one.gpus[:_MOST_GPUS]:
                known = self._activity(one.node, gpu.unit)
                if known is None:
                    continue
                # A temporary table is of the connection alone.
                rows = self.store.connection.sql(
                    "SELECT time_ns, value FROM log_sample WHERE log = ? AND gpu = ? AND metric = 'gpu_utilization' AND isfinite(value)"
                    f" ORDER BY time_ns LIMIT {_MOST_SAMPLES}",
                    params=[one.log.source, gpu.number],
                ).pl()
                if rows.height:
                    series.append(series_of(rows["time_ns"].to_numpy(), rows["value"].to_numpy()))
                    activity.append(known)
        if not series:
            return Unclear("no other source knows the activity of these GPUs"), None
        furthest = FURTHEST_ZONE_NS + 60 * SECOND
        found = busy_offset(series, activity, furthest_ns=furthest)
        if isinstance(found, Offset):
            return found, None
        doubt = found if found.samples >= DOUBTFUL_SAMPLES and found.correlation < DOUBTFUL_CORRELATION else None
        # Clocks of one machine differ by their time zone alone.
        zone = busy_offset(series, activity, furthest_ns=furthest, zones=True)
        if isinstance(zone, Offset) and found.period_ns is not None and commensurate(found):
            period = told(found.period_ns)[1:]
            zone = Unclear(f"{found.reason}; the load repeats every {period}, so that all quarter hours fit alike, and others between them")
        return zone, doubt

    def _activity(self, node: int, device: int) -> Activity | None:
        """When a GPU was busy, by its kernels and copies, else by another sampler."""
        # Where samples are, they span the run; where only a short profile is, that.
        rows = self.store.frame(
            "SELECT time_ns, value FROM sample WHERE node = ? AND unit = ? AND metric = 'gpu_utilization' AND isfinite(value)"
            f" ORDER BY time_ns LIMIT {_MOST_SAMPLES}",
            [node, device],
        )
        if rows.height >= 2:
            series = series_of(rows["time_ns"].to_numpy(), rows["value"].to_numpy())
            gaps = np.diff(series.time_ns)
            gaps = gaps[gaps > 0]
            return activity_of_samples(series, int(np.median(gaps))) if len(gaps) else None
        return self._device_activity(node, device)

    def _device_activity(self, node: int, device: int, only: tuple[int, int] | None = None) -> Activity | None:
        """By kernels and copies. ``only``: from which row of device_event to which."""
        where = f" AND rowid >= {only[0]} AND rowid < {only[1]}" if only else ""
        busy = self.store.frame(
            f"""
            WITH event AS (
                SELECT process, start_ns AS s, start_ns + duration_ns AS e FROM device_event
                WHERE node = ? AND device = ? AND kind <> 'sync' AND duration_ns > 0 {where}
            ), marked AS (
                SELECT s, e, max(e) OVER (ORDER BY s, e ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM event
            ), grouped AS (
                SELECT s, e, sum((before IS NULL OR s > before)::INTEGER) OVER (ORDER BY s, e ROWS UNBOUNDED PRECEDING) AS part FROM marked
            )
            SELECT min(s) AS s, max(e) AS e FROM grouped GROUP BY part ORDER BY s
            """,
            [node, device],
        )
        if busy.is_empty():
            return None
        start, end = busy["s"].to_numpy(), busy["e"].to_numpy()
        windows = self.store.frame(
            "SELECT DISTINCT w.first_ns, w.last_ns FROM profile_window AS w JOIN process AS p ON p.id = w.process"
            " WHERE p.node = ? ORDER BY 1",
            [node],
        ).rows()
        inside = [(max(first, int(start[0])), min(last, int(end[-1]))) for first, last in windows] if only is None else []
        known: list[tuple[int, int]] = []
        for first, last in sorted(window for window in inside if window[0] < window[1]):
            if known and first <= known[-1][1]:
                known[-1] = (known[-1][0], max(known[-1][1], last))
            else:
                known.append((first, last))
        return Activity(start, end, np.ones(len(start)), tuple(known) or ((int(start[0]), int(end[-1])),))

    def _run_span(self, source: int) -> tuple[int, int] | None:
        """From when to when the other sources with times of the epoch recorded."""
        logs = {log.source for log in self.logs.logs if not log.zoned}
        spans = [
            (result.first_ns, result.last_ns)
            for other, result in self.results.items()
            if other != source and other not in logs and not result.relative and result.first_ns is not None and result.last_ns is not None
        ]
        spans = [span for span in spans if span[0] >= _EPOCH_NS]
        return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None

    def _relative(self) -> None:
        """Sources without an epoch get the clock of the others, where events of both or the GPUs' utilisation tell it."""
        relative = [source for source in self.sources if source.result.relative and source.rows]
        others = [source for source in self.sources if not source.result.relative and source.result.first_ns is not None]
        if not relative or not (others or self.logs.logs):
            return
        for source in relative:
            found = self._relate(source, others)
            if isinstance(found, Unclear):
                text = f"The times of {source.file} have no epoch and could not be related to those of the other files: {found.reason}."
                self.store.note("warning", "clock_unknown", text, source=source.id, file=source.file)
                continue
            self._shift(source, found.shift_ns)
            within = f"{found.evidence}, +/- {told(found.uncertainty_ns)[1:]}"
            self.clocks[source.id] = Clock(found.shift_ns, within)
            text = f"Times of {source.file} have no epoch; they were shifted to those of the other files ({within})."
            self.store.note("info", "clock_shifted", text, source=source.id, file=source.file)

    def _relate(self, source: SourceRows, others: Sequence[SourceRows]) -> Offset | Unclear:
        reasons = []
        for other in others:
            if other.rows and other.format in self.tracers and (common := self._same_process(source, other)):
                found = self._by_kernels(source, other, common)
                if isinstance(found, Offset):
                    return found
                reasons.append(found.reason)
        found = self._by_steps(source)
        if isinstance(found, Offset):
            return found
        reasons.append(found.reason)
        found = self._by_samples(source)
        return found if isinstance(found, Offset) else Unclear("; ".join(dict.fromkeys([*reasons, found.reason])))

    def _same_process(self, one: SourceRows, other: SourceRows) -> set[int]:
        """Processes of which both have device events."""
        return self._processes(one, "device_event") & self._processes(other, "device_event")

    def _processes(self, source: SourceRows, table: str) -> set[int]:
        first, last = source.rows.get(table, (0, 0))
        if first >= last:
            return set()
        query = f"SELECT DISTINCT process FROM {table} WHERE rowid >= ? AND rowid < ? AND process IS NOT NULL"
        return set(self.store.frame(query, [first, last]).to_series().to_list())

    def _by_kernels(self, one: SourceRows, other: SourceRows, processes: set[int]) -> Offset | Unclear:
        """Three kernels in a row of the same names and durations (to the microsecond) that both have exactly once."""
        keys: list[dict[Any, int]] = []
        for source in (one, other):
            first, last = source.rows["device_event"]
            rows = self.store.frame(
                f"""
                WITH kernel AS (
                    SELECT device, start_ns, (n.text, duration_ns // 1000) AS what FROM device_event JOIN name AS n ON n.id = name
                    WHERE device_event.rowid >= {first} AND device_event.rowid < {last} AND kind = 'kernel'
                        AND process IN ({", ".join(map(str, sorted(processes)))}) LIMIT {_MOST_KERNELS}
                ), chain AS (
                    SELECT start_ns, hash(device, what, lead(what) OVER here, lead(what, 2) OVER here) AS key FROM kernel
                    WINDOW here AS (PARTITION BY device ORDER BY start_ns)
                )
                SELECT key, min(start_ns) AS start_ns FROM chain GROUP BY key HAVING count(*) = 1
                """
            )
            keys.append(dict(rows.rows()))
        return event_offset(keys[0], keys[1], closest_ns=_KERNEL_SPREAD_NS, what="kernels")

    def _by_steps(self, source: SourceRows) -> Offset | Unclear:
        first, last = source.rows.get("annotation", (0, 0))
        reasons = ["no other source has steps of the same process"]
        for process in sorted(self._processes(source, "annotation")):
            mine, theirs = (
                {
                    value: (start, duration)
                    for value, start, duration in self.store.frame(
                        f"""
                        SELECT a.value, min(a.start_ns), any_value(a.duration_ns) FROM annotation AS a JOIN name AS n ON n.id = a.name
                        WHERE a.process = ? AND a.value IS NOT NULL AND a.complete AND coalesce(a.side, 'host') = 'host'
                            AND (regexp_matches(n.text, '^(step[_ -]?\\d*|ProfilerStep#\\d+)$')
                                OR starts_with(coalesce(a.phase, ''), 'Step:ModeKeys.TRAIN'))
                            AND {"" if own else "NOT "}(a.rowid >= {first} AND a.rowid < {last})
                        GROUP BY a.value HAVING count(*) = 1
                        """,
                        [process],
                    ).rows()
                }
                for own in (True, False)
            )
            if not mine or not theirs:
                continue
            found = step_offset(mine, theirs)
            if isinstance(found, Offset):
                return found
            reasons = [found.reason]
        return Unclear(reasons[0])

    def _by_samples(self, source: SourceRows) -> Offset | Unclear:
        """The GPUs' utilisation that others sampled against the activity that this source has."""
        rows = source.rows.get("device_event", (0, 0))
        if rows[0] >= rows[1]:
            return Unclear("it has no device activity")
        series, activity = [], []
        for node, device in self.store.frame(
            "SELECT DISTINCT node, device FROM device_event WHERE rowid >= ? AND rowid < ? AND device IS NOT NULL ORDER BY ALL", list(rows)
        ).rows()[:_MOST_GPUS]:
            sampled = self.store.frame(
                "SELECT time_ns, value FROM sample WHERE node = ? AND unit = ? AND metric = 'gpu_utilization' AND isfinite(value)"
                f" ORDER BY time_ns LIMIT {_MOST_SAMPLES}",
                [node, device],
            )
            known = self._device_activity(node, device, rows)
            if sampled.height and known is not None:
                series.append(series_of(sampled["time_ns"].to_numpy(), sampled["value"].to_numpy()))
                activity.append(known)
        if not series:
            return Unclear("no other source sampled its GPUs with times of the epoch")
        found = busy_offset(series, activity)
        return replace(found, shift_ns=-found.shift_ns) if isinstance(found, Offset) else found

    def _shift(self, source: SourceRows, by: int) -> None:
        for table, (first, last) in source.rows.items():
            if first < last:
                self.store.connection.execute(
                    f"UPDATE {table} SET start_ns = start_ns + ? WHERE rowid >= ? AND rowid < ?", [by, first, last]
                )
        self.store.connection.execute(
            "UPDATE profile_window SET first_ns = first_ns + $by, last_ns = last_ns + $by, on_ns = on_ns + $by, off_ns = off_ns + $by"
            " WHERE source = $source",
            {"by": by, "source": source.id},
        )
        result = self.results[source.id]
        if result.first_ns is not None and result.last_ns is not None:
            moved = replace(result, first_ns=result.first_ns + by, last_ns=result.last_ns + by, relative=False)
            self.results[source.id] = source.result = moved

    # -- twice ---------------------------------------------------------------------------------------------------------

    def _twice(self) -> None:
        """Device activity of one process and time that two tracers have counts once: that of the one that knows operators."""
        tracers = [source for source in self.sources if source.format in self.tracers and source.rows]
        if len(tracers) < 2:
            return
        self._other_process(tracers)
        spans: dict[tuple[int, int], tuple[int, int]] = {}
        for source in tracers:
            first, last = source.rows.get("device_event", (0, 0))
            if first < last:
                for process, start, end in self.store.frame(
                    "SELECT process, min(start_ns), max(start_ns + duration_ns) FROM device_event WHERE rowid >= ? AND rowid < ?"
                    " AND process IS NOT NULL GROUP BY process",
                    [first, last],
                ).rows():
                    spans[source.id, process] = (start, end)
        for place, source in enumerate(tracers):
            for other in tracers[place + 1 :]:
                for process in sorted({process for one, process in spans if one == source.id} & {p for one, p in spans if one == other.id}):
                    mine, theirs = spans[source.id, process], spans[other.id, process]
                    first, last = max(mine[0], theirs[0]), min(mine[1], theirs[1])
                    shorter = min(mine[1] - mine[0], theirs[1] - theirs[0])
                    # Files of one profiler that follow each other may touch.
                    if last - first > (0.5 * shorter if source.format == other.format else 0):
                        self._leave_out(source, other, process, (first, last))

    def _other_process(self, tracers: Sequence[SourceRows]) -> None:
        """Device activity that two tracers have under different processes counts once: a trace that was made of an export can hold several
        processes and names one. The same starts and durations to the nanosecond on one device are no coincidence, so names, which other
        tools shorten, are not asked for. What stays is of the source that tells more processes apart."""
        query = (
            "SELECT node, device, process, min(start_ns), max(start_ns + duration_ns), count(*) FROM device_event"
            " WHERE rowid >= ? AND rowid < ? AND kind = 'kernel' AND process IS NOT NULL GROUP BY ALL ORDER BY ALL"
        )
        work = {one.id: self.store.frame(query, list(one.rows.get("device_event", (0, 0)))).rows() for one in tracers}
        for place, source in enumerate(tracers):
            for other in tracers[place + 1 :]:
                several = {one.id: len({process for _, _, process, *_ in work[one.id]}) for one in (source, other)}
                stays, goes = (source, other) if several[source.id] >= several[other.id] else (other, source)
                for node, device, process, first, last, count in work[goes.id]:
                    for where, unit, theirs, begin, end, many in work[stays.id]:
                        apart = (where, unit) != (node, device) or theirs == process or begin >= last or first >= end
                        if not apart and min(count, many) >= LEAST_SAME and self._same_work(goes, stays, node, device, process, theirs):
                            self._leave_same(goes, stays, device, process, theirs)

    def _same_work(self, goes: SourceRows, stays: SourceRows, node: int, device: int, process: int, theirs: int) -> bool:
        """Whether nearly all of the first kernels that one source has of a process in the time of the other's are the other's, too."""
        rows, others = goes.rows["device_event"], stays.rows["device_event"]
        many, same = self.store.frame(
            """
            WITH theirs AS (
                SELECT start_ns, duration_ns FROM device_event
                WHERE rowid >= ? AND rowid < ? AND node = ? AND device = ? AND process = ? AND kind = 'kernel'
            ), mine AS (
                SELECT start_ns, duration_ns FROM device_event
                WHERE rowid >= ? AND rowid < ? AND node = ? AND device = ? AND process = ? AND kind = 'kernel'
                    AND start_ns BETWEEN (SELECT min(start_ns) FROM theirs) AND (SELECT max(start_ns) FROM theirs)
                ORDER BY start_ns LIMIT 1000
            )
            SELECT count(*), count(*) FILTER ((start_ns, duration_ns) IN (SELECT (start_ns, duration_ns) FROM theirs)) FROM mine
            """,
            [*others, node, device, theirs, *rows, node, device, process],
        ).row(0)
        return bool(many >= LEAST_SAME and same >= 0.9 * many)

    def _leave_same(self, goes: SourceRows, stays: SourceRows, device: int, process: int, theirs: int) -> None:
        """Leave out every row of a source that the other has with the same kind and times under another process."""
        twice = 0
        for table in TABLES:
            (first, last), (begin, end) = (one.rows.get(table, (0, 0)) for one in (goes, stays))
            if first >= last or begin >= end or not {"process", "start_ns", "duration_ns"} <= set(SCHEMA[table]):
                continue
            kind = " AND b.kind = a.kind" if "kind" in SCHEMA[table] else ""
            on = " AND b.device = a.device AND a.device = " + str(int(device)) if table == "device_event" else ""
            gone = self.store.connection.execute(
                f"DELETE FROM {table} AS a WHERE a.rowid >= ? AND a.rowid < ? AND a.process = ? AND EXISTS (SELECT 1 FROM {table} AS b"
                f" WHERE b.rowid >= ? AND b.rowid < ? AND b.process = ? AND b.start_ns = a.start_ns"
                f" AND b.duration_ns = a.duration_ns{kind}{on})",
                [first, last, process, begin, end, theirs],
            ).fetchall()[0][0]
            twice += gone if table == "device_event" else 0
        text = (
            f"The same device activity of GPU {device} stands in {stays.file}, under another process; that counts (it tells the processes"
            " apart)."
        )
        self.store.note("info", "recorded_twice", text, count=twice, source=goes.id, file=goes.file)

    def _leave_out(self, source: SourceRows, other: SourceRows, process: int, span: tuple[int, int]) -> None:
        counts = {one.id: self._operators(one, process) for one in (source, other)}
        stays, goes = (source, other) if counts[source.id] >= counts[other.id] else (other, source)
        first, last = goes.rows["device_event"]
        inside = "process = ? AND start_ns BETWEEN ? AND ?"
        # Both have the launches of the first kernels, which lie before these.
        launches = [self._first_launch(one, process) for one in (source, other)]
        early = min(span[0], max(launch for launch in launches if launch is not None)) if None not in launches else span[0]
        twice = self.store.connection.execute(
            f"DELETE FROM device_event WHERE rowid >= ? AND rowid < ? AND {inside}", [first, last, process, *span]
        ).fetchall()[0][0]
        same = stays.format == goes.format
        whole = span  # of two files of one profiler all that both have
        if same and None not in (stays.result.first_ns, stays.result.last_ns):
            whole = (stays.result.first_ns or 0, stays.result.last_ns or 0)
        for table in TABLES[1:]:
            begin, end = goes.rows.get(table, (0, 0))
            kinds = "" if same or table != "host_event" else " AND kind IN ('launch', 'sync', 'call')"
            if begin < end and (same or table == "host_event"):
                self.store.connection.execute(
                    f"DELETE FROM {table} WHERE rowid >= ? AND rowid < ? AND {inside}{kinds}",
                    [begin, end, process, *(whole if same else (early, span[1]))],
                )
        if not twice:
            return
        why = "it knows the operators" if counts[stays.id] > counts[goes.id] else "it comes first"
        text = f"Device activity of the same process and time stands in {stays.file}, too; that counts ({why})."
        self.store.note("info", "recorded_twice", text, count=twice, source=goes.id, file=goes.file, first_ns=span[0], last_ns=span[1])

    def _first_launch(self, source: SourceRows, process: int) -> int | None:
        query = "SELECT min(start_ns) FROM host_event WHERE rowid >= ? AND rowid < ? AND process = ? AND kind = 'launch'"
        found: int | None = self.store.frame(query, [*source.rows.get("host_event", (0, 0)), process]).item()
        return found

    def _operators(self, source: SourceRows, process: int) -> int:
        first, last = source.rows.get("host_event", (0, 0))
        query = "SELECT count(*) FROM host_event WHERE rowid >= ? AND rowid < ? AND process = ? AND kind = 'operator'"
        return int(self.store.frame(query, [first, last, process]).item())


_EPOCH_NS: Final = 978_307_200 * SECOND
