"""Notes about requested profiling that a recording lacks, completely or in part.

The processes of the recording state it: ``profiling.<kind>.recorded`` is the steps that were recorded, ``nothing: <why>``, ``not complete:
<why>``, or steps and why they are not all; ``profiling.place`` is the folder of the files if it is not that of the recording;
``sample_cpu_for_s`` is for how many seconds processors were sampled if they were not sampled to the end.
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
_USUAL: Final = ("is not in use", "is not initialized", "HOROVOD_TIMELINE is set")
"""Reasons of libraries that a common window requests although the program does not use them."""
_AS_IS: Final = ("has not imported", "was iterated")
_ENDED: Final = ("not reached; the last step", "before the end of the window", "before the window")
"""Reasons of windows that were longer than the training."""
_MOST: Final = 12
_FORMATS: Final = {
    "detailed": (TRACE,), "loader": (TIMELINE,), "python": (PYTHON_STATS, PYTHON_TREE), "horovod": (TIMELINE,),
    "smdataparallel": (TIMELINE,),
}  # fmt: skip
_SAME_S: Final = 1  # By how much a recording may be longer than the sampling of its processors without a note


def note_profiling(store: Store, files: Iterable[Missing]) -> None:
    """Note each reason for missing profiling, with the number of processes."""
    reasons: dict[tuple[str, str], dict[str, dict[int, Missing]]] = {}
    recorded: set[str] = set()
    requested: set[int] = set()
    for file in files:
        for kind in _NAMES:
            value = " ".join(file.metadata.get(f"profiling.{kind}.recorded", "").split())
            if not value:
                continue
            requested.add(file.process)
            nothing, steps = value.startswith("nothing: "), _STEPS.fullmatch(value)
            if steps is not None:
                recorded.add(kind)
            why = steps[1] if steps is not None else value.partition(": ")[2]
            if why:
                reasons.setdefault(("nothing" if nothing else "part", why[:300]), {}).setdefault(kind, {})[file.process] = file
    notes = 0
    for (how, why), kinds in reasons.items():
        named = _noted_kinds(why, set(kinds), recorded)
        if not named:
            continue
        notes += 1
        if notes > _MOST:
            break
        first = next(iter(kinds[named[0]].values()))
        processes = {process for kind in named for process in kinds[kind]}
        words = _words([_NAMES[kind] for kind in named])
        left = "recorded nothing" if how == "nothing" else f"{'is' if len(named) == 1 else 'are'} not complete"
        where = f" in {len(processes)} of {len(requested)} processes" if len(requested) > 1 else ""
        severity: Severity = "info" if any(text in why for text in (_AS_IS if how == "nothing" else _ENDED)) else "warning"
        text = f"{words[0].upper()}{words[1:]} {left}{where}: {why}."
        store.note(severity, "profiling_left_out", text, count=len(processes), source=first.source, file=first.file)


def _noted_kinds(why: str, kinds: set[str], recorded: set[str]) -> list[str]:
    if any(text in why for text in _USUAL):
        return []
    if why == _NO_STEP:  # another process of the job trains
        kinds = kinds - recorded
    of_program = [kind for kind in _NAMES if kind in kinds and kind not in _LIBRARIES]
    return of_program or [kind for kind in _LIBRARIES if kind in kinds]


def _words(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def note_elsewhere(store: Store, missing: Iterable[Missing], formats: Container[str | None]) -> None:
    """Note each folder with profiles that are not among the files, by ``formats``."""
    files = list(missing)
    with_devices = {file.process for file in files if file.devices}
    folders: dict[str, tuple[Missing, set[int]]] = {}
    for file in files:
        folder = file.metadata.get("profiling.place", "")
        if folder and any(_lacks(file, kind, formats, file.process in with_devices) for kind in _FORMATS):
            folders.setdefault(folder, (file, set()))[1].add(file.process)
    for folder, (first, processes) in list(folders.items())[:_MOST]:
        text = f"Framework profiling was written to {folder}; give it beside the recording: postrun report RECORDING {shlex.quote(folder)}."
        store.note("warning", "profiling_elsewhere", text, count=len(processes), source=first.source, file=first.file)


def _lacks(file: Missing, kind: str, formats: Container[str | None], devices: bool) -> bool:
    """Whether files of a kind are missing; ``devices``: the process has GPU activity."""
    recorded = _STEPS.fullmatch(" ".join(file.metadata.get(f"profiling.{kind}.recorded", "").split())) is not None
    in_recording = kind == "detailed" and devices  # without PyTorch kernels are in the recording itself
    return recorded and not in_recording and not any(name in formats for name in _FORMATS[kind])


def note_sampled(store: Store, files: Iterable[Missing], spans: Mapping[int, tuple[int, int]]) -> None:
    """Note processors that were sampled for a part of the ``spans`` of processes."""
    parts: dict[tuple[int, str], dict[str, Missing]] = {}
    for file in files:
        text = file.metadata.get("sample_cpu_for_s", "")
        first_ns, last_ns = spans.get(file.process, (0, 0))
        if not text.isascii() or not text.isdigit() or len(text) > 10:
            continue
        seconds, span_s = int(text), (last_ns - first_ns) / 1e9
        if seconds and span_s - seconds > _SAME_S:
            parts.setdefault((seconds, f"{span_s:.0f}"), {})[file.machine] = file
    for (seconds, whole_s), machines in list(parts.items())[:_MOST]:
        first = next(iter(machines.values()))
        where = f" on {len(machines)} machines" if len(machines) > 1 else ""
        text = (
            f"Processors were sampled for the first {seconds} s of {whole_s} s{where} (cpu_profiling_duration);"
            " what is said of processors is of that time."
        )
        store.note("info", "processors_sampled_in_part", text, count=len(machines), source=first.source, file=first.file)
