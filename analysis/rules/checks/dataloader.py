"""Dataloader: data loading processes of each node, compared with its cores."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import ClassVar, Final

import polars as pl

from ....ingest.store.store import Store
from ...report.loop_details import DataloaderDetails, LoaderConfiguration, LoadingNode, LoadingTimes
from ...report.rows import Histogram
from ...steps.part_ranges import LOADER_PHASE, OF_LOADER, OF_TRACE, recorded_once
from ...toolkit import wording
from ...toolkit.contents import kinds
from ...toolkit.intervals import outermost
from ...toolkit.quantiles import duration_histogram, quantile
from ..evidence.base import Category, Cost, Outcome, Parameter, Parameters, Rule, concluded, not_evaluated, required
from ..evidence.frameworks import LOADERS
from ..evidence.loading import WORTH_ADVICE_PERCENT
from ..evidence.run_data import RunData

SECOND_NS: Final = 1_000_000_000

_CORES: Final = "Record the job with `postrun record`, or system metrics with the hosted profiler: both name every core of the node."
_LOADER: Final = (
    "Profile with torch.profiler on CPU activity while a torch.utils.data.DataLoader is iterated, or with the hosted profiler's data loader"
    " profiling."
)
_WORKERS: Final = "Record the data loader's settings with the hosted profiler's data loader profiling."

# Every interval in which a data loader was at work or was waited for. source: "worker" (a loader process at work), "wait" (the training
# process waits for worker processes: does not show their number), "alone" (the training process loads itself: num_workers=0),
# "loader" (any other).
_INTERVALS: Final = f"""
    SELECT node, process, tid, start_ns AS start, start_ns + greatest(duration_ns, 1) AS "end", duration_ns AS duration,
        CASE WHEN phase = 'DataLoaderWorker' THEN 'worker' ELSE 'loader' END AS source,
        CASE WHEN phase = '{LOADER_PHASE}' THEN '{OF_LOADER}' END AS recorder
    FROM annotation WHERE phase IN ('DataLoaderIter', 'DataIterator', 'DataLoaderWorker') AND complete IS NOT FALSE
    UNION ALL
    SELECT h.node, h.process, h.tid, h.start_ns, h.start_ns + greatest(h.duration_ns, 1), h.duration_ns,
        CASE WHEN n.text LIKE '%MultiProcessingDataLoader%' THEN 'wait' WHEN n.text LIKE '%SingleProcessDataLoader%' THEN 'alone'
            ELSE 'loader' END, '{OF_TRACE}'
    FROM host_event AS h JOIN name AS n ON n.id = h.name WHERE h.kind = 'loader'
"""
SETTINGS: Final = """
    SELECT node, process, phase, (arguments->>'num_workers')::BIGINT AS num_workers, (arguments->>'pin_memory')::BOOLEAN AS pin_memory,
        (arguments->>'prefetch_factor')::BIGINT AS prefetch_factor, (arguments->>'worker_id')::BIGINT AS worker_id
    FROM annotation WHERE arguments IS NOT NULL
