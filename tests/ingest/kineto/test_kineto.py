"""Tests for hand-made traces of PyTorch's profiler -> rows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis import analyze
from postrun.ingest import ingest
from postrun.ingest.chrome_trace import batches as trace_batches
from postrun.ingest.chrome_trace.ranges import depths, pair
from postrun.ingest.chrome_trace.tensors import tensors
from postrun.ingest.kernels.categories import features, route_of
from postrun.ingest.kineto import reader as kineto
from postrun.ingest.kineto.reader import NOT_STORED, header_members
from postrun.ingest.store import Store

EPOCH_US = 1_700_000_000_000_000


def event(
    name: str, cat: str | None, ts: object, dur: object = 1, *, ph: str = "X", pid: object = 7, tid: object = 7, **args: Any
) -> dict[str, Any]:
    event = {"ph": ph, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
    if cat is not None:
        event["cat"] = cat
    if dur is None or ph in "BE":
        del event["dur"]
    return event


def write(folder: Path, events: list[dict[str, Any]], name: str = "trace.json", **members: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **members}), encoding="utf-8")
    return path


def load(folder: Path, events: list[dict[str, Any]], name: str = "trace.json", **members: Any) -> Store:
    return ingest([write(folder, events, name, **members)])


def notes(store: Store) -> dict[str, int]:
    return dict(store.frame("SELECT code, sum(count)::BIGINT FROM ingest_note GROUP BY code").iter_rows())


HOST = event("aten::add", "cpu_op", EPOCH_US, 5)


def memory(ts: float, category: str | None = "cpu_instant_event", **changes: Any) -> dict[str, Any]:
    members = {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Total Allocated": 2048, "Total Reserved": 4096, "Addr": 1, **changes}
    present = {key: value for key, value in members.items() if value is not None}
    return event("[memory]", category, ts, None, ph="i", **present)


def test_memory_events_of_devices_are_allocations(tmp_path: Path) -> None:
    kernel = event("gemm", "kernel", 2, 5, pid=0, device=0, stream=7)
    events = [
        kernel, event("aten::add", "cpu_op", 1, 5),
        memory(3.5), memory(2.25, **{"Device Id": 3, "Device Type": 6, "Bytes": -512, "Total Reserved": None}),
        memory(4, **{"Device Type": 0, "Device Id": -1}), memory(5, **{"Total Allocated": None}),  # of main memory, and without a total
        {**memory(6), "name": "[other]"}, memory(7, None), {**memory(8), "ph": "I"},  # no memory event, no category, another phase
    ]  # fmt: skip
    base = 1_700_000_000_000_000_000
    store = load(tmp_path, events, baseTimeNanoseconds=base)  # behind the events
    assert store.frame("SELECT process, device, start_ns, bytes, allocated, reserved FROM allocation ORDER BY start_ns").rows() == [
        (0, 3, base + 2250, -512, 2048, None),
        (0, 0, base + 3500, 512, 2048, 4096),
    ]
    counted = notes(store)
    assert (counted["host_allocations"], counted["phase_not_read"]) == (2, 3)
    assert store.frame("SELECT message FROM ingest_note WHERE code = 'phase_not_read'").item().endswith("3 instants.")
    assert store.frame("SELECT events FROM source").item() == 2
    assert store.frame("SELECT first_ns, last_ns FROM profile_window").row(0) == (base + 1000, base + 7000)


def marker(name: str, ts: float, dur: float | None, category: str = "Trace") -> dict[str, Any]:
    return event(name, category, ts, dur, pid="Spans", tid="PyTorch Profiler")


@pytest.mark.parametrize(
    ("markers", "switched"),
    [
        ([marker("PyTorch Profiler (0)", EPOCH_US - 3.5, 40)], (EPOCH_US * 1000 - 3500, EPOCH_US * 1000 + 36_500)),
        ([marker("PyTorch Profiler (0)", EPOCH_US - 3, 4, "trace"), marker("PyTorch Profiler (1)", EPOCH_US + 1, 9)],
         (EPOCH_US * 1000 - 3000, EPOCH_US * 1000 + 10_000)),
        ([], (None, None)),
        ([marker("another", EPOCH_US - 3, 40), marker("PyTorch Profiler (0)", EPOCH_US, 40, "span")], (None, None)),
        # No duration, none that can be, and a time at which there are no events.
        ([marker("PyTorch Profiler (0)", EPOCH_US, None), marker("PyTorch Profiler (0)", EPOCH_US, -5),
          marker("PyTorch Profiler (0)", EPOCH_US, 9e15)], (None, None)),
        ([marker("PyTorch Profiler (0)", EPOCH_US + 5, 40)], (None, None)),
    ],
)  # fmt: skip
def test_when_the_profiler_was_on(tmp_path: Path, markers: list[dict[str, Any]], switched: tuple[int | None, int | None]) -> None:
    window = load(tmp_path, [*markers, HOST]).frame("SELECT first_ns, last_ns, on_ns, off_ns FROM profile_window").row(0)
    assert window == (EPOCH_US * 1000, EPOCH_US * 1000 + 5000, *switched)


def test_when_the_profiler_was_on_counts_from_the_base_of_the_times(tmp_path: Path) -> None:
    events = [marker("PyTorch Profiler (0)", 1, 20), event("aten::add", "cpu_op", 2, 5)]
    store = load(tmp_path, events, baseTimeNanoseconds=EPOCH_US * 1000)
    assert store.frame("SELECT on_ns, off_ns FROM profile_window").row(0) == (EPOCH_US * 1000 + 1000, EPOCH_US * 1000 + 21_000)


@pytest.mark.parametrize(
    ("shapes", "types", "expected"),
    [
        ("[[8, 1024]]", '["float"]', (8192, "float")),
        ("[[2, 3], [4]]", '["float", "float"]', (10, "float")),
        ("[[[2, 3], [4]], []]", '["float", "Scalar"]', (10, "float")),
        ("[[[2, 3], [4]]]", '[["float", "float"]]', (10, "float")),
        ("[[2], [3]]", '["float", "int"]', (None, None)),
        ("[[], []]", '["TensorList", "Scalar"]', (None, None)),
        ("[[0, 5]]", '["float"]', (0, "float")),
        ("[]", "[]", (None, None)),
        ("[[-1]]", '["float"]', (None, None)),
        ("[[1.5]]", '["float"]', (None, None)),
        ("[[tru", '["float"]', (None, None)),
        ("5", '["float"]', (None, None)),
    ],
)
def test_elements_of_tensors(shapes: str, types: str, expected: tuple[int | None, str | None]) -> None:
    assert tensors(shapes, types) == expected


def test_ranges_of_collectives_with_shapes_are_collectives_and_annotations(tmp_path: Path) -> None:
    arguments = {"Input Dims": [[10, 3]], "Input type": ["float"], "External id": 4}
    events = [
        HOST, event("nccl:all_reduce", "user_annotation", EPOCH_US + 1, 2, **arguments),
        event("Forward", "user_annotation", EPOCH_US, 9, **arguments),
        event("nccl:broadcast", "user_annotation", EPOCH_US + 5, 2, **{"Input Dims": [[]], "Input type": ["TensorList"]}),
        event("nccl:barrier", "user_annotation", EPOCH_US + 8, 1),
    ]  # fmt: skip
    store = load(tmp_path, events)
    columns = "on_device, tid, start_ns, duration_ns, operation, element_type, in_elements, out_elements, group_size"
    assert store.frame(f"SELECT {columns} FROM collective").rows() == [
        (False, 7, (EPOCH_US + 1) * 1000, 2000, "all_reduce", "float", 30, None, None)
    ]
    assert store.frame("SELECT count(*) FROM annotation").item() == 4


@pytest.mark.parametrize(
    ("category", "route"),
    [
        ("kernel", "kernel"), ("Kernel", "kernel"), ("gpu_memcpy", "memcpy"), ("Memcpy", "memcpy"), ("Memset", "memset"),
        ("gpu_memset", "memset"), ("cuda_sync", "device_sync"), ("cuda_runtime", "call"), ("Runtime", "call"), ("cuda_driver", "call"),
        ("hip_runtime", "call"), ("xpu_runtime", "call"), ("mtia_runtime", "call"), ("mtia_ccp_events", "kernel"), ("cpu_op", "operator"),
        ("Operator", "operator"), ("python_function", "python"), ("user_annotation", "annotation"),
        ("gpu_user_annotation", "device_annotation"), ("overhead", "overhead"), ("Trace", "skipped"), ("ac2g", "skipped"), ("", "skipped"),
        (None, "skipped"), ("kernel\n", "skipped"), ("my_kernel", "skipped"), ("hpu_op", "kernel"), ("mlu_memcpy", "memcpy"),
        ("gcu_sync", "device_sync"), ("mtia_user_annotation", "device_annotation"), ("cpu_user_annotation", "annotation"),
        ("privateuse1_runtime", "call"), ("xpu_driver", "call"),
    ],
)  # fmt: skip
def test_category(category: str | None, route: str) -> None:
    assert route_of(category) == route


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("cudaLaunchKernel", "launch"), ("cudaLaunchKernelExC", "launch"), ("cudaLaunchCooperativeKernel", "launch"),
        ("cuLaunchKernel", "launch"), ("cuLaunchKernelEx", "launch"), ("cudaGraphLaunch", "launch"), ("cuGraphLaunch", "launch"),
        ("cudaMemcpyAsync", "launch"), ("cudaMemsetAsync", "launch"), ("cuMemcpyHtoDAsync_v2", "launch"), ("cuMemsetD32Async", "launch"),
        ("hipLaunchKernel", "launch"), ("hipExtModuleLaunchKernel", "launch"), ("hipModuleLaunchKernel", "launch"),
        ("hipExtLaunchKernel", "launch"), ("hipMemcpyWithStream", "launch"), ("hipGraphLaunch", "launch"),
        ("hipLaunchCooperativeKernel", "launch"), ("hipHccModuleLaunchKernel", "launch"), ("urEnqueueKernelLaunch", "launch"),
        ("zeCommandListAppendLaunchKernel", "launch"), ("runFunction - job_prep_and_submit_for_execution", "launch"), ("Launch", "launch"),
        ("synLaunchWithExternalEvents", "launch"), ("synMemCopyAsync", "launch"), ("synStreamSynchronize", "sync"), ("Launcher", "call"),
        ("cudaDeviceSynchronize", "sync"), ("cudaStreamSynchronize", "sync"), ("cudaEventSynchronize", "sync"),
        ("cuCtxSynchronize", "sync"),
        ("hipDeviceSynchronize", "sync"), ("hipStreamSynchronize", "sync"),
        ("cudaLaunchHostFunc", "call"), ("cudaStreamWaitEvent", "call"), ("cudaEventQuery", "call"), ("cudaMalloc", "call"),
        ("cudaGraphInstantiate", "call"), ("cudaFuncSetAttribute", "call"), ("hipGetDevicePropertiesR0600", "call"),
        ("cudaMemGetInfo", "call"), ("cudaGraphAddMemcpyNode", "call"),
    ],
)  # fmt: skip
def test_call_kind(name: str, call: str) -> None:
    assert features(pl.Series([name]))["call"][0] == call


@pytest.mark.parametrize(
    ("name", "copy_kind", "pageable"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD", True), ("Memcpy HtoD (Pinned -> Device)", "HtoD", False),
        ("Memcpy DtoH (Device -> Pageable)", "DtoH", True), ("Memcpy DtoD (Device -> Device)", "DtoD", None),
        ("Memcpy PtoP (Device -> Device)", "PtoP", None), ("Memcpy HtoH (Host -> Host)", "HtoH", None), ("Memcpy HtoD", "HtoD", None),
        ("CopyHostToDevice", "HtoD", None), ("CopyDeviceToHost", "DtoH", None), ("CopyDeviceToDevice", "DtoD", None),
        ("MEMORY_COPY_HOST_TO_DEVICE", "HtoD", None), ("MEMORY_COPY_DEVICE_TO_DEVICE", "DtoD", None), ("DtoD", "DtoD", None),
        ("Memcpy Unknown", None, None),
    ],
)  # fmt: skip
def test_copy_kind(name: str, copy_kind: str | None, pageable: bool | None) -> None:
    assert features(pl.Series([name])).select("copy_kind", "pageable").row(0) == (copy_kind, pageable)


def test_old_and_new_categories_go_to_the_same_tables(tmp_path: Path) -> None:
    rows = []
    for new, old in (("kernel", "Kernel"), ("gpu_memcpy", "Memcpy"), ("cuda_runtime", "Runtime"), ("cpu_op", "Operator")):
        rows.append([event("cudaLaunchKernel", category, EPOCH_US, 2, device=0, stream=7, correlation=3) for category in (new, old)])
    stores = [load(tmp_path, [pair[side] for pair in rows], f"{side}.json") for side in (0, 1)]
    for table in ("device_event", "host_event"):
        first, second = (store.frame(f"SELECT * FROM {table} ORDER BY kind") for store in stores)
        assert first.height == 2
        assert first.equals(second)


def test_device_rows_say_what_the_arguments_say(tmp_path: Path) -> None:
    store = load(
        tmp_path,
        [
            HOST,
            event("k", "kernel", EPOCH_US + 10, "2.5", pid=1, tid=9, device=0, context=1, stream=20, correlation=4, **{
                "External id": 8, "grid": [1, 2, 3], "block": [4, 5, 6], "registers per thread": 32, "shared memory": 1024,
                "graph node id": 77}),
            event("k", "kernel", EPOCH_US + 11, 1, pid=3, tid="stream 13", correlation=0),
            event("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", EPOCH_US + 12, 1, pid=0, device=0, stream=7),
            event("hipMemcpy", "gpu_memcpy", EPOCH_US + 13, 1, pid=0, device=0, stream=0, kind="CopyDeviceToHost", bytes=64),
            event("k", "kernel", EPOCH_US + 14, 1, pid="GPU", tid="queue", correlation="0x10"),
        ],
    )  # fmt: skip
    columns = "device, context, stream, correlation, external_id, bytes, copy_kind, pageable, grid_z, block_x, registers, graph_node"
    assert store.frame(f"SELECT {columns} FROM device_event ORDER BY start_ns").rows() == [
        (0, 1, 20, 4, 8, None, None, None, 3, 4, 32, 77),
        (3, None, 13, None, None, None, None, None, None, None, None, None),
        (0, None, 7, None, None, None, "HtoD", True, None, None, None, None),
        (0, None, 0, None, None, 64, "DtoH", None, None, None, None, None),
        (0, None, None, 16, None, None, None, None, None, None, None, None),  # names no device
    ]
    assert store.frame("SELECT duration_ns FROM device_event ORDER BY start_ns LIMIT 1").item() == 2500


def test_loader_waits_and_steps_whatever_their_category(tmp_path: Path) -> None:
    wait = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    store = load(
        tmp_path,
        [
            event(wait, "user_annotation", EPOCH_US),
            event(wait, "Operator", EPOCH_US + 1),
            event(wait, "cpu_op", EPOCH_US + 2),
            event("torch/utils/data/dataloader.py(630): __next__", "python_function", EPOCH_US + 3),
            event("ProfilerStep#12", "Operator", EPOCH_US + 4),
            event("step_13", "user_annotation", EPOCH_US + 5),
            event("layer7/forward", "user_annotation", EPOCH_US + 6),
            event("ProfilerStep#12", "gpu_user_annotation", EPOCH_US + 7, pid=2, tid=20),
        ],
    )
    assert Counter(store.frame("SELECT kind::VARCHAR FROM host_event").to_series()) == {"loader": 3, "python": 1}
    annotations = store.frame(
        "SELECT n.text, side, value, device, stream, complete FROM annotation a JOIN name n ON n.id = a.name ORDER BY start_ns"
    )
    assert annotations.rows() == [
        ("ProfilerStep#12", "host", 12, None, None, True),
        ("step_13", "host", 13, None, None, True),
        ("layer7/forward", "host", None, None, None, True),
        ("ProfilerStep#12", "device", 12, 2, 20, True),
    ]


def test_only_names_of_events_are_interned_and_only_kernels_classified(tmp_path: Path) -> None:
    store = load(
        tmp_path,
        [HOST, event("ampere_bf16_s16816gemm_bf16_64x64_tn", "kernel", EPOCH_US, 3, kind="Dispatch Kernel", device=0), HOST],
    )
    assert store.frame("SELECT text, category FROM name ORDER BY text").rows() == [
        ("ampere_bf16_s16816gemm_bf16_64x64_tn", "GEMM"),
        ("aten::add", None),
    ]


@pytest.mark.parametrize("where", ["before", "behind"])
@pytest.mark.parametrize("base", [1_751_410_836_000_000_000, "1751410836000000000"])
def test_base_time_before_or_behind_the_events(tmp_path: Path, where: str, base: object) -> None:
    events = json.dumps([event("a", "cpu_op", "WHEN", 2)]).replace('"WHEN"', "1414456661601.577")
    inside = [f'"traceEvents": {events}', f'"baseTimeNanoseconds": {json.dumps(base)}']
    text = "{" + ", ".join(inside if where == "behind" else inside[::-1]) + "}"
    (tmp_path / "trace.json").write_text(text, encoding="ascii")
    store = ingest([tmp_path])
    assert store.frame("SELECT start_ns FROM host_event").item() == 1_751_410_836_000_000_000 + 1_414_456_661_601_577
    assert store.frame("SELECT started_ns, ended_ns FROM run").row(0) == (1752825292661601577, 1752825292661603577)
    assert "relative_times" not in notes(store)


def test_late_base_time_rank_and_host_also_reach_rows_that_were_stored_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same file read in one go and in many small pieces gives the same rows."""
    events = [event(f"op{i % 7}", "cpu_op", 1000 + i, 1) for i in range(4000)]
    events += [event("k", "kernel", 1000 + i, 1, device=1, correlation=i) for i in range(2000)]
    events += [event(f"step {i}", "user_annotation", 1000 + i, 1) for i in range(500)]
    late = {"baseTimeNanoseconds": EPOCH_US * 1000, "distributedInfo": {"rank": 5, "world_size": 8}, "host_name": "machine-9"}
    path = write(tmp_path, events, **late)
    store = ingest([path])
    monkeypatch.setattr(trace_batches, "BATCH_BYTES", 1)
    monkeypatch.setattr(kineto, "FLUSH_ROWS", 100)
    monkeypatch.setattr(kineto.Inflate.__init__, "__kwdefaults__", {"size": 20_000})
    pieces = ingest([path])
    for table in ("device_event", "host_event", "annotation", "step", "node", "device", "process", "run", "ingest_note"):
        query = (
            f"SELECT * EXCLUDE (id) FROM {table} ORDER BY ALL" if table in {"node", "process"} else f"SELECT * FROM {table} ORDER BY ALL"
        )
        if table in {"device_event", "host_event", "annotation", "step", "device"}:
            query = query.replace("*", "* EXCLUDE (node)" if table == "device" else "* EXCLUDE (node, process)")
        if table == "process":
            query = query.replace("EXCLUDE (id)", "EXCLUDE (id, node)")
        assert store.frame(query).equals(pieces.frame(query)), table
    assert store.frame("SELECT hostname FROM node").rows() == [("machine-9",)]
    for table in ("device_event", "host_event", "annotation"):
        joined = f"SELECT count(*) FROM {table} t JOIN process p ON p.id = t.process AND p.node = t.node JOIN node n ON n.id = p.node"
        assert pieces.frame(joined).item() == pieces.frame(f"SELECT count(*) FROM {table}").item()
    assert pieces.frame("SELECT min(start_ns) FROM host_event").item() == EPOCH_US * 1000 + 1_000_000


