"""Collectives matched over ranks: hand-made calls with results computed on paper, and the published jobs recounted in plain Python."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.analysis.causes.clocks import Edge, _aligned
from postrun.analysis.causes.collectives import collectives
from postrun.analysis.causes.groups import GROUPS, process_groups, rank_list
from postrun.analysis.causes.matching import matched_clocks, matched_collectives
from postrun.ingest import ingest
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
OpenMaker = Callable[[], AbstractContextManager[MakeStore]]

NAMES = {"nccl": ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "fp32", "communication")}
MS = 1_000_000


class Job:
    """Calls of collectives, each with its kernel and its record."""

    def __init__(self, ranks: int, *, nodes: int = 1) -> None:
        self.nodes = [{"id": node, "hostname": f"host-{node}"} for node in range(nodes)]
        share = ranks // nodes
        self.processes = [
            {"id": rank, "node": rank // share, "rank": rank, "pid": 100 + rank, "world_size": ranks} for rank in range(ranks)
        ]
        self.kernels: list[dict[str, Any]] = []
        self.records: list[dict[str, Any]] = []

    def call(self, rank: int, start: int, end: int, operation: str | None = "allreduce", *, stream: int = 7, **columns: Any) -> None:
        """Add a call; ``operation`` None: the trace describes no collective."""
        correlation, node = len(self.kernels) + 1, self.processes[rank]["node"]
        kernel = {
            "kind": "kernel",
            "name": "nccl",
            "node": node,
            "process": rank,
            "device": rank,
            "stream": stream,
            "correlation": correlation,
        }
        self.kernels.append({**kernel, "start_ns": start, "duration_ns": end - start})
        if operation is not None:
            group = {"group_name": "0", "group_ranks": str([process["rank"] for process in self.processes])}
            record = {"node": node, "process": rank, "on_device": True, "start_ns": start, "duration_ns": 1, "correlation": correlation}
            sizes = {"element_type": "Float", "in_elements": 1000, "out_elements": 1000, "group_size": len(self.processes)}
            self.records.append({**record, **sizes, **group, "operation": operation, **columns})

    def store(self, make_store: MakeStore) -> Store:
        tables = {"device_event": self.kernels, "collective": self.records}
        return make_store(names=NAMES, nodes=self.nodes, processes=self.processes, **tables)


def matches(store: Store) -> list[list[tuple[int, int]]]:
    """Return (process, start) of the calls of each match."""
    rows = matched_collectives(store).filter(pl.col("match").is_not_null()).select("match", "process", "start").rows()
    calls_of: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for match, process, start in rows:
        calls_of[match].append((process, start))
    return sorted(sorted(calls) for calls in calls_of.values())


def test_late_rank_and_transfer(make_store: MakeStore) -> None:
    # Rank 2 comes 30 ms late to the first one, rank 1 10 ms late to the second one; each transfer takes 5 ms.
    job = Job(3)
    for rank, (first, second) in enumerate([(0, 100), (20, 110), (30, 102)]):
        job.call(rank, first * MS, 35 * MS)
        job.call(rank, second * MS, 115 * MS)
    (row,), totals = collectives(job.store(make_store))
    assert (row.count, row.ranks, row.transfer_ns, row.waiting_ns) == (2, 3, 10 * MS, (30 + 10 + 10 + 8) * MS)
    assert row.total_ns == 3 * row.transfer_ns + (row.waiting_ns or 0)
    assert (row.last_rank, row.last_count, row.skew_ns, row.at_least) == (1, 1, 20 * MS, False)
    assert row.algorithm_gb_per_s == pytest.approx(2 * 4000 / (10 * MS))
    assert row.bus_gb_per_s == pytest.approx(2 * 4000 / (10 * MS) * 4 / 3)
    assert [(wait.rank, wait.wait_ns, wait.last) for wait in totals.waits] == [(0, 40 * MS, 0), (1, 10 * MS, 1), (2, 8 * MS, 1)]
    assert [(group.group, group.known, group.size, group.matched) for group in totals.groups] == [("0", 3, 3, 2)]


def test_missing_ranks_make_bandwidth_a_lower_bound(make_store: MakeStore) -> None:
    job = Job(2)
    for rank in (0, 1):
        job.call(rank, 0, 10 * MS, group_ranks="[0, 1, 2, 3]", group_size=4)
    (row,), _ = collectives(job.store(make_store))
    assert (row.ranks, row.group_size, row.at_least) == (2, 4, True)


def test_clocks_of_nodes_are_aligned(make_store: MakeStore) -> None:
    # Ranks 2 and 3 are on a node whose clock is 7 s ahead; rank 3 comes 4 ms late each time.
    ahead = 7_000 * MS
    job = Job(4, nodes=2)
    for number in range(5):
        at = number * 50 * MS
        for rank, (late, clock) in enumerate([(0, 0), (1, 0), (2, ahead), (4, ahead)]):
            job.call(rank, at + late * MS + clock, at + 9 * MS + clock)
    store = job.store(make_store)
    (row,), totals = collectives(store)
    assert (row.count, row.ranks, row.transfer_ns, row.waiting_ns) == (5, 4, 5 * 5 * MS, 5 * (4 + 3 + 2) * MS)
    assert (row.last_rank, row.last_count) == (3, 5)
    assert matched_clocks(store).shifts == {0: 0, 1: 0, 2: -ahead, 3: -ahead}
    assert totals.clocks is not None
    assert "The largest offset was 7.00 s; the ends scatter around the offsets by 0 ns" in totals.clocks.replace("\u00a0", " ")


def test_the_offset_of_clocks_and_the_scatter_of_the_ends_are_two_numbers(make_store: MakeStore) -> None:
    # The ends on the second node are 298 to 304 µs later: the offset is the median 300, and |1|, |2|, |0|, |2|, |4| deviate by 2 µs.
    job = Job(2, nodes=2)
    for number, ahead in enumerate((299, 302, 300, 298, 304)):
        for rank, clock in enumerate((0, ahead)):
            job.call(rank, number * 50 * MS + clock * 1000, number * 50 * MS + 9 * MS + clock * 1000)
    _, totals = collectives(job.store(make_store))
    assert totals.clocks is not None
    assert totals.clocks.replace("\u00a0", " ") == (
        "The clocks of 2 nodes were aligned by the ends of their collectives. The largest offset was 300 µs; the ends scatter around the"
        " offsets by 2.00 µs (median absolute deviation)."
    )


def test_clocks_without_a_common_collective_are_not_known(make_store: MakeStore) -> None:
    job = Job(2, nodes=2)
    for rank in (0, 1):
        job.call(rank, 0, 10 * MS, group_name=str(rank), group_ranks=f"[{rank}, {rank + 8}]")
    rows, totals = collectives(job.store(make_store))
    assert [row.ranks for row in rows] == [1, 1]
    assert totals.clocks is not None
    assert "not known" in totals.clocks


@pytest.mark.parametrize(
    "change",
    [{"operation": "broadcast"}, {"in_elements": 10, "out_elements": 10}, {"element_type": "Half"}, None],
    ids=["operation", "size", "type", "number"],
)
def test_inconsistent_sequences_are_not_matched(make_store: MakeStore, change: dict[str, Any] | None) -> None:
    job = Job(2)
    for number in range(3):
        for rank in (0, 1):
            if change is None and (rank, number) == (1, 2):
                continue
            job.call(rank, number * 10 * MS, number * 10 * MS + MS, **((change or {}) if (rank, number) == (1, 2) else {}))
    store = job.store(make_store)
    assert matches(store) == []
    assert collectives(store)[1].unmatched == (5 if change is None else 6)


def test_numbers_of_the_framework_match_different_windows(make_store: MakeStore) -> None:
    # Rank 0 was recorded from collective 5, rank 1 from collective 6.
    job = Job(2)
    for rank, first in ((0, 5), (1, 6)):
        for number in range(first, 9):
            job.call(rank, number * 10 * MS, number * 10 * MS + MS, sequence=number)
    assert matches(job.store(make_store)) == [[(0, n * 10 * MS), (1, n * 10 * MS)] for n in (6, 7, 8)]


def test_calls_at_different_times_are_not_one_collective(make_store: MakeStore) -> None:
    # The recorded group is wrong: the calls have the same order, but never run at the same time. A second operation aligns the clocks.
    job = Job(2)
    for number in range(4):
        for rank in (0, 1):
            at = number * 100 * MS
            job.call(rank, at, at + 5 * MS, "allgather")
            job.call(rank, at + (10 + 20 * rank) * MS, at + (11 + 20 * rank) * MS)
    rows, totals = collectives(job.store(make_store))
    assert [(row.operation, row.ranks, row.count) for row in rows] == [("all-gather", 2, 4), ("all-reduce", 1, 8)]
    assert totals.unmatched == 8


def test_groups_are_recognized_by_the_ends(make_store: MakeStore) -> None:
    # Two groups of two ranks without records; each leaves its collectives together, the second group 3 to 6 ms after the first.
    job = Job(4)
    for number in range(12):
        at = number * 100 * MS
        for rank in range(4):
            group, late = divmod(rank, 2)
            end = at + 20 * MS + group * (3 + number % 4) * MS
            job.call(rank, at + late * 2 * MS, end, None, stream=20 + rank)
    store = job.store(make_store)
    assert {tuple(process for process, _ in calls) for calls in matches(store)} == {(0, 1), (2, 3)}
    assert len(matches(store)) == 24
    rows, _ = collectives(store)
    assert [(row.group_size_assumed, row.ranks, row.group_size, row.at_least) for row in rows] == [(True, 2, 2, False)] * len(rows)
    assert sum(row.waiting_ns or 0 for row in rows) == 24 * 2 * MS


def test_few_calls_are_no_group(make_store: MakeStore) -> None:
    job = Job(2)
    for number in range(3):
        for rank in (0, 1):
            job.call(rank, number * 100 * MS, number * 100 * MS + 10 * MS, None)
    assert matches(job.store(make_store)) == []


def pipeline(streams: tuple[int, int, int, int], *, peers: bool) -> Job:
    """Make three stages that send forward and backward, on a stream for each."""
    job = Job(3)
    for number in range(10):
        at = number * 100 * MS
        for stage in range(2):
            for sender, receiver, moment, (sends, receives) in (
                (stage, stage + 1, 10 + 20 * stage, streams[:2]), (stage + 1, stage, 60 + 13 * stage + number % 3, streams[2:]),
            ):  # fmt: skip
                of = {"group_name": "pp", "group_description": "PIPELINE_MODEL_PARALLEL_GROUP"}
                job.call(sender, at + moment * MS, at + (moment + 2) * MS, "send", stream=sends, **of, peer=receiver if peers else None)
                start = at + (moment - 5) * MS
                job.call(receiver, start, at + (moment + 2) * MS, "recv", stream=receives, **of, peer=sender if peers else None)
    return job


@pytest.mark.parametrize("peers", [True, False])
@pytest.mark.parametrize("streams", [(21, 22, 23, 24), (24, 23, 21, 22), (9, 1000, 7, 3)])
def test_sends_match_receives_on_any_streams(make_store: MakeStore, streams: tuple[int, int, int, int], peers: bool) -> None:
    store = pipeline(streams, peers=peers).store(make_store)
    pairs = matches(store)
    assert len(pairs) == 40
    assert {tuple(sorted(process for process, _ in calls)) for calls in pairs} == {(0, 1), (1, 2)}
    (row,), _ = collectives(store)
    assert (row.operation, row.ranks, row.count, row.group_size) == ("send/receive", 2, 40, 2)
    assert (row.transfer_ns, row.waiting_ns) == (40 * 2 * MS, 40 * 5 * MS)
    assert matched_collectives(store)["peer"].null_count() == 0


def test_recorded_ranks_numbered_anew(make_store: MakeStore) -> None:
    # One of four ranks was recorded: the groups have 0, 4, 8, 12, the processes 0 to 3.
    job = Job(4)
    for rank in range(4):
        number = 4 * rank
        job.call(rank, 0, 10 * MS, group_name="dp", group_ranks="[0, 4, 8, 12]")
        job.call(rank, 20 * MS, 30 * MS, group_name=f"pp{rank}", group_ranks=str([number, number + 16]), group_size=2)
    assert process_groups(job.store(make_store)).number == {0: 0, 1: 4, 2: 8, 3: 12}


@pytest.mark.parametrize(
    ("text", "size", "ranks"),
    [
        ("[0, 1, 2]", 3, (0, 1, 2)), ("[3]", None, (3,)), ("[0, 1]", 3, ()), ("[0, 0]", 2, ()), ("[0, -1]", 2, ()), ("[]", None, ()),
        ("[true, 1]", 2, ()), ('["0", 1]', 2, ()), ("[0.0, 1]", 2, ()), ("{}", None, ()), ("nothing", None, ()), (None, 2, ()),
        ("[" * 5000, None, ()), ("[1e400]", 1, ()), (f"[{10**30}]", 1, ()), (str(list(range(20_000))), None, ()),
        ("[0, 2, 4, ..., 14]", 8, (0, 2, 4, 6, 8, 10, 12, 14)), ("[0, 2, 4, ...]", 5, (0, 2, 4, 6, 8)), ("[0, 2, 4, ..., 15]", 8, ()),
        ("[0, 2, 5, ..., 14]", 8, ()), ("[0, 2, ..., 4]", None, ()), ("[0, 2, ..., 9]", 10**12, ()),
    ],
)  # fmt: skip
def test_rank_lists(text: str | None, size: int | None, ranks: tuple[int, ...]) -> None:
    assert rank_list(text, size) == ranks


def test_hostile_groups_are_bounded(make_store: MakeStore) -> None:
    job = Job(2)
    for number in range(GROUPS + 50):
        job.call(number % 2, number * 10, number * 10 + 5, group_name=f"g{number}", group_ranks="[0, 1, 99999999999999999999]")
    for rank in (0, 1):
        job.call(rank, 10**9, 10**9 + 5, group_name="x" * 60_000, group_ranks="[" * 60_000)
    store = job.store(make_store)
    assert len(process_groups(store).groups) == GROUPS
    rows, totals = collectives(store)
    assert len(rows) == 200
    assert totals.further > 0


def test_parts_keep_their_clocks() -> None:
    nodes = {0: 0, 1: 0, 2: 1, 3: 1, 4: 2}
    clocks = _aligned(nodes, [Edge(0, 2, 500.0, 3.0), Edge(0, 1, 0.0, None), Edge(2, 3, 0.0, None)])
    assert clocks.shifts == {0: 0, 1: 0, 2: -500, 3: -500, 4: 0}
    assert (clocks.nodes, clocks.spread_ns, clocks.unaligned) == ({0: 0, 1: -500, 2: 0}, 3, (2,))


def test_one_collective_aligns_no_clocks(make_store: MakeStore) -> None:
    # The clocks of two nodes differ by 7 s. One collective could be any two calls: its ends prove nothing.
    job = Job(2, nodes=2)
    job.call(0, 0, 9 * MS)
    job.call(1, 7_000 * MS, 7_009 * MS)
    store = job.store(make_store)
    assert (matched_clocks(store).shifts, matched_clocks(store).unaligned) == ({0: 0, 1: 0}, (1,))
    assert matches(store) == []


def test_only_operations_that_all_leave_together_align_clocks(make_store: MakeStore) -> None:
    # The other clock is 7 s ahead. The root of a broadcast leaves it 5 ms before the other rank, always by the same time; the ends of the
    # all-reduces differ by up to 1 µs.
    ahead = 7_000 * MS
    job = Job(2, nodes=2)
    for number in range(5):
        at = number * 100 * MS
        job.call(0, at, at + 9 * MS)
        job.call(1, at + ahead, at + 9 * MS + ahead + (number % 3 - 1) * 1000)
        job.call(0, at + 20 * MS, at + 25 * MS, "broadcast")
        job.call(1, at + 20 * MS + ahead, at + 30 * MS + ahead, "broadcast")
    assert matched_clocks(job.store(make_store)).shifts == {0: 0, 1: -ahead}


def test_a_node_without_common_collectives_is_named(make_store: MakeStore) -> None:
    job = Job(3, nodes=3)
    for number in range(3):
        for rank in (0, 1):
            job.call(rank, number * 10 * MS, number * 10 * MS + MS, group_ranks="[0, 1]", group_size=2)
    job.call(2, 0, MS, group_ranks="[2, 3]", group_size=2)
    totals = collectives(job.store(make_store))[1]
    assert str(totals.clocks).endswith("No collective connects host-2 with the others.")


def test_repeated_numbers_are_not_used(make_store: MakeStore) -> None:
    # All calls have the number 5, so that their order matches them.
    job = Job(2)
    for number in range(3):
        for rank in (0, 1):
            job.call(rank, number * 10 * MS, number * 10 * MS + MS, sequence=5)
    assert matches(job.store(make_store)) == [[(0, n * 10 * MS), (1, n * 10 * MS)] for n in range(3)]


@pytest.mark.parametrize(("ranks", "matched"), [(2, 4), (3, 0)])
def test_more_ranks_than_the_group_has_are_not_matched(make_store: MakeStore, ranks: int, matched: int) -> None:
    job = Job(ranks)
    for number in range(4):
        for rank in range(ranks):
            job.call(rank, number * 10 * MS, number * 10 * MS + MS, group_ranks=None, group_size=2)
    assert len(matches(job.store(make_store))) == matched


@pytest.mark.parametrize(("apart", "matched"), [(1, 19), (3, 0)])
def test_some_calls_that_do_not_meet_take_back_all(make_store: MakeStore, apart: int, matched: int) -> None:
    # Of 20 calls in the same order, 1 or 3 of rank 1 run 50 ms after those of rank 0: 5% or 15%.
    job = Job(2)
    for number in range(20):
        at = number * 100 * MS
        job.call(0, at, at + 5 * MS)
        late = 50 * MS if number < apart else 0
        job.call(1, at + late, at + late + 5 * MS)
    assert len(matches(job.store(make_store))) == matched


@pytest.mark.parametrize(
    ("ends", "lasts", "nodes", "matched"),
    [
        ([0, 10, 20, 10], 20_000, 1, 12),  # ends within 20 µs of calls of 20 ms
        ([0, 500, 1000, 1500], 20_000, 1, 0),  # ends that differ by up to 1.5 ms
        ([0, 40, 80, 120], 100, 1, 0),  # calls of 100 µs: a quarter of that is allowed
        ([1000] * 4, 20_000, 1, 0),  # always 1 ms later on one node, which has one clock
        ([1000] * 4, 20_000, 2, 12),  # on two nodes that is the difference of their clocks
    ],
)
def test_ranks_without_groups_have_to_leave_together(make_store: MakeStore, ends: list[int], lasts: int, nodes: int, matched: int) -> None:
    """``ends``: how much later rank 1 leaves, in turn, in µs.

    ``lasts``: duration of the calls of rank 0 in µs.
    """
    job = Job(2, nodes=nodes)
    for number in range(12):
        start = number * 100 * MS
        job.call(0, start, start + lasts * 1000, None)
        job.call(1, start, start + (lasts + ends[number % 4]) * 1000, None)
    assert len(matches(job.store(make_store))) == matched


def test_a_recognized_group_of_some_ranks_has_no_known_size(make_store: MakeStore) -> None:
    # Two of four ranks were recorded: others may belong to the group.
    job = Job(4)
    for number in range(12):
        for rank in (0, 1):
            job.call(rank, number * 100 * MS, number * 100 * MS + 20 * MS, None)
    (row,), _ = collectives(job.store(make_store))
    assert (row.ranks, row.group_size, row.at_least) == (2, None, True)


def test_ranks_may_send_different_amounts_to_each_other(make_store: MakeStore) -> None:
    job = Job(2)
    for number in range(3):
        for rank in (0, 1):
            job.call(rank, number * 10 * MS, number * 10 * MS + MS, "all_to_allv", in_elements=1000 + rank, out_elements=1001 - rank)
    assert len(matches(job.store(make_store))) == 3


def test_a_call_whose_group_others_use_for_sends_alone_is_not_matched(make_store: MakeStore) -> None:
    job = Job(2)
    for number in range(3):
        job.call(0, number * 10 * MS, number * 10 * MS + MS)
        job.call(1, number * 10 * MS, number * 10 * MS + MS, "send")
    assert matches(job.store(make_store)) == []


def test_sends_of_another_size_match_no_receive(make_store: MakeStore) -> None:
    job = Job(2)
    for number in range(4):
        at = number * 10 * MS
        job.call(0, at, at + MS, "send", peer=1)
        job.call(1, at, at + MS, "recv", peer=0, out_elements=1000 if number else 7)
    assert matches(job.store(make_store)) == []


def test_sends_that_run_at_other_times_match_no_receive(make_store: MakeStore) -> None:
    job = Job(2)
    for number in range(4):
        at = number * 100 * MS
        job.call(0, at, at + MS, "send", peer=1)
        job.call(1, at + 50 * MS, at + 51 * MS, "recv", peer=0)
    assert matches(job.store(make_store)) == []


ODD_INTEGERS = st.none() | st.integers(-3, 5) | st.sampled_from([-(2**63), 2**63 - 1, 10**9])
ODD_CALLS = st.tuples(
    st.integers(0, 3),  # rank
    st.integers(0, 12),  # start
    st.sampled_from([0, 1, 3, 9]),  # duration
    st.sampled_from([None, "allreduce", "all_to_all", "send", "recv", "barrier", "???", ""]),
    st.fixed_dictionaries({
        "stream": st.integers(7, 8),
        "group_name": st.sampled_from([None, "0", "1", "\u202e<b>\x1b[31m"]),
        "group_description": st.sampled_from([None, "mesh_pp", "x" * 5000]),
        "group_ranks": st.sampled_from([None, "[0, 1, 2, 3]", "[0, 1]", "[7, 8]", "[0, 0]", "[", "{}"]),
        "group_size": ODD_INTEGERS,
        "sequence": ODD_INTEGERS,
        "peer": ODD_INTEGERS,
        "in_elements": ODD_INTEGERS,
        "element_type": st.sampled_from([None, "Float", "Unheard-of", ""]),
    }),
)  # fmt: skip


@settings(max_examples=examples(20))
@given(calls=st.lists(ODD_CALLS, max_size=40), nodes=st.integers(1, 2))
def test_odd_records_match_only_calls_that_meet(store_maker: OpenMaker, calls: list[Any], nodes: int) -> None:
    job = Job(4, nodes=nodes)
    for rank, start, length, operation, columns in calls:
        job.call(rank, start * MS, (start + length) * MS, operation, **columns)
    with store_maker() as make_store:
        store = job.store(make_store)
        matched = matched_collectives(store)
        rows, totals = collectives(store)
    assert matched["kernels"].sum() == len(calls)
    for _, of_match in matched.drop_nulls("match").group_by("match"):
        assert len(of_match) == of_match["process"].n_unique() > 1
        begin, end = of_match["start"] + of_match["shift_ns"], of_match["end"] + of_match["shift_ns"]
        assert begin.max() < end.min()  # type: ignore[operator]
        assert of_match["element_type"].n_unique() == 1
        if of_match["group_size"][0] is not None and of_match["operation"][0] not in ("send", "receive"):
            assert len(of_match) <= of_match["group_size"][0]
    assert sum(row.total_ns for row in rows) == sum(length * MS for _, _, length, _, _ in calls)
    assert all(row.transfer_ns >= 0 and (row.waiting_ns or 0) >= 0 for row in rows)
    assert totals.total_ns == sum(row.total_ns for row in rows)


@pytest.mark.parametrize(("name", "ranks"), [("ST", 8), ("AR", 16)])
def test_published_jobs_recounted(published_job: Callable[[str], Path], name: str, ranks: int) -> None:
    """Recount transfer and waiting in plain Python, on the clocks of the ends."""
    files = sorted(published_job(name).glob("*.gz"))
    assert len(files) == ranks
    calls: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
    for rank, file in enumerate(files):
        number: dict[Any, int] = defaultdict(int)
        events = json.loads(gzip.decompress(file.read_bytes()), parse_float=str)["traceEvents"]
        for event in events:
            values = event.get("args", {})
            if event.get("cat") == "kernel" and values.get("Collective name") in ("reduce_scatter", "allgather"):
                key = values["Collective name"], values["Process Group Name"]
                start, length = (
                    round(float(event[field][-14:]) * 1000) if field == "ts" else round(float(event[field]) * 1000)
                    for field in ("ts", "dur")
                )
                calls[(*key, number[key])].append((rank, start, start + length))
                number[key] += 1
    store = ingest(files)
    rows, totals = collectives(store)
    shifts = dict(matched_clocks(store).shifts)
    ends: dict[Any, list[int]] = defaultdict(list)
    for parts in calls.values():
        for rank, _, end in parts[1:]:
            ends[parts[0][0], rank].append(end - parts[0][2])
    for (first, rank), apart in ends.items():  # the shifts agree with the ends to a millisecond, of durations of seconds
        assert abs(shifts[rank] - shifts[first] + median(apart)) < MS
    expected: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    for (operation, group, _), parts in calls.items():
        latest = max(start + shifts[rank] for rank, start, _ in parts)
        sums = expected[{"reduce_scatter": "reduce-scatter", "allgather": "all-gather"}[operation], group]
        sums[0] += 1
        sums[1] += max(end + shifts[rank] for rank, _, end in parts) - latest
        sums[2] += sum(min(latest - start - shifts[rank], end - start) for rank, start, end in parts)
    listed = {(row.operation, row.group): row for row in rows if (row.operation, row.group) in expected}
    assert listed.keys() == expected.keys()
    for key, (count, transfer, waiting) in expected.items():
        assert (listed[key].count, listed[key].at_least) == (count, False)
        assert listed[key].transfer_ns == pytest.approx(transfer, rel=1e-6)
        assert listed[key].waiting_ns == pytest.approx(waiting, rel=1e-6)
    pairs = [row for row in rows if row.operation == "send/receive"]
    assert sum(row.count for row in pairs) == matched_collectives(store).filter(pl.col("operation") == "send").height
    assert all(row.ranks == 2 for row in pairs)
    assert totals.matched > 1000


@pytest.mark.parametrize("late", [0, 1_000_000])  # ns by which the clock of rank 1 differs
def test_ranks_that_were_profiled_in_different_steps_match_in_the_common_ones(make_store: MakeStore, late: int) -> None:
    """Rank 0 has steps 3–12, rank 1 has steps 5 to 15: 5 to 12 match."""
    job = Job(2)
    steps = []
    for rank, numbers in ((0, range(3, 13)), (1, range(5, 16))):
        for number in numbers:
            begin = 10 * MS * number + rank * late
            job.call(rank, begin + 2 * MS, begin + 5 * MS)
            times = {"host_start_ns": begin, "host_duration_ns": 9 * MS, "device_start_ns": begin, "device_duration_ns": 9 * MS}
            steps.append({"node": 0, "process": rank, "index": number, "device_events": 1, **times})
    matched = matches(
        make_store(names=NAMES, nodes=job.nodes, processes=job.processes, device_event=job.kernels, collective=job.records, step=steps)
    )
    assert matched == [[(0, 10 * MS * number + 2 * MS), (1, 10 * MS * number + 2 * MS + late)] for number in range(5, 13)]
