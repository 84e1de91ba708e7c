"""Section "The two runs" of a comparison: the runs, and the circumstances in which they differ."""

from __future__ import annotations

from ...analysis.report.comparison import Comparison
from ..blocks import Section, say
from ..blocks.tables import Cell, Col, table
from ..text.formats import UNKNOWN, capitalized, plural


def alike(made: Comparison) -> Section:
    limits = [one for one in made.differences if one.limits]
    if limits:
        lead = say("Not alike: {} what may be concluded.", f"{plural(len(limits), 'difference limits', 'differences limit')}")
    elif made.differences:
        lead = say("Alike in what limits a comparison: {}, which it allows for.", plural(len(made.differences), "other difference"))
    else:
        lead = say("Alike in everything that the reports tell of their circumstances.")
    found = Section("alike", "The two runs", lead)
    found.add(
        table(
            "alike-runs",
            "The runs",
            (("base", made.base), ("new", made.new)),
            Col("Side", lambda pair: pair[0], kind="name"),
            Col("Run", lambda pair: pair[1].name, limit=60),
            Col("What it is", lambda pair: pair[1].subtitle),
            Col("Status", lambda pair: pair[1].status),
            Col("Read from", lambda pair: pair[1].given or pair[1].read_from, limit=80, html_only=True),
            Col("Its report says", lambda pair: pair[1].headline, limit=240),
            sortable=False,
        ),
        table(
            "alike-differences",
            "What differs beside the measurements",
            made.differences,
            Col("Circumstance", lambda row: Cell(row.name), kind="name"),
            Col("Base", lambda row: row.base),
            Col("New", lambda row: row.new),
            Col("What it forbids to conclude", lambda one: capitalized(one.limits) if one.limits else UNKNOWN, limit=160),
            sortable=False,
            pdf_rows=30,
        ),
    )
    return found
