"""When was device activity recorded? A recording may do so in windows only, or all the time. -> ``profile_window``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ..store.durations import duration
from ..store.store import Store

WINDOW: Final = re.compile(r"gpu\.window\.(\d{1,9})")
_NEARLY_ALL: Final = 0.95  # Windows that cover more than this of a recording are no news
_TIMES: Final = re.compile(r"(\d{1,19})(?: (\d{1,19}))?")


@dataclass(slots=True)
class _Session:
    """``windows``: begin and end by number. ``first_ns``, ``last_ns``: of all its rows. ``devices``: whether there are any of a device."""

    source: int
    windows: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    first_ns: int | None = None
    last_ns: int | None = None
    devices: bool = False
    worked: dict[int, tuple[int, int]] = field(default_factory=dict)  # first start, last end of device work, by place of the window


class GpuWindows:
    """The windows of one run: :meth:`add` and :meth:`seen` for each file, then :meth:`settle`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._sessions: dict[tuple[int, bytes], _Session] = {}

    def add(self, process: int, session: bytes, source: int, metadata: Mapping[str, str]) -> list[int]:
        """What a file says of windows; from when on rows are of the next one: the middle between the end of one and the begin of the
        next, for clocks of devices run a little before or behind."""
        known = self._sessions.setdefault((process, session), _Session(source))
        for key, value in metadata.items():
            name, times = WINDOW.fullmatch(key), _TIMES.fullmatch(value)
            if name and times and max(int(time or 0) for time in times.groups()) < 2**63:
                begin, end = int(times[1]), int(times[2]) if times[2] else None
                # A file that was full while a window lasted does not know its end.
                sensible = known.windows.get(int(name[1]), (begin, None))[1] if end is None or end < begin else end
                known.windows[int(name[1])] = (begin, sensible)
        return [end + (begin - end) // 2 for (_, end), (begin, _) in pairwise(_ended(known.windows, None))]

    def seen(self, process: int, session: bytes, first_ns: int, last_ns: int, *, devices: bool) -> None:
        """First start and last end of the rows of a file, and whether there are any of a device."""
        known = self._sessions[process, session]
        known.first_ns = first_ns if known.first_ns is None else min(first_ns, known.first_ns)
        known.last_ns = last_ns if known.last_ns is None else max(last_ns, known.last_ns)
        known.devices |= devices

    def worked(self, process: int, session: bytes, place: int, first_ns: int, last_ns: int) -> None:
        """First start and last end of device work in the window at ``place`` (in order of time): with the device's clock before the
        host's, it seems to begin before the window."""
        known = self._sessions[process, session]
        first, last = known.worked.get(place, (first_ns, last_ns))
        known.worked[place] = min(first, first_ns), max(last, last_ns)

    def settle(self) -> None:
        """One row per window, with the device work in it; per session where it recorded device activity all the time. None of a session
        without any."""
        self._note()
        for (process, _), known in self._sessions.items():
            if known.first_ns is None or known.last_ns is None or not (known.devices or known.windows):
                continue
            for place, (begin, end) in enumerate(_ended(known.windows, known.last_ns) or [(known.first_ns, known.last_ns)]):
                first, last = known.worked.get(place, (begin, end))
                window = {"first_ns": min(first, begin), "last_ns": max(last, end)}
                self.store.insert("profile_window", {"process": process, "source": known.source, **window})

    def _note(self) -> None:
        """In which time there were windows, of the process where they lasted longest."""
        found = [
            (sum(end - begin for begin, end in spans), known, spans)
            for known in self._sessions.values()
            if known.first_ns is not None and known.last_ns is not None and (spans := _ended(known.windows, known.last_ns))
        ]
        longest, known, spans = max(found, key=lambda one: one[0], default=(0, None, []))
        if known is None or known.first_ns is None or known.last_ns is None or longest > _NEARLY_ALL * (known.last_ns - known.first_ns):
            return
        windows = "a window" if len(spans) == 1 else f"{len(spans)} windows"
        text = f"GPU activity was recorded in {windows} only, {duration(longest)} of {duration(known.last_ns - known.first_ns)}"
        text += "" if len(found) == 1 else f" (where longest, of {len(found)} recordings)"
        text += "; figures of GPUs are of that time."
        first, last = spans[0][0], spans[-1][1]
        self.store.note("info", "gpu_windows", text, count=len(spans), source=known.source, first_ns=first, last_ns=last)


def _ended(windows: Mapping[int, tuple[int, int | None]], last_ns: int | None) -> list[tuple[int, int]]:
    """Begins and ends in order. One without an end, or with one behind the next begin, ends there; the last one at ``last_ns``."""
    spans = sorted(windows.values(), key=lambda span: span[0])
    ended = []
    for place, (begin, end) in enumerate(spans):
        limit = spans[place + 1][0] if place + 1 < len(spans) else None
        known = [time for time in (end, limit) if time is not None] or [begin if last_ns is None else last_ns]
        ended.append((begin, max(begin, min(known))))
    return ended
