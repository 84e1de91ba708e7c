"""Time and process of a Python profile: the folder of its files names them, and a small file next to them the timer.

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
FACTS: Final = "postrun.json"  # Name of the file next to a profile with its timer and the rank of its process

_POINT: Final = (
    r"(?P<{0}_mode>[a-z]{{1,40}})-(?P<{0}_step>\d{{1,18}}|\*)-(?P<{0}_phase>[a-z]{{1,40}})-(?P<{0}_us>\d{{1,18}}(?:\.\d{{1,9}})?)"
)
_NEW: Final = re.compile(f"{_POINT.format('start')}_{_POINT.format('end')}", re.IGNORECASE)
_OLD: Final = re.compile(
    r"(?P<start_us>\d{1,18}(?:\.\d{1,9})?)_(?P<end_us>\d{1,18}(?:\.\d{1,9})?)_(?P<node>[^/]{1,255})_(?P<step>-?\d{1,18})"
)
_MOST_NS: Final = 2**62
_MOST_FACTS: Final = 64 << 10
_OUTSIDE: Final = ("prestepzero", "posthookclose")  # Modes outside of steps: before the first one, after the last


@dataclass(frozen=True, slots=True)
class Window:
    """Facts of a profile by its folder. ``*_step``: None if unknown, before the first and after the last step. ``host``, ``number`` and
    ``label``: of the process, as in the names of timelines."""

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
        """First and last step with a part in the window."""
        first = None if self.start_mode in _OUTSIDE else self.start_step
        last = None if self.end_mode in _OUTSIDE or self.start_mode in _OUTSIDE else self.end_step
        if last is not None and first is not None and self.end_phase == "stepstart" and self.end_mode == self.start_mode:
            last = max(first, last - 1)
        return first, last


def window_of(path: Path) -> Window:
    """Return the window that the folders of a profile name, or an empty one."""
    folder = path.absolute().parent
    if match := _NEW.fullmatch(folder.name):
        host, number, label = _node(folder.parent.name)
        points: dict[str, Any] = {}
        for side in ("start", "end"):
            step = match[f"{side}_step"]
            points |= {f"{side}_mode": match[f"{side}_mode"].lower(), f"{side}_step": None if step == "*" else int(step)}
            points |= {f"{side}_phase": match[f"{side}_phase"].lower(), f"{side}_ns": _ns(match[f"{side}_us"])}
        return Window(host, number, label, **points)
    if match := _OLD.fullmatch(folder.name):
        host, number, label = _node(match["node"])
        step = int(match["step"])
        mode = "prestepzero" if step < 0 else None
        known = None if step < 0 else step
        return Window(
            host, number, label, start_mode=mode, start_step=known, start_ns=_ns(match["start_us"]), end_mode=mode, end_step=known,
            end_ns=_ns(match["end_us"]),
        )  # fmt: skip
    return Window()


def timer_of(path: Path) -> str | None:
    """Return the timer that the file next to a profile states, or None."""
    timer = _facts(path).get("timer")
    return timer if isinstance(timer, str) and timer in TIMERS else None


def rank_of(path: Path) -> int | None:
    """Return the rank of the process that the file next to a profile states, or None."""
    rank = _facts(path).get("rank")
    return rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 2**31 else None


def _facts(path: Path) -> dict[str, Any]:
    file = path.with_name(FACTS)
    if os.path.dirname(os.path.realpath(file)) != os.path.dirname(os.path.realpath(path)):  # noqa: PTH120
        return {}  # a link, which could lead out of the run
    try:
        with file.open("rb") as opened:
            facts = json.loads(opened.read(_MOST_FACTS))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _node(name: str) -> tuple[str, int | None, str]:
    as_file = f"0_{name.replace('_', '-')[:255]}_"  # with the node in the field of the names of timelines
    host, number = machine_of(as_file)
    return host, number if number is None or number < 2**62 else None, node_label(as_file)


def _ns(us: str) -> int | None:
    """Convert microseconds as text to nanoseconds, exactly."""
    integer, _, part = us.partition(".")
    ns = int(integer) * 1000 + int(part.ljust(9, "0")[:9]) // 10**6 if part else int(integer) * 1000
    return ns if ns <= _MOST_NS else None
