"""Where did the time of every device go: computation, exposed communication, exposed memory operations, idle?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.model import DeviceTime
from ..toolkit.intervals import sweep
from ..toolkit.places import Places, process_conditions
from ..toolkit.windows import windows, with_window

WORTH_NAMING_PERCENT: Final = 5.0  # A loss below this share of the time is not named in sentences on the whole run

_DEVICE: Final = ["node", "process", "device"]
_CLASSES: Final = ["computation", "communication", "memcpy", "memset", "linked"]


def time_breakdown(store: Store) -> tuple[DeviceTime, ...]:
    """One row per (node, process, device) with kernels, copies or memsets, by host name, rank, pid and device; empty without any.

    Times are lengths of interval unions over all streams, exact to the nanosecond; communication is the kernels of that category. An
    event is linked where a host call of its process has its correlation. The span is from the first start to the last end; of a process
    that was profiled several times, in each profile, added up: what the device did between them is not known.
    """
    places = Places(store)
    profiled = windows(store, "process")
    names = {(node, index): name for node, index, name in store.frame('SELECT node, "index", name FROM device').rows()}
    rows = []
    for condition in process_conditions(store):
        for row in _breakdown(with_window(_events(store, condition), profiled)).iter_rows(named=True):
            place = places.process(row["process"], row["node"])
            rows.append((place.order, _device_time(row, place.node, place.rank, place.pid, names.get((row["node"], row["device"])))))
    return tuple(device for _, device in sorted(rows, key=lambda item: (item[0], item[1].device)))


def whole_devices(store: Store, breakdown: Sequence[DeviceTime]) -> tuple[DeviceTime, ...]:
    """``breakdown`` with one row per device: where several processes shared one, a row without rank and pid for all of them together.

    What two processes do at the same time is counted once then, and what one does while the other waits keeps the device busy.
    """
    users = Counter((row.node, row.device) for row in breakdown)
    if not users or max(users.values()) == 1:
        return tuple(breakdown)
    places = Places(store)
    profiled = windows(store, "node")
    whole = {(row.node, row.device): row for row in breakdown}
    for node, device in store.frame("SELECT DISTINCT node, device FROM device_event WHERE kind <> 'sync'").rows():
        key = (places.node(node), device)
        if users[key] > 1:
            events = _events(store, f"e.node = {node} AND e.device = {device}", calls=f"e.node = {node}")
            (row,) = _breakdown(with_window(events.with_columns(process=pl.lit(None, pl.Int32)), profiled)).iter_rows(named=True)
            whole[key] = _device_time(row, key[0], None, None, whole[key].device_name)
    return tuple(whole.values())


def only_copied(devices: Sequence[DeviceTime]) -> float:
    """Percent of the devices' spans, added up, in which they copied or set memory and ran no kernel; 0 where there is no span."""
    span = sum(device.span_ns for device in devices)
    return 100 * sum(device.exposed_memory_ns for device in devices) / span if span else 0.0


def _events(store: Store, condition: str, *, calls: str | None = None) -> pl.DataFrame:
    return store.frame(f"""
        WITH calls AS (
            SELECT DISTINCT process, correlation FROM host_event AS e
            WHERE kind IN ('launch', 'sync', 'call') AND correlation IS NOT NULL AND {calls or condition}
        )
        SELECT e.node, e.process, e.device, e.start_ns AS start, e.start_ns + e.duration_ns AS "end",
               e.kind = 'kernel' AS kernel,
               e.kind = 'kernel' AND n.category IS DISTINCT FROM 'communication' AS computation,
               e.kind = 'kernel' AND n.category IS NOT DISTINCT FROM 'communication' AS communication,
               e.kind = 'memcpy' AS memcpy,
               e.kind = 'memset' AS memset,
               c.correlation IS NOT NULL AS linked
        FROM device_event AS e
        LEFT JOIN name AS n ON n.id = e.name
        LEFT JOIN calls AS c ON c.process = e.process AND c.correlation = e.correlation
        WHERE e.kind <> 'sync' AND {condition}
    """)


def _breakdown(events: pl.DataFrame) -> pl.DataFrame:
    length = pl.col("end") - pl.col("start")
    computation, communication, memcpy, memset, linked = (pl.col(name) for name in _CLASSES)
    memory = memcpy | memset

    def total(where: pl.Expr) -> pl.Expr:
        return length.filter(where).sum()

    profiles = events.group_by(*_DEVICE, "window").agg(
        events=pl.len(),
        first=pl.col("start").min(),
        span=pl.col("end").max() - pl.col("start").min(),
        kernel_total=total(pl.col("kernel")),
    )
    devices = profiles.group_by(_DEVICE).agg(pl.col("first").min(), pl.col("events", "span", "kernel_total").sum())
    # Every segment of the sweep has at least one class of kernel, copy or memset active: all of them together are the busy time.
    times = (
        sweep(events, _DEVICE, _CLASSES)
        .group_by(_DEVICE)
        .agg(
            busy=length.sum(),
            computation=total(computation),
            communication=total(communication),
            exposed_communication=total(communication & ~computation),
            memory=total(memory),
            exposed_memory=total(memory & ~computation & ~communication),
            memcpy=total(memcpy),
            memset=total(memset),
            linked=total(linked),
        )
    )
    return devices.join(times, on=_DEVICE, how="left", nulls_equal=True).fill_null(0).sort(_DEVICE)


def _device_time(row: dict[str, int], node: str, rank: int | None, pid: int | None, name: str | None) -> DeviceTime:
    communication, exposed = row["communication"], row["exposed_communication"]
    return DeviceTime(
        node=node,
        rank=rank,
        pid=pid,
        device=row["device"],
        device_name=name,
        events=row["events"],
        first_ns=row["first"],
        span_ns=row["span"],
        busy_ns=row["busy"],
        idle_ns=row["span"] - row["busy"],
        computation_ns=row["computation"],
        communication_ns=communication,
        exposed_communication_ns=exposed,
        overlap_percent=100 * (communication - exposed) / communication if communication else None,
        memory_ns=row["memory"],
        exposed_memory_ns=row["exposed_memory"],
        memcpy_ns=row["memcpy"],
        memset_ns=row["memset"],
        kernel_total_ns=row["kernel_total"],
        linked_busy_ns=row["linked"],
    )
