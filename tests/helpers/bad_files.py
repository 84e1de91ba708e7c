"""Mutated input files: a well-formed small file of each format -> the same file with odd values, members, cells or bytes.

Every mutation follows from a ``random.Random``, so that a seed gives the same file again.
"""

from __future__ import annotations

import gzip
import json
import marshal
import random
import re
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import prt_reader
from prt_writer import PrtWriter

US: Final = 1_704_067_200_000_000  # Start of every file, in microseconds since the Unix epoch
HUGE: Final = 99_999_999_999_999_999_999_999_999
TOKENS: Final = (
    str(HUGE), str(-HUGE), str(2**63), str(2**63 - 1), str(-(2**63)), str(-(2**63) - 1), str(2**64), str(2**62), str(2**61), str(2**53 + 1),
    str(2**31), str(2**32), str(2**127), "-1", "0", "-0.0", "1e400", "-1e400", "1e308", "1e18", "1.5", "NaN", "Infinity", "-Infinity",
    "null", "true", "false", '""', '"x"', "[]", "{}", "[[]]", '{"a": {"b": [1]}}', '"\\ud800"', '"\\u0000"', '"9223372036854775808"',
    '"-1"', '"1e400"', '"\\u202e"', '"NaN"', f'"{"n" * 3000}"', "[1, 2]", '{"name": 1}', "1" * 400, "[" * 200 + "]" * 200,
)  # fmt: skip
"""JSON values that a member may have instead of its own."""
CELLS: Final = (
    str(HUGE), str(-HUGE), str(2**63), str(-(2**63)), str(2**64), "-1", "1e400", "-1e400", "1e308", "nan", "inf", "-inf", "", " ", "N/A",
    "[N/A]", "x", '"', '""', "=1+1", "\x00", "\udcff", "9" * 400, "1e18 MiB", "999999999999 %", "0x10", "9999/12/31 23:59:59.999",
    "0001/01/01 00:00:00.000", "9999-12-31T23:59:59Z", "1969-12-31T23:59:59Z", "2024/02/30 00:00:00", "é", "\u2028", "1,5", "9" * 14,
)  # fmt: skip
Mutate = Callable[[random.Random], bytes]


# -- JSON ------------------------------------------------------------------------------------------------------------------


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    places = [path] if path else []
    for key, inner in items:
        places += _places(inner, (*path, key))
    return places


