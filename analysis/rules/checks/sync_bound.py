"""SyncBound: host waits in blocking synchronization calls while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from ...device.device_gaps import GapGroup, IdleDevice
from ...report.trace_details import BlockingCall, SyncBoundDetails, SyncBoundDevice
from ...toolkit.contents import kinds
from ...toolkit.intervals import difference, intersection, length_inside, union
from ...toolkit.wording import count, duration, percent, plural, significant, size
from ..evidence.base import Outcome, Parameter, Parameters, Rule, not_evaluated
from ..evidence.device_share import gpus, no_device_activity, steps_of
from ..evidence.frameworks import READS, WAITS_FOR_ALL
from ..evidence.host_time import with_a_cause
from ..evidence.idle_findings import Judged, looked_at, names, outcome, unjudged, with_issue
from ..evidence.run_data import RunData
from ..evidence.sync_calls import begun_inside, blocking_calls, call_sites, with_operator

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
    "name": pl.Int32, "operator": pl.Int32, "count": pl.UInt32, "time": pl.Int64, "blocked": pl.Int64, "caused": pl.Int64,
    "issue": pl.Boolean, "process": pl.Int32, "tid": pl.Int64, "start": pl.Int64, "bytes": pl.Int64, "worst": pl.Int64,
}  # fmt: skip

_Judged = list[Judged[SyncBoundDevice]]


class SyncBound(Rule):
    name = "SyncBound"
    category = "trace"
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
    checks = "How long the device is idle because the host waited in blocking calls instead of launching ahead."
    condition = "idle time that blocking calls cause > threshold of the span"
    advice = "Remove what makes the host wait for the device from the loop: `.item()`, `.cpu()`, prints of tensors."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.store.has_rows("device_event"):
            return no_device_activity()
        called: set[int] = set()
        if not kinds(run.store, "host_event").isdisjoint({"launch", "sync", "call"}):
            called = set(run.store.frame("SELECT DISTINCT process FROM host_event WHERE kind IN ('launch', 'sync', 'call')")["process"])
        judged, calls = looked_at(run, lambda group: _look(run, group, called, parameters))
        if not judged:
            return no_device_activity()
        if not called:
            return not_evaluated(
                "no host calls in this run", "Profile with torch.profiler on CPU activity, too: it records the runtime calls."
            )
        if all(row.issue is None for _, row in judged):
            return not_evaluated(
                "no host calls of the processes that used the devices", "Profile those processes with torch.profiler on CPU activity, too."
            )
        bad = with_issue(judged)
        top = _calls(run, pl.concat(calls))
        return outcome(
            run,
            judged,
            cost_key="caused_idle_ns",
            title="Remove synchronisations from the loop",
            details=SyncBoundDetails(tuple(row for _, row in judged), top),
            finding=_finding(judged, bad, parameters),
            recommendation=_recommendation(run, top, bad) if bad else None,
        )


def _look(run: RunData, group: GapGroup, called: set[int], parameters: Parameters) -> tuple[_Judged, pl.DataFrame]:
    """Return the devices of a group, and their processes' calls by name and operator.

    The calls are those of devices with an issue, if there is one. ``drained_ns`` of a device: its idle gaps that begin during such a
    call, to their ends; part of them is usually after the call."""
    calls = blocking_calls(run.store, {process for device in group.devices for process in device.processes})
    if calls.is_empty():
        rows = [(device, _row(device, (0, 0, 0), 0, called, parameters)) for device in group.devices]
        return rows, pl.DataFrame(schema=_CALLS)
    on_device = calls.with_row_index("number").join(group.rows(), on="process")
    merged = union(on_device, ["row"])
    blocked = _caused(run, merged, group)
    sums = {row: rest for row, *rest in blocked.group_by("row").agg(pl.col("length", "blocked", "caused").sum()).iter_rows()}
    drained = begun_inside(group.gaps, merged, "row").group_by("row").agg((pl.col("end") - pl.col("start")).sum().alias("time"))
    after = dict(drained.iter_rows())
    judged: _Judged = []
    for device in group.devices:
        row = _row(device, sums.get(device.row, (0, 0, 0)), after.get(device.row, 0), called, parameters)
        judged.append((device, row))
    chosen = {device.row for device, row in judged if row.issue} or {device.row for device in group.devices}
    of_chosen = on_device.filter(pl.col("row").is_in(list(chosen)))
    # Calls that overlap are one block; the longest of them has its idle time.
    of_chosen = of_chosen.with_columns(blocked=length_inside(of_chosen, group.gaps, "row"), length=pl.col("end") - pl.col("start"))
    in_block = of_chosen.sort("start").join_asof(
        blocked.select("row", "start", "caused", block="start").sort("start"), on="start", by="row", check_sortedness=False
    )
    main = pl.col("number") == pl.col("number").sort_by("length", "number", descending=[True, False]).first().over("row", "block")
    charged = in_block.with_columns(caused=pl.when(main).then("caused").otherwise(0).fill_null(0))
    idle_of = charged.group_by("number").agg(pl.col("blocked", "caused").sum())
    of_call = with_operator(run.store, calls).with_row_index("number").join(idle_of, on="number")
    of_call = of_call.with_columns(worst="caused", time=pl.col("end") - pl.col("start"), count=pl.lit(1, pl.UInt32))
    return judged, _summed(of_call).with_columns(issue=pl.lit(any(row.issue for _, row in judged))).select(*_CALLS)


def _summed(calls: pl.DataFrame) -> pl.DataFrame:
    """Sum calls by name and operator; the other columns are those of the costliest."""
    order = pl.col("process", "tid", "start", "bytes", "worst").sort_by("worst", "time", "start", descending=[True, True, False])
    return calls.group_by("name", "operator").agg(pl.col("count", "time", "blocked", "caused").sum(), order.first())


def _caused(run: RunData, blocks: pl.DataFrame, group: GapGroup) -> pl.DataFrame:
    """Add ``length``, ``blocked`` and ``caused`` to the blocking times of each device.

    ``blocked``: the idle time inside. ``caused``: the host waits of the device from the begin of the block to the next one, but at most the
    length of the block, because without it the host would be ahead by that time. Host waits with a cause of their own do not count
    (:func:`.host_time.with_a_cause`). Of gaps before work whose launch is not in the trace only the part inside of a block counts."""
    length = pl.col("end") - pl.col("start")
    unknown = intersection(group.gaps.filter(pl.col("ready").is_null()), blocks, ["row"])
    waits = pl.concat([group.host_waits().select("row", "start", "end"), unknown.select("row", "start", "end")]).sort("row", "start")
    processes = group.rows()
    if waits.height and blocks.height:
        times = union(waits.join(processes, on="row").select("process", "start", "end"), ["process"])
        waits = difference(waits, with_a_cause(run.store, times).join(processes, on="process").select("row", "start", "end"), ["row"])
    later = pl.col("start").shift(-1).over("row")
    until = blocks.sort("row", "start").with_columns(finish="end", end=later.fill_null(pl.max_horizontal("end", waits["end"].max())))
    inside = until.with_columns(waited=length_inside(until, waits, "row")).with_columns(end="finish").drop("finish")
    return inside.with_columns(
        length=length, blocked=length_inside(inside, group.gaps, "row"), caused=pl.min_horizontal("waited", length)
    ).drop("waited")


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
            bytes=row["bytes"], site=sites.get(number),
        )
        for number, row in enumerate(top.iter_rows(named=True))
    )  # fmt: skip


def _finding(judged: _Judged, bad: _Judged, parameters: Parameters) -> str:
    limit = percent(parameters["threshold"])
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
    total, span = sum(one.caused_idle_ns for _, one in bad), sum(device.span_ns for device, _ in bad)
    return (
        f"On {gpus(len(bad), len(judged))} blocking calls of the host caused idle time in more than"
        f" {limit} of the profile, {duration(total)} of {duration(span)} in all ({percent(100 * total / span)}); most on {worst.label}:"
        f" {percent(row.percent)}{why}."
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
    remove = _INSTEAD.get(main.operator or "", "")
    if not remove:
        remove = (WAITS_FOR_ALL if "Device" in main.name else READS).of(run.program)
    return (
        f"Remove {remove} from the loop, or reach them once every 100 steps: in {plural(main.count, 'call')}"
        f"{per_step} of `{main.name}`{copied}{source} the host waited for {duration(main.time_ns)} and prepared no launches, which caused"
        f" {duration(main.caused_idle_ns)} of the {duration(total)} of idle time.{site}"
    )
