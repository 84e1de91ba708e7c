"""Texts about runs, such as reasons, as a night writes them: paths relative to SOURCE, redacted according to --redact."""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Sequence
from typing import Final

from ..ingest.object_store.urls import is_url
from ..ingest.store.conceal import redacted_text
from .discover import hosts_of
from .model import FoundRun

INTERNAL: Final = "internal error: "  # begins the reason of a run that failed by a defect


def relative(text: str, source: str) -> str:
    """Make paths below a local ``source`` relative to it."""
    return text if is_url(source) else _without(text, source, "")


def written(text: str, run: FoundRun, source: str, out: str, redact: Sequence[str]) -> str:
    """Return ``text`` about ``run`` as reports may show it.

    With ``redact``, no folder above SOURCE, the output or the temporary files remains."""
    if not redact:
        return relative(text, source)
    places = (source, os.path.realpath(source), out, os.path.realpath(out), tempfile.gettempdir())
    users_of = (*places, text)
    for folder in places:
        text = _without(text, folder, last_part(folder))
    return redacted_text(text, redact, [platform.node(), *hosts_of(run)], users_of)


def without_run(text: str, run_id: str, source: str) -> str:
    """Remove the name of the run from the beginning of a reason, next to which it is."""
    names = (source, last_part(source)) if run_id == "." else (run_id, f"{source.rstrip('/')}/{run_id}")
    return next((text.removeprefix(f"{name}: ") for name in names if text.startswith(f"{name}: ")), text)


def last_part(folder: str) -> str:
    """Return the name of a folder, or the last part of a URL."""
    return re.split(r"[/\\]", folder.rstrip("/\\"))[-1] or folder


def _without(text: str, folder: str, alone: str) -> str:
    """Remove ``folder`` in front of paths; ``alone`` replaces the folder itself."""
    folder = folder.rstrip("/")
    if not folder:
        return text
    start = rf"(?<![\w.~/\-]){re.escape(folder)}"
    text = re.sub(rf"{start}/(?=[^\s/])", "", text)
    return re.sub(rf"{start}(?![\w.\-])", lambda _: alone, text) if alone else text
