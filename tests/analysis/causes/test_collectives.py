"""Collectives, their bandwidths and waits, computed on paper and recounted in real traces."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.causes.collectives import collectives
from postrun.analysis.device.collectives import bus_factor, element_bytes, operation_of
from postrun.analysis.report.collectives import CollectiveTotals, CollectiveWait, WaitLink
from postrun.ingest import ingest
from postrun.ingest.chrome_trace.tensors import output_and_input
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]

NAMES = {"nccl all": ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "fp32", "communication"), "gemm": ("gemm", "fp32", "GEMM")}
RANKS = [{"id": 0, "node": 0, "rank": 0, "pid": 100}, {"id": 1, "node": 0, "rank": 1, "pid": 101}]


def kernel(start: int, duration: int, correlation: int | None = None, **columns: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": "nccl all", "start_ns": start, "duration_ns": duration, "correlation": correlation, **columns}


def record(start: int, correlation: int | None, elements: int, **columns: Any) -> dict[str, Any]:
    return {
        "node": 0, "process": 0, "on_device": True, "start_ns": start, "duration_ns": 1, "correlation": correlation,
        "operation": "allreduce", "element_type": "Float", "in_elements": elements, "out_elements": elements,
        "group_name": "0", "group_ranks": "[0, 1]", "group_size": 2, **columns,
    }  # fmt: skip


def launch(start: int, correlation: int, **columns: Any) -> dict[str, Any]:
    return {"kind": "launch", "name": "cudaLaunchKernel", "start_ns": start, "duration_ns": 2, "correlation": correlation, **columns}


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [
        ("all-reduce", 8, 1.75), ("all-reduce", 2, 1.0), ("all-gather", 8, 0.875), ("reduce-scatter", 4, 0.75), ("all-to-all", 2, 0.5),
        ("gather", 4, 0.75), ("scatter", 4, 0.75), ("broadcast", 8, 1.0), ("reduce", 8, 1.0), ("send", 2, 1.0), ("barrier", 8, None),
        ("all-reduce", 1, None), ("all-reduce", None, None),
    ],
)  # fmt: skip
def test_bus_factor(operation: str, ranks: int | None, factor: float | None) -> None:
    assert bus_factor(operation, ranks) == factor


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        ("allreduce", "all-reduce"), ("_allgather_base", "all-gather"), ("allgather_into_tensor_coalesced", "all-gather"),
        ("_reduce_scatter_base", "reduce-scatter"), ("all_to_allv", "all-to-all"), ("broadcast", "broadcast"), ("reduce", "reduce"),
        ("recv", "receive"), ("gather", "gather"), ("scatter", "scatter"), ("barrier", "barrier"), ("something", None),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce-scatter"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "send/receive"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", "all-reduce"),
    ],
)  # fmt: skip
def test_operation(text: str, operation: str | None) -> None:
    assert operation_of(text) == operation


def test_element_bytes() -> None:
    assert [element_bytes(name) for name in ("Float", "BFloat16", "c10::Half", "Long", "Byte", "", None)] == [4, 2, 2, 8, 1, None, None]


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (8, "Byte Char Bool uint8 int8 signed_char unsigned_char Float8_e4m3fn Float8_e5m2 Float8_e4m3fnuz Float8_e5m2fnuz Float8_e8m0fnu"),
        (16, "Half BFloat16 Short int16 uint16 float16 c10::Half c10::BFloat16"), (32, "Float Int float32 int32 uint32 ComplexHalf"),
        (64, "Double Long long_int int64 uint64 float64 ComplexFloat"), (128, "ComplexDouble"),
    ],
)  # fmt: skip
def test_every_element_type(bits: int, names: str) -> None:
    texts = [name.replace("_", " ") if name.endswith(("_char", "_int")) else name for name in names.split()]
    assert {text: element_bytes(text) for text in texts} == dict.fromkeys(texts, bits // 8)


def test_two_ranks_wait_and_transfer(make_store: MakeStore) -> None:
    # First collective: rank 0 waits from 0 to 60, both end at 100 (100 and 40); the second takes 50 on both; 1000 floats each. The clock
    # of rank 1 is 10,000 ahead: both ends are, so that it is set back.
    store = make_store(
        names=NAMES,
        processes=RANKS,
        device_event=[
            kernel(0, 100, 1), kernel(200, 50, 2), kernel(10_060, 40, 1, process=1), kernel(10_200, 50, 2, process=1),
            {**kernel(400, 500, 3), "name": "gemm"},
        ],
        collective=[record(0, 1, 1000), record(200, 2, 1000), record(10_060, 1, 1000, process=1), record(10_200, 2, 1000, process=1)],
    )  # fmt: skip
    (row,), totals = collectives(store)
    assert (row.operation, row.bytes, row.element_type, row.group_size, row.ranks) == ("all-reduce", 4000, "Float", 2, 2)
    assert (row.count, row.kernels, row.total_ns, row.transfer_ns, row.waiting_ns, row.skew_ns) == (2, 4, 240, 90, 60, 30)
    assert (row.group, row.last_rank, row.last_count, row.at_least) == ("0", 1, 1, False)
    assert row.algorithm_gb_per_s == pytest.approx(8000 / 90)
    assert row.bus_gb_per_s == pytest.approx(8000 / 90)  # of two ranks the factor is 1
    assert row.best_bus_gb_per_s == pytest.approx(100)
    assert (totals.total_ns, totals.sized_percent, totals.matched, totals.unmatched) == (240, 100, 2, 0)
    assert totals.waits == (CollectiveWait("host-0", 0, 100, 2, 150, 60), CollectiveWait("host-0", 1, 101, 2, 90, 0, 1))
    # Rank 0 waits 60 of its 150 for rank 1. Rank 1 waits for none.
    assert totals.chain == (WaitLink((0,), 1, "0", 60),)
    assert (totals.renumbered, totals.groups[0].members) == (False, "ranks 0, 1")


def test_members_of_groups_have_their_ranks_in_the_run(make_store: MakeStore) -> None:
    # The group numbers its members 0 and 16. They are the ranks 0 and 1 of the run, in this order.
    device = [kernel(0, 100, 1), kernel(60, 40, 1, process=1)]
    recorded = [record(0, 1, 1000, group_ranks="[0, 16]"), record(60, 1, 1000, process=1, group_ranks="[0, 16]")]
    _, totals = collectives(make_store(names=NAMES, processes=RANKS, device_event=device, collective=recorded))
    assert (totals.renumbered, totals.groups[0].members, totals.groups[0].last_rank) == (True, "ranks 0, 1", 1)
    # A member that is not in the run keeps its number, and so do the others of its group.
    partly = [
        record(0, 1, 1000, group_ranks="[0, 16, 32]", group_size=3),
        record(60, 1, 1000, process=1, group_ranks="[0, 16, 32]", group_size=3),
    ]
    _, totals = collectives(make_store(names=NAMES, processes=RANKS, device_event=device, collective=partly))
    assert (totals.renumbered, totals.groups[0].members) == (False, "ranks 0, 16, 32")


def test_who_waits_for_whom(make_store: MakeStore) -> None:
    # Ranks 0 and 2 wait 60 and 50 for rank 1 in the first collective; in the second, rank 1 waits 20 of its 80 for rank 0.
    processes = [*RANKS, {"id": 2, "node": 0, "rank": 2, "pid": 102}]
    starts = {1: (0, 60, 10), 2: (220, 200, 215)}
    ends = {1: 100, 2: 240}
    device = [kernel(start, ends[call] - start, call, process=rank) for call, row in starts.items() for rank, start in enumerate(row)]
    recorded = [
        record(start, call, 1000, process=rank, group_ranks="[0, 1, 2]", group_size=3)
        for call, row in starts.items()
        for rank, start in enumerate(row)
    ]
    _, totals = collectives(make_store(names=NAMES, processes=processes, device_event=device, collective=recorded))
    assert totals.chain == (WaitLink((0, 2), 1, "0", 110), WaitLink((1,), 0, "0", 20))


def test_different_sequences_are_not_matched(make_store: MakeStore) -> None:
    store = make_store(
        names=NAMES,
        processes=RANKS,
        device_event=[kernel(0, 100, 1), kernel(200, 50, 2), kernel(60, 40, 1, process=1)],
        collective=[record(0, 1, 1000), record(200, 2, 10), record(60, 1, 1000, process=1)],
    )
    rows, totals = collectives(store)
    assert [(row.bytes, row.ranks, row.count, row.total_ns, row.waiting_ns) for row in rows] == [
        (4000, 1, 2, 140, None),
        (40, 1, 1, 50, None),
    ]
    assert (totals.matched, totals.unmatched, totals.waits) == (0, 3, ())


def test_size_of_the_call_that_launched(make_store: MakeStore) -> None:
    # Two kernels of one call are one collective; a launch after its end, or on another thread, is not of the call.
    call = {"on_device": False, "tid": 1, "operation": "_allgather_base", "element_type": "BFloat16", "duration_ns": 10}
    store = make_store(
        names=NAMES,
        device_event=[kernel(100, 10, 1), kernel(110, 30, 2), kernel(200, 5, 3), kernel(300, 5, 4), kernel(400, 1)],
        host_event=[launch(10, 1), launch(14, 2), launch(30, 3), launch(15, 4, tid=2)],
        collective=[
            record(8, None, 800, out_elements=1600, **call),
        ],
    )
    (sized, unsized), totals = collectives(store)
    assert (sized.operation, sized.bytes, sized.count, sized.kernels, sized.total_ns) == ("all-gather", 3200, 1, 2, 40)
    assert sized.algorithm_gb_per_s == pytest.approx(80)
    assert sized.bus_gb_per_s == pytest.approx(40)
    assert (unsized.operation, unsized.bytes, unsized.group_size, unsized.count, unsized.total_ns) == ("all-reduce", None, None, 3, 11)
    assert unsized.algorithm_gb_per_s is None
    assert totals.sized_percent == pytest.approx(100 * 40 / 51)


@pytest.mark.parametrize(
    ("operation", "sent", "received", "size"),
    [
        ("allgather", 10, 80, 320), ("reduce_scatter", 80, 10, 320), ("gather", 10, 80, 320), ("scatter", 10, 80, 320),
        ("recv", 0, 5, 20), ("send", 5, 0, 20), ("barrier", 1, 1, None), ("allreduce", 0, 0, None), ("broadcast", 7, 7, 28),
    ],
)  # fmt: skip
def test_sizes(make_store: MakeStore, operation: str, sent: int, received: int, size: int | None) -> None:
    expected = record(0, 1, sent, operation=operation, out_elements=received)
    ((row,), _) = collectives(make_store(names=NAMES, device_event=[kernel(0, 10, 1)], collective=[expected]))
    assert row.bytes == size


def test_a_launch_in_two_records_at_one_time_is_of_the_longer_one(make_store: MakeStore) -> None:
    # Two records of one thread begin together, 5 and 20 long; only the longer one contains the launch at 15.
    call = {"on_device": False, "tid": 1}
    store = make_store(
        names=NAMES,
        device_event=[kernel(100, 20, 1)],
        host_event=[launch(15, 1)],
        collective=[record(0, None, 100, **{**call, "duration_ns": 5}), record(0, None, 100, **{**call, "duration_ns": 20})],
    )
    assert [(row.bytes, row.count) for row in collectives(store)[0]] == [(400, 1)]


def test_none(make_store: MakeStore) -> None:
    rows, totals = collectives(make_store(names=NAMES, device_event=[{**kernel(0, 5), "name": "gemm"}]))
    assert (rows, totals) == ((), CollectiveTotals(0, 0, 0, None, 0, 0, (), totals.absent))
    assert "No communication kernel" in (totals.absent or "")


def test_real_trace_recomputed(shared_data: Path, tmp_path: Path) -> None:
    # A real trace, and the same trace as rank 1, on which every second collective begins 1 us later.
    path = shared_data / "kineto/quirks/nccl_data.json.gz"
    if not path.is_file():
        pytest.skip("the trace is not here")
    trace = json.loads(gzip.decompress(path.read_bytes()))
    expected: dict[Any, list[int]] = defaultdict(list)
    with_sizes = [event for event in trace["traceEvents"] if event.get("cat") == "kernel" and "Collective name" in event["args"]]
    for event in with_sizes:
        values = event["args"]
        width = {"Float": 4, "Long": 8}[values["dtype"]]
        expected[values["Collective name"].replace("allr", "all-r"), values["In msg nelems"] * width].append(round(event["dur"] * 1000))
    rows, _ = collectives(ingest([path]))
    assert {(row.operation, row.bytes): (row.count, row.total_ns) for row in rows} == {
        key: (len(durations), sum(durations)) for key, durations in expected.items()
    }
    for row in rows:
        durations = expected[row.operation, row.bytes]
        assert row.bus_gb_per_s == pytest.approx((row.bytes or 0) * len(durations) / sum(durations))
        assert row.best_bus_gb_per_s == pytest.approx((row.bytes or 0) / min(durations))

    first_path = tmp_path / "rank0.json"  # with times as this test can write them
    first_path.write_text(json.dumps(trace), encoding="utf-8")
    with_sizes.sort(key=lambda event: float(event["ts"]))
    for event in with_sizes[::2]:
        event["ts"], event["dur"] = event["ts"] + 1, round(event["dur"] - 1, 3)
    trace["distributedInfo"]["rank"] = 1
    second_path = tmp_path / "rank1.json"
    second_path.write_text(json.dumps(trace), encoding="utf-8")
    rows, totals = collectives(ingest([first_path, second_path]))
    assert (totals.matched, totals.unmatched) == (len(with_sizes), 0)
    assert [(wait.rank, wait.collectives, wait.wait_ns, wait.last) for wait in totals.waits] == [(0, 21, 11_000, 0), (1, 21, 0, 11)]
    assert sum(row.transfer_ns for row in rows) == sum(map(sum, expected.values())) - 11_000


def shaped(start: int, elements: int, operation: str, **columns: Any) -> dict[str, Any]:
    """Make the range of an older PyTorch around the launch of a collective."""
    return {
        "node": 0, "process": 0, "on_device": False, "tid": 1, "start_ns": start, "duration_ns": 10, "operation": operation,
        "element_type": "float", "in_elements": elements, **columns,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "world", "size", "factor"),
    [
        ("all_reduce", 8, 400, 1.75), ("_all_gather_base", 8, 3200, 0.875), ("gather", 4, 1600, 0.75),
        ("_reduce_scatter_base", 4, 400, 0.75),
        ("all_to_all", 2, 400, 0.5), ("broadcast", 8, 400, 1.0), ("send", 8, 400, 1.0), ("scatter", 8, None, None), ("recv", 8, None, None),
        ("all_reduce", None, 400, None), ("all_gather", None, None, None),
    ],
)  # fmt: skip
def test_shapes_of_older_traces(make_store: MakeStore, operation: str, world: int | None, size: int | None, factor: float | None) -> None:
    # 100 floats in 20 ns.
    store = make_store(
        names=NAMES,
        processes=[{"id": 0, "node": 0, "rank": 0, "pid": 100, "world_size": world}],
        device_event=[kernel(100, 20, 1)],
        host_event=[launch(10, 1)],
        collective=[shaped(8, 100, operation)],
    )
    ((row,), _) = collectives(store)
    assert (row.bytes, row.group_size, row.group_size_assumed) == (size, world, world is not None)
    assert row.algorithm_gb_per_s == (None if size is None else pytest.approx(size / 20))
    assert row.bus_gb_per_s == (None if size is None or factor is None else pytest.approx(size / 20 * factor))


def test_a_record_with_the_group_counts_before_shapes(make_store: MakeStore) -> None:
    # PyTorch 2.3 with record_shapes: the range is inside of the call that names the group, and is the last to begin before the launch.
    call = {"on_device": False, "tid": 1, "duration_ns": 30, "group_size": 2}
    store = make_store(
        names=NAMES,
        processes=[{"id": 0, "node": 0, "rank": 0, "pid": 100, "world_size": 16}],
        device_event=[kernel(100, 20, 1)],
        host_event=[launch(10, 1)],
        collective=[record(5, None, 100, **call), shaped(8, 100, "all_reduce")],
    )
    ((row,), _) = collectives(store)
    assert (row.count, row.element_type, row.group_size, row.group_size_assumed) == (1, "Float", 2, False)


@pytest.mark.parametrize("name", ["sampled_2_ranks/sampled_rank-0.json.gz", "diff_pair/a100_rank3_of_8.json.gz"])
def test_shapes_of_real_traces_recomputed(shared_data: Path, name: str) -> None:
    # Match every kernel with its launch by correlation, and with the range around it by thread and time: sizes in plain Python.
    path = shared_data / "kineto" / name
    if not path.is_file():
        pytest.skip("the trace is not here")
    trace = json.loads(gzip.decompress(path.read_bytes()), strict=False)
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    ranges = [event for event in events if str(event.get("name")).startswith("nccl:") and event.get("args", {}).get("Input Dims")]
    launches = {event["args"]["correlation"]: event for event in events if event.get("cat") == "cuda_runtime"}
    width = {"float": 4, "int": 4, "long": 8, "signed char": 1, "unsigned char": 1, "c10::Half": 2}
    outer = [event for event in events if event["name"] == "c10d::_allgather_base_" and event.get("args", {}).get("Input Dims")]
    # The operator around the range gives its whole output: as many times the input as the group has ranks. One such group, and no other
    # is assumed to be all ranks.
    world = None if outer else trace["distributedInfo"]["world_size"]
    expected: dict[Any, list[float]] = defaultdict(list)
    groups: dict[str, int] = {}
    for event in events:
        if event.get("cat") != "kernel" or "nccl" not in event["name"].lower():
            continue
        call = launches.get(event["args"]["correlation"], {"ts": -1, "tid": None})
        around = [r for r in ranges if r["tid"] == call["tid"] and r["ts"] <= call["ts"] <= r["ts"] + r["dur"]]
        if not around:
            continue
        (inside,) = around
        (shape,), (kind,) = inside["args"]["Input Dims"], inside["args"]["Input type"]
        size = width[kind]
        for extent in shape:
            size *= extent
        if inside["name"] == "nccl:_all_gather_base":
            (outer_range,) = (o for o in outer if o["tid"] == inside["tid"] and o["ts"] <= inside["ts"] <= o["ts"] + o["dur"])
            ((output,), (gathered,), _) = outer_range["args"]["Input Dims"]
            groups["all-gather"] = output // gathered
            size = output * width[kind]
        operation = {"all_reduce": "all-reduce", "all_to_all": "all-to-all", "_all_gather_base": "all-gather"}[inside["name"][5:]]
        expected[operation, size, kind].append(event["dur"] * 1000)
    with ingest([path]) as store:
        result = [row for row in collectives(store)[0] if row.bytes is not None]
    assert len(expected) > 3
    assert {(row.operation, row.bytes, row.element_type): (row.kernels, row.total_ns) for row in result} == {
        key: (len(durations), sum(durations)) for key, durations in expected.items()
    }
    for row in result:
        ranks = groups.get(row.operation, world)
        assert (row.group_size, row.group_size_assumed) == (ranks, row.operation not in groups and world is not None)
        durations = expected[row.operation, row.bytes, row.element_type]
        assert row.algorithm_gb_per_s == pytest.approx((row.bytes or 0) * len(durations) / sum(durations))
        if ranks is None:
            assert row.bus_gb_per_s is None
            continue
        factor = {"all-reduce": 2 * (ranks - 1) / ranks}.get(row.operation, (ranks - 1) / ranks)
        assert row.bus_gb_per_s == pytest.approx(factor * (row.bytes or 0) * len(durations) / sum(durations))
    assert groups == ({"all-gather": 64} if outer else {})


def test_the_operator_around_a_range_tells_the_group(tmp_path: Path) -> None:
    # Of 16 ranks 4 gather and scatter; the group of the all-reduce on the same stream is unknown.

    def host(name: str, category: str, start: int, duration: int, dims: object, types: object) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": duration,
                "args": {"Input Dims": dims, "Input type": types}}  # fmt: skip

    def work(start: int, correlation: int, kernel: str) -> list[dict[str, Any]]:
        return [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": start, "dur": 1,
             "args": {"correlation": correlation}},
            {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": start + 500, "dur": 10,
             "args": {"correlation": correlation, "device": 0, "stream": 7}},
        ]  # fmt: skip

    events = [
        host("c10d::_allgather_base_", "cpu_op", 0, 50, [[400], [100], []], ["float", "float", ""]),
        host("nccl:_all_gather_base", "user_annotation", 10, 30, [[100]], ["float"]),
        *work(20, 1, "ncclKernel_AllGather"),
        host("c10d::_reduce_scatter_base_", "cpu_op", 100, 50, [[25, 2], [25, 8], []], ["c10::Half", "c10::Half", ""]),
        host("nccl:_reduce_scatter_base", "user_annotation", 110, 30, [[25, 8]], ["c10::Half"]),
        *work(120, 2, "ncclKernel_ReduceScatter"),
        host("c10d::allreduce_", "cpu_op", 200, 50, [[], [], []], ["TensorList", "", ""]),
        host("nccl:all_reduce", "user_annotation", 210, 30, [[1000]], ["float"]),
        *work(220, 3, "ncclKernel_AllReduce"),
    ]
    path = tmp_path / "rank0.json"
    info = {"backend": "nccl", "rank": 0, "world_size": 16}
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}), encoding="utf-8")
    rows = {row.operation: row for row in collectives(ingest([path]))[0]}
    expected = {operation: (row.bytes, row.group_size, row.group_size_assumed) for operation, row in rows.items()}
    assert expected == {"all-gather": (1600, 4, False), "reduce-scatter": (400, 4, False), "all-reduce": (4000, None, False)}
    assert rows["all-gather"].bus_gb_per_s == pytest.approx(1600 / 10_000 * 0.75)
    assert rows["all-reduce"].bus_gb_per_s is None

    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": events[8:]}), encoding="utf-8")
    ((row,), _) = collectives(ingest([path]))  # nothing says that there are groups: all ranks are assumed
    assert (row.group_size, row.group_size_assumed) == (16, True)


@pytest.mark.parametrize(
    ("shapes", "types", "expected"),
    [
        ('[[400], [100], []]', '["float", "float", ""]', (400, 100, "float")),
        ('[[[[10], [10]]], [[10]]]', '["TensorList", ["float"]]', None),
        ('[[], [100]]', '["TensorList", "float"]', None),
        ('[[4], [2]]', '["float", "int"]', None),
        ('[[4]]', '["float"]', None),
        ('[[4], [0]]', '["float", "float"]', None),
        ('{', '[]', None),
        ('5', '"x"', None),
    ],
)  # fmt: skip
def test_output_and_input(shapes: str, types: str, expected: object) -> None:
    assert output_and_input(shapes, types) == expected
