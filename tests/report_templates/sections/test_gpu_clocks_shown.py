"""Power and clocks of GPUs under system usage, with the times at lower clocks."""

from __future__ import annotations

import dataclasses

import pytest
from postrun.analysis.machine.gpu_clocks import throttling
from postrun.analysis.report import GpuClocks, Report
from postrun.report_templates.output.pages import page
from postrun.report_templates.output.section_list import context

S = 10**9


def page_of(report: Report, *clocks: GpuClocks, target: str = "html") -> str:
    usage = dataclasses.replace(report.system_usage, gpu_clocks=clocks, throttling=throttling(clocks))
    text = page(context(dataclasses.replace(report, system_usage=usage), lambda *_: None), target)
    return text.partition('<section id="system-usage"')[2].partition("</section>")[0].replace("\u00a0", " ")


def clocks(device: int, heat: int | None = 0, power: int | None = 0) -> GpuClocks:
    return GpuClocks("node-0", device, 310.4, 701.0, 1980.0, 345.0, 1980.0, 600 * S, heat, power, 0)


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_table_and_sentence(rich: Report, target: str) -> None:
    text = page_of(rich, clocks(0), clocks(1, heat=42 * S), clocks(2, power=3 * S), target=target)
    assert 'id="system-usage-clocks"' in text
    for value in ("310 W", "701 W", "345 MHz", "42.0 s", "3.00 s"):
        assert value in text
    assert "The clock of GPU 1 of 3 GPUs was held down for heat for 42.0 s, 7.0% of the time sampled." in text
    assert "The clock of GPU 2 of 3 GPUs was held down for power for 3.00 s, 0.5% of the time sampled." in text


def test_nothing_where_nothing_was_sampled(rich: Report) -> None:
    assert "system-usage-clocks" not in page_of(rich)


def test_what_is_not_known_is_no_zero(rich: Report) -> None:
    text = page_of(rich, GpuClocks("node-0", 0, 80.0, 90.0, *[None] * 7))
    table = text.partition('id="system-usage-clocks"')[2].partition("</table>")[0]
    assert "80.0 W" in table
    assert "0 ns" not in table
    assert "MHz" not in table


def test_of_many_those_that_were_held_down_longest(rich: Report) -> None:
    text = page_of(rich, *(clocks(device, heat=device * S) for device in range(100)))
    table = text.partition('id="system-usage-clocks"')[2].partition("</table>")[0]
    assert "; 64 of 100 GPUs, those that were held down longest" in text
    assert table.count("<tr") == 65
    assert "1 min 39 s" in table
