"""Evidence on the dips of utilization: findings and measurements from the time of a dip that explain it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.first_page import Dip
from ..report.loop_details import StepOutlierDetails
from ..report.model import Report
from ..report.rules import ISSUES
from ..steps.step_time import main_steps
from ..steps.timed import timed_steps
from ..toolkit import wording

_COVERS: Final = 0.5  # of the dip; slow steps, or the time of a finding, that cover less do not explain it
_LOCAL: Final = 2.0  # length of the time of a finding / that of the dip, above which the finding is not on the dip
_LEAST_WAIT: Final = 5.0  # percent of I/O wait in a dip
_ROSE: Final = 3.0  # I/O wait in the dip / outside of all dips, from which it has risen
_NOT_CAUSES: Final = ("LowGPUUtilization", "BatchSize", "LoadBalancing")  # they find the low utilization itself

Spans = list[tuple[int, int]]


class DipCauses:
    """Explains dips. ``compared``: the time that contains the dips; ``spans``: all dips."""

    def __init__(self, store: Store, report: Report, compared: tuple[int, int], spans: Spans) -> None:
        self._issues = [rule for rule in report.rules if rule.verdict == ISSUES and rule.category != "report"]
        self._slow, self._others = _steps(store, report)
        self._series = [row for row in report.system_usage.series if row.metric == "io_wait"]
        self._compared, self._spans = compared, spans

    def explained(self, dip: Dip) -> Dip:
        """Return the dip with its causes."""
        span = (dip.start_ns, dip.end_ns)
        wait = self._io_wait(span)
        rules = [
            rule.rule
            for rule in self._issues
            if (rule.rule == "StepOutlier" and _covered(self._slow.values(), span) >= _COVERS)
            or (rule.rule == "IOBottleneck" and wait)
            or self._on(rule.first_ns, rule.last_ns, span, rule.rule)
        ]
        phases = [f"{phase} steps" for phase, spans in sorted(self._others.items()) if _covered([spans], span) >= _COVERS]
        return replace(dip, rules=tuple(rules), evidence=(*wait, *phases))

    def _on(self, first: int | None, last: int | None, span: tuple[int, int], rule: str) -> bool:
        """Return whether the time of a finding is that of the dip."""
        if first is None or last is None or rule in (*_NOT_CAUSES, "StepOutlier"):
            return False
        length = span[1] - span[0]
        return last - first <= _LOCAL * length and _covered([[(first, last)]], span) >= _COVERS

    def _io_wait(self, span: tuple[int, int]) -> tuple[str, ...]:
        during, outside = [], []
        for row in self._series:
            for at, value in zip(row.time_ns, row.mean, strict=True):
                if span[0] <= at < span[1]:
                    during.append(value)
                elif self._compared[0] <= at < self._compared[1] and not any(start <= at < end for start, end in self._spans):
                    outside.append(value)
        if not during or not outside:
            return ()
        wait, otherwise = statistics.fmean(during), statistics.fmean(outside)
        if wait < _LEAST_WAIT or wait < _ROSE * otherwise:
            return ()
        return (f"I/O wait {wording.whole_percent(wait)} (otherwise {wording.whole_percent(otherwise)})",)


def _steps(store: Store, report: Report) -> tuple[dict[int, Spans], dict[str, Spans]]:
    """Return the slow steps of the findings by process, and the steps of other phases.

    A phase is another one if its steps are not the main steps of the run, such as those of an evaluation."""
    rows = timed_steps(store).filter(pl.col("start").is_not_null(), pl.col("duration") > 0)
    if rows.is_empty():
        return {}, {}
    details = next((rule.details for rule in report.rules if rule.rule == "StepOutlier"), None)
    slow: dict[int, Spans] = {}
    if isinstance(details, StepOutlierDetails):
        places = store.frame("SELECT p.id AS process, n.hostname, p.rank, p.pid FROM process AS p LEFT JOIN node AS n ON n.id = p.node")
        names = {process: (hostname, rank, pid) for process, hostname, rank, pid in places.iter_rows()}
        limits = {(group.node, group.rank, group.pid, _mode(group.phase)): group.threshold_ns for group in details.groups if group.issue}
        for process, phase, start, duration in rows.select("process", "phase", "start", "duration").iter_rows():
            limit = limits.get((*names.get(process, (None, None, None)), _mode(phase)))
            if limit is not None and duration > limit:
                slow.setdefault(process, []).append((start, start + duration))
    main = {_mode(step.phase) for step in main_steps(report.steps.steps)}
    training = {*main, "TRAIN", None}
    others: dict[str, Spans] = {}
    for phase, start, duration in rows.select("phase", "start", "duration").iter_rows():
        if (mode := _mode(phase)) is not None and mode not in training:
            others.setdefault(mode, []).append((start, start + duration))
    return slow, others


def _mode(mode: str | None) -> str | None:
    """Normalize a mode: ModeKeys.TRAIN and train are TRAIN; "None" is None."""
    return None if mode is None or mode.lower() in ("", "none") else mode.rsplit(".", 1)[-1].upper()


def _covered(processes: Iterable[Sequence[tuple[int, int]]], span: tuple[int, int]) -> float:
    """Return the part of ``span`` that the spans of one process cover, the largest."""
    return max((sum(_inside(spans, span)) / (span[1] - span[0]) for spans in processes), default=0.0)


def _inside(spans: Sequence[tuple[int, int]], span: tuple[int, int]) -> Iterator[int]:
    """Yield the lengths of the parts of the union of ``spans`` within ``span``."""
    until = span[0]
    for start, end in sorted(spans):
        begin, stop = max(start, until), min(end, span[1])
        if stop > begin:
            yield stop - begin
            until = stop
