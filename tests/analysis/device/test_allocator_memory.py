"""Memory of the framework's allocator, computed on paper and recounted in real traces."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.device.allocator_memory import LEAST, POINTS, allocator_memory
from postrun.ingest import ingest
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]


def held(time: int, allocated: int | None, reserved: int | None = 1000, **columns: Any) -> dict[str, Any]:
    return {"node": 0, "process": 0, "device": 0, "start_ns": time, "allocated": allocated, "reserved": reserved, **columns}


def test_peak_and_growth(make_store: MakeStore) -> None:
    # The peak of 900 comes from 500, a growth of 400; from 100 (last at 40) to 800 (first at 60) it grows by 700.
    amounts = [(10, 500), (20, 900), (30, 100), (40, 100), (50, 300), (60, 800), (70, 800), (80, 200)]
    store = make_store(
        device=[{"node": 0, "index": 0, "memory_bytes": 4000}],
        allocation=[held(time, amount, 1000 + time) for time, amount in reversed(amounts)] + [held(90, None)],
    )
    (result,) = allocator_memory(store)
    assert (result.node, result.rank, result.pid, result.device, result.events, result.total) == ("host-0", 0, 100, 0, 8, 4000)
    assert (result.first, result.last, result.peak, result.peak_at_ns) == (500, 200, 900, 20)
    assert (result.reserved_at_peak, result.reserved_peak) == (1020, 1080)
    assert (result.growth, result.growth_from_ns, result.growth_to_ns) == (700, 40, 60)
    assert (result.time_ns, result.high) == tuple(zip(*amounts, strict=True))
    assert result.low == result.high
    assert result.reserved == tuple(1000 + time for time, _ in amounts)


def test_each_process_and_gpu_is_a_row(make_store: MakeStore) -> None:
    store = make_store(
        processes=[{"id": 0, "node": 0, "pid": 7, "rank": 1}, {"id": 1, "node": 0, "pid": 8, "rank": 0}],
        allocation=[held(1, 5), held(1, 6, device=1), held(1, 7, None, process=1), held(2, 9, None, process=1)],
    )
    result = allocator_memory(store)
    assert [(one.rank, one.device, one.peak, one.total) for one in result] == [(0, 0, 9, None), (1, 0, 5, None), (1, 1, 6, None)]
    assert (result[0].reserved_peak, result[0].reserved_at_peak, result[0].reserved) == (None, None, (None, None))
    assert (result[1].growth, result[1].growth_from_ns, result[1].growth_to_ns) == (0, 1, 1)


def test_many_events_are_stretches(make_store: MakeStore) -> None:
    # 801 events at 0, 1, ..., 800 of 10 x time: stretches of 800 // 400 + 1 = 3. The memory at the start of a stretch counts for it.
    (result,) = allocator_memory(make_store(allocation=[held(time, 10 * time, time) for time in range(801)]))
    assert result.time_ns == tuple(range(0, 801, 3))
    assert len(result.time_ns) <= POINTS
    assert (result.low[:2], result.high[:2], result.reserved[:2]) == ((0, 20), (20, 50), (2, 5))
    assert (result.low[-1], result.high[-1], result.growth) == (7970, 8000, 8000)


def test_stretches_count_from_the_first_event(make_store: MakeStore) -> None:
    (result,) = allocator_memory(make_store(allocation=[held(1001 + time, time) for time in range(801)]))
    assert result.time_ns == tuple(range(1001, 1802, 3))


def test_as_many_events_as_points_are_kept_as_they_are(make_store: MakeStore) -> None:
    times = [*range(POINTS - 1), 10_000]
    (result,) = allocator_memory(make_store(allocation=[held(time, time) for time in times]))
    assert result.time_ns == tuple(times)
    assert result.low == result.high == tuple(times)


def test_many_allocators_have_fewer_points(make_store: MakeStore) -> None:
    rows = [held(time, time, device=device) for device in range(700) for time in range(30)]
    result = allocator_memory(make_store(allocation=rows))
    assert len(result) == 700
    assert {len(one.time_ns) for one in result} == {15}  # stretches of 29 // 20 + 1 = 2
    assert LEAST == 20


def test_nothing(make_store: MakeStore) -> None:
    assert allocator_memory(make_store(allocation=[held(1, None)])) == ()


TRACES = (
    "h100/Falconsai_nsfw_image_detection__1016002.json.gz",
    "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "mi300/gaunernst_bert-small-uncased__1016001.json.gz",
)


@pytest.mark.parametrize("name", TRACES)
def test_real_traces_recomputed(shared_data: Path, name: str) -> None:
    path = shared_data / "kineto" / name
    if not path.is_file():
        pytest.skip("the trace is not here")
    trace = json.loads(gzip.decompress(path.read_bytes()), strict=False, parse_float=str)
    base = int(trace.get("baseTimeNanoseconds", 0))
    events = [event for event in trace["traceEvents"] if event.get("name") == "[memory]"]
    on_device = [event for event in events if event["args"]["Device Type"] != 0]
    assert {event["args"]["Device Id"] for event in on_device} == {0}
    series = sorted(
        ((nanoseconds(event["ts"]) + base, event["args"]["Total Allocated"], event["args"]["Total Reserved"]) for event in on_device),
        key=lambda one: one[0],
    )
    lowest, growth, low = [], 0, series[0][1]
    for _, allocated, _ in series:
        low = min(low, allocated)
        lowest.append(low)
        growth = max(growth, allocated - low)
    with ingest([path]) as store:
        (result,) = allocator_memory(store)
        notes = dict(store.frame("SELECT code, count FROM ingest_note").rows())
    assert (result.events, result.first, result.last) == (len(series), series[0][1], series[-1][1])
    assert (result.peak, result.reserved_peak, result.growth) == (max(one[1] for one in series), max(one[2] for one in series), growth)
    assert result.peak_at_ns == next(time for time, allocated, _ in series if allocated == result.peak)
    to = next(time for (time, allocated, _), low in zip(series, lowest, strict=True) if allocated - low == growth)
    assert result.growth_to_ns == to
    assert (min(result.low), max(result.high)) == (min(one[1] for one in series), result.peak)
    assert len(result.time_ns) <= POINTS
    assert notes.get("host_allocations", 0) == len(events) - len(on_device)


def nanoseconds(microseconds: str | int) -> int:
    total, _, rest = str(microseconds).partition(".")
    return int(total) * 1000 + int(f"{rest}000"[:3])
