"""The strip of a job and the split of the GPU time, measured in the drawing."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from postrun.analysis.report import DeviceTime
from postrun.report_templates.figures.job_strip import NARROW, WIDTH, Phase, job_strip
from postrun.report_templates.figures.marks import Mark
from postrun.report_templates.figures.palette import INK, MEANINGS
from postrun.report_templates.figures.svg import width_of
from postrun.report_templates.figures.time_split import time_split
from postrun.report_templates.sections.summary import alike
from postrun.report_templates.sections.time_breakdown import PARTS

SVG = "{http://www.w3.org/2000/svg}"
S = 10**9
PHASES = [
    Phase("initialization", "10 s", 0, 10 * S),
    Phase("training", "70 s", 10 * S, 80 * S),
    Phase("idle tail", "20 s", 80 * S, 100 * S, idle=True),
]


def rects(svg: str, fill: str) -> list[tuple[float, float]]:
    """Left end and width of the rectangles of a color."""
    return [
        (float(r.get("x", 0)), float(r.get("width", 0))) for r in ElementTree.fromstring(svg).iter(SVG + "rect") if r.get("fill") == fill
    ]


def labels(svg: str) -> list[tuple[str, float, float]]:
    """Text, left end and right end of the texts at size 10."""
    result = []
    for element in ElementTree.fromstring(svg).iter(SVG + "text"):
        text, x = element.text or "", float(element.get("x", 0))
        wide = width_of(text, 10)
        left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[element.get("text-anchor", "start")]
        result.append((text, left, left + wide))
    return result


def test_the_curve_can_be_read_at_the_pointer() -> None:
    """80% from 25 s to 50 s of 100 s, by the attribute that the tooltip reads."""
    svg = job_strip(100 * S, PHASES, [0, 25 * S, 50 * S, 75 * S], [50.0, 80.0, 20.0, 20.0], [])
    area = next(one for one in ElementTree.fromstring(svg).iter(SVG + "path") if one.get("data-axes"))
    x0, per_x, y0, per_y, *form = (area.get("data-axes") or "").split(" ")
    numbers = [float(number) for number in re.findall(r"[0-9.]+", area.get("d") or "")]
    corners = [(float(x0) + x * float(per_x), float(y0) + y * float(per_y)) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
    assert form == ["{}", "s"]
    assert area.get("data-unit") == "%"
    assert (pytest.approx(25, abs=0.1), pytest.approx(80, abs=0.2)) in corners
    assert (pytest.approx(50, abs=0.1), pytest.approx(80, abs=0.2)) in corners
    assert (pytest.approx(100, abs=0.1), pytest.approx(20, abs=0.2)) in corners


@pytest.mark.parametrize("width", [WIDTH, NARROW])
def test_phases_and_marks_are_at_their_times(width: float) -> None:
    marks = [Mark("dip to 20%", ": HostPauses", 40 * S, 50 * S), Mark("profile window", "", 30 * S, 30 * S + 1, "window")]
    svg = job_strip(100 * S, PHASES, [at * S for at in range(100)], [50.0] * 100, marks, width=width)
    assert f'viewBox="-36 0 {width:g} ' in svg
    axis, width = -36.0, width - 36
    assert (pytest.approx(0.8 * width), pytest.approx(0.2 * width, abs=1.1)) in rects(svg, MEANINGS["idle"])
    assert (pytest.approx(0.4 * width), pytest.approx(0.1 * width)) in rects(svg, MEANINGS["idle"])
    assert rects(svg, MEANINGS["computation"]) == [(pytest.approx(0.1 * width), pytest.approx(0.7 * width - 1))]
    assert rects(svg, INK) == [(pytest.approx(0.3 * width - 1), 2.0)], "a short window is still visible"
    texts = [text for text, _, _ in labels(svg)]
    assert any(text.startswith("training") for text in texts)
    assert "dip to 20%: HostPauses" in texts
    assert texts[:2] == ["100%", "0%"]
    for text, left, right in labels(svg):
        assert left >= (axis if text in ("0%", "100%") else -0.01), text
        assert right <= width + 0.01, text


def test_labels_do_not_overlap() -> None:
    marks = [Mark(f"dip to 20%, {at} s", ": unexplained", at * S, (at + 2) * S) for at in (40, 43, 46, 49)]
    root = ElementTree.fromstring(job_strip(100 * S, PHASES, [0, S], [1.0, 1.0], marks))
    rows: dict[str, list[tuple[float, float]]] = {}
    for element in root.iter(SVG + "text"):
        if (text := element.text or "").startswith("dip"):
            left = float(element.get("x", 0))
            rows.setdefault(element.get("y", ""), []).append((left, left + width_of(text, 10)))
    assert sum(len(row) for row in rows.values()) == 4
    for row in rows.values():
        ends = sorted(row)
        assert all(before[1] < after[0] for before, after in pairwise(ends))


def test_the_curve_has_the_height_of_its_values_and_gaps() -> None:
    svg = job_strip(100 * S, (), [0, S, 2 * S, 50 * S, 51 * S], [100.0, 50.0, 0.0, 50.0, 50.0], ())
    paths = [element.get("d", "") for element in ElementTree.fromstring(svg).iter(SVG + "path")]
    assert len(paths) == 2, "nothing is drawn where nothing was sampled"
    heights = [float(y) for y in re.findall(r" (-?[\d.]+)", paths[0])]
    assert max(heights) - min(heights) == pytest.approx(46)


def test_a_late_sample_leaves_no_gaps() -> None:
    # Samples of 100% every second; the third is 0.9 s late.
    times = [0, S, 29 * S // 10, 3 * S, 4 * S, 5 * S]
    (area,) = ElementTree.fromstring(job_strip(6 * S, (), times, [100.0] * 6, ())).iter(SVG + "path")
    numbers = [float(number) for number in re.findall(r"[0-9.]+", area.get("d") or "")]
    assert max(numbers[::2]) == pytest.approx(WIDTH - 36, abs=0.1)
    assert numbers[1::2].count(max(numbers[1::2])) == 2, "only the two ends are at 0%"


def test_without_a_curve_there_is_no_axis() -> None:
    svg = job_strip(100 * S, PHASES, [], [], ())
    assert f'viewBox="0 0 {WIDTH:g} ' in svg
    assert not {"0%", "100%"} & {text for text, _, _ in labels(svg)}


def device(rank: int, computation: int, communication: int, idle: int) -> DeviceTime:
    busy = computation + communication
    return DeviceTime(
        node="n", rank=rank, pid=rank, device=rank, device_name=None, events=1, first_ns=0, span_ns=busy + idle, busy_ns=busy, idle_ns=idle,
        computation_ns=computation, communication_ns=communication, exposed_communication_ns=communication, overlap_percent=None,
        memory_ns=0, exposed_memory_ns=0, memcpy_ns=0, memset_ns=0, kernel_total_ns=busy, linked_busy_ns=busy,
    )  # fmt: skip


def test_ranks_that_are_alike_are_one_row() -> None:
    # Medians 70, 20, 10; rank 3 differs by 10 points, the others by at most 2.
    rows, left_out = alike(
        [device(0, 70, 20, 10), device(1, 72, 18, 10), device(2, 68, 22, 10), device(3, 80, 10, 10), device(4, 70, 20, 10)]
    )
    assert [label for label, _ in rows] == ["rank 3 · n GPU 3", "4\u00a0ranks alike"]
    assert [values for _, values in rows] == [[80, 10, 0, 10], [70, 20, 0, 10]]
    assert left_out == 0
    assert alike([device(0, 70, 20, 10)]) == ([("", [70, 20, 0, 10])], 0)
    assert [label for label, _ in alike([device(0, 70, 20, 10), device(1, 70, 20, 10)])[0]] == ["all 2\u00a0ranks alike"]
    uneven = [device(rank, 10 * rank, 0, 100 - 10 * rank) for rank in range(10)]
    rows, left_out = alike(uneven)
    assert (len(rows), left_out) == (6, 4)


@pytest.mark.parametrize("width", [WIDTH, NARROW])
def test_the_split_is_as_long_as_its_shares(width: float) -> None:
    svg = time_split(PARTS, [("", [70.0, 20.0, 0.0, 10.0])], width=width)
    bars = [float(r.get("width", 0)) for r in ElementTree.fromstring(svg).iter(SVG + "rect") if r.find(SVG + "title") is not None]
    assert bars == [pytest.approx(share * width) for share in (0.7, 0.2, 0.1)]
    assert "exposed memory operations" not in svg
