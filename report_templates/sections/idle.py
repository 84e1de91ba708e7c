"""Section "Idle causes": the gaps between the kernels of each stream by cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...analysis.report.causes import Gap
from ...analysis.report.device import Idle
from ...analysis.report.model import Report
from ..blocks import Figure, Section, bar_rows, plain, say
from ..blocks.spans import Span
from ..blocks.tables import Cell, Col, Table, table
from ..figures.axes import time_unit
from ..figures.stacked_bars import Part, stacked_bars
from ..text import labels
from ..text.formats import count, duration, percent, plural

_PARTS = (Part("host wait", "host"), Part("kernel wait", "sync"), Part("launched and waiting", "memory"), Part("other", "idle"))
_MEANINGS: Final = {
    "host wait": "the host had not launched the next work",
    "kernel wait": "the next work was launched and about to start",
    "launched and waiting": "the next work was launched, but still had to wait",
    "unknown": "the launch of the next work is not in the trace, so the cause is unknown",
}


def idle(report: Report) -> Section:
    rows = [row for row in report.idle if row.gaps]
    longest_gaps = _gaps(report)
    if not rows:
        lead = say("Idle causes need kernels and their launch calls: record CPU and GPU activity.")
        return Section("idle", "Idle causes", lead, [longest_gaps])
    total = sum(_total(row) for row in rows)
    causes = {
        "host wait": sum(row.host_wait_ns for row in rows),
        "kernel wait": sum(row.kernel_wait_ns for row in rows),
        "launched and waiting": sum(row.waiting_ns for row in rows),
        "unknown": sum(row.other_ns - row.waiting_ns for row in rows),
    }
    first = max(causes, key=lambda cause: causes[cause])
    lead = say(
        "{} ran nothing in {}, {} in total. In {} of this time, {}. Other streams of the GPU may run meanwhile, so this is not GPU idle"
        " time.",
        plural(len(rows), "stream"),
        plural(sum(row.gaps for row in rows), "gap"),
        duration(total),
        percent(100.0 * causes[first] / total if total else None),
        _MEANINGS[first],
    )
    unit = time_unit(max(_total(row) for row in rows) or 1)
    drawn, more = bar_rows(
        [(_label(row), [part / unit.nanoseconds for part in _parts(row)]) for row in rows],
        ("stream", "streams"),
        "gaps",
        lambda row: sum(row[1]),
    )
    longest = max(rows, key=_total)
    blocks = [
        Figure(
            "idle-streams",
            stacked_bars(_PARTS, drawn, unit.name),
            f"Gaps between the kernels of each stream: most on {_label(longest)} with {duration(_total(longest))}; mostly {first}",
            say(
                "Time in which each stream ran nothing, by cause. Host wait: the host had not launched the next work. Kernel wait: a"
                " launched kernel started within 30 µs. Launched and waiting: it started later, such as after other work.{}",
                more,
            ),
        ),
        table(
            "idle-table",
            "Gaps before kernels, by cause",
            rows,
            Col("Stream", lambda row: Cell(_label(row)), kind="name"),
            Col("Gaps", lambda row: row.gaps, count),
            Col("Host wait", lambda row: row.host_wait_ns, duration),
            Col("Kernel wait", lambda row: row.kernel_wait_ns, duration, html_only=True),
            Col("Launched and waiting", lambda row: row.waiting_ns, duration, html_only=True),
            Col("Other", lambda row: row.other_ns - row.waiting_ns, duration, html_only=True),
            Col("Total", _total, duration),
            pdf_rows=8,
            weight=_total,
            note=_note(rows),
        ),
        longest_gaps,
    ]
    return Section("idle", "Idle causes", lead, blocks)


def _gaps(report: Report) -> Table | None:
    """List the longest gaps of the devices."""
    origin = report.run.started_at_ns or min((gap.start_ns for gap in report.gaps), default=0)
    return table(
        "idle-gaps",
        "Longest gaps of the GPUs",
        report.gaps,
        Col("GPU", lambda gap: Cell(_device(gap)), kind="name"),
        Col(
            "At", lambda gap: gap.start_ns - origin, duration, span=lambda gap: Span(gap.start_ns, gap.start_ns + gap.duration_ns, gap.rank)
        ),
        Col("Idle", lambda gap: gap.duration_ns, duration),
        Col("Host wait", lambda gap: gap.host_ns, duration, html_only=True),
        Col("Cause", lambda gap: gap.kind),
        Col("Evidence", lambda gap: plain(gap.cause), limit=320, html_only=True),
        Col("Evidence", lambda gap: plain(gap.cause), limit=120, pdf_only=True),
        Col("Before", lambda gap: _work(gap.before, gap.stream_before), code=True, limit=60, html_only=True),
        Col("After", lambda gap: _work(gap.after, gap.stream_after), code=True, limit=60, html_only=True),
        Col("On the host", lambda gap: gap.frame, limit=80, html_only=True),
        Col("Module", lambda gap: gap.module, code=True, limit=60, html_only=True, when=any(gap.module for gap in report.gaps)),
        Col("Line", lambda gap: gap.source_line, code=True, limit=60, html_only=True, when=any(gap.source_line for gap in report.gaps)),
        pdf_rows=4,
        note="Gaps above 1% of the time of a GPU, and at least its ten longest. No stream of the GPU ran anything.",
    )


def _work(name: str | None, stream: int | None) -> str | None:
    return f"{name} (stream {stream})" if name and stream is not None else name


def _device(row: Gap | Idle) -> str:
    return f"rank {row.rank} · GPU {row.device}" if row.rank is not None else labels.device(row.node, None, row.device)


def _note(rows: Sequence[Idle]) -> str | None:
    """Explain gaps that are neither host wait nor kernel wait, above a tenth of all."""
    total, waiting = sum(map(_total, rows)), sum(row.waiting_ns for row in rows)
    unknown = sum(row.other_ns for row in rows) - waiting
    texts = []
    if 10 * waiting > total:
        texts.append(
            f"In {percent(100 * waiting / total)} of the gap time, launched work waited for other streams or for work that the trace does"
            " not contain; the host is not the cause."
        )
    if 10 * unknown > total:
        texts.append(f"For {percent(100 * unknown / total)} of the gap time, the launch call is not in the trace, so the cause is unknown.")
    return " ".join(texts) or None


def _parts(row: Idle) -> tuple[int, int, int, int]:
    return row.host_wait_ns, row.kernel_wait_ns, row.waiting_ns, row.other_ns - row.waiting_ns


def _total(row: Idle) -> int:
    return row.host_wait_ns + row.kernel_wait_ns + row.other_ns


def _label(row: Idle) -> str:
    return f"{_device(row)} stream {row.stream}"
