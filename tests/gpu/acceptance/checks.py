"""The exact criteria of the cases: rows of a recording -> the problems found, as texts; no problem: no text."""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from .traces import Rows, Tables

MS = 1_000_000  # ns
UNTIMED = 6  # reason of LOSS rows: device records without times
LAUNCH = 0  # kind of API rows
STREAM_SYNCHRONIZATION = 3  # type of SYNC rows, as CUPTI numbers them
ACTIVITY = ("kernels", "memcpy", "memcpy_peer", "memset", "runtime", "driver", "synchronization", "records")
SLACK_NS = MS  # between the time of a window and the times of its records
MOST_TEXTS = 5  # problems of one kind that are listed one by one


def listed(problems: Sequence[str]) -> list[str]:
    """The first problems of many of the same kind, and how many there are."""
    if len(problems) <= MOST_TEXTS:
        return list(problems)
    return [*problems[:MOST_TEXTS], f"... {len(problems)} of the kind"]


def named(rows: Rows, name: str) -> Rows:
    return [row for row in rows if row["name"] == name]


def facts_of(tables: Tables) -> dict[str, str]:
    return {row["key"]: row["value"] for row in tables["meta"]}


def windows_of(facts: Mapping[str, str]) -> list[tuple[int, int]]:
    """Return begin and end of each window in ns; an end of 0: still open at the end."""
    windows: dict[int, tuple[int, int]] = {}
    for key, value in facts.items():
        number = key.removeprefix("gpu.window.")
        if number != key and number.isdecimal():
            begin, *end = map(int, value.split())
            windows[int(number)] = (begin, end[0] if end else 0)
    return [windows[number] for number in sorted(windows)]


def nothing_lost(tables: Tables) -> list[str]:
    return [f"lost {row['count']} records, reason {row['reason']}" for row in tables["loss"] if row["count"]]


def capability(facts: Mapping[str, str]) -> list[str]:
    """Check that no kind of GPU activity is missing; metrics without NVML are ignored."""
    return [f"{key}: {facts[key]}" for key in ("capability.gpu", *(f"capability.gpu.{kind}" for kind in ACTIVITY)) if key in facts]


def clean_records(facts: Mapping[str, str]) -> list[str]:
    keys = ("cupti.unknown_records", "cupti.negative_spans")
    return [f"{key} is {facts[key]}" for key in keys if key in facts]


def inside_window(rows: Rows, windows: Sequence[tuple[int, int]]) -> list[str]:
    """Check that every row is in one of the windows."""
    problems = []
    for row in rows:
        start, end = row["start_ns"], row["start_ns"] + row["duration_ns"]
        if not any(begin - SLACK_NS <= start and (not last or end <= last + SLACK_NS) for begin, last in windows):
            problems.append(f"{row['name']} at {start} is outside of every window")
    return listed(problems)


def counts_equal(rows: Iterable[Any], expected: Mapping[Any, int], about: str) -> list[str]:
    """Check the number of rows per key; ``rows`` are the keys."""
    actual = Counter(rows)
    return [
        f"{about} {key}: {actual[key]} instead of {expected.get(key, 0)}"
        for key in sorted(actual.keys() | expected.keys(), key=str)
        if actual[key] != expected.get(key, 0)
    ]


