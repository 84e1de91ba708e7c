"""Reads logs of DCGM: CSV files with its field names, and ``dcgmi dmon`` with times -> ``sample``.

DCGM has no CSV format: such files come from scripts and notebooks and have a column per field or a line per value. The header identifies
them: a column of times, one that names the GPU, and DCGM's names of fields (``DCGM_FI_DEV_GPU_UTIL``). Shares of time that DCGM's profiling
counters measure (``DCGM_FI_PROF_*``) are not utilization and have other metrics.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import polars as pl

from ...errors import InputError
from ..store.store import Store
from .metrics import FREE, LIMITS, PERCENT, PERCENT_LIMIT, RESERVED, TOTAL, USED, UTILIZATION, YEAR_2001_US, YEAR_2200_US
from .reader import LogReader
from .recognize import ENTITY, EXPOSED, TIMES, columns_of, fields_of
from .rows import GpuLogs

_MIB: Final = 2.0**20
# Field -> metric and factor of its values.
FIELDS: Final[dict[str, tuple[str, float]]] = {
    "DCGM_FI_DEV_GPU_UTIL": (UTILIZATION, 1.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gpu_memory_controller", 1.0),
    "DCGM_FI_DEV_FB_USED": (USED, _MIB),
    "DCGM_FI_DEV_FB_TOTAL": (TOTAL, _MIB),
    "DCGM_FI_DEV_FB_FREE": (FREE, _MIB),
    "DCGM_FI_DEV_FB_RESERVED": (RESERVED, _MIB),
    "DCGM_FI_DEV_FB_USED_PERCENT": (PERCENT, 100.0),
    "DCGM_FI_DEV_POWER_USAGE": ("gpu_power", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("gpu_sm_clock", 1.0),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("gpu_throttle_reasons", 1.0),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("gpu_throttle_reasons", 1.0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gpu_engine_active", 100.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("gpu_sm_active", 100.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("gpu_sm_occupancy", 100.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("gpu_tensor_active", 100.0),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": ("gpu_fp64_active", 100.0),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": ("gpu_fp32_active", 100.0),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": ("gpu_fp16_active", 100.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("gpu_dram_active", 100.0),
}
# Names of the columns of `dcgmi dmon`.
SHORT: Final = {
    "GPUTL": "DCGM_FI_DEV_GPU_UTIL", "MCUTL": "DCGM_FI_DEV_MEM_COPY_UTIL", "FBUSD": "DCGM_FI_DEV_FB_USED", "FBTTL": "DCGM_FI_DEV_FB_TOTAL",
    "FBFRE": "DCGM_FI_DEV_FB_FREE",
    "POWER": "DCGM_FI_DEV_POWER_USAGE", "SMCLK": "DCGM_FI_DEV_SM_CLOCK", "GRACT": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "SMACT": "DCGM_FI_PROF_SM_ACTIVE", "SMOCC": "DCGM_FI_PROF_SM_OCCUPANCY", "TENSO": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "FP64A": "DCGM_FI_PROF_PIPE_FP64_ACTIVE", "FP32A": "DCGM_FI_PROF_PIPE_FP32_ACTIVE", "FP16A": "DCGM_FI_PROF_PIPE_FP16_ACTIVE",
    "DRAMA": "DCGM_FI_PROF_DRAM_ACTIVE",
}  # fmt: skip
# `dcgmi dmon` prints no times; this command adds them.
DMON: Final = (
    "dcgmi dmon -e 203,204,252,155,100 -d 1000 | while IFS= read -r line; do printf '%(%Y-%m-%dT%H:%M:%S%z)T %s\\n' -1 \"$line\"; done"
    " > dcgm.HOST.log"
)
CSV: Final = "a CSV file with columns timestamp, gpu, Hostname and one per field (DCGM_FI_DEV_GPU_UTIL, ...), or metric and value"

_ENTITY_LINE: Final = r"^(?<time>.*?)\s*\bGPU\s+(?<gpu>\d{1,4})\s+(?<rest>\S.*)$"
_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"')


def _hide_commas(quoted: re.Match[str]) -> str:
    return quoted[1].replace(",", "\x1f").replace('""', '"')


class DcgmReader(LogReader):
    zoned = True

    def __init__(self, store: Store, logs: GpuLogs, path: Path, source: int) -> None:
        super().__init__(store, logs, path, source)
        self.columns: dict[str, int] | None = None
        self.length = 0
        self.entity: list[str] | None = None
        self.exposed = self.untimed = 0

    def check(self) -> None:
        if self.entity is not None and not self.log.rows and self.untimed:
            raise InputError(f"{self.path}: the table of dcgmi dmon has no times. Put the time before each line: {DMON}")
        if self.columns is None and self.entity is None:
            if self.exposed:
                why = "what dcgm-exporter shows to Prometheus has no times; query Prometheus for the time of the run and write"
            else:
                why = "the columns of the values of DCGM cannot be told; write"
            raise InputError(f"{self.path}: {why} {CSV}")

    def add(self, lines: pl.Series) -> None:
        if self.columns is None and self.entity is None:
            for row, line in enumerate(lines[:200]):
                if ENTITY.match(line):
                    break
                if (columns := columns_of(line)) is not None:
                    if not {"index", "uuid", "bus"} & set(columns) and "host" not in columns and "metric" in columns:
                        continue
                    self.columns = columns
                    self.length = len(fields_of(line))
                    self.counts["before_header"] += row
                    lines = lines[row + 1 :]
                    break
        if self.columns is not None:
            self._csv(lines)
        else:
            self._table(lines)

    # -- CSV -----------------------------------------------------------------------------------------------------------

    def _csv(self, lines: pl.Series) -> None:
        assert self.columns is not None
        quoted = lines.str.contains('"', literal=True)
        plain = lines.filter(~quoted)
        fields = plain.str.split(",")
        if quoted.any():
            plain = pl.concat([plain, lines.filter(quoted)])
            hidden = pl.Series([_QUOTED.sub(_hide_commas, line) for line in lines.filter(quoted)], dtype=pl.String)
            fields.append(hidden.str.split(",").list.eval(pl.element().str.replace_all("\x1f", ",", literal=True)))
        table = pl.DataFrame({"line": plain, "field": fields})
        header = pl.col("field").list.get(self.columns["time"], null_on_oob=True).str.strip_chars(' "').str.to_lowercase().is_in(TIMES)
        table = table.filter(~header)
        complete = table["field"].list.len() == self.length
        self.count("wrong_length", int((~complete).sum()), table.filter(~complete)["line"])
        table = table.filter(complete)
        if len(table):
            columns = [pl.col("field").list.get(at).str.strip_chars(' ",').alias(name) for name, at in self.columns.items()]
            self._rows(table.with_columns(columns).drop("field"))

    # -- dcgmi dmon ----------------------------------------------------------------------------------------------------

    def _table(self, lines: pl.Series) -> None:
        headers = [row for row in lines.str.contains(r"#\s*[Ee]ntity").arg_true().to_list()[:10_000] if ENTITY.match(lines[row])]
        begin = 0
        for row in [*headers, len(lines)]:
            self._table_rows(lines[begin:row])
            if row < len(lines):
                self.entity = lines[row].partition("#")[2].split()[1:]
                begin = row + 1

    def _table_rows(self, lines: pl.Series) -> None:
        if self.entity is None or not len(lines):
            self.exposed += sum(EXPOSED.match(line) is not None for line in lines[:200])
            return
        parts = lines.str.extract_groups(_ENTITY_LINE).struct.unnest().with_columns(line=lines)
        parts = parts.filter(pl.col("gpu").is_not_null())  # lines of units and of other entities
        fields = parts["rest"].str.strip_chars().str.replace_all(r"\s+", " ").str.split(" ")
        complete = fields.list.len() == len(self.entity)
        self.count("wrong_length", int((~complete).sum()), parts.filter(~complete)["line"])
        untimed = parts["time"].str.strip_chars() == ""
        self.untimed += int(untimed.sum())
        table = parts.with_columns(field=fields).filter(complete & ~untimed)
        if table.is_empty():
            return
        columns = {}
        for position, name in reversed(list(enumerate(self.entity))):
            columns[SHORT.get(name.upper(), f"DCGM_{name.upper()}")] = pl.col("field").list.get(position)
        time = pl.col("time").str.strip_chars(" []:,")
        self._rows(table.select("line", time=time, index="gpu", **columns))

    # -- both ----------------------------------------------------------------------------------------------------------

    def _rows(self, table: pl.DataFrame) -> None:
        micros, zoned = times_of(table["time"])
        if not bool(zoned.all()):
            self.log.zoned = False
        table = table.with_columns(time_us=micros)
        bad = table["time_us"].is_null()
        self.count("bad_time", int(bad.sum()), table.filter(bad)["line"])
        table = table.filter(~bad)
        if "part" in table.columns:
            part = (table["part"].str.len_bytes() > 0) & (table["part"].str.to_lowercase() != "nan")
            self.count("part_of_gpu", int(part.fill_null(False).sum()))
            table = table.filter(~part.fill_null(False))
        if table.is_empty():
            return
        keys = {}
        if "index" in table.columns:
            keys["index"] = pl.col("index").str.extract(r"(\d{1,4})(?:\.0)?$", 1)
        for key in ("uuid", "bus", "name"):
            if key in table.columns:
                keys[key] = pl.when(pl.col(key).str.len_bytes() > 0).then(key)
        if "host" in table.columns:
            host = pl.col("host").str.replace(r":\d+$", "")
            keys["host"] = pl.when(host.str.len_bytes().is_between(1, 255)).then(host)
        if not set(keys) & {"index", "uuid", "bus"}:
            self.alone.append(table["time_us"])
        time = pl.col("time_us").mul(1000).alias("time_ns")
        if self.columns is not None and "metric" in self.columns:
            self._long(table, keys, time)
            return
        names = [name for name in table.columns if name.startswith("DCGM_")]
        self.unread |= {name for name in names if name not in FIELDS}
        values: dict[str, pl.Series] = {}
        for name, (metric, factor) in FIELDS.items():
            if name in names and metric not in values:
                values[metric] = self._numbers(table[name], name, metric, factor)
        if values:
            self.logs.add(self.log, table.select(time, **keys).with_columns(series.alias(metric) for metric, series in values.items()))

    def _long(self, table: pl.DataFrame, keys: dict[str, pl.Expr], time: pl.Expr) -> None:
        table = table.with_columns(pl.col("metric").str.to_uppercase())
        for (name,), part in sorted(table.partition_by("metric", as_dict=True).items(), key=lambda item: str(item[0])):
            if name not in FIELDS:
                self.count("unknown_metric", len(part))
                self.unread |= {str(name)[:60]}
                continue
            metric, factor = FIELDS[name]
            values = self._numbers(part["value"], name, metric, factor)
            self.logs.add(self.log, part.select(time, **keys).with_columns(values.alias(metric)))

    def _numbers(self, text: pl.Series, name: str, metric: str, factor: float) -> pl.Series:
        text = text.str.strip_chars(" ")
        absent = text.str.to_lowercase().is_in(["", "n/a", "nan", "null", "none", "-"]).fill_null(True)
        # DCGM's own numbers for "no value" are 2^31 - 16 and more, and 140737488355328 and more.
        plain = text.str.contains(r"^\d{1,16}(\.\d{1,18})?([eE][-+]?\d{1,2})?$")
        number = pl.select(pl.when(plain).then(text)).to_series().cast(pl.Float64, strict=False)
        blank = (number.is_between(2147483632.0, 2147483647.0) | number.is_between(140737488355328.0, 140737488355343.0)).fill_null(False)
        return self.checked(text, number * factor, absent | blank, name, LIMITS.get(metric, PERCENT_LIMIT) + 1e-9)

    def notes(self) -> None:
        if self.untimed:
            self.note("warning", "bad_time", "Lines of dcgmi dmon without a time before them were left out.", self.untimed)
        self.note_counts({"no_value": sorted(self.absent)[:8], "unknown_metric": sorted(self.unread)[:8]}, {})
        if not self.counts["unknown_metric"]:
            self.note_unread(name if name.startswith("DCGM_FI_") else name.removeprefix("DCGM_") for name in self.unread)


def times_of(text: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return microseconds since the epoch, and whether a text states its zone.

    Numbers are seconds, milliseconds, microseconds or nanoseconds since the epoch, by their size; texts are similar to ISO 8601. Texts that
    are not times from 2001 to 2199 become null.
    """
    number = pl.when(pl.col("text").str.contains(r"^\d{9,19}(\.\d{1,9})?$")).then("text")
    frame = text.str.strip_chars().to_frame("text").with_columns(number=number)
    integer = pl.col("number").str.extract(r"^(\d+)", 1).cast(pl.Int64, strict=False)
    part = pl.col("number").str.extract(r"\.(\d{1,6})", 1).str.pad_end(6, "0").cast(pl.Int64, strict=False).fill_null(0)
    epoch = (
        pl.when(integer < 10**11).then(integer * 10**6 + part)
        .when(integer < 10**14).then(integer * 1000 + part // 1000)
        .when(integer < 10**17).then(integer)
        .otherwise(integer // 1000)
    )  # fmt: skip
    zone = pl.col("text").str.extract(r"[ :0-9.]([Zz]|UTC|GMT|[-+]\d\d:?\d\d)$", 1)
    day = r"^(\d{4})[/-](\d\d)[/-](\d\d)[T ]"
    body = pl.col("text").str.replace(r"\s*(?:[Zz]|UTC|GMT|[-+]\d\d:?\d\d)$", "").str.replace(day, "${1}-${2}-${3} ")
    # The end of a date without a time looks like a zone; it is not a time in any case.
    local = body.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False).cast(pl.Int64)
    sign = pl.when(zone.str.starts_with("-")).then(-1).otherwise(1)
    digits = zone.str.replace(":", "", literal=True)
    minutes = (digits.str.slice(1, 2).cast(pl.Int64, strict=False) * 60 + digits.str.slice(3, 2).cast(pl.Int64, strict=False)) * sign
    # An offset that no time zone has is garbled, and so is the time.
    away = pl.when(zone.str.contains(r"^[-+]")).then(minutes).otherwise(0)
    real = away.is_between(-12 * 60, 14 * 60) & (away % 15 == 0) & ~zone.str.contains(r"[6-9]\d$").fill_null(False)
    micros = pl.when(pl.col("number").is_not_null()).then(epoch).when(real).then(local - away * 60_000_000)
    times = frame.select(
        micros=pl.when(micros.is_between(YEAR_2001_US, YEAR_2200_US)).then(micros),
        zoned=pl.col("number").is_not_null() | zone.is_not_null(),
    )
    return times["micros"], times["zoned"] | times["micros"].is_null()
