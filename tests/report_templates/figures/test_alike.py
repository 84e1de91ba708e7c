"""Rows that are alike: which become one, its medians and name, and the order."""

from __future__ import annotations

from postrun.report_templates.figures.alike import collapsed


def test_an_outlier_keeps_its_name_and_the_others_are_one_row() -> None:
    rows = [("rank 0", [70, 19]), ("rank 1", [71, 18]), ("rank 2", [78, 10]), ("rank 3", [70, 20])]
    # The longest row is 90; 3% of it are 2.7, and rank 2 differs by 8.
    assert collapsed(rows, "rank") == [("3\u00a0ranks alike", [70, 19]), ("rank 2", [78, 10])]


def test_two_rows_are_not_a_group() -> None:
    rows = [("a", [10]), ("b", [10]), ("c", [20])]
    assert collapsed(rows, "rank") == rows


def test_all_rows_may_be_alike() -> None:
    rows = [(f"rank {number}", [50.0, float(number)]) for number in range(3)]
    # Of 52, 3% are 1.56: rank 2 differs from rank 0 by 2.
    assert collapsed(rows, "rank") == rows
    assert collapsed([(name, [50.0, 0.5 * number]) for number, (name, _) in enumerate(rows)], "rank") == [
        ("all 3\u00a0ranks alike", [50.0, 0.5])
    ]


def test_two_groups() -> None:
    rows = [(f"stream {number}", [10.0 if number % 2 else 2.0]) for number in range(6)]
    assert collapsed(rows, "stream") == [("3\u00a0streams alike", [2.0]), ("3\u00a0streams alike", [10.0])]


def test_no_rows() -> None:
    assert collapsed([], "rank") == []
