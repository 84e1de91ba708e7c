"""Characters that no font of the PDF contains: text -> text with escapes such as ``\\u6570`` in their places, and a note about them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from ...analysis.toolkit.wording import count
from ...messages import escape_of
from . import fonts, system_fonts

# Not drawn, so no glyph is needed: Unicode's Default_Ignorable_Code_Point, and controls.
_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_LISTED: Final = 6  # characters in the note


@cache
def has_glyph(character: str) -> bool:
    """Test whether a font of the PDF contains ``character``; True if unknown."""
    known = fonts.contained()
    return not known or ord(character) in known or _UNSEEN.match(character) is not None or system_fonts.contain(ord(character))


def letters(character: str) -> int:
    """Return the letters that the PDF has for ``character``: those of its escape."""
    return 1 if has_glyph(character) else len(escape_of(character))


def without_glyph(characters: Iterable[str]) -> Mapping[int, str]:
    """Return code point -> escape of those characters that no font contains."""
    return {ord(one): escape_of(one) for one in characters if not has_glyph(one)}


class Printed:
    """Texts of a PDF. ``missing``: the characters without a glyph, so far."""

    def __init__(self) -> None:
        self.missing: set[str] = set()

    def text(self, text: str) -> str:
        """Replace characters without a glyph by escapes."""
        escapes = without_glyph(set(text))
        self.missing.update(map(chr, escapes))
        return text.translate(escapes)

    @property
    def note(self) -> str | None:
        """Name the replaced characters, and the way to print them."""
        if not self.missing:
            return None
        first = sorted(self.missing)
        listed = ", ".join(first[:_LISTED])  # which the PDF itself has as escapes
        what = "1 character has" if len(first) == 1 else f"{count(len(first))} characters have"
        rest = ", …" if len(first) > _LISTED else ""
        asian = any("\u2e80" <= one <= "\ud7ff" or "\uf900" <= one <= "\uffef" or one >= "\U00020000" for one in first)
        fix = "install postrun[cjk]" if asian and fonts.cjk_face() is None else "install a font that contains them"
        return f"{what} no glyph in the fonts of the PDF, which has escapes instead: {listed}{rest}; {fix}"
