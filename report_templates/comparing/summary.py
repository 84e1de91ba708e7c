"""The first page of a comparison: verdict, limits, tiles, the largest changes, and the rules whose verdicts changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from ...analysis.compare.parts import host_name
from ...analysis.compare.programs import PROGRAM
from ...analysis.compare.shares import GPU_TIME
from ...analysis.report.comparison import Amount, Change, Comparison, PercentPair
from ...analysis.report.run import Tile
from ..blocks import Section, meaning_of, say
from ..blocks.tables import Cell, Col, Table, table
from ..text.formats import capitalized, duration, percent, signed_percent
from . import words
from .tables import MOVED, rule_columns

_AREAS: Final = {
    "part": "time", "gpu memory": "memory", "memory operation": "memory", "data loading": "time", "host part": "time",
    "kernel": "kernels", "precision": "precision",
}  # fmt: skip
_ELSEWHERE: Final = ("step", "verdict")  # in the headline, and in a table of its own
_MEANINGS: Final = {"memory operation": "memory", "data loading": "loading", "host part": "host"}
_UNDECIDED: Final = "undecided"
_DIFFERENT: Final = "different programs"


def summary(comparison: Comparison) -> Section:
    section = Section("summary", "Summary", say("{}", words.with_minus_signs(comparison.headline)))
    section.facts["further"] = words.with_minus_signs(comparison.details)
    section.facts["sources"] = words.sources(comparison)
    section.facts["tiles"] = _tiles(comparison)
    section.facts["limits"] = [
        say("{}: {} before, {} now. {}.", capitalized(row.name), row.base, row.new, capitalized(row.limits))
        for row in comparison.differences
        if row.limits and row.name != PROGRAM
    ]
    if comparison.different_programs:
        section.add(_comparable(comparison))
    else:
        section.add(_changes(comparison), _rules(comparison))
    return section


def _comparable(comparison: Comparison) -> Table | None:
    return table(
        "summary-comparable",
        "Percentages that compare between different programs",
        comparison.percentages,
        Col("Figure", lambda row: row.name, kind="name"),
        Col("Base", lambda row: row.base_percent, words.share),
        Col("New", lambda row: row.new_percent, words.share),
        Col("Percent of", lambda row: row.of),
        sortable=False,
    )


def _changes(comparison: Comparison) -> Table | None:
    changes = [change for change in comparison.changes if change.area not in _ELSEWHERE]
    bar = words.effect_bar(change.effect_ns for change in changes)
    categories = {kernel.short_name: kernel.category for kernel in comparison.kernels}

    def effect(change: Change) -> Cell | None:
        return None if change.effect_ns is None else bar(change.effect_ns, _meaning(change, categories))

    return table(
        "summary-changes",
        f"Largest changes {words.per(comparison.basis)}".strip(),
        changes,
        Col("Change", lambda change: dataclasses.replace(words.state(change.state), link=_AREAS[change.area])),
        Col("Effect", effect, kind="number"),
        Col("In words", lambda change: words.with_minus_signs(change.text), limit=240),
        sortable=False,
        pdf_rows=12,
    )


def _meaning(change: Change, categories: Mapping[str, str]) -> str:
    """Return the meaning of a bar. ``categories``: of the kernels."""
    if change.area == "kernel":
        return meaning_of(categories[change.name])
    return words.meaning(change.name) if change.area == "part" else _MEANINGS.get(change.area, "other")


def _rules(comparison: Comparison) -> Table | None:
    return table(
        "summary-rules-changed",
        "Rules that changed their verdict",
        [rule for rule in comparison.rules if rule.outcome in MOVED],
        *rule_columns(every=False),
        sortable=False,
        pdf_rows=8,
    )


# -- tiles -----------------------------------------------------------------------------------------------------------------


def _tiles(comparison: Comparison) -> list[Tile]:
    tiles = [tile] if (tile := _time(comparison)) else []
    tiles += [_tile(comparison, part, words.per(comparison.basis)) for part in comparison.parts if part.base_ns or part.new_ns]
    if not comparison.parts:
        largest = sorted(comparison.host_parts, key=lambda part: -max(part.base_ns, part.new_ns))[:4]
        tiles += [_tile(comparison, part, "per step") for part in largest]
    if comparison.different_programs:  # a change in percent would be read as faster or slower
        shares = {pair.name: pair for pair in comparison.percentages if pair.of == GPU_TIME}
        return [_of_different_programs(tile, shares.get(tile.key), words.per(comparison.basis)) for tile in tiles]
    return tiles


def _of_different_programs(tile: Tile, share: PercentPair | None, per: str) -> Tile:
    """Show the time in both runs, and its share if it is a part of the GPU time.

    The share is of the profile window, as in the reports; the time is ``per`` unit.
    """
    times = tile.detail.partition(",")[0].partition(" (")[0]
    if share is None:
        return dataclasses.replace(tile, value=times, detail=_DIFFERENT)
    shares = f"{percent(share.base_percent)} → {percent(share.new_percent)}"
    return dataclasses.replace(tile, label=share.name, value=shares, detail=f"of {GPU_TIME}; {times} {per}".rstrip())


def _time(comparison: Comparison) -> Tile | None:
    """Show the time that the verdict compares in both runs, with its interval."""
    judgment, steps = comparison.judgment, comparison.steps
    if judgment is not None and judgment.base_ns is not None and judgment.new_ns is not None:
        base_ns, new_ns = judgment.base_ns, judgment.new_ns
    elif steps is not None:
        base_ns, new_ns = steps.base.p50, steps.new.p50
    else:
        return None
    value, details = words.ratio(base_ns, new_ns), [f"{duration(base_ns)} → {duration(new_ns)}"]
    if judgment is not None and judgment.low_percent is not None and judgment.high_percent is not None:
        details.append(f"{signed_percent(judgment.low_percent)} to {signed_percent(judgment.high_percent)}")
    if judgment is not None and judgment.state == "same" and (judgment.low_percent or 0.0) <= 0 <= (judgment.high_percent or 0.0):
        value = "no change"
    if judgment is not None and judgment.evidence is None:
        value, details = _UNDECIDED, [f"{details[0]} ({value})", "too few steps"]
    elif steps is not None:
        details.append(f"p95 {words.change(steps.p95_change_percent).text}")
    return Tile("time", _name(comparison), value, ", ".join(details), "steps")


def _name(comparison: Comparison) -> str:
    evidence = comparison.judgment.evidence if comparison.judgment else None
    if evidence == "ranges":
        return f"mean time per {comparison.basis.name}"
    if evidence == "counts":
        return "GPU time for the same work"
    device = comparison.steps is not None and comparison.steps.measure == "device"
    return "median GPU time per step" if device else "median step time"


def _tile(comparison: Comparison, part: Amount, per: str) -> Tile:
    """Show every change of the part, and why it does not count if it does not."""
    value = words.ratio(part.base_ns, part.new_ns) if part.base_ns else words.signed(part.effect_ns)
    detail = f"{duration(part.base_ns)} → {duration(part.new_ns)}"
    if part.state == _UNDECIDED:
        value, detail = _UNDECIDED, f"{detail} ({value})"
    elif part.state == "same" and round(part.effect_ns) == 0:
        value = "no change"
    elif part.state == "same":
        bound = words.amount_state(part, words.least(comparison)).text.removeprefix("≈ ")
        if words.in_noise(part):
            value, bound = "no change", f"{value}, {bound}"
        detail += f", {bound}"
    return Tile(part.name, f"{host_name(part.name)} {per}", value, detail, "time")
