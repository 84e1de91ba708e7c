"""Repeated requests: what their errors are, and how long to wait before the next try."""

from __future__ import annotations

import random
import time
from typing import Final

from .contact import SilentError
from .errors import Trouble, trouble
from .listing import ListError

TRIES: Final = 8
FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 10.0
_GIVE_UP_S: Final = 120.0


class CutOffError(Exception):
    """The connection ended before the body."""


class Waits:
    """How long to wait before the next try: exponential and random, so that many workers do not come back together."""

    def __init__(self, tries: int = TRIES) -> None:
        self._left = tries
        self._tried = 0
        self._until = time.monotonic() + _GIVE_UP_S

    def again(self, failure: Trouble) -> bool:
        """Whether to try again, after a wait."""
        self._tried += 1
        most = min(self._left, 3) if failure.kind == "host" else self._left
        if not failure.passing or self._tried >= most or time.monotonic() > self._until:
            return False
        time.sleep(min(FIRST_WAIT_S * 2 ** (self._tried - 1), _LONGEST_WAIT_S) * random.uniform(0.5, 1.0))
        return True


def trouble_of(error: BaseException) -> Trouble:
    if isinstance(error, CutOffError):
        return Trouble("network")
    return error.problem if isinstance(error, (ListError, SilentError)) else trouble(error)
