"""Expected contents of report.json for a PyTorch profiler trace: the figures again, event by event in plain Python, sharing no code.

Slow and simple on purpose: ``json`` with Decimal, dicts, lists and loops. One file is one process; only complete events ("X") are read.
Definitions: docs/definitions.md. Category and precision of a kernel are taken from the report; only communication is not.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Spans = list[tuple[int, int]]

DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "memcpy": "memcpy", "gpu_memset": "memset", "memset": "memset", "cuda_sync": "sync"}
CALLS = {"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime"}
LAUNCH = re.compile(r"(cuda|cu|hip)(Ext)?(Module)?(Launch(?!HostFunc)|GraphLaunch|Mem(cpy|set))")
COMMUNICATION = re.compile(r"nccl|rccl|oneccl|msccl|deep_ep|cross_device_reduce|multimem_|all_?reduce|all_?gather|reduce_?scatter", re.I)
COPY = re.compile(r"HtoD|DtoH|DtoD|PtoP|HtoH", re.I)
LONGEST, ROUNDING = 7 * 86_400 * 10**9, 1000


# Names of ranges that load data in the traces that are read here.
LOADING = {"## data_load ##", "## load_batch ##", "## wait_for_batch ##"}


class Trace:
    """The events of one file by what they are; ``start`` and ``end`` in nanoseconds, ``id`` the correlation (None where 0)."""

    def __init__(self, path: Path) -> None:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
        document = json.loads(raw, strict=False, parse_float=Decimal)
        base = 0
        if isinstance(document, dict):
            base = int(document.get("baseTimeNanoseconds") or 0)
            document = document["traceEvents"]
        self.device: list[Event] = []
        self.calls: list[Event] = []
        self.operators: list[Event] = []
        self.loaders: list[Event] = []
        self.ranges: list[Event] = []
        for event in document:
            if event.get("ph") != "X":
                continue
            category, name = str(event.get("cat")).lower(), str(event.get("name", ""))
            start, duration = int(Decimal(event["ts"]) * 1000), int(Decimal(event.get("dur") or 0) * 1000)
            if duration > LONGEST or duration < -ROUNDING or (category in DEVICE and start == 0 and duration == 0):
                continue
            start, args = start + base, event.get("args") or {}
            row = {"name": name, "start": start, "end": start + max(duration, 0), "args": args, "id": args.get("correlation") or None}
            row |= {"tid": event.get("tid"), "external": args.get("External id", args.get("external id"))}
            host = category in CALLS | {"cpu_op", "operator", "user_annotation"}
            if category in DEVICE:
                stream = args.get("stream", event.get("tid"))
                row |= {"kind": DEVICE[category], "device": args.get("device", event.get("pid"))}
                row |= {"stream": int(re.sub(r"\D", "", str(stream)) or 0)}
                self.device.append(row)
            elif host and re.match(r"(enumerate\()?DataLoader|_?(Single|Multi)Process(ing)?DataLoader", name):
                self.loaders.append(row)
            elif category in CALLS:
                row["launch"] = LAUNCH.match(name) is not None
                row["sync"] = "ynchronize" in name
                self.calls.append(row)
            elif category == "user_annotation" or (host and re.fullmatch(r"ProfilerStep#\d+", name)):
                self.ranges.append(row | {"side": "host"})
            elif category == "gpu_user_annotation":
                self.ranges.append(row | {"side": "device"})
            elif host:
                self.operators.append(row)
        self.work = [event for event in self.device if event["kind"] != "sync"]
        self.called = first_by_id(self.calls)
        self.launched = first_by_id(call for call in self.calls if call["launch"])


def first_by_id(calls: Iterable[Event]) -> dict[int, Event]:
    events: dict[int, Event] = {}
    for call in sorted(calls, key=lambda call: (call["start"], call["end"])):
        if call["id"] is not None:
            events.setdefault(call["id"], call)
    return events


def union(spans: Iterable[tuple[int, int]]) -> int:
    total: int = 0
    last: int | None = None
    for start, end in sorted(spans):
        total += max(0, end - (start if last is None else max(start, last)))
        last = end if last is None else max(last, end)
    return total


def spans(events: Iterable[Event], *kinds: str, communication: bool | None = None) -> Spans:
    return [(e["start"], e["end"]) for e in events if e["kind"] in kinds
            and (communication is None or bool(COMMUNICATION.search(e["name"])) == communication)]  # fmt: skip


def summed(events: Iterable[Event]) -> int:
    return sum(event["end"] - event["start"] for event in events)


def quantiles(durations: Iterable[int]) -> dict[str, float] | None:
    values = sorted(durations)
    if not values:
        return None

    def at(fraction: float) -> float:
        position = fraction * (len(values) - 1)
        low, high = values[math.floor(position)], values[math.ceil(position)]
        return low + (high - low) * (position - math.floor(position))

    mean = sum(values) / len(values)
    named = {f"p{p}": at(p / 100) for p in (5, 25, 50, 75, 95, 99)}
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return {"count": len(values), "min": values[0], **named, "max": values[-1], "mean": mean, "std": std}


def time_breakdown(trace: Trace) -> list[Event]:
    devices: defaultdict[int, list[Event]] = defaultdict(list)
    for event in trace.work:
        devices[event["device"]].append(event)
    rows = []
    for device, events in sorted(devices.items()):
        everything, compute = spans(events, "kernel", "memcpy", "memset"), spans(events, "kernel", communication=False)
        talk, memory = spans(events, "kernel", communication=True), spans(events, "memcpy", "memset")
        first = min(start for start, _ in everything)
        span, busy = max(end for _, end in everything) - first, union(everything)
        exposed = union(compute + talk) - union(compute)
        rows.append({
            "device": device, "events": len(events), "first_ns": first, "span_ns": span, "busy_ns": busy, "idle_ns": span - busy,
            "computation_ns": union(compute), "communication_ns": union(talk), "exposed_communication_ns": exposed,
            "overlap_percent": 100 * (union(talk) - exposed) / union(talk) if union(talk) else None,
            "memory_ns": union(memory), "exposed_memory_ns": busy - union(compute + talk), "memcpy_ns": union(spans(events, "memcpy")),
            "memset_ns": union(spans(events, "memset")), "kernel_total_ns": summed(e for e in events if e["kind"] == "kernel"),
            "linked_busy_ns": union([(e["start"], e["end"]) for e in events if e["id"] in trace.called]),
        })  # fmt: skip
    return rows


def kernels(traces: Sequence[Trace]) -> dict[str, Any]:
    durations: defaultdict[str, list[int]] = defaultdict(list)
    for trace in traces:
        for event in trace.work:
            if event["kind"] == "kernel":
                durations[event["name"]].append(event["end"] - event["start"])
    total = sum(map(sum, durations.values()))
    profile = sum(row["span_ns"] for trace in traces for row in time_breakdown(trace))
    return {name: {
        "count": len(own), "total_ns": sum(own), "min_ns": min(own), "mean_ns": sum(own) / len(own), "max_ns": max(own),
        "share_of_kernel_time": 100 * sum(own) / total if total else 0, "share_of_profile": 100 * sum(own) / profile if profile else 0,
    } for name, own in durations.items()}  # fmt: skip


def grouped(pairs: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """(key, ns) pairs -> key: (total, count, percent)"""
    total, count = Counter[str](), Counter[str]()
    for key, ns in pairs:
        total[key] += ns
        count[key] += 1
    everything = sum(total.values())
    return {key: (total[key], n, 100 * total[key] / everything if everything else 0) for key, n in count.items()}


def activity(traces: Sequence[Trace]) -> dict[str, Any]:
    device = [event for trace in traces for event in trace.device]
    if all(event["kind"] == "sync" for event in device):
        return {}
    pairs = [(event["kind"], event["end"] - event["start"]) for event in device]
    if not any(kind == "sync" for kind, _ in pairs):
        pairs += [("sync", call["end"] - call["start"]) for trace in traces for call in trace.calls if call["sync"]]
    return grouped(pairs)


def memory_operations(traces: Sequence[Trace]) -> dict[tuple[str, str | None], Any]:
    groups: defaultdict[tuple[str, str | None], list[Event]] = defaultdict(list)
    for trace in traces:
        for event in trace.work:
            if event["kind"] == "memset":
                groups["Memset", None].append(event)
            elif event["kind"] == "memcpy":
                copy = COPY.search(event["name"])
                words = event["name"].lower()
                memory = "pageable" if "pageable" in words else "pinned" if "pinned" in words else None
                groups[copy[0] if copy else event["name"], memory].append(event)
    everything = sum(map(summed, groups.values()))
    rows = {}
    for key, events in groups.items():
        sized = [event for event in events if event["args"].get("bytes") is not None]
        size = sum(event["args"]["bytes"] for event in sized) if sized else None
        rows[key] = {
            "count": len(events), "total_ns": summed(events), "total_bytes": size,
            "percent": 100 * summed(events) / everything if everything else 0,
            "bandwidth_gb_per_s": size / summed(sized) if size is not None and summed(sized) else None,
        }  # fmt: skip
    return rows


def idle(trace: Trace) -> dict[tuple[int, int], Any]:
    streams: defaultdict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in trace.work:
        streams[event["device"], event["stream"]].append(event)
    rows = {}
    for key, events in streams.items():
        events.sort(key=lambda event: (event["start"], event["end"]))
        causes, gaps, before = Counter[str](), 0, events[0]["end"]
        for event in events[1:]:
            gap = event["start"] - before
            if gap > 0:
                causes.update(parts_of_gap(before, event["start"], trace.launched.get(event["id"])))
                gaps += 1
            before = max(before, event["end"])
        if gaps:
            rows[key] = {"gaps": gaps, **{cause: causes[cause] for cause in ("host_wait_ns", "kernel_wait_ns", "other_ns", "waiting_ns")}}
    return rows


def parts_of_gap(start: int, end: int, launch: Event | None) -> dict[str, int]:
    """Divide a gap at the end of the launch call of the work that ends it."""
    if launch is None:
        return {"other_ns": end - start}
    if launch["end"] >= end:
        return {"host_wait_ns": end - start}
    host = launch["end"] - start if launch["end"] > start else 0
    waited = end - start - host
    if waited < 30_000:
        return {"host_wait_ns": host, "kernel_wait_ns": waited}
    return {"host_wait_ns": host, "other_ns": waited, "waiting_ns": waited}


def derived_utilization(trace: Trace) -> list[float]:
    """Return busy percent of every bucket of 1, 2 or 5 x 10^n ns of a trace's devices."""
    origin, last = min(event["start"] for event in trace.work), max(event["end"] for event in trace.work)
    width = next(f * 10**n for n in range(6, 19) for f in (1, 2, 5) if f * 10**n * 2000 >= last - origin)
    values = []
    for row in time_breakdown(trace):
        work = sorted((e["start"] - origin, e["end"] - origin) for e in trace.work if e["device"] == row["device"])
        reach = list(accumulate((end for _, end in work), max))
        first, end = row["first_ns"] - origin, row["first_ns"] - origin + row["span_ns"]
        for low in range(first // width * width, end, width):
            inside = (max(low, first), min(low + width, end))
            some = work[bisect_right(reach, inside[0]) : bisect_left(work, (inside[1],))]
            busy = union((max(a, inside[0]), min(b, inside[1])) for a, b in some if a < inside[1] and b > inside[0])
            values.append(100 * busy / (inside[1] - inside[0]))
    return values
