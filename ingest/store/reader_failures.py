"""Unexpected failures of readers: which exceptions cost one file or step, and the note that each leaves.

A full disk, a database out of memory, and an interruption concern the whole run; they are never costs of one file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...errors import UsageError
from .store import Store
from .texts import storable

_LOG: Final = logging.getLogger("postrun.ingest")  # Tracebacks, which `--verbose` shows
_OF_THE_RUN: Final = frozenset({"FatalException", "InterruptException", "IOException", "OutOfMemoryException"})
"""Exceptions of DuckDB that concern its own file, its memory, or an interruption."""
_LONGEST: Final = 300
_REPORT: Final = "This is a defect of postrun; run with --verbose and report its output."


def costs_one_file(error: BaseException) -> bool:
    """Whether an unexpected exception in a reader concerns only its file."""
    kind = type(error)
    if not isinstance(error, Exception):
        return kind.__name__ == "PanicException"  # of Polars, a BaseException
    if kind.__module__.partition(".")[0] in {"duckdb", "_duckdb"}:
        return kind.__name__ not in _OF_THE_RUN and "Could not write file" not in str(error)
    # DuckDB answers an interruption with a plain RuntimeError in some of its calls.
    return not (kind is RuntimeError and "interrupted" in str(error))


def described(error: BaseException) -> str:
    """Describe an exception in one line, for a note: type and first line of its text."""
    text = " ".join(str(error).partition("\n")[0].split())
    short = text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
    return storable(f"{type(error).__name__}: {short}" if short else type(error).__name__)


def failure_text(error: BaseException) -> str:
    """Describe a failure and the next step, for a note."""
    return f"its reader failed ({described(error)}). {_REPORT}"


def note_failure(store: Store, error: BaseException, source: int, file: str) -> None:
    """Note that a reader failed at a file whose rows were removed."""
    _LOG.debug("the reader of %s failed", storable(file), exc_info=error)
    store.note("error", "reader_failed", f"The file was left out: {failure_text(error)}", source=source, file=file)


@contextmanager
def step(store: Store, name: str) -> Iterator[None]:
    """Run a step over all files; a failure becomes a note, and the run continues.

    UsageError is raised: the user stated something that contradicts the files.
    """
    try:
        yield
    except UsageError:
        raise
    except BaseException as error:
        if not costs_one_file(error):
            raise
        _LOG.debug("failed: %s", name, exc_info=error)
        text = f"A step after reading failed, and its results are missing or incomplete: {name} ({described(error)}). {_REPORT}"
        store.note("error", "step_failed", text)
