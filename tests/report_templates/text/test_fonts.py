"""Fonts of the pages, against fontTools; and characters that no font contains."""

from __future__ import annotations

import io
import shutil
import string
import subprocess
from collections.abc import Iterator

import pytest
from fontTools.pens.boundsPen import BoundsPen
from fontTools.ttLib import TTFont
from hypothesis import given
from hypothesis import strategies as st
from page_fonts import font, text_width
from postrun.report_templates.figures.svg import width_of
from postrun.report_templates.text import fonts, glyphs, sfnt, system_fonts
from postrun.report_templates.text.formats import length_of
from postrun.report_templates.text.glyphs import Printed

SIGNS = "→←↑↓≈≠≤≥▲▼▸●○✓✕⁹−×·µ…–—\u00a0\u202f\u2002ąßλЖ"


@pytest.fixture
def _no_system_font(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(system_fonts, "contain", lambda code: False)
    monkeypatch.setattr(fonts, "cjk_face", lambda: None)
    fonts.contained.cache_clear()
    glyphs.has_glyph.cache_clear()
    yield
    fonts.contained.cache_clear()
    glyphs.has_glyph.cache_clear()


def known() -> set[int]:
    """Return the code points in Inter, Roboto Mono and DejaVu Sans, by fontTools."""
    files = [("fontpkg_inter", "files/Inter[opsz,wght].ttf"), ("fontpkg_roboto_mono", "files/RobotoMono[wght].ttf")]
    dejavu = [("matplotlib", f"mpl-data/fonts/ttf/{name}.ttf") for name in ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono")]
    return set().union(*(font(*file).getBestCmap() for file in (*files, *dejavu)))


@pytest.mark.parametrize(("bold", "code"), [(False, False), (True, False), (False, True)])
def test_text_is_as_wide_as_the_font_says(*, bold: bool, code: bool) -> None:
    for letter in string.printable[:95] + SIGNS:
        width = width_of(letter, 100, bold=bold, code=code)
        assert width == pytest.approx(text_width(letter, 100, bold=bold, code=code), abs=0.1), letter


def test_figures_are_of_one_width_and_code_is_monospaced() -> None:
    assert len({width_of(figure, bold=bold) for figure in string.digits for bold in (False, True)}) == 2
    assert len({width_of(one, code=True) for one in string.printable[:95]}) == 1


@pytest.mark.parametrize("kind", ["ttf", "woff"])
def test_a_font_of_one_weight_is_whole(kind: str) -> None:
    wanted = set(map(ord, string.printable[:95] + SIGNS + "中"))
    for face in fonts.variable_faces():
        data = fonts.instance(face, wanted)
        assert data == fonts.instance(face, wanted)
        instance = TTFont(io.BytesIO(sfnt.woff(data) if kind == "woff" else data), checkChecksums=2)
        instance.ensureDecompiled()
        original = TTFont(face.file).getBestCmap()
        assert set(instance.getBestCmap()) == wanted & set(original)
        assert not {"fvar", "gvar", "GPOS", "GSUB"} & set(instance.keys())
        assert instance["name"].getDebugName(13).startswith("This Font Software is licensed under the SIL Open Font License")
        widths = {instance["hmtx"][instance.getBestCmap()[ord(figure)]][0] for figure in string.digits}
        assert len(widths) == 1


def test_the_bold_font_is_bolder() -> None:
    def stem(face: fonts.Face) -> float:
        instance = TTFont(io.BytesIO(fonts.instance(face, [ord("l")])))
        pen = BoundsPen(instance.getGlyphSet())
        instance.getGlyphSet()[instance.getBestCmap()[ord("l")]].draw(pen)
        return float(pen.bounds[2] - pen.bounds[0])

    regular, bold = (face for face in fonts.variable_faces() if face.family == fonts.SANS)
    assert 1.2 < stem(bold) / stem(regular) < 1.8


@pytest.mark.usefixtures("_no_system_font")
def test_characters_without_a_glyph_become_escapes_and_a_note() -> None:
    printed = Printed()
    assert printed.text("数据 \U0001f680 gemm→é λ") == r"\u6570\u636e \U0001f680 gemm→é λ"
    assert printed.note == (
        "3 characters have no glyph in the fonts of the PDF, which has escapes instead: 据, 数, \U0001f680; install postrun[cjk]"
    )
    emoji = Printed()
    emoji.text("\U0001f680")
    assert emoji.note == (
        "1 character has no glyph in the fonts of the PDF, which has escapes instead: \U0001f680; install a font that contains them"
    )
    clean = Printed()
    assert clean.text("kernel 1") == "kernel 1"
    assert clean.note is None


@pytest.mark.usefixtures("_no_system_font")
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_character_has_a_glyph_or_an_escape(text: str) -> None:
    printed = Printed()
    output = printed.text(text)
    assert output == "".join(one.encode("unicode_escape").decode() if one in printed.missing else one for one in text)
    assert len(output) == length_of(text)
    assert {one for one in text if ord(one) not in known()} >= printed.missing
    left = {one for one in output if ord(one) not in known()}
    # Controls, joiners, variation selectors and the like are never drawn.
    assert all(not one.isprintable() or "\u034f" <= one <= "\ufff8" or one >= "\U0001bca0" for one in left)
    assert not left & set("数🚀ก가")


@pytest.mark.skipif(shutil.which("fc-list") is None, reason="no fc-list (apt-get install fontconfig)")
@pytest.mark.parametrize("character", ["a", "→", "数", "\U0001f680", "\U000f1234"])
def test_fonts_of_the_system_are_those_of_fontconfig(character: str) -> None:
    listed = subprocess.run(["fc-list", f":charset={ord(character):x}"], capture_output=True, text=True, check=True).stdout
    assert system_fonts.contain(ord(character)) == bool(listed.strip())


@pytest.mark.usefixtures("_no_system_font")
def test_an_escape_has_room_in_figures() -> None:
    assert width_of("数", 10) == pytest.approx(text_width(r"\u6570", 10), abs=0.01)
