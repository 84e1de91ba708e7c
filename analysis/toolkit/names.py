"""Base names of annotations: "step 12" and "step 13" -> "step"."""

from __future__ import annotations

import polars as pl


def base_name(text: pl.Expr) -> pl.Expr:
    """Remove the number at the end: ProfilerStep#12 -> ProfilerStep, step_3 -> step."""
    cut = text.str.replace(r"[\s#_:.\-]*\d+$", "")
    return pl.when(cut == "").then(text).otherwise(cut)
