"""Section "Python profile": the Python functions of the training script by time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from markupsafe import Markup

from ...analysis.report.model import Report
from ...analysis.report.python_profile import FlameFrame, FlameGraph, ProfileGroup, ProfileRow, PythonProfile
from ..blocks import Block, Details, Figure, Only, Section, Texts, coded, name, say
from ..blocks.tables import PDF_ROWS, Cell, Col, Table, table, word
from ..figures.flame_graph import Bar, flame_graph
from ..figures.stacked_bars import Part
from ..figures.svg import SMALL
from ..text.formats import UNKNOWN, capitalized, clip, count, duration, glued, percent, percent_of, plural
from .steps import slowest_steps

# Color and shade of each kind of code: the user's code is the darkest.
_KINDS: Final = {
    "own code": ("computation", 1.0),
    "library": ("operator", 1.0),
    "standard library": ("other", 0.45),
    "built-in": ("host", 1.0),
    "profiler": ("sync", 1.0),
    "other": ("idle", 0.3),
    "recursion": ("idle", 0.3),
}
TIMERS: Final = {"total_time": "total time", "cpu_time": "CPU time", "off_cpu_time": "off-CPU time"}
PROFILERS: Final = {"cprofile": "cProfile", "pyinstrument": "Pyinstrument"}
_QUESTIONS: Final = {"job phase": "Phase of the job", "modes": "Mode", "training phase": "Phase of a step"}
_PHASE_ROWS: Final = 5
_PDF_ROWS_EACH: Final = 6  # with a table for each of several clocks
_ALL_OF_THEM: Final = Markup("More functions of each are in report.html; all in the attached report.json.")
_OF_PATH: Final = re.compile(r"(?:.*/)?([^/]+:\d+\(.*\))", re.DOTALL)
_NAME: Final = re.compile(r".*:\d+\((.*)\)", re.DOTALL)
_BUILT_IN: Final = re.compile(r"\{(?:built-in method |method )?(.*)\}", re.DOTALL)
Clock = tuple[str, str | None]  # Profiler and timer


def python_profile(report: Report) -> Section:
    profile = report.python_profile
    rows = profile.rows
    if not rows:
        text = profile.absent or "No Python profile in this run: record one with cProfile or Pyinstrument."
        return Section("python-profile", "Python profile", coded(text))
    clocks = sorted(dict.fromkeys(map(_clock, rows)), key=_order)
    steps = [group for group in profile.groups if group.by == "steps"]
    blocks: list[Block | Only] = [_windows(steps, rows)]
    # The parts of the job in their order, each by all clocks.
    parts = list(dict.fromkeys(flame.label for flame in profile.flames))
    flames = sorted(profile.flames, key=lambda flame: (parts.index(flame.label), _order(_clock(flame))))
    pdf_flames = max(2, sum(flame.label == parts[0] for flame in flames)) if parts else 0
    for i, flame in enumerate(flames):
        figure = _flame(i, flame)
        blocks.append(figure if i < pdf_flames else Only("html", figure))
        blocks.append(Only("html", Details("The frames as a table", [_frames(i, flame)])))
    functions: list[Block | Only] = []
    for number, clock in enumerate(clocks):
        of = _Of(clock, f"-{number}" if number else "", several=len(clocks) > 1)
        functions.append(
            _functions([row for row in rows if _clock(row) == clock], [group for group in steps if _clock(group) == clock], of)
        )
        answers: list[list[list[ProfileRow]]] = []
        for question, heading in _QUESTIONS.items():
            groups = [one for one in profile.groups if (one.by, _clock(one)) == (question, clock)]
            # If all of the time belongs to one phase by two measures, the second result equals the first.
            if (answer := [[replace(row, label="") for row in group.rows] for group in groups]) not in answers and groups:
                functions += _phases(question, heading, groups, of)
            answers.append(answer)
    blocks += filter(None, functions)
    if profile.notes:
        blocks.append(Texts("statements", [say("<bdi>{}</bdi>", note) for note in profile.notes]))
    lead = say("{}{}", _lead(profile, clocks[0]), _longest(report))
    return Section("python-profile", "Python profile", lead, [*blocks, None])  # None: its line ends the section


@dataclass(frozen=True, slots=True)
class _Of:
    """The clock of a table and the ``end`` of its id. Times of two clocks do not share a table."""

    clock: Clock
    end: str
    several: bool

    @property
    def words(self) -> str:
        """The end of the caption."""
        return f": {_clock_words(self.clock)}" if self.several or self.clock[1] else ""


def _clock(item: ProfileRow | ProfileGroup | FlameGraph) -> Clock:
    return item.profiler, item.timer


def _order(clock: Clock) -> tuple[int, str]:
    """Sort total time first; the other timers count parts of it."""
    profiler, timer = clock
    return (list(TIMERS).index(timer) if timer in TIMERS else len(TIMERS), profiler)


def _clock_words(clock: Clock) -> str:
    """Return "CPU time (cProfile)" or "Pyinstrument"."""
    profiler, timer = clock
    named = PROFILERS.get(profiler, profiler)
    return named if timer is None else f"{_timer(timer)} ({named})" if named else _timer(timer)


def _lead(profile: PythonProfile, clock: Clock) -> Markup:
    rows = [row for row in profile.rows if _clock(row) == clock]
    first = max([row for row in rows if row.kind != "profiler"] or rows, key=lambda row: row.total_s)
    total_s = sum(
        group.total_s for group in profile.groups if group.by == "steps" and (group.label, group.timer) == (first.label, first.timer)
    )
    share = f", {percent(100 * first.total_s / total_s)} of that profile" if total_s > 0 else ""
    return say(
        "Most own time: {} with {}{}{}.",
        name(first.short or first.function, 72),
        _seconds(first.total_s),
        f" ({_where(first)})" if first.label else "",
        share,
    )


def _longest(report: Report) -> str:
    """Write whether the longest step was profiled, if its number is unique."""
    slowest, times = slowest_steps(report.steps)
    if len(slowest) < 2 or slowest[0] not in times:
        return ""
    longest, time = slowest[0], duration(times[slowest[0]])
    everywhere = len({(group.node, group.rank, group.pid) for group in report.steps.groups})
    of = [(step.node, step.rank, step.pid) for step in report.steps.steps if step.index == longest.index]
    if len(set(of)) < len(of):  # numbers that begin anew in each epoch
        return ""
    covered = stepped = False
    for row in report.python_profile.rows:
        stepped |= row.first_step is not None
        last = row.first_step if row.last_step is None else row.last_step
        if row.first_step is None or last is None or not row.first_step <= longest.index <= last:
            continue
        covered = True
        profiles = (one for one in report.python_profile.groups if (one.by, one.label, one.timer) == ("steps", row.label, row.timer))
        if (group := next(profiles, None)) is not None and group.processes >= everywhere:
            return f" The longest step, {longest.index} ({time} with the profile), was profiled."
    return f" The longest step, {longest.index} ({time}), was not profiled." if stepped and not covered else ""


def _where(row: ProfileRow | ProfileGroup | FlameGraph) -> str:
    return ", ".join(part for part in (row.label, TIMERS.get(row.timer or "")) if part)


def _windows(steps: Sequence[ProfileGroup], rows: Sequence[ProfileRow]) -> Table | None:
    timed = any(group.timer is not None for group in steps)
    counted = any(group.calls is not None for group in steps)

    def first(group: ProfileGroup) -> str:
        matches = (row for row in rows if (row.profiler, row.timer, row.label) == (group.profiler, group.timer, group.label))
        row = next(matches, None)
        return UNKNOWN if row is None else row.short

    several = any(group.windows > 1 for group in steps)
    shared = any(group.processes > 1 for group in steps)
    return table(
        "python-profile-windows",
        "What was profiled",
        steps,
        Col("Steps", lambda group: group.label),
        Col("Timer", lambda group: _timer(group.timer), when=timed),
        Col("Profiler", lambda group: PROFILERS.get(group.profiler, group.profiler)),
        Col("Profiles", lambda group: group.windows, count, html_only=True, when=several),
        Col("Processes", lambda group: group.processes, count, html_only=True, when=shared),
        Col("Lasted", lambda group: group.wall_ns, duration),
        Col("Own time", lambda group: group.total_s, _seconds),
        Col("Calls", lambda group: group.calls, count, when=counted),
        Col("Functions", lambda group: group.functions, count),
        Col("Most own time", first, kind="name", code=True, limit=40),
        pdf_rows=6,
    )


def _functions(rows: Sequence[ProfileRow], steps: Sequence[ProfileGroup], of: _Of) -> Table | None:
    counted = any(row.calls is not None for row in rows)
    total_s = {group.label: group.total_s for group in steps}
    order = sorted(rows, key=lambda row: -row.total_s)
    left = sum(group.functions for group in steps) - len(rows)
    return table(
        f"python-profile-table{of.end}",
        f"Functions by own time{of.words}",
        order,
        Col("Function", lambda row: word(row.short or row.function, full=row.function, limit=100), kind="name", code=True),
        Col("Code", lambda row: row.kind, html_only=True),
        Col("Steps", lambda row: Cell(row.label or _steps(row), sort=row.first_step)),
        Col("Calls", lambda row: Cell(_calls(row), sort=row.calls), kind="number", when=counted),
        Col("Own time", lambda row: row.total_s, _seconds),
        Col("Of the profile", lambda row: percent_of(row.total_s, total_s.get(row.label)), percent),
        Col("Cumulative time", lambda row: row.cumulative_s, _seconds),
        pdf_rows=_PDF_ROWS_EACH if of.several else PDF_ROWS,
        note=f"{plural(left, 'function')} with less own time are not listed." if left > 0 else None,
    )


def _phases(question: str, heading: str, groups: Sequence[ProfileGroup], of: _Of) -> list[Block | Only]:
    """Make the table of the HTML, and one for the PDF with fewer functions per phase."""
    counted = any(row.calls is not None for group in groups for row in group.rows)
    columns: list[Col[tuple[ProfileGroup, ProfileRow]]] = [
        Col(heading, lambda pair: pair[0].label),
        Col("Function", lambda pair: word(pair[1].short, full=pair[1].function, limit=100), kind="name", code=True),
        Col("Code", lambda pair: pair[1].kind, html_only=True),
        Col("Calls", lambda pair: Cell(_calls(pair[1]), sort=pair[1].calls), kind="number", when=counted),
        Col("Own time", lambda pair: pair[1].total_s, _seconds),
        Col("Of the phase", lambda pair: percent_of(pair[1].total_s, pair[0].total_s), percent),
        Col("Cumulative time", lambda pair: pair[1].cumulative_s, _seconds),
    ]
    rows = [[(group, row) for row in group.rows[:_PHASE_ROWS]] for group in groups]
    id = f"python-profile-{question.replace(' ', '-')}{of.end}"
    caption = f"By {heading[0].lower()}{heading[1:]}, functions with the most self time{of.words}"
    row_count = min(3 if of.several else _PHASE_ROWS, max(1, PDF_ROWS // max(1, len(rows))))
    rest = _ALL_OF_THEM if any(len(group.rows) > row_count for group in groups) else None
    return [
        table(id, caption, list(chain(*rows)), *columns, pdf_rows=0),
        Only("pdf", table(f"{id}-of-each", caption, [row for some in rows for row in some[:row_count]], *columns, rest=rest)),
    ]


def _flame(number: int, flame: FlameGraph) -> Figure:
    kinds = [kind for kind in _KINDS if kind != "recursion" and any(frame.kind == kind for frame in flame.frames)]
    legend = [Part({"other": "others, together"}.get(kind, kind), *_KINDS[kind]) for kind in kinds]
    where = _where(flame)
    caption = say(
        "{} ({}): a frame is as wide as its time and stands below the frame that called it; what no frame below covers is its own. {}{}",
        capitalized(where),
        PROFILERS.get(flame.profiler, flame.profiler),
        "The tree is that of the profiler." if flame.exact else "The tree is an estimate from who called whom.",
        f" {plural(flame.folded, 'function')} are in no frame of their own." if flame.folded > 1 else "",
    )
    bars = [_bar(frame, flame.total_s) for frame in flame.frames]
    small = flame_graph(bars, legend, flame.total_s, titles=False, figure_width=SMALL)
    return Figure(f"python-profile-flame-{number}", flame_graph(bars, legend, flame.total_s), _described(flame), caption, small=small)


def _bar(frame: FlameFrame, total_s: float) -> Bar:
    share = percent(percent_of(frame.total_s, total_s))
    title = clip(f"{frame.function}: {_seconds(frame.total_s)}, {share}; own {_seconds(frame.own_s)}", 600)
    return Bar(frame.depth, frame.start_s, frame.total_s, _labels(frame), title, *_KINDS.get(frame.kind, ("other", 1.0)))


def _described(flame: FlameGraph) -> str:
    """Describe the figure in a sentence or two."""
    named = [frame for frame in flame.frames if frame.kind not in ("other", "recursion")]
    roots = [f"{clip(frame.short, 60)} {percent(percent_of(frame.total_s, flame.total_s))}" for frame in named if frame.depth == 0]
    most = max(named, key=lambda frame: frame.own_s, default=None)
    size = f"{plural(len(flame.frames), 'frame')} on {plural(flame.deepest + 1, 'level')}"
    parts = [f"Call tree of {_where(flame)}, {_seconds(flame.total_s)}, {size}"]
    parts += [f"At the top: {'; '.join(roots[:4])}"] if roots else []
    if most is not None:
        parts.append(f"The frame with the most self time: {clip(most.short, 60)} {percent(percent_of(most.own_s, flame.total_s))}")
    return ". ".join(parts)


def _labels(frame: FlameFrame) -> list[str]:
    """Return names from the full one to that of the function."""
    if built_in := _BUILT_IN.fullmatch(frame.short):
        inner = built_in[1]
        bare = re.sub(r"^'(.*)' of '(.*)' objects$", r"\2.\1", inner)
        return [frame.short, "{" + bare + "}", bare.rpartition(".")[2] or bare]
    return [frame.short, *(match[1] for pattern in (_OF_PATH, _NAME) if (match := pattern.fullmatch(frame.short)))]


def _frames(number: int, flame: FlameGraph) -> Table | None:
    return table(
        f"python-profile-frames-{number}",
        f"Frames of the call tree: {_where(flame)}",
        flame.frames,
        Col("Level", lambda frame: frame.depth + 1, count),
        Col("Function", lambda frame: word(frame.short, full=frame.function, limit=100), kind="name", code=True),
        Col("Code", lambda frame: None if frame.kind in ("other", "recursion") else frame.kind),
        Col("Time", lambda frame: frame.total_s, _seconds),
        Col("Of the tree", lambda frame: percent_of(frame.total_s, flame.total_s), percent),
        Col("Own time", lambda frame: frame.own_s, _seconds),
        pdf_rows=0,
    )


def _timer(timer: str | None) -> str:
    return "not stated" if timer is None else TIMERS.get(timer, timer)


def _calls(row: ProfileRow) -> str:
    """Write calls as pstats does: all, and those that were not recursive."""
    if row.calls is None or row.primitive_calls in (None, row.calls):
        return count(row.calls)
    return f"{count(row.calls)}/{count(row.primitive_calls)}"


def _seconds(seconds: float) -> str:
    return glued(duration(seconds * 1e9))


def _steps(row: ProfileRow) -> str:
    if row.first_step is None:
        return UNKNOWN
    return str(row.first_step) if row.last_step in (None, row.first_step) else f"{row.first_step} to {row.last_step}"
