"""Section "Precision" of a comparison: the arithmetic of the matrix work in both runs."""

from __future__ import annotations

from ...analysis.report.comparison import Comparison
from ..blocks import Figure, Section, say
from ..blocks.tables import Cell, Col, table
from ..figures.before_after import Pair, before_after
from ..text.formats import percent
from . import words


def precision(made: Comparison) -> Section:
    if not made.precision:
        return Section("precision", "Precision", say("No matrix kernels in both runs."))
    moved = [one for one in made.precision if one.state != "same"]
    told = ", ".join(f"{one.name} from {percent(one.base_percent)} to {percent(one.new_percent)}" for one in moved)
    lead = say("{} of the time in matrix kernels.", told) if moved else say("The matrix work runs in the same precision as before.")
    found = Section("precision", "Precision", lead)
    pairs = [
        Pair(one.name, "computation" if one.name != "unknown" else "other", one.base_percent, one.new_percent, "") for one in made.precision
    ]
    alt = "Matrix kernels by precision: " + ", ".join(
        f"{one.name} {percent(one.base_percent)} before and {percent(one.new_percent)} now" for one in made.precision
    )
    caption = say("Percent of the time in GEMM, attention and convolution kernels. Above, lighter: base; below: new.")
    found.add(
        Figure("precision-shares", before_after(pairs, "%", ("base", "new")), alt, caption),
        table(
            "precision-table",
            "Matrix kernels by precision",
            made.precision,
            Col("Precision", lambda row: Cell(row.name), kind="name"),
            Col("Time, base", lambda row: row.base_percent, words.share),
            Col("Time, new", lambda row: row.new_percent, words.share),
            Col("Runs, base", lambda row: row.base_count_percent, words.share),
            Col("Runs, new", lambda row: row.new_count_percent, words.share),
            words.VERDICT,
            note="A share changed where those of time and of runs moved by at least five percentage points alike.",
        ),
    )
    return found
