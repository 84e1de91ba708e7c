"""Do ranges that two tracers of one process recorded count once, and all others as often as they were?"""

from __future__ import annotations

import polars as pl
import pytest
from empty_stores import empty_store
from made_tracers import BASE, MS, Made
from postrun.ingest.store.format_names import NSIGHT, TRACE

Ranges = list[tuple[str, int, int]]  # Names, starts and ends


def left(mine: Ranges, theirs: Ranges, *, other_process: bool = False, formats: tuple[str, str] = (NSIGHT, TRACE)) -> Ranges:
    """What counts of the ranges of an export and a trace of one process. Each has a kernel, too; the trace knows its operator."""
    with empty_store() as store:
        made = Made(store)
        process = made.process("node7", 1)
        other = made.process("node7", 2) if other_process else process
        for format, one, ranges, start in ((formats[0], process, mine, 0), (formats[1], other, theirs, 900 * MS)):
            made.source(format, {one: [(BASE + start, 100)]})
            store.connection.execute("DELETE FROM annotation WHERE name = (SELECT id FROM name WHERE text = 'forward') AND value IS NULL")
            rows = pl.DataFrame(
                [(one, 0, BASE + begin, end - begin, "host", True, 1) for _, begin, end in ranges],
                schema={
                    "process": pl.Int32, "node": pl.Int32, "start_ns": pl.Int64, "duration_ns": pl.Int64, "side": pl.String,
                    "complete": pl.Boolean, "value": pl.Int64,
                },
                orient="row",
            )  # fmt: skip
            names = store.name_ids([name for name, *_ in ranges])
            store.append("annotation", rows.with_columns(name=pl.Series(names, dtype=pl.Int32)))
            last = store.frame("SELECT coalesce(max(rowid) + 1, 0) FROM annotation").item()
            made.sources[-1].rows = {**made.sources[-1].rows, "annotation": (last - len(ranges), last)}
        made.settle()
        found = store.frame(
            "SELECT n.text, start_ns - ?, start_ns + duration_ns - ? FROM annotation AS a JOIN name AS n ON n.id = a.name"
            " ORDER BY start_ns, 1, 3",
            [BASE, BASE],
        ).rows()
        told = made.told("recorded_twice")
        assert len(told) == (len(found) < len(mine) + len(theirs))
        assert all("Ranges of the same process, name and time stand in file1, too" in text for text in told)
        return found


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
    found = left([("epoch", apart, 100 * MS + apart)], [("epoch", 0, 100 * MS)])
    assert len(found) == ranges
    assert ("epoch", 0, 100 * MS) in found


def test_a_range_stands_for_one_of_the_other_file() -> None:
    """Three short ranges within 20 us in the export, two in the trace: one of the three has no other."""
    export = [("tick", 0, 100), ("tick", 5000, 5100), ("tick", 10_000, 10_100)]
    assert len(left(export, [("tick", 0, 100), ("tick", 10_000, 10_100)])) == 3


def test_ranges_of_other_processes_and_of_one_profiler_all_count() -> None:
    both = [("forward", 10, 500), ("forward", 600 * MS, 700 * MS)]
    assert len(left(both, both, other_process=True)) == 4
    assert len(left(both, both, formats=(TRACE, TRACE))) == 4
