"""Keeps the correlations and external ids of several files of a process apart: they count from the start in every file."""

from __future__ import annotations

from typing import Final

import polars as pl

CYCLE_IDS: Final = 1 << 40  # distance between the ids of two files


def of_cycle(column: str, cycle: int) -> pl.Expr:
    """Move the ids of a file to a separate range; 0 and impossible ids stay."""
    return pl.when(pl.col(column).is_between(1, CYCLE_IDS - 1)).then(pl.col(column) + cycle * CYCLE_IDS).otherwise(column).alias(column)
