"""Tests for timelines of Horovod (its files and those of the hosted profiler) and of smdataparallel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.analysis import analyze
from postrun.analysis.framework.framework import framework
from postrun.ingest import ingest
from postrun.ingest.discover import format_of
from postrun.ingest.hosted.timelines import read_pevents
from postrun.ingest.store import Store
from postrun.ingest.store.format_names import TIMELINE, TRACE
from postrun.ingest.store.registry import ReadResult, Registry

BOOT_US = 77_567_277_433
BASE_US = 1_704_067_200_000_000
TENSOR = "Adam_Allreduce/HorovodAllreduce_gradient_tape_dense_MatMul_1_0"


def named(pid: int, name: str) -> list[dict[str, Any]]:
    return [
        {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}},
        {"name": "process_sort_index", "ph": "M", "pid": pid, "args": {"sort_index": pid}},
    ]


def reduced(pid: int, at: int) -> list[dict[str, Any]]:
    """Return a tensor: negotiated for 100 us, reduced for 500 us, 300 by NCCL."""
    return [
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": at, "pid": pid},
        {"ph": "X", "name": "0", "ts": at + 20, "pid": pid, "dur": 0},
        {"ph": "X", "name": "1", "ts": at + 90, "pid": pid, "dur": 0},
        {"ph": "E", "ts": at + 100, "pid": pid},
        {"ph": "B", "name": "ALLREDUCE", "ts": at + 110, "pid": pid},
        {"ph": "B", "name": "NCCL_ALLREDUCE", "ts": at + 200, "pid": pid},
        {"ph": "E", "ts": at + 500, "pid": pid},
        {"ph": "E", "ts": at + 610, "pid": pid, "args": {"dtype": "float32", "shape": "[128, 10]"}},
    ]


def raw(at: int = BOOT_US, *, cycle: bool = True) -> list[dict[str, Any]]:
    """Return Horovod's events of two tensors; the last range of the second is open."""
    begin = [{"ph": "i", "name": "CYCLE_START", "ts": at, "s": "g"}] if cycle else []
    second = [*reduced(2, at + 2000), {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": at + 9000, "pid": 2}]
    return [*begin, *named(1, TENSOR), *reduced(1, at + 1000), *named(2, "gradient/allreduce.bias"), *second]


def lines(events: list[dict[str, Any]], *, closed: bool) -> str:
    return "[\n" + ",\n".join(json.dumps(event) for event in events) + ("\n]\n" if closed else ",\n")


def read(path: Path) -> tuple[Store, ReadResult]:
    store = Store.create(None)
    return store, read_pevents(store, path, 0, Registry(store))


def ranges(store: Store) -> list[tuple[Any, ...]]:
    query = "SELECT phase, n.text, start_ns, duration_ns FROM annotation AS a JOIN name AS n ON n.id = name ORDER BY start_ns, duration_ns"
    return store.frame(query).rows()


def notes(store: Store) -> dict[str, int]:
    return dict(store.frame("SELECT code, sum(count)::BIGINT FROM ingest_note GROUP BY code").rows())


def expected(phase: str, at_us: int) -> list[tuple[str, str, int, int]]:
    rows = [
        ("NEGOTIATE_ALLREDUCE", 0, 100), ("ALLREDUCE", 110, 500), ("NCCL_ALLREDUCE", 200, 300),
    ]  # fmt: skip
    return [(phase, name, (at_us + start) * 1000, length * 1000) for name, start, length in rows]


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("name", ["horovod.json", "HOROVOD_TIMELINE", "timeline.json.0", "trace.json"])
def test_what_horovod_writes_is_told_by_content(tmp_path: Path, name: str, *, closed: bool) -> None:
    for number, events in enumerate((raw(), raw(cycle=False))):
        path = tmp_path / str(number) / name
        path.parent.mkdir()
        path.write_text(lines(events, closed=closed))
        known = format_of(path)
        assert known is not None
        assert known.name == TIMELINE
        store, result = read(path)
        assert result == ReadResult(6, (BOOT_US + 1000) * 1000, (BOOT_US + 2610) * 1000, relative=True)  # the end is not wanted
        assert ranges(store) == expected(TENSOR, BOOT_US + 1000) + expected("gradient/allreduce.bias", BOOT_US + 2000)
        noted = notes(store)
        assert (noted["relative_times"], noted["unclosed_begin"], noted["rank_ready"]) == (1, 1, 4)
        assert store.frame("SELECT pid, rank FROM process").rows() == [(None, None)]


def test_ranges_named_by_a_number_stay_where_they_last_or_no_rank_is_negotiated(tmp_path: Path) -> None:
    def named_by_number(name: str, length: int) -> list[tuple[Any, ...]]:
        path = tmp_path / f"{name}.json"
        events = [
            {"ph": "X", "name": name, "ts": 10, "pid": 1, "dur": 100},
            {"ph": "X", "name": "4", "ts": 20, "pid": 1, "dur": length},
        ]
        path.write_text(lines([*named(1, TENSOR), *events], closed=True))
        return [row[1:] for row in ranges(read(path)[0])]

    assert named_by_number("NEGOTIATE_ALLREDUCE", 0) == [("NEGOTIATE_ALLREDUCE", 10_000, 100_000)]
    assert ("4", 20_000, 7_000) in named_by_number("NEGOTIATE_ALLREDUCE", 7)
    assert ("4", 20_000, 0) in named_by_number("ALLREDUCE", 0)


def test_traces_of_pytorch_with_a_range_of_the_same_name_stay_such(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    event = {"ph": "X", "cat": "user_annotation", "name": "NEGOTIATE_ALLREDUCE", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    known = format_of(path)
    assert known is not None
    assert known.name == TRACE


def rewritten(folder: Path, kind: str, events: list[dict[str, Any]]) -> Path:
    """The hosted profiler's version: times count from a base at the beginning."""
    base = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": BASE_US}}
    path = folder / f"framework/pevents/2024010100/{BASE_US + 2610}_88359-algo-1_{kind}.json"
    path.parent.mkdir(parents=True)
    path.write_text(lines([base, *events], closed=True))
    return path


@pytest.mark.parametrize("kind", ["horovod_timeline", "smdataparallel_timeline"])
def test_a_rewritten_timeline_has_the_times_of_its_base(tmp_path: Path, kind: str) -> None:
    path = rewritten(tmp_path, kind, raw(0))
    known = format_of(path)
    assert known is not None
    assert known.name == TIMELINE
    store, result = read(path)
    assert result == ReadResult(6, (BASE_US + 1000) * 1000, (BASE_US + 2610) * 1000)
    assert ranges(store) == expected(TENSOR, BASE_US + 1000) + expected("gradient/allreduce.bias", BASE_US + 2000)
    assert store.frame("SELECT hostname, pid, label FROM process JOIN node ON node.id = node").rows() == [("algo-1", 88359, "algo-1-88359")]
    assert notes(store) == {"unclosed_begin": 1, "not_shown": 1, "rank_ready": 4}


def test_collectives_of_the_framework_section(tmp_path: Path) -> None:
    rewritten(tmp_path, "horovod_timeline", raw(0))
    store = ingest([tmp_path])
    shares = {share.name: (share.total_ns, share.count) for share in framework(store).collectives}
    # the ready ranks of the tensor without Horovod's name cannot be recognized
    assert shares == {
        "NEGOTIATE_ALLREDUCE": (200_000, 2), "ALLREDUCE": (1_000_000, 2),  # NCCL_ALLREDUCE lies inside of ALLREDUCE
    }  # fmt: skip
    report = analyze(store)
    assert report.framework.absent is None
    assert report.framework.collectives[0].name == "ALLREDUCE"


def test_phases_of_smdataparallel_are_collectives(tmp_path: Path) -> None:
    events = [*named(1, "SMDataParallel_ops"), {"ph": "X", "name": "bucket 3", "ts": 5, "dur": 70, "pid": 1}]
    rewritten(tmp_path, "smdataparallel_timeline", events)
    shares = [(share.name, share.total_ns, share.count) for share in framework(ingest([tmp_path])).collectives]
    assert shares == [("bucket 3", 70_000, 1)]


def test_a_raw_timeline_beside_files_with_the_time_of_day_is_a_process_of_its_own(tmp_path: Path) -> None:
    rewritten(tmp_path, "horovod_timeline", raw(0))
    (tmp_path / "horovod.json").write_text(lines(raw(), closed=False))
    store = ingest([tmp_path])
    assert store.frame("SELECT count(*) FROM process").item() == 2
    started, ended = store.frame("SELECT started_ns, ended_ns FROM run").row(0)
    assert (started, ended) == ((BASE_US + 1000) * 1000, (BASE_US + 2610) * 1000)
    assert "several_runs" not in notes(store)


marks = st.lists(
    st.tuples(st.sampled_from("BBEEXi"), st.integers(1, 3), st.integers(0, 30)).map(
        lambda one: {"ph": one[0], "pid": one[1], "ts": one[2], **({} if one[0] == "E" else {"name": "NEGOTIATE_ALLREDUCE", "dur": 4})}
    ),
    max_size=20,
)


@settings(max_examples=examples(25))
@given(marks, st.integers(0, 200))
def test_whatever_is_cut_ranges_are_those_of_a_stack_per_tensor(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("raw")
    path = folder / "a.json"
    path.write_text(lines(events, closed=True))
    pairs: list[tuple[int, int]] = []
    stacks: dict[int, list[int]] = {}
    for event in events:
        stack = stacks.setdefault(event["pid"], [])
        if event["ph"] == "X":
            pairs.append((event["ts"], 4))
        elif event["ph"] == "B":
            stack.append(event["ts"])
        elif event["ph"] == "E" and stack and (length := event["ts"] - (begin := stack.pop())) >= 0:
            pairs.append((begin, length))
    store, result = read(path)
    assert result.events == len(pairs)
    assert sorted((start // 1000, length // 1000) for _, _, start, length in ranges(store)) == sorted(pairs)
    part = folder / "b.json"
    part.write_text(path.read_text()[: -cut or None])
    assert read(part)[1].events <= result.events
