"""A Report as a self-contained page: complete and safe."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import os
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from fontTools.ttLib import TTFont
from page_fonts import font
from postrun.analysis.report import Precision, Report, Share, Steps
from postrun.report_templates.blocks import spread
from postrun.report_templates.blocks.tables import PDF_ROWS
from postrun.report_templates.figures.palette import themed
from postrun.report_templates.figures.svg import document as drawing
from postrun.report_templates.figures.svg import text as svg_text
from postrun.report_templates.output.chapters import chapters
from postrun.report_templates.output.pages import page
from postrun.report_templates.output.pdf_tables import pdf_layout
from postrun.report_templates.output.section_list import SECTIONS, context, name_of
from postrun.report_templates.output.styles import pdf_style
from postrun.report_templates.text.look import Look
from postrun.report_templates.text.section_names import NAMES
from report_pages import html_of

GOLDEN = Path(__file__).parent.parent / "golden"
VOID = {"meta", "img", "input", "br", "col", "hr", "link", "wbr"}


def quiet(text: str, fraction: float | None) -> None:
    """No progress."""


class Reading(HTMLParser):
    """Elements with their attributes, and whether every element is closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("script", "style"):
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_nothing_is_loaded_from_anywhere(any_report: Report, target: str) -> None:
    text = html_of(any_report, target)
    reading = Reading(text)
    for tag, attributes in reading.elements:
        for key, value in attributes.items():
            if key in ("src", "href", "xlink:href", "action", "formaction", "poster", "data", "srcset", "background", "ping"):
                assert value is not None
                assert value.startswith(("#", "data:")), (tag, key, value[:80])
            assert key == "xmlns" or key.startswith("xmlns:") or not key.startswith("on"), (tag, key)
    for block in re.findall(r"<style>(.*?)</style>", text, re.DOTALL):
        assert "@import" not in block
        assert "http" not in block
        assert not re.search(r'url\((?!#|"data:font/woff;base64,[\w+/=]+"\))', block)
    assert not re.search(r"<(link|iframe|object|embed|base|form)\b", text)
    assert re.findall(r"url\((?!&|#)", re.sub(r">[^<]*<", "><", text)) == []


def test_fonts_of_a_page_have_its_characters_and_are_small(rich: Report) -> None:
    text = html_of(rich)
    faces = re.findall(r'@font-face\{font-family:"([^"]+)";font-weight:(\w+);src:url\("data:font/woff;base64,([^"]+)"\)\}', text)
    assert [face[:2] for face in faces] == [("Inter", "normal"), ("Inter", "bold"), ("Roboto Mono", "normal")]
    assert sum(len(data) for _, _, data in faces) < 48_000
    complete = {
        "Inter": font("fontpkg_inter", "files/Inter[opsz,wght].ttf"),
        "Roboto Mono": font("fontpkg_roboto_mono", "files/RobotoMono[wght].ttf"),
    }
    wanted = {ord(one) for one in text if " " <= one < "\U00010000"}
    for family, _, data in faces:
        characters = set(TTFont(io.BytesIO(base64.b64decode(data))).getBestCmap())
        assert characters >= wanted & set(complete[family].getBestCmap())
        assert len(characters) < 300


def test_names_of_kernels_are_in_the_font_of_code(rich: Report) -> None:
    for target in ("html", "pdf"):
        text = html_of(rich, target)
        rows = text[text.index("Kernels by total time") :]
        assert re.match(r'<th scope="row" class="[\w ]*\bcode"', rows[rows.index('<th scope="row"') :])
        assert re.search(r'code, \.code \{ font-family: "Roboto Mono"', text if target == "html" else pdf_style())
    assert ' class="code"' in themed(drawing(9, 9, [svg_text(0, 0, "gemm", code=True)]))


