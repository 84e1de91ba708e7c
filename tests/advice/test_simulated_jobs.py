"""Simulated jobs have the durations, the order and the collectives that their description implies."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from advice_score import expected_saving, ranks_of, write_job
from cases_ranks import STRAGGLERS
from inference_jobs import Inference
from job_engine import MS, US, Rank
from training_jobs import Training, simulate, span_ns

PLAIN = Training(noise=0.0, steps=2, layers=3)


def busy_ns(rank: Rank) -> int:
    return sum((work.end or 0) - (work.start or 0) for work in rank.works if work.key is None)


def test_a_rank_computes_for_as_long_as_its_layers_and_optimizer() -> None:
    expected = 2 * (3 * 3 * PLAIN.layer_ms + PLAIN.optimizer_ms + 0.4) * MS  # backward takes twice as long as forward; 0.4 ms: the loss
    for rank in simulate(PLAIN):
        small = sum((work.end or 0) - (work.start or 0) for work in rank.works if work.key is None and work.duration < 100 * US)
        assert busy_ns(rank) - small == pytest.approx(expected, rel=1e-3)


def test_a_slow_rank_has_longer_kernels_and_the_others_wait_for_it() -> None:
    plain, slow = simulate(PLAIN), simulate(Training(noise=0.0, steps=2, layers=3, slow_ranks=((1, 1.3),)))
    assert busy_ns(slow[1]) == pytest.approx(1.3 * busy_ns(plain[1]), rel=2e-3)
    assert busy_ns(slow[0]) == busy_ns(plain[0])
    assert span_ns(slow) == pytest.approx(1.3 * span_ns(plain), rel=0.01)


def test_a_collective_ends_on_all_members_at_once_after_the_last_of_them_has_come() -> None:
    ranks = simulate(Training(style="megatron", pipeline=2, data_parallel=2, steps=2, layers=1, microbatches=3))
    meetings: dict[object, list[tuple[int, int, int]]] = {}
    for rank in ranks:
        for work in rank.works:
            if work.key is not None:
                meetings.setdefault(work.key, []).append((work.start or 0, work.end or 0, work.duration))
    assert {len(members) for members in meetings.values()} == {2}
    for members in meetings.values():
        latest, longest = max(start for start, _, _ in members), max(duration for *_, duration in members)
        assert {end for _, end, _ in members} == {latest + longest}


def test_an_all_reduce_moves_its_bytes_at_the_bandwidth_of_the_link() -> None:
    ranks = simulate(Training(steps=1, layers=1, layer_mb=360.0))
    transfer = next(work.duration for work in ranks[0].works if work.key is not None)
    assert transfer == pytest.approx(2 * 3 / 4 * 360e6 / 360, rel=0.05)  # ns: 360 MB over 360 GB/s, twice three quarters of it


def test_work_starts_after_its_launch_call_and_streams_run_one_kernel_at_a_time() -> None:
    for rank in simulate(Training(style="fsdp", steps=2, items=1, pageable_mb=3.0, stacks=True)):
        calls = {record.args["correlation"]: record for record in rank.records if "correlation" in record.args}
        ends: dict[int, int] = {}
        for work in rank.works:
            assert work.start is not None
            assert work.start >= calls[work.correlation].start
            assert work.start >= ends.get(work.stream, 0)
            ends[work.stream] = work.end or 0


def test_the_trace_names_ranks_groups_and_steps(tmp_path: Path) -> None:
    job = Training(style="megatron", pipeline=2, data_parallel=2, steps=2, layers=1, microbatches=2)
    count = write_job(tmp_path, job, ranks_of(job))
    traces = [json.loads(path.read_text()) for path in sorted(tmp_path.iterdir())]
    assert sum(len(trace["traceEvents"]) for trace in traces) == count
    assert [trace["distributedInfo"]["rank"] for trace in traces] == [0, 1, 2, 3]
    described = {group["pg_desc"] for group in traces[0]["distributedInfo"]["pg_config"]}
    assert described == {"DATA_PARALLEL_GROUP", "PIPELINE_MODEL_PARALLEL_GROUP", "EMBEDDING_GROUP"}
    names = Counter(event["name"] for event in traces[0]["traceEvents"] if event.get("cat") == "user_annotation")
    assert names["ProfilerStep#10"] == names["ProfilerStep#11"] == 1
    ranks = {event["args"]["Process Group Ranks"] for event in traces[0]["traceEvents"] if "Process Group Ranks" in event.get("args", {})}
    assert ranks == {"[0, 1]", "[0, 2]"}


def test_a_profile_that_begins_later_keeps_work_without_its_launch(tmp_path: Path) -> None:
    job = Training(style="none", data_parallel=1, steps=5, layers=2, recorded_from=2, log_sync=False, ahead_steps=1.5)
    write_job(tmp_path, job, ranks_of(job))
    events = json.loads(next(tmp_path.iterdir()).read_text())["traceEvents"]
    calls = {event["args"]["correlation"] for event in events if event.get("cat") == "cuda_runtime"}
    early = [event for event in events if event.get("cat") == "kernel" and event["args"]["correlation"] not in calls]
    assert early
    assert "ProfilerStep#11" not in {event["name"] for event in events}
    assert "ProfilerStep#12" in {event["name"] for event in events}


def test_the_saving_is_the_time_without_the_cause() -> None:
    case = next(case for case in STRAGGLERS if case.name == "slow rank, DDP")
    assert expected_saving(case) == pytest.approx(100 * (1 - 1 / 1.3), abs=1)


def test_an_eager_decode_waits_for_the_host_and_a_graph_does_not() -> None:
    eager = ranks_of(Inference(graphs=False, kernel_us=9.0, host_us=22.0, prefill_every=30))[0]
    graph = ranks_of(Inference(kernel_us=9.0, prefill_every=30))[0]
    assert busy_ns(eager) == pytest.approx(busy_ns(graph), rel=0.02)
    assert span_ns([eager]) > 1.3 * span_ns([graph])
