"""A training on two GPUs as it would have been recorded, made of round numbers: every figure of its report can be worked out on paper.

Two ranks each see one GPU of the machine (by CUDA_VISIBLE_DEVICES), the recorder samples both. All steps of a rank are alike. Times of a
step are ns after its start; :func:`files` writes the recordings.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postrun.native import _native
from prt_reader import MISSING
from prt_writer import PrtWriter

START = 1_700_000_000_000_000_000
US, MS, SECOND = 10**3, 10**6, 10**9
LOOP = 2 * SECOND  # When the first step begins, after START
PERIOD, STEP = 100 * MS, 96 * MS
STEPS, ENDED = 20, 5 * SECOND
GEMM, NORM, REDUCE, ADAM = "gemm_bf16_128x128", "_Z10layer_normPfi", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "adam_step_fp32"
PARTS = (("data_loading", 0, 10 * MS), ("forward", 10 * MS, 30 * MS), ("backward", 40 * MS, 40 * MS), ("optimizer", 80 * MS, 15 * MS))
UUIDS = ("GPU-11111111-0000-0000-0000-0000000000aa", "GPU-22222222-0000-0000-0000-0000000000bb")
MODEL = "NVIDIA H100 80GB HBM3"
HTOD, DTOH = 1, 2

Row = dict[str, Any]


@dataclass
class Rank:
    """One process. ``rows``: of every table, times after START. ``device``: as the process counts. ``skew_ns``: of the GPU's clock."""

    rank: int
    steps: int = STEPS
    nvtx: bool = False
    skew_ns: int = 0
    recorded: range | None = None  # steps with device activity; None: all
    metadata: dict[str, str] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    correlation: int = 0

    def __post_init__(self) -> None:
        for step in range(self.steps):
            self.step(step, LOOP + step * PERIOD)

    @property
    def pid(self) -> int:
        return 4000 + self.rank

    def step(self, number: int, at: int) -> None:
        """The program's ranges, and what the step does on the GPU."""
        name, value = (f"step {number}", MISSING) if self.nvtx else ("step", number)
        for depth, (text, start, length) in enumerate([(name, 0, STEP), *PARTS]):
            numbers = {"value": value if depth == 0 else MISSING, "depth": min(depth, 1), "flags": 2 if self.nvtx and depth == 0 else 0}
            self.rows["annotation"].append({"name": text, "start": at + start, "duration": length, **numbers})
        if self.recorded is not None and number not in self.recorded:
            return
        # Host to device on stream 20, forward and backward on 7, the reduction on 21 while backward runs, the optimizer as a graph.
        launch = self.launch("cudaMemcpyAsync", at + 10 * MS, 10 * US)
        self.work("memcpy", at + 10_050 * US, 2 * MS, launch, stream=20, copy_kind=HTOD, bytes=50_000_000, pageable=0)
        launch = self.launch("cudaMemsetAsync", at + 10_030 * US, 5 * US)
        self.work("memset", at + 12_500 * US, 100 * US, launch, bytes=1_000_000)
        for i in range(10):
            launch = self.launch("cudaLaunchKernel_v7000", at + 10_100 * US + i * 20 * US, 8 * US)
            self.work("kernel", at + 13 * MS + i * 2_505 * US, 2_500 * US, launch, name=GEMM if i % 2 == 0 else NORM)
        for i in range(10):
            launch = self.launch("cudaLaunchKernel_v7000", at + 40_100 * US + i * 20 * US, 8 * US)
            self.work("kernel", at + 41 * MS + i * 3_005 * US, 3 * MS, launch, name=GEMM)
        launch = self.launch("cudaLaunchKernelExC", at + 40_500 * US, 10 * US)
        self.work("kernel", at + 60 * MS, (15 - 3 * self.rank) * MS, launch, stream=21, name=REDUCE)
        launch = self.launch("cudaGraphLaunch", at + 80 * MS, 30 * US)
        for node in range(3):
            self.work("kernel", at + 80_100 * US + node * MS, MS, launch, name=ADAM, graph_node=77 + node)
        launch = self.launch("cudaMemcpyAsync", at + 90 * MS, 20 * US)
        self.work("memcpy", at + 90_050 * US, 10 * US, launch, copy_kind=DTOH, bytes=4, pageable=1)
        launch = self.launch("cudaStreamSynchronize", at + 90_100 * US, 500 * US, kind=1)
        self.work("sync", at + 90_110 * US, 480 * US, launch, type=3, device=-1)

    def launch(self, name: str, start: int, length: int, kind: int = 0) -> int:
        self.correlation += 1
        self.rows["api"].append(
            {"name": name, "start": start, "duration": length, "correlation": self.correlation, "kind": kind, "tid": self.pid}
        )
        return self.correlation

    def work(self, table: str, start: int, length: int, correlation: int, *, stream: int = 7, device: int = 0, **more: Any) -> None:
        common = {"device": device, "context": 1, "stream": stream, "correlation": correlation}
        self.rows[table].append({"start": start + self.skew_ns, "duration": length, **common, **more})

    def data(self) -> bytes:
        facts = {"uuid": UUIDS[self.rank], "name": MODEL, "memory_bytes": str(80 * 2**30), "sm_count": "132", "compute_capability": "9.0"}
        seen = {f"cuda.0.{key}": value for key, value in facts.items()}
        metadata = {"cupti.version": "24", "cuda.driver_supports": "13.0"}
        return write(
            self.pid, 1, self.rank, "python train.py", seen | metadata | self.metadata, self.rows, first=LOOP - SECOND, last=ENDED - SECOND
        )


