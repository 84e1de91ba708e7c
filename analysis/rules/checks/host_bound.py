"""HostBound: idle time of the device because the host does not launch work in time."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import polars as pl

from ...causes.iterations import between_iterations
from ...causes.program import serves
from ...device.device_gaps import GapGroup, IdleDevice
from ...device.idle import by_cause
from ...efficiency.largest_site import Site
from ...report.causes import Program
from ...report.detail_rows import CountedTime
from ...report.trace_details import HostActivity, HostBoundDetails, HostBoundDevice, HostCall, HostWait, TimeOf
from ...toolkit.contents import kinds
from ...toolkit.intervals import length_inside
from ...toolkit.wording import capitalized, duration, percent, plural, threshold_text
from ..evidence.base import Outcome, Parameter, Parameters, Rule, not_evaluated
from ..evidence.copy_advice import GPU_OPTIMIZER
from ..evidence.device_share import BASE, gpus, no_device_activity
from ..evidence.frameworks import (
    FEWER_COMPILATIONS,
    FEWER_LAUNCHES,
    LESS_OVERHEAD,
    LOAD_AHEAD,
    SCHEDULING,
    TRACE_AGAIN,
    TRACE_SOME,
    WAITS,
    WARMED_UP,
)
from ..evidence.host_time import CALLS, COMPILATION, HOST_OPTIMIZER, RANGES, UNRECORDED, activities, calls_in
from ..evidence.idle_findings import Judged, in_order, names, outcome, unjudged, with_issue
from ..evidence.run_data import RunData
from ..evidence.sync_calls import begun_inside, sync_calls

_NAMED_PERCENT: Final = 1.0  # the advice omits host activities with a smaller share of the waits
_LONGEST: Final = 10
_RANGES_NAMED: Final = 4
_PACE_NS: Final = 100_000  # a launch with its Python takes less; longer waits have another cause
_LAUNCHES: Final = 100  # so short waits show that launches as such are too slow
_SUMS: Final = {"name": pl.Int32, "count": pl.UInt32, "time": pl.Int64}
FIRST_USE: Final = "first use"
PYTHON: Final = "Python"
SCHEDULER: Final = "scheduler"
RESULTS: Final = "results"
_RECORD: Final = ("profiler overhead", UNRECORDED, FIRST_USE)  # advice to record the run in another way, which saves nothing by itself
_NO_LAUNCHES: Final = "no launch call of its work is in the trace"
# The thread of each process that launches most.
_LAUNCHING: Final = """
    SELECT process, arg_max(tid, (launches, -tid)) AS tid FROM (
        SELECT process, tid, count(*) AS launches FROM host_event WHERE kind = 'launch' AND tid IS NOT NULL GROUP BY ALL
    ) GROUP BY process
