"""The span of the timeline in which the issue of a rule shows."""

from __future__ import annotations

from ...analysis.report.cause_details import StragglerRankDetails
from ...analysis.report.loop_details import StepOutlierDetails
from ...analysis.report.rules import ISSUES, RuleResult
from ...analysis.report.sample_details import GPUMemoryIncreaseDetails, LowGPUUtilizationDetails
from ...analysis.report.trace_details import HostBoundDetails
from ..blocks.spans import Span, step_span


def span_of(rule: RuleResult) -> Span | None:
    """Return the span of the worst case of an issue.

    If it is not known, from the first violation to the last; None without times.
    """
    if rule.verdict != ISSUES:
        return None
    worst = _worst(rule)
    if worst is not None:
        return worst
    if rule.first_ns is None or rule.last_ns is None:
        return None
    return Span(rule.first_ns, rule.last_ns, _straggler(rule))


def _worst(rule: RuleResult) -> Span | None:
    details = rule.details
    if isinstance(details, StepOutlierDetails):
        outlier = next((step for step in details.slowest if step.outlier), None)
        return None if outlier is None else step_span(outlier)
    if isinstance(details, HostBoundDetails) and details.longest:
        wait = details.longest[0]
        return Span(wait.start_ns, wait.start_ns + wait.time_ns)
    if isinstance(details, GPUMemoryIncreaseDetails):
        episodes = [(episode, device.rank) for device in details.devices for episode in device.episodes]
        if episodes:
            episode, rank = max(episodes, key=lambda pair: pair[0].largest)
            return Span(episode.start_ns, episode.end_ns, rank)
    if isinstance(details, LowGPUUtilizationDetails):
        tails = [device for device in details.devices if device.idle_tail_starts_ns is not None and device.idle_tail_ns]
        if tails:
            device = max(tails, key=lambda one: one.idle_tail_ns or 0)
            start = device.idle_tail_starts_ns or 0
            return Span(start, start + (device.idle_tail_ns or 0), device.rank if len(details.devices) == 1 else None)
    return None


def _straggler(rule: RuleResult) -> int | None:
    """Return the rank that the others wait for."""
    if not isinstance(rule.details, StragglerRankDetails):
        return None
    return next((row.rank for row in rule.details.ranks if row.straggler), None)