def test_times_without_an_epoch_are_kept_and_noted(tmp_path: Path) -> None:
    store = load(tmp_path, [event("a", "cpu_op", 1500, 2)])
    assert store.frame("SELECT start_ns FROM host_event").item() == 1_500_000
    assert notes(store)["relative_times"] == 1


def test_base_time_is_not_added_to_absolute_times(tmp_path: Path) -> None:
    store = load(tmp_path, [HOST], baseTimeNanoseconds=EPOCH_US * 1000)
    assert store.frame("SELECT start_ns FROM host_event").item() == EPOCH_US * 1000
    assert notes(store)["base_time_ignored"] == 1


def test_impossible_times_are_dropped_or_repaired_and_counted(tmp_path: Path) -> None:
    week = 7 * 86_400_000_000
    store = load(
        tmp_path,
        [
            event("lost", "kernel", 0, 0, device=0),
            event("lost", "kernel", 0, 0, device=0),
            event("instant", "kernel", EPOCH_US, 0, device=0),
            event("just a week", "cpu_op", EPOCH_US, week),
            event("236 years", "kernel", EPOCH_US, 7_447_000_000_000_000, device=0),
            event("rounded", "cpu_op", EPOCH_US, -1),
            event("backwards", "cpu_op", EPOCH_US, -2),
            event("none", "cpu_op", EPOCH_US + 1, None),
        ],
    )
    assert Counter(store.frame("SELECT n.text FROM device_event d JOIN name n ON n.id = d.name").to_series()) == {"instant": 1}
    host = store.frame("SELECT n.text, duration_ns FROM host_event d JOIN name n ON n.id = d.name ORDER BY n.text")
    assert host.rows() == [("just a week", week * 1000), ("none", 0), ("rounded", 0)]
    counted = notes(store)
    assert {code: counted[code] for code in ("zero_time", "absurd_duration", "negative_duration", "rounded_duration", "no_duration")} == {
        "zero_time": 2, "absurd_duration": 1, "negative_duration": 1, "rounded_duration": 1, "no_duration": 1,
    }  # fmt: skip


