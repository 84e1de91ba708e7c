"""How are correlations and external ids kept apart that count from the start again in every file of a process?"""

from __future__ import annotations

from typing import Final

import polars as pl

CYCLE_IDS: Final = 1 << 40  # This much is between the ids of two files


def of_cycle(column: str, cycle: int) -> pl.Expr:
    """Ids that count from the start in every file, moved to a range of this file's own; 0 and what is no such number stay."""
    return pl.when(pl.col(column).is_between(1, CYCLE_IDS - 1)).then(pl.col(column) + cycle * CYCLE_IDS).otherwise(column).alias(column)
