"""Contents of the golden file of version 1.1, tests/native/golden/v1_1.prt: some of everything that is recorded of GPUs, with its rows.

The clock runs at two ticks a nanosecond, so every row is exact to the nanosecond. ``expected`` is what a reader must return,
``golden_gpu`` writes the file.
"""

from __future__ import annotations

from typing import Any

from postrun.native import _native
from prt_reader import MISSING
from prt_writer import PrtWriter

START = 1_700_000_000_000_000_000
SECOND = 10**9
NAMES = [
    "_Z6kernelPfi", "sgemm_128x64", "cudaLaunchKernel_v7000", "cuLaunchKernel", "cudaGraphLaunch_v10000", "cudaStreamSynchronize_v3020",
    "cudaMemcpyAsync_v3020", "cudaMalloc_v3020", "step", "gpu_utilization", "gpu_memory_used_percent", "gpu_power", "gpu_sm_clock",
    "gpu_throttle_reasons",
]  # fmt: skip
META = {
    "cuda.0.uuid": "GPU-0000000000000000000000000000000b", "cuda.0.name": "NVIDIA H100 80GB HBM3", "cuda.0.memory_bytes": "85520809984",
    "cuda.0.sm_count": "132", "cuda.0.compute_capability": "9.0", "gpu.count": "2",
    "gpu.0.uuid": "GPU-0000000a-0000-0000-0000-000000000000",
    "gpu.1.uuid": "GPU-00000000-0000-0000-0000-00000000000b", "gpu.0.name": "NVIDIA H100 80GB HBM3",
    "gpu.1.name": "NVIDIA H100 80GB HBM3", "gpu.0.visible": "0", "gpu.1.visible": "1", "gpu.1.visible_index": "0", "cupti.version": "24",
    "gpu.window.0": f"{START + 1_000_000} {START + 5_000_000}", "gpu.window.1": f"{START + SECOND}",
}  # fmt: skip
CLOCK = [(0, SECOND, START), (2 * SECOND, 2 * SECOND, START + SECOND), (4 * SECOND, 3 * SECOND, START + 2 * SECOND)]

