"""Tests for traces of other accelerators than GPUs of NVIDIA and AMD: their kernels, copies, launches and collectives are read.

The shapes of the events are those that Kineto's MTIA plug-in, the XPU plug-in and Gaudi's bridge write.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis import analyze
from postrun.ingest import ingest
from postrun.ingest.store import Store

START_US = 1_700_000_000_000_000
HOST_PID = 4242


def event(name: str, category: str, at_us: float, duration_us: float, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "ts": START_US + at_us, "dur": duration_us, "args": args}


def host(name: str, category: str, at_us: float, duration_us: float, **args: Any) -> dict[str, Any]:
    return event(name, category, at_us, duration_us, HOST_PID, HOST_PID, **args)


MTIA = [
    host("aten::linear", "cpu_op", 0, 30, **{"External id": 1}),
    host("runFunction - job_prep_and_submit_for_execution", "mtia_runtime", 5, 10, correlation=11),
    host("runFunction - job_prep_and_submit_for_execution", "mtia_runtime", 16, 10, correlation=12),
    host("hccl:all_reduce", "user_annotation", 28, 5, **{"Input Dims": [[64, 2]], "Input type": ["float"]}),
    host("runFunction - job_prep_and_submit_for_execution", "mtia_runtime", 29, 3, correlation=13),
    event("fc-dtype_Float", "mtia_ccp_events", 20, 40, 0, 3, device=0, stream=3, correlation=11),
    event("dma_request", "mtia_ccp_events", 60, 10, 0, 4, device=0, stream=4, correlation=12),
    event("hccl:all_reduce", "mtia_ccp_events", 75, 20, 0, 5, device=0, stream=5, correlation=13),
]
GAUDI = [
    host("aten::mm", "cpu_op", 0, 30, **{"External id": 1}),
    host("synLaunchWithExternalEvents", "hpu_op", 5, 10, correlation=11),
    host("Launch", "privateuse1_runtime", 16, 10, correlation=12),
    event("BatchGemm", "hpu_op", 20, 40, 0, 6000, **{"HW event name": "MMEH_WB", "correlation": 11}),
    event("fused_kernel_0x1_f32", "hpu_op", 60, 15, 0, 7000, **{"HW event name": "TPC_SPU_START_TO_SPU_HALT"}),
    event("DmaTranspose", "hpu_op", 80, 5, 0, 4000, **{"HW event name": "DBG_DMA_TRC_WR_DATA_LAST"}),
]
XPU = [
    host("aten::mm", "cpu_op", 0, 30, **{"External id": 1}),
    host("urEnqueueKernelLaunch", "xpu_runtime", 5, 10, correlation=11),
    host("urEnqueueUSMMemcpy", "xpu_driver", 16, 4, correlation=12),
    event("gemm_kernel", "kernel", 20, 40, 0, 1, device=0, stream=1, correlation=11),
    event("Memcpy M2D(Memory -> Device)", "gpu_memcpy", 61, 5, 0, 1, device=0, stream=1, correlation=12, bytes=4096),
    event("Memset", "xpu_memset", 70, 2, 0, 1, device=0, stream=1),
]


def load(folder: Path, events: list[dict[str, Any]]) -> Store:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    return ingest([path])


@pytest.mark.parametrize(
    ("events", "runs", "launches"),
    [
        (MTIA, [("kernel", "fc-dtype_Float", 40), ("memcpy", "dma_request", 10), ("kernel", "hccl:all_reduce", 20)], 3),
        (GAUDI, [("kernel", "BatchGemm", 40), ("kernel", "fused_kernel_0x1_f32", 15), ("memcpy", "DmaTranspose", 5)], 2),
        (XPU, [("kernel", "gemm_kernel", 40), ("memcpy", "Memcpy M2D(Memory -> Device)", 5), ("memset", "Memset", 2)], 2),
    ],
    ids=["MTIA", "Gaudi", "XPU"],
)
def test_device_work_and_launches(tmp_path: Path, events: list[dict[str, Any]], runs: list[tuple[str, str, int]], launches: int) -> None:
    store = load(tmp_path, events)
    assert store.frame("SELECT kind, text, duration_ns // 1000 FROM device_work ORDER BY start_ns").rows() == runs
    assert store.frame("SELECT count(*) FROM host_call WHERE kind = 'launch'").item() == launches
    assert store.frame("SELECT count(*) FROM ingest_note WHERE code LIKE 'category_not_read%'").item() == 0
    report = analyze(store)
    device = report.time_breakdown[0]
    assert device.busy_ns == sum(duration for _, _, duration in runs) * 1000
    assert report.launches.pairs > 0
    assert report.launches.absent is None


def test_kernels_of_mtia_say_type_and_collective(tmp_path: Path) -> None:
    store = load(tmp_path, MTIA)
    report = analyze(store)
    kernels = {kernel.name: (kernel.category, kernel.precision) for kernel in report.kernels}
    assert kernels == {"fc-dtype_Float": ("GEMM", "FP32"), "hccl:all_reduce": ("communication", "unknown")}
    assert [operation.count for operation in report.memory_operations] == [1]
    assert store.frame("SELECT operation, element_type, in_elements FROM collective").rows() == [("all_reduce", "float", 128)]
    assert report.time_breakdown[0].communication_ns == 20_000


def test_calls_of_gaudi_are_of_the_host(tmp_path: Path) -> None:
    store = load(tmp_path, GAUDI)
    calls = store.frame("SELECT text, kind::VARCHAR FROM host_call WHERE runtime ORDER BY start_ns").rows()
    assert calls == [("synLaunchWithExternalEvents", "launch"), ("Launch", "launch")]


@pytest.mark.parametrize(("name", "vendor"), [("Gaudi2", "Intel"), ("HL-225", "Intel"), ("MTIA v2", "Meta")])
def test_vendor(tmp_path: Path, name: str, vendor: str) -> None:
    path = tmp_path / "trace.json"
    members = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": name}], "traceEvents": GAUDI}
    path.write_text(json.dumps(members), encoding="utf-8")
    assert [device.vendor for device in analyze(ingest([path])).devices] == [vendor]
