"""Snapshots, quantiles, series and derived utilization, computed on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from empty_stores import empty_store
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.machine.snapshots import sampling_interval, with_snapshots
from postrun.analysis.machine.system_usage import system_usage
from postrun.analysis.machine.utilization import bucket_ns, derived_utilization
from postrun.analysis.report import ActiveTime, MetricUsage, SystemUsage
from postrun.ingest.store import Store

MS = 1_000_000
Rows = list[dict[str, Any]]


def sample(metric: str, time_ms: float, value: float, unit: int | None = 0, node: int = 0) -> dict[str, Any]:
    return {"node": node, "metric": metric, "unit": unit, "time_ns": round(time_ms * MS), "value": value}


def frame(rows: list[tuple[str, int, float]]) -> pl.DataFrame:
    """Samples of (metric, unit, milliseconds)."""
    return pl.DataFrame(
        [(metric, unit, round(ms * MS)) for metric, unit, ms in rows],
        schema={"metric": pl.String, "unit": pl.Int32, "time_ns": pl.Int64},
        orient="row",
    )


def snapshots_ms(samples: pl.DataFrame) -> list[float]:
    return [ns / MS for ns in with_snapshots(samples)["snapshot_ns"]]


def test_interval_is_the_median_within_a_series() -> None:
    assert sampling_interval(frame([("a", 0, 0), ("a", 1, 3), ("a", 0, 500), ("a", 1, 503), ("a", 0, 1700)])) == 500 * MS
    assert sampling_interval(frame([("a", 0, 0), ("a", 1, 3)])) is None
    assert sampling_interval(frame([("a", 0, 5), ("a", 0, 5)])) is None


def test_a_snapshot_reaches_20_ms_from_its_first_sample() -> None:
    samples = frame([("a", 0, 0), ("b", 0, 12), ("c", 0, 20), ("d", 0, 20.001), ("a", 0, 500), ("b", 0, 512)])
    assert snapshots_ms(samples) == [0, 0, 0, 20.001, 500, 500]


def test_a_snapshot_is_shorter_than_half_the_interval() -> None:
    # every 10 ms: the samples 4 ms apart belong together, those 5 ms apart do not
    samples = frame([("a", 0, 0), ("b", 0, 4), ("a", 0, 10), ("b", 0, 15), ("a", 0, 20), ("b", 0, 24)])
    assert snapshots_ms(samples) == [0, 0, 10, 15, 20, 20]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=80))
def test_snapshots_equal_a_walk_from_first_to_first(milliseconds: list[int]) -> None:
    samples = frame([("a", index, ms) for index, ms in enumerate(milliseconds)])  # one sample a series: no interval, 20 ms count
    expected = []
    begin: int | None = None
    for ms in sorted(milliseconds):
        if begin is None or ms - begin > 20:
            begin = ms
        expected.append(begin)
    assert snapshots_ms(samples) == expected


@pytest.fixture
def two_snapshots() -> Rows:
    """Two snapshots, 500 ms apart, of two GPUs, two cores and the rest."""
    return [
        sample("gpu_utilization", 0, 10, 0), sample("gpu_utilization", 1, 30, 1),
        sample("gpu_utilization", 500, 0, 0), sample("gpu_utilization", 501, 60, 1),
        sample("cpu_utilization", 2, 80, 0), sample("cpu_utilization", 2, 100, 1),
        sample("cpu_utilization", 502, 0, 0), sample("cpu_utilization", 502, 20, 1),
        sample("gpu_memory_controller", 0, 7, 0), sample("gpu_memory_controller", 500, 9, 0),
        sample("network_receive", 3, 1000, None), sample("network_transmit", 3, 500, None),
        sample("network_receive", 503, 100, None), sample("network_transmit", 504, 0, None),
        sample("network_receive_platform", 3, 1e9, None),
    ]  # fmt: skip


def test_quantiles_over_snapshots(make_store: Callable[..., Store], two_snapshots: Rows) -> None:
    usage = system_usage(make_store(sample=two_snapshots))
    rows = {row.metric: row for row in usage.nodes}
    assert rows["gpu"] == MetricUsage("host-0", "gpu", "%", 2, 30.0, pytest.approx(29.9), pytest.approx(29.5), 25.0, 20.0, False)
    assert rows["cpu"] == MetricUsage("host-0", "cpu", "% of a core", 2, 90.0, pytest.approx(89.2), pytest.approx(86.0), 50.0, 10.0, False)
    assert (rows["network"].max, rows["network"].min, rows["network"].unit) == (1500.0, 100.0, "B/s")
    assert (rows["gpu_memory"].max, rows["gpu_memory"].unit) == (9.0, "% of time the memory controller was busy")
    assert usage.gpu_active == ActiveTime(4, 3, 75.0, derived=False)
    assert usage.cpu_active == ActiveTime(4, 3, 75.0, derived=False)
    [(_, sentence)] = usage.statements
    assert sentence == ("GPUs under-used, likely waiting for the CPU: the 95th percentile of the GPUs is 30%, of the CPU 86%.")
    assert usage.absent is None


def test_series_and_heat_of_few_snapshots_are_the_snapshots(make_store: Callable[..., Store], two_snapshots: Rows) -> None:
    usage = system_usage(make_store(sample=two_snapshots))
    series = {row.metric: row for row in usage.series}
    assert series["gpu"].time_ns == (0, 500 * MS)
    assert (series["gpu"].mean, series["gpu"].low, series["gpu"].high) == ((20.0, 30.0), (10.0, 0.0), (30.0, 60.0))
    heat = {row.metric: row for row in usage.heat}
    assert (heat["gpu"].units, heat["gpu"].values) == ((0, 1), ((10.0, 0.0), (30.0, 60.0)))
    assert (heat["cpu"].units, heat["cpu"].values) == ((0, 1), ((80.0, 0.0), (100.0, 20.0)))


def test_footprint_goes_before_controller(make_store: Callable[..., Store], two_snapshots: Rows) -> None:
    usage = system_usage(make_store(sample=[*two_snapshots, sample("gpu_memory_used_percent", 0, 42)]))
    [memory] = [row for row in usage.nodes if row.metric == "gpu_memory"]
    assert (memory.max, memory.unit) == (42.0, "% of device memory")


def test_long_runs_are_put_in_equal_buckets(make_store: Callable[..., Store]) -> None:
    rows = [sample("cpu_utilization", 500 * k, float(k % 2), 0) for k in range(1000)]
    rows += [sample("cpu_utilization", 500 * k, 50.0, 1) for k in range(1000) if not 400 <= k < 600]
    usage = system_usage(make_store(sample=rows))
    [series] = usage.series
    assert len(series.time_ns) == len(series.mean) == 400
    assert (series.time_ns[0], min(series.low), max(series.high)) == (0, 0.0, 50.0)
    [heat] = usage.heat
    assert len(heat.time_ns) == len(heat.values[0]) == 200
    assert heat.values[0][7] == pytest.approx(0.6)  # samples 35 to 39: 1 0 1 0 1
    assert heat.values[1][79] == 50.0
    assert heat.values[1][80:120] == (None,) * 40  # the second core was not sampled then


def statement(make_store: Callable[..., Store], gpu: float | None, cpu: float | None) -> str | None:
    rows = [sample("gpu_utilization", 0, gpu)] if gpu is not None else []
    rows += [sample("cpu_utilization", 0, cpu)] if cpu is not None else [sample("memory_used_percent", 0, 3, None)]
    statements = system_usage(make_store(sample=rows)).statements
    return statements[0][1] if statements else None


@pytest.mark.parametrize(
    ("gpu", "cpu", "begins"),
    [
        (69, 69, "Under-utilized: the 95th percentile of the GPUs is 69%, of the CPU 69%; a smaller instance"),
        (69, 71, "GPUs under-used, likely waiting for the CPU"),
        (71, 5, "Well used: the median of the GPUs is 71%"),
        (70, 70, "The median of the GPUs is 70%, of the CPU 70%."),
        (69, 70, "The median of the GPUs is 69%, of the CPU 70%."),
        (60, None, "The median of the GPUs is 60%; no CPU samples."),
        (None, 71, "Well used: the 95th percentile of the CPU is 71%"),
        (None, 20, "No GPU was sampled; the median of the CPU is 20%"),
    ],
)
def test_sentences(make_store: Callable[..., Store], gpu: float | None, cpu: float | None, begins: str) -> None:
    sentence = statement(make_store, gpu, cpu)
    assert sentence is not None
    assert sentence.startswith(begins)


def test_machines_are_kept_apart_and_sorted(make_store: Callable[..., Store]) -> None:
    store = make_store(
        nodes=[{"id": 0, "hostname": "b"}, {"id": 1, "hostname": "a"}],
        sample=[sample("cpu_utilization", 0, 10, 0, node=0), sample("cpu_utilization", 0, 90, 0, node=1)],
    )
    assert [(row.node, row.max) for row in system_usage(store).nodes] == [("a", 90.0), ("b", 10.0)]


def test_without_anything_it_says_what_would_help(make_store: Callable[..., Store]) -> None:
    usage = system_usage(make_store())
    assert usage == SystemUsage((), (), None, None, (), (), usage.absent)
    assert usage.absent is not None
    assert "folder system/" in usage.absent


# -- derived from kernel activity ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("span", "interval", "expected"),
    [
        (10**9, 500 * MS, 500 * MS),  # as sampled
        (10**9, None, MS),  # 0.5 ms, at least 1
        (4 * 10**9, None, 2 * MS),
        (4 * 10**9 + 1, None, 5 * MS),
        (11 * 10**9, None, 10 * MS),
        (10**18, 500 * MS, 5 * 10**14),  # too many buckets of half a second
        (10**9, 1000, MS),
    ],
)
def test_bucket_length(span: int, interval: int | None, expected: int) -> None:
    assert bucket_ns(span, interval) == expected


def kernel(start_us: int, duration_us: int, device: int = 0, **fields: object) -> dict[str, Any]:
    return {"kind": "kernel", "device": device, "start_ns": start_us * 1000, "duration_ns": duration_us * 1000, **fields}


def test_derived_utilization_on_paper(make_store: Callable[..., Store]) -> None:
    store = make_store(
        device_event=[
            kernel(500, 250),  # buckets of 1 ms begin at 0.5 ms
            kernel(600, 100, stream=9),  # inside the first: counted once
            kernel(1400, 200),  # 0.1 ms in the first bucket, 0.1 ms in the second
            {**kernel(4000, 600), "kind": "memcpy"},  # half of 3.5..4.5 ms, all of the last bucket, which ends at 4.6 ms
            {**kernel(0, 9000), "kind": "sync"},  # waiting does not count as activity
            kernel(7000, 10, device=1),  # its only bucket is cut at both ends
        ]
    )
    assert derived_utilization(store).select("unit", "time_ns", "value").rows() == [
        (0, 500_000, pytest.approx(35.0)),
        (0, 1_500_000, pytest.approx(10.0)),
        (0, 2_500_000, 0.0),
        (0, 3_500_000, pytest.approx(50.0)),
        (0, 4_500_000, pytest.approx(100.0)),
        (1, 6_500_000, pytest.approx(100.0)),  # the buckets of all devices begin together
    ]


def test_derived_utilization_only_where_none_was_sampled(make_store: Callable[..., Store]) -> None:
    store = make_store(device_event=[kernel(0, 10), kernel(0, 10, device=1)], sample=[sample("gpu_utilization", 0, 3)])
    assert derived_utilization(store)["unit"].unique().to_list() == [1]
    usage = system_usage(store)
    assert [row.derived for row in usage.nodes if row.metric == "gpu"] == [False]


def test_derived_utilization_is_labeled(make_store: Callable[..., Store]) -> None:
    usage = system_usage(make_store(device_event=[kernel(0, 1000), kernel(3000, 1000)]))
    [gpu] = usage.nodes
    assert (gpu.metric, gpu.derived, gpu.samples, gpu.p50) == ("gpu", True, 4, 50.0)
    assert usage.gpu_active == ActiveTime(4, 2, 50.0, derived=True)
    assert [row.derived for row in usage.series] == [True]
    assert [row.derived for row in usage.heat] == [True]
    assert usage.statements == (("host-0", "No GPU utilization was sampled; derived from kernel activity its median is 50%."),)


def test_derived_utilization_of_epoch_times_is_exact(make_store: Callable[..., Store]) -> None:
    first = 1_700_000_040_123_456_789
    store = make_store(device_event=[{"kind": "kernel", "start_ns": first, "duration_ns": 3}])
    assert derived_utilization(store).select("time_ns", "value").rows() == [(first, 100.0)]


@given(st.lists(st.tuples(st.integers(0, 9_000_000), st.integers(0, 4_000_000)), min_size=1, max_size=20))
def test_derived_utilization_adds_up_to_the_busy_time(intervals: list[tuple[int, int]]) -> None:
    with empty_store() as store:
        events = pl.DataFrame(intervals, schema={"start_ns": pl.Int64, "duration_ns": pl.Int64}, orient="row")
        store.append("device_event", events.with_columns(node=pl.lit(0, pl.Int32), device=pl.lit(0, pl.Int32), kind=pl.lit("kernel")))
        result = derived_utilization(store)
    first, last = min(start for start, _ in intervals), max(start + length for start, length in intervals)
    edges = [*result["time_ns"], last]
    busy = sum(value / 100 * (after - at) for at, after, value in zip(edges, edges[1:], result["value"], strict=False))
    covered: list[tuple[int, int]] = []
    for start, length in sorted(intervals):
        if covered and start <= covered[-1][1]:
            covered[-1] = (covered[-1][0], max(covered[-1][1], start + length))
        else:
            covered.append((start, start + length))
    assert busy == pytest.approx(sum(end - start for start, end in covered), abs=1e-3)
    assert result.height == 0 if first == last else result["value"].max() <= 100 + 1e-9  # type: ignore[operator]
