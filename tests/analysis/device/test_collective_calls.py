"""The kernels of collectives, combined to calls in parts of whole processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from postrun.analysis.device import collectives
from postrun.analysis.device.collectives import collective_calls
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.simulate import Problems, write_demo


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("simulated")
    write_demo(folder, steps=2, nodes=1, gpus_per_node=3, problems=Problems(straggler_rank=None))
    with ingest([folder]) as store:
        yield store


@pytest.mark.parametrize("rows", [1, 3, 15, 16, 1000])
def test_calls_do_not_depend_on_the_batches_in_which_kernels_are_read(store: Store, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = collective_calls(store)
    assert calls["process"].n_unique() == 3
    # In the simulated run, each kernel is a call of its own.
    kernels = store.frame("SELECT process, start_ns FROM device_run WHERE communication ORDER BY process, start_ns")
    assert calls.select("process", "start").rows() == kernels.rows()

    def batches(self: Store, sql: str, parameters: Any = None, *, rows: int) -> Iterator[pl.DataFrame]:
        yield from self.frame(sql, parameters).iter_slices(size)

    size = rows
    monkeypatch.setattr(Store, "batches", batches)
    assert collective_calls(store).equals(calls)
    # The kernels of one call may be in two batches.
    assert sum(part["process"].n_unique() for part in collectives._of_processes(store)) == 3
