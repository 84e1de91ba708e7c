"""Tests for the hosted profiler's hand-made files -> rows."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.ingest.hosted.system_metrics import read_system_metrics, read_system_metrics_many, recognizes_system_metrics
from postrun.ingest.hosted.timelines import pair_begin_end, read_pevents, recognizes_pevents, stable_tid
from postrun.ingest.store import Store
from postrun.ingest.store.hosted_names import machine_of, node_label
from postrun.ingest.store.registry import ReadResult, Registry

SECOND = 1_700_000_040
BASE = SECOND * 1_000_000


def record(kind: str, name: str | None, dimension: str, value: object, timestamp: str, node: str | None = "algo-1") -> str:
    """Return a line of system metrics; ``timestamp`` is text, to avoid a float."""
    fields = {"Type": kind, "Name": name, "Dimension": dimension, "Value": value, "NodeId": node}
    given_fields = {key: item for key, item in fields.items() if item is not None}
    return json.dumps(given_fields)[:-1] + f', "Timestamp": {timestamp}}}'


def metrics(tmp_path: Path, text: str, name: str = "1700000040.algo-1.json") -> tuple[Store, ReadResult]:
    path = tmp_path / name
    path.write_text(text)
    store = Store.create(None)
    return store, read_system_metrics(store, path, 0, Registry(store))


def notes(store: Store) -> dict[str, int]:
    return {str(row["code"]): int(row["count"]) for row in store.frame("SELECT code, count FROM ingest_note").to_dicts()}


def test_every_documented_metric_has_its_place(tmp_path: Path) -> None:
    lines = [
        record("cpu", "cpu3", "CPUUtilization", 1, "1700000040.1"),
        record("cpu", "cpu3", "I/OWaitPercentage", 2, "1700000040.1"),
        record("gpu", "gpu1", "GPUUtilization", 3, "1700000040.1"),
        record("gpu", "gpu1", "GPUMemoryUtilization", 4, "1700000040.1"),
        record("memory", "MemoryUsedPercent", "", 5, "1700000040.1"),
        record("i/o", "IOPS", "", 6, "1700000040.1"),
        record("i/o", "ReadThroughputInBytesPerSecond", "", 7, "1700000040.1"),
        record("i/o", "WriteThroughputInBytesPerSecond", "", 8, "1700000040.1"),
        record("network", "ReceiveBytesPerSecond", "Algorithm", 9, "1700000040.1"),
        record("network", "TransmitBytesPerSecond", "Algorithm", 10, "1700000040.1"),
        record("network", "ReceiveBytesPerSecond", "Platform", 11, "1700000040.1"),
        record("network", "TransmitBytesPerSecond", "Platform", 12, "1700000040.1"),
    ]
    store, result = metrics(tmp_path, "\n".join(lines) + "\n")
    assert result == ReadResult(12, 1_700_000_040_100_000_000, 1_700_000_040_100_000_000)
    assert store.frame("SELECT metric, unit, value FROM sample ORDER BY value").rows() == [
        ("cpu_utilization", 3, 1.0),
        ("cpu_iowait", 3, 2.0),
        ("gpu_utilization", 1, 3.0),
        ("gpu_memory_controller", 1, 4.0),
        ("memory_used_percent", None, 5.0),
        ("disk_iops", None, 6.0),
        ("disk_read", None, 7.0),
        ("disk_write", None, 8.0),
        ("network_receive", None, 9.0),
        ("network_transmit", None, 10.0),
        ("network_receive_platform", None, 11.0),
        ("network_transmit_platform", None, 12.0),
    ]
    assert store.frame("SELECT hostname, cores, gpus FROM node").rows() == [("algo-1", 1, 1)]
    assert notes(store) == {}


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1783656600.001987", 1_783_656_600_001_987_000),  # as a double in nanoseconds this would end in ...987072
        ("1591160699.4570894", 1_591_160_699_457_089_400),
        ("1591160699.123456789", 1_591_160_699_123_456_789),
        ("1591160699", 1_591_160_699_000_000_000),
        ('"1591160699.000000001"', 1_591_160_699_000_000_001),
        ("1.5e9", 1_500_000_000_000_000_000),
    ],
)
def test_times_are_exact(tmp_path: Path, text: str, time_ns: int) -> None:
    _, result = metrics(tmp_path, record("cpu", "cpu0", "CPUUtilization", 1, text))
    assert result.first_ns == time_ns


def test_damage_is_skipped_and_counted_wherever_it_stands(tmp_path: Path) -> None:
    good = record("cpu", "cpu0", "CPUUtilization", 1, "1700000040.1")
    text = "\n".join(
        [
            "garbage",
            good,
            '{"Type": "cpu", "Na',
            "",
            record("cpu", "cpu0", "CPUUtilization", None, "1700000040.1"),  # no value
            '{"Type": "cpu", "Name": "cpu0", "Dimension": "CPUUtilization", "Value": 1, "NodeId": "algo-1"}',  # no time
            '{"Type": "cpu", "Name": "cpu0", "Dimension": "CPUUtilization", "Value": NaN, "NodeId": "algo-1", "Timestamp": 1700000040}',
            record("gpu", "gpu0", "Temperature", 60, "1700000040.1"),
            record("tpu", "tpu0", "", 60, "1700000040.1"),
            record("cpu", "cpu1", "CPUUtilization", "2.5", "1700000040.2", node=None),
            good,  # repeated records are kept
            good[:-20],
        ]
    )
    store, result = metrics(tmp_path, text)
    assert result == ReadResult(3, 1_700_000_040_100_000_000, 1_700_000_040_200_000_000)
    assert notes(store) == {"corrupt_line": 3, "incomplete_record": 3, "unknown_metric": 2, "no_node": 1}
    assert store.frame("SELECT DISTINCT hostname FROM node JOIN sample ON node.id = node").rows() == [("algo-1",)]
    [message] = store.frame("SELECT message FROM ingest_note WHERE code = 'unknown_metric'")["message"]
    assert "gpu/Temperature" in message
    assert "tpu" in message


def test_bytes_that_are_no_text_cost_only_their_line(tmp_path: Path) -> None:
    path = tmp_path / "1700000040.algo-1.json"
    good = record("cpu", "cpu0", "CPUUtilization", 1, "1700000040.1").encode()
    path.write_bytes(good + b'\n{"Type":"\xff\xfe"}\n\x00\x00\n' + good + b"\r\n")
    store = Store.create(None)
    assert read_system_metrics(store, path, 0, Registry(store)).events == 2
    assert notes(store) == {"corrupt_line": 2}


def test_an_unreadable_file_costs_only_itself(tmp_path: Path) -> None:
    good = record("cpu", "cpu0", "CPUUtilization", 1, "1700000040.1")
    files = []
    for index in range(5):
        path = tmp_path / f"170000004{index}.algo-1.json"
        path.write_text(good if index != 3 else '{"x": "' + "a" * 40_000_000 + '"}')
        files.append((path, index))
    (tmp_path / "1700000045.algo-1.json").write_text("")
    files += [(tmp_path / "1700000045.algo-1.json", 5), (tmp_path / "1700000046.algo-1.json", 6)]  # empty; not there
    store = Store.create(None)
    results = read_system_metrics_many(store, files, Registry(store))
    assert [result.events for result in results] == [1, 1, 1, 0, 1, 0, 0]
    assert [result.partial for result in results] == [False, False, False, True, False, False, True]
    assert sorted(store.frame("SELECT source, code FROM ingest_note").rows()) == [(3, "unreadable"), (5, "empty_file"), (6, "unreadable")]


def test_names_that_look_like_patterns_match_only_themselves(tmp_path: Path) -> None:
    folder = tmp_path / "run=1" / "a[1]*"
    folder.mkdir(parents=True)
    (tmp_path / "run=1" / "a1x").mkdir()
    (tmp_path / "run=1" / "a1x" / "1700000040.algo-2.json").write_text(record("cpu", "cpu0", "CPUUtilization", 1, "1", "algo-2"))
    store, result = metrics(folder, record("cpu", "cpu0", "CPUUtilization", 1, "1700000040.1"))
    assert result.events == 1
    assert store.frame("SELECT hostname FROM node").rows() == [("algo-1",)]


def test_many_broken_files_do_not_drown_the_notes(tmp_path: Path) -> None:
    files = []
    for index in range(30):
        path = tmp_path / f"17000000{index:02d}.algo-1.json"
        path.write_text("broken")
        files.append((path, index))
    store = Store.create(None)
    read_system_metrics_many(store, files, Registry(store))
    assert store.frame("SELECT count(*), sum(count)::BIGINT FROM ingest_note WHERE code = 'corrupt_line'").row(0) == (21, 30)


def test_compressed_metric_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "1700000040.algo-1.json.gz"
    path.write_bytes(gzip.compress(record("cpu", "cpu0", "CPUUtilization", 1, "1700000040.1").encode()))
    store = Store.create(None)
    assert read_system_metrics(store, path, 0, Registry(store)).events == 1


@pytest.mark.parametrize(
    ("name", "head", "known"),
    [
        ("job/system/incremental/2024073108/1722414960.algo-1.json", b"", True),
        ("1722414960.algo-1.json.corrupt", b"{", True),
        ("1722414960.algo-1.json", b'[{"ph": "X"}]', False),
        ("metrics.json", record("cpu", "cpu0", "CPUUtilization", 1, "1").encode(), True),
        ("metrics.json", b'{"traceEvents": []}', False),
    ],
)
def test_metric_files_are_recognized(name: str, head: bytes, known: bool) -> None:
    assert recognizes_system_metrics(head, name) is known


# -- timelines ---------------------------------------------------------------------------------------------------------------------------


def base(micros: object = BASE) -> dict[str, Any]:
    return {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": micros}}


def phase(pid: int | str, name: str) -> dict[str, Any]:
    return {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}


def complete(pid: int | str | None, ts: float, dur: float | None, name: str | None = "e", **fields: object) -> dict[str, Any]:
    event = {"name": name, "pid": pid, "ph": "X", "ts": ts, "dur": dur, **fields}
    return {key: item for key, item in event.items() if item is not None}


def mark(ph: str, pid: int, ts: int, name: str | None = "b", **fields: object) -> dict[str, Any]:
    event = {"name": name, "pid": pid, "ph": ph, "ts": ts, **fields}
    return {key: item for key, item in event.items() if item is not None}


def timeline(
    tmp_path: Path, events: list[dict[str, Any]], name: str = "1700000041_27-algo-1_pythontimeline.json", store: Store | None = None
) -> tuple[Store, ReadResult]:
    path = tmp_path / name
    path.write_text("[\n" + ",\n".join(json.dumps(event) for event in events) + "\n]")
    store = store or Store.create(None)
    return store, read_pevents(store, path, 0, Registry(store))


def rows(store: Store, columns: str) -> list[tuple[Any, ...]]:
    return store.frame(f"SELECT {columns} FROM annotation JOIN name ON name.id = annotation.name ORDER BY start_ns, duration_ns").rows()


def test_steps_become_annotations_exactly(tmp_path: Path) -> None:
    arguments = {"pid": 905, "step_num": "7"}
    store, result = timeline(tmp_path, [base(), phase(1, "Step:ModeKeys.TRAIN"), complete(1, 2, 3, "TRAIN step", args=arguments)])
    assert result == ReadResult(1, BASE * 1000 + 2000, BASE * 1000 + 5000)
    assert rows(store, "text, phase, value, start_ns, duration_ns, side, device, complete, arguments") == [
        ("TRAIN step", "Step:ModeKeys.TRAIN", 7, BASE * 1000 + 2000, 3000, "host", None, True, None)
    ]
    # steps come from pid 905, so the 27 of the file's name is the rank
    assert store.frame("SELECT hostname, pid, rank, label FROM process JOIN node ON node.id = node").rows() == [
        ("algo-1", 905, 27, "algo-1-27")
    ]


def test_base_and_phases_change_in_the_middle(tmp_path: Path) -> None:
    store, _ = timeline(
        tmp_path,
        [
            complete(1, 0, 1),  # before any declaration: the first base, no phase yet
            base(1000),
            phase(1, "A"),
            complete(1, 1, 1),
            complete(2, 2, 1),
            phase(1, "B"),
            phase(2, "A"),
            complete(1, 3, 1),
            complete(2, 4, 1),
            base(2000),
            complete(1, 5, 1),
            complete("text", 6, 1),
            phase("text", "T"),
            complete("text", 7, 1),
            complete(None, 8, 1),
        ],
    )
    assert rows(store, "start_ns / 1000, phase") == [
        (1000, "Unknown"),
        (1001, "A"),
        (1002, "Unknown"),
        (1003, "B"),
        (1004, "A"),
        (2005, "B"),
        (2006, "Unknown"),
        (2007, "T"),
        (2008, "Unknown"),
    ]


def test_a_file_without_base_counts_from_zero(tmp_path: Path) -> None:
    store, result = timeline(tmp_path, [phase(1, "A"), complete(1, 5, 2)])
    assert result == ReadResult(1, 5000, 7000, relative=True)
    assert notes(store) == {"relative_times": 1}


def test_begin_and_end_are_a_stack_per_pid_not_per_thread(tmp_path: Path) -> None:
    store, result = timeline(
        tmp_path,
        [
            base(0),
            phase(1, "P"),
            phase(2, "Q"),
            mark("E", 1, 1),  # nothing open yet
            mark("B", 1, 10, "outer", tid=1, args={"step_num": "1"}),
            mark("B", 2, 11, "other", tid=1),
            mark("B", 1, 12, "inner", tid=2),
            mark("E", 1, 15, None, tid=1, args={"step_num": "9"}),  # nameless; closes inner, whatever its thread
            mark("E", 1, 20, "misnamed", tid=2),
            mark("E", 1, 21),  # the stack is empty again
            mark("B", 1, 30, "never closed"),
            {"ph": "i", "name": "CYCLE_START", "ts": 31, "pid": 1},
        ],
    )
    assert result.events == 2
    assert rows(store, "text, start_ns / 1000, duration_ns / 1000, phase, value") == [("outer", 10, 10, "P", 1), ("inner", 12, 3, "P", 9)]
    assert notes(store) == {"unclosed_begin": 2, "stray_end": 2, "not_shown": 1}


def test_bad_durations_are_left_out_and_counted(tmp_path: Path) -> None:
    store, result = timeline(
        tmp_path, [base(), phase(1, "P"), complete(1, 1, None), complete(1, 2, -1), complete(1, 3, 0), mark("B", 1, 9), mark("E", 1, 8)]
    )
    assert result.events == 1
    assert notes(store) == {"no_duration": 1, "negative_duration": 2}


def test_durations_of_more_than_seven_days_are_told(tmp_path: Path) -> None:
    week = 7 * 86_400 * 10**6
    store, result = timeline(tmp_path, [base(), phase(1, "P"), complete(1, 1, week), complete(1, 2, week + 1)])
    assert result.events == 2
    assert rows(store, "duration_ns / 1000") == [(week,), (week + 1,)]
    assert notes(store) == {"absurd_duration": 1}


def test_a_cut_file_keeps_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "1700000041_27-algo-1_pythontimeline.json"
    events = [base(), phase(1, "P"), complete(1, 1, 1), complete(1, 2, 1)]
    path.write_text("[\n" + ",\n".join(json.dumps(event) for event in events)[:-9])
    store = Store.create(None)
    result = read_pevents(store, path, 0, Registry(store))
    assert (result.events, result.partial) == (1, True)
    assert "truncated" in notes(store)


@pytest.mark.parametrize(("text", "code"), [("", "empty"), ("no json at all", "not_json"), ("[]", "no_events")])
def test_files_without_events_say_so(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "1700000041_27-algo-1_pythontimeline.json"
    path.write_text(text)
    store = Store.create(None)
    assert read_pevents(store, path, 0, Registry(store)).events == 0
    assert code in notes(store)


def test_threads_are_named_or_stable(tmp_path: Path) -> None:
    store, _ = timeline(
        tmp_path,
        [
            base(0),
            phase(1, "P"),
            complete(1, 1, 1, tid=4, args={"thread_id": 5, "tid": 6}),
            complete(1, 2, 1, tid=4, args={"tid": 6}),
            complete(1, 3, 1, tid=4),
            complete(1, 4, 1, tid="main"),
            complete(1, 5, 1),
        ],
    )
    tids = [tid for (tid,) in rows(store, "tid")]
    assert tids == [5, 6, 4, stable_tid("algo-1-27", "main"), stable_tid("algo-1-27", "P")]
    assert stable_tid("algo-1-27", "P") == 132681931853587  # pinned: the same in every process and version


def test_operators_of_the_autograd_profiler_know_their_device(tmp_path: Path) -> None:
    store, _ = timeline(
        tmp_path,
        [base(0), phase(1, "cpu_functions"), phase(2, "gpu_functions-dev:3"), complete(1, 1, 1, "aten::mm"), complete(2, 2, 1, "aten::mm")],
    )
    assert rows(store, "phase, side, device") == [("cpu_functions", "host", None), ("gpu_functions-dev:3", "device", 3)]


def test_loader_settings_are_kept(tmp_path: Path) -> None:
    arguments = {"pin_memory": False, "num_workers": 2, "pid": 27}
    store, _ = timeline(tmp_path, [base(), phase(1, "DataLoaderIterInitialize"), complete(1, 1, 1, args=arguments)])
    [(text,)] = rows(store, "arguments")
    assert {key: value for key, value in json.loads(text).items() if value is not None} == {"num_workers": 2, "pin_memory": False}


def test_worker_processes_are_not_taken_for_ranks(tmp_path: Path) -> None:
    store, _ = timeline(tmp_path, [base(), phase(1, "DataLoaderIter"), complete(1, 1, 1, args={"pid": 28}), complete(1, 2, 1)])
    assert store.frame("SELECT pid, rank FROM process ORDER BY pid").rows() == [(27, None), (28, None)]


def test_a_rank_in_the_name_finds_its_process_again(tmp_path: Path) -> None:
    step = [base(), phase(1, "Step:ModeKeys.TRAIN"), complete(1, 1, 1, args={"pid": 905, "step_num": "0"})]
    store, _ = timeline(tmp_path, step, "1700000041_3-algo-1_pythontimeline.json")
    store, _ = timeline(tmp_path, [base(), complete(1, 5, 1)], "1700000042_3-algo-1_model_timeline.json", store)
    assert set(store.frame("SELECT pid, rank FROM annotation JOIN process ON process.id = process").rows()) == {(905, 3)}


@pytest.mark.parametrize(
    ("field", "label", "machine"),
    [
        ("27-algo-1", "algo-1-27", ("algo-1", 27)),
        ("905-b88ab1bb8259", "905-b88ab1bb8259", ("b88ab1bb8259", 905)),
        ("88359-8c859046be41.ant.amazon.com", "88359-8c859046be41.ant.amazon.com", ("8c859046be41.ant.amazon.com", 88359)),
        ("0001", "0001", ("0001", None)),
    ],
)
def test_node_names(field: str, label: str, machine: tuple[str, int | None]) -> None:
    name = f"a/pevents/2020052602/1590461127873222_{field}_model_timeline.json"
    assert node_label(name) == label
    assert machine_of(name) == machine


@pytest.mark.parametrize(
    ("name", "head", "known"),
    [
        ("1589314018481947000_1234-testhost_model_timeline.json", b"[", True),
        ("1589314018481947000_1234-testhost_horovod_timeline.json", b"", True),
        ("framework/pevents/2020/1589314018481947_0_x.json", b"[", True),
        ("trace.json", b'[{"ph":"M","args":{"start_time_since_epoch_in_micros": 1}}]', True),
        ("trace.json", b'[{"ph":"X"}]', False),
        ("1589314018481947000_1234-testhost_model_timeline.json", b'{"traceEvents": []}', False),
    ],
)
def test_timelines_are_recognized(name: str, head: bytes, known: bool) -> None:
    assert recognizes_pevents(head, name) is known


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60))
def test_pairing_equals_a_plain_stack(marks: list[tuple[int, bool]]) -> None:
    stacks: dict[int, list[int]] = {}
    expected = []
    for ordinal, (lane, opens) in enumerate(marks):
        if opens:
            stacks.setdefault(lane, []).append(ordinal)
        elif stacks.get(lane):
            expected.append((stacks[lane].pop(), ordinal))
    frame = pl.DataFrame(
        {"ordinal": range(len(marks)), "lane": [str(lane) for lane, _ in marks], "opens": [opens for _, opens in marks]},
        schema={"ordinal": pl.Int64, "lane": pl.String, "opens": pl.Boolean},
    )
    assert pair_begin_end(frame).rows() == expected


def test_compressed_timelines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "1700000041_27-algo-1_pythontimeline.json.gz"
    path.write_bytes(gzip.compress(json.dumps([base(), phase(1, "P"), complete(1, 1, 1)]).encode()))
    store = Store.create(None)
    assert read_pevents(store, path, 0, Registry(store)).events == 1
    assert store.frame("SELECT label FROM process").rows() == [("algo-1-27",)]
