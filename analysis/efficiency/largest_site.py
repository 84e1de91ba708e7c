"""The site with most of a time: module paths and lines with weights -> the module and the line that have at least half of it.

Layers of a model are modules of one class: if none has half of the time, those of a path that differs in the numbers alone count together,
as in ``Model_0/Layer_*/Attention_*``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import polars as pl

_SHARE: Final = 0.5
_SAMPLES: Final = 8  # moments of a stretch
_MOST_STRETCHES: Final = 20_000  # of more, only the middle of each counts
NUMBER: Final = re.compile(r"(?<=[._])\d+(?=\.|$)")  # of an instance (Linear_3) or of a layer (layers.3.mlp)


@dataclass(frozen=True, slots=True)
class Site:
    """A module path, with ``*`` for numbers if it names several modules, and a line (file:line). None: unknown, or several."""

    module: str | None
    line: str | None

    @property
    def words(self) -> str:
        """ "`Model_0/Linear_3` (`train.py:42`)" """
        if self.module is None or self.line is None:
            return f"`{self.module or self.line}`"
        return f"`{self.module}` (`{self.line}`)"


def largest_site(rows: Iterable[tuple[str | None, str | None, int]], total: int | None = None) -> Site | None:
    """Return the module and line with at least half of the weight.

    None if neither is known. ``rows``: path, line, weight; empty or None is unknown. ``total``: weight of everything, if the rows are a
    part of it."""
    modules, lines = Counter[str](), Counter[str]()
    weight = 0
    for path, line, part in rows:
        weight += part
        if path:
            modules[path] += part
        if line:
            lines[line] += part
    least = _SHARE * max(weight, total or 0)
    if least <= 0:
        return None
    line = _largest(lines, least)
    module = _largest(modules, least) or _pattern(modules, least)
    return Site(module, line) if module or line else None


def sampled(stretches: pl.DataFrame) -> pl.DataFrame:
    """Return moments spread over stretches, each with its part of the length.

    ``stretches``: ``start`` and ``ns``, the length, and other columns, which are kept."""
    samples = _SAMPLES if len(stretches) <= _MOST_STRETCHES else 1
    start, length = pl.col("start"), pl.col("ns")
    ends = [length * i // samples for i in range(samples + 1)]
    middles = [start + length * (2 * i + 1) // (2 * samples) for i in range(samples)]
    parts = [stretches.with_columns(start=middles[i], ns=ends[i + 1] - ends[i]) for i in range(samples)]
    return pl.concat(parts)


def _largest(weights: Counter[str], least: float) -> str | None:
    """Return the text with the largest weight, of equal ones the first by name."""
    text = min(weights, key=lambda name: (-weights[name], name), default="")
    return text if text and weights[text] >= least else None


def _pattern(modules: Counter[str], least: float) -> str | None:
    """Return the deepest path up to numbers that has the weight."""
    weights: defaultdict[tuple[str, ...], int] = defaultdict(int)
    members: defaultdict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for path, part in modules.items():
        names = tuple(path.split("/"))
        classes = tuple(NUMBER.sub("*", name) for name in names)
        for depth in range(1, len(names) + 1):
            weights[classes[:depth]] += part
            members[classes[:depth]].add(names[:depth])
    known = [classes for classes, part in weights.items() if part >= least]
    if not known:
        return None
    deepest = min(known, key=lambda classes: (-len(classes), -weights[classes], classes))
    columns = zip(*members[deepest], strict=True)
    return "/".join(names[0] if len(set(names)) == 1 else general for names, general in zip(columns, deepest, strict=True))
