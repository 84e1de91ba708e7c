"""The goodput of a job in the section "Job statistics" and in report.md."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from postrun import api
from postrun.analysis.report import Report
from postrun.analysis.report.goodput import Goodput, GoodputPart
from postrun.analysis.run.goodput import PARTS
from postrun.report_templates.output.markdown import markdown
from postrun.report_templates.sections.job_statistics import GOODPUT_PARTS, job_statistics
from postrun.simulate import Problems, write_demo

S = 10**9

# Two ranks and eight GPUs over 1 h: 8 GPU-h. Checkpoints are unknown, and no step was lost.
TIMES = {"initialization": 720 * S, "productive": 5400 * S, "data_wait": 360 * S, "checkpoint": None, "tail": 720 * S}
GOODPUT = Goodput(
    percent=75.0,
    wall_ns=3600 * S,
    ranks=2,
    parts=tuple(
        GoodputPart(name, time, None if time is None else time / (72 * S), None if time is None else time / (900 * S))
        for name in PARTS
        for time in [TIMES.get(name, 0)]
    ),
    lost_steps=0,
    gpus=8,
    gpu_hours=8.0,
    energy_joules=2.5e6,
    price_per_gpu_hour=2.5,
    currency="EUR",
    cost=20.0,
)


def words(text: str) -> str:
    return text.replace("\u00a0", " ")


def of(report: Report, **changes: object) -> Report:
    return dataclasses.replace(report, goodput=dataclasses.replace(GOODPUT, **changes))  # type: ignore[arg-type]


def test_every_part_has_a_name() -> None:
    assert list(GOODPUT_PARTS) == list(PARTS)


def test_the_html_has_a_row_per_part(rich: Report) -> None:
    section = job_statistics(of(rich))
    assert words(section.lead).endswith(" Goodput is 75.0% of 8.00 GPU-h (20.0 EUR, 2.50 MJ).")
    legend = section.figures["goodput"].legend
    assert legend is not None
    assert [column.label for column in legend.columns] == ["Part", "Time", "GPU time", "Of the job"]
    assert [[words(cell.text) for cell in row] for row in legend.rows] == [
        ["Initialization", "6 min", "48.0 GPU-min", "10.0%"],
        ["Productive steps", "45 min", "6.00 GPU-h", "75.0%"],
        ["Data wait", "3 min", "24.0 GPU-min", "5.0%"],
        ["After the last step", "6 min", "48.0 GPU-min", "10.0%"],
    ]
    assert words(legend.html_note or "") == "Mean of 2 ranks. Not known for the job: checkpoint; their time is in other parts."
    blocks = {target: [getattr(block, "id", None) for block in section.blocks_for(target) if block] for target in ("html", "pdf")}
    assert blocks["html"] == ["job-statistics-goodput", "job-statistics-times"]
    assert blocks["pdf"] == ["job-statistics-parts", "job-statistics-times"]


def test_without_gpus_there_is_no_gpu_time(rich: Report) -> None:
    parts = tuple(dataclasses.replace(part, gpu_hours=None) for part in GOODPUT.parts)
    section = job_statistics(of(rich, parts=parts, gpus=0, gpu_hours=None, cost=None, energy_joules=None, ranks=1, restarts=1))
    assert words(section.lead).endswith(" Goodput is 75.0%.")
    legend = section.figures["goodput"].legend
    assert legend is not None
    assert [column.label for column in legend.columns] == ["Part", "Time", "Of the job"]
    assert words(legend.html_note or "") == "1 restart. Not known for the job: checkpoint; their time is in other parts."


def test_an_unknown_goodput_leaves_the_phases(rich: Report) -> None:
    section = job_statistics(of(rich, percent=None, absent="The goodput is unknown."))
    assert section.lead.endswith(" The goodput is unknown.")
    assert list(section.figures) == ["parts"]
    assert "oodput" not in job_statistics(of(rich, percent=None, absent="The goodput is unknown.", parts=())).lead
    assert "Goodput" not in markdown(of(rich, percent=None)).decode()


def test_the_line_in_markdown(rich: Report) -> None:
    line = (
        "- Goodput: 75.0% of 8.00 GPU-h (`/goodput/percent`); initialization 10.0%, data wait 5.0%, after the last step 10.0%"
    )  # fmt: skip
    assert line in words(markdown(of(rich)).decode()).split("\n")


@pytest.mark.slow
def test_the_parts_of_a_simulated_run_agree_with_its_phases(tmp_path: Path) -> None:
    write_demo(tmp_path / "run", steps=4, problems=Problems(straggler_rank=1), nodes=2, gpus_per_node=1)
    report = api.analyze(tmp_path / "run", rules=[])
    work, job = report.goodput, report.job_statistics
    assert work is not None
    assert work.percent is not None
    times = {part.name: part.time_ns or 0 for part in work.parts}
    assert sum(times.values()) == 2 * (job.duration_ns or 0)  # two processes recorded all of their steps
    assert (times["initialization"], times["tail"]) == (2 * (job.initialization_ns or 0), 2 * (job.finalization_ns or 0))
    assert times["productive"] + times["slow_excess"] + times["evaluation"] == 2 * (job.loop_ns or 0)
    assert times["evaluation"] == next(phase.total_ns for phase in report.framework.phases if phase.name == "EVAL")
    assert f"Goodput is {work.percent:.1f}% of " in words(job_statistics(report).lead)
