"""Tests that the run store contains all of real PyTorch profiler traces, exactly: recounted in plain Python from the JSON."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from postrun.ingest import ingest
from postrun.ingest.kineto.reader import NOT_STORED
from postrun.ingest.store import Store

TRACES = (
    "diff_pair/a100_rank3_of_8",
    "diff_pair/v100_rank1_of_2",
    "h100/Falconsai_nsfw_image_detection__1016002",
    "h100/Qwen_Qwen1.5-0.5B-Chat__1016005",
    "mi300/gaunernst_bert-small-uncased__1016001",
    "quirks/alexnet_no_steps",
    "quirks/distributed_info_not_found",
    "quirks/event_sync_trace",
    "quirks/mi250_minitoy_train_ROCm6_2_kineto",
    "quirks/nccl_data",
    "quirks/rank_non_gpu",
    "sampled_2_ranks/sampled_rank-0",
    "sampled_2_ranks/sampled_rank-1",
    "v100_ddp/rank-0.Apr_03_18_51_38.1102.pt.trace",
    "v100_old_schema/resnet50_num_workers_0",
)
DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "memcpy": "memcpy", "gpu_memset": "memset", "memset": "memset", "cuda_sync": "sync"}
CALLS = {"cuda_runtime", "cuda_driver", "runtime"}
OPERATORS = {"cpu_op", "operator"}


@lru_cache(maxsize=2)
def _document(path: Path) -> dict[str, Any]:
    document = json.loads(gzip.decompress(path.read_bytes()), strict=False, parse_float=Decimal)
    assert isinstance(document, dict)
    return document


@lru_cache(maxsize=2)
def _store(path: Path) -> Store:
    return ingest([path])


@pytest.fixture(scope="module", params=TRACES)  # per module: all tests of a trace in a row, so that it is read once
def path(request: pytest.FixtureRequest, shared_data: Path) -> Path:
    return shared_data / "kineto" / f"{request.param}.json.gz"


def _destination(event: dict[str, Any]) -> tuple[str, str] | None:
    """Return table and kind of a complete event, by the rules in the store's schema."""
    category, name = str(event.get("cat")).lower(), str(event.get("name"))
    if category in DEVICE:
        return "device_event", DEVICE[category]
    loader = name.startswith("enumerate(DataLoader)#")
    if category in OPERATORS | {"user_annotation"} and loader:
        return "host_event", "loader"
    if category == "user_annotation" or (category in OPERATORS and re.fullmatch(r"ProfilerStep#\d+", name)):
        return "annotation", "host"
    if category == "gpu_user_annotation":
        return "annotation", "device"
    if category in OPERATORS:
        return "host_event", "operator"
    if category == "python_function":
        return "host_event", "python"
    if category in CALLS:
        if "Synchronize" in name:
            return "host_event", "sync"
        launch = re.match(r"(cuda|cu|hip)(Launch|ModuleLaunch|ExtModuleLaunch|GraphLaunch|Memcpy|Memset)", name)
        return "host_event", "launch" if launch else "call"
    return None


def _ns(microseconds: object) -> int:
    exact = Decimal(str(microseconds)) * 1000
    assert exact == int(exact)
    return int(exact)


def test_every_event_with_its_exact_times_is_in_its_table(path: Path) -> None:
    document = _document(path)
    base = int(document.get("baseTimeNanoseconds", 0))
    expected: Counter[tuple[Any, ...]] = Counter()
    for event in document["traceEvents"]:
        if event.get("ph") == "X" and (destination := _destination(event)):
            expected[(*destination, event["name"], _ns(event["ts"]) + base, _ns(event["dur"]))] += 1
    store = _store(path)
    stored: Counter[tuple[Any, ...]] = Counter()
    for table, kind in (("device_event", "kind::VARCHAR"), ("host_event", "kind::VARCHAR"), ("annotation", "side")):
        frame = store.frame(f"SELECT {kind}, n.text, start_ns, duration_ns FROM {table} t JOIN name n ON n.id = t.name")
        stored.update((table, *row) for row in frame.iter_rows())
    assert sum(stored.values()) > 0
    assert stored == expected


