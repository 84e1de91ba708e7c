"""What did the rules over the training loop see: its beginning, its slow steps, its loading of data?"""

from __future__ import annotations

import dataclasses

from ..blocks import Cell, Column, Figure, say, table, value, word
from ..figures.histogram import histogram, panels
from ..figures.strips import Piece, Strip, strips
from ..formats import clip, count, duration, percent, plural
from .bottlenecks import during
from .reading import Blocks, Row, Shown, answer, bins, marked, narrow, number, part, place, rows, text, truth, whole

_GROUPS = 3  # drawn twice each: with and without their outliers
_PARTS = (
    ("initialization", "initialisation", "loading"),
    ("loop", "training loop", "computation"),
    ("finalization", "finalisation", "idle"),
)


def max_initialization_time(shown: Shown) -> Blocks:
    found = shown.details
    total = number(found, "duration_ns")
    pieces = [
        Piece(label, share, f"{duration(time)} ({percent(share)})", meaning)
        for key, label, meaning in _PARTS
        if (share := number(found, f"{key}_percent")) is not None and (time := number(found, f"{key}_ns")) is not None
    ]
    if not pieces or not total:
        return []
    limit = shown.parameter("threshold")
    compared = f" The threshold for the initialisation is {limit:g} min." if limit is not None else ""
    largest = max(pieces, key=lambda piece: piece.percent)
    return [
        Figure(
            f"{shown.id}-parts",
            strips([Strip(f"Duration of the run: {duration(total)}", pieces)]),
            f"Parts of the run: {', '.join(f'{piece.name} {piece.shown}' for piece in pieces)}",
            say("From the first to the last sample or event. The largest part is the {} with {}.{}", largest.name, largest.shown, compared),
        )
    ]


def step_outlier(shown: Shown) -> Blocks:
    groups = sorted(
        rows(shown.details, "groups"),
        key=lambda group: (group.get("evaluable") is False, -(whole(group, "outliers") or 0), -(whole(group, "steps") or 0)),
    )
    few = all(whole(group, "steps") in (None, 0, 1) for group in groups)
    slowest = rows(shown.details, "slowest")
    return [
        *([] if few else _distributions(shown, groups)),
        table(
            f"{shown.id}-groups",
            "Steps by process and phase",
            [
                Column("Process", "name"),
                Column("Steps", "number"),
                Column("Mean", "number"),
                Column("Deviation", "number"),
                Column("Threshold", "number"),
                Column("Outliers", "number"),
                Column("Max", "number"),
                Column("p99", "number", html_only=True),
                Column("p95", "number", html_only=True),
                Column("p50", "number"),
                Column("Min", "number", html_only=True),
                Column("Robust outliers", "number", html_only=True),
            ],
            [
                [
                    Cell(_process(group), sort=whole(group, "rank")),
                    value(whole(group, "steps"), count),
                    value(number(group, "mean_ns"), duration),
                    value(number(group, "std_ns"), duration),
                    value(number(group, "threshold_ns") if group.get("evaluable") is not False else None, duration),
                    value(whole(group, "outliers"), count),
                    *(value(number(group, f"{key}_ns"), duration) for key in ("max", "p99", "p95", "p50", "min")),
                    value(whole(group, "robust_outliers"), count),
                ]
                for group in groups
            ],
            pdf_rows=4,
            html_note=_robust(shown),
        ),
        table(
            f"{shown.id}-slowest",
            "Slowest steps and what took longer in them than in a typical step",
            [
                Column("Step", "name"),
                Column("Process"),
                Column("Began after", "number"),
                Column("Duration", "number"),
                Column("Typical", "number"),
                Column("Outlier"),
                Column("Took longer"),
            ],
            [
                [
                    Cell(f"step {count(whole(step, 'index'))}", sort=whole(step, "index")),
                    Cell(_process(step)),
                    shown.after(number(step, "start_ns")),
                    value(number(step, "duration_ns"), duration),
                    value(number(step, "typical_ns"), duration),
                    Cell("yes" if truth(step, "outlier") else "no"),
                    word(_longer(step), limit=120),
                ]
                for step in slowest
            ],
            pdf_rows=5,
        ),
        *during(shown, part(shown.details, "active"), "during the outlier steps"),
    ]


def _distributions(shown: Shown, groups: list[Row]) -> list[Figure]:
    """A figure for each of the groups with most outliers: all steps, and those that are no outliers, each on its own axis."""
    with_outliers = [group for group in groups if whole(group, "outliers")] or groups[:1]
    drawn = [figure for group in with_outliers[:_GROUPS] if (figure := _distribution(shown, group)) is not None]
    if not drawn:
        return []
    share = number(shown.details, "limit_percent")
    most = f" With this factor at most {percent(share)} of the steps can ever be outliers." if share is not None else ""
    more = (
        f" {count(len(drawn))} of {count(len(with_outliers))} groups with outliers are drawn: those with most."
        if len(drawn) < len(with_outliers)
        else ""
    )
    last = drawn[-1]
    drawn[-1] = dataclasses.replace(last, caption=last.caption + say("{}{}", most, more))
    return [dataclasses.replace(figure, id=f"{shown.id}-steps{i or ''}") for i, figure in enumerate(drawn)]


