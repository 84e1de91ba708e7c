"""How is what a profiling configuration asked for, and a recording has nothing or only a part of, told to the report's reader?

The processes of the recording say it: ``profiling.<kind>.recorded`` is the steps that were recorded, ``nothing: <why>``, ``not complete:
<why>``, or steps and why they are not all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from .capture_notes import Missing
from .store import Severity, Store

_NAMES: Final = {
    "detailed": "detailed profiling", "loader": "data-loader profiling", "python": "Python profiling", "horovod": "Horovod profiling",
    "smdataparallel": "SMDataParallel profiling",
}  # fmt: skip
_LIBRARIES: Final = ("horovod", "smdataparallel")
_STEPS: Final = re.compile(r"steps? \d+(?: to \d+)?(?:: (.+))?", re.DOTALL)
_NO_STEP: Final = "no step began"
_USUAL: Final = ("is not in use", "is not initialised", "HOROVOD_TIMELINE is set")
"""Of libraries that a common window asks for without the program using them."""
_AS_IS: Final = ("has not imported", "was iterated")
_MOST: Final = 12


def note_profiling(store: Store, given: Iterable[Missing]) -> None:
    """One note per reason: what it left out, and in how many processes. All files of a process say the same."""
    said: dict[tuple[str, str], dict[str, dict[int, Missing]]] = {}
    recorded: set[str] = set()
    asked: set[int] = set()
    for one in given:
        for kind in _NAMES:
            value = " ".join(one.metadata.get(f"profiling.{kind}.recorded", "").split())
            if not value:
                continue
            asked.add(one.process)
            nothing, steps = value.startswith("nothing: "), _STEPS.fullmatch(value)
            if steps is not None:
                recorded.add(kind)
            why = steps[1] if steps is not None else value.partition(": ")[2]
            if why:
                said.setdefault(("nothing" if nothing else "part", why[:300]), {}).setdefault(kind, {})[one.process] = one
    notes = 0
    for (how, why), kinds in said.items():
        named = _to_tell(why, set(kinds), recorded)
        if not named:
            continue
        notes += 1
        if notes > _MOST:
            break
        first = next(iter(kinds[named[0]].values()))
        processes = {process for kind in named for process in kinds[kind]}
        words = _words([_NAMES[kind] for kind in named])
        left = "recorded nothing" if how == "nothing" else f"{'is' if len(named) == 1 else 'are'} not complete"
        where = f" in {len(processes)} of {len(asked)} processes" if len(asked) > 1 else ""
        severity: Severity = "info" if any(text in why for text in _AS_IS) else "warning"
        text = f"{words[0].upper()}{words[1:]} {left}{where}: {why}."
        store.note(severity, "profiling_left_out", text, count=len(processes), source=first.source, file=first.file)


def _to_tell(why: str, kinds: set[str], recorded: set[str]) -> list[str]:
    if any(text in why for text in _USUAL):
        return []
    if why == _NO_STEP:  # another process of the job trains
        kinds = kinds - recorded
    own = [kind for kind in _NAMES if kind in kinds and kind not in _LIBRARIES]
    return own or [kind for kind in _LIBRARIES if kind in kinds]


def _words(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
