"""Figures: the data as well-formed SVG, in the colors of their meanings."""

from __future__ import annotations

import base64
import io
import math
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markupsafe import Markup
from matplotlib import colormaps
from matplotlib.colors import to_hex
from page_fonts import text_width
from PIL import Image
from postrun.analysis.report import Share
from postrun.report_templates.blocks import SECTORS
from postrun.report_templates.figures import palette
from postrun.report_templates.figures.axes import nice_ticks, time_unit
from postrun.report_templates.figures.donut import Sector, donut, shaded
from postrun.report_templates.figures.heat_map import Heat, heat_map
from postrun.report_templates.figures.histogram import Bins, histogram, panels
from postrun.report_templates.figures.lines import MOST, Line, Panel, lines
from postrun.report_templates.figures.matrix import matrix
from postrun.report_templates.figures.paired_bars import paired_bars
from postrun.report_templates.figures.palette import ACCENT, MEANINGS, SERIES, UNNAMED, VARIABLES, themed
from postrun.report_templates.figures.stacked_bars import Part, stacked_bars
from postrun.report_templates.figures.step_bars import Bar, step_bars
from postrun.report_templates.figures.strips import Piece, Strip, strips
from postrun.report_templates.figures.svg import NARROW, SMALL, WIDE, document, fitted, line, path, shape, text, width_of
from postrun.report_templates.sections.shares import shares_ring

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</svg><script>alert(1)</script> $\\frac{1}{0}$ & " fill: #0072b2 \x00\u202e'


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [element.text or "" for tag in ("text", "tspan") for element in root.iter(SVG + tag)]


def test_bars_are_as_long_as_their_values() -> None:
    svg = stacked_bars(
        [Part("computation", "computation"), Part("idle", "idle")],
        [("rank 0", [75.0, 25.0]), ("rank 1", [10.0, 90.0])],
        "%",
        axis_end=100.0,
    )
    bars = [
        (rect.get("fill"), float(rect.get("width", "0")))
        for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect")
        if rect.find(f"{SVG}title") is not None
    ]
    total = bars[0][1] + bars[1][1]
    assert [fill for fill, _ in bars] == [MEANINGS["computation"], MEANINGS["idle"]] * 2
    assert [round(100 * width / total) for _, width in bars] == [75, 25, 10, 90]
    assert {"rank 0", "rank 1", "computation", "idle"} <= set(texts(svg))


def test_a_part_that_no_row_has_is_not_in_the_legend() -> None:
    assert "idle" not in texts(stacked_bars([Part("kernels", "computation"), Part("idle", "idle")], [("rank 0", [5.0, 0.0])], "ms"))


def test_numbers_in_bars_are_never_in_exponent_form() -> None:
    svg = stacked_bars([Part("kernels", "computation")], [("rank 0", [1206.4]), ("rank 1", [2_345_678.0])], "ms")
    labels = [text.replace("\u202f", " ") for text in texts(svg)]
    assert "2,350,000" in labels
    assert "2,000,000 ms" in labels
    assert "rank 0, kernels: 1,210 ms" in svg
    assert "e+0" not in svg


def test_sectors_have_the_angle_of_their_share() -> None:
    svg = donut([Sector("half", 50.0, "computation"), Sector("quarter", 25.0, "memory"), Sector("rest", 25.0, "other")], "1.00 s", "all")
    starts = [
        tuple(map(float, re.match(r"M(\S+) (\S+)A", path.get("d", "")).groups())) for path in ElementTree.fromstring(svg).iter(f"{SVG}path")
    ]  # type: ignore[union-attr]
    angles = [math.degrees(math.atan2(x - 88, 88 - y)) % 360 for x, y in starts]
    assert angles == pytest.approx([0, 180, 270], abs=0.05)
    assert texts(svg) == ["1", "2", "3", "1.00 s", "all"]


def test_a_single_sector_is_a_whole_ring() -> None:
    paths = list(ElementTree.fromstring(donut([Sector("all", 100.0, "computation")], "1 s", "x")).iter(f"{SVG}path"))
    assert len(paths) == 1
    assert paths[0].get("d", "").count("A") == 4


