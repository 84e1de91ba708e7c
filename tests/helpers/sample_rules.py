"""Expected results of the rules over samples: evaluated again in plain Python, sample by sample, sharing no code with them.

A sample is (node, metric, unit, time in ns, value). Parameters are those of the rules, by name. Slow and simple on purpose.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import polars as pl
from empty_stores import empty_store
from postrun.analysis.causes.peers import Peers
from postrun.analysis.causes.program import program
from postrun.analysis.device.time_breakdown import time_breakdown, whole_devices
from postrun.analysis.report.causes import Gap
from postrun.analysis.rules.engine.selection import select
from postrun.analysis.rules.evidence.base import Outcome
from postrun.analysis.rules.evidence.blocks import Samples
from postrun.analysis.run.job_statistics import job_statistics
from postrun.analysis.run.run_info import nodes as run_nodes
from postrun.analysis.toolkit.places import Places
from postrun.ingest.store import Store

Sample = tuple[int, str, int | None, int, float]
Points = list[tuple[int, float]]

GPU, CORE, IOWAIT = "gpu_utilization", "cpu_utilization", "cpu_iowait"
FOOTPRINT, CONTROLLER = "gpu_memory_used_percent", "gpu_memory_controller"
SECOND = 1_000_000_000
MINUTE = 60 * SECOND


class AmbiguousError(Exception):
    """A quantile is so near to its threshold that rounding decides."""


# -- stores ----------------------------------------------------------------------------------------------------------------


@contextmanager
def sampled(samples: Iterable[Sample], *, cores: int = 16, gpus: int | None = 4, **tables: list[dict[str, Any]]) -> Iterator[Store]:
    """Yield a store in memory with the samples in this order; nodes are m0, m1, ..."""
    rows = list(samples)
    with empty_store() as store:
        for node in sorted({row[0] for row in rows}):
            store.insert("node", {"id": node, "hostname": f"m{node}", "cores": cores, "gpus": gpus})
        columns = {"node": pl.Int32, "metric": pl.String, "unit": pl.Int32, "time_ns": pl.Int64, "value": pl.Float64}
        store.append("sample", pl.DataFrame(rows, schema=columns, orient="row"))
        for table, entries in tables.items():
            inserted = [{**entry, "name": store.name_ids([entry["name"]])[0]} if "name" in entry else entry for entry in entries]
            store.append(table, pl.DataFrame(inserted, infer_schema_length=None))
        yield store


def judged(
    store: Store,
    rule: str,
    *,
    preset: str = "documented",
    loading_percent: float | None = None,
    gaps: Sequence[Gap] = (),
    **parameters: Any,
) -> Outcome:
    """The answer of one rule over samples, with some of its parameters changed."""
    selection = select([rule], preset=preset, settings={f"{rule}_{name}": value for name, value in parameters.items()})
    run = SimpleNamespace(
        store=store, samples=Samples(store), places=Places(store), nodes=run_nodes(store), job=job_statistics(store), breakdown=(), top=15,
        program=program(store), peers=Peers({}, "same"),
        whole_devices=whole_devices(store, time_breakdown(store)), loading_percent=loading_percent, longest_gaps=gaps,
    )  # fmt: skip
    return selection.rules[0].rule.evaluate(run, selection.rules[0].parameters)


def defaults(rule: str, **changed: Any) -> dict[str, Any]:
    """Effective parameters of a rule."""
    return dict(select([rule], settings={f"{rule}_{name}": value for name, value in changed.items()}).rules[0].parameters)


def line(node: int, metric: str, unit: int | None, values: Iterable[float], *, start: int, step: int = SECOND // 2) -> list[Sample]:
    """Samples of one series at equal distances."""
    return [(node, metric, unit, start + number * step, float(value)) for number, value in enumerate(values)]


def random_run(rng: random.Random, *, start: int) -> list[Sample]:
    """Return samples of nodes with clocks apart; some are missing, doubled or NaN."""
    levels = [0.0, 5.0, 10.0, 50.0, 60.0, 70.0, 90.0, 95.0, 100.0]
    rows: list[Sample] = []
    for node in range(rng.randint(1, 3)):
        length, offset = rng.randint(30, 160), rng.choice([0, 30 * SECOND, -7 * SECOND])
        memory = rng.choice([FOOTPRINT, CONTROLLER])
        series = [(GPU, unit) for unit in range(rng.randint(1, 3))] + [(memory, unit) for unit in range(rng.randint(1, 3))]
        if rng.random() < 0.9:
            series += [(CORE, unit) for unit in range(rng.randint(1, 3))] + [(IOWAIT, 0)]
        for metric, unit in series:
            values = rng.sample(levels, rng.randint(1, 4))
            idle = length if rng.random() < 0.6 else rng.randint(0, length)
            first = rng.choice([0, 0, 0, length // 2])
            for number in range(first, length):
                if rng.random() < 0.05:
                    continue
                value = rng.choice(values) if number < idle else rng.choice([0.0, 0.0, 3.0])
                time = start + offset + number * SECOND // 2 + rng.randint(0, 3_000_000)
                if rng.random() < 0.02:
                    value = rng.choice([math.nan, math.inf, -math.inf])
                rows.append((node, metric, unit, time, value))
                if rng.random() < 0.05:  # the mean of both counts, once
                    rows.append((node, metric, unit, time, rng.choice(values) if metric == GPU else value))
    rng.shuffle(rows)
    return rows


# -- the rules once more ---------------------------------------------------------------------------------------------------


def quantile(values: Iterable[float], fraction: float) -> float:
    ordered = sorted(values)
    position = fraction * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] if ordered[low] == ordered[high] else ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def below(values: Sequence[float], fraction: float, threshold: float) -> bool:
    value = quantile(values, fraction)
    if abs(value - threshold) < 1e-9 and value not in values:
        raise AmbiguousError
    return value < threshold


def origin(samples: Sequence[Sample]) -> int:
    return min(row[3] for row in samples) // MINUTE * MINUTE


def series_of(samples: Iterable[Sample], *metrics: str) -> dict[tuple[int, int], Points]:
    """Return finite samples by (node, unit), in order of time; their mean at one time."""
    values: dict[tuple[int, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for node, metric, unit, time, value in samples:
        if metric in metrics and math.isfinite(value):
            values[node, unit or 0][time].append(value)
    return {key: [(time, sum(own) / len(own)) for time, own in sorted(times.items())] for key, times in sorted(values.items())}


def window_ends(points: Points, start: int, scan_ns: int) -> dict[int, int]:
    """Map a window with samples to their number up to its end."""
    return {(time - start) // scan_ns: number for number, (time, _) in enumerate(points, 1)}


def interval_of(samples: Sequence[Sample], node: int) -> float:
    """Median distance of successive samples of one series of a machine."""
    times: dict[tuple[str, int | None], set[int]] = defaultdict(set)
    for sampled_node, metric, unit, time, value in samples:
        if sampled_node == node and math.isfinite(value):
            times[metric, unit].add(time)
    steps = [b - a for one in times.values() for a, b in zip(sorted(one), sorted(one)[1:], strict=False)]
    return quantile(steps, 0.5) if steps else math.inf


def together(samples: Sequence[Sample], node: int) -> dict[int, list[Sample]]:
    """Return a node's samples by the start of their snapshot; their mean at one time."""
    interval = interval_of(samples, node)
    snapshots: dict[int, list[Sample]] = {}
    values: dict[tuple[str, int | None, int], list[float]] = defaultdict(list)
    for sampled_node, metric, unit, time, value in samples:
        if sampled_node == node and math.isfinite(value):
            values[metric, unit, time].append(value)
    rows = [(node, metric, unit, time, sum(own) / len(own)) for (metric, unit, time), own in values.items()]
    first = None
    for row in sorted(rows, key=lambda row: row[3]):
        if first is None or row[3] - first > 20_000_000 or row[3] - first >= interval / 2:
            first = row[3]
        snapshots.setdefault(first, []).append(row)
    return snapshots


