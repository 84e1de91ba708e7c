"""What does a kernel's name say: how is it shown, in which precision and for what does it run?

One place to ask; the tables are in kernel_precision.py and kernel_category.py, the name's grammar in kernel_text.py.
Meant to run once per distinct name of a run (thousands), never per event.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from .kernel_category import CATEGORIES, CATEGORY_RULES, category, category_rule, is_communication
from .kernel_precision import PRECISION_RULES, PRECISIONS, precision, precision_rule
from .kernel_text import NameRule, short_name

__all__ = [
    "CATEGORIES",
    "CATEGORY_RULES",
    "PRECISIONS",
    "PRECISION_RULES",
    "NameRule",
    "category",
    "category_rule",
    "classify",
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