def json_text(document: Any, dice: random.Random) -> str:
    """The document with one to four values replaced, removed or given twice."""
    document = json.loads(json.dumps(document))
    raw: dict[str, str] = {}
    for number in range(dice.choice((1, 1, 2, 4))):
        places = _places(document)
        if not places:
            break
        *above, last = dice.choice(places)
        inside = document
        for key in above:
            inside = inside[key]
        what = dice.random()
        if what < 0.75:
            inside[last] = f"@{number}@"
            raw[f"@{number}@"] = dice.choice(TOKENS)
        elif what < 0.85:
            del inside[last]
        elif isinstance(inside, dict):
            inside[f"@{number}@"] = inside[last]
            raw[f"@{number}@"] = json.dumps(str(last))
        else:
            inside.insert(last, inside[last])
    return re.sub(r'"(@\d@)"', lambda found: raw.get(found[1], found[0]), json.dumps(document))


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Some bytes changed, or the end missing."""
    changed = bytearray(data)
    if not changed:
        return data
    if dice.random() < 0.3:
        return bytes(changed[: dice.randrange(len(changed))])
    for _ in range(dice.choice((1, 2, 8))):
        changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


def _as_json(document: Any, dice: random.Random, *, lines: bool = False) -> bytes:
    if lines:
        text = "\n".join(json_text(line, dice) if dice.random() < 0.4 else json.dumps(line) for line in document) + "\n"
    else:
        text = json_text(document, dice)
    data = text.encode("utf-8", "surrogatepass")
    return damaged(data, dice) if dice.random() < 0.15 else data


# -- one document per format -----------------------------------------------------------------------------------------------


def _x(name: str, start: float, duration: float, pid: Any = 7, tid: Any = 7, cat: str | None = None, /, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": start, "dur": duration, **({"cat": cat} if cat else {}), "args": args}


KINETO: Final = {
    "schemaVersion": 1,
    "deviceProperties": [
        {"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85_000_000_000, "numSms": 132, "computeMajor": 9, "computeMinor": 0},
    ],
    "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2},
    "baseTimeNanoseconds": 0,
    "host_name": "bad-host",
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": US, "args": {"name": "python"}},
        {"ph": "M", "name": "process_sort_index", "pid": 7, "tid": 0, "ts": US, "args": {"sort_index": 7}},
        _x("ProfilerStep#3", US, 900, 7, 7, "user_annotation"),
        _x("aten::mm", US + 5, 80, 7, 7, "cpu_op", **{"External id": 3, "Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}),
        _x("cudaLaunchKernel", US + 10, 3, 7, 7, "cuda_runtime", **{"correlation": 5, "External id": 3}),
        _x("gemm_bad", US + 20, 50, 0, 7, "kernel", **{
            "device": 0, "context": 1, "stream": 7, "correlation": 5, "External id": 3, "grid": [1, 1, 1], "block": [128, 1, 1],
            "registers per thread": 32, "shared memory": 0, "queued": 0, "Collective name": "allreduce", "In msg nelems": 4,
            "Out msg nelems": 4, "Group size": 2, "dtype": "Float", "Process Group Ranks": "[0, 1]"}),
        _x("Memcpy HtoD (Pageable -> Device)", US + 100, 20, 0, 7, "gpu_memcpy", device=0, stream=7, correlation=6, bytes=4096),
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 7, "tid": 7, "ts": US + 130, "s": "t",
         "args": {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Addr": 1, "Total Allocated": 512, "Total Reserved": 1024}},
        {"ph": "s", "id": 5, "pid": 7, "tid": 7, "ts": US + 10, "cat": "ac2g", "name": "ac2g"},
        _x("Iteration Start: PyTorch Profiler", US, 0, "Traces", "Trace", "Trace"),
    ],
}  # fmt: skip
TIMELINE: Final = [
    {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": US}},
    {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Step:ModeKeys.TRAIN"}},
    {"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "gpu_functions-dev:0"}},
    _x("DataLoaderIterInitialize", 100, 50, 1, 5, pid=411, num_workers="4", pin_memory="False", thread_id=9),
    _x("Step:ModeKeys.TRAIN", 1000, 500, 1, 5, pid=411, step_num="3"),
    _x("kernel", 1000, 50, 2, 5, pid=411, step_num="3"),
    {"ph": "B", "name": "range", "ts": 1600, "pid": 1, "tid": 5},
    {"ph": "E", "ts": 1700, "pid": 1, "tid": 5, "args": {"step_num": 4}},
]
HOROVOD: Final = [
    {"ph": "i", "name": "CYCLE_START", "ts": 77_567_277, "s": "g"},
    {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "allreduce.weight"}},
    {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 77_567_300, "pid": 1},
    {"ph": "X", "name": "0", "ts": 77_567_320, "pid": 1, "dur": 0},
    {"ph": "E", "ts": 77_567_400, "pid": 1},
    {"ph": "B", "name": "ALLREDUCE", "ts": 77_567_410, "pid": 1},
    {"ph": "E", "ts": 77_567_900, "pid": 1, "args": {"dtype": "float32", "shape": "[128, 10]"}},
]
TENSORFLOW: Final = {
    "displayTimeUnit": "ns",
    "metadata": {"highres-ticks": True},
    "traceEvents": [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0 bad"}},
        {"ph": "M", "pid": 1, "tid": 14, "name": "thread_name", "args": {"name": "Stream #14(Compute)"}},
        {"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "/host:CPU"}},
        {"ph": "M", "pid": 2, "tid": 5, "name": "thread_name", "args": {"name": "tf_data"}},
        _x("train", 0.0, 1000.0, 2, 5, group_id="3", step_num="3"),
        _x("MatMul", 10.5, 100.0, 2, 5, long_name="MatMul", group_id="3", correlation_id="7"),
        _x("gemm_tf", 50.0, 300.0, 1, 14, group_id="3", correlation_id="7", kernel_details="regs:32 grid:1,1,1 block:128,1,1"),
        _x("MemcpyH2D", 400.0, 50.0, 1, 14, memcpy_details="kind_src:pageable size:1024 dest:0", correlation_id="8"),
    ],
}
_AT: Final = {"NodeId": "bad-host", "Timestamp": US / 1e6}
METRICS: Final = [
    {"Type": "cpu", "Name": "cpu0", "Dimension": "CPUUtilization", "Value": 62.5, **_AT},
    {"Type": "gpu", "Name": "gpu0", "Dimension": "GPUUtilization", "Value": 50, **_AT},
    {"Type": "memory", "Name": "MemoryUsedPercent", "Dimension": "", "Value": 9.5, **_AT},
    {"Type": "network", "Name": "ReceiveBytesPerSecond", "Dimension": "Algorithm", "Value": 3.5, **_AT},
]
JOB: Final = {
    "name": "run", "framework": "PyTorch 2.6", "instance_type": "8 x H100", "status": "completed",
    "hyperparameters": {"layers": 12, "lr": 0.1}, "labels": {"team": "a"}, "resources": ["a", "b"],
}  # fmt: skip
PYINSTRUMENT: Final = {
    "start_time": 1783656600.5, "duration": 2.0, "sample_count": 9, "cpu_time": 1.0, "program": "train.py",
    "root_frame": {"function": "main", "file_path": "/app/train.py", "file_path_short": "train.py", "line_no": 3, "time": 2.0, "children": [
        {"function": "step", "file_path": "/app/train.py", "line_no": 9, "time": 1.5, "children": []}]},
}  # fmt: skip
POSTRUN_JSON: Final = {"timer": "cpu_time", "rank": 3, "profiler": "cprofile"}
_SMI = (
    "timestamp, index, uuid, name, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB], power.draw [W]",
    "2024/01/01 00:00:00.123, 0, GPU-00000000-1111-2222-3333-444444444444, NVIDIA A100, 85 %, 40 %, 1000 MiB, 2000 MiB, 250.50 W",
    "2024/01/01 00:00:01.123, 0, GPU-00000000-1111-2222-3333-444444444444, NVIDIA A100, 86 %, 41 %, 1001 MiB, 2000 MiB, 251.50 W",
)
_DCGM = (
    "timestamp,gpu,UUID,Hostname,modelName,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_DEV_FB_USED,DCGM_FI_DEV_FB_FREE,DCGM_FI_PROF_SM_ACTIVE",
    "2024-01-01T00:00:00Z,0,GPU-00000000-1111-2222-3333-444444444444,n1,NVIDIA H100,98,1000,100,0.75",
    "2024-01-01T00:00:01Z,0,GPU-00000000-1111-2222-3333-444444444444,n1,NVIDIA H100,97,1001,99,0.5",
)


def _table(lines: tuple[str, ...], separator: str) -> Mutate:
    def mutated(dice: random.Random) -> bytes:
        rows = [line.split(separator) for line in lines]
        for _ in range(dice.choice((1, 2, 4))):
            row = dice.choice(rows if dice.random() < 0.2 else rows[1:])
            if dice.random() < 0.85:
                row[dice.randrange(len(row))] = dice.choice(CELLS)
            elif dice.random() < 0.5:
                row.append(dice.choice(CELLS))
            else:
                del row[dice.randrange(len(row))]
            if not row:
                row.append("")
        data = "\n".join(separator.join(row) for row in rows).encode("utf-8", "surrogateescape") + b"\n"
        return damaged(data, dice) if dice.random() < 0.15 else data

    return mutated


def _python_value(dice: random.Random) -> Any:
    numbers = (HUGE, -HUGE, 2**63, -(2**63), 2**31, -1, 0, 1e308, float("nan"), float("inf"), 10**500, True)
    return dice.choice((*numbers, "x", b"x", None, (), {}, "\x00"))


def _pstats(dice: random.Random) -> bytes:
    leaf, caller = ["/app/train.py", 7, "leaf"], ["/app/train.py", 3, "caller"]
    rows = [[caller, [1, 1, 0.25, 1.0]], [leaf, [2, 5, 0.5, 0.75]]]
    called = [2, 2, 0.5, 0.75]
    for _ in range(dice.choice((1, 2))):
        target = dice.choice([leaf, caller, rows[0][1], rows[1][1], called])
        target[dice.randrange(len(target))] = _python_value(dice)
    try:
        stats = {tuple(caller): (*rows[0][1], {}), tuple(leaf): (*rows[1][1], {tuple(caller): tuple(called)})}
    except TypeError:  # a key that cannot be hashed
        stats = {}
    data = marshal.dumps(stats)
    return damaged(data, dice) if dice.random() < 0.2 else data


def _prt(dice: random.Random) -> bytes:
    none = prt_reader.MISSING
    odd = (none, -1, 0, 2**62, 2**63 - 1, -(2**63) + 1, 2**53, 2**31, 2**32, US * 1000, 10**12)
    tables: dict[str, dict[int, list[Any]]] = {
        "process": {1: [4711], 2: [42], 3: [US * 1000], 4: ["python t.py"], 5: ["h1"], 6: [3], 7: [-1], 8: [8]},
        "thread": {1: [1, 2], 2: [4711, 4712], 3: ["MainThread", ""]},
        "annotation": {1: [1, 1, 2], 2: [10, 2000, 4000], 3: [100, 100, 100], 4: [none, 1, 2], 5: [1, 1, 1], 6: [0, 0, 1]},
        "counter": {1: [4, 4], 2: [10, 100], 3: [0.25, 1 / 3]},
        "api": {1: [2, 2], 2: [100, 300], 3: [50, 50], 4: [1, 2], 5: [0, 1], 6: [4711, 4712]},
        "kernel": {1: [3, 2], 2: [200, 5000], 3: [4000, 100], 4: [0, 1], 5: [1, 1], 6: [7, 20], 7: [1, 2],
                   **{number: [number, 1] for number in range(8, 16)}, 16: [none, 0]},
        "memcpy": {1: [0, 0], 2: [200, 5000], 3: [4000, 100], 4: [0, 1], 5: [1, 1], 6: [7, 20], 7: [1, 2], 8: [1, 2], 9: [4, 8],
                   10: [0, 1]},
        "sync": {1: [0, 0], 2: [200, 5000], 3: [4000, 100], 4: [0, 1], 5: [1, 1], 6: [7, 20], 7: [1, 2], 8: [1, 2]},
        "metric": {1: [5, 5], 2: [-1, 0], 3: [0, 100], 4: [50.5, 0.1]},
        "loss": {1: [1, 0], 2: [1, 2], 3: [12, 13], 4: [5, 10], 5: [6, 30]},
    }  # fmt: skip
    meta = {"job.command": "python t.py", "job.started_ns": str(US * 1000), "job.ended_ns": str(US * 1000 + 10**9), "job.exit_code": "0",
            "job.memory_bytes": str(2**40), "param.lr": "0.1", "device.0.memory_bytes": str(2**36), "device.0.name": "H100",
            "device.0.sm_count": "132", "job.pid": "42"}  # fmt: skip
    for _ in range(dice.choice((1, 2, 4))):
        if dice.random() < 0.25:
            meta[dice.choice(list(meta))] = dice.choice(CELLS).encode("utf-8", "replace").decode()
            continue
        columns = tables[dice.choice(list(tables))]
        column = columns[dice.choice(list(columns))]
        row = dice.randrange(len(column))
        if isinstance(column[row], str):
            column[row] = dice.choice(CELLS).encode("utf-8", "replace").decode()
        elif isinstance(column[row], float):
            column[row] = dice.choice((float("nan"), float("inf"), -1e308, 1e308, -1.0))
        else:
            column[row] = dice.choice(odd)
    ticks = dice.choice((1e9, 1e9, 1e9, 1e9, 1e-300, 1e300, 1.0))
    anchors = [(0, 0, US * 1000), (10**9, 10**9, US * 1000 + 10**9)]
    if dice.random() < 0.15:
        anchors[dice.randrange(2)] = tuple(dice.choice(odd) for _ in range(3))  # type: ignore[call-overload]
    writer = PrtWriter().prelude(["step", "forward", "kernel", "loss", "cpu_utilization"], anchors, ticks)
    writer.add("meta", {1: list(meta), 2: list(meta.values())})
    for name, columns in tables.items():
        writer.add(name, columns)  # type: ignore[arg-type]
    data = writer.end(62).data()
    return damaged(data, dice) if dice.random() < 0.1 else data


_P: Final = (1 << 48) | (77 << 24)
_NSYS: Final[dict[str, tuple[str, list[list[Any]]]]] = {
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs, utcTime", [[US * 1000, "x"]]),
    "TARGET_INFO_SYSTEM_ENV": ("globalVid, name, nameEnum, value", [[1 << 48, "Hostname", 619, "bad-host"], [1, "CpuCores", 1, "18"]]),
    "META_DATA_EXPORT": ("name, value", [["EXPORT_PRODUCT_VERSION", "2025.3.1.90"], ["EXPORT_SCHEMA_VERSION", "3.20.4"]]),
    "META_DATA_CAPTURE": ("name, value", [["PROCESS_0:COMMAND", "python"], ["PROCESS_0:ENVIRONMENT_VARIABLE", 'RANK="3"']]),
    "PROCESSES": ("globalPid, pid, name", [[_P, 77, "python"]]),
    "TARGET_INFO_GPU": (
        "id, name, uuid, smCount, totalMemory, computeMajor, computeMinor", [[0, "NVIDIA H100", "u0", 132, 80 << 30, 9, 0]]
    ),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId, cudaId, pid, uuid", [[0, 0, 77, "u0"]]),
    "TARGET_INFO_CUDA_CONTEXT_INFO": ("processId, deviceId, contextId", [[77, 0, 1]]),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, shortName, registersPerThread, gridX, gridY,"
        " gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, graphNodeId, mangledName",
        [[2000, 5000, 0, 1, 7, 11, _P, 1, 1, 32, 10, 2, 1, 128, 1, 1, 16, 1008, None, None],
         [6000, 7000, 0, 1, 7, 12, _P, 2, 2, 32, 10, 2, 1, 128, 1, 1, 16, 1008, 99, None]],
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, dstKind",
        [[100, 400, 0, 1, 7, 13, _P, 4096, 1, 0, 2]],
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start, end, eventClass, globalTid, correlationId, nameId, returnValue", [[1000, 1500, 0, _P | 77, 11, 3, 0]]
    ),
    "NVTX_EVENTS": (
        "start, end, eventType, rangeId, text, globalTid, textId, domainId",
        [[0, 9000, 59, None, "step_4", _P | 77, None, 0], [1000, 1900, 59, None, "aten::mm, seq = 5, op_id = 12", _P | 77, None, 0]],
    ),
    "GPU_METRICS": ("timestamp, typeId, metricId, value", [[1000, 0, 1, 50], [2000, 0, 1, 60]]),
    "TARGET_INFO_GPU_METRICS": ("typeId, sourceId, typeName, metricId, metricName", [[0, 0, "Hopper", 1, "SMs Active [Throughput %]"]]),
    "DIAGNOSTIC_EVENT": ("timestamp, timestampType, source, severity, text", [[0, 1, 1, 1, "12 CUDA events were lost"]]),
    "StringIds": ("id, value", [[1, "gemm_nsys"], [2, "void relu<float>(float*)"], [3, "cudaLaunchKernel_v7000"]]),
}  # fmt: skip


def _nsys(dice: random.Random) -> bytes:
    numbers = (2**63 - 1, -(2**63), 2**62, 2**61, 2**53, 2**32, 2**31, -1, 0, 1e308, float("inf"))
    odd = (None, *numbers, "x", b"\xff", "", "\x00", str(HUGE), "n" * 3000)
    tables = {name: (columns, [list(row) for row in rows]) for name, (columns, rows) in _NSYS.items()}
    for _ in range(dice.choice((1, 2, 4))):
        rows = tables[dice.choice(list(tables))][1]
        row = dice.choice(rows)
        row[dice.randrange(len(row))] = dice.choice(odd)
    if dice.random() < 0.1:
        del tables[dice.choice(list(tables))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sqlite"
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            for name, (columns, rows) in tables.items():
                names = [column.strip() for column in columns.split(",")]
                connection.execute(f"CREATE TABLE {name} ({', '.join(chr(34) + column + chr(34) for column in names)})")
                connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(names))})", rows)
        connection.close()
        data = path.read_bytes()
    return damaged(data, dice) if dice.random() < 0.1 else data


def _gz(mutate: Mutate) -> Mutate:
    def packed(dice: random.Random) -> bytes:
        data = gzip.compress(mutate(dice), 1, mtime=0)
        return damaged(data, dice) if dice.random() < 0.05 else data

    return packed


def _json(document: Any, *, lines: bool = False) -> Mutate:
    return lambda dice: _as_json(document, dice, lines=lines)


_STEP: Final = "train-9-stepstart-1783656600000001.5_train-9-stepend-1783656601000001"
_NUMBERS: Final = ("0", "1", str(2**31), str(2**63), "9" * 17, "9" * 18, "9" * 30, "0" * 18)


def _number(dice: random.Random, usual: str) -> str:
    return usual if dice.random() < 0.7 else dice.choice(_NUMBERS)


def place_of(kind: str, dice: random.Random) -> str:
    """Return the path of a file of the kind in its run, sometimes with odd numbers."""
    number = lambda usual: _number(dice, usual)  # noqa: E731 - short
    return {
        "kineto": lambda: f"kineto/bad-host_{number('7')}.{number('1704067200000')}.pt.trace.json",
        "kineto gz": lambda: f"kineto/rank{number('1')[:6]}.trace.json.gz",
        "timeline": lambda: (
            f"profiler-output/framework/pevents/2024010100/{number('1704067200')}_{number('411')}-bad-host_model_timeline.json"
        ),
        "horovod": lambda: "horovod_timeline.json",
        "tensorflow": lambda: (
            f"framework/tensorflow/detailed_profiling/2024010100/{number('5')}/plugins/profile/2024_01_01_00_00_00/bad-host.trace.json.gz"
        ),
        "metrics": lambda: f"profiler-output/system/incremental/2024010100/{number('1704067200')[:10]:0>10}.bad-host.json",
        "job": lambda: "job.json",
        "smi": lambda: "smi.csv",
        "dcgm": lambda: "dcgm.csv",
        "nsys": lambda: "report1.sqlite",
        "pstats": lambda: (
            f"framework/pytorch/cprofile/{number('1234')}-bad-host/train-{number('9')[:18]}-stepstart-1783656600000001.5"
            f"_train-9-stepend-{number('1783656601000001')[:18]}/python_stats"
        ),
        "pyinstrument": lambda: f"framework/pytorch/pyinstrument/{number('1234')}-bad-host/{_STEP}/python_stats.json",
        "facts": lambda: f"framework/pytorch/cprofile/1234-bad-host/{_STEP}/postrun.json",
        "prt": lambda: f"bad-host.{number('42')}.{number('1')}.prt",
        "end": lambda: "profiler-output/system/training_job_end.ts",
    }[kind]()


MUTATIONS: Final[dict[str, Mutate]] = {
    "kineto": _json(KINETO),
    "kineto gz": _gz(_json(KINETO)),
    "timeline": _json(TIMELINE),
    "horovod": _json(HOROVOD),
    "tensorflow": _gz(_json(TENSORFLOW)),
    "metrics": _json(METRICS, lines=True),
    "job": _json(JOB),
    "smi": _table(_SMI, ", "),
    "dcgm": _table(_DCGM, ","),
    "nsys": _nsys,
    "pstats": _pstats,
    "pyinstrument": _json(PYINSTRUMENT),
    "facts": _json(POSTRUN_JSON),
    "prt": _prt,
    "end": lambda dice: dice.choice((b"", b"x" * 1000, b"\x00", str(HUGE).encode())),
}
"""A mutated file of each kind."""


def write_bad_file(folder: Path, kind: str, seed: int) -> Path:
    """Write a mutated file of the kind, with the files that belong to it."""
    dice = random.Random(seed)
    path = folder / place_of(kind, dice)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(MUTATIONS[kind](dice))
    if kind == "facts":
        path.with_name("python_stats").write_bytes(marshal.dumps({("/a.py", 1, "f"): (1, 1, 0.25, 1.0, {})}))
    if kind == "tensorflow":
        (path.parents[3] / f"{_number(dice, '12')[:18]}-bad-host_{US}_{US + 10**6}.metadata").touch()
    return path


def write_good_file(folder: Path) -> Path:
    """Write a trace of 40 executions of ``good_kernel``, 5 us each, on its own node."""
    events = []
    for i in range(40):
        at = US + 1000 * i
        events.append(_x(f"ProfilerStep#{i}", at, 900, 17, 17, "user_annotation"))
        events.append(_x("cudaLaunchKernel", at + 10, 3, 17, 17, "cuda_runtime", correlation=i + 1))
        events.append(_x("good_kernel", at + 20, 5, 0, 7, "kernel", device=0, stream=7, correlation=i + 1, grid=[1, 1, 1]))
    document = {"schemaVersion": 1, "host_name": "good-host", "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}], "traceEvents": events}
    path = folder / "good" / "good-host_17.1704067200000.pt.trace.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path