def low_gpu(samples: Sequence[Sample], parameters: Mapping[str, Any]) -> dict[tuple[int, int], dict[str, Any]]:
    """Return counts, final quantiles and kind of low utilization per GPU."""
    start, scan = origin(samples), round(parameters["scan_interval_us"] * 1000)
    p95, p5 = parameters["threshold_p95"], parameters["threshold_p5"]

    def kind(values: Sequence[float]) -> str | None:
        if below(values, 0.95, p95):
            return "under_utilised"
        return "fluctuating" if below(values, 0.05, p5) else None

    results = {}
    for key, points in series_of(samples, GPU).items():
        values = [value for _, value in points]
        ends = window_ends(points, start, scan)
        kinds = {window: kind(values[:number][-parameters["window"] :]) for window, number in ends.items()}
        judged_windows = [window for window, number in ends.items() if number > parameters["patience"]]
        triggered = [window for window in judged_windows if kinds[window]]
        last = values[: ends[judged_windows[-1]]][-parameters["window"] :] if judged_windows else None
        tail, head = len(values), 0
        while tail and values[tail - 1] < p5:
            tail -= 1
        while head < len(values) and values[head] < p5:
            head += 1
        least = 0.05 * len(values)
        if tail == 0 or len(values) - tail < least:
            tail = len(values)
        if head == len(values) or head < least:
            head = 0
        size = parameters["window"]
        good_before = kind(values[head:tail][-size:]) is None
        good_behind = kind(values[head:tail][:size]) is None
        causes = []
        for window in triggered:
            number = ends[window]
            if number > tail and good_before:
                causes.append("tail")
            elif max(0, number - size) < head and good_behind:
                causes.append("head")
            else:
                causes.append("inside")
        pattern = None
        if triggered:
            pattern = "whole run" if all(kinds.values()) else "parts of the run"
            if "inside" not in causes:
                pattern = {("tail",): "idle tail", ("head",): "idle head"}.get(tuple(set(causes)), "idle head and tail")
        about = {"idle tail": values[tail:], "idle head": values[:head], "idle head and tail": values[:head] + values[tail:]}
        results[key] = {
            "samples": len(values),
            "mean": sum(values) / len(values),
            "unused": max(values) <= 0,
            "windows": judged_windows,
            "triggered": triggered,
            **{one: sum(kinds[window] == one for window in judged_windows) for one in ("under_utilised", "fluctuating")},
            "p95": quantile(last, 0.95) if last else None,
            "p5": quantile(last, 0.05) if last else None,
            "times": [points[ends[window] - 1][0] for window in triggered],
            "pattern": pattern,
            "tail_starts": points[tail][0] if tail < len(values) else None,
            "head_ends": points[head][0] if head else None,
            "unused_samples": sum(1 - value / 100 for value in about.get(pattern or "", values[head:tail])),
            "last_time": points[-1][0],
        }
    return results


