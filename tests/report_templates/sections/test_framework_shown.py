"""The sections "Framework metrics" and "Annotations": the base of each time and percentage."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from postrun.analysis.report import Report
from postrun.analysis.report.framework import PhaseMetrics
from postrun.analysis.report.rows import Share
from postrun.report_templates.sections.annotated_ranges import annotated_ranges
from postrun.report_templates.sections.framework import framework

S = 1_000_000_000
TRAIN = PhaseMetrics("phase", "TRAIN", 1800 * S, (Share("forward", 900 * S, 0, 100.0),), ())


def of(report: Report, **fields: Any) -> Report:
    return dataclasses.replace(report, program=None, framework=dataclasses.replace(report.framework, by_phase=(TRAIN,), **fields))


@pytest.mark.parametrize(("processes", "words"), [(2, "summed over 2\xa0processes"), (1, ""), (None, "")])
def test_times_of_phases_name_the_processes_that_are_summed(rich: Report, processes: int | None, words: str) -> None:
    section = framework(of(rich, processes=processes))
    caption, note = str(section.figures["phases"].caption), section.tables["phase-parts"].note
    assert note is not None
    assert (caption.endswith(f" Times are {words}.") if words else "Times are" not in caption) is True
    assert note == f"Host time in named ranges that lies in steps of the phase{', ' if words else ''}{words}." + (
        " Ranges outside of these steps, and of processes without phases, count only in the host time in named ranges."
    )


@pytest.mark.parametrize(
    ("of_mean_step", "headings"),
    [(False, ["Range", "Time", "Count", "Of the ranges"]), (True, ["Range", "Time, all steps", "Count", "Of the mean step's ranges"])],
)
def test_percentages_of_the_mean_step_are_not_those_of_the_times(rich: Report, of_mean_step: bool, headings: list[str]) -> None:
    figure = framework(of(rich, parts_of_mean_step=of_mean_step)).figures["step-parts"]
    assert figure.legend is not None
    assert [column.label for column in figure.legend.columns] == headings


def test_operators_have_their_base_in_the_heading(rich: Report) -> None:
    tables = framework(of(rich)).tables
    assert [column.label for column in tables["cpu-operators"].columns][1:3] == ["Of CPU operators", "Summed time"]
    assert [column.label for column in tables["gpu-operators"].columns][1:3] == ["Of GPU operators", "Summed time"]


@pytest.mark.parametrize(("processes", "words"), [(8, " of 8\xa0processes"), (1, "")])
def test_ranges_of_several_processes_name_them(rich: Report, processes: int, words: str) -> None:
    longest = max(rich.annotations.groups, key=lambda group: group.total_ns)
    groups = (dataclasses.replace(longest, processes=processes),)
    section = annotated_ranges(dataclasses.replace(rich, annotations=dataclasses.replace(rich.annotations, groups=groups)))
    assert f"ranges{words}, median" in str(section.lead)
