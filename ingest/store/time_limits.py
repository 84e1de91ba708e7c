"""Limits of possible times, durations, sizes and samples, and filters that apply them to rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

YEAR_2001_NS: Final = 978_307_200 * 10**9  # Earlier times count from an unknown moment, not from the Unix epoch
EARLIEST_NS: Final = -(2**61)
LATEST_NS: Final = 2**62
"""Starts outside of these limits are damage (2**62 is a day of 2116); those inside can be subtracted, also after a base time was added."""
LONGEST_NS: Final = 7 * 86_400 * 10**9  # Longer durations (236 years have been seen) are defects of the profiler
ROUNDING_NS: Final = 1_000  # Durations down to minus this are negative because of rounding to microseconds or converting between clocks
HIGHEST_DEVICE: Final = 1024  # A pid below this may be the index of a device
LONGEST_RANGE_NS: Final = 366 * 86_400 * 10**9
"""Longest range of a program. Starts and durations within these limits can be added, and some hundred durations summed."""
MOST_BYTES: Final = 2**56  # Larger sizes and numbers of elements are damage (64 PiB); some hundred within can be summed
ABSURD_TIME: Final = ("warning", "absurd_time", "Events whose times are of no possible day were left out.")

MOST_VALUE: Final = 1e100  # Larger samples are damage; sums of samples within stay finite
IMPOSSIBLE: Final = ("warning", "impossible_value", "Events with impossible times and samples with impossible values were left out.")

_SIZES: Final = ("bytes", "allocated", "reserved", "in_elements", "out_elements")


def clamped(value: int | None, most: int = 2**63 - 1) -> int | None:
    """Return ``value``, or None if it is not within ``-most`` to ``most``."""
    return value if value is not None and -most <= value <= most else None


def possible_times(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with possible times and durations; null is possible."""
    import polars as pl

    tests = [pl.col(name).is_between(EARLIEST_NS, LATEST_NS) for name in ("start_ns", "time_ns") if name in frame.columns]
    if "duration_ns" in frame.columns:
        tests.append(pl.col("duration_ns").is_between(-LONGEST_RANGE_NS, LONGEST_RANGE_NS))
    return frame.filter(pl.all_horizontal(test.fill_null(True) for test in tests))


def storable_rows(rows: Any, shift_ns: int = 0) -> tuple[Any, int]:
    """Remove Arrow rows with impossible times and values; also return their number.

    Impossible sizes become null. All rows of a store pass through here. ``shift_ns`` is added to the times later (``source_map``).
    """
    names = rows.schema.names
    limits = {
        "start_ns": (EARLIEST_NS - shift_ns, LATEST_NS - shift_ns),
        "time_ns": (EARLIEST_NS - shift_ns, LATEST_NS - shift_ns),
        "duration_ns": (-LONGEST_RANGE_NS, LONGEST_RANGE_NS),
    }
    dropped = 0
    for name, (first, last) in limits.items():
        if name in names and (bad := _beyond(rows.column(name), first, last)) is not None:
            dropped += int(bad.sum())
            rows = rows.filter((~bad).to_arrow())
    if "metric" in names and "value" in names:
        rows, wild = _possible_samples(rows)
        dropped += wild
    for name in _SIZES:
        if name in names and (bad := _beyond(rows.column(name), -MOST_BYTES, MOST_BYTES)) is not None:
            rows = _with_column(rows, name, _series(rows.column(name)).set(bad, None))
    return rows, dropped


def _beyond(column: Any, first: int, last: int) -> pl.Series | None:
    """Return whether each number is outside of ``first`` to ``last``; None if none is."""
    import polars as pl

    series = _series(column)
    if series.dtype != pl.Int64 or series.is_between(first, last).all():
        return None
    return (~series.is_between(first, last)).fill_null(False)


def _possible_samples(rows: Any) -> tuple[Any, int]:
    """Return samples without impossible measured values, and how many were removed.

    A value is impossible if it is not finite or beyond ``MOST_VALUE``. Counters of the program keep such values; those beyond the limit
    become infinite, which reports count as odd.
    """
    import polars as pl

    values = _series(rows.column("value"))
    if values.dtype != pl.Float64:
        return rows, 0
    wild = (~(values.abs() <= MOST_VALUE) | values.is_nan()).fill_null(False)
    if not wild.any():
        return rows, 0
    counter = _series(rows.column("metric")).cast(pl.String).str.starts_with("counter.").fill_null(False)
    beyond = (wild & values.is_finite()).fill_null(False)
    rows = _with_column(rows, "value", values.zip_with(~beyond, values.sign() * float("inf")))
    measured = wild & ~counter
    return rows.filter((~measured).to_arrow()), int(measured.sum())


def _series(column: Any) -> pl.Series:
    """Return an Arrow column without a copy.

    The import of pyarrow.compute would take longer than the check of most rows.
    """
    import polars as pl

    return pl.Series(column)


def _with_column(rows: Any, name: str, values: pl.Series) -> pa.Table:
    import pyarrow as pa

    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    return table.set_column(table.schema.names.index(name), name, values.to_arrow())
