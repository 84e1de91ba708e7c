"""Paths of modules: calls of modules that nest on a thread -> the path of each, from the outermost to the innermost.

A forward pass that the backward pass repeats (activation checkpointing) runs on a thread without the modules around it. Such paths begin at
a root of their own, and get the beginning of the only other path that leads to their first module.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ..toolkit.intervals import nested

NONE: Final = 0  # number of the path of no module
_REPEATED: Final = 1  # number of the root of paths within a repeated forward pass
DEEPEST: Final = 64  # modules within modules beyond this depth count for the one around them
MOST: Final = 20_000  # distinct paths; others count for the module around them

_THREAD: Final = ["process", "tid"]


class ModulePaths:
    """Numbers of the distinct paths of a run. A path is the number of the path around it and the number of a module."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self._parents = [NONE, NONE]
        self._modules = [NONE, NONE]
        self._depths = [0, 0]
        self._names: dict[str, int] = {}

    def module(self, name: str) -> int:
        """Return the number of a module of this name."""
        return self._names.setdefault(name, len(self._names))

    def number(self, parent: int, module: int) -> int:
        """Return the number of a module in a path; that of the path if it has no room."""
        number = self._numbers.get((parent, module))
        if number is None:
            if self._depths[parent] == DEEPEST or len(self._parents) > MOST:
                return parent
            number = self._numbers[parent, module] = len(self._parents)
            self._parents.append(parent)
            self._modules.append(module)
            self._depths.append(self._depths[parent] + 1)
        return number

    def nested(self, calls: pl.DataFrame, repeated: pl.Series | None = None) -> pl.DataFrame:
        """Return calls of modules with their paths, and with ends that nest.

        ``calls``: process, tid, start, end (ns), ``module`` (a number). ``repeated``: which of them begin within the backward pass. Adds
        ``path`` and ``outer``, the path around it."""
        known = calls.drop_nulls(["process", "tid", "start", "end", "module"])
        flags = pl.repeat(False, calls.height, eager=True) if repeated is None else repeated.fill_null(False)
        if known.height < calls.height:
            flags = flags.filter(
                calls.select(pl.all_horizontal(pl.col("process", "tid", "start", "end", "module").is_not_null())).to_series()
            )
        repaired = nested(known, _THREAD)
        order = known.select(
            pl.arg_sort_by(*_THREAD, "start", "end", pl.int_range(pl.len()), descending=[False, False, False, True, False])
        )
        parents, modules, roots = repaired["parent"].to_list(), known["module"].to_list(), flags.to_list()
        paths = [NONE] * known.height
        outer = [NONE] * known.height
        for row in order.to_series():
            parent = parents[row]
            outer[row] = paths[parent] if parent is not None else _REPEATED if roots[row] else NONE
            paths[row] = self.number(outer[row], modules[row])
        kept = known.with_columns(repaired["end"], path=pl.Series(paths, dtype=pl.UInt32), outer=pl.Series(outer, dtype=pl.UInt32))
        return kept

    def texts(self) -> list[str]:
        """Return the text of each path, by number: "Model_0/Linear_3"."""
        names = list(self._names)
        repeated = [False, True]
        for parent in self._parents[2:]:
            repeated.append(repeated[parent])
        around: dict[int, set[int]] = {}  # by module, the paths that it is called in
        texts = [""] * len(self._parents)
        for of_repeated in (False, True):
            for number in range(2, len(self._parents)):
                if repeated[number] != of_repeated:
                    continue
                module, parent = self._modules[number], self._parents[number]
                paths = around.setdefault(module, set())
                if not of_repeated:
                    paths.add(parent)
                elif parent == _REPEATED and len(paths) == 1:
                    (parent,) = paths
                name = names[module]
                texts[number] = f"{texts[parent]}/{name}" if texts[parent] else name
        return texts
