"""A window whose end is exactly the patience of a longer series stays unevaluated."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store


@pytest.mark.parametrize(("patience", "windows"), [(119, 2), (120, 1), (239, 1)])
def test_windows_end_beyond_the_patience(make_store: Callable[..., Store], patience: int, windows: int) -> None:
    # Two samples a second, starting at a full minute: the windows of a minute end after 120 and 240 samples.
    samples = [{"node": 0, "metric": "gpu_utilization", "unit": 0, "time_ns": i * 500_000_000, "value": 20.0} for i in range(240)]
    settings = {"LowGPUUtilization_patience": patience, "LowGPUUtilization_window": 60}
    report = rules_of(make_store(sample=samples), Options(selection=select(["LowGPUUtilization"], settings=settings), generated_at_ns=0))
    [result] = report.rules
    assert (result.verdict, result.windows, result.triggered) == ("IssuesFound", windows, windows)
