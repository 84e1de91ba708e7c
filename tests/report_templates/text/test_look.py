"""The options of a report's look: sections, theme, title, and logo."""

from __future__ import annotations

import base64
import copy
import io
import random
import re
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from postrun.analysis.report import Report
from postrun.analysis.timeline.model import NOTHING
from postrun.errors import UsageError
from postrun.report_templates.blocks import Section
from postrun.report_templates.output import section_list
from postrun.report_templates.output.chapters import chapters
from postrun.report_templates.output.pages import page
from postrun.report_templates.output.render import render
from postrun.report_templates.output.section_list import SECTIONS, context, name_of
from postrun.report_templates.text.logo import LARGEST, Logo, read_logo, with_alt
from postrun.report_templates.text.look import Look
from postrun.report_templates.text.section_names import GROUPS, NAMES, checked, left_out

SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 40 20">{}</svg>'
GOOD = SVG.format(
    '<style>.a{fill:url(#g)}</style><linearGradient id="g"/><use xlink:href="#r"/>'
    '<rect id="r" class="a" style="fill:url(#g)" width="9" height="9"/>'
)


def quiet(text: str, fraction: float | None) -> None:
    """No progress."""


def dangling(text: str) -> set[str]:
    """Ids that links and labels of a page name and that it does not have."""
    ids = re.findall(r'\sid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    named = set(re.findall(r'<a\b[^>]*\shref="#([^"]*)"', text))
    for labels in re.findall(r'aria-(?:labelledby|describedby|controls)="([^"]*)"', text):
        named |= set(labels.split())
    return named - set(ids)


def sections_of(text: str) -> list[str]:
    return re.findall(r'<section id="([^"]*)"', text)


def kept(build: Callable[[Report], Section], sections: dict[str, Section], report: Report) -> Section:
    """Return the section, which is drawn once for all pages of this file."""
    name = name_of(build)
    if name not in sections:
        sections[name] = build(report)
    return copy.copy(sections[name])


