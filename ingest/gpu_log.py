"""Which rows become of the samples in logs of GPU monitors, and to which machine, GPU and time do they belong?

Readers (:mod:`.nvidia_smi`, :mod:`.dcgm`) hand over what the lines say; the rows wait in a table of their own until all files are read,
because machine, number of the GPU and time zone often follow only from the other files of the run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from .devices import MOST_DEVICES, vendor_of
from .registry import UNKNOWN_HOST, ReadResult, Registry, one_name
from .store import Store, storable

KEYS: Final = ("host", "index", "uuid", "bus", "name")
"""Columns of texts that say which GPU a row is of."""
MOST_GPUS: Final = 4096
"""GPUs of one log; rows of further ones are left out."""
UTILIZATION: Final = "gpu_utilization"
USED: Final = "gpu_memory_used_bytes"
TOTAL: Final = "gpu_memory_total_bytes"
PERCENT: Final = "gpu_memory_used_percent"
FREE: Final = "gpu_memory_free_bytes"
RESERVED: Final = "gpu_memory_reserved_bytes"
"""Of the driver. Only to make the total of; not stored."""
# No value of these can be above.
LIMITS: Final = {
    USED: 2.0**50, TOTAL: 2.0**50, FREE: 2.0**50, RESERVED: 2.0**50, "gpu_power": 1e5, "gpu_sm_clock": 1e5, "gpu_throttle_reasons": 2.0**53,
}  # fmt: skip
PERCENT_LIMIT: Final = 100.0
YEAR_2001_US: Final = 978_307_200 * 10**6
YEAR_2200_US: Final = 7_258_118_400 * 10**6

_TABLE: Final = "CREATE TEMP TABLE IF NOT EXISTS log_sample (log INTEGER, gpu INTEGER, metric VARCHAR, time_ns BIGINT, value DOUBLE)"
_MONITOR: Final = r"(?:nvidia[-_]?smi|dcgmi?)(?:[-_.](?:dmon|exporter|query))?"
_TOOL: Final = rf"(?:{_MONITOR}|smi|gpu|dmon)"
_HOST: Final = r"(?P<host>[a-z][a-z0-9-]*[0-9][a-z0-9.-]*)"
_FIRST: Final = r"(?P<first>[a-z][a-z0-9-]*?[0-9][a-z0-9.-]*?)"
_NAMED: Final = re.compile(rf"(?:{_TOOL}[-_.]{_HOST}|{_FIRST}[-_.]{_TOOL})\.(?:csv|log|txt|out|tsv)(?:\.gz|\.zst)?", re.I)
_NO_HOST: Final = re.compile(
    r"(?:gpus?|rank|run|job|log|trace|test|step|epoch|exp|trial|version|v|part|dmon|stats?|metrics?|util\w*|usage|query|pid|bs|lr|[abhlptv]"
    r"|rtx|gtx|gb|gh|dgx-?[abh]|mi)[-_]?\d[\d._-]*(?:gb?|x|s|ti)?",
    re.I,
)


# The documented form: what stands between the tool and the ending is the host, but for the date or number of a rotated file.
_DOCUMENTED: Final = re.compile(
    rf"{_MONITOR}\.(?P<host>[a-z0-9][a-z0-9._-]*?)"
    r"(?:[.-]\d{4}-?\d\d-?\d\d(?:[-_T]?\d[\d-]*)?|\.\d{1,3})*\.(?:csv|log|txt|out|tsv|prom)(?:\.\d{1,3})?(?:\.gz|\.zst)?",
    re.I,
)
_DASHED: Final = re.compile(rf"{_MONITOR}[-_](?P<host>[a-z][a-z-]*)\.(?:csv|log|txt|out|tsv)(?:\.gz|\.zst)?", re.I)
_ADDRESS: Final = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_NUMBERED: Final = re.compile(r"(?:rank|run|job|pid|step|epoch|trial|version|part)[-_]?\d+|v\d+(?:\.\d+)*", re.I)
_WORDS: Final = frozenset({"log", "logs", "out", "output", "query", "dmon", "stats", "metrics", "usage", "util", "utilization", "csv"})
# Behind a dash what a log is of is as likely as where it was written.
_KINDS: Final = _WORDS | {
    "after", "all", "baseline", "before", "eval", "exporter", "gpu", "gpus", "idle", "monitor", "report", "run", "test", "train",
    "training", "warmup",
}  # fmt: skip
_BARE: Final = re.compile(rf"{_TOOL}(?:[-_.](?:log|dmon|query))?\.(?:csv|log|txt|out|tsv)(?:\.gz|\.zst)?", re.I)
_FOLDER: Final = re.compile(r"(?:node|host|worker|server|machine|algo)[-_]?(?:\d+|[a-z])|ip(?:-\d{1,3}){4}", re.I)
HOW_TO_NAME: Final = "Name the file after its machine (nvidia-smi.HOST.csv), or log the column uuid."


def documented_host(name: str) -> str | None:
    """The host in a file's name ``nvidia-smi.HOST.csv`` or ``dcgm.HOST.csv``; None where there is none."""
    match = _DOCUMENTED.fullmatch(name)
    if match is None:
        return None
    stem = name[match.start("host") :]
    if (address := re.match(rf"(?:{_ADDRESS.pattern})(?=\.[a-z])", stem, re.I)) is not None:
        return address[0]
    host = match["host"]
    told = any(letter.isalpha() for letter in host) and not _NUMBERED.fullmatch(host) and host.lower() not in _WORDS
    return host if told else None


