"""What do logs of nvidia-smi say? ``--query-gpu=... --format=csv -l N`` and ``dmon -o DT`` -> ``sample``.

Columns are told by the header line, in any order; a header in the middle begins anew. Times have no zone and
count as UTC, unless the user states an offset (:mod:`.clocks`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import polars as pl

from ...errors import InputError
from ..chrome_trace.head import read_head
from ..store.registry import ReadResult
from ..store.store import Store
from .metrics import LIMITS, PERCENT_LIMIT, USED, UTILIZATION, YEAR_2001_US, YEAR_2200_US
from .reader import QUERY, LogReader
from .recognise import (
    COLUMNS,
    DMON_HEADER,
    FAILURE,
    KEY_COLUMNS,
    PMON_HEADER,
    REASON,
    TABLE,
    delimiter_of,
    dmon_columns,
    failure_of,
    header_of,
)
from .rows import GpuLogs

# Column of dmon -> metric and unit. Its clocks (pclk) are not said to be those of the multiprocessors.
DMON_COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "sm": (UTILIZATION, "%"),
    "mem": ("gpu_memory_controller", "%"),
    "pwr": ("gpu_power", "W"),
    "fb": (USED, "MiB"),
}
DMON: Final = "TZ=UTC nvidia-smi dmon -s pum -o DT -d 1 -f nvidia-smi-dmon.HOST.log"  # How dmon writes the date and the time of each line

_FACTORS: Final = {
    "%": 1.0, "": 1.0, "w": 1.0, "mw": 1e-3, "mhz": 1.0, "b": 1.0, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30,
    # what older drivers call them
    "kb": 2.0**10, "mb": 2.0**20, "gb": 2.0**30,
}  # fmt: skip
_REASON_BITS: Final = {
    "gpu_idle": 1, "applications_clocks_setting": 2, "sw_power_cap": 4, "hw_slowdown": 8, "sync_boost": 16, "sw_thermal_slowdown": 32,
    "hw_thermal_slowdown": 64, "hw_power_brake_slowdown": 128,
}  # fmt: skip
_NOTHING: Final = (
    r"^(-|\[?(n/?a|not supported|not available|unknown error|insufficient permissions|gpu requires reset|gpu is lost)\]?|err!)$"
)

_LOST: Final = re.compile(r"(?i)unable to determine the device handle for (?:gpu\s*)?(.{1,60}): ([^:]+)")
_MOMENT: Final = r"(\d{4}[/-]?\d\d[/-]?\d\d(?:[ T]+|\s*,\s*)\d\d:\d\d:\d\d)"
"""The time of a line, as the log writes it; where commas stand between the columns of dmon, one is between date and time."""
_MOST: Final = 8

Columns = dict[str, tuple[int, str, str]]


def read_smi(store: Store, logs: GpuLogs, path: Path, source: int, progress: Callable[[float], None] | None = None) -> ReadResult:
    """Hand the samples of one log to ``logs`` and note what could not be read. Raises InputError for a log that says too little."""
    return _Reader(store, logs, path, source).read(progress)


class _Reader(LogReader):
    zoned = False

    def __init__(self, store: Store, logs: GpuLogs, path: Path, source: int) -> None:
        super().__init__(store, logs, path, source)
        self.header: list[tuple[str, str]] | None = None
        self.delimiter = ","
        self.dmon = False
        self.last_time: pl.DataFrame | None = None
        self.moment: str | None = None
        self.failures: dict[str, tuple[str | None, int]] = {}

    def check(self) -> None:
        if self.header is None:
            raise InputError(self._why_none())

    def _why_none(self) -> str:
        if self.found["pmon"]:
            return f"{self.path}: nvidia-smi pmon lists processes, not the use of GPUs; log it with {QUERY}"
        if (words := failure_of(read_head(self.path))) is not None:
            return f'{self.path}: nvidia-smi itself failed and wrote no sample: "{words}"'
        if self.found["table"]:
            return f"{self.path}: the table of nvidia-smi is for people and has no time of each value; log with {QUERY}"
        return (
            f"{self.path}: the log has no header line, so its columns cannot be told. Put the names of its columns in a first line"
            f" (timestamp, index, utilization.gpu [%], ...), or log without noheader: {QUERY}"
        )

    def add(self, lines: pl.Series) -> None:
        """Lines between two headers are of the columns of the first."""
        first = lines.str.slice(0, 1)
        perhaps = lines.str.contains(r"^[#\"\s]*[a-zA-Z][a-zA-Z0-9_.]*(\s*\[[^\]]*\])?\"?\s*[,;\t]") | (first == "#")
        heads = [(place, lines[place]) for place in perhaps.arg_true().to_list()[:10_000]]
        begin = 0
        for place, line in heads:
            if (found := self._header(line)) is None:
                continue
            self._rows(lines[begin:place])
            self.delimiter = delimiter_of(line)
            if self.header is not None and self.header != found:
                self.count("columns_change", 1)
            self.header = found
            self._check_header()
            begin = place + 1
        self._rows(lines[begin:])

    def _header(self, line: str) -> list[tuple[str, str]] | None:
        if line.startswith("#") and PMON_HEADER.match(line):
            self.found["pmon"] += 1
            return None
        if line.startswith("#") and DMON_HEADER.match(line):
            self.dmon = True
            return [(name, "") for name in dmon_columns(line)]
        return header_of(line)

    def _check_header(self) -> None:
        names = [name for name, _ in self.header or ()]
        if self.dmon:
            if "date" not in names or "time" not in names:
                raise InputError(f"{self.path}: the log of nvidia-smi dmon does not say date and time of its lines; log with {DMON}")
            if not set(names) & set(DMON_COLUMNS):
                raise InputError(f"{self.path}: none of the columns of the log is read ({', '.join(names[:8])}); log with {DMON}")
            return
        if "timestamp" not in names:
            raise InputError(f"{self.path}: the log has no column timestamp, so it is not known when its values were; log with {QUERY}")
        if not any(name in COLUMNS or REASON.match(name) for name in names):
            raise InputError(f"{self.path}: none of the columns of the log is read ({', '.join(names[:8])}); log with {QUERY}")

    def _rows(self, lines: pl.Series) -> None:
        """The lines below one header."""
        lines = self._working(lines)
        if not len(lines):
            return
        if self.header is None:
            for line in lines[:40]:
                self.found["table"] += bool(TABLE.search(line))
                self.found["pmon"] += bool(PMON_HEADER.match(line))
            self.found["before_header"] += len(lines)
            return
        if self.dmon:
            lines = lines.filter(~lines.str.starts_with("#"))
            fields = lines.str.replace_all(",", " ", literal=True).str.strip_chars().str.replace_all(r"\s+", " ").str.split(" ")
        else:
            fields = lines.str.strip_chars_end(f"{self.delimiter} ").str.split(self.delimiter)
        whole = fields.list.len() == len(self.header)
        self.count("wrong_length", int((~whole).sum()), lines.filter(~whole))
        fields, lines = fields.filter(whole), lines.filter(whole)
        if not len(lines):
            return
        names = [name for name, _ in self.header]
        table = pl.DataFrame({"line": lines, "field": fields})
        # One frame of texts; of columns of one name the first counts.
        places = {name: place for place, name in reversed(list(enumerate(names)))}
        table = table.with_columns(
            pl.col("field").list.get(place).str.strip_chars(' "').alias(f"c{place}") for place in places.values()
        ).drop("field")
        table = table.with_columns(self._times(places))
        bad = table["time_us"].is_null()
        self.count("bad_time", int(bad.sum()), table.filter(bad)["line"])
        table = table.filter(~bad)
        if table.is_empty():
            return
        self._back(table, places)
        columns = [pl.col("time_us").cast(pl.Int64).mul(1000).alias("time_ns")]
        keys = {"gpu": "index"} if self.dmon else KEY_COLUMNS
        given = {}
        for name, key in keys.items():
            if name in places and key not in given:
                given[key] = pl.col(f"c{places[name]}")
        columns += [pl.when(~column.str.to_lowercase().str.contains(_NOTHING)).then(column).alias(key) for key, column in given.items()]
        if not set(given) & {"index", "uuid", "bus"}:
            self.alone.append(table["time_us"])
        rows = table.select(*columns, *self._values(table, places))
        self.logs.add(self.log, rows)

    def _working(self, lines: pl.Series) -> pl.Series:
        """Without the lines in which nvidia-smi says that it failed, or lost a GPU. They have no time: that of the line before counts."""
        failed = lines.str.contains(FAILURE)
        begin = 0
        for place in failed.arg_true():
            self._note_time(lines[begin:place])
            text = " ".join(str(lines[place]).split())[:300]
            first, count = self.failures.get(text, (self.moment, 0))
            self.failures[text] = first, count + 1
            begin = place + 1
        self._note_time(lines[begin:])
        return lines.filter(~failed)

    def _note_time(self, lines: pl.Series) -> None:
        """Keeps the last time of these lines."""
        found = lines.tail(_MOST).str.extract(_MOMENT, 1).drop_nulls()  # headers in the middle have none
        if len(found):
            self.moment = str(found[-1]).replace(",", " ")

    def _times(self, places: Mapping[str, int]) -> pl.Expr:
        if self.dmon:
            date = pl.col(f"c{places['date']}").str.replace_all(r"[/-]", "")
            text = pl.concat_str(date, pl.lit(" "), pl.col(f"c{places['time']}"))
            time = text.str.to_datetime("%Y%m%d %H:%M:%S%.f", time_unit="us", strict=False)
        else:
            text = pl.col(f"c{places['timestamp']}").str.replace_all("-", "/", literal=True).str.replace("T", " ", literal=True)
            text = text.str.replace(",", ".", literal=True)  # none is left where commas stand between the columns
            time = text.str.to_datetime("%Y/%m/%d %H:%M:%S%.f", time_unit="us", strict=False)
        micros = time.cast(pl.Int64)
        return pl.when(micros.is_between(YEAR_2001_US, YEAR_2200_US)).then(micros).alias("time_us")

    def _values(self, table: pl.DataFrame, places: Mapping[str, int]) -> list[pl.Series]:
        """A series of numbers per metric."""
        known = DMON_COLUMNS if self.dmon else COLUMNS
        assert self.header is not None
        units = dict(reversed(self.header))
        found: dict[str, pl.Series] = {}
        for name, (metric, unit) in known.items():
            if name in places and metric not in found:
                found[metric] = self._numbers(table[f"c{places[name]}"], name, metric, units.get(name) or unit)
        single = {name: match[1] for name in places if not self.dmon and (match := REASON.match(name)) and match[1] in _REASON_BITS}
        if single and "gpu_throttle_reasons" not in found:
            found["gpu_throttle_reasons"] = self._reasons(table, places, single)
        others = set(places) - set(known) - set(KEY_COLUMNS) - set(single) - {"timestamp", "date", "time", "gpu"}
        self.unread |= {name for name in others if len(name) <= 60}
        return [series.alias(metric) for metric, series in found.items()]

    def _numbers(self, text: pl.Series, name: str, metric: str, unit: str) -> pl.Series:
        lower = text.str.to_lowercase()
        nothing = lower.str.contains(_NOTHING)
        if absent := int(nothing.sum()):
            self.count("no_value", absent)
            self.absent.add(name)
        if metric == "gpu_throttle_reasons":
            value = (
                text.str.extract(r"^0[xX]([0-9a-fA-F]{1,16})$", 1).str.to_integer(base=16, strict=False, dtype=pl.UInt64).cast(pl.Float64)
            )
        else:
            if self.delimiter != ",":  # as spreadsheets of many languages write decimals
                text = text.str.replace(",", ".", literal=True)
            parts = text.str.extract_groups(r"^(?<number>\d{1,15}(?:\.\d{1,9})?)\s*(?<unit>[A-Za-z%]{0,4})$").struct.unnest()
            own = parts["unit"].str.to_lowercase()
            factor = own.replace_strict(_FACTORS | {"": _FACTORS.get(unit.lower(), 1.0)}, default=None, return_dtype=pl.Float64)
            value = parts["number"].cast(pl.Float64, strict=False) * factor
        # A line that was cut inside of a value or a garbled number is no number, and beyond what can be no sample.
        high = LIMITS.get(metric, PERCENT_LIMIT)
        wrong = ~nothing & (value.is_null() | (value > high)).fill_null(True)
        if bad := int(wrong.sum()):
            self.count("no_number", bad, text.filter(wrong))
        return value.set(nothing | wrong, None)

    def _reasons(self, table: pl.DataFrame, places: Mapping[str, int], single: Mapping[str, str]) -> pl.Series:
        bits = pl.lit(0.0)
        for name, reason in single.items():
            text = pl.col(f"c{places[name]}").str.to_lowercase()
            bits = bits + pl.when(text == "active").then(float(_REASON_BITS[reason])).when(text == "not active").then(0.0)
        return table.select(bits=bits)["bits"]

    def _back(self, table: pl.DataFrame, places: Mapping[str, int]) -> None:
        """Count how often the clock goes back by more than a minute: daylight saving time that ends, or a clock that was set."""
        series = table["time_us"]
        if self.last_time is not None:
            series = pl.concat([self.last_time["time_us"], series])
        self.count("time_goes_back", int((series.diff() < -60_000_000).sum()))
        self.last_time = table.select("time_us").tail(1)

    def notes(self) -> None:
        self.note_counts({"no_value": sorted(self.absent)}, _TOLD)
        for words, (moment, count) in list(self.failures.items())[:_MOST]:
            after = "before the first sample" if moment is None else f"after {' '.join(moment.split())} (as the log counts)"
            lost = _LOST.fullmatch(words)
            if lost is None:
                text = f'nvidia-smi failed {after}: "{words}".'
            elif "lost" in lost[2].lower():
                text = f'GPU {lost[1]} was lost {after}: "{lost[2]}".'
            else:
                text = f'GPU {lost[1]} could not be reached {after}: "{lost[2]}".'
            self.note("warning", "gpu_lost" if lost else "monitor_failed", text, count)
        self.note_unread(self.unread)


_TOLD: Final = {
    "wrong_length": (
        "Lines with more or fewer fields than the header (cut off, mixed, or with decimal commas between commas) were left out. Where a"
        " spreadsheet saved the log, give it as nvidia-smi wrote it, or save it with semicolons or tabs."
    ),
    "bad_time": (
        "Lines whose time could not be read were left out: accepted is what nvidia-smi writes, such as 2026/11/20 06:00:00.123 (year,"
        " month, day, time with seconds). Where a spreadsheet saved the log, give it as nvidia-smi wrote it."
    ),
}
"""Texts for logs of nvidia-smi instead of those of ``NOTES``."""
