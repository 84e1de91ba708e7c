"""LowGPUUtilization: GPUs with low or unsteady utilization, during the whole run or at its start or end only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from ...device.time_breakdown import WORTH_NAMING_PERCENT, only_copied
from ...machine.series import MetricSeries
from ...report.detail_rows import Box
from ...report.sample_details import LowGpu, LowGPUUtilizationDetails
from ...toolkit.wording import count, duration, percent, plural, threshold_text, whole_percent
from ..evidence import gpus
from ..evidence.base import Cost, Outcome, Parameter, Parameters, SampleRule, concluded, not_evaluated, required
from ..evidence.blocks import SampleBlock, samples_of
from ..evidence.frameworks import EVERY_GPU, FURTHER_AHEAD
from ..evidence.loading import WORTH_ADVICE_PERCENT
from ..evidence.run_data import RunData
from ..evidence.utilization_bins import bin_counts

UNDER: Final = "under-utilized"
FLUCTUATING: Final = "fluctuating"
GOOD: Final = "fine"
UNUSED: Final = "unused"
FEW_SAMPLES: Final = "too few samples"
WHOLE_RUN: Final = "whole run"
IDLE_TAIL: Final = "idle tail"
IDLE_HEAD: Final = "idle head"
IDLE_ENDS: Final = "idle head and tail"
PARTS: Final = "parts of the run"

_IDLE: Final = (IDLE_TAIL, IDLE_HEAD, IDLE_ENDS)
_LEAST_STRETCH: Final = 0.05
_NEAR: Final = 0.05
_SAME: Final = 0.01
_GPU: Final = ["node", "unit"]


class LowGPUUtilization(SampleRule):
    """Every GPU at the end of every evaluation window, over its last ``window`` samples (docs/rules.md).

    ``pattern`` of a GPU with windows that are low: "idle tail" and "idle head" as defined there; "idle head and tail": each window is
    explained by one of the two; "whole run": all windows are low, including those before ``patience`` was reached; otherwise "parts of the
    run"."""

    name = "LowGPUUtilization"
    category = "system"
    parameters = (
        Parameter("threshold_p95", "%", 70, 70, "percentile", "a GPU is under-utilized if its p95 is below this"),
        Parameter("threshold_p5", "%", 10, 10, "percentile", "a GPU that is not under-utilized fluctuates if its p5 is below this"),
        Parameter("patience", "samples", 1000, 1000, "positive", "a GPU is evaluated if it has more samples than this", seconds=True),
        Parameter(
            "window", "samples", 500, 500, "positive", "number of most recent samples that the quantiles are taken over", seconds=True
        ),
    )
    needs = "Samples of GPU utilization, or kernel activity, which can replace them."
    checks = (
        "Finds GPUs whose utilization is low, or is high but drops repeatedly, by its 95th and 5th percentiles at the end of each"
        " evaluation window."
    )
    condition = (
        "at the end of any evaluation window of a GPU with more than `patience` samples, p95 of the last `window` samples is below"
        " `threshold_p95`, or p5 is below `threshold_p5`"
    )
    advice = "Give the GPUs more work per step, feed them without pauses, or use fewer or smaller GPUs."

    figures = ("gpu",)

    def observe(self, block: SampleBlock, parameters: Parameters) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return a row per GPU, and a row per evaluated window."""
        p95, p5 = parameters["threshold_p95"], parameters["threshold_p5"]
        window = samples_of(parameters["window"])
        ends = block.quantiles("gpu", parameters["scan_interval_us"], window, 0)
        # A quantile that is the threshold is not below it: rounding must not decide.
        ends = ends.with_columns(pl.col("p95", "p5").round(9)).with_columns(
            judged=pl.col("count") > parameters["patience"],
            under=pl.col("p95") < p95,
            fluctuating=(pl.col("p95") >= p95) & (pl.col("p5") < p5),
        )
        ends = ends.with_columns(low=pl.col("under") | pl.col("fluctuating")).with_columns(triggered=pl.col("judged") & pl.col("low"))
        judged, triggered = pl.col("judged"), pl.col("triggered")
        per_gpu = ends.group_by(_GPU).agg(
            windows=judged.sum(),
            triggered=triggered.sum(),
            under_utilised=(judged & pl.col("under")).sum(),
            fluctuating=(judged & pl.col("fluctuating")).sum(),
            at_end_p95=pl.col("p95").filter(judged).last(),
            at_end_p5=pl.col("p5").filter(judged).last(),
            lowest_p95=pl.col("p95").filter(judged).min(),
            lowest_p5=pl.col("p5").filter(judged & ~pl.col("under")).min(),
            triggered_first_ns=pl.col("time_ns").filter(triggered).min(),
            triggered_last_ns=pl.col("time_ns").filter(triggered).max(),
            always_low=pl.col("low").all(),
        )
        series = block.columns("gpu")
        counts = series.table.select(*_GPU, counts=bin_counts(series))
        per_gpu = block.boxes("gpu").join(counts, on=_GPU).sort(_GPU).join(per_gpu, on=_GPU, maintain_order="left")
        idle = _idle_ends(block.columns("gpu"), per_gpu, ends.filter("triggered"), window, p95, p5)
        windows = ends.filter("judged").group_by("window").agg(pl.col("triggered").any())
        return per_gpu.join(idle, on=_GPU, how="left", maintain_order="left"), windows

    def conclude(self, observed: Sequence[Any], run: RunData, parameters: Parameters) -> Outcome:
        if not run.samples.has("gpu"):
            return not_evaluated(gpus.NO_GPU, gpus.record(run, gpus.NO_GPU))
        rows = [row for part, _ in observed for row in part.iter_rows(named=True)]
        devices = gpus.with_ranks((_device(row, run) for row in rows), run)
        windows = pl.concat([part for _, part in observed]).group_by("window").agg(pl.col("triggered").any())
        low = [row for row in devices if row.triggered]
        details = LowGPUUtilizationDetails(*gpus.capped(devices, lambda row: row.triggered))
        judged = [row for row in devices if row.windows]
        if not devices:
            return not_evaluated(gpus.NO_GPU, gpus.record(run, gpus.NO_GPU))
        if not judged:
            most = max(devices, key=lambda row: int(row.samples))
            reason = gpus.too_few(self.name, most.samples, parameters["patience"], run, parameter="patience", derived=most.derived)
            return not_evaluated(reason, gpus.RECORD_LONGER, details=details)
        skipped = len(devices) - len(judged)
        triggered = sum(row.triggered for row in low)
        return concluded(
            low,
            sum(row.samples for row in judged),
            [(row.first_ns, row.last_ns) for row in low],
            triggered=triggered,
            violations=triggered,
            windows=len(windows),
            windows_triggered=int(windows["triggered"].sum()),
            details=details,
            finding=(_finding(low, judged, run, parameters) if low else _fine(judged, run, parameters)) + gpus.also_too_few(skipped) + ".",
            recommendation=_recommendation(low, run) if low else None,
            cost=_cost(low, devices, run) if low else None,
        )


def _idle_ends(series: MetricSeries, per_gpu: pl.DataFrame, triggered: pl.DataFrame, window: int, p95: float, p5: float) -> pl.DataFrame:
    """Return the idle head and tail of each GPU, a row per GPU.

    Columns: node, unit; ``head``, ``between``, ``tail`` (samples) and ``head_unused`` and so on (samples x unused share); head_end_ns,
    tail_start_ns (None without one); in_head, in_tail (triggered windows in it), inside (triggered windows in neither). ``per_gpu``:
    sorted, a row per series. ``triggered``: rows of the windows that are low."""
    ends = pl.col("samples").cum_sum().cast(pl.Int64)
    rows = per_gpu.select(*_GPU, "samples", begin=ends - pl.col("samples").cast(pl.Int64), end=ends)  # one series follows the other
    busy = series.value.ge(p5).arg_true().cast(pl.Int64)
    first, after = busy.search_sorted(rows["begin"], side="left"), busy.search_sorted(rows["end"], side="left")
    rows = rows.with_columns(
        head=pl.concat([busy, pl.Series([len(series)], dtype=pl.Int64)]).gather(first),
        tail=pl.concat([pl.Series([-1], dtype=pl.Int64), busy]).gather(after) + 1,
    )
    least, used = _LEAST_STRETCH * pl.col("samples"), pl.col("tail") > pl.col("begin")
    head, tail = pl.col("head"), pl.col("tail")
    rows = rows.with_columns(
        head=pl.when(used & (head - pl.col("begin") >= least)).then(head).otherwise("begin"),
        tail=pl.when(used & (pl.col("end") - tail >= least)).then(tail).otherwise("end"),
    )
    good_before = _good(series, rows.select(*_GPU, begin=pl.max_horizontal(head, tail - window), end=tail), p95, p5)
    good_behind = _good(series, rows.select(*_GPU, begin=head, end=pl.min_horizontal(tail, head + window)), p95, p5)
    rows = rows.join(good_before.select(*_GPU, good_before="good"), on=_GPU, how="left", maintain_order="left")
    rows = rows.join(good_behind.select(*_GPU, good_behind="good"), on=_GPU, how="left", maintain_order="left")
    last = pl.col("row").cast(pl.Int64)
    from_row = last + 1 - pl.min_horizontal(pl.col("count").cast(pl.Int64), window)
    in_tail = (last >= tail) & pl.col("good_before").fill_null(False)
    in_head = (from_row < head) & pl.col("good_behind").fill_null(False) & ~in_tail
    explained = (
        triggered.join(rows, on=_GPU)
        .with_columns(in_tail=in_tail, in_head=in_head)
        .group_by(_GPU)
        .agg(pl.col("in_tail", "in_head").sum(), inside=(~pl.col("in_tail") & ~pl.col("in_head")).sum())
    )
    sums = pl.concat([pl.Series([0.0]), series.value.cum_sum()])

    def part(name: str, begin: str, end: str) -> dict[str, pl.Expr | pl.Series]:
        used = sums.gather(rows[end]) - sums.gather(rows[begin])
        return {name: pl.col(end) - pl.col(begin), f"{name}_unused": (pl.col(end) - pl.col(begin) - used / 100).clip(lower_bound=0)}

    times = pl.concat([series.time_ns, pl.Series([None], dtype=pl.Int64)])
    ends_of_gpus = rows.select(
        *_GPU,
        **part("head", "begin", "head"),
        **part("between", "head", "tail"),
        **part("tail", "tail", "end"),
        head_end_ns=pl.when(head > pl.col("begin")).then(times.gather(rows["head"])),
        tail_start_ns=pl.when(tail < pl.col("end")).then(times.gather(rows["tail"])),
    )
    counts = pl.col("in_tail", "in_head", "inside").fill_null(0)
    return ends_of_gpus.join(explained, on=_GPU, how="left", maintain_order="left").with_columns(counts)


def _good(series: MetricSeries, parts: pl.DataFrame, p95: float, p5: float) -> pl.DataFrame:
    """Return whether rows ``begin`` to ``end`` of each series are neither low state."""
    parts = parts.filter(pl.col("begin") < pl.col("end"))
    above, below = (quantile.round(9) for quantile in series.ordered.windows(parts["begin"], parts["end"], (0.95, 0.05)))
    return parts.select(*_GPU, good=(above >= p95) & (below >= p5))


def _device(row: Mapping[str, Any], run: RunData) -> LowGpu:
    derived = row["source"] == "derived"
    head_ends, (tail_starts, end) = _head_end(row, derived, run), _tail_limits(row, derived, run)
    return LowGpu.of(
        row,
        node=run.places.node(row["node"]),
        device=row["unit"],
        derived=derived,
        state=_state(row),
        triggered_percent=100 * row["triggered"] / row["windows"] if row["windows"] else None,
        p95=row["at_end_p95"],
        p5=row["at_end_p5"],
        first_ns=row["triggered_first_ns"],
        last_ns=row["triggered_last_ns"],
        pattern=_pattern(row),
        idle_head_ns=None if head_ends is None else head_ends - row["first_ns"],
        idle_tail_ns=None if tail_starts is None else end - tail_starts,
        idle_head_ends_ns=head_ends,
        idle_tail_starts_ns=tail_starts,
        mean_between=100 * (1 - row["between_unused"] / row["between"]) if row["between"] else None,
        unused_samples=_unused(row),
        box=Box.of(row),
        histogram=tuple(n / row["samples"] for n in row["counts"]),
    )


def _head_end(row: Mapping[str, Any], derived: bool, run: RunData) -> int | None:
    """Return the end of the idle head: the first step if the samples agree with it."""
    sampled: int | None = row["head_end_ns"]
    step = run.job.loop_started_at_ns
    return step if sampled is not None and _same_sample(sampled, step, derived, run) else sampled


def _tail_limits(row: Mapping[str, Any], derived: bool, run: RunData) -> tuple[int | None, int]:
    """Return start (None without one) and end of the idle tail.

    They are those of the finalization if the samples agree with it."""
    start: int | None = row["tail_start_ns"]
    end: int = row["last_ns"] + gpus.sample_ns(derived, run)
    last, ended = run.job.loop_ended_at_ns, run.job.ended_at_ns
    if start is None or ended is None or not (_same_sample(start, last, derived, run) and _same_sample(end, ended, derived, run)):
        return start, end
    return last, ended


def _same_sample(sampled_ns: int, time_ns: int | None, derived: bool, run: RunData) -> bool:
    return time_ns is not None and abs(sampled_ns - time_ns) <= gpus.sample_ns(derived, run)


def _pattern(row: Mapping[str, Any]) -> str | None:
    if not row["triggered"]:
        return None
    if row["inside"]:
        return WHOLE_RUN if row["always_low"] else PARTS
    return IDLE_ENDS if row["in_head"] and row["in_tail"] else IDLE_TAIL if row["in_tail"] else IDLE_HEAD


def _unused(row: Mapping[str, Any]) -> float:
    """Return the samples of a GPU's pattern times their unused share."""
    parts = {IDLE_TAIL: ("tail",), IDLE_HEAD: ("head",), IDLE_ENDS: ("head", "tail")}.get(_pattern(row) or "", ("between",))
    return float(sum(row[f"{part}_unused"] for part in parts))


