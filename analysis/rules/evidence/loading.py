"""Waits for data in a run: the evidence that advice on data loading requires."""

from __future__ import annotations

from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...report.steps import Steps
from ...steps.loading_ranges import loading_recorded

WORTH_ADVICE_PERCENT: Final = 2.0  # share of the steps that waits for data must take before a rule advises on them


def loading_percent(store: Store, steps: Steps, loading: pl.DataFrame) -> float | None:
    """Return the share of the steps that waits for data take, None if not recorded.

    The share is that of the tile on data loading. ``loading``: the ranges of the run that are named as loading."""
    parts = [part for part in steps.parts if part.typical]
    total = sum(part.total_ns for part in parts)
    if not total or not loading_recorded(store, loading):
        return None
    return 100 * sum(part.loading_ns for part in parts) / total
