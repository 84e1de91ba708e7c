"""Which two runs are compared, and how alike are they?"""

from __future__ import annotations

from ...analysis.comparison import Comparison
from ..blocks import Cell, Column, Section, say, table, word
from ..formats import UNKNOWN, plural


def alike(made: Comparison) -> Section:
    limits = [one for one in made.differences if one.limits]
    if limits:
        lead = say("Not alike: {} what may be concluded.", f"{plural(len(limits), 'difference limits', 'differences limit')}")
    elif made.differences:
        lead = say("Alike in what limits a comparison: {}, which it allows for.", plural(len(made.differences), "other difference"))
    else:
        lead = say("Alike in everything that the reports tell of their circumstances.")
    found = Section("alike", "The two runs", lead)
    sides = (("base", made.base), ("new", made.new))
    found.add(
        table(
            "alike-runs",
            "The runs",
            [
                Column("Side", "name"),
                Column("Run"),
                Column("What it is"),
                Column("Status"),
                Column("Read from", html_only=True),
                Column("Its report says"),
            ],
            [
                [
                    Cell(label),
                    word(side.name, limit=60),
                    word(side.subtitle),
                    word(side.status),
                    word(side.given or side.read_from, limit=80),
                    word(side.headline, limit=240),
                ]
                for label, side in sides
            ],
            sortable=False,
        ),
        table(
            "alike-differences",
            "What differs beside the measurements",
            [Column("Circumstance", "name"), Column("Base"), Column("New"), Column("What it forbids to conclude")],
            [
                [
                    Cell(one.name),
                    word(one.base),
                    word(one.new),
                    word(one.limits[:1].upper() + one.limits[1:] if one.limits else UNKNOWN, limit=160),
                ]
                for one in made.differences
            ],
            sortable=False,
            pdf_rows=30,
        ),
    )
    return found
