"""torch_trace_handler writes files that `postrun report` reads, with the real torch.profiler.

The report's figures are computed a second time from the files, in plain Python. The tests do not depend on torch, because it is large.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from postrun import native

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (pip install torch)")

TRAIN = """
import contextlib, os, sys
import torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset
from postrun import capture

class Numbers(Dataset):
    def __len__(self):
        return 16 * 24

    def __getitem__(self, i):
        with capture.annotate("item", value=i):
            return torch.full((8,), float(i)), i % 2

def main(recorded):
    ranked = "RANK" in os.environ
    if ranked:
        torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 2)
    if ranked:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    loader = DataLoader(Numbers(), batch_size=16, num_workers=2, multiprocessing_context="fork")
    session = capture.session(os.environ["POSTRUN_DIR"], follow_fork=True) if recorded else contextlib.nullcontext()
    handler = capture.torch_trace_handler(os.environ["POSTRUN_DIR"])
    kept = dict(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=3, repeat=3), on_trace_ready=handler)
    with session, profile(**kept) as profiler:
        for i, (x, y) in enumerate(loader):
            with capture.annotate("step", value=i):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            profiler.step()
    if ranked:
        torch.distributed.destroy_process_group()

if __name__ == "__main__":
    main(sys.argv[1] == "recorded")
"""
STEPS = [2, 3, 4, 7, 8, 9, 12, 13, 14]  # Active ones: of each five the last three, three times


def train(folder: Path, recorded: str, *launcher: str) -> None:
    program = folder / "train.py"
    program.write_text(TRAIN)
    known = {key: value for key, value in os.environ.items() if not key.startswith("POSTRUN_") and key != "RANK"}
    done = subprocess.run(
        [sys.executable, *launcher, str(program), recorded],
        env={**known, "POSTRUN_DIR": str(folder / "traces"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def report(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "postrun", "report", str(folder / "traces"), "-o", str(folder / "report"), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report_json: dict[str, Any] = json.loads((folder / "report" / "report.json").read_text())
    return report_json


def read(folder: Path) -> list[dict[str, Any]]:
    """The complete events of all traces, with exact times and their process."""
    events = []
    for path in sorted((folder / "traces").rglob("*.pt.trace.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
        base = trace.get("baseTimeNanoseconds", 0)
        for event in trace["traceEvents"]:
            if event.get("ph") == "X" and event.get("cat") in {"cpu_op", "user_annotation"}:
                start = base + int(Decimal(event["ts"]) * 1000)
                events.append({**event, "start_ns": start, "duration_ns": int(Decimal(event["dur"]) * 1000), "file": str(path)})
    return events


def steps(events: list[dict[str, Any]]) -> list[tuple[int, int, int, int]]:
    return sorted(
        (event["pid"], int(event["name"].partition("#")[2]), event["start_ns"], event["duration_ns"])
        for event in events
        if event["name"].startswith("ProfilerStep#")
    )


def reported_steps(report_json: dict[str, Any]) -> list[tuple[int, int, int, int]]:
    return sorted((step["pid"], step["index"], step["start_ns"], step["duration_ns"]) for step in report_json["steps"]["steps"])


def test_three_cycles_are_one_run(tmp_path: Path) -> None:
    train(tmp_path, "alone")
    report_json, events = report(tmp_path), read(tmp_path)
    assert [index for _, index, _, _ in steps(events)] == STEPS
    assert reported_steps(report_json) == steps(events)
    (group,) = report_json["steps"]["groups"]
    assert group["quantiles"]["p50"] == statistics.median(duration for *_, duration in steps(events))
    counted = Counter(event["file"] for event in events)
    assert {source["path"]: source["events"] for source in report_json["run"]["sources"]} == counted
    assert len(counted) == 3
    assert all(note["severity"] == "info" for note in report_json["data_quality"])


def test_each_rank_has_a_folder(tmp_path: Path) -> None:
    train(tmp_path, "alone", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == ["rank0", "rank1"]
    report_json, events = report(tmp_path), read(tmp_path)
    assert reported_steps(report_json) == steps(events)
    assert len(steps(events)) == 2 * len(STEPS)
    of_rank = {event["pid"]: int(Path(event["file"]).parent.name.removeprefix("rank")) for event in events}
    assert {(one["pid"], one["rank"]) for one in report_json["processes"]} == set(of_rank.items())
    assert report_json["run"]["world_size"] == 2
    reduced = sum(event["name"] == "gloo:all_reduce" for event in events)
    groups = {group["name"]: group["quantiles"]["count"] for group in report_json["annotations"]["groups"]}
    assert groups.get("gloo:all_reduce", 0) == reduced


@pytest.mark.skipif(not native.available(), reason="this installation has no C library")
def test_a_recording_and_traces_of_one_process_are_one_process(tmp_path: Path) -> None:
    train(tmp_path, "recorded")
    report_json, events = report(tmp_path), read(tmp_path)
    # The trainer has both, and its steps are the profiler's; each worker has its recording.
    (trainer,) = {event["pid"] for event in events}
    assert reported_steps(report_json) == steps(events)
    assert len(report_json["processes"]) == 3
    assert trainer in {one["pid"] for one in report_json["processes"]}
    groups = {group["name"]: group["quantiles"]["count"] for group in report_json["annotations"]["groups"]}
    assert (groups["step"], groups["item"], groups["ProfilerStep"]) == (24, 16 * 24, len(STEPS))
    assert report_json["run"]["status"] == "unknown"
    assert all(note["severity"] == "info" for note in report_json["data_quality"])


@pytest.mark.skipif(not native.available(), reason="this installation has no C library")
def test_both_clocks_agree(tmp_path: Path) -> None:
    """An annotated step is inside the profiler's step of the same number."""
    from postrun.ingest.prt.format import TraceFile

    train(tmp_path, "recorded")
    events = read(tmp_path)
    (trainer,) = {event["pid"] for event in events}
    (file,) = (tmp_path / "traces").glob(f"*.{trainer}.*.prt")
    annotated = {row["value"]: row for row in TraceFile(file).table("annotation").arrow().to_pylist() if row["name"] == "step"}
    slack = 100_000  # two clocks, read at different moments
    for _, index, start, duration in steps(events):
        ours = annotated[index]
        assert start - slack <= ours["start_ns"]
        assert ours["start_ns"] + ours["duration_ns"] <= start + duration + slack
