"""Time of each step and comparison of ranks, computed on paper and compared with planted problems of simulated runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.report import RankComparison, Report, StepBar, StepBreakdown
from postrun.analysis.steps.breakdown import step_breakdown
from postrun.analysis.steps.ranks import rank_comparison
from postrun.analysis.steps.slow import slow_steps
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.simulate import DemoTruth, Problems, write_demo
from rule_details import plain_details

MakeStore = Callable[..., Store]

T0 = 1_712_195_495_519_689_047
NAMES = {"gemm": ("gemm", "BF16", "GEMM"), "norm": ("norm", "FP32", "normalisation"), "nccl": ("nccl", "unknown", "communication")}


def event(kind: str, name: str, start: int, end: int, **columns: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "start_ns": T0 + start, "duration_ns": end - start, **columns}


def kernel(name: str, start: int, end: int, **columns: Any) -> dict[str, Any]:
    return event("kernel", name, start, end, **columns)


def step(number: int, host: tuple[int, int], device: tuple[int, int] | None, process: int = 0, **columns: Any) -> dict[str, Any]:
    row = {"node": 0, "process": process, "index": number, "host_start_ns": T0 + host[0], "host_duration_ns": host[1] - host[0], **columns}
    if device:
        row |= {"device_start_ns": T0 + device[0], "device_duration_ns": device[1] - device[0], "device_events": 3}
    return row


def times(bar: StepBar) -> tuple[int, ...]:
    """Return the parts of a bar.

    They are step, computation, exposed communication, exposed memory, idle, hidden communication.
    """
    return (
        bar.step_ns, bar.computation_ns, bar.exposed_communication_ns, bar.exposed_memory_ns, bar.idle_ns, bar.hidden_communication_ns,
    )  # fmt: skip


STEPS = [step(1, (0, 55), (10, 60)), step(2, (55, 110), (70, 140)), step(4, (190, 210), (200, 220))]
EVENTS = [
    kernel("gemm", 10, 30),
    kernel("nccl", 25, 45, stream=9),  # 25..30 hidden, 30..45 exposed
    event("memcpy", "copy", 40, 55),  # 45..55 exposed
    kernel("gemm", 58, 60),  # idle 55..58
    # idle 60..70: the wait for the first work of step 2 is a part of it
    kernel("gemm", 70, 100),
    kernel("nccl", 90, 130, stream=9),  # 90..100 hidden
    event("memset", "set", 130, 140),
    event("sync", "wait", 60, 200),  # no device work
    kernel("norm", 150, 160),  # in no step: 4 does not follow 2
    kernel("gemm", 200, 220),
]


def test_every_step_on_paper(make_store: MakeStore) -> None:
    result = step_breakdown(make_store(names=NAMES, device_event=EVENTS, step=STEPS))
    assert (result.steps, result.pooled, result.processes, result.ranks, result.absent) == (3, 1, 1, (), None)
    assert [(bar.first, bar.last, bar.steps, *times(bar)) for bar in result.mean] == [
        (1, 1, 1, 50, 22, 15, 10, 3, 5),
        (2, 2, 1, 80, 30, 30, 10, 10, 10),
        (4, 4, 1, 20, 20, 0, 0, 0, 0),
    ]


def test_work_that_reaches_into_the_next_step_is_counted_once(make_store: MakeStore) -> None:
    # Step 1 works 0..100, step 2 40..120: it lasts 100..120, and what both compute until 100 is of step 1.
    store = make_store(
        names=NAMES,
        device_event=[kernel("gemm", 0, 50), kernel("gemm", 40, 100, stream=8), kernel("gemm", 90, 120)],
        step=[step(1, (0, 30), (0, 100)), step(2, (30, 60), (40, 120))],
    )
    assert [times(bar)[:2] for bar in step_breakdown(store).mean] == [(100, 100), (20, 20)]


def test_of_two_devices_it_is_the_one_that_computes_most(make_store: MakeStore) -> None:
    events = [kernel("gemm", 0, 10), kernel("gemm", 0, 70, device=1), event("memcpy", "copy", 70, 100, device=0)]
    (bar,) = step_breakdown(make_store(names=NAMES, device_event=events, step=[step(1, (0, 50), (0, 100))])).mean
    assert times(bar) == (100, 70, 0, 0, 30, 0)


def test_it_computes_most_over_all_steps(make_store: MakeStore) -> None:
    # GPU 0 computes 30 + 30, GPU 1 50 + 0.
    events = [kernel("gemm", 0, 30), kernel("gemm", 100, 130), kernel("gemm", 0, 50, device=1), event("memcpy", "copy", 100, 101, device=1)]
    result = step_breakdown(make_store(names=NAMES, device_event=events, step=[step(1, (0, 50), (0, 50)), step(2, (60, 90), (100, 130))]))
    assert [times(bar)[1] for bar in result.mean] == [30, 30]
    assert result.devices == 2


def test_neighbors_are_pooled_and_add_up(make_store: MakeStore) -> None:
    # 130 steps of 10 + number ns every 1000 ns: three are one bar, the last bar is one step.
    store = make_store(
        names=NAMES,
        device_event=[kernel("gemm", 1000 * n, 1000 * n + 10 + n) for n in range(130)],
        step=[step(n, (1000 * n, 1000 * n + 500), (1000 * n, 1000 * n + 10 + n)) for n in range(130)],
    )
    result = step_breakdown(store)
    assert (result.steps, result.pooled, len(result.mean)) == (130, 3, 44)
    assert [(bar.first, bar.last, bar.steps) for bar in result.mean[-2:]] == [(126, 128, 3), (129, 129, 1)]
    assert [bar.computation_ns for bar in result.mean[:2]] == [10 + 11 + 12, 13 + 14 + 15]
    # The first step begins with its own work; every other one with the end of the one before.
    assert result.mean[0].step_ns == 2000 + 12
    assert sum(bar.step_ns for bar in result.mean) == 129 * 1000 + 10 + 129


def test_without_steps_on_the_device_a_capture_is_named(make_store: MakeStore) -> None:
    for store in (make_store(), make_store(step=[step(1, (0, 10), None)])):
        assert step_breakdown(store).absent is not None
        assert "CUDA" in step_breakdown(store).absent  # type: ignore[operator]
        assert slow_steps(store).absent == step_breakdown(store).absent
        assert rank_comparison(store).absent is not None


def job(*ranks: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Steps every 1000 ns, of a gemm and then a collective of the given lengths."""
    tables: dict[str, Any] = {"processes": [], "device_event": [], "step": [], "host_event": []}
    for rank, lengths in enumerate(ranks):
        tables["processes"].append({"id": rank, "node": 0, "pid": 50 + rank, "rank": rank})
        for number, (computes, communicates) in enumerate(lengths):
            at, index = 1000 * number, {"process": rank, "device": rank}
            tables["device_event"] += [
                kernel("gemm", at, at + computes, **index),
                *([kernel("nccl", at + computes, at + computes + communicates, **index)] if communicates else []),
            ]
            tables["step"].append(step(number, (at - 200, at + 800), (at, at + computes + communicates), rank))
            tables["host_event"].append(event("loader", "load", at - 200, at - 200 + 10 * rank + 5, process=rank))
    return tables


