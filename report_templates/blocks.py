"""What is a section of the report made of? A sentence, figures and tables, all ready to show."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from markupsafe import Markup

from .figures.donut import Sector, donut, shaded
from .figures.palette import MEANINGS
from .figures.svg import width_of
from .formats import clip, count, glued, percent, plural, printable

T = TypeVar("T")
N = TypeVar("N", int, float, int | None, float | None)

TABLE_ROWS: Final = 1000  # of a table in HTML; report.json holds them all
PDF_ROWS: Final = 12  # unless a table says less: cells are what the PDF's time goes into
SECTORS: Final = 8
# Share of a shortened name that is its end.
_TAIL: Final = 1 / 3

# Characters of the PDF's table type that fit beside each other: on the page, beside a ring, beside a ring on half of the page.
_PAGE_CHARACTERS: Final = 108.0
_LEGEND_CHARACTERS: Final = 84.0
_HALF_CHARACTERS: Final = 37.8
# The gap between columns; a long text; a name that is still to be told from others, and where there is no room for it.
_GAP: Final = 2.4
_HALF_GAP: Final = 1.4
_SWATCH: Final = 5.2  # a coloured square and a number before a name
_FLEXIBLE: Final = 18
_NAME: Final = 30
_LEAST: Final = 10
BARS: Final = 12


@dataclass(frozen=True, slots=True)
class Column:
    """kind: "text" (wraps), "number" (right-aligned) or "name" (the row's heading; in the PDF one line, shortened in its middle).

    ``html_only``: left out of the PDF. ``pdf_only``: its replacement there.
    """

    label: str
    kind: str = "text"
    html_only: bool = False
    pdf_only: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """``sort``: what the column is sorted by, where the text is not. ``title``: the full text, where it is shortened.

    ``sector`` and ``number``: colour and number of the text in a ring. ``link``: an id that it leads to. ``mark``: a class of style.css.
    ``camel``: HTML may break it between its words, of which each but the first begins with a capital letter, and nowhere else.
    """

    text: str
    sort: float | str | None = None
    title: str | None = None
    sector: Sector | None = None
    number: int | None = None
    link: str | None = None
    mark: str | None = None
    camel: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table; ``total`` rows exist, ``rows`` holds at most TABLE_ROWS of them, the PDF shows ``pdf_rows``, none for zero.

    ``sortable``: another order of the rows makes sense. ``half``: the legend of a ring on half of the page. ``rest``: what the PDF says
    instead of how many rows it leaves out. ``note``: what must be known to read it, below the table; ``html_note``: only in HTML.
    """

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: int
    sortable: bool = True
    pdf_rows: int = PDF_ROWS
    half: bool = False
    rest: Markup | None = None
    note: str | None = None
    html_note: str | None = None

    def shown(self, target: str) -> list[int]:
        """Which columns stand on the page for "html" or "pdf"."""
        return [i for i, column in enumerate(self.columns) if not (column.pdf_only if target == "html" else column.html_only)]

    def pdf_layout(self) -> tuple[float, tuple[float, ...], tuple[tuple[str, ...], ...]]:
        """Width of the table in the PDF and of each of its columns, in percent of the page and of the table, and the texts that fit.

        WeasyPrint's own measuring of every cell takes longer than the rest of the layout together. Columns of long text share what the
        others leave.
        """
        columns = self.shown("pdf")
        rows = self.rows[: self.pdf_rows]
        gap = _HALF_GAP if self.half else _GAP
        wanted, least = [], []
        for i in columns:
            heading = _heading(self.columns[i].label)
            longest = max(_characters(row[i].text) + (_SWATCH if row[i].sector else 0) for row in rows)
            wanted.append(gap + max(heading, longest))
            flexible = self.columns[i].kind != "number" and longest > _FLEXIBLE
            short = min(longest, _NAME) if self.columns[i].kind == "name" else _FLEXIBLE
            least.append(gap + max(heading, short if flexible else longest))
        room = _HALF_CHARACTERS if self.half else _LEGEND_CHARACTERS if any(row[0].sector for row in rows) else _PAGE_CHARACTERS
        # Names give way where even the least does not fit.
        excess = max(0.0, sum(least) - room)
        least = [
            max(need - excess, min(need, gap + _LEAST)) if self.columns[i].kind == "name" else need
            for i, need in zip(columns, least, strict=True)
        ]
        spare = max(0.0, room - sum(least))
        more = [want - need for want, need in zip(wanted, least, strict=True)]
        factor = min(1.0, spare / sum(more)) if sum(more) else 0.0
        widths = [need + factor * extra for need, extra in zip(least, more, strict=True)]
        total = sum(widths)
        shown = min(room, max(total, 1.2 * len(self.caption)))
        by_column = []
        for i, width in zip(columns, widths, strict=True):
            column = [row[i].text for row in rows]
            if self.columns[i].kind == "name":
                swatch = _SWATCH if any(row[i].sector for row in rows) else 0
                column = _fit(column, width * shown / total - gap - swatch)
            by_column.append(column)
        texts = tuple(zip(*by_column, strict=True))
        # Rounded down: columns of more than 100 % would push the table out of its place.
        return math.floor(100 * shown / room), tuple(math.floor(10000 * width / total) / 100 for width in widths), texts


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
    """``lead`` answers the title's question. Without any block the section is that one sentence. ``parts``: sections within it."""

    id: str
    title: str
    lead: Markup
    figures: dict[str, Figure] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    number: int = 0
    parts: tuple[Section, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.figures or self.tables or self.facts or self.parts)

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


def _heading(label: str) -> float:
    """The width of a column's heading on at most two lines."""
    words = label.split()
    return min(max(_characters(" ".join(words[:i])), _characters(" ".join(words[i:]))) for i in range(1, len(words) + 1))


def _fit(texts: Sequence[str], room: float) -> list[str]:
    """``texts`` within ``room`` characters of average width. Names that would read the same keep more of their end."""

    def fitted(text: str, tail: float) -> str:
        wide = _characters(text)
        if wide <= room + 0.01:
            return text
        length = max(6, int(len(text) * room / wide))
        while length > 6 and _characters(clip(text, length, tail=tail)) > room:  # what is left may be wider than the whole on average
            length -= 1
        return clip(text, length, tail=tail)

    shown = [fitted(text, _TAIL) for text in texts]
    meant: dict[str, set[str]] = {}
    for text, short in zip(texts, shown, strict=True):
        meant.setdefault(short, set()).add(text)
    return [short if len(meant[short]) == 1 else fitted(text, 1 - _TAIL) for text, short in zip(texts, shown, strict=True)]


def say(sentence: str, *values: object) -> Markup:
    """A sentence whose ``{}`` are filled with escaped values."""
    return Markup(sentence).format(*(printable(value) if type(value) is str else value for value in values))


def coded(text: str) -> Markup:
    """A sentence in which what stands between two grave accents is code."""
    pieces = glued(printable(text)).split("`")
    if len(pieces) % 2 == 0:  # one is left over
        return Markup("{}").format(glued(printable(text)))
    return Markup("").join(Markup("<code>{}</code>" if i % 2 else "{}").format(piece) for i, piece in enumerate(pieces))


def plain(text: str | None) -> str | None:
    """The same for a cell of text: no grave accents."""
    return None if text is None else glued(text).replace("`", "")


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
    id: str,
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    *,
    sortable: bool = True,
    pdf_rows: int = PDF_ROWS,
    half: bool = False,
    rest: Markup | None = None,
    note: str | None = None,
    html_note: str | None = None,
) -> Table | None:
    """None where there is no row."""
    if not rows:
        return None
    kept = tuple(tuple(row) for row in rows[:TABLE_ROWS])
    return Table(id, caption, tuple(columns), kept, len(rows), sortable, pdf_rows, half, rest, note, html_note)


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
    half: bool = False,
) -> Figure | None:
    """A donut and its legend table; None without parts. ``columns``: headings of name, cells and percent. ``what`` begins the alt text.

    ``whole``: percent that the full ring stands for (default: what the parts sum up to, at most 100). ``half``: two such rings stand
    beside each other.
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
                dataclasses.replace(word(part.name, full=part.title or part.name, limit=26 if half else 48), sector=sector, number=number),
                *part.cells,
                value(part.percent, percent),
            ]
            for number, (part, sector) in enumerate(zip(parts, sectors, strict=True), 1)
        ],
        sortable=False,
        half=half,
    )
    full = whole or min(100.0, sum(part.percent for part in parts)) or 100.0
    alt = f"{what}: " + ", ".join(f"{clip(part.name, 40)} {percent(part.percent)}" for part in parts[:5])
    return Figure(id, donut(sectors, *middle, whole=full), alt, caption, legend)


def spread(rows: Sequence[T], most: int, weight: Callable[[T], float]) -> list[T]:
    """At most ``most`` rows (at least two): those of most and of least weight and, of three or more, the median one, in their own order."""
    if len(rows) <= most:
        return list(rows)
    order = sorted(range(len(rows)), key=lambda i: weight(rows[i]))
    low = max(1, (most - 1) // 3)
    median = order[(len(order) - 1) // 2 :][: most > 2]
    chosen = {*order[:low], *median, *order[len(order) - (most - low - len(median)) :]}
    return [rows[i] for i in sorted(chosen)]


def of_all(shown: int, total: int, what: str, by: str) -> Markup:
    """ " 12 of 64 devices are drawn: ..." or nothing. ``by`` names the quantity by which :func:`spread` chose."""
    if shown >= total:
        return Markup("")
    return say(" {} of {} are drawn: those of most and of least {} and the median one.", count(shown), plural(total, what), by)


def meaning_of(category: str) -> str:
    """The colour of a kernel category or an activity."""
    lowered = category.lower()
    for start, meaning in (("comm", "communication"), ("nccl", "communication"), ("mem", "memory"), ("sync", "sync"), ("other", "other")):
        if lowered.startswith(start):
            return meaning
    return lowered if lowered in MEANINGS else "computation"


def line_of(pairs: Iterable[tuple[str, str]], most: int = 40, longest: int = 80) -> str:
    """Names and values, of at most ``longest`` characters, on one line, for the PDF: a table of them would take a page and a tenth of the
    time."""
    known = list(pairs)
    text = " · ".join(f"{clip(key, 40)}: {clip(held, longest)}" for key, held in known[:most])
    return text if len(known) <= most else f"{text}; {count(most)} of {count(len(known))} shown; all in the attached report.json."
