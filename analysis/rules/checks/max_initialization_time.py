"""MaxInitializationTime: the time that the job ran before its first training step."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Final

import polars as pl

from ...causes.program import PYTORCH, TORCH_COMPILE, base_framework
from ...framework.framework import COLLECTIVE_NAME, COLLECTIVE_PHASE
from ...report.detail_rows import Active
from ...report.loop_details import MaxInitializationTimeDetails
from ...report.rules import FINE
from ...run.job_statistics import job_times
from ...toolkit import wording
from ...toolkit.intervals import union
from ...toolkit.names import base_name
from ..evidence.active_during import active_during
from ..evidence.base import Category, Cost, Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.frameworks import COMPILED
from ..evidence.run_data import RunData

_MINUTE_NS: Final = 60_000_000_000
_FIRST_EPOCH_NS: Final = 10**18  # times before 2001-09-09 count from an anchor, not from the epoch; they cannot be set against ones that do

_LATE_NS: Final = 10**9  # a program that records from its start begins up to this late, after its interpreter and imports

# Ranges of a source without information on steps: data loading and collectives, as frameworks record them.
_LOADING_PHASE: Final = "^(DataLoader|DataIterator)"
_BESIDE_STEPS: Final = (
    r"^enumerate\(DataLoader\)|(?i)^([nhx]ccl|gloo|mpi|c10d|record_param_comms)"
    r"|^[0-9]+$|^(CYCLE_START|QUEUE|WAIT_FOR_(OTHER_TENSOR_)?DATA|MEMCPY_(IN|OUT)_FUSION_BUFFER)$"
)
_OTHERS: Final = """
    WITH named AS (
        SELECT a.process, a.phase, n.text, a.start, a."end" FROM (
            SELECT process, phase, name, min(start_ns) AS start, max(start_ns + duration_ns) AS "end"
            FROM annotation WHERE side = 'host' AND complete IS NOT FALSE AND duration_ns IS NOT NULL GROUP BY ALL
        ) AS a JOIN name AS n ON n.id = a.name
    ),
    -- Horovod names a phase by its tensor, whose ranges are all of one collective.
    tensor AS (SELECT DISTINCT process, phase FROM named WHERE phase IS NOT NULL AND regexp_matches(text, $4))
    SELECT process, min(start) AS start, max("end") AS "end" FROM named
    WHERE NOT regexp_matches(text, $4) AND NOT regexp_matches(text, $3)
        AND NOT regexp_matches(coalesce(phase, ''), $1) AND NOT regexp_matches(coalesce(phase, ''), $2)
        AND NOT EXISTS (FROM tensor AS t WHERE t.phase = named.phase AND t.process IS NOT DISTINCT FROM named.process)
    GROUP BY process
