"""Goodput of a real trace, counted again in plain Python from its JSON."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.run.goodput import goodput
from postrun.analysis.steps.data import StepData
from postrun.ingest import ingest

TRACE = "kineto/v100_old_schema/resnet50_num_workers_0.json.gz"  # whole microseconds; six steps that wait for their data


def parts_of(events: list[dict[str, Any]]) -> Counter[str]:
    """Return the time of each part of the trace (µs), microsecond by microsecond."""
    timed = [event for event in events if event.get("ph") == "X" and event.get("cat") not in (None, "Trace")]
    first = min(event["ts"] for event in timed)
    length = max(event["ts"] + event["dur"] for event in timed) - first
    device = [event for event in timed if event["cat"] in ("Kernel", "Memcpy", "Memset")]
    end_of = {event["args"]["correlation"]: event["ts"] + event["dur"] for event in device}
    steps = sorted((event["ts"], event["ts"] + event["dur"]) for event in timed if event["name"].startswith("ProfilerStep#"))
    extents, before = [], None
    for start, end in steps:
        launched = (event["args"]["correlation"] for event in timed if event["cat"] == "Runtime" and start <= event["ts"] < end)
        end = max([end, before or 0, *(end_of[correlation] for correlation in launched if correlation in end_of)])
        extents.append((start if before is None else before, end))
        before = end
    loading, busy, stepping = bytearray(length), bytearray(length), bytearray(length)
    for marks, spans in (
        (loading, [(event["ts"], event["ts"] + event["dur"]) for event in timed if event["name"].startswith("enumerate(DataLoader)")]),
        (busy, [(event["ts"], event["ts"] + event["dur"]) for event in device]),
        (stepping, extents),
    ):
        for start, end in spans:
            marks[start - first : end - first] = b"\1" * (end - start)
    times: Counter[str] = Counter()
    for moment in range(length):
        if stepping[moment]:
            times["data_wait" if loading[moment] and not busy[moment] else "productive"] += 1
        else:
            times["initialization" if moment < extents[0][0] - first else "tail"] += 1
    return times


def test_the_split_of_a_real_trace(shared_data: Path) -> None:
    path = shared_data / TRACE
    if not path.is_file():
        pytest.skip("the trace is not here")
    expected = parts_of(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"])
    assert expected["data_wait"] > 0.1 * expected.total()
    with ingest([path]) as store:
        report = analyze(store, Options(generated_at_ns=0))
        assert report.goodput is not None
        assert (report.goodput.percent, report.goodput.parts) == (None, ())
        assert "only a part of the job" in (report.goodput.absent or "")
        # As if the trace were the job.
        job = dataclasses.replace(report.job_statistics, captured_only=False)
        result = goodput(store, dataclasses.replace(report, job_statistics=job), StepData(store))
    assert {part.name: part.time_ns for part in result.parts if part.time_ns} == {name: 1000 * time for name, time in expected.items()}
    assert result.percent == pytest.approx(100 * expected["productive"] / expected.total())
    assert [part.name for part in result.parts if part.time_ns is None] == ["slow_excess", "checkpoint", "evaluation"]