def test_times_of_no_possible_day_are_dropped_and_the_run_is_reported(tmp_path: Path) -> None:
    """Differences of such times are beyond 64 bits."""
    latest_us, earliest_us = 2**62 // 1000, -(2**61) // 1000
    good = [event("gemm", "kernel", EPOCH_US + i, 1, device=0) for i in range(3)]
    bad = [
        event("late", "kernel", latest_us + 1, 1, device=0),
        event("later", "cpu_op", 9_223_372_036_854_774, 1),
        event("early", "kernel", earliest_us - 1, 1, device=0),
    ]
    store = load(tmp_path, [*good, *bad])
    assert store.frame("SELECT start_ns FROM device_event ORDER BY 1").rows() == [((EPOCH_US + i) * 1000,) for i in range(3)]
    assert store.frame("SELECT count(*) FROM host_event").item() == 0
    assert notes(store)["absurd_time"] == 3
    [device] = analyze(store).time_breakdown
    assert device.span_ns == 3000


def test_begin_and_end_events_pair_per_thread(tmp_path: Path) -> None:
    store = load(
        tmp_path,
        [
            event("stray", None, EPOCH_US - 5, ph="E", tid=1),
            event("outer 1", "user_annotation", EPOCH_US, ph="B", tid=1),
            event("other thread", None, EPOCH_US + 1, ph="B", tid=2),
            event("inner", "user_annotation", EPOCH_US + 2, ph="B", tid=1),
            event("", None, EPOCH_US + 3, ph="E", tid=1),
            event("", None, EPOCH_US + 6, ph="E", tid=2),
            event("", None, EPOCH_US + 7, ph="E", tid=1),
            event("open", "user_annotation", EPOCH_US + 8, ph="B", tid=1),
            event("last", "cpu_op", EPOCH_US + 9, 11),
        ],
    )
    ranges = store.frame("SELECT n.text, duration_ns, depth, complete FROM annotation a JOIN name n ON n.id = a.name ORDER BY start_ns")
    assert ranges.rows() == [
        ("outer 1", 7000, 0, True), ("other thread", 5000, 0, True), ("inner", 1000, 1, True), ("open", 12000, 0, False),
    ]  # fmt: skip
    counted = notes(store)
    assert (counted["stray_end"], counted["unclosed_begin"]) == (1, 1)


