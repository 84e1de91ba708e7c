"""Layout of tables in the PDF: a Table -> its width, the widths of its columns, and the texts that fit.

WeasyPrint measures every cell of a table, which takes longer than the rest of the layout together. The PDF therefore sets all widths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ..blocks.tables import Table
from ..figures.svg import width_of
from ..text.formats import clip, length_of

# Widths are in characters of average width of the PDF's table type.
PAGE: Final = 105.0  # the page
GUTTER: Final = 2.6  # between two blocks next to each other
COLUMNS: Final = 12  # of the grid
_GAP: Final = 2.0  # between columns
BAR: Final = 13.0  # a bar before a number
_FLEXIBLE: Final = 18  # a longer text may wrap
_NAME: Final = 22  # of a name that is still distinct
_LEAST: Final = 10  # of a name if the table is too wide
_CAPTION: Final = 60.0  # a longer caption breaks
_FEWEST: Final = 3  # columns of the grid
_HEAD: Final = 4  # letters of a name that is cut at its difference
_TAIL: Final = 1 / 3  # share of a shortened name that is its end


def room_of(columns: int) -> float:
    """Return the width of this number of columns of the grid."""
    return (PAGE + GUTTER) * columns / COLUMNS - GUTTER


def columns_of(table: Table) -> int:
    """Return the number of columns of the grid that the table needs."""
    wanted = max(sum(_widths(table, PAGE)[0]), min(1.2 * len(table.caption), _CAPTION))
    return next((columns for columns in range(_FEWEST, COLUMNS) if room_of(columns) >= wanted), COLUMNS)


def fits(table: Table, columns: int) -> bool:
    """Test whether the table fits with distinct names and texts of one line."""
    wanted, least, kept = _wanted_and_least(table)
    needed = (need if _named(table, i) else want for want, need, i in zip(wanted, least, kept, strict=True))
    return sum(needed) <= room_of(columns) + 0.01


def pdf_layout(table: Table, columns: int = COLUMNS) -> tuple[float, tuple[float, ...], tuple[tuple[str, ...], ...]]:
    """Return the width of the table and of its columns, and the rows of texts.

    The widths are percentages: of the given columns of the grid, and of the table. Columns of long text share what the others leave.
    """
    rows = table.rows[: table.pdf_rows]
    room = room_of(columns)
    widths, kept = _widths(table, room)
    total = sum(widths)
    used = room if columns < COLUMNS else min(room, max(total, 1.2 * len(table.caption)))
    by_column = []
    for i, width in zip(kept, widths, strict=True):
        texts: Sequence[str] = [row[i].text for row in rows]
        if _named(table, i):
            texts = _fit(texts, width * used / total - _GAP, code=table.columns[i].code)
        by_column.append(texts)
    # Rounded down: columns of more than 100% would move the table out of its column of the page.
    shares = tuple(math.floor(10000 * width / total) / 100 for width in widths)
    return math.floor(100 * used / room), shares, tuple(zip(*by_column, strict=True))


def _wanted_and_least(table: Table) -> tuple[list[float], list[float], list[int]]:
    """Return the widths that columns want and need at least, and their indices."""
    rows = table.rows[: table.pdf_rows]
    columns = table.columns_for("pdf")
    wanted, least = [], []
    for i in columns:
        heading = _heading(table.columns[i].label)
        code = table.columns[i].code
        longest = max(_characters(row[i].text, code=code) + (BAR if row[i].bar else 0) for row in rows)
        wanted.append(_GAP + max(heading, longest))
        flexible = table.columns[i].kind != "number" and longest > _FLEXIBLE
        short = min(longest, _NAME) if _named(table, i) else _FLEXIBLE
        least.append(_GAP + max(heading, short if flexible else longest))
    return wanted, least, columns


def _widths(table: Table, room: float) -> tuple[list[float], list[int]]:
    """Return the widths of the columns of the PDF within ``room``, and their indices."""
    wanted, least, columns = _wanted_and_least(table)
    # Names give way if even the least widths do not fit.
    yielding = [need - min(need, _GAP + _LEAST) if _named(table, i) else 0.0 for i, need in zip(columns, least, strict=True)]
    excess = min(max(0.0, sum(least) - room), sum(yielding))
    least = [need - excess * part / sum(yielding) if excess else need for need, part in zip(least, yielding, strict=True)]
    spare = max(0.0, room - sum(least))
    more = [want - need for want, need in zip(wanted, least, strict=True)]
    factor = min(1.0, spare / sum(more)) if sum(more) else 0.0
    return [need + factor * extra for need, extra in zip(least, more, strict=True)], columns


def _named(table: Table, column: int) -> bool:
    """Test whether a column contains names, which are shortened instead of wrapped."""
    return table.columns[column].kind == "name" or table.columns[column].code


def _characters(text: str, *, code: bool = False) -> float:
    return width_of(text, 1.0, code=code) / 0.6


def _heading(label: str) -> float:
    """Return the width of a column's heading on at most two lines."""
    words = label.split()
    return min(max(_characters(" ".join(words[:i])), _characters(" ".join(words[i:]))) for i in range(1, len(words) + 1))


def _fit(texts: Sequence[str], room: float, *, code: bool) -> list[str]:
    """Shorten ``texts`` to ``room``.

    Names that become equal keep more of their end, or else what follows their common beginning.
    """

    def fitted(text: str, tail: float) -> str:
        wide = _characters(text, code=code)
        if wide <= room + 0.01:
            return text
        length = max(6, int(length_of(text) * room / wide))
        while length > 6 and _characters(clip(text, length, tail=tail), code=code) > room:  # the ends may be wider than the average
            length -= 1
        return clip(text, length, tail=tail)

    def from_difference(text: str, alike: set[str]) -> str:
        start = next((at for at, letters in enumerate(zip(*alike, strict=False)) if len(set(letters)) > 1), min(map(len, alike)))
        kept = f"{text[:_HEAD]}…{text[max(start - 1, 0) :]}" if length_of(text[:_HEAD]) == _HEAD else f"…{text[start:]}"
        while length_of(kept) > 2 * _HEAD and _characters(kept, code=code) > room:
            kept = f"{kept.removesuffix('…')[:-1]}…"
        return kept

    shortened = [fitted(text, _TAIL) for text in texts]
    for again in (lambda text, _: fitted(text, 1 - _TAIL), from_difference):
        meant: dict[str, set[str]] = {}
        for text, short in zip(texts, shortened, strict=True):
            meant.setdefault(short, set()).add(text)
        shortened = [short if len(meant[short]) == 1 else again(text, meant[short]) for text, short in zip(texts, shortened, strict=True)]
    return shortened