# By table: the columns of a row, then rows. Times in ns after START, names as numbers of NAMES from 1, None for a missing value.
_COMMON = ("name", "start_ns", "duration_ns", "device", "context", "stream", "correlation")
_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_memory", "graph_node")
_LAST = 2**32 - 1
TABLES: dict[str, tuple[tuple[str, ...], list[tuple[int | float | None, ...]]]] = {
    "annotation": (
        ("name", "start_ns", "duration_ns", "value", "depth", "flags"),
        [(9, 1_000_000, 3_000_000, 10, 0, 0), (9, SECOND, 2_000_000, 11, 0, 2), (9, SECOND + 4_000_000, 600_000, None, 0, 3)],
    ),
    "api": (
        ("name", "start_ns", "duration_ns", "correlation", "kind", "tid"),
        [
            (3, 1_100_000, 8_000, 101, 0, 4711), (4, 1_102_000, 5_000, 101, 0, 4711), (7, 1_200_000, 6_000, 102, 0, 4711),
            (5, 1_300_000, 20_000, 103, 0, 4712), (6, 1_400_000, 1_600_000, 104, 1, 4711), (8, 3_200_000, 0, 105, 2, None),
            (3, SECOND + 10_000, 4_000, 1, 0, 4711), (3, SECOND + 20_000, 4_000, _LAST, 0, 4711),
        ],
    ),
    "kernel": (
        (*_COMMON, *_SHAPE),
        [  # as the tracer gives them: in no order
            (2, 1_900_000, 400_000, 0, 1, 13, 103, 64, 2, 1, 256, 1, 1, 96, 49_152, 2**32 + 6),
            (1, 1_500_000, 300_000, 0, 1, 13, 103, 132, 1, 1, 1024, 1, 1, 40, 0, 2**32 + 5),
            (1, 1_150_000, 20_000, 0, 1, 7, 101, 2**31 - 1, 65_535, 65_535, 32, 4, 8, 255, 232_448, 0),
            (None, SECOND + 30_000, 0, 0, 1, 7, _LAST, 1, 1, 1, 1, 1, 1, 16, 0, 0),
            (2, SECOND + 16_000, 1_000_000, 0, 1, 7, 1, 1, 1, 1, 1, 1, 1, 16, 0, None),
        ],
    ),
    "memcpy": (
        (*_COMMON, "copy_kind", "bytes", "pageable"),
        [
            (None, 1_250_000, 100_000, 0, 1, 7, 102, 1, 2_500_000, 0), (None, 2_400_000, 50_000, 0, 1, 7, 106, 2, 4, 1),
            (None, 2_460_000, 2_000, 0, 1, 7, 107, 8, 2**40, 0), (None, 2_470_000, 200_000, 0, 1, 20, 108, 10, 1_000_000, None),
            (None, 2_800_000, 10, 0, 1, 20, 0, 9, 0, 1),
        ],
    ),
    "memset": ((*_COMMON, "bytes"), [(None, 2_700_000, 4_000, 0, 1, 7, 109, 8_192)]),
    "sync": (
        (*_COMMON, "type"),
        [
            (None, 1_410_000, 1_580_000, 0, 1, 7, 104, 3), (None, 3_000_000, 2_000, -1, 9, -1, 110, 4),
            (None, 3_010_000, 2_000, 0, 1, 13, 111, 2), (None, 3_020_000, 0, 0, 1, -1, 112, 1),
        ],
    ),
    "metric": (
        ("metric", "unit", "time_ns", "value"),
        [
            (10, 0, 0, 0.0), (10, 1, 0, 90.0), (10, 0, SECOND, 2.0), (10, 1, SECOND, 50.0),
            (11, 1, 0, 25.5), (11, 1, SECOND, 75.5), (12, 1, 0, 123.456), (12, 1, SECOND, 699.9), (13, 1, 0, 1980.0),
            (13, 1, SECOND, 1200.0), (14, 1, 0, 0.0), (14, 1, SECOND, 36.0), (14, 1, 2 * SECOND, 0.0),
        ],
    ),
    "loss": (
        ("source", "reason", "count", "first_ns", "last_ns"), [(0, 5, 1_000, 4_000_000, 4_500_000), (0, 6, 7, SECOND, 2 * SECOND)]
    ),
    "external": (("correlation", "kind", "id"), [(101, 3, 2**40 + 1), (103, 1, 0), (_LAST, 5, 2**63 - 1)]),
}  # fmt: skip
_NUMBERS = {
    "annotation": range(1, 7), "api": range(1, 7), "kernel": range(1, 17), "memcpy": range(1, 11), "memset": (*range(1, 8), 9),
    "sync": range(1, 9), "metric": range(1, 5), "loss": range(1, 6), "external": range(1, 4),
}  # fmt: skip
_TIMES = {"start_ns", "time_ns", "first_ns", "last_ns"}


def expected() -> dict[str, list[dict[str, Any]]]:
    """The rows of every table but those of the prelude, as a reader gives them back."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for table, (columns, rows) in TABLES.items():
        tables[table] = [dict(zip(columns, row, strict=True)) for row in rows]
        for row in tables[table]:
            row |= {column: START + row[column] for column in columns if column in _TIMES}
            row |= {column: row[column] and NAMES[row[column] - 1] for column in columns if column in ("name", "metric")}
            row |= {"source": 1} if table == "annotation" else {}
    return tables


def golden_gpu() -> bytes:
    """Return the file, except for encodings that a later version may improve."""
    writer = PrtWriter()
    writer.parts = [_native.write_trace_header(bytes(range(16, 32)), 4711, 42, 1, START)]
    writer.prelude(NAMES, CLOCK, 2e9)
    writer.add("meta", {1: list(META), 2: list(META.values())})
    writer.add("process", {1: [4711], 2: [42], 3: [START], 4: ["python train.py"], 5: ["h1"], 6: [0], 7: [0], 8: [1]})
    writer.add("thread", {1: [1], 2: [4711], 3: ["MainThread"]})
    count = 0
    for table, (columns, rows) in TABLES.items():
        numbers = dict(zip(columns, _NUMBERS[table], strict=True))
        values = {numbers[column]: [_stored(column, row[at]) for row in rows] for at, column in enumerate(columns)}
        writer.add(table, values, source=1 if table == "annotation" else 0)
        count += len(rows)
    return writer.end(count).data()


def _stored(column: str, value: float | None) -> int | float:
    if value is None:
        return 0 if column in ("name", "metric") else MISSING
    return int(value) * 2 if column in _TIMES or column == "duration_ns" else value
