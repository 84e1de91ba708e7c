"""GPU windows of recordings: the times in which device activity was recorded -> ``profile_window``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ..store.durations import duration
from ..store.store import Store

WINDOW: Final = re.compile(r"gpu\.window\.(\d{1,9})")
_NEARLY_ALL: Final = 0.95  # Windows that cover more than this of a recording are not noted
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
        """Add the windows of a file; return the limits between them.

        A limit is the middle between the end of one window and the start of the next, because clocks of devices run a little early or late.
        """
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
        """Add the times of the rows of a file; ``devices``: it has rows of a device."""
        known = self._sessions[process, session]
        known.first_ns = first_ns if known.first_ns is None else min(first_ns, known.first_ns)
        known.last_ns = last_ns if known.last_ns is None else max(last_ns, known.last_ns)
        known.devices |= devices

    def worked(self, process: int, session: bytes, window: int, first_ns: int, last_ns: int) -> None:
        """Add the times of device work in a window, which an early clock puts before it."""
        known = self._sessions[process, session]
        first, last = known.worked.get(window, (first_ns, last_ns))
        known.worked[window] = min(first, first_ns), max(last, last_ns)

    def settle(self) -> None:
        """Store each window with its device work, or each session without windows."""
        self._note()
        for (process, _), known in self._sessions.items():
            if known.first_ns is None or known.last_ns is None or not (known.devices or known.windows):
                continue
            for index, (begin, end) in enumerate(_ended(known.windows, known.last_ns) or [(known.first_ns, known.last_ns)]):
                first, last = known.worked.get(index, (begin, end))
                window = {"first_ns": min(first, begin), "last_ns": max(last, end)}
                self.store.insert("profile_window", {"process": process, "source": known.source, **window})

    def _note(self) -> None:
        """Note the times of the windows of the recording with the longest windows."""
        recordings = [
            (sum(end - begin for begin, end in spans), known, spans)
            for known in self._sessions.values()
            if known.first_ns is not None and known.last_ns is not None and (spans := _ended(known.windows, known.last_ns))
        ]
        longest, known, spans = max(recordings, key=lambda recording: recording[0], default=(0, None, []))
        if known is None or known.first_ns is None or known.last_ns is None or longest > _NEARLY_ALL * (known.last_ns - known.first_ns):
            return
        windows = "a window" if len(spans) == 1 else f"{len(spans)} windows"
        text = f"GPU activity was recorded in {windows} only, {duration(longest)} of {duration(known.last_ns - known.first_ns)}"
        text += "" if len(recordings) == 1 else f" (where longest, of {len(recordings)} recordings)"
        text += "; figures of GPUs are of that time."
        first, last = spans[0][0], spans[-1][1]
        self.store.note("info", "gpu_windows", text, count=len(spans), source=known.source, first_ns=first, last_ns=last)


def _ended(windows: Mapping[int, tuple[int, int | None]], last_ns: int | None) -> list[tuple[int, int]]:
    """Return begins and ends in order; an end is at most the next begin."""
    spans = sorted(windows.values(), key=lambda span: span[0])
    ended = []
    for index, (begin, end) in enumerate(spans):
        limit = spans[index + 1][0] if index + 1 < len(spans) else None
        known = [time for time in (end, limit) if time is not None] or [begin if last_ns is None else last_ns]
        ended.append((begin, max(begin, min(known))))
    return ended
