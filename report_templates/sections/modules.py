"""Section "Modules": device time, launches and waits by module and by line of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from ...analysis.report.model import Report
from ...analysis.report.modules import Module, ModuleCoverage, SourceLine
from ..blocks import Details, Figure, Only, Section, coded, name, say
from ..blocks.tables import Cell, Col, Table, table, word
from ..figures.flame_graph import Bar, flame_graph
from ..figures.stacked_bars import Part
from ..figures.svg import SMALL
from ..text.formats import clip, count, duration, percent, percent_of, plural

_UNKNOWN: Final = "The modules are not known of this run: make the report again from the traces."
_NO_WORK: Final = "No device work was launched within a module: profile with torch.profiler and with_stack=True."
_LEVELS: Final = 12  # of the indentation; deeper ones have that of this level
_INDENT: Final = "\u2003"
_OUTSIDE: Final = "outside of all modules"
_UNKNOWN_LINE: Final = "unknown line"
_THIN: Final = 0.0015  # of the width: narrower bars are not drawn
_PDF_PERCENT: Final = 1.0  # of the device time, from which the PDF lists a module
_PDF_ROWS: Final = 24
_LOW_PERCENT: Final = 80.0  # of the device time with a module, below which the lead begins with "only"


def modules(report: Report) -> Section:
    coverage = report.module_coverage or ModuleCoverage(absent=_UNKNOWN)
    if not report.modules and not report.source_lines:
        return Section("modules", "Modules", coded(coverage.absent or _UNKNOWN))
    if not any(row.path and row.device_ns for row in report.modules) and not any(line.line for line in report.source_lines):
        return Section("modules", "Modules", coded(coverage.absent or _NO_WORK))
    rows, total_ns = report.module_kinds or report.modules, _total(report)
    summed = "Modules, layers of one kind together" if report.module_kinds else "Modules as a tree"
    share = [row for row in rows if total_ns and 100 * row.device_ns >= _PDF_PERCENT * total_ns]
    blocks = [
        _flames(rows, total_ns),
        Only("html", _tree("modules-table", rows, total_ns, summed)),
        Only("html", _each(report, total_ns)),
        Only("pdf", _tree("modules-longest", share, total_ns, f"Modules with at least {percent(_PDF_PERCENT)} of the device time")),
        _lines(report.source_lines, total_ns),
    ]
    return Section("modules", "Modules", _lead(report, coverage), [block for block in blocks if getattr(block, "block", block) is not None])


def _each(report: Report, total_ns: int) -> Details | None:
    """List each module, if the table above has only their sums."""
    if not report.module_kinds:
        return None
    return Details("Each module", [_tree("modules-each", report.modules, total_ns, "Modules as a tree")])


def _total(report: Report) -> int:
    return sum(row.self_device_ns for row in report.modules) or sum(line.device_ns for line in report.source_lines)


def _lead(report: Report, coverage: ModuleCoverage) -> Markup:
    sentences = []
    named = [row for row in report.module_kinds or report.modules if row.path]
    if coverage.known_percent is not None and named:
        first = max(named, key=lambda row: row.self_device_ns)
        sentences.append(
            say(
                "{}{} of the device time can be assigned to modules{}. {} takes the most, {} without the modules inside it.",
                "Only " if coverage.known_percent < _LOW_PERCENT else "",
                percent(coverage.known_percent),
                f", by {coverage.source}" if coverage.source else "",
                name(first.path, 60),
                duration(first.self_device_ns),
            )
        )
    elif coverage.absent:
        sentences.append(coded(coverage.absent))
    lines = [line for line in report.source_lines if line.line]
    if coverage.lines_percent is not None and lines:
        sentences.append(
            say(
                "{} of the device time comes from known lines; the most from {}, {}.",
                percent(coverage.lines_percent),
                name(_short(lines[0].line), 60),
                duration(lines[0].device_ns),
            )
        )
    return Markup(" ").join(sentences)


def _tree(id: str, rows: Sequence[Module], total_ns: int, caption: str) -> Table | None:
    backward, waits, host = (any(getattr(row, field) for row in rows) for field in ("backward_ns", "waits_ns", "host_ns"))
    return table(
        id,
        caption,
        rows,
        Col("Module", _indented, kind="name", code=True),
        Col("Device time", lambda row: row.device_ns, duration),
        Col("Of all", lambda row: percent_of(row.device_ns, total_ns), percent),
        Col("Own", lambda row: row.self_device_ns, duration),
        Col("Backward", lambda row: row.backward_ns, duration, when=backward),
        Col("Calls", lambda row: row.calls if row.path else None, count, when=any(row.calls for row in rows)),
        Col("Launches", lambda row: row.launches, count),
        Col("Host time", lambda row: row.host_ns if row.path else None, duration, when=host),
        Col("Waits", lambda row: row.waits_ns, duration, when=waits),
        pdf_rows=_PDF_ROWS,
        note="Device time includes that of the modules within; Own does not. Backward: the part that the backward pass launched.",
    )


def _indented(row: Module) -> Cell:
    if not row.path:
        return Cell(_OUTSIDE)
    *around, last = row.path.split("/")
    return Cell(_INDENT * min(len(around), _LEVELS) + clip(last, 60), sort=row.path, title=clip(row.path, 2000) if around else None)


def _flames(rows: Sequence[Module], total_ns: int) -> Figure | None:
    bars, deepest = _bars(rows, total_ns)
    if not bars or total_ns <= 0:
        return None
    kinds = [Part("module", "computation")] + [Part(_OUTSIDE, "other", 0.6)] * any(not row.path and row.device_ns for row in rows)
    tops = [row for row in rows if "/" not in row.path][:4]
    named = "; ".join(f"{clip(row.path or _OUTSIDE, 60)} {percent(percent_of(row.device_ns, total_ns))}" for row in tops)
    alt = f"Device time by module, {duration(total_ns)}, {plural(deepest + 1, 'level')}. At the top: {named}"
    caption = say(
        "Device time by module: a bar is as wide as its time and is below the module around it; the uncovered part is its own time."
    )
    small = flame_graph(bars, kinds, total_ns / 1e9, titles=False, figure_width=SMALL)
    return Figure("modules-flame", flame_graph(bars, kinds, total_ns / 1e9), alt, caption, small=small)


def _bars(rows: Sequence[Module], total_ns: int) -> tuple[list[Bar], int]:
    """Place each module below the one around it, after its siblings.

    Also return the deepest level."""
    bars: list[Bar] = []
    free = {"": 0}  # where the next module within a path begins
    deepest = 0
    for row in rows:
        parts = row.path.split("/")
        around = "/".join(parts[:-1])
        start = free.get(around)
        if start is None:  # a module whose surroundings are not listed
            continue
        free[around] = start + row.device_ns
        if row.path:
            free[row.path] = start
        if row.device_ns < _THIN * total_ns:
            continue
        deepest = max(deepest, len(parts) - 1)
        share = percent(percent_of(row.device_ns, total_ns))
        title = clip(f"{row.path or _OUTSIDE}: {duration(row.device_ns)}, {share}; own {duration(row.self_device_ns)}", 600)
        look = ("computation", 1.0) if row.path else ("other", 0.6)
        labels = [clip(parts[-1], 60) or _OUTSIDE]
        bars.append(Bar(len(parts) - 1, start / 1e9, row.device_ns / 1e9, labels, title, *look))
    return bars, deepest


def _lines(lines: Sequence[SourceLine], total_ns: int) -> Table | None:
    backward, waits, host = (any(getattr(line, field) for line in lines) for field in ("backward_ns", "waits_ns", "host_ns"))
    return table(
        "modules-lines",
        "Lines of the program",
        lines,
        Col(
            "Line",
            lambda line: word(_short(line.line) if line.line else _UNKNOWN_LINE, full=line.line or _UNKNOWN_LINE, limit=60),
            kind="name",
            code=True,
        ),
        Col("Function", lambda line: line.function, code=True, limit=40, when=any(line.function for line in lines)),
        Col("Module", lambda line: line.module, code=True, limit=60, html_only=True, when=any(line.module for line in lines)),
        Col("Device time", lambda line: line.device_ns, duration),
        Col("Of all", lambda line: percent_of(line.device_ns, total_ns), percent),
        Col("Backward", lambda line: line.backward_ns, duration, when=backward),
        Col("Launches", lambda line: line.launches, count),
        Col("Host time", lambda line: line.host_ns, duration, when=host),
        Col("Waits", lambda line: line.waits_ns, duration, when=waits),
        pdf_rows=12,
        note="Each piece of device work counts for one line. Waits: time that the host waited there for the device or the loader.",
    )


def _short(line: str) -> str:
    """Return a file and line with the last folder alone."""
    return "/".join(line.replace("\\", "/").split("/")[-2:])