"""

_Judged = list[Judged[HostBoundDevice]]


class HostBound(Rule):
    name = "HostBound"
    category = "trace"
    host_times = True
    parameters = (
        Parameter("idle_threshold", "%", 20, 20, "percentile", "share of a device's span that it may be idle"),
        Parameter("host_share", "%", 50, 50, "percentile", "share of the idle time that may be host wait"),
    )
    needs = "A profiler trace with the activity of the GPUs and the launch calls of the host."
    checks = "Finds devices that are idle because the host launches their work too late."
    condition = "a device is idle for more than `idle_threshold` of its span, and more than `host_share` of the idle time is host wait"
    advice = "Shorten the host's part: use CUDA graphs or `torch.compile`, synchronize less, load data ahead, or use larger batches."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        judged: _Judged = []
        waits = _Waits(run)
        for group in run.gaps.groups():
            rows = _rows(group, parameters)
            judged += rows
            waits.add(run, group, [device for device, row in rows if row.issue])
        if not judged:
            return no_device_activity()
        if not any(device.linked for device, _ in judged):
            return not_evaluated(
                "no launch call of this run has the correlation of a device run" if run.launches.calls else "no launch calls in this run",
                "Also profile CPU activity with torch.profiler, which records the launch calls and the work that each launched.",
            )
        judged = in_order(judged)
        bad = with_issue(judged)
        return outcome(
            run,
            judged,
            cost_key="host_wait_ns",
            title=_title(run, waits),
            details=_details(run, tuple(row for _, row in judged), waits),
            finding=_finding(judged, bad, parameters),
            recommendation=_recommendation(run, waits),
            saves=_main(waits) not in _RECORD,
        )

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        threads = run.store.frame(_LAUNCHING)
        waits = [group.host_waits().select("process", "start", ns=pl.col("end") - pl.col("start")) for group in run.gaps.groups()]
        return run.site_of_waits(pl.concat(waits).join(threads, on="process"))


def _rows(group: GapGroup, parameters: Parameters) -> _Judged:
    sums = group.gaps.group_by("row").agg(**by_cause(), host_waits=(pl.col("ready") > pl.col("start")).sum())
    by_row = {row.pop("row"): row for row in sums.to_dicts()}
    none = {"host_wait_ns": 0, "kernel_wait_ns": 0, "other_ns": 0, "waiting_ns": 0, "host_waits": 0}
    return [(device, _row(device, by_row.get(device.row, none), parameters)) for device in group.devices]


def _row(device: IdleDevice, sums: dict[str, int], parameters: Parameters) -> HostBoundDevice:
    idle_percent = 100 * device.idle_ns / device.span_ns if device.span_ns else 0.0
    host_percent = 100 * sums["host_wait_ns"] / device.idle_ns if device.idle_ns else 0.0
    idle = idle_percent > parameters["idle_threshold"]
    return HostBoundDevice.of(
        device,
        idle_percent=idle_percent,
        **sums,
        host_percent=host_percent,
        issue=None if idle and not device.linked else idle and host_percent > parameters["host_share"],
    )


class _Waits:
    """The host waits of some devices: how many, what ended them, what the host did meanwhile."""

    def __init__(self, run: RunData) -> None:
        self.serves = serves(run.program)
        self.count = self.total = self.after_sync = 0
        self.paced = self.paced_count = 0  # short waits: time and number
        self.between = 0  # time between the iterations of an inference engine
        self.kernels = pl.DataFrame(schema=_SUMS)
        self.calls = pl.DataFrame(schema={**_SUMS, "longest": pl.Int64})
        self.longest: list[dict[str, Any]] = []
        self.meanwhile: Counter[str] = Counter()
        self.in_ranges: Counter[str] = Counter()
        self.frames = False  # the trace has Python functions

    def add(self, run: RunData, group: GapGroup, bad: list[IdleDevice]) -> None:
        """Add the waits of the devices of a group that have the issue."""
        if not bad:
            return
        waits = group.host_waits().filter(pl.col("row").is_in([device.row for device in bad]))
        waits = waits.with_columns(time=pl.col("end") - pl.col("start"))
        labels = {device.row: device.label for device in bad}
        sync = sync_calls(run.store, waits["process"].unique().to_list())
        meanwhile, in_ranges = activities(run.store, waits) if waits.height else ({}, {})
        total = int(waits["time"].sum())
        self.count += waits.height
        self.total += total
        self.after_sync += int(begun_inside(waits, sync, "process")["time"].sum())
        paced = waits.filter(pl.col("time") < _PACE_NS)
        self.paced += int(paced["time"].sum())
        self.paced_count += paced.height
        between = between_iterations(run.store)
        self.between += int(length_inside(waits, between, "process").sum()) if between.height else 0
        kernels = pl.concat([self.kernels, waits.group_by("name").agg(count=pl.len(), time=pl.col("time").sum())])
        self.kernels = kernels.group_by("name").agg(pl.col("count", "time").sum())
        called = calls_in(run.store, waits if 2 * meanwhile.get(CALLS, 0) > total else waits.clear(), ("launch", "call"))
        calls = pl.concat([self.calls, called]).group_by("name")
        self.calls = calls.agg(pl.col("count", "time").sum(), pl.col("longest").max())
        self.longest += [
            {"device": labels[wait["row"]], "start_ns": wait["start"], "time_ns": wait["time"], "name": wait["name"]}
            for wait in waits.sort("time", "start", descending=[True, False]).head(_LONGEST).iter_rows(named=True)
        ]
        self.longest = sorted(self.longest, key=lambda wait: (-wait["time_ns"], wait["start_ns"]))[:_LONGEST]
        self.meanwhile.update(meanwhile)
        self.frames = self.frames or "python" in kinds(run.store, "host_event")
        self.in_ranges.update(in_ranges)

    def shares(self) -> tuple[HostActivity, ...]:
        """Return the activities of the host, longest first."""
        ranked = sorted(self.meanwhile.items(), key=lambda item: -item[1])
        return tuple(HostActivity(name, time, 100 * time / self.total) for name, time in ranked if time)

    def ranges(self) -> list[tuple[str, int]]:
        """Return the annotated ranges with host time outside of operators, longest first."""
        return sorted(((name, time) for name, time in self.in_ranges.items() if time), key=lambda item: (-item[1], item[0]))


def _details(run: RunData, devices: tuple[HostBoundDevice, ...], waits: _Waits) -> HostBoundDetails:
    """Return the kernels after the waits, the longest waits, and the host's activity."""
    kernels = waits.kernels.sort("time", "count", "name", descending=[True, True, False]).head(run.top)
    calls = waits.calls.sort("time", "name", descending=[True, False]).head(run.top)
    text = names(run.store, [*kernels["name"], *calls["name"], *(wait["name"] for wait in waits.longest)])
    return HostBoundDetails(
        devices=devices,
        kernels=tuple(CountedTime(text.get(row["name"], ""), row["count"], row["time"]) for row in kernels.iter_rows(named=True)),
        longest=tuple(HostWait(**{**wait, "name": text.get(wait["name"], "")}) for wait in waits.longest),
        host=waits.shares(),
        ranges=tuple(TimeOf(name, time) for name, time in waits.ranges()[: run.top]),
        calls=tuple(HostCall(text.get(row["name"], ""), row["count"], row["time"], row["longest"]) for row in calls.iter_rows(named=True)),
        after_synchronisation_ns=waits.after_sync,
        first_use=_first_use(run, waits),
    )


