"""In which Python functions did the training script spend its time?"""

from __future__ import annotations

from ...analysis.report import ProfileRow, Report
from ..blocks import Cell, Column, Section, say, table, value, word
from ..formats import clip, count, duration, plural


def python_profile(report: Report) -> Section:
    rows = report.python_profile.rows
    if not rows:
        lead = say(
            "{}", report.python_profile.absent or "No Python profile in this run: record one with cProfile or the profiler's with_stack."
        )
        return Section("python-profile", "Python profile", lead)
    first = max(rows, key=lambda row: row.total_s)
    made = Section(
        "python-profile",
        "Python profile",
        say("{}; most own time: {} with {}.", plural(len(rows), "function"), clip(first.function, 72), _seconds(first.total_s)),
    )
    made.add(
        table(
            "python-profile-table",
            "Functions by time",
            [
                Column("Function", "name"),
                Column("Steps"),
                Column("Timer", html_only=True),
                Column("Calls", "number"),
                Column("Own time", "number"),
                Column("Cumulative time", "number"),
            ],
            [
                [
                    word(row.function, limit=100),
                    Cell(_steps(row), sort=row.first_step),
                    word(row.timer),
                    value(row.calls, count),
                    Cell(_seconds(row.total_s), sort=row.total_s),
                    Cell(_seconds(row.cumulative_s), sort=row.cumulative_s),
                ]
                for row in rows
            ],
        )
    )
    return made


def _seconds(seconds: float) -> str:
    return duration(seconds * 1e9)


def _steps(row: ProfileRow) -> str:
    if row.first_step is None:
        return "–"
    return str(row.first_step) if row.last_step in (None, row.first_step) else f"{row.first_step} to {row.last_step}"