def _state(row: Mapping[str, Any]) -> str:
    if row["max"] <= 0:
        return UNUSED
    if not row["windows"]:
        return FEW_SAMPLES
    if not row["triggered"]:
        return GOOD
    return UNDER if row["under_utilised"] >= row["fluctuating"] else FLUCTUATING


# -- what the reader sees --------------------------------------------------------------------------------------------------


def _finding(low: Sequence[LowGpu], judged: Sequence[LowGpu], run: RunData, parameters: Parameters) -> str:
    parts = []
    if unused := _of(low, UNUSED):
        parts.append(f"{count(len(unused))} unused, at 0% for the whole {gpus.covers(unused)} ({gpus.where(unused)})")
    for state, quantile in ((UNDER, "p95"), (FLUCTUATING, "p5")):
        if rows := _of(low, state):
            lowest, worst = min(((getattr(row, f"lowest_{quantile}"), row) for row in rows), key=lambda item: item[0])
            limit = threshold_text(parameters[f"threshold_{quantile}"])
            parts.append(f"{count(len(rows))} {state} ({quantile} below {limit}, lowest {percent(lowest)} on {gpus.gpu(worst)})")
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    derived = ", derived from kernel activity" if any(row.derived for row in low) else ""
    return f"{_used_too_little(low, judged)}{derived}, {_when(low, run)}{_left_out(low)}: {listed}"


