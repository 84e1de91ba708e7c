"""Tests of HostBound, SyncBound and ShortKernels on real traces against a second, plain computation."""

from __future__ import annotations

import json
import math
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis import analyze
from postrun.analysis.options import Options
from postrun.analysis.report import RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest import ingest
from recompute import LOADING, Event, Spans, Trace, parts_of_gap
from rule_details import plain_details

pytestmark = pytest.mark.slow

# Trace -> verdicts of HostBound, SyncBound and ShortKernels with their default parameters.
ISSUE, FINE = "IssuesFound", "NoIssuesFound"
REAL = {
    "diff_pair/a100_rank3_of_8.json.gz": (FINE, FINE, ISSUE),
    "diff_pair/v100_rank1_of_2.json.gz": (FINE, FINE, FINE),
    "h100/Falconsai_nsfw_image_detection__1016002.json.gz": (ISSUE, FINE, ISSUE),
    "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": (FINE, FINE, FINE),
    "mi300/gaunernst_bert-small-uncased__1016001.json.gz": (ISSUE, FINE, ISSUE),
    "quirks/alexnet_no_steps.json.gz": (ISSUE, FINE, FINE),
    "quirks/nccl_data.json.gz": (ISSUE, FINE, FINE),
    "v100_ddp/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": (FINE, FINE, FINE),
    "v100_old_schema/resnet50_num_workers_0.json.gz": (ISSUE, FINE, FINE),
    "sampled_2_ranks": (FINE, FINE, FINE),
}


SETTINGS: tuple[dict[str, float], ...] = (
    {},
    {"HostBound_idle_threshold": 0, "HostBound_host_share": 0, "ShortKernels_short_us": 25},
)
SHORT_US = tuple(settings.get("ShortKernels_short_us", 10) for settings in SETTINGS)


@pytest.mark.parametrize("name", REAL)
def test_real(shared_data: Path, name: str) -> None:
    path = shared_data / "kineto" / name
    if not path.exists():
        pytest.skip(f"no such trace: {path}")
    verdicts = check(path)
    assert verdicts == REAL[name]


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])  # 4 has operators that overlap without being nested
def test_by_chance(tmp_path: Path, seed: int) -> None:
    """Two devices with two streams each, and the defects of real traces."""
    chance = random.Random(seed)
    base = 1_700_000_000_000_000
    events: list[dict[str, Any]] = []

    def add(category: str, name: str, start: float, duration: float, pid: int, tid: int, **args: int | None) -> None:
        row = {"ph": "X", "cat": category, "name": name, "ts": base + start, "dur": duration, "pid": pid, "tid": tid, "args": args}
        events.append(row)

    for number in range(1, 250):
        at, device, stream = chance.randrange(9000), chance.randrange(2), chance.choice([7, 20])
        correlation = chance.choice([number, chance.randrange(1, 250), None])
        kind, name = chance.choice([("kernel", "ampere_sgemm"), ("kernel", "add_kernel"), ("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)")])
        add(
            kind, name, at, chance.choice([0, 1, 2.5, 9.999, 10, 30]), device, stream, device=device, stream=stream, correlation=correlation
        )
        add("cuda_runtime", "cudaLaunchKernel", at - chance.choice([80, 20, 5, -3]), 4, 9000, chance.randrange(2), correlation=number)
    for number in range(40):
        at, thread = chance.randrange(9000), chance.randrange(2)
        name = chance.choice(["cudaStreamSynchronize", "cudaDeviceSynchronize"])
        add("cuda_runtime", name, at, chance.choice([0, 3.25, 90]), 9000, thread, correlation=1000 + number)
        add("cpu_op", chance.choice(["aten::item", "aten::copy_"]), at - 10 * chance.random(), chance.choice([5, 50, 500]), 9000, thread)
        add("cpu_op", f"enumerate(DataLoader)#_{number % 3}.__next__", chance.randrange(9000), chance.choice([2, 20]), 9000, thread)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    check(path)


def check(path: Path) -> tuple[str, ...]:
    """Compare every figure of the rules; return their verdicts by default parameters."""
    traces = [Trace(file) for file in (sorted(path.glob("*.json.gz")) if path.is_dir() else [path])]
    with ingest([path]) as store:
        rules = [
            analyze(store, Options(top=100, selection=select(["HostBound", "SyncBound", "ShortKernels"], settings=settings))).rules
            for settings in SETTINGS
        ]
    expected = [figures(trace, device) for trace in traces for device in devices_of(trace)]
    called = [call for trace in traces for call in operators(trace)]
    for short_us, results in zip(SHORT_US, rules, strict=True):
        per_device = [{**figure, "ShortKernels": figure["ShortKernels"][short_us]} for figure in expected]
        compare(per_device, called, {result.rule: result for result in results})
    verdicts = {result.rule: result.verdict for result in rules[0]}
    return verdicts["HostBound"], verdicts["SyncBound"], verdicts["ShortKernels"]


