"""Modules that differ in their numbers alone -> a row of their sums: the layers of a model as one layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields

from ..report.modules import Module
from .largest_site import NUMBER

_Path = tuple[str, ...]
_SUMMED = tuple(field.name for field in fields(Module) if field.name != "path")


def module_kinds(modules: Sequence[Module]) -> tuple[Module, ...]:
    """Return the sums over modules whose paths differ in numbers alone.

    ``modules``: a tree, as in the report. The rows are a tree of the same order, with ``*`` for numbers that differ; the last row is the
    work outside of all modules. Empty if no two modules are of the same kind."""
    sums: dict[_Path, list[int]] = {}
    members: defaultdict[_Path, set[str]] = defaultdict(set)
    for row in modules:
        names = tuple(row.path.split("/"))
        kind = tuple(NUMBER.sub("*", name) for name in names)
        members[kind].add(names[-1])
        total = sums.setdefault(kind, [0] * len(_SUMMED))
        for i, field in enumerate(_SUMMED):
            total[i] += getattr(row, field)
    if len(sums) == len(modules):
        return ()
    texts = {kind: next(iter(names)) if len(names) == 1 else kind[-1] for kind, names in members.items()}
    device = _SUMMED.index("device_ns")

    def order(kind: _Path) -> tuple[bool, list[tuple[int, str]]]:
        around = [kind[: i + 1] for i in range(len(kind))]
        return kind == ("",), [(-sums.get(each, [0] * len(_SUMMED))[device], each[-1]) for each in around]

    return tuple(
        Module(
            "/".join(texts.get(kind[: i + 1], kind[i]) for i in range(len(kind))), **dict(zip(_SUMMED, sums[kind], strict=True))
        )
        for kind in sorted(sums, key=order)
    )  # fmt: skip
