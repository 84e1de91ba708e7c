"""Reads logs of nvidia-smi (``--query-gpu=... --format=csv -l N`` and ``dmon -o DT``) -> ``sample``.

The header line identifies the columns, in any order; a later header replaces it. Times have no zone and count as UTC, unless the user
states an offset (:mod:`..joining.clocks`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import polars as pl

from ...errors import InputError
from ..chrome_trace.head import read_head
from ..store.store import Store
from .metrics import LIMITS, PERCENT_LIMIT, USED, UTILIZATION, YEAR_2001_US, YEAR_2200_US
from .reader import QUERY, LogReader
from .recognize import (
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

# Column of dmon -> metric and unit. It is not documented that its clocks (pclk) are those of the multiprocessors.
DMON_COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "sm": (UTILIZATION, "%"),
    "mem": ("gpu_memory_controller", "%"),
    "pwr": ("gpu_power", "W"),
    "fb": (USED, "MiB"),
}
DMON: Final = "TZ=UTC nvidia-smi dmon -s pum -o DT -d 1 -f nvidia-smi-dmon.HOST.log"  # with date and time of each line

_FACTORS: Final = {
    "%": 1.0, "": 1.0, "w": 1.0, "mw": 1e-3, "mhz": 1.0, "b": 1.0, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30,
    "kb": 2.0**10, "mb": 2.0**20, "gb": 2.0**30,  # of older drivers
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
"""The time of a line in the log. If commas separate the columns of dmon, there is also one between date and time."""
_MOST: Final = 8


class SmiReader(LogReader):
    zoned = False

    def __init__(self, store: Store, logs: GpuLogs, path: Path, source: int) -> None:
        super().__init__(store, logs, path, source)
        self.header: list[tuple[str, str]] | None = None
        self.delimiter = ","
        self.dmon = False
        self.last_time = pl.Series([], dtype=pl.Int64)
        self.moment: str | None = None
        self.failures: dict[str, tuple[str | None, int]] = {}

    def check(self) -> None:
        if self.header is not None:
            return
        if self.counts["pmon"]:
            why = f"nvidia-smi pmon lists processes, not the use of GPUs; log it with {QUERY}"
        elif (words := failure_of(read_head(self.path))) is not None:
            why = f'nvidia-smi itself failed and wrote no sample: "{words}"'
        elif self.counts["table"]:
            why = f"the table of nvidia-smi is for people and has no time of each value; log with {QUERY}"
        else:
            why = (
                "the log has no header line, so its columns cannot be told. Put the names of its columns in a first line"
                f" (timestamp, index, utilization.gpu [%], ...), or log without noheader: {QUERY}"
            )
        raise InputError(f"{self.path}: {why}")

    def add(self, lines: pl.Series) -> None:
        """Add lines; those between two headers have the columns of the first."""
        first = lines.str.slice(0, 1)
        perhaps = lines.str.contains(r"^[#\"\s]*[a-zA-Z][a-zA-Z0-9_.]*(\s*\[[^\]]*\])?\"?\s*[,;\t]") | (first == "#")
        begin = 0
        for row in perhaps.arg_true().to_list()[:10_000]:
            line = lines[row]
            if (header := self._header(line)) is None:
                continue
            self._rows(lines[begin:row])
            self.delimiter = delimiter_of(line)
            if self.header is not None and self.header != header:
                self.count("columns_change", 1)
            self.header = header
            self._check_header()
            begin = row + 1
        self._rows(lines[begin:])

    def _header(self, line: str) -> list[tuple[str, str]] | None:
        if line.startswith("#") and PMON_HEADER.match(line):
            self.counts["pmon"] += 1
            return None
        if line.startswith("#") and DMON_HEADER.match(line):
            self.dmon = True
            return [(name, "") for name in dmon_columns(line)]
        return header_of(line)

    def _check_header(self) -> None:
        names = [name for name, _ in self.header or ()]
        command = DMON if self.dmon else QUERY
        if self.dmon and not {"date", "time"} <= set(names):
            raise InputError(f"{self.path}: the log of nvidia-smi dmon does not say date and time of its lines; log with {command}")
        if not self.dmon and "timestamp" not in names:
            raise InputError(f"{self.path}: the log has no column timestamp, so it is not known when its values were; log with {command}")
        if not any(name in DMON_COLUMNS if self.dmon else name in COLUMNS or REASON.match(name) for name in names):
            raise InputError(f"{self.path}: none of the columns of the log is read ({', '.join(names[:8])}); log with {command}")

    def _rows(self, lines: pl.Series) -> None:
        """Read the lines below one header."""
        lines = self._working(lines)
        if not len(lines):
            return
        if self.header is None:
            for line in lines[:40]:
                self.counts["table"] += bool(TABLE.search(line))
                self.counts["pmon"] += bool(PMON_HEADER.match(line))
            self.counts["before_header"] += len(lines)
            return
        if self.dmon:
            lines = lines.filter(~lines.str.starts_with("#"))
            fields = lines.str.replace_all(",", " ", literal=True).str.strip_chars().str.replace_all(r"\s+", " ").str.split(" ")
        else:
            fields = lines.str.strip_chars_end(f"{self.delimiter} ").str.split(self.delimiter)
        complete = fields.list.len() == len(self.header)
        self.count("wrong_length", int((~complete).sum()), lines.filter(~complete))
        fields, lines = fields.filter(complete), lines.filter(complete)
        if not len(lines):
            return
        names = [name for name, _ in self.header]
        # The first of several columns with one name counts.
        places = {name: place for place, name in reversed(list(enumerate(names)))}
        columns = [pl.col("field").list.get(place).str.strip_chars(' "').alias(f"c{place}") for place in places.values()]
        table = pl.DataFrame({"line": lines, "field": fields}).with_columns(columns).drop("field").with_columns(self._times(places))
        bad = table["time_us"].is_null()
        self.count("bad_time", int(bad.sum()), table.filter(bad)["line"])
        table = table.filter(~bad)
        if table.is_empty():
            return
        # The clock goes back if daylight saving time ends or the clock is set.
        times = pl.concat([self.last_time, table["time_us"]])
        self.count("time_goes_back", int((times.diff() < -60_000_000).sum()))
        self.last_time = times.tail(1)
        columns = [pl.col("time_us").mul(1000).alias("time_ns")]
        keys = {"gpu": "index"} if self.dmon else KEY_COLUMNS
        named = {}
        for name, key in keys.items():
            if name in places and key not in named:
                named[key] = pl.col(f"c{places[name]}")
        columns += [pl.when(~column.str.to_lowercase().str.contains(_NOTHING)).then(column).alias(key) for key, column in named.items()]
        if not set(named) & {"index", "uuid", "bus"}:
            self.alone.append(table["time_us"])
        self.logs.add(self.log, table.select(*columns, *self._values(table, places)))

    def _working(self, lines: pl.Series) -> pl.Series:
        """Drop and count the lines in which nvidia-smi reports a failure or a lost GPU.

        They have no time, so the time of the line before counts.
        """
        failed = lines.str.contains(FAILURE)
        begin = 0
        for row in failed.arg_true():
            self._note_time(lines[begin:row])
            text = " ".join(str(lines[row]).split())[:300]
            first, count = self.failures.get(text, (self.moment, 0))
            self.failures[text] = first, count + 1
            begin = row + 1
        self._note_time(lines[begin:])
        return lines.filter(~failed)

    def _note_time(self, lines: pl.Series) -> None:
        """Keep the last time of these lines."""
        times = lines.tail(_MOST).str.extract(_MOMENT, 1).drop_nulls()  # later headers have none
        if len(times):
            self.moment = str(times[-1]).replace(",", " ")

    def _times(self, places: Mapping[str, int]) -> pl.Expr:
        if self.dmon:
            date = pl.col(f"c{places['date']}").str.replace_all(r"[/-]", "")
            text = pl.concat_str(date, pl.lit(" "), pl.col(f"c{places['time']}"))
            time = text.str.to_datetime("%Y%m%d %H:%M:%S%.f", time_unit="us", strict=False)
        else:
            text = pl.col(f"c{places['timestamp']}").str.replace_all("-", "/", literal=True).str.replace("T", " ", literal=True)
            text = text.str.replace(",", ".", literal=True)  # a decimal comma, if commas do not separate the columns
            time = text.str.to_datetime("%Y/%m/%d %H:%M:%S%.f", time_unit="us", strict=False)
        micros = time.cast(pl.Int64)
        return pl.when(micros.is_between(YEAR_2001_US, YEAR_2200_US)).then(micros).alias("time_us")

    def _values(self, table: pl.DataFrame, places: Mapping[str, int]) -> list[pl.Series]:
        """Return a series of numbers per metric."""
        known = DMON_COLUMNS if self.dmon else COLUMNS
        assert self.header is not None
        units = dict(reversed(self.header))
        values: dict[str, pl.Series] = {}
        for name, (metric, unit) in known.items():
            if name in places and metric not in values:
                values[metric] = self._numbers(table[f"c{places[name]}"], name, metric, units.get(name) or unit)
        single = {name: match[1] for name in places if not self.dmon and (match := REASON.match(name)) and match[1] in _REASON_BITS}
        if single and "gpu_throttle_reasons" not in values:
            values["gpu_throttle_reasons"] = self._reasons(table, places, single)
        others = set(places) - set(known) - set(KEY_COLUMNS) - set(single) - {"timestamp", "date", "time", "gpu"}
        self.unread |= {name for name in others if len(name) <= 60}
        return [series.alias(metric) for metric, series in values.items()]

    def _numbers(self, text: pl.Series, name: str, metric: str, unit: str) -> pl.Series:
        absent = text.str.to_lowercase().str.contains(_NOTHING)
        if metric == "gpu_throttle_reasons":
            digits = text.str.extract(r"^0[xX]([0-9a-fA-F]{1,16})$", 1)
            value = digits.str.to_integer(base=16, strict=False, dtype=pl.UInt64).cast(pl.Float64)
        else:
            if self.delimiter != ",":  # as spreadsheets of many languages write decimals
                text = text.str.replace(",", ".", literal=True)
            parts = text.str.extract_groups(r"^(?<number>\d{1,15}(?:\.\d{1,9})?)\s*(?<unit>[A-Za-z%]{0,4})$").struct.unnest()
            own_unit = parts["unit"].str.to_lowercase()
            factor = own_unit.replace_strict(_FACTORS | {"": _FACTORS.get(unit.lower(), 1.0)}, default=None, return_dtype=pl.Float64)
            value = parts["number"].cast(pl.Float64, strict=False) * factor
        return self.checked(text, value, absent, name, LIMITS.get(metric, PERCENT_LIMIT))

    def _reasons(self, table: pl.DataFrame, places: Mapping[str, int], single: Mapping[str, str]) -> pl.Series:
        bits = pl.lit(0.0)
        for name, reason in single.items():
            text = pl.col(f"c{places[name]}").str.to_lowercase()
            bits = bits + pl.when(text == "active").then(float(_REASON_BITS[reason])).when(text == "not active").then(0.0)
        return table.select(bits=bits)["bits"]

    def notes(self) -> None:
        self.note_counts({"no_value": sorted(self.absent)}, _TEXTS)
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


_TEXTS: Final = {
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
