"""Section "Idle causes": the gaps between the kernels of each stream by cause."""

from __future__ import annotations

from ...analysis.report.model import Idle, Report
from ..blocks import BARS, Figure, Section, of_all, say, spread
from ..blocks.tables import Cell, Col, table
from ..figures.axes import time_unit
from ..figures.stacked_bars import Part, stacked_bars
from ..text import labels
from ..text.formats import count, duration, percent, plural

_PARTS = (Part("host wait", "host"), Part("kernel wait", "sync"), Part("other", "idle"))


def idle(report: Report) -> Section:
    rows = [row for row in report.idle if row.gaps]
    if not rows:
        lead = say(
            "No gap between kernels can be told apart: this needs kernels together with their launch calls (record CPU and GPU activity)."
        )
        return Section("idle", "Idle causes", lead)
    total = sum(_total(row) for row in rows)
    causes = {
        "host wait": sum(row.host_wait_ns for row in rows),
        "kernel wait": sum(row.kernel_wait_ns for row in rows),
        "of another cause": sum(row.other_ns for row in rows),
    }
    first = max(causes, key=lambda cause: causes[cause])
    lead = say(
        "{} of the {} of gaps was {}, in {} on {}. Each stream is counted for itself, while others may run: "
        "the sum is not the idle time of the GPUs.",
        percent(100.0 * causes[first] / total if total else None),
        duration(total),
        first,
        plural(sum(row.gaps for row in rows), "gap"),
        plural(len(rows), "stream"),
    )
    drawn = spread(rows, BARS, _total)
    unit = time_unit(max(_total(row) for row in drawn) or 1)
    scaled = [(_label(row), [part / unit.nanoseconds for part in (row.host_wait_ns, row.kernel_wait_ns, row.other_ns)]) for row in drawn]
    longest = max(drawn, key=_total)
    blocks = [
        Figure(
            "idle-streams",
            stacked_bars(_PARTS, scaled, unit.name),
            f"Gaps between the kernels of each stream: most on {_label(longest)} with {duration(_total(longest))}; mostly {first}",
            say(
                "Summed gaps of each stream, in which other streams may have run. "
                "Host wait: the launch came too late. Kernel wait: the launch was ready.{}",
                of_all(len(drawn), len(rows), "stream", "gaps"),
            ),
        ),
        table(
            "idle-table",
            "Gaps before kernels, by cause",
            rows,
            Col("Stream", lambda row: Cell(_label(row)), kind="name"),
            Col("Gaps", lambda row: row.gaps, count),
            Col("Host wait", lambda row: row.host_wait_ns, duration),
            Col("Kernel wait", lambda row: row.kernel_wait_ns, duration),
            Col("Other", lambda row: row.other_ns, duration),
            Col("Together", _total, duration),
            pdf_rows=6,
        ),
    ]
    return Section("idle", "Idle causes", lead, blocks)


def _total(row: Idle) -> int:
    return row.host_wait_ns + row.kernel_wait_ns + row.other_ns


def _label(row: Idle) -> str:
    where = f"GPU {row.device} stream {row.stream}"
    return f"rank {row.rank} · {where}" if row.rank is not None else f"{labels.process(row.node, None, None)} {where}"
