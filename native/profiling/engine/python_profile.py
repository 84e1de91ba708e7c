"""Profiles the Python functions of each step in a window: the training thread, split after the forward.

Each profile is a folder named as by the hosted profiler, ``framework/pytorch/<cprofile|pyinstrument>/<pid>-<host>/<from>_<to>`` with from
and to ``<mode>-<step>-<phase>-<microseconds>``: from stepstart to forwardpassend, from there to stepend. postrun.json in the folder
contains the timer. Without a forward of a torch module there is one profile from stepstart to stepend; if no steps are known, from start to
end with the step ``*``. The return of the first outermost module ends the forward. A step extends to the beginning of the next one.
The mode is that of the step: train if an optimizer stepped or an outermost module with parameters was called in training mode, also
after an evaluation.

Timers: total_time is wall-clock time; cpu_time is processor time of the training thread, not of the process, whose other threads would be
charged to whatever function the training thread is in; off_cpu_time is the difference. "default" takes them in this order, one a step.
The work of this package is one function, "postrun's own recording": see :mod:`...recording.exclude_self`, :mod:`.one_function`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import marshal
import os
import shutil
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from .... import modes
from ...recording.exclude_self import MONITORED, begin, end, unseen
from ...recording.torch import rank
from ..plan import PythonPlan, Timer
from .one_function import stack_with_one_function, with_one_function
from .part import LeftOutError, Part
from .timeline_writer import node_name

_TIMERS: Final[tuple[Timer, ...]] = ("total_time", "cpu_time", "off_cpu_time")
_EVENTS: Final = ("PY_START", "PY_RESUME", "PY_THROW", "PY_RETURN", "PY_YIELD", "PY_UNWIND", "CALL", "C_RETURN", "C_RAISE")


def _off_cpu_clock() -> Callable[[], int]:
    """Return a monotonic clock of the nanoseconds in which this thread did not run."""
    latest = 0

    def clock() -> int:
        nonlocal latest
        latest = max(latest, time.perf_counter_ns() - time.thread_time_ns())
        return latest

    return clock


class _CProfile:
    """A :class:`...recording.exclude_self.Profile`."""

    def __init__(self, timer: str) -> None:
        import cProfile

        if timer == "total_time":
            self.profiler = cProfile.Profile()
        else:
            self.profiler = cProfile.Profile(time.thread_time_ns if timer == "cpu_time" else _off_cpu_clock(), 1e-9)
        self.paused = True
        self.resume: Callable[[], object] = self.profiler.enable

    def start(self) -> None:
        if MONITORED:
            self.profiler.enable()
            _of_this_thread(self)
        begin(self)

    def stop(self) -> None:
        end()
        self.profiler.disable()

    def write(self, folder: Path) -> None:
        self.profiler.create_stats()
        with (folder / "python_stats").open("wb") as file:
            marshal.dump(with_one_function(self.profiler.stats), file)


def _of_this_thread(profile: _CProfile) -> None:
    """Restrict cProfile to this thread, and to times when it is not paused.

    Since Python 3.12 cProfile is called for every thread and mixes their calls.
    """
    monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 - missing before 3.12, which mypy checks
    tool, here, get_ident = monitoring.PROFILER_ID, threading.get_ident(), threading.get_ident

    def only_here(callback: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: callback(*arguments) if get_ident() == here and not profile.paused else None

    events = monitoring.get_events(tool)
    monitoring.set_events(tool, 0)
    for name in _EVENTS:
        callback = monitoring.register_callback(tool, getattr(monitoring.events, name), None)
        if callback is not None:
            monitoring.register_callback(tool, getattr(monitoring.events, name), only_here(callback))
    profile.profiler.clear()  # what this function has called
    monitoring.set_events(tool, events)


class _Pyinstrument:
    def __init__(self, module: ModuleType) -> None:
        self._profiler = module.Profiler(async_mode="disabled")

    def start(self) -> None:
        self._profiler.start()

    def stop(self) -> None:
        self._profiler.stop()

    def write(self, folder: Path) -> None:
        renderers = importlib.import_module("pyinstrument.renderers")
        session = self._profiler.last_session
        session.frame_records = [(stack_with_one_function(stack), time) for stack, time in session.frame_records]
        for suffix, renderer in (("json", renderers.JSONRenderer()), ("html", renderers.HTMLRenderer())):
            (folder / f"python_stats.{suffix}").write_text(self._profiler.output(renderer), encoding="utf-8")


@dataclass(slots=True)
class _Segment:
    """One profile: from one point of a step to the next."""

    profiler: _CProfile | _Pyinstrument
    timer: str
    phase: str
    start_ns: int
    end_phase: str = ""
    end_ns: int = 0


@dataclass(slots=True)
class _Step:
    """The profiles of a step; ``number`` None: no step is known."""

    number: int | None
    timer: str
    segments: list[_Segment] = field(default_factory=list)
    mode: str = "global"
    mode_is: int = 0
    """Certainty of the mode: 1 by a module without parameters (a loss is in training mode in an evaluation as well), 2 by one with
    parameters, 3 of a training step."""
    depth: int = 0
    forward_ended: bool = False


class PythonPart(Part):
    """Profiles the Python functions of each step while it is open."""

    def __init__(self, plan: PythonPlan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self.written = 0
        """Profiles that are in a folder."""
        self._node = ""
        self._steps = 0
        self._current: _Step | None = None
        self._hooks: list[Any] = []
        self._warn_again: Callable[[], None] = lambda: None
        self._off: LeftOutError | None = None
        self._traced_warned = False
        self._pyinstrument: ModuleType | None = None
        if plan.profiler == "pyinstrument":
            try:
                self._pyinstrument = importlib.import_module("pyinstrument")
            except ImportError:
                raise LeftOutError("pyinstrument is not installed (pip install pyinstrument)") from None
        else:
            importlib.import_module("cProfile")

    @unseen
    def open(self, step: int | None) -> None:
        """Start profiling. Raise LeftOutError if that is impossible."""
        self._node = node_name()
        _stop_in_children(self)
        self._hook_forward()
        self._begin(step)
        self._raise()

    @unseen
    def step(self, step: int) -> None:
        """End the previous step and begin ``step``. Raise LeftOutError, OSError."""
        ended = self._end()
        self._write(ended)
        self._begin(step)
        self._raise()

    @unseen
    def close(self, step: int | None) -> None:
        """Stop profiling; drop the profile after ``step``. Raise LeftOutError, OSError."""
        ended = self._end()
        self._unhook()
        if ended is None or ended.number == step:
            self._write(ended)
        self._raise()

    def _raise(self) -> None:
        if self._off is not None:
            self._unhook()
            raise self._off

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._warn_again()
        self._warn_again = lambda: None

    # -------------------------------------------------------------- steps and their phases

    def _begin(self, number: int | None) -> None:
        if self._off is not None:
            return
        timer = self._plan.timer
        if self._plan.profiler == "pyinstrument":
            timer = "total_time"
        elif timer == "default":
            timer = _TIMERS[self._steps % len(_TIMERS)]
        self._steps += number is not None
        self._current = _Step(number, timer)
        self._start(self._current, "start" if number is None else "stepstart")

    def _start(self, step: _Step, phase: str) -> None:
        if sys.getprofile() is not None:
            self._off = LeftOutError("another profiler is active in this thread")
            return
        if sys.gettrace() is not None and not self._traced_warned:
            self._traced_warned = True
            text = "a debugger or a coverage tool traces this thread: the times of Python functions contain what it costs"
            warnings.warn(text, RuntimeWarning, stacklevel=5)
        profiler = _Pyinstrument(self._pyinstrument) if self._pyinstrument is not None else _CProfile(step.timer)
        step.segments.append(_Segment(profiler, step.timer, phase, time.time_ns()))
        try:
            profiler.start()
        except (ValueError, RuntimeError) as error:  # from Python 3.12 on it says so itself
            step.segments.pop()
            self._off = LeftOutError(f"another profiler is active ({error})")

    def _stop(self, step: _Step, phase: str) -> None:
        segment = step.segments[-1] if step.segments else None
        if segment is not None and not segment.end_phase:
            segment.profiler.stop()
            segment.end_phase, segment.end_ns = phase, time.time_ns()

    def _end(self) -> _Step | None:
        ended, self._current = self._current, None
        if ended is not None:
            self._stop(ended, "end" if ended.number is None else "stepend")
        return ended

    def stopped_in_child(self) -> None:
        """Stop profiling in a forked process."""
        step, self._current, self._off = self._current, None, LeftOutError("a forked process")
        if step is not None and step.segments and not step.segments[-1].end_phase:
            with contextlib.suppress(Exception):
                if isinstance(step.segments[-1].profiler, _CProfile):
                    step.segments[-1].profiler.stop()
                else:
                    sys.setprofile(None)

    # -------------------------------------------------------------- the forward of torch modules

    def _hook_forward(self) -> None:
        """Hook all modules while the window is open, without recompiling compiled models."""
        module = sys.modules.get("torch.nn.modules.module")
        if module is None or not hasattr(module, "register_module_forward_pre_hook"):
            return
        self._warn_again = _unwarned()
        self._hooks.append(module.register_module_forward_pre_hook(self._forward_begins))
        try:
            self._hooks.append(module.register_module_forward_hook(self._forward_ends, always_call=True))
        except TypeError:  # an older torch: without a call where the forward fails
            self._hooks.append(module.register_module_forward_hook(self._forward_ends))
        optimizers = sys.modules.get("torch.optim.optimizer")
        if optimizers is not None and hasattr(optimizers, "register_optimizer_step_pre_hook"):
            self._hooks.append(optimizers.register_optimizer_step_pre_hook(unseen(self._optimizer_steps)))

    # For inner modules both hooks do so little that no graph of a model that is being compiled changes.

    def _forward_begins(self, module: Any, arguments: Any) -> None:
        step = self._current
        if step is None:
            return
        if not step.depth and step.mode_is < 3:
            self._outermost_begins(step, module)
        step.depth += 1

    def _optimizer_steps(self, optimizer: Any, arguments: Any, more: Any) -> None:
        step = self._current
        if step is not None:
            step.mode, step.mode_is = "train", 3

    def _forward_ends(self, module: Any, arguments: Any, output: Any) -> None:
        step = self._current
        if step is None or not step.depth:
            return
        step.depth -= 1
        if not step.depth and not step.forward_ended and step.number is not None:
            self._outermost_ends(step)

    @unseen
    def _outermost_begins(self, step: _Step, module: Any) -> None:
        _tell_mode(step, module)

    @unseen
    def _outermost_ends(self, step: _Step) -> None:
        step.forward_ended = True
        self._stop(step, "forwardpassend")
        self._start(step, "forwardpassend")

    # -------------------------------------------------------------- files

    def _write(self, step: _Step | None) -> None:
        if step is None:
            return
        number = "*" if step.number is None else step.number
        root = self._folder / "framework" / "pytorch" / self._plan.profiler / self._node
        for segment in step.segments:
            start = f"{step.mode}-{number}-{segment.phase}-{_us(segment.start_ns)}"
            end = f"{step.mode}-{number}-{segment.end_phase}-{_us(segment.end_ns)}"
            hidden = root / f".{start}"
            facts = {"profiler": self._plan.profiler, "timer": segment.timer, "rank": rank()}
            try:
                modes.make_folder(hidden)
                segment.profiler.write(hidden)
                (hidden / "postrun.json").write_text(json.dumps(facts) + "\n", encoding="ascii")
                for file in hidden.iterdir():
                    modes.close_to_others(file)
                hidden.rename(root / f"{start}_{end}")
                self.written += 1
            except BaseException:
                self._unhook()
                shutil.rmtree(hidden, ignore_errors=True)
                raise


def _tell_mode(step: _Step, module: Any) -> None:
    """Update the mode of ``step`` when its outermost ``module`` is called."""
    trains = bool(getattr(module, "training", True))
    if any(True for _ in module.parameters()):
        if trains or step.mode_is < 2:
            step.mode, step.mode_is = ("train", 3) if trains else ("eval", 2)
    elif not step.mode_is:
        step.mode, step.mode_is = "train" if trains else "eval", 1


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _unwarned() -> Callable[[], None]:
    """Suppress torch's warnings about hooks; return a function that ends that."""
    what = r"Using `torch\.compile\(module\)` when there are global hooks|Dynamo does not know how to trace the builtin `sys\.[gs]etprofile"
    warnings.filterwarnings("ignore", message=what, category=UserWarning)
    entry = warnings.filters[0]

    def leave() -> None:
        with contextlib.suppress(ValueError, AttributeError):
            warnings.filters.remove(entry)  # type: ignore[attr-defined]

    return leave


# ------------------------------------------------------------------ forked processes

_open: weakref.WeakSet[PythonPart] = weakref.WeakSet()


def _stop_in_children(part: PythonPart) -> None:
    """Stop ``part`` in forked processes, such as a data loader's workers."""
    _open.add(part)
    _know_of_forks()


@functools.cache
def _know_of_forks() -> None:
    os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    for part in list(_open):
        part.stopped_in_child()
