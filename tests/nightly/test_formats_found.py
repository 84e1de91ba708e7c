"""A night finds and reads a run of every kind of files that `postrun report` reads, also of each kind alone."""

from __future__ import annotations

import cProfile
import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from call_nightly import told

pytestmark = pytest.mark.slow

AT = 1_772_531_540
WINDOW = "train-9-stepstart-1772531540000000.0_train-9-stepend-1772531540500000.0"
TRACE = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": AT * 1e6 + 5 * k, "dur": 4} for k in range(3)]
TREE = {
    "start_time": float(AT), "duration": 1.5, "sample_count": 3, "root_frame": {
        "function": "main", "file_path_short": "a.py", "line_no": 1, "time": 1.5, "children": [],
    },
}  # fmt: skip


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _compressed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


def _dump(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    profile = cProfile.Profile()
    profile.runcall(sorted, [2, 1])
    profile.dump_stats(path)


def _export(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value)")
        connection.execute("INSERT INTO StringIds VALUES (1, 'gemm')")
        columns = "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, shortName"
        connection.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
        connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (2000, 5000, 0, 1, 7, 11, 16777216, 1, 1)")
    connection.close()


def _smi(path: Path) -> None:
    _text(path, "timestamp, index, utilization.gpu [%]\n" + "".join(f"2026/03/03 09:52:2{k}.000, 0, {10 * k} %\n" for k in range(4)))


def _dmon(path: Path) -> None:
    _text(path, "#Date Time gpu sm mem\n#YYYYMMDD HH:MM:SS Idx % %\n" + "".join(f"20260303 09:52:2{k} 0 {10 * k} 5\n" for k in range(4)))


def _dcgm(path: Path) -> None:
    _text(path, "timestamp,gpu,DCGM_FI_DEV_GPU_UTIL\n" + "".join(f"{AT + k},0,{10 * k}\n" for k in range(4)))


def _trace(path: Path) -> None:
    _text(path, json.dumps({"schemaVersion": 1, "traceEvents": TRACE}))


def _tensorflow(path: Path) -> None:
    events = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/host:CPU"}},
        {"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "name": "MatMul:MatMul"},
    ]
    _compressed(path, json.dumps({"traceEvents": events}))


def _metrics(path: Path) -> None:
    line = {"Type": "gpu", "Name": "gpu0", "Dimension": "GPUUtilization", "Value": 50.0, "NodeId": "algo-1", "Timestamp": float(AT)}
    _compressed(path, json.dumps(line) + "\n")


def _horovod(path: Path) -> None:
    _text(path, json.dumps([{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "pid": 1, "ts": 1}, {"ph": "E", "pid": 1, "ts": 5}]))


# Run -> the one file of it, by what makes it, and the format that its report names.
ALONE: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "hosted-cprofile": (f"framework/pytorch/cprofile/7-algo-1/{WINDOW}/python_stats", _dump, "cProfile result"),
    "hosted-pyinstrument": (
        f"framework/pytorch/pyinstrument/7-algo-1/{WINDOW}/python_stats.json", lambda path: _text(path, json.dumps(TREE)),
        "Pyinstrument result",
    ),
    "hosted-metrics": ("system/incremental/2026030309/1772531520.algo-1.json.gz", _metrics, "hosted system metrics"),
    "prof": ("rank0/main.prof", _dump, "cProfile result"),
    "pstats": ("main.pstats", _dump, "cProfile result"),
    "session": ("s.pyisession", lambda path: _text(path, json.dumps(TREE)), "Pyinstrument result"),
    "renderer": ("anything.json", lambda path: _text(path, json.dumps(TREE)), "Pyinstrument result"),
    "of-nsys": ("nsys/report1.sqlite", _export, "Nsight Systems export"),
    "nsys-other": ("any.sqlite", _export, "Nsight Systems export"),
    "tensorflow": ("plugins/profile/2026_03_03/host.trace.json.gz", _tensorflow, "TensorFlow trace"),
    "of-kineto": ("profile_0.json", _trace, "PyTorch profiler trace"),
    "of-smi": ("logs/node-3/nvidia-smi.csv", _smi, "nvidia-smi log"),
    "dmon": ("nvidia-smi-dmon.node-3.log", _dmon, "nvidia-smi log"),
    "of-dcgm": ("gpu_metrics.csv", _dcgm, "DCGM log"),
    "horovod": ("horovod_timeline", _horovod, "hosted framework timeline"),
}  # fmt: skip
NONE: dict[str, str] = {"other-prof": "cpu.prof", "other-csv": "gpu_prices.csv", "other-sqlite": "cache.sqlite"}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    folder = tmp_path_factory.mktemp("night")
    for run, (path, make, _) in ALONE.items():
        make(folder / "in" / run / path)
    for run, path in NONE.items():
        _text(folder / "in" / run / path, "name,gpu,price\nA100,1,2\n")
    _trace(folder / "in" / "together" / "rank0" / "main.trace.json")
    _smi(folder / "in" / "together" / "logs" / "nvidia-smi.log")
    _dump(folder / "in" / "together" / "rank0" / "main.prof")
    _export(folder / "in" / "together" / "nsys" / "report1.sqlite")
    done = told(folder / "in", "--out", folder / "out", "--settle", "0", "--format", "json", "--engine", "none")
    return folder / "out", done


def _formats(out: Path, run: str) -> list[str]:
    row = json.loads((out / "runs" / run / "done.json").read_text())
    report = json.loads((out / row["folder"] / "report.json").read_text())
    return sorted(one["format"] for one in report["run"]["sources"] if one["events"])


def test_every_run_is_found_and_nothing_else(night: tuple[Path, dict[str, object]]) -> None:
    out, done = night
    assert done["failed"] == []
    ids = pl.read_parquet(out / "index.parquet")["id"].to_list()
    assert sorted(ids) == sorted([*ALONE, "together"])


@pytest.mark.parametrize("run", list(ALONE))
def test_a_run_of_one_kind_of_files_is_reported(night: tuple[Path, dict[str, object]], run: str) -> None:
    assert _formats(night[0], run) == [ALONE[run][2]]


@pytest.mark.parametrize(
    ("run", "mean"), [("of-smi", 15.0), ("dmon", 15.0), ("of-dcgm", 15.0), ("hosted-metrics", 50.0), ("of-kineto", None)]
)
def test_the_mean_utilization_is_in_the_index(night: tuple[Path, dict[str, object]], run: str, mean: float | None) -> None:
    column = pl.read_parquet(night[0] / "index.parquet").filter(pl.col("id") == run)["gpu_utilization_percent"]
    assert column.to_list() == [mean]
    (row,) = [one for one in json.loads((night[0] / "index.json").read_text())["runs"] if one["id"] == run]
    assert row.get("gpu_utilization_percent") == mean


def test_files_of_several_kinds_are_one_run(night: tuple[Path, dict[str, object]]) -> None:
    assert _formats(night[0], "together") == ["Nsight Systems export", "PyTorch profiler trace", "cProfile result", "nvidia-smi log"]
