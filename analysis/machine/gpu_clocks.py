"""Power, clock and throttling of each GPU.

A sample of throttle reasons is a sum of bits (docs/capture-metrics.md). It applies until the next sample of the same GPU, but not longer
than three sampling intervals.
"""

from __future__ import annotations

from typing import Any, Final

from ...ingest.store.store import Store
from ..report.machine import GpuClocks
from ..toolkit.places import Places, in_order
from ..toolkit.wording import count, duration, percent, plural

HEAT: Final = 32 | 64
POWER: Final = 4 | 128
HARDWARE: Final = 8  # a slowdown by the hardware, for heat or power; more precise drivers also set one of those bits

_VALUES: Final = """
    SELECT node, unit, metric, quantile_cont(value, 0.5), min(value), max(value) FROM sample
    WHERE metric IN ('gpu_power', 'gpu_sm_clock') AND unit IS NOT NULL AND isfinite(value) GROUP BY ALL
"""
_TIMES: Final = f"""
    WITH reasons AS (
        SELECT node, unit, CAST(value AS BIGINT) AS bits,
            lead(time_ns) OVER (PARTITION BY node, unit ORDER BY time_ns) - time_ns AS gap
        FROM sample WHERE metric = 'gpu_throttle_reasons' AND unit IS NOT NULL AND value BETWEEN 0 AND 9007199254740992
    ),
    typical AS (SELECT node, unit, median(gap) AS interval FROM reasons GROUP BY ALL),
    spans AS (
        SELECT node, unit, bits, CAST(least(coalesce(gap, interval), 3 * interval) AS BIGINT) AS span
        FROM reasons JOIN typical USING (node, unit)
    )
    SELECT node, unit, sum(span) AS sampled, coalesce(sum(span) FILTER (bits & {HEAT} <> 0), 0),
        coalesce(sum(span) FILTER (bits & {POWER} <> 0), 0),
        coalesce(sum(span) FILTER (bits & {HARDWARE} <> 0 AND bits & {HEAT | POWER} = 0), 0)
    FROM spans GROUP BY ALL HAVING sampled > 0
"""


def gpu_clocks(store: Store) -> tuple[GpuClocks, ...]:
    """Return a row per GPU with samples of power, clock or throttle reasons."""
    if not store.has_rows("sample"):
        return ()
    places = Places(store)
    values: dict[tuple[int, int], dict[str, Any]] = {}
    for node, unit, metric, middle, least, most in store.frame(_VALUES).rows():
        row = values.setdefault((node, unit), {})
        if metric == "gpu_power":
            row |= {"power_p50_w": middle, "power_max_w": most}
        else:
            row |= {"sm_clock_p50_mhz": middle, "sm_clock_min_mhz": least, "sm_clock_max_mhz": most}
    for node, unit, sampled, heat, power, hardware in store.frame(_TIMES).rows():
        values.setdefault((node, unit), {}).update(
            sampled_ns=int(sampled), heat_ns=int(heat), power_ns=int(power), hardware_ns=int(hardware)
        )
    empty = dict.fromkeys(
        ("power_p50_w", "power_max_w", "sm_clock_p50_mhz", "sm_clock_min_mhz", "sm_clock_max_mhz", "sampled_ns", "heat_ns", "power_ns",
         "hardware_ns")
    )  # fmt: skip
    rows = [GpuClocks(node=places.node(node), device=unit, **(empty | row)) for (node, unit), row in values.items()]
    return tuple(sorted(rows, key=lambda row: (in_order(row.node), row.device)))


def throttling(gpus: tuple[GpuClocks, ...]) -> tuple[tuple[str, str], ...]:
    """Word the throttling per node: the GPUs, its cause and its time."""
    sentences = []
    for node in dict.fromkeys(row.node for row in gpus):
        every = [row for row in gpus if row.node == node and row.sampled_ns]
        for why, field in (("for heat", "heat_ns"), ("for power", "power_ns"), ("by the hardware, for heat or power", "hardware_ns")):
            held = [row for row in every if getattr(row, field)]
            if not held:
                continue
            worst = max(held, key=lambda row: getattr(row, field))
            time = getattr(worst, field)
            share = f"{duration(time)}, {percent(100 * time / (worst.sampled_ns or time))} of the time sampled"
            if len(every) == 1:
                sentences.append((node, f"The clock of GPU {worst.device} was held down {why} for {share}."))
            elif len(held) == 1:
                sentences.append((node, f"The clock of GPU {worst.device} of {plural(len(every), 'GPU')} was held down {why} for {share}."))
            else:
                which = f"{count(len(held))} of {plural(len(every), 'GPU')}"
                sentences.append((node, f"The clocks of {which} were held down {why}, of GPU {worst.device} longest: {share}."))
    return tuple(sentences)
