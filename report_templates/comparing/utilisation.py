"""Section "Sampled utilisation" of a comparison: mean utilization of GPUs and processors in both runs."""

from __future__ import annotations

from typing import Final

from ...analysis.report.comparison import Comparison
from ..blocks import Section, say
from ..blocks.tables import Cell, Col, table
from ..text.formats import percent, points
from . import words

_OVER: Final = {
    "steps": "from the begin of the first step to the end of the last",
    "profile": "over the spans of the GPUs",
    "run": "over all samples",
}


def utilisation(made: Comparison) -> Section:
    found = Section("utilisation", "Sampled utilisation", say("{}", _lead(made)))
    found.add(
        table(
            "utilisation-table",
            f"Means {_OVER[made.sampling.over]}",
            made.sampling.means,
            Col("Metric", lambda row: Cell(row.name), kind="name"),
            Col("Base", lambda row: row.base_percent, words.share),
            Col("New", lambda row: row.new_percent, words.share),
            Col("Difference", lambda row: row.difference_points, words.known(points)),
            sortable=False,
            note="Every machine that was sampled counts the same. No verdict follows from these: samplers see all that ran on a machine.",
        )
    )
    return found


def _lead(made: Comparison) -> str:
    means = made.sampling.means
    if not means:
        return "No samples of GPUs or processors in both runs."
    both = [
        f"{one.name} {percent(one.base_percent)} before, {percent(one.new_percent)} now ({points(one.difference_points)})"
        for one in means
        if one.absent is None
    ]
    told = [f"Means {_OVER[made.sampling.over]}: {'; '.join(both)}."] if both else []
    for why in dict.fromkeys(one.absent for one in means if one.absent is not None):
        told.append(f"{', '.join(one.name for one in means if one.absent == why)}: {why}.")
    return " ".join(told)
