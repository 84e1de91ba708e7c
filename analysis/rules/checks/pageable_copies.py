"""PageableCopies: the share of each device's time in copies from or to pageable host memory (docs/rules.md).

Copies from pinned memory use the full speed of the bus and overlap with kernels, and the host does not wait for them. In the best case
nothing waits: the saving is the part that no kernel covers, and the idle time that calls cause which copy to the device. A call that reads
from the device waits for the result also with pinned memory, so that its idle time belongs to SyncBound alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...device.coverage import DEVICE, with_covered
from ...efficiency.largest_site import Site
from ...report.device import MemoryOperation
from ...report.trace_details import PageableCopiesDetails, PageableCopy, PageableDevice
from ...toolkit.contents import kinds
from ...toolkit.intervals import union
from ...toolkit.places import Places, process_conditions
from ...toolkit.wording import count, duration, plural, significant, size
from ..evidence.base import Outcome, Parameter, Parameters, Rule, not_evaluated
from ..evidence.copy_advice import copy_advice, moves_weights
from ..evidence.device_share import DeviceShare, above, finding, issues, no_device_activity, outcome
from ..evidence.run_data import RunData
from ..evidence.sync_calls import call_sites

_LARGE_BYTES: Final = 64 * 1024  # if copies are smaller than this on average, their bandwidth means nothing

_CAPTURE_KIND: Final = "On NVIDIA GPUs torch.profiler records it with CUDA activity."
_CAPTURE_COPIES: Final = "Profile a part of the run that copies batches to the GPU."


class PageableCopies(Rule):
    name = "PageableCopies"
    category = "trace"
    names_code = True
    parameters = (Parameter("threshold", "%", 1, 1, "percentile", "share of a device's span that pageable copies may take"),)
    needs = "A profiler trace with the activity of the GPUs, such as a trace of torch.profiler with CUDA activity."
    checks = "Measures the share of each device's time in copies from or to pageable host memory."
    condition = "copies from or to pageable host memory take more than `threshold` of the span of any device"
    advice = "Load into pinned memory (`pin_memory=True`) and copy with `non_blocking=True`."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        known, untold = _devices_with_kind(run.store)
        if not known:
            if untold:
                reason = f"the trace does not say of {_host_copies(untold)} whether its host memory was pageable"
                return not_evaluated(reason, _CAPTURE_KIND)
            return not_evaluated("no copies between host and device in this run", _CAPTURE_COPIES)
        pageable = _lengths(run.store)
        threshold = parameters["threshold"]
        calls, blocked = _host_calls(run.store)
        blocking = _blocking(calls, blocked)
        shares, costs = [], []
        idle = _caused_idle(run)
        for device in run.breakdown:
            at = (device.node, device.rank, device.pid, device.device)
            ns = pageable.get(at, (0, 0))[0]
            share = DeviceShare(device, ns, above(ns, device.span_ns, threshold) if at in known else None)
            shares.append(share)
            costs.append(replace(share, ns=ns + idle.get(at, 0)))
        site = _site(run) if issues(shares) else None
        return outcome(
            run,
            costs,
            details=PageableCopiesDetails(
                devices=tuple(
                    PageableDevice.of(
                        share.device,
                        pageable_ns=share.ns if share.issue is not None else None,
                        percent=share.percent if share.issue is not None else None,
                        exposed_ns=_exposed(pageable, share) if share.issue is not None else None,
                        issue=share.issue,
                        caused_idle_ns=cost.ns - share.ns if share.issue is not None else None,
                    )
                    for share, cost in zip(shares, costs, strict=True)
                ),
                copies=_copies(run),
                host_calls=calls,
                host_blocked_ns=blocked,
                site=site,
            ),
            # The recommendation of an issue has the calls of the host.
            finding=finding(run, shares, "Copies from or to pageable host memory take", threshold)
            + (
                _idle(sum(cost.ns - share.ns for share, cost in zip(shares, costs, strict=True) if share.issue is not None))
                if issues(shares)
                else blocking
            ),
            title=_title(run),
            recommendation=_recommendation(run) + blocking + (f" The costliest call comes from `{site}`." if site else ""),
            saving_ns=sum(_exposed(pageable, share) + cost.ns - share.ns for share, cost in zip(shares, costs, strict=True) if share.issue),
        )

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        names = run.store.frame("SELECT DISTINCT name FROM device_event WHERE pageable")["name"]
        return run.site_of_work(pl.col("kernel").is_in(names.to_list()))


def _caused_idle(run: RunData) -> dict[tuple[str, int | None, int | None, int | None], int]:
    """Return the idle time that calls cause which copy pageable memory to the device.

    Devices that processes share have none: which of them would launch is not known."""
    caused: dict[tuple[str, int | None, int | None, int | None], int] = {}
    for group in run.blocking:
        uploads = group.calls.filter("upload").group_by("row").agg(pl.col("caused").sum())
        by_row = dict(uploads.iter_rows())
        caused |= {(device.node, device.rank, device.pid, device.device): by_row.get(device.row, 0) for device in group.devices}
    return caused


def _site(run: RunData) -> str | None:
    """Return the code around the upload that causes the most idle time."""
    uploads = [group.calls.filter("upload", pl.col("caused") > 0).select("caused", "process", "tid", "start") for group in run.blocking]
    top = pl.concat(uploads).sort("caused", "start", descending=[True, False]).head(1)
    return call_sites(run.store, top.with_row_index("number")).get(0)


def _idle(caused_ns: int) -> str:
    return f" Calls that copy to the device caused another {duration(caused_ns)} of idle time." if caused_ns else ""


def _host_calls(store: Store) -> tuple[int, int]:
    """Return how many host calls made pageable copies, and how long they took."""
    calls = store.frame("""
        SELECT h.process, h.tid, h.start_ns AS start, h.start_ns + h.duration_ns AS "end" FROM host_event AS h
        WHERE h.kind IN ('launch', 'call', 'sync') AND EXISTS (FROM device_event AS e WHERE e.kind = 'memcpy' AND e.pageable
            AND e.process = h.process AND e.correlation = h.correlation)
    """)
    merged = union(calls, ["process", "tid"])
    return calls.height, int((merged["end"] - merged["start"]).sum())


def _blocking(calls: int, blocked: int) -> str:
    if not calls:
        return ""
    return f" The host was in {plural(calls, 'call')} of such copies for {duration(blocked)}; they return when the data is there."


def _host_copies(number: int) -> str:
    return "the copy between host and device" if number == 1 else f"any of the {count(number)} copies between host and device"


_Lengths = dict[tuple[str, int | None, int | None, int], tuple[int, int]]


def _exposed(pageable: _Lengths, share: DeviceShare) -> int:
    device = share.device
    return pageable.get((device.node, device.rank, device.pid, device.device), (0, 0))[1]


def _devices_with_kind(store: Store) -> tuple[set[tuple[str, int | None, int | None, int]], int]:
    """Return the devices with a known kind of host memory, and count unknown copies."""
    places = Places(store)
    devices: set[tuple[str, int | None, int | None, int]] = set()
    untold = 0
    if "memcpy" not in kinds(store, "device_event"):
        return devices, untold
    for node, process, device, known, copies in store.frame("""
        SELECT node, process, device, count(pageable), count(*) FILTER (pageable IS NULL AND copy_kind IN ('HtoD', 'DtoH'))
        FROM device_event WHERE kind = 'memcpy' GROUP BY ALL
    """).rows():
        location = places.process(process, node)
        untold += copies
        if known:
            devices.add((location.node, location.rank, location.pid, device))
    return devices, untold


def _lengths(store: Store) -> _Lengths:
    """Return the union length of each device's pageable copies, total and exposed."""
    places = Places(store)
    length = pl.col("end") - pl.col("start")
    lengths: _Lengths = {}
    for group in process_conditions(store):
        copies = store.frame(f"""
            SELECT e.node, e.process, e.device, e.start_ns AS start, e.start_ns + e.duration_ns AS "end"
            FROM device_event AS e WHERE e.kind = 'memcpy' AND e.pageable AND {group}
        """)
        pageable = with_covered(store, union(copies, DEVICE), "kernel", group=group, times="e.kind = 'memcpy' AND e.pageable")
        rows = pageable.group_by(DEVICE).agg(length.sum().alias("whole"), (length - pl.col("covered")).sum().alias("exposed"))
        for node, process, device, total, exposed in rows.rows():
            location = places.process(process, node)
            lengths[location.node, location.rank, location.pid, device] = (total, exposed)
    return lengths