def named_host(path: Path) -> str | None:
    """The host that the name of a log, or of its folder where the log has the tool's name alone, says by itself."""
    if _DOCUMENTED.fullmatch(path.name):
        return documented_host(path.name)
    match = _NAMED.fullmatch(path.name)
    host = (match["host"] or match["first"]) if match else None
    if host is not None:
        return None if _NO_HOST.fullmatch(host) else host
    return path.parent.name if _BARE.fullmatch(path.name) and _FOLDER.fullmatch(path.parent.name) else None


def dashed_host(name: str) -> str | None:
    """What can be a host of letters alone in ``nvidia-smi-HOST.csv``, where nothing but other logs says how machines are called."""
    match = _DASHED.fullmatch(name)
    host = match["host"] if match else None
    return host if host is not None and not _KINDS & set(host.lower().split("-")) else None


@dataclass(slots=True)
class Gpu:
    """One GPU, as its log names it."""

    number: int
    """Of this log, in the order of their first lines."""
    host: str | None
    index: int | None
    uuid: str | None
    bus: str | None
    name: str | None = None
    unit: int = 0
    """The number on its machine, once all is read."""


@dataclass(slots=True)
class Log:
    """One file. ``zoned``: its times say their zone, or count from the epoch. ``guessed``: no column says which GPU a line is of."""

    source: int
    path: Path
    zoned: bool
    gpus: dict[tuple[str | None, ...], Gpu] = field(default_factory=dict)
    rows: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    beyond: int = 0
    partial: bool = False

    @property
    def file(self) -> str:
        return storable(self.path.name)


@dataclass(slots=True)
class Placed:
    """The GPUs of one machine in one log, and by what they are known to be of it."""

    log: Log
    node: int
    gpus: list[Gpu]


