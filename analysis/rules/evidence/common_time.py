"""The time over which the GPUs of several nodes can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_ALIKE: Final = 0.05  # extra time of one node, as a share of the common time, that makes no difference
_ENOUGH: Final = 0.5  # the share of the longest record that the common time should be
_LEAST_MACHINES: Final = 2


@dataclass(frozen=True, slots=True)
class CommonTime:
    """First and last time (ns, both included) at which all nodes were recorded; if there is none, first is after last.

    ``left_out``: numbers of nodes that were recorded for so little of it that the others are compared without them."""

    first_ns: int
    last_ns: int
    left_out: frozenset[int] = frozenset()

    @property
    def none(self) -> bool:
        """Return whether there is no such time."""
        return self.first_ns > self.last_ns


def common_time(spans: Mapping[int, tuple[int, int]]) -> CommonTime | None:
    """Return the time common to all nodes, or None if all were recorded alike.

    ``spans``: first and last time of each node's record; None also without nodes. While the common time is less than half of the longest
    record, the node without which it is longest is left out, if two others remain: a node whose monitor died does not hide the others."""
    if not spans:
        return None
    longest = max(last - first for first, last in spans.values())
    kept = dict(spans)
    while len(kept) > _LEAST_MACHINES and _length(*_common(kept)) < _ENOUGH * longest:
        del kept[_shortest(kept)]
    first, last = _common(kept)
    left_out = frozenset(spans.keys() - kept.keys())
    more = max(last for _, last in kept.values()) - min(first for first, _ in kept.values()) - _length(first, last)
    return CommonTime(first, last, left_out) if left_out or more > _ALIKE * _length(first, last) else None


def _shortest(spans: Mapping[int, tuple[int, int]]) -> int:
    """Return the node without which the common time of the others is longest."""
    firsts = sorted((first for first, _ in spans.values()), reverse=True)
    lasts = sorted(last for _, last in spans.values())

    def without(node: int) -> int:
        first, last = spans[node]
        return lasts[last == lasts[0]] - firsts[first == firsts[0]]

    return max(spans, key=lambda node: (without(node), -_length(*spans[node]), node))


def _common(spans: Mapping[int, tuple[int, int]]) -> tuple[int, int]:
    return max(first for first, _ in spans.values()), min(last for _, last in spans.values())


def _length(first: int, last: int) -> int:
    return max(last - first, 0)
