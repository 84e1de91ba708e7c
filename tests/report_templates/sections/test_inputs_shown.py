"""Sections of runs with Horovod timelines, logs of GPU monitors, and profiles without a GPU: their data only."""

from __future__ import annotations

import dataclasses
import re

import pytest
from postrun.analysis.report import Annotations, Report, Share
from postrun.analysis.report.collectives import Collective, CollectiveTotals
from report_pages import html_of

TENSOR = "DistributedAdam_Allreduce/HorovodAllreduce_gradient_tape_layer_{}_Reshape_0"
MS = 1_000_000


def page_of(report: Report, section: str, target: str) -> str:
    return html_of(report, target).partition(f'<section id="{section}"')[2].partition("</section>")[0]


def collectives(report: Report, *shares: Share) -> Report:
    framework = dataclasses.replace(report.framework, collectives=shares, absent=None)
    return dataclasses.replace(report, framework=framework)


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_collectives_of_a_timeline_are_in_the_framework_metrics(small_reports: dict[str, Report], target: str) -> None:
    report = collectives(small_reports["empty"], Share("NEGOTIATE_ALLREDUCE", 30 * MS, 3, 75.0), Share("ALLREDUCE", 10 * MS, 3, 25.0))
    text = page_of(report, "framework", target)
    assert "Collectives are all that the framework recorded in this run." in text
    assert 'id="framework-collectives"' in text
    assert "NEGOTIATE_ALLREDUCE" in text
    assert "75.0%" in text


def test_kernels_of_collectives_stand_in_their_own_section_of_the_pdf(rich: Report) -> None:
    row = Collective(
        "all-reduce", "0", "default_pg", 8, 8, 4, 32, 1 << 20, "float", 40 * MS, 3 * MS, 10 * MS, 1.0 * MS, 3, 4, 1.0, 1.75, 2.0, False
    )  # fmt: skip
    report = dataclasses.replace(rich, collectives=(row,), collective_totals=CollectiveTotals(0, 0, 40 * MS, 100.0, 4, 0, (), None))
    assert 'id="collectives-table"' in page_of(report, "collectives", "pdf")
    assert 'id="framework-collectives"' in page_of(report, "framework", "html")
    assert 'id="framework-collectives"' not in page_of(report, "framework", "pdf")


@pytest.mark.parametrize("target", ["html", "pdf"])
@pytest.mark.parametrize(
    ("ranks", "bandwidth", "present"),
    [
        (8, 1.75, {"Waiting", "Transfer", "Bus bandwidth"}),
        (1, 1.75, {"Bus bandwidth"}),
        (8, None, {"Waiting", "Transfer"}),
        (1, None, set()),
    ],
)
def test_a_note_explains_the_columns_of_its_table(
    rich: Report, target: str, ranks: int, bandwidth: float | None, present: set[str]
) -> None:
    row = Collective(
        "all-reduce", "0", "default_pg", 8, ranks, 4, 32, 1 << 20, "float", 40 * MS, 3 * MS, 10 * MS if ranks > 1 else None, 1.0 * MS,
        3, 4, bandwidth, bandwidth, bandwidth, False,
    )  # fmt: skip
    report = dataclasses.replace(rich, collectives=(row,), collective_totals=CollectiveTotals(0, 0, 40 * MS, 100.0, 4, 0, (), None))
    page = page_of(report, "collectives", target).partition('id="collectives-table"')[2].partition("</table>")
    after = page[0] + page[2].partition("<table")[0]
    assert {name for name in ("Waiting", "Transfer", "Bus bandwidth") if f"{name}:" in after} == present


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_ranges_of_one_name_are_told_apart_by_their_phase(rich: Report, target: str) -> None:
    """Each tensor of Horovod is a phase, and all have the same names."""
    group = rich.annotations.groups[0]
    groups = tuple(dataclasses.replace(group, name="ALLREDUCE", side="host", phase=TENSOR.format(i)) for i in range(3))
    report = dataclasses.replace(rich, annotations=Annotations(groups, (), None))
    table = page_of(report, "annotations", target).partition('id="annotations-table"')[2].partition("</table>")[0]
    assert "and by phase</caption>" in table
    assert ">Phase</th>" in table
    assert len(set(re.findall(r"_(\d)_Reshape_0<", table))) == 3


def test_without_a_phase_there_is_no_column_for_it(rich: Report) -> None:
    groups = tuple(dataclasses.replace(group, phase=None) for group in rich.annotations.groups)
    report = dataclasses.replace(rich, annotations=dataclasses.replace(rich.annotations, groups=groups))
    assert ">Phase</th>" not in page_of(report, "annotations", "html")


@pytest.mark.parametrize(("sides", "named"), [(("host", "host"), False), (("host", "device"), True)])
def test_the_side_of_a_range_is_told_at_each_only_where_there_are_two(rich: Report, sides: tuple[str, str], *, named: bool) -> None:
    groups = tuple(
        dataclasses.replace(rich.annotations.groups[0], name=name, side=side, phase=None) for name, side in zip("ab", sides, strict=True)
    )
    report = dataclasses.replace(rich, annotations=Annotations(groups, ("a", "b"), None))
    text = page_of(report, "annotations", "html")
    assert (">a on the host</text>" in text) is named
    assert ("Durations on the host, each with its own axis" in text) is not named


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_tiles_of_which_none_has_a_value_are_not_shown(rich: Report, target: str) -> None:
    tiles = rich.summary.tiles
    without = tuple(dataclasses.replace(tile, value="—", number=None) for tile in tiles)
    for case_tiles, are_shown in ((without, False), ((*without[1:], tiles[0]), True)):
        report = dataclasses.replace(rich, summary=dataclasses.replace(rich.summary, tiles=case_tiles))
        text = page_of(report, "summary", target)
        assert ('<ul class="tiles">' in text) is are_shown


def test_a_log_of_a_monitor_knows_no_process(rich: Report) -> None:
    assert "process" in page_of(rich, "information", "pdf").partition("</p>")[0]
    lead = page_of(dataclasses.replace(rich, processes=()), "information", "pdf").partition("</p>")[0]
    assert "GPUs in use" in lead
    assert "process" not in lead
