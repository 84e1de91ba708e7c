"""Distributions with logarithmic counts, pooled histograms, and the marks that all figures share."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from postrun.analysis.report import Histogram
from postrun.report_templates.blocks.pooled import binned, pooled
from postrun.report_templates.figures.distribution import Row, distribution
from postrun.report_templates.figures.lines import Line, Panel, lines
from postrun.report_templates.figures.marks import Mark, before, behind, names
from postrun.report_templates.figures.palette import INK, MEANINGS
from postrun.report_templates.figures.svg import document, width_of

SVG = "{http://www.w3.org/2000/svg}"
MS = 1e6


def texts(svg: str) -> dict[str, float]:
    return {element.text or "": float(element.get("x", 0)) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")}


def bars(svg: str) -> list[tuple[float, float, float]]:
    """Left end, right end, and height of each bar."""
    (path,) = (element.get("d", "") for element in ElementTree.fromstring(svg).iter(f"{SVG}path"))
    parts = re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)H([\d.]+)", path)
    return [(float(left), float(right), float(base) - float(top)) for left, base, top, right in parts]


def test_heights_are_logarithms_of_the_counts() -> None:
    edges = [100 * MS, 200 * MS, 300 * MS, 400 * MS]
    drawn = bars(distribution([Row("", edges, (99.0, 0.0, 1.0), 150 * MS)], "step time", "computation"))
    assert len(drawn) == 2
    # log(1 + 1) / log(1 + 99): a single step next to 99 has a seventh of their height.
    assert drawn[1][2] / drawn[0][2] == pytest.approx(math.log(2) / math.log(100), abs=0.01)


def test_the_axis_has_its_quantity_the_threshold_its_name_and_outliers_their_numbers() -> None:
    row = Row("TRAIN", [100 * MS, 1000 * MS, 10_000 * MS], (5, 1), 200 * MS, [(4000 * MS, "step 7"), (3990 * MS, "step 8")])
    svg = distribution([row, Row("EVAL", [100 * MS, 110 * MS], (3,), 105 * MS)], "step time", "computation", (1000 * MS, "threshold 1 s"))
    words = texts(svg)
    assert {"step time", "threshold 1 s", "TRAIN", "EVAL", "step 7", "100 ms", "1 s", "10 s"} <= set(words)
    assert "step 8" not in words, "its label would cover that of step 7"
    limit = next(line for line in ElementTree.fromstring(svg).iter(f"{SVG}line") if line.get("stroke-dasharray") == "6 2")
    assert float(limit.get("x1", 0)) == pytest.approx(words["1 s"], abs=0.1)


@pytest.mark.parametrize(
    ("edges", "read"),
    [
        ([100 * MS, 200 * MS, 300 * MS], "100 300 even ms 5 0.5"),
        ([10 * MS, 100 * MS, 1000 * MS], "10 1000 log ms 5 0.5"),
        ([10 * MS, 20 * MS, 1000 * MS], None),
    ],
)
def test_the_counts_of_the_bars_can_be_read(edges: list[float], read: str | None) -> None:
    """Edges by a rule need no numbers of their own; others have no values."""
    svg = distribution([Row("TRAIN", edges, (5.0, 0.5), None)], "step time", "computation")
    (path,) = ElementTree.fromstring(svg).iter(f"{SVG}path")
    assert (path.get("data-bins"), path.findtext(f"{SVG}title")) == (read, "TRAIN")


def histogram(edges: list[float], counts: list[int]) -> Histogram:
    return Histogram(tuple(edges), tuple(counts), "ns", False)


def test_equal_bins_are_added() -> None:
    assert pooled([histogram([1, 2, 3], [4, 5]), histogram([1, 2, 3], [1, 0])]) == ([1, 2, 3], [5, 5])


def test_other_bins_keep_the_numbers_and_places_of_their_values() -> None:
    edges, counts = pooled([histogram([100.0, 130.0], [30]), histogram([110.0, 120.0, 160.0], [6, 4])])
    # 30 cells from 100 to 160, each 2 wide: one of the first 30 values in 1 unit, so 2 per cell; 6 over 5 cells; 4 over 20.
    assert (len(counts), edges[0], edges[-1], sum(counts)) == (30, 100, 160, pytest.approx(40))
    assert counts[0] == pytest.approx(2)
    assert counts[5] == pytest.approx(2 + 6 / 5)
    assert counts[29] == pytest.approx(4 / 20)


def test_logarithmic_bins_of_one_grid_are_exact() -> None:
    grid = [10 ** (at / 40) for at in range(320, 400)]
    edges, counts = pooled([histogram(grid[3:60], [1] * 56), histogram(grid[10:71], [2] * 60)])
    assert edges == pytest.approx(grid[3:71])
    assert counts == pytest.approx([1] * 7 + [3] * 49 + [2] * 11)


def test_values_are_counted_once() -> None:
    edges, counts = binned([100.0, 100.0, 5000.0])
    assert sum(counts) == 3
    assert edges[0] <= 100
    assert edges[-1] >= 5000
    assert binned([7.0, 7.0])[1][0] == 2


MARKS = [Mark("dip", ": I/O", 10, 20), Mark("profile window", "", 40, 41, "window"), Mark("step 7", "", 70, 70, "slow")]


def test_marks_are_drawn_at_their_places() -> None:
    root = ElementTree.fromstring(document(100, 50, behind(MARKS, lambda at: at, 5, 45) + before(MARKS, lambda at: at, 5, 45)))
    dip, window = root.iter(f"{SVG}rect")
    assert [dip.get(of) for of in ("x", "width", "fill")] == ["10", "10", MEANINGS["idle"]]
    assert dip[0].text == "dip: I/O"
    assert [window.get(of) for of in ("x", "width", "fill")] == ["39.5", "2", INK]
    (triangle,) = root.iter(f"{SVG}path")
    assert (triangle.get("d") or "").startswith("M66.5 5h7")


def test_a_wide_window_is_a_bracket_that_hides_nothing() -> None:
    root = ElementTree.fromstring(document(100, 50, before([Mark("profile window", "", 20, 60, "window")], lambda at: at, 5, 45)))
    (bar,) = root.iter(f"{SVG}rect")
    assert float(bar.get("height", 0)) < 3
    assert [float(line.get("x1", 0)) for line in root.iter(f"{SVG}line")] == [20, 60]


def test_names_of_marks_do_not_overlap_and_steps_give_way() -> None:
    every = [Mark("step 7", "", 12, 12, "slow"), Mark("dip", "", 10, 20), Mark("step 8", "", 90, 90, "slow")]
    root = ElementTree.fromstring(document(100, 50, names(every, lambda at: at, 0, 100, 10)))
    places = {element.text: float(element.get("x", 0)) for element in root.iter(f"{SVG}text")}
    assert places.keys() == {"dip", "step 8"}
    assert places["step 8"] + width_of("step 8", 10) <= 100


def test_lines_have_the_marks_within_their_axis() -> None:
    line = Line("a", [0, 100], [1, 2])
    plain = texts(lines([Panel("ms", [line])], "step", x_time=False))
    marked = texts(lines([Panel("ms", [line])], "step", x_time=False, marks=[*MARKS, Mark("late", "", 200, 210)]))
    assert marked.keys() - plain.keys() == {"dip", "profile window", "step 7"}
