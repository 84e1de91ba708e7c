"""Counters of a program in figures and tables, with any values and names."""

from __future__ import annotations

import dataclasses
import re

import pytest
from postrun.analysis.report import CounterSeries, Report, StepParts
from report_pages import html_of


def series(name: str, samples: list[float], *, pid: int = 4711, not_finite: int = 0) -> CounterSeries:
    values = tuple(samples)
    first, last = (values[0], values[-1]) if values else (None, None)
    low, high = (min(values), max(values)) if values else (None, None)
    times = tuple(10**9 * i for i in range(len(values)))
    odd = 5 * 10**8 if not_finite else None
    count = len(samples) + not_finite
    return CounterSeries(name, "laptop", None, pid, count, not_finite, odd, first, last, low, high, times, values, values, values)


def page_of(report: Report, *counters: CounterSeries, target: str = "html") -> str:
    return (
        html_of(dataclasses.replace(report, counters=counters), target).partition('<section id="annotations"')[2].partition("</section>")[0]
    )


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_beside_annotations_and_alone(small_reports: dict[str, Report], target: str) -> None:
    for name in ("cpu", "empty"):
        assert "annotations-counters" not in html_of(small_reports[name], target)
        text = page_of(small_reports[name], series("loss", [2.5, 1.25, 0.5]), series("lr", [1e-9] * 3), target=target)
        assert 'id="annotations-counter-1"' in text
        for value in ("2.50", "0.500", "1e−09"):
            assert value in text
    assert "No range is annotated; 2\u00a0counters: loss, lr." in text


@pytest.mark.parametrize(
    "numbers",
    [[-5.0, -1.0], [-1.0, -5.0, 3.0], [0.0, 0.0], [-2.0, -2.0], [5e-324, 0.0], [1e99, -1e99], [1.7e308, -1.7e308], [3.0], []],
    ids=str,
)
def test_any_values(small_reports: dict[str, Report], numbers: list[float]) -> None:
    text = page_of(small_reports["empty"], series("odd", numbers, not_finite=2))
    assert ("annotations-counter-1" in text) == (len(numbers) > 1 and not 0 < abs(numbers[0]) < 1e-300 and abs(numbers[0]) < 1e100)
    assert "nan" not in text.lower().replace("nan, infinite", "")
    assert "odd of laptop pid 4711: 2, the first after 500" in text


def test_many_counters_and_processes(small_reports: dict[str, Report]) -> None:
    every = [series(f"counter {i}", [1.0, 2.0], pid=pid) for i in range(8) for pid in range(6)]
    text = page_of(small_reports["empty"], *every)
    assert len(re.findall('id="annotations-counter-[0-9]+"', text)) == 6
    assert text.count("6\u00a0of 8\u00a0counters are drawn.") + text.count("6 of 8 counters are drawn.") == 1
    assert text.count("4 of 6 processes are drawn.") == 6


def test_names_are_text(small_reports: dict[str, Report]) -> None:
    text = page_of(small_reports["empty"], series("<script>alert(1)</script>", [1.0, 2.0]))
    assert "<script>alert" not in text


def test_annotated_parts_of_a_step(small_reports: dict[str, Report]) -> None:
    mean = {"data_loader": 30e6, "forward": 20e6, "<b>mine</b>": 10e6, "other": 40e6}
    parts = StepParts("laptop", None, 4711, 3, 100e6, mean, annotated=True)
    cpu = small_reports["cpu"]
    text = html_of(dataclasses.replace(cpu, steps=dataclasses.replace(cpu.steps, parts=(parts,))))
    assert "by the ranges annotated in it" in text
    assert "TensorBoard" not in text
    for phrase in ("data loading", "forward", "&lt;b&gt;mine&lt;/b&gt;"):
        assert phrase in text
