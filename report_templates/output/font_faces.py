"""Rules @font-face with the fonts in them: for the PDF entire fonts, for HTML the characters of the page."""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import Final

from ..text import fonts, sfnt

_ASCII: Final = frozenset(range(0x20, 0x7F))  # in each page: its script also writes texts
_CJK_FIRST: Final = "\u2e80"
_CJK_ADDRESS: Final = "font:cjk"


def with_fonts(page: str) -> str:
    """Put fonts with the characters of the page into its style."""
    characters = frozenset(map(ord, set(page))) | _ASCII
    return page.replace("<style>", f"<style>{_rules(characters)}", 1)


@lru_cache(4)
def _rules(characters: frozenset[int]) -> str:
    files = ((face, sfnt.woff(fonts.instance(face, characters))) for face in fonts.variable_faces())
    return "".join(_face(face, f"data:font/woff;base64,{base64.b64encode(file).decode()}") for face, file in files)


def pdf_rules() -> str:
    """Return the rules for the fonts of every PDF, with addresses for :func:`font_at`."""
    return "".join(_face(face, address) for address, face in _faces().items())


def cjk_rule(page: str) -> str | None:
    """Return the rule for the large font of the extra ``cjk``, if the page needs it."""
    face = fonts.cjk_face()
    return None if face is None or not any(one >= _CJK_FIRST for one in set(page)) else _face(face, _CJK_ADDRESS)


def font_at(address: str) -> bytes:
    """Return the font with an address of these rules; there is no other address."""
    cjk = fonts.cjk_face()
    face = cjk if cjk and address == _CJK_ADDRESS else _faces()[address]
    return fonts.instance(face) if face.axes else face.file.read_bytes()


def _faces() -> dict[str, fonts.Face]:
    return {f"font:{number}": face for number, face in enumerate((*fonts.variable_faces(), *fonts.fixed_faces()))}


def _face(face: fonts.Face, address: str) -> str:
    return f'@font-face{{font-family:"{face.family}";font-weight:{face.weight};src:url("{address}")}}'