"""
_WATCHED: Final = 'SELECT process, first_ns AS start, last_ns AS "end" FROM {} WHERE first_ns IS NOT NULL AND last_ns IS NOT NULL'

_RELATIVE: Final = "the steps' times count from an anchor and cannot be set against the rest of the run"
_NO_STEPS: Final = "no step annotations in this run"
_NEVER_STEPS: Final = f"{_NO_STEPS}, whose ranges are of collectives and data loading alone"
_STEPS: Final = (
    "Record the job from its start, with step() of the profiler once per training step or steps annotated as step_0, step_1 and so on."
)


_ONE_RUN: Final = "Give the files of one run; see Data quality."
_DIFFERENT_TIMES: Final = "the files are from different times, so the start of the job is not known"


class MaxInitializationTime(Rule):
    """The time from the start of the job to the start of the first step of any process (docs/rules.md).

    First and last time: when the threshold was passed, and when the first step began."""

    name: ClassVar[str] = "MaxInitializationTime"
    category: ClassVar[Category] = "framework"
    of_training: ClassVar[bool] = True
    host_times: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("threshold", "minutes", 20, 20, "positive", "longest time from the start of the job to its first step"),
    )
    needs: ClassVar[str] = "Step annotations, in a capture that began with the job."
    checks: ClassVar[str] = "Measures the time from the start of the job to the start of the first training step."
    condition: ClassVar[str] = "the first step begins more than `threshold` minutes after the start of the job"
    advice: ClassVar[str] = "Move downloads, preprocessing and compilation out of the job, or cache them."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        threshold = parameters["threshold"] * _MINUTE_NS
        if not run.store.has_rows("step"):
            return self._without_steps(run, threshold)
        steps = run.store.frame('SELECT host_start_ns AS start, "index" AS number FROM step WHERE host_start_ns IS NOT NULL')
        if steps.is_empty():
            return self._without_steps(run, threshold)
        if run.job.apart_ns:
            return not_evaluated(_DIFFERENT_TIMES, _ONE_RUN, details=_details(run, None, None))
        started = run.job.started_at_ns
        if started is not None and started >= _FIRST_EPOCH_NS:
            steps = steps.filter(pl.col("start") >= _FIRST_EPOCH_NS)
            if steps.is_empty():
                return not_evaluated(_RELATIVE, _STEPS, details=_details(run, None, None))
        first, number = steps.sort("start", "number").row(0)
        began = first if started is None else min(started, first)
        initialization = first - began
        details = _details(run, initialization, number)
        captured = _captured(run)
        if captured and initialization <= threshold:
            if (late := _late(run)) > _LATE_NS:
                reason = f"the recording began {wording.duration(late)} after the program: what came before it is not known"
                return not_evaluated(reason, _STEPS, details=details)
            if number is not None and number > 1:
                reason = f"only a window of the job was captured, from step {number} on: what came before it is not known"
                return not_evaluated(reason, _STEPS, details=details)
            if initialization == 0:
                return not_evaluated("nothing before the first step was captured", _STEPS, details=details)
        issue = initialization > threshold
        longest = wording.duration(threshold)
        compared = f"more than the threshold of {longest}" if issue else f"within the threshold of {longest}"
        since = "capture" if captured else "job"
        finding = f"The first step began {wording.duration(initialization)} after the start of the {since}, {compared}"
        if captured:
            finding += "; what the job did before the capture is not known"
        if not issue:
            return Outcome(FINE, datapoints=1, windows=1, details=details, finding=f"{finding}.")
        if run.store.frame("SELECT EXISTS (FROM ingest_note WHERE code = 'several_runs') AS found").item():
            reason = f"the files may not be of one run: {wording.duration(initialization)} before the first step may lie between two"
            return not_evaluated(reason, _ONE_RUN, details=details)
        active = active_during(run.store, pl.DataFrame({"start": [began], "end": [first]}), run.top)
        return _issue(run, dataclasses.replace(details, active=active), f"{finding}.", initialization, began + round(threshold), first)

    def _without_steps(self, run: RunData, threshold: float) -> Outcome:
        details = _details(run, None, None)
        if not run.annotations.groups:
            return not_evaluated(_NO_STEPS, _STEPS, details=details)
        watched = _watched(run)
        if watched is None:
            return not_evaluated(_NEVER_STEPS, _STEPS, details=details)
        began, ended = watched
        longest = wording.duration(threshold)
        if ended - began <= threshold:
            reason = f"{_NO_STEPS}, whose ranges were recorded for {wording.duration(ended - began)}, not longer than {longest}"
            return not_evaluated(reason, _STEPS, details=details)
        finding = (
            f"The run has annotations but no step in the {wording.duration(ended - began)} for which they were recorded, more than the"
            f" threshold of {longest} for the first one."
        )
        return _issue(run, details, finding, ended - began, began + round(threshold), ended)


def _watched(run: RunData) -> tuple[int, int] | None:
    """Return the longest stretch in which steps would have been recorded, or None.

    A process was watched while it was profiled or recorded; if that is not known, from its first range to its last. None: no process has
    ranges that show steps."""
    patterns = (COLLECTIVE_PHASE, _LOADING_PHASE, _BESIDE_STEPS, COLLECTIVE_NAME)
    ranges = run.store.frame(_OTHERS, patterns)
    if ranges.is_empty():
        return None
    watched = pl.concat([run.store.frame(_WATCHED.format(table)) for table in ("recorded_window", "profile_window")])
    watched = watched.join(ranges, on="process", how="semi", nulls_equal=True)
    rest = ranges.join(watched, on="process", how="anti", nulls_equal=True)
    stretches = union(pl.concat([watched, rest.select(watched.columns)]), ["process"])
    if stretches.is_empty():
        return 0, 0
    first, last = stretches.sort(pl.col("end") - pl.col("start"), descending=True, maintain_order=True).select("start", "end").row(0)
    return first, last


def _captured(run: RunData) -> bool:
    """Return whether the start of the job itself is unknown."""
    return job_times(run.store)[0] is None and (run.job.captured_only or not run.samples.metrics)


def _late(run: RunData) -> int:
    """Return how late (ns) the processes with steps began to record; 0 if unknown."""
    late = run.store.frame("""
        SELECT min(first_ns) - min(process_started_ns) FROM recorded_window
        WHERE process_started_ns IS NOT NULL AND process IN (SELECT process FROM step)
    """).item()
    return int(late or 0)


def _details(run: RunData, initialization: int | None, number: int | None) -> MaxInitializationTimeDetails:
    job = run.job
    percent = job.initialization_percent
    if percent is None and initialization is not None and job.duration_ns:
        percent = 100 * initialization / job.duration_ns
    return MaxInitializationTimeDetails.of(
        job,
        started_ns=job.started_at_ns,
        ended_ns=job.ended_at_ns,
        initialization_ns=initialization,
        initialization_percent=percent,
        steps=initialization is not None,
        first_step=number,
        measured_from="start of the capture" if _captured(run) else "start of the job",
    )


def _issue(run: RunData, details: MaxInitializationTimeDetails, finding: str, lost: int, first: int, last: int) -> Outcome:
    gpus = len([device for device in run.devices if device.used]) or len(run.devices) or sum(node.gpus or 0 for node in run.nodes)
    duration = max(run.job.duration_ns or 0, lost)
    held = f"held {wording.plural(gpus, 'GPU')} for" if gpus else "took"
    spent = f", most of it in {name}" if (name := _most(run, details.active, last, lost)) else ""
    share = wording.percent(100 * lost / duration) if duration else "all"
    return concluded(
        [lost],
        1,
        [(first, last)],
        details=details,
        finding=finding,
        recommendation=(
            f"{_advice(run)}: the time {'before the first' if details.steps else 'without a'} step {held} {wording.duration(lost)},"
            f" {share} of the run{spent}."
        ),
        cost=Cost(
            title="Begin the first step earlier",
            ns=lost * max(1, gpus),
            of_ns=duration * max(1, gpus),
            saving_ns=lost * max(1, gpus),
            base="GPU time of the run" if gpus else "duration of the run",
        ),
    )


def _advice(run: RunData) -> str:
    """Advise on compiled code only if the program can have compiled some."""
    move = "Move downloads and preprocessing out of the job"
    eager = base_framework(run.program) == PYTORCH and TORCH_COMPILE not in run.program.frameworks
    return move if eager and run.kernels else f"{move} and keep compiled code between jobs ({COMPILED.of(run.program)})"


def _most(run: RunData, active: Active | None, first_step: int, lost: int) -> str | None:
    """Return the range that covers more than half of the time before the first step."""
    if not active or not active.annotations:
        return None
    rows = run.store.frame(
        """
        SELECT n.text, greatest(a.start_ns, ?) AS start, least(a.start_ns + a.duration_ns, ?) AS "end"
        FROM annotation AS a JOIN name AS n ON n.id = a.name
        WHERE a.side = 'host' AND a.complete IS NOT FALSE AND a.start_ns < ? AND a.start_ns + a.duration_ns > ?
        """,
        [first_step - lost, first_step, first_step, first_step - lost],
    )
    name = active.annotations[0].name
    covered = union(rows.filter(base_name(pl.col("text")) == name)).select((pl.col("end") - pl.col("start")).sum()).item()
    return name if 2 * int(covered or 0) > lost else None