def test_a_file_of_begin_events_alone_has_open_ranges(tmp_path: Path) -> None:
    ranges = [event(name, "user_annotation", EPOCH_US + at, ph="B", tid=1) for at, name in enumerate(("outer", "inner"))]
    store = load(tmp_path, ranges)
    assert store.frame("SELECT duration_ns, complete FROM annotation ORDER BY start_ns").rows() == [(1000, False), (0, False)]
    assert notes(store)["unclosed_begin"] == 2


def _paired_by_stack(events: list[tuple[int, int, int]]) -> tuple[Counter[tuple[int, int, int]], int, int]:
    """Return (thread, start, end) of pairs, unclosed begins and stray ends."""
    stacks: dict[int, list[int]] = {}
    pairs: Counter[tuple[int, int, int]] = Counter()
    strays = 0
    for thread, kind, at in sorted(events, key=lambda e: e[2]):
        stack = stacks.setdefault(thread, [])
        if kind == ord("B"):
            stack.append(at)
        elif stack:
            pairs[thread, stack.pop(), at] += 1
        else:
            strays += 1
    return pairs, sum(map(len, stacks.values())), strays


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([ord("B"), ord("E")]), st.integers(0, 30)), min_size=1, max_size=40))
def test_pairing_equals_a_stack(events: list[tuple[int, int, int]]) -> None:
    frame = pl.DataFrame(
        {
            "ordinal": range(len(events)),
            "phase": pl.Series([e[1] for e in events], dtype=pl.UInt8),
            "pid": [1] * len(events),
            "tid": [e[0] for e in events],
            "start_ns": [e[2] for e in events],
            "duration_ns": pl.Series([None] * len(events), dtype=pl.Int64),
        }
    )
    ranges, strays = pair(frame, 99)
    closed = ranges.filter("complete")
    actual = Counter(zip(closed["tid"], closed["start_ns"], closed["start_ns"] + closed["duration_ns"], strict=True))
    assert (actual, ranges.height - closed.height, strays) == _paired_by_stack(events)
    assert all(end == 99 for end in (ranges.filter(~pl.col("complete")).select(pl.col("start_ns") + pl.col("duration_ns"))).to_series())


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(0, 10)), max_size=25))
def test_depth_counts_the_ranges_that_are_open(rows: list[tuple[int, int, int]]) -> None:
    frame = pl.DataFrame(
        {"tid": [r[0] for r in rows], "start_ns": [r[1] for r in rows], "duration_ns": [r[2] for r in rows]},
        schema={"tid": pl.Int64, "start_ns": pl.Int64, "duration_ns": pl.Int64},
    )

    def encloses(j: int, i: int) -> bool:
        (thread, start, length), (other_thread, other_start, other_length) = rows[i], rows[j]
        if thread != other_thread or i == j:
            return False
        if other_start == start:  # the longer one is outside; of equal ones the earlier row
            return (-other_length, j) < (-length, i)
        return other_start < start < other_start + other_length

    assert depths(frame, ["tid"]).to_list() == [sum(encloses(j, i) for j in range(len(rows))) for i in range(len(rows))]


