"""Widths of characters in the fonts of the pages, as shares of the type size."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from ...messages import escape_of
from . import fonts
from .glyphs import has_glyph

_BOLD: Final = 1.13  # of the estimate


@cache
def widths(*, bold: bool = False, code: bool = False) -> Mapping[str, float]:
    """Return character -> width. ``code``: in the font for names of code."""
    family = fonts.MONO if code else fonts.SANS
    weight = "bold" if bold and not code else "normal"
    first = [face for face in fonts.variable_faces() if (face.family, face.weight) == (family, weight)]
    others = [face for face in fonts.fixed_faces() if face.family == fonts.FALLBACK and face.weight == weight]
    return _Widths([*first, *others]) if first else _Estimates(bold)


class _Widths(dict[str, float]):
    """The widths in the first of ``faces`` that contains a character."""

    def __init__(self, faces: list[fonts.Face]) -> None:
        self._faces = faces

    def __missing__(self, character: str) -> float:
        self[character] = width = self._measured(character)
        return width

    def _measured(self, character: str) -> float:
        for font, glyphs in map(fonts.shapes, self._faces):
            if (glyph := glyphs.get(ord(character))) is not None:
                return float(font.get_glyph_h_advance(glyph)) / float(font.face.upem)
        return 1.1 if has_glyph(character) else sum(self[one] for one in escape_of(character))


class _Estimates(dict[str, float]):
    """Estimates for DejaVu Sans, if the fonts are not installed."""

    def __init__(self, bold: bool) -> None:
        self._scale = _BOLD if bold else 1.0

    def __missing__(self, character: str) -> float:
        self[character] = width = _estimate(character) * self._scale
        return width


def _estimate(character: str) -> float:
    if character in " .,:;|!'ijl\u00a0\u202f()[]":
        return 0.36
    if character in "mwMW@%…":
        return 0.95
    if character in "<>=+~#×−±→←≥≤" or character >= "\u2e80":  # Chinese, Japanese, Korean, emoji
        return 0.84 if character < "\u2e80" else 1.1
    if character in "_-":
        return 0.5
    return 0.72 if character.isupper() else 0.62
