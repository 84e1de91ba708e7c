"""Which runs of a night go to which tickets?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..ingest.objects import Objects
from .model import Row


def check(rules: Path) -> None:
    """Before the night begins. Raises UsageError where the file cannot be used."""
    raise UsageError(f"{rules}: --attach is not part of this version yet")


def notify(rules: Path, out: Objects, rows: Iterable[Row], regressions: Sequence[Any]) -> list[str]:
    """Open or update tickets as ``rules`` say, after the index is written. ``rows``: the runs of this night; their reports stand in ``out``
    below ``row.folder``. -> a line for each ticket, and for each that failed; a ticket that fails never ends the night."""
    raise UsageError(f"{rules}: --attach is not part of this version yet")
