"""Figures of the first page, and the tiles chosen among them: at most four, all known, none with a quantity that another one states.

A figure that is not known is "—", with the reason on the second line; programs read all figures by their keys.
"""

from __future__ import annotations

import statistics
from typing import Final

from ..device.precision import BELOW_FP32
from ..device.time_breakdown import only_copied
from ..report.efficiency import Efficiency
from ..report.run import Tile
from ..steps.step_time import FROM_STEP_TO_STEP, HOST, main_steps, per_step, step_times, work_overlaps
from ..toolkit import wording
from ..toolkit.labels import process_place
from .summary_data import SummaryData, brief_percent
from .summary_steps import SEVERAL, data_loading, loading_basis, longest_step, profiled_left_out, spread, uneven_processes

NOT_KNOWN: Final = "—"
MOST_TILES: Final = 4
_UNKNOWN_PERCENT: Final = 5.0  # unknown precision from which the tile states it
_LEAST_TYPE: Final = 1.0  # percent of the matrix time from which the peak of a type is named
_LEAST_LOSS: Final = 1.0  # percent; smaller waits for data and copies have no tile

# Keys of the tiles in their order. Of each group the first known figure has a tile.
_WITH_GPU: Final = (
    ("gpu_utilization", "gpu_busy"),
    ("iteration_time", "step_time"),
    ("tokens_per_s",),
    ("exposed_communication", "data_loading", "copies"),
    ("mfu",),
    ("gpu_memory_peak", "data_loading"),
)
_WITHOUT_GPU: Final = (("cpu_utilization",), ("step_time",), ("data_loading",), ("longest_step",), ("main_memory",))


def figures(data: SummaryData) -> tuple[Tile, ...]:
    """Return all figures of the run: those of the GPUs, else of the host."""
    device = [
        _gpu_utilization(data), _gpu_busy(data), _step_time(data), _exposed_communication(data), _data_loading(data), _copies(data),
        _mfu(data), _gpu_memory(data), _lower_precision(data),
    ]  # fmt: skip
    if data.inference:
        device += [_iteration_time(data), _tokens(data)]
    if not (data.breakdown or data.gpu_samples):
        device += [_cpu_utilization(data), _longest_step(data), _main_memory(data)]
    return tuple(device)


def tiles(data: SummaryData, listed: tuple[Tile, ...]) -> tuple[Tile, ...]:
    """Choose the tiles among the figures."""
    known = {tile.key: tile for tile in listed if tile.value != NOT_KNOWN}
    groups = _WITH_GPU if data.breakdown or data.gpu_samples else _WITHOUT_GPU
    chosen: dict[str, Tile] = {}
    for keys in groups:
        chosen.update(next(({key: known[key]} for key in keys if key in known and key not in chosen and _has_tile(known[key])), {}))
    return tuple(chosen.values())[:MOST_TILES]


def _has_tile(tile: Tile) -> bool:
    """Return whether a figure has a tile; a small loss has none."""
    return tile.key not in ("data_loading", "copies") or (tile.number or 0.0) >= _LEAST_LOSS


def _gpu_utilization(data: SummaryData) -> Tile:
    key, label = "gpu_utilization", "GPU use, job mean"
    mean = data.gpu_mean
    if mean is None:
        return _unknown(key, label, "GPU utilization was not sampled", "system-usage")
    return Tile(key, label, brief_percent(mean), _over(data, "gpu"), "system-usage", mean)


def _over(data: SummaryData, metric: str) -> str:
    """Word the time that the samples of a metric cover: "mean of 8 GPUs"."""
    units = {(heat.node, unit) for heat in data.report.system_usage.heat if heat.metric == metric for unit in heat.units}
    noun = "GPU" if metric == "gpu" else "core"
    of = f"mean of {wording.plural(len(units), noun)}" if units else "mean of the samples"
    part = data.sampled_part_ns(metric)
    return f"{of} over the job" if part is None else f"{of} over {wording.duration(part)} of samples"


def _cpu_utilization(data: SummaryData) -> Tile:
    key, label, mean = "cpu_utilization", "CPU use, job mean", data.cpu_mean
    if mean is None:
        return _unknown(key, label, "processors were not sampled", "system-usage")
    return Tile(key, label, brief_percent(mean), _over(data, "cpu"), "system-usage", mean)


def _longest_step(data: SummaryData) -> Tile:
    key, label = "longest_step", "longest step"
    longest = longest_step(data.report.steps)
    if longest is None:
        too_short = f"fewer than {SEVERAL} steps{' without a profiler' if profiled_left_out(data.report.steps) else ''}"
        return _unknown(key, label, too_short if data.report.steps.steps else "no steps recorded", "steps")
    ns, profiler = longest.ns, longest.step.profiled
    without = ", without profiled steps" if profiled_left_out(data.report.steps) else f", with {profiler} on" if profiler else ""
    detail = f"{longest.name}, {wording.significant(longest.ratio)} times the median{without}"
    return Tile(key, label, wording.duration(ns), detail, "steps", ns, "ns")


