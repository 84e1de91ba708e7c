"""Interval algebra over Polars frames: unions, differences, coverage, gaps and innermost ranges, one pass each.

A frame of intervals has int64 columns ``start`` and ``end`` (half open,
nanoseconds, any origin; absolute values up to 4.6e18, so that differences fit int64) and any columns that name the group it belongs to
(``by``). Intervals that are empty (``end <= start``) cover nothing. Results are sorted by group and start. The C extension computes them
(``native/src/intervals``); without it, :mod:`.vectorized_intervals` does with the same results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, Final

import polars as pl

from . import vectorized_intervals

# Types of group columns that the extension reads. Groups of other types are numbered for it.
_KEYS: Final = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.Boolean)
_MOST_KEYS: Final = 16
_MOST_CLASSES: Final = 8


@cache
def _extension() -> ModuleType | None:
    try:
        from ...native import _native
    except ImportError:  # installed without a C compiler
        return None
    return _native


def _native(by: Sequence[str], flags: Sequence[str] | None = None) -> ModuleType | None:
    """Return the extension, if it is there and has room for the groups and classes."""
    fits = len(by) <= _MOST_KEYS and (flags is None or 0 < len(flags) <= _MOST_CLASSES)
    return _extension() if fits else None


def union(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the union as disjoint segments per group; touching intervals join.

    Columns: ``by``, ``start``, ``end``."""
    native = _native(by)
    if native is None:
        return vectorized_intervals.union(intervals, by)
    return _segments(native, (intervals,), by, 0)


