"""The events of a night for programs: one JSON object per line, appended to a file that several nights may share.

No line has a link that gives access: neither a signature of a store nor the address of a webhook.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import UsageError
from ..messages import echo
from ..version import __version__

if TYPE_CHECKING:
    from .model import Row

_INTERRUPTED: Final = 130  # exit code after Ctrl-C


class EventLog:
    """Appends events. ``path``: None writes nothing. Raise UsageError if the file cannot be opened."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._night, self._failed = path, secrets.token_hex(4), False
        self._began = time.monotonic()
        self._file: int | None = None
        if path is not None:
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)  # the umask has the mode
            except OSError as error:
                raise UsageError(f"{path}: {error.strerror or error}; check --log") from None

    def write(self, event: str, **values: Any) -> None:
        """Append one event; a value of None is left out.

        One call to the system writes the line, so that lines of several nights do not mix. A file that cannot be written, as on a full
        disk, does not end the night."""
        if self._file is None:
            return
        moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        known = {name: value for name, value in values.items() if value is not None}
        line = json.dumps({"time": moment, "night": self._night, "event": event, **known}) + "\n"
        try:
            os.write(self._file, line.encode("ascii"))
        except OSError as error:
            if not self._failed:
                echo(f"postrun: --log: {self._path}: {error.strerror or error}; events are missing", err=True)
            self._failed = True

    def start(self, source: str, out: str) -> None:
        self.write("night_started", version=__version__, source=source, out=out)

    def run(self, row: Row) -> None:
        """Append the outcome of a run."""
        seconds = None if row.seconds is None else round(row.seconds, 3)
        reason = row.reason if row.state == "failed" else None
        self.write(f"run_{row.state}", run=row.id, seconds=seconds, bytes=row.bytes, attempts=row.attempts, reason=reason)

    def ticket(self, sent: Mapping[str, Any]) -> None:
        """Append what --attach did, or could not do."""
        self.write("ticket_given_up" if "given_up" in sent else "ticket_failed" if "error" in sent else "ticket", **sent)

    @property
    def seconds(self) -> float:
        """Return the time since the start."""
        return time.monotonic() - self._began

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)


@contextmanager
def night_log(path: Path | None) -> Iterator[EventLog]:
    """Yield the log of a night, and append its end with the exit code."""
    log, code = EventLog(path), 0
    try:
        yield log
    except BaseException as error:
        code = _exit_code(error)
        raise
    finally:
        log.write("night_ended", exit_code=code, seconds=round(log.seconds, 3))
        log.close()


def _exit_code(error: BaseException) -> int:
    """Return the exit code with which the command line ends after an error."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED
    code = getattr(error, "exit_code", 1)  # of PostrunError and of the command line's own errors
    return code if isinstance(code, int) else 1
