"""Tests that frames of events that a run does not have are those that its statement returns."""

from __future__ import annotations

import polars as pl
import pytest
from postrun.analysis.device import collectives
from postrun.analysis.steps import loading_ranges, timed
from postrun.ingest.store import Store


@pytest.mark.parametrize(
    ("schema", "statement", "parameters"),
    [
        (collectives._SCHEMA, collectives._KERNELS, None),
        (timed._SCHEMA, timed._STEPS, None),
        (loading_ranges._SCHEMA, f'SELECT process, start, "end", text AS name FROM ({loading_ranges._RANGES})', [""]),
    ],
)
def test_an_empty_frame_has_the_columns_of_the_statement(
    schema: dict[str, type[pl.DataType]], statement: str, parameters: list[str] | None
) -> None:
    with Store.temporary() as store:
        assert store.frame(statement, parameters).schema == pl.Schema(schema)