def test_every_event_is_accounted_for(tmp_path: Path) -> None:
    events = [
        HOST, event("k", "kernel", 0, 0),
        event("x", "strange \x1b[31m <b>", EPOCH_US), event("x", None, EPOCH_US), event("Spans", "Trace", EPOCH_US),
        event("b", "user_annotation", EPOCH_US, ph="B"), event("b", None, EPOCH_US + 1, ph="E"), event("e", None, EPOCH_US, ph="E", tid=3),
        event("arrow", "ac2g", EPOCH_US, ph="s"), event("arrow", "ac2g", EPOCH_US, ph="f"), event("now", None, EPOCH_US, ph="i"),
        {"ph": "X", "name": "no time", "cat": "cpu_op", "pid": 1, "tid": 1, "dur": 3},
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}},  # read, no loss
    ]  # fmt: skip
    store = load(tmp_path, events)
    stored = sum(store.frame(f"SELECT count(*) FROM {table}").item() for table in ("device_event", "host_event", "annotation"))
    counted = notes(store)
    closing_ends = 1
    assert stored + sum(counted.get(code, 0) for code in NOT_STORED) + closing_ends == sum(e["ph"] in "XBE" for e in events)
    assert counted["phase_not_read"] == 3
    message = store.frame("SELECT message FROM ingest_note WHERE code = 'phase_not_read'").item()
    assert message == "Events without a duration are not stored: 2 flow arrows, 1 instants."
    assert counted["category_not_read"] == 3
    assert store.frame("SELECT count(*) FROM ingest_note WHERE message LIKE '%\x1b%'").item() == 0