def compare(expected: list[dict[str, Any]], called: list[tuple[str, list[str | None]]], results: dict[str, RuleResult]) -> None:
    for rule, result in results.items():
        actual = plain_details(result)["devices"]
        assert len(actual) == len(expected)
        for row, figure in zip(actual, expected, strict=True):
            wanted = {key: value for key, value in figure[rule].items() if key in row}
            assert {key: row[key] for key in wanted} == wanted, rule
    host = results["HostBound"]
    idle_limit, share_limit = host.parameters["idle_threshold"], host.parameters["host_share"]
    for row in plain_details(host)["devices"]:
        over = 100 * row["idle_ns"] > idle_limit * row["span_ns"] and 100 * row["host_wait_ns"] > share_limit * row["idle_ns"]
        assert row["issue"] is over
    if host.verdict == ISSUE:
        bad = [figure for figure, row in zip(expected, plain_details(host)["devices"], strict=True) if row["issue"]]
        meanwhile = sum((figure["meanwhile"] for figure in bad), Counter[str]())
        shares = Counter({share["activity"]: share["time_ns"] for share in plain_details(host)["host"]})
        shares["nothing recorded"] += shares.pop("annotated ranges", 0)  # neither has events
        assert +shares == +meanwhile
        after = sum(figure["SyncBound"]["after"] for figure in bad)
        assert plain_details(host)["after_synchronisation_ns"] == after
    if plain_details(results["SyncBound"])["calls"]:
        counts = Counter({(call["name"], call["operator"]): call["count"] for call in plain_details(results["SyncBound"])["calls"]})
        for name, inner in called:
            # Where the times of two operators are the same, either may be the inner one.
            assert any(counts[name, operator] > 0 for operator in inner)
            counts[next((name, operator) for operator in inner if counts[name, operator] > 0)] -= 1
        assert counts.total() == 0


def devices_of(trace: Trace) -> list[int]:
    return sorted({event["device"] for event in trace.work})


def figures(trace: Trace, device: int) -> dict[str, Any]:
    """Return the figures of each rule; ShortKernels has some for each limit."""

    def order(event: Event) -> tuple[int, int, float]:
        call = trace.launched.get(event["id"])
        return event["start"], event["end"], call["end"] if call else math.inf

    work = sorted((event for event in trace.work if event["device"] == device), key=order)
    gaps: list[tuple[int, int, int, Event]] = []
    waits = Counter[str]()
    latest = work[0]["start"]
    for event in work:
        if event["start"] > latest:
            parts = parts_of_gap(latest, event["start"], trace.launched.get(event["id"]))
            waits.update(parts)
            gaps.append((latest, event["start"], latest + parts.get("host_wait_ns", 0), event))
        latest = max(latest, event["end"])
    span = latest - work[0]["start"]
    kernels = [e for e in work if e["kind"] == "kernel"]
    calls = merged([(c["start"], c["end"]) for c in trace.calls if c["sync"]])
    blocks = merged([(c["start"], c["end"]) for c in blocking(trace)])
    hosted = [(start, ready) for start, _, ready, _ in gaps if ready > start]
    return {
        "HostBound": {
            "span_ns": span, "idle_ns": sum(end - start for start, end, _, _ in gaps), "host_waits": len(hosted),
            **{cause: waits[cause] for cause in ("host_wait_ns", "kernel_wait_ns", "other_ns", "waiting_ns")},
        },
        "SyncBound": {
            "span_ns": span, "sync_ns": sum(end - start for start, end in blocks),
            "blocked_idle_ns": sum(common(blocks, start, end) for start, end, _, _ in gaps),
            "drained_ns": sum(end - start for start, end, _, _ in gaps if any(a <= start <= b for a, b in blocks)),
            "caused_idle_ns": caused(trace, blocks, gaps),
            "after": sum(end - start for start, end in hosted if any(a <= start <= b for a, b in calls)),
        },
        "ShortKernels": {
            short_us: {
                "span_ns": span, "launches": len(kernels), "short": sum(e["end"] - e["start"] < 1000 * short_us for e in kernels),
                "gap_ns": sum(
                    end - start for start, end, _, e in gaps if e["kind"] == "kernel" and e["end"] - e["start"] < 1000 * short_us
                ),
            }
            for short_us in SHORT_US
        },
        "meanwhile": meanwhile(trace, hosted),
    }  # fmt: skip