def test_events_in_are_events_stored_plus_events_that_notes_count(path: Path) -> None:
    in_file = Counter(str(event.get("ph")) for event in _document(path)["traceEvents"])
    store = _store(path)
    stored = sum(store.frame(f"SELECT count(*) FROM {table}").item() for table in ("device_event", "host_event", "annotation"))
    notes = dict(store.frame("SELECT code, sum(count)::BIGINT FROM ingest_note GROUP BY code").iter_rows())
    assert in_file["B"] == in_file["E"] == 0
    assert stored + sum(notes.get(code, 0) for code in NOT_STORED) == in_file["X"]
    instants = store.frame("SELECT count(*) FROM allocation").item() + notes.get("host_allocations", 0)
    assert notes.get("phase_not_read", 0) + instants == sum(n for phase, n in in_file.items() if phase not in {"X", "M"})
    assert store.frame("SELECT events FROM source").item() == stored


def test_figures_of_the_independent_reference(path: Path, shared_data: Path) -> None:
    reference = json.loads((shared_data / "kineto" / "expected.json").read_bytes())
    devices = reference[path.relative_to(shared_data / "kineto").as_posix()]
    store = _store(path)
    allocations: dict[str, dict[str, Any]] = {}
    totals = store.frame(
        "SELECT device, kind::VARCHAR, copy_kind, count(*), sum(duration_ns)::BIGINT, coalesce(sum(bytes), 0)::BIGINT"
        " FROM device_event WHERE kind <> 'sync' GROUP BY ALL"
    )
    for device, kind, copy_kind, count, total, size in totals.iter_rows():
        figures = allocations.setdefault(str(device), {"kernel_count": 0, "kernel_total_ns": 0, "memory_operations": {}})
        if kind == "kernel":
            figures |= {"kernel_count": count, "kernel_total_ns": total}
            allocations[str(device)] = figures
        else:
            key = "Memset" if kind == "memset" else copy_kind
            figures["memory_operations"][key] = {"count": count, "total_ns": total, "bytes": size}
    assert allocations == {device: {key: figures[key] for key in allocations[device]} for device, figures in devices.items()}
    for device, figures in devices.items():
        top = store.frame(
            "SELECT left(n.text, 120) AS name, count(*) AS count, sum(duration_ns)::BIGINT AS total_ns FROM device_event d"
            " JOIN name n ON n.id = d.name WHERE kind = 'kernel' AND device = ? GROUP BY n.text ORDER BY total_ns DESC, n.text LIMIT 5",
            [int(device)],
        )
        assert top.to_dicts() == figures["top_kernels"]


def test_arguments_of_device_events_and_launches_are_kept(path: Path) -> None:
    document = _document(path)
    expected: Counter[tuple[Any, ...]] = Counter()
    linked: Counter[int] = Counter()
    for event in document["traceEvents"]:
        args = event.get("args") or {}
        if event.get("ph") != "X":
            continue
        if _destination(event) and _destination(event)[0] == "device_event":  # type: ignore[index]
            grid, block = args.get("grid", [None] * 3), args.get("block", [None] * 3)
            external = args.get("External id", args.get("external id"))
            where = (args.get("device", event["pid"]), args.get("context"), args.get("stream"), args.get("correlation") or None)
            size = (args.get("registers per thread"), args.get("shared memory"), args.get("bytes"), external)
            expected[(*where, *grid, *block, *size)] += 1
        elif str(event.get("cat")).lower() in CALLS and args.get("correlation"):
            linked[args["correlation"]] += 1
    store = _store(path)
    rows = store.frame(
        "SELECT device, context, stream, correlation, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, shared_memory, bytes,"
        " external_id FROM device_event"
    )
    assert Counter(rows.iter_rows()) == expected
    correlations = store.frame("SELECT correlation FROM host_event WHERE correlation IS NOT NULL")
    assert Counter(row[0] for row in correlations.iter_rows()) == linked


