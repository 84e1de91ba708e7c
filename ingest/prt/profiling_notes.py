"""How is what a profiling configuration asked for, and a recording has nothing or only a part of, told to the report's reader?

The processes of the recording say it: ``profiling.<kind>.recorded`` is the steps that were recorded, ``nothing: <why>``, ``not complete:
<why>``, or steps and why they are not all; ``profiling.place`` is the folder of the files where it is not that of the recording;
``sample_cpu_for_s`` is for how many seconds processors were sampled where it is not to the end.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable, Mapping
from typing import Final

from ..store.format_names import PYTHON_STATS, PYTHON_TREE, TIMELINE, TRACE
from ..store.store import Store
from ..store.tables import Severity
from .notes import Missing

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
_ENDED: Final = ("not reached; the last step", "before the end of the window", "before the window")
"""Of windows that were longer than the training."""
_MOST: Final = 12
_FORMATS: Final = {
    "detailed": (TRACE,), "loader": (TIMELINE,), "python": (PYTHON_STATS, PYTHON_TREE), "horovod": (TIMELINE,),
    "smdataparallel": (TIMELINE,),
}  # fmt: skip
_SAME_S: Final = 1  # By how much a recording may be longer than its processors were sampled without being another length


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
        severity: Severity = "info" if any(text in why for text in (_AS_IS if how == "nothing" else _ENDED)) else "warning"
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


def note_elsewhere(store: Store, given: Iterable[Missing], formats: Container[str | None]) -> None:
    """One note per folder that holds what was profiled, where no file like it is among those that are read. ``formats``: of these."""
    given = list(given)
    with_devices = {one.process for one in given if one.devices}
    places: dict[str, tuple[Missing, set[int]]] = {}
    for one in given:
        place = one.metadata.get("profiling.place", "")
        if place and any(_lacks(one, kind, formats, one.process in with_devices) for kind in _FORMATS):
            places.setdefault(place, (one, set()))[1].add(one.process)
    for place, (one, processes) in list(places.items())[:_MOST]:
        text = f"Framework profiling was written to {place}; give it beside the recording: postrun report RECORDING {shlex.quote(place)}."
        store.note("warning", "profiling_elsewhere", text, count=len(processes), source=one.source, file=one.file)


def _lacks(one: Missing, kind: str, formats: Container[str | None], devices: bool) -> bool:
    """Whether files of a kind of profiling are missing. ``devices``: whether any file of the process has activity of GPUs."""
    recorded = _STEPS.fullmatch(" ".join(one.metadata.get(f"profiling.{kind}.recorded", "").split())) is not None
    in_recording = kind == "detailed" and devices  # without PyTorch kernels are in the recording itself
    return recorded and not in_recording and not any(name in formats for name in _FORMATS[kind])


def note_sampled(store: Store, given: Iterable[Missing], spans: Mapping[int, tuple[int, int]]) -> None:
    """That processors were sampled for a part of the time only: one note for all machines of which this is the same part. ``spans``: from
    when to when the sessions of a process were, in nanoseconds."""
    parts: dict[tuple[int, str], dict[str, Missing]] = {}
    for one in given:
        text = one.metadata.get("sample_cpu_for_s", "")
        first_ns, last_ns = spans.get(one.process, (0, 0))
        if not text.isascii() or not text.isdigit() or len(text) > 10:
            continue
        seconds, whole = int(text), (last_ns - first_ns) / 1e9
        if seconds and whole - seconds > _SAME_S:
            parts.setdefault((seconds, f"{whole:.0f}"), {})[one.machine] = one
    for (seconds, whole_s), machines in list(parts.items())[:_MOST]:
        first = next(iter(machines.values()))
        where = f" on {len(machines)} machines" if len(machines) > 1 else ""
        text = (
            f"Processors were sampled for the first {seconds} s of {whole_s} s{where} (cpu_profiling_duration);"
            " what is said of processors is of that time."
        )
        store.note("info", "processors_sampled_in_part", text, count=len(machines), source=first.source, file=first.file)
