"""Section "Collectives": transfer and waiting by operation, size and process group, bandwidth, and who comes last."""

from __future__ import annotations

from collections import Counter

from ...analysis.report.collectives import Collective, CollectiveGroup, CollectiveTotals, CollectiveWait
from ...analysis.report.model import Report
from ..blocks import Section, coded, say
from ..blocks.tables import Cell, Col, Table, table
from ..text import labels
from ..text.formats import UNKNOWN, bandwidth, count, duration, percent, percent_of, plural, size
from .roles import role_texts

_UNKNOWN = "No collectives are known of this run: make the report again from the traces."
_PARTLY = "Bandwidths with “at least”: not all ranks of the group are known, and the duration contains the wait for the others."
_NO_SIZE = "PyTorch 2.3 and newer records the sizes, older versions with record_shapes."
_ASSUMED = (
    "For {} the trace records no process group. Ranks that leave a collective together are taken as its group, else all ranks of the job;"
    " in a smaller group the bus bandwidth is lower, and all-gather and gather move less."
)
_RENUMBERED = (
    " The traces number the members of groups otherwise; here they have their ranks in this run, unless a member is not part of the run."
)
_NO_GROUP = "For {} the number of ranks in the group is not known, and neither is the bus bandwidth."
_TIMES = "Waiting: time of the ranks before the latest start, added up. Transfer: from the latest start of a rank to the last end."
_BANDWIDTH = (
    "Bus bandwidth: bytes per transfer time (the algorithm bandwidth), multiplied by the factor that makes operations comparable with the"
    " links, as in nccl-tests."
)


def collectives(report: Report) -> Section:
    totals = report.collective_totals
    if totals is None or not report.collectives:
        return Section("collectives", "Collectives", coded((totals and totals.absent) or _UNKNOWN))
    several = any(row.ranks > 1 for row in report.collectives)
    tables = [_rows(report.collectives, several), _groups(totals), _ranks(report, totals)]
    return Section("collectives", "Collectives", say("{}", " ".join(_sentences(report.collectives, totals))), tables)


def _rows(rows: tuple[Collective, ...], several: bool) -> Table | None:
    named, sized = any(row.group is not None for row in rows), any(row.bytes is not None for row in rows)
    notes = (_TIMES if several else "", _BANDWIDTH if any(row.bus_gb_per_s is not None for row in rows) else "")
    return table(
        "collectives-table",
        "Collectives by operation, size and group",
        rows,
        Col("Operation", lambda row: row.operation, kind="name", code=True),
        Col("Size", lambda row: row.bytes, size, when=sized),
        Col("Element type", lambda row: row.element_type, html_only=True),
        Col("Group", lambda row: row.group, kind="name", limit=40, when=named),
        Col("Purpose of the group", lambda row: row.group_description, limit=40, when=named, html_only=True),
        Col("Ranks of the group", _group_size, kind="number", html_only=named),
        Col("Ranks known", lambda row: row.ranks, count, html_only=True),
        Col("Number", lambda row: row.count, count),
        Col("Kernels", lambda row: row.kernels, count, html_only=True),
        Col("Time", lambda row: row.total_ns, duration),
        Col("Waiting", lambda row: row.waiting_ns, duration, when=several),
        Col("Transfer, mean", lambda row: row.transfer_ns / row.count if row.ranks > 1 else None, duration, when=several),
        Col("Skew, mean", lambda row: row.skew_ns, duration, when=several, html_only=True),
        Col("Last", lambda row: _last(row.last_rank, row.last_count), when=several),
        Col("Algorithm bandwidth", lambda row: _at_least(row, row.algorithm_gb_per_s), kind="number", html_only=True, when=sized),
        Col("Bus bandwidth", lambda row: _at_least(row, row.bus_gb_per_s), kind="number", when=sized),
        Col("Best bus bandwidth", lambda row: row.best_bus_gb_per_s, bandwidth, html_only=True, when=sized),
        Col(
            "Expected",
            lambda row: row.expected_bus_gb_per_s,
            bandwidth,
            when=any(row.expected_bus_gb_per_s is not None for row in rows),
            html_only=not sized,
        ),
        note=" ".join(filter(None, notes)),
    )


def _groups(totals: CollectiveTotals) -> Table | None:
    return table(
        "collectives-groups",
        "Process groups",
        totals.groups,
        Col("Group", lambda group: group.group, kind="name", limit=40),
        Col("Purpose", lambda group: group.description, kind="name", limit=40),
        Col("Ranks", lambda group: _without_unit(group.members), limit=40),
        Col("Known", lambda group: _known(group)),
        Col("Collectives", lambda group: group.count, count, html_only=True),
        Col("Matched", lambda group: group.matched, count, html_only=True),
        Col("Time", lambda group: group.total_ns, duration),
        Col("Waiting", lambda group: group.waiting_ns, duration),
        Col("Last", lambda group: _last(group.last_rank, group.last_count)),
        note=f"Last: the rank that starts last most often, and how often.{_RENUMBERED if totals.renumbered else ''}",
    )


