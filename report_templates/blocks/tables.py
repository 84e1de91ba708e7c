"""Tables of the report: rows and column objects -> a Table of cells that the templates print.

A :class:`Col` holds everything about one column: its header, the value of a row, how that is written, and when the column exists.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, ClassVar, Final, Generic, TypeVar

from markupsafe import Markup

from ..figures.donut import Sector
from ..text.formats import UNKNOWN, clip, ended, percent, quantity
from .spans import Span

T = TypeVar("T")

TABLE_ROWS: Final = 1000  # in HTML; report.json contains all rows
_NUMBERED: Final = re.compile(r" #\d+$")
_NUMBERS: Final = "Kernels with the same short name are numbered: #2, #3."
PDF_ROWS: Final = 12  # the default in the PDF, whose time depends on the number of cells


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell. ``sort``: the sort key if it is not the text. ``title``: the full text if ``text`` is shortened.

    ``sector`` and ``number``: color and number of the text in a ring. ``link``: the id that it links to. ``mark``: a class of style.css.
    ``camel``: HTML breaks the text only before a capital letter within it. ``bar``: a bar of that percentage and meaning, left of the
    text. ``span``: in the timeline, which the text links to.
    """

    text: str
    sort: float | str | None = None
    title: str | None = None
    sector: Sector | None = None
    number: int | None = None
    link: str | None = None
    mark: str | None = None
    camel: bool = False
    bar: Sector | None = None
    span: Span | None = None


@dataclass(slots=True)
class Col(Generic[T]):
    """A column: its header, and what it shows of a row.

    ``value`` returns a Cell, or a value that becomes one: written by ``form`` and sorted by the value itself, or without ``form`` as text
    of at most ``limit`` characters. ``form`` may return a Cell to set more than the text.

    ``kind``: "number" (right-aligned; the default with a ``form``), "text" (wraps, shortened at its end; the default without), "name" (the
    row's heading, shortened in its middle; in the PDF one line) or "full" (HTML breaks it anywhere). ``when``: whether the table can have
    this column. ``html_only``: left out of the PDF. ``pdf_only``: its replacement there. ``code``: names of kernels, operators or
    functions, in their own font, in the PDF on one line. ``span``: in the timeline, of a row.
    """

    label: str
    value: Callable[[T], Any]
    form: Callable[[Any], str | Cell] | None = None
    kind: str = ""
    limit: int = 90
    when: bool = True
    html_only: bool = False
    pdf_only: bool = False
    code: bool = False
    span: Callable[[T], Span | None] | None = None

    def __post_init__(self) -> None:
        self.kind = self.kind or ("number" if self.form else "text")

    def cell(self, row: T) -> Cell:
        cell = self._written(row)
        return cell if self.span is None else replace(cell, span=self.span(row))

    def _written(self, row: T) -> Cell:
        value = self.value(row)
        if self.form is None:
            return value if isinstance(value, Cell) else word(value, limit=self.limit, name=self.kind != "text" or self.code)
        written = self.form(value)
        return written if isinstance(written, Cell) else Cell(written, sort=value)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of ``total`` rows. ``rows`` contains at most TABLE_ROWS of them; the PDF shows ``pdf_rows``, or no table for zero.

    ``sortable``: the reader of the HTML can sort the rows. ``rest``: replaces the PDF's count of omitted rows. ``note``: an explanation
    below the table; ``html_note``: the same in HTML only. ``legend``: names the sectors of a ring, without bars.
    """

    macro: ClassVar = "data_table"
    id: str
    caption: str
    columns: tuple[Col[Any], ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: int
    sortable: bool = True
    pdf_rows: int = PDF_ROWS
    rest: Markup | None = None
    note: str | None = None
    html_note: str | None = None
    legend: bool = False

    @property
    def title(self) -> str:
        return self.caption

    def columns_for(self, target: str) -> list[int]:
        """Return the indices of the columns on the page for "html" or "pdf"."""
        return [i for i, column in enumerate(self.columns) if not (column.pdf_only if target == "html" else column.html_only)]

    def of_columns(self, kept: Sequence[int]) -> Table:
        """Return the table with these columns alone."""
        return replace(self, columns=tuple(self.columns[i] for i in kept), rows=tuple(tuple(row[i] for i in kept) for row in self.rows))


def table(
    id: str, caption: str, rows: Sequence[T], *columns: Col[T], weight: Callable[[T], float | None] | None = None, **flags: Any
) -> Table | None:
    """Make a table; None without rows. ``flags``: the fields of :class:`Table`.

    A column other than the first is left out if no row has a value. A note explains the numbers of kernels with the same short name.
    ``weight``: of rows of equal rank, such as GPUs. If the PDF has not all of them, those farthest from the median weight come first.
    """
    if not rows:
        return None
    notes = [flags.pop("note", None)]
    if weight is not None and len(rows) > flags.get("pdf_rows", PDF_ROWS):
        rows = outliers_first(rows, weight)
        notes.append("The rows farthest from the median come first.")
    present = tuple(column for column in columns if column.when)
    cells = tuple(tuple(column.cell(row) for column in present) for row in rows[:TABLE_ROWS])
    if any(column.code and _NUMBERED.search(row[i].text) for i, column in enumerate(present) for row in cells):
        notes.append(_NUMBERS)
    known = [i for i in range(len(present)) if i == 0 or any(row[i].text != UNKNOWN for row in cells)]
    return Table(id, caption, present, cells, len(rows), note=" ".join(filter(None, notes)) or None, **flags).of_columns(known)


def outliers_first(rows: Sequence[T], weight: Callable[[T], float | None]) -> list[T]:
    """Sort rows by the distance of their weight from its median; unknown weights last.

    Of two rows neither is an outlier: they keep their order.
    """
    if len(rows) < 3:
        return list(rows)
    known = [value for value in map(weight, rows) if value is not None]
    middle = statistics.median(known) if known else 0.0
    return sorted(rows, key=lambda row: -1.0 if (value := weight(row)) is None else abs(value - middle), reverse=True)


def word(text: str | None, *, full: str | None = None, limit: int = 90, name: bool = True) -> Cell:
    """Make a cell of text: a ``name``, shortened in its middle, or a sentence.

    ``full``: the unabbreviated text."""
    text = text or UNKNOWN
    full = text if full is None else full
    short = clip(text, limit) if name else ended(text, limit)
    return Cell(short, title=clip(full, 2000) if full != short else None)


def share_cell(share: float | None, meaning: str) -> Cell:
    """Make a cell of a percentage with its bar. ``meaning``: a key of the palette."""
    if share is None:
        return Cell(UNKNOWN)
    return Cell(percent(share), sort=share, bar=Sector("", min(100.0, max(0.0, share)), meaning))


def amount(number: float | None, unit: str) -> Cell:
    """Make a cell of a number in its own unit."""
    return Cell(quantity(number, unit), sort=number)


def pairs_table(
    id: str,
    caption: str,
    pairs: Iterable[tuple[str, Any]],
    headers: tuple[str, str],
    form: Callable[[Any], str] | None = None,
    *,
    kind: str = "",
    limit: int = 90,
    **flags: Any,
) -> Table | None:
    """Make a table of names and values. ``form``, ``kind``, ``limit``: of the values."""
    name, value = headers
    columns = [Col[Any](name, itemgetter(0), kind="name"), Col[Any](value, itemgetter(1), form, kind=kind, limit=limit)]
    return table(id, caption, list(pairs), *columns, **flags)
