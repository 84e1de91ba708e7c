"""StageImbalance: a stage of a pipeline that computes longer than the others, on all of its ranks (docs/rules.md)."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...causes.what_if import Gain, WhatIf
from ...report.cause_details import ComparedStage, StageImbalanceDetails
from ...toolkit.wording import capitalized, duration, percent, threshold_text
from ..evidence.base import Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.device_share import no_device_activity
from ..evidence.predicted import explained, predicted_cost, ranks_in_words
from ..evidence.run_data import RunData

_CAPTURE: Final = "Profile at least three steps on every rank, with CUDA activity, PyTorch 2.3 or newer, and give the traces of all ranks."


class StageImbalance(Rule):
    name = "StageImbalance"
    category = "trace"
    parameters = (
        Parameter(
            "threshold", "%", 10, 10, "percentile", "percentage by which the computation of a stage may exceed the mean of the stages"
        ),
        Parameter("explained", "%", 50, 50, "percentile", "smallest share of the avoidable time that the stage must explain by simulation"),
    )
    needs = "Profiler traces of all stages of a pipeline, with at least three steps."
    explains = ("ExposedCommunication", "LoadBalancing", "SlowCollectives")
    checks = "Finds pipeline stages that compute longer than the other stages, on all of their ranks."
    condition = (
        "the computation per step of a stage (median of its ranks) exceeds the mean of the stages by more than `threshold`, each of its"
        " ranks is above that mean, and the stage explains at least `explained` of the avoidable time by simulation"
    )
    advice = "Move layers from the long stage to the others; count the embedding and the loss as layers."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        simulated = run.what_if
        if isinstance(simulated, str):
            return not_evaluated(simulated, _CAPTURE)
        if not simulated.peers.pipeline:
            return not_evaluated("no pipeline stages in this run")
        return _outcome(run, simulated, parameters)


def _outcome(run: RunData, simulated: WhatIf, parameters: Parameters) -> Outcome:
    by_rank = simulated.computing.group_by("role", "rank").agg(pl.col("computing").mean())
    by_role = by_rank.group_by("role").agg(pl.col("computing").median(), least=pl.col("computing").min()).sort("role")
    mean: float = by_role["computing"].mean()  # type: ignore[assignment]
    ordered = simulated.peers.source == "groups"
    stages: list[tuple[int, ComparedStage, Gain | None]] = []
    for role, computing, least in by_role.iter_rows():
        excess = 100 * (computing - mean) / mean if mean else 0.0
        longer = excess > parameters["threshold"] and least > mean
        gain = simulated.gain(pl.col("role") == role) if longer else None
        issue = gain is not None and 100 * max(gain.explained, gain.alone) >= parameters["explained"]
        ranks = sorted(rank for rank in (run.places.process(process).rank for process in simulated.peers.of(role)) if rank is not None)
        waits = simulated.waits.filter(pl.col("rank").is_in(simulated.peers.of(role)))["waits"].median()
        row = ComparedStage(
            role if ordered else None,
            tuple(ranks),
            computing,
            excess,
            gain.percent if gain else None,
            issue,
            float(waits or 0.0),  # type: ignore[arg-type]
        )
        stages.append((role, row, gain))
    bad = sorted((stage for stage in stages if stage[1].issue), key=lambda stage: -(stage[2].percent if stage[2] else 0.0))
    steps = simulated.steps
    role, worst, gain = bad[0] if bad else max(stages, key=lambda stage: stage[1].excess_percent)
    details = StageImbalanceDetails(
        tuple(row for _, row, _ in stages),
        steps,
        simulated.step_ns,
        simulated.replayed_ns / steps,
        simulated.ideal_ns / steps,
        100 * gain.explained if gain else None,
        simulated.waiting_kernel,
    )
    name = _name(run, simulated, role)
    first = (
        f"{capitalized(name)} computes {duration(worst.computation_per_step_ns)} per step, {percent(worst.excess_percent)} more than the"
        f" mean of the {len(stages)} stages (threshold {threshold_text(parameters['threshold'])})."
    )
    if not bad or gain is None:
        return concluded((), steps, details=details, finding=first)
    shorter = simulated.step_ns * (1 - gain.percent / 100)
    excess = worst.computation_per_step_ns - mean
    simulation = (
        f"In a simulation in which it computes as long as the mean, the mean step takes {duration(shorter)} instead of"
        f" {duration(simulated.step_ns)}. {explained(gain, parameters['explained'])}"
    )
    return concluded(
        bad,
        steps,
        details=details,
        finding=f"{first} {simulation}",
        recommendation=_recommendation(run, simulated, role, excess, worst, len(stages)),
        cost=predicted_cost(run, f"Move layers out of {_short(simulated, role, name)}", gain.percent, name),
    )


def _short(simulated: WhatIf, role: int, name: str) -> str:
    return f"pipeline stage {role}" if simulated.peers.source == "groups" else name


def _name(run: RunData, simulated: WhatIf, role: int) -> str:
    ranks = ranks_in_words(run, simulated.peers.of(role))
    return f"pipeline stage {role} ({ranks})" if simulated.peers.source == "groups" else f"the stage of {ranks}"


def _recommendation(run: RunData, simulated: WhatIf, role: int, excess: float, worst: ComparedStage, stages: int) -> str:
    part = percent(100 * excess / worst.computation_per_step_ns)
    text = f"Move {part} of the computation ({duration(excess)} per step) from {_name(run, simulated, role)} to the other stages"
    if simulated.peers.source == "groups" and role == stages - 1:
        text += (
            ". The last stage also computes the output layer and the loss. In Megatron-LM, use `--account-for-loss-in-pipeline-split` or a"
            " smaller `--decoder-last-pipeline-num-layers`"
        )
    elif simulated.peers.source == "groups" and role == 0:
        text += (
            ". The first stage also computes the embedding. In Megatron-LM, use `--account-for-embedding-in-pipeline-split` or a smaller"
            " `--decoder-first-pipeline-num-layers`"
        )
    else:
        text += ". Give it fewer layers, and count the embedding, the output layer and the loss as layers"
    if len(simulated.peers.of(role)) == 1:
        text += ". Only one rank of the stage is recorded, so first check the clock and temperature of its GPU"
    return f"{text}."
