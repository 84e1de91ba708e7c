"""Widths of text by fontTools, from the tables of the fonts themselves: text -> width at a size. Shares no code with postrun."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fontTools.ttLib import TTFont
from fontTools.varLib.varStore import VarStoreInstancer

FIGURES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@cache
def font(package: str, file: str) -> TTFont:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return TTFont(Path(spec.origin).parent / file)


@cache
def advance(character: str, weight: int, *, code: bool) -> float:
    """Return the width of a character at size 1, in DejaVu if others lack it."""
    chosen = font("fontpkg_roboto_mono", "files/RobotoMono[wght].ttf") if code else font("fontpkg_inter", "files/Inter[opsz,wght].ttf")
    glyph = chosen.getBestCmap().get(ord(character))
    if glyph is None:
        chosen = font("matplotlib", f"mpl-data/fonts/ttf/DejaVuSans{'-Bold' if weight > 400 else ''}.ttf")
        glyph = chosen.getBestCmap()[ord(character)]
    elif not code and character in "0123456789":
        glyph = f"{FIGURES[int(character)]}.tf"  # tabular figures
    width = chosen["hmtx"][glyph][0]
    if "HVAR" in chosen:
        width += deltas(chosen, weight)(glyph)
    return float(width / chosen["head"].unitsPerEm)


@cache
def deltas(chosen: TTFont, weight: int) -> Any:
    """Return a function: glyph -> how much wider it is at this weight than by default."""
    table = chosen["HVAR"].table
    at = VarStoreInstancer(table.VarStore, chosen["fvar"].axes, chosen.normalizeLocation({"opsz": 14, "wght": weight}))
    numbers = (
        {name: number for number, name in enumerate(chosen.getGlyphOrder())} if table.AdvWidthMap is None else table.AdvWidthMap.mapping
    )
    return lambda glyph: at[numbers[glyph]]


def text_width(text: str, size: float, *, bold: bool = False, code: bool = False) -> float:
    return size * sum(advance(character, 600 if bold else 400, code=code) for character in text)
