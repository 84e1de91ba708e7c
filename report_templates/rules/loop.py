"""Blocks of the rules over the training loop: its beginning, its slow steps, its loading of data."""

from __future__ import annotations

import dataclasses
import statistics
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
from ...analysis.report.trace_details import InputBoundDetails
from ..blocks import Figure, say
from ..blocks.pooled import pooled
from ..blocks.spans import step_span
from ..blocks.tables import Cell, Col, table
from ..figures.distribution import Row, distribution
from ..figures.histogram import histogram
from ..figures.strips import Piece, Strip, strips
from ..figures.svg import SMALL
from ..text import labels
from ..text.formats import UNKNOWN, clip, count, duration, percent, plural, threshold_text
from .bottlenecks import during
from .rule_context import Blocks, RuleContext, answer, bins, marked, narrow

_PHASES: Final = 4  # drawn
_NAMED: Final = 5  # outliers with their numbers
_NEARLY: Final = 1.01  # ratio of the ends of values that are one block
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
    drawn = [Strip(f"Duration of the run: {duration(details.duration_ns)}", pieces)]
    return [
        Figure(
            f"{context.id}-parts",
            strips(drawn),
            f"Parts of the run: {', '.join(f'{piece.name} {piece.value}' for piece in pieces)}",
            say("From the first to the last sample or event. The largest part is the {} with {}.{}", largest.name, largest.value, compared),
            small=strips(drawn, width=SMALL),
        )
    ]


def step_outlier(context: RuleContext, details: StepOutlierDetails) -> Blocks:
    groups = sorted(details.groups, key=lambda group: (not group.evaluable, -(group.outliers or 0), -group.steps))
    return [
        None if all(group.steps <= 1 for group in groups) else _distribution(context, details, groups),
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
                span=lambda step: step_span(step),
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


def _distribution(context: RuleContext, details: StepOutlierDetails, groups: Sequence[StepGroup]) -> Figure | None:
    """Draw the steps of all processes, a row per phase.

    These are the phases with outliers, or else the first one.
    """
    chosen = [group for group in groups if group.outliers] or groups[:1]
    rows, texts, cut, thresholds = [], [], [], set()
    for phase, on_device in list(dict.fromkeys((group.phase, group.on_device) for group in chosen))[:_PHASES]:
        members = [group for group in groups if (group.phase, group.on_device) == (phase, on_device)]
        histograms = [group.histogram for group in members if bins(group.histogram, "", None) is not None and group.histogram is not None]
        if not histograms:
            continue
        edges, counts = pooled(histograms)
        slow = [step for step in details.slowest if step.outlier and step.index is not None and step.phase == phase]
        named = {f"step {step.index}": float(step.duration_ns) for step in sorted(slow, key=lambda step: step.duration_ns)}
        named_last = sorted(((time, text) for text, time in named.items()), reverse=True)[:_NAMED]
        rows.append(Row(clip(phase or "profiled", 24), edges, counts, statistics.median(group.p50_ns for group in members), named_last))
        judged = [group for group in members if group.evaluable]
        thresholds |= {duration(group.threshold_ns) for group in judged}
        if beyond := sum(histogram.beyond for histogram in histograms):  # of a report from an earlier version
            longest = duration(max(group.max_ns for group in members))
            cut.append(f" Not drawn: {plural(beyond, 'step')} above {duration(edges[-1])}, the longest {longest}.")
        outliers = sum(group.outliers or 0 for group in members)
        over = f"{plural(outliers, 'outlier')} among {plural(sum(group.steps for group in members), 'step')}"
        texts.append(f"{phase or 'profiled'}: {over if judged else 'too few steps to be judged'}")
    if not rows or (len(rows) == 1 and not any(group.outliers for group in chosen) and rows[0].edges[-1] < _NEARLY * rows[0].edges[0]):
        return None
    limit = max(group.threshold_ns for group in chosen)
    several = "highest threshold" if len(thresholds) > 1 else "threshold"
    drawn = (limit, f"{several} {duration(limit)}") if thresholds else None
    if len(rows) == 1:
        rows = [dataclasses.replace(rows[0], label="")]
    return Figure(
        f"{context.id}-steps",
        distribution(rows, "step time", "computation", drawn),
        f"Distribution of the steps. {'; '.join(texts)}",
        say(
            "{}. With this factor, at most {} of the steps can ever be outliers.{}",
            "; ".join(texts),
            percent(details.limit_percent),
            "".join(cut),
        ),
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


def input_bound(context: RuleContext, details: InputBoundDetails) -> Blocks:
    rows = sorted(details.processes, key=lambda row: -row.percent)
    threshold = context.parameter("threshold")
    limit = f"; more than {threshold_text(threshold)} is an issue" if threshold is not None else ""
    unknown = "" if details.loader.num_workers is not None else "The recording contains no settings of the data loader. "
    return [
        table(
            f"{context.id}-processes",
            "Waits for data by process",
            rows,
            Col("Process", lambda row: Cell(labels.process(row.node, row.rank, row.pid), sort=row.rank), kind="name"),
            Col("Verdict", lambda row: marked(row.issue)),
            Col("Waits, share", lambda row: row.percent, percent),
            Col("Waits", lambda row: row.waiting_ns, duration),
            Col("Time of the steps", lambda row: row.steps_ns, duration),
            Col("Steps", lambda row: row.steps, count),
            Col("Wait per step", lambda row: row.waiting_ns / row.steps if row.steps else None, duration),
            pdf_rows=8,
            note=f"Share of the time of the steps{limit}.",
        ),
        table(
            f"{context.id}-loader",
            "Data loader of the process that waits longest",
            rows[:1],
            Col("Process", lambda row: Cell(labels.process(row.node, row.rank, row.pid)), kind="name"),
            Col("num_workers", lambda _: details.loader.num_workers, count),
            Col("prefetch_factor", lambda _: details.loader.prefetch_factor, count),
            Col("pin_memory", lambda _: answer(details.loader.pin_memory, "True", "False")),
            Col("Cores of the node", lambda _: details.loader.cores, count),
            Col("CPU use of the node", lambda _: details.loader.core_percent, percent),
            Col("Training processes of the node", lambda _: details.loader.processes, count),
            sortable=False,
            note=f"{unknown}CPU use: of all programs on the node, mean of its cores during the steps.",
        ),
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
            Col("Source", lambda node: _SOURCES.get(node.source)),
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
