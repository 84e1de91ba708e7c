"""The section "Efficiency": conclusion, facts, roofline and table, of hand-made rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from postrun.analysis.report import Report
from postrun.analysis.report.efficiency import DevicePeaks, Efficiency, OperatorWork, StepEnergy
from postrun.report_templates.blocks import Section, Texts
from postrun.report_templates.output.pages import page
from postrun.report_templates.output.section_list import context
from postrun.report_templates.sections.efficiency import efficiency

MS = 1_000_000
H100 = DevicePeaks("NVIDIA H100 80GB HBM3", "H100 SXM5", {"bf16": 989.4e12, "fp8": 1978.9e12}, 3352e9, 450e9, "a whitepaper (2022)")
HOSTILE = '"><script>alert(1)</script>'


def work(operator: str, device_ns: int, **more: Any) -> OperatorWork:
    known = {
        "input_dims": [[4096, 4096], [4096, 4096]], "input_types": ["c10::BFloat16"], "input_strides": [], "calls": 10,
        "flop_per_call": 2 * 4096**3, "model_flop_per_call": 2 * 4096**3, "bytes_per_call": 3 * 4096**2 * 2, "tflops": 600.0,
        "gb_per_s": 900.0, "intensity": 1365.3, "percent_of_roof": 60.0, "bound": "compute", "lost_ns": device_ns * 2 // 5,
        "module": "Net/fc", "source_line": "train.py:7", "modules_seen": 1, "compute_type": "bf16",
    }  # fmt: skip
    return OperatorWork(operator, **{**known, **more}, device_ns=device_ns)


ROWS = (
    work("aten::mm", 50 * MS),
    work("aten::softmax", 40 * MS, tflops=None, intensity=None, flop_per_call=None, model_flop_per_call=None, percent_of_roof=10.0,
         bound="neither", lost_ns=36 * MS, module=None, modules_seen=12, source_line=None),
    work("aten::add", 10 * MS, tflops=None, intensity=None, percent_of_roof=131.0, bound="cache", lost_ns=None),
)  # fmt: skip
KNOWN = Efficiency(
    ROWS, 4, (H100,), 41.2, 44.0, 97.0, measured_over="steps", energy=StepEnergy(51_500.0, 512.0, 412.0, 3.25)
)  # fmt: skip


def section_of(report: Report, **changes: Any) -> Section:
    return efficiency(dataclasses.replace(report, efficiency=dataclasses.replace(KNOWN, **changes)))


def facts(section: Section) -> dict[str, str]:
    return {label: text.replace("\u00a0", " ") for block in section.blocks if isinstance(block, Texts) for label, text in block.texts}


def cells(section: Section) -> list[dict[str, str]]:
    table = section.tables["operators"]
    return [{column.label: cell.text.replace("\u00a0", " ") for column, cell in zip(table.columns, row, strict=True)} for row in table.rows]


def lead(section: Section) -> str:
    return section.lead.replace("\u00a0", " ").replace("<bdi>", "").replace("</bdi>", "")


def test_the_lead_has_utilization_and_the_largest_loss(rich: Report) -> None:
    assert lead(section_of(rich)) == (
        "Model FLOPs utilization (MFU) was 41.2% of the dense peak of the H100 SXM5 in the steps."
        " Against the roof, operators lost 56.0 ms, 56.0% of their device time; softmax 4096×4096, 4096×4096 lost the most, 36.0 ms."
    )


def test_a_lower_bound_reads_at_least(rich: Report) -> None:
    section = section_of(rich, lower_bound=True, coverage_percent=71.0)
    assert "(MFU) was at least 41.2%" in lead(section)
    assert "FLOPs are known for 71.0% of the time of matrix kernels in the steps." in lead(section)
    assert facts(section)["MFU"] == "at least 41.2%"


def test_without_peaks_there_is_no_utilization_and_no_roof(rich: Report) -> None:
    rows = tuple(dataclasses.replace(row, percent_of_roof=None, bound="unknown", lost_ns=None) for row in ROWS)
    reason = "The peaks of NVIDIA H20 are not known: set them with --peak."
    section = section_of(rich, operators=rows, peaks=(), mfu_percent=None, hfu_percent=None, no_mfu=reason)
    assert lead(section) == f"MFU is not known. {reason}"
    assert section.figure("roofline") is None
    assert {"Of roof", "Bound", "Lost"}.isdisjoint(cells(section)[0])
    assert section.tables["operators"].caption == "Operators by device time"


def test_rows_are_ranked_by_the_time_they_lost(rich: Report) -> None:
    softmax, mm, add = cells(section_of(rich))
    assert (softmax["Operator"], softmax["Lost"], softmax["Module"], softmax["TFLOP/s"]) == ("aten::softmax", "36.0 ms", "12 modules", "—")
    assert (mm["Operator"], mm["Lost"], mm["Of roof"], mm["Bound"], mm["FLOP per call"]) == (
        "aten::mm", "20.0 ms", "60.0%", "compute", "137 GFLOP",
    )  # fmt: skip
    assert (mm["Inputs"], mm["Module"], mm["Line"], mm["Type"]) == ("4096×4096, 4096×4096", "Net/fc", "train.py:7", "BF16")
    assert (add["Of roof"], add["Bound"], add["Lost"]) == ("131.0%", "served by cache", "—")
    assert (softmax["Of roof"], softmax["Bound"]) == ("10.0%", "neither roof")
    assert "Neither roof: below a fifth of both." in str(section_of(rich).tables["operators"].note)
    assert "Neither roof" not in str(section_of(rich, operators=ROWS[:1]).tables["operators"].note)


def test_peaks_of_several_types_are_not_one_peak(rich: Report) -> None:
    rows = work("aten::mm", 50 * MS), work("aten::_scaled_mm", 40 * MS, compute_type="fp8")
    assert lead(section_of(rich, operators=rows)).startswith(
        "Model FLOPs utilization (MFU) was 41.2% of the dense peaks of the H100 SXM5, each operator at the peak of its type, in the steps."
    )


def test_energy_and_the_peaks_in_use_are_facts(rich: Report) -> None:
    section = facts(section_of(rich))
    assert section["Energy per step"] == "412 J"
    assert section["Energy per TFLOP"] == "3.25 J"
    assert section["Mean power"] == "512 W per GPU"
    assert section["Peaks"].replace("\u202f", " ") == "H100 SXM5: BF16 989 TFLOPS, memory 3,352 GB/s (a whitepaper (2022))"
    assert "Energy per step" not in facts(section_of(rich, energy=StepEnergy(1.0, 2.0, None, None)))


def test_the_roofline_has_a_roof_for_each_type_in_use(rich: Report) -> None:
    figure = section_of(rich).figure("roofline")
    assert figure is not None
    assert "BF16 989" in figure.svg
    assert "FP8" not in figure.svg
    assert "mm 4096×4096" in figure.svg
    assert "softmax" not in figure.svg  # its FLOPs are not known
    assert "compute</text>" in figure.svg
    assert figure.alt.startswith("Roofline of 1\u00a0operator shape. The longest, mm 4096×4096, 4096×4096: 600\u00a0TFLOP/s")


def test_a_trace_of_the_cpu_alone_has_flops(rich: Report) -> None:
    rows = tuple(
        dataclasses.replace(row, device_ns=0, tflops=None, gb_per_s=None, percent_of_roof=None, bound="unknown", lost_ns=None)
        for row in ROWS
    )
    section = section_of(rich, operators=rows, peaks=(), mfu_percent=None, no_mfu="The run has no device work.", energy=None)
    assert section.tables["operators"].caption == "Operators by FLOPs"
    assert "Device time" not in cells(section)[0]
    assert cells(section)[0]["FLOP per call"] == "137 GFLOP"


def test_without_shapes_there_is_nothing_to_show(rich: Report) -> None:
    rows = tuple(
        dataclasses.replace(row, input_dims=[], flop_per_call=None, bytes_per_call=None, tflops=None, gb_per_s=None) for row in ROWS
    )
    section = section_of(rich, operators=rows, mfu_percent=None, no_mfu="No FLOPs are known.")
    assert section.empty
    assert "record_shapes=True" in section.lead


@pytest.mark.parametrize("known", [None, Efficiency(absent="No operator in this run: profile with `record_shapes=True`.")])
def test_without_operators_the_section_says_why(rich: Report, known: Efficiency | None) -> None:
    section = efficiency(dataclasses.replace(rich, efficiency=known))
    assert section.empty
    assert section.lead


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_hostile_rows_are_shown_as_text(rich: Report, target: str) -> None:
    dims: list[list[Any]] = [[[-1]], ["x"], [[1] * 3000], [[[[[]]]]], [[10**30, 2]], [{"a": 1}, None]]
    rows = tuple(work(HOSTILE, 5 * MS + i, input_dims=each, module=HOSTILE, source_line=HOSTILE) for i, each in enumerate(dims))
    extreme = (work("aten::mm", 1, tflops=1e-300, intensity=1e300), work("aten::mm", 2**62, tflops=1e300, intensity=1e-300))
    peaks = dataclasses.replace(H100, product=HOSTILE, source=HOSTILE)
    report = dataclasses.replace(rich, efficiency=Efficiency(rows + extreme, 0, (peaks,), 12.0, None, None))
    text = page(context(report, lambda text, fraction: None), target)
    assert "<script>alert" not in text
    assert "nan" not in efficiency(report).figures["roofline"].svg
