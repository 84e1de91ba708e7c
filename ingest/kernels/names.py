"""Classifies kernels by name: short name, precision (:mod:`.precision`) and category (:mod:`.category`).

Runs once per distinct name of a run (thousands), never per event.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from .category import category
from .precision import precision
from .text import SHORT, short_name


def classify(names: Sequence[str]) -> pl.DataFrame:
    """Return the text columns name, short, precision and category, one row per name.

    Lone surrogates, which a text column cannot contain, become the replacement character in `name`.
    """
    return pl.DataFrame(
        {
            "name": [name.encode("utf-8", "replace").decode("utf-8") for name in names],
            "short": [short_name(name) for name in names],
            "precision": [precision(name) for name in names],
            "category": [category(name) for name in names],
        },
        schema=dict.fromkeys(("name", "short", "precision", "category"), pl.String),
    )


def distinct_short_names(names: Sequence[str]) -> list[str]:
    """Return a distinct short name for each name; equal ones get " #2", " #3", ..."""
    taken: set[str] = set()
    last: dict[str, int] = {}
    shorts = []
    for name in names:
        short = plain = short_name(name)
        while short in taken:
            last[plain] = last.get(plain, 1) + 1
            suffix = f" #{last[plain]}"
            short = short_name(name, limit=SHORT - len(suffix)) + suffix
        taken.add(short)
        shorts.append(short)
    return shorts
