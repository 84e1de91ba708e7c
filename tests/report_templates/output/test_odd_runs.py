"""The layout of reports of unusual runs: no overlap, no cut text, no empty figures, and no dead links.

The tests check the fast ones of the nine runs of tests/helpers/odd_runs.py, each at two widths. POSTRUN_ODD_RUNS=all checks all of them at
three widths and in both themes, with axe-core and the tab key, and the PDF of each on both papers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pdf_checks
import pytest
from odd_runs import QUICK, RUNS, write_odd_run
from postrun.analysis import analyze
from postrun.analysis.options import Options
from postrun.analysis.timeline.timelines import timeline_for
from postrun.ingest import ingest
from postrun.report_templates.output.pdf import PrinterHere
from postrun.report_templates.output.render import render
from postrun.report_templates.output.section_list import context

ALL = os.environ.get("POSTRUN_ODD_RUNS") == "all"
NAMES = tuple(RUNS) if ALL else QUICK
# The PDF takes longer than the rest: the smallest run, and the one with the largest number of names.
PRINTED = (
    [(name, paper) for name in NAMES for paper in ("A4", "Letter")] if ALL else [("one-kernel", "Letter"), ("5000-kernel-names", "A4")]
)
CHECKS = Path(__file__).resolve().parents[2] / "helpers" / "page_checks.js"
MADE_AT_NS = 1_772_539_200_000_000_000


def _views(name: str) -> list[dict[str, Any]]:
    if ALL:
        views: list[dict[str, Any]] = [{"width": width, "scheme": scheme} for width in (400, 1000, 1600) for scheme in ("light", "dark")]
        for view in views:
            view["axe"] = view["width"] != 1000 or view["scheme"] == "dark"
            view["tabs"] = view["width"] != 1000 and view["scheme"] == "light"
        return views
    close = name == "no-gpu"
    return [{"width": 1600, "scheme": "dark", "axe": close}, {"width": 400, "scheme": "light", "axe": close, "tabs": close}]


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, Any]]:
    """The report and the timeline of the run of that name, each made once."""
    outputs: dict[str, tuple[Any, Any]] = {}

    def reported(name: str) -> tuple[Any, Any]:
        if name not in outputs:
            run = write_odd_run(name, tmp_path_factory.mktemp("odd") / name)
            with ingest([str(run)]) as store:
                report = analyze(store, Options(generated_at_ns=MADE_AT_NS, name=name))
                outputs[name] = report, timeline_for(store, report, ("html", "pdf"), 50_000)
        return outputs[name]

    return reported


@pytest.fixture(scope="session")
def looks(
    node_modules: Path, reported: Callable[[str], tuple[Any, Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[list[str]]]:
    """The faults of every view of every run's page, found in one browser."""
    node, chromium = shutil.which("node"), shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    if node is None or chromium is None:
        pytest.skip("no node or no chromium (apt-get install nodejs chromium)")
    jobs = []
    for name in NAMES:
        report, timeline = reported(name)
        file = render(report, tmp_path_factory.mktemp("page"), ("html",), timeline=timeline)["html"]
        jobs.append({"file": str(file), "views": _views(name)})
    done = subprocess.run([node, CHECKS, node_modules, chromium, json.dumps(jobs)], capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr
    return dict(zip(NAMES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_whole_at_every_width(looks: dict[str, list[list[str]]], name: str) -> None:
    faults = [f"{view['width']} px, {view['scheme']}: {fault}" for view, of in zip(_views(name), looks[name], strict=True) for fault in of]
    assert faults == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "paper"), PRINTED)
def test_the_pdf_is_whole_and_its_structure_too(reported: Callable[[str], tuple[Any, Any]], tmp_path: Path, name: str, paper: str) -> None:
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed (apt-get install poppler-utils)")
    report, timeline = reported(name)
    file = render(report, tmp_path, ("pdf",), paper=paper, printer=PrinterHere(), timeline=timeline)["pdf"]
    result = pdf_checks.pages(file)
    assert pdf_checks.faults_of_text(result) == []
    sections = context(report, lambda text, fraction: None, timeline).sections
    titles = [section.title for section in sections if not section.html_only]
    assert pdf_checks.faults_of_structure(file, titles) == []
    # Except the last page and the first, none is left empty by half.
    assert [number for number, page in enumerate(result[1:-1], 2) if page.open > 0.6] == []


BROKEN = """<!doctype html><html lang="en"><head><title>t</title></head><body><main>
<p id="a" style="width:60px;overflow:hidden;white-space:nowrap">a sentence that is cut</p><p id="a">again</p>
<table style="table-layout:fixed;width:60px"><tr><td style="white-space:nowrap">a cell that reaches further</td><td>x</td></tr></table>
<a href="#nowhere">b</a><img src="data:," width="5" height="5"><div style="width:3000px">wide</div>
<figure id="f"><svg viewBox="0 0 100 50" width="100" height="50" aria-label="f"><text x="2" y="20">one</text><text x="8" y="21">two</text>
<text x="90" y="40">outside</text><line x1="0" x2="9" y1="0" y2="0"/></svg></figure></main></body></html>"""


def test_the_check_sees_each_fault_itself(node_modules: Path, tmp_path: Path) -> None:
    node, chromium = shutil.which("node"), shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    if node is None or chromium is None:
        pytest.skip("no node or no chromium (apt-get install nodejs chromium)")
    file = tmp_path / "broken.html"
    file.write_text(BROKEN)
    job = json.dumps([{"file": str(file), "views": [{"width": 800, "scheme": "light", "tabs": True}]}])
    done = subprocess.run([node, CHECKS, node_modules, chromium, job], capture_output=True, text=True, timeout=180, check=True)
    ((result,),) = json.loads(done.stdout)
    for words in (
        "px wider than the window", "cut at the right: page: p", "stands out of its box by", "an empty figure: f", "outside its figure: f",
        '"one" and "two" overlap', "the id a is there 2 times", "leads nowhere: #nowhere", "no alternative text: page: img",
        "is no link past the contents",
    ):  # fmt: skip
        assert any(words in fault for fault in result), (words, result)
