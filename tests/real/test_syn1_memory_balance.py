"""Tests of GPUMemoryIncrease and LoadBalancing on the synthetic run against figures that plain Python computes from its formulas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.report import ISSUES
from postrun.ingest import ingest
from postrun.ingest.store import Store
from rule_details import plain_details
from sample_rules import judged

BEGIN_MS = 1_700_000_040_001


@pytest.fixture(scope="module")
def run(syn1: Path) -> Iterator[Store]:
    with ingest([syn1]) as store:
        yield store


@pytest.mark.parametrize(
    ("preset", "key"),
    [
        ("service", "GPUMemoryIncrease(increase=5,window=10,patience=1000)"),
        ("documented", "GPUMemoryIncrease(increase=10,window=500,patience=100)"),
    ],
)
def test_memory_increase(run: Store, syn1_figures: dict[str, Any], preset: str, key: str) -> None:
    actual = judged(run, "GPUMemoryIncrease", preset=preset)
    ((unit, figures),) = syn1_figures[key].items()
    assert unit == "algo-1/gpu0"
    row = plain_details(actual)["devices"][0]
    assert (row["node"], row["device"], row["memory_figure"]) == ("algo-1", 0, "memory controller")
    assert (actual.verdict, actual.violations, row["violations"]) == (ISSUES, figures["hits"], figures["hits"])
    assert row["largest_increase"] == figures["max_increase"]
    (episode,) = row["episodes"]
    assert episode["start_ns"] == (BEGIN_MS + 500 * figures["first_k"]) * 1_000_000 == actual.first_ns
    assert episode["end_ns"] == (BEGIN_MS + 500 * figures["last_k"]) * 1_000_000 == actual.last_ns
    assert [other["violations"] for other in plain_details(actual)["devices"][1:]] == [0, 0, 0]
    # windows of 120 samples, the last one full
    assert actual.windows_triggered == figures["last_k"] // 120 - figures["first_k"] // 120 + 1


@pytest.mark.parametrize(("preset", "threshold"), [("documented", 0.5), ("service", 0.24)])
def test_load_balancing(run: Store, syn1_figures: dict[str, Any], preset: str, threshold: float) -> None:
    actual = judged(run, "LoadBalancing", preset=preset)
    distances = syn1_figures["LoadBalancing"]
    names = [f"{row['node']}/gpu{row['device']}" for row in plain_details(actual)["devices"]]
    matrix = plain_details(actual)["matrix"]
    seen = {f"{a} vs {b}": matrix[i][j] for i, a in enumerate(names) for j, b in enumerate(names) if i < j}
    assert seen == pytest.approx(distances, abs=1e-6)
    assert (actual.verdict, actual.violations) == (ISSUES, sum(apart > threshold for apart in distances.values()))
    assert [row["mean"] for row in plain_details(actual)["devices"]] == pytest.approx([77.0, 39.5, 92.0, 100.0])
    assert actual.cost is not None
    assert actual.cost.ns == pytest.approx((23 + 60.5 + 8) / 100 * 1200e9)