def _ranks(report: Report, totals: CollectiveTotals) -> Table | None:
    roles = role_texts(report.roles)
    return table(
        "collectives-waits",
        "Time waiting for other ranks",
        totals.waits,
        Col("Process", lambda wait: labels.process(wait.node, wait.rank, wait.pid), kind="name"),
        Col("Role", lambda wait: roles.get((wait.node, wait.rank, wait.pid)), when=bool(roles)),
        Col("Collectives", lambda wait: wait.collectives, count),
        Col("Time", lambda wait: wait.total_ns, duration),
        Col("Waiting", lambda wait: wait.wait_ns, duration),
        Col("Waiting of time", lambda wait: percent_of(wait.wait_ns, wait.total_ns), percent),
        Col("Starts last in", lambda wait: _starts_last(wait), kind="number"),
        note="The rank with the least waiting arrives last; the others wait for it.",
    )


def _sentences(rows: tuple[Collective, ...], totals: CollectiveTotals) -> list[str]:
    number = sum(row.count for row in rows)
    more = f" ({plural(totals.further, 'further size')} not listed)" if totals.further else ""
    sentences = [f"{plural(number, 'collective')}{more} took {duration(totals.total_ns)}, added up over the ranks."]
    if totals.waits:
        waited, total = sum(wait.wait_ns for wait in totals.waits), sum(wait.total_ns for wait in totals.waits)
        share = f", {percent(100 * waited / total)}" if total else ""
        sentences.append(f"In {plural(totals.matched, 'collective')} matched over the ranks, {duration(waited)} was waiting{share}.")
    waiting = Counter[str]()
    for row in rows:
        waiting[f"{row.operation} of {row.group_description}" if row.group_description else row.operation] += row.waiting_ns or 0
    (longest, waited), *others = waiting.most_common(2)
    if others and waited:
        sentences.append(f"The longest waiting is in {longest}: {duration(waited)}.")
    fast = [row for row in rows if row.bus_gb_per_s is not None]
    if fast:
        first = max(fast, key=lambda row: row.total_ns)
        least = "at least" if first.at_least else "at"
        sentences.append(
            f"Of the collectives of known size, {first.operation} of {size(first.bytes)} takes longest, {least}"
            f" {bandwidth(first.bus_gb_per_s)} on the bus."
        )
    if not totals.sized_percent:
        sentences.append(f"No size is recorded. {_NO_SIZE}")
    elif totals.sized_percent < 99.95:
        sentences.append(f"The size is known for {percent(totals.sized_percent)} of the time. {_NO_SIZE}")
    if any(row.at_least for row in fast):
        sentences.append(_PARTLY)
    if assumed := sum(row.count for row in rows if row.group_size_assumed):
        sentences.append(_ASSUMED.format(plural(assumed, "collective")))
    if unknown := sum(row.count for row in rows if row.bytes is not None and row.group_size is None):
        sentences.append(_NO_GROUP.format(plural(unknown, "collective")))
    if totals.unmatched:
        sentences.append(
            f"{plural(totals.unmatched, 'call')} in groups of several recorded ranks could not be matched: the sequences or the times of"
            " the ranks differ."
        )
    if totals.clocks:
        sentences.append(totals.clocks)
    return sentences


def _group_size(row: Collective) -> Cell:
    assumed = " assumed" if row.group_size_assumed and row.group_size else ""
    return Cell(f"{count(row.group_size)}{assumed}", sort=row.group_size)


def _without_unit(members: str | None) -> str | None:
    """Remove "ranks", which the heading of the column has, from a text."""
    return members and members.removeprefix("ranks ").removeprefix("rank ")


def _at_least(row: Collective, value: float | None) -> Cell:
    return Cell(f"{'at least ' if row.at_least and value is not None else ''}{bandwidth(value)}", sort=value)


def _last(rank: int | None, number: int | None) -> Cell:
    if rank is None or number is None:
        return Cell(UNKNOWN)
    return Cell(f"rank {rank} ({count(number)})", sort=rank)


def _known(group: CollectiveGroup) -> Cell:
    return Cell(f"{count(group.known)} of {count(group.size)}" if group.size is not None else count(group.known), sort=group.known)


def _starts_last(wait: CollectiveWait) -> Cell:
    share = percent_of(wait.last, wait.collectives)
    return Cell(f"{count(wait.last)} ({percent(share)})" if share is not None else UNKNOWN, sort=wait.last)
