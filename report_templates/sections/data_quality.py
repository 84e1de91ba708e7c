"""Can the figures be trusted? What was read, and what the readers repaired, dropped or guessed."""

from __future__ import annotations

from pathlib import PurePath

from ...analysis.report import Note, Report, Source
from ..blocks import Cell, Column, Section, Table, say, table, value, word
from ..formats import clip, count, moment, plural, shift, size

_SEVERITY = {"error": ("✕ Error", 0), "warning": ("! Warning", 1), "info": ("i Note", 2)}


def data_quality(report: Report) -> Section:
    read = [source for source in report.run.sources if source.format != "unknown"]
    unknown = len(report.run.sources) - len(read)
    events = sum(source.events for source in read)
    notes = sorted(report.data_quality, key=lambda note: _SEVERITY.get(note.severity, ("", 3))[1])
    repaired = say("the readers note {}", plural(len(notes), "point", "points")) if notes else say("nothing had to be repaired or dropped")
    also = say("; {} of no known format {} left aside", plural(unknown, "file"), "was" if unknown == 1 else "were") if unknown else ""
    made = Section(
        "data-quality", "Data quality", say("{} gave {}; {}{}.", plural(len(read), "file"), plural(events, "record"), repaired, also)
    )
    if not report.run.sources and not notes:
        return Section("data-quality", "Data quality", say("No input file is recorded in this run, so nothing can be said about it."))
    made.add(
        table(
            "data-quality-notes",
            "What the readers repaired, dropped or guessed",
            [
                Column("Severity"),
                Column("What"),
                Column("Times", "number"),
                Column("Files", "number"),
                Column("Code", html_only=True),
            ],
            [
                [
                    Cell(*_SEVERITY.get(note.severity, (note.severity, 3))),
                    word(_what(note), full=_what(note, whole=True), limit=400),
                    value(note.count, count),
                    value(note.files if note.file else None, count),
                    word(note.code),
                ]
                for note in notes
            ],
        ),
        _formats(report),
        _clocks(report),
        _problems(report),
    )
    return made


def _what(note: Note, *, whole: bool = False) -> str:
    """The message; with the file where it is of one, or of which one it is an example."""
    if note.file is None:
        return note.message
    file = note.file if whole else clip(_base(note.file) or note.file, 60)
    return f"{note.message} ({file})" if note.files == 1 else f"{note.message} (the first: {file})"


def _formats(report: Report) -> Table | None:
    """How many files of each format were read."""
    groups: dict[str, list[Source]] = {}
    for source in report.run.sources:
        groups.setdefault(source.format, []).append(source)
    rows = sorted(groups.items(), key=lambda item: (item[0] == "unknown", -len(item[1]), item[0]))
    relative = report.run.relative_times
    return table(
        "data-quality-formats",
        "Files by format",
        [
            Column("Format", "name"),
            Column("Files", "number"),
            Column("Size", "number"),
            Column("Records", "number"),
            Column("First event", html_only=True),
            Column("Last event", html_only=True),
        ],
        [
            [
                word("no known format" if name == "unknown" else name),
                value(len(sources), count),
                value(sum(source.bytes or 0 for source in sources), size),
                value(sum(source.events for source in sources), count),
                *(
                    Cell(moment(time, relative=relative), sort=time)
                    for time in (
                        min((source.first_ns for source in sources if source.first_ns is not None), default=None),
                        max((source.last_ns for source in sources if source.last_ns is not None), default=None),
                    )
                ),
            ]
            for name, sources in rows
        ],
        pdf_rows=8,
    )


def _clocks(report: Report) -> Table | None:
    """Files whose times were shifted, and why."""
    shifted = [source for source in report.run.sources if source.clock_offset_ns is not None]
    if not shifted:
        return None
    return table(
        "data-quality-clocks",
        "Times that were shifted to the clock of the other files",
        [Column("File", "name"), Column("Added to its times", "number"), Column("Found by")],
        [
            [
                word(_base(source.path), full=source.path, limit=60),
                Cell(shift(source.clock_offset_ns or 0), sort=source.clock_offset_ns),
                word(source.clock_evidence or "–", limit=200),
            ]
            for source in shifted
        ],
        pdf_rows=8,
    )


def _problems(report: Report) -> Table | None:
    """The files of no known format, and the first one of each warning or error."""
    noted = {
        note.file: f"{_SEVERITY[note.severity][0]}: {note.code}" for note in report.data_quality if note.severity in ("error", "warning")
    }
    rows = []
    for source in report.run.sources:
        if source.path in noted:
            why = noted[source.path]
        elif source.format == "unknown":
            why = "of no known format, left aside"
        else:
            continue
        rows.append([word(_base(source.path), full=source.path, limit=60), Cell(why), value(source.bytes, size)])
    return table(
        "data-quality-files", "Files to look at; all are in the appendix",
        [Column("File", "name"), Column("Why"), Column("Size", "number")], rows, pdf_rows=8,
    )  # fmt: skip


def _base(path: str | None) -> str | None:
    return None if path is None else PurePath(path).name or path
