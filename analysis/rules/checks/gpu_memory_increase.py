"""GPUMemoryIncrease: GPU memory grows from one window of samples to the next, or slowly over the whole run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from ...machine.series import MetricSeries
from ...report.detail_rows import Box
from ...report.sample_details import Episode, GPUMemoryIncreaseDetails, GrowingMemory
from ...toolkit.labels import place, ranks
from ...toolkit.ordered import repeated
from ...toolkit.wording import count, distinct, moment, plural, whole_percent
from ..evidence.base import Outcome, Parameter, Parameters, SampleRule, concluded, not_evaluated
from ..evidence.blocks import FOOTPRINT, SampleBlock, samples_of
from ..evidence.frameworks import ALLOCATIONS, NUMBERS_ONLY
from ..evidence.gpus import RECORD_LONGER, no_memory, with_ranks
from ..evidence.run_data import RunData

SLOPE_POINTS: Final = 64  # a longer series is divided into this many groups of successive samples, whose means are the points

SLOPE: Final = (
    "Theil-Sen slope: the median of the slopes between all pairs of points. It shows a rise that lasts; one that happens at once leaves it"
    " near 0."
)
_EPISODES: Final = 20
_HOUR_NS: Final = 3.6e12
_DIGITS: Final = 9
_MOST: Final = 4e18
_FIGURE: Final = {True: "footprint", False: "memory controller"}
_TITLE: Final = {"footprint": "Find the cause of growing GPU memory", "memory controller": "Find the cause of growing memory traffic"}
_SUBJECTS: Final = {"footprint": "GPU memory in use", "memory controller": "The memory-controller utilization, recorded as GPU memory,"}


@dataclass(frozen=True, slots=True)
class _Observed:
    devices: pl.DataFrame
    episodes: pl.DataFrame
    windows: set[int]
    windows_triggered: set[int]


class GPUMemoryIncrease(SampleRule):
    """Mean of the last samples against the mean of as many before them, at every sample of every GPU."""

    name = "GPUMemoryIncrease"
    category = "system"
    parameters = (
        Parameter(
            "increase", "percentage points", 10, 5, "positive", "the mean of a window may exceed the mean of the window before by this much"
        ),
        Parameter("patience", "samples", 100, 1000, "positive", "a GPU is evaluated if it has more samples than this", seconds=True),
        Parameter("window", "samples", 500, 10, "positive", "number of samples that each of the two means is taken over", seconds=True),
    )
    needs = "Samples of GPU memory."
    checks = (
        "Finds growing GPU memory: compares the mean of the last `window` samples with that of the `window` samples before, at every"
        " sample of each GPU."
    )
    condition = (
        "at any sample of a GPU with more than `patience` samples, the mean of the last `window` samples exceeds that of the `window`"
        " samples before by more than `increase` percentage points"
    )
    advice = "Find the tensors, caches or fragments that keep GPU memory allocated."

    figures = ("gpu_memory",)

    def observe(self, block: SampleBlock, parameters: Parameters) -> _Observed:
        window, scan = samples_of(parameters["window"]), parameters["scan_interval_us"]
        series = block.columns("gpu_memory")
        scale = _scale(series)
        # Whole multiples of 1e-9 percentage points: sums of integers are exact, so rounding decides nothing.
        total = pl.col("value")
        total = (total * scale).round().cast(pl.Int64).cum_sum()
        growth = total - 2 * total.shift(window, fill_value=0) + total.shift(2 * window, fill_value=0)
        needed = max(2 * window, math.floor(parameters["patience"]) + 1)
        per_point = scale * window
        is_looked_at = pl.int_range(pl.len()) >= (series.begin + needed - 1).gather(series.number)
        looked_at = (
            pl.DataFrame({"series": series.number, "value": series.value})
            .select(pl.col("series").set_sorted(), growth=growth)
            .with_columns(growth=pl.when(is_looked_at).then("growth"))
        )
        largest = looked_at.group_by("series", maintain_order=True).agg(pl.col("growth").max() / per_point)["growth"]
        increases = series.table.select("node", "unit", largest_increase=largest)
        limit = round(parameters["increase"] * scale) * window
        rows = looked_at.select((pl.col("growth") > limit).arg_true()).to_series().cast(pl.Int64)
        number = series.number.gather(rows)
        growing = series.table.select(pl.col("node", "unit").gather(number)).with_columns(
            position=rows - series.begin.gather(number), time_ns=series.time_ns.gather(rows), growth=looked_at["growth"].gather(rows)
        )
        violations = growing.group_by("node", "unit").agg(violations=pl.len())
        after = pl.col("position").diff().over("node", "unit")
        episodes = (
            growing.with_columns(episode=(after != 1).fill_null(True).cum_sum())
            .group_by("episode", maintain_order=True)
            .agg(
                pl.col("node", "unit").first(),
                start_ns=pl.col("time_ns").first(),
                end_ns=pl.col("time_ns").last(),
                largest=pl.col("growth").max() / per_point,
                samples=pl.len(),
            )
            .drop("episode")
        )
        devices = (
            block.boxes("gpu_memory")
            .join(increases, on=["node", "unit"], how="left", maintain_order="left")
            .join(violations, on=["node", "unit"], how="left", maintain_order="left")
            .join(slopes(series), on=["node", "unit"], how="left", maintain_order="left")
            .with_columns(pl.col("violations").fill_null(0))
        )
        ends = block.ends("gpu_memory", scan).filter(pl.col("count") >= needed)
        triggered = growing.select((pl.col("time_ns") - block.origin_ns) // round(scan * 1000)).to_series()
        return _Observed(devices, episodes, set(ends["window"].unique()), set(triggered.unique()))

    def conclude(self, observed: Sequence[_Observed], run: RunData, parameters: Parameters) -> Outcome:
        if not run.samples.has("gpu_memory") or not observed:
            return not_evaluated(*no_memory(run))
        devices = pl.concat([part.devices for part in observed])
        episodes = pl.concat([part.episodes for part in observed])
        if devices.is_empty():
            return not_evaluated(*no_memory(run))
        details = GPUMemoryIncreaseDetails(tuple(_rows(devices, episodes, run)), SLOPE)
        looked_at = devices.filter(pl.col("largest_increase").is_not_null())
        if looked_at.is_empty():
            return not_evaluated(_too_few(devices, parameters), RECORD_LONGER, details=details)
        growing = looked_at.filter(pl.col("violations") > 0)
        violations = int(growing["violations"].sum())
        windows: set[int] = set().union(*(part.windows for part in observed))
        triggered: set[int] = set().union(*(part.windows_triggered for part in observed))
        worst = looked_at.sort("largest_increase", "node", "unit", descending=[True, False, False]).row(0, named=True)
        return concluded(
            growing.rows(),
            int(looked_at["samples"].sum()),
            episodes.select("start_ns", "end_ns").rows(),
            triggered=violations,
            violations=violations,
            windows=len(windows),
            windows_triggered=len(triggered),
            details=details,
            finding=_finding(looked_at, episodes, worst, run, parameters),
            recommendation=_recommendation(episodes, worst, run) if violations else None,
            title=_TITLE[_FIGURE[worst["source"] == FOOTPRINT]],
        )


def slopes(series: MetricSeries) -> pl.DataFrame:
    """Return the Theil-Sen slope of every series per hour: node, unit, slope.

    The slope is the median of the slopes of all pairs of points. A series of more than 64 samples is first divided into 64 groups of
    successive samples, whose mean times and values are the points."""
    size = pl.col("samples")
    groups = pl.min_horizontal(size, pl.lit(SLOPE_POINTS, pl.Int64))
    # Of 64 groups the next begins where position x 64 / size passes a whole number; fewer samples are a group each.
    end = (pl.col("group") * size + groups - 1) // groups
    points = (
        series.table.select("samples", series=pl.int_range(pl.len(), dtype=pl.UInt32), group=pl.int_ranges(1, groups + 1))
        .explode("group")
        .select("series", rows=end - pl.when(pl.col("group") > 1).then(end.shift()).otherwise(0))
    )
    means = (
        pl.DataFrame(
            {
                "point": repeated(pl.int_range(len(points), dtype=pl.UInt32, eager=True), points["rows"]),
                "time": (series.time_ns - series.time_ns.gather(series.begin).gather(series.number)).cast(pl.Float64),
                "value": series.value,
            }
        )
        .with_columns(pl.col("point").set_sorted())
        .group_by("point", maintain_order=True)
        .agg(pl.col("time", "value").mean())
    )
    points = means.select("time", "value").with_columns(points["series"])
    longest = series.table["samples"].max()
    value, time, same = pl.col("value"), pl.col("time"), pl.col("series")
    pairs = [
        points.select(series="series", slope=pl.when(same == same.shift(lag)).then((value - value.shift(lag)) / (time - time.shift(lag))))
        for lag in range(1, min(longest, SLOPE_POINTS) if isinstance(longest, int) else 1)
    ]
    if not pairs:
        return series.table.select("node", "unit", slope=pl.lit(None, pl.Float64))
    medians = pl.concat(pairs).group_by("series").agg(slope=pl.col("slope").median() * _HOUR_NS)
    sizes = series.table.select("node", "unit", series=pl.int_range(pl.len(), dtype=pl.UInt32))
    return sizes.join(medians, on="series", how="left", maintain_order="left").select("node", "unit", "slope")


def _scale(series: MetricSeries) -> float:
    """Return a power of ten that makes integers of the values and keeps sums exact."""
    greatest = series.value.abs().max()
    sums = max(float(greatest) if isinstance(greatest, float) else 0.0, 1.0) * max(len(series), 1) * 4
    return float(10.0 ** min(_DIGITS, math.floor(math.log10(_MOST / sums))))


def _rows(devices: pl.DataFrame, episodes: pl.DataFrame, run: RunData) -> list[GrowingMemory]:
    by_device: dict[tuple[int, int], list[Episode]] = {}
    for row in episodes.iter_rows(named=True):
        by_device.setdefault((row["node"], row["unit"]), []).append(Episode(row["start_ns"], row["end_ns"], row["largest"], row["samples"]))
    rows = []
    for row in devices.iter_rows(named=True):
        growths = by_device.get((row["node"], row["unit"]), [])
        kept = sorted(growths, key=lambda episode: -episode.largest)[:_EPISODES]
        rows.append(
            GrowingMemory.of(
                row,
                node=run.places.node(row["node"]),
                device=row["unit"],
                memory_figure=_FIGURE[row["source"] == FOOTPRINT],
                evaluated=row["largest_increase"] is not None,
                episodes=tuple(sorted(kept, key=lambda episode: episode.start_ns)),
                episodes_left_out=len(growths) - len(kept),
                slope_percent_per_hour=row["slope"],
                box=Box.of(row),
            )
        )
    return with_ranks(rows, run)


def _too_few(devices: pl.DataFrame, parameters: Parameters) -> str:
    most, double = int(devices["samples"].max() or 0), 2 * samples_of(parameters["window"])  # type: ignore[arg-type]
    if double > parameters["patience"]:
        return f"{count(most)} of {count(double)} samples needed"
    return f"{count(most)} of more than {count(math.floor(parameters['patience']))} samples needed"


def _finding(looked_at: pl.DataFrame, episodes: pl.DataFrame, worst: dict[str, Any], run: RunData, parameters: Parameters) -> str:
    increase, window = parameters["increase"], samples_of(parameters["window"])
    subject = _SUBJECTS[_FIGURE[worst["source"] == FOOTPRINT]]
    label = _label(worst, run)
    largest = worst["largest_increase"]
    if worst["violations"]:
        growing = looked_at.filter(pl.col("violations") > 0).height
        whose = f"{count(growing)} of {plural(looked_at.height, 'GPU')} grew so, in" if looked_at.height > 1 else "it grew so in"
        return (
            f"{subject} grew on {label} by up to {distinct(largest, increase, 1)} percentage points from one window of"
            f" {plural(window, 'sample')} to the next, more than the threshold of {increase:g}; {whose}"
            f" {plural(episodes.height, 'episode')}{_trend(worst)}."
        )
    grew = f"grew by at most {distinct(largest, increase, 1)} percentage points" if largest > 0 else "did not grow"
    text = f"{subject} {grew} from one window of {plural(window, 'sample')} to the next; the threshold is {increase:g}"
    leak = looked_at.filter(pl.col("slope").is_not_null()).sort("slope", descending=True).head(1).rows(named=True)
    if leak and leak[0]["slope"] * (leak[0]["last_ns"] - leak[0]["first_ns"]) / _HOUR_NS >= 1:
        text += f"; on {_label(leak[0], run)} it rises by {leak[0]['slope']:.1f} percentage points per hour (Theil-Sen slope)"
    if worst["source"] != FOOTPRINT:
        text += "; memory in use was not recorded, so growth would not be detected"
    return f"{text}."


def _recommendation(episodes: pl.DataFrame, worst: dict[str, Any], run: RunData) -> str:
    growths = episodes.filter((pl.col("node") == worst["node"]) & (pl.col("unit") == worst["unit"])).sort("largest", descending=True)
    begins = moment(growths["start_ns"][0])
    label = _label(worst, run)
    if worst["source"] != FOOTPRINT:
        return (
            f"Compare what {label} does before and after {begins}: the recorded figure is how busy its memory controller is, so a rise is"
            " more memory traffic and no proof of a leak; sample used memory to tell them apart."
        )
    if growths.height == 1:
        return (
            f"{ALLOCATIONS.of(run.program)} and look at what {label} allocates from {begins} on: its memory rises"
            f" once, to {whole_percent(worst['max'])}, as a larger batch, longer inputs or an evaluation that keeps its outputs make it."
        )
    return (
        f"{NUMBERS_ONLY.of(run.program)}: memory of"
        f" {label} rose {count(growths.height)} times, first at {moment(int(growths['start_ns'].min()))},"  # type: ignore[arg-type]
        f" up to {whole_percent(worst['max'])}."
    )


def _trend(worst: dict[str, Any]) -> str:
    """Explain a slope of less than a percentage point over the run; else empty."""
    if worst["slope"] is None or abs(worst["slope"]) * (worst["last_ns"] - worst["first_ns"]) / _HOUR_NS >= 1:
        return ""
    return "; the slope over the run (Theil-Sen) stays near 0, because a median does not follow a single rise"


def _label(row: dict[str, Any], run: RunData) -> str:
    node = run.places.node(row["node"])
    return place(node, ranks(run.breakdown).get((node, row["unit"])), row["unit"])
