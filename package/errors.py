"""The errors that a user can cause, with the exit code of the command line for each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class PostrunError(Exception):
    """Base of every error that is shown to the user as one clear message, without a traceback.

    ``exit_code`` is the command line's exit code. The message names the file, the location and the next step.
    """

    exit_code = 1


class InputError(PostrunError):
    """Unusable input: missing, unreadable, or without anything that postrun recognizes (exit code 4)."""

    exit_code = 4


class UsageError(PostrunError):
    """An option or a configuration file has a wrong value (exit code 2)."""

    exit_code = 2


class RenderError(PostrunError):
    """A report format could not be written; the other formats are kept (exit code 1). ``written``: format -> file of the others.

    ``report``: the Report, if :func:`postrun.api.make_report` raised the error.
    """

    exit_code = 1
    report: Any = None

    def __init__(self, message: str, written: Mapping[str, Path] | None = None) -> None:
        super().__init__(message)
        self.written = dict(written or {})


class Terminated(SystemExit):
    """The job scheduler ends the program (SIGTERM). A running rule must not mistake it for its own exit."""


def database_problem(error: BaseException) -> str | None:
    """Describe a database error that the system caused, such as a full disk."""
    kind, reason = type(error).__name__, (str(error).splitlines() or [""])[0][:500]
    if kind == "OutOfMemoryException":
        return f"the database needs more memory ({reason}); give it more with --memory-limit, such as 2GB, or free space for TMPDIR"
    if kind == "IOException" and type(error).__module__.partition(".")[0] in {"duckdb", "_duckdb"}:
        return f"the database cannot read or write its file ({reason}); free some space, set TMPDIR, or choose another place with -o"
    return None