def drawn_once(monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    sections: dict[str, Section] = {}
    builds = []
    for build in SECTIONS:
        again = partial(kept, build, sections)
        again.__name__ = build.__name__  # type: ignore[attr-defined]
        builds.append(again)
    monkeypatch.setattr(section_list, "SECTIONS", tuple(builds))


# -- sections --------------------------------------------------------------------------------------------------------------


def test_the_names_are_those_of_the_sections(small_reports: dict[str, Report]) -> None:
    content = context(small_reports["cpu"], quiet, NOTHING, Look(sections=NAMES))
    assert tuple(section.id for section in content.sections) == (*NAMES, "appendix")
    assert set().union(*GROUPS.values()) < set(NAMES)
    assert not set(GROUPS) & set(NAMES)


def test_every_subset_of_sections_has_no_link_to_nowhere(rich: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_once(monkeypatch, rich)
    chance = random.Random(3)
    subsets = [[], *[chance.sample(NAMES, chance.randint(1, len(NAMES) - 1)) for _ in range(10)]]
    subsets += [[name for name in NAMES if name != one] for one in ("rules", "steps", "time-breakdown", "system-usage")]
    for number, subset in enumerate(subsets):
        words = tuple(subset) or tuple(f"-{name}" for name in NAMES)
        look = Look(sections=words)
        content = context(rich, quiet, NOTHING, look)
        text = page(content, "pdf" if number % 3 else "html")
        assert dangling(text) == set(), subset
        wanted = [name for name in NAMES if name in subset]
        listed = [one.id for one in content.sections if not number % 3 or not one.html_only]
        assert sorted([one.id for one in content.sections]) == sorted([*wanted, "appendix"])
        assert sorted(sections_of(text)) == sorted(["summary", *listed])
        match = re.search(r"Sections left out: ([^;]*);", text)
        assert match is not None
        assert match[1].split(", ") == [name for name in NAMES if name not in subset]
        assert set(re.findall(r"More in ([^.<]*)\.", re.sub(r"<[^>]*>", "", text))) <= {part.title for part in content.sections}
        assert ('href="#rules"' in text) == ("rules" in subset)


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_sections_without_content_are_gathered_with_their_reasons(small_reports: dict[str, Report], target: str) -> None:
    report = small_reports["cpu"]
    named = context(report, quiet, NOTHING, Look(sections=NAMES))
    empty = {section.id: section for section in named.sections if section.empty}
    assert {"time-breakdown", "kernels", "timeline"} < set(empty)
    assert "steps" not in empty
    content = context(report, quiet, NOTHING)
    text = page(content, target)
    assert sections_of(text) == [
        "summary",
        *(one.id for one in content.sections if target == "html" or not one.html_only),
        *["dashboard"] * (target == "html"),
    ]
    assert [one.id for one in content.sections] == [*(name for name in NAMES if name not in empty), "without-content", "appendix"]
    contents = text.partition('<nav id="contents"')[2].partition("</nav>")[0]
    last = ["without-content", "appendix", "dashboard"] if target == "html" else ["run-facts"]
    assert re.findall(r'href="#([^"]*)"', contents)[-len(last) :] == last
    assert not set(re.findall(r'href="#([^"]*)"', contents)) & set(empty)
    gathered = text.partition('<section id="without-content"')[2].partition("</section>")[0]
    titles = re.findall(r"<dt>([^<]*)</dt>" if target == "html" else r"<span[^>]*>([^<]*)</span>", gathered)
    assert titles == [section.title for section in empty.values()]
    assert re.findall(r'<(?:div|span) id="([^"]*)">', gathered) == list(empty)
    leads = [section.lead in gathered for section in empty.values()]
    assert leads == [target == "html"] * len(empty), "the PDF has the names alone"
    assert f"{len(empty)}\u00a0sections have no data in this run" in gathered
    assert dangling(text) == set()


@pytest.mark.parametrize(
    ("words", "named"), [(None, False), (("-rules",), False), (("kernels",), True), (("gpu", "-kernels"), True), (("summary",), True)]
)
def test_a_section_that_is_asked_for_by_name_stays_in_its_place(
    small_reports: dict[str, Report], words: tuple[str, ...] | None, named: bool
) -> None:
    look = Look(sections=words)
    assert look.named is named
    ids = [section.id for section in context(small_reports["empty"], quiet, None, look).sections]
    assert ("without-content" in ids) is not named
    assert ("kernels" in ids) is ("kernels" in (words or ()))


def test_the_dashboard_is_folded_in_html_and_at_the_end_of_a_pdf_that_asks_for_it(rich: Report) -> None:
    plain, asked = (context(rich, quiet, None, Look(dashboard=dashboard)) for dashboard in (False, True))
    assert sections_of(page(plain, "html"))[-1] == "dashboard"
    assert re.search(r'<section id="dashboard"[^>]*>\s*<details class="fold">', page(plain, "html"))
    assert "dashboard" not in sections_of(page(plain, "pdf"))
    text = page(asked, "pdf")
    assert sections_of(text)[-1] == "dashboard"
    numbers = [int(number) for number in re.findall(r'<h3 id="panel-(\d+)">', text)]
    assert numbers == sorted(numbers)
    missing = re.search(r"Without data in this run: ([^<]*)\.", text)
    assert len(numbers) + (len(missing[1].split(", ")) if missing else 0) == 13
    rings = re.findall(r'<figure id="(dashboard-[^"]*)" class="ring">', text)
    assert {"dashboard-kernels-time", "dashboard-kernels-launches", "dashboard-precision-all"} <= set(rings)
    assert "dashboard" not in sections_of(page(context(rich, quiet, None, Look(sections=("kernels",), dashboard=True)), "html"))


def test_without_an_empty_section_there_is_no_section_for_them(small_reports: dict[str, Report]) -> None:
    report = small_reports["empty"]
    gone = tuple(f"-{name}" for name in NAMES)
    assert [section.id for section in context(report, quiet, None, Look(sections=gone)).sections] == ["appendix"]


@pytest.mark.slow
def test_the_bookmarks_of_the_pdf_are_those_of_its_sections(small_reports: dict[str, Report], tmp_path: Path) -> None:
    pikepdf = pytest.importorskip("pikepdf")
    content = context(small_reports["empty"], quiet)
    with pikepdf.open(render(small_reports["empty"], tmp_path, ("pdf",))["pdf"]) as opened:
        titles = [str(item.title) for item in opened.open_outline().root]
    assert titles[0] == "Summary"
    assert titles[-1].endswith(" Appendix")
    assert [title for title in titles if title.partition(" ")[0].isdigit()] == [
        f"{one.number} {one.title}" for one in chapters(content.sections)
    ]


def test_what_is_left_out_is_not_made(small_reports: dict[str, Report], monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def watched(build: Callable[[Report], Section]) -> Callable[[Report], Section]:
        def note_and_build(report: Report) -> Section:
            called.append(name_of(build))
            return build(report)

        note_and_build.__name__ = build.__name__
        return note_and_build

    monkeypatch.setattr(section_list, "SECTIONS", tuple(map(watched, SECTIONS)))
    context(small_reports["cpu"], quiet, NOTHING, Look(sections=("steps", "kernels")))
    assert called == ["steps", "kernels", "appendix"]


def test_report_json_is_whole_and_a_page_of_all_sections_says_nothing(small_reports: dict[str, Report], tmp_path: Path) -> None:
    report = small_reports["cpu"]
    complete = render(report, tmp_path / "a", ("html", "json"))
    part = render(report, tmp_path / "b", ("html", "json"), look=Look(sections=("steps",)))
    assert complete["json"].read_bytes() == part["json"].read_bytes()
    assert "Sections left out" not in complete["html"].read_text("utf-8")
    assert complete["html"].read_bytes() == render(report, tmp_path / "c", ("html",), look=Look(sections=("-timeline",)))[
        "html"
    ].read_bytes().replace(b" Sections left out: timeline; report.json contains their data.", b"")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("Steps", "launch_queue"), ["steps", "launch-queue"]),
        (("-rules",), [name for name in NAMES if name != "rules"]),
        (("system", "-gpu-memory", "summary", "appendix"), ["system-usage"]),
        (("-gpu", "-training", "-run", "-system"), ["findings", "timeline", "rules"]),
        (("summary",), []),
        (None, list(NAMES)),
    ],
)
def test_words_choose_sections(words: tuple[str, ...] | None, expected: list[str]) -> None:
    assert [name for name in NAMES if name not in left_out(words)] == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("kernel", "did you mean kernels"),
        ("lauches", "launches"),
        ("-summary", "always stays"),
        ("-", "names no section"),
        ("qqq", "accepted: "),
    ],
)
def test_an_unknown_section_is_answered_with_the_nearest(word: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        checked([word])
    with pytest.raises(UsageError, match=expected):
        Look(sections=(word,))


# -- theme and title -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
def test_the_theme_that_a_page_starts_with(small_reports: dict[str, Report], theme: str) -> None:
    content = context(small_reports["empty"], quiet, None, Look(theme=theme))
    start = re.search(r"<html[^>]*>", page(content, "html"))
    assert start is not None
    assert re.findall(r'data-theme="(\w+)"', start[0]) == ([] if theme == "auto" else [theme])
    assert "data-theme" not in page(content, "pdf")
    with pytest.raises(UsageError, match="choose from auto, light, dark"):
        Look(theme="blue")


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_a_title_of_ones_own_is_text(small_reports: dict[str, Report], target: str) -> None:
    text = page(context(small_reports["empty"], quiet, None, Look(title='R&D <b>"GPU"</b>')), target)
    assert "ProfilerReport" not in text
    assert "<title>empty: R&amp;D &lt;b&gt;&#34;GPU&#34;&lt;/b&gt;</title>" in text
    assert "postrun · <bdi>R&amp;D &lt;b&gt;" in text
    assert '<b>"GPU' not in text
    for wrong, expected in ((" ", "empty"), ("x" * 81, "81 characters")):
        with pytest.raises(UsageError, match=expected):
            Look(title=wrong)


# -- logo ------------------------------------------------------------------------------------------------------------------


def picture(kind: str, size: tuple[int, int] = (60, 20)) -> bytes:
    image = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    image.new("RGB", size, "purple").save(buffer, kind)
    return buffer.getvalue()


def test_a_logo_stands_in_the_page_with_its_text(small_reports: dict[str, Report], tmp_path: Path) -> None:
    for name, data, kind in (
        ("a.png", picture("PNG"), "png"),
        ("a.jpg", picture("JPEG"), "jpeg"),
        ("a.svg", GOOD.encode(), "svg+xml"),
        ("b.svg", b'<?xml version="1.0"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "x.dtd">' + GOOD.encode(), "svg+xml"),
    ):
        (tmp_path / name).write_bytes(data)
        logo = with_alt(read_logo(tmp_path / name), 'Example "Inc."', None)
        text = page(context(small_reports["empty"], quiet, None, Look(logo=logo)), "html")
        [source] = re.findall(r'<img class="logo" src="data:image/([\w+]+;base64,[^"]*)" alt="Example &#34;Inc.&#34;">', text)
        assert source == f"{kind};base64,{base64.b64encode(data).decode()}"
        assert "img-src data:;" in text


@pytest.mark.slow
def test_the_pdf_has_logo_and_title(small_reports: dict[str, Report], tmp_path: Path) -> None:
    pikepdf = pytest.importorskip("pikepdf")
    (tmp_path / "a.png").write_bytes(picture("PNG"))
    (tmp_path / "a.svg").write_bytes(GOOD.encode())
    for name in ("a.png", "a.svg"):
        look = Look(sections=("information",), title="GPU report", logo=read_logo(tmp_path / name))
        with pikepdf.open(render(small_reports["empty"], tmp_path, ("pdf",), look=look)["pdf"]) as opened:
            assert str(opened.docinfo["/Title"]) == "empty: GPU report"
            images = [one for one in opened.objects if isinstance(one, pikepdf.Stream) and one.get("/Subtype") == "/Image"]
            assert len(images) == (name == "a.png")


def test_the_text_of_a_logo() -> None:
    logo = Logo("data:image/png;base64,AA==")
    assert [made and made.alt for made in (with_alt(logo, None, None), with_alt(logo, None, "T"), with_alt(logo, "A", "T"))] == [
        "Logo",
        "T",
        "A",
    ]
    assert with_alt(None, None, "T") is None
    for wrong in (lambda: with_alt(None, "A", None), lambda: with_alt(logo, " ", None), lambda: Logo("https://example.com/a.png")):
        with pytest.raises(UsageError):
            wrong()


@pytest.mark.parametrize(
    "inside",
    [
        "<script>1</script>",
        "<x:script xmlns:x='http://www.w3.org/2000/svg'>1</x:script>",
        '<rect onclick="1"/>',
        '<image href="http://example.com/a.png"/>',
        '<image xlink:href=" file:///etc/passwd"/>',
        '<image href="data:image/svg+xml,%3Csvg/%3E"/>',
        '<a href="javascript:1"/>',
        '<use href="other.svg#a"/>',
        "<foreignObject/>",
        '<rect fill="url(http://example.com/a)"/>',
        '<rect style="fill:u\\72l(http://example.com/a)"/>',
        "<style>@import 'a.css';</style>",
        "<style><![CDATA[a{fill:url( 'x.svg#a')}]]></style>",
        '<set attributeName="href" to="https://example.com/a"/>',
        '<g xml:base="http://example.com/"/>',
    ],
)
def test_an_svg_that_runs_or_loads_is_refused(tmp_path: Path, inside: str) -> None:
    (tmp_path / "a.svg").write_text(SVG.format(inside))
    with pytest.raises(UsageError, match=r"a\.svg: the SVG .*; export it as plain SVG or as PNG"):
        read_logo(tmp_path / "a.svg")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "is empty"),
        (b"GIF89a", "is neither PNG nor JPEG nor SVG"),
        (b"<html></html>", "is not an SVG"),
        (b"<svg", "is a broken SVG"),
        (b'<!DOCTYPE svg [<!ENTITY a "b">]><svg/>', "declares entities"),
        (b'<?xml-stylesheet href="a.css"?><svg/>', "style sheet"),
        (b"\xff\xd8\xff", "is a broken JPEG"),
        (b"\x89PNG\r\n\x1a\n", "is a broken PNG"),
        (b"<svg>" + b" " * LARGEST, "is larger than 256 KiB"),
    ],
)
def test_a_broken_or_huge_logo_is_named(tmp_path: Path, data: bytes, expected: str) -> None:
    (tmp_path / "logo").write_bytes(data)
    with pytest.raises(UsageError, match=rf"logo: .*{expected}.*(give|export)"):
        read_logo(tmp_path / "logo")


