"""Tests of the synthetic 2 x 2 GPU run against figures that plain Python computes from the same formulas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from operator_rows import framework
from postrun.analysis.machine.system_usage import system_usage
from postrun.analysis.run.job_statistics import job_statistics
from postrun.ingest import ingest
from postrun.ingest.store import Store

SECOND = 1_000_000_000
FIGURES = {"CPU": "cpu", "GPU": "gpu", "GPUmemory": "gpu_memory", "IO": "io_wait", "CPUmemory": "cpu_memory", "Network": "network"}


@pytest.fixture(scope="module")
def run(syn1: Path) -> Iterator[Store]:
    with ingest([syn1]) as store:
        yield store


def test_everything_is_read(run: Store) -> None:
    # 2400 snapshots of 2 machines with 2 x 2 GPU, 2 x 4 core, 3 network and 1 memory values; 320 steps, 2 x 300 modules, 301 loader events
    assert run.frame("SELECT count(*) FROM sample").item() == 2400 * 2 * 16
    assert run.frame("SELECT count(*) FROM annotation").item() == 320 + 600 + 301
    assert run.frame("SELECT hostname, cores, gpus FROM node ORDER BY hostname").rows() == [("algo-1", 4, 2), ("algo-2", 4, 2)]
    assert run.frame("SELECT DISTINCT label FROM process").rows() == [("algo-1-27",)]
    assert run.frame("SELECT status FROM run").item() == "completed"
    assert run.frame("SELECT count(*) FROM ingest_note WHERE severity <> 'info'").item() == 0


def test_overall_system_usage(run: Store, syn1_figures: dict[str, Any]) -> None:
    usage = {(row.node, row.metric): row for row in system_usage(run).nodes}
    figures = syn1_figures["OverallSystemUsage"]
    assert set(usage) == {(node, FIGURES[name]) for node in figures for name in figures[node]}
    for node, of_node in figures.items():
        for name, quantiles in of_node.items():
            row = usage[node, FIGURES[name]]
            assert row.samples == 2400
            actual = {key: getattr(row, key) for key in ("max", "p99", "p95", "p50", "min")}
            assert actual == pytest.approx(quantiles, abs=0.0051), (node, name)  # expected ones are rounded to two decimals


def test_statements_and_active_time(run: Store) -> None:
    usage = system_usage(run)
    assert usage.statements == (
        ("algo-1", "The median of the GPUs is 65%, of the CPU 14%."),
        ("algo-2", "Well used: the median of the GPUs is 96%, their mean over the whole time 96%."),
    )
    for active, units in ((usage.gpu_active, 4), (usage.cpu_active, 8)):
        assert active is not None
        assert (active.points, active.active_percent, active.derived) == (2400 * units, 100.0, False)


def test_job_statistics(run: Store, syn1_figures: dict[str, Any]) -> None:
    statistics = job_statistics(run)
    job = syn1_figures["JobSummary"]
    assert statistics.absent is None
    assert statistics.started_at_ns == round(job["job_start"] * 1000) * 1_000_000
    assert statistics.ended_at_ns == round(job["job_end"] * 1000) * 1_000_000
    whole_seconds = {
        "duration": statistics.duration_ns,
        "init": statistics.initialization_ns,
        "loop_by_end": statistics.loop_ns,
        "final_by_end": statistics.finalization_ns,
    }
    assert {key: (value or 0) // SECOND for key, value in whole_seconds.items()} == {key: job[key] for key in whole_seconds}


def test_phases(run: Store, syn1_figures: dict[str, Any]) -> None:
    split = syn1_figures["phase split (documented)"]
    section = framework(run)
    assert {phase.name: phase.percent for phase in section.phases} == pytest.approx(
        {"TRAIN": split["TRAIN"], "EVAL": split["EVAL"], "other": split["others"]}, rel=1e-9
    )
    # 300 steps of 60 ms forward and 120 ms backward, 300 waits of 450 ms for data in two processes
    assert {part.name: part.total_ns / SECOND for part in section.step_parts} == {"forward": 18.0, "backward": 36.0, "data loading": 135.0}
