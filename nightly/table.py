"""The table of the index: rows -> Polars and Parquet, and back."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, get_args

import polars as pl

from ..analysis.rules.engine.catalogue import PROFILER_REPORT, RULES
from ..errors import InputError
from ..ingest.object_store.objects import Objects
from . import episodes, not_read, places
from .model import Row, State

VERSION: Final = "1"  # of the table; a table of another version is not used as a cache
_WRITTEN: Final = "postrun.written"
_WAITING: Final = "postrun.waiting"
_NANOSECONDS: Final = re.compile(r"[0-9]{1,18}|[0-8][0-9]{18}")
_FIRST_REPORT: Final = "postrun.first_report_ns"
_EPISODES: Final = "postrun.episodes"
_LEFT_OUT: Final = "postrun.left_out"
_NIGHT: Final = re.compile(r"[0-9a-f]{32}")
_LAYOUT: Final = "postrun.index"
_STATES: Final = get_args(State)
_TAIL: Final = 1 << 16
_MOST_BYTES: Final = 1 << 30  # of the file, and of its texts: 10 KB for each of 100,000 runs
_MOST_ROWS: Final = 5_000_000
_MOST_COLUMNS: Final = 2000
_DTYPES: Final = {"str": pl.String, "State": pl.String, "Kind": pl.String, "int": pl.Int64, "float": pl.Float64, "bool": pl.Boolean}
PLAIN: Final[dict[str, Any]] = {
    field.name: _DTYPES[kind] for field in dataclasses.fields(Row) if (kind := str(field.type).removesuffix(" | None")) in _DTYPES
}
_NEEDED: Final = [field.name for field in dataclasses.fields(Row) if field.type in _DTYPES]  # never null
LISTS: Final = ("written", "warnings", "tickets")
_LABEL: Final = pl.Struct({"key": pl.String, "value": pl.String})
MARKER: Final = "marker"  # version of the done-marker that equals the row; null if there is none, or if the row has more than it
WRITTEN_AT: Final = "told_at_ns"  # when a row without a done-marker was written to the index


@dataclass(frozen=True, slots=True)
class Kept:
    """The content of an index.parquet. ``markers``: version -> row of a run, by its id. ``open``: rows without a marker, and when they were
    written. ``etag``: of the file; None if it does not exist. ``waiting``: ids of nights that had not announced their runs (news.py).
    ``first_report_ns``: when the first report was made, also if it has been made again or forgotten since.
    ``episodes``: of regressions (episodes.py). ``left_out``: lines about files (not_read.py). ``usable``: false if the file is
    damaged, or another program or version of postrun wrote it."""

    etag: str | None
    markers: Mapping[str, tuple[str, Row]]
    open: Mapping[str, tuple[int, Row]]
    waiting: frozenset[str] = frozenset()
    first_report_ns: int | None = None
    episodes: episodes.Episodes = field(default_factory=dict)
    left_out: not_read.Lines = field(default_factory=dict)
    usable: bool = True


def frame(rows: Sequence[Row], **more: pl.Series) -> pl.DataFrame:
    """Return the table of ``rows``, with unknown rules last and ``more`` columns."""
    known = (*RULES, PROFILER_REPORT)
    rules = (*known, *sorted({rule for row in rows for rule in row.verdicts} - set(known)))
    try:
        return _frame(rows, rules, more, str)
    except UnicodeEncodeError:
        return _frame(rows, tuple(map(valid, rules)), more, valid)


def _frame(rows: Sequence[Row], rules: Sequence[str], more: Mapping[str, pl.Series], text: Any) -> pl.DataFrame:
    columns = []
    for name, kind in PLAIN.items():
        values = [getattr(row, name) for row in rows]
        if kind == pl.String:
            values = [None if one is None else text(one) for one in values]
        columns.append(pl.Series(name, values, dtype=kind))
    for name in LISTS:
        columns.append(pl.Series(name, [[text(one) for one in getattr(row, name)] for row in rows], dtype=pl.List(pl.String)))
    labels = [[{"key": text(key), "value": text(value)} for key, value in row.labels.items()] for row in rows]
    columns.append(pl.Series("labels", labels, dtype=pl.List(_LABEL)))
    verdict_maps = [row.verdicts if text is str else {text(key): value for key, value in row.verdicts.items()} for row in rows]
    verdicts = pl.DataFrame({rule: pl.Series(rule, [one.get(rule) for one in verdict_maps], dtype=pl.String) for rule in rules})
    columns.append(verdicts.to_struct("verdicts"))
    return pl.DataFrame([*columns, *(series.alias(name) for name, series in more.items())])


def valid(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def rows_of(table: pl.DataFrame) -> list[Row]:
    """Return the rows of a table."""
    names = list(PLAIN)
    plain = [table[name].to_list() for name in names]
    lists = [[tuple(one or ()) for one in table[name].to_list()] for name in LISTS]
    labels = [{one["key"]: one["value"] for one in found or ()} for found in table["labels"].to_list()]
    struct = table["verdicts"].struct.unnest()
    rules, seen = struct.columns, dict[tuple[str | None, ...], dict[str, str]]()
    rows = []
    for values, written, warnings, tickets, label, verdicts in zip(
        zip(*plain, strict=True), *lists, labels, struct.iter_rows(), strict=True
    ):  # fmt: skip
        if verdicts not in seen:
            seen[verdicts] = {rule: verdict for rule, verdict in zip(rules, verdicts, strict=True) if verdict is not None}
        more = {"written": written, "warnings": warnings, "tickets": tickets, "labels": label, "verdicts": seen[verdicts]}
        rows.append(Row(**dict(zip(names, values, strict=True)), **more))
    return rows


def encoded(
    table: pl.DataFrame,
    waiting: Iterable[str] = (),
    first_report_ns: int | None = None,
    known: episodes.Episodes = MappingProxyType({}),
    left_out: not_read.Lines = MappingProxyType({}),
) -> bytes:
    """Encode a table as Parquet, with bytes that are unique to this writer.

    ``waiting``, ``first_report_ns``, ``known`` episodes, ``left_out``: as in Kept."""
    buffer = io.BytesIO()
    metadata = {_LAYOUT: VERSION, _WRITTEN: uuid.uuid4().hex, _WAITING: " ".join(sorted(waiting)), _EPISODES: episodes.encoded(known)}
    metadata[_LEFT_OUT] = not_read.encoded(left_out)
    if first_report_ns is not None:
        metadata[_FIRST_REPORT] = str(first_report_ns)
    table.write_parquet(buffer, compression="zstd", metadata=metadata)
    return buffer.getvalue()


def is_still(out: Objects, path: str, data: bytes) -> bool:
    """Decide whether the file still has the bytes that :func:`encoded` returned."""
    now = out.head(path)
    if now is None or now.size != len(data):
        return False
    first = max(0, len(data) - _TAIL)
    return out.read(path, first=first) == data[first:]


def read(out: Objects, path: str) -> Kept:
    """Return the content of an index.parquet.

    It is mostly a cache: a missing, damaged or older file returns the ETag alone."""
    now = out.head(path)
    if now is None:
        return Kept(None, {}, {})
    try:
        data = out.read(path, count=_MOST_BYTES + 1)
    except InputError:
        return Kept(now.etag, {}, {})
    empty = Kept(now.etag, {}, {}, usable=False)
    try:
        metadata = pl.read_parquet_metadata(io.BytesIO(data))
        if metadata.get(_LAYOUT) != VERSION or not _is_bounded(data):
            return empty
        table = pl.read_parquet(io.BytesIO(data))
        if not _is_ours(table):
            return empty
        rows = rows_of(table)
        marker, written_ns = table[MARKER].to_list(), table[WRITTEN_AT].to_list()
    except Exception:  # any error of Polars for damaged bytes
        return empty
    # Others may write below the output, and so may have written the table and the markers.
    own_rows = [
        (row, version, when)
        for plausible, row, version, when in zip(_plausible(table), rows, marker, written_ns, strict=True)
        if plausible and None not in (*row.written, *row.warnings, *row.tickets, *row.labels, *row.labels.values()) and places.is_own(row)
    ]
    markers = {row.id: (version, row) for row, version, _ in own_rows if version is not None}
    waiting = frozenset(_NIGHT.findall(metadata.get(_WAITING, "")))
    first_report = metadata.get(_FIRST_REPORT, "")
    first_report_ns = int(first_report) if _NANOSECONDS.fullmatch(first_report) else None
    known = episodes.decoded(metadata.get(_EPISODES, ""))
    noted = {row.id: (when, row) for row, _, when in own_rows if when is not None}
    return Kept(now.etag, markers, noted, waiting, first_report_ns, known, not_read.decoded(metadata.get(_LEFT_OUT, "")))


def _is_bounded(data: bytes) -> bool:
    """Decide whether the table's metadata is within the limits of an index."""
    import pyarrow.parquet as pq

    known = pq.read_metadata(io.BytesIO(data))
    groups = [known.row_group(number) for number in range(min(known.num_row_groups, _MOST_ROWS))]
    return (
        len(data) <= _MOST_BYTES
        and known.num_rows <= _MOST_ROWS
        and known.num_columns <= _MOST_COLUMNS
        and sum(group.total_byte_size for group in groups) <= _MOST_BYTES
    )


