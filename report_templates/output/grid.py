"""Blocks of a section -> rows of the PDF's grid of 12 columns: a figure next to its table, narrow tables next to each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ..blocks import Block, Figure
from ..blocks.tables import Table
from ..figures.svg import HALF
from .pdf_tables import COLUMNS, columns_of, fits

_NARROW_COLUMNS: Final = 7  # of a figure of svg.NARROW
_HALF_COLUMNS: Final = 6
_LONG: Final = 14  # rows; a longer table breaks between pages, which takes the entire width


def width_of(columns: int, room: int = COLUMNS) -> float:
    """Return the width of this number of columns in percent of a row, which begins a gutter left of its room."""
    return math.floor(10000 * columns / room) / 100


def rows(blocks: Sequence[Block], room: int = COLUMNS) -> list[list[tuple[Block, int]]]:
    """Return the rows of blocks with their columns; blocks keep their order, and each row has at most ``room`` columns."""
    filled: list[list[tuple[Block, int]]] = []
    free = 0
    for block in blocks:
        if block is None or (isinstance(block, Table) and not block.pdf_rows):
            continue
        columns = min(room, _columns(block))
        if free < columns and _beside_figure(filled[-1] if filled else [], block, free):
            columns = free
        if columns <= free:
            filled[-1].append((block, columns))
            free -= columns
        else:
            filled.append([(block, columns)])
            free = room - columns
    return [_widened(row, room) for row in filled]


def _beside_figure(row: list[tuple[Block, int]], block: Block, free: int) -> bool:
    """Test whether the table fits next to the narrow figure before it, with shorter names."""
    after_figure = len(row) == 1 and isinstance(row[0][0], Figure) and row[0][0].narrow and not row[0][0].legend
    table = block.legend if isinstance(block, Figure) else block
    return after_figure and isinstance(table, Table) and free > 0 and min(table.total, table.pdf_rows) <= _LONG and fits(table, free)


def _columns(block: Block) -> int:
    table = block.legend if isinstance(block, Figure) else block
    if isinstance(table, Table):
        return COLUMNS if min(table.total, table.pdf_rows) > _LONG else columns_of(table)
    if isinstance(block, Figure):
        return _HALF_COLUMNS if block.width <= HALF else _NARROW_COLUMNS if block.narrow else COLUMNS
    return COLUMNS


def _widened(row: list[tuple[Block, int]], room: int) -> list[tuple[Block, int]]:
    """Give the columns that are left to the last block, if it is no figure: its names need them."""
    block, columns = row[-1]
    if isinstance(block, Figure) and not block.legend:
        return row
    return [*row[:-1], (block, room - sum(columns for _, columns in row[:-1]))]
