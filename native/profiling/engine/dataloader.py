"""Records PyTorch's data loaders in a window: iterations, their initialization, and the workers' fetches.

The events are the hosted profiler's. ``metrics_regex`` is searched in the phase and in the name:

| phase | name | event |
|---|---|---|
| ``DataLoaderIter`` | ``_MultiProcessingDataLoaderIter::GetNext``, ``_SingleProcessDataLoaderIter::GetNext`` | a wait for ``next`` |
| ``DataLoaderIterInitialize`` | ``_MultiProcessingDataLoaderIter.__init__``, ``_SingleProcessDataLoaderIter.__init__`` | a loader begins |
| ``DataLoaderWorker`` | ``DataLoaderWorker`` | a worker process makes a batch |

Iterations that begin while the window is open are recorded, and fetches that overlap it. The batch of a step is often requested before
that step begins: if the last step of the window requests no batch before it ends, or the first step none before the next, the window also
includes the requests right before it.

torch's classes are wrapped only while the window needs them. Workers share the state of the window by shared memory if they were forked or
spawned after the part was made; older workers record nothing. In a window by time, which closes with a step, workers record no fetch that
begins after its end time.
"""

from __future__ import annotations

import functools
import importlib
import mmap
import os
import re
import struct
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ...recording.exclude_self import around
from ...recording.when_imported import when_imported
from ..plan import LoaderPlan
from .part import FileLimits, LeftOutError, Part, Patch
from .timeline_writer import TimelineWriter, finish_leftovers

ITERATION: Final = "DataLoaderIter"
INITIALIZATION: Final = "DataLoaderIterInitialize"
FETCH: Final = "DataLoaderWorker"

_MODULE: Final = "torch.utils.data.dataloader"
_WORKER: Final = "torch.utils.data._utils.worker"
_FETCHERS: Final = ("_MapDatasetFetcher", "_IterableDatasetFetcher")
_ITERATORS: Final = ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")
# Values of the first byte of the shared memory. Before the window (_AHEAD) the last events are kept.
_CLOSED: Final = 0
_OPEN: Final = 1
_AHEAD: Final = 2
_HAS_OPENED: Final = 1  # the second byte
_HAS_WRITTEN: Final = 2  # the third byte: a process has written an event
_TIME: Final = struct.Struct("<q")
_SINCE: Final = 8
_UNTIL: Final = 16
_TOKEN: Final = 24
_BYTES: Final = 4096
_KEPT: Final = 16


