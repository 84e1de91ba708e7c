"""Blocks of the rules on causes across ranks: stages of a pipeline, varying work, and pauses of the host."""

from __future__ import annotations

from ...analysis.report import cause_details
from ...analysis.toolkit.wording import numbered
from ..blocks.tables import Cell, Col, table
from ..text.formats import UNKNOWN, clip, count, duration, percent
from .rule_context import Blocks, RuleContext, share


def stage_imbalance(context: RuleContext, details: cause_details.StageImbalanceDetails) -> Blocks:
    return [
        table(
            f"{context.id}-stages",
            "Computation per step by pipeline stage",
            details.stages,
            Col("Stage", lambda stage: UNKNOWN if stage.stage is None else str(stage.stage), kind="name"),
            Col("Ranks", lambda stage: numbered(stage.ranks), kind="name"),
            Col("Verdict", lambda stage: Cell("✕ longer", mark="v-issue") if stage.issue else Cell("within")),
            Col("Computation", lambda stage: stage.computation_per_step_ns, duration),
            Col("Above the mean", lambda stage: stage.excess_percent, share),
            Col(
                "Waits in kernels",
                lambda stage: stage.waits_per_step_ns,
                duration,
                when=any(stage.waits_per_step_ns for stage in details.stages),
            ),
            Col("Predicted saving", lambda stage: stage.gain_percent, percent),
            note=f"Computation is the median of the ranks of a stage.{_waiting(details.waiting_kernel)} The saving is of a step, predicted"
            " by simulation.",
        )
    ]


def _waiting(kernel: str | None) -> str:
    """Name the kernel that only "Ranks compared" counts as computation."""
    if kernel is None:
        return ""
    return (
        f" {clip(kernel, 60)} is left out of it: this kernel ends on all ranks at the same time, so a rank waits in it for the slowest one."
        " Ranks compared counts it as computation."
    )


def work_imbalance(context: RuleContext, details: cause_details.WorkImbalanceDetails) -> Blocks:
    return [
        table(
            f"{context.id}-ranks",
            "Computation per step by rank",
            details.ranks,
            Col("Rank", lambda rank: UNKNOWN if rank.rank is None else str(rank.rank), kind="name"),
            Col("Computation", lambda rank: rank.computation_per_step_ns, duration),
            Col("Deviation from its peers", lambda rank: rank.deviation_percent, percent),
            Col("Longest in steps", lambda rank: rank.longest_steps, count),
            Col("Steps", lambda rank: rank.steps, count),
            html_note="The deviation is the standard deviation of the rank's steps from the mean of its peers in the same step."
            + _waiting(details.waiting_kernel),
        )
    ]


def host_pauses(context: RuleContext, details: cause_details.HostPausesDetails) -> Blocks:
    return [
        table(
            f"{context.id}-pauses",
            "Pauses of the host",
            details.pauses,
            Col("Name", lambda pause: pause.name, kind="name", limit=72),
            Col("Kind", lambda pause: pause.kind, kind="name"),
            Col("Rank", lambda pause: UNKNOWN if pause.rank is None else str(pause.rank)),
            Col("Count", lambda pause: pause.count, count),
            Col("Time", lambda pause: pause.time_ns, duration),
            Col("Device idle", lambda pause: pause.idle_ns, duration),
        )
    ]
