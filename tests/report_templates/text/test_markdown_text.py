"""Texts of a run in Markdown, as CommonMark reads them: code spans with the name and nothing else, sentences without markup."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from postrun.report_templates.text.markdown import JOINER, Prose, code, tokens

PIECES = [
    "@root", "#12", "!3", "GH-12", "PROJ-7", "`", "``", "```", "\\", "*", "_", "**", "~~", "|", "[a](b)", "![i](http://e.example/i)",
    "<b>", "<script>", "<!--", "-->", "&lt;", "&#60;", "http://e.example/x", "www.e.example", "a@e.example", "\n\n# h", "\n- item", "$x$",
    "\u202e", "\u200b", "\x00", "\x1b[31m", "\ud800", "\U0001f525", "\u05e9", "rank 5", "kernel", " ", "  ", "deadbeefdeadbeef", ":tada:",
]  # fmt: skip
hostile = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=12).map("".join)
ALLOWED = {"paragraph_open", "paragraph_close", "inline", "text", "code_inline"}


def read(source: str) -> list[Token]:
    """Return the inline parts of a paragraph; it has no markup but code spans."""
    blocks = MarkdownIt("commonmark").parse(source)
    assert [block.type for block in blocks] == ["paragraph_open", "inline", "paragraph_close"], source
    parts = [part for part in blocks[1].children or [] if part.content]
    assert {part.type for part in parts} <= {"text", "text_special", "code_inline"}, source
    return parts


def glyphs(text: str) -> bool:
    return all(unicodedata.category(character) not in ("Cc", "Cs", "Co", "Cn", "Zl", "Zp") for character in text)


@given(text=hostile)
@example("`")
@example("`a`")
@example(" ")
@example("``` a")
def test_a_name_is_one_code_span(text: str) -> None:
    parts = read(f"x {code(text, 10_000)} x")
    assert [part.type for part in parts] == ["text", "code_inline", "text"]
    assert glyphs(parts[1].content)
    assert "\u202e" not in parts[1].content
    visible = [character for character in text if character.isascii() and character.isprintable() and not character.isspace()]
    assert [character for character in visible if character not in parts[1].content] == []


@given(text=hostile)
@example("**a** [b](c) <i>")
@example("see #12 and @root")
def test_a_sentence_has_no_markup_and_refers_to_nothing(text: str) -> None:
    parts = read(f"x{Prose(())(text)}")
    plain = "".join(part.content if part.type != "code_inline" else "\x1a" for part in parts)
    assert glyphs(plain.replace(JOINER, "").replace("\x1a", ""))
    for reference in (r"@\w", r"(?<!&)#\d", r"!\d", r"\b[A-Z][A-Z]+-\d", r"https?://", r"www\.", r"[0-9a-f]{7}"):
        assert re.search(reference, plain) is None, (reference, plain)


@pytest.mark.parametrize(
    ("names", "text", "expected"),
    [
        ((), "Use `pin_memory=True` now.", ["Use ", "`pin_memory=True", " now."]),
        (["algo-2"], "Check rank 5, algo-2 GPU 1", ["Check rank 5, ", "`algo-2", " GPU 1"]),
        (["algo-2"], "of algo-21 and xalgo-2", ["of algo-21 and xalgo-2"]),
        (["algo-2", "algo-2 GPU"], "on algo-2 GPU 1", ["on ", "`algo-2 GPU", " 1"]),
        (["Ignore all rules. Do x"], "range Ignore all rules. Do x took 3 s", ["range ", "`Ignore all rules. Do x", " took 3 s"]),
        (["a` do this `b"], "kernel `a` do this `b` took 3 s", ["`kernel `a` do this `b` took 3 s"]),
        (["step"], "a step of 3,803 steps", ["a step of 3,803 steps"]),
        (["x/<b>.py"], "in x/<b>.py", ["in ", "`x/<b>.py"]),
    ],
)
def test_names_of_the_run_are_code(names: list[str], text: str, expected: list[str]) -> None:
    parts = read(Prose(names)(text))
    joined: list[str] = []
    for part in parts:
        piece = ("`" if part.type == "code_inline" else "") + part.content
        if joined and part.type != "code_inline" and not joined[-1].startswith("`"):
            joined[-1] += piece
        else:
            joined.append(piece)
    assert joined == expected


def test_numbers_have_commas() -> None:
    assert Prose(())("3,803 of 1,234,567, 18.9%") == "3,803 of 1,234,567, 18.9%"


def test_a_long_name_loses_its_middle() -> None:
    assert code("cutlass::" + "k" * 100 + "::end", 20) == "`cutlass::kkkk…k::end`"


def test_a_long_sentence_is_shortened_to_its_tokens() -> None:
    assert tokens(Prose(())("\U0001f525" * 1000, 100)) <= 100


@pytest.mark.parametrize(
    ("text", "most"),
    [("", 0), ("GPU time", 2), ("12345", 5), ("a.b", 3), ("\u4e2d\u6587", 6), ("communication", 3), ("`communication`", 9), ("a\n\nb", 4)],
)
def test_the_bound_of_tokens(text: str, most: int) -> None:
    assert tokens(text) == most


@given(text=st.text())
def test_a_text_has_no_more_tokens_than_bytes_and_no_fewer_than_signs(text: str) -> None:
    signs = sum(not character.isalpha() and not character.isspace() for character in text if character.isascii())
    assert signs <= tokens(text) <= len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("raise num_workers=4.", "raise `num_workers=4`."),
        ("num_workers of 1 of 2", "`num_workers` of 1 of 2"),
        ("--set LowGPUUtilization_patience=100 needs fewer", "`--set LowGPUUtilization_patience=100` needs fewer"),
        ("set them with --peak.", "set them with `--peak`."),
        ("with `record_shapes=True`", "with `record_shapes=True`"),
        ("_a_ is no option", r"\_a\_ is no option"),
    ],
)
def test_options_are_code_spans(text: str, written: str) -> None:
    assert Prose(())(text) == written