class LoaderPart(Part):
    """Records the data loaders of this process and of its workers while it is open."""

    def __init__(self, plan: LoaderPlan, folder: Path, files: FileLimits) -> None:
        self._patches: list[Patch] = []
        self._recent: deque[tuple[weakref.ref[Any], str, int, int, int]] = deque(maxlen=_KEPT)
        self._kept: list[tuple[str, str, int, int, dict[str, Any]]] = []
        self._iterated = False  # since the last step began
        self._steps = 0
        self._opened = False
        self._seen = False
        self._pid = os.getpid()
        self._forget: Callable[[], None] = lambda: None
        try:
            re.compile(plan.metrics_regex)
        except re.error as error:
            raise LeftOutError(f"metrics_regex {plan.metrics_regex!r} is not a regular expression ({error})") from None
        self._recorder = _Recorder(_Flag.create(), folder, files, plan.metrics_regex)
        self._recorder.flag.state[0] = _AHEAD
        if plan.window.duration_s is not None:
            start = time.time() if plan.window.start_s is None else plan.window.start_s
            self._recorder.flag.set_until(min(max(1, int((start + plan.window.duration_s) * 1e9)), (1 << 63) - 1))
        self._forget = when_imported(_MODULE, self._wrap)

    def open(self, step: int | None) -> None:
        """Record data loaders from now on."""
        module = sys.modules.get(_MODULE)
        if module is not None:
            self._wrap(module)
        if step is not None:
            self._kept = self._just_before()
        self._recent.clear()
        self._iterated = False
        self._opened = True
        self._recorder.begin(min((start for _, _, start, _, _ in self._kept), default=None))
        self._recorder.flag.state[_HAS_OPENED] = 1
        self._recorder.flag.state[0] = _OPEN

    def step(self, step: int) -> None:
        """Note that the next step begins."""
        self._steps += 1
        if self._steps == 1 and not self._iterated:
            self._write_kept()
        self._iterated = False

    def close(self, step: int | None) -> None:
        """Stop recording new events; name the files. Raise LeftOutError if there are none."""
        recorder = self._recorder
        if not self._iterated and step is not None:
            self._write_kept()
        self._kept = []
        recorder.flag.state[0] = _CLOSED
        self._forget()
        for patch in self._patches:
            patch.undo()
        recorder.finish()
        left = finish_leftovers(recorder.folder, recorder.token)
        recorder.flag.close()
        if self._opened:
            self._tell_of_nothing(left)

    def _tell_of_nothing(self, left: int) -> None:
        """Raise LeftOutError if events are missing. ``left``: the workers' files."""
        recorder = self._recorder
        if not self._patches:
            if sys.modules.get(_MODULE) is None:
                raise LeftOutError("the program has not imported PyTorch's data loaders", nothing=True, lacks="PyTorch")
            raise LeftOutError("this version of PyTorch has other data loaders than those that are known", nothing=True)
        if recorder.missed:
            lost = "1 event" if recorder.missed == 1 else f"{recorder.missed} events"
            raise LeftOutError(f"{lost} could not be written ({recorder.reason})", quiet=True, nothing=not recorder.written)
        if not recorder.flag.state[_HAS_WRITTEN] and not left:
            why = "no event matches metrics_regex" if self._seen else "no data loader was iterated"
            raise LeftOutError(why, nothing=True)

    def _write_kept(self) -> None:
        """Add the kept requests to a window whose first or last step requests no batch."""
        kept, self._kept = self._kept, []
        if kept:
            for event in kept:
                self._recorder.add(*event)
            self._recorder.flag.set_since(min(start for _, _, start, _, _ in kept))

    def _just_before(self) -> list[tuple[str, str, int, int, dict[str, Any]]]:
        """Return this thread's last requests to loaders, back to the step before.

        They are the last initialization and iteration of each loader; a repeated one belongs to an earlier step.
        """
        here, events, seen = threading.get_ident(), [], set()
        for reference, phase, start, duration, thread in reversed(self._recent):
            iterator = reference()
            if (id(iterator), phase) in seen:
                break
            if iterator is not None and thread == here:
                seen.add((id(iterator), phase))
                events.append((phase, _name(iterator, phase), start, duration, _settings(iterator)))
        return events[::-1]

    # -------------------------------------------------------------- torch's classes

    def _wrap(self, module: ModuleType) -> None:
        recorder = self._recorder
        base = getattr(module, "_BaseDataLoaderIter", None)
        if self._patches or os.getpid() != self._pid or base is None or "__next__" not in vars(base):
            return
        self._patches.append(Patch(base, "__next__", functools.partial(self._around, ITERATION)))
        for name in _ITERATORS:
            if "__init__" in vars(iterators := getattr(module, name, base)) and iterators is not base:
                self._patches.append(Patch(iterators, "__init__", functools.partial(self._around, INITIALIZATION)))
        worker = sys.modules.get(_WORKER)
        if worker is not None and hasattr(worker, "_worker_loop") and recorder.matches(FETCH, FETCH):
            self._patches.append(Patch(worker, "_worker_loop", functools.partial(_LoaderWorker, recorder)))

    def _around(self, phase: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def after(begun: tuple[int, int, int], failed: BaseException | None, iterator: Any, *args: Any, **kwargs: Any) -> None:
            if phase == ITERATION and isinstance(failed, StopIteration):
                self._recent.clear()
            elif phase == ITERATION or failed is None:
                self._ended(begun, iterator, phase)

        return around(original, self._begins, after)

    def _begins(self, iterator: Any, *args: Any, **kwargs: Any) -> tuple[int, int, int]:
        """Return the state of the window, and the time by both clocks."""
        mode = self._recorder.flag.state[0]
        if mode == _OPEN:
            self._recorder.begin(None)
        return mode, time.time_ns(), time.perf_counter_ns()

    def _ended(self, begun: tuple[int, int, int], iterator: Any, phase: str) -> None:
        duration = time.perf_counter_ns() - begun[2]
        mode, start, _ = begun
        if mode == _AHEAD:
            self._recent.append((weakref.ref(iterator), phase, start, duration, threading.get_ident()))
        elif mode == _OPEN:
            self._seen = True
            self._iterated |= phase == ITERATION
            self._recorder.add(phase, _name(iterator, phase), start, duration, _settings(iterator))


def _name(iterator: Any, phase: str) -> str:
    return type(iterator).__name__ + ("::GetNext" if phase == ITERATION else ".__init__")


def _settings(iterator: Any) -> dict[str, Any]:
    """Return the settings of an iterator's loader; ``worker_id`` in a worker."""
    settings = {
        "num_workers": getattr(iterator, "_num_workers", None),
        "pin_memory": getattr(iterator, "_pin_memory", None),
        "prefetch_factor": getattr(iterator, "_prefetch_factor", None),
        "worker_id": _worker_id(),
    }
    return {key: value for key, value in settings.items() if isinstance(value, int)}


def _worker_id() -> int | None:
    information = getattr(sys.modules.get(_WORKER), "_worker_info", None)
    return getattr(information, "id", None)


# ------------------------------------------------------------------ in every process


class _Flag:
    """Shared memory: the state of the window, and the time from which earlier events belong to it.

    Forked processes inherit it; others open it by ``path`` while it exists, and recognize it by ``token``.
    """

    def __init__(self, state: mmap.mmap, token: str, path: str | None, descriptor: int | None) -> None:
        self.state = state
        self.token = token
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls) -> _Flag:
        token = f"loader-{os.getpid()}-{time.time_ns():x}"
        try:
            descriptor = os.memfd_create("postrun-loader")
        except (AttributeError, OSError):  # forked processes inherit this one as well
            return cls(mmap.mmap(-1, _BYTES), token, None, None)
        os.ftruncate(descriptor, _BYTES)
        state = mmap.mmap(descriptor, _BYTES)
        state[_TOKEN : _TOKEN + len(token)] = token.encode()
        return cls(state, token, f"/proc/{os.getpid()}/fd/{descriptor}", descriptor)

    @classmethod
    def of(cls, path: str | None, token: str) -> _Flag | None:
        """Open the flag of another process; None after the window, when it is gone."""
        if path is None:
            return None
        try:
            with open(path, "r+b") as file:  # noqa: PTH123
                state = mmap.mmap(file.fileno(), _BYTES)
        except (OSError, ValueError):
            return None
        return cls(state, token, path, None) if state[_TOKEN : _TOKEN + len(token)] == token.encode() else None

    def set_since(self, time_ns: int) -> None:
        _TIME.pack_into(self.state, _SINCE, time_ns)

    def since(self) -> int | None:
        return _TIME.unpack_from(self.state, _SINCE)[0] or None

    def set_until(self, time_ns: int) -> None:
        _TIME.pack_into(self.state, _UNTIL, time_ns)

    def is_over(self, time_ns: int) -> bool:
        """Whether the window has an end time, and this time is after it."""
        until = _TIME.unpack_from(self.state, _UNTIL)[0]
        return bool(until) and time_ns >= until

    def close(self) -> None:
        """Prevent other processes from opening it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class _Recorder:
    """Writes the matching events, those of each process to its own files."""

    def __init__(self, flag: _Flag, folder: Path, files: FileLimits, regex: str) -> None:
        self.flag = flag
        self.folder = folder
        self.token = flag.token
        self._files = files
        self._regex = regex
        self._pattern = re.compile(regex)
        self._matched: dict[tuple[str, str], bool] = {}
        self.writer: TimelineWriter | None = None
        self.written = 0
        self.missed = 0
        self.reason = ""
        self._pid = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _recorder_of, (self.flag.path, self.token, os.fspath(self.folder), self._files, self._regex)

    def matches(self, phase: str, name: str) -> bool:
        matched = self._matched.get((phase, name))
        if matched is None:
            matched = self._matched[phase, name] = any(map(self._pattern.search, (phase, name)))
        return matched

    def begin(self, base_ns: int | None) -> None:
        """Prepare the file for an event that begins: its times count from before it."""
        if self.writer is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self.writer = TimelineWriter(self.folder, self._files, self.token, base_ns)

    def add(self, phase: str, name: str, start: int, duration: int, arguments: dict[str, Any]) -> None:
        """Write an event that ends."""
        if not self.matches(phase, name):
            return
        self.begin(start)
        if self.writer is not None:
            self.writer.add(phase, name, start, duration, {"thread_id": threading.get_native_id(), **arguments})
        if self.flag.state[0] == _CLOSED:  # it began inside the window, and nothing else closes the file
            self.finish()

    def finish(self) -> None:
        writer = self.writer
        if writer is not None and self._pid == os.getpid():
            self.writer = None
            writer.close()
            self.written += writer.written
            self.flag.state[_HAS_WRITTEN] |= writer.written > 0
            self.missed += writer.missed
            self.reason = writer.reason or self.reason


def _recorder_of(path: str | None, token: str, folder: str, files: FileLimits, regex: str) -> _Recorder | None:
    """Return the recorder in a process that was not forked."""
    flag = _Flag.of(path, token)
    return None if flag is None else _Recorder(flag, Path(folder), files, regex)


class _LoaderWorker:
    """Replaces torch's function of a worker process: runs it and records fetches."""

    def __init__(self, recorder: _Recorder | None, original: Callable[..., Any] | None) -> None:
        self._recorder = recorder
        self._original = original

    def __reduce__(self) -> tuple[Any, ...]:
        return _LoaderWorker, (self._recorder, None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        original = self._original or importlib.import_module(_WORKER)._worker_loop
        while isinstance(original, _LoaderWorker):  # this process records as well, but only its parent's recorder knows the window
            original = original._original
        recorder = self._recorder
        if recorder is None:
            return original(*args, **kwargs)
        fetches = _Fetches(recorder)
        module = sys.modules.get("torch.utils.data._utils.fetch")
        for name in _FETCHERS:
            fetcher = getattr(module, name, None)
            if fetcher is not None and hasattr(fetcher, "fetch"):
                fetcher.fetch = fetches.around(fetcher.fetch)
        try:
            return original(*args, **kwargs)
        finally:
            if recorder.flag.state[0] == _CLOSED:
                fetches.settle()
            recorder.finish()


class _Fetches:
    """The fetches of this worker process; those that overlap the window are recorded."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder
        self._inside = False
        self._last: tuple[int, int] | None = None  # start and duration of the last fetch that ended before the window

    def around(self, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        recorder = self._recorder
        state = recorder.flag.state

        @functools.wraps(original)
        def fetch(fetcher: Any, index: Any) -> Any:
            mode = state[0]
            if mode == _CLOSED:
                if self._last is not None or recorder.writer is not None:
                    self.settle()
                return original(fetcher, index)
            start, begun = time.time_ns(), time.perf_counter_ns()
            if self._inside or recorder.flag.is_over(start):  # inside: a fetch of a loader in the data set
                return original(fetcher, index)
            if mode == _OPEN:
                recorder.begin(start)
            self._inside = True
            try:
                batch = original(fetcher, index)
            except StopIteration:
                raise
            except BaseException:
                self._ended(mode, start, time.perf_counter_ns() - begun)
                raise
            finally:
                self._inside = False
            self._ended(mode, start, time.perf_counter_ns() - begun)
            return batch

        return fetch

    def settle(self) -> None:
        """Write a kept fetch that belongs to the closed window; name the file."""
        if self._last is not None:
            (start, duration), self._last = self._last, None
            since = self._recorder.flag.since()
            self._recorder.finish()
            if since is not None and start + duration >= since:
                self._write(start, duration)
        else:
            self._recorder.finish()

    def _ended(self, mode: int, start: int, duration: int) -> None:
        if mode == _AHEAD and self._recorder.flag.state[0] == _AHEAD:
            self._last = start, duration
        elif self._recorder.flag.state[_HAS_OPENED]:  # else the window closed without having opened
            self._write(start, duration)

    def _write(self, start: int, duration: int) -> None:
        worker = _worker_id()
        self._recorder.add(FETCH, FETCH, start, duration, {} if worker is None else {"worker_id": worker})
