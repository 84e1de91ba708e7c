"""Section "Collectives": time, bandwidth, and waiting for other ranks."""

from __future__ import annotations

from ...analysis.report.model import Collective, Collectives, Report
from ..blocks import Section, coded, say
from ..blocks.tables import Cell, Col, table
from ..text import labels
from ..text.formats import bandwidth, count, duration, percent, percent_of, plural, size

_UNKNOWN = "No collectives are known of this run: make the report again from the traces."
_ONE_RANK = "Known from one rank, a duration contains the wait for the others: its bandwidth is a lower bound."
_NO_SIZE = "Sizes stand in profiles of PyTorch 2.3 and newer, and of older ones with record_shapes."
_ASSUMED = (
    "For {} the trace tells the tensors and not the process group: all ranks of the job are assumed to take part; in a smaller group"
    " the bus bandwidth is lower, and what all-gather and gather move is less."
)
_NO_GROUP = "For {} the trace does not tell the process group, and not all ranks need be in it: their bus bandwidth is not known."
_BANDWIDTH = (
    "Algorithm bandwidth: bytes per shortest duration over the ranks; bus bandwidth: times the factor by which nccl-tests makes operations"
    " comparable with the links. Wait: what a rank spent beyond the shortest duration of each collective."
)


def collectives(report: Report) -> Section:
    summary = report.collectives
    if summary is None or not summary.rows:
        return Section("collectives", "Collectives", coded((summary and summary.absent) or _UNKNOWN))
    tables = [
        table(
            "collectives-table",
            "Collectives by operation and size, most time first",
            summary.rows,
            Col("Operation", lambda row: row.operation, kind="name"),
            Col("Size", lambda row: row.bytes, size),
            Col("Element type", lambda row: row.element_type, html_only=True),
            Col("Ranks of the group", _group_size, kind="number"),
            Col("Ranks known", lambda row: row.ranks, count, html_only=True),
            Col("Number", lambda row: row.count, count),
            Col("Kernels", lambda row: row.kernels, count, html_only=True),
            Col("Time", lambda row: row.total_ns, duration),
            Col("Wait", lambda row: row.wait_ns, duration),
            Col("Algorithm bandwidth", lambda row: row.algorithm_gb_per_s, bandwidth),
            Col("Bus bandwidth", lambda row: row.bus_gb_per_s, bandwidth),
            Col("Best bus bandwidth", lambda row: row.best_bus_gb_per_s, bandwidth, html_only=True),
            note=_BANDWIDTH,
        ),
        table(
            "collectives-waits",
            "Wait for other ranks in matched collectives",
            summary.waits,
            Col("Process", lambda wait: labels.process(wait.node, wait.rank, wait.pid), kind="name"),
            Col("Collectives", lambda wait: wait.collectives, count),
            Col("Time", lambda wait: wait.total_ns, duration),
            Col("Wait", lambda wait: wait.wait_ns, duration),
            Col("Wait of time", lambda wait: percent_of(wait.wait_ns, wait.total_ns), percent),
            note="The rank that waits least comes last: the others wait for it.",
        ),
    ]
    return Section("collectives", "Collectives", say("{}", " ".join(_sentences(summary))), tables)


def _sentences(summary: Collectives) -> list[str]:
    number = sum(row.count for row in summary.rows)
    more = f" ({plural(summary.further, 'further size')} not listed)" if summary.further else ""
    sentences = [f"{plural(number, 'collective')}{more} took {duration(summary.total_ns)}, added up over the ranks."]
    fast = [row for row in summary.rows if row.bus_gb_per_s is not None]
    if fast:
        first = max(fast, key=lambda row: row.total_ns)
        sentences.append(
            f"Most time of known size has {first.operation} of {size(first.bytes)}, at {bandwidth(first.bus_gb_per_s)} on the bus."
        )
    if summary.sized_percent is not None and summary.sized_percent < 99.95:
        sentences.append(f"The size is known of {percent(summary.sized_percent)} of the time. {_NO_SIZE}")
    if summary.waits:
        waited, total = sum(wait.wait_ns for wait in summary.waits), sum(wait.total_ns for wait in summary.waits)
        share = f", {percent(100 * waited / total)}" if total else ""
        sentences.append(f"In {plural(summary.matched, 'collective')} matched across ranks {duration(waited)} was waiting{share}.")
    if fast and any(row.ranks == 1 for row in fast):
        sentences.append(_ONE_RANK)
    if assumed := sum(row.count for row in summary.rows if row.group_size_assumed):
        sentences.append(_ASSUMED.format(plural(assumed, "collective")))
    if unknown := sum(row.count for row in summary.rows if row.bytes is not None and row.group_size is None):
        sentences.append(_NO_GROUP.format(plural(unknown, "collective")))
    if summary.unmatched:
        recorded = plural(summary.unmatched, "collective was", "collectives were")
        sentences.append(f"{recorded} recorded in different sequences on the ranks and could not be matched.")
    return sentences


def _group_size(row: Collective) -> Cell:
    assumed = " assumed" if row.group_size_assumed and row.group_size else ""
    return Cell(f"{count(row.group_size)}{assumed}", sort=row.group_size)
