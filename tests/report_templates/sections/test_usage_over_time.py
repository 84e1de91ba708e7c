"""The nodes in each chart of utilization over time: the extremes of its metric, and their number."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from typing import Any

import pytest
from postrun.analysis.report import MetricUsage, Report, Series
from postrun.ingest.store.metrics import METRICS
from postrun.report_templates.blocks import Figure, spread
from postrun.report_templates.figures import lines
from postrun.report_templates.sections.system_usage import system_usage

S = 10**9


def series(node: str, metric: str, level: float, *, derived: bool = False) -> Series:
    values = (level, level, level)
    return Series(node, metric, "percent", (0, S, 2 * S), values, values, values, derived)


def charts(report: Report, *series: Series) -> list[Figure]:
    usage = dataclasses.replace(report.system_usage, series=series)
    section = system_usage(dataclasses.replace(report, system_usage=usage))
    return [figure for figure in section.figures.values() if figure.id.endswith("-over-time")]


@pytest.fixture
def panels(monkeypatch: pytest.MonkeyPatch) -> list[list[lines.Panel]]:
    """The panels of every figure that is drawn from now on."""
    drawn: list[list[lines.Panel]] = []
    draw = lines.lines

    def noted(panels: Sequence[lines.Panel], *about: Any, **more: Any) -> str:
        drawn.append(list(panels))
        return draw(panels, *about, **more)

    monkeypatch.setattr(lines, "lines", noted)
    return drawn


def names(figure: Sequence[lines.Panel]) -> list[list[str]]:
    """The nodes that are named in each panel of a figure."""
    return [[line.label for line in panel.lines if line.label is not None] for panel in figure]


def words(figure: Figure) -> str:
    return html.unescape(str(figure.caption)).replace("\u00a0", " ")


def test_the_table_has_the_gpus_first_and_of_each_metric_the_outlier(rich: Report) -> None:
    def usage(node: str, metric: str, p50: float) -> MetricUsage:
        return MetricUsage(node, metric, "percent", 9, 99.0, 99.0, 99.0, p50, 0.0, False)

    nodes = tuple(usage(f"n{n}", metric, p50) for n, p50 in ((1, 90.0), (2, 91.0), (3, 40.0)) for metric in ("network", "cpu", "gpu"))
    section = system_usage(dataclasses.replace(rich, system_usage=dataclasses.replace(rich.system_usage, nodes=nodes)))
    # Medians of 90: n3 is 50 from it, n2 is 1.
    assert [(cells[0].text, cells[1].text) for cells in section.tables["nodes"].rows] == [
        (node, metric) for metric in ("GPU utilization", "CPU utilization", "Network") for node in ("n3", "n2", "n1")
    ]


def test_a_machine_with_gpu_samples_only_and_one_without(rich: Report, panels: list[list[lines.Panel]]) -> None:
    every = charts(rich, series("n1", "gpu", 50), series("n2", "cpu", 20), series("n2", "cpu_memory", 5))
    assert [names(drawn) for drawn in panels] == [[["n1"]], [["n2"]], [["n2"]]]
    assert every[0].alt == "GPU utilization over time; n1 on average 50.0%"
    assert words(every[0]) == "GPU utilization: n1 on average 50.0%."


def test_the_loaded_machine_is_drawn_though_it_has_no_gpu(rich: Report, panels: list[list[lines.Panel]]) -> None:
    every = charts(rich, series("n1", "gpu", 55), series("n1", "cpu", 20), series("n2", "cpu", 95))
    assert [names(drawn) for drawn in panels] == [[["n1"]], [["n1", "n2"]]]
    assert not any("are drawn" in words(figure) for figure in every)


def test_of_many_nodes_each_chart_names_its_own(rich: Report, panels: list[list[lines.Panel]]) -> None:
    # The GPUs of n0 to n59: n59 most; the processors of n0 to n63: n0 most.
    gpus = [series(f"n{i}", "gpu", i) for i in range(60)]
    processors = [series(f"n{i}", "cpu", 99 - i) for i in range(64)]
    first, second = charts(rich, *gpus, *processors)
    # The two of least, the median one and the three of most, in the order of the nodes.
    low_and_high = [f"n{i}" for i in (0, 29, 56, 57, 58, 59)], [f"n{i}" for i in (0, 1, 2, 3, 32, 63)]
    assert [names(drawn) for drawn in panels] == [[low_and_high[0]], [low_and_high[1]]]
    assert [len(drawn[0].lines) for drawn in panels] == [32, 32]
    assert "GPU utilization: 32 of the 60 nodes that have it are drawn" in words(first)
    assert "CPU utilization: 32 of the 64 nodes that have it are drawn" in words(second)
    assert "Named: the nodes of most, of least and of median CPU utilization; gray: the others." in words(second)


def test_of_how_many_nodes_the_utilization_is_derived(rich: Report) -> None:
    derived, sampled = series("n1", "gpu", 50, derived=True), series("n2", "gpu", 60)
    assert words(charts(rich, derived)[0]).endswith(" GPU utilization is derived from kernel activity.")
    assert words(charts(rich, sampled, derived)[0]).endswith(" GPU utilization of 1 of 2 nodes is derived from kernel activity.")
    assert "derived" not in words(charts(rich, sampled)[0])


def test_nothing_to_draw(rich: Report) -> None:
    assert charts(rich) == []


def test_two_and_three_of_many_rows_have_both_ends() -> None:
    assert spread(list(range(9)), 2, float) == [0, 8]
    assert spread(list(range(9)), 3, float) == [0, 4, 8]


def test_the_unit_of_an_axis_is_short(rich: Report, panels: list[list[lines.Panel]]) -> None:
    unit = METRICS["gpu_memory_controller"]
    charts(rich, dataclasses.replace(series("n1", "gpu_memory", 24.0), unit=unit))
    assert [panel.unit for figure in panels for panel in figure] == ["% of time"]
