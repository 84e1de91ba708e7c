"""When was a Python profile taken, and of which process? The folder of its files says it, and a small file beside them the timer.

framework/<framework>/<cprofile|pyinstrument>/<node>/<mode>-<step>-<phase>-<us>_<mode>-<step>-<phase>-<us>/python_stats
framework/<framework>/cProfile/<start us>_<end us>_<node>_<step>/python_stats          (older)
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..store.hosted_names import machine_of, node_label

TIMERS: Final = ("total_time", "cpu_time", "off_cpu_time")
FACTS: Final = "postrun.json"  # Name of the file beside a profile that says its timer and the rank of its process

_POINT: Final = (
    r"(?P<{0}_mode>[a-z]{{1,40}})-(?P<{0}_step>\d{{1,18}}|\*)-(?P<{0}_phase>[a-z]{{1,40}})-(?P<{0}_us>\d{{1,18}}(?:\.\d{{1,9}})?)"
)
_NEW: Final = re.compile(f"{_POINT.format('start')}_{_POINT.format('end')}", re.IGNORECASE)
_OLD: Final = re.compile(
    r"(?P<start_us>\d{1,18}(?:\.\d{1,9})?)_(?P<end_us>\d{1,18}(?:\.\d{1,9})?)_(?P<node>[^/]{1,255})_(?P<step>-?\d{1,18})"
)
_MOST_NS: Final = 2**62
_MOST_FACTS: Final = 64 << 10
_OUTSIDE: Final = ("prestepzero", "posthookclose")  # Modes that are no steps: before the first one, after the last


@dataclass(frozen=True, slots=True)
class Window:
    """What is known of a profile. ``*_step``: None before the first and after the last step, and where nothing says it. ``host``,
    ``number`` and ``label``: of the process, as in the names of timelines."""

    host: str | None = None
    number: int | None = None
    label: str | None = None
    start_mode: str | None = None
    start_step: int | None = None
    start_phase: str | None = None
    start_ns: int | None = None
    end_mode: str | None = None
    end_step: int | None = None
    end_phase: str | None = None
    end_ns: int | None = None

    @property
    def steps(self) -> tuple[int | None, int | None]:
        """First and last step of which a part is in the window. One that ends where a step begins has nothing of that step."""
        first = None if self.start_mode in _OUTSIDE else self.start_step
        last = None if self.end_mode in _OUTSIDE or self.start_mode in _OUTSIDE else self.end_step
        if last is not None and first is not None and self.end_phase == "stepstart" and self.end_mode == self.start_mode:
            last = max(first, last - 1)
        return first, last


def window_of(path: Path) -> Window:
    """What the folders of the profile ``path`` say; nothing where they are not named so."""
    folder = path.absolute().parent
    if found := _NEW.fullmatch(folder.name):
        host, number, label = _node(folder.parent.name)
        points: dict[str, Any] = {}
        for side in ("start", "end"):
            step = found[f"{side}_step"]
            points |= {f"{side}_mode": found[f"{side}_mode"].lower(), f"{side}_step": None if step == "*" else int(step)}
            points |= {f"{side}_phase": found[f"{side}_phase"].lower(), f"{side}_ns": _ns(found[f"{side}_us"])}
        return Window(host, number, label, **points)
    if found := _OLD.fullmatch(folder.name):
        host, number, label = _node(found["node"])
        step = int(found["step"])
        mode = "prestepzero" if step < 0 else None
        known = None if step < 0 else step
        return Window(
            host, number, label, start_mode=mode, start_step=known, start_ns=_ns(found["start_us"]), end_mode=mode, end_step=known,
            end_ns=_ns(found["end_us"]),
        )  # fmt: skip
    return Window()


def timer_of(path: Path) -> str | None:
    """The timer of the profile ``path`` by the file beside it; None where there is none or it does not say."""
    timer = _facts(path).get("timer")
    return timer if isinstance(timer, str) and timer in TIMERS else None


def rank_of(path: Path) -> int | None:
    """The rank of the process of the profile ``path``, likewise."""
    rank = _facts(path).get("rank")
    return rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 2**31 else None


def _facts(path: Path) -> dict[str, Any]:
    beside = path.with_name(FACTS)
    if os.path.dirname(os.path.realpath(beside)) != os.path.dirname(os.path.realpath(path)):  # noqa: PTH120
        return {}  # a link, which could lead out of the run
    try:
        with beside.open("rb") as file:
            facts = json.loads(file.read(_MOST_FACTS))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _node(name: str) -> tuple[str, int | None, str]:
    as_file = f"0_{name.replace('_', '-')[:255]}_"  # where names of timelines have it
    host, number = machine_of(as_file)
    return host, number if number is None or number < 2**62 else None, node_label(as_file)


def _ns(us: str) -> int | None:
    """Microseconds as text, exactly."""
    whole, _, part = us.partition(".")
    ns = int(whole) * 1000 + int(part.ljust(9, "0")[:9]) // 10**6 if part else int(whole) * 1000
    return ns if ns <= _MOST_NS else None