def test_ranks_on_paper(make_store: MakeStore) -> None:
    # Four ranks; rank 2 computes 130 of 150, the others 100: 30% over the median of 100, and the others wait 30.
    even, slow = [(100, 50)] * 3, [(130, 20)] * 3
    result = rank_comparison(make_store(names=NAMES, **job(even, even, slow, even)))
    assert (result.steps, result.threshold_percent, result.spread, result.absent) == (3, 10.0, (), None)
    assert [row.straggler for row in result.ranks] == [False, False, True, False]
    assert [(row.steps_over, row.steps) for row in result.ranks] == [(0, 3), (0, 3), (3, 3), (0, 3)]
    assert [row.computation_ns for row in result.ranks] == [100, 100, 130, 100]
    assert [row.communication_ns for row in result.ranks] == [50, 50, 20, 50]
    assert [row.waiting_ns for row in result.ranks] == [30, 30, 0, 30]
    assert [row.data_loading_ns for row in result.ranks] == [5, 15, 25, 35]
    # Twice 1000 from end to end; the wait before the first step is not known.
    assert {row.step_ns for row in result.ranks} == {1000}
    assert {row.idle_ns for row in result.ranks} == {850}
    assert (result.ranks[2].excess_percent, result.ranks[2].others_wait_ns) == (30.0, 30.0)
    assert result.sentences == (
        "The others wait for rank 2, host-0 GPU 2: it computes 30.0% longer per step than the median of 4 ranks and exceeds it by more"
        " than 10% in 3 of 3 steps. They spend 30 ns more per step in collectives.",
    )


