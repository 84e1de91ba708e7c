"""Numbers as text, against hand-written examples."""

from __future__ import annotations

import pytest
from postrun.analysis.toolkit import wording


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"), (1, "1 ns"), (0.25, "0.250 ns"), (850, "850 ns"), (999, "999 ns"), (1000, "1.00 µs"), (12_449, "12.4 µs"),
        (999_900, "1.00 ms"), (12_400_000, "12.4 ms"), (178_000_000, "178 ms"), (1_020_000_000, "1.02 s"), (59_940_000_000, "59.9 s"),
        (59_960_000_000, "1 min"), (1_122_000_000_000, "18 min 42 s"), (7_500_000_000_000, "2 h 5 min"),
        (273_600_000_000_000, "3 d 4 h"), (-12_400_000, "-12.4 ms"),
    ],
)  # fmt: skip
def test_duration(ns: float, text: str) -> None:
    assert wording.duration(ns) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0123, "0.0123"), (0.5, "0.500"), (1.0249, "1.02"), (9.996, "10.0"), (12.44, "12.4"), (178.4, "178"),
     (999.6, "1,000"), (12_345.4, "12,345"), (-1.5, "-1.50")],
)  # fmt: skip
def test_significant(value: float, text: str) -> None:
    assert wording.significant(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0%"), (0.01, "<0.1%"), (18.94, "18.9%"), (99.99, ">99.9%"), (100, "100%")])
def test_percent(value: float, text: str) -> None:
    assert wording.percent(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0%"), (0.01, "<0.1%"), (-0.049, "<0.1%"), (0.06, "+0.1%"), (-0.06, "-0.1%"), (14.2, "+14.2%"), (-99.97, "-99.9%")],
)
def test_signed_percent(value: float, text: str) -> None:
    assert wording.signed_percent(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0%"), (0.2, "<1%"), (61.4, "61%"), (99.7, ">99%"), (100, "100%")])
def test_whole_percent(value: float, text: str) -> None:
    assert wording.whole_percent(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.977 KiB"),
        (1536, "1.50 KiB"),
        (1023 * 1024, "0.999 MiB"),
        (5 * 2**30, "5.00 GiB"),
    ],
)
def test_size(value: int, text: str) -> None:
    assert wording.size(value) == text


def test_counts_and_moments() -> None:
    assert wording.count(1234567) == "1,234,567"
    assert wording.plural(1, "step") == "1 step"
    assert wording.plural(2000, "process", "processes") == "2,000 processes"
    assert wording.moment(1_795_243_205_999_999_999) == "2026-11-21 06:40:05 UTC"
    assert wording.moment(-1) == "1969-12-31 23:59:59 UTC"


def test_a_condition_has_the_values_of_its_parameters() -> None:
    values = [("patience", 1000, "samples"), ("threshold", 70, "% of p95"), ("threshold_low", None, "%"), ("absent", 1, "")]
    assert wording.with_values("more than `patience` samples, twice `patience`", values) == (
        "more than 1000 samples (`patience`), twice 1000 (`patience`)"
    )
    assert wording.with_values("below `threshold` of it, or `threshold_low`", values) == (
        "below 70% (`threshold`) of it, or none (`threshold_low`)"
    )
    assert wording.with_values("nothing", values) == "nothing"