def _distribution(shown: Shown, group: Row) -> Figure | None:
    outliers, steps, limit = whole(group, "outliers") or 0, whole(group, "steps") or 0, number(group, "threshold_ns")
    judged = group.get("evaluable") is not False
    every = bins(group, "histogram", f"{_process(group)}: all steps", number(group, "p50_ns"), limit if judged else None)
    if not every or (narrow(every) and not outliers):
        return None
    over = f"{count(outliers)} above the threshold of {duration(limit)}" if judged else "too few to be judged"
    drawn, details = [every], [f"{plural(steps, 'step')}, {over}"]
    normal = bins(group, "normal_histogram", f"{_process(group)}: without outliers", number(group, "p50_ns"), limit)
    if normal and outliers and not narrow(normal):
        drawn.append(normal)
        details.append(f"{plural(steps - outliers, 'step')}, {plural(outliers, 'outlier')} left out")
    found = f"{_process(group)}: {plural(outliers, 'outlier')} among {plural(steps, 'step')}"
    longest = number(group, "max_ns")
    cut = (
        f" Not drawn: {plural(every.beyond, 'step')} above {duration(every.edges[-1])}"
        + (f", the longest {duration(longest)}." if longest is not None else ".")
        if every.beyond
        else ""
    )
    return Figure(
        f"{shown.id}-steps",
        panels(drawn, details, ["computation"] * len(drawn)),
        f"Step durations with and without outliers. {found}",
        say("{}. Dashed: median; solid line: threshold, where it lies within the axis.{}", found, cut),
    )


def _robust(shown: Shown) -> str:
    factor = shown.parameter("stddev")
    times = f"{factor:g}" if factor is not None else "the factor"
    return (
        f"Robust outliers are longer than the median + {times} × 1.4826 × the median absolute deviation, a limit that slow steps "
        f"hardly raise. They are told for comparison: the rule judges by the mean + {times} × the standard deviation."
    )


def _process(row: Row) -> str:
    return place({key: row.get(key) for key in ("node", "rank", "pid", "phase")})


def _longer(step: Row) -> str:
    """What took most more time than in a typical step."""
    active = [entry for entry in rows(step, "active") if (number(entry, "extra_ns") or 0.0) > 0]
    active.sort(key=lambda entry: -(number(entry, "extra_ns") or 0.0))
    return (
        ", ".join(f"{clip(text(entry, 'name') or '–', 36)} +{duration(number(entry, 'extra_ns'))}" for entry in active[:3])
        or "nothing that was recorded"
    )


def dataloader(shown: Shown) -> Blocks:
    nodes = rows(shown.details, "nodes")
    return [
        _loading(shown),
        table(
            f"{shown.id}-nodes",
            "Loading processes by node",
            [
                Column("Node", "name"),
                Column("Loading processes", "number"),
                Column("Cores", "number"),
                Column("Of the cores", "number"),
                Column("Judged"),
                Column("Told by"),
                Column("Seconds seen", "number", html_only=True),
            ],
            [
                [
                    Cell(clip(text(node, "node") or "unknown host", 40)),
                    value(number(node, "loaders"), _few),
                    value(whole(node, "cores"), count),
                    value(number(node, "percent_of_cores"), percent),
                    Cell("–") if node.get("issue") is None else marked(truth(node, "issue"), "outside"),
                    Cell({"num_workers": "num_workers", "overlap": "overlap of loading intervals"}.get(text(node, "source") or "", "–")),
                    value(whole(node, "seconds"), count),
                ]
                for node in nodes
            ],
            pdf_rows=8,
        ),
        table(
            f"{shown.id}-configurations",
            "Loaders by configuration",
            [
                Column("Node", "name"),
                Column("num_workers", "number"),
                Column("pin_memory"),
                Column("prefetch_factor", "number"),
                Column("Loaders", "number"),
            ],
            [
                [
                    Cell(clip(text(found, "node") or "all", 40)),
                    value(whole(found, "num_workers"), count),
                    answer(found, "pin_memory", "True", "False"),
                    value(whole(found, "prefetch_factor"), count),
                    value(whole(found, "count"), count),
                ]
                for found in rows(shown.details, "configurations")
            ],
            pdf_rows=6,
        ),
    ]


def _loading(shown: Shown) -> Figure | None:
    loading = part(shown.details, "loading")
    drawn = bins(shown.details, "histogram", "", number(loading, "p50_ns"))
    if drawn is None or narrow(drawn):
        return None
    told = ", ".join(
        f"{label} {duration(found)}"
        for key, label in (("p25_ns", "p25"), ("p50_ns", "median"), ("p95_ns", "p95"), ("max_ns", "longest"))
        if (found := number(loading, key)) is not None
    )
    number_of = whole(loading, "count") or sum(drawn.counts) + drawn.beyond
    return Figure(
        f"{shown.id}-times",
        histogram([drawn], "loading", "loads"),
        f"Distribution of {plural(number_of, 'loading time')}: {told}",
        say(
            "How long loading a batch took, {}: {}. A tail to the right makes the training wait.",
            plural(number_of, "time"),
            told or "no percentiles",
        ),
    )


def _few(found: float | None) -> str:
    return "–" if found is None else f"{found:g}"
