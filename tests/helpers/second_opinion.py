"""A second opinion on the documented rules for a folder of the hosted profiler, from the files alone.

``write_run`` writes a random run (by its seed) in the layout of the hosted profiler; ``read_run`` reads such a folder with ``json``;
``opinions`` evaluates it rule by rule, sample by sample, in exact fractions if a threshold could depend on rounding. No part of postrun is
imported: the meaning of the rules is written down here again.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

SECOND = 1_000_000_000
SNAPSHOT_NS = 20_000_000

DOCUMENTED: dict[str, dict[str, Any]] = {
    "BatchSize": {
        "cpu_threshold_p95": 70, "gpu_threshold_p95": 70, "gpu_memory_threshold_p95": 70, "patience": 100, "window": 500,
    },
    "CPUBottleneck": {"threshold": 50, "gpu_threshold": 10, "cpu_threshold": 90, "patience": 100},
    "IOBottleneck": {"threshold": 50, "gpu_threshold": 70, "io_threshold": 50, "patience": 1000},
    "GPUMemoryIncrease": {"increase": 10, "patience": 100, "window": 500},
    "LoadBalancing": {"threshold": 0.5, "patience": 10},
    "LowGPUUtilization": {"threshold_p95": 70, "threshold_p5": 10, "patience": 1000, "window": 500},
    "MaxInitializationTime": {"threshold": 20},
    "StepOutlier": {"stddev": 5, "mode": None, "n_outliers": 10},
    "Dataloader": {"min_threshold": 70, "max_threshold": 200, "patience": 10},
    "OverallSystemUsage": {},
    "OverallFrameworkMetrics": {},
}  # fmt: skip
SERVICE: dict[str, dict[str, Any]] = {
    "BatchSize": {"patience": 1000},
    "CPUBottleneck": {"patience": 1000},
    "IOBottleneck": {"gpu_threshold": 10},
    "GPUMemoryIncrease": {"increase": 5, "patience": 1000, "window": 10},
    "LoadBalancing": {"threshold": 0.24, "patience": 1000},
    "StepOutlier": {"stddev": 3},
}


def parameters(preset: str, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Rule -> its values, after ``<Rule>_<parameter>`` settings over the preset."""
    values = {rule: {"scan_interval_us": 60_000_000, **own} for rule, own in DOCUMENTED.items()}
    if preset == "service":
        for rule, changed in SERVICE.items():
            values[rule].update(changed)
    for key, value in settings.items():
        rule, _, name = key.partition("_")
        values[rule][name] = value
    for series in values.values():
        if "window" in series:
            series["window"] = math.floor(series["window"])  # a number of samples
    return values


# -- writing ---------------------------------------------------------------------------------------------------------------


def _shape(rng: random.Random, count: int, *, integers: bool) -> list[float]:
    """Return ``count`` values in 0..100 of a shape that utilization and memory take."""
    kind = rng.choice(("constant", "noise", "ramp", "bursts", "idle tail", "leak", "zero", "two levels", "full", "seldom", "busy", "busy"))
    low, high = sorted((rng.uniform(0, 100), rng.uniform(0, 100)))
    period, tail = rng.randint(2, 40), int(count * rng.uniform(0.4, 0.95))
    values = []
    for k in range(count):
        share = k / max(count - 1, 1)
        if kind == "constant":
            value = high
        elif kind == "noise":
            value = rng.uniform(low, high)
        elif kind == "ramp":
            value = low + (high - low) * share
        elif kind == "bursts":
            value = high if k % period < period / 2 else low
        elif kind == "idle tail":
            value = rng.uniform(low, high) if k < tail else 0.0
        elif kind == "leak":
            value = low + (100 - low) * share * share + rng.uniform(-2, 2)
        elif kind == "two levels":
            value = low if k < tail else high
        elif kind == "busy":
            value = rng.choice((70, 80, 90, 100))
        elif kind == "full":
            value = 100.0
        elif kind == "seldom":
            value = 95.0 if rng.random() < 0.06 else 3.0
        else:
            value = 0.0
        value = min(max(value, 0.0), 100.0)
        values.append(float(round(value)) if integers else round(value, 2))
    return values


@dataclass
class _Machine:
    name: str
    start_us: int
    interval_us: int
    count: int
    gpus: int
    cores: int


def write_run(folder: Path, seed: int) -> None:
    """Write a run of 1 to 3 nodes with 0 to 4 GPUs each, all of it by ``seed``."""
    rng = random.Random(seed)
    interval_us = rng.choice((30_000, 100_000, 500_000, 1_000_000))
    count = rng.choice((rng.randint(12, 120), rng.randint(120, 400), rng.randint(400, 700)))
    start_us = (1_700_000_000 + rng.randrange(100_000)) * 1_000_000 + rng.choice((0, 1_000, rng.randrange(1_000_000)))
    if rng.random() < 0.2:
        start_us -= start_us % 60_000_000
    skewed = rng.random() < 0.4
    machines = [
        _Machine(
            f"algo-{k + 1}",
            start_us + (rng.choice((0, 30_000_000, -30_000_000, 7_250_000)) if skewed else rng.randrange(0, 3_000)),
            interval_us,
            max(3, int(count * rng.choice((1, 1, 1, rng.uniform(0.3, 1))))),
            rng.choice((0, 1, 1, 2, 2, 3, 4)),
            rng.choice((0, 1, 2, 2, 4, 4, 6, 8)),
        )
        for k in range(rng.choice((1, 1, 2, 2, 3)))
    ]
    lost = {key for key in ("cpu", "io", "gpu", "gpu memory", "network", "memory") if rng.random() < 0.06}
    for machine in machines:
        _write_samples(folder, machine, lost, rng)
    if rng.random() < 0.8:
        span_us = count * interval_us
        for machine in machines[: rng.randint(1, len(machines))]:
            for worker in range(rng.choice((1, 1, 2))):
                _write_timeline(folder, machine, 27 + worker, start_us, span_us, rng)
    for part in ("system", "framework"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / part / "training_job_end.ts").touch()