def test_a_sector_of_almost_all_is_almost_a_ring() -> None:
    """Its ends are the same point to two decimals; a single arc would be degenerate."""
    path = next(
        iter(ElementTree.fromstring(donut([Sector("a", 99.9999, "host"), Sector("b", 0.0001, "memory")], "1 s", "x")).iter(f"{SVG}path"))
    )
    assert path.get("d", "").count("A") == 4


def test_neighbors_of_one_meaning_differ_in_shade() -> None:
    sectors = shaded([(str(i), 10.0, "computation") for i in range(SECTORS + 1)])
    assert len({sector.shade for sector in sectors}) == len(sectors)  # softmax is the seventh: not the blue of the first
    assert all(abs(a.shade - b.shade) > 0.15 for a, b in pairwise(sectors))


def test_every_shade_has_a_swatch_of_the_same_opacity() -> None:
    style = (Path(palette.__file__).parents[1] / "templates/style.css").read_text(encoding="utf-8")
    for shade in palette.SHADES[1:]:
        assert f".s{round(shade * 100)}::before {{ opacity: {shade:.2f}".replace("0.", ".") in style


def test_the_others_are_no_second_number_beside_that_of_the_row() -> None:
    shares = [Share(f"c{i}", 10, 1, 100 / 12) for i in range(12)]
    figure = shares_ring("r", Markup("x"), "x", shares, "Category", "Of it", label="x")
    assert figure is not None
    assert figure.legend is not None
    assert [row[0].text for row in figure.legend.rows][-2:] == ["c7", "All others (4)"]


def histogram_tops(svg: str) -> list[float]:
    path = next(p for p in ElementTree.fromstring(svg).iter(f"{SVG}path") if p.get("fill") == MEANINGS["computation"])
    return [float(y) for y in re.findall(r"V([\d.]+)", path.get("d", ""))]


def test_histogram_bars_have_the_height_of_their_counts() -> None:
    ys = histogram_tops(histogram([Bins("", (0.0, 1e6, 2e6, 3e6), (10, 40, 20), 1.5e6)], "computation", "steps"))
    base = max(ys)
    heights = sorted({round(base - y, 1) for y in ys} - {0.0})
    assert [height / heights[0] for height in heights] == pytest.approx([1, 2, 4], rel=0.01)


def test_several_groups_are_rows_with_their_names() -> None:
    svg = histogram([Bins(f"rank {i}", (0.0, 1e6, 2e6), (i, 3), 1e6) for i in range(5)], "computation", "steps")
    assert {f"rank {i}" for i in range(5)} <= set(texts(svg))


def test_values_beyond_the_last_edge_are_said_at_their_row() -> None:
    svg = histogram([Bins("rank 0", (1e6, 2e6), (5,), 1.5e6, beyond=78), Bins("rank 1", (1e6, 2e6), (5,), 1.5e6)], "computation", "steps")
    assert [text.replace("\u00a0", " ") for text in texts(svg) if "above" in text] == ["78 above 2.00 ms"]


