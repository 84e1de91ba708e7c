"""Which Python functions took the time, by a Python profile: in which steps, in which phase, through which calls?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from ...ingest.store.store import Store
from ..report.model import FlameGraph, ProfileGroup, ProfileRow, PythonProfile
from ..toolkit import wording
from .flame_graph import LEAST_PERCENT, called_tree, sampled_tree
from .names import PROFILER, RECORDING, kind_of, short_names
from .windows import Question, Window, label, windows

STEP_ROWS: Final = 100
PHASE_ROWS: Final = 10
MOST_STEP_GROUPS: Final = 24  # Of one profiler and timer: with more, the steps of each mode are one group
MOST_FLAMES: Final = 6
NOT_STATED: Final = "not stated"
_LOOP: Final = "training loop"

_ABSENT: Final = (
    "No Python profile in this run. To record one, give `postrun record` a configuration with PythonProfilingConfig (--profiler-config), or"
    " pass results of cProfile or Pyinstrument (python_stats, .pstats, .pyisession) with the other files."
)
_ASKED: Final = "Python functions were to be recorded ({}), but "
_NOT_RECORDED: Final = _ASKED + "no Python profile is in this run: {}."
_RECORDED_ELSEWHERE: Final = (
    _ASKED + "no result of it is among the files of this report. It is below `framework/pytorch` in {} ({} recorded)."
)
_UNKNOWN: Final = _ASKED + "no Python profile is in this run, and the recording does not say why: it may have been cut off."
_RECORDER: Final = "{}: what recording these profiles cost in them, {} of the own time told here."
_TRACED: Final = (
    "torch.profiler traced operators in {} at the same time: {} ({}) of the own time there is in torch.profiler's own functions, and other"
    " times contain what it costs. To compare functions, take separate steps for operators (DetailedProfilingConfig) and for Python"
    " functions."
)
_MANY_STEPS: Final = "Of more than {} groups of steps those of each mode are told together."
_NO_TIMER: Final = (
    "What the timer counted (total, CPU or off-CPU time) is not stated in files of cProfile; the hosted profiler's default is one after the"
    " other on steps 9, 10 and 11."
)
_ADDED: Final = "Times are added up over {} processes."
_ESTIMATED: Final = (
    "cProfile keeps who called whom, but not through which calls: in its flame graph the time of a function is divided over its callers by"
    " their share of its cumulative time. That is an estimate, above all where functions call each other in a circle."
)
_SAMPLED: Final = "Pyinstrument takes samples: it counts no calls, and functions that it hardly met are added to their callers by it."

Key = tuple[str, str | None, str]  # Profiler, timer and label


def python_profile(store: Store) -> PythonProfile:
    """The functions with most own time by profiler, timer and steps, and by phase; a flame graph per profiler, timer and phase of the job.
    Functions of the same name are added up over the processes and windows of a group."""
    found = windows(store)
    if not any(window.functions for window in found):
        return PythonProfile(rows=(), absent=_absent(store))
    steps, merged = _step_groups(found)
    rows, groups = _told(store, steps, "steps", STEP_ROWS)
    phases: list[ProfileGroup] = []
    questions: tuple[Question, ...] = ("job phase", "modes", "training phase")
    for question in questions:
        members = _members(found, question)
        if question == "modes" and len({name for _, _, name in members}) < 2:
            continue
        # One group of all that is told by its steps already says nothing new.
        if {frozenset(some) for some in members.values()} != {frozenset(some) for some in steps.values()}:
            told, made = _told(store, members, question, PHASE_ROWS)
            phases += [
                ProfileGroup(
                    by=one.by, label=one.label, profiler=one.profiler, timer=one.timer, windows=one.windows, processes=one.processes,
                    wall_ns=one.wall_ns, total_s=one.total_s, calls=one.calls, functions=one.functions,
                    rows=tuple(row for row in told if (row.profiler, row.timer, row.label) == (one.profiler, one.timer, one.label)),
                )
                for one in made
            ]  # fmt: skip
    flames = _flames(store, found)
    return PythonProfile(
        rows=tuple(rows), absent=None, groups=(*groups, *phases), flames=flames, notes=tuple(_notes(store, found, flames, merged=merged))
    )


def _members(found: Sequence[Window], question: Question) -> dict[Key, list[Window]]:
    members: dict[Key, list[Window]] = {}
    for window in found:
        if window.functions and (name := label(window, question)) is not None:
            members.setdefault((window.profiler, window.timer, name), []).append(window)
    return members


def _step_groups(found: Sequence[Window]) -> tuple[dict[Key, list[Window]], bool]:
    """By steps; whether the steps of a mode are one group because there are too many of them."""
    members: dict[Key, list[Window]] = {}
    kinds: dict[tuple[str, str | None], set[str]] = {}
    for window in found:
        name = label(window, "steps") or NOT_STATED
        kinds.setdefault((window.profiler, window.timer), set()).add(name)
    many = {kind for kind, names in kinds.items() if len(names) > MOST_STEP_GROUPS}
    for window in found:
        if not window.functions:
            continue
        name = label(window, "steps") or NOT_STATED
        if (window.profiler, window.timer) in many:
            name = label(window, "modes") or label(window, "job phase") or NOT_STATED
        members.setdefault((window.profiler, window.timer, name), []).append(window)
    return members, bool(many)


def _told(store: Store, members: dict[Key, list[Window]], by: str, most: int) -> tuple[list[ProfileRow], list[ProfileGroup]]:
    """The rows and the groups, in the order of the first window of each."""
    if not members:
        return [], []
    keys = list(members)
    pairs = ", ".join(f"({window.id}, {i})" for i, key in enumerate(keys) for window in members[key])
    frame = store.frame(f"""
        SELECT g AS "group", function, any_value(file ORDER BY file) AS file, sum(p.calls)::DOUBLE::BIGINT AS calls,
            sum(p.primitive_calls)::DOUBLE::BIGINT AS primitive_calls, (sum(round(p.total_s * 1e9)::BIGINT) / 1e9)::DOUBLE AS total_s,
            (sum(round(p.cumulative_s * 1e9)::BIGINT) / 1e9)::DOUBLE AS cumulative_s, count(*) OVER (PARTITION BY g) AS functions
        FROM python_profile AS p JOIN (VALUES {pairs}) AS chosen(w, g) ON chosen.w = p."window" GROUP BY g, function
        QUALIFY row_number() OVER (PARTITION BY g ORDER BY sum(round(p.total_s * 1e9)::BIGINT) DESC, function) <= {most}
        ORDER BY g, sum(round(p.total_s * 1e9)::BIGINT) DESC, function
    """).rows(named=True)
    shorts = short_names({row["function"]: row["file"] for row in frame}.items())
    functions = {row["group"]: row["functions"] for row in frame}
    ranges = {key: _range(some) for key, some in members.items()}
    rows = [
        ProfileRow(
            function=row["function"], timer=keys[row["group"]][1], first_step=ranges[keys[row["group"]]][0],
            last_step=ranges[keys[row["group"]]][1], calls=row["calls"], total_s=row["total_s"], cumulative_s=row["cumulative_s"],
            primitive_calls=row["primitive_calls"], short=shorts[row["function"]], kind=kind_of(row["file"], row["function"]),
            profiler=keys[row["group"]][0], label=keys[row["group"]][2],
        )
        for row in frame
    ]  # fmt: skip
    groups = []
    for i, (key, some) in enumerate(members.items()):
        walls = [window.duration_ns for window in some]
        counted = [window.calls for window in some if window.calls is not None]
        groups.append(
            ProfileGroup(
                by=by, label=key[2], profiler=key[0], timer=key[1], windows=len(some), processes=len({w.process for w in some}),
                wall_ns=None if None in walls else sum(wall for wall in walls if wall is not None),
                total_s=round(sum(window.total_s for window in some), 9), calls=sum(counted) if counted else None,
                functions=functions.get(i, 0),
            )
        )  # fmt: skip
    return rows, groups


def _range(some: Sequence[Window]) -> tuple[int | None, int | None]:
    firsts = [window.first_step for window in some if window.first_step is not None]
    lasts = [last for window in some if (last := window.last_step if window.last_step is not None else window.first_step) is not None]
    return (min(firsts), max(lasts)) if firsts and lasts else (None, None)


def _flames(store: Store, found: Sequence[Window]) -> tuple[FlameGraph, ...]:
    """Those of the training loop first, then by time."""
    members: dict[Key, list[Window]] = {}
    for window in found:
        if window.functions and window.total_s > 0:
            name = label(window, "job phase") or NOT_STATED
            members.setdefault((window.profiler, window.timer, name), []).append(window)
    order = sorted(members.items(), key=lambda one: (one[0][2] != _LOOP, -sum(window.total_s for window in one[1]), str(one[0])))
    made = []
    for (profiler, timer, name), some in order[:MOST_FLAMES]:
        exact = profiler == "pyinstrument"
        numbers = [window.id for window in some]
        tree = sampled_tree(store, numbers) if exact else called_tree(store, numbers)
        distinct = store.frame(
            f'SELECT count(DISTINCT function) AS n FROM python_profile WHERE "window" IN ({", ".join(map(str, numbers))})'
        ).item()
        if tree.frames:
            made.append(
                FlameGraph(
                    label=name, profiler=profiler, timer=timer, exact=exact, windows=len(some), processes=len({w.process for w in some}),
                    total_s=tree.total_s, frames=tree.frames, folded=max(0, distinct - tree.shown),
                    deepest=max(frame.depth for frame in tree.frames),
                )
            )  # fmt: skip
    return tuple(made)


def _absent(store: Store) -> str:
    """Why there is none: with the reason that the recording gives, where one was asked for."""
    text = store.frame("SELECT any_value(metadata) FROM run").item()
    metadata = json.loads(text) if text else {}
    asked = metadata.get("profiling.python") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(asked, str):
        return _ABSENT
    recorded = metadata.get("profiling.python.recorded")
    if not isinstance(recorded, str) or not recorded:
        return _UNKNOWN.format(asked)
    for kind in ("nothing: ", "not complete: "):
        if recorded.startswith(kind):
            return _NOT_RECORDED.format(asked, recorded.removeprefix(kind))
    place = metadata.get("profiling.place") or "the folder of the recording"
    return _RECORDED_ELSEWHERE.format(asked, place, recorded.partition(": ")[0])


def _profilers_times(store: Store, found: Sequence[Window]) -> Iterator[str]:
    """What of the own time is that of profilers."""
    numbers = [window.id for window in found if window.functions]
    rows = store.frame(f"""
        SELECT "window", function, any_value(file) AS file, sum(total_s) AS own FROM python_profile
        WHERE "window" IN ({", ".join(map(str, numbers))}) GROUP BY "window", function ORDER BY "window", function
    """).rows()
    ours = sum(own for _, function, _, own in rows if function == RECORDING)
    if ours > 0:
        yield _RECORDER.format(RECORDING, wording.duration(ours * 1e9))
    traced = {
        number for (number,) in store.frame("""
            SELECT DISTINCT w.id FROM python_window AS w JOIN host_event AS e ON e.process = w.process AND e.kind = 'operator'
                AND e.start_ns >= w.start_ns AND e.start_ns < w.start_ns + w.duration_ns
        """).rows()
    }  # fmt: skip
    theirs = sum(
        own for number, function, file, own in rows if number in traced and function != RECORDING and kind_of(file, function) == PROFILER
    )
    whole = sum(window.total_s for window in found if window.id in traced)
    if theirs > 0 and whole > 0:
        names = list(dict.fromkeys(label(window, "steps") or NOT_STATED for window in found if window.id in traced and window.functions))
        where = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        yield _TRACED.format(where, wording.duration(theirs * 1e9), wording.percent(100 * theirs / whole))


def _notes(store: Store, found: Sequence[Window], flames: Sequence[FlameGraph], *, merged: bool) -> list[str]:
    notes = list(_profilers_times(store, found))
    if any(window.timer is None for window in found):
        notes.append(_NO_TIMER)
    if any(window.profiler == "pyinstrument" for window in found):
        notes.append(_SAMPLED)
    if any(not flame.exact for flame in flames):
        notes.append(_ESTIMATED)
    if flames:
        notes.append(f"Frames below {LEAST_PERCENT:g} % of the time are shown together as (other).")
    processes = len({window.process for window in found})
    if processes > 1:
        notes.append(_ADDED.format(processes))
    if merged:
        notes.append(_MANY_STEPS.format(MOST_STEP_GROUPS))
    return notes
