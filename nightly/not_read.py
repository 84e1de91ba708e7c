"""Files that nights leave out: the lines of one night and those of the index before -> the lines of the index.

index.parquet keeps each line with the time at which a night last listed it, because a night with a part of SOURCE does not see the others.
Anyone who can write to the output may have written them, so they are bounded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Lines = Mapping[str, int]
"""A line about a file, and when it was last listed (Unix time in ns)."""
_MOST: Final = 10_000  # lines, as index.json lists runs
_LONGEST: Final = 1000  # characters of a line


@dataclass(frozen=True, slots=True)
class Seen:
    """The lines of a night. ``everything``: it listed all of SOURCE, so other lines no longer apply."""

    lines: tuple[str, ...] = ()
    everything: bool = False


def merged(before: Lines, now: Seen, now_ns: int, since_ns: int) -> dict[str, int]:
    """Return the lines of the index in order.

    ``since_ns``: lines that were last listed earlier are forgotten."""
    kept = {} if now.everything else {line: min(at_ns, now_ns) for line, at_ns in before.items() if at_ns > since_ns}
    lines = kept | {line[:_LONGEST]: now_ns for line in now.lines}
    newest = sorted(lines, key=lambda line: (-lines[line], line))[:_MOST]
    return {line: lines[line] for line in sorted(newest)}


def encoded(lines: Lines) -> str:
    return json.dumps(list(lines.items()))


def decoded(text: str) -> dict[str, int]:
    """Return the lines of a text; none if no night could have written it."""
    try:
        lines = dict(json.loads(text))
        fits = all(isinstance(line, str) and len(line) <= _LONGEST and type(at_ns) is int for line, at_ns in lines.items())
    except (ValueError, TypeError, RecursionError):
        return {}
    return lines if fits and len(lines) <= _MOST else {}
