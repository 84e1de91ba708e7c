"""Python profile of a run: functions by time, per group of steps and per phase, and flame graphs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ...ingest.store.store import Store
from ..report.python_profile import FlameGraph, ProfileGroup, ProfileRow, PythonProfile
from ..toolkit import wording
from ..toolkit.contents import stated
from .flame_graph import LEAST_PERCENT, called_tree, sampled_tree
from .names import PROFILER, RECORDING, kind_of, short_names
from .windows import Question, Window, label, windows

STEP_ROWS: Final = 100
PHASE_ROWS: Final = 10
MOST_STEP_GROUPS: Final = 24  # per profiler and timer; if there are more, the steps of each mode are one group
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
    """Return the functions with the longest own time, and the flame graphs.

    Functions are listed by profiler, timer and steps, and by phase. Functions of the same name are summed over the processes and windows of
    a group. There is a flame graph per profiler, timer and phase of the job.
    """
    all_windows = windows(store)
    if not any(window.functions for window in all_windows):
        return PythonProfile(rows=(), absent=_absent(store))
    steps, merged = _step_groups(all_windows)
    rows, groups = _grouped(store, steps, "steps", STEP_ROWS)
    phases: list[ProfileGroup] = []
    questions: tuple[Question, ...] = ("job phase", "modes", "training phase")
    for question in questions:
        members = _members(all_windows, partial(label, question=question))
        if question == "modes" and len({name for _, _, name in members}) < 2:
            continue
        # A phase that equals the groups by steps adds no information.
        if {frozenset(some) for some in members.values()} != {frozenset(some) for some in steps.values()}:
            phase_rows, phase_groups = _grouped(store, members, question, PHASE_ROWS)
            for group in phase_groups:
                key = (group.profiler, group.timer, group.label)
                phases.append(replace(group, rows=tuple(r for r in phase_rows if (r.profiler, r.timer, r.label) == key)))
    flames = _flames(store, all_windows)
    return PythonProfile(
        rows=tuple(rows),
        absent=None,
        groups=(*groups, *phases),
        flames=flames,
        notes=tuple(_notes(store, all_windows, flames, merged=merged)),
    )


def _members(all_windows: Iterable[Window], name_of: Callable[[Window], str | None]) -> dict[Key, list[Window]]:
    members: dict[Key, list[Window]] = {}
    for window in all_windows:
        if window.functions and (name := name_of(window)) is not None:
            members.setdefault((window.profiler, window.timer, name), []).append(window)
    return members


def _step_groups(all_windows: Sequence[Window]) -> tuple[dict[Key, list[Window]], bool]:
    """Group windows by steps, or by mode if steps are too many; return whether so."""
    kinds: dict[tuple[str, str | None], set[str | None]] = {}
    for window in all_windows:
        kinds.setdefault((window.profiler, window.timer), set()).add(label(window, "steps"))
    crowded = {kind for kind, names in kinds.items() if len(names) > MOST_STEP_GROUPS}

    def name(window: Window) -> str:
        if (window.profiler, window.timer) in crowded:
            return label(window, "modes") or label(window, "job phase") or NOT_STATED
        return label(window, "steps") or NOT_STATED

    return _members(all_windows, name), bool(crowded)


def _grouped(store: Store, members: dict[Key, list[Window]], by: str, most: int) -> tuple[list[ProfileRow], list[ProfileGroup]]:
    """Return the rows and the groups, in the order of their first windows."""
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


def _flames(store: Store, all_windows: Sequence[Window]) -> tuple[FlameGraph, ...]:
    """Return the flame graphs: the training loop first, then by time."""
    timed = (window for window in all_windows if window.total_s > 0)
    members = _members(timed, lambda window: label(window, "job phase") or NOT_STATED)
    order = sorted(members.items(), key=lambda one: (one[0][2] != _LOOP, -sum(window.total_s for window in one[1]), str(one[0])))
    flames = []
    for (profiler, timer, name), some in order[:MOST_FLAMES]:
        exact = profiler == "pyinstrument"
        numbers = [window.id for window in some]
        tree = sampled_tree(store, numbers) if exact else called_tree(store, numbers)
        distinct = store.frame(
            f'SELECT count(DISTINCT function) AS n FROM python_profile WHERE "window" IN ({", ".join(map(str, numbers))})'
        ).item()
        if tree.frames:
            flames.append(
                FlameGraph(
                    label=name, profiler=profiler, timer=timer, exact=exact, windows=len(some), processes=len({w.process for w in some}),
                    total_s=tree.total_s, frames=tree.frames, folded=max(0, distinct - tree.functions),
                    deepest=max(frame.depth for frame in tree.frames),
                )
            )  # fmt: skip
    return tuple(flames)


def _absent(store: Store) -> str:
    """Explain why there is no profile, with the recording's reason if it has one."""
    text = stated(store, "metadata")
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
    folder = metadata.get("profiling.place") or "the folder of the recording"
    return _RECORDED_ELSEWHERE.format(asked, folder, recorded.partition(": ")[0])


def _profilers_times(store: Store, all_windows: Sequence[Window]) -> Iterator[str]:
    """Word the part of the own time that profilers took."""
    numbers = [window.id for window in all_windows if window.functions]
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
    total = sum(window.total_s for window in all_windows if window.id in traced)
    if theirs > 0 and total > 0:
        names = list(
            dict.fromkeys(label(window, "steps") or NOT_STATED for window in all_windows if window.id in traced and window.functions)
        )
        where = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        yield _TRACED.format(where, wording.duration(theirs * 1e9), wording.percent(100 * theirs / total))


def _notes(store: Store, all_windows: Sequence[Window], flames: Sequence[FlameGraph], *, merged: bool) -> list[str]:
    notes = list(_profilers_times(store, all_windows))
    if any(window.timer is None for window in all_windows):
        notes.append(_NO_TIMER)
    if any(window.profiler == "pyinstrument" for window in all_windows):
        notes.append(_SAMPLED)
    if any(not flame.exact for flame in flames):
        notes.append(_ESTIMATED)
    if flames:
        notes.append(f"Frames below {wording.threshold_text(LEAST_PERCENT)} of the time are shown together as (other).")
    processes = len({window.process for window in all_windows})
    if processes > 1:
        notes.append(_ADDED.format(processes))
    if merged:
        notes.append(_MANY_STEPS.format(MOST_STEP_GROUPS))
    return notes
