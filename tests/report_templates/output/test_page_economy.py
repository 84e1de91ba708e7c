"""The number of pages of a PDF, and how empty they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from page_emptiness import emptiness
from postrun.analysis.report import Report
from postrun.report_templates.blocks import Figure, say
from postrun.report_templates.blocks.tables import Col, Table, table
from postrun.report_templates.figures import svg
from postrun.report_templates.output.grid import rows as grid_rows
from postrun.report_templates.output.pdf_tables import pdf_layout
from postrun.report_templates.output.render import render

MOST_EMPTY = 0.5  # of a page but the last
MEAN_EMPTY = 0.4


def figure(width: float) -> Figure:
    return Figure(f"f-{width:g}", svg.document(width, 50, []), "7 of 9 dots", say("Dots."))


def numbers(id: str, columns: int) -> Table:
    drawn = table(id, "Numbers", [1.0, 2.0], *(Col(f"Column {i}", lambda row: row, str) for i in range(columns)))
    assert drawn is not None
    return drawn


def ids(blocks: list[Figure | Table | None], room: int = 12) -> list[list[tuple[str, int]]]:
    return [[(block.id, columns) for block, columns in row if block] for row in grid_rows(blocks, room)]


def test_a_table_is_next_to_its_narrow_figure() -> None:
    assert ids([figure(svg.NARROW), numbers("t", 3)]) == [[("f-416", 7), ("t", 5)]]
    assert ids([figure(svg.WIDE), numbers("t", 3)]) == [[("f-720", 12)], [("t", 12)]]
    assert ids([figure(svg.HALF), figure(svg.HALF)]) == [[("f-354", 6), ("f-354", 6)]]


def test_a_table_of_many_columns_is_below_the_figure() -> None:
    assert ids([figure(svg.NARROW), numbers("t", 9)]) == [[("f-416", 7)], [("t", 12)]]


def test_a_table_next_to_a_figure_leaves_out_columns_before_it_shortens_names() -> None:
    names = [f"rank {number} · algo-{number} GPU {number}" for number in range(3)]
    numbers_of = [Col(f"Number {i}", lambda _: "1,234.5", kind="number") for i in range(3)]
    wide = table("t", "Ranks", names, Col("Rank", lambda name: name, kind="name"), *numbers_of)
    assert wide is not None
    assert pdf_layout(wide, 5)[2][0][0] != names[0]
    ((_, (beside, columns)),) = grid_rows([figure(svg.NARROW), wide])
    assert isinstance(beside, Table)
    assert [row[0] for row in pdf_layout(beside, columns)[2]] == names


def test_a_row_never_has_more_than_its_room() -> None:
    blocks = [numbers(f"t{i}", 1 + i % 4) for i in range(9)]
    for room in (6, 12):
        for row in ids(blocks, room):
            assert sum(columns for _, columns in row) == room
    assert [id for row in ids(blocks) for id, _ in row] == [block.id for block in blocks]


@pytest.mark.slow
def test_pages_are_filled(rich: Report, tmp_path: Path) -> None:
    if shutil.which("pdftoppm") is None:
        pytest.skip("pdftoppm is not installed (apt-get install poppler-utils)")
    pages = emptiness(render(rich, tmp_path, ("pdf",))["pdf"])
    assert len(pages) <= 16
    assert max(pages[:-1]) <= MOST_EMPTY, pages
    assert sum(pages[:-1]) / len(pages[:-1]) <= MEAN_EMPTY, pages
