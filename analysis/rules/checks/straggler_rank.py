"""StragglerRank: a rank that computes longer than its peers in most steps, so that they wait for it (docs/rules.md).

Computation and collectives of a rank in a step are unions of kernels between the start and the end of the step's device work. Why a
straggler is slow: the computation kernels that it ran as often as the others do are compared by name. If the kernels that make up most
of the time take longer by at least half of the rank's excess, the device is slow; otherwise some kernels have more to do.
"""

from __future__ import annotations

from statistics import median
from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...causes.what_if import Gain, WhatIf
from ...report.cause_details import StragglerRankDetails
from ...steps.over_steps import STEP_KEY, THRESHOLD, RankOverSteps, compared_steps, ranked_steps, ranks_over_steps
from ...toolkit.labels import place
from ...toolkit.wording import capitalized, duration, percent, plural, threshold_text
from ..evidence.base import Cost, Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.device_share import no_device_activity, span_of_all
from ..evidence.predicted import explained, predicted_cost
from ..evidence.run_data import RunData
from ..evidence.sample_bounds import persistent, steps_for_majority

_CAPTURE_RANKS: Final = "Give the traces of all ranks."
_CAPTURE_GROUPS: Final = "Profile with PyTorch 2.3 or newer, which records the process group of each collective."
EXPLAINED: Final = 50
STEPS: Final = 2  # in one step, any rank may be late by chance
VARYING_STEPS: Final = 5  # from which variance between ranks and within them can be separated
_ALSO: Final = ", including time in which they also compute"  # so that it can exceed the longer computation
SLOW_CLOCK: Final = 0.95  # of the median clock of the others: a lower clock is evidence
_CAPTURE_STEPS: Final = "Call step() of the profiler once per training step on every rank, with CUDA activity."


class StragglerRank(Rule):
    name = "StragglerRank"
    category = "trace"
    parameters = (
        Parameter(
            "threshold",
            "%",
            THRESHOLD,
            THRESHOLD,
            "percentile",
            "percentage by which a rank's computation per step may exceed the median of its peers",
        ),
        Parameter(
            "explained",
            "%",
            EXPLAINED,
            EXPLAINED,
            "percentile",
            "smallest share of the avoidable time that stragglers must explain by simulation",
        ),
    )
    explains = ("ExposedCommunication", "LoadBalancing", "SlowCollectives")
    needs = "Profiler traces of at least two ranks that do the same work, with at least two steps."
    checks = "Finds ranks that compute longer than their peers in most steps, while the peers wait for them in collectives."
    condition = (
        "a rank computes longer than the median of its peers by more than `threshold` in more than half of the steps, its peers wait for"
        " it in collectives, and such ranks explain at least `explained` of the avoidable time by simulation"
    )
    advice = "Check the clock, temperature and power of the straggler's device, and whether the rank gets more work than its peers."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        ranks = {(device.node, device.rank, device.pid) for device in run.breakdown if device.rank is not None}
        if len(ranks) < 2:
            return not_evaluated("one rank in this run" if ranks else "no trace of this run names its rank", _CAPTURE_RANKS)
        steps = ranked_steps(run.step_data, run.step_times)
        if steps["process"].n_unique() < 2:
            reason = "only one rank has steps with device work" if len(steps) else "no steps with device work"
            return not_evaluated(reason, _CAPTURE_STEPS)
        if compared_steps(steps, parameters["threshold"]).is_empty():
            return not_evaluated("no step was recorded on two ranks", "Profile the same steps on every rank.")
        if compared_steps(steps, parameters["threshold"])["number"].n_unique() < STEPS:
            return not_evaluated("one step does not show whether a rank is slow in most steps", "Profile at least two steps on every rank.")
        if run.peers.source == "unknown":
            return not_evaluated("the roles of the ranks are unknown, so that no rank has peers to be compared with", _CAPTURE_GROUPS)
        compared = compared_steps(steps, parameters["threshold"], run.peers.roles if run.peers.pipeline else None)
        if compared.is_empty():
            return not_evaluated("no rank has a peer, because each does different work", "Give the traces of all data-parallel ranks.")
        return _outcome(run, compared, ranks_over_steps(run.places, compared), parameters)


