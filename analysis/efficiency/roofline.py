"""Device time of operators against the least time that the peaks of their devices allow.

The least time of a call is the longer one of its floating-point operations at the peak of its type, and its bytes at the memory bandwidth.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ..report.efficiency import DevicePeaks

# A kernel needs some microseconds to start on all multiprocessors and to drain; shorter ones that stay below half of the roof are
# limited by that, not by a peak.
LATENCY_NS: Final = 10_000
LATENCY_PERCENT: Final = 50.0
# Below this share of the roof, and so of both peaks, no peak limits the work: latency, overhead or little parallelism do.
NEITHER_PERCENT: Final = 20.0

LIMITS: Final = {"process": pl.Int32, "compute_type": pl.String, "flop_per_s": pl.Float64}
BANDWIDTHS: Final = {"process": pl.Int32, "bytes_per_s": pl.Float64}


def limits(peaks: dict[int | None, DevicePeaks]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the peaks by process and type, and the bandwidths by process."""
    rates = [(process, kind, rate) for process, known in peaks.items() for kind, rate in known.flop_per_s.items()]
    bandwidths = [(process, known.bytes_per_s) for process, known in peaks.items() if known.bytes_per_s]
    return pl.DataFrame(rates, schema=LIMITS, orient="row"), pl.DataFrame(bandwidths, schema=BANDWIDTHS, orient="row")


def with_least_times(rows: pl.DataFrame, peaks: dict[int | None, DevicePeaks]) -> pl.DataFrame:
    """Add the least time of all calls (ns, f64): ``compute_ns`` and ``memory_ns``.

    ``rows``: process, roof_type, model_flop, flop, bytes, calls. Null if the work or the peak is not known."""
    rates, bandwidths = limits(peaks)
    calls = pl.col("calls").cast(pl.Float64)
    flop = pl.coalesce("model_flop", "flop").cast(pl.Float64)
    joined = rows.join(rates.rename({"compute_type": "roof_type"}), on=["process", "roof_type"], how="left", nulls_equal=True)
    joined = joined.join(bandwidths, on="process", how="left", nulls_equal=True)
    return joined.with_columns(
        compute_ns=1e9 * flop * calls / pl.col("flop_per_s"),
        memory_ns=1e9 * pl.col("bytes").cast(pl.Float64) * calls / pl.col("bytes_per_s"),
    ).drop("flop_per_s", "bytes_per_s")


def with_bounds(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``roof_ns`` (least time), percent of it, ``roof``, ``bound``, ``lost_ns``.

    ``rows``: matrix, launches, device_ns, compute_ns, memory_ns. The roof of a matrix operator needs both times, that of another operator
    its bytes. Memory-bound work above the roof is served by a cache. Work beyond the peak of its type was computed with fewer operations
    than the formula counts, such as a Winograd convolution: its figures are unknown."""
    device = pl.col("device_ns").cast(pl.Float64)
    percent = 100 * pl.col("roof_ns") / device
    compute = pl.col("matrix") & (pl.col("compute_ns") >= pl.col("memory_ns"))
    beyond = pl.col("compute_ns").fill_null(0.0) > device
    roof = pl.when("matrix").then(pl.max_horizontal("compute_ns", "memory_ns", pl.lit(0.0))).otherwise("memory_ns")
    known = pl.col("memory_ns").is_not_null() & (~pl.col("matrix") | pl.col("compute_ns").is_not_null())
    rows = rows.with_columns(
        roof_ns=pl.when(known, pl.col("device_ns") > 0, ~beyond).then(roof), beyond=beyond & (pl.col("device_ns") > 0)
    ).with_columns(percent_of_roof=percent)
    short = (device / pl.col("launches") < LATENCY_NS) & (pl.col("percent_of_roof") < LATENCY_PERCENT)
    nearer = pl.when(pl.col("percent_of_roof").is_not_null()).then(pl.when(compute).then(pl.lit("compute")).otherwise(pl.lit("memory")))
    bound = (
        pl.when(pl.col("percent_of_roof").is_null())
        .then(pl.lit("unknown"))
        .when(pl.col("percent_of_roof") > 100)
        .then(pl.lit("cache"))
        .when(short)
        .then(pl.lit("latency"))
        .when(pl.col("percent_of_roof") < NEITHER_PERCENT)
        .then(pl.lit("neither"))
        .otherwise(nearer)
    )
    lost = pl.when(pl.col("percent_of_roof") <= 100).then((device - pl.col("roof_ns")).round().cast(pl.Int64))
    return rows.with_columns(roof=nearer, bound=bound, lost_ns=lost)
