"""Stacks that a profiler wrote with each operator: text -> source line, modules."""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from .frames import LIBRARY, USER, frames

_MOST_FRAMES: Final = 1000
# "top(ResNet)::forward.layer1(Sequential)::forward": attribute, class and method of each module of a TorchScript program.
_SCRIPTED: Final = re.compile(r"([^.():]+)\(([^()]*)\)(?:::\w+)?")


def lines_of_stacks(stacks: pl.Series) -> pl.DataFrame:
    """Return ``line`` and ``function`` of the innermost frame of each stack.

    Frames of the program come before those of libraries. ``stacks``: frames separated by semicolons, the innermost first. Null if no frame
    is of either."""
    names = stacks.str.split(";").list.head(_MOST_FRAMES).to_frame("text").with_row_index("stack").explode("text")
    distinct = names.select(pl.col("text").unique())
    parsed = pl.concat([distinct, frames(distinct["text"])], how="horizontal").filter(pl.col("origin").is_in([USER, LIBRARY]))
    known = names.join(parsed, on="text", maintain_order="left").sort(pl.col("origin") == LIBRARY, maintain_order=True)
    first = known.unique("stack", keep="first", maintain_order=True).select("stack", "line", "function")
    return (
        pl.select(stack=pl.int_range(stacks.len(), dtype=pl.UInt32))
        .join(first, on="stack", how="left", maintain_order="left")
        .drop("stack")
    )


def hierarchy(text: str) -> list[str]:
    """Return the modules of an operator, outermost first."""
    scripted = _SCRIPTED.findall(text)
    return [f"{name}({kind})" for name, kind in scripted] if scripted else [part for part in text.split(".") if part]
