"""Which of several nights works on something? Claims that expire, made and taken over by conditional writes.

A claim says whose it is and until when. A night renews its own while it lives; the claim of a night that was killed runs out, and at once
where it is seen from the same machine. Nobody relies on a claim for what is right: a run that two nights report gives the same files, and
its done-marker is written last by either. It only saves doing work twice.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final

from ..errors import InputError
from ..ingest.object_store.objects import Objects, OccupiedError

LEASE_S: Final = 300.0  # How long a claim holds that is not renewed. The clocks of machines that share a night must not differ by as much.
_MOST_BYTES: Final = 4096  # Of a claim; a longer one is not ours
_HOST: Final = re.compile(r"[\w.:-]{1,255}")
_POLL_S: Final = 0.5


class Claims:
    """The claims of one night below ``out``; those it still holds are given back at the end. ``clock``: Unix time in ns."""

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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        if self._renewing is not None:
            self._renewing.join()
        for path in sorted(self._held):
            with suppress(InputError, OSError):
                self.give_back(path)

    def take(self, path: str) -> bool:
        """Whether this night has the claim ``path`` now: nobody had it, or whoever did has let it run out."""
        known = path in self._held
        try:
            had = self._taken(path)
        except OccupiedError:
            return True  # claims only save work: without one, two nights may do it
        except BaseException:
            self._holds(path)  # it may be, and is then given back at the end
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
            said = self._read(path)
            if said is None:
                continue
            if said.get("night") != self.night and not self._free(said):
                return False
            if self._out.replace(path, self._text(), now.etag):
                return True
        return False

    def give_back(self, path: str) -> None:
        """No more this night's, where it was."""
        with self._lock:
            self._held.discard(path)
        with suppress(OccupiedError):
            said = self._read(path)
            if said is not None and said.get("night") == self.night:
                self._out.delete(path)

    def holder(self, path: str) -> str | None:
        """Who has it, in words; None where nobody."""
        said = self._read(path)
        if said is None or self._free(said):
            return None
        pid, host = said.get("pid"), said.get("host")
        if not isinstance(pid, int) or not isinstance(host, str) or not _HOST.fullmatch(host):
            return "an unknown process"
        return f"process {pid} on {host}"

    @contextmanager
    def alone(self, path: str) -> Iterator[None]:
        """Waits for the claim, and has it inside. After two leases it goes on without: whoever has it is no longer heard of."""
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
                with suppress(InputError, OSError):  # tried again in a moment; at worst somebody else does the work, too
                    now, said = self._out.head(path), self._read(path)
                    if now is not None and said is not None and said.get("night") == self.night and path in self._held:
                        self._out.replace(path, self._text(), now.etag)

    def _text(self) -> bytes:
        text = {"night": self.night, "host": socket.gethostname(), "pid": os.getpid(), "expires_ns": self._clock() + self._lease_ns}
        return json.dumps(text).encode()

    def _read(self, path: str) -> dict[str, Any] | None:
        """What a claim says; nothing in it where it is damaged; None where there is none."""
        try:
            data = self._out.read(path, count=_MOST_BYTES + 1)
        except InputError:
            if self._out.head(path) is None:
                return None
            raise
        try:
            said = json.loads(data) if len(data) <= _MOST_BYTES else {}
        except (ValueError, RecursionError):
            return {}
        return said if isinstance(said, dict) else {}

    def _free(self, said: dict[str, Any]) -> bool:
        expires = said.get("expires_ns")
        if type(expires) is not int or expires <= self._clock() or expires > self._clock() + 4 * self._lease_ns:
            return True
        return said.get("host") == socket.gethostname() and _dead(said.get("pid"))


def _dead(pid: Any) -> bool:
    """Whether no process of this machine has that number."""
    if not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