def test_ranks_are_compared_with_those_of_their_role(make_store: MakeStore) -> None:
    # The second stage computes 130 instead of 100 on both of its ranks; the third has one rank. Against all ranks, two were over.
    even, slow = [(100, 50)] * 3, [(130, 20)] * 3
    store = make_store(names=NAMES, **job(even, even, slow, slow, [(140, 10)] * 3))
    result = rank_comparison(store, roles={0: 0, 1: 0, 2: 1, 3: 1, 4: 2})
    assert [(row.straggler, row.steps_over, row.excess_percent) for row in result.ranks] == [(False, 0, 0.0)] * 5
    assert result.sentences[0] == "The others wait for no rank: none computes longer than the median of the 2 ranks of its role."

    unknown = rank_comparison(store, roles_known=False)
    assert not any(row.straggler for row in unknown.ranks)
    assert unknown.sentences[0].startswith("The roles of the ranks are unknown, so a rank that computes longer may have more work: rank ")


def test_nothing_is_claimed_of_even_ranks(make_store: MakeStore) -> None:
    result = rank_comparison(make_store(names=NAMES, **job([(100, 50)] * 2, [(100, 50)] * 2)))
    assert result.sentences == ("The others wait for no rank: none computes longer than the median of 2 ranks.",)


def test_without_collectives_waiting_is_not_known(make_store: MakeStore) -> None:
    result = rank_comparison(make_store(names=NAMES, **job([(100, 0)] * 2, [(100, 0)] * 2, [(150, 0)] * 2)))
    assert [row.waiting_ns for row in result.ranks] == [None] * 3
    assert [row.straggler for row in result.ranks] == [False] * 3
    assert "not known whether the others wait" in result.sentences[0]


def test_the_threshold_is_that_of_the_rule(make_store: MakeStore) -> None:
    store = make_store(names=NAMES, **job([(100, 50)] * 2, [(100, 50)] * 2, [(130, 20)] * 2))
    assert [row.steps_over for row in rank_comparison(store, 40.0).ranks] == [0, 0, 0]


def test_bars_are_of_the_ranks_that_differ_most(make_store: MakeStore) -> None:
    # Of computations 60, 20, 50, 10, 40, 30: the least, the third of six, the two most, in the order of the ranks.
    result = step_breakdown(make_store(names=NAMES, **job(*([(length, 0)] * 2 for length in (60, 20, 50, 10, 40, 30)))))
    assert [row.rank for row in result.ranks] == [0, 2, 3, 5]


@pytest.mark.parametrize(("ranks", "expected"), [(16, False), (17, True)])
def test_quantiles_are_told_of_more_than_sixteen_ranks(make_store: MakeStore, ranks: int, expected: bool) -> None:
    result = rank_comparison(make_store(names=NAMES, **job(*([(100, 50)] * 2 for _ in range(ranks)))))
    assert (len(result.ranks), bool(result.spread)) == (ranks, expected)


