"""BatchSize: CPU, GPU and GPU memory are all far from full, so that a larger batch would fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from ...report.detail_rows import Box
from ...report.sample_details import P95, BatchSizeBoxes, BatchSizeDetails, BatchSizeGpu
from ...toolkit.wording import count, percent, plural, threshold_text
from ..evidence import gpus
from ..evidence.base import Cost, Outcome, Parameter, Parameters, SampleRule, concluded, not_evaluated, required
from ..evidence.blocks import CONTROLLER, FOOTPRINT, SampleBlock, samples_of
from ..evidence.frameworks import BATCH_SIZE
from ..evidence.run_data import RunData

CAVEATS: Final = (
    "The rule says nothing about frameworks that reserve more GPU memory than they use.",
    "A larger batch can move the bottleneck to data loading.",
)
_FIGURE: Final = {FOOTPRINT: "footprint", CONTROLLER: "memory controller"}
_RECORDED: Final = (
    "GPU memory is the utilization of the memory controller, as the hosted profiler records it, and not how much of the memory is used."
)
_USED: Final = "GPU memory is the used share of the device's memory."
_GPU: Final = ["node", "unit"]


class BatchSize(SampleRule):
    """Every GPU with the CPU of its node, at the end of every evaluation window in which all three have enough samples (docs/rules.md)."""

    name = "BatchSize"
    category = "system"
    parameters = (
        Parameter("cpu_threshold_p95", "%", 70, 70, "percentile", "the CPU is little used if p95 of the mean of its cores is below this"),
        Parameter("gpu_threshold_p95", "%", 70, 70, "percentile", "the GPU is little used if its p95 is below this"),
        Parameter("gpu_memory_threshold_p95", "%", 70, 70, "percentile", "the GPU's memory is little used if its p95 is below this"),
        Parameter("patience", "samples", 100, 1000, "positive", "a GPU is evaluated if it has more samples than this", seconds=True),
        Parameter(
            "window", "samples", 500, 500, "positive", "number of most recent samples that the quantiles are taken over", seconds=True
        ),
    )
    needs = "Samples of GPU utilization, GPU memory and CPU utilization."
    checks = (
        "Finds GPUs with room for a larger batch: the CPU, the GPU and its memory are all little used at the end of an evaluation window."
    )
    condition = (
        "at the end of any evaluation window with more than `patience` samples, p95 of the last `window` samples is below"
        " `cpu_threshold_p95` for the CPU, below `gpu_threshold_p95` for a GPU, and below `gpu_memory_threshold_p95` for its memory"
    )
    advice = "Raise the batch size, or use smaller GPUs."

    figures = ("gpu", "cpu", "gpu_memory")

    def observe(self, block: SampleBlock, parameters: Parameters) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Return a row per GPU, a CPU box per node, and a row per evaluated window."""
        scan, window = parameters["scan_interval_us"], samples_of(parameters["window"])
        needed = max(parameters["patience"], window)

        def ends(figure: str) -> pl.DataFrame:
            # A quantile that is the threshold is not below it: rounding must not decide.
            return block.quantiles(figure, scan, window, 0).filter(pl.col("count") > needed).with_columns(pl.col("p95").round(9))

        limits = {"cpu": "cpu_threshold_p95", "gpu": "gpu_threshold_p95", "gpu_memory": "gpu_memory_threshold_p95"}
        memory = ends("gpu_memory").select(*_GPU, "window", gpu_memory_p95="p95")
        cpu = ends("cpu").select("node", "window", cpu_p95="p95")
        judged = (
            ends("gpu")
            .select(*_GPU, "window", "time_ns", gpu_p95="p95")
            .join(memory, on=[*_GPU, "window"])
            .join(cpu, on=["node", "window"])
            .with_columns(violation=pl.all_horizontal(pl.col(f"{figure}_p95") < parameters[name] for figure, name in limits.items()))
            .sort(*_GPU, "window")
        )
        violated = pl.col("time_ns").filter("violation")
        per_gpu = judged.group_by(_GPU).agg(
            pl.col("cpu_p95", "gpu_p95", "gpu_memory_p95").last(),
            pl.col("cpu_p95", "gpu_p95", "gpu_memory_p95").filter("violation").last().name.prefix("violated_"),
            windows=pl.len().cast(pl.Int64),
            violations=pl.col("violation").sum().cast(pl.Int64),
            violated_first_ns=violated.min(),
            violated_last_ns=violated.max(),
        )
        of_memory = block.boxes("gpu_memory").rename(lambda name: name if name in _GPU else f"memory_{name}")
        rows = block.boxes("gpu").join(per_gpu, on=_GPU, how="left").join(of_memory, on=_GPU, how="left")
        windows = judged.group_by("window").agg(pl.col("violation").any())
        return rows, block.boxes("cpu"), windows

    def conclude(self, observed: Sequence[Any], run: RunData, parameters: Parameters) -> Outcome:
        for figure, reason in (("gpu", gpus.NO_GPU), ("cpu", gpus.NO_CPU)):
            if not run.samples.has(figure):
                return not_evaluated(reason, gpus.record(run, reason))
        if not run.samples.has("gpu_memory"):
            return not_evaluated(*gpus.no_memory(run))
        cpu = {row["node"]: row for _, part, _ in observed for row in part.iter_rows(named=True)}
        rows = [row for part, _, _ in observed for row in part.iter_rows(named=True)]
        devices = gpus.with_ranks((_device(row, cpu.get(row["node"]), run) for row in rows), run)
        small = [row for row in devices if row.violations]
        judged = [row for row in devices if row.windows]
        listed, left_out = gpus.capped(devices, lambda row: row.violations)
        figures = {row.memory_figure for row in devices}
        notes = (note for figure, note in (("footprint", _USED), ("memory controller", _RECORDED)) if figure in figures)
        details = BatchSizeDetails(devices=listed, left_out=left_out, caveats=(*CAVEATS, *notes))
        if not judged:
            return not_evaluated(*self._too_few(devices, run, parameters), details=details)
        windows = pl.concat([part for _, _, part in observed]).group_by("window").agg(pl.col("violation").any())
        violations = sum(row.violations for row in small)
        return concluded(
            small,
            sum(row.samples for row in judged),
            [(row.first_ns, row.last_ns) for row in small],
            triggered=violations,
            violations=violations,
            windows=len(windows),
            windows_triggered=int(windows["violation"].sum()),
            details=details,
            finding=(_finding if small else _fine)(small or judged, judged, parameters)
            + gpus.also_too_few(len(devices) - len(judged))
            + ".",
            recommendation=_recommendation(small, run) if small else None,
            cost=_cost(small, devices, run) if small else None,
        )

    def _too_few(self, devices: Sequence[BatchSizeGpu], run: RunData, parameters: Parameters) -> tuple[str, str]:
        """Return why no GPU was evaluated, and which capture would help."""
        name = max(("patience", "window"), key=lambda one: float(parameters[one]))
        counts = [(min(box.samples if box else 0 for box in (row.boxes.cpu, row.boxes.gpu, row.boxes.gpu_memory)), row) for row in devices]
        most, row = max(counts, key=lambda item: item[0], default=(0, None))
        if not devices:
            return gpus.NO_GPU, gpus.record(run, gpus.NO_GPU)
        if not most:
            return "no node has samples of its GPUs, of their memory and of its CPU", gpus.RECORD
        if most > max(parameters["patience"], samples_of(parameters["window"])):
            return "no evaluation window has enough samples of a GPU, of its memory and of the CPU", gpus.RECORD
        derived = bool(row and row.derived)
        return gpus.too_few(self.name, most, parameters[name], run, parameter=name, derived=derived), gpus.RECORD_LONGER


