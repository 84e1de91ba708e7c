"""Addresses of spans of the timeline, and the cells that link to them."""

from __future__ import annotations

import pytest
from postrun.report_templates.blocks.spans import Clock, Span
from postrun.report_templates.blocks.tables import Cell, Col
from postrun.report_templates.text.formats import duration

MS = 1_000_000
ORIGIN = 1_700_000_000 * 10**9


@pytest.mark.parametrize(
    ("start", "end", "rank", "expected"),
    [
        (0, 10 * MS, None, "t=0-10"),
        (1_200_500_000, 1_250 * MS, 3, "t=1200.5-1250&rank=3"),
        (1, 2, 0, "t=0.000001-0.000002&rank=0"),
        (5 * MS, 5 * MS, None, "t=5-5"),  # a moment
        (-20 * MS, 10 * MS, None, "t=0-10"),  # began before the first event
        (90_000 * MS, 200_000 * MS, None, "t=90000-100000"),
        (-20 * MS, -10 * MS, None, None),
        (100_000 * MS, 100_001 * MS, None, None),
        (20 * MS, 10 * MS, None, None),
    ],
)
def test_a_span_is_written_in_ms_since_the_origin(start: int, end: int, rank: int | None, expected: str | None) -> None:
    assert Clock(ORIGIN, 100_000 * MS).fragment(Span(ORIGIN + start, ORIGIN + end, rank)) == expected


def test_without_a_span_there_is_no_address() -> None:
    assert Clock(ORIGIN, MS).fragment(None) is None
    # Times that count from another zero are outside.
    assert Clock(ORIGIN, MS).fragment(Span(0, MS)) is None


def test_the_cells_of_a_column_have_the_spans_of_their_rows() -> None:
    column: Col[int] = Col("Began after", lambda row: row, duration, span=lambda row: Span(row, row + 5, 2) if row else None)
    assert column.cell(2 * MS) == Cell("2.00\u00a0ms", sort=2 * MS, span=Span(2 * MS, 2 * MS + 5, 2))
    assert column.cell(0).span is None
