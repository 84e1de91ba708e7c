"""Can the figures be trusted? What was read, and what the readers repaired, dropped or guessed."""

from __future__ import annotations

from pathlib import PurePath

from ...analysis.report import Report
from ..blocks import Cell, Column, Section, say, table, value, word
from ..formats import count, moment, plural, size

_SEVERITY = {"error": ("✕ Error", 0), "warning": ("! Warning", 1), "info": ("i Note", 2)}


def data_quality(report: Report) -> Section:
    read = [source for source in report.run.sources if source.format != "unknown"]
    unknown = len(report.run.sources) - len(read)
    events = sum(source.events for source in read)
    notes = sorted(report.data_quality, key=lambda note: _SEVERITY.get(note.severity, ("", 3))[1])
    repaired = say("the readers note {}", plural(len(notes), "point", "points")) if notes else say("nothing had to be repaired or dropped")
    also = say("; {} of no known format {} left aside", plural(unknown, "file"), "was" if unknown == 1 else "were") if unknown else ""
    made = Section(
        "data-quality", "Data quality", say("{} gave {}; {}{}.", plural(len(read), "file"), plural(events, "event"), repaired, also)
    )
    if not report.run.sources and not notes:
        return Section("data-quality", "Data quality", say("No input file is recorded in this run, so nothing can be said about it."))
    relative = report.run.relative_times
    made.add(
        table(
            "data-quality-notes",
            "What the readers repaired, dropped or guessed",
            [Column("Severity"), Column("What", "name"), Column("Times", "number"), Column("File"), Column("Code", html_only=True)],
            [
                [
                    Cell(*_SEVERITY.get(note.severity, (note.severity, 3))),
                    word(note.message, limit=400),
                    value(note.count, count),
                    word(_base(note.file), full=note.file, limit=48),
                    word(note.code),
                ]
                for note in notes
            ],
        ),
        table(
            "data-quality-files",
            "Files",
            [
                Column("File", "name"),
                Column("Format"),
                Column("Size", "number"),
                Column("Events", "number"),
                Column("First event", html_only=True),
                Column("Last event", html_only=True),
            ],
            [
                [
                    word(_base(source.path), full=source.path, limit=48),
                    word(source.format),
                    value(source.bytes, size),
                    value(source.events, count),
                    Cell(moment(source.first_ns, relative=relative), sort=source.first_ns),
                    Cell(moment(source.last_ns, relative=relative), sort=source.last_ns),
                ]
                for source in report.run.sources
            ],
        ),
    )
    return made


def _base(path: str | None) -> str | None:
    return None if path is None else PurePath(path).name or path
