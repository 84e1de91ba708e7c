"""WorkImbalance: ranks or micro-batches with the same role compute for different times, another one in each step (docs/rules.md)."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...causes.what_if import WhatIf
from ...report.cause_details import VaryingRank, WorkImbalanceDetails
from ...toolkit.wording import capitalized, percent, plural, threshold_text
from ..evidence.base import Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.device_share import no_device_activity
from ..evidence.predicted import predicted_cost
from ..evidence.run_data import RunData
from ..evidence.sample_bounds import persistent

_CAPTURE: Final = "Profile at least five steps on every rank, with CUDA activity, and give the traces of all ranks."
CORRELATION: Final = 0.5  # of forward and backward passes: below it, it is not the work of a micro-batch that varies
STEPS: Final = 5  # steps from which variance between ranks and within them can be separated
BETWEEN_PERCENT: Final = 25  # A larger part of the variance between ranks is the work of a straggler or of a stage


class WorkImbalance(Rule):
    name = "WorkImbalance"
    category = "trace"
    parameters = (
        Parameter("threshold", "%", 5, 5, "percentile", "share of a step that equal work may save by simulation"),
        Parameter(
            "between",
            "%",
            BETWEEN_PERCENT,
            BETWEEN_PERCENT,
            "percentile",
            "largest share of the variance that may be between ranks; a larger one is the work of a straggler or a stage",
        ),
    )
    needs = "Profiler traces of at least two ranks that do the same work, with at least five steps."
    explains = ("ExposedCommunication", "LoadBalancing", "SlowCollectives", "StepOutlier")
    checks = "Finds work that differs among ranks with the same role or among micro-batches, although no rank has more work in all steps."
    condition = (
        "a step would take over `threshold` less by simulation if ranks with the same role computed equally long, and at most `between`"
        " of the variance of computation is between ranks rather than between steps"
    )
    advice = "Give all ranks batches with the same number of tokens: sort or pack sequences by length, and limit the tokens per expert."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        simulated = run.what_if
        if isinstance(simulated, str):
            return not_evaluated(simulated, _CAPTURE)
        if simulated.steps < STEPS:
            return not_evaluated(f"{plural(simulated.steps, 'step')} in common to all ranks, of {STEPS} that this requires", _CAPTURE)
        passes = simulated.passes()
        if passes is None and simulated.computing["role"].n_unique() == simulated.computing["rank"].n_unique():
            return not_evaluated("no rank has a peer, because each does different work", "Give the traces of all data-parallel ranks.")
        return _outcome(run, simulated, passes, parameters)


def _outcome(run: RunData, simulated: WhatIf, passes: tuple[float, float] | None, parameters: Parameters) -> Outcome:
    rows = simulated.computing.with_columns(peers=pl.col("rank").n_unique().over("role") > 1)
    peers = bool(rows["peers"].any())
    mean = pl.col("computing").mean().over("role", "step") if peers else pl.col("computing").mean().over("role")
    rows = rows.filter(mean > 0, pl.col("peers") == peers).with_columns(
        relative=pl.col("computing") / mean - 1, longest=pl.col("computing") == pl.col("computing").max().over("role", "step")
    )
    if rows.is_empty():
        return not_evaluated("no computation kernel of these ranks takes any time", _CAPTURE)
    apart = persistent(rows) if peers else set()
    between = 100 * between_ranks(rows.filter(~pl.col("rank").is_in(list(apart))))
    longest = rows.group_by("role", "step").agg(pl.col("relative").max())
    spread: float = 100 * longest.select(pl.col("relative").mean()).item()
    saved = simulated.saved_by_even_work(apart)
    ranks = rows.group_by("rank").agg(
        steps=pl.len(), longest=pl.col("longest").sum(), computing=pl.col("computing").mean(), deviation=100 * pl.col("relative").std()
    )
    rows_of_ranks = sorted(ranks.rows(), key=lambda row: (run.places.process(row[0]).order, row[0]))
    details = WorkImbalanceDetails(
        tuple(VaryingRank(run.places.process(process).rank, *row) for process, *row in rows_of_ranks),
        simulated.steps,
        spread,
        between,
        saved,
        simulated.waiting_kernel,
    )
    varies = []
    if peers:
        varies.append(
            f"in a step, the rank with the most work computes {percent(spread)} longer than the mean of its peers; {percent(between)} of"
            " the variance is between ranks"
        )
    if passes is not None:
        varies.append(
            f"forward and backward passes of micro-batches vary by {percent(passes[0])} (standard deviation), with a correlation of"
            f" {passes[1]:.2f}"
        )
    text = capitalized("; ".join(varies))
    limits = f"thresholds {threshold_text(parameters['threshold'])} saved and {threshold_text(parameters['between'])} of the variance"
    if saved <= parameters["threshold"]:
        equal = f"equal work would save {percent(max(saved, 0.0))} of a step by simulation"
        return concluded((), simulated.steps, details=details, finding=f"{text}, and {equal} ({limits}).")
    if between > parameters["between"]:  # what equal work would save is the gain of another cause
        same = f"the same ranks compute longer in most steps, which StragglerRank and StageImbalance evaluate ({limits})"
        return concluded((), simulated.steps, details=details, finding=f"{text}: {same}.")
    if passes is not None and passes[1] < CORRELATION:
        return concluded((), simulated.steps, details=details, finding=f"{text}: it is not the work that varies ({limits}).")
    often = int(ranks["longest"].max())  # type: ignore[arg-type]
    if peers:
        text += f". No rank is the longest in more than {often} of {simulated.steps} steps"
    whose = ("ranks" if passes is None else "ranks and micro-batches") if peers else "micro-batches"
    wait = f" They wait for the longest of each step: it computes {percent(spread)} longer than the mean." if peers else ""
    return concluded(
        ["job"],
        simulated.steps,
        details=details,
        finding=f"{text} ({limits}).",
        recommendation=(
            f"Give the {whose} the same number of tokens, and the same sum of squared sequence lengths where attention takes long: pack"
            f" sequences or sort them by length within a window, pad less, and limit the tokens of an expert.{wait}"
        ),
        cost=predicted_cost(run, f"Balance the work of the {whose} in each step", saved, None),
    )


def between_ranks(rows: pl.DataFrame) -> float:
    """Return the part of the variance that is between ranks, from 0 to 1.

    ``rows``: rank, relative (deviation from the mean of the peers in a step). The variance of means that chance explains does not count."""
    by_rank = rows.group_by("rank").agg(mean=pl.col("relative").mean(), variance=pl.col("relative").var(), steps=pl.len())
    variance = pl.col("variance").fill_null(0.0)
    columns = by_rank.select(variance.mean(), chance=(variance / pl.col("steps")).mean(), between=(pl.col("mean") ** 2).mean())
    within, chance, means = (value or 0.0 for value in columns.row(0))
    between: float = max(means - chance, 0.0)
    total = between + within
    return between / total if total else 0.0