def _used_too_little(low: Sequence[LowGpu], judged: Sequence[LowGpu]) -> str:
    triggered, windows = sum(row.triggered for row in low), sum(row.windows for row in low)
    if len(low) > 1:
        which = _all(len(low)) if len(low) == len(judged) else f"{count(len(low))} of {plural(len(judged), 'GPU')}"
        by_gpu = f" ({product})" if (product := gpus.windows_by_gpu([row.windows for row in low])) else ""
        return f"{which} are underused in {count(triggered)} of {count(windows)} evaluated windows{by_gpu}"
    which = "The GPU" if len(judged) == 1 else f"1 of {plural(len(judged), 'GPU')}"
    some = "its only evaluated window"
    if windows > 1:
        some = f"{'all' if triggered == windows else count(triggered)} of its {count(windows)} evaluated windows"
    return f"{which} is underused in {some}"


def _all(number: int) -> str:
    return "Both GPUs" if number == 2 else f"All {count(number)} GPUs"


def _when(low: Sequence[LowGpu], run: RunData) -> str:
    """Count the GPUs that are low in the whole run, at its start or end, or in parts."""
    kinds: dict[str, list[LowGpu]] = {}
    for row in low:
        steady = row.pattern != WHOLE_RUN or row.state != FLUCTUATING
        kinds.setdefault(required(row.pattern) if steady else FLUCTUATING, []).append(row)
    order = (WHOLE_RUN, FLUCTUATING, *_IDLE, PARTS)
    present = [(_pattern_words(kind, kinds[kind], run), len(kinds[kind])) for kind in order if kind in kinds]
    if len(present) == 1:
        return present[0][0]
    return ", ".join(f"{count(number)} {word}" for word, number in present)


