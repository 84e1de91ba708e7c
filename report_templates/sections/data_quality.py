"""Section "Data quality": the files that were read, and what the readers repaired, dropped, or guessed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from ...analysis.report.model import Report
from ...analysis.report.modules import ModuleCoverage
from ...analysis.report.run import Note, Source
from ...analysis.run.summary_warnings import note_counts
from ..blocks import Section, plain, say
from ..blocks.tables import Cell, Col, Table, table, word
from ..text.formats import clip, count, duration, moment, percent, plural, shift, size

_SEVERITY = {"error": ("✕ Error", 0), "warning": ("! Warning", 1), "info": ("i Note", 2)}


def data_quality(report: Report) -> Section:
    read = [source for source in report.run.sources if source.format != "unknown"]
    unknown = len(report.run.sources) - len(read)
    events = sum(source.events for source in read)
    notes = sorted(report.data_quality, key=lambda note: _SEVERITY.get(note.severity, ("", 3))[1])
    repaired = say("{}", ", ".join(note_counts(notes)) or "nothing was repaired or dropped")
    also = say("; {} of no known format {} left aside", plural(unknown, "file"), "was" if unknown == 1 else "were") if unknown else ""
    lead = say("{}, {}; {}{}.", plural(len(read), "file"), plural(events, "record"), repaired, also)
    if apart := report.job_statistics.apart_ns:
        lead += say(" The files are from different times, up to {} apart.", duration(apart))
    if not report.run.sources and not notes:
        return Section("data-quality", "Data quality", say("No input file is recorded in this run, so nothing can be said about it."))
    tables = [
        table(
            "data-quality-notes",
            "Repairs, omissions, and guesses",
            notes,
            Col("Severity", lambda note: Cell(*_SEVERITY.get(note.severity, (note.severity, 3)))),
            Col("What", lambda note: word(_what(note), full=_what(note, full=True), limit=400, name=False)),
            Col("Times", lambda note: note.count, count),
            Col("Files", lambda note: note.files if note.file else None, count),
            Col("Code", lambda note: note.code, html_only=True),
        ),
        _attributed(report),
        _formats(report),
        _clocks(report),
        _problems(report),
    ]
    return Section("data-quality", "Data quality", lead, tables)


def _what(note: Note, *, full: bool = False) -> str:
    """Write the message with its file, or its first file."""
    message = plain(note.message) or ""
    if note.file is None:
        return message
    file = note.file if full else clip(_base(note.file) or note.file, 60)
    return f"{message} ({file})" if note.files == 1 else f"{message} (the first: {file})"


def _attributed(report: Report) -> Table | None:
    """State for how much of the device time its origin is known."""
    modules, work, operators = report.module_coverage or ModuleCoverage(), report.efficiency, report.operators
    by_operator = next((share.percent for share in report.category_sources if share.name == "operator"), None)
    rows: list[tuple[str, str, float | None, str | None]] = [
        ("Operator", "device time", operators.linked_percent if operators else None, None),
        ("Module", "device time", modules.known_percent, modules.source or modules.absent),
        ("Line of the program", "device time", modules.lines_percent, None),
        ("FLOPs", "matrix kernels", work.coverage_percent if work else None, None),
        ("Category by operator, not by name", "kernel time", by_operator, None),
    ]
    known = [row for row in rows if row[2] is not None]
    return table(
        "data-quality-attributed",
        "Device time with a known origin",
        [row for row in rows if row[2] is not None or row[3]] if known else [],
        Col("Known", lambda row: row[0], kind="name"),
        Col("Of", lambda row: row[1]),
        Col("Share", lambda row: row[2], percent),
        Col("Source", lambda row: plain(row[3]) if row[3] else "", limit=200, html_only=True, when=any(row[3] for row in rows)),
        pdf_rows=8,
    )


def _formats(report: Report) -> Table | None:
    """Count the files by format."""
    groups: dict[str, list[Source]] = {}
    for source in report.run.sources:
        groups.setdefault(source.format, []).append(source)
    rows = sorted(groups.items(), key=lambda item: (item[0] == "unknown", -len(item[1]), item[0]))

    def when_was(time: int | None) -> Cell:
        return Cell(moment(time, relative=report.run.relative_times), sort=time)

    return table(
        "data-quality-formats",
        "Files by format",
        rows,
        Col("Format", lambda row: "no known format" if row[0] == "unknown" else row[0], kind="name"),
        Col("Files", lambda row: len(row[1]), count),
        Col("Size", lambda row: sum(source.bytes or 0 for source in row[1]), size),
        Col("Records", lambda row: sum(source.events for source in row[1]), count),
        Col("First event", lambda row: when_was(min(_known(row[1], "first_ns"), default=None)), html_only=True),
        Col("Last event", lambda row: when_was(max(_known(row[1], "last_ns"), default=None)), html_only=True),
        pdf_rows=8,
    )


def _known(sources: Sequence[Source], field: str) -> list[int]:
    return [time for source in sources if (time := getattr(source, field)) is not None]


def _clocks(report: Report) -> Table | None:
    """List the files whose times were shifted, and the reasons."""
    shifted = [source for source in report.run.sources if source.clock_offset_ns is not None]
    return table(
        "data-quality-clocks",
        "Times that were shifted to the clock of the other files",
        shifted,
        Col("File", lambda source: word(_base(source.path), full=source.path, limit=60), kind="name"),
        Col("Added to its times", lambda source: source.clock_offset_ns, shift),
        Col("Found by", lambda source: source.clock_evidence, limit=200),
        pdf_rows=8,
    )


def _problems(report: Report) -> Table | None:
    """List files of unknown format, and the first file of each warning or error."""
    noted = {
        note.file: f"{_SEVERITY[note.severity][0]}: {note.code}" for note in report.data_quality if note.severity in ("error", "warning")
    }
    files = [source for source in report.run.sources if source.path in noted or source.format == "unknown"]
    return table(
        "data-quality-files",
        "Files to look at; all are in the appendix",
        files,
        Col("File", lambda source: word(_base(source.path), full=source.path, limit=60), kind="name"),
        Col("Why", lambda source: noted.get(source.path, "of no known format, left aside")),
        Col("Size", lambda source: source.bytes, size),
        pdf_rows=8,
    )


def _base(path: str | None) -> str | None:
    return None if path is None else PurePath(path).name or path
