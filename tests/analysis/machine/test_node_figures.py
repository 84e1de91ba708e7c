"""Figures of all nodes at once equal those of each node by itself, and plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from postrun.analysis.machine import node_figures as module
from postrun.analysis.machine.system_usage import system_usage
from postrun.ingest.store import Store

Make = Callable[..., Store]
STEP = 500_000_000
T = 1_700_000_040_000_000_000
UNITS: dict[str, list[int | None]] = {
    "gpu_utilization": [0, 1, 2], "cpu_utilization": [0, 1, None], "gpu_memory_used_percent": [0], "gpu_memory_controller": [0, 1],
    "network_receive": [None], "network_transmit": [None], "disk_iops": [None],
}  # fmt: skip


def rows_of(rng: random.Random, *, regular: bool) -> list[dict[str, Any]]:
    """Samples of nodes with different metrics; irregular ones are missing or late."""
    rows = []
    for node in range(3):
        for metric in rng.sample(list(UNITS), 5):
            for number in range(60 + 450 * (node == 1)):
                for unit in UNITS[metric]:
                    if regular or rng.random() < 0.95:
                        late = 0 if regular else rng.choice([0, 0, 7_000_000])
                        value = rng.randint(0, 10_000) / 100
                        rows.append({"node": node, "metric": metric, "unit": unit, "time_ns": T + number * STEP + late, "value": value})
    rng.shuffle(rows)
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_all_nodes_at_once_equal_each_by_itself(make_store: Make, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    store = make_store(sample=rows_of(random.Random(seed), regular=True))
    nodes = module._node_by_node
    monkeypatch.setattr(module, "_node_by_node", None)
    at_once = system_usage(store)
    monkeypatch.setattr(module, "_node_by_node", nodes)
    monkeypatch.setattr(module, "_at_once", lambda *_: None)
    assert system_usage(store) == at_once
    monkeypatch.setattr(module, "_AT_ONCE", 1)
    assert system_usage(store) == at_once


def test_irregular_nodes_are_computed_one_by_one(make_store: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(sample=rows_of(random.Random(7), regular=False))
    usage = system_usage(store)
    monkeypatch.setattr(module, "_at_once", lambda *_: None)
    assert system_usage(store) == usage


@pytest.mark.parametrize("seed", range(3))
def test_means_of_snapshots_equal_plain_python(make_store: Make, seed: int) -> None:
    rows = rows_of(random.Random(seed), regular=True)
    store = make_store(sample=rows)
    counted = module.counts(store)
    assert counted["n"].sum() == len(rows)
    assert counted["active"].sum() == sum(row["value"] > 0 for row in rows)
    nodes = sorted({row["node"] for row in rows})
    for node, figures in module.figures_of_nodes(store, counted, nodes, pl.DataFrame()):
        for figure in figures:
            metrics = {"gpu": ["gpu_utilization"], "cpu": ["cpu_utilization"], "network": ["network_receive", "network_transmit"]}
            if figure.name not in metrics:
                continue
            values: dict[int, dict[int | None, float]] = {}
            for row in rows:
                if row["node"] == node and row["metric"] in metrics[figure.name]:
                    of_unit = values.setdefault(row["time_ns"], {})
                    of_unit[row["unit"]] = of_unit.get(row["unit"], 0.0) + row["value"]
            expected = [(time, min(own.values()), max(own.values())) for time, own in sorted(values.items())]
            assert figure.node.select("snapshot_ns", "low", "high").rows() == expected
            assert figure.node["value"].to_list() == pytest.approx([sum(own.values()) / len(own) for _, own in sorted(values.items())])
