"""What does a kernel's name say: how is it shown, in which precision and for what does it run?

One place to ask; the tables are in kernel_precision.py and kernel_category.py, the name's grammar in kernel_text.py.
Meant to run once per distinct name of a run (thousands), never per event.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from .category import CATEGORIES, CATEGORY_RULES, category, category_rule, is_communication
from .precision import PRECISION_RULES, PRECISIONS, precision, precision_rule
from .text import SHORT, NameRule, short_name

__all__ = [
    "CATEGORIES",
    "CATEGORY_RULES",
    "PRECISIONS",
    "PRECISION_RULES",
    "NameRule",
    "category",
    "category_rule",
    "classify",
    "distinct_short_names",
    "is_communication",
    "precision",
    "precision_rule",
    "short_name",
]


def classify(names: Sequence[str]) -> pl.DataFrame:
    """Columns name, short, precision, category (all text): one row per name given, in that order.

    Lone surrogates, which no text column can hold, become the replacement character in `name`.
    """
    return pl.DataFrame(
        {
            "name": [name.encode("utf-8", "replace").decode("utf-8") for name in names],
            "short": [short_name(name) for name in names],
            "precision": [precision(name) for name in names],
            "category": [category(name) for name in names],
        },
        schema={"name": pl.String, "short": pl.String, "precision": pl.String, "category": pl.String},
    )


def distinct_short_names(names: Sequence[str]) -> list[str]:
    """A short name for each of the different ``names``, no two alike: of those that would be, the first keeps it and the others
    get " #2", " #3" and so on, in the order given."""
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
