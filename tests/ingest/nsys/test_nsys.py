"""Tests for exports of Nsight Systems of all generations -> rows, also damaged and hostile ones.

Every file is made here, with events worked out on paper.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.device.memory_operations import memory_operations
from postrun.errors import InputError
from postrun.ingest import ingest
from postrun.ingest.discover import find_files, format_of
from postrun.ingest.nsys.reader import NOT_STORED, read_export
from postrun.ingest.store import Store
from postrun.ingest.store.format_names import NSIGHT, NSIGHT_REPORT
from postrun.ingest.store.identity import Placement
from postrun.ingest.store.registry import Registry
from slow_params import slow_except

EPOCH = 1_700_000_000_000_000_000
P, Q = (1 << 48) | (77 << 24), (1 << 48) | (78 << 24)  # Two processes, 77 and 78, of one machine
DAY = 86_400 * 10**9

KERNEL = (
    "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, shortName, registersPerThread, gridX, gridY,"
    " gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory"
)
RUNTIME = "start, end, eventClass, globalTid, correlationId, nameId, returnValue"
MEMCPY = "start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, dstKind"
MEMSET = "start, end, deviceId, contextId, streamId, correlationId, globalPid, value, bytes, memKind"
SYNC = "start, end, deviceId, contextId, streamId, correlationId, globalPid, syncType"
NVTX = "start, end, eventType, rangeId, text, globalTid, textId, domainId"
STRINGS = [(1, "gemm"), (2, "void relu<float>(float*)"), (3, "cudaLaunchKernel_v7000"), (4, "cudaMemcpyAsync_v3020"),
           (5, "cudaStreamSynchronize_v3020"), (6, "Buffer flush"), (7, "cuMemcpyHtoDAsync_v2"), (8, "forward")]  # fmt: skip


def kernel(start: Any, end: Any, name: Any = 1, *, process: Any = P, device: Any = 0, correlation: Any = 0, context: Any = 1) -> list[Any]:
    return [start, end, device, context, 7, correlation, process, name, name, 32, 10, 2, 1, 128, 1, 1, 16, 1008]


def write(path: Path, tables: dict[str, tuple[str, Iterable[Sequence[Any]]]], strings: Any = STRINGS) -> Path:
    """An SQLite file of these tables: columns and rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as connection:
        wanted = {**tables, **({"StringIds": ("id INTEGER PRIMARY KEY, value", strings)} if strings is not None else {})}
        for name, (columns, rows) in wanted.items():
            split = [column.strip() for column in columns.split(",")]
            quoted = ", ".join(f'"{word[0]}" {" ".join(word[1:])}' for column in split if (word := column.split()))
            connection.execute(f"CREATE TABLE {name} ({quoted})")
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(split))})", list(rows))
    connection.close()
    return path


def session(hostname: str = "node", epoch: Any = EPOCH) -> dict[str, tuple[str, list[Sequence[Any]]]]:
    return {
        "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs, utcTime", [(epoch, "x")]),
        "TARGET_INFO_SYSTEM_ENV": ("globalVid, name, nameEnum, value", [(1 << 48, "Hostname", 619, hostname), (1, "CpuCores", 1, "18")]),
    }


def notes(store: Store) -> dict[str, int]:
    return {str(code): int(count) for code, count in store.frame("SELECT code, sum(count) FROM ingest_note GROUP BY code").rows()}


def count(store: Store, table: str) -> int:
    return int(store.frame(f"SELECT count(*) FROM {table}").item())


