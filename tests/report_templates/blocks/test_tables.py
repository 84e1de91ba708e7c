"""Columns of a table: how a value becomes a cell, and which columns a table has."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest
from postrun.report_templates.blocks.tables import TABLE_ROWS, Cell, Col, outliers_first, pairs_table, table
from postrun.report_templates.text.formats import count


def test_a_format_writes_the_value_that_sorts() -> None:
    column: Col[int | None] = Col("Count", lambda row: row, count)
    assert column.kind == "number"
    assert column.cell(1200) == Cell("1,200", sort=1200)
    assert column.cell(None) == Cell("—")


def test_without_a_format_a_value_is_text_with_its_full_text_as_title() -> None:
    column: Col[str | None] = Col("Name", lambda row: row, limit=9)
    assert column.kind == "text"
    assert column.cell("short") == Cell("short")
    assert column.cell("a long name") == Cell("a long …", title="a long name")
    assert column.cell(None) == column.cell("") == Cell("—")


@pytest.mark.parametrize(("kind", "code"), [("name", False), ("full", False), ("text", True)])
def test_names_are_shortened_in_their_middle_and_sentences_at_their_end(kind: str, code: bool) -> None:
    text = "Waits for data take most of the time"
    sentence: Col[str] = Col("What", str, limit=20)
    assert sentence.cell(text) == Cell("Waits for data …", title=text)
    name: Col[str] = Col("Name", str, kind=kind, code=code, limit=20)
    assert name.cell(text) == Cell("Waits for dat…e time", title=text)


def test_a_cell_stays_as_it_is() -> None:
    cell = Cell("rank 3", sort=3, mark="v-info")
    assert Col[None]("Rank", lambda row: cell).cell(None) is cell
    assert Col[None]("Rank", lambda row: 3, lambda rank: cell, kind="name").cell(None) is cell


def test_a_table_has_the_columns_whose_condition_holds() -> None:
    rows = list(range(TABLE_ROWS + 5))
    result = table("t", "A table", rows, Col("Row", str), Col("No", str, when=False), Col("HTML", str, html_only=True), note="A note.")
    assert result is not None
    assert [column.label for column in result.columns] == ["Row", "HTML"]
    assert (result.columns_for("html"), result.columns_for("pdf")) == ([0, 1], [0])
    assert (len(result.rows), result.total, result.note) == (TABLE_ROWS, len(rows), "A note.")
    assert table("t", "No rows", [], Col("Row", str)) is None


def test_a_column_without_values_is_left_out() -> None:
    """The first column names the rows, and a zero is a value."""
    rows: list[tuple[str | None, int | None, int | None]] = [(None, None, 0), (None, None, None)]
    columns = [Col[Any](label, itemgetter(i), form) for i, (label, form) in enumerate((("Name", None), ("No", count), ("Some", count)))]
    result = table("t", "A table", rows, *columns)
    assert result is not None
    assert [column.label for column in result.columns] == ["Name", "Some"]
    assert [[cell.text for cell in row] for row in result.rows] == [["—", "0"], ["—", "—"]]


@pytest.mark.parametrize(
    ("name", "code", "note"),
    [
        ("gemm #2", True, "Times. Kernels with the same short name are numbered: #2, #3."),
        ("gemm", True, "Times."),
        ("thread #2", False, "Times."),
    ],
)
def test_numbers_of_kernels_with_the_same_name_are_explained(name: str, code: bool, note: str) -> None:
    result = table("t", "A table", ["gemm", name], Col("Name", str, kind="name", code=code), note="Times.")
    assert result is not None
    assert result.note == note


def test_pairs_are_names_and_values() -> None:
    result = pairs_table("p", "Pairs", {"calls": 3}.items(), ("What", "Count"), count, sortable=False)
    assert result is not None
    assert [column.kind for column in result.columns] == ["name", "number"]
    assert result.rows == ((Cell("calls"), Cell("3", sort=3)),)
    assert pairs_table("p", "Pairs", [], ("What", "Count")) is None


def test_rows_that_the_pdf_cuts_begin_with_the_outliers() -> None:
    # The median of 50, 51, 10, 52, and 53 is 51: 10 is 41 from it, 53 is 2, 50 and 52 are 1.
    rows = [50.0, 51.0, 10.0, 52.0, 53.0, None]
    assert outliers_first(rows, lambda row: row) == [10.0, 53.0, 50.0, 52.0, 51.0, None]
    assert outliers_first(rows[:2], lambda row: row) == rows[:2]
    cut, complete = (table("t", "GPUs", rows, Col("Busy", str), weight=lambda row: row, pdf_rows=most, note="Sums.") for most in (2, 6))
    assert cut is not None
    assert complete is not None
    assert [cells[0].text for cells in cut.rows][:2] == ["10.0", "53.0"]
    assert cut.note == "Sums. The rows farthest from the median come first."
    assert ([cells[0].text for cells in complete.rows][:2], complete.note) == (["50.0", "51.0"], "Sums.")
