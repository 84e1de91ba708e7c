"""Section "Ranks compared": differences between ranks, and the ranks that others wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...analysis.report.collectives import WaitLink
from ...analysis.report.model import Report
from ...analysis.report.steps import RankComparison, RankRow
from ...analysis.toolkit.wording import numbered
from ..blocks import Block, Figure, Only, Section, of_all, say, spread
from ..blocks.tables import PDF_ROWS, Cell, Col, Table, table
from ..figures.axes import time_unit
from ..figures.lines import Line, Panel, lines
from ..figures.stacked_bars import stacked_bars
from ..text import labels
from ..text.formats import UNKNOWN, capitalized, clip, count, duration, plural, signed_percent, threshold_text
from .roles import Location, role_sentence, role_texts
from .time_breakdown import PARTS, part_times

_LINKS: Final = 6  # of the chain of waits
ROWS: Final = 16  # ranks; of more those that differ most, and quantiles


def rank_comparison(report: Report) -> Section:
    comparison = report.rank_comparison
    text = " ".join(comparison.sentences) or comparison.absent or "The report was made by a version of postrun that did not compare ranks."
    blocks: Sequence[Block | Only] = ()
    if comparison.ranks:
        drawn = spread(comparison.ranks, ROWS, lambda row: row.computation_ns)  # largest for stragglers
        # The PDF has the parts of every rank in the table.
        roles = role_texts(report.roles)
        ranks = _ranks(comparison, drawn, roles)
        blocks = (Only("html", _bars(comparison, drawn)), _over_ranks(comparison), ranks, _quantiles(comparison))
        chain = _chain(report.collective_totals.chain if report.collective_totals else ())
        text = " ".join(sentence for sentence in (text, chain, role_sentence(report.roles)) if sentence)
    return Section("rank-comparison", "Ranks compared", say("{}", text), blocks)


def _chain(links: Sequence[WaitLink]) -> str:
    """Write who waits longest for whom, in which group and how long."""
    clauses = [
        f"{'rank' if len(link.ranks) == 1 else 'ranks'} {numbered(link.ranks)}{'' if number else _waits(link)} for rank {link.late_rank}"
        f"{f' in group {clip(link.group, 30)}' if link.group else ''} ({duration(link.waiting_ns)})"
        for number, link in enumerate(links[:_LINKS])
    ]
    return f"{capitalized(', '.join(clauses))}." if clauses else ""


def _waits(link: WaitLink) -> str:
    return " waits longest" if len(link.ranks) == 1 else " wait longest"


def _bars(comparison: RankComparison, selected: Sequence[RankRow]) -> Figure:
    unit = time_unit(max(row.step_ns for row in selected))
    names = [("* " if row.straggler else "") + labels.device(row.node, row.rank, row.device) for row in selected]
    rows = [(name, [time / unit.nanoseconds for time in part_times(row)]) for name, row in zip(names, selected, strict=True)]
    return Figure(
        "rank-comparison-bars",
        stacked_bars(PARTS, rows, unit.name),
        f"Mean step of each rank. {' '.join(comparison.sentences)}",
        say(
            "The mean of each rank over {}, in {}. A rank that computes longer than the others has less exposed communication: they wait"
            " for it.{}{}",
            _timed(comparison),
            unit.name,
            " * The others wait for this one." if any(row.straggler for row in selected) else "",
            of_all(len(selected), len(comparison.ranks), "rank", "computation"),
        ),
    )


def _over_ranks(comparison: RankComparison) -> Figure | None:
    """Draw all ranks as lines if there are too many for bars."""
    if len(comparison.ranks) <= ROWS:
        return None
    unit = time_unit(max(row.step_ns for row in comparison.ranks))
    x = [row.rank or 0 for row in comparison.ranks]
    drawn = [
        Line("computation", x, [row.computation_ns / unit.nanoseconds for row in comparison.ranks], meaning="computation"),
        Line("communication", x, [row.communication_ns / unit.nanoseconds for row in comparison.ranks], meaning="communication"),
    ]
    return Figure(
        "rank-comparison-over-ranks",
        lines([Panel("mean per step", drawn, unit=unit.name)], "rank", x_time=False, height=92),
        f"Computation and communication of every rank. {' '.join(comparison.sentences)}",
        say("All {}: a peak of computation with a dip of communication is a rank that the others wait for.", plural(len(x), "rank")),
    )


def _ranks(comparison: RankComparison, selected: Sequence[RankRow], roles: Mapping[Location, str]) -> Table | None:
    loading = any(row.data_loading_ns is not None for row in selected)
    left_out = len(comparison.ranks) - len(selected)
    # The PDF omits the last ones of many, and a page can end behind the first ones.
    selected = sorted(selected, key=lambda row: (not row.straggler, -row.excess_percent if len(selected) > PDF_ROWS else 0.0))
    threshold = threshold_text(comparison.threshold_percent)
    note = f"Means per step over {_timed(comparison)}; over: computes more than {threshold} longer than the"
    note += " median of the ranks with its role in the step; extra communication: beyond that of the rank with the least of it in the step"
    several = comparison.groups > 1
    note += (
        ", in each process group of its own."
        if several
        else "."
        if comparison.groups
        else "; no process group is known: all ranks are one."
    )
    note += " It contains the wait for late ranks."
    if left_out:
        note += f" {plural(left_out, 'more rank')} in report.json."
    return table(
        "rank-comparison-ranks",
        "Ranks" if not left_out else "Ranks of most and of least computation and the median one",
        selected,
        Col("Rank", lambda row: Cell(labels.device(row.node, row.rank, row.device), sort=row.rank), kind="name"),
        Col("Role", lambda row: roles.get((row.node, row.rank, row.pid)), when=bool(roles)),
        Col("Step", lambda row: row.step_ns, duration),
        Col("Computation", lambda row: row.computation_ns, duration),
        Col("Communication", lambda row: row.communication_ns, duration),
        Col("Extra communication", lambda row: row.waiting_ns, duration),
        Col("Exposed communication", lambda row: row.exposed_communication_ns, duration, html_only=bool(roles)),
        Col("Idle", lambda row: row.idle_ns, duration, html_only=True),
        Col("Most of the extra in", lambda row: row.waiting_group, html_only=True, when=several),
        Col("Data loading", lambda row: row.data_loading_ns, duration, html_only=True, when=loading),
        Col("Against the median", lambda row: row.excess_percent, signed_percent),
        Col(
            "Over in",
            lambda row: Cell(f"{count(row.steps_over)} of {count(row.steps)}", sort=row.steps_over / row.steps),
            kind="number",
            html_only=True,
        ),
        Col(
            "Waited for",
            lambda row: Cell("yes" if row.straggler else "no" if row.steps_over * 2 <= row.steps else "not confirmed"),
            html_only=True,
        ),
        note=note,
    )


def _timed(comparison: RankComparison) -> str:
    """Name the steps of the means: those after a recorded step, if these are few."""
    if 0 < comparison.timed_steps < comparison.steps - 1:
        return f"the {count(comparison.timed_steps)} of {count(comparison.steps)} steps whose previous step was recorded"
    return plural(comparison.steps, "step")


def _quantiles(comparison: RankComparison) -> Table | None:
    def rank(number: int | None) -> Cell:
        return Cell(UNKNOWN if number is None else f"rank {number}", sort=number)

    return table(
        "rank-comparison-quantiles",
        f"All {count(len(comparison.ranks))} ranks, mean time per step",
        comparison.spread,
        Col("What", lambda row: Cell(row.name), kind="name"),
        Col("min", lambda row: row.min, duration),
        Col("p5", lambda row: row.p5, duration),
        Col("p50", lambda row: row.p50, duration),
        Col("p95", lambda row: row.p95, duration),
        Col("max", lambda row: row.max, duration),
        Col("Least", lambda row: rank(row.least_rank)),
        Col("Most", lambda row: rank(row.most_rank)),
        sortable=False,
    )
