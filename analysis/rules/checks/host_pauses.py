"""HostPauses: garbage collection, checkpoints and late hosts that leave devices without work (docs/rules.md).

Garbage collection and checkpoints are known by their names. Other pauses count if the device of one rank waits for its host while its peers
wait for that rank in collectives; what the host did is named only if the trace records it.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...causes.pauses import CHECKPOINT, GARBAGE, host_pauses
from ...causes.what_if import WhatIf
from ...report.cause_details import HostPause, HostPausesDetails
from ...report.rules import ISSUES
from ...toolkit.intervals import union
from ...toolkit.wording import duration, percent, plural, threshold_text
from ..evidence.base import Cost, Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.device_share import no_device_activity, span_of_all
from ..evidence.idle_during import idle_during
from ..evidence.predicted import predicted_cost, ranks_in_words
from ..evidence.run_data import RunData

LATE: Final = "late host"
_CAPTURE: Final = 'Profile with `with_stack=True`, or mark them with `torch.profiler.record_function("gc")`.'
_ADVICE: Final = {
    GARBAGE: (
        "Call `gc.disable()` after the setup and `gc.collect()` on all ranks every few hundred steps, so that the ranks do not pause at"
        " different times (Megatron-LM: `--manual-gc`)"
    ),
    CHECKPOINT: "Save checkpoints in the background (`torch.distributed.checkpoint.async_save`), or less often",
}


class HostPauses(Rule):
    name = "HostPauses"
    category = "trace"
    parameters = (
        Parameter("threshold", "%", 2, 2, "percentile", "share of the devices' time that pauses of the host may leave without work"),
    )
    needs = (
        "A profiler trace with the activity of the GPUs, and either ranges or stacks that name the pauses or traces of several ranks with"
        " steps."
    )
    explains = ("HostBound", "LowGPUUtilization", "StepOutlier", "ExposedCommunication")
    checks = "Finds garbage collection, checkpoints and late hosts of single ranks that leave devices without work."
    condition = (
        "devices are idle for more than `threshold` of their time during garbage collection and checkpoints; or a step would take over"
        " `threshold` less without these pauses, by simulation; or ranks whose host is late in at least two steps, and the ranks that"
        " wait for them, lose more than `threshold` of the time of all devices"
    )
    advice = "Collect garbage on all ranks at the same step, save checkpoints in the background, and log on all ranks alike."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        pauses = host_pauses(run.store)
        named = None if pauses.is_empty() else _outcome(run, pauses, parameters["threshold"])
        if named is not None and named.verdict == ISSUES:
            return named
        late = _late_outcome(run, parameters["threshold"])
        if late is not None:
            return late
        if named is None:
            return not_evaluated("no range or function in this run is named as garbage collection or as a checkpoint", _CAPTURE)
        return named


def _outcome(run: RunData, pauses: pl.DataFrame, threshold: float) -> Outcome:
    idle = idle_during(run, pauses)
    length = pl.col("end") - pl.col("start")
    counted = pauses.group_by("process", "name", "kind").agg(count=pl.len(), time=length.sum())
    idle_of = idle.group_by("process", "name", "kind").agg(idle=length.sum())
    rows = counted.join(idle_of, on=["process", "name", "kind"], how="left").with_columns(pl.col("idle").fill_null(0))
    rows = rows.sort("idle", "time", "process", "name", descending=[True, True, False, False])
    pairs = union(idle.select("process", "device", "start", "end"), ["process", "device"])
    total, idle_ns = span_of_all(run), int(pairs.select(length.sum()).item())
    share = 100 * idle_ns / total if total else 0.0
    top = tuple(
        HostPause(*run.places.process(process), name, kind, count, time, idle_time)
        for process, name, kind, count, time, idle_time in rows.head(run.top).iter_rows()
    )
    details = HostPausesDetails(top, idle_ns, share)
    kinds = rows.group_by("kind").agg(pl.col("idle").sum()).sort("idle", "kind", descending=[True, False])["kind"].to_list()
    processes = rows.filter(pl.col("idle") > 0)["process"].unique().to_list()
    ranked = all(run.places.process(process).rank is not None for process in processes)
    where = ranks_in_words(run, processes) if processes and ranked else None
    text = (
        f"During {' and '.join(kinds)} on the host, devices of {where or plural(len(processes), 'process', 'processes')} had no work for"
        f" {duration(idle_ns)}, {percent(share)} of the time of all devices (threshold {threshold_text(threshold)})."
    )
    simulated = run.what_if
    gain = simulated.gain_of_pauses() if isinstance(simulated, WhatIf) else None
    if not share > threshold and not (gain is not None and gain > threshold):
        return concluded((), int(rows["count"].sum()), details=details, finding=text)
    title = "Pause all ranks together, or none" if kinds[0] == GARBAGE else "Save checkpoints in the background"
    if gain is not None and gain > 0:
        text += f" Without the pauses, a step takes {percent(gain)} less by simulation, because the other ranks wait for them."
        cost = predicted_cost(run, title, gain, where)
    else:
        cost = Cost(title, idle_ns, total, idle_ns, where=where)
    return concluded(
        list(top),
        int(rows["count"].sum()),
        [idle.select(pl.col("start").min(), pl.col("end").max()).row(0)],
        details=details,
        finding=text,
        recommendation="; ".join(_ADVICE[kind] for kind in kinds) + ".",
        cost=cost,
    )


def _late_outcome(run: RunData, threshold: float) -> Outcome | None:
    """Return the finding on ranks whose host is late, or None."""
    late = run.late_hosts
    if late.is_empty():
        return None
    total = span_of_all(run)
    idle, ns = int(late["idle"].sum()), int(late.select(pl.col("idle").sum() + pl.col("waiting").sum()).item())
    if not 100 * ns > threshold * total:
        return None
    processes = late["process"].to_list()
    frames = [_frame(run, process) for process in processes]
    top = tuple(
        HostPause(*run.places.process(process), frame or "nothing recorded", LATE, steps, row_idle, row_idle)
        for (process, steps, row_idle), frame in zip(late.select("process", "steps", "idle").iter_rows(), frames, strict=True)
    )
    who, frame = ranks_in_words(run, processes), frames[0]
    text = (
        f"The host of {ranks_in_words(run, processes[:1])} launched late in {plural(late['steps'][0], 'step')}. Its device was idle for"
        f" {duration(late['idle'][0])} longer than those of its peers, and the other ranks waited {duration(late['waiting'][0])} for it in"
        f" collectives. Together these are {percent(100 * ns / total)} of the time of all devices (threshold {threshold_text(threshold)})."
    )
    if len(processes) > 1:
        text += f" The hosts of {who} were late."
    text += f" Meanwhile the host ran `{frame}`." if frame else " The trace records no activity of the host at that time."
    title = f"Shorten the host's work on {who}" if frame else f"Record what delays the host of {who}"
    return concluded(
        list(top),
        int(late["steps"].sum()),
        [late.select(pl.col("first").min(), pl.col("last").max()).row(0)],
        details=HostPausesDetails(top, idle, 100 * idle / total if total else 0.0),
        finding=text,
        recommendation=_advice(who, frame),
        cost=Cost(title, ns, total, ns, where=who),
    )


def _advice(who: str, frame: str | None) -> str:
    if frame:
        return (
            f"Shorten `{frame}` on {who}, or run it less often or on another thread, because the other ranks wait for {who} in the next"
            " collective."
        )
    return (
        f"Profile {who} with `with_stack=True`, with ranges (`torch.profiler.record_function`) around logging, checkpoints and evaluation,"
        " and with a range in `gc.callbacks`. `py-spy dump --pid PID` and the CPU load of the node show causes outside of the program."
        " The device has no work at that time, so neither its clock nor its kernels are the cause."
    )


def _frame(run: RunData, process: int) -> str | None:
    """Return what the host ran in most of the longest gaps of a process."""
    at = run.places.process(process)
    gaps = [gap for gap in run.longest_gaps if (gap.node, gap.rank) == (at.node, at.rank) and 2 * (gap.host_ns or 0) >= gap.duration_ns]
    times: dict[str, int] = {}
    for gap in gaps:
        if gap.frame:
            times[gap.frame] = times.get(gap.frame, 0) + gap.duration_ns
    name = max(times, key=lambda frame: times[frame], default=None)
    return name if name and 2 * times[name] > sum(gap.duration_ns for gap in gaps) else None
