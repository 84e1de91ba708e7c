"""Tests of real traces of TensorFlow's profiler: documented counts and times, and figures of a plain recount."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis import analyze
from postrun.analysis.report import Report
from postrun.ingest import ingest
from postrun.ingest.store import Store

METADATA = ("80807-8c859046be41.ant.amazon.com", 1_596_659_864_545_103, 1_596_659_864_854_168)


@pytest.fixture(scope="module")
def smdebug(shared_data: Path) -> Path:
    folder = shared_data / "smdebug"
    if not folder.is_dir():
        pytest.skip(f"no files of the hosted profiler: {folder} is no folder")
    return folder


def complete(folder: Path) -> list[dict[str, Any]]:
    """The complete events of the only trace below ``folder``."""
    (path,) = folder.rglob("*.trace.json.gz")
    return [event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if event.get("ph") == "X"]


def rows(store: Store) -> Counter[tuple[str, int, int]]:
    """Name, start and duration of every stored event."""
    parts = [f"SELECT name, start_ns, duration_ns FROM {table}" for table in ("device_event", "host_event", "annotation")]
    query = f"SELECT n.text, start_ns, duration_ns FROM ({' UNION ALL '.join(parts)}) AS e JOIN name AS n ON n.id = e.name"
    return Counter(store.frame(query).rows())


def nanoseconds(microseconds: float) -> int:
    return int(round(microseconds * 1_000_000) // 1000)


@pytest.fixture(scope="module")
def profiled(smdebug: Path) -> Store:
    return ingest([smdebug / "tfprofiler_timeline_traces" / "framework" / "tensorflow" / "detailed_profiling"])


@pytest.fixture(scope="module")
def report(profiled: Store) -> Report:
    return analyze(profiled)


def test_every_event_stands_at_the_start_that_the_metadata_names(smdebug: Path, profiled: Store) -> None:
    events = complete(smdebug / "tfprofiler_timeline_traces")
    assert len(events) == 798
    start = METADATA[1] * 1000
    assert rows(profiled) == Counter((one["name"], start + nanoseconds(one["ts"]), nanoseconds(one["dur"])) for one in events)
    (source,) = profiled.frame("SELECT events, first_ns, last_ns FROM source WHERE events > 0").rows()
    assert source == (798, start + 21_307_000, start + 293_205_000)
    assert profiled.frame("SELECT hostname, pid, label FROM process JOIN node ON node.id = node").rows() == [
        (METADATA[0].partition("-")[2], 80807, METADATA[0])
    ]
    assert profiled.frame("SELECT code, count FROM ingest_note").rows() == [("format_not_read", 5)]


def test_figures_are_those_of_a_recount(smdebug: Path, profiled: Store, report: Report) -> None:
    events = complete(smdebug / "tfprofiler_timeline_traces")
    assert (report.run.framework, report.run.relative_times) == ("TensorFlow", False)
    (step,) = [one for one in events if "step_name" in one.get("args", {})]
    actual = profiled.frame("SELECT index, host_start_ns, host_duration_ns FROM step").rows()
    assert actual == [(int(step["args"]["step_name"]), (METADATA[1] + step["ts"]) * 1000, step["dur"] * 1000)]
    # the iterator's root is called inside of the operator that requests a batch
    waits = sorted(
        (one["ts"], one["ts"] + one["dur"]) for one in events if one["name"] in ("IteratorGetNextOp::DoCompute", "Iterator::Model")
    )
    covered, reached = 0, 0
    for start, end in waits:
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    assert {share.name: share.total_ns for share in report.framework.step_parts} == {"data loading": covered * 1000}
    operators: Counter[str] = Counter()
    for event in events:
        before, colon, kind = event["name"].rpartition(":")
        if colon and not before.endswith(":") and " " not in event["name"] and kind.lstrip("_")[:1].isupper():
            operators[event["name"]] += nanoseconds(event["dur"])
    times = {row.name: row.total_ns for row in report.framework.cpu_operators}
    listed = [name for name in times if name in operators]
    assert len(listed) >= 4
    assert {name: times[name] for name in listed} == {name: operators[name] for name in listed}
    assert sum(times.values()) == sum(operators.values())


def test_without_metadata_times_count_from_the_start_of_the_profile(smdebug: Path) -> None:
    folder = smdebug / "tfprofiler_local_missing_metadata"
    events = complete(folder)
    assert len(events) == 256
    store = ingest([folder])
    assert rows(store) == Counter((one["name"], nanoseconds(one["ts"]), nanoseconds(one["dur"])) for one in events)
    assert store.frame('SELECT "index" FROM device ORDER BY 1')["index"].to_list() == list(range(8))
    assert store.frame("SELECT hostname, pid FROM process JOIN node ON node.id = node").rows() == [("ip-172-31-19-241", None)]
    assert store.frame("SELECT code, severity FROM ingest_note").rows() == [("relative_times", "info")]
    report = analyze(store)
    assert report.run.relative_times
    assert "times start at 0" in " ".join(report.summary.warnings)


def test_timelines_of_the_same_machine_join_the_profile(smdebug: Path, tmp_path: Path) -> None:
    """The real trace with a timeline of the same node: one process."""
    source = smdebug / "tfprofiler_timeline_traces" / "framework"
    (tmp_path / "framework").mkdir()
    (tmp_path / "framework" / "tensorflow").symlink_to(source / "tensorflow" / "detailed_profiling")
    timeline = tmp_path / f"framework/pevents/2020080520/{METADATA[2]}_{METADATA[0]}_model_timeline.json"
    timeline.parent.mkdir(parents=True)
    base = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": METADATA[1]}}
    phase = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "DataIterator"}}
    event = {"name": "dataset::GetNext", "pid": 1, "ph": "X", "ts": 0, "dur": 9, "args": {"pid": 80807}}
    timeline.write_text(json.dumps([base, phase, event]))
    store = ingest([tmp_path, tmp_path / "framework" / "tensorflow"])
    assert store.frame("SELECT pid FROM process").rows() == [(80807,)]
    assert sum(rows(store).values()) == 799