def test_nearly_equal_values_stay_visible_beside_others() -> None:
    svg = histogram([Bins("a", (1e6, 1.0001e6), (5,), 1e6), Bins("b", (1e6, 9e6), (5,), 5e6)], "computation", "steps")
    assert 3.0 in [float(rect.get("width", "0")) for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect")]


def test_panels_have_their_names_and_details() -> None:
    svg = panels([Bins(name, (1e6, 2e6), (5,), None) for name in ("Forward", "Backward", "x" * 200)], ["1", "2", "3"], ["host"] * 3)
    labels = texts(svg)
    assert {"Forward", "Backward", "1", "2", "3"} <= set(labels)
    assert max(map(len, labels)) < 70


@pytest.mark.parametrize("bold", [True, False])
@pytest.mark.parametrize("label", ["W" * 10 + "i" * 20, "i" * 20 + "W" * 10, "_" * 90, "8c859046be41.ant.example.com pid 80807"])
def test_a_label_keeps_its_ends_and_fits(label: str, *, bold: bool) -> None:
    result = fitted(label, 120, bold=bold)
    assert 80 < width_of(result, bold=bold) <= 120
    head, mark, tail = result.partition("…")
    assert mark
    assert label.startswith(head)
    assert label.endswith(tail)
    assert fitted(label, 1000, bold=bold) == label
    assert len(fitted(label, 1, bold=bold)) == 6


def test_names_of_panels_end_before_the_next_one() -> None:
    """By the font's own metrics."""
    name = "NEGOTIATE_ALLREDUCE (DistributedAdamWOptimizer_Allreduce/cond_0/HorovodAllreduce_gradient_tape_Reshape_0)"
    drawn = panels([Bins(name, [1e6, 2e6], [3], 1.5e6)] * 2, ["3 ranges"] * 2, ["host"] * 2)
    label = next(text for text in texts(drawn) if text.startswith("NEGOTIATE"))
    assert 200 < text_width(label, 11, bold=True) <= 229


def test_labels_of_rows_stay_within_the_figure() -> None:
    """As wide as the font has them, right-aligned before the bars."""
    wide = "WMWMWMWMWM" * 5
    part = [Part("computation", "computation")]
    figures = (stacked_bars(part, [(wide, [1.0])], "s"), paired_bars(part, [(wide, [1.0])], "s"), matrix([wide], [[1.0]], "what"))
    for drawn in figures:
        (label,) = (
            one for one in ElementTree.fromstring(drawn).iter(f"{SVG}text") if one.get("text-anchor") == "end" and "WM" in (one.text or "")
        )
        assert text_width(label.text or "", 11) <= float(label.get("x", "0"))


def test_a_strip_is_divided_by_its_shares_and_names_each() -> None:
    svg = strips([Strip("all", [Piece("GEMM", 75.0, "75.0%", "computation"), Piece("further", 25.0, "25.0%", "other")])])
    widths = [
        float(rect.get("width", "0")) for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None
    ]
    assert widths == [540, 180]
    assert {"all", "GEMM", "75.0%", "further", "25.0%"} <= {text.strip() for text in texts(svg)}


def test_lines_are_labeled_at_their_end_without_overlap() -> None:
    svg = lines([Panel("%", [Line(f"node-{i}", [0.0, 1e9], [50.0, 50.0 + i / 10]) for i in range(MOST)], 100)], "time", x_time=True)
    places = [float(e.get("y", "0")) for e in ElementTree.fromstring(svg).iter(f"{SVG}text") if (e.text or "").startswith("node-")]
    assert len(places) == MOST
    assert min(b - a for a, b in pairwise(sorted(places))) >= 11.9


@pytest.mark.parametrize("points", [1, 2])
def test_a_line_of_few_points_is_drawn(points: int) -> None:
    svg = lines([Panel("ms", [Line("a", [float(i) for i in range(points)], [1.0] * points)])], "step", x_time=False)
    assert SERIES in svg


def test_lines_are_gray_but_for_the_outlier_and_meanings() -> None:
    drawn = [
        Line("rank 0", [0, 1], [1, 1]), Line("rank 5", [0, 1], [9, 9], outlier=True), Line(None, [0, 1], [2, 2]),
        Line("copies", [0, 1], [3, 3], meaning="memory"),
    ]  # fmt: skip
    root = ElementTree.fromstring(lines([Panel("ms", drawn)], "step", x_time=False))
    strokes = {path.get("stroke"): float(path.get("stroke-width", "0")) for path in root.iter(f"{SVG}path")}
    assert strokes == {SERIES: 1.2, ACCENT: 1.8, UNNAMED: 0.6, MEANINGS["memory"]: 1.2}
    inks = {text.text: text.get("fill") for text in root.iter(f"{SVG}text")}
    assert inks["rank 5"] == ACCENT
    assert inks["rank 0"] == inks["copies"] == palette.MUTED


def test_heat_map_holds_one_image_and_names_its_units() -> None:
    svg = heat_map([Heat("node-0", [0, 1], [[0.0, 50.0, None], [100.0, 20.0, 10.0]], 0, 3e9)], "GPU")
    assert {"node-0", "GPU 0", "GPU 1"} <= set(texts(svg))
    links = re.findall(r'href="([^"]*)"', svg)
    assert len(links) == 2  # the block and the scale
    assert all(link.startswith("data:image/png;base64,") for link in links)


def test_fields_of_a_heat_map_have_the_colors_of_their_values() -> None:
    """Decoded by Pillow, and compared with Matplotlib's own cividis."""
    values = [[0.0, 50.0, None, 2.5], [100.0, 20.0, 10.0, 97.5]]
    link = re.findall(r'base64,([^"]*)"', heat_map([Heat("node-0", [0, 1], values, 0, 3e9)], "GPU"))[0]
    with Image.open(io.BytesIO(base64.b64decode(link))) as image:
        assert image.size == (4, 2)
        pixels = image.convert("RGBA")
    for row, line_of in enumerate(values):
        for column, value in enumerate(line_of):
            pixel = pixels.getpixel((column, row))
            assert isinstance(pixel, tuple)
            if value is None:
                assert pixel[3] == 0
                continue
            assert pixel[3] == 255
            assert pixel[:3] == pytest.approx([255 * part for part in colormaps["cividis"](value / 100)[:3]], abs=11)


def test_the_colors_of_brightness_are_those_of_cividis() -> None:
    count = len(palette.BRIGHTNESS)
    assert list(palette.BRIGHTNESS) == [to_hex(colormaps["cividis"]((level + 0.5) / count)) for level in range(count)]


def test_a_line_goes_through_its_values() -> None:
    """The axes are from 48 to 398 and from 112 up to 20."""
    svg = lines([Panel("%", [Line("a", [0.0, 1e9, 4e9, 4e9], [0.0, 100.0, 50.0, 25.0], [0.0] * 4, [100.0] * 4)], 100)], "time", x_time=True)
    drawn = [e.get("d") for e in ElementTree.fromstring(svg).iter(f"{SVG}path")]
    assert drawn == ["M48 20 398 20 398 112 48 112Z", "M48 112 135.5 20 398 66 398 89"]
    assert [text for text in texts(svg) if text.isdigit()] == ["0", "50", "100", "0", "1", "2", "3", "4"]


def test_points_within_level_parts_of_a_line_are_not_drawn() -> None:
    assert shape([(0, 5), (1, 5.04), (2.2, 5), (3, 6), (4, 6), (5, 5), (6, 5), (7, 5)]) == "M0 5 2.2 5 3 6 4 6 5 5 7 5"


def test_text_from_a_trace_stays_text_in_every_figure() -> None:
    drawn = [
        stacked_bars([Part("computation", "computation")], [(HOSTILE, [5.0])], "ms"),
        donut(shaded([(HOSTILE, 60.0, "computation"), ("b", 40.0, "other")]), "1 s", "x"),
        histogram([Bins(HOSTILE, (0.0, 1e6), (1,), None), Bins("b", (0.0, 1e6), (1,), None)], "host", "steps"),
        panels([Bins(HOSTILE, (1.0, 1e6), (1,), None)], [HOSTILE], ["host"]),
        strips([Strip(HOSTILE, [Piece(HOSTILE, 100.0, HOSTILE, "other")])]),
        lines([Panel(HOSTILE, [Line(HOSTILE, [0.0, 1.0], [1.0, 2.0])])], "step", x_time=False),
    ]
    for svg in drawn:
        root = ElementTree.fromstring(svg)
        assert not list(root.iter(f"{SVG}script"))
        assert "<script" not in svg
    assert any("$\\frac{1}{0}$" in text for text in texts(drawn[-1]))


def test_theming_replaces_colors_in_tags_and_never_in_text() -> None:
    words = ' fill="#0072b2" fill: #0072b2 font-family="DejaVu Sans"'
    svg = document(
        9, 9, [line(0, 0, 1, 1, SERIES), path("M0 0", MEANINGS["computation"], stroke="#ffffff", title=words), text(0, 0, words)]
    )
    result = themed(svg)
    assert re.findall(r' (?:fill|stroke)="([^"]*)"', result) == ["var(--series)", "var(--computation)", "var(--paper)", "var(--ink)"]
    assert re.match("<svg [^>]*>", result)[0] == '<svg width="9" height="9" viewBox="0 0 9 9" font-size="11">'  # type: ignore[index]
    root = ElementTree.fromstring(result)
    assert [root.findtext("path/title"), root.findtext("text")] == [words, words]


def test_every_color_is_one_variable() -> None:
    assert len(set(VARIABLES.values())) == len(VARIABLES)


def test_equal_data_gives_equal_svg() -> None:
    def draw() -> str:
        return histogram([Bins("", (0.0, 1e6, 2e6), (1, 2), 1e6)], "host", "x") + heat_map([Heat("a", [0], [[1.0, None]], 0, 1e9)], "core")

    assert draw() == draw()


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [(0, 100, 5, [0, 20, 40, 60, 80, 100]), (0, 7, 8, [0, 1, 2, 3, 4, 5, 6, 7]), (0.15, 0.46, 4, [0.2, 0.3, 0.4]), (3, 3, 5, [3])],
)
def test_ticks_are_round_numbers_within_the_axis(low: float, high: float, most: int, expected: list[float]) -> None:
    assert nice_ticks(low, high, most) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("longest", "unit"), [(0.5, "ns"), (1999, "ns"), (2e3, "µs"), (5e8, "ms"), (90e9, "s"), (200e9, "min"), (9000e9, "h")]
)
def test_the_unit_of_an_axis_fits_its_length(longest: float, unit: str) -> None:
    assert time_unit(longest).name == unit


