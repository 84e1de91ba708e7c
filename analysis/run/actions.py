"""Findings -> recommended actions: the savings of all findings on one base, in percent of the run and as GPU time, and their one order.

A rule measures its saving on the time that it sees: the run, the training loop, or the profile window. The window is a sample of the
training loop, so its percentages are scaled by the share of the loop in the run, on the assumption that the profiled steps are typical.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ..report.first_page import Action, Actions
from ..report.model import Report
from ..report.rules import SMALL_PERCENT, Finding
from .job_strip import longer_than_profile
from .summary_data import brief_percent

OF_RUN: Final = "GPU time of the run"
OF_WINDOW: Final = "GPU time in the profile window"
OF_DURATION: Final = "duration of the run"

BASES: Final = {OF_RUN: "of the run", OF_WINDOW: "of the window", OF_DURATION: "of the run"}
"""Common base -> its short name after a percentage."""

_RUN: Final = "run"
_LOOP: Final = "loop"
_STEPS: Final = "steps"
_PROFILE: Final = "profile"
SCOPES: Final[Mapping[str, str]] = {
    "GPU time of the run": _RUN,
    "sampled GPU time of the run": _RUN,
    "GPU time of the run, where some GPUs were only profiled": _RUN,
    "GPU time while all were recorded": _RUN,
    "sampled time of the nodes": _RUN,
    "duration of the run": _RUN,
    "process time in the training loop": _LOOP,
    "time of the steps": _STEPS,
    "GPU time in the profile window": _PROFILE,
}
"""Base of a finding -> the time that it is a part of. Savings on other bases, of rules from outside, are not converted."""


class _Base(NamedTuple):
    """The common base. ``factors``: scope -> factor from a percentage of the scope to one of the base, and whether it is an estimate."""

    name: str
    ns: int
    gpus: int
    factors: Mapping[str, tuple[float, bool]]


def actions(report: Report) -> tuple[tuple[Finding, ...], Actions | None]:
    """Rank the findings from 1; return them with their savings on one base.

    Order: by the converted saving, or else the cost; each finding follows the one that explains it. Findings that are worth less than 2%
    come last. Without a common base (name ""), each finding stays on its own. None without findings."""
    if not report.findings:
        return (), None
    base = _base(report)
    rows = {finding.rank: _action(finding, base) for finding in report.findings}
    ordered = list(enumerate(_ordered(report.findings, rows), 1))
    listed = tuple(replace(rows[finding.rank], finding=rank) for rank, finding in ordered)
    return tuple(replace(finding, rank=rank) for rank, finding in ordered), Actions(base.name, base.ns, base.gpus, listed)


def worth(action: Action) -> float | None:
    """Return the saving in percent, or the cost if the saving is unknown."""
    return action.cost_percent if action.percent is None else action.percent


def saving_words(action: Action) -> str:
    """Write the known saving without its base: "up to 19%", "predicted 4.3%"."""
    assert action.percent is not None
    return f"{'predicted' if action.saving_kind == 'predicted' else 'up to'} {brief_percent(action.percent)}"


def worth_words(action: Action, base: str) -> str:
    """Write the saving, or else the cost, and its base; "" if unknown.

    ``base``: of all actions. Example: "saves up to 19% of the run"."""
    of = f"of {action.base}" if action.base is not None else BASES.get(base, f"of {base or 'the time'}")
    if action.percent is not None:
        return f"saves {'a ' if action.saving_kind == 'predicted' else ''}{saving_words(action)} {of}"
    return f"costs {brief_percent(action.cost_percent)} {of}" if action.cost_percent is not None else ""


def _base(report: Report) -> _Base:
    job, gpu_time = report.job_statistics, report.gpu_time
    gpus = sum(device.used for device in report.devices) or (gpu_time.gpus if gpu_time is not None else 0)
    loop = 1.0 if job.loop_percent is None else job.loop_percent / 100
    in_loop = {} if job.loop_percent is None else {_LOOP: (loop, False)}
    partly = any(part.numbers for part in report.steps.parts)
    if longer_than_profile(report):
        assert job.duration_ns is not None
        profiled = gpu_time is not None
        if job.loop_percent is not None:
            in_loop[_STEPS] = (loop, profiled or partly)
            in_loop[_PROFILE] = (loop, True)
        name = OF_RUN if gpus else OF_DURATION
        return _Base(name, job.duration_ns * max(gpus, 1), gpus, {_RUN: (1.0, False), **in_loop})
    if gpu_time is not None and gpu_time.span_ns:
        return _Base(OF_WINDOW, gpu_time.span_ns, gpu_time.gpus, dict.fromkeys((_RUN, _LOOP, _STEPS, _PROFILE), (1.0, False)))
    if job.duration_ns and not gpus:
        return _Base(OF_DURATION, job.duration_ns, 0, {_RUN: (1.0, False), **in_loop, _STEPS: (loop, partly)})
    return _Base("", 0, gpus, {})


def _action(finding: Finding, base: _Base) -> Action:
    factor = base.factors.get(SCOPES.get(finding.base or "", ""))
    if factor is None:  # stays on its own base
        of = finding.base if finding.saving_percent is not None or finding.cost_percent is not None else None
        return Action(
            finding.rank, finding.rule, finding.saving_percent, finding.saving_ns, finding.saving_kind, base=of,
            cost_percent=finding.cost_percent, partly=finding.explained_by,
        )  # fmt: skip
    scale, estimated = factor
    percent = None if finding.saving_percent is None else finding.saving_percent * scale
    return Action(
        finding=finding.rank,
        rule=finding.rule,
        percent=percent,
        time_ns=None if percent is None else round(base.ns * percent / 100),
        saving_kind=finding.saving_kind,
        estimated=estimated and percent is not None,
        cost_percent=None if finding.cost_percent is None else finding.cost_percent * scale,
        partly=finding.explained_by,
    )


def _ordered(findings: Sequence[Finding], rows: Mapping[int, Action]) -> list[Finding]:
    """Order the findings: roots by the largest worth in their tree, then each tree."""
    first = {finding.rule: finding for finding in sorted(findings, key=lambda finding: -finding.rank)}
    explained: dict[int, list[Finding]] = {}
    roots = []
    for finding in sorted(findings, key=lambda finding: finding.rank):
        cause = first.get(finding.explained_by) if finding.explained_by else None
        if cause is None or cause is finding or _circular(finding, first):
            roots.append(finding)
        else:
            explained.setdefault(cause.rank, []).append(finding)

    def tree(finding: Finding) -> list[Finding]:
        return [finding, *(row for child in sorted(explained.get(finding.rank, ()), key=key) for row in tree(child))]

    def key(finding: Finding) -> tuple[bool, float, int]:
        known = [percent for row in tree(finding) if (percent := worth(rows[row.rank])) is not None]
        largest = max(known, default=0.0)
        return (bool(known) and largest < SMALL_PERCENT, -largest, finding.rank)  # an unknown worth comes before a small one

    return [row for root in sorted(roots, key=key) for row in tree(root)]


def _circular(finding: Finding, first: Mapping[str, Finding]) -> bool:
    """Return whether the causes lead back; a report from elsewhere can contain that."""
    seen = {finding.rank}
    while finding.explained_by and finding.explained_by in first:
        finding = first[finding.explained_by]
        if finding.rank in seen:
            return True
        seen.add(finding.rank)
    return False
