"""Blocks of a section -> rows of the PDF's grid of 12 columns: a figure next to its table, narrow tables next to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..blocks import Block, Figure
from ..blocks.tables import Table
from ..figures.svg import HALF
from .pdf_tables import COLUMNS, columns_of, fits

_NARROW_COLUMNS: Final = 7  # of a figure of svg.NARROW
_HALF_COLUMNS: Final = 6
_FEWEST: Final = 3  # columns of a table next to a figure
_SHRINKS: Final = 9  # columns; texts of a wider table would wrap over many lines on half of the page
_DROPPED: Final = 2  # columns of such a table that the PDF may do without
_LONG: Final = 14  # rows; a longer table breaks between pages, which takes the entire width


def rows(blocks: Sequence[Block], room: int = COLUMNS) -> list[list[tuple[Block, int]]]:
    """Put blocks into rows of at most ``room`` columns; return each with its columns.

    Blocks keep their order.
    """
    filled: list[list[tuple[Block, int]]] = []
    free = 0
    for block in blocks:
        if block is None or (isinstance(block, Table) and not block.pdf_rows):
            continue
        columns = min(room, _columns(block))
        if free < columns and (narrowed := _beside_figure(filled[-1] if filled else [], block, free)):
            block, columns = narrowed, free
        if columns <= free:
            filled[-1].append((block, columns))
            free -= columns
        elif filled and len(filled[-1]) == 1 and _halves(filled[-1][0][0], block, room // 2):
            filled[-1] = [(filled[-1][0][0], room // 2), (block, room // 2)]
            free = 0
        else:
            filled.append([(block, columns)])
            free = room - columns
    return [_widened(row, room) for row in filled]


def _halves(first: Block, second: Block, columns: int) -> bool:
    """Test whether both are short tables that fit on halves of the page."""
    tables = [block.legend if isinstance(block, Figure) else block for block in (first, second)]
    return all(
        isinstance(table, Table) and min(table.total, table.pdf_rows) <= _LONG and columns_of(table) <= _SHRINKS and fits(table, columns)
        for table in tables
    )


def _beside_figure(row: list[tuple[Block, int]], block: Block, free: int) -> Table | None:
    """Return the table with the first columns that fit next to the figure before it.

    None if too few fit, or if that figure is not narrow.
    """
    after_figure = len(row) == 1 and isinstance(row[0][0], Figure) and row[0][0].narrow and not row[0][0].legend
    if not after_figure or not isinstance(block, Table) or min(block.total, block.pdf_rows) > _LONG:
        return None
    kept = block.columns_for("pdf")
    fewest = max(_FEWEST, len(kept) - _DROPPED)
    while len(kept) >= fewest:
        table = block.of_columns(kept)
        if fits(table, free):
            return table
        kept = kept[:-1]
    return None


def _columns(block: Block) -> int:
    table = block.legend if isinstance(block, Figure) else block
    if isinstance(table, Table):
        return COLUMNS if min(table.total, table.pdf_rows) > _LONG else columns_of(table)
    if isinstance(block, Figure):
        return _HALF_COLUMNS if block.width <= HALF else _NARROW_COLUMNS if block.narrow else COLUMNS
    return COLUMNS


def _widened(row: list[tuple[Block, int]], room: int) -> list[tuple[Block, int]]:
    """Give the remaining columns to the last block, unless it is a figure."""
    block, _ = row[-1]
    if isinstance(block, Figure) and not block.legend:
        return row
    return [*row[:-1], (block, room - sum(columns for _, columns in row[:-1]))]
