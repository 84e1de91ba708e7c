"""InputBound: steps and their recorded waits for data -> the share of its step time for which each process waits.

The waits are the data loading of the average step (:func:`..steps.steps`): ranges of the data loader, or annotated ranges with such a name.
A device may work during such a wait, so that the rule evaluates only runs without device activity; HostBound evaluates the others.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...causes.program import PYTORCH, base_framework
from ...efficiency.largest_site import Site
from ...report.steps import StepParts
from ...report.trace_details import InputBoundDetails, InputBoundProcess, LoaderSettings
from ...toolkit.labels import process_place
from ...toolkit.places import in_order
from ...toolkit.wording import duration, percent, plural, threshold_text
from ..evidence.base import Cost, Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.frameworks import LOAD_AHEAD, LOADERS
from ..evidence.run_data import RunData
from .dataloader import SETTINGS, cores_of

_BUSY_PERCENT: Final = 80.0  # mean of the cores from which on more workers would take time from each other
_RECORD: Final = "Record the training with `postrun record`, which finds steps and the waits of PyTorch's data loaders, or annotate both."
_LOADER_KEYS: Final = ("num_workers", "prefetch_factor")
_USED_GPU: Final = "SELECT EXISTS (FROM sample WHERE metric = 'gpu_utilization' AND value > 0) AS used"


class InputBound(Rule):
    name = "InputBound"
    category = "trace"
    of_training = True
    host_times = True
    parameters = (
        Parameter("threshold", "%", 20, 20, "percentile", "share of the time of a process's steps that may be waits for data"),
        Parameter("patience", "steps", 10, 10, "positive", "a process is evaluated if it has more steps than this"),
    )
    needs = "Training steps with their waits for data, in a run without device activity."
    checks = "Measures the share of the time of each process's steps that is waits for data."
    condition = "waits for data take more than `threshold` of the time of a process's steps; the process has more than `patience` steps"
    advice = "Load data in more processes and further ahead, or make preprocessing cheaper."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if run.breakdown:
            return not_evaluated("HostBound evaluates runs with device activity")
        if run.store.has_rows("sample") and run.store.frame(_USED_GPU).item():
            return not_evaluated("a GPU was in use, and whether it worked during the waits was not recorded", "Record GPU activity.")
        if not run.steps.steps:
            return not_evaluated("no steps in this run", _RECORD)
        parts = [part for part in run.steps.parts if part.typical and part.loading_ns]
        if not parts:
            return not_evaluated("no waits for data were recorded in the steps of this run", _RECORD)
        judged = [part for part in parts if part.steps > parameters["patience"]]
        if not judged:
            most = max(part.steps for part in parts)
            return not_evaluated(f"{most} of more than {parameters['patience']:g} steps needed", "Record more steps.")
        bad = [part for part in judged if _percent(part) > parameters["threshold"]]
        ordered = sorted(judged, key=lambda part: (in_order(part.node), part.rank or 0, part.pid or 0))
        rows = [_row(part, parameters) for part in ordered]
        worst = max(bad or judged, key=_percent)
        loader = _loader(run, worst)
        return concluded(
            bad,
            len(judged),
            details=InputBoundDetails(tuple(rows), loader),
            finding=_finding(bad, judged, worst, loader, parameters),
            recommendation=_recommendation(run, worst, loader) if bad else None,
            cost=_cost(bad, judged) if bad else None,
        )

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        loads = "SELECT process, tid, start_ns AS start, duration_ns AS ns FROM host_event WHERE kind = 'loader'"
        return run.site_of_waits(run.store.frame(loads))


def _percent(part: StepParts) -> float:
    return 100 * part.loading_ns / part.total_ns if part.mean_step_ns else 0.0


def _row(part: StepParts, parameters: Parameters) -> InputBoundProcess:
    return InputBoundProcess.of(
        part,
        steps_ns=round(part.total_ns),
        waiting_ns=round(part.loading_ns),
        percent=_percent(part),
        issue=_percent(part) > parameters["threshold"],
    )


def _loader(run: RunData, part: StepParts) -> LoaderSettings:
    """Return the settings of the process's largest loader and its node's cores.

    ``core_percent`` is the mean of the cores during the steps. None: not known."""
    node, process = next(
        (ids for ids in run.store.frame("SELECT DISTINCT node, process FROM step ORDER BY ALL").rows() if _is(run, part, *ids)),
        (None, None),
    )
    settings = run.store.frame(SETTINGS).filter(pl.col("num_workers").is_not_null(), pl.col("worker_id").is_null())
    of_process = settings.filter(pl.col("process").eq_missing(process)).sort("num_workers", descending=True)
    busy = run.store.frame(
        """
        WITH loop AS (SELECT min(host_start_ns) AS first, max(host_start_ns + host_duration_ns) AS last FROM step WHERE process = $2)
        SELECT avg(value) FROM sample, loop WHERE metric = 'cpu_utilization' AND node = $1 AND isfinite(value)
            AND time_ns BETWEEN first AND last
        """,
        [node, process],
    ).item()
    return LoaderSettings(
        **{key: of_process[key][0] if len(of_process) else None for key in (*_LOADER_KEYS, "pin_memory")},
        cores=cores_of(run.store, node) if node is not None else None,
        core_percent=busy,
        processes=sum(part.node == other.node for other in run.steps.parts),
    )


def _is(run: RunData, part: StepParts, node: int | None, process: int | None) -> bool:
    location = run.places.process(process, node)
    return (location.node, location.rank, location.pid) == (part.node, part.rank, part.pid)


def _finding(bad: list[StepParts], judged: list[StepParts], worst: StepParts, loader: LoaderSettings, parameters: Parameters) -> str:
    limit = threshold_text(parameters["threshold"])
    listed = ", ".join(f"{key}={setting}" for key in _LOADER_KEYS if (setting := getattr(loader, key)) is not None)
    settings = f"; its data loader has {listed}" if listed else ""
    if len(judged) == 1:
        return f"Waiting for data costs {_share(judged)} of step time ({percent(_percent(worst))}, threshold {limit}){settings}."
    most = f"most in {process_place(worst.node, worst.rank, worst.pid)}: {percent(_percent(worst))}{settings}"
    if not bad:
        return f"Waiting for data costs no process more than {limit} of its step time; {most}."
    share = percent(100 * sum(part.loading_ns for part in bad) / sum(part.total_ns for part in bad))
    return (
        f"Waiting for data costs {len(bad)} of {plural(len(judged), 'process', 'processes')} more than {limit} of step time,"
        f" {_share(bad)} in all ({share}); {most}."
    )


def _share(parts: list[StepParts]) -> str:
    return f"{duration(sum(part.loading_ns for part in parts))} of {duration(sum(part.total_ns for part in parts))}"


def _recommendation(run: RunData, worst: StepParts, loader: LoaderSettings) -> str:
    """Advise what the recording supports."""
    framework = base_framework(run.program)
    cores, workers, busy = loader.cores, loader.num_workers, loader.core_percent
    cheaper = "make preprocessing cheaper: decode and resize once and store the result, or do it for whole batches"
    if busy is not None and cores and busy >= _BUSY_PERCENT:
        at = f"its {plural(cores, 'core')} {'was' if cores == 1 else 'were'} busy for {percent(busy)} of the time"
        load = "This is the load of all programs on the node, not of the training alone."
        return f"On {worst.node}, {cheaper}. More loader processes cannot help, because {at}. {load}"
    if cores and workers is not None:
        wanted = max(1, cores // loader.processes)
        has = "the training process loads its data itself"
        if workers:
            has = f"{plural(workers, 'loader process feeds', 'loader processes feed')} the training process"
        if workers < wanted:
            setting = LOADERS.of(run.program if framework else PYTORCH).format(number=wanted)
            return f"Set {setting}: {has}, and {worst.node} has {plural(cores, 'core')}."
        factor = max(4, 2 * (loader.prefetch_factor or 2))
        settings = f"`prefetch_factor={factor}`, `persistent_workers=True`" if workers else f"`num_workers=1`, `prefetch_factor={factor}`"
        ahead = "" if framework not in (None, PYTORCH) else f"load further ahead ({settings}), or "
        return f"On {worst.node}, {ahead}{cheaper}. {has[0].upper()}{has[1:]} on {plural(cores, 'core')}, so more processes would not help."
    waits = f"{process_place(worst.node, worst.rank, worst.pid)} waits {duration(worst.loading_ns / worst.steps)} per step"
    return f"Load data ahead with {LOAD_AHEAD.of(run.program)}, because {waits}."


def _cost(bad: list[StepParts], judged: list[StepParts]) -> Cost:
    ns = round(sum(part.loading_ns for part in bad))
    return Cost(
        title="Shorten the waits for data",
        ns=ns,
        of_ns=round(sum(part.total_ns for part in judged)),
        saving_ns=ns,
        per_step_ns=ns / sum(part.steps for part in bad),
        where=process_place(bad[0].node, bad[0].rank, bad[0].pid) if len(bad) == 1 else None,
        base="time of the steps",
    )
