"""What does a reader of a comparison learn on the first page?"""

from __future__ import annotations

import dataclasses
from typing import Final

from ...analysis.comparison import Change, Comparison
from ...analysis.report import Tile
from ..blocks import Cell, Column, Figure, Section, Table, say, table, word
from ..formats import UNKNOWN, duration
from . import words
from .steps import distributions
from .time import parts_figure

_SHOWN: Final = 12
_AREAS: Final = {"part": "time", "gpu memory": "memory", "memory operation": "memory", "step": "steps", "data loading": "time",
                 "kernel": "kernels", "precision": "precision", "verdict": "verdicts"}  # fmt: skip


def summary(made: Comparison) -> Section:
    found = Section("summary", "Summary", say("{}", words.told(made.headline)))
    found.facts["tiles"] = _tiles(made)
    found.facts["limits"] = [
        say("{}: {} before, {} now. {}.", one.name[:1].upper() + one.name[1:], one.base, one.new, one.limits[:1].upper() + one.limits[1:])
        for one in made.differences
        if one.limits
    ]
    steps = distributions("summary-steps", made.steps) if made.steps else None
    time: Figure | None = parts_figure("summary-time", made)
    found.add(_changes(made), steps, time)
    return found


def _tiles(made: Comparison) -> list[Tile]:
    tiles = []
    if made.steps is not None:
        steps = made.steps
        tiles.append(_tile("step_time", "step time (median)", steps.base.p50, steps.new.p50, "steps"))
        tiles.append(_tile("step_p95", "step time (p95)", steps.base.p95, steps.new.p95, "steps"))
    else:
        tiles.append(Tile("step_time", "step time", UNKNOWN, "not in both runs", "steps"))
    tiles += [_tile(part.name, f"{part.name} {words.per(made.basis)}", part.base_ns, part.new_ns, "time") for part in made.parts]
    return tiles


def _tile(key: str, label: str, before: float, after: float, anchor: str) -> Tile:
    value = words.ratio(before, after).replace(" as much", "") if before else words.signed(after)
    return Tile(key, label, value, f"{duration(before)} → {duration(after)}", anchor)


def _changes(made: Comparison) -> Table | None:
    return table(
        "summary-changes",
        f"What changed, largest effect {words.per(made.basis)} first",
        [Column("Change"), Column("What", "name"), Column("Effect", "number"), Column("In words")],
        [_row(one) for one in made.changes],
        sortable=False,
        pdf_rows=_SHOWN,
    )


def _row(one: Change) -> list[Cell]:
    return [
        words.state(one.state),
        dataclasses.replace(word(one.name if one.area != "verdict" else f"rule {one.name}", limit=60), link=_AREAS[one.area]),
        Cell(UNKNOWN) if one.effect_ns is None else words.effect(one.effect_ns),
        word(words.told(one.text), limit=220),
    ]
