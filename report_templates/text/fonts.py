"""Fonts of the pages: files of installed packages -> fonts of one weight, and the characters that they contain.

Inter is for text and Roboto Mono for the names of kernels, operators and functions. Their packages contain variable fonts, from which
HarfBuzz makes a font of one weight in milliseconds. DejaVu Sans of Matplotlib has the characters that they lack, and replaces them where a
package is missing.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from . import sfnt

if TYPE_CHECKING:
    import uharfbuzz

SANS: Final = "Inter"
MONO: Final = "Roboto Mono"
FALLBACK: Final = "DejaVu Sans"
CJK: Final = "Noto Sans CJK"
# Attribute values of SVG text.
SANS_FAMILIES: Final = f"{SANS},{FALLBACK}"
MONO_FAMILIES: Final = f"{MONO},{FALLBACK} Mono,{FALLBACK}"

_DIGITS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NAMES: Final = (0, 1, 2, 4, 6, 13)  # copyright, family, style, full name, PostScript name, license


@dataclass(frozen=True, slots=True)
class Face:
    """A font file, and the place in it along its axes of variation."""

    family: str
    weight: str
    file: Path
    axes: tuple[tuple[str, float], ...] = ()


_VARIABLE: Final = (
    (SANS, "normal", "fontpkg_inter", "Inter[opsz,wght].ttf", (("opsz", 14.0), ("wght", 400.0))),
    (SANS, "bold", "fontpkg_inter", "Inter[opsz,wght].ttf", (("opsz", 14.0), ("wght", 600.0))),
    (MONO, "normal", "fontpkg_roboto_mono", "RobotoMono[wght].ttf", (("wght", 400.0),)),
)
_FIXED: Final = (
    (FALLBACK, "normal", "DejaVuSans.ttf"),
    (FALLBACK, "bold", "DejaVuSans-Bold.ttf"),
    (f"{FALLBACK} Mono", "normal", "DejaVuSansMono.ttf"),
)


@cache
def variable_faces() -> tuple[Face, ...]:
    """Return the faces of Inter and Roboto Mono; leave out missing packages."""
    if importlib.util.find_spec("uharfbuzz") is None:
        return ()
    faces = []
    for family, weight, package, name, axes in _VARIABLE:
        folder = _folder(package)
        if folder is not None and (folder / "files" / name).is_file():
            faces.append(Face(family, weight, folder / "files" / name, axes))
    return tuple(faces)


@cache
def fixed_faces() -> tuple[Face, ...]:
    """Return the faces of DejaVu; Matplotlib is not loaded."""
    folder = _folder("matplotlib")
    files = [] if folder is None else [(family, weight, folder / "mpl-data" / "fonts" / "ttf" / name) for family, weight, name in _FIXED]
    return tuple(Face(family, weight, file) for family, weight, file in files if file.is_file())


@cache
def cjk_face() -> Face | None:
    """Return the font of the extra ``cjk``, if it is installed."""
    folder = _folder("noto_cjk_sans_otc")
    file = None if folder is None else folder / "NotoSansCJK-Regular.ttc"
    return Face(CJK, "normal", file) if file is not None and file.is_file() else None


def _folder(package: str) -> Path | None:
    """Return the folder of an installed package without loading the package."""
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


@cache
def shapes(face: Face) -> tuple[uharfbuzz.Font, Mapping[int, int]]:
    """Return HarfBuzz's font, and code point -> glyph, with figures of equal widths."""
    import uharfbuzz

    font = uharfbuzz.Font(uharfbuzz.Face(uharfbuzz.Blob.from_file_path(str(face.file))))
    if face.axes:
        font.set_variations(dict(face.axes))
    glyphs = {code: font.get_nominal_glyph(code) for code in font.face.unicodes}
    for digit, name in enumerate(_DIGITS):
        tabular = font.get_glyph_from_name(f"{name}.tf") if face.family == SANS else None
        if tabular is not None:
            glyphs[ord("0") + digit] = tabular
    return font, glyphs


def instance(face: Face, characters: Iterable[int] | None = None) -> bytes:
    """Make a TrueType font of one weight.

    ``characters``: those that it keeps (default: all below U+10000). It has no kerning and no ligatures, so that a text is as wide as its
    characters together. Equal arguments give equal bytes.
    """
    import uharfbuzz

    font, glyphs = shapes(face)
    wanted = {code: glyph for code in (glyphs if characters is None else characters) if (glyph := glyphs.get(code)) and code < 0x10000}
    chosen = uharfbuzz.SubsetInput()
    chosen.unicode_set.update(wanted)
    chosen.glyph_set.update(wanted.values())
    chosen.name_id_set.clear()
    chosen.name_id_set.update(_NAMES)
    chosen.drop_table_tag_set.update(int.from_bytes(tag, "big") for tag in (b"GDEF", b"GPOS", b"GSUB", b"STAT"))
    chosen.flags = uharfbuzz.SubsetFlags.NO_HINTING | uharfbuzz.SubsetFlags.NO_LAYOUT_CLOSURE
    for axis, value in face.axes:
        chosen.pin_axis_location(font.face, axis, value)
    plan = uharfbuzz.SubsetPlan(font.face, chosen)
    moved = plan.old_to_new_glyph_mapping
    tables = sfnt.tables(plan.execute().blob.data)
    tables["cmap"] = sfnt.character_map({code: moved[glyph] for code, glyph in wanted.items()})
    return sfnt.font_file(tables)


@cache
def contained() -> frozenset[int]:
    """Return the code points in any of the fonts; none if they are unknown."""
    if importlib.util.find_spec("uharfbuzz") is None:
        return frozenset()
    import uharfbuzz

    cjk = cjk_face()
    faces = (*variable_faces(), *fixed_faces(), *([cjk] if cjk else []))
    files = {face.file for face in faces}
    return frozenset().union(*(uharfbuzz.Face(uharfbuzz.Blob.from_file_path(str(file))).unicodes for file in files))
