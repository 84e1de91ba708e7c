"""A bar of the parts of a total, each named with its share below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import svg
from .palette import INK, MEANINGS, MUTED, ON, PAPER

_BAR = 18.0
_GAP = 14.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A part: its percentage of the total, and the text after its name. ``meaning``: a key of the palette."""

    name: str
    percent: float
    value: str
    meaning: str
    shade: float = 1.0


@dataclass(frozen=True, slots=True)
class Strip:
    title: str
    pieces: Sequence[Piece]


def strips(rows: Sequence[Strip], *, width: float = svg.WIDE) -> str:
    """Return SVG text of one bar per strip, each as wide as the figure."""
    body: list[str] = []
    y = 0.0
    for strip in rows:
        body.append(svg.text(0, y + 11, strip.title, fill=INK, bold=True))
        y += 18
        x = 0.0
        scale = width / max(100.0, sum(piece.percent for piece in strip.pieces))
        for piece in strip.pieces:
            across = piece.percent * scale
            body.append(svg.rect(x, y, across, _BAR, MEANINGS[piece.meaning], opacity=piece.shade, title=f"{piece.name}: {piece.value}"))
            if x:
                body.append(svg.rect(x - 0.5, y, 1, _BAR, PAPER))
            if piece.shade == 1.0 and svg.width_of(piece.name, 10) + 10 < across:
                body.append(svg.text(x + across / 2, y + 13, piece.name, anchor="middle", fill=ON[piece.meaning], size=10))
            x += across
        y += _BAR + 13
        x = 0.0
        for piece in strip.pieces:
            wide = 14 + svg.width_of(f"{piece.name}  {piece.value}", 10) + 12
            if x and x + wide - 12 > width:
                x, y = 0.0, y + 15.0
            body.append(svg.rect(x, y - 8, 9, 9, MEANINGS[piece.meaning], opacity=piece.shade))
            body.append(svg.text(x + 14, y, piece.name, size=10, more=(piece.value, MUTED)))
            x += wide
        y += _GAP
    return svg.document(width, y - _GAP + 5, body)
