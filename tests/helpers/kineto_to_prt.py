"""Conversion of a PyTorch profiler trace to the recording that the capture library would have written: plain Python, from the JSON text.

Kernels, copies, memsets, synchronizations, runtime and driver calls and the program's own ranges go to a .prt file; operators, Python
functions, the profiler's own overhead and ranges that the profiler projected onto streams have no place there.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from postrun.native import _native
from prt_reader import MISSING
from prt_writer import PrtWriter

Event = dict[str, Any]
ROWS = 4096
DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "memcpy": "memcpy", "gpu_memset": "memset", "memset": "memset", "cuda_sync": "sync"}
CALLS = {"cuda_runtime", "cuda_driver", "runtime"}
RANGES = {"user_annotation"}
STEP = re.compile(r"ProfilerStep#\d+")
COPIES = ["", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"]
SYNCS = ["", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync"]
FACTS = {"name": "name", "totalGlobalMem": "memory_bytes", "numSms": "sm_count", "uuid": "uuid"}


def document(trace: Path) -> dict[str, Any]:
    """The trace with exact numbers."""
    parsed = json.loads(gzip.decompress(trace.read_bytes()), strict=False, parse_float=Decimal)
    assert isinstance(parsed, dict)
    return parsed


def convert(trace: dict[str, Any], *, host: str, pid: int | None = None, seed: int = 0) -> bytes:
    """Return a recording of ``trace`` by process ``pid``; device rows are in no order."""
    base = int(trace.get("baseTimeNanoseconds", 0))
    events = [one for one in trace["traceEvents"] if one.get("ph") == "X"]
    sorted_in: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        category = str(event.get("cat")).lower()
        if table := DEVICE.get(category):
            sorted_in[table].append(event)
        elif category in CALLS:
            sorted_in["api"].append(event)
        elif category in RANGES or (category in {"cpu_op", "operator"} and STEP.fullmatch(event["name"])):
            sorted_in["annotation"].append(event)
    chosen = [one for some in sorted_in.values() for one in some]
    first = min(_ns(one["ts"]) for one in chosen) + base
    last = max(_ns(one["ts"]) + _ns(one.get("dur", 0)) for one in chosen) + base
    info = trace.get("distributedInfo") or {}
    pid = pid if pid is not None else max((int(one["pid"]) for one in sorted_in["api"] + sorted_in["annotation"]), default=0)
    names = sorted({one["name"] for table in ("kernel", "api", "annotation") for one in sorted_in[table]})
    numbers = {name: i for i, name in enumerate(names, 1)}

    writer = PrtWriter()
    writer.parts = [_native.write_trace_header(bytes(range(16)), pid, 1, 1, first)]
    span = max(1, last - first)  # the recording lasts as long as its events
    anchors = [(0, 10**9, first), (span, 10**9 + span, first + span)]
    writer.prelude(names, anchors)
    facts = {f"cuda.{index}.{fact}": value for index, facts in _devices(trace) for fact, value in facts.items()}
    facts["framework"] = "PyTorch"
    writer.add("meta", {1: list(facts), 2: list(facts.values())})
    places = {6: [info.get("rank", -1)], 7: [-1], 8: [info.get("world_size", -1)]}
    writer.add("process", {1: [pid], 2: [1], 3: [first], 4: [""], 5: [host], **places})

    def spans(some: Sequence[Event]) -> dict[int, list[int]]:
        return {2: [_ns(one["ts"]) + base - first for one in some], 3: [_ns(one.get("dur", 0)) for one in some]}

    def write(table: str, columns: dict[int, list[int]], source: int = 0) -> None:
        for at in range(0, len(columns[2]), ROWS):
            writer.add(table, {number: values[at : at + ROWS] for number, values in columns.items()}, source=source)

    shuffle = random.Random(seed).shuffle
    for table in ("kernel", "memcpy", "memset", "sync"):
        some = sorted_in[table]
        shuffle(some)
        if some:
            write(table, {1: [numbers.get(one["name"], 0) for one in some], **spans(some), **_device_columns(table, some)})
    calls = sorted_in["api"]
    if calls:
        correlations = [int(_args(one).get("correlation", MISSING)) for one in calls]
        kinds = [_call_kind(one["name"]) for one in calls]
        tids = [int(one["tid"]) for one in calls]
        write("api", {1: [numbers[one["name"]] for one in calls], **spans(calls), 4: correlations, 5: kinds, 6: tids})
    threads = sorted({int(one["tid"]) for one in sorted_in["annotation"]})
    if threads:
        writer.add("thread", {1: range(1, len(threads) + 1), 2: threads, 3: [""] * len(threads)})
    for source, tid in enumerate(threads, 1):
        some = [one for one in sorted_in["annotation"] if int(one["tid"]) == tid]
        depths = _depths([(_ns(one["ts"]), _ns(one["ts"]) + _ns(one["dur"])) for one in some])
        count = len(some)
        write(
            "annotation",
            {1: [numbers[one["name"]] for one in some], **spans(some), 4: [MISSING] * count, 5: depths, 6: [0] * count},
            source,
        )
    return writer.end(len(chosen)).data()


def _device_columns(table: str, some: Sequence[Event]) -> dict[int, list[int]]:
    args = [_args(one) for one in some]

    def column(name: str) -> list[int]:
        return [int(one.get(name, MISSING)) for one in args]

    columns = {number: column(name) for number, name in ((4, "device"), (5, "context"), (6, "stream"), (7, "correlation"))}
    if table == "kernel":
        for at in range(3):
            columns[8 + at] = [one["grid"][at] if "grid" in one else MISSING for one in args]
            columns[11 + at] = [one["block"][at] if "block" in one else MISSING for one in args]
        graphs = [int(one.get("graph node id", 0)) for one in args]
        columns |= {14: column("registers per thread"), 15: column("shared memory"), 16: graphs}
    elif table == "memcpy":
        kinds = [re.match(r"Memcpy (\w+)", one["name"]) for one in some]
        columns[8] = [COPIES.index(kind[1]) if kind else 0 for kind in kinds]
        columns[9] = column("bytes")
        columns[10] = [MISSING if "Host" in one["name"] else int("Pageable" in one["name"]) for one in some]
    elif table == "memset":
        columns[9] = column("bytes")
    else:
        columns[8] = [SYNCS.index(one["name"]) for one in some]
    return columns


def _call_kind(name: str) -> int:
    """0 puts work on the device, 1 waits for it, 2 is any other call."""
    if "Synchronize" in name:
        return 1
    return 0 if re.match(r"(cuda|cu|hip)(Launch(?!HostFunc)|ModuleLaunch|ExtModuleLaunch|GraphLaunch|Memcpy|Memset)", name) else 2


def _devices(trace: dict[str, Any]) -> Iterable[tuple[int, dict[str, str]]]:
    entries = trace.get("deviceProperties", [])
    used = {_args(one)["device"] for one in trace["traceEvents"] if "device" in _args(one)}
    for entry in entries:
        facts = {ours: str(entry[theirs]) for theirs, ours in FACTS.items() if theirs in entry}
        if "computeMajor" in entry:
            facts["compute_capability"] = f"{entry['computeMajor']}.{entry['computeMinor']}"
        # A process that sees one device of several lists it as 0, while AMD's tracer gives the machine's number.
        yield next(iter(used)) if len(entries) == len(used) == 1 else entry["id"], facts


def _depths(spans: Sequence[tuple[int, int]]) -> list[int]:
    """How many others enclose each."""
    return [
        sum(other <= one[0] < end and (other, -end, j) < (one[0], -one[1], i) for j, (other, end) in enumerate(spans))
        for i, one in enumerate(spans)
    ]


def _args(event: Event) -> dict[str, Any]:
    arguments = event.get("args") or {}
    assert isinstance(arguments, dict)
    return arguments


def _ns(microseconds: Any) -> int:
    """Nanoseconds, exactly."""
    value = Decimal(microseconds) * 1000
    assert value == int(value), microseconds
    return int(value)