def _pattern_words(kind: str, rows: Sequence[LowGpu], run: RunData) -> str:
    if kind == IDLE_TAIL:
        return f"only because of an idle tail of {_tail(rows, run)}"
    if kind == IDLE_HEAD:
        return f"only because of an idle start of {_head(rows, run)}"
    if kind == IDLE_ENDS:
        return f"only because of an idle start of {_head(rows, run)} and an idle tail of {_tail(rows, run)}"
    scope = gpus.covers(rows)
    return {WHOLE_RUN: f"low for the whole {scope}", FLUCTUATING: "fluctuating throughout"}.get(kind, f"low in parts of the {scope}")


def _tail(rows: Sequence[LowGpu], run: RunData) -> str:
    """Describe the longest idle tail, and whether it begins after the last step."""
    longest = max(rows, key=lambda row: required(row.idle_tail_ns))
    after = " after the last step" if _near(required(longest.idle_tail_starts_ns), run.job.loop_ended_at_ns, run) else ""
    return f"{duration(required(longest.idle_tail_ns))}{after}"


def _head(rows: Sequence[LowGpu], run: RunData) -> str:
    """Describe the longest idle head, and whether it ends with the first step."""
    longest = max(rows, key=lambda row: required(row.idle_head_ns))
    before = " before the first step" if _near(required(longest.idle_head_ends_ns), run.job.loop_started_at_ns, run) else ""
    return f"{duration(required(longest.idle_head_ns))}{before}"


