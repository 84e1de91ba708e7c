"""Findings -> the recommended actions of the first page and of the chapter of findings: in one order, with savings on one base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from ...analysis.report.first_page import Action, Actions
from ...analysis.report.model import Report
from ...analysis.report.rules import Finding
from ...analysis.run.actions import BASES, saving_words
from ...analysis.toolkit import wording
from ..blocks import coded, name, plain
from ..blocks.spans import Span
from ..rules.spans import span_of
from ..text.formats import UNKNOWN, clip, count, duration, glued, percent, sentences, significant
from .verdicts import Judged

_EVIDENCE: Final = 160  # characters
_UNITS: Final = ((3600e9, "GPU-h"), (60e9, "GPU-min"), (1e9, "GPU-s"), (1e6, "GPU-ms"))


@dataclass(frozen=True, slots=True)
class ActionRow:
    """A finding of the recommended actions, ready to print. ``rank``: of the finding.

    ``saving``: percent of ``base``. ``cost``: a share with its base, and the time per step. ``span``: in the timeline.
    """

    rank: int
    title: str
    full_title: str
    anchor: str
    rule: Markup
    where: str | None
    saving: str
    saving_notes: tuple[str, ...]
    base: str
    cost: str
    evidence: Markup
    partly: str
    span: Span | None

    @property
    def saves(self) -> bool:
        return self.saving != UNKNOWN


def action_rows(report: Report, verdicts: Sequence[Judged]) -> list[ActionRow]:
    """Return all actions in their order, or the findings of a report without actions."""
    findings = {finding.rank: finding for finding in report.findings}
    ordered = report.actions.rows if report.actions is not None else [_unconverted(finding) for finding in report.findings]
    judged = {verdict.rule.rule: verdict for verdict in reversed(verdicts)}
    ranks = {finding.rule: finding.rank for finding in reversed(report.findings)}
    gpus = report.actions.gpus if report.actions is not None else 0
    base = BASES.get(report.actions.base, "") if report.actions is not None else ""
    return [_row(row, findings[row.finding], judged.get(row.rule), ranks, gpus, base) for row in ordered if row.finding in findings]


def savings_head(actions: Actions | None, rows: int) -> tuple[str, str]:
    """Write the head of the column of savings, and the note on their base.

    ``rows``: number of listed actions."""
    if actions is None or not actions.base:
        return "Saves", ""
    listed = actions.rows[:rows]
    if actions.gpus:
        each = duration(round(actions.base_ns / actions.gpus))
        product = f"{count(actions.gpus)} × {each} = " if actions.gpus > 1 else ""
        base = f"Percent of the {actions.base}, {product}{gpu_time(actions.base_ns, actions.gpus)}."
    else:
        base = f"Percent of the {actions.base}, {duration(actions.base_ns)}."
    overlap = " Savings overlap; do not add them." if len(listed) > 1 else ""
    estimates = " Estimates assume that the profiled steps are typical." if any(row.estimated for row in listed) else ""
    return f"Saves, % {BASES[actions.base]}" if actions.base in BASES else "Saves, %", base + overlap + estimates


def _unconverted(finding: Finding) -> Action:
    base = finding.base if finding.saving_percent is not None or finding.cost_percent is not None else None
    return Action(
        finding.rank, finding.rule, finding.saving_percent, finding.saving_ns, finding.saving_kind, base=base,
        cost_percent=finding.cost_percent, partly=finding.explained_by,
    )  # fmt: skip


def _row(row: Action, finding: Finding, verdict: Judged | None, ranks: dict[str, int], gpus: int, base: str) -> ActionRow:
    title = (plain(finding.title) or "").removesuffix(".")
    saving, notes = _saving(row, gpus)
    cause = ranks.get(row.partly or "")
    where = clip(finding.where, 60) if finding.where and _parts_of(finding.where) - _parts_of(title) else None
    return ActionRow(
        row.finding,
        clip(title, 90),
        title,
        "rules" if verdict is None else verdict.anchor,
        name(finding.rule, 40),
        where,
        saving,
        notes,
        base if row.percent is not None and row.base is None else "",
        _cost(finding, row, base),
        coded(sentences(finding.text, _EVIDENCE)),
        f"Partly the same as #{cause}." if cause is not None and cause != row.finding else "",
        None if verdict is None else span_of(verdict.rule),
    )


def _parts_of(text: str) -> set[str]:
    """Return the words of a place, without punctuation."""
    return {word.strip("(),;") for word in text.split()}


def _saving(row: Action, gpus: int) -> tuple[str, tuple[str, ...]]:
    """Write the saving, and below it the GPU time, or its base if that is another one."""
    if row.percent is None:
        return UNKNOWN, (f"costs\u00a0{brief(row.cost_percent)}" if row.cost_percent is not None else "not known",)
    text = glued(saving_words(row))
    if row.base is not None:
        return text, (f"of the {clip(row.base, 60)}",)
    time = gpu_time(row.time_ns, gpus) if row.time_ns is not None else ""
    return text, tuple(part for part in (time, "estimate" if row.estimated else "") if part)


def brief(value: float | None) -> str:
    """Write a share with two or three digits: 19%, 4.3%."""
    return percent(value) if value is None or 0 < value < 10 else glued(wording.whole_percent(value))


def gpu_time(ns: float, gpus: int) -> str:
    """Write GPU time in GPU-h, GPU-min or GPU-s; without GPUs, the time."""
    if not gpus:
        return duration(round(ns))
    size, unit = next((pair for pair in _UNITS if ns >= pair[0]), _UNITS[-1])
    return f"{significant(ns / size)}\u00a0{unit}"


def _cost(finding: Finding, row: Action, base: str) -> str:
    """Write the share, on the base of the saving, and the time per step.

    "" if unknown."""
    of = base if row.base is None else f"of the {clip(row.base, 60)}"
    parts = [f"{brief(row.cost_percent)} {of}".rstrip()] if row.cost_percent is not None else []
    if finding.cost_per_step_ns is not None:
        parts.append(f"{duration(finding.cost_per_step_ns)} per step on average")
    if not parts and finding.cost_ns is not None:
        parts.append(duration(finding.cost_ns))
    return ", ".join(parts)
