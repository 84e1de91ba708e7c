"""ShortKernels: short kernels whose preceding gaps take a large part of the time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import polars as pl

from ...device.device_gaps import GapGroup, IdleDevice
from ...efficiency.largest_site import Site
from ...report.trace_details import ShortKernel, ShortKernelsDetails, ShortKernelsDevice
from ...toolkit.wording import count, duration, percent, plural, significant, threshold_text
from ..evidence.base import Outcome, Parameter, Parameters, Rule, not_evaluated, required
from ..evidence.device_share import BASE, gpus, no_device_activity
from ..evidence.fusion_advice import FUSED, FUSED_OPTIMIZER
from ..evidence.idle_findings import Judged, looked_at, names, outcome, with_issue
from ..evidence.run_data import RunData

_Judged = list[Judged[ShortKernelsDevice]]
_FUSED: Final = re.compile(
    r"fused_?(adam|sgd|adagrad|lamb)|(adam|sgd|adagrad)functor|lambstage", re.IGNORECASE
)  # kernels of fused optimizers


class ShortKernels(Rule):
    name = "ShortKernels"
    category = "trace"
    host_times = True
    parameters = (
        Parameter("short_us", "µs", 10, 10, "positive", "a kernel run shorter than this is short"),
        Parameter("count_threshold", "%", 50, 50, "percentile", "share of a device's kernel runs that may be short"),
        Parameter("time_threshold", "%", 10, 10, "percentile", "share of a device's span that idle gaps before short kernels may take"),
    )
    needs = "A profiler trace with the activity of the GPUs, such as a trace of torch.profiler with CUDA activity."
    checks = "Finds devices on which most kernel runs are short, and measures the idle gaps before them."
    condition = (
        "on any device, more than `count_threshold` of the kernel runs are shorter than `short_us`, and the idle gaps that end with such"
        " a run take more than `time_threshold` of the span"
    )
    advice = "Launch fewer, larger kernels: use fused operators, `torch.compile`, CUDA graphs or larger batches."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        judged, parts = looked_at(run, lambda group: _look(run, group, parameters))
        if not judged:
            return no_device_activity()
        if all(row.issue is None for _, row in judged):
            return not_evaluated(
                "no kernels in this run, only copies and memsets", "Profile with torch.profiler on CUDA activity while kernels run."
            )
        bad = with_issue(judged)
        top = _kernels(run, pl.concat(parts))
        return outcome(
            run,
            judged,
            cost_key="gap_ns",
            title="Fuse short kernels or launch them as a graph",
            details=ShortKernelsDetails(tuple(row for _, row in judged), top),
            finding=_finding(judged, bad, parameters),
            recommendation=_recommendation(run, top, bad, parameters),
        )

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        assert isinstance(outcome.details, ShortKernelsDetails)
        return run.site_of_work(pl.col("text").is_in([kernel.name for kernel in outcome.details.kernels]))


def _look(run: RunData, group: GapGroup, parameters: Parameters) -> tuple[_Judged, pl.DataFrame]:
    """Return the devices of a group, and their short kernels by name."""
    limit = parameters["short_us"] * 1000
    runs = run.store.frame(
        f"""
        SELECT e.node, e.device, e.name, count(*) AS launches, count(*) FILTER (e.duration_ns < ?) AS short,
               coalesce(sum(e.duration_ns) FILTER (e.duration_ns < ?), 0)::BIGINT AS time
        FROM device_event AS e WHERE e.kind = 'kernel' AND {group.condition} GROUP BY ALL
        """,
        [limit, limit],
    ).join(group.keys, on=["node", "device"], nulls_equal=True)
    short_gaps = group.gaps.filter(pl.col("kernel"), pl.col("duration") < limit)
    gaps = short_gaps.group_by("row", "name").agg(gap=(pl.col("end") - pl.col("start")).sum())
    kernels = runs.join(gaps, on=["row", "name"], how="left", nulls_equal=True).with_columns(pl.col("gap").fill_null(0))
    sums = kernels.group_by("row").agg(pl.col("launches", "short", "gap").sum())
    by_row = {row: (launches, short, gap) for row, launches, short, gap in sums.iter_rows()}
    judged = [(device, _row(device, *by_row.get(device.row, (0, 0, 0)), parameters)) for device in group.devices]
    chosen = [device.row for device, row in judged if row.issue] or [device.row for device in group.devices]
    by_name = kernels.filter(pl.col("row").is_in(chosen), pl.col("short") > 0).group_by("name").agg(pl.col("short", "time", "gap").sum())
    return judged, by_name.with_columns(issue=pl.lit(any(row.issue for _, row in judged)))


def _row(device: IdleDevice, launches: int, short: int, gap: int, parameters: Parameters) -> ShortKernelsDevice:
    short_percent = 100 * short / launches if launches else None
    gap_percent = 100 * gap / device.span_ns if device.span_ns else 0.0
    issue = None
    if short_percent is not None:
        issue = short_percent > parameters["count_threshold"] and gap_percent > parameters["time_threshold"]
    return ShortKernelsDevice.of(
        device, launches=launches, short=short, short_percent=short_percent, gap_ns=gap, gap_percent=gap_percent, issue=issue
    )


def _kernels(run: RunData, kernels: pl.DataFrame) -> tuple[ShortKernel, ...]:
    kept = kernels.filter(pl.col("issue") == pl.col("issue").max()).group_by("name").agg(pl.col("short", "time", "gap").sum())
    top = kept.sort("gap", "short", "name", descending=[True, True, False]).head(run.top)
    text = names(run.store, top["name"])
    return tuple(
        ShortKernel(text.get(row["name"], ""), row["short"], row["time"] / row["short"], row["gap"]) for row in top.iter_rows(named=True)
    )


def _finding(judged: _Judged, bad: _Judged, parameters: Parameters) -> str:
    short = f"shorter than {significant(parameters['short_us'])} µs"
    count_limit, time_limit = threshold_text(parameters["count_threshold"]), threshold_text(parameters["time_threshold"])
    known = [one for one in judged if one[1].issue is not None]
    device, row = max(bad or known, key=lambda one: (one[1].gap_percent, one[1].short_percent))
    if len(judged) == 1:
        return (
            f"{count(row.short)} of {count(row.launches)} kernel runs were {short} ({percent(required(row.short_percent))}, threshold"
            f" {count_limit}) and the idle gaps before them took {duration(row.gap_ns)} of {duration(device.span_ns)}"
            f" ({percent(row.gap_percent)}, threshold {time_limit})."
        )
    if not bad:
        return (
            f"On no GPU were more than {count_limit} of the kernel runs {short} and the gaps before them longer than {time_limit} of the"
            f" profile; most on {device.label}: {percent(required(row.short_percent))} and {percent(row.gap_percent)}."
        )
    total, span = sum(one.gap_ns for _, one in bad), sum(one.span_ns for one, _ in judged)
    return (
        f"On {gpus(len(bad), len(judged))} more than {count_limit} of the kernel runs were {short} and the idle gaps"
        f" before them took more than {time_limit} of the profile, {duration(total)} in all, {percent(100 * total / span)} of the {BASE};"
        f" most on {device.label}: {percent(required(row.short_percent))} and {percent(row.gap_percent)}."
    )


def _recommendation(run: RunData, kernels: Sequence[ShortKernel], bad: _Judged, parameters: Parameters) -> str | None:
    if not bad or not kernels:
        return None
    main = kernels[0]
    short, launches = sum(row.short for _, row in bad), sum(row.launches for _, row in bad)
    optimizer = any(part.name == "optimizer" for part in run.framework.step_parts)
    fused = any(_FUSED.search(kernel.name) for kernel in run.kernels)
    more = FUSED_OPTIMIZER.of(run.program) if optimizer and not fused else ""
    return (
        f"{FUSED.of(run.program)}{more}, because {count(short)} of {count(launches)} kernel runs take less than"
        f" {significant(parameters['short_us'])} µs: `{main.name}` alone has {duration(main.gap_ns)} of gaps before"
        f" {plural(main.count, 'short run')} of {duration(main.mean_ns)} on average."
    )