def shapes(rows: Rows, expected: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Check the grid, block and shared memory of the kernels with these names."""
    problems = []
    columns = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_memory")
    for name, wanted in expected.items():
        actual = {tuple(row[column] for column in columns) for row in named(rows, name)}
        problems += [f"{name}: shape {shape} instead of {wanted}" for shape in sorted(actual - {wanted})]
    return listed(problems)


def one_launch_each(tables: Tables) -> list[str]:
    """Check that each kernel's correlation has one launch call, before the kernel."""
    calls: dict[int, Rows] = defaultdict(list)
    for row in tables["api"]:
        if row["kind"] == LAUNCH:
            calls[row["correlation"]].append(row)
    problems = []
    for row in tables["kernel"]:
        launched = calls.get(row["correlation"], [])
        if len(launched) != 1:
            names = ", ".join(sorted({str(call["name"]) for call in launched}))
            problems.append(f"{row['name']}: correlation {row['correlation']} has {len(launched)} launch calls {names}")
        elif row["start_ns"] < launched[0]["start_ns"]:
            problems.append(f"{row['name']}: starts {launched[0]['start_ns'] - row['start_ns']} ns before its launch call")
    return listed(problems)


def known_work(tables: Tables, report: Mapping[str, Any]) -> list[str]:
    """The work of `workload counts` is recorded exactly."""
    kernels = tables["kernel"]
    shape = {
        "postrun_alpha": (1, 1, 1, 32, 1, 1, 0),
        "postrun_beta": (7, 3, 2, 64, 2, 1, 1024),
        "postrun_gamma": (33, 1, 5, 16, 4, 2, 4096),
    }
    problems = counts_equal([row["name"] for row in kernels], report["kernels"], "kernels")
    copies = {int(kind): number for kind, number in report["copies"].items()}
    problems += counts_equal([row["copy_kind"] for row in tables["memcpy"]], copies, "copies of kind")
    problems += equal(sum(row["bytes"] for row in tables["memcpy"]), 3 * report["copy_bytes"], "bytes copied")
    problems += equal(len(tables["memset"]), report["memsets"], "memsets")
    problems += equal(sum(row["bytes"] for row in tables["memset"]), report["memset_bytes"], "bytes set")
    waits = [row for row in tables["sync"] if row["type"] == STREAM_SYNCHRONIZATION]
    problems += equal(len(waits), report["synchronizations"], "stream synchronizations")
    return problems + shapes(kernels, shape) + one_launch_each(tables)


def equal(actual: object, expected: object, about: str) -> list[str]:
    return [] if actual == expected else [f"{about}: {actual} instead of {expected}"]


def at_most(actual: float, limit: float, about: str, unit: str = "") -> list[str]:
    return [] if actual <= limit else [f"{about}: {actual:.6g}{unit}, the limit is {limit:.6g}{unit}"]


def spins(rows: Rows, reported: Sequence[Sequence[float]]) -> list[str]:
    """Check that each kernel is between the host times around it, and its duration.

    The duration is that of its events, within 1% or 10 µs.
    """
    actual = sorted(named(rows, "postrun_spin"), key=lambda row: int(row["start_ns"]))
    if len(actual) != len(reported):
        return [f"{len(actual)} spin kernels instead of {len(reported)}"]
    problems = []
    for number, (row, (before, after, event_ms)) in enumerate(zip(actual, reported, strict=True)):
        start, duration = row["start_ns"], row["duration_ns"]
        if not (before <= start < start + duration <= after):
            early, late = before - start, start + duration - after
            problems.append(f"kernel {number}: {early} ns before the host's time before it, {late} ns after the one after it")
        if abs(duration - event_ms * MS) > max(0.01 * event_ms * MS, 10_000):
            problems.append(f"kernel {number}: {duration} ns, {event_ms * MS:.0f} ns by events")
    return listed(problems)


def untimed(tables: Tables) -> list[str]:
    lost = sum(row["count"] for row in tables["loss"] if row["reason"] == UNTIMED)
    return [f"{lost} device records without times"] if lost else []


def kernels_per_window(tables: Tables, windows: Sequence[tuple[int, int]], expected: int) -> list[str]:
    """Check that each window has its kernels postrun_alpha, and no kernel is outside."""
    starts = sorted(row["start_ns"] for row in named(tables["kernel"], "postrun_alpha"))
    problems = []
    for number, (begin, end) in enumerate(windows):
        inside = bisect.bisect_right(starts, end + SLACK_NS) - bisect.bisect_left(starts, begin - SLACK_NS)
        problems += equal(inside, expected, f"kernels in window {number}")
    others = len(tables["kernel"]) - len(starts)
    problems += equal(others, 0, "kernels that were launched between windows")
    return listed(problems) + equal(len(starts), expected * len(windows), "kernels in all windows")


def missing_is_reported(
    phases: Sequence[Mapping[str, Any]], tables: Tables, tolerance_ns: int, name: str
) -> tuple[list[str], list[dict[str, int]]]:
    """Check that kernels launched in a window are recorded, or a reason is.

    ``phases``: launches with begin, end, launched, window. ``name``: of the kernels; "": of any name.
    Also returns the launched and recorded kernels of each phase.
    """
    starts = sorted(row["start_ns"] for row in (named(tables["kernel"], name) if name else tables["kernel"]))
    facts = facts_of(tables)
    windows = windows_of(facts)
    problems, figures = [], []
    for number, phase in enumerate(phases):
        begin, end = phase["begin"], phase["end"]
        actual = bisect.bisect_right(starts, end + SLACK_NS) - bisect.bisect_left(starts, begin - SLACK_NS)
        figures.append({"launched": phase["launched"], "recorded": actual})
        if not phase["window"]:
            problems += equal(actual, 0, f"phase {number}: kernels outside of the window")
        elif actual > phase["launched"]:
            problems.append(f"phase {number}: {actual} kernels recorded of {phase['launched']}")
        elif actual < phase["launched"]:
            covered = any(first <= begin and (not last or last >= begin + tolerance_ns) for first, last in windows)
            missing = phase["launched"] - actual
            if "capability.gpu" not in facts and not tables["loss"]:
                problems.append(f"phase {number}: {missing} kernels are missing and no reason is recorded")
            elif covered and not tables["loss"]:
                problems.append(f"phase {number}: {missing} kernels are missing and the window goes on")
    return problems, figures


def graph_replays(tables: Tables, report: Mapping[str, Any]) -> list[str]:
    """Each replay has all nodes of the graph."""
    nodes = [row for row in tables["kernel"] if row["graph_node"]]
    return (
        equal(len(_graph_launches(tables)), report["replays"], "graph launches")
        + equal(len(nodes), report["replays"] * report["kernels"], "kernels of graphs")
        + equal(len(tables["memcpy"]), report["replays"] * report["copies"], "copies of graphs")
        + equal(len(tables["memset"]), report["replays"] * report["memsets"], "memsets of graphs")
    )


def replay_correlations(tables: Tables, report: Mapping[str, Any]) -> list[str]:
    """Check that a replay's kernels have its correlation and follow its launch call."""
    calls = _graph_launches(tables)
    by_correlation: dict[int, Rows] = defaultdict(list)
    for row in tables["kernel"]:
        if row["graph_node"]:
            by_correlation[row["correlation"]].append(row)
    problems = []
    for number, call in enumerate(calls):
        rows = by_correlation.get(call["correlation"], [])
        next_start = calls[number + 1]["start_ns"] if number + 1 < len(calls) else None
        if len(rows) != report["kernels"]:
            problems.append(f"replay {number}: {len(rows)} kernels have its correlation")
        elif any(row["start_ns"] < call["start_ns"] or (next_start is not None and row["start_ns"] >= next_start) for row in rows):
            problems.append(f"replay {number}: kernels of another replay have its correlation")
    return listed(problems)


def _graph_launches(tables: Tables) -> Rows:
    """Return launches by time; a driver's call inside a runtime's call is the same."""
    calls = sorted((row for row in tables["api"] if "GraphLaunch" in (row["name"] or "")), key=lambda row: int(row["start_ns"]))
    return [row for number, row in enumerate(calls) if not number or row["correlation"] != calls[number - 1]["correlation"]]


def launches_by_thread(tables: Tables, tids: Sequence[int], launches: int) -> list[str]:
    """Each thread has its launches of postrun_alpha, under its own thread id."""
    correlations = {row["correlation"] for row in named(tables["kernel"], "postrun_alpha")}
    actual = Counter(row["tid"] for row in tables["api"] if row["kind"] == LAUNCH and row["correlation"] in correlations)
    return listed(counts_equal(actual.elements(), dict.fromkeys(tids, launches), "launches of thread"))


def overlaps(rows: Rows) -> int:
    """Return neighbors by start time whose second starts before the first ends."""
    spans = sorted((row["start_ns"], row["start_ns"] + row["duration_ns"]) for row in rows)
    return sum(second[0] < first[1] for first, second in pairwise(spans))


def same_kernels(actual: Mapping[str, Sequence[int]], expected: Mapping[str, Sequence[int]]) -> list[str]:
    """Check durations by name: equal counts, sums within 3%, medians within 5%."""
    problems = counts_equal(
        [name for name, values in actual.items() for _ in values], {name: len(values) for name, values in expected.items()}, "kernels"
    )
    total, wanted = sum(map(sum, actual.values())), sum(map(sum, expected.values()))
    if abs(total - wanted) > 0.03 * wanted:
        problems.append(f"kernel time: {total} ns instead of {wanted} ns")
    for name in sorted(actual.keys() & expected.keys()):
        middle, second = median(actual[name]), median(expected[name])
        if abs(middle - second) > max(0.05 * second, 300):
            problems.append(f"{name[:80]}: median {middle:.0f} ns instead of {second:.0f} ns")
    return listed(problems)


def median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return float(ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)
