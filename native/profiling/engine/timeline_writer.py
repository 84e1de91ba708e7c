"""Writes framework events like the hosted profiler: timeline files below ``framework/pevents``, one set per process.

A file begins hidden, ``.<token>-<pid>-<host>-<n>.part``, and is a valid JSON array after every event, even if the process is killed. It
gets its name, ``<hour>/<end of last event>_<pid>-<host>_pythontimeline.json``, when it is full, old or closed, or when another process
finishes leftover files (:func:`finish_leftovers`).
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from .... import modes
from ...recording.host_name import host_name
from .part import FileLimits

_BASE: Final = "start_time_since_epoch_in_micros"
_END: Final = b"\n]\n"
_KIND: Final = "pythontimeline"


def node_name() -> str:
    """Return ``<pid>-<host>`` of this process; ``_`` separates fields of file names."""
    host = re.sub(r"[/\\\0_\s]", "-", host_name()) or "localhost"
    return f"{os.getpid()}-{host}"


def pevents_folder(folder: Path) -> Path:
    """Return the folder of the timelines of the recording in ``folder``."""
    return folder / "framework" / "pevents"


class TimelineWriter:
    """Writes the events of this process. ``folder`` is the recording's; :func:`finish_leftovers` finds the files by ``token``.

    ``base_ns``: the origin of its times (None: now). Threads may share a writer; a forked child needs its own. An event that cannot be
    written is lost, with one warning, not an error.
    """

    def __init__(self, folder: Path, limits: FileLimits, token: str = "timeline", base_ns: int | None = None) -> None:
        self._folder = pevents_folder(folder)
        self._limits = limits
        self._token = token
        self._node = node_name()
        self._pid = os.getpid()
        self._base_us = (time.time_ns() if base_ns is None else base_ns) // 1000
        self._lock = threading.Lock()
        self._numbers = 0
        self._file: _OpenFile | None = None
        self._failures = 0
        self._lost = 0
        self._given_up = False
        self.written = 0
        """Number of written events."""
        self.missed = 0
        """Number of lost events."""
        self.reason = ""

    def add(self, phase: str, name: str, start_ns: int, duration_ns: int, arguments: Mapping[str, Any] | None = None) -> None:
        """Write an event of this process; times are nanoseconds since the Unix epoch."""
        start = start_ns // 1000
        end = max(start, (start_ns + duration_ns) // 1000)
        with self._lock:
            if self._given_up:
                self._lost += 1
                self.missed += 1
                return
            try:
                self._write(phase, name, start, end, {"pid": self._pid, **(arguments or {})})
                self._failures = 0
                self.written += 1
            except OSError as error:
                self._failed(error)

    def close(self) -> None:
        """Name the open file, and warn of lost events that were not reported."""
        with self._lock:
            try:
                self._finish()
            except OSError as error:
                self._failed(error)
            if self._lost and not self._given_up:
                self._warn("")
            self._lost = 0

    def _write(self, phase: str, name: str, start: int, end: int, arguments: dict[str, Any]) -> None:
        file = self._file
        if file is not None and (time.monotonic() - file.opened > self._limits.close_interval_s or not file.path.exists()):
            self._finish()
            file = None
        if file is not None:
            records = file.records(phase, name, start, end, arguments)
            if file.fits(records, self._limits.max_bytes):
                file.append(records, phase, end)
                return
            self._finish()
        self._file = file = self._opened()
        file.append(file.records(phase, name, start, end, arguments), phase, end)

    def _opened(self) -> _OpenFile:
        modes.make_folder(self._folder)
        while True:
            self._numbers += 1
            try:
                return _OpenFile(self._folder / f".{self._token}-{self._node}-{self._numbers}.part", self._base_us)
            except FileExistsError:
                continue

    def _finish(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
            if not file.broken:
                _name(file.path, self._folder, file.end_us, self._node)

    def _failed(self, error: OSError) -> None:
        self._failures += 1
        self._lost += 1
        self.missed += 1
        self.reason = error.strerror or str(error)
        try:
            self._finish()  # its content is complete; the next event opens a new file
        except OSError:
            self._file = None
        if self._failures >= self._limits.open_fail_threshold and not self._given_up:
            self._given_up = True
            self._warn(f"; after {self._failures} failures in a row no more is tried")

    def _warn(self, further: str) -> None:
        events = "event" if self._lost == 1 else "events"
        warnings.warn(
            f"{self._folder}: {self._lost} {events} of process {self._pid} could not be written ({self.reason}){further}",
            RuntimeWarning,
            stacklevel=2,
        )


class _OpenFile:
    """A hidden file, always a valid JSON array. If writing raises OSError, the file is unchanged or ``broken``."""

    def __init__(self, path: Path, base_us: int) -> None:
        self.path = path
        self.base_us = base_us
        self.end_us = base_us
        self.opened = time.monotonic()
        self.broken = False
        self._phases: dict[str, int] = {}
        self._descriptor = modes.opener(os.fspath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._at = 0  # offset of the closing bracket
        try:
            self._put(b"[\n" + _lines(_declared(0, {_BASE: base_us})))
        except OSError:
            self.close()
            path.unlink(missing_ok=True)
            raise

    def records(self, phase: str, name: str, start: int, end: int, arguments: dict[str, Any]) -> bytes:
        """Return the event as lines, after the declaration of a new phase."""
        number = self._phases.get(phase)
        declared = []
        if number is None:
            number = len(self._phases) + 1
            declared = _declared(number, {"name": phase})
        event = {"name": name, "pid": number, "ph": "X", "ts": start - self.base_us, "dur": end - start, "args": arguments}
        return b",\n" + _lines([*declared, event])

    def fits(self, records: bytes, max_bytes: int) -> bool:
        return self._at + len(records) + len(_END) <= max_bytes

    def append(self, records: bytes, phase: str, end: int) -> None:
        self._put(records)
        self._phases.setdefault(phase, len(self._phases) + 1)
        self.end_us = max(self.end_us, end)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _put(self, text: bytes) -> None:
        """Write text and bracket in one call, so that no kill comes between them."""
        rest, at = text + _END, self._at
        try:
            while rest:
                written = os.pwrite(self._descriptor, rest, at)
                rest, at = rest[written:], at + written
        except OSError:
            if self._at:  # the file already has space for the bracket
                self.broken = True
                self.broken = os.pwrite(self._descriptor, _END, self._at) < len(_END)
                os.ftruncate(self._descriptor, self._at + len(_END))
            raise
        self._at += len(text)


def _declared(number: int, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": "process_name", "ph": "M", "pid": number, "args": arguments},
        {"name": "process_sort_index", "ph": "M", "pid": number, "args": {"sort_index": number}},
    ]


def _lines(records: list[dict[str, Any]]) -> bytes:
    return ",\n".join([json.dumps(record) for record in records]).encode()


def _name(hidden: Path, folder: Path, end_us: int, node: str) -> None:
    """Name a hidden file; do nothing if another process has named it."""
    hour = folder / datetime.fromtimestamp(end_us // 1_000_000, tz=UTC).strftime("%Y%m%d%H")
    modes.make_folder(hour)
    while (named := hour / f"{end_us}_{node}_{_KIND}.json").exists():
        end_us += 1
    try:
        hidden.rename(named)
    except FileNotFoundError:
        return


def finish_leftovers(folder: Path, token: str) -> int:
    """Name the hidden files with ``token``; return their number.

    They are of processes that were killed, or that wait and continue with a new file. A file without events is removed; an incomplete one
    is cut after its last event.
    """
    return _finish_all(pevents_folder(folder), f".{token}-*.part", re.compile(rf"\.{re.escape(token)}-(\d+-.+)-\d+\.part"))


def finish_leftovers_of_host(folder: Path, *, only_dead: bool) -> int:
    """Name the files of this node's processes; ``only_dead``: skip running ones."""
    host = re.escape(node_name().partition("-")[2])
    return _finish_all(pevents_folder(folder), ".*.part", re.compile(rf"\..+?-\d+-[0-9a-f]+-(\d+-{host})-\d+\.part"), only_dead=only_dead)