def _finding(judged: _Judged, bad: _Judged, parameters: Parameters) -> str:
    idle_limit, share_limit = threshold_text(parameters["idle_threshold"]), threshold_text(parameters["host_share"])
    why = unjudged(judged, _NO_LAUNCHES)
    if not bad:
        return _fine(judged, idle_limit, share_limit, parameters) + f"{why}."
    worst, row = max(bad, key=lambda one: one[1].host_wait_ns)
    if len(judged) == 1:
        return (
            f"The GPU stood idle for {duration(row.idle_ns)} of {duration(worst.span_ns)} ({percent(row.idle_percent)}, threshold"
            f" {idle_limit}) and in {duration(row.host_wait_ns)} of that time waited for the host ({percent(row.host_percent)},"
            f" threshold {share_limit})."
        )
    total, span = sum(one.host_wait_ns for _, one in bad), sum(device.span_ns for device, _ in judged)
    return (
        f"{_gpus(bad, judged)} stood idle for more than {idle_limit} of the profile and for more than {share_limit} of that waited for the"
        f" host, {duration(total)} in all, {percent(100 * total / span)} of the {BASE}; most on {worst.label}: idle"
        f" {percent(row.idle_percent)}, {percent(row.host_percent)} of it host wait{why}."
    )


def _gpus(bad: _Judged, judged: _Judged) -> str:
    return capitalized(gpus(len(bad), len(judged)))


