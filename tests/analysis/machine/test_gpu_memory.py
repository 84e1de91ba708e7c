"""GPU memory over time, compared with its samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from postrun.analysis.machine.gpu_memory import POINTS, gpu_memory
from postrun.ingest.store import Store


def sample(metric: str, time: int, value: float, unit: int | None = 0) -> dict[str, Any]:
    return {"node": 0, "metric": metric, "unit": unit, "time_ns": time, "value": value}


def test_bytes_before_percent(make_store: Callable[..., Store]) -> None:
    store = make_store(
        device=[{"node": 0, "index": 0, "memory_bytes": 500}],
        sample=[
            sample("gpu_memory_used_bytes", 30, 100.0),
            sample("gpu_memory_used_bytes", 10, 200.0), sample("gpu_memory_used_bytes", 20, 300.0),
            sample("gpu_memory_used_bytes", 40, 300.0), sample("gpu_memory_used_bytes", 50, float("nan")),
            sample("gpu_memory_used_percent", 10, 40.0), sample("gpu_memory_used_percent", 10, 70.0, unit=1),
            sample("gpu_memory_used_percent", 20, 60.0, unit=1), sample("gpu_memory_used_percent", 20, 99.0, unit=None),
        ],
    )  # fmt: skip
    first, second = gpu_memory(store)
    assert (first.node, first.device, first.unit, first.samples, first.total) == ("host-0", 0, "B", 4, 500)
    assert (first.first, first.last, first.min, first.max, first.max_at_ns) == (200, 300, 100, 300, 20)
    assert first.time_ns == (10, 20, 30, 40)
    assert first.mean == first.low == first.high == (200, 300, 100, 300)
    assert (second.device, second.unit, second.samples, second.total, second.max, second.last) == (1, "%", 2, 100, 70, 60)


def test_many_samples_are_stretches(make_store: Callable[..., Store]) -> None:
    # 1201 samples at 0, 1, ..., 1200: stretches of 1200 // 400 + 1 = 4, the last one of a single sample.
    samples = [sample("gpu_memory_used_bytes", time, float(time)) for time in range(1201)]
    (result,) = gpu_memory(make_store(sample=samples))
    assert result.time_ns == tuple(range(0, 1201, 4))
    assert len(result.time_ns) <= POINTS
    assert (result.low[0], result.mean[0], result.high[0]) == (0, 1.5, 3)
    assert (result.low[-1], result.high[-1]) == (1200, 1200)
    assert result.total is None


def test_stretches_count_from_the_first_sample(make_store: Callable[..., Store]) -> None:
    # 801 samples at 1001, ..., 1801: stretches of 800 // 400 + 1 = 3.
    (result,) = gpu_memory(make_store(sample=[sample("gpu_memory_used_bytes", 1001 + time, float(time)) for time in range(801)]))
    assert result.time_ns == tuple(range(1001, 1802, 3))
    assert (result.low[1], result.mean[1], result.high[1]) == (3, 4, 5)


def test_as_many_samples_as_points_are_kept_as_they_are(make_store: Callable[..., Store]) -> None:
    times = [*range(POINTS - 1), 10_000]
    (result,) = gpu_memory(make_store(sample=[sample("gpu_memory_used_bytes", time, 1.0) for time in times]))
    assert result.time_ns == tuple(times)


def test_the_largest_total_that_was_sampled_counts_before_the_listed_one(make_store: Callable[..., Store]) -> None:
    store = make_store(
        device=[{"node": 0, "index": 0, "memory_bytes": 900}, {"node": 0, "index": 1, "memory_bytes": 800}],
        sample=[
            sample("gpu_memory_used_bytes", 1, 5.0), sample("gpu_memory_total_bytes", 1, 500.0), sample("gpu_memory_total_bytes", 2, 600.0),
            sample("gpu_memory_used_bytes", 1, 5.0, unit=1),
        ],
    )  # fmt: skip
    assert [found.total for found in gpu_memory(store)] == [600, 800]


def test_nothing(make_store: Callable[..., Store]) -> None:
    assert gpu_memory(make_store(sample=[sample("cpu_utilization", 0, 1.0)])) == ()
