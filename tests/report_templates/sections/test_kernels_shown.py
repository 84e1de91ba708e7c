"""The table of kernels with operators, shapes and grids that are known."""

from __future__ import annotations

import dataclasses

from postrun.analysis.report import Report
from postrun.report_templates.sections.kernels import kernels

JOINED = {"Operator", "Inputs", "Of roof", "Occupancy", "Grid", "Module"}


def test_known_figures_of_a_kernel_are_columns(rich: Report) -> None:
    first = dataclasses.replace(
        rich.kernels[0],
        operator="aten::mm",
        shape="32x128, 128x64",
        grid=(132, 1, 1),
        occupancy_percent=31.0,
        percent_of_roof=61.7,
        module="Net/fc",
    )
    table = kernels(dataclasses.replace(rich, kernels=(first, *rich.kernels[1:]))).tables["table"]
    columns = table.columns_for("html")
    row = {table.columns[i].label: table.rows[0][i].text.replace("\u00a0", " ") for i in columns}
    assert row["Operator"] == "aten::mm"
    assert row["Inputs"] == "32×128, 128×64"
    assert (row["Grid"], row["Occupancy"], row["Of roof"], row["Module"]) == ("132×1×1", "31.0%", "61.7%", "Net/fc")
    assert {table.columns[i].label for i in columns} > JOINED
    in_pdf = [table.columns[i].label for i in table.columns_for("pdf")]
    assert in_pdf == ["Kernel", "Category", "Precision", "Operator", "Launches", "Total", "Of kernel time"]


def test_without_them_the_table_has_no_empty_columns(rich: Report) -> None:
    table = kernels(rich).tables["table"]
    assert JOINED.isdisjoint(column.label for column in table.columns)
    assert "Operator" not in [table.columns[i].label for i in table.columns_for("pdf")]