def test_ranks_from_metadata_file_names_and_order(tmp_path: Path) -> None:
    processes = "SELECT p.rank, p.world_size FROM process p ORDER BY p.label"
    named = tmp_path / "named"
    write(named, [HOST], "rank-0.json")
    write(named, [event("a", "cpu_op", EPOCH_US, pid=8)], "rank3_of_8.json")
    write(named, [event("a", "cpu_op", EPOCH_US, pid=9)], "x_worker12.json")
    write(named, [event("a", "cpu_op", EPOCH_US, pid=10)], "y.json", distributedInfo={"rank": 1, "world_size": 16})
    assert ingest([named]).frame(processes).rows() == [(0, None), (3, 8), (12, None), (1, 16)]
    plain = tmp_path / "plain"
    for pid in (30, 20):
        write(plain, [event("a", "cpu_op", EPOCH_US, pid=pid)], f"{50 - pid}.json")
    store = ingest([plain])
    assert store.frame("SELECT pid, rank FROM process ORDER BY rank").rows() == [(30, 0), (20, 1)]
    assert notes(store)["rank_guessed"] == 2
    assert ingest([plain / "30.json"]).frame("SELECT rank FROM process").item() is None


def test_different_processes_never_become_one(tmp_path: Path) -> None:
    """With unknown hosts, the same pid and rank at one time is another machine."""
    later = [event("a", "cpu_op", EPOCH_US + 1000)]
    same_time, other_time = tmp_path / "same", tmp_path / "other"
    for folder, events in ((same_time, [HOST]), (other_time, later)):
        write(folder, [HOST], "a.json", distributedInfo={"rank": 0})
        write(folder, events, "b.json", distributedInfo={"rank": 0})
        (folder / "b.json").write_text((folder / "b.json").read_text() + " ")  # no duplicate of a.json
    assert ingest([same_time]).frame("SELECT count(*), count(DISTINCT node) FROM process").row(0) == (2, 2)
    assert ingest([other_time]).frame("SELECT count(*), count(DISTINCT node) FROM process").row(0) == (1, 1)