def batch_size(samples: Sequence[Sample], parameters: Mapping[str, Any]) -> dict[tuple[int, int], dict[str, Any]]:
    """Return evaluated windows, those over the threshold, and the last p95 per GPU."""
    start, scan, window = origin(samples), round(parameters["scan_interval_us"] * 1000), parameters["window"]
    needed = max(parameters["patience"], window)
    nodes = {row[0] for row in samples if row[1] == FOOTPRINT and math.isfinite(row[4])}
    memory = {
        key: points
        for metric in (FOOTPRINT, CONTROLLER)
        for key, points in series_of(samples, metric).items()
        if (key[0] in nodes) == (metric == FOOTPRINT)
    }
    results = {}
    for (node, unit), points in series_of(samples, GPU).items():
        cpu = []
        for time, rows in together(samples, node).items():
            cores: dict[int, list[float]] = defaultdict(list)
            for (_, core), core_points in series_of(rows, CORE).items():
                cores[core] += [value for _, value in core_points]
            if cores:
                cpu.append((time, sum(sum(own) / len(own) for own in cores.values()) / len(cores)))
        three = {"cpu": cpu, "gpu": points, "gpu_memory": memory.get((node, unit), [])}
        ends = {figure: window_ends(own, start, scan) for figure, own in three.items()}
        entry: dict[str, Any] = {"samples": len(points), "windows": [], "violations": [], "times": [], "p95": None}
        for number in sorted(ends["gpu"]):
            if any(ends[figure].get(number, 0) <= needed for figure in three):
                continue
            last = {figure: [value for _, value in own[: ends[figure][number]]][-window:] for figure, own in three.items()}
            entry["windows"].append(number)
            entry["p95"] = {figure: quantile(values, 0.95) for figure, values in last.items()}
            low = [below(values, 0.95, parameters[f"{figure}_threshold_p95"]) for figure, values in last.items()]
            if all(low):
                entry["violations"].append(number)
                entry["times"].append(points[ends["gpu"][number] - 1][0])
        results[node, unit] = entry
    return results


def bottleneck(samples: Sequence[Sample], parameters: Mapping[str, Any], metric: str, limit: float) -> dict[int, dict[str, Any]]:
    """Return snapshots, low ones, bottlenecks and windows per node with GPUs."""
    start, scan = origin(samples), round(parameters["scan_interval_us"] * 1000)
    gpus = series_of(samples, GPU)
    unused = {key for key, points in gpus.items() if max(value for _, value in points) <= 0}
    results = {}
    for node in sorted({node for node, _ in gpus}):
        kept = [row for row in samples if not (row[1] == GPU and (row[0], row[2]) in unused)]
        counts: dict[str, Any] = {"snapshots": 0, "low": 0, "bottlenecks": [], "windows": {}, "missing": 0.0}
        for time, rows in together(kept, node).items():
            used = [value for _, own, _, _, value in rows if own == GPU]
            cores = [value for _, own, _, _, value in rows if own == metric]
            if not used or not cores:
                continue
            low = min(used) < parameters["gpu_threshold"]
            hit = low and max(cores) > limit
            counts["snapshots"] += 1
            counts["low"] += low
            of_window = counts["windows"].setdefault((time - start) // scan, [0, 0])
            of_window[0] += 1
            of_window[1] += hit
            if hit:
                counts["bottlenecks"].append(time)
                counts["missing"] += (100 - min(used)) / 100
        counts["unused"] = sorted(unit for own, unit in unused if own == node)
        counts["used"] = sum(own == node for own, _ in gpus) - len(counts["unused"])
        counts["judged"] = counts["snapshots"] > parameters["patience"]
        counts["exceeded"] = [
            number for number, (of, hits) in counts["windows"].items() if counts["judged"] and hits * 100 > of * parameters["threshold"]
        ]
        results[node] = counts
    return results
