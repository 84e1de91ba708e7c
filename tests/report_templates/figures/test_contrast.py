"""Contrast of all colors of the report in both themes, by the formula of WCAG 2.2 (relative luminance and contrast ratio)."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from postrun.report_templates.figures import palette
from postrun.report_templates.figures.stacked_bars import Part, stacked_bars
from postrun.report_templates.figures.svg import document, rect

STYLE = (Path(palette.__file__).parents[1] / "templates/style.css").read_text(encoding="utf-8")
FILLS = ("computation", "communication", "memory", "idle", "sync", "host", "loading", "operator", "other", "series", "unnamed", "outlier")
TEXTS = (("ink", "paper"), ("muted", "paper"), ("accent", "paper"), ("issue", "paper"), ("fine", "paper"), ("error", "paper"),
         ("outlier", "paper"), ("ink", "panel"), ("muted", "panel"), ("accent", "panel"), ("warn", "warn-panel"))  # fmt: skip
SVG = "{http://www.w3.org/2000/svg}"


def channels(color: str) -> list[float]:
    return [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def luminance(values: list[float]) -> float:
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ratio(first: list[float], second: list[float]) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def blend(color: list[float], paper: list[float], opacity: float) -> list[float]:
    return [opacity * a + (1 - opacity) * b for a, b in zip(color, paper, strict=True)]


def theme(start: str) -> dict[str, str]:
    """Return the colors of the first rule after ``start``."""
    rule = STYLE.split(start, 1)[1].split("}", 1)[0]
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", rule))


THEMES = {"light": theme(":root {"), "dark": theme(':root:not([data-theme="light"]) {'), "chosen dark": theme(':root[data-theme="dark"] {')}


def test_the_formula_gives_the_published_ratios() -> None:
    assert ratio([0, 0, 0], [1, 1, 1]) == pytest.approx(21)
    assert ratio(channels("#767676"), [1, 1, 1]) == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("name", THEMES)
def test_fields_and_lines_stand_out_from_the_paper(name: str) -> None:
    colors = THEMES[name]
    assert {fill: ratio(channels(colors[fill]), channels(colors["paper"])) for fill in FILLS if fill in colors}.keys() == set(FILLS)
    assert [fill for fill in FILLS if ratio(channels(colors[fill]), channels(colors["paper"])) < 3] == []


@pytest.mark.parametrize("name", THEMES)
def test_texts_are_readable(name: str) -> None:
    colors = THEMES[name]
    assert [pair for pair in TEXTS if ratio(channels(colors[pair[0]]), channels(colors[pair[1]])) < 4.5] == []


@pytest.mark.parametrize("shade", [1.0, 0.45, 0.3])
@pytest.mark.parametrize("name", THEMES)
def test_text_on_a_field_is_readable(name: str, shade: float) -> None:
    """As themed SVG: the fill-opacity blends with the paper."""
    colors = THEMES[name]
    unreadable = []
    for meaning in palette.MEANINGS:
        if meaning == "loading" and shade < 1:  # is never pale
            continue
        ink = palette.ink_on(meaning, shade)
        assert ink is not None
        variable = re.fullmatch(r"var\(--(.*)\)", palette.VARIABLES.get(ink, ""))
        text = channels(colors[variable[1]] if variable else ink)
        if ratio(text, blend(channels(colors[meaning]), channels(colors["paper"]), shade)) < 4.5:
            unreadable.append(meaning)
    assert unreadable == []


def test_text_is_left_out_where_no_color_is_readable_on_the_field() -> None:
    assert palette.ink_on("host", 0.72) is None
    drawn = stacked_bars([Part("a", "host", 0.72), Part("b", "host")], [("rank 0", [40.0, 60.0])], "ms")
    numbers = [text.text for text in ElementTree.fromstring(drawn).iter(f"{SVG}text")]
    assert "60.0" in numbers
    assert "40.0" not in numbers


def test_the_drawn_colors_are_those_of_the_light_theme() -> None:
    drawn = {
        **palette.MEANINGS, "ink": palette.INK, "muted": palette.MUTED, "grid": palette.GRID, "paper": palette.PAPER,
        "series": palette.SERIES, "unnamed": palette.UNNAMED, "outlier": palette.ACCENT,
    }  # fmt: skip
    for name, color in drawn.items():
        assert channels(color) == pytest.approx(channels(THEMES["light"][name]), abs=1.1 / 255)
        assert palette.VARIABLES[color] == f"var(--{name})"
    assert len(set(palette.VARIABLES)) == len(palette.VARIABLES)
    assert THEMES["dark"] == THEMES["chosen dark"]


def test_a_pale_field_has_an_edge_of_its_full_color() -> None:
    (pale,) = ElementTree.fromstring(document(50, 50, [rect(10, 10, 20, 8, "#0072b2", opacity=0.45)])).iter(f"{SVG}rect")
    assert pale.get("stroke") == pale.get("fill") == "#0072b2"
    assert [float(pale.get(of, "0")) for of in ("x", "y", "width", "height")] == [10, 10, 20, 8]
    assert "stroke" not in rect(0, 0, 0.8, 20, "#0072b2", opacity=0.45)  # too small for an edge
    assert "stroke" not in rect(0, 0, 20, 20, "#0072b2")
