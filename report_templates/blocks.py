"""What is a section of the report made of? A sentence, figures and tables, all ready to show."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from markupsafe import Markup

from .figures.donut import Sector, donut, shaded
from .figures.palette import MEANINGS
from .figures.svg import width_of
from .formats import clip, count, percent, plural, printable

T = TypeVar("T")
N = TypeVar("N", int, float, int | None, float | None)

TABLE_ROWS: Final = 1000  # of a table in HTML; report.json holds them all
PDF_ROWS: Final = 12
SECTORS: Final = 8
# Characters of the PDF's table type that fit beside each other on the page and beside a ring; the gap between columns; a long text.
_PAGE_CHARACTERS: Final = 104.0
_LEGEND_CHARACTERS: Final = 78.0
_GAP: Final = 2.4
_FLEXIBLE: Final = 18
_NAME: Final = 30
BARS: Final = 12


@dataclass(frozen=True, slots=True)
class Column:
    """kind: "text", "number" (right-aligned) or "name" (the row's heading). ``html_only``: left out of the PDF."""

    label: str
    kind: str = "text"
    html_only: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """``sort``: what the column is sorted by, where the text is not. ``title``: the full text, where it is shortened.

    ``sector`` and ``number``: colour and number of the text in a ring.
    """

    text: str
    sort: float | str | None = None
    title: str | None = None
    sector: Sector | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table; ``total`` rows exist, ``rows`` holds at most TABLE_ROWS of them. ``sortable``: another order of the rows makes sense."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: int
    sortable: bool = True

    def pdf_layout(self) -> tuple[float, tuple[float, ...]]:
        """Width of the table in the PDF and of each of its columns, in percent of the page and of the table, by what stands in them.

        WeasyPrint's own measuring of every cell takes longer than the rest of the layout together. Columns of long text share what the
        others leave.
        """
        columns = [i for i, column in enumerate(self.columns) if not column.html_only]
        rows = self.rows[:PDF_ROWS]
        wanted, least = [], []
        for i in columns:
            heading = max(_characters(word) for word in self.columns[i].label.split())
            longest = max(_characters(row[i].text) + (4 if row[i].sector else 0) for row in rows)
            wanted.append(_GAP + max(heading, longest))
            flexible = self.columns[i].kind != "number" and longest > _FLEXIBLE
            short = min(longest, _NAME) if self.columns[i].kind == "name" else _FLEXIBLE
            least.append(_GAP + max(heading, short if flexible else longest))
        room = _LEGEND_CHARACTERS if any(row[0].sector for row in rows) else _PAGE_CHARACTERS
        spare = max(0.0, room - sum(least))
        more = [want - need for want, need in zip(wanted, least, strict=True)]
        factor = min(1.0, spare / sum(more)) if sum(more) else 0.0
        widths = [need + factor * extra for need, extra in zip(least, more, strict=True)]
        total = sum(widths)
        # Rounded down: columns of more than 100 % would push the table out of its place.
        shown = max(total, 1.2 * len(self.caption))
        return min(100.0, math.floor(100 * shown / room)), tuple(math.floor(10000 * width / total) / 100 for width in widths)


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing. ``alt`` states what it shows in this run; ``caption`` says how to read it. ``legend``: the table that names its parts."""

    id: str
    svg: str
    alt: str
    caption: Markup
    legend: Table | None = None


@dataclass(slots=True)
class Section:
    """``lead`` answers the title's question. Without any block the section is that one sentence."""

    id: str
    title: str
    lead: Markup
    figures: dict[str, Figure] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    number: int = 0

    @property
    def empty(self) -> bool:
        return not (self.figures or self.tables or self.facts)

    def figure(self, name: str) -> Figure | None:
        return self.figures.get(name)

    def table(self, name: str) -> Table | None:
        return self.tables.get(name)

    def add(self, *blocks: Figure | Table | None) -> None:
        """Take the blocks that exist, under the last word of their id."""
        for block in blocks:
            if isinstance(block, Figure):
                self.figures[block.id.removeprefix(self.id + "-")] = block
            elif isinstance(block, Table):
                self.tables[block.id.removeprefix(self.id + "-")] = block


def _characters(text: str) -> float:
    """The width of ``text`` in characters of average width."""
    return width_of(text, 1.0) / 0.6


def say(sentence: str, *values: object) -> Markup:
    """A sentence whose ``{}`` are filled with escaped values."""
    return Markup(sentence).format(*(printable(value) if type(value) is str else value for value in values))


def name(text: str, limit: int = 72) -> Markup:
    """A name from a trace for use within a sentence: shortened, and isolated from the direction of the text around it."""
    return Markup("<bdi>{}</bdi>").format(printable(clip(text, limit)))


def word(text: str | None, *, full: str | None = None, limit: int = 90) -> Cell:
    """A cell of text."""
    text = text or "–"
    shown = clip(text, limit)
    whole = full if full is not None else text
    return Cell(shown, title=clip(whole, 2000) if whole != shown else None)


def value(number: N, form: Callable[[N], str]) -> Cell:
    """A cell of a number, written by ``form``."""
    return Cell(form(number), sort=number)


def table(
    id: str, caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, total: int | None = None, sortable: bool = True
) -> Table | None:
    """None where there is no row."""
    if not rows:
        return None
    return Table(id, caption, tuple(columns), tuple(tuple(row) for row in rows[:TABLE_ROWS]), total or len(rows), sortable)


@dataclass(frozen=True, slots=True)
class Slice:
    """One part of a ring: its name, meaning, percent of the whole, and the cells that its legend shows between name and percent."""

    name: str
    meaning: str
    percent: float
    cells: tuple[Cell, ...] = ()
    title: str | None = None


def ring(
    id: str,
    caption: Markup,
    what: str,
    parts: Sequence[Slice],
    columns: Sequence[str],
    *,
    middle: tuple[str, str],
    whole: float | None = None,
) -> Figure | None:
    """A donut and its legend table; None without parts. ``columns``: headings of name, cells and percent. ``what`` begins the alt text.

    ``whole``: percent that the full ring stands for (default: what the parts sum up to, at most 100).
    """
    parts = [part for part in parts if part.percent > 0] or list(parts)
    if not parts:
        return None
    sectors = shaded([(clip(part.name, 60), part.percent, part.meaning) for part in parts])
    legend = table(
        f"{id}-legend",
        what,
        [Column(columns[0], "name"), *(Column(label, "number", html_only=label == "Count") for label in columns[1:])],
        [
            [
                dataclasses.replace(word(part.name, full=part.title, limit=48), sector=sector, number=number),
                *part.cells,
                value(part.percent, percent),
            ]
            for number, (part, sector) in enumerate(zip(parts, sectors, strict=True), 1)
        ],
        sortable=False,
    )
    full = whole or min(100.0, sum(part.percent for part in parts)) or 100.0
    alt = f"{what}: " + ", ".join(f"{clip(part.name, 40)} {percent(part.percent)}" for part in parts[:5])
    return Figure(id, donut(sectors, *middle, whole=full), alt, caption, legend)


def heaviest(rows: Sequence[T], most: int, weight: Callable[[T], float]) -> list[T]:
    """At most ``most`` rows, those of most weight, in their own order."""
    if len(rows) <= most:
        return list(rows)
    chosen = sorted(range(len(rows)), key=lambda i: -weight(rows[i]))[:most]
    return [rows[i] for i in sorted(chosen)]


def of_all(shown: int, total: int, what: str) -> Markup:
    """ " 12 of 64 devices are drawn, ..." or nothing."""
    return say(" {} of {} are drawn.", count(shown), plural(total, what)) if shown < total else Markup("")


def meaning_of(category: str) -> str:
    """The colour of a kernel category or an activity."""
    lowered = category.lower()
    for start, meaning in (("comm", "communication"), ("nccl", "communication"), ("mem", "memory"), ("sync", "sync"), ("other", "other")):
        if lowered.startswith(start):
            return meaning
    return lowered if lowered in MEANINGS else "computation"