def test_ranks_on_one_device_index_are_on_two_machines_unless_the_host_is_known(tmp_path: Path) -> None:
    for rank in (0, 1):
        for host in (None, "one"):
            members = {"host_name": host} if host else {}
            kernel = event("k", "kernel", EPOCH_US, device=0)
            operator = event("a", "cpu_op", EPOCH_US, pid=100 + rank)
            write(tmp_path / str(host), [kernel, operator], f"{rank}.json", distributedInfo={"rank": rank}, **members)
    hosts = "SELECT DISTINCT n.hostname FROM device_event d JOIN node n ON n.id = d.node ORDER BY 1"
    assert ingest([tmp_path / "None"]).frame(hosts).to_series().to_list() == ["unknown host", "unknown host 2"]
    assert ingest([tmp_path / "one"]).frame(hosts).to_series().to_list() == ["one"]


def test_host_and_pid_from_the_name_that_the_profiler_gives(tmp_path: Path) -> None:
    store = load(tmp_path, [HOST], "node-12_7.1712345678901234567.pt.trace.json")
    assert store.frame("SELECT n.hostname, p.pid FROM process p JOIN node n ON n.id = p.node").row(0) == ("node-12", 7)
    second = load(tmp_path, [HOST], "worker_9.1712345678901234567.pt.trace.json")
    assert second.frame("SELECT n.hostname, p.pid, p.rank FROM process p JOIN node n ON n.id = p.node").row(0) == ("unknown host", 7, 9)


