"""Which mistakes a user can make, and what the command line's exit code is for each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class PostrunError(Exception):
    """Base of every error that is shown to the user as one clear message, without a traceback.

    ``exit_code`` is what the command line ends with. The message names the file, the place and the next step.
    """

    exit_code = 1


class InputError(PostrunError):
    """The input cannot be used: not there, not readable, or nothing in it that postrun knows (exit code 4)."""

    exit_code = 4


class UsageError(PostrunError):
    """An option or a configuration file has a wrong value (exit code 2)."""

    exit_code = 2


class RenderError(PostrunError):
    """A report format could not be written; the other formats are kept (exit code 1). ``written``: format -> file of those.

    ``report``: the Report, if :func:`postrun.api.make_report` raised the error.
    """

    exit_code = 1
    report: Any = None

    def __init__(self, message: str, written: Mapping[str, Path] | None = None) -> None:
        super().__init__(message)
        self.written = dict(written or {})


class Terminated(SystemExit):
    """The job scheduler ends the program (SIGTERM). A rule that is running must not take it for its own exit."""


def database_problem(error: BaseException) -> str | None:
    """Describe an error of the database that the machine caused: a full disk, too little memory. None: any other error."""
    kind, reason = type(error).__name__, (str(error).splitlines() or [""])[0][:500]
    if kind == "OutOfMemoryException":
        return f"the database needs more memory ({reason}); give it more with --memory-limit, such as 2GB, or free space for TMPDIR"
    if kind == "IOException" and type(error).__module__.partition(".")[0] in {"duckdb", "_duckdb"}:
        return f"the database cannot read or write its file ({reason}); free some space, set TMPDIR, or choose another place with -o"
    return None
