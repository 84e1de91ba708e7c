"""The files of render(): their content, the same bytes each time, and the error of a failing PDF."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pikepdf
import pytest
from postrun.analysis.report import Report
from postrun.errors import RenderError, UsageError
from postrun.report_templates.output import pdf as pdf_module
from postrun.report_templates.output.render import render
from postrun.report_templates.text import glyphs

HERE = Path(__file__).parent.parent

RENDER = """
import importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("made", sys.argv[1])
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
from postrun.report_templates.output.render import render
render(made.MAKERS[sys.argv[2]](), pathlib.Path(sys.argv[3]))
"""


@pytest.fixture(scope="session")
def rendered(rich: Report, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return render(rich, tmp_path_factory.mktemp("rich"))


@pytest.fixture(scope="session")
def document(rendered: dict[str, Path]) -> Iterator[pikepdf.Pdf]:
    with pikepdf.open(rendered["pdf"]) as opened:
        yield opened


def test_the_formats_asked_for_are_written_and_named(rich: Report, rendered: dict[str, Path]) -> None:
    assert {kind: path.name for kind, path in rendered.items()} == {"html": "report.html", "pdf": "report.pdf", "json": "report.json"}
    assert sorted(path.name for path in rendered["html"].parent.iterdir()) == ["report.html", "report.json", "report.pdf"]
    assert rendered["json"].read_text(encoding="utf-8") == rich.to_json()


def test_only_json_needs_neither_matplotlib_nor_jinja(tmp_path: Path) -> None:
    code = (
        RENDER.replace("sys.argv[3]))", "sys.argv[3]), ('json',))")
        + "\nprint(sorted({'matplotlib', 'jinja2', 'weasyprint'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(HERE / "conftest.py"), "empty", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.slow
def test_render_is_the_same_by_each_of_its_names() -> None:
    """The module and the function keep their names, whichever is imported first."""
    code = "import {}; import postrun, postrun.report_templates.output.render as m; print(postrun.render is m.render, callable(m))"
    for first in ("postrun", "postrun.report_templates", "postrun.report_templates.output.render"):
        result = subprocess.run([sys.executable, "-c", code.format(first)], capture_output=True, text=True, check=True)
        assert result.stdout == "True False\n"
    assert set(vars(sys.modules["postrun.report_templates"])) & {"__getattr__", "__all__"} == set()


def test_importing_the_package_is_cheap() -> None:
    code = "import sys, postrun.report_templates; print(sorted({'matplotlib', 'jinja2', 'weasyprint', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(("formats", "paper"), [(("html", "docx"), "A4"), (("html",), "A5")])
def test_a_wrong_word_is_a_usage_error(small_reports: dict[str, Report], tmp_path: Path, formats: tuple[str, ...], paper: str) -> None:
    with pytest.raises(UsageError, match="choose from"):
        render(small_reports["empty"], tmp_path, formats, paper=paper)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_equal_reports_give_equal_bytes_whatever_the_process(tmp_path: Path) -> None:
    for name, extra in (("a", {"PYTHONHASHSEED": "1", "TZ": "UTC"}), ("b", {"PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo", "LC_ALL": "C"})):
        environment = {**os.environ, **extra}
        command = [sys.executable, "-c", RENDER, str(HERE / "conftest.py"), "system", str(tmp_path / name)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
    for file in ("report.html", "report.json", "report.pdf"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_rendering_does_not_load_matplotlib(tmp_path: Path) -> None:
    code = RENDER + "\nprint('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(HERE / "conftest.py"), "system", str(tmp_path)], capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_a_lone_surrogate_in_a_name_reaches_json_as_its_escape(small_reports: dict[str, Report], tmp_path: Path) -> None:
    import dataclasses

    report = small_reports["empty"]
    report = dataclasses.replace(report, run=dataclasses.replace(report.run, name="bad \udc80 name"))
    written = render(report, tmp_path, ("html", "json"))
    assert json.loads(written["json"].read_bytes())["run"]["name"] == "bad \udc80 name"
    assert r"bad \udc80 name" in written["html"].read_text(encoding="utf-8")


# -- the PDF ---------------------------------------------------------------------------------------------------------------


def test_report_json_is_attached_with_its_relationship_and_time(document: pikepdf.Pdf, rendered: dict[str, Path]) -> None:
    assert list(document.attachments) == ["report.json"]
    attached = document.attachments["report.json"]
    assert attached.get_file().read_bytes() == rendered["json"].read_bytes()
    assert attached.obj.AFRelationship == "/Data"
    assert [file.UF for file in document.Root.AF] == ["report.json"]
    assert attached.get_file().obj.Params.CreationDate == attached.get_file().obj.Params.ModDate
    assert "20261121070140" in str(attached.get_file().obj.Params.ModDate)


def test_title_language_and_tags(document: pikepdf.Pdf) -> None:
    assert str(document.docinfo["/Title"]) == "resnet50-ddp: postrun report"
    assert str(document.Root.Lang) == "en"
    assert bool(document.Root.MarkInfo.Marked)


def test_bookmarks_are_the_sections(document: pikepdf.Pdf) -> None:
    with document.open_outline() as outline:
        titles = [str(item.title) for item in outline.root]
    assert titles[0] == "Summary"
    assert titles[1].split()[:2] == ["1", "Findings"]
    number = len(titles) - 1
    assert titles[-2:] == [f"{number - 1} All rules", f"{number} Appendix"]
    assert number == 8


def walk(node: Any) -> Iterator[Any]:
    if isinstance(node, pikepdf.Dictionary):
        if "/S" in node:
            yield node
        children = node.get("/K")
        for child in children if isinstance(children, pikepdf.Array) else [children] if children is not None else []:
            yield from walk(child)


def test_every_figure_has_an_alternative_text(document: pikepdf.Pdf) -> None:
    figures = [node for node in walk(document.Root.StructTreeRoot) if node.S == "/Figure"]
    assert len(figures) > 15
    assert all(len(str(figure.get("/Alt", ""))) > 15 for figure in figures)


def test_it_has_a_sensible_number_of_a4_pages(document: pikepdf.Pdf) -> None:
    assert 8 <= len(document.pages) <= 16
    left, bottom, right, top = (float(value) for value in document.pages[0].mediabox)
    assert (right - left, top - bottom) == pytest.approx((595.3, 841.9), abs=0.1)


def fonts_of(document: pikepdf.Pdf) -> set[str]:
    """Return the names of the fonts; each must be embedded."""
    fonts = [font for page in document.pages for font in page.get("/Resources", {}).get("/Font", {}).values()]
    assert all("/FontFile2" in font.DescendantFonts[0].FontDescriptor for font in fonts)
    return {str(font.BaseFont).split("+")[-1].lstrip("/") for font in fonts}


def test_fonts_are_inter_and_roboto_mono_and_embedded(document: pikepdf.Pdf) -> None:
    names = fonts_of(document)
    assert {"Inter", "Inter-Bold", "Roboto-Mono"} <= names
    assert {name.split("-")[0] for name in names} <= {"Inter", "Roboto", "DejaVu"}  # which has some characters that they lack


WITHOUT_FONTS = """
import sys
sys.modules.update(fontpkg_inter=None, fontpkg_roboto_mono=None)
from postrun.report_templates.output import pdf
"""


@pytest.mark.slow
def test_without_the_packages_of_fonts_all_is_in_dejavu(tmp_path: Path) -> None:
    code = WITHOUT_FONTS + RENDER.replace("sys.argv[3]))", "sys.argv[3]), printer=pdf.PrinterHere())")
    command = [sys.executable, "-c", code, str(HERE / "conftest.py"), "cpu", str(tmp_path)]
    subprocess.run(command, check=True, timeout=120)
    with pikepdf.open(tmp_path / "report.pdf") as opened:
        assert fonts_of(opened) <= {"DejaVu-Sans", "DejaVu-Sans-Bold", "DejaVu-Sans-Mono"}
    assert "@font-face" not in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_names_that_no_font_can_show_are_escaped_and_noted(
    small_reports: dict[str, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glyphs, "has_glyph", lambda one: one not in "数据\U0001f680")
    report = small_reports["cpu"]
    named = dataclasses.replace(report, run=dataclasses.replace(report.run, name="数据 \U0001f680 run"))
    contents = []
    for folder in ("first", "second"):
        notes: list[str] = []
        written = render(named, tmp_path / folder, notes=notes)
        (note,) = notes
        assert note.startswith("3 characters have no glyph in the fonts of the PDF")
        contents.append(written["pdf"].read_bytes())
    assert contents[0] == contents[1]
    text = subprocess.run(["pdftotext", "-raw", str(written["pdf"]), "-"], capture_output=True, text=True, check=True).stdout
    words = " ".join(text.split())
    assert r"\u6570\u636e \U0001f680 run" in words
    assert "3 characters have no glyph in the fonts of the PDF, which has escapes instead:" in words
    assert not set("数据\U0001f680") & set(text)
    page = written["html"].read_text(encoding="utf-8")
    assert "数据 \U0001f680 run" in page
    assert "no glyph" not in page


@pytest.mark.slow
def test_letter_paper(small_reports: dict[str, Report], tmp_path: Path) -> None:
    with pikepdf.open(render(small_reports["empty"], tmp_path, ("pdf",), paper="letter")["pdf"]) as opened:
        assert [float(value) for value in opened.pages[0].mediabox] == [0, 0, 612, 792]


def pdf_text(path: Path) -> str:
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed (apt-get install poppler-utils)")
    return subprocess.run(["pdftotext", "-layout", str(path), "-"], capture_output=True, text=True, check=True).stdout


def test_pages_have_running_headers_and_numbers(rendered: dict[str, Path], document: pikepdf.Pdf) -> None:
    pages = pdf_text(rendered["pdf"]).rstrip("\f").split("\f")
    total = len(document.pages)
    assert len(pages) == total
    for number, text in enumerate(pages, 1):
        assert f"page {number} of {total}" in text
        assert "2026-11-21 07:01:40" in text
        if number > 1:
            assert "resnet50-ddp" in text.lstrip().splitlines()[0]


def test_the_first_page_has_no_hidden_text(rendered: dict[str, Path]) -> None:
    first = pdf_text(rendered["pdf"]).split("\f")[0]
    assert first.count("resnet50-ddp") == 1
    assert first.count("2026-11-21 07:01:40") == 1
    assert "Summary" not in first
    assert "GPUs were busy 61% of the time. 19% of it waited for communication" in " ".join(first.replace("\u00a0", " ").split())


def test_the_contents_name_the_page_of_each_section(rendered: dict[str, Path]) -> None:
    pages = pdf_text(rendered["pdf"]).split("\f")
    contents = next(page for page in pages if "· 2 Where the time goes (" in " ".join(page.split()))
    entries = re.findall(r"(\d+) ([A-Z][A-Za-z ]+) \((\d+)\)", " ".join(contents.split()))
    assert len(entries) == 8
    for number, title, page in entries:
        assert re.search(rf"^\s*{number}\s+{title}\s*$", pages[int(page) - 1], re.MULTILINE), (number, title, page)


def test_no_text_stands_in_the_margins(rendered: dict[str, Path]) -> None:
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed (apt-get install poppler-utils)")
    boxes = subprocess.run(["pdftotext", "-bbox", str(rendered["pdf"]), "-"], capture_output=True, text=True, check=True).stdout
    margin = 14 / 25.4 * 72
    words = [(float(low), float(high), word) for low, high, word in re.findall(r'xMin="([\d.]+)".*?xMax="([\d.]+)".*?>(.*?)</word>', boxes)]
    assert len(words) > 1000
    assert [word for low, high, word in words if low < margin - 1 or high > 595.3 - margin + 1] == []


def test_qpdf_finds_no_fault(rendered: dict[str, Path]) -> None:
    if shutil.which("qpdf") is None:
        pytest.skip("qpdf is not installed (apt-get install qpdf)")
    checked = subprocess.run(["qpdf", "--check", str(rendered["pdf"])], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


# -- when it fails ---------------------------------------------------------------------------------------------------------


def failing(report: Report, folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, timeout_s: float = 60) -> RenderError:
    """Return the error of a render() whose PDF process runs ``code``.

    HTML and JSON exist, but not the older PDF.
    """
    real = subprocess.Popen

    def start(command: list[str], **settings: Any) -> Any:
        return real([sys.executable, "-c", code], **settings)

    monkeypatch.setattr(pdf_module.subprocess, "Popen", start)
    (folder / "report.pdf").write_bytes(b"of another run")
    with pytest.raises(RenderError) as caught:
        render(report, folder, pdf_timeout_s=timeout_s)
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json"]
    assert caught.value.written == {"html": folder / "report.html", "json": folder / "report.json"}
    assert str(folder / "report.html") in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", r"crashed \(SIGSEGV\).*fonts-dejavu-core"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL, most likely for want of memory"),
        ("raise SystemExit('no such thing')", "ended with code 1: no such thing"),
        ("import sys; sys.stdin.readline(); print('{}')", "left no file"),
        ('import sys; sys.stdin.readline(); print(\'{"error": "WeasyPrint failed: X"}\')', "WeasyPrint failed: X"),
    ],
)
def test_a_dead_pdf_process_is_a_clear_reason(
    small_reports: dict[str, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    error = failing(small_reports["empty"], tmp_path, monkeypatch, code)
    assert re.search(reason, str(error))


def test_a_pdf_that_takes_too_long_is_ended(small_reports: dict[str, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = failing(small_reports["empty"], tmp_path, monkeypatch, "import time; time.sleep(60)", timeout_s=0.3)
    assert "not done within 0.3 s" in str(error)


def test_a_missing_pango_names_the_packages_and_keeps_its_banner_off_standard_output(
    tmp_path: Path, small_reports: dict[str, Report], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "path" / "weasyprint"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("print('BANNER')\nraise OSError(\"cannot load library 'libgobject-2.0-0'\")\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    with pytest.raises(RenderError, match=r"libgobject-2\.0-0.*apt-get install libpango-1\.0-0"):
        render(small_reports["empty"], tmp_path / "out")
    assert capfd.readouterr().out == ""
    assert (tmp_path / "out" / "report.html").is_file()


def test_the_pdf_process_may_not_read_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    page, attached, output = tmp_path / "page.html", tmp_path / "a.json", tmp_path / "x.pdf"
    page.write_text(f'<!doctype html><title>x</title><img alt="x" src="{secret.as_uri()}"><link rel=attachment href="{secret.as_uri()}">')
    attached.write_text("{}")
    with pdf_module.Printer() as printer:
        printer.start(pdf_module.Job(str(page), str(attached), str(output), 0))
        printer.attach()
        reason = printer.finish(60)
    assert reason is not None
    assert "WeasyPrint failed" in reason
    assert not output.exists()