def outermost(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the intervals that no other of their group contains, sorted.

    All their columns are kept, by group and start; the first of equal intervals remains."""
    native = _native(by)
    if native is None or intervals["start"].null_count() or intervals["end"].null_count():
        return vectorized_intervals.outermost(intervals, by)
    (table,), _ = _tables((intervals,), by, "start", "end")
    return intervals[_column(native.interval_outermost(table, len(by)), "row")]


def sweep(intervals: pl.DataFrame, by: Sequence[str], flags: Sequence[str]) -> pl.DataFrame:
    """Return the segments of every group with the classes active in each.

    ``flags`` are boolean columns of ``intervals``: the classes of an interval (null counts as false). Returns ``by``, ``start``, ``end``
    and the flags; a flag is true if an interval of that class covers the segment. Segments are disjoint and not empty. No flag changes
    inside a segment, and one changes between segments that touch; stretches without an active class are left out. Lengths of any set
    expression follow by summing, e.g. A minus B is the sum of the segments with A and not B."""
    native = _native(by, flags)
    if native is None:
        return vectorized_intervals.sweep(intervals, by, flags)
    return _segments(native, (intervals,), by, 0, flags)


def sweep_length(intervals: pl.DataFrame, by: Sequence[str], flags: Sequence[str]) -> pl.DataFrame:
    """Return the summed lengths of the segments of :func:`sweep` by their flags.

    Columns: ``by``, the flags, ``length`` (int64, not 0); a row per group and combination of flags that occurs."""
    native = _native(by, flags)
    if native is None:
        return vectorized_intervals.sweep_length(intervals, by, flags)
    return _lengths(native, (intervals,), by, 0, flags)


def union_length(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the length of the union per group: ``by``, ``length`` (int64, may be 0)."""
    native = _native(by)
    if native is None:
        return vectorized_intervals.union_length(intervals, by)
    return _lengths(native, (intervals,), by, 0)


def difference(a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the segments that ``a`` covers and ``b`` does not: ``by``, start, end."""
    native = _native(by)
    if native is None:
        return vectorized_intervals.difference(a, b, by)
    return _segments(native, (a, b), by, 0b01)


def intersection(a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the segments that ``a`` and ``b`` cover, per group: ``by``, start, end."""
    native = _native(by)
    if native is None:
        return vectorized_intervals.intersection(a, b, by)
    return _segments(native, (a, b), by, 0b11)


def difference_length(a: pl.DataFrame, b: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the length of ``a`` minus ``b`` per group of ``a``: ``by``, ``length``."""
    native = _native(by)
    if native is None:
        return vectorized_intervals.difference_length(a, b, by)
    return _lengths(native, (a, b), by, 0b01)


def length_inside(intervals: pl.DataFrame, segments: pl.DataFrame, by: str | Sequence[str] = ()) -> pl.Series:
    """Return the part of each interval that the segments of its group cover (int64).

    Segments must be disjoint within their group. A null group has no segments."""
    keys = [by] if isinstance(by, str) else list(by)
    native = _native(keys)
    if native is None:
        return vectorized_intervals.length_inside(intervals, segments, keys)
    (rows, known), _ = _tables((intervals, segments), keys, "start", "end")
    return _column(native.interval_covered(rows, known, len(keys)), "covered")


def gaps(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the times between an interval and the latest end of those before it.

    Those before it are the intervals of its group with an earlier start, or the same start and an earlier end; empty intervals count, with
    their start. Columns: ``row`` (the number of the interval after the gap), ``start`` and ``end`` of the gap, by group and start."""
    native = _native(by)
    if native is None:
        return vectorized_intervals.gaps(intervals, by)
    (table,), _ = _tables((intervals,), by, "start", "end")
    return _frame(native.interval_gaps(table, len(by)), ["row", "start", "end"])


def innermost(points: pl.DataFrame, ranges: pl.DataFrame, by: Sequence[str], order: Sequence[str] = ()) -> pl.Series:
    """Return the row number in ``ranges`` of the innermost range around each point.

    ``points``: ``by`` and ``time``. ``ranges``: ``by``, ``start``, ``end`` and the integers ``order``; the ranges of a group are nested or
    disjoint. Of ranges that start together the longest is the outermost; of equal ones, the one that is lowest in ``order`` (null first),
    then the first. Null without a range, and for a null group."""
    native = _native(by)
    if native is None:
        return vectorized_intervals.innermost(points, ranges, by, order)
    (moments, known), _ = _tables((points, ranges), by)
    times = pl.DataFrame([*moments, *_integers(points, "time")])
    spans = pl.DataFrame([*known, *_integers(ranges, "start", "end"), *(ranges[column] for column in order)])
    return _column(native.interval_innermost(times, spans, len(by), len(order)), "range")


def nested(ranges: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return the row number of the innermost range around each range, and its end.

    ``ranges``: ``by``, ``start``, ``end``. Columns: ``parent`` (null: none) and ``end``, in the order of ``ranges``. With these ends the
    ranges of a group are nested or disjoint: a range that overlaps the end of another ends with it if at least half of it lies inside, else
    the other ends where the range starts. Of ranges that start together the longest is the outermost, then the first."""
    native = _native(by)
    if native is None:
        return vectorized_intervals.nested(ranges, by)
    (table,), _ = _tables((ranges,), by, "start", "end")
    return _frame(native.interval_nested(table, len(by)), ["parent", "end"])


def first_of(points: pl.DataFrame, rows: pl.DataFrame, by: Sequence[str], order: Sequence[str]) -> pl.Series:
    """Return the number of the first row with the group and number of each point.

    ``points``: ``by`` and ``number``. ``rows``: ``by``, ``number`` and the integers ``order``; the first row is the lowest in these. Rows
    with a null in ``order[0]`` do not count, another null is the lowest. Of equal rows the first counts. Null without such a row, and for a
    null group or number."""
    native = _native(by)
    if native is None:
        return vectorized_intervals.first_of(points, rows, by, order)
    (moments, known), _ = _tables((points, rows), by)
    numbers = pl.DataFrame([*moments, *_integers(points, "number")])
    ordered = pl.DataFrame([*known, *_integers(rows, "number", order[0]), *(rows[column] for column in order[1:])])
    return _column(native.interval_first(numbers, ordered, len(by), len(order) - 1), "row")


def _segments(
    native: ModuleType, frames: Sequence[pl.DataFrame], by: Sequence[str], wanted: int, flags: Sequence[str] = ()
) -> pl.DataFrame:
    tables, names = _tables(frames, by, "start", "end", *flags)
    result = native.interval_segments(tuple(tables), len(by), len(flags), wanted)
    return _named(_frame(result, [*by, "start", "end", *flags]), names)


def _lengths(native: ModuleType, frames: Sequence[pl.DataFrame], by: Sequence[str], wanted: int, flags: Sequence[str] = ()) -> pl.DataFrame:
    tables, names = _tables(frames, by, "start", "end", *flags)
    lengths = _named(_frame(native.interval_lengths(tuple(tables), len(by), len(flags), wanted), [*by, *flags, "length"]), names)
    return lengths if by or flags or lengths.height else pl.DataFrame({"length": [0]}, schema={"length": pl.Int64})


def _tables(frames: Sequence[pl.DataFrame], by: Sequence[str], *columns: str) -> tuple[list[pl.DataFrame], dict[str, pl.Series]]:
    """Return the columns that the extension reads, and the values of numbered groups.

    An expression would select them too, but takes longer than all else for a small frame."""
    texts = [column for column in by if any(frame.schema[column] not in _KEYS for frame in frames)]
    tables = []
    for frame in frames:
        flags = [frame[column].cast(pl.Boolean) for column in columns[2:]]
        tables.append(pl.DataFrame([*(frame[column] for column in by), *_integers(frame, *columns[:2]), *flags]))
    names = {}
    for column in texts:
        every = pl.concat([frame[column] for frame in frames])
        names[column] = every.unique().drop_nulls().sort()
        numbers = (every.rank("dense") - 1).cast(pl.UInt32)
        at = 0
        for i, frame in enumerate(frames):
            tables[i] = tables[i].with_columns(numbers.slice(at, frame.height).alias(column))
            at += frame.height
    return tables, names


def _integers(frame: pl.DataFrame, *columns: str) -> list[pl.Series]:
    return [frame[column].cast(pl.Int64) for column in columns]


def _frame(result: Any, columns: Sequence[str]) -> pl.DataFrame:
    frame = pl.DataFrame(result)
    frame.columns = list(columns)
    return frame


def _column(result: Any, name: str) -> pl.Series:
    return pl.DataFrame(result).to_series().alias(name)


def _named(frame: pl.DataFrame, names: dict[str, pl.Series]) -> pl.DataFrame:
    return frame.with_columns(values.gather(frame[column]).alias(column) for column, values in names.items()) if names else frame