def _main_memory(data: SummaryData) -> Tile:
    key, label, memory = "main_memory", "main memory, peak", data.samples("cpu_memory")
    if not memory:
        return _unknown(key, label, "memory was not sampled", "system-usage")
    most = max(memory, key=lambda usage: usage.max)
    detail = "of host memory" + (f", on {most.node}" if len(memory) > 1 else "")
    return Tile(key, label, brief_percent(most.max), detail, "system-usage", most.max)


def _gpu_busy(data: SummaryData) -> Tile:
    if not data.span_ns:
        return _unknown("gpu_busy", "GPU busy", "no GPU activity recorded", "time-breakdown")
    detail = f"of the {wording.duration(data.window_ns)} profile window"
    if len(data.breakdown) > 1:
        detail += f", {wording.plural(len(data.breakdown), 'GPU')}"
    return Tile("gpu_busy", "GPU busy", brief_percent(data.busy_percent), detail, "time-breakdown", data.busy_percent)


def _copies(data: SummaryData) -> Tile:
    key, label = "copies", "exposed copies"
    if not data.span_ns:
        return _unknown(key, label, "no GPU activity recorded", "time-breakdown")
    percent = only_copied(data.breakdown)
    return Tile(key, label, brief_percent(percent), "of GPU time in the profile window", "time-breakdown", percent)


def _mfu(data: SummaryData) -> Tile:
    """Return model FLOPs over the time of the steps times the dense peak."""
    key, label, anchor, work = "mfu", "MFU", "efficiency", data.report.efficiency
    if work is None or work.mfu_percent is None:
        return _unknown(key, label, (work and work.no_mfu) or "no operators with known FLOPs", anchor)
    value = f"{'at least ' if work.lower_bound else ''}{brief_percent(work.mfu_percent)}"
    over = {"steps": "step time", "iterations": "iteration time"}.get(work.measured_over or "", work.measured_over or "time")
    return Tile(key, label, value, f"model FLOPs over {over} × {_peak(data, work)}", anchor, work.mfu_percent)


def _peak(data: SummaryData, work: Efficiency) -> str:
    """Name the dense peaks of the types of the matrix work, the largest part first.

    Without their shares: of the types of the operators' inputs, by FLOPs.
    """
    products = {peaks.product: peaks for peaks in work.peaks}
    if len(products) != 1:
        return "dense peaks"
    (peaks,) = products.values()
    parts: dict[str, float] = {share.name.lower(): share.percent for share in data.report.precision.matrix if share.percent >= _LEAST_TYPE}
    if not parts.keys() & peaks.flop_per_s.keys():
        parts = {}
        for row in work.operators:
            if row.compute_type and row.flop_per_call:
                parts[row.compute_type] = parts.get(row.compute_type, 0) + row.calls * row.flop_per_call
    kinds = sorted(parts.keys() & peaks.flop_per_s.keys(), key=lambda kind: (-parts[kind], kind))
    if not kinds:
        return "dense peak"
    named = ", ".join(f"{kind.upper()} {wording.significant(peaks.flop_per_s[kind] / 1e12)}" for kind in kinds)
    return f"dense {'peak' if len(kinds) == 1 else 'peaks'} ({named} TFLOPS)"


def _gpu_memory(data: SummaryData) -> Tile:
    key, label, anchor = "gpu_memory_peak", "GPU memory, peak", "gpu-memory"
    sampled = [(100 * row.max / row.total, row) for row in data.report.gpu_memory or () if row.total]
    if sampled:
        percent, row = max(sampled, key=lambda pair: pair[0])
        total = f"{wording.size(row.total)} of " if row.unit == "B" and row.total else ""
        return Tile(key, label, brief_percent(percent), f"of {total}{row.node} GPU {row.device}", anchor, percent)
    allocated = max(data.report.allocator_memory or (), key=lambda row: row.peak, default=None)
    if allocated is None:
        return _unknown(key, label, "GPU memory was not recorded", anchor)
    of = f" of {wording.size(allocated.total)}" if allocated.total else ""
    detail = f"allocated{of} by {process_place(allocated.node, allocated.rank, allocated.pid)}"
    return Tile(key, label, wording.size(allocated.peak), detail, anchor, float(allocated.peak), "bytes")


def _step_time(data: SummaryData) -> Tile:
    key, label, anchor = "step_time", "step time", "steps"
    times, every = spread(data.report.steps), step_times(data.report.steps)
    if times is None or every is None:
        return _unknown(key, label, "no steps recorded", anchor)
    if processes := uneven_processes(data.report.steps):
        (low, fast), (high, slow) = processes
        detail = f"median of {slow}, the slowest; {wording.duration(low)} on {fast}, on the host"
        return Tile(key, label, wording.duration(high), detail, anchor, high, "ns")
    details = [f"median of {every.counted}" if times.count > 1 else "one step"]
    if every.measure == HOST:
        details[0] += " on the host"
    elif every.measure == FROM_STEP_TO_STEP:
        # Shorter if the device waits before the first launch of a step, longer if the work of steps overlaps.
        details[0] += ", step to step"
        steps = main_steps(data.report.steps.steps)
        why = " (GPU work of steps overlaps)" if work_overlaps(steps) else ""
        details += [f"GPU time {wording.duration(statistics.median(per_step(steps)))}{why}"]
    elif times.count == 1:
        details[0] += ", without the wait before it"
    return Tile(key, every.name, wording.duration(times.p50), ", ".join(details), anchor, times.p50, "ns")


