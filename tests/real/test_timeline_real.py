"""Timelines of real traces, counted again from the trace files without any part of this project."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from postrun.analysis.run.job_statistics import job_statistics
from postrun.analysis.steps.slow import slow_steps
from postrun.analysis.steps.steps import steps
from postrun.analysis.timeline.build import timeline
from postrun.ingest import ingest

FILES = ("h100/Falconsai_nsfw_image_detection__1016002.json.gz", "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")


@pytest.mark.parametrize("name", FILES)
def test_streams_and_pairs(shared_data: Path, name: str) -> None:
    path = shared_data / "kineto" / name
    with gzip.open(path) as file:
        raw: list[dict[str, Any]] = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    runs = [event for event in raw if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    launching = ("Launch", "Memcpy", "Memset")
    calls = [
        event for event in raw if event.get("cat") in ("cuda_runtime", "cuda_driver") and any(word in event["name"] for word in launching)
    ]
    called, ran = Counter(event["args"]["correlation"] for event in calls), {event["args"]["correlation"] for event in runs}
    with ingest([path]) as store:
        report: Any = SimpleNamespace(steps=steps(store), slow_steps=slow_steps(store), job_statistics=job_statistics(store))
        actual = timeline(store, report)
    assert actual is not None
    assert actual.shown is None
    meanings = [actual.names[number].meaning for number in actual.events.name]
    tracks = [actual.tracks[number] for number in actual.events.track]
    on_streams = [track for track, meaning in zip(tracks, meanings, strict=True) if track.kind == "stream" and meaning != "sync"]
    streams = Counter(int(track.label.removeprefix("stream ")) for track in on_streams)
    assert streams == Counter(event["args"]["stream"] for event in runs)
    linked = actual.events.partner >= 0
    by_run = sum(bool(link) for link, track in zip(linked, tracks, strict=True) if track.kind == "stream")
    by_call = sum(bool(link) for link, track in zip(linked, tracks, strict=True) if track.kind == "thread")
    assert by_run == sum(event["args"]["correlation"] in called for event in runs)
    assert by_call == len(called.keys() & ran)
    numbered = actual.events.correlation
    known = {(track.kind == "stream", n) for n, track in zip(numbered.tolist(), tracks, strict=True) if n > 0}
    assert {n for on_stream, n in known if on_stream} == {event["args"]["correlation"] for event in runs if event["args"]["correlation"]}
    assert {n for on_stream, n in known if not on_stream} >= {n for n in called if n}
    threads = Counter(track.detail or track.label for track in tracks if track.kind == "thread")
    operators = Counter(f"thread {event['tid']}" for event in raw if event.get("cat") == "cpu_op")
    assert all(threads[thread] >= count for thread, count in operators.items())
