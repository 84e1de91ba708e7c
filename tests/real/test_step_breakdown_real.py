"""Tests of the time of each step of real traces against a plain sweep over their events, which shares no code with the analysis."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import recompute
import recompute_host
from postrun.analysis.report import Report
from postrun.analysis.steps.breakdown import step_breakdown
from postrun.analysis.steps.ranks import rank_comparison
from postrun.analysis.steps.slow import slow_steps
from postrun.analysis.steps.times import step_times
from postrun.ingest import ingest

TRACES = (
    "v100_ddp",
    "v100_old_schema/resnet50_num_workers_0.json.gz",
    "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "sampled_2_ranks",
    "diff_pair/a100_rank3_of_8.json.gz",
    "diff_pair/v100_rank1_of_2.json.gz",  # 614 events that were launched before the first step run during it
)
STEP = re.compile(r"ProfilerStep#(\d+)")
KEYS = ("number", "step", "computation", "exposed_communication", "exposed_memory", "idle", "hidden_communication")


def by_hand(trace: recompute.Trace) -> list[tuple[int, ...]]:
    """Return KEYS of each step; a step launches what has a correlation of its calls."""
    others = [event for _, event in recompute_host.outside(trace)]
    work = [event for event in trace.device if event["kind"] != "sync" and event not in others]
    calls = recompute.first_by_id(trace.calls)
    rows: list[tuple[int, ...]] = []
    before: tuple[int, int] | None = None
    for marked in sorted((r for r in trace.ranges if STEP.fullmatch(r["name"])), key=lambda r: r["start"]):
        number = int(STEP.fullmatch(marked["name"])[1])  # type: ignore[index]
        launched = [e for e in work if e["id"] in calls and marked["start"] <= calls[e["id"]]["start"] < marked["end"]]
        if not launched or number in {row[0] for row in rows}:
            continue
        begin, until = min(e["start"] for e in launched), max(e["end"] for e in launched)
        if before is None:
            ahead = max((e["end"] for e in others if e["start"] < until), default=0)
            begin = max(begin, ahead if ahead < until else 0)
        else:
            until = max(until, before[1])
            begin = before[1] if before[0] == number - 1 else max(begin, before[1])
        before = (number, until)
        rows.append((number, *parts([e for e in work if e["end"] > begin and e["start"] < until], begin, until)))
    return rows


def parts(events: list[dict[str, Any]], begin: int, until: int) -> tuple[int, ...]:
    """Go from each start or end of an event to the next, and add what runs there."""
    points: list[tuple[int, int, str]] = []
    for event in events:
        kind = (
            "memory" if event["kind"] != "kernel" else "communication" if recompute.COMMUNICATION.search(event["name"]) else "computation"
        )
        start, end = max(event["start"], begin), min(event["end"], until)
        if end > start:
            points += [(start, 1, kind), (end, -1, kind)]
    open_now = {"computation": 0, "communication": 0, "memory": 0}
    total = dict.fromkeys(("computation", "exposed", "memory", "idle", "hidden"), 0)
    at = begin
    for time, change, kind in [*sorted(points), (until, 0, "memory")]:
        length, at = time - at, time
        what = (
            "computation"
            if open_now["computation"]
            else "exposed"
            if open_now["communication"]
            else "memory"
            if open_now["memory"]
            else "idle"
        )
        total[what] += length
        if open_now["computation"] and open_now["communication"]:
            total["hidden"] += length
        open_now[kind] += change
    return until - begin, total["computation"], total["exposed"], total["memory"], total["idle"], total["hidden"]


@pytest.mark.parametrize("name", TRACES)
def test_every_step_of_a_real_trace(shared_data: Path, report_of: Callable[[Path], Report], name: str) -> None:
    path = shared_data / "kineto" / name
    paths = sorted(path.glob("*.json.gz")) if path.is_dir() else [path]
    expected = [row for one in paths for row in by_hand(recompute.Trace(one))]
    with ingest(paths) as store:
        times = step_times(store)
        bars, ranks, slow = step_breakdown(store), rank_comparison(store), slow_steps(store)
    report = report_of(paths[0] if len(paths) == 1 else path)
    assert sorted(times.select(KEYS).rows()) == sorted(expected)
    assert len(expected) > 0
    assert sum(bar.step_ns for bar in bars.mean) == sum(row[1] for row in expected)
    assert sum(bar.idle_ns for bar in bars.mean) == sum(row[5] for row in expected)
    assert (ranks.absent is None) == (name == "sampled_2_ranks")
    first = {row[0] for row in expected if row[0] - 1 not in {number for number, *_ in expected}}
    known = [row for row in expected if row[0] not in first] or expected
    assert bars.average is not None
    assert (bars.average.steps, bars.average.step_ns, bars.average.idle_ns) == (
        len(known),
        sum(r[1] for r in known),
        sum(r[5] for r in known),
    )
    tile = next((tile for tile in report.summary.tiles if tile.key == "step_time"), None)
    assert tile is not None
    medians = [statistics.median(row[1] for row in known if row[0] == number) for number in {row[0] for row in known}]
    assert tile.number == statistics.median(medians)
    assert tile.label == ("step time" if first != {row[0] for row in expected} else "GPU time per step")
    assert "8 or more" in (slow.absent or "")  # these traces have at most six steps
    if name == "sampled_2_ranks":
        check_ranks(paths, ranks)


def check_ranks(paths: list[Path], breakdown: Any) -> None:
    """Check means of each rank, and its surplus of communication in a step."""
    each = [by_hand(recompute.Trace(path))[1:] for path in paths]  # without the first step
    communicated = [{row[0]: row[3] + row[6] for row in rows} for rows in each]
    for rank, mine, peer, row in zip(each, communicated, reversed(communicated), breakdown.ranks, strict=True):
        assert row.computation_ns == pytest.approx(sum(values[2] for values in rank) / len(rank))
        assert row.communication_ns == pytest.approx(sum(mine.values()) / len(mine))
        assert row.waiting_ns == pytest.approx(sum(mine[n] - min(mine[n], peer[n]) for n in mine) / len(mine))