def test_epoch_times_of_nineteen_digits_are_exact(shared_data: Path) -> None:
    store = _store(shared_data / "kineto" / f"{TRACES[13]}.json.gz")
    first = store.frame(
        "SELECT start_ns, duration_ns FROM host_event h JOIN name n ON n.id = h.name"
        " WHERE n.text = 'autograd::engine::evaluate_function: DivBackward1' ORDER BY start_ns LIMIT 1"
    )
    assert first.row(0) == (1712195495519689047, 63813)


def test_base_time_behind_the_events_is_added_exactly(shared_data: Path) -> None:
    store = _store(shared_data / "kineto" / "h100" / "Falconsai_nsfw_image_detection__1016002.json.gz")
    assert store.frame("SELECT min(start_ns) FROM annotation WHERE side = 'host'").item() == 1751410836000000000 + 1414456661601577


def test_identity_of_real_traces(shared_data: Path) -> None:
    process = "SELECT p.pid, p.rank, p.world_size, n.hostname FROM process p JOIN node n ON n.id = p.node ORDER BY p.id"
    ddp = _store(shared_data / "kineto" / f"{TRACES[13]}.json.gz")
    assert ddp.frame(process).rows() == [(1102, 0, 1, "twshared39868.02.pnb3.facebook.com")]
    amd = _store(shared_data / "kineto" / "mi300" / "gaunernst_bert-small-uncased__1016001.json.gz")
    assert amd.frame(process).rows() == [(6240, None, None, "unknown host")]  # its Python functions carry pid 0
    vendor = amd.frame('SELECT DISTINCT name, vendor, compute_capability, sm_count FROM device WHERE "index" = 2')
    assert vendor.row(0) == ("AMD Instinct MI300X VF", "AMD", "9.4", 304)
    pair = ingest([shared_data / "kineto" / "sampled_2_ranks"])
    assert pair.frame(process).rows() == [(4037, 0, 128, "unknown host"), (4045, 1, 128, "unknown host")]
    strangers = ingest([shared_data / "kineto" / "diff_pair"])
    assert strangers.frame(process).rows() == [(3113936, 3, 8, "unknown host"), (2568503, 1, 2, "unknown host 2")]


def test_complaints_of_the_profiler_become_warnings(shared_data: Path) -> None:
    store = _store(shared_data / "kineto" / f"{TRACES[13]}.json.gz")
    notes = store.frame("SELECT severity, code, count FROM ingest_note WHERE severity <> 'info'").rows()
    assert notes == [("warning", "out_of_range", 3829)]


def test_steps_hold_the_device_work_that_their_launches_started(path: Path) -> None:
    """For each ProfilerStep, the device events are those of launch calls inside it."""
    document = _document(path)
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    base = int(document.get("baseTimeNanoseconds", 0))
    launches = {
        event["args"]["correlation"]: _ns(event["ts"])
        for event in events
        if str(event.get("cat")).lower() in CALLS and (event.get("args") or {}).get("correlation")
    }
    work = [
        (launches.get((event.get("args") or {}).get("correlation")), _ns(event["ts"]), _ns(event["dur"]))
        for event in events
        if DEVICE.get(str(event.get("cat")).lower()) in {"kernel", "memcpy", "memset"}
    ]
    expected = []
    for event in events:
        if re.fullmatch(r"ProfilerStep#\d+", str(event.get("name"))) and event["cat"] != "gpu_user_annotation":
            start, length = _ns(event["ts"]), _ns(event["dur"])
            inside = [(a, a + b) for launch, a, b in work if launch is not None and start <= launch < start + length]
            first = min((a for a, _ in inside), default=None)
            last = max((b for _, b in inside), default=None)
            duration = None if first is None or last is None else last - first
            device_start = None if first is None else first + base
            index = int(event["name"].partition("#")[2])
            expected.append((index, start + base, length, device_start, duration, len(inside)))
    columns = '"index", host_start_ns, host_duration_ns, device_start_ns, device_duration_ns, device_events'
    assert _store(path).frame(f"SELECT {columns} FROM step ORDER BY host_start_ns").rows() == sorted(expected, key=lambda row: row[1])
