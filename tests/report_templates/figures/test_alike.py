"""Rows and lines that are alike: which become one, its medians and name, the order, and the outlier."""

from __future__ import annotations

from postrun.report_templates.figures.alike import alike_label, alike_lines, collapsed
from postrun.report_templates.figures.lines import Line


def test_an_outlier_keeps_its_name_and_the_others_are_one_row() -> None:
    rows = [("rank 0", [70, 19]), ("rank 1", [71, 18]), ("rank 2", [78, 10]), ("rank 3", [70, 20])]
    # The longest row is 90; 3% of it are 2.7, and rank 2 differs by 8.
    assert collapsed(rows, "rank") == [("3\u00a0ranks alike (0, 1, 3)", [70, 19]), ("rank 2", [78, 10])]


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
    assert collapsed(rows, "stream") == [("3\u00a0streams alike (0, 2, 4)", [2.0]), ("3\u00a0streams alike (1, 3, 5)", [10.0])]
    devices = [
        (f"rank {number // 2} GPU {number // 2} stream {7 + 13 * (number % 2)}", [10.0 if number % 2 else 2.0]) for number in range(6)
    ]
    assert [name for name, _ in collapsed(devices, "stream")] == ["3\u00a0streams alike (stream 7)", "3\u00a0streams alike (stream 20)"]


def test_a_group_without_a_common_name_has_its_number_alone() -> None:
    assert alike_label(["rank 0 · a GPU 0", "rank 1 · b GPU 1", "rank 2 · c GPU 2"], 4, "rank") == "3\u00a0ranks alike"
    assert alike_label([f"rank {number}" for number in range(0, 60, 2)], 60, "rank") == "30\u00a0ranks alike"  # too many to name
    assert alike_label([f"rank {number}" for number in range(59)], 60, "rank") == "59\u00a0ranks alike (0–58)"


def test_no_rows() -> None:
    assert collapsed([], "rank") == []


def line(label: str | None, *y: float) -> Line:
    return Line(label, range(len(y)), y)


def test_two_lines_within_two_percent_are_one_with_their_range() -> None:
    (merged,) = alike_lines([line("a", 50, 90), line("b", 52, 91)], "node", top=100.0)
    # The mean distance is 1.5, and 2% of the top are 2.
    assert (merged.label, merged.y, merged.low, merged.high) == ("both nodes alike", [51, 90.5], [50, 90], [52, 91])
    assert not merged.outlier
    apart = [line("a", 50, 90), line("b", 55, 90)]
    assert alike_lines(apart, "node", top=100.0) == apart


def test_the_line_away_from_most_is_the_outlier() -> None:
    merged = alike_lines([line("a", 10, 10), line("b", 60, 60), line("c", 10, 10.1), line("d", 10, 10)], "rank")
    assert [(one.label, one.outlier) for one in merged] == [("3\u00a0ranks alike", False), ("b", True)]


def test_two_lines_as_far_from_the_others_are_no_outliers() -> None:
    merged = alike_lines([line("a", 10), line("b", 60), line("c", 10), line("d", 10), line("e", 70)], "rank")
    assert [(one.label, one.outlier) for one in merged] == [("3\u00a0ranks alike", False), ("b", False), ("e", False)]


def test_lines_with_other_times_are_compared_at_equal_times() -> None:
    (merged,) = alike_lines([Line("a", [0, 2, 4], [0, 20, 40]), Line("b", [1, 2, 3], [10, 20, 30])], "GPU", top=600.0)
    # Before its first and after its last sample, b has these: 10 and 30.
    assert (merged.x, merged.y) == ([0, 2, 4], [5, 20, 35])


def test_lines_are_not_merged_if_most_have_no_name() -> None:
    every = [line("a", 1), line(None, 1), line("b", 1)]
    assert alike_lines(every, "node") == every
