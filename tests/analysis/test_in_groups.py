"""A run that is read in groups of a few processes has the same report and timeline as one that is read at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.causes import exposed, operations
from postrun.analysis.device import collectives, device_gaps
from postrun.analysis.report.model import Report
from postrun.analysis.steps import claims
from postrun.analysis.timeline import reduction
from postrun.analysis.timeline.build import timeline
from postrun.analysis.timeline.model import Timeline
from postrun.analysis.toolkit import places, shared
from postrun.ingest import ingest
from postrun.ingest.derive import steps
from postrun.simulate import write_demo

pytestmark = pytest.mark.slow

CAP = 3_000  # events of the timeline, so that most are merged


def analyzed(folder: Path) -> tuple[Report, Timeline]:
    with ingest([folder], threads=1) as store:
        report = analyze(store, Options(generated_at_ns=0))
        drawn = timeline(store, report, cap=CAP)
    assert drawn is not None
    return report, drawn


def test_each_process_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_demo(tmp_path / "demo", steps=6)
    report, drawn = analyzed(tmp_path / "demo")
    monkeypatch.setattr(places, "ROWS_AT_ONCE", 1)
    monkeypatch.setattr(device_gaps, "ROWS_AT_ONCE", 1)
    monkeypatch.setattr(collectives, "_ROWS", 7)
    monkeypatch.setattr(exposed, "_ROWS", 9)
    monkeypatch.setattr(operations, "AT_ONCE", 1)
    monkeypatch.setattr(claims, "_ROWS_AT_ONCE", 500)
    monkeypatch.setattr(reduction, "AT_ONCE", 4_000)
    monkeypatch.setattr(steps, "_BLOCK", 200)
    monkeypatch.setattr(shared, "_KEPT_ROWS", 0)
    apart, apart_drawn = analyzed(tmp_path / "demo")
    assert apart.to_json() == report.to_json()
    for column in ("track", "start_ns", "duration_ns", "name", "lane", "partner", "detail", "correlation", "step"):
        assert getattr(apart_drawn.events, column).tolist() == getattr(drawn.events, column).tolist(), column
    assert (apart_drawn.tracks, apart_drawn.names, apart_drawn.views) == (drawn.tracks, drawn.names, drawn.views)
    assert (apart_drawn.events_total, apart_drawn.shown, apart_drawn.details) == (drawn.events_total, drawn.shown, drawn.details)