def recorder(samples: dict[str, list[tuple[int, int, float]]], **metadata: str) -> bytes:
    """Return the file of `postrun record` with samples (unit, time, value) by metric."""
    rows = {"metric": [{"metric": name, "unit": u, "time": at, "value": value} for name, some in samples.items() for u, at, value in some]}
    job = {
        "job.command": "python train.py", "job.started_ns": str(START), "job.ended_ns": str(START + ENDED), "job.exit_code": "0",
        "job.pid": "3999", "sample_ms": "500",
    }  # fmt: skip
    gpus = {f"gpu.{i}.{key}": value for i, uuid in enumerate(UUIDS) for key, value in {"uuid": uuid, "name": MODEL}.items()}
    gpus |= {f"gpu.{i}.memory_bytes": str(80 * 2**30) for i in range(2)}
    return write(3998, 1, -1, "postrun record", {**job, **gpus, "gpu.count": "2", **metadata}, rows, first=0, last=ENDED)


def write(
    pid: int, parent: int, rank: int, command: str, metadata: dict[str, str], rows: dict[str, list[Row]], *, first: int, last: int
) -> bytes:
    names = list(dict.fromkeys(row[key] for some in rows.values() for row in some for key in ("name", "metric") if key in row))
    writer = PrtWriter()
    writer.parts = [_native.write_trace_header(f"session {pid:08}".encode(), pid, parent, 1, START + first)]
    writer.prelude(names, [(at, at, START + at) for at in (first, (first + last) // 2, last)])
    writer.add("meta", {1: list(metadata), 2: list(metadata.values())})
    writer.add(
        "process", {1: [pid], 2: [parent], 3: [START + first], 4: [command], 5: ["h1"], 6: [rank], 7: [rank], 8: [-1 if rank < 0 else 2]}
    )
    writer.add("thread", {1: [1], 2: [pid], 3: ["MainThread"]})
    for table, columns in COLUMNS.items():
        for at in range(0, len(rows.get(table, ())), 4096):
            some = rows[table][at : at + 4096]
            values = {number: [_stored(row, column, names) for row in some] for number, column in columns.items()}
            writer.add(table, values, source=1 if table == "annotation" else 0)
    return writer.end(sum(map(len, rows.values()))).data()


_SPAN = {1: "name", 2: "start", 3: "duration"}
_COMMON = _SPAN | {4: "device", 5: "context", 6: "stream", 7: "correlation"}
COLUMNS: dict[str, dict[int, str]] = {
    "annotation": _SPAN | {4: "value", 5: "depth", 6: "flags"}, "api": _SPAN | {4: "correlation", 5: "kind", 6: "tid"},
    "kernel": _COMMON | dict.fromkeys((8, 9, 10), "grid") | dict.fromkeys((11, 12, 13), "block")
    | {14: "registers", 15: "shared", 16: "graph_node"},
    "memcpy": _COMMON | {8: "copy_kind", 9: "bytes", 10: "pageable"}, "memset": _COMMON | {9: "bytes"}, "sync": _COMMON | {8: "type"},
    "metric": {1: "metric", 2: "unit", 3: "time", 4: "value"},
}  # fmt: skip
_DEFAULTS = {"grid": 16, "block": 8, "registers": 64, "shared": 0, "graph_node": 0}


def _stored(row: Row, column: str, names: list[str]) -> Any:
    if column in ("name", "metric"):
        return names.index(row[column]) + 1 if column in row else 0
    return row.get(column, _DEFAULTS.get(column, MISSING))


def samples() -> dict[str, list[tuple[int, int, float]]]:
    """Return 2 samples/s for 5 s. GPU 0: 80%; GPU 1: 60%, and hot from 3 s to 4 s."""
    times = range(0, ENDED, SECOND // 2)
    loop = range(LOOP, LOOP + STEPS * PERIOD)
    hot = range(3 * SECOND, 4 * SECOND)
    pairs = [(gpu, at) for gpu in range(2) for at in times]
    return {
        "gpu_utilization": [(gpu, at, (80.0, 60.0)[gpu] if at in loop else 0.0) for gpu, at in pairs],
        "gpu_memory_used_percent": [(gpu, at, 75.0 if at in loop else 5.0) for gpu, at in pairs],
        "gpu_power": [(gpu, at, 650.0 if at in loop else 120.0) for gpu, at in pairs],
        "gpu_sm_clock": [(gpu, at, 1410.0 if gpu == 1 and at in hot else 1980.0) for gpu, at in pairs],
        "gpu_throttle_reasons": [(gpu, at, 64.0 if gpu == 1 and at in hot else 0.0) for gpu, at in pairs],
        "cpu_utilization": [(core, at, 90.0 if core == 0 else 20.0) for core in range(4) for at in times],
        "cpu_iowait": [(core, at, 0.0) for core in range(4) for at in times],
        "memory_used_percent": [(MISSING, at, 40.0) for at in times],
    }


def files(folder: Path, **options: Any) -> Path:
    """The recordings of both ranks and of the recorder. ``options``: of the ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(2):
        (folder / f"h1.{4000 + rank}.1.prt").write_bytes(Rank(rank, nvtx=rank == 1, **options).data())
    (folder / "h1.3998.1.prt").write_bytes(recorder(samples()))
    return folder
