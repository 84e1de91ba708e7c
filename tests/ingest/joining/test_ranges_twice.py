"""Tests that ranges recorded by two tracers of a process count once, and all others as often as recorded."""

from __future__ import annotations

import polars as pl
import pytest
from empty_stores import empty_store
from made_tracers import BASE, MS, Made
from postrun.ingest.store.format_names import NSIGHT, TRACE

Ranges = list[tuple[str, int, int]]  # Names, starts and ends


def left(mine: Ranges, theirs: Ranges, *, other_process: bool = False, formats: tuple[str, str] = (NSIGHT, TRACE)) -> Ranges:
    """Return the remaining ranges of an export and a trace, whose operator is known."""
    with empty_store() as store:
        builder = Made(store)
        process = builder.process("node7", 1)
        second = builder.process("node7", 2) if other_process else process
        for format, owner, ranges, start in ((formats[0], process, mine, 0), (formats[1], second, theirs, 900 * MS)):
            builder.source(format, {owner: [(BASE + start, 100)]})
            store.connection.execute(
                "DELETE FROM raw.annotation WHERE name = (SELECT id FROM name WHERE text = 'forward') AND value IS NULL"
            )
            rows = pl.DataFrame(
                [(owner, 0, BASE + begin, end - begin, "host", True, 1) for _, begin, end in ranges],
                schema={
                    "process": pl.Int32, "node": pl.Int32, "start_ns": pl.Int64, "duration_ns": pl.Int64, "side": pl.String,
                    "complete": pl.Boolean, "value": pl.Int64,
                },
                orient="row",
            )  # fmt: skip
            names = store.name_ids([name for name, *_ in ranges])
            store.append("annotation", rows.with_columns(name=pl.Series(names, dtype=pl.Int32)), source=builder.sources[-1].id)
        builder.settle()
        actual = store.frame(
            "SELECT n.text, start_ns - ?, start_ns + duration_ns - ? FROM annotation AS a JOIN name AS n ON n.id = a.name"
            " ORDER BY start_ns, 1, 3",
            [BASE, BASE],
        ).rows()
        noted = builder.told("recorded_twice")
        assert len(noted) == (len(actual) < len(mine) + len(theirs))
        assert all("Ranges of the same process, name and time stand in file1, too" in text for text in noted)
        return actual


def test_equal_ranges_count_once_under_each_name() -> None:
    export = [("forward", 10, 500), ("step_1", 0, 1000), ("data_loading", 0, 9)]
    trace = [("forward", 10, 500), ("ProfilerStep#1", 0, 1000)]
    assert left(export, trace) == [("ProfilerStep#1", 0, 1000), ("data_loading", 0, 9), ("step_1", 0, 1000), ("forward", 10, 500)]


@pytest.mark.parametrize(
    ("start", "end", "ranges"),
    [
        (0, 20_000, 1),
        (0, 20_001, 2),
        (-20_000, 0, 1),
        (20_000, -20_000, 1),
        (-20_001, 0, 2),
    ],
)
def test_ranges_may_start_and_end_twenty_microseconds_apart(start: int, end: int, ranges: int) -> None:
    assert len(left([("forward", MS + start, 2 * MS + end)], [("forward", MS, 2 * MS)])) == ranges


@pytest.mark.parametrize(("apart", "ranges"), [(990_000, 1), (1_100_000, 2)])
def test_long_ranges_may_be_a_hundredth_of_their_duration_apart(apart: int, ranges: int) -> None:
    actual = left([("epoch", apart, 100 * MS + apart)], [("epoch", 0, 100 * MS)])
    assert len(actual) == ranges
    assert ("epoch", 0, 100 * MS) in actual


def test_a_range_stands_for_one_of_the_other_file() -> None:
    """Three short ranges in the export, two in the trace: one has no counterpart."""
    export = [("tick", 0, 100), ("tick", 5000, 5100), ("tick", 10_000, 10_100)]
    assert len(left(export, [("tick", 0, 100), ("tick", 10_000, 10_100)])) == 3


def test_ranges_of_other_processes_and_of_one_profiler_all_count() -> None:
    combined = [("forward", 10, 500), ("forward", 600 * MS, 700 * MS)]
    assert len(left(combined, combined, other_process=True)) == 4
    assert len(left(combined, combined, formats=(TRACE, TRACE))) == 4
