"""Notes about GPUs that a log and a trace may number differently (CUDA_VISIBLE_DEVICES)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from postrun.ingest import ingest
from postrun.ingest.store import Store

BASE = 1_700_000_000
NAME = "NVIDIA A100-SXM4-40GB"
Load = Callable[[int], int]  # utilization in percent by the second since the start of the trace


def busy(second: int) -> int:
    """Return the load of the trace: work from 0 to 20 s and from 30 to 60 s."""
    return 80 if 0 < second <= 20 or 30 < second <= 60 else 0


def idle(second: int) -> int:
    return 0


def write(folder: Path, gpus: dict[int, Load], *, devices: tuple[int, ...] = (0,), shift: int = 0, zoned: bool = False) -> Path:
    """Write a trace on ``devices`` and a log of ``gpus``, 10 s longer on each side."""
    kernels = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": device, "tid": 7, "ts": second * 1e6, "dur": 8e5,
         "args": {"device": device, "stream": 7}}
        for device in devices
        for second in (*range(20), *range(30, 60))
    ]  # fmt: skip
    known = [{"id": device, "name": NAME} for device in devices]
    trace = {"host_name": "n1", "baseTimeNanoseconds": BASE * 10**9, "deviceProperties": known, "traceEvents": kernels}
    folder.mkdir(exist_ok=True)
    (folder / "trace.json").write_text(json.dumps(trace))
    lines = ["timestamp,gpu,Hostname,UUID,DCGM_FI_DEV_GPU_UTIL" if zoned else "timestamp, index, uuid, name, utilization.gpu [%]"]
    for second in range(-10, 71):
        at = datetime.fromtimestamp(BASE + second + shift, UTC)
        for index, load in gpus.items():
            uuid = f"GPU-{index:08}-0000-0000-0000-00000000000a"
            if zoned:
                lines.append(f"{BASE + second},{index},n1,{uuid},{load(second)}")
            else:
                lines.append(f"{at:%Y/%m/%d %H:%M:%S}.000, {index}, {uuid}, {NAME}, {load(second)} %")
    (folder / ("dcgm.csv" if zoned else "nvidia-smi.n1.csv")).write_text("\n".join(lines) + "\n")
    return folder


def means(store: Store) -> dict[int, float]:
    """Return the samples of the utilization by GPU."""
    query = "SELECT unit, avg(value) FROM sample WHERE metric = 'gpu_utilization' GROUP BY 1 ORDER BY 1"
    return {unit: round(mean, 3) for unit, mean in store.frame(query).rows()}


def noted(store: Store) -> list[tuple[str, str, str]]:
    query = "SELECT severity::VARCHAR, code, message FROM ingest_note WHERE code = 'device_contradicted'"
    return [(severity, code, text) for severity, code, text in store.frame(query).rows()]


MEAN = round(80 * 50 / 81, 3)  # 50 of 81 samples are 80%


@pytest.mark.parametrize("zoned", [False, True])
@pytest.mark.parametrize("others", [{}, {1: idle}, {1: busy}, {1: idle, 2: busy}])
def test_a_gpu_with_work_that_the_log_has_idle_keeps_its_number_with_a_warning(
    tmp_path: Path, others: dict[int, Load], zoned: bool
) -> None:
    with ingest([write(tmp_path / "run", {0: idle, **others}, zoned=zoned)]) as store:
        assert means(store) == {0: 0, **{unit: MEAN if load is busy else 0 for unit, load in others.items()}}
        ((severity, code, text),) = noted(store)
        assert (severity, code) == ("warning", "device_contradicted")
        assert "The trace has work on GPU 0 of n1, and the log has that GPU at 0%" in text
        assert "CUDA_VISIBLE_DEVICES" in text
        assert "Samples keep the number of the log." in text


@pytest.mark.parametrize("gpus", [{0: busy, 1: idle}, {0: busy, 1: busy}, {0: lambda second: 2, 1: busy}, {2: busy}])
def test_gpus_that_do_not_contradict_leave_no_note(tmp_path: Path, gpus: dict[int, Load]) -> None:
    with ingest([write(tmp_path / "run", gpus)]) as store:
        assert sorted(means(store)) == sorted(gpus)
        assert noted(store) == []


def test_a_log_of_another_time_with_no_busy_gpu_says_nothing(tmp_path: Path) -> None:
    with ingest([write(tmp_path / "run", {0: idle, 1: idle}, shift=7200)]) as store:
        assert noted(store) == []
        assert means(store) == {0: 0, 1: 0}
