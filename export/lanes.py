"""On which lane of its track does an event lie, so that no two on a lane overlap without one holding the other?

Viewers draw a stack of events per lane: two that overlap in part would hide one, or end the wrong one.
"""

from __future__ import annotations

from typing import Final

MOST: Final = 1 << 12
"""Lanes of one track at most; what finds none free is put on the last one."""


class Lanes:
    """The lanes of one track. Give it the events in order of start, of those that start together the longest first.

    ``nested``: whether an event may lie in another one (calls of a thread); runs on a stream lie beside each other.
    """

    def __init__(self, *, nested: bool) -> None:
        self.nested = nested
        self._open: list[list[int]] = []

    def place(self, start: int, end: int) -> tuple[int, list[int]]:
        """The lane of an event, and the ends of the events on that lane that are over by then, in their order."""
        for lane, stack in enumerate(self._open):
            over = 0
            while over < len(stack) and stack[-1 - over] <= start:
                over += 1
            held = len(stack) - over
            if held == 0 or (self.nested and end <= stack[held - 1]) or lane == MOST - 1:
                ended = stack[held:][::-1]
                del stack[held:]
                stack.append(end)
                return lane, ended
        self._open.append([end])
        return len(self._open) - 1, []

    def rest(self) -> list[tuple[int, list[int]]]:
        """By lane the ends of what is still open, in their order."""
        return [(lane, stack[::-1]) for lane, stack in enumerate(self._open) if stack]