def _fine(judged: _Judged, idle_limit: str, share_limit: str, parameters: Parameters) -> str:
    single = len(judged) == 1
    known = [found for found in judged if found[1].issue is not None]
    idle = [found for found in known if found[1].idle_percent > parameters["idle_threshold"]]
    if not idle:
        most = percent(max(row.idle_percent for _, row in known))
        subject, at_most = ("The GPU", "") if single else ("The GPUs", " at most")
        return f"{subject} stood idle for {most} of the profile{at_most} (threshold {idle_limit})"
    device, row = max(idle, key=lambda found: found[1].host_percent)
    share = percent(row.host_percent)
    if single:
        return (
            f"The GPU stood idle for {percent(row.idle_percent)} of the profile (threshold {idle_limit}), but only {share} of that was"
            f" host wait (threshold {share_limit})"
        )
    return (
        f"{_gpus(idle, judged)} stood idle for more than {idle_limit} of the profile, but at most {share} of that was host wait"
        f" ({device.label}; threshold {share_limit})"
    )


def _main(waits: _Waits) -> str:
    """Return the topic of the advice: the main activity in the waits, or their syncs."""
    share = {found.activity: found.percent for found in waits.shares()}
    if share.get("profiler overhead", 0) > 50:
        return "profiler overhead"
    if share.get("data loader", 0) >= 40:
        return "data loader"
    for named in (COMPILATION, HOST_OPTIMIZER):
        if share.get(named, 0) > 40:
            return named
    if 2 * waits.between > waits.total:
        return SCHEDULER
    if share.get("synchronization", 0) > 40 or 2 * waits.after_sync > waits.total:
        return RESULTS if waits.serves else "synchronization"
    if waits.paced_count >= _LAUNCHES and 2 * waits.paced > waits.total:
        return "launches"
    python = share.get(RANGES, 0) + share.get(UNRECORDED, 0)
    if python > 50:
        if share.get(RANGES, 0) >= share.get(UNRECORDED, 0):
            return RANGES
        return PYTHON if waits.frames else UNRECORDED
    # A launch takes microseconds: where a single call makes up a tenth of all waiting, it did something else.
    longest = waits.calls["longest"].max()
    if share.get(CALLS, 0) > 50 and isinstance(longest, int) and 10 * longest > waits.total:
        return FIRST_USE
    return "launches"


def _title(run: RunData, waits: _Waits) -> str:
    main = _main(waits)
    if main == RANGES:
        return f"Shorten the host's part of {waits.ranges()[0][0]}"
    return {
        "profiler overhead": "Profile again with less overhead",
        "data loader": "Load data ahead of the GPU",
        COMPILATION: "Keep compilation out of the steps",
        SCHEDULER: "Shorten the gaps between iterations",
        RESULTS: "Overlap the host's work with the devices",
        HOST_OPTIMIZER: "Update the parameters on the GPU",
        "synchronization": "Remove synchronizations from the loop",
        PYTHON: "Shorten the Python between the launches",
        UNRECORDED: "Record the host's work between launches",
        FIRST_USE: "Leave the first steps out of the profile",
        "launches": "Launch the work in fewer, larger pieces",
    }[main]


def _look_closer(run: RunData, program: Program) -> str:
    """Advise on how to record the host's work in more detail."""
    if "operator" not in kinds(run.store, "host_event"):
        return f"{TRACE_SOME.of(program)}, or annotate more of the loop,"
    return TRACE_AGAIN.of(program)


