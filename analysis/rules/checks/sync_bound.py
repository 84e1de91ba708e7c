"""SyncBound: host waits in blocking synchronization calls while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from ...causes.program import serves
from ...device.device_gaps import IdleDevice
from ...efficiency.largest_site import Site
from ...report.trace_details import BlockingCall, SyncBoundDetails, SyncBoundDevice
from ...toolkit.contents import kinds
from ...toolkit.wording import count, duration, percent, plural, significant, size, threshold_text
from ..evidence.base import Outcome, Parameter, Parameters, Rule, not_evaluated
from ..evidence.blocking import Blocking
from ..evidence.device_share import BASE, gpus, no_device_activity, steps_of
from ..evidence.frameworks import PINNED, READS, SCHEDULING, WAITS_FOR_ALL
from ..evidence.idle_findings import Judged, in_order, names, outcome, unjudged, with_issue
from ..evidence.run_data import RunData
from ..evidence.sync_calls import call_sites, with_operator

# Operators that synchronize, with the code that calls them and the alternatives.
_INSTEAD: Final = {
    "aten::_local_scalar_dense": "`.item()`, `float(tensor)` and `if tensor:`",
    "aten::item": "`.item()`, `float(tensor)` and `if tensor:`",
    "aten::is_nonzero": "`if tensor:`",
    "aten::copy_": "`.cpu()`, `.numpy()` and printed tensors (or copy with `non_blocking=True` from and to pinned memory)",
    "aten::nonzero": "boolean masks and `nonzero()` (`torch.where(condition, a, b)` keeps shapes fixed)",
    "aten::masked_select": "boolean masks (`torch.where(condition, a, b)` keeps shapes fixed)",
    "aten::_unique2": "`unique()`",
}
_NO_CALLS: Final = "no host calls of its process in the trace"


# Blocking calls by name and operator; ``issue``: of devices with the issue.
_CALLS: Final = {
    "name": pl.Int32, "operator": pl.Int32, "count": pl.UInt32, "time": pl.Int64, "blocked": pl.Int64,
    "caused": pl.Int64, "issue": pl.Boolean, "process": pl.Int32, "tid": pl.Int64, "start": pl.Int64, "bytes": pl.Int64,
    "upload": pl.Boolean, "worst": pl.Int64,
}  # fmt: skip

_Judged = list[Judged[SyncBoundDevice]]


class SyncBound(Rule):
    name = "SyncBound"
    category = "trace"
    names_code = True
    host_times = True
    parameters = (
        Parameter(
            "threshold",
            "%",
            10,
            10,
            "percentile",
            "share of a device's span that may be idle because the host waited in a blocking call",
        ),
    )
    needs = "A profiler trace with the activity of the GPUs and the calls of the host."
    checks = "Measures how long each device is idle because the host waits in blocking calls instead of launching ahead."
    condition = "the idle time that blocking calls cause is more than `threshold` of the span of any device"
    advice = "Remove the calls that make the host wait for the device from the loop, such as `.item()`, `.cpu()` and prints of tensors."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.store.has_rows("device_event"):
            return no_device_activity()
        called: set[int] = set()
        if not kinds(run.store, "host_event").isdisjoint({"launch", "sync", "call"}):
            called = set(run.store.frame("SELECT DISTINCT process FROM host_event WHERE kind IN ('launch', 'sync', 'call')")["process"])
        looks = [_look(run, group, called, parameters) for group in run.blocking]
        judged = in_order(row for rows, _ in looks for row in rows)
        if not judged:
            return no_device_activity()
        if not called:
            return not_evaluated(
                "no host calls in this run", "Also profile CPU activity with torch.profiler, which records the runtime calls."
            )
        if all(row.issue is None for _, row in judged):
            return not_evaluated(
                "no host calls of the processes that used the devices",
                "Also profile the CPU activity of those processes with torch.profiler.",
            )
        bad = with_issue(judged)
        top = _calls(run, pl.concat(calls for _, calls in looks))
        return outcome(
            run,
            judged,
            cost_key="caused_idle_ns",
            title="Overlap the host's work with the devices" if serves(run.program) else "Remove synchronizations from the loop",
            details=SyncBoundDetails(tuple(row for _, row in judged), top),
            finding=_finding(judged, bad, parameters),
            recommendation=_recommendation(run, top, bad) if bad else None,
        )

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        columns = ("process", "tid", "start")
        return run.site_of_waits(pl.concat([group.calls.select(*columns, ns="caused") for group in run.blocking]))


def _look(run: RunData, group: Blocking, called: set[int], parameters: Parameters) -> tuple[_Judged, pl.DataFrame]:
    """Return the devices of a group, and their processes' calls by name and operator.

    The calls are those of devices with an issue, if there is one. ``drained_ns`` of a device: its idle gaps that begin during such a
    call, to their ends; part of them is usually after the call."""
    rows = [
        (device, _row(device, group.sums.get(device.row, (0, 0, 0)), group.drained.get(device.row, 0), called, parameters))
        for device in group.devices
    ]
    if group.calls.is_empty():
        return rows, pl.DataFrame(schema=_CALLS)
    chosen = {device.row for device, row in rows if row.issue} or {device.row for device in group.devices}
    of_chosen = group.calls.filter(pl.col("row").is_in(list(chosen))).sort("number")
    columns = ("process", "tid", "name", "start", "end", "bytes", "upload")
    summed = of_chosen.group_by("number", maintain_order=True).agg(pl.col(columns).first(), pl.col("blocked", "caused").sum())
    of_call = with_operator(run.store, summed.drop("number")).with_columns(
        worst="caused", time=pl.col("end") - pl.col("start"), count=pl.lit(1, pl.UInt32)
    )
    return rows, _summed(of_call).with_columns(issue=pl.lit(any(row.issue for _, row in rows))).select(*_CALLS)


def _summed(calls: pl.DataFrame) -> pl.DataFrame:
    """Sum calls by name and operator; the other columns are those of the costliest."""
    order = pl.col("process", "tid", "start", "bytes", "upload", "worst").sort_by("worst", "time", "start", descending=[True, True, False])
    return calls.group_by("name", "operator").agg(pl.col("count", "time", "blocked", "caused").sum(), order.first())


def _row(device: IdleDevice, blocked: Sequence[int], drained_ns: int, called: set[int], parameters: Parameters) -> SyncBoundDevice:
    """Return the row of a device; ``blocked``: time in such calls, idle part, caused."""
    time, idle, caused = blocked
    share = 100 * caused / device.span_ns if device.span_ns else 0.0
    return SyncBoundDevice.of(
        device,
        sync_ns=time,
        blocked_idle_ns=idle,
        caused_idle_ns=caused,
        percent=share,
        drained_ns=drained_ns,
        issue=None if called.isdisjoint(device.processes) else share > parameters["threshold"],
    )


def _calls(run: RunData, calls: pl.DataFrame) -> tuple[BlockingCall, ...]:
    kept = calls.filter(pl.col("issue") == pl.col("issue").max())
    issue = bool(calls["issue"].any())
    top = (
        _summed(kept)
        .sort("caused", "blocked", "time", "name", "operator", descending=[True, True, True, False, False], nulls_last=True)
        .head(run.top)
    )
    text = names(run.store, [*top["name"], *top["operator"]])
    sites = call_sites(run.store, top.with_row_index("number")) if issue else {}
    return tuple(
        BlockingCall(
            text.get(row["name"], ""), text.get(row["operator"]), row["count"], row["time"], row["blocked"], row["caused"],
            bytes=row["bytes"], site=sites.get(number), upload=row["upload"],
        )
        for number, row in enumerate(top.iter_rows(named=True))
    )  # fmt: skip


def _finding(judged: _Judged, bad: _Judged, parameters: Parameters) -> str:
    limit = threshold_text(parameters["threshold"])
    why = unjudged(judged, _NO_CALLS)
    if len(judged) == 1:
        device, row = judged[0]
        return (
            f"Blocking calls of the host caused {duration(row.caused_idle_ns)} of idle time in {duration(device.span_ns)} of the GPU"
            f" ({percent(row.percent)}, threshold {limit})."
        )
    known = [one for one in judged if one[1].issue is not None]
    worst, row = max(bad or known, key=lambda one: one[1].percent)
    if not bad:
        return f"Blocking calls of the host caused idle time in {percent(row.percent)} of the profile at most (threshold {limit}){why}."
    total, span = sum(one.caused_idle_ns for _, one in bad), sum(device.span_ns for device, _ in judged)
    return (
        f"On {gpus(len(bad), len(judged))}, blocking calls of the host caused idle time of more than"
        f" {limit} of the profile: {duration(total)} in total, {percent(100 * total / span)} of the {BASE}, most on {worst.label}"
        f" ({percent(row.percent)}){why}."
    )


def _recommendation(run: RunData, calls: Sequence[BlockingCall], bad: _Judged) -> str | None:
    if not calls:
        return None
    main, total = calls[0], sum(row.caused_idle_ns for _, row in bad)
    counted = steps_of(run)
    steps = sum(counted[process] for process in {(device.node, device.rank, device.pid) for device, _ in bad})
    number = main.count / steps if steps else 0
    per_step = f" ({significant(number) if number % 1 else count(int(number))} per step)" if steps else ""
    copied = f" of {size(main.bytes)}" if main.bytes else ""
    site = f" The costliest call comes from `{main.site}`." if main.site else ""
    source = f" in `{main.operator}`" if main.operator else ""
    if serves(run.program):
        return (
            f"{SCHEDULING.of(run.program)}, because the host waits for the results of an iteration before it prepares the next one: in"
            f" {plural(main.count, 'call')} of `{main.name}`{copied}{source} it waited for {duration(main.time_ns)}, which caused"
            f" {duration(main.caused_idle_ns)} of the {duration(total)} of idle time.{site}"
        )
    remove = _INSTEAD.get(main.operator or "", "")
    if not remove:
        remove = (WAITS_FOR_ALL if "Device" in main.name else READS).of(run.program)
    change = f"Remove {remove} from the loop, or run them once every 100 steps"
    if main.upload:
        change = f"Copy to the device from pinned memory {PINNED.of(run.program)}"
    return (
        f"{change}. In {plural(main.count, 'call')}{per_step} of `{main.name}`{copied}{source}, the host waited for"
        f" {duration(main.time_ns)} and prepared no launches. This caused {duration(main.caused_idle_ns)} of the {duration(total)} of idle"
        f" time.{site}"
    )