def _write_samples(folder: Path, machine: _Machine, lost: set[str], rng: random.Random) -> None:
    integers = rng.random() < 0.5
    series: list[tuple[str, str, str, list[float]]] = []
    for gpu in range(machine.gpus):
        if "gpu" not in lost:
            series.append(("gpu", f"gpu{gpu}", "GPUUtilization", _shape(rng, machine.count, integers=integers)))
        if "gpu memory" not in lost:
            series.append(("gpu", f"gpu{gpu}", "GPUMemoryUtilization", _shape(rng, machine.count, integers=integers)))
    for core in range(machine.cores):
        if "cpu" not in lost:
            series.append(("cpu", f"cpu{core}", "CPUUtilization", _shape(rng, machine.count, integers=integers)))
        if "io" not in lost:
            series.append(("cpu", f"cpu{core}", "I/OWaitPercentage", _shape(rng, machine.count, integers=integers)))
    if "network" not in lost:
        for name in ("ReceiveBytesPerSecond", "TransmitBytesPerSecond"):
            series.append(("network", name, "Algorithm", [100.0 * v for v in _shape(rng, machine.count, integers=True)]))
            series.append(("network", name, "Platform", [7.0] * machine.count))
    if "memory" not in lost:
        series.append(("memory", "MemoryUsedPercent", "", _shape(rng, machine.count, integers=integers)))
    series.append(("i/o", "IOPS", "", [3.0] * machine.count))

    dropping = rng.choice((0.0, 0.0, 0.02, 0.1))
    pause = (rng.uniform(0.2, 0.8), rng.choice((0, 0, 0, 90_000_000)))  # where, microseconds
    jitter = {kind: rng.randrange(0, 2_000) for kind in ("gpu", "cpu", "network", "memory", "i/o")}
    wide = rng.random() < 0.2 and machine.interval_us > 40_000  # the samples of one snapshot are spread over up to 17 ms
    files: dict[int, list[str]] = defaultdict(list)
    for kind, name, dimension, values in series:
        first = rng.choice((0, 0, 0, 0, rng.randrange(0, max(1, machine.count // 3))))
        last = rng.choice((machine.count,) * 5 + (rng.randint(machine.count // 2, machine.count),))
        for k in range(first, last):
            if rng.random() < dropping:
                continue
            at = machine.start_us + k * machine.interval_us + jitter[kind] + rng.randrange(0, 15_000 if wide else 900)
            if k > machine.count * pause[0]:
                at += pause[1]
            record = {"Type": kind, "Name": name, "Dimension": dimension, "Value": values[k], "NodeId": machine.name, "Timestamp": 0}
            text = json.dumps(record, separators=(",", ":"))[:-2] + f"{at // 1_000_000}.{at % 1_000_000:06d}}}"
            files[at // 60_000_000 * 60].append(text)
    broken, doubled, shuffled = rng.random() < 0.3, rng.random() < 0.3, rng.random() < 0.4
    for minute, lines in files.items():
        if broken:
            for line in rng.sample(lines, min(len(lines), rng.randrange(4))):
                fields = json.loads(line)
                fields["Value"] = math.nan
                lines.append(rng.choice((line[: len(line) // 2], json.dumps(fields, separators=(",", ":")), "")))
        if doubled:
            lines.extend(rng.choice(lines) for _ in range(rng.randrange(60)))
        if shuffled:
            rng.shuffle(lines)
        path = folder / "system" / "incremental" / time.strftime("%Y%m%d%H", time.gmtime(minute))
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{minute}.{machine.name}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_timeline(folder: Path, machine: _Machine, pid: int, start_us: int, span_us: int, rng: random.Random) -> None:
    at = start_us + int(span_us * rng.choice((rng.uniform(0, 0.3), rng.uniform(0.3, 0.8), -0.05)))
    events: list[tuple[str, str, int, int, dict[str, Any]]] = []
    workers = rng.choice((0, 1, 2, 4, 8, 16, None))
    if workers is not None:
        for again in range(rng.choice((1, 1, 3))):
            init = {"pin_memory": rng.random() < 0.5, "num_workers": workers, "pid": pid}
            events.append(("DataLoaderIterInitialize", "_MultiProcessingDataLoaderIter.__init__", at - 900_000 + again * 1_000, 700, init))
    loads = workers is not None and rng.random() < 0.8
    for phase in rng.sample(("TRAIN", "EVAL", "PREDICT", "GLOBAL"), rng.choice((0, 1, 1, 2, 3))):
        usual, spread = rng.randint(5_000, 400_000), rng.choice((0, 0.02, 0.3))
        slow = rng.choice((0, 0.02, 0.05, 0.2))
        for index in range(rng.choice((5, 10, 11, 26, 27, rng.randint(20, 200)))):
            duration = int(usual * (1 + rng.uniform(0, spread)))
            if rng.random() < slow:
                duration *= rng.choice((3, 8, 20))
            name = f"Step:ModeKeys.{phase}"
            events.append((name, name, at, duration, {"pid": pid, "step_num": str(index)}))
            if loads:
                events.append(("DataLoaderIter", "DataLoaderIter::GetNext", at + 10, duration // 3 + 1, {"pid": pid}))
            at += duration + (rng.randrange(0, usual) if rng.random() < 0.7 else 0)
        at += rng.randrange(0, 20_000_000)
    if workers is None and rng.random() < 0.7:  # the loader processes themselves, without num_workers
        for worker in range(rng.randint(1, 6)):
            begin = at - rng.randrange(5_000_000, 40_000_000)
            for _ in range(rng.randint(3, 60)):
                duration = rng.randint(1_000, 1_500_000)
                events.append(("DataLoaderWorker", "fetch", begin, duration, {"pid": 100 * pid + worker}))
                begin += duration + rng.randrange(0, 700_000)
    if not events:
        return
    base = start_us - rng.randrange(0, 10_000_000)
    names = list(dict.fromkeys(event[0] for event in events))
    portions: dict[int, list[tuple[str, str, int, int, dict[str, Any]]]] = defaultdict(list)
    for event in events:
        portions[(event[2] + event[3]) // 60_000_000].append(event)
    for portion in portions.values():
        last = max(event[2] + event[3] for event in portion)
        records: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": base}}]
        records += [{"name": "process_name", "ph": "M", "pid": k + 1, "args": {"name": name}} for k, name in enumerate(names)]
        for phase, name, begin, duration, arguments in portion:
            records.append({"name": name, "pid": names.index(phase) + 1, "ph": "X", "ts": begin - base, "dur": duration, "args": arguments})
        path = folder / "framework" / "pevents" / time.strftime("%Y%m%d%H", time.gmtime(last // 1_000_000))
        path.mkdir(parents=True, exist_ok=True)
        text = "[\n" + ",\n".join(json.dumps(record) for record in records) + "\n]"
        (path / f"{last}_{pid}-{machine.name}_pythontimeline.json").write_text(text, encoding="utf-8")


# -- reading ---------------------------------------------------------------------------------------------------------------

# (Type, Dimension) or (Type, Name) -> what is sampled
_CPU, _IO, _GPU, _MEMORY = "CPUUtilization", "I/OWaitPercentage", "GPUUtilization", "GPUMemoryUtilization"
Series = dict[int, Fraction]  # time in ns -> value


@dataclass
class Run:
    """A folder as read: (machine, what, unit) -> its samples by time, and the events of the timelines."""

    samples: dict[tuple[str, str, int], Series] = field(default_factory=lambda: defaultdict(dict))
    steps: dict[tuple[str, int, str], list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))  # start, length, index
    loaders: dict[str, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))  # machine -> pid, start, length
    workers: dict[str, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))  # loader processes, the same
    initialized: dict[str, dict[int, list[int]]] = field(default_factory=lambda: defaultdict(dict))  # machine -> pid -> num_workers
    events: list[tuple[int, int]] = field(default_factory=list)  # start, end
    others: dict[tuple[str, int], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )  # times of other ranges than loading, by worker

    def of(self, node: str, what: str) -> dict[int, Series]:
        return {unit: series for (of_node, of_what, unit), series in sorted(self.samples.items()) if (of_node, of_what) == (node, what)}

    @property
    def nodes(self) -> list[str]:
        return sorted({node for node, _, _ in self.samples})

    @property
    def gpus(self) -> dict[tuple[str, int], Series]:
        return {(node, unit): series for node in self.nodes for unit, series in self.of(node, _GPU).items()}

    @property
    def origin_ns(self) -> int:
        """The first sample, floored to a full minute."""
        return min(min(series) for series in self.samples.values()) // (60 * SECOND) * (60 * SECOND)


def read_run(folder: Path) -> Run:
    run = Run()
    for file in sorted((folder / "system" / "incremental").rglob("*.json")):
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line, parse_float=Decimal, parse_int=Decimal, parse_constant=lambda text: None)
            except json.JSONDecodeError:
                continue
            if record["Value"] is None:
                continue
            kind, name = record["Type"], record["Name"]
            what, unit = (record["Dimension"], int(name[3:])) if kind in ("cpu", "gpu") else (name + record["Dimension"], 0)
            run.samples[record["NodeId"], what, unit][int(record["Timestamp"] * SECOND)] = Fraction(record["Value"])
    for file in sorted((folder / "framework" / "pevents").rglob("*.json")):
        pid, _, node = file.name.split("_")[1].partition("-")
        base, phases = 0, {}
        for record in json.loads(file.read_text(encoding="utf-8")):
            arguments = record.get("args", {})
            if record["ph"] == "M" and "start_time_since_epoch_in_micros" in arguments:
                base = arguments["start_time_since_epoch_in_micros"]
            elif record["ph"] == "M" and record["name"] == "process_name":
                phases[record["pid"]] = arguments["name"]
            elif record["ph"] == "X":
                phase, start, length = phases[record["pid"]], (base + record["ts"]) * 1000, record["dur"] * 1000
                run.events.append((start, start + length))
                if not phase.startswith("DataLoader"):
                    run.others[node, int(pid)] += (start, start + length)
                if phase.startswith("Step:ModeKeys."):
                    run.steps[node, int(pid), phase.rpartition(".")[2]].append((start, length, int(arguments["step_num"])))
                elif phase == "DataLoaderIter":
                    run.loaders[node].append((int(pid), start, length))
                elif phase == "DataLoaderWorker":
                    run.workers[node].append((arguments["pid"], start, length))
                elif phase == "DataLoaderIterInitialize":
                    run.initialized[node].setdefault(int(pid), []).append(arguments["num_workers"])
    return run


# -- evaluating ---------------------------------------------------------------------------------------------------------------


def quantile(values: Iterable[Fraction], share: Fraction) -> Fraction:
    ordered = sorted(values)
    position = (len(ordered) - 1) * share
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


P5, P25, P50, P75, P95, P99 = (Fraction(k, 100) for k in (5, 25, 50, 75, 95, 99))


def mean(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def box(values: Sequence[Fraction]) -> dict[str, Fraction | int]:
    p25, p75 = quantile(values, P25), quantile(values, P75)
    reach = (p75 - p25) * Fraction(3, 2)
    return {
        "samples": len(values), "min": min(values), "max": max(values), "mean": mean(values),
        "p5": quantile(values, P5), "p25": p25, "p50": quantile(values, P50), "p75": p75, "p95": quantile(values, P95),
        "whisker_lower": min(v for v in values if v >= p25 - reach), "whisker_upper": max(v for v in values if v <= p75 + reach),
    }  # fmt: skip


def in_order(series: Series) -> list[Fraction]:
    return [series[at] for at in sorted(series)]


def snapshots(run: Run, node: str) -> list[tuple[int, dict[tuple[str, int], Fraction]]]:
    """(first time, values by (what, unit)) of each snapshot of a machine, in order."""
    samples = sorted(
        (at, what, unit, value) for (of, what, unit), series in run.samples.items() if of == node for at, value in series.items()
    )
    snapshots: list[tuple[int, dict[tuple[str, int], Fraction]]] = []
    times = [sorted(series) for (of, _, _), series in run.samples.items() if of == node]
    steps = [b - a for own in times for a, b in itertools.pairwise(own)]
    half = quantile(map(Fraction, steps), P50) / 2 if steps else math.inf
    for at, what, unit, value in samples:
        if not snapshots or at - snapshots[-1][0] > SNAPSHOT_NS or at - snapshots[-1][0] >= half:
            snapshots.append((at, {}))
        snapshots[-1][1][what, unit] = value
    return snapshots


def _windows(times: Iterable[int], origin: int, length: int) -> list[int]:
    return sorted({(at - origin) // length for at in times})


def _upto(series: Series, end: int) -> list[Fraction]:
    return [series[at] for at in sorted(series) if at < end]


def low_gpu_utilization(run: Run, p: Mapping[str, Any]) -> dict[str, Any]:
    origin, length = (run.origin_ns, p["scan_interval_us"] * 1000) if run.samples else (0, 1)
    devices, evaluated, triggered = {}, set(), set()
    for key, series in run.gpus.items():
        windows = under = fluctuating = 0
        moments = []
        p95 = p5 = None
        for window in _windows(series, origin, length):
            seen = _upto(series, origin + (window + 1) * length)
            if len(seen) <= p["patience"]:
                continue
            evaluated.add(window)
            windows += 1
            p95, p5 = quantile(seen[-p["window"] :], P95), quantile(seen[-p["window"] :], P5)
            low, wavers = p95 < p["threshold_p95"], p95 >= p["threshold_p95"] and p5 < p["threshold_p5"]
            under, fluctuating = under + low, fluctuating + wavers
            if low or wavers:
                triggered.add(window)
                moments.append(max(at for at in series if at < origin + (window + 1) * length))
        devices[key] = {
            "samples": len(series), "windows": windows, "under_utilised": under, "fluctuating": fluctuating,
            "triggered": under + fluctuating,
            "p95": p95, "p5": p5, "unused": not any(series.values()), "box": box(in_order(series)),
            "first_ns": min(moments, default=None), "last_ns": max(moments, default=None),
            "triggered_percent": _percent(under + fluctuating, windows),
        }  # fmt: skip
    total = sum(d["triggered"] for d in devices.values())
    return {
        "verdict": _verdict(any(d["windows"] for d in devices.values()), total > 0), "triggered": total, "violations": total,
        "windows": len(evaluated), "windows_triggered": len(triggered), "devices": devices,
        "datapoints": sum(d["samples"] for d in devices.values() if d["windows"]),
    }  # fmt: skip


def _verdict(looked: bool, issue: bool) -> str:
    return "NotEvaluated" if not looked else "IssuesFound" if issue else "NoIssuesFound"


def batch_size(run: Run, p: Mapping[str, Any]) -> dict[str, Any]:
    origin, length = (run.origin_ns, p["scan_interval_us"] * 1000) if run.samples else (0, 1)
    devices, evaluated, triggered = {}, set(), set()
    for node in run.nodes:
        cpu: Series = {}
        for at, values in snapshots(run, node):
            if cores := [value for (what, _), value in values.items() if what == _CPU]:
                cpu[at] = mean(cores)
        memory = run.of(node, _MEMORY)
        for unit, series in run.of(node, _GPU).items():
            windows = violations = 0
            figures: list[Fraction | None] = [None, None, None]
            three = (cpu, series, memory.get(unit, {}))
            for window in sorted(set.intersection(*(set(_windows(each, origin, length)) for each in three))):
                seen = [_upto(each, origin + (window + 1) * length) for each in three]
                if min(map(len, seen)) <= max(p["patience"], p["window"]):
                    continue
                evaluated.add(window)
                windows += 1
                figures = [quantile(each[-p["window"] :], P95) for each in seen]
                limits = (p["cpu_threshold_p95"], p["gpu_threshold_p95"], p["gpu_memory_threshold_p95"])
                if all(figure < limit for figure, limit in zip(figures, limits, strict=True) if figure is not None):
                    violations += 1
                    triggered.add(window)
            devices[node, unit] = {
                "samples": len(series), "windows": windows, "violations": violations,
                "cpu_p95": figures[0], "gpu_p95": figures[1], "gpu_memory_p95": figures[2],
                "boxes": {
                    figure: box(in_order(each)) for figure, each in zip(("cpu", "gpu", "gpu_memory"), three, strict=True) if each
                },
            }  # fmt: skip
    total = sum(d["violations"] for d in devices.values())
    return {
        "verdict": _verdict(any(d["windows"] for d in devices.values()), total > 0), "triggered": total, "violations": total,
        "windows": len(evaluated), "windows_triggered": len(triggered), "devices": devices,
        "datapoints": sum(d["samples"] for d in devices.values() if d["windows"]),
    }  # fmt: skip


def bottleneck(run: Run, p: Mapping[str, Any], what: str, limit: str) -> dict[str, Any]:
    origin, length = (run.origin_ns, p["scan_interval_us"] * 1000) if run.samples else (0, 1)
    nodes = {}
    for node in run.nodes:
        gpus = run.of(node, _GPU)
        used = {unit for unit, series in gpus.items() if any(series.values())}
        count = lows = hits = 0
        by_window: dict[int, list[bool]] = defaultdict(list)
        for at, values in snapshots(run, node):
            of_gpus = [value for (kind, unit), value in values.items() if kind == _GPU and unit in used]
            of_cores = [value for (kind, _), value in values.items() if kind == what]
            if not of_gpus or not of_cores:
                continue
            low = any(value < p["gpu_threshold"] for value in of_gpus)
            hit = low and any(value > p[limit] for value in of_cores)
            count, lows, hits = count + 1, lows + low, hits + hit
            by_window[(at - origin) // length].append(hit)
        if not gpus:
            continue
        judged = count > p["patience"]
        exceeded = [window for window, found in by_window.items() if Fraction(100 * sum(found), len(found)) > p["threshold"]]
        nodes[node] = {
            "snapshots": count, "low": lows, "bottlenecks": hits, "windows": len(by_window) if judged else 0,
            "windows_exceeded": len(exceeded) if judged else 0,
            "above_percent": _percent(count - lows, count), "other_percent": _percent(lows - hits, count),
            "bottleneck_percent": _percent(hits, count), "of_low_percent": _percent(hits, lows),
            "issue": Fraction(100 * hits, count) > p["threshold"] if judged else None,
            "unused": sorted(set(gpus) - used), "seen": set(by_window) if judged else set(), "exceeded": set(exceeded) if judged else set(),
        }  # fmt: skip
    of_judged = [n for n in nodes.values() if n["issue"] is not None]
    return {
        "verdict": _verdict(bool(of_judged), any(n["issue"] for n in of_judged)),
        "triggered": sum(n["windows_exceeded"] for n in of_judged), "violations": sum(n["bottlenecks"] for n in of_judged),
        "windows": len(set().union(*(n["seen"] for n in of_judged))),
        "windows_triggered": len(set().union(*(n["exceeded"] for n in of_judged))),
        "datapoints": sum(n["snapshots"] for n in of_judged), "nodes": nodes,
    }  # fmt: skip


def _percent(part: int, total: int) -> Fraction | None:
    return Fraction(100 * part, total) if total else None


def gpu_memory_increase(run: Run, p: Mapping[str, Any]) -> dict[str, Any]:
    devices = {}
    window = p["window"]
    origin, length = (run.origin_ns, p["scan_interval_us"] * 1000) if run.samples else (0, 1)
    evaluated: set[int] = set()
    triggered: set[int] = set()
    for node in run.nodes:
        for unit, series in run.of(node, _MEMORY).items():
            times, values = sorted(series), in_order(series)
            sums = [Fraction(0)]
            for value in values:
                sums.append(sums[-1] + value)
            differences = {
                n - 1: (sums[n] - 2 * sums[n - window] + sums[n - 2 * window]) / window
                for n in range(2 * window, len(values) + 1)
                if n > p["patience"]
            }
            over = [k for k, difference in differences.items() if difference > Fraction(str(p["increase"]))]
            triggered |= {(times[k] - origin) // length for k in over}
            for end in _windows(times, origin, length):
                if sum(at < origin + (end + 1) * length for at in times) - 1 in differences:
                    evaluated.add(end)
            episodes: list[list[int]] = []
            for k in over:
                if episodes and episodes[-1][-1] == k - 1:
                    episodes[-1].append(k)
                else:
                    episodes.append([k])
            devices[node, unit] = {
                "samples": len(values), "evaluated": bool(differences), "violations": len(over),
                "largest_increase": max(differences.values(), default=None),
                "episodes": [
                    {"start_ns": times[e[0]], "end_ns": times[e[-1]], "largest": max(differences[k] for k in e), "samples": len(e)}
                    for e in episodes
                ],
                "slope_percent_per_hour": _slope(times, values),
                "box": box(values),
            }  # fmt: skip
    total = sum(d["violations"] for d in devices.values())
    return {
        "verdict": _verdict(any(d["evaluated"] for d in devices.values()), total > 0), "triggered": total, "violations": total,
        "windows": len(evaluated), "windows_triggered": len(triggered),
        "datapoints": sum(d["samples"] for d in devices.values() if d["evaluated"]), "devices": devices,
    }  # fmt: skip


def _slope(times: Sequence[int], values: Sequence[Fraction]) -> float | None:
    """Theil-Sen, per hour; of more samples, the means of 64 successive groups."""
    groups: dict[int, list[int]] = defaultdict(list)
    for k in range(len(times)):
        groups[k * min(len(times), 64) // len(times)].append(k)
    points = [(mean([Fraction(times[k] - times[0]) for k in g]), mean([values[k] for k in g])) for g in groups.values()]
    slopes = [(w - v) / (b - a) for i, (a, v) in enumerate(points) for b, w in points[i + 1 :]]
    return float(quantile(slopes, P50) * 3600 * SECOND) if slopes else None


def _distance(a: Sequence[float], b: Sequence[float]) -> float:
    total = 0.0
    for x, y in zip(a, b, strict=True):
        middle = (x + y) / 2
        total += sum(share * math.log2(share / middle) for share in (x, y) if share > 0) / 2
    return math.sqrt(max(total, 0.0))


def while_all_machines_record(gpus: Mapping[Any, Mapping[int, Any]]) -> dict[Any, dict[int, Any]]:
    """Return samples of GPUs in the time common to the nodes, if some have more time."""
    spans = [
        [time for key, series in gpus.items() if key[0] == machine for time in (min(series), max(series))]
        for machine in {key[0] for key in gpus}
    ]
    if not spans:
        return {}
    first, last = max(map(min, spans)), min(map(max, spans))
    if max(map(max, spans)) - min(map(min, spans)) - (last - first) <= Fraction(last - first, 20):
        return {key: dict(series) for key, series in gpus.items()}
    cut = {key: {time: value for time, value in series.items() if first <= time <= last} for key, series in gpus.items()}
    return {key: series for key, series in cut.items() if series}


def load_balancing(run: Run, p: Mapping[str, Any]) -> dict[str, Any]:
    gpus = while_all_machines_record(run.gpus)
    shares = {}
    for key, series in gpus.items():
        bins = [0] * 50
        for value in series.values():
            bins[min(int(value // 2), 49)] += 1
        shares[key] = [n / len(series) for n in bins]
    judged = [key for key, series in gpus.items() if len(series) > p["patience"]]
    pairs = {(a, b): _distance(shares[a], shares[b]) for i, a in enumerate(judged) for b in judged[i + 1 :]}
    total = sum(distance > p["threshold"] for distance in pairs.values())
    return {
        "verdict": _verdict(bool(pairs), total > 0), "triggered": total, "violations": total,
        "datapoints": sum(len(gpus[key]) for key in judged), "shares": shares, "pairs": pairs,
        "means": {key: mean(in_order(series)) for key, series in gpus.items()}, "judged": judged,
    }  # fmt: skip


def max_initialization_time(run: Run, p: Mapping[str, Any]) -> dict[str, Any]:
    times = [at for series in run.samples.values() for at in series] + [at for event in run.events for at in event]
    steps = [(start, start + length) for of in run.steps.values() for start, length, _ in of]
    started, ended = min(times), max(times)
    limit = Fraction(str(p["threshold"])) * 60 * SECOND
    if not steps:
        issue = any(max(own) - min(own) > limit for own in run.others.values())
        facts: dict[str, Any] = {"started_ns": started, "ended_ns": ended, "duration_ns": ended - started, "steps": False}
        return {"verdict": _verdict(issue, issue), **facts}
    first, last = min(a for a, _ in steps), max(b for _, b in steps)
    facts = {"steps": True, "initialization_ns": max(0, first - started)}
    if len(steps) > 1:  # a single step is not a loop
        started, ended = min(started, first), max(ended, last)
        facts |= {
            "started_ns": started,
            "ended_ns": ended,
            "duration_ns": ended - started,
            "loop_ns": last - first,
            "finalization_ns": ended - last,
        }
    issue = first - started > limit
    return {"verdict": _verdict(True, issue), **facts}


def step_outlier(run: Run, p: Mapping[str, Any]) -> dict[str, Any]:
    groups = {}
    for (node, pid, phase), steps in run.steps.items():
        if p["mode"] not in (None, phase):
            continue
        lengths = [Fraction(length) for _, length, _ in steps]
        n, average = len(lengths), mean(lengths)
        variance = mean([(length - average) ** 2 for length in lengths])
        k = Fraction(str(p["stddev"]))
        evaluable = n > k * k + 1
        over = sum(length > average and (length - average) ** 2 > k * k * variance for length in lengths)
        middle = quantile(lengths, P50)
        spread = quantile([abs(length - middle) for length in lengths], P50)
        robust = middle + k * Fraction("1.4826") * spread
        groups[node, pid, phase] = {
            "steps": n, "mean_ns": average, "std_ns": math.sqrt(variance), "threshold_ns": float(average) + float(k) * math.sqrt(variance),
            "evaluable": evaluable, "outliers": over if evaluable else None, "robust_threshold_ns": robust,
            "robust_outliers": sum(length > robust for length in lengths), "max_ns": max(lengths), "min_ns": min(lengths),
            "p99_ns": quantile(lengths, P99), "p95_ns": quantile(lengths, P95), "p50_ns": middle,
        }  # fmt: skip
    judged = [g for g in groups.values() if g["evaluable"]]
    # m equal outliers among n steps are sqrt((n - m) / m) standard deviations above the mean.
    k, m = Fraction(str(p["stddev"])), math.floor(p["n_outliers"]) + 1
    possible = any(g["steps"] - m > k * k * m for g in judged)
    return {
        "verdict": _verdict(possible, any(g["outliers"] > p["n_outliers"] for g in judged)),
        "violations": sum(g["outliers"] for g in judged), "datapoints": sum(g["steps"] for g in groups.values()), "groups": groups,
        "slowest": sorted(
            (length - groups[key]["p50_ns"] for key, steps in run.steps.items() if key in groups for _, length, _ in steps), reverse=True
        )[:10],
    }  # fmt: skip


_USAGE = {"cpu": (_CPU,), "gpu": (_GPU,), "io_wait": (_IO,), "gpu_memory": (_MEMORY,), "cpu_memory": ("MemoryUsedPercent",)}
_NETWORK = ("ReceiveBytesPerSecondAlgorithm", "TransmitBytesPerSecondAlgorithm")


def overall_system_usage(run: Run) -> dict[str, Any]:
    nodes: dict[str, dict[str, dict[str, Fraction]]] = {}
    for node in run.nodes:
        values: dict[str, list[Fraction]] = defaultdict(list)
        for _, snapshot in snapshots(run, node):
            for metric, kinds in _USAGE.items():
                if of_kind := [value for (what, _), value in snapshot.items() if what in kinds]:
                    values[metric].append(mean(of_kind))
            if of_kind := [value for (what, _), value in snapshot.items() if what in _NETWORK]:
                values["network"].append(sum(of_kind, Fraction(0)))
        nodes[node] = {
            metric: {
                "max": max(v), "p99": quantile(v, P99), "p95": quantile(v, P95), "p50": quantile(v, P50), "min": min(v),
                "samples": Fraction(len(v)),
            }
            for metric, v in values.items()
        }  # fmt: skip
    statements = {node: _statement(usage) for node, usage in nodes.items()}
    return {"verdict": _verdict(any(nodes.values()), False), "nodes": nodes, "statements": statements}


def _statement(usage: Mapping[str, Mapping[str, Fraction]]) -> str | None:
    """How the sentence about a machine with GPUs begins."""
    if "gpu" not in usage:
        return None
    gpu, cpu = usage["gpu"], usage.get("cpu")
    if gpu["p95"] < 70 and cpu and cpu["p95"] < 70:
        return "Under-utilized: "
    if gpu["p95"] < 70 and cpu and cpu["p95"] > 70:
        return "GPUs under-used, likely waiting for the CPU: "
    return "Well used: " if gpu["p50"] > 70 else "The median of the GPUs is "


def _union(intervals: Iterable[tuple[int, int]]) -> int:
    total, end = 0, -(1 << 62)
    for a, b in sorted(intervals):
        total += max(0, b - max(a, end))
        end = max(end, b)
    return total


def overall_framework_metrics(run: Run) -> dict[str, Any]:
    workers: dict[tuple[str, int], dict[str, list[tuple[int, int]]]] = defaultdict(dict)
    for (node, pid, phase), steps in run.steps.items():
        workers[node, pid][phase] = [(start, start + length) for start, length, _ in steps]
    shares: dict[str, list[Fraction]] = defaultdict(list)
    names = {phase for phases in workers.values() for phase in phases}
    for phases in workers.values():
        every = [interval for intervals in phases.values() for interval in intervals]
        span = max(b for _, b in every) - min(a for a, _ in every)
        for name in names:
            shares[name].append(Fraction(100 * _union(phases.get(name, [])), span))
        shares["other"].append(Fraction(100 * (span - _union(every)), span))
    counts = {name: sum(len(phases.get(name, [])) for phases in workers.values()) for name in names}
    phases = {name: {"percent": mean(found), "count": counts.get(name, 0)} for name, found in shares.items()}
    return {"verdict": _verdict(bool(run.steps or any(run.loaders.values())), False), "phases": phases}


def _seconds(intervals: Iterable[tuple[int, int, int]]) -> dict[int, int]:
    """Map each second to its largest number of open intervals, except zero."""
    listed = [(start, start + max(length, 1)) for _, start, length in intervals]
    by_second: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for start, end in listed:
        for second in range(start // SECOND, (end - 1) // SECOND + 1):
            by_second[second].append((max(start, second * SECOND), min(end, (second + 1) * SECOND)))
    return {second: max(sum(a <= at < b for a, b in own) for at, _ in own) for second, own in by_second.items()}


def dataloader(run: Run, p: Mapping[str, Any]) -> dict[str, Any]:
    nodes = {}
    for node in sorted({*run.loaders, *run.initialized, *run.workers}):
        seconds = _seconds(run.loaders[node] + run.workers[node])
        cores = len(run.of(node, _CPU)) or None
        stated = {pid: max([1, *found]) for pid, found in run.initialized[node].items()}
        loaders: Fraction | None = None
        if stated:
            training = {pid for of_node, pid, _ in run.steps if of_node == node} | set(stated)
            loaders = Fraction(sum(stated.values()) * len(training), len(stated))
        elif seconds:
            loaders = quantile(map(Fraction, _seconds(run.workers[node] or run.loaders[node]).values()), P50)
        percent = 100 * loaders / cores if loaders is not None and cores else None
        issue = None
        if percent is not None and len(seconds) > p["patience"]:
            issue = percent < p["min_threshold"] or percent > p["max_threshold"]
        nodes[node] = {
            "cores": cores, "loaders": loaders, "percent_of_cores": percent, "seconds": len(seconds), "issue": issue,
            "source": "num_workers" if stated else "overlap",
        }  # fmt: skip
    judged = [n for n in nodes.values() if n["issue"] is not None]
    return {
        "verdict": _verdict(bool(judged), any(n["issue"] for n in judged)), "datapoints": sum(n["seconds"] for n in nodes.values()),
        "violations": sum(n["seconds"] for n in judged if n["issue"]), "nodes": nodes, "loading": _loading(run),
    }  # fmt: skip


def _loading(run: Run) -> dict[str, Fraction | int]:
    loaders = run.loaders if any(run.loaders.values()) else run.workers
    lengths = [Fraction(length) for intervals in loaders.values() for _, _, length in intervals]
    if not lengths:
        return {"count": 0, "total_ns": 0}
    quantiles = {"p25_ns": quantile(lengths, P25), "p50_ns": quantile(lengths, P50), "p95_ns": quantile(lengths, P95)}
    return {"count": len(lengths), **quantiles, "max_ns": max(lengths), "total_ns": sum(lengths, Fraction(0))}


def opinions(run: Run, preset: str, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    p = parameters(preset, settings)
    return {
        "LowGPUUtilization": low_gpu_utilization(run, p["LowGPUUtilization"]),
        "BatchSize": batch_size(run, p["BatchSize"]),
        "CPUBottleneck": bottleneck(run, p["CPUBottleneck"], _CPU, "cpu_threshold"),
        "IOBottleneck": bottleneck(run, p["IOBottleneck"], _IO, "io_threshold"),
        "GPUMemoryIncrease": gpu_memory_increase(run, p["GPUMemoryIncrease"]),
        "LoadBalancing": load_balancing(run, p["LoadBalancing"]),
        "MaxInitializationTime": max_initialization_time(run, p["MaxInitializationTime"]),
        "StepOutlier": step_outlier(run, p["StepOutlier"]),
        "OverallSystemUsage": overall_system_usage(run),
        "OverallFrameworkMetrics": overall_framework_metrics(run),
        "Dataloader": dataloader(run, p["Dataloader"]),
    }


def random_settings(seed: int) -> tuple[str, dict[str, Any]]:
    """A preset and values over it; small enough that short runs are evaluated."""
    rng = random.Random(seed + 1)
    preset = rng.choice(("documented", "service"))
    percent = lambda: rng.choice((10, 50, 70, 90, rng.randint(1, 99)))  # noqa: E731
    chosen: dict[str, Any] = {
        "BatchSize_cpu_threshold_p95": percent(), "BatchSize_gpu_threshold_p95": percent(), "BatchSize_gpu_memory_threshold_p95": percent(),
        "BatchSize_patience": rng.randint(1, 90), "BatchSize_window": rng.randint(1, 90),
        "CPUBottleneck_threshold": rng.choice((1, 5, 50)), "CPUBottleneck_gpu_threshold": percent(),
        "CPUBottleneck_cpu_threshold": percent(),
        "CPUBottleneck_patience": rng.randint(1, 90),
        "IOBottleneck_threshold": rng.choice((1, 5, 50)), "IOBottleneck_gpu_threshold": percent(), "IOBottleneck_io_threshold": percent(),
        "IOBottleneck_patience": rng.randint(1, 90),
        "GPUMemoryIncrease_increase": rng.choice((1, 2, 5, 10, 0.5)), "GPUMemoryIncrease_patience": rng.randint(1, 90),
        "GPUMemoryIncrease_window": rng.choice((1, 2, 10, rng.randint(1, 100))),
        "LoadBalancing_threshold": rng.choice((0.1, 0.24, 0.5, 0.9)), "LoadBalancing_patience": rng.randint(1, 90),
        "LowGPUUtilization_threshold_p95": percent(), "LowGPUUtilization_threshold_p5": percent(),
        "LowGPUUtilization_patience": rng.randint(1, 90), "LowGPUUtilization_window": rng.randint(1, 150),
        "MaxInitializationTime_threshold": rng.choice((1, 0.5, 2)),
        "StepOutlier_stddev": rng.choice((1, 2, 3, 5)), "StepOutlier_n_outliers": rng.choice((1, 3, 10)),
        "StepOutlier_mode": rng.choice(("TRAIN", "EVAL", "GLOBAL")),
        "Dataloader_min_threshold": rng.choice((25, 50, 70, 100)), "Dataloader_max_threshold": rng.choice((100, 150, 200)),
        "Dataloader_patience": rng.randint(1, 20),
    }  # fmt: skip
    settings = {key: value for key, value in chosen.items() if rng.random() < 0.9}
    if "StepOutlier_mode" in settings and rng.random() < 0.6:
        del settings["StepOutlier_mode"]
    for rule in DOCUMENTED:
        if rng.random() < 0.5:
            settings[f"{rule}_scan_interval_us"] = rng.choice((10_000_000, 20_000_000, 30_000_000, 7_000_000))
    for key in settings:
        if key.rpartition("_")[2] in ("patience", "window") and rng.random() < 0.1:
            settings[key] += 0.5
    return preset, settings
