"""HostBound: does the device stand idle because the host does not launch work in time?"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from ..wording import duration, percent, plural
from .base import Outcome, Parameter, Parameters, Rule, not_evaluated
from .device_gaps import HOST_WAIT, KERNEL_WAIT, OTHER, GapGroup, IdleDevice
from .host_time import UNRECORDED, activities
from .idle_findings import Judged, gpus, in_order, names, no_device_activity, outcome, unjudged, with_issue
from .run_data import RunData
from .sync_calls import sync_calls

_IDLE: Final = Parameter("idle_threshold", "%", 20, 20, "percentile", "share of a device's span that it may stand idle")
_SHARE: Final = Parameter("host_share", "%", 50, 50, "percentile", "share of the idle time that may be host wait")

# What the host did for a smaller share of the waits is not named in the advice.
_NAMED_PERCENT: Final = 1.0
_NO_LAUNCHES: Final = "no launch call of its work is in the trace"


class HostBound(Rule):
    name = "HostBound"
    category = "trace"
    parameters = (_IDLE, _SHARE)
    checks = "Whether each device stands idle because the host launches its work too late."
    condition = "idle time > idle_threshold of the span and host wait > host_share of the idle time"
    advice = "Shorten the host's part: CUDA graphs or torch.compile, fewer synchronisations, data loaded ahead, a larger batch."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        judged: list[Judged] = []
        parts: list[_Waits] = []
        for group in run.gaps.groups():
            rows = _rows(group, parameters)
            judged += rows
            parts.append(_Waits.of(run, group, [device for device, row in rows if row["issue"]]))
        if not judged:
            return no_device_activity()
        if not any(device.linked for device, _ in judged):
            return _without_launches(run)
        judged = in_order(judged)
        bad = with_issue(judged)
        waits = _Waits.together(parts)
        return outcome(
            run,
            judged,
            cost_key="host_wait_ns",
            title=_title(waits),
            details={
                "kernels": _kernels(run, waits),
                "host": waits.shares(),
                "after_synchronisation_ns": waits.after_sync if bad else None,
            },
            finding=_finding(judged, bad, parameters),
            recommendation=_recommendation(waits),
        )


def _rows(group: GapGroup, parameters: Parameters) -> list[Judged]:
    gap, cause = pl.col("end") - pl.col("start"), pl.col("cause")
    causes = {"host": HOST_WAIT, "kernel": KERNEL_WAIT, "other": OTHER}
    found = group.gaps.group_by("row").agg(
        *(gap.filter(cause == number).sum().alias(name) for name, number in causes.items()), waits=(cause == HOST_WAIT).sum()
    )
    by_row = {row["row"]: row for row in found.iter_rows(named=True)}
    none = {"host": 0, "kernel": 0, "other": 0, "waits": 0}
    return [(device, _row(device, by_row.get(device.row, none), parameters)) for device in group.devices]


def _row(device: IdleDevice, found: dict[str, int], parameters: Parameters) -> dict[str, Any]:
    idle_percent = 100 * device.idle_ns / device.span_ns if device.span_ns else 0.0
    host_percent = 100 * found["host"] / device.idle_ns if device.idle_ns else 0.0
    idle = idle_percent > parameters["idle_threshold"]
    return {
        **device.details(),
        "idle_ns": device.idle_ns,
        "idle_percent": idle_percent,
        "host_wait_ns": found["host"],
        "host_waits": found["waits"],
        "kernel_wait_ns": found["kernel"],
        "other_ns": found["other"],
        "host_percent": host_percent,
        "issue": None if idle and not device.linked else idle and host_percent > parameters["host_share"],
    }


class _Waits:
    """The host waits of some devices: how many, what ended them, what the host did meanwhile."""

    def __init__(self, count: int, total: int, kernels: pl.DataFrame, meanwhile: dict[str, int], after_sync: int) -> None:
        self.count = count
        self.total = total
        self.kernels = kernels
        self.meanwhile = meanwhile
        self.after_sync = after_sync

    @classmethod
    def of(cls, run: RunData, group: GapGroup, bad: list[IdleDevice]) -> _Waits:
        gaps = group.gaps.filter(pl.col("cause") == HOST_WAIT, pl.col("row").is_in([device.row for device in bad]))
        length = pl.col("end") - pl.col("start")
        kernels = gaps.group_by("name").agg(count=pl.len(), time=length.sum())
        if gaps.is_empty():
            return cls(0, 0, kernels, {}, 0)
        calls = sync_calls(run.store, gaps["process"].unique().to_list())
        return cls(gaps.height, gaps.select(length.sum()).item(), kernels, activities(run.store, gaps), _after(gaps, calls))

    @classmethod
    def together(cls, parts: list[_Waits]) -> _Waits:
        kernels = pl.concat([part.kernels for part in parts]).group_by("name").agg(pl.col("count").sum(), pl.col("time").sum())
        meanwhile: dict[str, int] = {}
        for part in parts:
            for name, time in part.meanwhile.items():
                meanwhile[name] = meanwhile.get(name, 0) + time
        counts = sum(part.count for part in parts)
        return cls(counts, sum(part.total for part in parts), kernels, meanwhile, sum(part.after_sync for part in parts))

    def shares(self) -> list[dict[str, Any]]:
        """What the host did, most first."""
        ranked = sorted(self.meanwhile.items(), key=lambda item: -item[1])
        return [{"activity": name, "time_ns": time, "percent": 100 * time / self.total} for name, time in ranked if time]

    def percent(self, name: str) -> float:
        return 100 * self.meanwhile.get(name, 0) / self.total if self.total else 0.0


def _after(gaps: pl.DataFrame, calls: pl.DataFrame) -> int:
    """Length of the gaps that begin while their process waits in a synchronisation call: it let the device run empty."""
    reach = calls.select("process", "start", reach=pl.col("end").cum_max().over("process"))
    found = gaps.sort("start").join_asof(reach, on="start", by="process", strategy="backward", check_sortedness=False)
    return int(found.filter(pl.col("reach") >= pl.col("start")).select((pl.col("end") - pl.col("start")).sum()).item())


def _kernels(run: RunData, waits: _Waits) -> list[dict[str, Any]]:
    top = waits.kernels.sort("time", "count", "name", descending=[True, True, False]).head(run.top)
    text = names(run.store, top["name"])
    return [{"name": text.get(row["name"], ""), "count": row["count"], "time_ns": row["time"]} for row in top.iter_rows(named=True)]


def _without_launches(run: RunData) -> Outcome:
    reason = "no launch calls in this run" if not run.launches.calls else "no launch call of this run has the correlation of a device run"
    return not_evaluated(
        reason, "Profile with torch.profiler on CPU activity, too: it records the launch calls and which run belongs to each."
    )


def _finding(judged: list[Judged], bad: list[Judged], parameters: Parameters) -> str:
    idle_limit, share_limit = percent(parameters["idle_threshold"]), percent(parameters["host_share"])
    why = unjudged(judged, _NO_LAUNCHES)
    if not bad:
        return _fine(judged, idle_limit, share_limit, parameters) + f"{why}."
    worst, row = max(bad, key=lambda one: one[1]["host_wait_ns"])
    if len(judged) == 1:
        return (
            f"The GPU stood idle for {duration(row['idle_ns'])} of {duration(worst.span_ns)} ({percent(row['idle_percent'])}, threshold"
            f" {idle_limit}) and in {duration(row['host_wait_ns'])} of that time waited for the host ({percent(row['host_percent'])},"
            f" threshold {share_limit})."
        )
    total, span = sum(one["host_wait_ns"] for _, one in bad), sum(device.span_ns for device, _ in bad)
    return (
        f"{gpus(bad, judged)} stood idle for more than {idle_limit} of the profile and for more than {share_limit} of that waited for the"
        f" host, {duration(total)} of {duration(span)} in all ({percent(100 * total / span)}); most on {worst.label}: idle"
        f" {percent(row['idle_percent'])}, {percent(row['host_percent'])} of it host wait{why}."
    )


def _fine(judged: list[Judged], idle_limit: str, share_limit: str, parameters: Parameters) -> str:
    one = len(judged) == 1
    known = [found for found in judged if found[1]["issue"] is not None]
    idle = [found for found in known if found[1]["idle_percent"] > parameters["idle_threshold"]]
    if not idle:
        most = percent(max(row["idle_percent"] for _, row in known))
        subject, at_most = ("The GPU", "") if one else ("The GPUs", " at most")
        return f"{subject} stood idle for {most} of the profile{at_most} (threshold {idle_limit})"
    device, row = max(idle, key=lambda found: float(found[1]["host_percent"]))
    share = percent(row["host_percent"])
    if one:
        return (
            f"The GPU stood idle for {percent(row['idle_percent'])} of the profile (threshold {idle_limit}), but only {share} of that was"
            f" host wait (threshold {share_limit})"
        )
    return (
        f"{gpus(idle, judged)} stood idle for more than {idle_limit} of the profile, but at most {share} of that was host wait"
        f" ({device.label}; threshold {share_limit})"
    )


def _main(waits: _Waits) -> str:
    """What the advice is about: the loader or synchronisation where most of the waits lie in or after it, else the launches."""
    if waits.percent("profiler overhead") > 50:
        return "profiler overhead"
    loader, after = waits.percent("data loader"), 100 * waits.after_sync / waits.total if waits.total else 0.0
    if loader >= 40:
        return "data loader"
    if after > 50 or waits.percent("synchronisation") > 40:
        return "synchronisation"
    return UNRECORDED if waits.percent(UNRECORDED) > 50 else "launches"


def _title(waits: _Waits) -> str:
    return {
        "profiler overhead": "Profile again with less overhead",
        "data loader": "Load data ahead of the GPU",
        "synchronisation": "Remove synchronisations from the loop",
        UNRECORDED: "Shorten the Python between the launches",
        "launches": "Launch the work in fewer, larger pieces",
    }[_main(waits)]


def _recommendation(waits: _Waits) -> str | None:
    if not waits.total:
        return None
    shares = ", ".join(
        f"{share['activity']} {duration(share['time_ns'])}" for share in waits.shares() if share["percent"] >= _NAMED_PERCENT
    )
    total = duration(waits.total)
    advice = {
        "profiler overhead": "Profile again without `with_stack` and `record_shapes`, because most of the waiting is the profiler's own",
        "data loader": "Load data ahead with `DataLoader(num_workers=4, prefetch_factor=4, persistent_workers=True, pin_memory=True)`"
        " (more workers while the wait shrinks), because the device waits for batches",
        "synchronisation": "Remove `.item()`, `.cpu()` and `torch.cuda.synchronize()` from the loop, or call them once every 100 steps,"
        f" because {duration(waits.after_sync)} of {total} of host wait begin inside a blocking call, which lets the device run empty",
        UNRECORDED: "Record once more with `with_stack=True` and shorten the Python that runs between the launches (logging, checkpoints,"
        " data preparation), because most of the waiting lies outside of operators and runtime calls",
        "launches": 'Launch less often with `torch.compile(mode="reduce-overhead")`, `torch.cuda.CUDAGraph` or a larger batch, because the'
        " host takes longer to launch the work than the device to run it",
    }[_main(waits)]
    waited = f"{plural(waits.count, 'host wait')} took {total}, {duration(waits.total / waits.count)} each on average"
    return f"{advice}: {waited}, and what the host did meanwhile was {shares}."
