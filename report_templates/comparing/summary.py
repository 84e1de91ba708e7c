"""The first page of a comparison: headline, tiles, and the largest changes."""

from __future__ import annotations

import dataclasses
from typing import Final

from ...analysis.compare.parts import host_name
from ...analysis.report.comparison import Amount, Comparison
from ...analysis.report.model import Tile
from ..blocks import Figure, Section, say
from ..blocks.tables import Col, Table, table
from ..text.formats import UNKNOWN, capitalized, duration
from . import words
from .steps import distributions
from .time import host_figure, parts_figure

_SHOWN: Final = 12
_TILES: Final = 4
_AREAS: Final = {"part": "time", "gpu memory": "memory", "memory operation": "memory", "step": "steps", "data loading": "time",
                 "host part": "time",
                 "kernel": "kernels", "precision": "precision", "verdict": "verdicts"}  # fmt: skip


def summary(made: Comparison) -> Section:
    found = Section("summary", "Summary", say("{}", words.told(made.headline)))
    found.facts["tiles"] = _tiles(made)
    found.facts["limits"] = [
        say("{}: {} before, {} now. {}.", capitalized(one.name), one.base, one.new, capitalized(one.limits))
        for one in made.differences
        if one.limits
    ]
    steps = distributions("summary-steps", made.steps) if made.steps else None
    time: Figure | None = parts_figure("summary-time", made) or host_figure("summary-time", made)
    found.add(_changes(made), steps, time)
    return found


def _tiles(made: Comparison) -> list[Tile]:
    steps = made.steps
    if steps is None:
        tiles = [Tile("step_time", "step time", UNKNOWN, "not in both runs", "steps")]
    else:
        value = {"same": "no change", "undecided": "undecided"}.get(steps.verdict) or _moved(steps.base.p50, steps.new.p50)
        p95 = f"p95 {words.change(steps.p95_change_percent).text}"
        detail = f"{duration(steps.base.p50)} → {duration(steps.new.p50)}, {p95}"
        tiles = [Tile("step_time", "step time (median)", value, detail, "steps")]
    for part in made.parts:
        tiles.append(_tile(part, part.name, words.per(made.basis)))
    if not made.parts:
        largest = sorted(made.host_parts, key=lambda part: -max(part.base_ns, part.new_ns))[:_TILES]
        tiles += [_tile(part, host_name(part.name), "per step") for part in largest]
    return tiles


def _tile(part: Amount, name: str, per: str) -> Tile:
    value = {"same": "no change", "undecided": "undecided"}.get(part.state) or _moved(part.base_ns, part.new_ns)
    return Tile(part.name, f"{name} {per}", value, f"{duration(part.base_ns)} → {duration(part.new_ns)}", "time")


def _moved(before: float, after: float) -> str:
    return words.ratio(before, after).replace("times as much", "times") if before else words.signed(after)


def _changes(made: Comparison) -> Table | None:
    return table(
        "summary-changes",
        " ".join(f"What changed, largest effect {words.per(made.basis)} first".split()),
        made.changes,
        Col("Change", lambda change: dataclasses.replace(words.state(change.state), link=_AREAS[change.area])),
        Col("Effect", lambda change: None if change.effect_ns is None else words.effect(change.effect_ns), kind="number"),
        Col("In words", lambda change: words.told(change.text), limit=240),
        sortable=False,
        pdf_rows=_SHOWN,
    )