def test_a_logo_that_has_too_many_pixels_or_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "wide.png").write_bytes(picture("PNG", (4097, 1)))
    for name, expected in (("wide.png", "4097 x 1 pixels; scale it down"), ("none.png", "cannot be read")):
        with pytest.raises(UsageError, match=rf"{name}: .*{expected}"):
            read_logo(tmp_path / name)


@pytest.mark.parametrize("level", [0, 1, 9])
def test_a_png_that_is_cut_off_anywhere_is_refused(tmp_path: Path, level: int) -> None:
    """A PNG without its end mark is refused, at any compression.

    The file is made by hand, because its size depends on the library and the processor that compress it. The last four bytes are the
    checksum of an end mark without content.
    """
    complete = png_by_hand(60, 20, level)
    (tmp_path / "whole.png").write_bytes(complete)
    read_logo(tmp_path / "whole.png")
    for length in [*range(8, 100), *range(len(complete) - 60, len(complete) - 3)]:
        (tmp_path / "cut.png").write_bytes(complete[: min(length, len(complete) - 5)])
        with pytest.raises(UsageError, match=r"cut\.png: is a broken PNG"):
            read_logo(tmp_path / "cut.png")


def png_by_hand(width: int, height: int, level: int) -> bytes:
    """Return a PNG (ISO/IEC 15948) of one color."""

    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = (b"\0" + b"\x80\0\x80" * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(rows, level)) + part(b"IEND", b"")
