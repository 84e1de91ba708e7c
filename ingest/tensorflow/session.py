"""The start, step and machine of a TensorFlow profile, from the names of the files around it: the trace itself has none of them.

The hosted profiler writes ``<step>/<node>_<start>_<end>.metadata`` (microseconds of the Unix epoch; the name is the data) above the
``plugins/profile/<date>/<host>.trace.json.gz`` of that step, whose times count from the start. TensorBoard's folders have no such file.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from ..store.registry import is_same_host

_TRACE_NAME: Final = re.compile(r"(?P<host>.+)\.trace\.json(\.gz|\.zst)?$", re.IGNORECASE)
_METADATA_NAME: Final = re.compile(r"(?P<node>.*)_(?P<start>\d{16,18})_(?P<end>\d{16,18})\.metadata", re.ASCII)
_STEP: Final = re.compile(r"\d{1,18}", re.ASCII)
_MOST_FILES: Final = 10_000
_LATEST_US: Final = 2**61 // 1000


@dataclass(frozen=True, slots=True)
class Session:
    """Facts about one trace from paths; None if unknown. ``number``: before the machine in the node's name, a process id or a rank.

    ``doubt``: why the metadata files that exist were not used.
    """

    hostname: str | None
    number: int | None
    node: str | None
    start_us: int | None
    step: int | None
    doubt: str | None = None


def session_of(path: Path) -> Session:
    """Return the session of a trace, from its name and the metadata files above it."""
    named = _TRACE_NAME.fullmatch(path.name)
    host = named["host"][:255] if named else None
    if [part.lower() for part in path.parts[-4:-2]] != ["plugins", "profile"]:
        return Session(host, None, None, None, None)
    folder = path.parents[3]
    step = int(folder.name) if folder.parent.parent.name == "detailed_profiling" and _STEP.fullmatch(folder.name) else None
    matches = [match for name in _names(folder) if (match := _METADATA_NAME.fullmatch(name)) and int(match["start"]) <= _LATEST_US]
    if len(matches) > 1:
        of_host = [match for match in matches if host is not None and is_same_host(re.sub(r"^\d+-", "", match["node"]), host)]
        matches = of_host or matches
    doubt = None
    if len(matches) > 1:
        doubt = f"{len(matches)} metadata files stand above the trace, and which of them is its own is not known"
    elif matches and _sessions(path) > 1:
        doubt = "several profiles of this machine stand below one metadata file"
    if doubt or not matches:
        return Session(host, None, None, None, step, doubt)
    node = matches[0]["node"]
    split = re.fullmatch(r"(\d{1,18})-(.+)", node, re.ASCII)
    hostname = (split[2] if split else node)[:255] or host
    return Session(hostname, int(split[1]) if split else None, node or None, int(matches[0]["start"]), step)


def is_copy(path: Path) -> bool:
    """Return whether this is JAX's second file of a profile, a copy of the first."""
    return path.name.lower().startswith("perfetto_trace.json") and any(map(_TRACE_NAME.fullmatch, _names(path.parent)))


def _sessions(path: Path) -> int:
    """Return how many dates have a profile of this machine."""
    return sum((path.parents[1] / date / path.name).exists() for date in _names(path.parents[1]))


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, _MOST_FILES))
    except OSError:
        return []
