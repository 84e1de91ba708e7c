"""Expected contents of report.json for the launches, steps, ranges and operators of a trace. As ``recompute``, for the host."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from recompute import LOADING, Event, Spans, Trace, grouped, quantiles, spans, union


def launches(traces: Sequence[Trace]) -> dict[str, Any]:
    figures, waits = Counter[str](), []
    for trace in traces:
        runs: defaultdict[int | None, list[Event]] = defaultdict(list)
        for event in trace.work:
            runs[event["id"]].append(event)
        calls = [call for call in trace.calls if call["launch"]]
        figures["calls"] += len(calls)
        figures["launches_without_run"] += sum(call["id"] is None or call["id"] not in runs for call in calls)
        figures["runs_without_launch"] += sum(len(own) for key, own in runs.items() if key not in trace.launched)
        for key, events in runs.items():
            if key is not None and key in trace.launched:
                wait = min(event["start"] for event in events) - trace.launched[key]["end"]
                figures["pairs"] += 1
                figures["graph_runs"] += len(events) - 1
                figures["negative"] += wait < 0
                if wait >= 0:
                    waits.append(wait)
    names = ("calls", "pairs", "runs_without_launch", "launches_without_run", "graph_runs", "negative")
    slowest = sorted(waits, reverse=True)[:10]
    times = grouped((call["name"], call["end"] - call["start"]) for trace in traces for call in trace.calls)
    return {**{name: figures[name] for name in names}, "latency": quantiles(waits), "slowest": slowest, "call_time": times}


def steps(trace: Trace) -> list[Event]:
    """Return a process's steps in order: index, host and device times, and events."""
    for pattern in (r"ProfilerStep#(\d+)", r"(?i)step[_ -]?(\d+)"):
        matches = [(row, re.fullmatch(pattern, row["name"])) for row in trace.ranges if row["side"] == "host"]
        result = [{"index": int(match[1]), "start": row["start"], "end": row["end"], "work": []} for row, match in matches if match]
        if result:
            break
    result.sort(key=lambda step: int(step["start"]))
    for event in trace.work:
        call = trace.called.get(event["id"])
        inside = [step for step in result if call and step["start"] <= call["start"] < step["end"]]
        if inside:
            inside[-1]["work"].append(event)
    for step in result:
        step["first"] = min((event["start"] for event in step["work"]), default=None)
        step["last"] = max((event["end"] for event in step["work"]), default=None)
    return result


def outside(trace: Trace) -> list[tuple[int | None, Event]]:
    """Return the work launched outside of the steps, with the number of the next.

    Work without a call in the trace counts if no work of the steps ran before it on its stream.
    """
    listed = [step for step in steps(trace) if step["work"]]
    low, result, until = -(10**30), list[tuple[int | None, Event]](), 0
    for number, step in enumerate(listed):
        until = max(until, step["last"])
        if number == 0 or listed[number - 1]["index"] + 1 != step["index"]:
            near = [event for event in trace.work if low <= event["start"] < until]
            called = {id(event): trace.called[event["id"]]["start"] for event in near if event["id"] in trace.called}
            mine = [event for event in near if called.get(id(event), -(10**30)) >= step["start"]]
            first = min((event["start"] for event in mine), default=-(10**30))
            for event in near:
                on_stream = [one["start"] for one in mine if (one["device"], one["stream"]) == (event["device"], event["stream"])]
                at = called.get(id(event))
                if event["start"] < min(on_stream, default=first) if at is None else low <= at < step["start"]:
                    result.append((step["index"], event))
        low = max(low, step["end"])
    result = [(index, event) for index, event in result if not _inside(trace, event)]
    calls = [(trace.called.get(event["id"]), event) for event in trace.work if event["start"] >= low]
    return [*result, *((None, event) for call, event in calls if listed and call is not None and call["start"] >= low)]


def _inside(trace: Trace, event: Event) -> bool:
    call = trace.called.get(event["id"])
    return call is not None and any(step["start"] <= call["start"] < step["end"] for step in steps(trace))


