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


def storable_rows(rows: Any) -> tuple[Any, int]:
    """Remove Arrow rows with impossible times and values; also return their number.

    Impossible sizes become null. All rows of a store pass through here, so the times include what a reader added to those of a file.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    def beyond(name: str, first: int, last: int) -> pa.Array | None:
        column = rows.column(name)
        if not pa.types.is_int64(column.type) or not len(column):
            return None
        span = pc.min_max(column)
        low, high = span["min"].as_py(), span["max"].as_py()
        if low is None or (first <= low and high <= last):
            return None
        return pc.fill_null(pc.or_(pc.less(column, first), pc.greater(column, last)), False)

    names = rows.schema.names
    limits = {
        "start_ns": (EARLIEST_NS, LATEST_NS),
        "time_ns": (EARLIEST_NS, LATEST_NS),
        "duration_ns": (-LONGEST_RANGE_NS, LONGEST_RANGE_NS),
    }
    dropped = 0
    for name, (first, last) in limits.items():
        if name in names and (bad := beyond(name, first, last)) is not None:
            dropped += pc.sum(bad).as_py()
            rows = rows.filter(pc.invert(bad))
    if "metric" in names and "value" in names:
        rows, wild = _possible_samples(rows)
        dropped += wild
    for name in _SIZES:
        if name in names and (bad := beyond(name, -MOST_BYTES, MOST_BYTES)) is not None:
            kept = pc.if_else(bad, pa.scalar(None, pa.int64()), rows.column(name))
            table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
            rows = table.set_column(names.index(name), name, kept)
    return rows, dropped


def _possible_samples(rows: Any) -> tuple[Any, int]:
    """Return samples without impossible measured values, and how many were removed.

    A value is impossible if it is not finite or beyond ``MOST_VALUE``. Counters of the program keep such values; those beyond the limit
    become infinite, which reports count as odd.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values = rows.column("value")
    if not pa.types.is_float64(values.type):
        return rows, 0
    wild = pc.fill_null(pc.invert(pc.less_equal(pc.abs(values), MOST_VALUE)), False)  # also a NaN
    if not pc.any(wild).as_py():
        return rows, 0
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    counter = pc.fill_null(pc.starts_with(table.column("metric").cast(pa.string()), "counter."), False)
    beyond = pc.and_(wild, pc.is_finite(values))
    table = table.set_column(
        table.schema.names.index("value"), "value", pc.if_else(beyond, pc.multiply(pc.sign(values), float("inf")), values)
    )
    measured = pc.and_(wild, pc.invert(counter))
    return table.filter(pc.invert(measured)), pc.sum(measured).as_py()