def blocking(trace: Trace) -> list[Event]:
    """Return synchronizations and copies that block, of threads that launch work."""
    copies: dict[int, list[Event]] = {}
    for event in trace.work:
        if event["kind"] == "memcpy" and ("HtoD" in event["name"] or "DtoH" in event["name"]):
            copies.setdefault(event["id"], []).append(event)
    calls = []
    for call in trace.calls:
        ended = [
            copy for copy in copies.get(call["id"], [])
            if copy["end"] <= call["end"] or ("Pageable" in copy["name"] and copy["start"] <= call["end"])
        ]  # fmt: skip
        if call["sync"] or (call["launch"] and call["id"] and ended):
            calls.append(call)
    launching = {call["tid"] for call in trace.calls if call["launch"] and call["id"]}
    return [call for call in calls if not launching or call["tid"] in launching]


def caused(trace: Trace, blocks: Spans, gaps: list[tuple[int, int, int, Event]]) -> int:
    """Return the host waits that begin with each block, up to its length.

    Blocks are one if the device waits for the host all the time between them. Time in which the host loads data has a cause of its
    loading. The traces here name no other one."""
    ranges = [row for row in trace.ranges if row["side"] == "host" and row["name"] in LOADING]
    loading = merged([(event["start"], event["end"]) for event in [*trace.loaders, *ranges]])

    def waiting(start: float, end: float) -> float:
        return end - start - common(loading, int(start), int(end)) if end > start else 0

    launched = [(begin, ready) for begin, _, ready, event in gaps if event["id"] in trace.launched]

    def launched_late(start: float, end: float) -> float:
        # Gaps are disjoint and in their order.
        some = launched[bisect_right(launched, start, key=itemgetter(1)) : bisect_left(launched, end, key=itemgetter(0))]
        return sum(waiting(max(begin, start), min(ready, end)) for begin, ready in some)

    chains: list[Spans] = []
    for begin, end in blocks:
        last = chains[-1][-1][1] if chains else begin
        if last < begin and launched_late(last, begin) == begin - last:
            chains[-1].append((begin, end))
        else:
            chains.append([(begin, end)])
    total = 0
    for number, chain in enumerate(chains):
        waited = launched_late(chain[0][0], chains[number + 1][0][0] if number + 1 < len(chains) else math.inf)
        for start, stop, _, event in gaps:
            if event["id"] not in trace.launched:
                waited += sum(waiting(max(start, begin), min(stop, end)) for begin, end in chain)
        total += int(min(waited, sum(end - begin for begin, end in chain)))
    return total


def meanwhile(trace: Trace, waits: Spans) -> Counter[str]:
    """Return the time of waits by host activity, in order of precedence."""
    classes = [
        ("data loader", trace.loaders),
        ("synchronization", [call for call in trace.calls if call["sync"]]),
        ("runtime calls", [call for call in trace.calls if not call["sync"]]),
        ("data loader", [row for row in trace.ranges if row["side"] == "host" and row["name"] in LOADING]),
        ("operators", trace.operators),
    ]
    times = Counter[str]()
    taken: Spans = []
    before = 0
    for name, events in classes:
        taken = merged([*taken, *((event["start"], event["end"]) for event in events)])
        now = sum(common(taken, start, end) for start, end in waits)
        times[name] += now - before
        before = now
    times["nothing recorded"] = sum(end - start for start, end in waits) - before
    return times


def operators(trace: Trace) -> list[tuple[str, list[str | None]]]:
    """Return each synchronization call with its operators, clear cases first."""
    calls: list[tuple[str, list[str | None]]] = []
    of_thread: dict[Any, list[Event]] = {}
    for row in sorted(trace.operators, key=itemgetter("start")):
        if row["end"] > row["start"]:
            of_thread.setdefault(row["tid"], []).append(row)
    for call in blocking(trace):
        rows = of_thread.get(call["tid"], [])
        around = [row for row in rows[: bisect_right(rows, call["start"], key=itemgetter("start"))] if call["start"] <= row["end"]]
        inner = max(((row["start"], -row["end"]) for row in around), default=None)
        names = sorted(row["name"] for row in around if (row["start"], -row["end"]) == inner)
        calls.append((call["name"], [*names] or [None]))
    return sorted(calls, key=lambda item: len(item[1]))


def merged(spans: Spans) -> Spans:
    out: Spans = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        elif end > start:
            out.append((start, end))
    return out


def common(disjoint: Spans, start: int, end: int) -> int:
    """How much of start to end the disjoint, sorted spans cover."""
    total = 0
    for a, b in disjoint[max(0, bisect_right(disjoint, (start, start)) - 1) :]:
        if a >= end:
            break
        total += max(0, min(b, end) - max(a, start))
    return total
