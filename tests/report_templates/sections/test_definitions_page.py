"""The entries of docs/definitions.md for every section and every tile of a report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from postrun.analysis.report import Report
from postrun.analysis.run import summary_tiles
from postrun.report_templates.output.section_list import SECTIONS


@pytest.fixture(scope="module")
def page(project_root: Path) -> str:
    file = project_root / "docs" / "definitions.md"
    if not file.is_file():
        pytest.skip("no documents beside the tests")
    return file.read_text(encoding="utf-8")


def test_every_section_of_the_report_has_its_definitions(page: str, small_reports: dict[str, Report]) -> None:
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    titles = [build(small_reports["empty"]).title for build in SECTIONS]
    titles.insert(-1, "Timeline")
    assert headings == ["Common ground", "Summary: the first page", *titles, "Names of data loading"]


def test_every_tile_has_its_definition(page: str) -> None:
    first_page = page.split("## Summary", 1)[1].split("\n## ", 1)[0].lower()
    code = Path(summary_tiles.__file__).read_text(encoding="utf-8")
    labels = set(re.findall(r'(?:Tile|_unknown)\("\w+", "([^"]+)"', code)) | set(re.findall(r'key, label.* = "\w+", "([^"]+)"', code))
    assert {
        "GPU busy",
        "GPU use, job mean",
        "MFU",
        "step time",
        "exposed communication",
        "data loading",
        "lower precision",
        "longest step",
    } <= labels
    assert not [label for label in labels if label.lower() not in first_page]


def test_every_entry_has_a_meaning_and_every_section_a_source(page: str) -> None:
    body = page.split("## Summary", 1)[1].split("## Names of data loading", 1)[0]
    sections = re.split(r"^## ", body, flags=re.MULTILINE)
    assert not [section.splitlines()[0] for section in sections if "\n\n*From:* " not in section]
    rows = [row for row in re.findall(r"^\| (.+?) \| (.+) \|$", body, re.MULTILINE) if row[0] != "figure"]
    assert len(rows) > 70
    names = [name for name, _ in rows if name not in ("exposed communication", "step time", "MFU")]  # also tiles
    assert len(set(names)) == len(names)
    assert all(len(meaning) > 10 for _, meaning in rows)
