"""The memory of the framework's allocator in figures, tables, and the lead."""

from __future__ import annotations

import dataclasses

import pytest
from postrun.analysis.report import AllocatorMemory, Report
from postrun.report_templates.output.pages import page
from postrun.report_templates.output.section_list import context
from postrun.report_templates.text.look import Look

G = 2**30


def allocator(device: int, peak: int, growth: int, total: int | None = 80 * G) -> AllocatorMemory:
    return AllocatorMemory(
        "node-0", device, 100 + device, device, 3, total, G, G, peak, 2_000_000, peak + G, peak + 2 * G, growth, 1_000_000, 2_000_000,
        (0, 1_000_000, 2_000_000), (G, G, peak), (G, G, peak), (peak + G,) * 3,
    )  # fmt: skip


def page_of(report: Report, *every: AllocatorMemory, target: str = "html", sampled: bool = False) -> str:
    changed = dataclasses.replace(report, allocator_memory=every, gpu_memory=report.gpu_memory if sampled else ())
    text = page(context(changed, lambda *_: None, None, Look(sections=("gpu-memory",))), target)
    return text.partition('<section id="gpu-memory"')[2].partition("</section>")[0].replace("\u00a0", " ")


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_sentence_figure_and_table(rich: Report, target: str) -> None:
    text = page_of(rich, allocator(0, 8 * G, 7 * G), allocator(1, 20 * G, 5 * G), target=target)
    assert 'id="gpu-memory-allocator"' in text
    assert 'id="gpu-memory-allocator-table"' in text
    for value in ("8.00 GiB", "20.0 GiB", "25.0%", "21.0 GiB", "22.0 GiB", "7.00 GiB", "2.00 ms"):
        assert value in text, value
    assert "held at most 20.0 GiB on" in text
    assert "The largest growth is 7.00 GiB in 1.00 ms on" in text


def test_without_any_memory_the_captures_are_named(rich: Report) -> None:
    text = page_of(rich)
    assert "postrun record" in text
    assert "profile_memory=True" in text
    assert "gpu-memory-allocator" not in text


def test_what_is_not_known_is_no_zero(rich: Report) -> None:
    memory = dataclasses.replace(allocator(0, 8 * G, 0, None), reserved_at_peak=None, reserved_peak=None, reserved=(None,) * 3)
    text = page_of(rich, memory)
    assert "an unknown amount" in text
    assert "reserved, GiB" not in text
