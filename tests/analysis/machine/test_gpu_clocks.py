"""Power, clock and throttling of GPUs, computed on paper."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis.machine.gpu_clocks import gpu_clocks, throttling
from postrun.analysis.machine.system_usage import system_usage
from postrun.analysis.report import GpuClocks
from postrun.ingest.store import Store

SECOND = 1_000_000_000
Rows = list[dict[str, Any]]
MakeStore = Callable[..., Store]


def samples(metric: str, values: dict[float, float], unit: int | None = 0, node: int = 0) -> Rows:
    """By second."""
    return [{"node": node, "metric": metric, "unit": unit, "time_ns": round(at * SECOND), "value": value} for at, value in values.items()]


def times(store: Store) -> dict[int, tuple[float | None, ...]]:
    def seconds(ns: int | None) -> float | None:
        return None if ns is None else ns / SECOND

    return {row.device: tuple(map(seconds, (row.sampled_ns, row.heat_ns, row.power_ns, row.hardware_ns))) for row in gpu_clocks(store)}


def test_each_reason_counts_until_the_next_sample(make_store: MakeStore) -> None:
    # 0 s idle, 1 s power cap, 2 s driver's heat and power cap, 3 s hardware's heat, 4 s hardware alone, 5 s brake, 6 s nothing known.
    reasons = dict(enumerate([1, 4, 32 | 4, 64 | 8, 8, 128 | 8, 2 | 16 | 256 | 512]))
    assert times(make_store(sample=samples("gpu_throttle_reasons", reasons))) == {0: (7, 2, 3, 1)}


def test_a_hole_counts_as_three_intervals(make_store: MakeStore) -> None:
    store = make_store(sample=samples("gpu_throttle_reasons", {0: 0, 1: 0, 2: 64, 100: 0, 101: 0}))
    assert times(store) == {0: (1 + 1 + 3 + 1 + 1, 3, 0, 0)}


def test_one_sample_lasts_no_time_and_damaged_ones_count_nothing(make_store: MakeStore) -> None:
    rows = samples("gpu_throttle_reasons", {0: 64}, 0) + samples("gpu_throttle_reasons", {0: math.nan, 1: -5, 2: 1e300, 3: math.inf}, 1)
    rows += samples("gpu_power", {0: math.nan, 1: 250.0}, 1) + samples("gpu_sm_clock", {0: 1000}, None)
    [row] = gpu_clocks(make_store(sample=rows))
    assert (row.device, row.power_max_w, row.sampled_ns, row.sm_clock_p50_mhz) == (1, 250, None, None)


def test_power_and_clock(make_store: MakeStore) -> None:
    rows = samples("gpu_power", {0: 100, 1: 300, 2: 110, 3: 120}, 1) + samples("gpu_sm_clock", {0: 1980, 1: 210, 2: 1400}, 1)
    assert gpu_clocks(make_store(sample=rows + samples("gpu_power", {0: 71.5}, 0))) == (
        GpuClocks("host-0", 0, 71.5, 71.5, None, None, None, None, None, None, None),
        GpuClocks("host-0", 1, 115, 300, 1400, 210, 1980, None, None, None, None),
    )


def test_against_a_plain_loop(make_store: MakeStore) -> None:
    choice = random.Random(7)
    rows: Rows = []
    expected = {}
    for unit in range(5):
        at, moments = 0.0, {}
        for _ in range(200):
            at += choice.choice([0.5, 0.5, 0.5, 0.75, 4])
            moments[at] = choice.choice([0, 1, 4, 8, 32, 64 | 8, 128, 36])
        gaps = [b - a for a, b in zip(list(moments), list(moments)[1:], strict=False)]
        middle = sorted(gaps)[len(gaps) // 2]  # 199 of them
        total = [0.0, 0.0, 0.0, 0.0]
        for gap, bits in zip([*gaps, middle], moments.values(), strict=True):
            span = min(gap, 3 * middle)
            heat, power = bits & 0x60 > 0, bits & 0x84 > 0
            for index, counts in enumerate([True, heat, power, bits & 8 > 0 and not heat and not power]):
                total[index] += span * counts
        expected[unit] = tuple(total)
        rows += samples("gpu_throttle_reasons", moments, unit)
    choice.shuffle(rows)
    assert times(make_store(sample=rows)) == expected


def clocks(device: int, heat: int = 0, power: int = 0, hardware: int = 0, node: str = "a") -> GpuClocks:
    return GpuClocks(node, device, None, None, None, None, None, 100 * SECOND, heat * SECOND, power * SECOND, hardware * SECOND)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([clocks(0), clocks(1)], []),
        ([clocks(0, heat=7)], ["The clock of GPU 0 was held down for heat for 7.00 s, 7.0% of the time sampled."]),
        ([clocks(0), clocks(3, power=7)], ["The clock of GPU 3 of 2 GPUs was held down for power for 7.00 s, 7.0% of the time sampled."]),
        (
            [clocks(0, heat=1), clocks(1, heat=9, hardware=2), clocks(2)],
            [
                "The clocks of 2 of 3 GPUs were held down for heat, of GPU 1 longest: 9.00 s, 9.0% of the time sampled.",
                "The clock of GPU 1 of 3 GPUs was held down by the hardware, for heat or power for 2.00 s, 2.0% of the time sampled.",
            ],
        ),
    ],
)
def test_sentences(gpus: list[GpuClocks], expected: list[str]) -> None:
    assert [sentence.replace("\u00a0", " ") for _, sentence in throttling(tuple(gpus))] == expected


def test_they_are_part_of_system_usage(make_store: MakeStore) -> None:
    usage = system_usage(make_store(sample=samples("gpu_throttle_reasons", {0: 64, 1: 0, 2: 0, 3: 0}) + samples("gpu_power", {0: 99})))
    assert usage.gpu_clocks[0].heat_ns == SECOND
    assert len(usage.throttling) == 1
    assert usage.statements == ()
