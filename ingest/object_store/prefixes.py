"""Beginnings of paths: the question which of them a path has, in a listing that is ordered by path."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class Prefixes:
    """Beginnings of paths in order. None of them begins with another."""

    def __init__(self, prefixes: Iterable[str]) -> None:
        self.sorted = sorted(set(prefixes))

    def of(self, path: str) -> str | None:
        """Return the beginning that ``path`` has; None without one."""
        at = bisect_right(self.sorted, path) - 1
        return self.sorted[at] if at >= 0 and path.startswith(self.sorted[at]) else None

    def below(self, folder: str) -> bool:
        """Decide whether a path below ``folder`` can have one of them."""
        at = bisect_left(self.sorted, folder)
        return (at < len(self.sorted) and self.sorted[at].startswith(folder)) or self.of(folder) is not None

    def start(self, after: str) -> str | None:
        """Return the path behind which the next paths of a listing are that have one.

        ``after``: the last path so far. None if there are no more."""
        if self.of(after) is not None:
            return after
        at = bisect_right(self.sorted, after)
        if at == len(self.sorted):
            return None
        following = self.sorted[at]
        # The path that equals the beginning belongs to it, unless it is the marker of a folder.
        return following if following.endswith("/") else max(after, following[:-1])
