"""Blocks of a section: figures, tables, and texts, ready to print, and the wording of the sentences around them."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

from markupsafe import Markup

from ...analysis.report.rows import Histogram, Quantiles
from ..figures.alike import Row, collapsed
from ..figures.donut import Sector, donut, shaded
from ..figures.histogram import Bins
from ..figures.palette import MEANINGS
from ..figures.svg import NARROW, THIRD, WIDE
from ..text.formats import clip, clipped, count, glued, percent, plural, printable
from .tables import Cell, Col, Table, share_cell, table, word

T = TypeVar("T")

_WIDTH: Final = re.compile(r'width="([0-9.]+)"')
SECTORS: Final = 8
BARS: Final = 16
FEWEST: Final = 20  # values whose distribution has a shape; a table is enough for fewer
_OF_CODE: Final = ("Function", "Kernel", "Operator")  # headings of names in the legend of a ring


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing. ``alt``: its content in this run; ``caption``: how to read it.

    ``legend``: the parts of a ring as a table with bars, which replaces the ring except on the dashboard. ``below``: a second ring with
    the same legend. ``small``: the drawing for a narrow screen, if it is not the same.
    """

    id: str
    svg: str
    alt: str
    caption: Markup
    legend: Table | None = None
    below: Figure | None = None
    small: str = ""

    @property
    def for_small(self) -> Figure:
        """Return the figure with its drawing for a narrow screen."""
        return dataclasses.replace(self, svg=self.small)

    @property
    def macro(self) -> str:
        return "shares" if self.legend else "plot"

    @property
    def blocks(self) -> Sequence[Figure | None]:
        return (self.below,)

    @property
    def title(self) -> str:
        """Name of the figure in the heading above folded blocks."""
        return self.legend.caption if self.legend else "Figure"

    @property
    def width(self) -> float:
        """Width of the drawing, one of the widths of svg.py."""
        match = _WIDTH.search(self.svg)
        return float(match[1]) if match else WIDE

    @property
    def narrow(self) -> bool:
        return self.width <= NARROW

    @property
    def third(self) -> bool:
        return self.width <= THIRD


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts in the form that ``macro`` gives them.

    "statements" (a list), "facts" or "definitions" (names and their texts), "lines_of" (the same in the PDF alone), or "more" (a
    paragraph below a figure).
    """

    macro: str
    texts: Any


@dataclass(frozen=True, slots=True)
class Details:
    """Blocks that the reader of the HTML unfolds."""

    macro: ClassVar = "details"
    summary: str
    blocks: Sequence[Figure | Table | None]
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Only:
    """A block of one target: "html", "pdf", or "dashboard", the folded section with the panels of the hosted dashboard."""

    target: str
    block: Block

    @property
    def blocks(self) -> Sequence[Block]:
        return (self.block,)


Block = Figure | Table | Texts | Details | None


@dataclass(slots=True)
class Section:
    """A section of the page. ``lead``: its conclusion, which is all of it without blocks. ``parts``: sections inside it.

    ``blocks`` are printed in their order. ``facts``: the values that a template of its own prints. ``compact``: takes half of the page in
    the PDF, next to another such section. ``html_only``: the PDF has no room for it.
    """

    id: str
    title: str
    lead: Markup
    blocks: Sequence[Block | Only] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    parts: tuple[Section, ...] = ()
    compact: bool = False
    html_only: bool = False

    @property
    def empty(self) -> bool:
        return not (any(self.blocks) or self.facts or self.parts)

    def blocks_for(self, target: str) -> list[Block]:
        """Return the blocks for "html" or "pdf", without those of the dashboard alone."""
        chosen = [block for block in self.blocks if not isinstance(block, Only) or block.target == target]
        return [block.block if isinstance(block, Only) else block for block in chosen]

    @property
    def figures(self) -> dict[str, Figure]:
        """All figures, by their ids without that of the section."""
        return {block.id.removeprefix(self.id + "-"): block for block in _within(self.blocks) if isinstance(block, Figure)}

    @property
    def tables(self) -> dict[str, Table]:
        return {block.id.removeprefix(self.id + "-"): block for block in _within(self.blocks) if isinstance(block, Table)}

    def figure(self, name: str) -> Figure | None:
        return self.figures.get(name)

    def table(self, name: str) -> Table | None:
        return self.tables.get(name)

    def add(self, *blocks: Block | Only) -> None:
        self.blocks = (*self.blocks, *blocks)


def _within(blocks: Iterable[Any]) -> Iterator[Any]:
    """Yield the blocks and those inside of them."""
    for block in filter(None, blocks):
        yield block
        yield from _within(getattr(block, "blocks", ()))


def say(sentence: str, *values: object) -> Markup:
    """Fill the ``{}`` of a sentence with escaped values."""
    return Markup(sentence).format(*(printable(value) if type(value) is str else value for value in values))


def coded(text: str) -> Markup:
    """Mark the text between two grave accents as code."""
    pieces = glued(printable(text)).split("`")
    if len(pieces) % 2 == 0:  # a grave accent without its partner
        return Markup("{}").format("`".join(pieces))
    return Markup("").join(Markup("<code>{}</code>" if i % 2 else "{}").format(piece) for i, piece in enumerate(pieces))


def plain(text: str | None) -> str | None:
    """Remove the grave accents from a cell of text."""
    return None if text is None else glued(text).replace("`", "")


def name(text: str, limit: int = 72) -> Markup:
    """Shorten a name from a trace, and isolate it from the text direction around it."""
    return Markup("<bdi>{}</bdi>").format(printable(clip(text, limit)))


@dataclass(frozen=True, slots=True)
class Slice:
    """One part of a ring: name, meaning, percent of the whole, and the texts of its legend between name and percent."""

    name: str
    meaning: str
    percent: float
    texts: tuple[str, ...] = ()
    title: str | None = None


def ring(
    id: str,
    caption: Markup,
    what: str,
    parts: Sequence[Slice],
    columns: Sequence[str],
    *,
    middle: tuple[str, str],
    total_percent: float | None = None,
    html_note: str | None = None,
) -> Figure | None:
    """Draw a donut with the table of its parts; None without parts.

    The table has a bar per part. ``columns``: headings of name, texts, and percent. ``what`` begins the alt text. ``total_percent``: that
    of the full ring (default: the sum of the parts, at most 100). ``html_note``: below the table in HTML.
    """
    parts = [part for part in parts if part.percent > 0] or list(parts)
    if not parts:
        return None
    sectors = shaded([(clip(part.name, 60), part.percent, part.meaning) for part in parts])
    names = clipped([part.name for part in parts], 48)

    def name_cell(row: tuple[int, Slice, Sector]) -> Cell:
        number, part, sector = row
        cell = word(names[number - 1], full=part.title or part.name)
        return dataclasses.replace(cell, sector=sector, number=number)

    def text(i: int, row: tuple[int, Slice, Sector]) -> str:
        return row[1].texts[i]

    legend = table(
        f"{id}-legend",
        what,
        list(zip(itertools.count(1), parts, sectors, strict=False)),
        Col(columns[0], name_cell, kind="name", code=columns[0] in _OF_CODE),
        *(Col(label, partial(text, i), kind="number", html_only=label == "Count") for i, label in enumerate(columns[1:-1])),
        Col(columns[-1], lambda row: share_cell(row[1].percent, row[1].meaning), kind="number"),
        sortable=False,
        html_note=html_note,
    )
    full = total_percent or min(100.0, sum(part.percent for part in parts)) or 100.0
    alt = f"{what}: " + ", ".join(f"{clip(part.name, 40)} {percent(part.percent)}" for part in parts[:5])
    return Figure(id, donut(sectors, *middle, total_percent=full), alt, caption, legend)


def spread(rows: Sequence[T], most: int, weight: Callable[[T], float]) -> list[T]:
    """Choose at most ``most`` (at least 2) rows: largest, smallest, and median weight.

    The rows keep their order. The median row is one of them if ``most`` is at least 3.
    """
    if len(rows) <= most:
        return list(rows)
    order = sorted(range(len(rows)), key=lambda i: weight(rows[i]))
    low = max(1, (most - 1) // 3)
    median = order[(len(order) - 1) // 2 :][: most > 2]
    chosen = {*order[:low], *median, *order[len(order) - (most - low - len(median)) :]}
    return [rows[i] for i in sorted(chosen)]


def bar_rows(rows: Sequence[Row], nouns: tuple[str, str], by: str, weight: Callable[[Row], float]) -> tuple[list[Row], Markup]:
    """Return the rows of a bar figure, and how many are not drawn.

    Rows that are alike are one; of more than BARS that are left, those of the largest and smallest ``weight`` and the median one are drawn.
    ``nouns``: the name of one row and of several; ``by``: the name of the weight.
    """
    fewer = collapsed(rows, *nouns)
    drawn = spread(fewer, BARS, weight)
    return drawn, of_all(len(drawn), len(fewer), "row", by)


def of_all(drawn: int, total: int, what: str, by: str) -> Markup:
    """Write how many are drawn if not all are. ``by``: the weight in :func:`spread`."""
    if drawn >= total:
        return Markup("")
    return say(" {} of {} are drawn: those of most and of least {} and the median one.", count(drawn), plural(total, what), by)


def meaning_of(category: str) -> str:
    """Return the key of MEANINGS for a kernel category or an activity."""
    lowered = category.lower()
    for start, meaning in (("comm", "communication"), ("nccl", "communication"), ("mem", "memory"), ("sync", "sync"), ("other", "other")):
        if lowered.startswith(start):
            return meaning
    return lowered if lowered in MEANINGS else "computation"


def line_of(pairs: Iterable[tuple[str, str]], longest: int = 80) -> str:
    """Write names and values on one line of the PDF, where a table would take a page."""
    known, most = list(pairs), 40
    text = " · ".join(f"{clip(key, 40)}: {clip(value, longest)}" for key, value in known[:most])
    return text if len(known) <= most else f"{text}; {count(most)} of {count(len(known))} shown; all in the attached report.json."


def worth_drawing(quantiles: Quantiles) -> bool:
    """Test whether there are enough values that are not nearly equal."""
    return quantiles.count >= FEWEST and quantiles.p95 - quantiles.p5 > 0.01 * quantiles.p50


def bins_of(label: str, histogram: Histogram, median: float | None, limit: float = math.inf) -> Bins:
    """Return the bins up to ``limit`` ns, at least one; the others count as beyond."""
    kept = max(1, sum(1 for edge in histogram.edges[1:] if edge <= limit))
    beyond = histogram.beyond + sum(histogram.counts[kept:])
    return Bins(label, histogram.edges[: kept + 1], histogram.counts[:kept], median, beyond, histogram.logarithmic)
