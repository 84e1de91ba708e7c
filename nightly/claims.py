"""Claims on runs and on the index, so that nights at the same time share the work: conditional writes below the output.

A claim names its owner and its end. A night renews its claims while it lives. The claim of a killed night expires, on the same machine at
once; a night that has done all else waits for that, and takes the run over. Correctness never depends on a claim: a run that two nights
report results in the same files, and either writes its done-marker last. Claims only save duplicate work.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from ..errors import InputError
from ..ingest.object_store.objects import Objects, OccupiedError

LEASE_S: Final = 300.0  # validity of a claim without renewal; the clocks of the machines that share a night must agree better
_MOST_BYTES: Final = 4096  # of a claim; a longer one was not written by a night
_HOST: Final = re.compile(r"[\w.:-]{1,255}")
_POLL_S: Final = 0.5
_LOOK_S: Final = 5.0  # between two looks at the claims of another night


def creates_once(out: Objects) -> bool:
    """Return whether the store refuses to create an object that exists.

    Some servers ignore the condition and answer that they did. Then nights at the same time do work twice."""
    path = f"{uuid.uuid4().hex}.probe.json"
    try:
        return out.create(path, b"1") and not out.create(path, b"2")
    finally:
        with suppress(InputError, OSError):
            out.delete(path)


class Claims:
    """The claims of one night below ``out``; those that remain are given back at the end. ``clock``: Unix time in ns."""

    def __init__(self, out: Objects, *, lease_s: float = LEASE_S, clock: Callable[[], int] = time.time_ns) -> None:
        self.night = uuid.uuid4().hex
        self._out = out
        self._lease_ns = int(lease_s * 1e9)
        self._clock = clock
        self._held: set[str] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._renewing: threading.Thread | None = None

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._renewing is not None:
            self._renewing.join()
        for path in sorted(self._held):
            with suppress(InputError, OSError):
                self.give_back(path)

    def take(self, path: str) -> bool:
        """Take the claim ``path`` if it is free; return whether this night has it."""
        known = path in self._held
        try:
            had = self._taken(path)
        except OccupiedError:
            return True  # claims only save work: without one, two nights may do it
        except BaseException:
            self._holds(path)  # it may have been taken, and is then given back at the end
            raise
        if had and not known:
            self._holds(path)
        return had

    def _taken(self, path: str) -> bool:
        for _ in range(3):
            if self._out.create(path, self._text()):
                return True
            now = self._out.head(path)
            if now is None:
                continue  # given back in between
            claim = self._read(path)
            if claim is None:
                continue
            if claim.get("night") != self.night and not self._free(claim):
                return False
            if self._out.replace(path, self._text(), now.etag):
                return True
        return False

    def give_back(self, path: str) -> None:
        """Delete the claim if it is this night's."""
        with self._lock:
            self._held.discard(path)
        with suppress(OccupiedError):
            claim = self._read(path)
            if claim is not None and claim.get("night") == self.night:
                self._out.delete(path)

    def take_over(self, path: str) -> bool:
        """Take the claim of a night that has ended; return False if it was given back."""
        now = self._out.head(path)
        claim = None if now is None else self._read(path)
        if now is None or claim is None or not self._free(claim) or not self._out.replace(path, self._text(), now.etag):
            return False
        self._holds(path)
        return True

    def leave(self, path: str) -> None:
        """Leave the claim to the next night, which can take it over at once."""
        with self._lock:
            self._held.discard(path)
        with suppress(InputError, OSError):  # it expires
            now, claim = self._out.head(path), self._read(path)
            if now is not None and claim is not None and claim.get("night") == self.night:
                self._out.replace(path, json.dumps({**claim, "expires_ns": self._clock()}).encode(), now.etag)

    def holder(self, path: str) -> str | None:
        """Describe the process that has the claim; None if nobody has it."""
        claim = self._read(path)
        if claim is None or self._free(claim):
            return None
        pid, host = claim.get("pid"), claim.get("host")
        if not isinstance(pid, int) or not isinstance(host, str) or not _HOST.fullmatch(host):
            return "an unknown process"
        return f"process {pid} on {host}"

    def freed(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield those of ``paths`` that become free, for at most one lease.

        A claim that its night renews meanwhile is given up: that night lives and does the work."""
        first = {path: self._read(path) for path in paths}
        until = time.monotonic() + self._lease_ns / 1e9
        while first:
            for path in list(first):
                claim = self._read(path)
                if claim is None or self._free(claim):
                    del first[path]
                    yield path
                elif claim != first[path] or (claim.get("host") == socket.gethostname() and _is_visible(claim.get("began"))):
                    del first[path]
            if first and time.monotonic() > until:
                return
            if first:
                time.sleep(min(_LOOK_S, self._lease_ns / 1e9 / 20))

    @contextmanager
    def alone(self, path: str) -> Iterator[None]:
        """Wait for the claim and keep it inside the block.

        After two leases the block runs without it: the owner has stopped renewing it."""
        until = time.monotonic() + 2 * self._lease_ns / 1e9
        while not (had := self.take(path)) and time.monotonic() < until:
            time.sleep(_POLL_S)
        try:
            yield
        finally:
            if had:
                self.give_back(path)

    def _holds(self, path: str) -> None:
        with self._lock:
            self._held.add(path)
            if self._renewing is None:
                self._renewing = threading.Thread(target=self._renew, name="postrun-claims", daemon=True)
                self._renewing.start()

    def _renew(self) -> None:
        while not self._over.wait(self._lease_ns / 4e9):
            with self._lock:
                held = sorted(self._held)
            for path in held:
                with suppress(InputError, OSError):  # tried again soon; at worst another night also does the work
                    now, claim = self._out.head(path), self._read(path)
                    if now is not None and claim is not None and claim.get("night") == self.night and path in self._held:
                        self._out.replace(path, self._text(), now.etag)

    def _text(self) -> bytes:
        pid = os.getpid()
        text = {
            "night": self.night, "host": socket.gethostname(), "pid": pid, "began": _began(pid),
            "expires_ns": self._clock() + self._lease_ns,
        }  # fmt: skip
        return json.dumps(text).encode()

    def _read(self, path: str) -> dict[str, Any] | None:
        """Return a claim's content: empty if it is damaged, None if it is missing."""
        try:
            data = self._out.read(path, count=_MOST_BYTES + 1)
        except InputError:
            if self._out.head(path) is None:
                return None
            raise
        try:
            claim = json.loads(data) if len(data) <= _MOST_BYTES else {}
        except (ValueError, RecursionError):
            return {}
        return claim if isinstance(claim, dict) else {}

    def _free(self, claim: dict[str, Any]) -> bool:
        expires = claim.get("expires_ns")
        if type(expires) is not int or expires <= self._clock() or expires > self._clock() + 4 * self._lease_ns:
            return True
        return claim.get("host") == socket.gethostname() and _dead(claim.get("pid"), claim.get("began"))


def _dead(pid: Any, began: Any) -> bool:
    """Decide whether no process of this machine has this id and this start.

    A container that is started again has the same host name and ids; another machine may also have them, which the boot shows. Processes
    of another container of this machine are not visible."""
    if not isinstance(pid, int) or pid <= 0:
        return True
    if not _is_visible(began):
        return False
    there = began if isinstance(began, str) else ""
    with suppress(OSError, OverflowError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
    now = _began(pid)
    return now is not None and there not in ("", now)


def _is_visible(began: Any) -> bool:
    """Decide whether this process could see a process with this start.

    Both must have the same boot and namespace of process ids; unknown counts as the same."""
    here = _began(os.getpid())
    return here is None or not isinstance(began, str) or not began or began.split()[0] == here.split()[0]


def _began(pid: int) -> str | None:
    """Return an id of the start of a process.

    It has the boot, this process's namespace of process ids, and the ticks since the boot. None if the system does not provide them."""
    try:
        stat, boot = Path(f"/proc/{pid}/stat").read_text(), Path("/proc/sys/kernel/random/boot_id").read_text()
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None
    return f"{boot.strip()}/{namespace} {stat.rpartition(')')[2].split()[19]}"