def test_many_ranks_are_told_in_quantiles(make_store: MakeStore) -> None:
    # Rank r computes 100 + r: 100..119 in equal distances.
    result = rank_comparison(make_store(names=NAMES, **job(*([(100 + rank, 200 - rank)] * 2 for rank in range(20)))))
    row = next(row for row in result.spread if row.name == "computation")
    assert (row.ranks, row.min, row.p50, row.max, row.least_rank, row.most_rank) == (20, 100, 109.5, 119, 0, 19)
    assert (row.p5, row.p95) == (pytest.approx(100.95), pytest.approx(118.05))


def slow_job() -> dict[str, Any]:
    """Make ten steps of 100 or 102 ns of gemm and 10 ns of copy every 200 ns.

    Step 7 also has a norm of 500 ns, and before it data loading that keeps the device idle for 300 ns more.
    """
    tables: dict[str, Any] = {"device_event": [], "step": [], "host_event": []}
    at = 0
    for number in range(10):
        loading, extra, computes = (300, 500, 100) if number == 7 else (20, 0, 100 + 2 * (number % 2))
        host = at
        at += loading
        end = at + computes + extra + 10
        tables["host_event"] += [event("loader", "next", host, at), event("operator", "aten::mm", at, at + 5)]
        tables["device_event"] += [kernel("gemm", at, at + computes), event("memcpy", "copy", at + computes + extra, end)]
        if extra:
            tables["device_event"].append(kernel("norm", at + computes, at + computes + extra))
            tables["host_event"].append(event("operator", "aten::norm", at + 5, at + 35))
        tables["step"].append(step(number, (host, end), (at, end)))
        at = end
    return tables


def test_a_slow_step_on_paper(make_store: MakeStore) -> None:
    result = slow_steps(make_store(names=NAMES, **slow_job()))
    # Steps take 130 (even; the first 110) or 132 (odd), step 7 takes 910. Typical: the middle six of 110, 4 x 130, 4 x 132, 910.
    assert (result.steps, result.slow, result.typical, result.absent) == (10, (7,), 6, None)
    parts = {part.name: part for part in (*result.parts, *result.beside)}
    typical = (3 * 130 + 3 * 132) / 6
    assert (parts["step"].slow_ns, parts["step"].typical_ns, parts["step"].extra_ns) == (910, typical, 910 - typical)
    assert (parts["computation"].slow_ns, parts["computation"].typical_ns) == (600, 101)
    assert (parts["computation"].typical_low_ns, parts["computation"].typical_high_ns) == (100, 102)
    assert (parts["idle"].slow_ns, parts["idle"].typical_ns, parts["idle"].extra_ns) == (300, 20, 280)
    assert {name for name, part in parts.items() if part.claimed} == {"step", "computation", "idle", "loader", "operator"}
    assert (parts["loader"].extra_ns, parts["operator"].extra_ns) == (280, 30)
    assert sum(parts[name].extra_ns for name in ("computation", "exposed_communication", "exposed_memory", "idle")) == 910 - typical
    assert [(one.kind, one.name, one.extra_ns) for one in result.ran] == [
        ("kernel", "norm", 500), ("loader", "next", 280), ("operator", "aten::norm", 30),
    ]  # fmt: skip
    assert result.sentences == (
        "Step 7 of 10 took 910 ns, 779 ns longer than the typical step (131 ns, between 130 ns and 132 ns).",
        "The extra time is computation (+499 ns) and idle time (+280 ns).",
        "At the same time: data loading (+280 ns) and host operators (+30 ns).",
        "Largest increase: norm, 500 ns and in no typical step.",
    )