def _is_ours(table: pl.DataFrame) -> bool:
    """Check the columns' types and lengths; a short file may repeat a long text."""
    kinds = {**PLAIN, **dict.fromkeys(LISTS, pl.List(pl.String)), "labels": pl.List(_LABEL), MARKER: pl.String, WRITTEN_AT: pl.Int64}
    if any(table.schema.get(name) != kind for name, kind in kinds.items()):
        return False
    verdicts = table.schema.get("verdicts")
    if not isinstance(verdicts, pl.Struct) or any(one.dtype != pl.String for one in verdicts.fields):
        return False
    lengths = [table[name].str.len_bytes().sum() for name, kind in PLAIN.items() if kind == pl.String]
    lengths += [table[name].explode().str.len_bytes().sum() for name in LISTS]
    labels = table["labels"].explode().struct.unnest()
    lengths += [labels[name].str.len_bytes().sum() for name in ("key", "value")]
    lengths += [values.str.len_bytes().sum() for values in table["verdicts"].struct.unnest()]
    return sum(int(length or 0) for length in lengths) <= _MOST_BYTES


def _plausible(table: pl.DataFrame) -> list[bool]:
    """Decide for each row whether its plain values are sound, all at once."""
    needed = [pl.col(name).is_not_null() for name in _NEEDED]
    finite = [pl.col(name).is_null() | pl.col(name).is_finite() for name, kind in PLAIN.items() if kind == pl.Float64]
    return table.select(pl.all_horizontal(*needed, *finite, pl.col("state").is_in(_STATES))).to_series().to_list()


def sound(row: Row) -> bool:
    """Decide whether every value has its type, as a damaged marker's may not."""
    for name, kind in PLAIN.items():
        value = getattr(row, name)
        if (value is None and name in _NEEDED) or (value is not None and not _fits(value, kind)):
            return False
    if row.state not in _STATES:
        return False
    if not (isinstance(row.labels, dict) and isinstance(row.verdicts, dict)):
        return False
    pairs = (*row.labels.items(), *row.verdicts.items())
    return all(isinstance(one, str) for one in (*row.written, *row.warnings, *row.tickets, *(text for pair in pairs for text in pair)))


def _fits(value: Any, kind: Any) -> bool:
    if kind == pl.String:
        return isinstance(value, str)
    if isinstance(value, bool) or kind == pl.Boolean:
        return isinstance(value, bool) and kind == pl.Boolean
    if kind == pl.Int64:
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max
