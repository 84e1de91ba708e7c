"""Are GPUs used too little, or not steadily, and is that so during the whole run or only in an idle tail?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from ..wording import count, duration, percent, plural
from .base import FINE, ISSUES, Cost, Outcome, Parameter, Parameters, SampleRule, not_evaluated
from .gpus import (
    GPU_TIME,
    NO_GPU,
    RECORD,
    RECORD_LONGER,
    also_too_few,
    capped,
    gpu,
    gpu_time_ns,
    sample_ns,
    threshold,
    too_few,
    where,
)
from .run_data import RunData
from .samples import SampleBlock, box, samples_of

UNDER: Final = "under-utilised"
FLUCTUATING: Final = "fluctuating"
GOOD: Final = "fine"
UNUSED: Final = "unused"
FEW: Final = "too few samples"
WHOLE_RUN: Final = "whole run"
IDLE_TAIL: Final = "idle tail"
PARTS: Final = "parts of the run"

_LEAST_TAIL: Final = 0.05
_GPU: Final = ["node", "unit"]

Row = dict[str, Any]


class LowGPUUtilization(SampleRule):
    """Every GPU at the end of every evaluation window, over its last ``window`` samples: *under-utilised* if p95 < threshold_p95,
    *fluctuating* if p95 >= threshold_p95 and p5 < threshold_p5.

    ``state`` of a GPU: which of the two it was in more of its windows (as often: under-utilised), "unused" where it is 0 % for the whole
    run (its windows count as under-utilised).

    ``pattern`` of a GPU with such windows. "idle tail": at its end the series has a stretch with all values below threshold_p5 that is at
    least 5 % of its samples (the longest such stretch is the tail), and what lies before it is neither under-utilised nor fluctuating:
    not its p95 and p5 as a whole, and no judged window that ends before the tail. "whole run": else, where all windows are one or the
    other, also those before ``patience`` was reached. "parts of the run": else.

    Cost: the unused share, 100 % - mean, of the time of the GPUs with such windows.
    """

    name = "LowGPUUtilization"
    category = "system"
    parameters = (
        Parameter("threshold_p95", "%", 70, 70, "percentile", "a GPU whose p95 is below it is under-utilised"),
        Parameter("threshold_p5", "%", 10, 10, "percentile", "a GPU that is not under-utilised and whose p5 is below it fluctuates"),
        Parameter("patience", "samples", 1000, 1000, "positive", "a GPU is judged when it has more samples than this", seconds=True),
        Parameter("window", "samples", 500, 500, "positive", "quantiles are taken over this many last samples", seconds=True),
    )
    needs = "Samples of GPU utilisation; kernel activity stands in for them."
    checks = "Looks at the 95th and the 5th percentile of every GPU's utilisation at the end of every evaluation window."
    condition = "p95 is below threshold_p95 (under-utilised), or p5 is below threshold_p5 (fluctuating), in any window of any GPU"
    advice = "Give the GPUs more work per step, feed them without pauses, or use fewer or smaller ones."

    def observe(self, block: SampleBlock, parameters: Parameters) -> tuple[pl.DataFrame, pl.DataFrame]:
        """A row per GPU, and a row per evaluated window."""
        p95, p5 = parameters["threshold_p95"], parameters["threshold_p5"]
        ends = block.quantiles("gpu", parameters["scan_interval_us"], samples_of(parameters["window"]), 0)
        # A quantile that is the threshold is not below it: rounding must not decide.
        ends = ends.with_columns(pl.col("p95", "p5").round(9)).with_columns(
            judged=pl.col("count") > parameters["patience"],
            under=pl.col("p95") < p95,
            fluctuating=(pl.col("p95") >= p95) & (pl.col("p5") < p5),
        )
        ends = ends.with_columns(low=pl.col("under") | pl.col("fluctuating")).with_columns(triggered=pl.col("judged") & pl.col("low"))
        judged, triggered = pl.col("judged"), pl.col("triggered")
        gpus = ends.group_by(_GPU).agg(
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
        gpus = block.boxes("gpu").sort(_GPU).join(gpus, on=_GPU, maintain_order="left")
        tails = _idle_tails(block.series("gpu"), gpus, ends.filter("triggered"), p95, p5)
        windows = ends.filter("judged").group_by("window").agg(pl.col("triggered").any())
        return gpus.join(tails, on=_GPU, how="left", maintain_order="left"), windows

    def conclude(self, observed: Sequence[Any], run: RunData, parameters: Parameters) -> Outcome:
        if not run.samples.has("gpu"):
            return not_evaluated(NO_GPU, RECORD)
        found = [row for gpus, _ in observed for row in gpus.iter_rows(named=True)]
        devices = sorted((_device(row, run) for row in found), key=lambda row: (row["node"], row["device"]))
        windows = pl.concat([part for _, part in observed]).group_by("window").agg(pl.col("triggered").any())
        low = [row for row in devices if row["triggered"]]
        details = capped(devices, {at for at, row in enumerate(devices) if row["triggered"]}, "devices")
        judged = [row for row in devices if row["windows"]]
        if not devices:
            return not_evaluated(NO_GPU, RECORD)
        if not judged:
            most = max(devices, key=lambda row: int(row["samples"]))
            reason = too_few(self.name, most["samples"], parameters["patience"], run, parameter="patience", derived=most["derived"])
            return not_evaluated(reason, RECORD_LONGER, details=details)
        few = len(devices) - len(judged)
        triggered = sum(row["triggered"] for row in low)
        return Outcome(
            ISSUES if low else FINE,
            triggered=triggered,
            violations=triggered,
            datapoints=sum(row["samples"] for row in judged),
            windows=len(windows),
            windows_triggered=int(windows["triggered"].sum()),
            first_ns=min((row["first_ns"] for row in low), default=None),
            last_ns=max((row["last_ns"] for row in low), default=None),
            details=details,
            finding=(_finding(low, judged, parameters) if low else _fine(judged, parameters)) + also_too_few(few) + ".",
            recommendation=_recommendation(low, run) if low else None,
            cost=_cost(low, devices, run) if low else None,
        )


def _idle_tails(series: pl.DataFrame, gpus: pl.DataFrame, triggered: pl.DataFrame, p95: float, p5: float) -> pl.DataFrame:
    """GPUs that are low in an idle tail only: node, unit, tail_ns (time of the tail's first sample). ``gpus``: sorted, one per series."""
    ends = pl.col("samples").cum_sum().cast(pl.Int64)
    rows = gpus.select(*_GPU, "samples", "triggered", first=ends - pl.col("samples"), end=ends)  # the series lie one behind the other
    busy = series["value"].ge(p5).arg_true().cast(pl.Int64)
    after = pl.concat([pl.Series([-1], dtype=pl.Int64), busy]).gather(busy.search_sorted(rows["end"], side="left")) + 1
    rows = rows.with_columns(tail=after).filter(
        (pl.col("triggered") > 0) & (pl.col("tail") > pl.col("first")) & (pl.col("end") - pl.col("tail") >= _LEAST_TAIL * pl.col("samples"))
    )
    early = triggered.join(rows, on=_GPU).filter(pl.col("row") < pl.col("tail"))
    rows = rows.join(early, on=_GPU, how="anti")
    before = rows.select(*_GPU, index=pl.int_ranges("first", "tail")).explode("index")
    good = (
        before.with_columns(value=series["value"].gather(before["index"]))
        .group_by(_GPU)
        .agg(p95=pl.col("value").quantile(0.95, "linear"), p5=pl.col("value").quantile(0.05, "linear"))
        .filter((pl.col("p95") >= p95) & (pl.col("p5") >= p5))
    )
    rows = rows.join(good, on=_GPU, how="semi")
    return rows.select(*_GPU, tail_ns=series["time_ns"].gather(rows["tail"]))


def _device(row: Mapping[str, Any], run: RunData) -> Row:
    derived = row["source"] == "derived"
    tail = None if row["tail_ns"] is None else row["last_ns"] + sample_ns({"derived": derived}, run) - row["tail_ns"]
    return {
        "node": run.places.node(row["node"]),
        "device": row["unit"],
        "derived": derived,
        "samples": row["samples"],
        "state": _state(row),
        "windows": row["windows"],
        "triggered": row["triggered"],
        "under_utilised": row["under_utilised"],
        "fluctuating": row["fluctuating"],
        "triggered_percent": 100 * row["triggered"] / row["windows"] if row["windows"] else None,
        "p95": row["at_end_p95"],
        "p5": row["at_end_p5"],
        "lowest_p95": row["lowest_p95"],
        "lowest_p5": row["lowest_p5"],
        "first_ns": row["triggered_first_ns"],
        "last_ns": row["triggered_last_ns"],
        "pattern": None if not row["triggered"] else IDLE_TAIL if tail is not None else WHOLE_RUN if row["always_low"] else PARTS,
        "idle_tail_ns": tail,
        "box": box(row),
    }


def _state(row: Mapping[str, Any]) -> str:
    if row["max"] <= 0:
        return UNUSED
    if not row["windows"]:
        return FEW
    if not row["triggered"]:
        return GOOD
    return UNDER if row["under_utilised"] >= row["fluctuating"] else FLUCTUATING


# -- what the reader sees --------------------------------------------------------------------------------------------------


def _finding(low: Sequence[Row], judged: Sequence[Row], parameters: Parameters) -> str:
    unused, under, fluctuating = (_of(low, state) for state in (UNUSED, UNDER, FLUCTUATING))
    parts = []
    if unused:
        parts.append(f"{count(len(unused))} unused, at 0 % for the whole run ({where(unused)})")
    if under:
        worst = min(under, key=lambda row: row["lowest_p95"])
        limit = threshold(parameters["threshold_p95"])
        parts.append(f"{count(len(under))} under-utilised (p95 below {limit}, lowest {percent(worst['lowest_p95'])} on {gpu(worst)})")
    if fluctuating:
        worst = min(fluctuating, key=lambda row: row["lowest_p5"])
        limit = threshold(parameters["threshold_p5"])
        parts.append(f"{count(len(fluctuating))} fluctuating (p5 below {limit}, lowest {percent(worst['lowest_p5'])} on {gpu(worst)})")
    shown = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    derived = ", derived from kernel activity" if any(row["derived"] for row in low) else ""
    whose = "its" if len(low) == 1 else "their"
    number = sum(row["windows"] for row in low)
    windows = f"{count(sum(row['triggered'] for row in low))} of {whose} {plural(number, 'window')}"
    verb = "is" if len(low) == 1 else "are"
    return f"{count(len(low))} of {plural(len(judged), 'GPU')} {verb} used too little in {windows}{derived}: {shown}; {_when(low)}"


def _when(low: Sequence[Row]) -> str:
    """For how many of the GPUs it is so in the whole run, only in an idle tail, or in parts."""
    tails = [row for row in low if row["pattern"] == IDLE_TAIL]
    words = {
        WHOLE_RUN: "low for the whole run",
        IDLE_TAIL: f"low only in an idle tail of {duration(max((row['idle_tail_ns'] for row in tails), default=0))}",
        PARTS: "low in parts of the run",
    }
    patterns = {pattern: sum(row["pattern"] == pattern for row in low) for pattern in words}
    present = [(words[pattern], number) for pattern, number in patterns.items() if number]
    if len(present) == 1:
        return present[0][0]
    return ", ".join(f"{count(number)} {word}" for word, number in present)


def _fine(judged: Sequence[Row], parameters: Parameters) -> str:
    low, steep = min(row["lowest_p95"] for row in judged), min(row["lowest_p5"] for row in judged)
    derived = ", derived from kernel activity" if any(row["derived"] for row in judged) else ""
    return (
        f"{'The GPU was' if len(judged) == 1 else f'All {count(len(judged))} GPUs were'} well used in every window{derived}:"
        f" the lowest p95 is {percent(low)} (threshold {threshold(parameters['threshold_p95'])}),"
        f" the lowest p5 {percent(steep)} (threshold {threshold(parameters['threshold_p5'])})"
    )


def _recommendation(low: Sequence[Row], run: RunData) -> str:
    """One sentence for each kind of low GPU, the kind that costs most first; two at most."""
    kinds = sorted(_kinds(low).items(), key=lambda item: -_unused_ns(item[1], run))
    return " ".join(_advice(kind, rows, run) for kind, rows in kinds[:2])


def _kinds(low: Sequence[Row]) -> dict[str, list[Row]]:
    kinds: dict[str, list[Row]] = {}
    for row in low:
        kinds.setdefault(IDLE_TAIL if row["pattern"] == IDLE_TAIL else row["state"], []).append(row)
    return kinds


def _advice(kind: str, rows: Sequence[Row], run: RunData) -> str:
    if kind == UNUSED:
        gpus = next((node.gpus for node in run.nodes if node.hostname == rows[0]["node"]), None)
        start = f"`torchrun --nproc_per_node={gpus}`" if gpus and gpus > 1 else "`--nproc_per_node` of torchrun"
        return f"Start a worker on every GPU ({start}) or choose an instance with fewer GPUs: nothing ran on {where(rows)}."
    if kind == IDLE_TAIL:
        longest = max(row["idle_tail_ns"] for row in rows)
        return (
            f"End the job when training ends, and move what follows it (last evaluation, export, upload) to a machine without GPUs:"
            f" {where(rows)} stood idle for the last {duration(longest)}."
        )
    if kind == FLUCTUATING:
        worst = min(rows, key=lambda row: row["lowest_p5"])
        return (
            "Feed the GPUs without pauses: find what the host does while they wait, most often loading (more `num_workers`, a larger"
            f" `prefetch_factor`), evaluation or checkpoints, because {gpu(worst)} reaches {percent(worst['box']['p95'])} but falls to"
            f" {percent(worst['lowest_p5'])} in between."
        )
    worst = min(rows, key=lambda row: row["box"]["mean"])
    return (
        f"Raise `batch_size` while it fits into GPU memory, or use fewer or smaller GPUs: {gpu(worst)} is at"
        f" {percent(worst['box']['mean'])} on average and leaves the rest unused."
    )


_TITLES: Final = {
    UNUSED: "Use the idle GPUs or take fewer",
    IDLE_TAIL: "End the job when training ends",
    FLUCTUATING: "Feed the GPUs without pauses",
    UNDER: "Give the GPUs more work per step",
}


def _cost(low: Sequence[Row], devices: Sequence[Row], run: RunData) -> Cost:
    unused = round(_unused_ns(low, run))
    kinds = _kinds(low)
    costliest = max(kinds, key=lambda kind: _unused_ns(kinds[kind], run))
    every = len(low) == len(devices) and len(low) > 1
    return Cost(
        title=_TITLES[costliest],
        ns=unused,
        of_ns=round(gpu_time_ns(devices, run)),
        saving_ns=unused,
        where=None if every else where(low),
        base=GPU_TIME,
    )


def _unused_ns(rows: Sequence[Row], run: RunData) -> float:
    return float(sum(row["samples"] * sample_ns(row, run) * max(100 - row["box"]["mean"], 0) / 100 for row in rows))


def _of(rows: Sequence[Row], state: str) -> list[Row]:
    return [row for row in rows if row["state"] == state]
