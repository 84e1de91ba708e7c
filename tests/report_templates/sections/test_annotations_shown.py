"""Annotated ranges of the same name are distinguished by their sources."""

from __future__ import annotations

import dataclasses

from postrun.analysis.report import Report
from postrun.report_templates.blocks import Figure
from postrun.report_templates.sections.annotated_ranges import annotated_ranges


def test_ranges_of_one_name_and_two_formats_have_their_source(rich: Report) -> None:
    first, *_ = (group for group in rich.annotations.groups if group.side == "host")
    profiled = dataclasses.replace(first, phase=None, formats=("PyTorch profiler trace",))
    debugged = dataclasses.replace(first, phase=first.name, formats=("hosted framework timeline",))
    for groups, names, sources in (
        ((profiled, debugged), [f"{first.name}, PyTorch profiler trace", f"{first.name}, hosted framework timeline"], True),
        ((profiled,), [first.name], False),
    ):
        ranges = dataclasses.replace(rich.annotations, groups=groups, histograms=(first.name,))
        section = annotated_ranges(dataclasses.replace(rich, annotations=ranges))
        figure = section.figures["histograms"]
        assert isinstance(figure, Figure)
        assert all(name in figure.svg for name in names)
        assert ("Source" in [column.label for column in section.tables["table"].columns]) is sources
