"""Did all GPUs have the same workload?"""

from __future__ import annotations

from ..blocks import Cell, Column, Figure, of_all, say, spread, table, value
from ..figures.matrix import matrix
from ..figures.workloads import Workload, workloads
from ..formats import UNKNOWN, percent, plural
from .reading import Blocks, Row, Shown, marked, number, numbers, part, place, points, rows, text, truth

_DRAWN = 8
_MATRIX = 64


def load_balancing(shown: Shown) -> Blocks:
    pairs = rows(shown.details, "pairs")
    threshold = shown.parameter("threshold")
    mean = text(shown.details, "compared") == "mean"
    return [
        _workloads(shown),
        _matrix(shown, threshold),
        table(
            f"{shown.id}-pairs",
            "GPUs furthest from the mean workload" if mean else "Pairs of GPUs with the most different workloads",
            [
                Column("GPU", "name"),
                Column("Compared with"),
                Column("Distance", "number"),
                Column("Difference of means", "number"),
                Column("Judged"),
            ],
            [
                [
                    Cell(place(part(pair, "a"))),
                    Cell(place(part(pair, "b")) if part(pair, "b") else "mean of all GPUs"),
                    value(number(pair, "distance"), _distance),
                    value(number(pair, "mean_difference"), points),
                    marked(truth(pair, "violation")),
                ]
                for pair in pairs
            ],
            pdf_rows=8,
        ),
    ]


def _workloads(shown: Shown) -> Figure | None:
    devices = [device for device in rows(shown.details, "devices") if numbers(device, "histogram")]
    if not devices:
        return None
    kept = spread(devices, _DRAWN, lambda device: number(device, "mean") or 0.0)
    means = [mean for device in devices if (mean := number(device, "mean")) is not None]
    apart = f"Means lie between {percent(min(means))} and {percent(max(means))}." if means else "Means are not known."
    derived = " Derived from kernel activity." if all(truth(device, "derived") for device in devices) else ""
    return Figure(
        f"{shown.id}-workloads",
        workloads([_workload(device) for device in kept]),
        f"Workload histograms of {plural(len(devices), 'GPU')}. {apart}",
        say(
            "For which share of the samples each GPU was how busy, in bins of 2 %. Even work looks alike in every row. {}{}{}",
            apart,
            derived,
            of_all(len(kept), len(devices), "GPU", "mean utilisation"),
        ),
    )


def _workload(device: Row) -> Workload:
    mean = number(device, "mean")
    return Workload(place(device), numbers(device, "histogram"), mean, f"mean {percent(mean)}" if mean is not None else "")


def _matrix(shown: Shown, threshold: float | None) -> Figure | None:
    devices = rows(shown.details, "devices")
    found = shown.details.get("matrix")
    if not isinstance(found, list | tuple) or not 2 <= len(devices) <= _MATRIX or len(found) != len(devices):
        return None
    values = [[_known(entry) for entry in line] if isinstance(line, list | tuple) else [] for line in found]
    known = [entry for row, line in enumerate(values) for column, entry in enumerate(line) if entry is not None and row != column]
    if not known:
        return None
    furthest = f"The largest distance is {_distance(max(known))}"
    compared = f"; the threshold is {threshold:g}." if threshold is not None else "."
    return Figure(
        f"{shown.id}-matrix",
        matrix([place(device) for device in devices], values, "distance"),
        f"Distances between the workloads of {plural(len(devices), 'GPU')}. {furthest}{compared}",
        say(
            "Jensen-Shannon distance (logarithm base 2) between the workload histograms: 0 is equal, 1 is nothing in common. {}{}",
            furthest,
            compared,
        ),
    )


def _known(entry: object) -> float | None:
    return number({"value": entry}, "value")


def _distance(found: float | None) -> str:
    return UNKNOWN if found is None else f"{found:.3f}"