"""


class Dataloader(Rule):
    """Compares data loading processes of each node with its cores (docs/rules.md).

    Seconds are the whole seconds of the clock in which a loader interval was open. Time without loading lowers nothing: a loader that is
    seldom active counts as one. If not all training processes have a record of their loaders, the finding reports it."""

    name: ClassVar[str] = "Dataloader"
    category: ClassVar[Category] = "framework"
    of_training: ClassVar[bool] = True
    host_times: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("min_threshold", "% of cores", 70, 70, "positive", "smallest number of data loading processes, in percent of the cores"),
        Parameter("max_threshold", "% of cores", 200, 200, "positive", "largest number of data loading processes, in percent of the cores"),
        Parameter("patience", "1 s buckets", 10, 10, "positive", "a node is evaluated if it loads data in more than this many seconds"),
    )
    needs: ClassVar[str] = "Intervals of data loader processes, or `num_workers`, and the number of cores."
    checks: ClassVar[str] = "Compares the number of data loading processes of each node with its cores."
    condition: ClassVar[str] = (
        "the data loading processes of a node are fewer than `min_threshold` or more than `max_threshold` of its cores; the node"
        " loads data in more than `patience` seconds"
    )
    advice: ClassVar[str] = "Set `num_workers` of the data loaders to about the number of cores for each training process."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.store.has_rows("annotation") and "loader" not in kinds(run.store, "host_event"):
            return not_evaluated(_no_events(run), _LOADER)
        intervals, settings = _intervals(run.store), run.store.frame(SETTINGS)
        if intervals.is_empty() and settings.is_empty():
            return not_evaluated(_no_events(run), _LOADER)
        nodes = sorted(set(intervals["node"].drop_nulls()) | set(settings["node"].drop_nulls()))
        machines = [_machine(run, node, intervals, settings, parameters) for node in nodes]
        loading, histogram = _loading(intervals)
        keys = ["node", "pin_memory", "num_workers", "prefetch_factor"]
        counted = settings.filter(pl.any_horizontal(pl.col(keys[1:]).is_not_null())).group_by(keys).len("count").sort(keys)
        details = DataloaderDetails(
            nodes=tuple(machine.row for machine in machines),
            configurations=tuple(LoaderConfiguration(run.places.node(node), *row) for node, *row in counted.iter_rows()),
            loading=loading,
            histogram=histogram,
        )
        window = run.samples.windows_of(intervals["start"], parameters["scan_interval_us"])
        windows = intervals.select("node", "start", window=window)
        judged = [machine for machine in machines if machine.row.issue is not None]
        seconds = sum(int(machine.row.seconds) for machine in machines)
        number = windows["window"].n_unique()
        if not judged:
            reason, capture = _missing(machines, parameters)
            return not_evaluated(
                reason, capture, details=details, recommendation=_pin(run, settings, None), datapoints=seconds, windows=number
            )
        issues = [machine for machine in judged if machine.row.issue]
        of_issues = windows.filter(pl.col("node").is_in([machine.node for machine in issues]))
        return concluded(
            issues,
            seconds,
            [of_issues.select(pl.col("start").min(), last=pl.col("start").max()).row(0)],
            triggered=of_issues.select("node", "window").n_unique(),
            violations=sum(machine.row.seconds for machine in issues),
            windows=number,
            windows_triggered=of_issues["window"].n_unique(),
            details=details,
            finding=_finding(machines, parameters),
            recommendation=_recommendation(run, issues, settings, parameters),
            cost=_cost(run, issues, parameters) if issues else None,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Machine:
    """A node with data loaders. ``row``: as in the details. ``processes``: training processes that load data. ``why``: the reason for not
    evaluating it: "cores", "workers", "seconds" or None."""

    node: int
    row: LoadingNode
    processes: int
    why: str | None

    def wanted(self, *, fewer: bool) -> int:
        """Return the workers per training process for one loading process per core."""
        cores, processes = required(self.row.cores), max(1, self.processes)
        return cores // processes if fewer else math.ceil(cores / processes)


def _no_events(run: RunData) -> str:
    """Return the reason without loader events; annotated ranges show times at most."""
    known = [part for part in run.steps.parts if part.typical]
    waited = sum(part.loading_ns for part in known)
    if not waited:
        return "no data loader events in this run"
    share = wording.whole_percent(100 * waited / sum(part.total_ns for part in known))
    return (
        "no data loader events in this run: the annotated ranges show that data loading takes"
        f" {share} of the mean step (see Steps), but not how many processes load"
    )


def _intervals(store: Store) -> pl.DataFrame:
    """Return each load of the training processes once; workers have their own threads."""
    every = store.frame(_INTERVALS)
    worker = pl.col("source") == "worker"
    return pl.concat([every.filter(worker), recorded_once(every.filter(~worker))]).drop("recorder")


def _machine(run: RunData, node: int, intervals: pl.DataFrame, settings: pl.DataFrame, parameters: Parameters) -> _Machine:
    node_intervals = intervals.filter(pl.col("node") == node)
    configured = _configured(settings.filter(pl.col("node") == node), node_intervals)
    relevant = node_intervals.filter(pl.col("source") == "worker")
    relevant = relevant if len(relevant) else node_intervals.filter(pl.col("source") != "wait")
    peaks = seconds_of(relevant)
    seconds = len(peaks if len(relevant) == len(node_intervals) else seconds_of(node_intervals))
    cores = cores_of(run.store, node)
    training = set(run.store.frame("SELECT DISTINCT process FROM step WHERE node = ? AND process IS NOT NULL", [node])["process"])
    if configured:
        # Training processes run the same script: those whose loaders were not recorded count like those whose were.
        processes = len(training | configured.keys()) if None not in configured else len(configured)
        loaders: float | None = sum(max(1, workers) for workers in configured.values()) * processes / len(configured)
    else:
        loaders = float(statistics.median(peaks["loaders"])) if len(peaks) else None
        processes = len(training)
    percent = 100 * loaders / cores if loaders is not None and cores else None
    missing = {"cores": not cores, "workers": loaders is None and len(node_intervals), "seconds": seconds <= parameters["patience"]}
    why = next((name for name, lacks in missing.items() if lacks), None)
    issue = None if why or percent is None else not parameters["min_threshold"] <= percent <= parameters["max_threshold"]
    row = LoadingNode(
        node=run.places.node(node),
        cores=cores,
        loaders=loaders,
        source="num_workers" if configured else "overlap",
        percent_of_cores=percent,
        seconds=seconds,
        training_processes=processes,
        recorded_processes=len(configured) or None,
        issue=issue,
    )
    return _Machine(node, row, processes, why)


def _configured(settings: pl.DataFrame, intervals: pl.DataFrame) -> dict[int | None, int]:
    """Return ``num_workers`` by process; that of workers only if no other records it."""
    configured = settings.filter(pl.col("num_workers").is_not_null())
    worker = (pl.col("phase") == "DataLoaderWorker").fill_null(False) | pl.col("worker_id").is_not_null()
    main = configured.filter((pl.col("phase") == "DataLoaderIterInitialize").fill_null(False) | ~worker)
    if len(main):
        return dict(main.group_by("process").agg(pl.col("num_workers").max()).rows())
    if len(configured):
        return {None: int(configured.select(pl.col("num_workers").max()).item())}
    alone = intervals.filter(pl.col("source") == "alone")["process"].unique().sort()
    others = intervals.filter(pl.col("source") != "alone")
    return dict.fromkeys(alone.to_list(), 0) if len(alone) and others.is_empty() else {}


def seconds_of(intervals: pl.DataFrame) -> pl.DataFrame:
    """Return the most intervals (process, tid, start, end) open at once, per second.

    Columns ``second`` (of the clock) and ``loaders``. Intervals inside another interval of the same thread are not counted."""
    start, end = pl.col("start"), pl.col("end")
    outer = outermost(intervals, ["process", "tid"])
    points = pl.concat([outer.select(time=start, change=pl.lit(1)), outer.select(time=end, change=pl.lit(-1))])
    spans = (
        points.group_by("time")
        .agg(pl.col("change").sum())
        .sort("time")
        .select(start="time", end=pl.col("time").shift(-1), loaders=pl.col("change").cum_sum())
        .filter(pl.col("loaders") > 0)
    )
    return (
        spans.select("loaders", second=pl.int_ranges(start // SECOND_NS, (end - 1) // SECOND_NS + 1))
        .explode("second")
        .group_by("second")
        .agg(pl.col("loaders").max())
        .sort("second")
    )


def cores_of(store: Store, node: int) -> int | None:
    """Return the cores of a node from its source, else those with samples."""
    cores = store.frame(
        """
        SELECT coalesce(max(n.cores), nullif(count(DISTINCT s.unit), 0)) FROM node AS n
        LEFT JOIN sample AS s ON s.node = n.id AND s.metric = 'cpu_utilization' WHERE n.id = ?
        """,
        [node],
    ).item()
    return int(cores) if cores else None


def _loading(intervals: pl.DataFrame) -> tuple[LoadingTimes, Histogram | None]:
    """Return loading times of the training processes, else those of the workers."""
    training = intervals.filter(pl.col("source") != "worker")
    ordered = (training if len(training) else intervals)["duration"].drop_nulls().sort().rechunk()
    empty = ordered.is_empty()
    times = LoadingTimes(
        count=len(ordered),
        **{f"p{percent}_ns": None if empty else quantile(ordered, percent / 100) for percent in (25, 50, 95)},
        max_ns=None if empty else int(ordered[-1]),
        total_ns=int(ordered.sum()),
    )
    return times, duration_histogram(ordered)


def _missing(machines: Sequence[_Machine], parameters: Parameters) -> tuple[str, str]:
    """Return why no node was evaluated, and which capture would help."""
    reasons = {machine.why for machine in machines}
    if "seconds" in reasons:
        most = max(machine.row.seconds for machine in machines if machine.why == "seconds")
        patience = parameters["patience"]
        needed = wording.plural(int(patience), "second") if patience == int(patience) else f"{patience:g} seconds"
        return (
            f"{wording.count(most)} of more than {needed} with data loading needed",
            "Record more of the job, or lower Dataloader_patience.",
        )
    if "workers" in reasons:
        return "the trace has the waits for loader workers, but not how many there are (num_workers)", _WORKERS
    return "the number of cores of the node is unknown", _CORES


def _loaders(machine: _Machine) -> str:
    row = machine.row
    number = f"{row.loaders:g} data loading process{'' if row.loaders == 1 else 'es'}"
    how = "num_workers" if row.source == "num_workers" else "median of the overlapping loader intervals per second"
    if row.recorded_processes and row.recorded_processes < row.training_processes:
        how += f" of {row.recorded_processes} of {row.training_processes} training processes, assumed for all"
    return f"{number} ({how}) on {wording.plural(required(row.cores), 'core')} of {row.node}"


def _worst(machines: Sequence[_Machine], parameters: Parameters) -> _Machine:
    """Return the node with the fewest loaders per core, or most if all have too many."""
    ordered = sorted(machines, key=lambda machine: required(machine.row.percent_of_cores))
    return ordered[-1] if _too_many(ordered[0], parameters) else ordered[0]


def _too_many(machine: _Machine, parameters: Parameters) -> bool:
    return bool(machine.row.percent_of_cores > parameters["max_threshold"])


def _finding(machines: Sequence[_Machine], parameters: Parameters) -> str:
    evaluated = [machine for machine in machines if machine.row.issue is not None]
    issues = [machine for machine in evaluated if machine.row.issue]
    low, high = wording.threshold_text(parameters["min_threshold"]), wording.threshold_text(parameters["max_threshold"])
    worst = _worst(issues or evaluated, parameters)
    percent = required(worst.row.percent_of_cores)
    if not issues:
        compared = f"between the thresholds of {low} and {high}"
    elif percent < parameters["min_threshold"]:
        compared = f"below the threshold of {low}"
    else:
        compared = f"above the threshold of {high}"
    others = f"; {len(issues)} of {wording.plural(len(evaluated), 'node')} are outside of the thresholds" if len(issues) > 1 else ""
    left = len(machines) - len(evaluated)
    short = f"; {wording.plural(left, 'node')} could not be evaluated" if left else ""
    return f"{_loaders(worst)} make {wording.percent(percent)} of the cores, {compared}{others}{short}."


def _recommendation(run: RunData, issues: Sequence[_Machine], settings: pl.DataFrame, parameters: Parameters) -> str | None:
    if not issues:
        return _pin(run, settings, None)
    worst = _worst(issues, parameters)
    row, fewer = worst.row, _too_many(worst, parameters)
    of_each = f" for each of the {worst.processes} training processes" if worst.processes > 1 else ""
    cores = f"{wording.plural(required(row.cores), 'core')} of {row.node}"
    if fewer:
        why = f"{row.loaders:g} loading processes share the {cores}"
    else:
        why = f"no more than {row.loaders:g} of the {cores} load data at a time"
    loading = _waited(run, [worst])
    if run.loading_percent is not None and run.loading_percent < WORTH_ADVICE_PERCENT:
        leave = "Leave the number of loader processes as it is unless the cores are needed elsewhere"
        return _pin(run, settings, f"{leave}: waits for data take {wording.percent(run.loading_percent)} of the steps.")
    if loading is not None:
        why += f", and the average step waits {wording.duration(loading[2])} for data"
    knob = LOADERS.of(run.program).format(number=worst.wanted(fewer=fewer))
    return _pin(run, settings, f"Set {knob}{of_each}: {why}.")


def _pin(run: RunData, settings: pl.DataFrame, text: str | None) -> str | None:
    """Append advice on pin_memory=False to ``text`` if there are GPUs to copy to."""
    if not run.devices or settings.is_empty() or not settings.select((~pl.col("pin_memory")).any()).item():
        return text
    number = settings.filter(~pl.col("pin_memory")).height
    pinned = (
        f"Set `pin_memory=True`: {wording.plural(number, 'data loader')} {'was' if number == 1 else 'were'} started with pin_memory=False,"
        " and copies from pageable memory cannot overlap with computation."
    )
    return f"{text} {pinned}" if text else pinned


def _waited(run: RunData, machines: Sequence[_Machine]) -> tuple[float, float, float] | None:
    """Return the steps' waits for data, their time, and the mean wait, or None."""
    nodes = {machine.row.node for machine in machines}
    parts = [part for part in run.steps.parts if part.node in nodes and part.typical]
    steps = sum(part.steps for part in parts)
    waited = sum(part.loading_ns for part in parts)
    return (waited, sum(part.total_ns for part in parts), waited / steps) if waited else None


def _cost(run: RunData, issues: Sequence[_Machine], parameters: Parameters) -> Cost | None:
    waited = _waited(run, issues)
    if waited is None:
        return None
    title = f"Load data with {'fewer' if _too_many(_worst(issues, parameters), parameters) else 'more'} processes"
    if run.loading_percent is not None and run.loading_percent < WORTH_ADVICE_PERCENT:
        title = "Check the number of loader processes"
    return Cost(
        title=title,
        ns=round(waited[0]),
        of_ns=round(waited[1]),
        saving_ns=round(waited[0]),
        per_step_ns=waited[2],
        where=issues[0].row.node if len(issues) == 1 else None,
        base="time of the steps",
    )
