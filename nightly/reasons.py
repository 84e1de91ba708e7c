"""Reasons and other texts about runs as a night writes them: paths relative to SOURCE, redacted as --redact says."""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Sequence

from ..ingest.object_store.urls import is_url
from ..ingest.store.conceal import redacted_text
from .discover import hosts_of
from .model import FoundRun


def relative(text: str, source: str) -> str:
    """``text`` with paths below a local ``source`` relative to it."""
    return text if is_url(source) else _without(text, source, "")


def written(text: str, run: FoundRun, source: str, out: str, redact: Sequence[str]) -> str:
    """``text`` about ``run`` as reports may show it. With ``redact``, no folder above SOURCE, the output or the temporary files remains."""
    if not redact:
        return relative(text, source)
    places = (source, os.path.realpath(source), out, os.path.realpath(out), tempfile.gettempdir())
    users_of = (*places, text)
    for place in places:
        text = _without(text, place, last_part(place))
    return redacted_text(text, redact, [platform.node(), *hosts_of(run)], users_of)


def last_part(place: str) -> str:
    """The name of a folder, or the last part of a URL."""
    return re.split(r"[/\\]", place.rstrip("/\\"))[-1] or place


def _without(text: str, place: str, alone: str) -> str:
    """``text`` without ``place`` in front of what is below it; ``alone``: what replaces the place itself, unless empty."""
    place = place.rstrip("/")
    if not place:
        return text
    start = rf"(?<![\w.~/\-]){re.escape(place)}"
    text = re.sub(rf"{start}/(?=[^\s/])", "", text)
    return re.sub(rf"{start}(?![\w.\-])", lambda _: alone, text) if alone else text