def _outcome(run: RunData, compared: pl.DataFrame, ranks: list[RankOverSteps], parameters: Parameters) -> Outcome:
    threshold = parameters["threshold"]
    number = compared.select(pl.struct(STEP_KEY).n_unique()).item()
    bad = sorted((rank for rank in ranks if rank.straggler), key=lambda rank: -rank.excess_percent)
    varying = [] if number < VARYING_STEPS else [rank for rank in bad if rank.process not in _persistent(compared)]
    bad = [rank for rank in bad if rank not in varying]
    simulated = run.what_if if bad else None
    gain = simulated.gain_of_ranks([rank.process for rank in bad]) if isinstance(simulated, WhatIf) else None
    details = StragglerRankDetails(
        ranks=tuple(rank.details() for rank in ranks),
        steps=number,
        median_ns=compared.group_by(STEP_KEY).agg(pl.col("median").first())["median"].median(),  # type: ignore[arg-type]
        roles=run.peers.source,
        gain_percent=gain.percent if gain else None,
        explained_percent=100 * gain.explained if gain else None,
        not_simulated=simulated if isinstance(simulated, str) else None,
    )
    if varying and not bad:
        worst = max(varying, key=lambda rank: rank.excess_percent)
        text = _finding(run, ranks, [worst], threshold).rstrip(".") + ", but varies so much from step to step that this can be chance."
        return concluded((), number, details=details, finding=text)
    if gain is not None and 100 * max(gain.explained, gain.alone) < parameters["explained"]:
        longer = f"{capitalized(bad[0].place)} computes {percent(bad[0].excess_percent)} longer than the median of its peers"
        share = f"{percent(max(100 * gain.explained, 0.0))} of the avoidable time (threshold {threshold_text(parameters['explained'])})"
        return concluded((), number, details=details, finding=f"{longer}, but this explains only {share}.")
    needed = steps_for_majority(len(ranks))
    if bad and gain is None and bad[0].steps < needed:
        return not_evaluated(
            f"{bad[0].steps} of at least {needed} steps needed: {bad[0].place} computes {percent(bad[0].excess_percent)} longer than the"
            " median of its peers, which can be chance in fewer steps",
            "Profile more steps on every rank.",
            details=details,
        )
    doubted = [rank for rank in ranks if rank.over and rank.confirmed is None]
    if not bad and doubted:
        worst = max(doubted, key=lambda rank: rank.excess_percent)
        return not_evaluated(
            f"{worst.place} computes {percent(worst.excess_percent)} longer than the median of the ranks, but this run has no collective"
            " kernels that show whether the others wait for it",
            "Profile with torch.profiler on CUDA activity, with the collectives on the device (NCCL).",
            details=details,
        )
    processes = [rank.process for rank in bad]
    over = compared.filter(pl.col("over"), pl.col("process").is_in(processes))
    return concluded(
        bad,
        number,
        over.select("start", "end").rows(),
        violations=len(over),
        details=details,
        finding=_finding(run, ranks, bad, threshold)
        + (_prediction(simulated, gain, parameters["explained"]) if isinstance(simulated, WhatIf) and gain else ""),
        recommendation=_recommendation(run, ranks, bad[0]) if bad else None,
        cost=_cost(run, compared, ranks, bad, gain) if bad else None,
    )


def _persistent(compared: pl.DataFrame) -> set[int]:
    mean = pl.col("computation").mean().over(*STEP_KEY, "role")
    return persistent(compared.select(rank="process", relative=pl.col("computation") / mean - 1))


def _prediction(simulated: WhatIf, gain: Gain, threshold: float) -> str:
    saved = duration(simulated.step_ns * gain.percent / 100)
    return (
        f" A simulation with the durations of its peers saves {saved} of the mean step of {duration(simulated.step_ns)}; waits with another"
        f" reason remain. {explained(gain, threshold)}"
    )


def _finding(run: RunData, ranks: list[RankOverSteps], bad: list[RankOverSteps], threshold: float) -> str:
    worst = bad[0] if bad else max(ranks, key=lambda rank: (rank.over, rank.excess_percent))
    limit = f"threshold {threshold_text(threshold)}"
    peers = run.peers.of(run.peers.roles[worst.process]) if run.peers.pipeline else []
    if len(peers or ranks) == 2:  # the median is halfway between the two
        limit = f"{duration(2 * worst.excess_ns)} longer than the other; {limit}"
    text = (
        f"{worst.place} computes {duration(worst.excess_ns)} per step ({percent(worst.excess_percent)}) longer than the median of"
        f" {f'the {len(peers)} ranks with its work' if peers else f'{len(ranks)} ranks'} ({limit})"
    )
    often = f"and exceeds the threshold in {worst.steps_over} of {plural(worst.steps, 'step')}"
    if bad:
        also = f" {plural(len(bad) - 1, 'more rank is', 'more ranks are')} also slow." if len(bad) > 1 else ""
        waits = worst.waits_ns or 0.0
        hidden = _ALSO if waits > worst.excess_ns else ""
        return capitalized(f"{text} {often}. The others spend {duration(waits)} more per step in collectives{hidden}.{also}")
    if worst.over:
        wait = f"only {duration(worst.waits_ns)} more per step" if worst.waits_ns and worst.waits_ns > 0 else "no more time"
        return capitalized(f"{text} {often}, but the others spend {wait} in collectives: they do not wait for it.")
    return f"The rank that computes longest, {text.replace(' computes', ', computes', 1)}."


def _recommendation(run: RunData, ranks: list[RankOverSteps], worst: RankOverSteps) -> str:
    """Advise on the device if the same kernels take longer, else on the work."""
    waiting = sum(not rank.straggler for rank in ranks)
    why = f"{plural(waiting, 'rank waits', 'ranks wait')} for it"
    peers = set(run.peers.of(run.peers.roles[worst.process])) if run.peers.pipeline else {rank.process for rank in ranks}
    slower, longest = _slower(run.store, [rank.process for rank in ranks if not rank.over and rank.process in peers], worst.process)
    if slower is not None and 2 * slower >= worst.excess_percent:
        return (
            f"Check the clock, temperature and power of {place(worst.node, None, worst.device)}{_tools(run, worst)}, because {why} and its"
            f" kernels take {percent(slower)} longer than the same kernels of the other ranks.{_clock(run, ranks, worst)}"
        )
    more = f", most of all {longest}" if longest else ""
    return (
        f"Give {worst.place} as much work as the others (batches of equal length, shards of equal size, `DistributedSampler(...,"
        f" drop_last=True)`), because {why} and only some of its kernels take longer than theirs{more}."
    )