def _recommendation(run: RunData, waits: _Waits) -> str | None:
    if not waits.total:
        return None
    shares = ", ".join(
        _ranges_told(waits) if share.activity == RANGES else f"{share.activity} {duration(share.time_ns)}"
        for share in waits.shares()
        if share.percent >= _NAMED_PERCENT
    )
    total = duration(waits.total)
    main = _main(waits)
    program = run.program
    call = _first_use(run, waits)
    longest_call = f" (one `{call.name}` took {duration(call.time_ns)} of the waiting)" if call else ""
    advice = {
        "profiler overhead": f"Profile again {LESS_OVERHEAD.of(program)}, because the profiler itself causes most of the waiting",
        "data loader": f"Load data ahead with {LOAD_AHEAD.of(program)}, because the device waits for batches",
        COMPILATION: f"{FEWER_COMPILATIONS.of(program)}, because code is compiled while the device waits",
        SCHEDULER: f"{SCHEDULING.of(program)}, because {duration(waits.between)} of {total} of host wait lie between iterations,"
        f" where the scheduler runs{_code_between(run, main)}",
        RESULTS: f"{SCHEDULING.of(program)}, because {duration(waits.after_sync)} of {total} of host wait begin when the host waits for"
        " the results of an iteration",
        HOST_OPTIMIZER: f"{GPU_OPTIMIZER.of(program)}, because the device waits while the optimizer runs on the host",
        "synchronization": f"Remove {WAITS.of(program)} from the loop, or call them once every 100 steps,"
        f" because {duration(waits.after_sync)} of {total} of host wait begin inside a blocking call, which lets the device run empty",
        RANGES: f"{_look_closer(run, program)} and shorten what the host does in {_named(waits)}, because most of the waiting lies"
        " in annotated ranges where neither an operator nor a runtime call runs",
        PYTHON: "Shorten the Python functions that run between the launches, which the section on idle time names, because most of the"
        " waiting lies outside of operators and runtime calls",
        UNRECORDED: f"{_look_closer(run, program)} before you change the code, because the trace records nothing of the host for"
        f" {duration(waits.meanwhile[UNRECORDED])} of its waits",
        FIRST_USE: f"Profile after some warm-up steps {WARMED_UP.of(program)}, because contexts, modules"
        f" and memory are made at their first use{longest_call}",
        "launches": f"Launch less often {FEWER_LAUNCHES.of(program)}, because the host takes longer to launch the work than the device to"
        " run it",
    }[main]
    waited = f"{plural(waits.count, 'host wait')} took {total}, {duration(waits.total / waits.count)} each on average"
    longest_ns = sum(wait["time_ns"] for wait in waits.longest)
    if waits.count > 2 * _LONGEST and 2 * longest_ns > waits.total:
        waited += f" ({duration(longest_ns)} in the {_LONGEST} longest)"
    if main == UNRECORDED:
        return f"{advice}: {waited}.{_of_other_ranks(run)}"
    return f"{advice}: {waited}. The host's activity in that time was {shares}."


def _of_other_ranks(run: RunData) -> str:
    """Name the other cause of a wait without any record of the host."""
    return " A host that waits for another rank looks the same in such a trace." if len(run.breakdown) > 1 else ""


def _code_between(run: RunData, main: str) -> str:
    """Return a clause with the code that ran longest in the gaps, if it is known."""
    times: Counter[str] = Counter()
    for gap in run.longest_gaps if main == SCHEDULER else ():
        if gap.frame is not None and gap.kind == "Python":
            times[gap.frame] += gap.host_ns or 0
    return f", most of it `{times.most_common(1)[0][0]}`" if times else ""


def _ranges_told(waits: _Waits) -> str:
    """Describe the time in annotated ranges alone, with the longest ranges."""
    ranges = waits.ranges()
    listed = ", ".join(f"`{name}` {duration(time)}" for name, time in ranges[:_RANGES_NAMED])
    rest = len(ranges) - _RANGES_NAMED
    more = f" and {plural(rest, 'other')}" if rest > 0 else ""
    return f"annotated ranges outside of operators {duration(sum(time for _, time in ranges))} ({listed}{more})"


def _named(waits: _Waits) -> str:
    """Name the largest ranges: one with more than half of the time, else two."""
    ranges = waits.ranges()
    named = 1 if len(ranges) < 2 or 2 * ranges[0][1] > sum(time for _, time in ranges) else 2
    return " and ".join(f"`{name}`" for name, _ in ranges[:named])


def _first_use(run: RunData, waits: _Waits) -> TimeOf | None:
    """Return the longest runtime call if the profile is of a first use, else None."""
    if not waits.total or _main(waits) != FIRST_USE:
        return None
    name, longest = waits.calls.sort("longest", "name", descending=[True, False]).select("name", "longest").row(0)
    return TimeOf(names(run.store, [name]).get(name, ""), longest)
