"""OverallFrameworkMetrics: time of the framework by phase, part of the step, operator and collective."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Final

from ...report.framework import Framework
from ...report.loop_details import OverallFrameworkMetricsDetails
from ...report.rows import Share
from ...report.rules import FINE
from ...toolkit import wording
from ...toolkit.windows import gaps_ns
from ..evidence.base import Category, Outcome, Parameters, Rule, not_evaluated
from ..evidence.run_data import RunData

OTHER_PHASE: Final = "other"
_MUCH_OTHER: Final = 25.0
_LISTED: Final = 3


class OverallFrameworkMetrics(Rule):
    """Information, never an issue: the tables of the report's framework analysis.

    Data points: steps, else the ranges of the parts of the step, else operators, else collectives."""

    name: ClassVar[str] = "OverallFrameworkMetrics"
    category: ClassVar[Category] = "framework"
    of_training: ClassVar[bool] = True
    informs: ClassVar[bool] = True
    needs: ClassVar[str] = "Steps, phases or operators of the framework."
    checks: ClassVar[str] = "Reports the time by phase, part of the step, operator and collective."
    condition: ClassVar[str] = "never: it only informs"
    advice: ClassVar[str] = "Begin with the phase or operator that takes the most time."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        framework = run.framework
        table: Sequence[Share] = framework.phases or framework.step_parts or framework.operator_time or framework.collectives
        if not table:
            return not_evaluated(
                "no steps, phases, operators or collectives in this run",
                "Profile with torch.profiler on CPU and CUDA activity, or with the hosted profiler's framework profiling.",
            )
        return Outcome(
            FINE,
            datapoints=sum(row.count for row in table),
            details=OverallFrameworkMetricsDetails.of(framework),
            finding=_finding(framework, gaps_ns(run.store)),
            recommendation=_recommendation(framework.phases),
        )


def _finding(framework: Framework, gaps: int) -> str:
    """Write the longest rows of the first table that the run has.

    ``gaps``: how long (ns) nothing was recorded between the steps."""
    if framework.phases:
        named = [
            dataclasses.replace(phase, name="the steps") if phase.name == "step" else phase
            for phase in framework.phases
            if phase.name != OTHER_PHASE
        ]
        rest = next((phase.percent for phase in framework.phases if phase.name == OTHER_PHASE), 0.0)
        outside = f"{wording.whole_percent(rest)} lies outside of the steps"
        left_out = f", without the {wording.duration(gaps)} in which nothing was recorded" if gaps else ""
        return f"From the first step's start to the last one's end{left_out}, {_parts(named)}; {outside}."
    if framework.step_parts:
        return f"Of the time in forward, backward, optimizer and data loading, {_parts(framework.step_parts)}."
    if framework.operator_time:
        several = len(framework.operator_time) > 1
        what = (
            " (of the CPU's inclusive, nested calls counted again; of the GPU's, device work that each launched itself)" if several else ""
        )
        return f"Of the summed times of operators{what}, {_parts(framework.operator_time)}."
    return f"Of the time of collectives, {_parts(framework.collectives)}."


def _parts(rows: Sequence[Share]) -> str:
    return ", ".join(f"{row.name} took {wording.whole_percent(row.percent)}" for row in rows[:_LISTED])


def _recommendation(phases: Sequence[Share]) -> str | None:
    rest = next((phase for phase in phases if phase.name == OTHER_PHASE), None)
    if rest is None or rest.percent <= _MUCH_OTHER:
        return None
    return (
        "Look at what runs between the steps (data loading, validation, checkpoints, logging):"
        f" {wording.duration(rest.total_ns)} of the loop, {wording.whole_percent(rest.percent)}, is spent there."
    )
