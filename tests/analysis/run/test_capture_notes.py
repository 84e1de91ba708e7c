"""Warnings about how a profile was recorded."""

from __future__ import annotations

from typing import Any

import pytest
from postrun.analysis.run.capture_notes import FEW_STEPS, WITH_STACK
from postrun.analysis.run.run_info import data_quality, run
from postrun.analysis.run.summary_warnings import warnings

KERNEL = {"node": 0, "process": 0, "kind": "kernel", "name": "k", "device": 0, "start_ns": 0, "duration_ns": 10}
TRACE = {"id": 0, "path": "a.json", "format": "PyTorch profiler trace"}


def step(number: int) -> dict[str, Any]:
    return {"node": 0, "process": 0, "number": number, "source": "range", "host_start_ns": 100 * number, "host_duration_ns": 90}


def host(kind: str, name: str) -> dict[str, Any]:
    return {"node": 0, "process": 0, "kind": kind, "name": name, "start_ns": 0, "duration_ns": 5}


@pytest.mark.parametrize(
    ("tables", "codes"),
    [
        ({"step": [step(0), step(1)]}, []),
        ({"step": [step(0)]}, [FEW_STEPS]),
        ({}, [FEW_STEPS]),
        ({"step": [step(0), step(1)], "host_event": [host("python", "train.py(3): step")]}, [WITH_STACK]),
        ({"step": [step(0), step(1)], "host_event": [host("operator", "aten::mm")]}, []),
    ],
)
def test_limits_of_a_recording(make_store: Any, tables: dict[str, Any], codes: list[str]) -> None:
    store = make_store(device_event=[KERNEL], source=[TRACE], **tables)
    notes = data_quality(store)
    assert [(note.code, note.severity) for note in notes] == [(code, "warning") for code in codes]


def test_a_run_without_a_profile_has_no_limits(make_store: Any) -> None:
    assert data_quality(make_store(source=[TRACE])) == ()


def test_both_are_on_the_first_page(make_store: Any) -> None:
    store = make_store(device_event=[KERNEL], source=[TRACE], step=[step(0)], host_event=[host("python", "train.py(3): step")])
    first, second = warnings(run(store), data_quality(store))
    assert first.startswith("The profile has one step: ")
    assert second.startswith("Python frames were recorded (`with_stack`), which slows the host")
