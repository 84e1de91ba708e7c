"""Names and groups of sections, and the choice by a list of words. Loads nothing, because command lines are read first."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from ...errors import UsageError

# In the order of the report; the appendix, which always stays, follows.
NAMES: Final = (
    "findings", "time-breakdown", "categories", "precision", "activity", "job-statistics", "steps", "step-breakdown", "slow-steps",
    "iterations", "rank-comparison", "collectives", "kernels", "launch-configurations", "operators", "efficiency", "modules", "launches",
    "launch-queue", "idle", "framework", "annotations", "python-profile", "system-usage", "gpu-memory", "memory-operations", "timeline",
    "rules", "information", "data-quality",
)  # fmt: skip
ALWAYS: Final = ("summary", "appendix")
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "run": ("information", "data-quality", "job-statistics"),
    "system": ("system-usage", "gpu-memory"),
    "gpu": (
        "time-breakdown", "kernels", "efficiency", "modules", "launch-configurations", "operators", "precision", "categories", "activity",
        "memory-operations", "collectives", "launches", "launch-queue", "idle", "iterations",
    ),
    "training": ("steps", "step-breakdown", "slow-steps", "rank-comparison", "annotations", "framework", "python-profile"),
}  # fmt: skip


def checked(words: Iterable[str]) -> tuple[str, ...]:
    """Normalize the words of --sections. Raise UsageError for an unknown one.

    Names of sections and groups are in any case, with ``-`` or ``_``, and may follow a minus.
    """
    names = []
    for word in words:
        minus = "-" if word.startswith("-") else ""
        name = word.removeprefix("-").lower().replace("_", "-")
        if not name:
            raise UsageError("'-' names no section; write the section to leave out after the minus: --sections -kernels")
        if minus and name in ALWAYS:
            raise UsageError(f"the {name} always stays; leave out others, such as -kernels")
        if name not in (*NAMES, *GROUPS, *ALWAYS):
            near = difflib.get_close_matches(name, (*NAMES, *GROUPS), n=3)
            meant = f" (did you mean {' or '.join(near)}?)" if near else ""
            raise UsageError(
                f"{word.removeprefix('-')!r} is not a section{meant}; accepted: {', '.join(NAMES)}; groups: {', '.join(GROUPS)}"
            )
        names.append(minus + name)
    if not names:
        raise UsageError("nothing is named; write it like --sections steps,kernels,rules or --sections -kernels")
    return tuple(names)


def left_out(words: Iterable[str] | None) -> tuple[str, ...]:
    """Return the sections that ``words`` omit, in the order of the report."""
    if words is None:
        return ()
    names = checked(words)
    on = {name for word in names if not word.startswith("-") for name in GROUPS.get(word, (word,))}
    off = {name for word in names if word.startswith("-") for name in GROUPS.get(word[1:], (word[1:],))}
    named = any(not word.startswith("-") for word in names)
    return tuple(name for name in NAMES if (named and name not in on) or name in off)