def _device(row: Mapping[str, Any], cpu: Mapping[str, Any] | None, run: RunData) -> BatchSizeGpu:
    memory = {key.removeprefix("memory_"): value for key, value in row.items() if key.startswith("memory_")}
    return BatchSizeGpu.of(
        row,
        node=run.places.node(row["node"]),
        device=row["unit"],
        derived=row["source"] == "derived",
        memory_figure=_FIGURE.get(memory["source"]),
        windows=row["windows"] or 0,
        violations=row["violations"] or 0,
        first_ns=row["violated_first_ns"],
        last_ns=row["violated_last_ns"],
        at_last_violation=P95(row["violated_cpu_p95"], row["violated_gpu_p95"], row["violated_gpu_memory_p95"]),
        boxes=BatchSizeBoxes(
            cpu=None if cpu is None else Box.of(cpu), gpu=Box.of(row), gpu_memory=None if memory["samples"] is None else Box.of(memory)
        ),
    )


# -- what the reader sees --------------------------------------------------------------------------------------------------


def _limits(parameters: Parameters) -> str:
    limits = [parameters[name] for name in ("cpu_threshold_p95", "gpu_threshold_p95", "gpu_memory_threshold_p95")]
    if len(set(limits)) == 1:
        return f"threshold {threshold_text(limits[0])}"
    return f"thresholds {threshold_text(limits[0])}, {threshold_text(limits[1])} and {threshold_text(limits[2])}"


