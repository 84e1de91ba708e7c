"""Opens and closes the parts of framework profiling in the steps or times of their windows.

A window opens once: before its first step begins, and closes after its last step has ended. By time: before the first step that begins at
or after its start, until the first step ends at or after its end; without an end after one step. Both need steps: without any step nothing
is recorded. After the last window the engine ignores steps. The end of the session reports each window that never opened, with the reason;
an optimizer's step that has not ended by then does not count.

Parts open in the order of ``PARTS`` and close in the reverse order, so that no profile of Python functions contains work of other parts.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from .... import modes
from ..plan import DetailedPlan, LoaderPlan, ProfilingPlan, PythonPlan, Window
from . import steps as steps_of
from .part import FileLimits, LeftOutError, Part

PARTS: Final = ("detailed", "horovod", "smdataparallel", "loader", "python")
NAMES: Final = {
    "detailed": "detailed profiling", "horovod": "Horovod profiling", "smdataparallel": "SMDataParallel profiling",
    "loader": "data-loader profiling", "python": "Python profiling",
}  # fmt: skip
Tell = Callable[[str, object], None]
_MOST_STRIDES: Final = 1000  # different strides; more come from numbers without a rule


class _Slot:
    """A part, its window, and its state."""

    def __init__(self, kind: str, window: Window, part: Part, start_s: float) -> None:
        self.kind = kind
        self.window = window
        self.part: Part | None = part
        self.opened = False
        self.over = False
        self.first: int | None = None
        self.last: int | None = None
        self.by_steps = window.by_steps
        self.start_s = start_s if window.start_s is None else window.start_s
        self.end_s = None if window.duration_s is None else self.start_s + window.duration_s

    def is_behind(self, step: int, now_s: float) -> bool:
        """Whether a step that begins now comes after the window."""
        if self.by_steps:
            if self.opened:
                return not self.window.holds(step)
            first, count = self.window.first_step or 0, self.window.steps
            return count is not None and step >= first + count
        return self.end_s is not None and now_s >= self.end_s

    def has(self, step: int, now_s: float) -> bool:
        """Whether a step that begins now is in the window."""
        return self.window.holds(step) if self.by_steps else self.opened or now_s >= self.start_s

    def ends_with(self, step: int, now_s: float) -> bool:
        """Whether a step that ends now is the window's last."""
        if self.by_steps:
            return not self.window.holds(step + 1)
        return self.end_s is None or now_s >= self.end_s


