"""Are samples of a log those of the GPU that the process used, where it numbered only some of the machine's (CUDA_VISIBLE_DEVICES)?"""

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
Load = Callable[[int], int]
"""Utilisation in percent by the second since the trace's begin."""


def busy(second: int) -> int:
    """As the trace has it: work from second 0 to 20 and from 30 to 60; the sample of a second is of the time before it."""
    return 80 if 0 < second <= 20 or 30 < second <= 60 else 0


def idle(second: int) -> int:
    return 0


def always(second: int) -> int:
    return 100


def write(folder: Path, gpus: dict[int, Load], *, devices: tuple[int, ...] = (0,), shift: int = 0, zoned: bool = False) -> Path:
    """A trace of a process on ``devices`` and a log of ``gpus``, from 10 s before it to 10 s after it."""
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
    """Of the utilisation, by GPU."""
    query = "SELECT unit, avg(value) FROM sample WHERE metric = 'gpu_utilization' GROUP BY 1 ORDER BY 1"
    return {unit: round(mean, 3) for unit, mean in store.frame(query).rows()}


def uuids(store: Store) -> dict[int, int | None]:
    """The log's number of each GPU, by its UUID."""
    rows = store.frame('SELECT "index", uuid FROM device ORDER BY 1').rows()
    return {index: None if uuid is None else int(uuid.split("-")[1]) for index, uuid in rows}


def told(store: Store) -> list[tuple[str, str, str]]:
    query = "SELECT severity::VARCHAR, code, message FROM ingest_note WHERE code IN ('device_renumbered', 'device_contradicted')"
    return [(severity, code, text) for severity, code, text in store.frame(query).rows()]


MEAN = round(80 * 50 / 81, 3)  # 50 of 81 samples are 80 %


@pytest.mark.parametrize("zoned", [False, True])
def test_the_only_busy_gpu_of_the_log_is_the_one_of_the_trace(tmp_path: Path, zoned: bool) -> None:
    with ingest([write(tmp_path / "run", {0: idle, 1: idle, 2: busy, 3: idle}, zoned=zoned)]) as store:
        assert means(store) == {0: MEAN, 1: 0, 2: 0, 3: 0}
        assert uuids(store) == {0: 2, 1: 1, 2: 0, 3: 3}
        ((severity, code, text),) = told(store)
        assert (severity, code) == ("info", "device_renumbered")
        assert "GPU 0 of the trace is GPU 2 of the log" in text
        assert "CUDA_VISIBLE_DEVICES" in text


def test_of_several_busy_gpus_it_is_the_one_that_follows_the_trace(tmp_path: Path) -> None:
    with ingest([write(tmp_path / "run", {0: idle, 1: always, 2: busy, 3: always})]) as store:
        assert means(store) == {0: MEAN, 1: 100, 2: 0, 3: 100}


@pytest.mark.parametrize(
    ("gpus", "how"),
    [({0: idle, 1: busy, 2: busy}, "2 others fit"), ({0: idle, 1: idle}, "no other one fits"), ({0: idle}, "no other one fits")],
)
def test_what_cannot_be_decided_is_kept_apart_with_a_warning(tmp_path: Path, gpus: dict[int, Load], how: str) -> None:
    with ingest([write(tmp_path / "run", gpus)]) as store:
        free = len(gpus)
        assert means(store) == {**{unit: MEAN if load is busy else 0 for unit, load in gpus.items() if unit}, free: 0}
        assert uuids(store) == {0: None, **{unit: unit for unit in gpus if unit}, free: 0}
        ((severity, code, text),) = told(store)
        assert (severity, code) == ("warning", "device_contradicted")
        assert "The trace has GPU 0 busy, the log has it at 0 %" in text
        assert f"cannot be told ({how})" in text
        assert f"GPU 0 of the log is shown as GPU {free}, apart from the process" in text


def test_gpus_of_other_processes_of_the_trace_are_not_taken_away(tmp_path: Path) -> None:
    """The trace has GPUs 0 and 1 busy, of the log's only GPU 1 is."""
    with ingest([write(tmp_path / "run", {0: idle, 1: busy}, devices=(0, 1))]) as store:
        assert means(store) == {1: MEAN, 2: 0}
        assert [code for _, code, _ in told(store)] == ["device_contradicted"]


@pytest.mark.parametrize("gpus", [{0: busy, 1: idle}, {0: busy, 1: busy}, {0: lambda second: 2, 1: busy}, {2: busy}])
def test_gpus_that_do_not_contradict_keep_their_numbers(tmp_path: Path, gpus: dict[int, Load]) -> None:
    with ingest([write(tmp_path / "run", gpus)]) as store:
        assert sorted(means(store)) == sorted(gpus)
        assert told(store) == []


def test_a_log_of_another_time_zone_is_told_by_the_only_gpu_that_was_busy(tmp_path: Path) -> None:
    with ingest([write(tmp_path / "run", {0: idle, 1: idle, 2: busy}, shift=7200)]) as store:
        assert means(store) == {0: MEAN, 1: 0, 2: 0}
        # With the right GPU the zone follows from the utilisation.
        assert store.frame("SELECT clock_offset_ns FROM source WHERE clock_offset_ns IS NOT NULL").item() == -7200 * 10**9


def test_a_log_of_another_time_with_no_busy_gpu_says_nothing(tmp_path: Path) -> None:
    with ingest([write(tmp_path / "run", {0: idle, 1: idle}, shift=7200)]) as store:
        assert told(store) == []
        assert means(store) == {0: 0, 1: 0}


def test_two_logs_of_one_machine_are_numbered_alike(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", {0: idle, 1: idle, 2: busy})
    lines = ["timestamp,gpu,Hostname,UUID,DCGM_FI_DEV_POWER_USAGE"]
    lines += [f"{BASE + second},{gpu},n1,GPU-{gpu:08}-0000-0000-0000-00000000000a,{100 + gpu}" for second in range(60) for gpu in range(3)]
    (folder / "dcgm.csv").write_text("\n".join(lines) + "\n")
    with ingest([folder]) as store:
        power = store.frame("SELECT DISTINCT unit, value FROM sample WHERE metric = 'gpu_power' ORDER BY 1").rows()
        assert power == [(0, 102), (1, 101), (2, 100)]
        assert uuids(store) == {0: 2, 1: 1, 2: 0}
        assert means(store) == {0: MEAN, 1: 0, 2: 0}
