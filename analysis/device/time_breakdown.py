"""Time of every device, divided into computation, exposed communication, exposed memory operations and idle time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.device import DeviceTime, GpuTime
from ..toolkit.intervals import first_of, sweep_length
from ..toolkit.places import Places, process_conditions
from ..toolkit.windows import windows, with_window

WORTH_NAMING_PERCENT: Final = 5.0  # smallest share of the time that sentences on the whole run name as a loss

# Of a time with its active classes; together with the idle time they add up to the span.
EXPOSED: Final = {
    "computation": pl.col("computation"),
    "exposed_communication": pl.col("communication") & ~pl.col("computation"),
    "exposed_memory": pl.col("memory") & ~pl.col("computation") & ~pl.col("communication"),
}

_DEVICE: Final = ["node", "process", "device"]
_CLASSES: Final = ["computation", "communication", "memcpy", "memset", "linked"]


def time_breakdown(store: Store) -> tuple[DeviceTime, ...]:
    """Divide the time of each device of each process with device activity.

    Times are lengths of interval unions over all streams, exact to the nanosecond. Communication is the kernels of that category. An event
    is linked if a host call of its process has its correlation. The span is from the first start to the last end. For a process that was
    profiled several times it is the sum over the profiles, because the activity between them is unknown.
    """
    places = Places(store)
    profiled = windows(store, "process")
    names = {(node, index): name for node, index, name in store.frame('SELECT node, "index", name FROM device').rows()}
    rows = []
    for condition in process_conditions(store):
        for row in _breakdown(with_window(_events(store, condition), profiled)).iter_rows(named=True):
            location = places.process(row["process"], row["node"])
            name = names.get((row["node"], row["device"]))
            rows.append((location.order, _device_time(row, *location, name)))
    return tuple(device for _, device in sorted(rows, key=lambda item: (item[0], item[1].device)))


def whole_devices(store: Store, breakdown: Sequence[DeviceTime]) -> tuple[DeviceTime, ...]:
    """Merge the rows of processes that share a device.

    A merged row has no rank and pid. Time in which several of its processes are active counts once, and the device is busy while any of
    them is active.
    """
    users = Counter((row.node, row.device) for row in breakdown)
    if not users or max(users.values()) == 1:
        return tuple(breakdown)
    places = Places(store)
    profiled = windows(store, "node")
    rows = {(row.node, row.device): row for row in breakdown}
    for node, device in store.frame("SELECT DISTINCT node, device FROM device_run").rows():
        key = (places.node(node), device)
        if users[key] > 1:
            events = _events(store, f"e.node = {node} AND e.device = {device}", calls=f"e.node = {node}")
            (row,) = _breakdown(with_window(events.with_columns(process=pl.lit(None, pl.Int32)), profiled)).iter_rows(named=True)
            rows[key] = _device_time(row, key[0], None, None, rows[key].device_name)
    return tuple(rows.values())


def gpu_time(store: Store, devices: Sequence[DeviceTime]) -> GpuTime | None:
    """Add up the rows of :func:`whole_devices`; None without GPU activity."""
    if not devices:
        return None
    first, last = store.frame("SELECT min(start_ns), max(end_ns) FROM device_run").row(0)
    parts = ("span_ns", "computation_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns")
    return GpuTime(len(devices), first, last, **{part: sum(getattr(device, part) for device in devices) for part in parts})


def only_copied(devices: Sequence[DeviceTime]) -> float:
    """Return the percentage of the devices' time with copies or memsets and no kernel."""
    span = sum(device.span_ns for device in devices)
    return 100 * sum(device.exposed_memory_ns for device in devices) / span if span else 0.0


def _events(store: Store, condition: str, *, calls: str | None = None) -> pl.DataFrame:
    events = store.frame(f"""
        SELECT e.node, e.process, e.device, e.start_ns AS start, e.end_ns AS "end", e.correlation AS number,
               e.kernel, e.computation, e.communication, e.memcpy, e.memset
        FROM device_run AS e WHERE {condition}
    """)
    linked = pl.repeat(False, events.height, dtype=pl.Boolean, eager=True)
    for kinds in ("'launch'", "'sync', 'call'"):  # usually launches alone link all events
        if not linked.all():
            called = store.frame(f"""
                SELECT e.process, e.correlation AS number, e.start_ns AS "order" FROM host_event AS e
                WHERE e.kind IN ({kinds}) AND e.correlation IS NOT NULL AND {calls or condition}
            """)
            linked |= first_of(events, called, ["process"], ["order"]).is_not_null()
    return events.drop("number").with_columns(linked=linked)


def _breakdown(events: pl.DataFrame) -> pl.DataFrame:
    active = pl.col("length")
    profiles = events.group_by(*_DEVICE, "window").agg(
        events=pl.len(),
        first_ns=pl.col("start").min(),
        span_ns=pl.col("end").max() - pl.col("start").min(),
        kernel_total_ns=(pl.col("end") - pl.col("start")).filter("kernel").sum(),
    )
    devices = profiles.group_by(_DEVICE).agg(pl.col("first_ns").min(), pl.col("events", "span_ns", "kernel_total_ns").sum())
    # Every segment of the sweep has at least one active kernel, copy or memset: together they are the busy time.
    times = (
        sweep_length(events, _DEVICE, _CLASSES)
        .with_columns(memory=pl.col("memcpy") | pl.col("memset"))
        .group_by(_DEVICE)
        .agg(
            busy_ns=active.sum(),
            **{f"{part}_ns": active.filter(where).sum() for part, where in EXPOSED.items()},
            **{f"{name}_ns": active.filter(name).sum() for name in ("communication", "memory", "memcpy", "memset")},
            linked_busy_ns=active.filter("linked").sum(),
        )
    )
    return devices.join(times, on=_DEVICE, how="left", nulls_equal=True).fill_null(0).sort(_DEVICE)


def _device_time(row: dict[str, int], node: str, rank: int | None, pid: int | None, name: str | None) -> DeviceTime:
    times = {column: value for column, value in row.items() if column not in ("node", "process")}
    communication, exposed = row["communication_ns"], row["exposed_communication_ns"]
    overlap = 100 * (communication - exposed) / communication if communication else None
    idle = row["span_ns"] - row["busy_ns"]
    return DeviceTime(node=node, rank=rank, pid=pid, device_name=name, idle_ns=idle, overlap_percent=overlap, **times)