def _finish_all(pevents: Path, glob: str, name: re.Pattern[str], *, only_dead: bool = False) -> int:
    named = 0
    for hidden in sorted(pevents.glob(glob)):
        match = name.fullmatch(hidden.name)
        if match is None or (only_dead and Path("/proc", match[1].partition("-")[0]).exists()):
            continue
        try:
            end_us = _completed(hidden)
            if end_us is None:
                hidden.unlink(missing_ok=True)
            else:
                _name(hidden, pevents, end_us, match[1])
                named += 1
        except FileNotFoundError:
            continue  # finished by its own process meanwhile
        except OSError as error:
            warnings.warn(f"{hidden}: cannot be given its name ({error.strerror or error})", RuntimeWarning, stacklevel=3)
    return named


def _completed(path: Path) -> int | None:
    """Cut a file after its last event; return that event's end in µs, or None."""
    content = path.read_bytes()
    base, end_us, end_of_events = 0, None, 0
    at = content.find(b"\n") + 1
    while 0 < at < len(content):
        newline = content.find(b"\n", at)
        line = content[at:] if newline < 0 else content[at:newline]
        try:
            record = json.loads(line.rstrip(b","))
            base = record["args"].get(_BASE, base)
            if record["ph"] == "X":
                end_us = max(end_us or 0, base + record["ts"] + record["dur"])
        except (ValueError, KeyError, TypeError, AttributeError):
            break
        end_of_events = at + len(line.rstrip(b","))
        at = newline + 1
    if end_us is not None and content[end_of_events:] != _END:
        with path.open("r+b") as file:
            file.truncate(end_of_events)
            file.seek(end_of_events)
            file.write(_END)
    return end_us
