"""Formats of numbers, times, and names in the report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.messages import escaped_line
from postrun.report_templates.figures import svg
from postrun.report_templates.text.formats import (
    bandwidth,
    clip,
    clipped,
    count,
    duration,
    length_of,
    moment,
    numbered,
    percent,
    plural,
    printable,
    quantity,
    sentences,
    size,
)
from postrun.report_templates.text.glyphs import Printed


def plain(text: str) -> str:
    """With ordinary spaces."""
    return text.replace("\u00a0", " ").replace("\u202f", " ")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (duration(12_400_000), "12.4 ms"),
        (duration(1_020_000_000), "1.02 s"),
        (duration(1_122_000_000_000), "18 min 42 s"),
        (duration(-5_000), "−5.00 µs"),
        (duration(None), "—"),
        (count(1_234_567), "1,234,567"),
        (count(None), "—"),
        (plural(1, "step"), "1 step"),
        (plural(0, "process", "processes"), "0 processes"),
        (percent(18.94), "18.9%"),
        (percent(0.01), "<0.1%"),
        (percent(None), "—"),
        (size(3 * 2**20), "3.00 MiB"),
        (bandwidth(4.72), "4.72 GB/s"),
        (quantity(41.25, "percent"), "41.2%"),
        (quantity(41.25, "% of a core"), "41.2%"),
        (quantity(2**31, "B/s"), "2.00 GiB/s"),
        (quantity(71, "C"), "71.0 C"),
        (moment(1_795_243_200_000_000_000), "2026-11-21 06:40:00 UTC"),
        (moment(1_500_000_000, relative=True), "+1.50 s"),
        (moment(None), "—"),
    ],
)
def test_a_value_is_written_like(written: str, expected: str) -> None:
    assert plain(written) == expected


def test_number_and_unit_are_not_torn_apart() -> None:
    assert " " not in duration(1_122_000_000_000) + count(12_345) + percent(3.0)


@given(st.text(max_size=200), st.integers(1, 80))
def test_clipped_text_keeps_its_ends_and_its_limit(text: str, limit: int) -> None:
    result = clip(text, limit)
    printed = printable(text)
    fits = length_of(printed) <= limit
    assert length_of(result) <= limit
    assert result == printed if fits else "…" in result
    head, _, tail = result.partition("…")
    assert fits or (printed.startswith(head) and printed.endswith(tail))


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("Short.", 5000, "Short."),
        ("One of 1.5 ms on a.b. Two of them. Three.", 36, "One of 1.5 ms on a.b. Two of them."),
        ("One of 1.5 ms on a.b. Two of them. Three.", 22, "One of 1.5 ms on a.b."),
        ("The first is long; it is kept whole. The second goes.", 10, "The first is long; it is kept whole."),
        ("A sentence without a stop", 10, "A sentence without a stop"),
    ],
)
def test_sentences_end_where_a_sentence_ends(text: str, limit: int, expected: str) -> None:
    assert sentences(text, limit) == expected


def test_a_sentence_nobody_reads_ends_after_a_word() -> None:
    result = sentences("word " * 1000, 300)
    assert result.endswith("word …")
    assert 800 < len(result) <= 902
    assert len(sentences("x" * 5000, 300)) == 300


@given(st.text(alphabet="aB .!?1`", max_size=200), st.integers(1, 80))
def test_sentences_are_the_beginning_of_the_text(text: str, limit: int) -> None:
    result = sentences(text, limit)
    assert text.startswith(result)
    assert result == text or result[-1] in ".!?"


def test_names_do_not_change_the_direction_of_the_text_after_them() -> None:
    assert printable("gemm\u202egnp.exe\u2066\u2067\u2068\u202a") == r"gemm\u202egnp.exe\u2066\u2067\u2068\u202a"
    assert printable("שלום\u200f, λ × µs") == r"שלום\u200f, λ × µs"


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=100))
def test_printable_text_is_valid_in_xml_and_otherwise_unchanged(text: str) -> None:
    from xml.etree import ElementTree

    result = printable(text)
    assert result == text or not text.isprintable()
    assert printable(result) == result
    escaped = result.replace("&", "&amp;").replace("<", "&lt;")
    assert ElementTree.fromstring(f"<t>{escaped}</t>".encode()).text in (result, result or None)


def test_shortened_names_differ_where_the_names_do() -> None:
    names = [f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_{layout}_n_tilesize128x128x64" for layout in ("nt", "tn")]
    short = clipped([*names, "gemm"], 48)
    assert [len(name) for name in short] == [48, 48, 4]
    assert ["f32_nt_n" in short[0], "f32_tn_n" in short[1], short[2]] == [True, True, "gemm"]
    assert clipped([names[0], "gemm"], 48) == [clip(names[0], 48), "gemm"]  # alone, it keeps begin and end


@given(st.lists(st.text("ab", max_size=60), max_size=6, unique=True), st.integers(26, 50))
def test_shortened_names_fit(names: list[str], limit: int) -> None:
    short = clipped(names, limit)
    assert all(len(text) <= limit for text in short)
    pairs = [(text, name) for text, name in zip(short, names, strict=True) if len(name) <= limit]
    assert all(text == name for text, name in pairs)


def test_a_noun_keeps_its_number() -> None:
    assert numbered("from 2% on rank 6 to 58% on ranks 1 and 3, GPU 2") == "from 2% on rank\u00a06 to 58% on ranks\u00a01 and 3, GPU\u00a02"


@pytest.mark.parametrize(
    "name", ["数据加载训练模型", "\u202egnirts\u202c", "\x1b[31m\x00\x07", "\U00012000" * 9, "lone \ud800", "גמל\u200f"]
)
@pytest.mark.parametrize("limit", [1, 6, 12, 40])
def test_names_are_shortened_as_they_are_printed(name: str, limit: int) -> None:
    """Escapes count with all their letters, and the same ones are on every page."""
    short = clip(name * 3, limit)
    pdf = Printed().text(short)
    assert len(pdf) <= limit
    assert short == printable(name * 3) or "…" in short
    assert printable(short) == short
    assert escaped_line(pdf) == pdf
    assert svg.width_of(svg.fitted(name * 3, 60.0)) <= 60.0
