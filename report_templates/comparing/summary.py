"""The first page of a comparison: headline, tiles, and the largest changes."""

from __future__ import annotations

import dataclasses
from typing import Final

from ...analysis.compare.parts import host_name
from ...analysis.report.comparison import Amount, Comparison
from ...analysis.report.run import Tile
from ..blocks import Section, say
from ..blocks.tables import Col, table
from ..text.formats import capitalized, duration
from . import words
from .steps import distributions
from .time import host_figure, parts_figure

_EVIDENCE: Final = {"steps": "by step times", "ranges": "by repeated ranges", "counts": "by the counts of kernels", None: "no evidence"}
_AREAS: Final = {
    "part": "time", "gpu memory": "memory", "memory operation": "memory", "step": "steps", "data loading": "time", "host part": "time",
    "kernel": "kernels", "precision": "precision", "verdict": "verdicts",
}  # fmt: skip


def summary(comparison: Comparison) -> Section:
    limits = [
        say("{}: {} before, {} now. {}.", capitalized(row.name), row.base, row.new, capitalized(row.limits))
        for row in comparison.differences
        if row.limits
    ]
    changes = table(
        "summary-changes",
        " ".join(f"What changed, largest effect {words.per(comparison.basis)} first".split()),
        comparison.changes,
        Col("Change", lambda change: dataclasses.replace(words.state(change.state), link=_AREAS[change.area])),
        Col("Effect", lambda change: None if change.effect_ns is None else words.effect(change.effect_ns), kind="number"),
        Col("In words", lambda change: words.with_minus_signs(change.text), limit=240),
        sortable=False,
        pdf_rows=12,
    )
    steps = distributions("summary-steps", comparison.steps) if comparison.steps else None
    time = parts_figure("summary-time", comparison) or host_figure("summary-time", comparison)
    lead = say("{}", words.with_minus_signs(comparison.headline))
    return Section("summary", "Summary", lead, (changes, steps, time), {"tiles": _tiles(comparison), "limits": limits})


def _tiles(comparison: Comparison) -> list[Tile]:
    tiles = [_verdict(comparison)]
    tiles += [_tile(part, part.name, words.per(comparison.basis)) for part in comparison.parts[:4]]
    if not comparison.parts:
        largest = sorted(comparison.host_parts, key=lambda part: -max(part.base_ns, part.new_ns))[:4]
        tiles += [_tile(part, host_name(part.name), "per step") for part in largest]
    return tiles


def _verdict(comparison: Comparison) -> Tile:
    """Show the verdict, the times it compares, and its bound."""
    judgment, steps = comparison.judgment, comparison.steps
    if judgment is None:
        return Tile("verdict", "verdict", comparison.verdict, "", "steps")
    percent = "" if judgment.percent is None or judgment.state == "cannot say" else f", {words.change(judgment.percent).text}"
    details = [_EVIDENCE[judgment.evidence]]
    if steps is not None and judgment.evidence in ("steps", None):
        name = "GPU time per step" if steps.measure == "device" else "step time"
        details = [f"{name} {duration(steps.base.p50)} → {duration(steps.new.p50)}"]
    if judgment.low_percent is not None and judgment.high_percent is not None:
        details.append(f"{words.change(judgment.low_percent).text} to {words.change(judgment.high_percent).text}")
    if steps is not None:
        details.append(f"p95 {words.change(steps.p95_change_percent).text}")
    return Tile("verdict", "verdict", f"{judgment.state}{percent}", ", ".join(details), "steps")


def _tile(part: Amount, name: str, per: str) -> Tile:
    """Show every change of the part, and why it does not count if it does not."""
    if part.state == "undecided":
        value = "undecided"
    elif part.state == "same" and round(part.effect_ns) == 0:
        value = "no change"
    else:
        value = _moved(part.base_ns, part.new_ns)
    why = f", {words.amount_state(part).text.removeprefix('≈ ')}" if part.state == "same" and value != "no change" else ""
    return Tile(part.name, f"{name} {per}", value, f"{duration(part.base_ns)} → {duration(part.new_ns)}{why}", "time")


def _moved(before: float, after: float) -> str:
    return words.ratio(before, after) if before else words.signed(after)