def _copies(run: RunData) -> tuple[PageableCopy, ...]:
    """Return pageable copies by kind, longest first, with the pinned bandwidth."""
    pinned = {operation.kind: operation for operation in _of_memory(run, "pinned")}
    return tuple(
        PageableCopy.of(
            operation,
            time_ns=operation.total_ns,
            bytes=operation.total_bytes,
            pinned_bandwidth_gb_per_s=pinned[operation.kind].bandwidth_gb_per_s if operation.kind in pinned else None,
        )
        for operation in _of_memory(run, "pageable")
    )


def _of_memory(run: RunData, memory: str) -> list[MemoryOperation]:
    return [operation for operation in run.memory_operations if operation.memory == memory]


def _title(run: RunData) -> str:
    main = next(iter(_of_memory(run, "pageable")), None)
    if main is not None and moves_weights(run.program, main.kind, (main.total_bytes or 0) / main.count):
        return "Keep weights on the GPU"
    direction = {"HtoD": "host-to-device ", "DtoH": "device-to-host "}.get(main.kind, "") if main is not None else ""
    return f"Use pinned memory for {direction}copies"


def _recommendation(run: RunData) -> str:
    copies = _of_memory(run, "pageable")
    if not copies:
        return ""
    main = copies[0]
    pinned = next((operation for operation in _of_memory(run, "pinned") if operation.kind == main.kind), None)
    change = copy_advice(run.program, main.kind, main.memory, (main.total_bytes or 0) / main.count)
    volume = f" ({size(main.total_bytes)} in all)" if main.total_bytes else ""
    why = (
        f"{plural(main.count, f'pageable {main.kind} copy', f'pageable {main.kind} copies')}{volume} took {duration(main.total_ns)}"
        f"{_speed(main, pinned)}"
    )
    return f"{change}, because {why}, and the host waits for each."


def _speed(copies: MemoryOperation, pinned: MemoryOperation | None) -> str:
    if not _large(copies):
        return ""
    speed = f" at {significant(copies.bandwidth_gb_per_s or 0.0)} GB/s"
    if pinned is None or not _large(pinned):
        return speed
    return f"{speed}, where pinned memory reached {significant(pinned.bandwidth_gb_per_s or 0.0)} GB/s"


def _large(copies: MemoryOperation) -> bool:
    return copies.bandwidth_gb_per_s is not None and (copies.total_bytes or 0) >= _LARGE_BYTES * copies.count