def _tools(run: RunData, worst: RankOverSteps) -> str:
    """Return the tools of the vendor of a rank's GPU, or nothing for another vendor."""
    gpu = next((device for device in run.devices if (device.node, device.index) == (worst.node, worst.device)), None)
    if gpu is not None and gpu.vendor == "AMD":
        return " with `amd-smi metric --clock --temperature --power` (`rocm-smi` before ROCm 6) and `rvs -c gst_single.conf`"
    if gpu is not None and gpu.name and gpu.vendor != "NVIDIA":
        return ""
    return " with `nvidia-smi -q -d CLOCK,TEMPERATURE,POWER,PERFORMANCE` and `dcgmi diag -r 3`"


def _clock(run: RunData, ranks: list[RankOverSteps], worst: RankOverSteps) -> str:
    """Return a sentence about the clock of a straggler's device, or nothing."""
    rows = {(row.node, row.device): row for row in run.usage.gpu_clocks}
    slow = rows.get((worst.node, worst.device))
    others = [rows[rank.node, rank.device].sm_clock_p50_mhz for rank in ranks if not rank.over and (rank.node, rank.device) in rows]
    clocks = [clock for clock in others if clock is not None]
    if slow is None:
        return ""
    text = ""
    if slow.sm_clock_p50_mhz is not None and clocks and slow.sm_clock_p50_mhz < SLOW_CLOCK * median(clocks):
        text = f" Its median SM clock is {slow.sm_clock_p50_mhz:,.0f} MHz, that of the others {median(clocks):,.0f} MHz."
    if slow.sampled_ns and slow.heat_ns:
        text += f" Heat slowed it down in {percent(100 * slow.heat_ns / slow.sampled_ns)} of the sampled time."
    return text


def _slower(store: Store, others: list[int], process: int) -> tuple[float | None, str | None]:
    """Return by how many percent the same kernels are slower on ``process``.

    They are the kernels that make up half of the time, compared with the median of the others (None if no kernel runs equally often on
    all). Also return the name of the kernel with the largest extra time."""
    kernels = store.frame(f"""
        SELECT e.process, coalesce(n.short, n.text, '') AS name, count(*) AS count, sum(e.duration_ns)::BIGINT AS time
        FROM device_run AS e LEFT JOIN name AS n ON n.id = e.name
        WHERE e.computation AND e.process IN ({", ".join(map(str, [*others, process]))})
        GROUP BY ALL
    """)
    time, typical = pl.col("time"), pl.col("typical")
    theirs = kernels.filter(pl.col("process") != process).group_by("name").agg(typical=time.median(), often=pl.col("count").median())
    compared = (
        kernels.filter(pl.col("process") == process).join(theirs, on="name", how="left").with_columns(more=time - typical.fill_null(0))
    )
    longest = compared.filter(pl.col("more") > 0).sort("more", "name", descending=[True, False]).head(1)["name"].to_list()
    same = compared.filter(pl.col("count") == pl.col("often"), typical > 0).with_columns(ratio=time / typical).sort("ratio", "name")
    if same.is_empty():
        return None, longest[0] if longest else None
    middle = same.filter(2 * typical.cum_sum() >= typical.sum())["ratio"][0]
    return 100 * (middle - 1), longest[0] if longest else None


def _cost(run: RunData, compared: pl.DataFrame, ranks: list[RankOverSteps], bad: list[RankOverSteps], gain: Gain | None) -> Cost:
    rank, _, gpu = bad[0].place.partition(", ")
    first = f"{rank} ({gpu})" if gpu else rank
    title = f"Inspect {first}" if len(bad) == 1 else f"Inspect {first} and {plural(len(bad) - 1, 'more rank')}"
    where = "; ".join(rank.place for rank in bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
    if gain is not None:
        return predicted_cost(run, title, gain.percent, where)
    slow = compared.filter(pl.col("process").is_in([rank.process for rank in bad]))
    per_step = slow.group_by(STEP_KEY).agg(pl.col("excess").max().clip(lower_bound=0))
    excess = round(per_step["excess"].sum())
    exposed = {(device.node, device.rank, device.pid, device.device): device.exposed_communication_ns for device in run.breakdown}
    waiting = [rank for rank in ranks if not rank.straggler]
    ns = sum(min(excess, exposed.get((rank.node, rank.rank, rank.pid, rank.device), 0)) for rank in waiting)
    steps = sum(rank.steps for rank in ranks)
    return Cost(
        title=title,
        ns=ns,
        of_ns=span_of_all(run),
        saving_ns=ns,
        per_step_ns=ns / steps if steps else None,
        where=where,
    )