def test_typical_steps_of_one_length_have_no_range(make_store: MakeStore) -> None:
    ends = [(100 * n, 100 * n + 100) for n in range(9)] + [(900, 1800)]
    store = make_store(
        names=NAMES,
        device_event=[kernel("gemm", start, end) for start, end in ends],
        step=[step(n, (start, end), (start, end)) for n, (start, end) in enumerate(ends)],
    )
    assert slow_steps(store).sentences[0] == "Step 9 of 10 took 900 ns, 800 ns longer than the typical step (100 ns)."


def test_no_step_stands_out_of_a_noisy_run(make_store: MakeStore) -> None:
    # 100, 110, ... 190: quartiles 122.5 and 167.5, so that 235 would be slow.
    store = make_store(
        names=NAMES,
        device_event=[kernel("gemm", 1000 * n, 1000 * n + 100 + 10 * (n // 2)) for n in range(0, 20, 2)],
        step=[step(n, (1000 * n, 1000 * n + 300), (1000 * n, 1000 * n + 100 + 10 * (n // 2))) for n in range(0, 20, 2)],
    )
    result = slow_steps(store)
    assert (result.slow, result.parts) == ((), ())
    assert result.absent == (
        "No step stands out: the longest of 10, step 18, took 190 ns; from 235 ns on it would lie outside of how much the steps differ"
        " anyway (median 145 ns)."
    )


def test_few_steps_have_no_typical_one(make_store: MakeStore) -> None:
    assert "8 or more" in (slow_steps(make_store(names=NAMES, device_event=EVENTS, step=STEPS)).absent or "")


STALL = Problems(straggler_rank=1, exposed_communication=False, idle_tail=False, data_stall=True)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[DemoTruth, Report]:
    """Simulate two ranks: rank 1 computes longer; steps 5 and 8 wait for data."""
    folder = tmp_path_factory.mktemp("planted")
    truth = write_demo(folder, steps=12, nodes=1, gpus_per_node=2, problems=STALL)
    with ingest([folder]) as store:
        return truth, analyze(store, Options(generated_at_ns=0))


@pytest.mark.slow
def test_the_planted_straggler_and_what_the_rule_says(planted: tuple[DemoTruth, Report]) -> None:
    _, report = planted
    (rule,) = (rule for rule in report.rules if rule.rule == "StragglerRank")
    expected = {rank["rank"]: rank for rank in plain_details(rule)["ranks"]}
    assert [row.straggler for row in report.rank_comparison.ranks] == [expected[0]["straggler"], expected[1]["straggler"]]
    for row in report.rank_comparison.ranks:
        same = expected[row.rank]
        assert (row.steps_over, row.steps, row.excess_percent) == (same["steps_over"], same["steps"], same["excess_percent"])
        assert row.others_wait_ns == same["others_wait_ns"]
    waits = [row.waiting_ns for row in report.rank_comparison.ranks]
    assert waits[0] is not None
    assert waits[1] is not None
    assert waits[0] > 10 * waits[1]


def test_the_steps_are_the_whole_profile(planted: tuple[DemoTruth, Report]) -> None:
    truth, report = planted
    bars = report.step_breakdown.mean
    # All device work is that of steps, which follow each other: their sum is that of the devices, to the nanosecond.
    for mine, theirs in (
        ("step_ns", "span_ns"), ("computation_ns", "computation_ns"), ("exposed_communication_ns", "exposed_communication_ns"),
        ("exposed_memory_ns", "exposed_memory_ns"), ("idle_ns", "idle_ns"),
    ):  # fmt: skip
        assert sum(getattr(bar, mine) for bar in bars) == sum(getattr(rank, theirs) for rank in truth.ranks), mine
    hidden = sum(bar.hidden_communication_ns for bar in bars)
    assert hidden == sum(rank.communication_ns - rank.exposed_communication_ns for rank in truth.ranks) > 0
    assert [rank.rank for rank in report.step_breakdown.ranks] == [0, 1]


def test_the_planted_stalls_are_what_the_slowest_steps_did(planted: tuple[DemoTruth, Report]) -> None:
    truth, report = planted
    result = report.slow_steps
    assert set(result.slow) == {truth.first_step + 5, truth.first_step + 8}
    claimed = [part.name for part in sorted((*result.parts[1:], *result.beside), key=lambda part: -part.extra_ns) if part.claimed]
    assert set(claimed[:2]) == {"idle", "loader"}
    # 48 ms (+- 10%) and 360 ms more than usual
    assert result.beside[0].extra_ns == pytest.approx((48e6 + 360e6) / 2, rel=0.05)
    assert result.ran[0].kind == "loader"


def test_older_reports_have_none_of_it() -> None:
    assert (StepBreakdown().mean, RankComparison().ranks, StepBreakdown().absent) == ((), (), None)


def in_group(
    kernel_of: tuple[int, int, int, int], name: str | None, ranks: str | None, stream: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A collective of (rank, start, end, correlation) and its record."""
    rank, start, end, correlation = kernel_of
    result = kernel("nccl", start, end, process=rank, device=rank, correlation=correlation, stream=stream)
    expected = {
        "node": 0, "process": rank, "on_device": True, "start_ns": T0 + start, "duration_ns": end - start, "correlation": correlation,
        "operation": "allreduce", "group_name": name, "group_ranks": ranks, "group_size": 2,
    }  # fmt: skip
    return result, expected


def grouped(waits: Sequence[tuple[int, int]], *, rest: int = 0) -> dict[str, Any]:
    """Make one step of four ranks of 100 ns of gemm with collectives in pairs.

    Pairs (0, 1) and (2, 3) communicate for the first of the numbers, (0, 2) and (1, 3) for the second, and all for ``rest`` without a
    record.
    """
    tables = job(*[[(100, 0)]] * 4)
    tables["collective"] = []
    for rank, (pair, across) in enumerate(waits):
        at = 100
        for length, name, ranks in ((pair, "1", (0, 1) if rank < 2 else (2, 3)), (across, "2", (0, 2) if rank % 2 == 0 else (1, 3))):
            result, expected = in_group((rank, at, at + length, at), name, str(list(ranks)), 20)
            tables["device_event"].append(result)
            tables["collective"].append(expected)
            at += length
        if rest:
            tables["device_event"].append(kernel("nccl", at, at + rest + rank, process=rank, device=rank))
        tables["step"][rank]["device_duration_ns"] = at + rest + rank
    return tables


def test_waits_are_those_within_a_process_group(make_store: MakeStore) -> None:
    # Pairs (0, 1): 30 and 10; (2, 3): 200 and 190; (0, 2): 40 and 50; (1, 3): 40 and 40. Against all ranks rank 2 would wait 240 - 50.
    result = rank_comparison(make_store(names=NAMES, **grouped([(30, 40), (10, 40), (200, 50), (190, 40)])))
    least = rank_comparison(make_store(names=NAMES, **grouped([(3, 4), (1, 4), (20, 5), (19, 4)])))  # of 1 ns
    assert [row.waiting_ns for row in least.ranks] == [2, 0, 2, 0]
    assert result.groups == 4
    assert [row.waiting_ns for row in result.ranks] == [20, 0, 10 + 10, 0]
    assert [row.communication_ns for row in result.ranks] == [70, 50, 250, 230]
    assert [row.waiting_group for row in result.ranks] == ["group 1 (ranks 0, 1)", None, "group 1 (ranks 2, 3)", None]
    assert result.sentences[1] == (
        "Rank 0, host-0 GPU 0 communicates for 70 ns per step, 20 ns more than the rank with the least communication, most of it in group 1"
        " (ranks 0, 1)."
    )


def test_collectives_that_name_no_group_are_of_all_ranks(make_store: MakeStore) -> None:
    # In addition to the groups above, all ranks communicate for 100 + rank without a record.
    result = rank_comparison(make_store(names=NAMES, **grouped([(30, 40), (10, 40), (200, 50), (190, 40)], rest=100)))
    assert result.groups == 5
    assert [row.waiting_ns for row in result.ranks] == [20 + 0, 0 + 1, 20 + 2, 0 + 3]
    assert result.ranks[3].waiting_group == "all ranks"


def test_only_the_longest_groups_of_a_process_are_compared_apart(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ranks 0 and 1 leave out (0, 1), rank 2 leaves out (0, 2), rank 3 (1, 3): communication of all ranks for 70, 50, 50 and 40.
    monkeypatch.setattr("postrun.analysis.steps.ranks.GROUPS", 1)
    result = rank_comparison(make_store(names=NAMES, **grouped([(30, 40), (10, 40), (200, 50), (190, 40)])))
    assert [row.waiting_ns for row in result.ranks] == [30, 10, 10 + 10, 0]
    assert result.groups == 2


def test_a_group_of_which_one_rank_is_known_tells_no_wait(make_store: MakeStore) -> None:
    tables = grouped([(30, 40), (10, 40), (200, 50), (190, 40)])
    for table in ("device_event", "step", "collective"):  # ranks 1 and 3 were not recorded: only (0, 2) is left of the groups
        tables[table] = [row for row in tables[table] if row["process"] in (0, 2)]
    result = rank_comparison(make_store(names=NAMES, **tables))
    assert [(row.rank, row.waiting_ns, row.waiting_group) for row in result.ranks] == [(0, 0, None), (2, 10, "group 2 (ranks 0, 2)")]
    tables["collective"] = [row for row in tables["collective"] if row["group_name"] == "1"]
    tables["device_event"] = [row for row in tables["device_event"] if row["start_ns"] == T0 or row["start_ns"] == T0 + 100]
    alone = rank_comparison(make_store(names=NAMES, **tables))
    assert [(row.waiting_ns, row.waiting_group) for row in alone.ranks] == [(None, None), (None, None)]


def test_of_one_process_group_nobody_needs_the_name(make_store: MakeStore) -> None:
    tables = job([(100, 0)], [(100, 0)])
    pair = [in_group((rank, 100, 150 + rank, 1), "0", "[0, 1]", 20) for rank in (0, 1)]
    tables["device_event"] += [made for made, _ in pair]
    for rank in (0, 1):
        tables["step"][rank]["device_duration_ns"] = 150 + rank
    result = rank_comparison(make_store(names=NAMES, **tables, collective=[told for _, told in pair]))
    assert (result.groups, [(row.waiting_ns, row.waiting_group) for row in result.ranks]) == (1, [(0, None), (1, None)])


@pytest.mark.parametrize(
    ("name", "ranks", "label"),
    [
        ("0", None, "group 0"),
        (None, "[0, 4]", "the group of ranks 0, 4"),
        ("dp", "[0, 1, 2, 3, 4, 5, 6, 7, 8]", "group dp (ranks 0 to 8)"),
        ("dp", "[0, 1, 2, 3, 4, 5, 6, 7]", "group dp (ranks 0, 1, 2, 3, 4, 5, 6, 7)"),
    ],
)
def test_a_process_group_is_called_by_what_is_known(make_store: MakeStore, name: str | None, ranks: str | None, label: str) -> None:
    tables = job([(100, 0)], [(100, 0)])
    pair = [in_group((rank, 100, 150 + rank, 1), name, ranks, 20) for rank in (0, 1)]
    tables["device_event"] += [made for made, _ in pair]
    for rank in (0, 1):  # and one of no group
        tables["device_event"].append(kernel("nccl", 150 + rank, 160 + rank, process=rank, device=rank))
        tables["step"][rank]["device_duration_ns"] = 160 + rank
    result = rank_comparison(make_store(names=NAMES, **tables, collective=[told for _, told in pair]))
    assert [(row.waiting_ns, row.waiting_group) for row in result.ranks] == [(0, None), (1, label)]
