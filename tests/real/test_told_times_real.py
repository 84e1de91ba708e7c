"""Tests that sentences state the base of their times: a step, several ranks, the recording, records or events."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.report import Report
from postrun.analysis.timeline.build import timeline
from postrun.ingest import ingest
from postrun.report_templates.sections.data_quality import data_quality
from postrun.report_templates.sections.job_statistics import job_statistics
from postrun.report_templates.sections.step_parts import telling
from postrun.report_templates.sections.steps import steps
from postrun.report_templates.timeline.section import timeline as timeline_section


def plain(text: object) -> str:
    return re.sub(r"\s", " ", re.sub(r"<[^>]*>", "", str(text)))


def reported(folder: Path, *names: str) -> tuple[Report, str]:
    """The report and the first words of its timeline."""
    paths = [folder / "kineto" / name for name in names]
    if not all(path.is_file() for path in paths):
        pytest.skip("the traces are not here")
    with ingest(paths) as store:
        report = analyze(store, Options(generated_at_ns=0))
        return report, plain(timeline_section(timeline(store, report)).lead)


def test_the_only_step_begins_when_the_work_before_it_ends(shared_data: Path) -> None:
    # By the trace: ProfilerStep of 49.4 ms; for its first 14.2 ms the device works on 509 kernels that were launched before it.
    report, _ = reported(shared_data, "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
    [part] = report.steps.parts
    assert part.mean_step_ns == 35_183_362
    assert [(work.when, work.runs) for work in report.steps.outside] == [("before", 509)]
    assert "509 GPU events" in plain(steps(report).lead)
    # The range of the forward pass lasts 47.2 ms on the host; the first page has the time of its step on the GPU alone.
    assert "iteration_time" not in [tile.key for tile in report.summary.tiles]
    [tile] = [tile for tile in report.summary.tiles if tile.key == "step_time"]
    assert (tile.label, tile.value) == ("GPU time per step", "34.9 ms")
    # The work of the step before is not reported as work without an operator.
    assert "no known operator" not in report.summary.headline


def test_steps_of_two_ranks_and_events(shared_data: Path) -> None:
    report, page = reported(shared_data, "sampled_2_ranks/sampled_rank-0.json.gz", "sampled_2_ranks/sampled_rank-1.json.gz")
    assert plain(telling(report.steps.parts).sentence).startswith("the average step takes 615 ms to 619 ms of wall time on 2 ranks; rank ")
    assert plain(data_quality(report).lead).startswith("2 files, 9,485 records;")
    assert page.startswith("9,489 events, the steps among them, over ")
    assert len(report.steps.steps) == 9489 - 9485


def test_a_window_of_a_job_does_not_tell_its_end(shared_data: Path) -> None:
    report, _ = reported(shared_data, "v100_ddp/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz")
    statistics = job_statistics(report)
    assert "how long the initialization and the finalization of the job took is not known" in plain(statistics.lead)
    labels = [row[0].text for row in statistics.tables["times"].rows]
    assert labels == ["Start time", "End time", "Recorded time", "Training loop start", "Training loop end"]
    legend = statistics.figures["parts"].legend
    assert legend is not None
    assert [row[0].text for row in legend.rows] == ["Training loop", "After the last step"]


def test_ranges_named_as_data_loading_count_where_there_are_no_events(shared_data: Path) -> None:
    # By the trace of rank 0: no enumerate(DataLoader), and `## data_load ##` ranges on the host.
    path = shared_data / "kineto" / "sampled_2_ranks" / "sampled_rank-0.json.gz"
    if not path.is_file():
        pytest.skip(f"no real trace: {path} is no file")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    durations = [event["dur"] for event in events if event.get("cat") == "user_annotation" and event["name"] == "## data_load ##"]
    assert durations
    assert not any("enumerate(DataLoader)" in str(event.get("name")) for event in events)
    report, _ = reported(shared_data, "sampled_2_ranks/sampled_rank-0.json.gz")
    [tile] = [tile for tile in report.summary.figures if tile.key == "data_loading"]
    # Time that device work and calls cover does not count (recomputed for every trace in test_recomputed.py).
    [part] = report.steps.parts
    assert part.loading_names == ("## data_load ##",)
    assert 0 < part.mean_ns["data_loader"] * part.steps < sum(durations) * 1000
    assert tile.number == pytest.approx(100 * part.mean_ns["data_loader"] / part.mean_step_ns)
    assert [part.total_ns for part in report.framework.step_parts if part.name == "data loading"] == [sum(durations) * 1000]