def _iteration_time(data: SummaryData) -> Tile:
    kind = data.main_iterations
    if kind is None:
        return _unknown("iteration_time", "iteration time", "no ranges of an inference engine recorded", "time-breakdown")
    detail = f"median of {wording.count(kind.count)}, p90 {wording.duration(kind.p90_ns)}"
    return Tile("iteration_time", f"{kind.kind} iteration", wording.duration(kind.median_ns), detail, "iterations", kind.median_ns, "ns")


def _tokens(data: SummaryData) -> Tile:
    key, label = "tokens_per_s", "tokens per second"
    rates = sorted(
        ((kind.kind, kind.tokens_per_s) for kind in data.report.iteration_kinds if kind.tokens_per_s is not None),
        key=lambda rate: rate[0] != "decode",
    )
    if not rates:
        return _unknown(key, label, "no numbers of tokens recorded", "iterations" if data.report.iteration_kinds else "time-breakdown")
    parts = [f"{wording.count(round(rate))} in {kind}" for kind, rate in rates[1:]]
    detail = ", ".join([f"of a process in {rates[0][0]}", *parts])
    return Tile(key, label, wording.count(round(rates[0][1])), detail, "iterations", rates[0][1], "1/s")


def _exposed_communication(data: SummaryData) -> Tile:
    key, label, anchor = "exposed_communication", "exposed communication", "time-breakdown"
    if not data.span_ns:
        return _unknown(key, label, "no GPU activity recorded", anchor)
    if not any(device.communication_ns for device in data.breakdown):
        return _unknown(key, label, "no collective kernels recorded", anchor)
    percent = data.exposed_communication_percent
    return Tile(key, label, brief_percent(percent), "of GPU time in the profile window", anchor, percent)


def _data_loading(data: SummaryData) -> Tile:
    key, label, anchor = "data_loading", "data loading", "steps"
    steps, loading = data.report.steps, data_loading(data.report.steps)
    if loading is None and steps.parts:
        numbers = {number for part in steps.parts for number in part.numbers}
        single = len(numbers) == 1
        traced = f"only {'step' if single else 'steps'} {wording.numbered(numbers)} {'was' if single else 'were'} traced"
        partly = {number for part in steps.parts for number in part.partly}
        more = f" (and a part of step {wording.numbered(partly)})" if partly else ""
        return _unknown(key, label, f"{traced}{more}, which {'is' if single else 'are'} not typical", anchor)
    if steps.parts_absent is not None:
        return _unknown(key, label, steps.parts_absent, anchor)
    if loading is None or not loading.total_ns:
        profiled = "no profiled steps" if any(step.phase for step in steps.steps) else "nothing annotated inside of the steps"
        return _unknown(key, label, profiled if steps.steps else "no steps recorded", anchor)
    if not data.loader_recorded:
        annotated = all(part.annotated for part in steps.parts)
        named_ns = sum(part.total_ns for part in data.report.framework.step_parts if part.name == "data loading")
        if named_ns and not annotated:
            ranges = f"ranges named so took {wording.duration(named_ns)}"
            return _unknown(key, label, f"no data-loader events; {ranges}", anchor)
        return _unknown(key, label, "no part of a step named as data loading" if annotated else "no data-loader events recorded", anchor)
    window = " in the profile window" if data.span_ns and not any(part.annotated for part in steps.parts) else ""
    detail = f"of the mean step, {wording.duration(loading.waited_ns / loading.steps)}{loading_basis(steps) or window}"
    return Tile(key, label, brief_percent(loading.percent), detail, anchor, loading.percent)


def _lower_precision(data: SummaryData) -> Tile:
    key, label, anchor = "lower_precision", "lower precision", "precision"
    matrix = data.report.precision.matrix
    total = sum(share.total_ns for share in matrix)
    if not total:
        return _unknown(key, label, "no matrix kernels recorded", anchor)
    if all(share.name == "unknown" for share in matrix):
        return _unknown(key, label, "precision of the matrix kernels is unknown", anchor)
    # Shares are ordered by time: the first is the main one.
    low = [share for share in matrix if share.name in BELOW_FP32]
    named = " and ".join(f"{wording.whole_percent(share.percent)} {share.name}" for share in low[:2]) if len(low) > 1 else ""
    parts = [f"of {wording.duration(total)} in matrix kernels"]
    parts += [named or low[0].name] if low else []
    unknown = sum(share.percent for share in matrix if share.name == "unknown")
    if unknown >= _UNKNOWN_PERCENT:
        parts.append(f"{wording.whole_percent(unknown)} unknown")
    percent = float(sum(share.percent for share in low))
    return Tile(key, label, wording.percent(percent), ", ".join(parts), anchor, percent)


def _unknown(key: str, label: str, why: str, anchor: str) -> Tile:
    return Tile(key, label, NOT_KNOWN, why, anchor)