def _figures(row: BatchSizeGpu, at: BatchSizeGpu | P95) -> str:
    cpu, gpu, memory = (percent(required(figure)) for figure in (at.cpu_p95, at.gpu_p95, at.gpu_memory_p95))
    subject = "GPU memory" if row.memory_figure == "footprint" else "the GPU's memory controller"
    return f"p95 of the CPU is {cpu}, of the GPU {gpu} and of {subject} {memory}"


def _finding(small: Sequence[BatchSizeGpu], judged: Sequence[BatchSizeGpu], parameters: Parameters) -> str:
    """Write how often, and the last figures of the GPU with most of the violations."""
    worst = max(small, key=lambda row: (row.violations, -required(row.gpu_p95)))
    windows = gpus.in_windows(sum(row.violations for row in small), sum(row.windows for row in small))
    by_gpu = f" ({product})" if (product := gpus.windows_by_gpu([row.windows for row in small])) else ""
    of_all = f", {count(len(small))} of {plural(len(judged), 'GPU')}" if len(judged) > 1 else ""
    return (
        f"CPU, GPU and GPU memory were all low ({_limits(parameters)} of p95) in {windows}{by_gpu} of {gpus.where(small)}{of_all}:"
        f" in the last of them {_figures(worst, worst.at_last_violation)}" + (f" on {gpus.gpu(worst)}" if len(small) > 1 else "")
    )


def _fine(_: Sequence[BatchSizeGpu], judged: Sequence[BatchSizeGpu], parameters: Parameters) -> str:
    lowest = min(judged, key=lambda row: required(row.gpu_p95))
    numbers = [row.windows for row in judged]
    windows = gpus.windows_by_gpu(numbers) or f"{plural(sum(numbers), 'window')} of {plural(len(judged), 'GPU')}"
    return (
        f"CPU, GPU and GPU memory were never all below their {_limits(parameters)} of p95 ({windows}): at the end,"
        f" {_figures(lowest, lowest)} on {gpus.gpu(lowest)}, the least used"
    )


def _recommendation(small: Sequence[BatchSizeGpu], run: RunData) -> str:
    batch_size = BATCH_SIZE.of(run.program)
    worst = max(small, key=lambda row: (row.violations, -required(row.gpu_p95)))
    if worst.memory_figure == "footprint":
        highest = required(worst.boxes.gpu_memory).max
        room = f"its memory is never fuller than {percent(highest)}"
        raise_it = f"Double {batch_size}" if highest <= 50 else f"Raise {batch_size} in small steps"
    else:
        room = "how much of its memory is used was not recorded"
        raise_it = f"Raise {batch_size} as far as GPU memory allows (`nvidia-smi` shows how much of it is used)"
    return (
        f"{raise_it}, or use smaller GPUs: {gpus.gpu(worst)} is at {percent(worst.boxes.gpu.mean)} on average, and {room}."
        f" {CAVEATS[0]} {CAVEATS[1]}"
    )


def _cost(small: Sequence[BatchSizeGpu], devices: Sequence[BatchSizeGpu], run: RunData) -> Cost:
    times = [(row, row.samples * gpus.sample_ns(row.derived, run)) for row in small]
    unused = round(sum(ns * max(100 - row.boxes.gpu.mean, 0) / 100 * row.violations / row.windows for row, ns in times))
    return Cost(
        title="Raise the batch size",
        ns=unused,
        of_ns=round(gpus.gpu_time_ns(devices, run)),
        saving_ns=unused,
        where=None if len(small) == len(devices) > 1 else gpus.where(small),
        base=gpus.gpu_time(devices, run),
    )