def test_only_our_script_may_run(any_report: Report) -> None:
    import base64
    import hashlib

    text = html_of(any_report)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    directives = dict(part.strip().split(" ", 1) for part in html.unescape(policy[1]).split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["font-src"] == "data:"
    assert directives["script-src"] == f"'sha256-{digest}'"
    assert "<script" not in html_of(any_report, "pdf")


def test_hostile_names_stay_text(rich: Report) -> None:
    text = html_of(rich)
    reading = Reading(text)
    tags = {tag for tag, _ in reading.elements}
    assert not tags & {"iframe", "object", "b"}
    assert reading.all("img") == []
    assert not any(key.startswith("on") for _, attributes in reading.elements for key in attributes)
    assert "alert(1)" in "".join(reading.text)
    assert not re.search(r"<script>alert", text)
    assert "{{ 7 * 7 }}" in "".join(reading.text)
    assert not set(text) & {chr(code) for code in range(32) if chr(code) not in "\n\t"}
    assert max(len(word) for word in "".join(reading.text).split()) <= 420  # 10 000 characters are cut, and named so in the JSON


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_marks_that_turn_the_writing_direction_are_escapes(rich: Report, target: str) -> None:
    text = page(context(rich, quiet), target)
    assert not re.search("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", text)
    assert r"\u202e" in text or target == "pdf"  # where figures are images


def test_wide_figures_have_a_drawing_for_a_narrow_screen(any_report: Report) -> None:
    figures = re.findall(r'<figure id="([^"]+)" class="plot">(.*?)</figure>', html_of(any_report), re.DOTALL)
    assert [name for name, content in figures if 'class="drawing small"' not in content] == []


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_every_section_is_there_once_in_order_and_in_the_contents(any_report: Report, target: str) -> None:
    content = context(any_report, quiet)
    reading = Reading(page(content, target))
    ids = [str(attributes["id"]) for attributes in reading.all("section")]
    there = [section.id for section in content.sections if target == "html" or not section.html_only]
    panels = ["dashboard"] * (target == "html" and content.dashboard is not None)
    assert ids == ["summary", *there, *panels]
    ids = ["summary", *(section.id for section in content.sections)]
    gathered = [section.id for one in content.sections for section in one.facts.get("sections", ())]
    assert sorted([*ids[1:], *gathered]) == sorted([*map(name_of, SECTIONS), *["without-content"] * bool(gathered)])
    links = [attributes["href"] for attributes in reading.all("a")]
    listed = content.sections if target == "html" else chapters(content.sections)
    assert all(f"#{part.id}" in links for part in listed)


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_ids_are_unique_and_links_lead_somewhere(any_report: Report, target: str) -> None:
    reading = Reading(html_of(any_report, target))
    ids = [str(attributes["id"]) for _, attributes in reading.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in reading.all("a") + reading.all("use"):
        link = attributes.get("href") or attributes.get("xlink:href")
        assert link is not None
        assert link[1:] in ids
    for _, attributes in reading.elements:
        for reference in str(attributes.get("aria-labelledby", "")).split():
            assert reference in ids


def test_a_section_without_data_is_one_sentence(any_report: Report) -> None:
    for section in context(any_report, quiet, None, Look(sections=NAMES)).sections:
        if section.empty:
            assert re.fullmatch(r"[A-Z].{20,}\.", str(section.lead)), section.lead


def test_a_report_of_nothing_has_no_figure(small_reports: dict[str, Report]) -> None:
    reading = Reading(html_of(small_reports["empty"]))
    assert reading.all("svg") == []
    assert reading.all("figure") == []


def test_headings_are_in_order_with_one_h1(any_report: Report) -> None:
    levels = [int(tag[1]) for tag, _ in Reading(html_of(any_report)).elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_landmarks_and_language(any_report: Report) -> None:
    reading = Reading(html_of(any_report))
    assert [len(reading.all(tag)) for tag in ("header", "nav", "main", "footer")] == [1, 1, 1, 1]
    assert reading.all("html")[0]["lang"] == "en"


def test_every_table_has_a_caption_and_scopes(any_report: Report) -> None:
    text = html_of(any_report)
    tables = re.findall(r"<table.*?</table>", text, re.DOTALL)
    for table in tables:
        assert re.search(r"<caption>\S", table)
        heads = re.findall(r"<th\b[^>]*>", table)
        assert heads
        assert all("scope=" in head for head in heads)


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_every_figure_says_what_it_shows(rich: Report, target: str) -> None:
    reading = Reading(html_of(rich, target))
    labels = (
        [str(attributes["alt"]) for attributes in reading.all("img")]
        if target == "pdf"
        else [str(attributes["aria-label"]) for attributes in reading.all("svg")]
    )
    assert len(labels) > 15
    assert all(re.search(r"\d", label) and len(label) > 15 for label in labels)


def test_the_pdf_page_caps_its_tables_and_says_so(rich: Report) -> None:
    text = html_of(rich, "pdf")
    tables = re.findall(r'<div class="table[^>]* id="([^"]*)".*?<tbody>(.*?)</tbody>', text, re.DOTALL)
    assert len(tables) > 20
    for id, rows in tables:  # the rules are all there, however many
        assert rows.count("<tr>") <= PDF_ROWS or id in ("summary-rules", "rules-overview"), id
    assert '<span class="note">first 10 of 340</span></caption>' in text
    assert "all rows of all tables in the attached report.json" in text
    assert html_of(rich).count("<tr>") > 340


def test_no_column_of_a_pdf_table_is_pushed_out(any_report: Report) -> None:
    content = context(any_report, quiet)
    for section in (content.summary, *content.sections, *(part for one in content.sections for part in one.parts)):
        tables = [*section.tables.values(), *(f.legend for f in section.figures.values() if f.legend)]
        for table in tables:
            if not table.pdf_rows:
                continue
            width, widths, texts = pdf_layout(table)
            assert 0 < width <= 100
            assert 99 < sum(widths) <= 100
            assert len(widths) == sum(not column.html_only for column in table.columns)
            assert [len(row) for row in texts] == [len(widths)] * len(table.rows[: table.pdf_rows])


def many_ranks(rich: Report, ranks: int) -> Report:
    """Copy the first rank to nodes of eight; each is a little slower than the last."""
    from postrun.analysis.report import DeviceTime, Idle, StepGroup, StepParts

    def location(rank: int) -> dict[str, object]:
        return {"node": f"node-{rank // 8:03d}", "rank": rank}

    def device(rank: int) -> DeviceTime:
        first = rich.time_breakdown[0]
        return dataclasses.replace(
            first, **location(rank), device=rank % 8, idle_ns=first.idle_ns + rank, computation_ns=first.computation_ns - rank
        )

    def group(rank: int) -> StepGroup:
        first = rich.steps.groups[0]
        slower = dataclasses.replace(first.quantiles, p50=first.quantiles.p50 + rank)
        steps = tuple(dataclasses.replace(step, **location(rank)) for step in first.slowest)
        return dataclasses.replace(first, **location(rank), quantiles=slower, slowest=steps)

    def parts(rank: int) -> StepParts:
        return dataclasses.replace(rich.steps.parts[0], **location(rank), mean_step_ns=rich.steps.parts[0].mean_step_ns + rank)

    def idle(rank: int) -> Idle:
        return dataclasses.replace(rich.idle[0], **location(rank), other_ns=rich.idle[0].other_ns + rank)

    every = range(ranks)
    steps = tuple(dataclasses.replace(step, **location(rank)) for rank in every for step in rich.steps.steps[:300])
    usage = rich.system_usage
    nodes = sorted({str(location(rank)["node"]) for rank in every})
    return dataclasses.replace(
        rich,
        nodes=tuple(dataclasses.replace(rich.nodes[0], hostname=node, gpus=8) for node in nodes),
        devices=tuple(dataclasses.replace(rich.devices[0], node=f"node-{rank // 8:03d}", index=rank % 8) for rank in every),
        processes=tuple(dataclasses.replace(rich.processes[0], node=f"node-{rank // 8:03d}", rank=rank) for rank in every),
        time_breakdown=tuple(map(device, every)),
        steps=dataclasses.replace(rich.steps, steps=steps, groups=tuple(map(group, every)), parts=tuple(map(parts, every))),
        idle=tuple(map(idle, every)),
        system_usage=dataclasses.replace(
            usage,
            nodes=tuple(dataclasses.replace(row, node=node) for node in nodes for row in usage.nodes[:5]),
            statements=tuple((node, "GPUs are well utilized.") for node in nodes),
            series=tuple(dataclasses.replace(series, node=node) for node in nodes for series in usage.series[:3]),
            heat=tuple(dataclasses.replace(usage.heat[0], node=node) for node in nodes),
        ),
    )


def test_128_ranks_are_drawn_as_their_extremes_and_the_median(rich: Report) -> None:
    content = context(many_ranks(rich, 128), quiet)
    text = page(content, "html")
    assert len(text) < 5_000_000
    sections = {section.id: section for section in content.sections}
    assert "all 128\u00a0ranks alike" in sections["time-breakdown"].figures["devices"].svg  # a few ns differ
    pooled = sections["steps"].figures["distribution"].svg
    assert not re.findall(r">rank \d+", pooled), "the steps of all ranks are one row"
    assert "of all processes" in sections["steps"].figures["distribution"].caption
    for section in (content.summary, *content.sections, *(part for one in content.sections for part in one.parts)):
        for figure in section.figures.values():
            height = float(re.search(r'height="([\d.]+)"', figure.svg)[1])  # type: ignore[index]
            assert height <= 460, figure.id


def test_nodes_of_one_median_are_named_together(rich: Report) -> None:
    usage = rich.system_usage
    same = tuple(dataclasses.replace(row, p50=90.8) for row in usage.nodes)
    text = html_of(dataclasses.replace(rich, system_usage=dataclasses.replace(usage, nodes=same)))
    assert "The median GPU utilization was 90.8% on both nodes." in text


def test_what_was_sampled_once_is_a_sentence(rich: Report) -> None:
    usage = rich.system_usage
    heat = tuple(dataclasses.replace(one, time_ns=one.time_ns[:1], values=tuple(row[:1] for row in one.values)) for one in usage.heat)
    series = tuple(
        dataclasses.replace(one, time_ns=one.time_ns[:1], mean=one.mean[:1], low=one.low[:1], high=one.high[:1]) for one in usage.series
    )
    text = html_of(dataclasses.replace(rich, system_usage=dataclasses.replace(usage, heat=heat, series=series)))
    assert "Sampled once only, so that nothing is to be drawn over time: node-0 (each GPU), node-1 (each GPU)." in text
    assert "system-usage-gpu-heat" not in text
    assert "system-usage-over-time" not in text


def test_steps_and_ranges_of_nearly_equal_length_are_no_block(small_reports: dict[str, Report]) -> None:
    report = small_reports["cpu"]
    group = report.steps.groups[0]
    flat = dataclasses.replace(group.quantiles, p5=180e6, p50=180e6, p95=180.5e6)
    steps = dataclasses.replace(report.steps, groups=(dataclasses.replace(group, quantiles=flat),))
    assert "steps-distribution" in html_of(report)
    assert "steps-distribution" not in html_of(dataclasses.replace(report, steps=steps))
    for number in (19, 20):  # fewer steps than 20 are a table alone
        short = dataclasses.replace(group, quantiles=dataclasses.replace(group.quantiles, count=number))
        text = html_of(dataclasses.replace(report, steps=dataclasses.replace(report.steps, groups=(short,))))
        assert ("steps-distribution" in text) is (number == 20)


def with_steps(report: Report, steps: Steps) -> str:
    return words_of(dataclasses.replace(report, steps=steps))


def words_of(report: Report) -> str:
    return " ".join(html_of(report).translate({0xA0: " ", 0x202F: " "}).split())


def test_profiled_steps_and_timelines_are_told_apart(rich: Report) -> None:
    profiled = tuple(
        dataclasses.replace(group, phase=None, quantiles=dataclasses.replace(group.quantiles, count=40)) for group in rich.steps.groups
    )
    marked = tuple(dataclasses.replace(step, phase=None) for step in rich.steps.steps)
    text = with_steps(rich, Steps((*rich.steps.steps, *marked), (*rich.steps.groups[:2], *profiled), (), None))
    assert "40 profiled steps on each of 8 processes, GPU time per step: medians from" in text
    assert "Timelines of the whole job: 300 TRAIN steps on each of 2 processes." in text
    assert "Only the profiled steps are drawn." in text


def test_of_few_steps_no_outer_percentile_is_told(small_reports: dict[str, Report]) -> None:
    report = small_reports["cpu"]
    group = report.steps.groups[0]
    short_group = dataclasses.replace(group, quantiles=dataclasses.replace(group.quantiles, count=9))
    text = with_steps(report, dataclasses.replace(report.steps, groups=(short_group,)))
    assert "9 steps: median 181 ms, fastest 171 ms, slowest 189 ms." in text
    assert ": median</th>" in text
    assert ": p95</th>" not in text


def test_where_all_wait_for_each_other_the_rank_that_computes_longest_is_shown(rich: Report) -> None:
    parts = tuple(
        dataclasses.replace(part, mean_step_ns=197e6 + rank, mean_ns={"kernel": 154e6 if rank == 5 else 138e6, "other": 43e6})
        for rank, part in enumerate(rich.steps.parts)
    )
    text = with_steps(rich, dataclasses.replace(rich.steps, parts=parts))
    assert "rank 5 computes longest (154 ms; the median rank 138 ms)" in text


def test_what_names_of_kernels_do_not_tell_is_said(rich: Report) -> None:
    unknown = (Share("unknown", 617, 1, 61.7), Share("FP32", 383, 1, 38.3))
    text = words_of(dataclasses.replace(rich, precision=Precision(unknown, (Share("TF32", 5, 1, 100.0),))))
    assert "The precision of 61.7% of the kernel time is unknown; matrix work" in text
    assert "takes only 0.5% of kernel time." in text
    assert "ran in unknown" not in text


def test_how_much_of_the_time_steps_fill(rich: Report) -> None:
    phases = (Share("step", 97, 10, 9.7), Share("other", 903, 1, 90.3))
    text = words_of(dataclasses.replace(rich, framework=dataclasses.replace(rich.framework, phases=phases)))
    assert "The steps fill 9.7% of the time from the first to the last step." in text
    complete = dataclasses.replace(rich.framework, phases=(Share("step", 1000, 10, 99.95), Share("other", 0, 1, 0.05)))
    assert "framework-phases" not in words_of(dataclasses.replace(rich, framework=complete))


def test_rows_that_are_drawn_are_both_ends_and_the_median() -> None:
    assert spread([5, 1, 9, 3, 7], 5, float) == [5, 1, 9, 3, 7]
    assert spread(list(range(101)), 5, float) == [0, 50, 98, 99, 100]
    assert len(spread([1.0] * 40, 12, float)) == 12


def test_figures_of_the_report_are_the_numbers_of_the_report(rich: Report) -> None:
    """Spot checks against the Report itself: the page shows its numbers, not others."""
    text = "".join(Reading(html_of(rich)).text).replace("\u00a0", " ").replace("\u202f", " ")
    device = rich.time_breakdown[3]
    assert f"{100 * device.computation_ns / device.span_ns:.1f}%" in text
    assert f"{rich.kernels[0].share_of_kernel_time:.1f}%" in text
    assert "340 kernels took" in text
    assert f"{rich.launches.pairs:,} launches" in text
    for tile in rich.summary.tiles:
        assert tile.value in text
    for note in rich.data_quality:
        assert note.message in text
    for source in rich.run.sources:
        assert str(source.sha256) in text


def test_texts_of_the_report_are_shown_as_they_are(rich: Report) -> None:
    summary = dataclasses.replace(rich.summary, headline="<i>A & B</i>", warnings=("w < 3",))
    text = html_of(dataclasses.replace(rich, summary=summary))
    assert "&lt;i&gt;A &amp; B&lt;/i&gt;" in text
    assert "w &lt; 3" in text


@pytest.mark.parametrize("name", ["cpu", "empty"])
def test_whole_pages_are_as_they_were(small_reports: dict[str, Report], name: str) -> None:
    """The pages are the golden ones.

    After an intended change: POSTRUN_UPDATE_GOLDEN=1 python -m pytest tests/report_templates, then review the difference.
    """
    # Style and script are files of their own, drawings differ between versions of Matplotlib: the text is what is compared.
    text = re.sub(r"(<(style|script|svg)\b[^>]*>).*?(</\2>)", r"\1\3", html_of(small_reports[name]), flags=re.DOTALL)
    text = re.sub(r"sha256-[^']*", "sha256-", text)
    outputs = {f"{name}.html": text, f"{name}.json": small_reports[name].to_json()}
    for file, text in outputs.items():
        golden = GOLDEN / file
        if os.environ.get("POSTRUN_UPDATE_GOLDEN"):
            golden.parent.mkdir(exist_ok=True)
            golden.write_text(text, encoding="utf-8")
        assert text == golden.read_text(encoding="utf-8")


def test_names_shortened_to_a_column_do_not_read_the_same() -> None:
    from postrun.report_templates.output.pdf_tables import _fit

    names = [f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_{layout}_n_tilesize128x128x64" for layout in ("nt", "tn")]
    shortened = _fit([*names, names[0], "short"], 40, code=True)
    assert shortened[0] == shortened[2] != shortened[1]
    assert all(len(text) < 50 for text in shortened)
    assert shortened[3] == "short"


def test_shortened_names_are_no_wider_than_their_column_where_wide_letters_are_left() -> None:
    from postrun.report_templates.output.pdf_tables import _characters, _fit

    names = ["MMMMMMMMMM" + "i" * 40 + "WWWWWWWWWW", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "×" * 60]
    for room in (12.0, 20.5, 33.0):
        assert all(_characters(short) <= room for short in _fit(names, room, code=False))


@pytest.mark.parametrize("top", [3, 25])
def test_the_pdf_lists_as_many_kernels_as_were_asked_for(rich: Report, top: int) -> None:
    text = html_of(dataclasses.replace(rich, options=rich.options | {"top": top}), "pdf")
    start = text.index("Kernels by total time")
    kernels = text[start : text.index("</table>", start)]
    assert kernels.count("<tr") - 1 == top
    assert f"first {top} of 340</span>" in kernels
