"""Roofline: points and roofs at their places, labels that cover nothing."""

from __future__ import annotations

import math
import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.report_templates.figures import svg
from postrun.report_templates.figures.palette import MEANINGS
from postrun.report_templates.figures.roofline import Point, Roof, roofline
from postrun.report_templates.figures.stacked_bars import Part

KINDS = [Part("compute", "computation"), Part("served by cache", "memory", 0.45)]
CIRCLE = re.compile(r'<circle cx="([^"]+)" cy="([^"]+)" r="([^"]+)" fill="([^"]+)"[^>]*>(?:<title>([^<]*)</title>)?')
TEXT = re.compile(r'<text x="([^"]+)" y="([^"]+)"(?: text-anchor="([^"]+)")?[^>]*>([^<]*)</text>')
LINE = re.compile(r'<line x1="([^"]+)" y1="([^"]+)" x2="([^"]+)" y2="([^"]+)" stroke="#1b1f24"')


def point(intensity: float, tflops: float, weight: float = 1.0, label: str | None = None) -> Point:
    return Point(intensity, tflops, weight, "computation", f"at {intensity:g}, {tflops:g}", label)


def circles(drawing: str) -> dict[str, tuple[float, float, float]]:
    return {title: (float(x), float(y), float(r)) for x, y, r, _, title in CIRCLE.findall(drawing) if title}


def test_both_axes_are_logarithmic_and_the_area_is_the_time() -> None:
    drawn = circles(roofline([point(1, 10, 4), point(10, 10, 1), point(100, 100, 4)], [Roof("BF16", 1000)], 3.0, "memory", KINDS))
    (x1, y1, r1), (x2, y2, r2), (x3, y3, r3) = (drawn[title] for title in ("at 1, 10", "at 10, 10", "at 100, 100"))
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.02)
    assert (y1, r1) == (y2, r3)
    assert y3 < y1
    assert r1**2 / r2**2 == pytest.approx(4, rel=0.01)


def test_a_point_at_the_peak_is_on_the_roof_and_the_ridge_is_where_both_meet() -> None:
    drawing = roofline([point(1000, 900), point(300, 900, 2)], [Roof("BF16", 900), Roof("FP32", 60)], 3.0, "memory", KINDS)
    drawn = circles(drawing)
    high, low = sorted((tuple(map(float, line)) for line in LINE.findall(drawing)), key=lambda line: line[1])
    assert high[1] == high[3] == drawn["at 1000, 900"][1]
    assert high[0] == pytest.approx(drawn["at 300, 900"][0], abs=0.02)  # 900 TFLOP/s / 3 TB/s
    assert low[1] > high[1]
    assert low[0] < high[0]


def test_without_a_bandwidth_roofs_are_level_lines() -> None:
    drawing = roofline([point(10, 5)], [Roof("BF16 100", 100)], None, "memory", KINDS)
    ((x1, y1, x2, y2),) = (tuple(map(float, line)) for line in LINE.findall(drawing))
    assert (y1, x1 < 60, x2 > 700) == (y2, True, True)
    assert "memory" not in drawing
    assert "BF16 100" in drawing


def test_a_point_far_below_the_others_is_left_out() -> None:
    assert set(circles(roofline([point(100, 100), point(100, 1e-9)], [], 3.0, "memory", KINDS))) == {"at 100, 100"}


POSITIVE = st.floats(1e-12, 1e12)
POINTS = st.lists(
    st.tuples(POSITIVE, POSITIVE, st.floats(0, 1e15), st.sampled_from([None, "mm 8×8", "a long name of an operator…1×2×3"])), max_size=12
)


@given(POINTS, st.lists(POSITIVE, min_size=1, max_size=4), st.none() | POSITIVE, st.sampled_from([svg.WIDE, svg.SMALL]))
def test_everything_is_inside_and_no_label_covers_another(
    rows: list[tuple[float, float, float, str | None]], peaks: list[float], tb_per_s: float | None, width: float
) -> None:
    roofs = [Roof(f"R{number} peak", peak) for number, peak in enumerate(peaks)]
    drawing = roofline([point(*row) for row in rows], roofs, tb_per_s, "memory 3 GB/s", KINDS, width=width)
    assert "nan" not in drawing
    assert "inf" not in drawing
    for x, y, r in circles(drawing).values():
        assert 0 <= x <= width
        assert 0 <= y <= 400
        assert 2 <= r <= 15
    operators = {row[3] for row in rows if row[3]}  # in the font of code
    names = {"memory 3 GB/s", *(roof.label for roof in roofs), *operators}
    boxes = [
        (float(x), float(y) - 8, float(x) + svg.width_of(label, 9.5, code=label in operators), float(y) + 2)
        for x, y, _, label in TEXT.findall(drawing)
        if label in names
    ]
    for a, b in combinations(boxes, 2):
        assert a[2] <= b[0] + 0.02 or b[2] <= a[0] + 0.02 or a[3] <= b[1] + 0.02 or b[3] <= a[1] + 0.02
    assert all(box[0] >= 0 and box[2] <= width for box in boxes)


def test_a_hostile_title_stays_text() -> None:
    hostile = Point(1, 1, 1, "memory", '"><script>alert(1)</script>', "<b>&\x00")
    drawing = roofline([hostile], [], 1.0, "memory", KINDS)
    assert "<script" not in drawing
    assert "<b>" not in drawing
    assert MEANINGS["memory"] in drawing
    assert math.isclose(
        circles(drawing.replace("&quot;", "'").replace("&gt;", ")").replace("&lt;", "("))["')(script)alert(1)(/script)"][2], 15
    )


def test_a_label_covers_no_point_and_is_next_to_its_own_or_joined_by_a_line() -> None:
    crowd = [point(10 * 1.3**number, 5 + 0.4 * (number % 3), 1.0 + number % 4, f"mm {number}×4096, 4096×1024") for number in range(8)]
    drawing = roofline(crowd, [Roof("BF16", 900)], 3.0, "memory", KINDS)
    drawn = circles(drawing)
    labels = {label: (float(x), float(y)) for x, y, _, label in TEXT.findall(drawing) if label.startswith("mm ")}
    assert len(labels) > 3
    leaders = re.findall(r'<line x1="([^"]+)" y1="([^"]+)" x2="([^"]+)" y2="([^"]+)" stroke="#57606a"', drawing)
    ends = {(float(x1), float(y1)): (float(x2), float(y2)) for x1, y1, x2, y2 in leaders}
    joined = 0
    for label, (left, baseline) in labels.items():
        box = (left, baseline - 8, left + svg.width_of(label, 9.5, code=True), baseline + 2)
        title_of_label = next(labeled.title for labeled in crowd if labeled.label == label)
        for title, (x, y, r) in drawn.items():
            apart = math.hypot(x - min(max(x, box[0]), box[2]), y - min(max(y, box[1]), box[3])) - r
            if title == title_of_label and apart > 8.1:
                start = next(at for at in ends if math.hypot(at[0] - x, at[1] - y) == pytest.approx(r, abs=0.05))
                assert box[0] - 0.1 <= ends[start][0] <= box[2] + 0.1
                assert box[1] - 0.1 <= ends[start][1] <= box[3] + 0.1
                joined += 1
            elif title != title_of_label:
                assert apart > -0.42 * r, "outside of the square around the point"
    assert joined == len(ends) > 0
