"""The five tiles of the first page. An unknown value is "—", with the reason on the second line."""

from __future__ import annotations

import statistics
from typing import Final

from ..device.precision import BELOW_FP32
from ..report.run import Tile
from ..steps.step_time import FROM_STEP_TO_STEP, HOST, main_steps, per_step, step_times
from ..toolkit import wording
from .summary_data import SummaryData, median_range, p95_text
from .summary_steps import SEVERAL, data_loading, loading_basis, longest_step, profiled_left_out, spread, uneven_processes

NOT_KNOWN: Final = "—"
_DIFFERENT: Final = 0.03  # of the step time; a GPU time per step that differs by more is next to it
_RECORDED: Final = "postrun capture"  # format of the sources that the capture library wrote
_UNKNOWN_PERCENT: Final = 5.0  # unknown precision from which the tile states it


def tiles(data: SummaryData) -> tuple[Tile, ...]:
    """Return the GPU's tiles; without GPU data, the host's where known.

    An inference has iterations and tokens instead of steps and data loading."""
    if data.inference:
        figures = (_gpu_busy(data), _iteration_time(data), _exposed_communication(data), _tokens(data), _lower_precision(data))
    else:
        figures = (_gpu_busy(data), _step_time(data), _exposed_communication(data), _data_loading(data), _lower_precision(data))
    if data.breakdown or data.gpu_samples:
        return figures
    return tuple(host or figure for host, figure in zip(_of_host(data), figures, strict=True))


def _of_host(data: SummaryData) -> list[Tile | None]:
    """Return CPU utilization, longest step and memory, or None, by position.

    Each replaces the GPU tile at its position. A recording by postrun contains no GPU data, so there even an unknown value of the host
    replaces the tile.
    """
    cpu, memory = data.samples("cpu"), data.samples("cpu_memory")
    figures: list[Tile | None] = [None] * 5
    if any(source.format == _RECORDED for source in data.report.run.sources):
        too_short = f"fewer than {SEVERAL} steps{' without a profiler' if profiled_left_out(data.report.steps) else ''}"
        figures[0] = _unknown("cpu_utilisation", "CPU utilization (median)", "processors were not sampled", "system-usage")
        figures[2] = _unknown("longest_step", "longest step", too_short if data.report.steps.steps else "no steps recorded", "steps")
        figures[4] = _unknown("main_memory", "main memory", "memory was not sampled", "system-usage")
    if cpu:
        lowest = min(usage.p50 for usage in cpu)
        detail = f"p95 {p95_text(cpu)}"
        figures[0] = Tile("cpu_utilisation", "CPU utilization (median)", median_range(cpu), detail, "system-usage", lowest)
    if longest := longest_step(data.report.steps):
        ns, profiler = longest.step.duration_ns, longest.step.profiled
        without = ", without profiled steps" if profiled_left_out(data.report.steps) else f", with {profiler} on" if profiler else ""
        detail = f"{longest.name}, {wording.significant(longest.ratio)} times the median{without}"
        figures[2] = Tile("longest_step", "longest step", wording.duration(ns), detail, "steps", ns, "ns")
    if memory:
        most = max(memory, key=lambda usage: usage.max)
        detail = "of host memory at most" + (f", on {most.node}" if len(memory) > 1 else "")
        figures[4] = Tile("main_memory", "main memory", wording.percent(most.max), detail, "system-usage", most.max)
    return figures


def _gpu_busy(data: SummaryData) -> Tile:
    sampled = data.gpu_samples
    p95 = f"p95 of utilization {p95_text(sampled)}" if sampled else ""
    if data.span_ns:
        detail = p95 or f"of the span of {wording.plural(len(data.breakdown), 'GPU')}"
        return Tile("gpu_busy", "GPU busy", wording.percent(data.busy_percent), detail, "time-breakdown", data.busy_percent)
    if sampled:
        lowest = min(usage.p50 for usage in sampled)
        return Tile("gpu_busy", "GPU utilization (median)", median_range(sampled), p95, "system-usage", lowest)
    return _unknown("gpu_busy", "GPU busy", "no GPU activity recorded", "time-breakdown")


def _step_time(data: SummaryData) -> Tile:
    key, label, anchor = "step_time", "step time", "steps"
    times, every = spread(data.report.steps), step_times(data.report.steps)
    if times is None or every is None:
        return _unknown(key, label, "no steps recorded", anchor)
    if processes := uneven_processes(data.report.steps):
        (low, fast), (high, slow) = processes
        detail = f"median of {slow}, the slowest; {wording.duration(low)} on {fast}, on the host"
        return Tile(key, label, wording.duration(high), detail, anchor, high, "ns")
    if times.count >= SEVERAL:
        details = [f"p95 {wording.duration(times.p95)}"]
    else:
        details = [f"median of {every.counted}" if times.count > 1 else "one step"]
    if every.measure == HOST:
        details[0] += " on the host"
    elif every.measure == FROM_STEP_TO_STEP:
        # Shorter where the device waits before the first launch of a step, longer where the work of steps overlaps.
        work = statistics.median(per_step(main_steps(data.report.steps.steps)))
        details += [f"GPU time per step {wording.duration(work)}"] if abs(work - times.p50) > _DIFFERENT * times.p50 else []
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
    detail = f"of the span of {wording.plural(len(data.breakdown), 'GPU')}"
    if (average := data.report.step_breakdown.average) is not None:
        detail = f"{wording.duration(average.mean_ns('exposed_communication'))} per step"
    percent = data.exposed_communication_percent
    return Tile(key, label, wording.percent(percent), detail, anchor, percent)


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
    detail = f"{wording.duration(loading.waited_ns / loading.steps)} per step{loading_basis(steps)}"
    return Tile(key, label, wording.percent(loading.percent), detail, anchor, loading.percent)


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