def test_devices_listed_and_used(tmp_path: Path) -> None:
    listed = [
        {"id": i, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
        for i in range(2)
    ]
    store = load(tmp_path, [HOST, event("k", "kernel", EPOCH_US, device=5)], deviceProperties=[*listed, "junk", {"id": "x"}])
    rows = store.frame('SELECT "index", name, memory_bytes, sm_count, compute_capability, vendor FROM device ORDER BY 1').rows()
    assert rows == [
        (0, "NVIDIA H100 80GB HBM3", 85, 132, "9.0", "NVIDIA"),
        (1, "NVIDIA H100 80GB HBM3", 85, 132, "9.0", "NVIDIA"),
        (5, None, None, None, None, None),
    ]


def test_run_metadata_holds_small_members_that_all_traces_share(tmp_path: Path) -> None:
    for rank in (0, 1):
        members = {"cuda_driver_version": 12090, "trace_id": f"id{rank}", "long": "x" * 300, "list": [1]}
        write(tmp_path, [event("a", "cpu_op", EPOCH_US, pid=rank + 1)], f"rank{rank}.json", **members)
    assert json.loads(ingest([tmp_path]).frame("SELECT metadata FROM run").item()) == {"cuda_driver_version": 12090}


def test_info_lines_warn_only_where_something_was_lost(tmp_path: Path) -> None:
    lines = [
        "INFO: x.cpp:300] Record counts: Out-of-range = 12, Blocklisted runtime = 5, Unexpected CUDA events = 0, CUPTI stopped early? = 1",
        "INFO: 3 records were dropped",
        "INFO: 0 records were dropped",
        7,
    ]
    store = load(tmp_path, [HOST], INFO=lines)
    warnings = store.frame("SELECT code, count FROM ingest_note WHERE severity = 'warning' ORDER BY code").rows()
    assert warnings == [("out_of_range", 12), ("profiler_dropped", 1), ("stopped_early", 1)]


def test_header_members_need_the_whole_beginning() -> None:
    assert header_members(b'\n{"a": 1, "traceEvents": [{"ph"') == {"a": 1}
    assert header_members(b'{"a": [1, 2') == {}
    assert header_members(b'[{"ph": "X"}]') == {}
    assert header_members(b'{"a": "\\"traceEvents\\"", "traceEvents": [') == {"a": '"traceEvents"'}
    assert header_members(b'{"a": {"traceEvents": 1}, "traceEvents": [') == {}
    assert header_members(b"") == {}


def test_device_events_that_name_no_device(tmp_path: Path) -> None:
    unknown = event("k", "kernel", EPOCH_US, pid=31337, stream=7)
    for others, expected in (([], 0), ([3], 3), ([3, 4], 0)):
        events = [
            unknown,
            event("k", "kernel", EPOCH_US, pid=31337, device=-1),
            *(event("k", "kernel", EPOCH_US, device=d) for d in others),
        ]
        store = load(tmp_path, events)
        assert store.frame("SELECT device FROM device_event").to_series().to_list() == [expected] * 2 + others
        assert sorted(store.frame('SELECT "index" FROM device').to_series()) == sorted({expected, *others})
        assert notes(store)["device_unknown"] == 2


def test_a_negative_size_of_a_copy_is_unknown(tmp_path: Path) -> None:
    sizes = (-5, 0, 7, -(2**62))
    copies = [event("Memcpy DtoD", "gpu_memcpy", EPOCH_US + at, 1, device=0, stream=7, bytes=size) for at, size in enumerate(sizes)]
    with load(tmp_path, copies) as store:
        assert store.frame("SELECT bytes FROM device_event ORDER BY start_ns")["bytes"].to_list() == [None, 0, 7, None]


def test_an_occupancy_of_0_is_unknown_with_much_shared_memory(tmp_path: Path) -> None:
    # Kineto's calculator returns no block for more than 48 KiB; a small kernel rounds to 0%.
    def kernel(number: int, **args: Any) -> dict[str, Any]:
        return event("k", "kernel", EPOCH_US + 10 * number, device=0, stream=7, **args)

    occupancy = "est. achieved occupancy %"
    events = [
        kernel(0, **{"shared memory": 49_153, occupancy: 0}), kernel(1, **{"shared memory": 49_152, occupancy: 0}),
        kernel(2, **{"shared memory": 100_000, occupancy: 25}), kernel(3, **{occupancy: 0}), kernel(4),
    ]  # fmt: skip
    with load(tmp_path, events) as store:
        assert store.frame("SELECT occupancy FROM device_event ORDER BY start_ns")["occupancy"].to_list() == [None, 0.0, 25.0, None, None]
