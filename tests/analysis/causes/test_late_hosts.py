"""Ranks whose host launches late: hand-made jobs of three ranks and ten steps of 100 ms, with results worked out on paper.

In a late step, the device of a rank waits for its host from 10 ms after the start of the step, and the others wait for the rank in a
collective. By default the wait of 20 ms is 20% of a step, and in two steps the two others wait for 2 x 2 x 20 ms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from postrun.analysis.causes.late_hosts import late_hosts
from postrun.analysis.causes.peers import Peers
from postrun.analysis.device.device_gaps import DeviceGaps

MS = 1_000_000
STEPS = 10
SAME = Peers({0: 0, 1: 0, 2: 0}, "same")
Rows = list[tuple[int, int, int, int]]  # process, steps, idle and waiting in ms


def device_gaps(waits: Iterable[tuple[int, float, float]]) -> DeviceGaps:
    """Return host waits as the gaps of one device per process.

    ``waits``: process, start and end in ms.
    """
    rows = [(process, round(start * MS), round(end * MS)) for process, start, end in waits]
    frame = pl.DataFrame(rows, schema={"row": pl.Int32, "start": pl.Int64, "ready": pl.Int64}, orient="row")
    users = pl.DataFrame({"row": range(4), "process": range(4)}, schema={"row": pl.Int32, "process": pl.Int32})
    group = SimpleNamespace(rows=lambda: users, host_waits=lambda: frame)
    return cast(DeviceGaps, SimpleNamespace(groups=lambda: [group]))


def calls(waits: Iterable[tuple[int, int, float, float]], operation: str = "all-reduce") -> pl.DataFrame:
    """Return collectives.

    ``waits``: the waiting process, the one that arrives last, start and exposed wait in ms.
    """
    schema = {"process": pl.Int32, "last": pl.Int32, "start": pl.Int64, "exposed_waiting": pl.Int64}
    rows = [(process, last, round(start * MS), round(wait * MS)) for process, last, start, wait in waits]
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(operation=pl.lit(operation))


def steps(ranks: int = 3) -> pl.DataFrame:
    rows = [(rank, number, 100 * number * MS, 100 * (number + 1) * MS) for rank in range(ranks) for number in range(STEPS)]
    return pl.DataFrame(rows, schema={"process": pl.Int64, "number": pl.Int64, "start": pl.Int64, "end": pl.Int64}, orient="row")


def late_ranks(
    late: Mapping[int, Collection[int]],
    *,
    last: int = 1,
    wait: float = 20,
    waited: float | None = None,
    peers: Peers = SAME,
    operation: str = "all-reduce",
) -> Rows:
    """Return the late hosts of a job.

    ``late``: the steps in which the host of each rank is late by ``wait`` ms. In the steps of rank ``last`` the others wait for it by
    ``waited`` ms (None: as long)."""
    waits = [(rank, 100 * number + 10, 100 * number + 10 + wait) for rank, numbers in late.items() for number in numbers]
    blocked = [
        (rank, last, 100 * number + 10, wait if waited is None else waited)
        for number in late.get(last, ())
        for rank in range(3)
        if rank != last
    ]
    result = late_hosts(device_gaps(waits), calls(blocked, operation), steps(), peers)
    return [(row["process"], row["steps"], row["idle"] // MS, row["waiting"] // MS) for row in result.iter_rows(named=True)]


def test_one_host_pauses_now_and_then() -> None:
    assert late_ranks({1: (3, 7)}) == [(1, 2, 40, 80)]
    times = late_hosts(
        device_gaps([(1, 310, 330), (1, 710, 730)]),
        calls([(0, 1, 310, 20), (2, 1, 310, 20), (0, 1, 710, 20), (2, 1, 710, 20)]),
        steps(),
        SAME,
    )
    assert times.select("first", "last").rows() == [(300 * MS, 800 * MS)]  # begin of step 3, end of step 7


def test_hosts_that_all_pause_name_no_rank() -> None:
    assert late_ranks({0: (3, 7), 1: (3, 7), 2: (3, 7)}) == []
    assert late_ranks({0: (3, 7), 1: (3, 7)}) == []  # two of three: the median of the ranks is the pause
    # Each in steps of its own: late is the one that the others wait for.
    assert late_ranks({0: (1, 2), 1: (3, 7), 2: (5, 8)}) == [(1, 2, 40, 80)]


def test_a_healthy_job_has_no_late_host() -> None:
    assert late_ranks({}) == []


def test_a_host_that_is_late_once_may_be_late_by_chance() -> None:
    assert late_ranks({1: (3,)}, wait=80) == []


@pytest.mark.parametrize(
    ("wait", "numbers", "expected"),
    [
        (5, (1, 3, 5), [(1, 3, 15, 30)]),  # 5% of a step each; 3 x 2 x 5 ms are 1% of 3 x 10 steps
        (4.9, (1, 3, 5, 7), []),  # below 5% of a step
        (5, (1, 3), []),  # 20 ms of waiting, below 1%
    ],
)
def test_short_waits_do_not_count(wait: float, numbers: tuple[int, ...], expected: Rows) -> None:
    assert late_ranks({1: numbers}, wait=wait) == expected


@pytest.mark.parametrize(("waited", "expected"), [(9.9, []), (10, [(1, 2, 40, 40)]), (50, [(1, 2, 40, 80)])])
def test_the_others_wait_for_half_of_the_time_and_at_most_all_of_it_counts(waited: float, expected: Rows) -> None:
    assert late_ranks({1: (3, 7)}, waited=waited) == expected


def test_ranks_of_a_pipeline_are_compared_with_their_role() -> None:
    """The host of rank 1 is the only one of its role: nothing shows that it is late."""
    assert late_ranks({1: (3, 7)}, peers=Peers({0: 0, 1: 1, 2: 0}, "groups")) == []
    assert late_ranks({1: (3, 7)}, peers=Peers({0: 0, 1: 0, 2: 0}, "unknown")) == []
    # With a peer, rank 0, that is on time; rank 2 waits for it as well.
    assert late_ranks({1: (3, 7)}, peers=Peers({0: 0, 1: 0, 2: 1}, "groups")) == [(1, 2, 40, 80)]


def test_a_wait_before_a_step_belongs_to_it() -> None:
    gaps = device_gaps([(1, 290, 320), (1, 690, 720)])
    blocked = calls([(rank, 1, start, 30) for rank in (0, 2) for start in (305, 705)])
    result: dict[str, Any] = late_hosts(gaps, blocked, steps(), SAME).row(0, named=True)
    assert (result["steps"], result["idle"], result["waiting"], result["first"]) == (2, 60 * MS, 120 * MS, 300 * MS)


def test_waits_for_a_sender_or_for_another_rank_confirm_nothing() -> None:
    assert late_ranks({1: (3, 7)}, operation="receive") == []
    gaps = device_gaps([(1, 310, 330), (1, 710, 730)])
    blocked = calls([(rank, 0, start, 20) for rank in (1, 2) for start in (310, 710)])
    assert late_hosts(gaps, blocked, steps(), SAME).is_empty()


def test_a_single_rank_has_no_late_host() -> None:
    assert late_hosts(device_gaps([(0, 310, 330)]), calls([(0, 1, 310, 20)]), steps(1), SAME).is_empty()