class Engine:
    """Opens and closes the parts of a session. ``folder``: of the recording; ``tell``: writes a fact of the run."""

    def __init__(
        self, plan: ProfilingPlan, folder: Path, tell: Tell, native: steps_of.Native, make: Callable[..., Part] | None = None
    ) -> None:
        self._tell = tell
        self._clock = time.time
        self._pid = os.getpid()
        self._closed = False
        self._first_begun: int | None = None
        self._last_begun: int | None = None
        self._strides: Counter[int] = Counter()  # from a step's number to the next
        self._missed: dict[str, list[str]] = {}  # reason -> kinds
        self._lacking: dict[str, dict[str, str]] = {}  # package -> kind -> reason
        start_s = self._clock()
        folder, recording_folder = _output_folder(plan.local_path, folder), folder
        if folder.resolve() != recording_folder.resolve():
            tell("profiling.place", os.fspath(folder.resolve()))
        limits = FileLimits(plan.max_file_bytes, plan.close_interval_s, plan.open_fail_threshold)
        self._slots: list[_Slot] = []
        for kind in PARTS:
            wanted = getattr(plan, kind)
            if wanted is None:
                continue
            window = _window(wanted)
            tell(f"profiling.{kind}", asked(window))
            try:
                part = (make or _make)(kind, wanted, folder, limits, tell)
            except Exception as error:
                _warn(f"{NAMES[kind]} is off: {_reason(error)}")
                tell(f"profiling.{kind}.recorded", f"nothing: {_reason(error)}")
                continue
            self._slots.append(_Slot(kind, window, part, start_s))
        tell("profiling.plan", json.dumps(plain(plan), separators=(",", ":")))
        self._waiting = list(self._slots)
        self.steps = steps_of.Steps(self, native, tell)

    def start(self) -> None:
        """Watch steps from now on."""
        if self._slots:
            self.steps.watch()

    def begins(self, step: int) -> None:
        """Close the windows before this step, continue the open ones, open new ones."""
        now_s = self._clock()
        for slot in reversed(self._waiting):
            if slot.is_behind(step, now_s):
                self._close(slot)
        self._first_begun = step if self._first_begun is None else self._first_begun
        if self._last_begun is not None and step > self._last_begun and len(self._strides) < _MOST_STRIDES:
            self._strides[step - self._last_begun] += 1
        self._last_begun = step
        for slot in reversed(self._waiting):
            if slot.opened:
                slot.last = step
                self._call(slot, "step", step)
        for slot in self._waiting:
            if not slot.opened and slot.has(step, now_s):
                slot.opened = True
                slot.first = slot.last = step
                self._call(slot, "open", step)
        self._drop_what_is_over()

    def ends(self, step: int) -> None:
        """Close the windows whose last step has ended."""
        now_s = self._clock()
        for slot in reversed(self._waiting):
            if slot.opened and slot.ends_with(step, now_s):
                self._close(slot)
        self._drop_what_is_over()

    def close(self) -> None:
        """End the session and every window."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:
            return
        if (unfinished := self.steps.open) is not None:
            self._forget_step(unfinished)
        for slot in reversed(self._waiting):
            self._close(slot)
        self.steps.close()
        if self.steps.source:
            self._tell("profiling.steps", self.steps.source)
        if self._slots and self._first_begun is None:
            _warn('nothing was profiled, as no step began: annotate steps, `with postrun.capture.annotate("step", value=i):`')
        else:
            for package, reasons in self._lacking.items():
                why = next(iter(reasons.values())) if len(reasons) == 1 else f"the program has not imported {package}"
                self._missed.setdefault(why, []).extend(reasons)
            for why, kinds in self._missed.items():
                _warn(f"{named(kinds)}: {why}")
        self._waiting = []

    # --------------------------------------------------------------

    def _drop_what_is_over(self) -> None:
        if any(slot.over for slot in self._waiting):
            self._waiting = [slot for slot in self._waiting if not slot.over]
            if not self._waiting:
                self.steps.listen_no_more()

    def _close(self, slot: _Slot) -> None:
        slot.over = True
        alive = slot.part is not None
        self._call(slot, "close", slot.last if slot.opened else None)
        if alive and slot.part is not None:  # else the reason has been reported
            self._tell(f"profiling.{slot.kind}.recorded", self._recorded(slot))
            if slot.first is None and not _not_in_use(slot.kind):
                self._missed.setdefault(self._why_nothing(slot), []).append(slot.kind)
        slot.part = None

    def _forget_step(self, step: int) -> None:
        """Remove a step that began at the end of training and did not end."""
        for slot in self._waiting:
            if slot.opened and slot.last == step:
                slot.last = step - 1
                if slot.first == step:
                    slot.first = slot.last = None
        if self._last_begun == step:
            self._last_begun = step - 1 if step else None

    def _recorded(self, slot: _Slot) -> str:
        if slot.first is None:
            return f"nothing: {_not_in_use(slot.kind) or self._why_nothing(slot)}"
        left = self._why_not_all(slot)
        return f"{_steps_of(slot)}: {left}" if left else _steps_of(slot)

    def _why_not_all(self, slot: _Slot) -> str:
        """Return why a window that is open at the end is incomplete; else ""."""
        if not self._closed or slot.last is None:
            return ""
        first, count = slot.window.first_step, slot.window.steps
        following = slot.last + (self._strides.most_common(1)[0][0] if self._strides else 1)
        if first is not None and count is not None and following < first + count:
            return self._not_reached(Window(following, first + count - following))
        if slot.end_s is not None and (before_s := slot.end_s - self._clock()) > 0:
            return f"the recording ended {before_s:.1f} s before the end of the window"
        return ""

    def _not_reached(self, window: Window) -> str:
        return f"{asked(window)} {'was' if window.steps == 1 else 'were'} not reached; the last step that began was {self._last_begun}"

    def _why_nothing(self, slot: _Slot) -> str:
        """Return why a window did not open, or its only step did not end."""
        if self._closed:
            if self._last_begun is None:
                return "no step began" if self._first_begun is None else "no step ended"
            if slot.by_steps:
                return self._not_reached(slot.window)
            start = "" if slot.window.start_s is None else f", at {_time(slot.window.start_s)},"
            return f"no step began after its start{start} any more; the last step that began was {self._last_begun}"
        if self._last_begun is None:
            return "the window was over before the first step"
        return f"the window was over before a step began in it; the one before it was {self._last_begun}"

    def _call(self, slot: _Slot, method: str, step: int | None) -> None:
        """Call a part; a failure turns it off, and training goes on."""
        if slot.part is None:
            return
        try:
            getattr(slot.part, method)(step)
        except LeftOutError as why:
            slot.part = None
            nothing = why.nothing or method == "open" or slot.first is None
            self._tell(f"profiling.{slot.kind}.recorded", f"nothing: {why}" if nothing else f"{_steps_of(slot)}: {why}")
            if why.lacks is not None:
                self._lacking.setdefault(why.lacks, {})[slot.kind] = str(why)
            elif not why.quiet:
                _warn(f"{NAMES[slot.kind]}: {why}")
        except Exception as error:
            how = "nothing" if getattr(slot.part, "written", None) == 0 else "not complete"
            slot.part = None
            self._tell(f"profiling.{slot.kind}.recorded", f"{how}: {_reason(error)}")
            _warn(f"{NAMES[slot.kind]} is off: {_reason(error)}")


def _steps_of(slot: _Slot) -> str:
    return f"step {slot.first}" if slot.first == slot.last else f"steps {slot.first} to {slot.last}"


def _not_in_use(kind: str) -> str | None:
    """Return the note for a library that the program has not imported, else None."""
    library, name = {"horovod": ("horovod", "Horovod"), "smdataparallel": ("smdistributed", "SMDataParallel")}.get(kind, ("", ""))
    return f"{name} is not in use" if library and library not in sys.modules else None


def _output_folder(wanted: str | None, folder: Path) -> Path:
    """Return ``wanted`` if it is writable; else the recording's folder."""
    if not wanted:
        return folder
    target = Path(wanted)
    trial = target / f".postrun-{os.getpid()}-{time.time_ns()}"
    try:
        modes.make_folder(target)
        trial.write_bytes(b"\n")
        trial.unlink()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        _warn(f"local_path {wanted}: nothing can be written there ({why}); what is profiled goes to {folder}")
        return folder
    return target


