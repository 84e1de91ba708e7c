"""Device time of a simulated run of two nodes, whose totals are known from how it was made."""

from __future__ import annotations

from pathlib import Path

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.report import Report
from postrun.analysis.toolkit import intervals
from postrun.ingest import ingest
from postrun.simulate import DemoTruth, Problems, write_demo

FIGURES = (
    "span_ns", "busy_ns", "idle_ns", "computation_ns", "communication_ns", "exposed_communication_ns", "memory_ns", "exposed_memory_ns",
    "memcpy_ns", "memset_ns",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[DemoTruth, Report]:
    folder = tmp_path_factory.mktemp("run")
    truth = write_demo(folder, steps=8, gpus_per_node=2, problems=Problems(straggler_rank=1))
    with ingest([folder]) as store:
        return truth, analyze(store, Options(generated_at_ns=0))


@pytest.mark.slow
def test_the_report_is_the_same_without_the_extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_demo(tmp_path, steps=8, gpus_per_node=2, problems=Problems(straggler_rank=1))
    options = Options(generated_at_ns=1)
    with ingest([tmp_path]) as store:
        report = analyze(store, options)
        monkeypatch.setattr(intervals, "_extension", lambda: None)
        assert analyze(store, options) == report


def test_every_rank_to_the_nanosecond(run: tuple[DemoTruth, Report]) -> None:
    truth, report = run
    result = [(d.node, d.rank, d.pid, d.device, *(getattr(d, figure) for figure in FIGURES)) for d in report.time_breakdown]
    expected = [(r.node, r.rank, r.pid, r.device, *(getattr(r, figure) for figure in FIGURES)) for r in truth.ranks]
    assert result == sorted(expected)


def test_every_kernel(run: tuple[DemoTruth, Report]) -> None:
    truth, report = run
    assert {k.name: (k.count, k.total_ns) for k in report.kernels} == {n: (k.count, k.total_ns) for n, k in truth.kernels.items()}
    assert sum(k.share_of_kernel_time for k in report.kernels) == pytest.approx(100)


def test_every_run_has_its_launch(run: tuple[DemoTruth, Report]) -> None:
    _, report = run
    assert report.launches.runs_without_launch == 0
    assert all(device.linked_busy_ns == device.busy_ns for device in report.time_breakdown)
    assert report.launches.pairs == sum(device.events for device in report.time_breakdown)


def test_pageable_copies(run: tuple[DemoTruth, Report]) -> None:
    truth, report = run
    pageable = sum(m.total_ns for m in report.memory_operations if m.memory == "pageable")
    assert pageable == sum(rank.pageable_copy_ns for rank in truth.ranks) > 0


def test_the_headline_names_the_worst_loss(run: tuple[DemoTruth, Report]) -> None:
    truth, report = run
    busy = 100 * sum(r.busy_ns for r in truth.ranks) / sum(r.span_ns for r in truth.ranks)
    assert next(figure.number for figure in report.summary.figures if figure.key == "gpu_busy") == pytest.approx(busy)
    # The profile is a window of the job, which ends with idle GPUs.
    assert report.summary.headline.startswith("GPUs averaged ")
    assert "The largest avoidable losses are an idle tail (up to " in report.summary.headline
    assert report.job_strip is not None
    assert [phase.name for phase in report.job_strip.phases] == ["initialization", "training", "idle tail"]
    assert report.summary.subtitle.startswith("4 × H100 80GB, 2 nodes · ")
    assert [tile.key for tile in report.summary.tiles if tile.value == "—"] == []
    assert not report.run.relative_times
