"""The measures that make the PDF fast change nothing that is on its pages."""

from __future__ import annotations

import base64
from pathlib import Path

import pikepdf
import pytest
from postrun.report_templates.figures.svg import document, left_anchored, text, width_of
from postrun.report_templates.output import pages
from postrun.report_templates.output.pdf import Job, PrinterHere, _for_print
from postrun.report_templates.output.styles import pdf_style
from postrun.report_templates.text import fonts

PAGE = (
    '<!doctype html><html lang="en"><head><title>t</title></head><body><p>Text</p>'
    '<img alt="a" src="data:image/svg+xml;base64,{}"></body></html>'
)


def printed(folder: Path, page: str) -> pikepdf.Pdf:
    (folder / "page.html").write_text(page, encoding="utf-8")
    (folder / "data.json").write_text("{}", encoding="utf-8")
    printer = PrinterHere()
    printer.start(Job(str(folder / "page.html"), str(folder / "data.json"), str(folder / "page.pdf"), 0))
    assert printer.finish(60) is None
    return pikepdf.open(folder / "page.pdf")


@pytest.mark.parametrize("anchor", ["start", "end"])
def test_a_text_of_a_figure_is_drawn_at_once(tmp_path: Path, anchor: str) -> None:
    svg = document(200, 20, [text(150, 12, "computation", anchor=anchor)])
    with printed(tmp_path, PAGE.format(base64.b64encode(left_anchored(svg).encode()).decode())) as pdf:
        (sheet,) = pdf.pages
        assert not sheet.resources.get("/XObject")
        drawings = [one for one in pikepdf.parse_content_stream(sheet) if str(one.operator) in ("Tj", "TJ")]
        assert len(drawings) == 3  # the paragraph, the figure, and the page number; letter by letter the figure would have eleven


def test_no_element_has_styles_of_notes(tmp_path: Path) -> None:
    printed(tmp_path, PAGE.format("")).close()
    from weasyprint import html

    left = {str(one[3]) for one in html.UA_STYLESHEET.matcher.other_selectors}
    assert not [pseudo for pseudo in left if "note" in pseudo]
    assert "marker" in left


def test_a_text_keeps_its_place_if_it_begins_at_its_x() -> None:
    assert fonts.variable_faces()
    centered, ending = text(50, 9, "a < b", anchor="middle", size=10, bold=True), text(80, 9, "gemm", anchor="end", code=True)
    begins = [float(one.split('"')[0]) for one in left_anchored(centered + ending).split('x="')[1:]]
    assert begins == pytest.approx([50 - width_of("a < b", 10, bold=True) / 2, 80 - width_of("gemm", 11, code=True)], abs=0.006)
    assert "text-anchor" not in left_anchored(centered + ending)


def test_a_text_whose_width_is_not_known_keeps_its_anchor() -> None:
    for kept in (text(9, 9, "\u6570", anchor="end"), text(9, 9, "a", anchor="end", more=("b", "#57606a")), text(9, 9, "a")):
        assert left_anchored(kept) == kept


def test_ids_of_blocks_are_on_their_headings() -> None:
    section = '<section id="steps" aria-labelledby="steps-title">\n<h2 id="steps-title">Steps</h2>\n'
    table = '<div class="table whole" id="t">\n<table class="w50">\n<caption>C</caption>'
    assert _for_print(section + table) == (
        '<section aria-labelledby="steps-title"><h2 id="steps">Steps</h2>'
        '<div class="table whole"><table class="w50"><caption id="t">C</caption>'
    )
    unheaded = '<section id="summary"><p>Text</p></section>'
    assert _for_print(unheaded) == unheaded


def test_every_width_of_a_table_and_of_the_grid_is_in_the_style() -> None:
    style = pdf_style()
    assert "var(" not in style
    assert all(f".w{percent} {{ width: {percent}%; }}" in style for percent in range(1, 101))
    for rule in (".c7-12 { width: 58.33%; }", ".c5-12 { width: 41.66%; }", ".c6-6 { width: 100.0%; }", ".c3-6 { width: 50.0%; }"):
        assert rule in style


def test_only_a_name_that_turns_the_direction_is_isolated() -> None:
    assert pages._isolated("gemm \u00b7 \u00b5s \u6570") == "gemm \u00b7 \u00b5s \u6570"
    assert pages._isolated("\u05d0<b>") == "<bdi>\u05d0&lt;b&gt;</bdi>"
    assert pages._isolated("a\u202eb") != "a\u202eb"


def test_keys_of_rows_have_the_digits_that_their_order_needs() -> None:
    assert [pages._sort_key(value) for value in (0.3554048863288358, 154323111.5, 4394017275, "name", float("inf"), -2.0)] == [
        0.3554049, 154323112, 4394017275, "name", float("inf"), -2.0,
    ]  # fmt: skip
