"""Blocks of a section -> rows of the PDF's grid of 12 columns: a figure next to its table, narrow tables next to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..blocks import Block, Figure
from ..blocks.tables import Table
from .pdf_tables import COLUMNS, columns_of, fits

_NARROW_COLUMNS: Final = 7  # of a figure of svg.NARROW
_THIRD_COLUMNS: Final = 4  # of a figure of svg.THIRD
_FEWEST: Final = 3  # columns of the grid, or of a table next to a figure
_DROPPED: Final = 2  # columns of such a table that the PDF may do without
_LONG: Final = 14  # rows; a longer table breaks between pages, which takes the entire width


def rows(blocks: Sequence[Block], room: int = COLUMNS) -> list[list[tuple[Block, int]]]:
    """Put blocks into rows of at most ``room`` columns; return each with its columns.

    Blocks keep their order. Tables get fewer columns than they want if that puts two blocks next to each other.
    """
    filled: list[list[tuple[Block, int]]] = []
    free = 0
    for block in blocks:
        if block is None or (isinstance(block, Table) and not block.pdf_rows):
            continue
        columns = min(room, _columns(block))
        if columns <= free:
            filled[-1].append((block, columns))
            free -= columns
        elif filled and len(filled[-1]) == 1 and (pair := _pair(*filled[-1][0], block, columns, room)):
            filled[-1] = pair
            free = 0
        else:
            filled.append([(block, columns)])
            free = room - columns
    return [_widened(row, room) for row in filled]


def _pair(first: Block, columns: int, second: Block, wanted: int, room: int) -> list[tuple[Block, int]] | None:
    """Put two blocks that want more than ``room`` columns next to each other.

    None if they need more.
    """
    slack, other_slack = columns - _least(first, columns), wanted - _least(second, wanted)
    excess = columns + wanted - room
    if excess <= slack + other_slack:
        cut = round(excess * slack / (slack + other_slack))
        return [(first, columns - cut), (second, wanted - (excess - cut))]
    narrowed = _without_columns(second, room - columns) if isinstance(first, Figure) and first.narrow and not first.legend else None
    return [(first, columns), (narrowed, room - columns)] if narrowed else None


def _least(block: Block, wanted: int) -> int:
    """Return the fewest columns for a block that wants ``wanted``.

    A figure and a long table do not shrink.
    """
    table = block.legend if isinstance(block, Figure) else block
    if not isinstance(table, Table) or min(table.total, table.pdf_rows) > _LONG:
        return wanted
    return next((columns for columns in range(_FEWEST, wanted) if fits(table, columns)), wanted)


def _without_columns(block: Block, free: int) -> Table | None:
    """Return the table with the first columns that fit in ``free`` of the grid.

    None if too few fit.
    """
    if not isinstance(block, Table) or min(block.total, block.pdf_rows) > _LONG:
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
        return _THIRD_COLUMNS if block.third else _NARROW_COLUMNS if block.narrow else COLUMNS
    return COLUMNS


def _widened(row: list[tuple[Block, int]], room: int) -> list[tuple[Block, int]]:
    """Give the remaining columns to the last block, unless it is a figure."""
    block, _ = row[-1]
    if isinstance(block, Figure) and not block.legend:
        return row
    return [*row[:-1], (block, room - sum(columns for _, columns in row[:-1]))]
