"""Sentences on a run without GPU activity and steps: its Python profile and its collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..python_profile.names import PROFILER
from ..python_profile.profile import NOT_STATED
from ..report.python_profile import ProfileGroup, ProfileRow, PythonProfile
from ..report.rows import Share
from ..toolkit import wording

_TIMERS: Final = {"cpu_time": "CPU time", "off_cpu_time": "off-CPU time"}
_NAMED: Final = 2
_LONGEST: Final = 72  # characters of a function's name


def host_records(profile: PythonProfile | None, collectives: Sequence[Share]) -> list[str]:
    """Word the Python profile and the collectives (longest first), if there are any."""
    return [sentence for sentence in (_profiled(profile), _communicated(collectives)) if sentence]


def leading_functions(profile: PythonProfile) -> tuple[ProfileGroup, list[ProfileRow]] | None:
    """Return the group of windows with the longest own time and its functions.

    The functions are in order of time. None without a profile. Groups by total time are preferred. Functions of profilers are left out if
    there are others.
    """
    steps = [group for group in profile.groups if group.by == "steps"]
    groups = [group for group in steps if group.timer not in _TIMERS] or steps
    if not groups:
        return None
    first = max(groups, key=lambda group: group.total_s)
    key = (first.profiler, first.timer, first.label)
    rows = [row for row in profile.rows if (row.profiler, row.timer, row.label) == key]
    functions = [row for row in rows if row.kind != PROFILER] or rows
    return first, sorted(functions, key=lambda row: -row.total_s)


def _profiled(profile: PythonProfile | None) -> str:
    leading = leading_functions(profile) if profile is not None else None
    if profile is None or leading is None:
        return ""
    group, rows = leading
    steps = [one for one in profile.groups if one.by == "steps"]
    windows = sum(one.windows for one in steps)
    which = f"{wording.count(windows)} Python profiles" if windows > 1 else "A Python profile"
    if len(steps) > 1:
        stated = [group.label] if group.label != NOT_STATED else []
        named = [*stated, *([_TIMERS[group.timer]] if group.timer in _TIMERS else [])]
        which += f", most time in one of {wording.count(len(steps))} groups" + (f" ({', '.join(named)})" if named else "")
    text = f"{which}: {wording.plural(group.functions, 'function')}, {wording.duration(group.total_s * 1e9)} of own time"
    if not rows or group.total_s <= 0 or rows[0].total_s <= 0:
        return f"{text}."
    name = rows[0].short or rows[0].function
    name = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    return f"{text}, {wording.whole_percent(100 * rows[0].total_s / group.total_s)} of it in {name}."


def _communicated(collectives: Sequence[Share]) -> str:
    if not collectives:
        return ""
    clauses = [f"{wording.duration(share.total_ns)} in {wording.count(share.count)} {share.name}" for share in collectives[:_NAMED]]
    if rest := collectives[_NAMED:]:
        others = wording.plural(sum(share.count for share in rest), "other")
        clauses.append(f"{wording.duration(sum(share.total_ns for share in rest))} in {others}")
    listed = clauses[0] if len(clauses) == 1 else f"{', '.join(clauses[:-1])} and {clauses[-1]}"
    total = f" add up to {wording.duration(sum(share.total_ns for share in collectives))}" if len(collectives) > 1 else ""
    return f"Collectives{total}: {listed}."
