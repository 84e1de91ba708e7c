"""The first request to a server: a server that answers nothing at all is given up in half a minute, a slow one is waited for."""

from __future__ import annotations

import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, wait
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, TypeVar

from .errors import Trouble, trouble

T = TypeVar("T")

SILENT_S: Final = 30.0  # After this time without any answer a server counts as silent
_PROBE_AFTER_S: Final = 10.0


class SilentError(Exception):
    """The server accepts connections, or seems to, and answers nothing."""

    problem: Final = Trouble("silent")


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer; a request goes to no other host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def opener(certificates: Path | None) -> urllib.request.OpenerDirector:
    """Return what opens URLs. ``certificates``: trusted besides those of the system."""
    context = ssl.create_default_context()
    if certificates is not None:
        context.load_verify_locations(certificates)
    return urllib.request.build_opener(NoRedirect, urllib.request.HTTPSHandler(context=context))


def answers(opener: urllib.request.OpenerDirector, url: str, within_s: float) -> bool:
    """Decide whether a server answers to HEAD, with whatever status."""
    try:
        with opener.open(urllib.request.Request(url, method="HEAD"), timeout=within_s):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except (OSError, HTTPException):
        return False


class Contact:
    """``probe``: sends a request that any server answers at once, and returns whether there was an answer within the given seconds."""

    def __init__(self, probe: Callable[[float], bool]) -> None:
        self._probe = probe
        self._answered = threading.Event()

    @property
    def answered(self) -> bool:
        return self._answered.is_set()

    def first(self, action: Callable[[], T]) -> T:
        """Return the result of a request.

        Raise SilentError if the server has never answered, and does not answer the probe either."""
        if self.answered:
            return action()
        outcome: Future[T] = Future()
        threading.Thread(target=self._settle, args=(outcome, action), name="postrun-contact", daemon=True).start()
        wait([outcome], timeout=_PROBE_AFTER_S)
        if not outcome.done() and not self._probe(SILENT_S - _PROBE_AFTER_S) and not outcome.done():
            raise SilentError
        return outcome.result()

    def _settle(self, outcome: Future[T], action: Callable[[], T]) -> None:
        try:
            result = action()
        except BaseException as error:
            problem = getattr(error, "problem", None) or trouble(error)
            if problem.status is not None or problem.kind == "missing":
                self._answered.set()
            outcome.set_exception(error)
        else:
            self._answered.set()
            outcome.set_result(result)