class GpuLogs:
    """The logs of one run on their way into the store: :meth:`add` rows of each, then :meth:`place` and :meth:`store_samples`."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self.store = store
        self.registry = registry
        self.logs: list[Log] = []
        self.placed: list[Placed] = []
        self.guessed: set[int] = set()
        """Sources of logs that nothing but the kind of their GPUs ties to their machine."""

    def begin(self, source: int, path: Path, *, zoned: bool) -> Log:
        self.store.connection.execute(_TABLE)
        log = Log(source, path, zoned)
        self.logs.append(log)
        return log

    def add(self, log: Log, rows: pl.DataFrame) -> int:
        """Rows with ``time_ns``, any of ``KEYS`` and a column per metric (null: no value). How many values were kept."""
        metrics = [column for column in rows.columns if column not in KEYS and column != "time_ns"]
        rows = rows.with_columns(pl.lit(None, pl.String).alias(key) for key in KEYS if key not in rows.columns)
        keys = [key for key in KEYS if key != "name"]
        known = rows.group_by(keys, maintain_order=True).agg(pl.col("name").drop_nulls().first())
        numbers = [self._number(log, dict(zip((*keys, "name"), row, strict=True))) for row in known.iter_rows()]
        rows = rows.join(known.with_columns(gpu=pl.Series(numbers, dtype=pl.Int32)), on=keys, how="left", nulls_equal=True)
        log.beyond += rows["gpu"].null_count()
        rows = rows.filter(pl.col("gpu").is_not_null())
        long = (
            rows.unpivot(on=metrics, index=["gpu", "time_ns"], variable_name="metric", value_name="value")
            .filter(pl.col("value").is_not_null())
            .with_columns(log=pl.lit(log.source, pl.Int32))
        )
        if long.is_empty():
            return 0
        first, last = long.select(pl.col("time_ns").min(), last=pl.col("time_ns").max()).row(0)
        log.first_ns = first if log.first_ns is None else min(log.first_ns, first)
        log.last_ns = last if log.last_ns is None else max(log.last_ns, last)
        log.rows += len(long)
        connection = self.store.connection
        connection.register("log_rows", long.to_arrow())
        try:
            connection.execute("INSERT INTO log_sample SELECT log, gpu, metric, time_ns, value FROM log_rows")
        finally:
            connection.unregister("log_rows")
        return len(long)

    def _number(self, log: Log, said: dict[str, str | None]) -> int | None:
        """The number in its log of the GPU that a line names; None beyond ``MOST_GPUS``."""
        host, index, uuid, bus = (_some(said[key]) for key in ("host", "index", "uuid", "bus"))
        key = (host, uuid or index or bus)
        if (gpu := log.gpus.get(key)) is None:
            if len(log.gpus) >= MOST_GPUS:
                return None
            gpu = log.gpus[key] = Gpu(len(log.gpus), host, _index(index), uuid, bus)
        gpu.index = _index(index) if gpu.index is None else gpu.index
        gpu.name = gpu.name or _some(said["name"])
        return gpu.number

    def discard(self, log: Log) -> None:
        """Nothing of a log is used."""
        self.store.connection.execute("DELETE FROM log_sample WHERE log = ?", [log.source])
        self.logs.remove(log)

    # -- when all files are read ---------------------------------------------------------------------------------------

    def place(self) -> None:
        """The machine of every log and the numbers of its GPUs there, each with a note of what it was told by."""
        for log in self.logs:
            if not log.rows:
                continue
            hosts: dict[str | None, list[Gpu]] = {}
            for gpu in log.gpus.values():
                hosts.setdefault(gpu.host, []).append(gpu)
            for host, gpus in hosts.items():
                node = self._node(log, host, gpus)
                self._units(log, node, gpus)
                self.placed.append(Placed(log, node, gpus))
                self._devices(node, gpus)
            if log.beyond:
                text = f"Lines of GPUs beyond the first {MOST_GPUS:,} were left out."
                self.store.note("warning", "too_many_devices", text, count=log.beyond, source=log.source, file=log.file)

    def _machines(self) -> dict[int, str]:
        """Machines that the run's other files name, or that have something of them."""
        rows = self.store.connection.execute("SELECT id, hostname FROM node ORDER BY id").fetchall()
        return dict(rows)

    def _node(self, log: Log, host: str | None, gpus: Sequence[Gpu]) -> int:
        known = self._machines()

        def note(text: str) -> None:
            self.store.note("info", "machine_joined", text, count=len(gpus), source=log.source, file=log.file)

        if host is not None:
            same = [number for number, hostname in known.items() if hostname == host]
            short = [number for number, hostname in known.items() if one_name(host, hostname)]
            if same or len(short) != 1:
                return same[0] if same else self.registry.node(host)
            if host != known[short[0]]:
                note(f"{host} of the log is taken for {known[short[0]]}: one is the other without its domain.")
            return short[0]
        if len(found := self._by_uuid(gpus)) == 1:
            (number,) = found
            note(f"The log names no machine; it is of {known[number]}: the UUIDs of its GPUs are the same.")
            return number
        if (named := self._by_file(log, known)) is not None:
            return named
        alone = [number for number in known if not self.decided(number)]
        if len(alone) == 1 and (why := self._fits(alone[0], gpus, len(gpus))):
            text = f"The log names no machine; it is taken to be of {known[alone[0]]}, the only machine of the run: {why}."
            note(text)
            self.guessed.add(log.source)
            return alone[0]
        for placed in self.placed:
            if known[placed.node].startswith(UNKNOWN_HOST) and _overlap(log, placed.log) and self._equal(log, gpus, placed):
                note(f"The log has the values of {placed.log.file} at the same times: they are of one machine.")
                return placed.node
        for place in range(1, len(self.logs) + len(known) + 2):
            name = UNKNOWN_HOST if place == 1 else f"{UNKNOWN_HOST} {place}"
            number = self.registry.node(name)
            if number not in known or (self.decided(number) and not self._excludes(number, log, gpus)):
                break
        if alone:
            several = f"the run has {len(alone)} machines" if len(alone) > 1 else f"its GPUs are not those of {known[alone[0]]}"
            text = f"The log names no machine, and {several}: it is shown as {name}. {HOW_TO_NAME}"
            self.store.note("warning", "machine_unknown", text, source=log.source, file=log.file)
        elif place > 1 and number not in known:
            text = f"The log names no machine, and it is not of that of the other logs: it is shown as {name}. {HOW_TO_NAME}"
            self.store.note("warning", "machine_unknown", text, source=log.source, file=log.file)
        return number

    def _by_file(self, log: Log, known: dict[int, str]) -> int | None:
        """The machine that the name of the file, or of its folder, names."""

        def note(text: str) -> None:
            self.store.note("info", "machine_joined", text, source=log.source, file=log.file)

        host = documented_host(log.path.name)
        if host is not None:  # nothing else in the name, nor the folder's, counts then
            same = [number for number, hostname in known.items() if not hostname.startswith(UNKNOWN_HOST) and one_name(host, hostname)]
            if len(same) == 1:
                note(f"The log names no machine; it is of {known[same[0]]}: the name of the file or its folder says so.")
                return same[0]
        for name in (log.path.name, log.path.parent.name) if host is None else ():
            tokens = {number for number, hostname in known.items() if _has_token(name, hostname)}
            if len(tokens) == 1:
                (number,) = tokens
                note(f"The log names no machine; it is of {known[number]}: the name of the file or its folder says so.")
                return number
        host = host or named_host(log.path)
        if host is None and all(hostname.startswith(UNKNOWN_HOST) or self.decided(number) for number, hostname in known.items()):
            host = dashed_host(log.path.name)
        if host is None:
            return None
        of = "file" if host in log.path.name else "folder"
        note(f"The log names no machine; {host} is taken from the name of the {of}.")
        return self.registry.node(host)

    def _by_uuid(self, gpus: Sequence[Gpu]) -> set[int]:
        mine = {plain(gpu.uuid) for gpu in gpus} - {None}
        if not mine:
            return set()
        rows = self.store.connection.execute("SELECT DISTINCT node, uuid FROM device WHERE uuid IS NOT NULL").fetchall()
        return {node for node, uuid in rows if plain(uuid) in mine}

    def decided(self, node: int) -> bool:
        """Whether only logs tell of a machine: that it is none of the others was asked when they were placed."""
        if not any(placed.node == node for placed in self.placed):
            return False
        return not any(
            self.store.connection.execute(f"SELECT 1 FROM {table} WHERE node = ? LIMIT 1", [node]).fetchall()
            for table in ("process", "sample", "device_event")
        )

    def _fits(self, node: int, gpus: Sequence[Gpu], count: int) -> str | None:
        """Why the GPUs of a log can be those of a machine; None where they cannot."""
        execute = self.store.connection.execute
        names = dict(execute('SELECT "index", name FROM device WHERE node = ?', [node]).fetchall())
        uuids = {plain(uuid) for (uuid,) in execute("SELECT uuid FROM device WHERE node = ?", [node]).fetchall()} - {None}
        if uuids and any(plain(gpu.uuid) not in uuids for gpu in gpus if plain(gpu.uuid)):
            return None
        used = {device for (device,) in execute("SELECT DISTINCT device FROM device_event WHERE node = ?", [node]).fetchall()}
        used |= {
            unit
            for (unit,) in execute("SELECT DISTINCT unit FROM sample WHERE node = ? AND starts_with(metric, 'gpu_')", [node]).fetchall()
        }
        used.discard(None)
        indices = {gpu.index for gpu in gpus}
        if None not in indices and not used <= indices:
            return None
        if len(used) > count:
            return None
        alike = 0
        for gpu in gpus:
            theirs = names.get(gpu.index) if gpu.index is not None else None
            if theirs and gpu.name:
                if model(theirs) != model(gpu.name):
                    return None
                alike += 1
        if alike:
            return f"its GPUs have the same names ({alike} of {len(gpus)})" if len(gpus) > 1 else "its GPU has the same name"
        return "the GPUs that the run used are among those of the log" if used else "no other file says which GPUs it has"

    def _excludes(self, node: int, log: Log, gpus: Sequence[Gpu]) -> bool:
        """Whether a machine that only logs tell of is another one: the same number with another UUID, or at the same time."""
        for placed in self.placed:
            if placed.node != node:
                continue
            theirs = {gpu.unit: plain(gpu.uuid) for gpu in placed.gpus}
            for place, gpu in enumerate(gpus):
                unit = place if gpu.index is None else gpu.index
                uuid = plain(gpu.uuid)
                if unit in theirs and uuid is not None and theirs[unit] is not None:
                    if uuid != theirs[unit]:
                        return True
                elif (
                    unit in theirs
                    and _overlap(log, placed.log)
                    and self._comparable(log, placed.log)
                    and not self._equal(log, gpus, placed)
                ):
                    return True
        return False

    def _comparable(self, log: Log, other: Log) -> bool:
        """Whether two logs have a metric in common: else, as of two monitors, nothing of the one speaks against the other."""
        query = "SELECT metric FROM log_sample WHERE log = ? INTERSECT SELECT metric FROM log_sample WHERE log = ? LIMIT 1"
        return bool(self.store.connection.execute(query, [log.source, other.source]).fetchall())

    def _equal(self, log: Log, gpus: Sequence[Gpu], placed: Placed) -> bool:
        """Whether two logs are copies: at the times that both have, all values are the same, and that is most of the shorter one."""
        theirs = {gpu.unit: gpu for gpu in placed.gpus}
        units = [(gpu, place if gpu.index is None else gpu.index) for place, gpu in enumerate(gpus)]
        both = [(gpu, theirs[unit]) for gpu, unit in units if unit in theirs]
        if not both or any(None not in (uuids := {plain(one.uuid), plain(other.uuid)}) and len(uuids) > 1 for one, other in both):
            return False
        pairs = [(one.number, other.number) for one, other in both]
        common, equal = self.store.connection.execute(
            f"""
            SELECT count(*), count(*) FILTER (abs(a.value - b.value) <= 1e-6 * abs(b.value)) FROM log_sample AS a
            JOIN (VALUES {", ".join(f"({one}, {other})" for one, other in pairs)}) AS pair(one, other) ON a.gpu = pair.one
            JOIN log_sample AS b ON b.log = ? AND b.gpu = pair.other AND b.metric = a.metric AND b.time_ns = a.time_ns
            WHERE a.log = ?
            """,
            [placed.log.source, log.source],
        ).fetchall()[0]
        return bool(common and equal == common and common >= 0.5 * min(log.rows, placed.log.rows))

    def _units(self, log: Log, node: int, gpus: Sequence[Gpu]) -> None:
        """The machine's number of every GPU: by UUID, else the log's index, else in order of the bus."""
        rows = self.store.connection.execute('SELECT "index", uuid FROM device WHERE node = ? AND uuid IS NOT NULL', [node]).fetchall()
        by_uuid = {plain(uuid): index for index, uuid in rows if plain(uuid)}
        free = iter(range(MOST_GPUS * 2))
        taken = {by_uuid[key] for gpu in gpus if (key := plain(gpu.uuid)) in by_uuid} | {gpu.index for gpu in gpus if gpu.index is not None}
        ordered = sorted(gpus, key=lambda gpu: (gpu.bus is None, (gpu.bus or "").lower(), gpu.number))
        moved = guessed = 0
        for gpu in ordered:
            known = by_uuid.get(plain(gpu.uuid))
            if known is not None:
                moved += gpu.index is not None and gpu.index != known
                gpu.unit = known
            elif gpu.index is not None:
                gpu.unit = gpu.index
            else:
                gpu.unit = next(number for number in free if number not in taken)
                guessed += len(gpus) > 1
        if moved:
            text = "GPUs are numbered as in the other files of the run, not as in the log; they were told by UUID."
            self.store.note("info", "device_renumbered", text, count=moved, source=log.source, file=log.file)
        if guessed:
            text = (
                "The log does not number its GPUs: they were numbered in the order of their bus addresses, else of their lines. Log index."
            )
            self.store.note("info", "device_numbered", text, count=guessed, source=log.source, file=log.file)

    def _devices(self, node: int, gpus: Sequence[Gpu]) -> None:
        execute = self.store.connection.execute
        known = {index for (index,) in execute('SELECT "index" FROM device WHERE node = ?', [node]).fetchall()}
        for gpu in gpus:
            facts = {"uuid": gpu.uuid, "name": gpu.name, "vendor": vendor_of(gpu.name) or "NVIDIA"}
            if gpu.unit in known:
                changes = ", ".join(f"{column} = coalesce({column}, ?)" for column in facts)
                execute(f'UPDATE device SET {changes} WHERE node = ? AND "index" = ?', [*facts.values(), node, gpu.unit])
            else:
                self.store.insert("device", {"node": node, "index": gpu.unit, **facts})
                known.add(gpu.unit)
        execute("UPDATE node SET gpus = greatest(gpus, ?) WHERE id = ?", [len({gpu.unit for gpu in gpus}), node])

    def store_samples(self, shifts: dict[int, int], *, zoned: bool) -> dict[int, ReadResult]:
        """The rows of logs whose times say their zone, or not, become samples. ``shifts``: what is added to the times of a source.

        What became of each source."""
        results: dict[int, ReadResult] = {}
        for log in [log for log in self.logs if log.zoned == zoned]:
            shift = shifts.get(log.source, 0)
            stored = 0
            for placed in [placed for placed in self.placed if placed.log is log]:
                stored += self._store(placed, shift)
            span = [None if time is None else time + shift for time in (log.first_ns, log.last_ns)]
            results[log.source] = ReadResult(stored, span[0], span[1], partial=log.partial)
            self.store.connection.execute("DELETE FROM log_sample WHERE log = ?", [log.source])
        return results

    def _store(self, placed: Placed, shift: int) -> int:
        execute = self.store.connection.execute
        log, node = placed.log, placed.node
        units = ", ".join(f"({gpu.number}, {gpu.unit})" for gpu in placed.gpus)
        execute(
            f"""
            CREATE OR REPLACE TEMP TABLE log_unit AS
            SELECT units.unit::INTEGER AS unit, metric, time_ns + ?::BIGINT AS time_ns, value FROM log_sample
            JOIN (VALUES {units}) AS units(gpu, unit) USING (gpu) WHERE log = ? AND isfinite(value)
            """,
            [shift, log.source],
        )
        # DCGM's exporter tells what is used and what is free, and not the total.
        execute(
            f"""
            INSERT INTO log_unit SELECT unit, '{TOTAL}', time_ns, sum(value) FROM log_unit
            WHERE metric IN ('{USED}', '{FREE}', '{RESERVED}') AND unit NOT IN (SELECT unit FROM log_unit WHERE metric = '{TOTAL}')
            GROUP BY unit, time_ns HAVING bool_or(metric = '{USED}') AND bool_or(metric = '{FREE}')
            """
        )
        execute(f"DELETE FROM log_unit WHERE metric IN ('{FREE}', '{RESERVED}')")
        # Memory in percent follows from bytes where the total is known; the total itself is one row.
        execute(
            f"""
            INSERT INTO log_unit SELECT unit, '{PERCENT}', time_ns, 100 * value / total FROM log_unit
            JOIN (SELECT unit, max(value) AS total FROM log_unit WHERE metric = '{TOTAL}' AND value > 0 GROUP BY unit) USING (unit)
            WHERE metric = '{USED}' AND value <= total AND unit NOT IN (SELECT unit FROM log_unit WHERE metric = '{PERCENT}')
            """
        )
        execute(
            f"""
            UPDATE device SET memory_bytes = coalesce(memory_bytes, total::BIGINT) FROM (
                SELECT unit, max(value) AS total FROM log_unit WHERE metric = '{TOTAL}' AND value > 0 GROUP BY unit) AS t
            WHERE device.node = ? AND device."index" = t.unit
            """,
            [node],
        )
        execute(
            f"""
            DELETE FROM log_unit WHERE metric = '{TOTAL}' AND rowid NOT IN (
                SELECT arg_min(rowid, time_ns) FROM log_unit WHERE metric = '{TOTAL}' GROUP BY unit, value)
            """
        )
        # What another file sampled of the same GPU at the same time counts once.
        twice = execute(
            """
            DELETE FROM log_unit USING (
                SELECT unit, metric, min(time_ns) AS first, max(time_ns) AS last FROM sample
                WHERE node = ? AND starts_with(metric, 'gpu_') GROUP BY ALL) AS s
            WHERE log_unit.unit = s.unit AND log_unit.metric = s.metric AND log_unit.time_ns BETWEEN s.first AND s.last
            """,
            [node],
        ).fetchall()[0][0]
        if twice:
            text = "Values that another file of the run has of the same GPU at the same time were left out; one counts."
            self.store.note("info", "sampled_twice", text, count=twice, source=log.source, file=log.file)
        stored: int = execute(
            "INSERT INTO sample (node, metric, unit, time_ns, value) SELECT ?, metric, unit, time_ns, value FROM log_unit", [node]
        ).fetchall()[0][0]
        execute("DROP TABLE log_unit")
        return stored


