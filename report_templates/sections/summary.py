"""What must a reader know after ten seconds? The first page: headline, tiles, where the time went, the longest kernels."""

from __future__ import annotations

from ...analysis.report import Report
from ..blocks import Cell, Column, Section, heaviest, of_all, say, table, value, word
from ..formats import duration, percent
from .time_breakdown import bars

# Word and sign of a verdict, most important first.
_VERDICTS = {"IssuesFound": "✕ Issue", "Error": "! Error", "NoIssuesFound": "✓ Fine", "NotEvaluated": "– Not evaluated"}


def summary(report: Report) -> Section:
    made = Section("summary", "Summary", say("{}", report.summary.headline))
    shown = heaviest(report.time_breakdown, 8, lambda d: d.idle_ns + d.exposed_communication_ns + d.exposed_memory_ns)
    if shown:
        more = of_all(len(shown), len(report.time_breakdown), "device")
        made.add(bars("summary-time", shown, say("Where the time of each GPU went, in percent of its span.{}", more)))
    made.add(
        table(
            "summary-kernels",
            "Longest kernels",
            [
                Column("#", "number"),
                Column("Kernel", "name"),
                Column("Precision"),
                Column("Total", "number"),
                Column("Of kernel time", "number"),
            ],
            [
                [
                    Cell(str(number)),
                    word(kernel.short_name, full=kernel.name, limit=60),
                    word(kernel.precision),
                    value(kernel.total_ns, duration),
                    value(kernel.share_of_kernel_time, percent),
                ]
                for number, kernel in enumerate(report.kernels[:5], 1)
            ],
            sortable=False,
        )
    )
    order = list(_VERDICTS)
    rules = sorted(report.rules, key=lambda rule: (order.index(rule["verdict"]) if rule["verdict"] in order else len(order), rule["rule"]))
    made.add(
        table(
            "summary-rules",
            "Rules",
            [Column("Verdict"), Column("Rule", "name"), Column("What was found")],
            [
                [
                    Cell(_VERDICTS.get(rule["verdict"], f"! {rule['verdict']}")),
                    word(rule["rule"]),
                    word(rule.get("finding") or rule.get("reason"), limit=400),
                ]
                for rule in rules
            ],
        )
    )
    return made