def windows(plan: ProfilingPlan) -> dict[str, Window]:
    """Return the window of each requested kind of profiling."""
    return {kind: _window(wanted) for kind in PARTS if (wanted := getattr(plan, kind)) is not None}


def _window(wanted: Window | DetailedPlan | LoaderPlan | PythonPlan) -> Window:
    return wanted if isinstance(wanted, Window) else wanted.window


def asked(window: Window) -> str:
    """Describe a window in words."""
    if window.first_step is not None:
        if window.steps is None:
            return f"steps from {window.first_step} on"
        last = window.first_step + window.steps - 1
        return f"step {last}" if window.steps == 1 else f"steps {window.first_step} to {last}"
    start = "the start of the recording" if window.start_s is None else _time(window.start_s)
    return f"one step from {start} on" if window.duration_s is None else f"{window.duration_s:g} s from {start} on"


def _time(seconds: float) -> str:
    """Return ISO 8601 in UTC, or seconds since 1970 outside the calendar."""
    try:
        text = datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="milliseconds" if seconds % 1 else "seconds")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s since 1970"
    return text.replace("+00:00", "Z")


def named(kinds: list[str]) -> str:
    """Name kinds of profiling; communication libraries only without other kinds."""
    main_kinds = [kind for kind in kinds if kind not in ("horovod", "smdataparallel")] or kinds
    names = [NAMES[kind] for kind in sorted(main_kinds, key=PARTS.index)]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def plain(plan: ProfilingPlan) -> dict[str, Any]:
    """Return a plan as a JSON object without its None values."""
    return dataclasses.asdict(plan, dict_factory=lambda items: {key: value for key, value in items if value is not None})


def _make(kind: str, wanted: Any, folder: Path, limits: FileLimits, tell: Tell) -> Part:
    if kind == "loader":
        from .dataloader import LoaderPart

        return LoaderPart(wanted, folder, limits)
    if kind == "python":
        from .python_profile import PythonPart

        return PythonPart(wanted, folder)
    if kind == "detailed":
        from .detailed import DetailedPart

        return DetailedPart(wanted, folder, tell)
    from .libraries import LibraryPart

    return LibraryPart(kind, folder, tell)


def _reason(error: Exception) -> str:
    """Describe an error in one line, without a traceback."""
    kind = type(error).__name__
    text = " ".join(str(error).split()) or kind
    return text if isinstance(error, OSError | LeftOutError) or text == kind else f"{kind}: {text}"


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)
