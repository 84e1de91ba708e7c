"""Rules get each sample once, in order, in the right window and snapshot, with the quantiles that plain Python computes."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from postrun.analysis.machine.series import per_moment
from postrun.analysis.report.detail_rows import Box
from postrun.analysis.rules.evidence import blocks as module
from postrun.analysis.rules.evidence.blocks import CONTROLLER, FOOTPRINT, SampleBlock, Samples, samples_of, window_ns
from postrun.analysis.toolkit import ordered
from postrun.ingest.store import Store

Make = Callable[..., Store]
Rows = list[dict[str, Any]]
SECOND = 1_000_000_000
MS = 1_000_000
T = 1_700_000_040 * SECOND  # a full minute
GPU, CORE, IOWAIT = "gpu_utilization", "cpu_utilization", "cpu_iowait"


def line(metric: str, values: list[Any], *, unit: int | None = 0, node: int = 0, start: int = T, step: int = SECOND // 2) -> Rows:
    return [
        {"node": node, "metric": metric, "unit": unit, "time_ns": start + number * step, "value": value}
        for number, value in enumerate(values)
    ]


def one_block(store: Store) -> SampleBlock:
    (block,) = Samples(store).blocks()
    return block


def plain_quantile(values: list[float], fraction: float) -> float:
    ordered = sorted(values)
    location = fraction * (len(ordered) - 1)
    low = math.floor(location)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (location - low)


# -- series ----------------------------------------------------------------------------------------------------------------


def test_series_are_sorted_finite_and_without_doubles(make_store: Make) -> None:
    rows = line(GPU, [1.0, 2.0, 3.0], unit=1) + line(GPU, [10.0, math.nan, None, math.inf, 50.0]) + line(GPU, [7.0], node=1)
    rows += line(GPU, [3.0], unit=1)  # once more at the first time: the mean of 1 and 3 counts, once
    random.Random(1).shuffle(rows)
    series = one_block(make_store(sample=rows)).series("gpu")
    half = SECOND // 2
    assert series.select("node", "unit", "series", "position", "time_ns", "value").rows() == [
        (0, 0, 0, 0, T, 10.0), (0, 0, 0, 1, T + 4 * half, 50.0),
        (0, 1, 1, 0, T, 2.0), (0, 1, 1, 1, T + half, 2.0), (0, 1, 1, 2, T + 2 * half, 3.0),
        (1, 0, 2, 0, T, 7.0),
    ]  # fmt: skip
    assert set(series["source"]) == {"sampled"}
    assert series.schema["position"] == pl.UInt32
    assert series.schema["time_ns"] == pl.Int64


def test_figures_are_made_of_the_right_metrics(make_store: Make) -> None:
    rows = line(FOOTPRINT, [40.0]) + line(CONTROLLER, [99.0]) + line(CONTROLLER, [5.0], node=1) + line(CORE, [10.0]) + line(IOWAIT, [3.0])
    rows += line(CORE, [30.0], unit=1) + line("network_receive", [1e9], unit=None)
    samples = Samples(make_store(sample=rows))
    (block,) = samples.blocks()
    assert block.series("gpu_memory").select("node", "value", "source").rows() == [(0, 40.0, FOOTPRINT), (1, 5.0, CONTROLLER)]
    assert block.series("core")["value"].to_list() == [10.0, 30.0]
    assert block.series("core_iowait")["value"].to_list() == [3.0]
    assert block.series("cpu").select("node", "unit", "time_ns", "value").rows() == [(0, 0, T, 20.0)]
    assert [samples.has(figure) for figure in ("gpu", "gpu_memory", "core", "core_iowait", "cpu")] == [False, True, True, True, True]


def test_a_machine_whose_footprint_is_no_number_has_the_controller(make_store: Make) -> None:
    block = one_block(make_store(sample=line(FOOTPRINT, [math.nan]) + line(CONTROLLER, [99.0])))
    assert block.series("gpu_memory").select("value", "source").rows() == [(99.0, CONTROLLER)]


def test_only_what_is_no_number_is_nothing(make_store: Make) -> None:
    store = make_store(sample=line(GPU, [1.0, 2.0]))
    store.connection.execute(
        "UPDATE raw.sample SET value = CASE value WHEN 1 THEN 'nan'::DOUBLE ELSE 'inf'::DOUBLE END"
    )  # readers leave it out
    samples = Samples(store)
    assert (samples.has("gpu"), samples.metrics) == (False, frozenset())
    assert [len(block.series("gpu")) for block in samples.blocks()] == [0]
    assert list(Samples(make_store()).blocks()) == []


def test_clocks_decades_apart(make_store: Make) -> None:
    # Too far apart for a packed key: one clock counts from 0. Every machine gets a block of its own.
    rows = [row for node, start in itertools.product((0, 1), (0, T)) for unit in range(8) for row in
            line(GPU, [1.0 + unit, 2.0], unit=unit, node=node, start=start)] + line(GPU, [3.0], unit=7)  # fmt: skip
    rows += line(CORE, [50.0, 60.0], unit=None)
    random.Random(2).shuffle(rows)
    samples = Samples(make_store(sample=rows))
    blocks = list(samples.blocks())
    assert [block.nodes for block in blocks] == [(0,), (1,)]
    for block in blocks:
        series = block.series("gpu")
        assert series.select("unit", "time_ns").rows() == sorted(series.select("unit", "time_ns").rows())
        assert (len(series), series["series"].max(), series["position"].max()) == (32, 7, 3)
    assert blocks[0].series("gpu").filter((pl.col("unit") == 7) & (pl.col("time_ns") == T))["value"].to_list() == [5.5]
    assert blocks[0].snapshots().rows() == [
        (0, 0, 1.0, None, None), (0, SECOND // 2, 2.0, None, None), (0, T, 1.0, 50.0, None), (0, T + SECOND // 2, 2.0, 60.0, None),
    ]  # fmt: skip


def test_blocks_hold_whole_machines_and_say_the_same(make_store: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    rows = [row for node in (0, 3, 4, 900) for unit in range(3) for metric in (GPU, CORE)
            for row in line(metric, [rng.uniform(0, 100) for _ in range(20 + node % 7)], unit=unit, node=node)]  # fmt: skip
    store = make_store(sample=rows)
    complete = one_block(store)
    monkeypatch.setattr(module, "_BLOCK_SAMPLES", 250)
    parts = list(Samples(store).blocks())
    assert [part.nodes for part in parts] == [(0,), (3,), (4,), (900,)]
    for figure in ("gpu", "cpu"):
        columns = ["node", "unit", "position", "time_ns", "value"]
        assert pl.concat([part.series(figure).select(columns) for part in parts]).equals(complete.series(figure).select(columns))
        assert pl.concat([part.boxes(figure) for part in parts]).equals(complete.boxes(figure))
    assert pl.concat([part.snapshots() for part in parts]).equals(complete.snapshots())


# -- windows ---------------------------------------------------------------------------------------------------------------


def test_windows_are_half_open_from_a_full_minute(make_store: Make) -> None:
    # First sample 30 s into a minute. A sample at the very end of a window belongs to the next one.
    times = [30_000, 59_999, 60_000, 119_999, 120_000, 300_000]
    rows = [{"node": 0, "metric": GPU, "unit": 0, "time_ns": T + ms * MS, "value": 1.0} for ms in times]
    store = make_store(sample=rows)
    assert Samples(store).origin_ns == T
    ends = one_block(store).ends("gpu", 60_000_000)
    assert ends.select("window", "row", "count", "time_ns").rows() == [
        (0, 1, 2, T + 59_999 * MS), (1, 3, 4, T + 119_999 * MS), (2, 4, 5, T + 120_000 * MS), (5, 5, 6, T + 300_000 * MS),
    ]  # fmt: skip


def test_a_series_is_evaluated_where_it_has_samples(make_store: Make) -> None:
    # GPU 1 ends early; the other machine's clock is 30 s ahead: it has a sample in a window more.
    minute = [5.0] * 120
    rows = line(GPU, minute * 3) + line(GPU, minute, unit=1) + line(GPU, minute * 3, node=1, start=T + 30 * SECOND)
    ends = one_block(make_store(sample=rows)).ends("gpu", 60_000_000)
    assert ends.select("node", "unit", "window", "count").rows() == [
        (0, 0, 0, 120), (0, 0, 1, 240), (0, 0, 2, 360), (0, 1, 0, 120), (1, 0, 0, 60), (1, 0, 1, 180), (1, 0, 2, 300), (1, 0, 3, 360),
    ]  # fmt: skip


def test_quantiles_are_those_of_the_last_samples(make_store: Make) -> None:
    rng = random.Random(4)
    values = [[rng.choice([0.0, 10.0, rng.uniform(0, 100)]) for _ in range(n)] for n in (700, 95, 3, 501)]
    block = one_block(make_store(sample=[row for unit, own in enumerate(values) for row in line(GPU, own, unit=unit)]))
    for window, scan, more_than in ((500, 60e6, 0), (500, 60e6, 499), (500, 60e6, 500), (7, 1.3e6, 5), (10_000, 60e6, 2.5), (1, 60e6, 0)):
        actual = block.quantiles("gpu", scan, window, more_than)
        expected = []
        for unit, part in enumerate(values):
            last = {number // 2 * 1_000_000 // round(scan) if scan == 60e6 else number * 500_000 // round(scan): number + 1
                    for number in range(len(part))}  # fmt: skip
            expected += [
                (unit, at, n, plain_quantile(part[:n][-window:], 0.05), plain_quantile(part[:n][-window:], 0.95))
                for at, n in last.items() if n > more_than
            ]  # fmt: skip
        assert actual.select("unit", "window", "count").rows() == [row[:3] for row in expected]
        assert [v for row in actual.select("p5", "p95").rows() for v in row] == pytest.approx([v for row in expected for v in row[3:]])
        assert block.quantiles("gpu", scan, window, more_than) is actual


def test_quantiles_asked_for_in_any_order(make_store: Make) -> None:
    store = make_store(sample=line(GPU, [float(n % 37) for n in range(400)]))
    first, second = one_block(store), one_block(store)
    too_few, all_ = first.quantiles("gpu", 60e6, 50, 200), first.quantiles("gpu", 60e6, 50, 0)
    assert second.quantiles("gpu", 60e6, 50, 0).equals(all_)
    assert second.quantiles("gpu", 60e6, 50, 200).equals(too_few)
    assert too_few.equals(all_.filter(pl.col("count") > 200))
    assert (len(too_few), len(all_)) == (3, 4)  # the windows end with 120, 240, 360 and 400 samples


def test_large_windows_are_taken_in_parts(make_store: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(sample=line(GPU, [float(n * 7 % 101) for n in range(400)]))
    complete = one_block(store).quantiles("gpu", 5e6, 50, 0)
    monkeypatch.setattr(ordered, "NATIVE", None)
    monkeypatch.setattr(ordered, "_WINDOW_ROWS", 60)
    assert one_block(store).quantiles("gpu", 5e6, 50, 0).equals(complete)


def test_parameters_of_any_size() -> None:
    assert [samples_of(value) for value in (0.2, 1, 10.9, 500, 1e300)] == [1, 1, 10, 500, 1 << 30]
    assert [window_ns(value) for value in (1e-9, 60e6, 1e300)] == [1, 60 * SECOND, 1 << 62]


def test_boxes_on_paper(make_store: Make) -> None:
    # 0, 10, .. 100 and an outlier of 300: quartiles at 2.75 and 8.25 steps, 27.5 and 82.5; 82.5 + 1.5 x 55 = 165.
    rows = line(GPU, [float(v) for v in (*range(0, 101, 10), 300)]) + line(GPU, [4.0], unit=1)
    boxes = one_block(make_store(sample=rows)).boxes("gpu")
    first, second = (dataclasses.asdict(Box.of(row)) for row in boxes.iter_rows(named=True))
    assert first == pytest.approx(
        {"samples": 12, "min": 0, "p5": 5.5, "p25": 27.5, "p50": 55, "p75": 82.5, "p95": 190, "max": 300, "mean": 850 / 12,
         "lower": 0, "upper": 165, "whisker_lower": 0, "whisker_upper": 100}
    )  # fmt: skip
    assert second == {key: 1 if key == "samples" else 4.0 for key in first}


# -- snapshots -------------------------------------------------------------------------------------------------------------


def test_a_gpu_at_zero_for_the_whole_run_is_unused(make_store: Make) -> None:
    rows = line(GPU, [0.0, 0.0, 0.0]) + line(GPU, [0.0, 50.0, 60.0], unit=1) + line(CORE, [10.0, 20.0, 30.0])
    block = one_block(make_store(sample=rows))
    assert block.unused().rows() == [(0, 0)]
    half = SECOND // 2
    assert block.snapshots().rows() == [(0, T, 0.0, 10.0, None), (0, T + half, 50.0, 20.0, None), (0, T + 2 * half, 60.0, 30.0, None)]
    assert one_block(make_store(sample=line(GPU, [0.0] * 3) + line(CORE, [99.0] * 3))).snapshots().is_empty()


def test_samples_of_a_snapshot_lie_within_20_ms(make_store: Make) -> None:
    def at(metric: str, unit: int, ms: float, value: float) -> dict[str, Any]:
        return {"node": 0, "metric": metric, "unit": unit, "time_ns": T + round(ms * MS), "value": value}

    rows = [
        at("memory_used_percent", 0, 0, 1), at(GPU, 0, 5, 30), at(GPU, 1, 20, 20), at(CORE, 0, 20.001, 99),  # the core is too late
        at(GPU, 0, 500, 40), at(CORE, 0, 500, 10), at(CORE, 1, 512, 80), at(IOWAIT, 1, 519, 7),
        at(CORE, 0, 507, 30),  # once more in the same snapshot: core 0 is 20
        at(GPU, 0, 1000, 1), at(GPU, 0, 1500, 1),
    ]  # fmt: skip
    block = one_block(make_store(sample=rows))
    assert block.snapshots().rows() == [
        (0, T, 20.0, None, None),
        (0, T + 500 * MS, 40.0, 80.0, 7.0),
        (0, T + 1000 * MS, 1.0, None, None),
        (0, T + 1500 * MS, 1.0, None, None),
    ]
    assert block.series("cpu").select("time_ns", "value").rows() == [(T + 20_001_000, 99.0), (T + 500 * MS, 50.0)]


def test_snapshots_are_shorter_than_half_the_interval(make_store: Make) -> None:
    # Machine 0 samples every 10 ms: 4 ms are together, 5 ms are not. Machine 1 samples every 500 ms: 5 ms are together.
    rows = line(GPU, [50.0] * 4, step=10 * MS) + line(CORE, [1.0] * 4, start=T + 4 * MS, step=10 * MS)
    rows += line(GPU, [50.0] * 4, node=1) + line(CORE, [2.0] * 4, node=1, start=T + 5 * MS)
    rows += line(GPU, [50.0] * 4, node=2, step=10 * MS) + line(CORE, [3.0] * 4, node=2, start=T + 5 * MS, step=10 * MS)
    actual = one_block(make_store(sample=rows)).snapshots()
    assert actual.group_by("node", maintain_order=True).agg("core_max").rows() == [(0, [1.0] * 4), (1, [2.0] * 4), (2, [None] * 4)]


def walk(rows: Rows) -> list[tuple[Any, ...]]:
    """Snapshots by walking from sample to sample, machine by machine."""
    actual = []
    for node in sorted({row["node"] for row in rows}):
        expected = sorted((row for row in rows if row["node"] == node), key=lambda row: row["time_ns"])
        steps = []
        for metric, unit in {(row["metric"], row["unit"]) for row in expected}:
            times = [row["time_ns"] for row in expected if (row["metric"], row["unit"]) == (metric, unit)]
            steps += [b - a for a, b in itertools.pairwise(times) if b > a]
        interval = plain_quantile(steps, 0.5) if steps else math.inf
        groups: dict[int, Rows] = {}
        first = None
        for row in expected:
            if first is None or row["time_ns"] - first > 20 * MS or row["time_ns"] - first >= interval / 2:
                first = row["time_ns"]
            groups.setdefault(first, []).append(row)
        used = {row["unit"] for row in expected if row["metric"] == GPU and row["value"] > 0}
        for first, members in groups.items():
            gpus = [row["value"] for row in members if row["metric"] == GPU and row["unit"] in used]
            cores = [[row["value"] for row in members if row["metric"] == metric] for metric in (CORE, IOWAIT)]
            if gpus:
                actual.append((node, first, min(gpus), *(max(values, default=None) for values in cores)))
    return actual


@pytest.mark.parametrize("seed", range(12))
def test_snapshots_equal_a_walk(make_store: Make, seed: int) -> None:
    rng = random.Random(seed)
    rows = []
    for node in range(rng.randint(1, 3)):
        step = rng.choice([500 * MS, 30 * MS])
        jitter = rng.choice([0, 2 * MS, 25 * MS])
        for metric, unit in [(GPU, 0), (GPU, 1), (CORE, 0), (CORE, 1), (IOWAIT, 0), ("disk_read", None)]:
            for number in range(rng.randint(5, 30)):
                if rng.random() > 0.1:
                    at = T + node * 30 * SECOND + number * step + rng.randint(0, jitter)
                    rows.append({"node": node, "metric": metric, "unit": unit, "time_ns": at, "value": rng.choice([0.0, 5.0, 50.0])})
    rng.shuffle(rows)
    assert one_block(make_store(sample=rows)).snapshots().rows() == walk(rows)


@pytest.mark.parametrize("which", ["min", "max", "mean", None])
@pytest.mark.parametrize("even", [True, False])
def test_values_per_moment(make_store: Make, which: Any, even: bool) -> None:
    # Even machines, of different numbers of cores and samples, and one in which a sample is missing.
    rng = random.Random(5)
    rows = [row for node in range(3) for unit in range(1 + node) for row in
            line(CORE, [float(rng.randint(0, 9)) for _ in range(4 + node)], unit=unit, node=node)]  # fmt: skip
    if not even:
        del rows[-2]
    block = one_block(make_store(sample=rows))
    values: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        values.setdefault((row["node"], row["time_ns"]), []).append(row["value"])
    of = {"min": min, "max": max, "mean": lambda own: sum(own) / len(own), None: None}[which]
    expected = [(*key, *([of(own)] if of else [])) for key, own in sorted(values.items())]
    assert per_moment(block.columns("core"), *filter(None, [which])).rows() == expected


# -- derived from kernel activity ------------------------------------------------------------------------------------------


def kernel(start_ms: float, duration_ms: float, device: int = 0, node: int = 0) -> dict[str, Any]:
    start, duration = T + round(start_ms * MS), round(duration_ms * MS)
    return {"node": node, "kind": "kernel", "device": device, "start_ns": start, "duration_ns": duration}


def test_a_derived_bucket_meets_the_samples_in_it(make_store: Make) -> None:
    # Buckets of 500 ms begin with the first kernel, at 100 ms: 100 .. 600, 600 .. 1100, 1100 .. 1600 ms.
    events = [kernel(100, 100), kernel(700, 300), kernel(1100, 500)]
    cores = line(CORE, [10.0, 20.0, 30.0, 40.0, 50.0])  # at 0, 500, 1000, 1500 and 2000 ms
    samples = Samples(make_store(device_event=events, sample=cores))
    (block,) = samples.blocks()
    assert samples.bucket_ns == 500 * MS
    assert block.series("gpu").select("time_ns", "value", "source").rows() == [
        (T + 100 * MS, 20.0, "derived"), (T + 600 * MS, 60.0, "derived"), (T + 1100 * MS, 100.0, "derived"),
    ]  # fmt: skip
    assert block.snapshots().rows() == [
        (0, T + 500 * MS, 20.0, 20.0, None), (0, T + 1000 * MS, 60.0, 30.0, None), (0, T + 1500 * MS, 100.0, 40.0, None),
    ]  # fmt: skip


def test_a_snapshot_at_the_end_of_a_bucket_belongs_to_the_next(make_store: Make) -> None:
    events = [kernel(0, 500), kernel(500, 100), kernel(900, 100)]
    actual = one_block(make_store(device_event=events, sample=line(CORE, [1.0, 2.0, 3.0]))).snapshots()
    assert actual.rows() == [(0, T, 100.0, 1.0, None), (0, T + 500 * MS, 40.0, 2.0, None)]


def test_buckets_without_a_sample_stay(make_store: Make) -> None:
    events = [kernel(0, 100), kernel(500, 500), kernel(1000, 250), kernel(1499, 1)]
    cores = [row for row in line(CORE, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) if row["time_ns"] != T + 500 * MS]
    assert one_block(make_store(device_event=events, sample=cores)).snapshots().rows() == [
        (0, T, 20.0, 1.0, None), (0, T + 500 * MS, 100.0, None, None), (0, T + 1000 * MS, 50.2, 3.0, None),
    ]  # fmt: skip
    alone = one_block(make_store(device_event=events)).snapshots()  # nothing sampled: buckets of 1 ms
    assert (len(alone), alone["core_max"].null_count(), alone["gpu_min"].sum()) == (1500, 1500, 851 * 100)


def test_a_device_without_samples_beside_sampled_ones(make_store: Make) -> None:
    events = [kernel(0, 1000, device=0), kernel(0, 100, device=1), kernel(900, 100, device=1)]
    store = make_store(device_event=events, sample=line(GPU, [90.0, 10.0, 70.0]) + line(CORE, [1.0, 2.0, 3.0], start=T + MS))
    block = one_block(store)
    assert block.boxes("gpu").select("unit", "source", "samples").rows() == [(0, "sampled", 3), (1, "derived", 2)]
    assert block.series("gpu").select("series", "position").rows() == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert block.snapshots().rows() == [
        (0, T, 20.0, 1.0, None), (0, T + 500 * MS, 10.0, 2.0, None), (0, T + 1000 * MS, 70.0, 3.0, None),
    ]  # fmt: skip


def test_machines_with_and_without_samples(make_store: Make) -> None:
    store = make_store(device_event=[kernel(0, 600, node=1)], sample=line(GPU, [5.0, 6.0]))
    samples = Samples(store)
    assert [block.nodes for block in samples.blocks()] == [(0, 1)]
    assert one_block(store).snapshots().rows() == [
        (0, T, 5.0, None, None), (0, T + 500 * MS, 6.0, None, None), (1, T, 100.0, None, None), (1, T + 500 * MS, 100.0, None, None),
    ]  # fmt: skip


def test_interval_of_the_machine_with_most_samples(make_store: Make) -> None:
    store = make_store(sample=line(GPU, [1.0], node=0) + line(GPU, [1.0] * 5, node=1, step=200 * MS))
    assert Samples(store).interval_ns == 200 * MS
    assert Samples(make_store(sample=line(GPU, [1.0]))).interval_ns is None
