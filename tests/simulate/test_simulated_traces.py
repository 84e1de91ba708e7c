"""Tests that the files of the simulated run contain exactly its truth."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from postrun.simulate import DemoTruth, Problems, RankTruth, write_demo

STEPS = 8


class Event(NamedTuple):
    category: str
    name: str
    start: int
    end: int
    args: dict[str, Any]
    pid: object
    tid: object


class Run(NamedTuple):
    folder: Path
    truth: DemoTruth


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    return Run(folder, write_demo(folder, steps=STEPS, problems=Problems(straggler_rank=3), gpus_per_node=2))


def document(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return loaded


def traces(run: Run) -> dict[int, list[Event]]:
    """Complete events per rank, in ns since the epoch."""
    events: dict[int, list[Event]] = {}
    for path in (run.folder / "kineto").iterdir():
        content = document(path)
        base = content["baseTimeNanoseconds"]
        events[content["distributedInfo"]["rank"]] = [
            Event(e["cat"], e["name"], start := base + nanoseconds(e["ts"]), start + nanoseconds(e["dur"]), e["args"], e["pid"], e["tid"])
            for e in content["traceEvents"]
            if e["ph"] == "X"
        ]
    return events


def nanoseconds(microseconds: Decimal) -> int:
    exact = microseconds * 1000
    assert exact == int(exact)
    return int(exact)


def covered(*groups: list[Event]) -> int:
    """Return the time with an open event: a sweep that shares no code."""
    edges = sorted([(e.start, 1) for group in groups for e in group] + [(e.end, -1) for group in groups for e in group])
    total = depth = since = 0
    for time, change in edges:
        if depth > 0:
            total += time - since
        depth, since = depth + change, time
    return total


def of_kind(events: list[Event], category: str, *, collective: bool = False) -> list[Event]:
    return [e for e in events if e.category == category and e.name.startswith("nccl") == collective]


@pytest.mark.parametrize("rank", [0, 3])
def test_a_reread_trace_gives_the_totals_of_the_truth(run: Run, rank: int) -> None:
    events, truth = traces(run)[rank], run.truth.ranks[rank]
    kernels, collectives = of_kind(events, "kernel"), of_kind(events, "kernel", collective=True)
    copies, memsets = of_kind(events, "gpu_memcpy"), of_kind(events, "gpu_memset")
    everything = [*kernels, *collectives, *copies, *memsets]
    span = max(e.end for e in everything) - min(e.start for e in everything)
    assert (truth.span_ns, truth.busy_ns) == (span, covered(everything))
    assert truth.idle_ns == span - covered(everything)
    assert truth.computation_ns == covered(kernels)
    assert truth.communication_ns == covered(collectives)
    assert truth.exposed_communication_ns == covered(kernels, collectives) - covered(kernels)
    assert (truth.memcpy_ns, truth.memset_ns, truth.memory_ns) == (covered(copies), covered(memsets), covered(copies, memsets))
    assert truth.exposed_memory_ns == covered(everything) - covered(kernels, collectives)
    assert truth.computation_ns + truth.exposed_communication_ns + truth.exposed_memory_ns + truth.idle_ns == truth.span_ns
    assert truth.pageable_copy_ns == sum(e.end - e.start for e in copies if "Pageable" in e.name)
    totals = {
        name: (len(times), sum(times))
        for name in {e.name for e in [*kernels, *collectives]}
        for times in [[e.end - e.start for e in [*kernels, *collectives] if e.name == name]]
    }
    assert {name: (k.count, k.total_ns) for name, k in truth.kernels.items()} == totals


def test_the_totals_over_all_ranks_are_their_sums(run: Run) -> None:
    for name, total in run.truth.kernels.items():
        assert total.count == sum(rank.kernels[name].count for rank in run.truth.ranks)
        assert total.total_ns == sum(rank.kernels[name].total_ns for rank in run.truth.ranks)


def test_steps_follow_each_other_and_last_as_long_as_the_truth_says(run: Run) -> None:
    for rank, events in traces(run).items():
        steps = sorted((e for e in events if e.category == "user_annotation" and e.name.startswith("ProfilerStep#")), key=lambda e: e.start)
        assert [e.name for e in steps] == [f"ProfilerStep#{run.truth.first_step + n}" for n in range(STEPS)]
        assert all(before.end <= after.start for before, after in pairwise(steps))
        assert tuple(e.end - e.start for e in steps) == run.truth.ranks[rank].step_ns
        device = [e for e in events if e.category == "gpu_user_annotation" and e.name.startswith("ProfilerStep#")]
        assert tuple(e.end - e.start for e in device) == run.truth.ranks[rank].device_step_ns


def test_every_piece_of_device_work_has_one_launch_that_came_first(run: Run) -> None:
    for events in traces(run).values():
        calls = [e for e in events if e.category == "cuda_runtime"]
        launch = {e.args["correlation"]: e for e in calls}
        assert len(launch) == len(calls)
        operators = {e.args["External id"]: e for e in events if e.category == "cpu_op"}
        work = [e for e in events if e.category in ("kernel", "gpu_memcpy", "gpu_memset")]
        assert len({e.args["correlation"] for e in work}) == len(work)
        for event in work:
            call = launch[event.args["correlation"]]
            assert call.start < event.start
            assert operators[event.args["External id"]].start <= call.start


def test_work_on_one_stream_and_calls_on_one_thread_do_not_overlap(run: Run) -> None:
    for events in traces(run).values():
        for categories in (("kernel", "gpu_memcpy", "gpu_memset"), ("cuda_runtime",), ("cpu_op",)):
            chosen = sorted((e for e in events if e.category in categories), key=lambda e: (str(e.tid), e.start))
            for before, after in pairwise(chosen):
                assert before.tid != after.tid or before.end <= after.start, (before, after)


def test_an_all_reduce_ends_on_all_ranks_together_after_the_last_has_joined(run: Run) -> None:
    per_rank = [of_kind(events, "kernel", collective=True) for events in traces(run).values()]
    for together in zip(*per_rank, strict=True):
        ends = [e.end for e in together]
        assert max(ends) - min(ends) < 10_000
        assert max(e.start for e in together) < min(ends)


def test_the_run_is_labeled_as_simulated_everywhere(run: Run) -> None:
    job = json.loads((run.folder / "job.json").read_text())
    assert job["labels"] == {"simulated": "true"}
    assert "simulated" in job["name"]
    for path in (run.folder / "kineto").iterdir():
        content = document(path)
        assert content["metadata"]["simulated"] == "true"
        assert "simulated" in content["traceName"]
        assert path.name.removesuffix(".gz") == content["traceName"].removeprefix("simulated/")


def test_each_trace_is_of_its_rank_and_device(run: Run) -> None:
    names = {document(path)["distributedInfo"]["rank"]: path.name for path in (run.folder / "kineto").iterdir()}
    assert sorted(names) == [0, 1, 2, 3]
    for truth in run.truth.ranks:
        assert names[truth.rank].startswith(f"{truth.node}_{truth.pid}.")
        assert {e.pid for e in traces(run)[truth.rank] if e.category == "kernel"} == {truth.device}


def system_lines(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for path in folder.glob("profiler-output/system/incremental/*/*.json") for line in path.read_text().splitlines()
    ]


def test_system_metrics_cover_the_job_once_per_second_and_series(run: Run) -> None:
    series: dict[tuple[str, str, str, str], list[float]] = {}
    for line in system_lines(run.folder):
        series.setdefault((line["NodeId"], line["Type"], line["Name"], line["Dimension"]), []).append(line["Timestamp"])
        assert line["Value"] >= 0
        assert line["Value"] <= 100 or line["Type"] in ("i/o", "network")
    assert len(series) == 2 * (16 * 2 + 2 * 2 + 1 + 3 + 2)
    for times in series.values():
        assert len(times) == run.truth.samples_per_series
        assert min(times) * 1e9 == run.truth.job_start_ns
        assert max(times) * 1e9 == run.truth.job_end_ns
        assert len(set(times)) == len(times)


def test_gpus_are_idle_before_and_after_the_training_and_busy_within(run: Run) -> None:
    truth = run.truth
    for line in system_lines(run.folder):
        if line["Dimension"] == "GPUUtilization":
            inside = truth.training_start_ns <= line["Timestamp"] * 1e9 < truth.training_end_ns
            assert (line["Value"] > 0) == inside


def test_workers_record_their_steps_over_the_whole_job(run: Run) -> None:
    truth = run.truth
    bounds: list[tuple[int, int]] = []
    for rank in (0, 2):
        node = truth.ranks[rank].node
        steps: dict[str, list[tuple[int, int, int]]] = {"TRAIN": [], "EVAL": []}
        for path in sorted((run.folder / "profiler-output/framework/pevents").glob(f"*/*_{rank}-{node}_pythontimeline.json")):
            content = json.loads(path.read_text())
            base = content[0]["args"]["start_time_since_epoch_in_micros"]
            events = [e for e in content if e["ph"] == "X"]
            assert int(path.name.split("_")[0]) == base + max(e["ts"] + e["dur"] for e in events)
            for event in events:
                phase, _, mode = event["name"].partition("ModeKeys.")
                if phase == "Step:":
                    steps[mode].append((int(event["args"]["step_num"]), base + event["ts"], base + event["ts"] + event["dur"]))
        assert [n for n, _, _ in steps["TRAIN"]] == list(range(truth.training_steps))
        assert [n for n, _, _ in steps["EVAL"]] == list(range(truth.evaluation_steps))
        everything = sorted((start, end) for mode in steps.values() for _, start, end in mode)
        assert all(before[1] <= after[0] for before, after in pairwise(everything))
        bounds.append((everything[0][0], everything[-1][1]))
        profiled = steps["TRAIN"][truth.first_step : truth.first_step + STEPS]
        expected: RankTruth = truth.ranks[rank]
        for (_, start, end), exact in zip(profiled, expected.step_ns, strict=True):
            assert abs((end - start) * 1000 - exact) <= 1000
    assert min(start for start, _ in bounds) * 1000 == truth.training_start_ns
    assert max(end for _, end in bounds) * 1000 == truth.training_end_ns


def test_the_end_markers_are_there_and_empty(run: Run) -> None:
    for part in ("system", "framework"):
        assert (run.folder / "profiler-output" / part / "training_job_end.ts").read_bytes() == b""