def step_parts(trace: Trace) -> dict[str, Any] | None:
    """Return wall time of the average step by class, in order of precedence."""
    listed = steps(trace)
    if len(listed) > 1 and len(listed[-1]["work"]) < 0.8 * len(listed[-2]["work"]):
        listed.pop()
    if not listed:
        return None
    windows: Spans = []
    reached: int | None = None
    ends: defaultdict[int | None, int] = defaultdict(int)
    for index, event in outside(trace):
        ends[index] = max(ends[index], event["end"])
    for number, step in enumerate(listed):
        follows = number > 0 and listed[number - 1]["index"] + 1 == step["index"]
        ahead = ends[step["index"]] if ends[step["index"]] < max(step["last"] or 0, reached or 0) else 0
        start = max(step["start"], ahead) if reached is None else reached if follows else max(step["start"], reached, ahead)
        reached = max(step["end"], step["last"] or 0, reached or 0)
        windows.append((start, reached))
    work = trace.work
    named = [row for row in trace.ranges if row["side"] == "host" and row["name"] in LOADING]
    classes = {
        "kernel": spans(work, "kernel", communication=False), "memcpy": spans(work, "memcpy"), "memset": spans(work, "memset"),
        "communication": spans(work, "kernel", communication=True), "runtime": [(e["start"], e["end"]) for e in trace.calls],
        "data_loader": [(e["start"], e["end"]) for e in [*trace.loaders, *named]],
        "cpu_op": [(e["start"], e["end"]) for e in trace.operators],
    }  # fmt: skip
    parts: dict[str, float] = {}
    taken: Spans = []
    before = 0
    for name, classified in classes.items():
        taken += classified
        now = sum(union((max(a, low), min(b, high)) for a, b in taken if a < high and b > low) for low, high in windows)
        parts[name], before = (now - before) / len(windows), now
    total = sum(high - low for low, high in windows)
    return {"steps": len(windows), "mean_step_ns": total / len(windows), "mean_ns": {**parts, "other": (total - before) / len(windows)}}


def ranges(traces: Sequence[Trace]) -> dict[tuple[str, str], Any]:
    groups: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    owners: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for number, trace in enumerate(traces):
        for row in trace.ranges:
            base = re.sub(r"[\s#_:.\-]*\d+$", "", row["name"]) or row["name"]
            groups[base, row["side"]].append(row["end"] - row["start"])
            owners[base, row["side"]].add(number)
    return {key: {"total_ns": sum(own), "processes": len(owners[key]), "quantiles": quantiles(own)} for key, own in groups.items()}


def cpu_operators(traces: Sequence[Trace]) -> dict[str, Any]:
    return grouped((row["name"], row["end"] - row["start"]) for trace in traces for row in trace.operators)


def gpu_operators(traces: Sequence[Trace]) -> dict[str, Any]:
    """Return device time by the innermost operator around a launch, or by external id."""
    pairs = []
    for trace in traces:
        named: defaultdict[int, list[Event]] = defaultdict(list)
        threads: defaultdict[Any, list[Event]] = defaultdict(list)
        for row in trace.operators:
            named[row["external"]].append(row)
            threads[row["tid"]].append(row)
        sought = {tid: _Nested(rows) for tid, rows in threads.items()}
        around = {call["id"]: sought[call["tid"]].around(call) if call["tid"] in sought else [] for call in trace.called.values()}
        for event in trace.work:
            operators = around.get(event["id"], [])
            if event["id"] not in trace.called and event["external"] and event["external"] != event["id"]:
                operators = named[event["external"]]
            if operators:
                inner = min(operators, key=lambda row: (row["end"] - row["start"], -(row["external"] or 0), row["name"]))
                pairs.append((inner["name"], event["end"] - event["start"]))
    return grouped(pairs)


class _Nested:
    """The operators of a thread in the order of their starts, and how far those up to each reach."""

    def __init__(self, rows: Sequence[Event]) -> None:
        self.rows = sorted(rows, key=lambda row: row["start"])
        self.reach = list(accumulate((row["end"] for row in self.rows), max))

    def around(self, call: Event) -> list[Event]:
        at, enclosing = bisect_right(self.rows, call["start"], key=lambda row: row["start"]), []
        while at and self.reach[at - 1] > call["start"]:
            at -= 1
            if self.rows[at]["end"] > call["start"]:
                enclosing.append(self.rows[at])
        return enclosing
