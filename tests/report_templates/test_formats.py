"""Are numbers, times and names written as the report wants them?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.report_templates.text.formats import (
    bandwidth,
    clip,
    count,
    duration,
    moment,
    percent,
    plural,
    printable,
    quantity,
    sentences,
    size,
)


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
        (duration(None), "–"),
        (count(1_234_567), "1 234 567"),
        (count(None), "–"),
        (plural(1, "step"), "1 step"),
        (plural(0, "process", "processes"), "0 processes"),
        (percent(18.94), "18.9 %"),
        (percent(0.01), "< 0.1 %"),
        (percent(None), "–"),
        (size(3 * 2**20), "3.00 MiB"),
        (bandwidth(4.72), "4.72 GB/s"),
        (quantity(41.25, "percent"), "41.2 %"),
        (quantity(41.25, "% of a core"), "41.2 %"),
        (quantity(2**31, "B/s"), "2.00 GiB/s"),
        (quantity(71, "C"), "71.0 C"),
        (moment(1_795_243_200_000_000_000), "2026-11-21 06:40:00 UTC"),
        (moment(1_500_000_000, relative=True), "+1.50 s"),
        (moment(None), "–"),
    ],
)
def test_a_value_is_written_like(written: str, expected: str) -> None:
    assert plain(written) == expected


def test_number_and_unit_are_not_torn_apart() -> None:
    assert " " not in duration(1_122_000_000_000) + count(12_345) + percent(3.0)


@given(st.text(max_size=200), st.integers(1, 80))
def test_clipped_text_keeps_its_ends_and_its_limit(text: str, limit: int) -> None:
    shown = clip(text, limit)
    assert len(shown) <= limit
    assert shown == text if len(text) <= limit else "…" in shown
    head, _, tail = shown.partition("…")
    assert len(text) <= limit or (text.startswith(head) and text.endswith(tail))


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("Short.", 5000, "Short."),
        ("One of 1.5 ms on a.b. Two of them. Three.", 36, "One of 1.5 ms on a.b. Two of them."),
        ("One of 1.5 ms on a.b. Two of them. Three.", 22, "One of 1.5 ms on a.b."),
        ("The first is long; it is kept whole. The second goes.", 10, "The first is long; it is kept whole."),
        ("A sentence without a stop", 10, "A sentence without a stop"),
    ],
)
def test_sentences_end_where_a_sentence_ends(text: str, limit: int, shown: str) -> None:
    assert sentences(text, limit) == shown


def test_a_sentence_nobody_reads_ends_after_a_word() -> None:
    shown = sentences("word " * 1000, 300)
    assert shown.endswith("word …")
    assert 800 < len(shown) <= 902
    assert len(sentences("x" * 5000, 300)) == 300


@given(st.text(alphabet="aB .!?1`", max_size=200), st.integers(1, 80))
def test_sentences_are_the_beginning_of_the_text(text: str, limit: int) -> None:
    shown = sentences(text, limit)
    assert text.startswith(shown)
    assert shown == text or shown[-1] in ".!?"


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=100))
def test_printable_text_is_valid_in_xml_and_otherwise_unchanged(text: str) -> None:
    from xml.etree import ElementTree

    shown = printable(text)
    assert len(shown) == len(text)
    assert printable(shown) == shown
    escaped = shown.replace("&", "&amp;").replace("<", "&lt;")
    assert ElementTree.fromstring(f"<t>{escaped}</t>".encode()).text in (shown, shown or None)
