"""Shares of a whole -> a ring of at most eight sectors and the others, with a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from ...analysis.report.model import Share
from ..blocks import SECTORS, Figure, Slice, meaning_of, ring
from ..text.formats import count, duration


def shares_ring(
    id: str,
    caption: Markup,
    what: str,
    shares: Sequence[Share],
    first: str,
    of: str,
    *,
    label: str,
    meaning: Callable[[str], str] = meaning_of,
    half: bool = False,
) -> Figure | None:
    """Draw the shares. ``first`` and ``of``: headings of names and percentages."""
    ordered = sorted(shares, key=lambda share: -share.percent)
    head, rest = ordered[:SECTORS], ordered[SECTORS:]
    if len(rest) == 1:
        head, rest = ordered, []
    parts = [Slice(share.name, meaning(share.name), share.percent, (duration(share.total_ns), count(share.count))) for share in head]
    if rest:
        cells = (duration(sum(share.total_ns for share in rest)), count(sum(share.count for share in rest)))
        parts.append(Slice(f"All others ({count(len(rest))})", "other", sum(share.percent for share in rest), cells))
    total = duration(sum(share.total_ns for share in shares))
    return ring(id, caption, what, parts, (first, "Time", "Count", "Share" if half else of), middle=(total, label), half=half)
