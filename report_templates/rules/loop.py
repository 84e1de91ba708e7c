"""Blocks of the rules over the training loop: its beginning, its slow steps, its loading of data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from ...analysis.report.loop_details import (
    DataloaderDetails,
    HostPreprocessingDetails,
    MaxInitializationTimeDetails,
    SlowStep,
    StepGroup,
    StepOutlierDetails,
)
from ..blocks import Figure, say
from ..blocks.spans import Span
from ..blocks.tables import Cell, Col, table
from ..figures.histogram import histogram, panels
from ..figures.strips import Piece, Strip, strips
from ..text import labels
from ..text.formats import UNKNOWN, clip, count, duration, percent, plural
from .bottlenecks import during
from .rule_context import Blocks, RuleContext, answer, bins, marked, narrow

_GROUPS: Final = 3  # drawn twice each: with and without their outliers
_SOURCES: Final = {"num_workers": "num_workers", "overlap": "overlap of loading intervals"}


def max_initialization_time(context: RuleContext, details: MaxInitializationTimeDetails) -> Blocks:
    parts = (
        ("initialization", "loading", details.initialization_ns, details.initialization_percent),
        ("training loop", "computation", details.loop_ns, details.loop_percent),
        ("finalization", "idle", details.finalization_ns, details.finalization_percent),
    )
    pieces = [
        Piece(label, share, f"{duration(time)} ({percent(share)})", meaning)
        for label, meaning, time, share in parts
        if share is not None and time is not None
    ]
    if not pieces or not details.duration_ns:
        return []
    limit = context.parameter("threshold")
    compared = f" The threshold for the initialization is {limit:g} min." if limit is not None else ""
    largest = max(pieces, key=lambda piece: piece.percent)
    return [
        Figure(
            f"{context.id}-parts",
            strips([Strip(f"Duration of the run: {duration(details.duration_ns)}", pieces)]),
            f"Parts of the run: {', '.join(f'{piece.name} {piece.value}' for piece in pieces)}",
            say("From the first to the last sample or event. The largest part is the {} with {}.{}", largest.name, largest.value, compared),
        )
    ]


def step_outlier(context: RuleContext, details: StepOutlierDetails) -> Blocks:
    groups = sorted(details.groups, key=lambda group: (not group.evaluable, -(group.outliers or 0), -group.steps))
    return [
        *([] if all(group.steps <= 1 for group in groups) else _distributions(context, groups, details.limit_percent)),
        table(
            f"{context.id}-slowest",
            "Slowest steps and what took longer in them than in a typical step",
            details.slowest,
            Col("Step", lambda step: Cell(f"step {step.index}", sort=step.index), kind="name"),
            Col("Process", lambda step: Cell(_process(step))),
            Col(
                "Began after",
                lambda step: context.after(step.start_ns),
                kind="number",
                html_only=True,
                span=lambda step: Span(step.start_ns, step.start_ns + step.duration_ns, step.rank),
            ),
            Col("Duration", lambda step: step.duration_ns, duration),
            Col("Typical", lambda step: step.typical_ns, duration),
            Col("Outlier", lambda step: "yes" if step.outlier else "no", html_only=True),
            Col("Took longer", _longer, limit=120),
            pdf_rows=5,
        ),
        table(
            f"{context.id}-groups",
            "Steps by process and phase",
            groups,
            Col("Process", lambda group: Cell(_process(group), sort=group.rank), kind="name"),
            Col("Steps", lambda group: group.steps, count),
            Col("Mean", lambda group: group.mean_ns, duration),
            Col("Deviation", lambda group: group.std_ns, duration),
            Col("Threshold", lambda group: group.threshold_ns if group.evaluable else None, duration),
            Col("Outliers", lambda group: group.outliers, count),
            Col("Max", lambda group: group.max_ns, duration),
            Col("p99", lambda group: group.p99_ns, duration, html_only=True),
            Col("p95", lambda group: group.p95_ns, duration, html_only=True),
            Col("p50", lambda group: group.p50_ns, duration),
            Col("Min", lambda group: group.min_ns, duration, html_only=True),
            Col("Robust outliers", lambda group: group.robust_outliers, count, html_only=True),
            pdf_rows=4,
            html_note=_robust(context),
        ),
        *during(context, details.active, "during the outlier steps"),
    ]


def _distributions(context: RuleContext, groups: Sequence[StepGroup], limit_percent: float) -> list[Figure]:
    """Draw groups with many outliers, once with and once without them."""
    with_outliers = [group for group in groups if group.outliers] or groups[:1]
    drawn = [figure for group in with_outliers[:_GROUPS] if (figure := _distribution(context, group)) is not None]
    if not drawn:
        return []
    most = f" With this factor at most {percent(limit_percent)} of the steps can ever be outliers."
    more = (
        f" {count(len(drawn))} of {count(len(with_outliers))} groups with outliers are drawn, those with the most."
        if len(drawn) < len(with_outliers)
        else ""
    )
    last = drawn[-1]
    drawn[-1] = dataclasses.replace(last, caption=last.caption + say("{}{}", most, more))
    return [dataclasses.replace(figure, id=f"{context.id}-steps{i or ''}") for i, figure in enumerate(drawn)]


def _distribution(context: RuleContext, group: StepGroup) -> Figure | None:
    outliers, limit = group.outliers or 0, group.threshold_ns
    every = bins(group.histogram, f"{_process(group)}: all steps", group.p50_ns, limit if group.evaluable else None)
    if not every or (narrow(every) and not outliers):
        return None
    over = f"{count(outliers)} above the threshold of {duration(limit)}" if group.evaluable else "too few to be judged"
    drawn, details = [every], [f"{plural(group.steps, 'step')}, {over}"]
    normal = bins(group.normal_histogram, f"{_process(group)}: without outliers", group.p50_ns, limit)
    if normal and outliers and not narrow(normal):
        drawn.append(normal)
        details.append(f"{plural(group.steps - outliers, 'step')}, {plural(outliers, 'outlier')} left out")
    summary = f"{_process(group)}: {plural(outliers, 'outlier')} among {plural(group.steps, 'step')}"
    cut = (
        f" Not drawn: {plural(every.beyond, 'step')} above {duration(every.edges[-1])}, the longest {duration(group.max_ns)}."
        if every.beyond
        else ""
    )
    return Figure(
        f"{context.id}-steps",
        panels(drawn, details, ["computation"] * len(drawn)),
        f"Step durations with and without outliers. {summary}",
        say("{}. Dashed: median; solid line: threshold, where it lies within the axis.{}", summary, cut),
    )


def _robust(context: RuleContext) -> str:
    factor = context.parameter("stddev")
    times = f"{factor:g}" if factor is not None else "the factor"
    return (
        f"Robust outliers are longer than the median + {times} × 1.4826 × the median absolute deviation, a limit that slow steps "
        f"hardly raise. They are for comparison: the rule compares with the mean + {times} × the standard deviation."
    )


def _process(row: StepGroup | SlowStep) -> str:
    return labels.process(row.node, row.rank, row.pid, clip(row.phase or "", 24) or None)


def _longer(step: SlowStep) -> str:
    """List the activity with the largest extra time against a typical step."""
    active = sorted((entry for entry in step.active if entry.extra_ns > 0), key=lambda entry: -entry.extra_ns)
    return ", ".join(f"{clip(entry.name or UNKNOWN, 36)} +{duration(entry.extra_ns)}" for entry in active[:3]) or "no recorded cause"


def host_preprocessing(context: RuleContext, details: HostPreprocessingDetails) -> Blocks:
    if details.known_percent is None:
        return []
    return [
        table(
            f"{context.id}-lines",
            "What ran in the calls of the data loader",
            details.rows,
            Col("Line or operator", lambda row: row.what, kind="name", code=True, limit=72),
            Col("Rank", lambda row: UNKNOWN if row.rank is None else str(row.rank)),
            Col("Calls", lambda row: row.calls, count),
            Col("Time", lambda row: row.time_ns, duration),
            Col("Of the loading", lambda row: row.percent, percent),
            note=f"The calls took {duration(details.loading_ns)}; the trace shows {percent(details.known_percent)} of what ran in them.",
        )
    ]


def dataloader(context: RuleContext, details: DataloaderDetails) -> Blocks:
    return [
        _loading(context, details),
        table(
            f"{context.id}-nodes",
            "Loading processes by node",
            details.nodes,
            Col("Node", lambda node: Cell(clip(node.node, 40)), kind="name"),
            Col("Loading processes", lambda node: node.loaders, lambda loaders: UNKNOWN if loaders is None else f"{loaders:g}"),
            Col("Cores", lambda node: node.cores, count),
            Col("Of the cores", lambda node: node.percent_of_cores, percent),
            Col("Verdict", lambda node: None if node.issue is None else marked(node.issue, "outside")),
            Col("Told by", lambda node: _SOURCES.get(node.source)),
            Col("Seconds seen", lambda node: node.seconds, count, html_only=True),
            pdf_rows=8,
        ),
        table(
            f"{context.id}-configurations",
            "Loaders by configuration",
            details.configurations,
            Col("Node", lambda loader: Cell(clip(loader.node, 40)), kind="name"),
            Col("num_workers", lambda loader: loader.num_workers, count),
            Col("pin_memory", lambda loader: answer(loader.pin_memory, "True", "False")),
            Col("prefetch_factor", lambda loader: loader.prefetch_factor, count),
            Col("Loaders", lambda loader: loader.count, count),
            pdf_rows=6,
        ),
    ]


def _loading(context: RuleContext, details: DataloaderDetails) -> Figure | None:
    times = details.loading
    drawn = bins(details.histogram, "", times.p50_ns)
    if drawn is None or narrow(drawn):
        return None
    quantiles = (("p25", times.p25_ns), ("median", times.p50_ns), ("p95", times.p95_ns), ("longest", times.max_ns))
    listed = ", ".join(f"{label} {duration(time)}" for label, time in quantiles)
    return Figure(
        f"{context.id}-times",
        histogram([drawn], "loading", "loads"),
        f"Distribution of {plural(times.count, 'loading time')}: {listed}",
        say("How long loading a batch took, {}: {}. A tail to the right makes the training wait.", plural(times.count, "time"), listed),
    )
