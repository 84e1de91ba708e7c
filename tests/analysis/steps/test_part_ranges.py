"""Parts of steps: every instant belongs to at most one step and one part, and every load counts once. Computed on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis.framework.framework import framework
from postrun.analysis.steps.steps import steps
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
Row = dict[str, Any]
KINETO = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
GET_NEXT = "_MultiProcessingDataLoaderIter::GetNext"


def step(index: int, start: int, end: int, phase: str | None = None, process: int = 0, **more: Any) -> Row:
    times = {"host_start_ns": start, "host_duration_ns": end - start}
    return {"node": 0, "process": process, "phase": phase, "index": index, "device_events": 0, **times, **more}


def span(name: str, start: int, end: int, phase: str | None = None, **more: Any) -> Row:
    return {"name": name, "phase": phase, "side": "host", "complete": True, "start_ns": start, "duration_ns": end - start, **more}


def load(start: int, end: int, **more: Any) -> Row:
    return {"kind": "loader", "name": KINETO, "start_ns": start, "duration_ns": end - start, **more}


def parts(store: Store) -> dict[str, tuple[int, int]]:
    """By part of a step: its time and its ranges."""
    return {share.name: (share.total_ns, share.count) for share in framework(store).step_parts}


@pytest.mark.parametrize("phase", ["TRAIN", None])
def test_a_part_ends_with_its_step(make_store: MakeStore, phase: str | None) -> None:
    """Steps from 0 to 100, 100 to 200 and 250 to 300; process 1 has none."""
    store = make_store(
        processes=[{"id": 0, "node": 0, "pid": 1}, {"id": 1, "node": 0, "pid": 2}],
        step=[step(0, 0, 100, phase), step(1, 100, 200, phase), step(2, 250, 300, phase)],
        annotation=[
            span("forward", 10, 40), span("forward", 110, 140),
            span("backward", 60, 105), span("backward", 150, 230, tid=2),  # until 100, and until 200
            span("optimizer", 205, 260),  # begins between steps: as it is
            span("optimizer", 90, 400, process=1),
        ],
    )  # fmt: skip
    assert parts(store) == {"forward": (60, 2), "backward": (90, 2), "optimizer": (55 + 310, 2)}
    by_phase = {(one.by, one.name): one.total_ns for one in framework(make_store(
        step=[step(0, 0, 100, phase)], annotation=[span("forward", 10, 130)],
        host_event=[{"kind": "operator", "name": "mm", "start_ns": at, "duration_ns": 5} for at in (20, 110)],
    )).by_phase}  # fmt: skip
    assert by_phase["part", "forward"] == 90


def test_a_step_within_steps_of_another_source_ends_nothing(make_store: MakeStore) -> None:
    # The profiler's step ends a little before the hosted profiler's, in which the part goes on.
    store = make_store(step=[step(0, 0, 100, "TRAIN"), step(0, 5, 90)], annotation=[span("forward", 10, 130)])
    assert parts(store) == {"forward": (90, 1)}


def test_a_load_that_several_recorded_counts_once(make_store: MakeStore) -> None:
    store = make_store(
        annotation=[
            span("load batch", 8, 32), span(GET_NEXT, 10, 30, "DataLoaderIter", tid=900),  # the same as the trace's from 12 to 28
            span(GET_NEXT, 60, 70, "DataLoaderIter", tid=900),  # before the trace begins
            span(GET_NEXT, 195, 240, "DataLoaderIter", tid=900),  # another one than that of the trace from 190 to 200
            span("load batch", 102, 108, tid=7),  # on another thread, ahead
        ],
        host_event=[load(12, 28), load(100, 110), load(102, 105), load(190, 200)],
    )  # fmt: skip
    # 8 to 32, 60 to 70, 100 to 110 (twice: two threads), 190 to 240 (twice)
    assert parts(store) == {"data loading": (24 + 10 + 10 + 50, 6)}


def test_a_load_of_another_process_is_another_load(make_store: MakeStore) -> None:
    store = make_store(
        processes=[{"id": 0, "node": 0, "pid": 1}, {"id": 1, "node": 0, "pid": 2}],
        annotation=[span(GET_NEXT, 10, 30, "DataLoaderIter")],
        host_event=[load(12, 28, process=1)],
    )
    assert parts(store) == {"data loading": (20 + 16, 2)}


@pytest.mark.parametrize("device_events", [8, 2])
def test_a_load_after_the_last_step_is_of_none(make_store: MakeStore, device_events: int) -> None:
    # The device works on the steps for 40 ns after the host is through; what is loaded then is of the step that follows, if one does. Of
    # steps 1, 2 and 6, 7 on the host from 0 to 100, 100 to 200, 600 to 700 and 700 to 800. Each loads for 10 ns at its beginning. Where the
    # last one has few device events, it was cut off and is left out.
    loads = [(1, 0), (2, 100), (6, 600), (7, 700)]
    store = make_store(
        step=[
            {**step(n, at, at + 100, device_start_ns=at + 30, device_duration_ns=110), "device_events": device_events if n == 7 else 8}
            for n, at in loads
        ],
        host_event=[
            *(load(at + 1, at + 11) for _, at in loads),
            load(205, 220),  # after step 2, whose device work ends at 240
            load(804, 824),  # after the last one, whose device work ends at 840
            {"kind": "operator", "name": "mm", "start_ns": 0, "duration_ns": 1},
        ],
        device_event=[{"kind": "memset", "name": "m", "start_ns": at + 90, "duration_ns": 1} for _, at in loads],
    )
    [result] = steps(store).parts
    counted = 4 if device_events == 8 else 3
    assert result.steps == counted
    assert result.mean_ns["data_loader"] == 10
    # Step 2 reaches from 140 on to 240, and 6 and 7 from 600 on to 840.
    total = 240 + (240 if counted == 4 else 140)
    assert result.mean_step_ns * counted == pytest.approx(total)
    assert sum(result.mean_ns.values()) * counted == pytest.approx(total)
