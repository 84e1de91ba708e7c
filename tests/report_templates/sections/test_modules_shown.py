"""The section "Modules": the tree, the flame graph of GPU time, and lines, of hand-made rows."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from postrun.analysis.report import Report
from postrun.analysis.report.modules import Module, ModuleCoverage, SourceLine
from postrun.report_templates.blocks import Section
from postrun.report_templates.figures.svg import WIDE
from postrun.report_templates.output.pages import page
from postrun.report_templates.output.section_list import context
from postrun.report_templates.sections.data_quality import data_quality
from postrun.report_templates.sections.modules import modules

MS = 1_000_000
HOSTILE = '"><script>alert(1)</script>'
# Net takes 60 ms (10 of its own), in it a 30 and b 20 (5 of its own, c 15), and 20 ms are outside.
ROWS = (
    Module("Net", 60 * MS, 10 * MS, 40 * MS, 2, 600, 70 * MS, 5 * MS),
    Module("Net/a", 30 * MS, 30 * MS, 20 * MS, 2, 300, 30 * MS, 0),
    Module("Net/b", 20 * MS, 5 * MS, 10 * MS, 4, 200, 20 * MS, 0),
    Module("Net/b/c", 15 * MS, 15 * MS, 10 * MS, 4, 100, 10 * MS, 0),
    Module("", 20 * MS, 20 * MS, 0, 0, 50, 0, 0),
)
LINES = (
    SourceLine("/home/me/project/train.py:12", "forward", "Net/a", 50 * MS, 30 * MS, 500, 40 * MS, 5 * MS),
    SourceLine("", None, None, 30 * MS, 0, 150, 0, 0),
)
COVERAGE = ModuleCoverage(75.0, 62.5, "module calls")


def of(report: Report, rows: tuple[Module, ...] = ROWS, lines: tuple[SourceLine, ...] = LINES, coverage: Any = COVERAGE) -> Report:
    return dataclasses.replace(report, modules=rows, source_lines=lines, module_coverage=coverage)


def cells(section: Section, table: str) -> list[dict[str, str]]:
    rows = section.tables[table]
    return [{column.label: cell.text.replace("\u00a0", " ") for column, cell in zip(rows.columns, row, strict=True)} for row in rows.rows]


def lead(section: Section) -> str:
    return section.lead.replace("\u00a0", " ").replace("<bdi>", "").replace("</bdi>", "")


def test_the_lead_states_coverage_and_the_longest_module_and_line(rich: Report) -> None:
    assert lead(modules(of(rich))) == (
        "Only 75.0% of the device time can be assigned to modules, by module calls. Net/a takes the most, 30.0 ms without the modules"
        " inside it. 62.5% of the device time comes from known lines; the most from project/train.py:12, 50.0 ms."
    )
    assert not lead(modules(of(rich, coverage=dataclasses.replace(COVERAGE, known_percent=80.0)))).startswith("Only")


def test_the_tree_is_indented_and_keeps_its_order(rich: Report) -> None:
    rows = cells(modules(of(rich)), "table")
    assert [row["Module"] for row in rows] == ["Net", "\u2003a", "\u2003b", "\u2003\u2003c", "outside of all modules"]
    assert rows[0] == {
        "Module": "Net", "Device time": "60.0 ms", "Of all": "75.0%", "Own": "10.0 ms", "Backward": "40.0 ms", "Calls": "2",
        "Launches": "600", "Host time": "70.0 ms", "Waits": "5.00 ms",
    }  # fmt: skip
    table = modules(of(rich)).tables["table"]
    assert table.rows[3][0].title == "Net/b/c"


def test_columns_without_a_figure_are_left_out(rich: Report) -> None:
    rows = tuple(dataclasses.replace(row, backward_ns=0, host_ns=0, waits_ns=0, calls=0) for row in ROWS)
    assert list(cells(modules(of(rich, rows)), "table")[0]) == ["Module", "Device time", "Of all", "Own", "Launches"]


def test_bars_of_the_flame_graph_are_below_the_module_around_them(rich: Report) -> None:
    figure = modules(of(rich)).figure("flame")
    assert figure is not None
    drawn = re.findall(r'<rect x="([^"]+)" y="([^"]+)" width="([^"]+)"[^>]*><title>([^:<]+):', figure.svg)
    places = {title: (float(x), float(y), float(width) + 0.7) for x, y, width, title in drawn}
    scale = WIDE / 80  # px per ms of all device time
    assert places["Net"][0] == 0
    assert places["Net"][2] == pytest.approx(60 * scale, abs=0.1)
    assert places["Net/b"][0] == pytest.approx(30 * scale, abs=0.1)
    assert places["Net/b/c"][0] == places["Net/b"][0]
    assert places["outside of all modules"][0] == pytest.approx(60 * scale, abs=0.1)
    assert places["Net"][1] < places["Net/a"][1] == places["Net/b"][1] < places["Net/b/c"][1]
    assert figure.alt.endswith("At the top: Net 75.0%; outside of all modules 25.0%")


def test_lines_show_the_last_folder_and_keep_the_rest(rich: Report) -> None:
    first, unknown = cells(modules(of(rich)), "lines")
    assert (first["Line"], first["Function"], first["Module"], first["Device time"]) == (
        "project/train.py:12",
        "forward",
        "Net/a",
        "50.0 ms",
    )
    assert (unknown["Line"], unknown["Of all"]) == ("unknown line", "37.5%")
    assert modules(of(rich)).tables["lines"].rows[0][0].title == "/home/me/project/train.py:12"


def test_lines_alone_are_shown_without_modules(rich: Report) -> None:
    absent = "No module of this run is known: profile with torch.profiler and `with_stack=True`."
    section = modules(of(rich, (), coverage=ModuleCoverage(None, 62.5, None, absent)))
    assert section.figure("flame") is None
    assert section.table("table") is None
    assert lead(section).startswith("No module of this run is known")
    assert cells(section, "lines")


def test_without_both_the_section_says_why(rich: Report) -> None:
    for coverage in (None, ModuleCoverage(absent="No module of this run is known.")):
        section = modules(of(rich, (), (), coverage))
        assert section.empty
        assert section.lead


def test_modules_without_device_work_are_not_drawn(rich: Report) -> None:
    rows = (Module("step", 0, 0, 0, 3, 0, 5 * MS, 0), ROWS[4])
    section = modules(of(rich, rows, (), ModuleCoverage(0.0, None, "named ranges")))
    assert section.empty
    assert lead(section).startswith("No device work was launched within a module")


def test_data_quality_states_the_share_with_a_known_origin(rich: Report) -> None:
    rows = {row["Known"]: row for row in cells(data_quality(of(rich)), "attributed")}
    assert rows["Module"] == {"Known": "Module", "Of": "device time", "Share": "75.0%", "Source": "module calls"}
    assert rows["Line of the program"]["Share"] == "62.5%"
    assert data_quality(of(rich, (), (), ModuleCoverage(absent="none"))).table("attributed") is None


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_a_deep_wide_and_hostile_tree_is_text(rich: Report, target: str) -> None:
    deep = [Module("/".join(["m"] * (i + 1)), 100 * MS, i == 199 and 100 * MS, 0, 1, 1, 1, 0) for i in range(200)]
    wide = [Module(f"{HOSTILE}{i}", 1000, 1000, 0, 1, 1, 1, 0) for i in range(3000)]
    orphan = [Module("no/parent/here", 5 * MS, 5 * MS, 0, 1, 1, 1, 0)]
    lines = (dataclasses.replace(LINES[0], line=HOSTILE, function=HOSTILE, module=HOSTILE),)
    report = of(rich, (*deep, *wide, *orphan), lines)
    text = page(context(report, lambda text, fraction: None), target)
    assert "<script>alert" not in text
    assert len(modules(report).figures["flame"].svg) < 200_000


def test_modules_of_one_kind_are_shown_together_and_each_on_request(rich: Report) -> None:
    kinds = (ROWS[0], dataclasses.replace(ROWS[1], path="Net/layer_*", device_ns=50 * MS, self_device_ns=50 * MS), ROWS[4])
    section = modules(dataclasses.replace(of(rich), module_kinds=kinds))
    assert [row["Module"] for row in cells(section, "table")] == ["Net", "\u2003layer_*", "outside of all modules"]
    assert len(cells(section, "each")) == len(ROWS)
    assert "Net/layer_*" in section.figures["flame"].svg
    assert modules(of(rich)).table("each") is None
