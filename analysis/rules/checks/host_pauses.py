"""HostPauses: garbage collection and checkpoints that leave devices without work (docs/rules.md)."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...causes.pauses import CHECKPOINT, GARBAGE, host_pauses
from ...causes.what_if import WhatIf
from ...report.cause_details import HostPause, HostPausesDetails
from ...toolkit.intervals import intersection, union
from ...toolkit.wording import duration, percent, plural
from ..evidence.base import Cost, Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.device_share import no_device_activity, span_of_all
from ..evidence.predicted import predicted_cost
from ..evidence.run_data import RunData

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
    needs = "A profiler trace with the activity of the GPUs, in which ranges or stacks name garbage collection or checkpoints."
    explains = ("HostBound", "LowGPUUtilization", "StepOutlier", "ExposedCommunication")
    checks = "Whether garbage collection or checkpoints on the host leave devices without work."
    condition = "idle time of devices during garbage collection and checkpoints of their processes > threshold of the devices' time"
    advice = "Collect garbage on all ranks at the same step, and save checkpoints in the background."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        pauses = host_pauses(run.store)
        if pauses.is_empty():
            return not_evaluated("no range or function in this run is named as garbage collection or as a checkpoint", _CAPTURE)
        return _outcome(run, pauses, parameters["threshold"])


def _outcome(run: RunData, pauses: pl.DataFrame, threshold: float) -> Outcome:
    idle = _idle(run, pauses)
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
    processes = rows.filter(pl.col("idle") > 0)["process"].n_unique()
    text = (
        f"During {' and '.join(kinds)} on the host, devices of {plural(processes, 'process', 'processes')} had no work for"
        f" {duration(idle_ns)}, {percent(share)} of their time (threshold {percent(threshold)})."
    )
    simulated = run.what_if
    gain = simulated.gain_of_pauses() if isinstance(simulated, WhatIf) else None
    if not share > threshold and not (gain is not None and gain.percent > threshold):
        return concluded((), int(rows["count"].sum()), details=details, finding=text)
    title = "Pause all ranks together, or none" if kinds[0] == GARBAGE else "Save checkpoints in the background"
    if gain is not None and gain.percent > 0:
        text += f" Without the pauses, a step takes {percent(gain.percent)} less by simulation, because the other ranks wait for them."
        cost = predicted_cost(run, title, gain, None)
    else:
        cost = Cost(title, idle_ns, total, idle_ns)
    return concluded(
        list(top),
        int(rows["count"].sum()),
        [idle.select(pl.col("start").min(), pl.col("end").max()).row(0)],
        details=details,
        finding=text,
        recommendation="; ".join(_ADVICE[kind] for kind in kinds) + ".",
        cost=cost,
    )


def _idle(run: RunData, pauses: pl.DataFrame) -> pl.DataFrame:
    """Return the gaps of devices within pauses of their processes.

    Columns: process, device (number in its group), start, end, name, kind."""
    parts = []
    key = ["process", "name", "kind"]
    for group in run.gaps.groups():
        users = group.rows().with_columns(pl.col("process").cast(pl.Int64))
        gaps = group.gaps.select("row", "start", "end").join(users, on="row")
        for (row, name, kind), part in pauses.join(users, on="process").group_by("row", "name", "kind"):
            of_device = gaps.filter(pl.col("row") == row)
            within = intersection(of_device.select("process", "start", "end"), part.select("process", "start", "end"), ["process"])
            parts.append(
                within.with_columns(device=pl.lit(row, pl.Int64), name=pl.lit(name), kind=pl.lit(kind)).select(
                    *key, "device", "start", "end"
                )
            )
    empty = pl.DataFrame(
        schema={"process": pl.Int64, "name": pl.String, "kind": pl.String, "device": pl.Int64, "start": pl.Int64, "end": pl.Int64}
    )
    return pl.concat([empty, *(part.cast(empty.schema) for part in parts)])