def test_a_row_that_is_nothing_says_so_in_place_of_its_bar() -> None:
    drawn = stacked_bars([Part("waiting", "host")], [("GPU 0", [0.0]), ("GPU 1", [7.0])], "%", limit=(10.0, "threshold 10%"), axis_end=10.0)
    assert re.findall(r">([\d.]+%)</text>", drawn).count("0%") == 2  # of the axis, and of the first row
    assert drawn.count("<title>") == 1


@pytest.mark.parametrize("width", [WIDE, SMALL])
def test_step_bars_have_a_path_per_part_and_a_label_per_bar(width: float) -> None:
    """Bars of 10 + 5 ms and of 8 + 2 ms, and 3 ms below zero."""
    parts, below = [Part("computation", "computation"), Part("idle", "idle")], Part("hidden", "communication", 0.45)
    bars = [Bar("1", [10.0, 5.0], 3.0), Bar("2", [8.0, 2.0], 0.0)]
    drawn = ElementTree.fromstring(step_bars(parts, bars, below, "ms", top=15.0, width=width))
    paths = {one.get("data-part"): re.findall(r"M([\d.]+) [\d.]+h[\d.]+v([\d.]+)", one.get("d", "")) for one in drawn.iter(f"{SVG}path")}
    heights = {name: [float(tall) for _, tall in boxes] for name, boxes in paths.items() if name}
    assert heights == {"computation": [64.0, 51.2], "idle": [32.0, 12.8], "hidden": [19.2]}  # 6.4 px per ms
    (field,) = (rect for rect in drawn.iter(f"{SVG}rect") if rect.get("data-bars"))
    scale, *labels = field.get("data-bars", "").split("|")
    unit, per, left, slot = scale.split(" ")
    assert (unit, float(per) * 6.4, labels) == ("ms", pytest.approx(1.0), ["1", "2"])
    assert [int((float(x) - float(left)) / float(slot)) for x, _ in paths["computation"]] == [0, 1]
    assert drawn.get("width") == f"{width:g}"
    cut = step_bars(parts, bars, below, "ms", top=12.0, width=width)
    assert "|1 (bar cut)|2&quot;".replace("&quot;", '"') in cut


def test_panels_are_below_each_other_on_a_narrow_screen() -> None:
    groups = [Bins(name, (1e6, 2e6), (5,), None) for name in "abc"]
    small = ElementTree.fromstring(panels(groups, ["1", "2", "3"], ["host"] * 3, columns=1))
    places = {
        text.text: (float(text.get("x", 0)), float(text.get("y", 0))) for text in small.iter(f"{SVG}text") if text.text in ("a", "b", "c")
    }
    assert places == {"a": (0, 11), "b": (0, 129), "c": (0, 247)}
    assert float(small.get("width", 0)) <= NARROW