def plain(uuid: str | None) -> str | None:
    """A UUID without what is written in several ways: ``GPU-`` before it, dashes, case. None where it says nothing."""
    text = re.sub(r"^(gpu|mig)-|-", "", (uuid or "").strip().lower())
    return text if text.strip("0") else None


def model(name: str) -> str:
    """The product name of a GPU without the maker, which some tools leave out."""
    return re.sub(r"^(nvidia|tesla)\s+", "", re.sub(r"^nvidia\s+", "", name.strip().lower()))


def _has_token(name: str, hostname: str) -> bool:
    if hostname.startswith(UNKNOWN_HOST):
        return False
    address = hostname.replace(".", "").isdecimal()  # which has no domain
    names = {hostname} if address else {hostname, hostname.partition(".")[0]}
    return any(re.search(rf"(?<![a-z0-9-]){re.escape(one)}(?![a-z0-9-])", name, re.I) is not None for one in names)


def _overlap(one: Log, other: Log) -> bool:
    if one.first_ns is None or one.last_ns is None or other.first_ns is None or other.last_ns is None:
        return False
    return one.first_ns <= other.last_ns and other.first_ns <= one.last_ns


def _some(text: Any) -> str | None:
    return text if isinstance(text, str) and text.strip() else None


def _index(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 6 and int(text) < MOST_DEVICES else None