def current(path: Path) -> Path:
    """Write an export of nsys 2023 to 2026: the process calls the second GPU 0."""
    return write(
        path,
        {
            **session(),
            "META_DATA_EXPORT": ("name, value", [("EXPORT_PRODUCT_VERSION", "2025.3.1.90"), ("EXPORT_SCHEMA_VERSION", "3.20.4")]),
            "META_DATA_CAPTURE": (
                "name, value",
                [("PROCESS_0:COMMAND", "python"), ("PROCESS_0:ARGUMENT_0", "train.py"), ("PROCESS_0:ENVIRONMENT_VARIABLE", 'RANK="3"'),
                 ("PROCESS_0:ENVIRONMENT_VARIABLE", 'LOCAL_RANK="1"'), ("PROCESS_0:ENVIRONMENT_VARIABLE", 'WORLD_SIZE="8"'),
                 ("PROCESS_0:ENVIRONMENT_VARIABLE", 'API_KEY="12345"')],
            ),
            "PROCESSES": ("globalPid, pid, name", [(P, 77, "python"), *(((1 << 48) | (i << 24), i, "sh") for i in range(100, 250))]),
            "TARGET_INFO_GPU": (
                "id, name, uuid, smCount, totalMemory, computeMajor, computeMinor",
                [(0, "NVIDIA H100", "u0", 132, 80 << 30, 9, 0), (1, "NVIDIA H100", "u1", 132, 80 << 30, 9, 0)],
            ),
            "TARGET_INFO_CUDA_DEVICE": ("gpuId, cudaId, pid, uuid", [(1, 0, 77, "u1")]),
            "TARGET_INFO_CUDA_CONTEXT_INFO": ("processId, deviceId, contextId", [(77, 0, 1)]),
            "CUPTI_ACTIVITY_KIND_KERNEL": (
                KERNEL + ", graphNodeId, mangledName",
                [[*kernel(2000, 5000, 1, correlation=11), None, None], [*kernel(6000, 7000, 2, correlation=12), 99, None]],
            ),
            "CUPTI_ACTIVITY_KIND_MEMCPY": (
                MEMCPY,
                [(100, 400, 0, 1, 7, 13, P, 4096, 1, 0, 2), (500, 600, 0, 1, 7, 14, P, 64, 2, 2, 1), (700, 710, 0, 1, 7, 0, P, 8, 8, 2, 2),
                 (720, 730, 0, 1, 7, 0, P, 8, 11, 7, 7)],
            ),
            "CUPTI_ACTIVITY_KIND_MEMSET": (MEMSET, [(800, 801, 0, 1, 7, 15, P, 0, 256, 2)]),
            # The device of a synchronization is that of the calling thread; this one does not exist.
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (SYNC, [(5000, 8000, 5, 1, 4294967295, 16, P, 4), (1, 2, 0, 1, 7, 17, P, 2)]),
            "CUPTI_ACTIVITY_KIND_RUNTIME": (
                RUNTIME,
                [(1000, 1500, 0, P | 77, 11, 3, 0), (1600, 1700, 0, P | 77, 12, 3, 0), (50, 90, 0, P | 79, 13, 4, 0),
                 (5000, 8000, 0, P | 77, 16, 5, 0), (10, 20, 1, P | 77, 18, 7, 0)],
            ),
            "PROFILER_OVERHEAD": ("start, end, globalTid, nameId, overheadType", [(8100, 8200, P | 77, 6, 3)]),
            "NVTX_EVENTS": (
                NVTX,
                [(0, 9000, 59, None, "step_4", P | 77, None, 0), (1000, 4000, 59, None, None, P | 77, 8, 0),
                 (1100, 1200, 60, 5, "ncclAllReduce", P | 77, None, 1), (0, None, 75, None, "NCCL", P | 77, None, 1),
                 (1500, 1500, 34, None, "a mark", P | 77, None, 0), (1300, None, 59, None, "never closed", P | 77, None, 0),
                 (1000, 1900, 59, None, "aten::mm, seq = 5, op_id = 12, sizes = [[2, 3], [3, 4]]", P | 77, None, 0),
                 (1001, 1800, 59, None, "MyModule: forward, op_id = 13", P | 77, None, 0),
                 (9100, 9200, 59, None, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__, op_id = 7", P | 77, None, 0)],
            ),
            "OSRT_API": ("start, end", [(1, 2), (3, 4)]),
            "DIAGNOSTIC_EVENT": (
                "timestamp, timestampType, source, severity, text",
                [(0, 1, 1, 2, "Not all NVTX events might have been collected."), (0, 1, 1, 1, "12 CUDA events were lost"),
                 (0, 1, 1, 1, "Process was launched by the profiler"), (0, 1, 1, 1, "No events were lost"), (1, 1, 1, 3, "bad")],
            ),
        },
    )  # fmt: skip


def test_an_export_of_today(tmp_path: Path) -> None:
    store = ingest([current(tmp_path / "report1.sqlite")])
    run = store.frame("FROM run").row(0, named=True)
    assert (run["name"], run["started_ns"], run["ended_ns"], run["framework"]) == ("report1", EPOCH, EPOCH + 9200, "PyTorch")
    assert '"command": "python train.py"' in run["metadata"]
    assert "2025.3.1.90" in run["metadata"]
    assert "12345" not in str(store.frame("FROM run").rows()) + str(store.frame("FROM ingest_note").rows())
    assert store.frame("SELECT hostname, cores, gpus FROM node").rows() == [("node", 18, 2)]
    assert store.frame("SELECT pid, rank, local_rank, world_size, command FROM process").rows() == [(77, 3, 1, 8, "python")]
    assert store.frame('SELECT "index", name, uuid, memory_bytes, sm_count, compute_capability FROM device ORDER BY 1').rows() == [
        (0, "NVIDIA H100", "u0", 80 << 30, 132, "9.0"),
        (1, "NVIDIA H100", "u1", 80 << 30, 132, "9.0"),
    ]
    rows = store.frame(f"""
        SELECT d.kind::VARCHAR, n.text, start_ns - {EPOCH}, duration_ns, device, stream, correlation,
            bytes, copy_kind, pageable
        FROM device_event AS d JOIN name AS n ON n.id = d.name ORDER BY start_ns""").rows()
    assert rows == [
        ("sync", "Stream Wait Event", 1, 1, 1, 7, 17, None, None, None),
        ("memcpy", "Memcpy HtoD (Pageable -> Device)", 100, 300, 1, 7, 13, 4096, "HtoD", True),
        ("memcpy", "Memcpy DtoH (Device -> Pinned)", 500, 100, 1, 7, 14, 64, "DtoH", False),
        ("memcpy", "Memcpy DtoD (Device -> Device)", 700, 10, 1, 7, None, 8, "DtoD", None),
        ("memcpy", "Memcpy HtoD (Unified)", 720, 10, 1, 7, None, 8, "HtoD", None),
        ("memset", "Memset (Device)", 800, 1, 1, 7, 15, 256, None, None),
        ("kernel", "gemm", 2000, 3000, 1, 7, 11, None, None, None),
        ("sync", "Context Sync", 5000, 3000, 1, None, 16, None, None, None),
        ("kernel", "void relu<float>(float*)", 6000, 1000, 1, 7, 12, None, None, None),
    ]
    sizes = "grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, shared_memory, graph_node"
    assert store.frame(f"SELECT {sizes} FROM device_event WHERE kind = 'kernel' ORDER BY start_ns").rows() == [
        (10, 2, 1, 128, 1, 1, 32, 1024, None),
        (10, 2, 1, 128, 1, 1, 32, 1024, 99),
    ]
    rows = store.frame(f"""SELECT h.kind::VARCHAR, n.text, start_ns - {EPOCH}, duration_ns, tid, correlation
        FROM host_event AS h JOIN name AS n ON n.id = h.name ORDER BY start_ns, kind""").rows()
    assert rows == [
        ("launch", "cuMemcpyHtoDAsync_v2", 10, 10, 77, 18),
        ("launch", "cudaMemcpyAsync", 50, 40, 79, 13),
        ("launch", "cudaLaunchKernel", 1000, 500, 77, 11),
        ("operator", "aten::mm", 1000, 900, 77, None),
        ("launch", "cudaLaunchKernel", 1600, 100, 77, 12),
        ("sync", "cudaStreamSynchronize", 5000, 3000, 77, 16),
        ("overhead", "Buffer flush", 8100, 100, 77, None),
        ("loader", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 9100, 100, 77, None),
    ]
    rows = store.frame("SELECT sequence, input_dims FROM host_event AS h JOIN signature AS s ON s.id = h.signature").rows()
    assert rows == [(5, "[[2, 3], [3, 4]]")]
    rows = store.frame(f"""SELECT n.text, value, start_ns - {EPOCH}, duration_ns, depth, complete, arguments
        FROM annotation AS a JOIN name AS n ON n.id = a.name ORDER BY start_ns, duration_ns DESC""").rows()
    assert rows == [
        ("step_4", 4, 0, 9000, 0, True, None),
        ("forward", None, 1000, 3000, 1, True, None),
        ("MyModule: forward", None, 1001, 799, 2, True, None),
        ("ncclAllReduce", None, 1100, 100, 3, True, '{"domain":"NCCL"}'),
        ("never closed", None, 1300, 9200 - 1300, 3, False, None),
    ]
    assert store.frame(f"SELECT index, host_start_ns - {EPOCH}, device_duration_ns FROM step").rows() == [(4, 0, 7000 - 100)]
    assert store.frame(f"SELECT process, first_ns - {EPOCH}, last_ns - {EPOCH} FROM profile_window").rows() == [(0, 0, 9200)]
    assert notes(store) == {"marks": 1, "domains": 1, "unclosed_begin": 1, "not_shown": 2, "nsys_diagnostic": 3}
    assert store.frame("SELECT severity, message FROM ingest_note WHERE code = 'nsys_diagnostic' ORDER BY ALL").rows() == [
        ("error", "Nsight Systems says: bad"),
        ("warning", "Nsight Systems says: 12 CUDA events were lost"),
        ("warning", "Nsight Systems says: Not all NVTX events might have been collected."),
    ]


def test_an_export_of_2021(tmp_path: Path) -> None:
    """Write an old export: TARGET_INFO_CUDA_GPU, fewer tables, zeros if absent."""
    path = write(
        tmp_path / "old.sqlite",
        {
            "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [kernel(10, 30, 2, device=1, correlation=5), kernel(40, 45, process=Q)]),
            "CUPTI_ACTIVITY_KIND_MEMCPY": (MEMCPY, [(50, 60, 1, 1, 7, 0, P, 16, 10, 2, 2)]),
            "CUPTI_ACTIVITY_KIND_RUNTIME": (RUNTIME, [(1, 2, 0, P | 5, 5, 3, 0)]),
            "NVTX_EVENTS": (NVTX, [(5, 0, 59, 0, "", P | 5, 8, 0)]),
            "TARGET_INFO_CUDA_GPU": (
                "deviceId, name, totalMemory, numMultiprocessors, computeCapabilityMajor, computeCapabilityMinor",
                [(1, "Tesla V100", 16 << 30, 80, 7, 0)],
            ),
        },
    )
    store = ingest([path])
    assert store.frame("SELECT pid, rank FROM process ORDER BY id").rows() == [(78, 0), (77, 1)]
    assert store.frame('SELECT "index", name, sm_count, vendor FROM device ORDER BY 1').rows() == [
        (0, None, None, "NVIDIA"),
        (1, "Tesla V100", 80, "NVIDIA"),
    ]
    rows = store.frame("SELECT pid, kind::VARCHAR, start_ns, duration_ns, device, correlation, copy_kind FROM device_event AS e"
                       " JOIN process AS p ON p.id = e.process ORDER BY start_ns").rows()  # fmt: skip
    assert rows == [(77, "kernel", 10, 20, 1, 5, None), (78, "kernel", 40, 5, 0, None, None), (77, "memcpy", 50, 10, 1, None, "PtoP")]
    assert store.frame("SELECT text, duration_ns, complete FROM annotation AS a JOIN name AS n ON n.id = a.name").rows() == [
        ("forward", 55, False)
    ]
    assert notes(store) == {"relative_times": 1, "rank_guessed": 2, "unclosed_begin": 1}
    assert store.frame("SELECT hostname FROM node").rows() == [("unknown host",)]


def test_an_export_with_the_names_of_tables_and_columns_that_some_versions_have(tmp_path: Path) -> None:
    path = write(
        tmp_path / "other.sqlite",
        {
            **session(),
            "EXPORT_META_DATA": ("name, value", [("EXPORT_PRODUCT_VERSION", "2022.1"), ("EXPORT_SCHEMA_VERSION", "9.0.0")]),
            "NVTX_EVENTS_V2": ("start, end, text, globalTid", [(0, 100, "epoch 3", P | 9)]),
            "cupti_activity_kind_kernel": ("START, END, DEVICEID, GLOBALPID, name TEXT", [(1, 3, 0, P, "by_text")]),
            "ENUM_CUDA_MEMCPY_OPER": ("id, name", [(1, "CUDA_MEMCPY_KIND_DTOH")]),
            "ENUM_CUDA_MEM_KIND": ("id, name", [(1, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE"), (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE")]),
            "CUPTI_ACTIVITY_KIND_MEMCPY": (MEMCPY, [(5, 6, 0, 1, 7, 0, P, 16, 1, 2, 1)]),
            "ENUM_CUPTI_SYNC_TYPE": ("id, name", [(0, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE")]),
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (SYNC.replace("syncType", "deprecatedSyncType"), [(7, 8, 0, 1, 7, 0, P, 0)]),
        },
        strings=None,
    )
    store = ingest([path])
    assert store.frame(
        "SELECT text, copy_kind, pageable FROM device_event AS e JOIN name AS n ON n.id = e.name ORDER BY start_ns"
    ).rows() == [
        ("by_text", None, None),
        ("Memcpy DtoH (Device -> Pageable)", "DtoH", True),
        ("Event Sync", None, None),
    ]
    assert store.frame("SELECT text, value, complete FROM annotation AS a JOIN name AS n ON n.id = a.name").rows() == [("epoch 3", 3, True)]
    assert notes(store) == {"newer_schema": 1}


def test_copies_of_less_than_nothing_keep_their_time_and_have_no_size(tmp_path: Path) -> None:
    copies = [(100, 200, 0, 1, 7, 0, P, 1000, 1, 0, 2), (300, 900, 0, 1, 7, 0, P, -5000, 1, 0, 2)]
    tables = {**session(), "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [kernel(1, 9)]), "CUPTI_ACTIVITY_KIND_MEMCPY": (MEMCPY, copies)}
    with ingest([write(tmp_path / "a.sqlite", tables)]) as store:
        rows = store.frame("SELECT duration_ns, bytes FROM device_event WHERE kind = 'memcpy' ORDER BY start_ns").rows()
        assert rows == [(100, 1000), (600, None)]
        assert notes(store) == {"negative_bytes": 1}
        (operation,) = memory_operations(store)
        assert (operation.count, operation.total_ns, operation.total_bytes, operation.bandwidth_gb_per_s) == (2, 700, 1000, 10.0)


@pytest.mark.parametrize(("version", "code"), [("0.1.0", "unknown_schema"), ("banana", "unknown_schema"), ("", "unknown_schema"),
                                               ("9.99.0", "newer_schema"), ("1.2.3", None), ("3.20.4", None)])  # fmt: skip
def test_a_schema_that_none_has_is_told(tmp_path: Path, version: str, code: str | None) -> None:
    tables = {**session(), "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [kernel(1, 9)])}
    tables["META_DATA_EXPORT"] = ("name, value", [("EXPORT_SCHEMA_VERSION", version)])
    with ingest([write(tmp_path / "a.sqlite", tables)]) as store:
        assert notes(store) == ({code: 1} if code else {})


def test_an_export_without_a_table_of_kernels_says_so(tmp_path: Path) -> None:
    tables = {**session(), "CUPTI_ACTIVITY_KIND_MEMCPY": (MEMCPY, [(100, 200, 0, 1, 7, 0, P, 1000, 1, 0, 2)])}
    with ingest([write(tmp_path / "a.sqlite", tables)]) as store:
        assert notes(store) == {"no_kernels": 1}


def test_times_of_the_epoch_are_not_moved_again(tmp_path: Path) -> None:
    start = EPOCH + 5 * 10**9
    tables = {**session(), "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [kernel(start, start + 3)])}
    assert ingest([write(tmp_path / "a.sqlite", tables)]).frame("SELECT start_ns FROM device_event").item() == start
    tables["META_DATA_EXPORT"] = ("name, value", [("EXPORT_PARAM_TIME_NORMALIZE", "true")])
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = (KERNEL, [kernel(7, 10)])
    assert ingest([write(tmp_path / "b.sqlite", tables)]).frame("SELECT start_ns FROM device_event").item() == 7


def test_graphs_recorded_as_a_whole_keep_the_device_busy_and_are_told(tmp_path: Path) -> None:
    columns = "start, end, deviceId, contextId, streamId, correlationId, globalPid, graphId, graphExecId"
    path = write(tmp_path / "g.sqlite", {**session(), "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (columns, [(10, 30, 0, 1, 7, 4, P, 3, 1)] * 2)})
    store = ingest([path])
    assert (
        store.frame("SELECT text, duration_ns FROM device_event AS e JOIN name AS n ON n.id = e.name").rows()
        == [("CUDA graph 3 (as a whole)", 20)] * 2
    )
    assert notes(store) == {"whole_graphs": 2}


def test_two_files_of_two_ranks_and_a_second_export_of_one(tmp_path: Path) -> None:
    def rank(number: int, process: int, name: str) -> Path:
        tables: dict[str, Any] = {
            **session(f"host{number}"),
            "META_DATA_CAPTURE": ("name, value", [("PROCESS_0:ENVIRONMENT_VARIABLE", f'SLURM_PROCID="{number}"')]),
            "META_DATA_EXPORT": ("name, value", [("EXPORT_TIME_UTC", name)]),
            "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [kernel(10 + number, 30, correlation=5, process=process)]),
            "CUPTI_ACTIVITY_KIND_RUNTIME": (RUNTIME, [(1, 2, 0, process | 5, 5, 3, 0)]),
        }
        return write(tmp_path / name, tables)

    files = [rank(0, P, "a.sqlite"), rank(1, P, "b.sqlite"), rank(1, P, "again.sqlite")]
    store = ingest(files)
    assert store.frame("SELECT hostname, pid, rank FROM process AS p JOIN node AS n ON n.id = p.node ORDER BY rank").rows() == [
        ("host0", 77, 0),
        ("host1", 77, 1),
    ]
    assert count(store, "device_event") == 2
    assert notes(store) == {"duplicate": 1}
    assert store.frame("SELECT file, message FROM ingest_note").rows() == [
        ("again.sqlite", "Another export of the session that b.sqlite holds; read once.")
    ]


def test_two_captures_of_one_process_keep_their_correlations_apart(tmp_path: Path) -> None:
    def part(number: int) -> Path:
        kernels = (KERNEL, [kernel(10 + number * 1000, 30 + number * 1000, correlation=5)])
        calls = (RUNTIME, [(1 + number * 1000, 2 + number * 1000, 0, P | 5, 5, 3, 0)])
        tables = {**session(), "CUPTI_ACTIVITY_KIND_KERNEL": kernels, "CUPTI_ACTIVITY_KIND_RUNTIME": calls}
        return write(tmp_path / f"report{number}.sqlite", tables)

    store = ingest([part(1), part(2)])
    assert count(store, "process") == 1
    pairs = "SELECT h.start_ns - d.start_ns FROM device_event AS d JOIN host_event AS h USING (process, correlation)"
    assert store.frame(pairs).rows() == [(-9,), (-9,)]


def test_ranks_of_an_mpi_trace(tmp_path: Path) -> None:
    tables = {
        **session(),
        "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [kernel(1, 2), kernel(3, 4, process=Q, device=1)]),
        "MPI_RANKS": ("globalPid, rank", [(P, 9), (Q, 4)]),
    }
    assert ingest([write(tmp_path / "m.sqlite", tables)]).frame("SELECT pid, rank FROM process ORDER BY pid").rows() == [(77, 9), (78, 4)]


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"CUPTI_ACTIVITY_KIND_RUNTIME": (RUNTIME, [(1, 2, 0, P | 5, 5, 3, 0)])}, {"host_event": 1}),
        ({"NVTX_EVENTS": (NVTX, [(1, 2, 59, 0, "a", P | 5, 0, 0)])}, {"annotation": 1}),
        ({"CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [kernel(1, 2)])}, {"device_event": 1}),
        ({"CUPTI_ACTIVITY_KIND_KERNEL": ("start, end", [(1, 2)])}, {"device_event": 1}),
        ({"NVTX_EVENTS": ("start, end, text", [(1, 2, "a")])}, {"annotation": 1}),
    ],
)
def test_a_single_table_is_enough(tmp_path: Path, tables: Any, expected: dict[str, int]) -> None:
    store = ingest([write(tmp_path / "x.sqlite", tables, strings=None)])
    assert {table: n for table in ("device_event", "host_event", "annotation") if (n := count(store, table))} == expected


def test_names_that_are_not_there_stay_apart(tmp_path: Path) -> None:
    rows = [kernel(1, 2, 50), kernel(3, 5, 51), kernel(6, 7, None)]
    store = ingest([write(tmp_path / "x.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, rows)}, strings=None)])
    assert store.frame("SELECT text FROM device_event AS e JOIN name AS n ON n.id = e.name ORDER BY start_ns")["text"].to_list() == [
        "name 50", "name 51", "",
    ]  # fmt: skip
    assert notes(store)["names_unknown"] == 2


def test_gpu_metrics_are_means_of_ten_milliseconds(tmp_path: Path) -> None:
    gpu0, gpu1 = 0x1000000000000, 0x1000000000001
    names = [(gpu0, 1, "SMs Active [Throughput %]"), (gpu0, 2, "DRAM Read Bandwidth [Throughput %]"), (gpu0, 3, "Unknown [%]"),
             (gpu0, 4, "DRAM Write Bandwidth [Throughput %]"), (gpu1, 1, "SMs Active [Throughput %]"),
             (gpu0, 5, "GR Active [Throughput %]"),
             (gpu0, 6, "SYS Clock Frequency [MHz]")]  # fmt: skip
    ms = 1_000_000
    values = [(0, gpu0, 1, 10), (5 * ms, gpu0, 1, 30), (9_999_999, gpu0, 1, 50), (10 * ms, gpu0, 1, 99), (1, gpu0, 2, 20), (2, gpu0, 2, 40),
              (3, gpu0, 4, 5), (4, gpu0, 3, 7), (4, gpu1, 1, 3), (5, gpu0, 5, "x"), (5, gpu0, 5, 101), (6, gpu0, 6, 50)]  # fmt: skip
    tables = {
        **session(),
        "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [kernel(1, 2)]),
        "TARGET_INFO_GPU_METRICS": (
            "typeId, sourceId, typeName, metricId, metricName",
            [(kind, 0, "x", n, name) for kind, n, name in names],
        ),
        "GPU_METRICS": ("timestamp, typeId, metricId, value", values),
    }
    store = ingest([write(tmp_path / "x.sqlite", tables)])
    assert store.frame(f"SELECT metric, unit, time_ns - {EPOCH}, value FROM sample ORDER BY ALL").rows() == [
        ("gpu_dram_active", 0, 5 * ms, 35.0),
        ("gpu_sm_active", 0, 5 * ms, 30.0),
        ("gpu_sm_active", 0, 15 * ms, 99.0),
        ("gpu_sm_active", 1, 5 * ms, 3.0),
    ]


# -- damage and malice -----------------------------------------------------------------------------------------------------


def test_values_of_wrong_types_are_absent(tmp_path: Path) -> None:
    """SQLite puts anything into any column."""
    rows = [
        kernel(10, 20), kernel("abc", 20), kernel(10, "x"), kernel(None, None), kernel(10, b"\xff\x00"), kernel(1.5, 3), kernel(0, 0),
        kernel(30, 20), kernel(30, 30 + 8 * DAY), kernel(2**63 - 1, -(2**63)), kernel(-(2**63), 5), kernel(float("inf"), 1),
        kernel(40, 50, device="cuda:1", correlation=[1][0:0] or b"x"), kernel(60, 70, device=2**40, process="p"),
        kernel(80, 90, b"name", device=-1),
    ]  # fmt: skip
    store = ingest([write(tmp_path / "x.sqlite", {**session(), "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, rows)})])
    actual = store.frame(f"SELECT start_ns - {EPOCH}, duration_ns, device, correlation FROM device_event ORDER BY start_ns").rows()
    assert actual == [(10, 10, 0, None), (40, 10, 0, None), (60, 10, 0, None), (80, 10, 0, None)]
    assert notes(store) == {
        "no_timestamp": 4, "no_duration": 2, "zero_time": 1, "negative_duration": 1, "absurd_duration": 1, "impossible_time": 2,
        "device_unknown": 3,
    }  # fmt: skip
    assert count(store, "process") == 1


def test_a_report_is_told_how_to_export_it(tmp_path: Path) -> None:
    for name in ("x.nsys-rep", "y.qdrep", "z.qdstrm"):
        (tmp_path / name).write_bytes(b"NVTX whatever")
        kind = format_of(tmp_path / name)
        assert kind is not None
        assert kind.name == NSIGHT_REPORT
    with pytest.raises(InputError, match="nsys export --type sqlite"):
        ingest([tmp_path / "x.nsys-rep"])


def test_beside_its_export_a_report_is_no_matter(tmp_path: Path) -> None:
    current(tmp_path / "report1.sqlite")
    (tmp_path / "report1.nsys-rep").write_bytes(b"x")
    assert "format_not_read" not in notes(ingest([tmp_path]))
    (tmp_path / "report2.nsys-rep").write_bytes(b"x")
    assert notes(ingest([tmp_path]))["format_not_read"] == 1


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_compressed_export_is_the_same_run(tmp_path: Path, ending: str) -> None:
    import zstandard

    plain = current(tmp_path / "report1.sqlite")
    pack = gzip.compress if ending == "gz" else zstandard.compress
    packed = tmp_path / "packed" / f"report1.sqlite.{ending}"
    packed.parent.mkdir()
    packed.write_bytes(pack(plain.read_bytes() + bytes(5_000_000)))  # bytes after the database do not belong to it
    (packed.parent / "report1.nsys-rep").write_bytes(b"x")
    query = "SELECT start_ns, duration_ns, name.text FROM device_event JOIN name ON name.id = name ORDER BY ALL"
    with ingest([plain]) as left, ingest([packed.parent]) as unpacked:
        assert unpacked.frame(query).rows() == left.frame(query).rows() != []
        assert notes(unpacked) == notes(left)
        assert unpacked.frame("SELECT parse_filename(path) FROM source ORDER BY 1").to_series().to_list()[-1] == packed.name
        assert not [path for path in packed.parent.iterdir() if path.name not in (packed.name, "report1.nsys-rep")]


def test_a_compressed_export_that_is_cut_is_read_up_to_there(tmp_path: Path) -> None:
    columns = "start, end, correlationId, globalPid, deviceId, contextId, shortName"
    rows = [(at * 10, at * 10 + 5, at, P, 0, 1, 1) for at in range(1, 20_001)]
    plain = write(tmp_path / "a.sqlite", {**session(), "CUPTI_ACTIVITY_KIND_KERNEL": (columns, rows)})
    packed = tmp_path / "a.sqlite.gz"
    data = gzip.compress(plain.read_bytes())
    packed.write_bytes(data[: len(data) * 3 // 4])
    with ingest([packed]) as store:
        assert 1000 < count(store, "device_event") < 20_000
        assert {"cut_stream", "truncated"} <= set(notes(store))
        assert store.frame("SELECT status FROM run").item() == "partial"


def test_a_compressed_export_for_which_the_disk_has_no_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "a.sqlite.gz"
    packed.write_bytes(gzip.compress(current(tmp_path / "a.sqlite").read_bytes()))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=5_000))
    with pytest.raises(InputError, match=r"unpack it with gunzip or unzstd, or set TMPDIR to a folder with more space"):
        ingest([packed])


def test_another_database_is_told_as_such(tmp_path: Path) -> None:
    path = write(tmp_path / "mlflow.sqlite", {"runs": ("id", [(1,)])}, strings=None)
    with pytest.raises(InputError, match="SQLite database; no table of an Nsight Systems export is in it"):
        ingest([path])
    with pytest.raises(InputError, match="its tables are runs;"):
        read_export(*_parts(), path, 0)


def _parts() -> tuple[Store, Registry, Placement]:
    store = Store.create(None)
    registry = Registry(store)
    return store, registry, Placement(registry)


def test_a_database_without_tables_and_one_without_rows(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "none.sqlite") as connection:
        connection.execute("CREATE TABLE x (y)")
        connection.execute("DROP TABLE x")
    connection.close()
    with pytest.raises(InputError, match="its tables are none"):
        ingest([tmp_path / "none.sqlite"])
    empty = write(tmp_path / "empty.sqlite", {**session(), "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, []), "NVTX_EVENTS": (NVTX, [])})
    with pytest.raises(InputError, match="holds no event that is read"):
        ingest([empty])
    (tmp_path / "zero.sqlite").write_bytes(b"")
    with pytest.raises(InputError, match="empty file"):
        ingest([tmp_path / "zero.sqlite"])
    (tmp_path / "encrypted.sqlite").write_bytes(os.urandom(8192))
    with pytest.raises(InputError, match="unknown format"):
        ingest([tmp_path / "encrypted.sqlite"])


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 kernels, 100 us apart."""
    rows = [kernel(i * 100_000, i * 100_000 + 50_000, i % 2 + 1) for i in range(20_000)]
    path = tmp_path_factory.mktemp("nsys") / "long.sqlite"
    return write(path, {**session(), "PROCESSES": ("globalPid, pid, name", [(P, 77, "x")]), "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, rows)})


@pytest.mark.parametrize("size", slow_except((100, 4096, -1), (16, 100, 4095, 4096, 8192, 300_000, 700_000, -4096, -1)))
def test_a_cut_file_is_read_up_to_the_cut_or_told(tmp_path: Path, long_file: Path, size: int) -> None:
    path = tmp_path / "cut.sqlite"
    path.write_bytes(long_file.read_bytes()[:size])
    if size in (16, 100):
        with pytest.raises(InputError, match="nsys export --type sqlite --force-overwrite"):
            ingest([path])
        return
    if size in (4095, 4096, 8192):  # the tables are known, and no row
        with pytest.raises(InputError, match="The file is cut off"):
            ingest([path])
        return
    store = ingest([path])
    assert store.frame("SELECT status FROM run").item() == "partial"
    assert notes(store)["truncated"] >= 1
    assert 0 < count(store, "device_event") <= 20_000
    assert (count(store, "device_event") == 20_000) == (size < 0)


def test_a_corrupt_page_costs_what_lies_behind_it_alone(tmp_path: Path, long_file: Path) -> None:
    raw = bytearray(long_file.read_bytes())
    page = len(raw) // 4096 * 3 // 4
    raw[page * 4096 : (page + 1) * 4096] = b"\xff" * 4096
    path = tmp_path / "bad.sqlite"
    path.write_bytes(raw)
    store = ingest([path])
    assert 10_000 < count(store, "device_event") < 20_000
    assert notes(store)["damaged"] == 1
    assert store.frame("SELECT status FROM run").item() == "partial"


def test_what_a_schema_defines_is_not_carried_out(tmp_path: Path) -> None:
    """Replace tables by views (also cyclic and endless), triggers, virtual tables."""
    path = write(tmp_path / "evil.sqlite", {**session(), "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [kernel(1, 2)])})
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE VIEW a AS SELECT * FROM NVTX_EVENTS")
        connection.execute("CREATE VIEW NVTX_EVENTS AS SELECT * FROM a")
        endless = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT n AS start FROM x"
        connection.execute(f"CREATE VIEW CUPTI_ACTIVITY_KIND_MEMCPY AS {endless}")
        connection.execute("CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM StringIds; END")
        connection.execute("CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_MEMSET USING fts5(start, end)")
    connection.close()
    before = path.read_bytes()
    store = ingest([path])
    assert (count(store, "device_event"), count(store, "host_event"), count(store, "annotation")) == (1, 0, 0)
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["evil.sqlite"]


def test_computed_columns_are_not_computed(tmp_path: Path) -> None:
    path = write(tmp_path / "evil.sqlite", {**session(), "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [kernel(1, 2)])})
    with sqlite3.connect(path) as connection:
        computed = "end INT GENERATED ALWAYS AS (length(zeroblob(1000000000))) VIRTUAL"
        connection.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, globalTid INT, nameId INT, {computed})")
        connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 3)")
    connection.close()
    store = ingest([path])
    assert count(store, "host_event") == 0
    assert notes(store)["no_duration"] == 1


def test_texts_of_any_length_and_bytes(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.sqlite",
        {**session(), "NVTX_EVENTS": (NVTX, [(1, 2, 59, 0, "a" * 3_000_000, P | 5, 0, 0), (3, 4, 59, 0, "b\x00c", P | 5, 0, 0)])},
        strings=[],
    )
    with sqlite3.connect(path) as connection:
        connection.execute(f"INSERT INTO NVTX_EVENTS VALUES (5, 6, 59, 0, CAST(x'ff41fe' AS TEXT), {P | 5}, 0, 0)")
    connection.close()
    store = ingest([path])
    texts = store.frame("SELECT text FROM annotation AS a JOIN name AS n ON n.id = a.name ORDER BY start_ns")["text"].to_list()
    assert len(texts[0]) < 16_384
    assert re.fullmatch(r"a{16000,}… \[3000000 bytes, [0-9a-f]{8}\]", texts[0])
    assert texts[2] == "\ufffdA\ufffd"


def test_two_long_names_with_one_beginning_stay_two_names(tmp_path: Path) -> None:
    names = ["a" * 20_000 + end for end in ("b", "c")]
    rows = [(place, place + 1, 59, 0, name, P | 5, 0, 0) for place, name in enumerate(names)]
    store = ingest([write(tmp_path / "x.sqlite", {**session(), "NVTX_EVENTS": (NVTX, rows)}, strings=[])])
    assert store.frame("SELECT count(DISTINCT name) AS n FROM annotation").item() == 2


def test_a_log_of_changes_beside_the_file_is_told(tmp_path: Path) -> None:
    current(tmp_path / "report1.sqlite")
    (tmp_path / "report1.sqlite-wal").write_bytes(b"x" * 100)
    assert notes(ingest([tmp_path / "report1.sqlite"]))["log_not_read"] == 1


def test_names_of_files_with_signs_of_urls(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=rw#x%20 b.sqlite"
    shutil.copy(current(tmp_path / "y.sqlite"), path)
    assert count(ingest([path]), "device_event") == 9
    assert [one.format.name for one in find_files([path]) if one.format] == [NSIGHT]


VALUE = st.one_of(
    st.integers(-5, 60), st.none(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=3), st.floats(allow_nan=True), st.binary(max_size=3)
)  # fmt: skip


@given(
    st.lists(st.tuples(VALUE, VALUE, st.sampled_from([P, Q, None, "x"]), st.sampled_from([0, 1, None, -3]), st.integers(0, 9)), max_size=12)
)
def test_any_rows_are_stored_or_counted(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]) -> None:
    """Compare the number and times of events with plain Python; the rest is counted."""
    kernels = [kernel(start, end, name, process=process, device=device) for start, end, process, device, name in rows]
    kernels.append(kernel(100, 200))
    path = write(tmp_path_factory.mktemp("any") / "x.sqlite", {**session(), "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, kernels)})
    store, registry, placement = _parts()
    read_export(store, registry, placement, path, 0)
    expected = []
    for start, end, *_ in kernels:
        is_valid = type(start) is int and type(end) is int
        if is_valid and (start, end) != (0, 0) and abs(start) <= 2**61 and abs(end) <= 2**61 and 0 <= end - start <= 7 * DAY:
            expected.append((EPOCH + start, end - start))
    actual = store.frame("SELECT start_ns, duration_ns FROM device_event ORDER BY ALL").rows()
    assert actual == sorted(expected)
    assert len(actual) + sum(n for code, n in notes(store).items() if code in NOT_STORED) == len(kernels)