def _near(time_ns: int, step_ns: int | None, run: RunData) -> bool:
    """Return whether an idle stretch begins or ends with the steps."""
    duration_ns = run.job.duration_ns
    return step_ns is not None and duration_ns is not None and abs(time_ns - step_ns) <= _NEAR * duration_ns


def _left_out(low: Sequence[LowGpu]) -> str:
    """Mention the idle head and tail if the cost is only about the time between."""
    rows = [row for row in low if row.pattern not in _IDLE]
    parts = []
    for key, which in (("idle_head_ns", "first"), ("idle_tail_ns", "last")):
        longest = max((ns for row in rows if (ns := getattr(row, key)) is not None), default=None)
        if longest is not None:
            parts.append(f"{which} {duration(longest)}")
    return f" (the idle {' and '.join(parts)} of the {gpus.covers(rows)} not counted)" if parts else ""


def _fine(judged: Sequence[LowGpu], run: RunData, parameters: Parameters) -> str:
    low, steep = min(required(row.lowest_p95) for row in judged), min(required(row.lowest_p5) for row in judged)
    derived = ", derived from kernel activity" if any(row.derived for row in judged) else ""
    copied = _copied(judged, run)
    how = "well used" if copied < WORTH_NAMING_PERCENT else "busy"
    they = "it" if len(judged) == 1 else "they"
    only = f"; for {whole_percent(copied)} of the profile {they} only copied or set memory" if how == "busy" else ""
    return (
        f"{'The GPU was' if len(judged) == 1 else f'All {count(len(judged))} GPUs were'} {how} in every window{derived}:"
        f" the lowest p95 is {percent(low)} (threshold {threshold_text(parameters['threshold_p95'])}),"
        f" the lowest p5 {percent(steep)} (threshold {threshold_text(parameters['threshold_p5'])}){only}"
    )


def _copied(judged: Sequence[LowGpu], run: RunData) -> float:
    """Return the percentage of the profile with copies and memsets but no kernel."""
    derived = {(row.node, row.device) for row in judged if row.derived}
    return only_copied([device for device in run.whole_devices if (device.node, device.device) in derived]) if derived else 0.0


def _recommendation(low: Sequence[LowGpu], run: RunData) -> str:
    """Write one sentence for each of the two kinds of low GPUs that cost most."""
    kinds = sorted(_kinds(low).items(), key=lambda item: -_unused_ns(item[1], run))
    return " ".join(_advice(kind, rows, run) for kind, rows in kinds[:2])


def _kinds(low: Sequence[LowGpu]) -> dict[str, list[LowGpu]]:
    kinds: dict[str, list[LowGpu]] = {}
    for row in low:
        kinds.setdefault(row.pattern if row.pattern in _IDLE else row.state, []).append(row)
    return kinds


def _advice(kind: str, rows: Sequence[LowGpu], run: RunData) -> str:
    if kind == UNUSED:
        used = next((node.gpus for node in run.nodes if node.hostname == rows[0].node), None)
        start = EVERY_GPU.of(run.program).format(gpus=used if used and used > 1 else "GPUS")
        return f"Start a worker on every GPU ({start}) or choose an instance with fewer GPUs: nothing ran on {gpus.where(rows)}."
    if kind in _IDLE:
        parts = []
        if kind != IDLE_HEAD:
            takes = _beside("finalization", run.job.finalization_ns, _longest(rows, "idle_tail_ns"))
            parts.append(
                "End the job when training ends, and move what follows it (last evaluation, export, upload) to a machine without GPUs:"
                f" {gpus.where(rows)} stood idle for the last {_tail(rows, run)}{takes}."
            )
        if kind != IDLE_TAIL:
            takes = _beside("initialization", run.job.initialization_ns, _longest(rows, "idle_head_ns"))
            parts.append(
                "Begin to train sooner: download and prepare data before the job, or read it as a stream:"
                f" {gpus.where(rows)} stood idle for the first {_head(rows, run)}{takes}."
            )
        return " ".join(parts)
    if kind == FLUCTUATING:
        worst = min(rows, key=lambda row: required(row.lowest_p5))
        return (
            f"Shorten the pauses of the GPUs: {gpus.gpu(worst)} reaches {percent(worst.box.p95)} but falls to"
            f" {percent(required(worst.lowest_p5))} in between. {_pauses(run)}"
        )
    worst = min(rows, key=_mean)
    return (
        f"Raise `batch_size` while it fits into GPU memory, or use fewer or smaller GPUs: {gpus.gpu(worst)} is at"
        f" {percent(_mean(worst))} on average and leaves the rest unused."
    )


def _pauses(run: RunData) -> str:
    """Name what is known of the pauses, else the recording that would show them."""
    if (run.loading_percent or 0.0) >= WORTH_ADVICE_PERCENT:
        share = percent(required(run.loading_percent))
        return f"Waits for data take {share} of the steps: load further ahead ({FURTHER_AHEAD.of(run.program)})."
    if gaps := run.longest_gaps:
        times = Counter[str]()
        for gap in gaps:
            times[gap.kind] += gap.duration_ns
        kind, time = times.most_common(1)[0]
        share = percent(100 * time / times.total())
        return f'Of the time of the longest pauses, {share} has the cause "{kind}": the section on idle time lists them.'
    if run.breakdown:
        return "The section on idle time lists the pauses."
    return "Profile some steps to see what the host does meanwhile."


def _longest(rows: Sequence[LowGpu], key: str) -> int:
    return max(int(getattr(row, key) or 0) for row in rows)


def _beside(part: str, time_ns: int | None, idle_ns: int) -> str:
    """Describe how long a part of the job takes if that differs from the idle time."""
    if not time_ns:
        return ""
    return f" ({part})" if abs(time_ns - idle_ns) <= _SAME * idle_ns else f" ({part} takes {duration(time_ns)})"


def _mean(row: LowGpu) -> float:
    """Return the mean of the time between idle head and idle tail."""
    return float(row.box.mean if row.mean_between is None else row.mean_between)


_TITLES: Final = {
    UNUSED: "Use the idle GPUs or take fewer",
    IDLE_TAIL: "End the job when training ends",
    IDLE_HEAD: "Begin to train sooner",
    IDLE_ENDS: "Let the GPUs idle less before and after training",
    FLUCTUATING: "Shorten the pauses of the GPUs",
    UNDER: "Give the GPUs more work per step",
}


def _cost(low: Sequence[LowGpu], devices: Sequence[LowGpu], run: RunData) -> Cost:
    unused = round(_unused_ns(low, run))
    kinds = _kinds(low)
    costliest = max(kinds, key=lambda kind: _unused_ns(kinds[kind], run))
    every = len(low) == len(devices) and len(low) > 1
    return Cost(
        title=_TITLES[costliest],
        ns=unused,
        of_ns=round(gpus.gpu_time_ns(devices, run)),
        saving_ns=unused,
        where=None if every else gpus.where(low),
        base=gpus.gpu_time(devices, run),
    )


def _unused_ns(rows: Sequence[LowGpu], run: RunData) -> float:
    return float(sum(row.unused_samples * gpus.sample_ns(row.derived, run) for row in rows))


def _of(rows: Sequence[LowGpu], state: str) -> list[LowGpu]:
    return [row for row in rows if row.state == state]
