"""The buffers that CUPTI fills: a buffer for each thread, as CUPTI 13 has by default, loses nothing and costs no new memory each second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import prt_reader
import pytest
from native_programs import Programs, call, files
from stub_libraries import launches

THREADS, LAUNCHES, ROUNDS = 64, 100, 4
GPU_LOST = 5


def run(programs: Programs, variant: str, folder: Path, **variables: str) -> tuple[dict[str, int], dict[str, list[dict[str, Any]]]]:
    variables |= {"POSTRUN_CAPTURE": "1", "POSTRUN_GPU": "1", "POSTRUN_DIR": str(folder), "STUB_THREAD_BUFFERS": "1"}
    output = call(programs.program("gpu_windows", variant), "launches", THREADS, ROUNDS, **launches(programs, variant), **variables)
    (file,) = files(folder)
    return output, prt_reader.read(file.read_bytes())


@pytest.mark.parametrize("variant", ["plain", "thread"])
def test_many_threads_lose_nothing(programs: Programs, tmp_path: Path, variant: str) -> None:
    output, tables = run(programs, variant, tmp_path)
    assert sorted(row["correlation"] for row in tables["kernel"]) == [*range(THREADS * LAUNCHES * ROUNDS)]
    assert tables["loss"] == []
    assert output["requests"] >= THREADS * ROUNDS


def test_buffers_are_used_again(programs: Programs, tmp_path: Path) -> None:
    """A launching thread writes into existing memory: new pages would cost faults."""
    output, _ = run(programs, "plain", tmp_path)
    assert output["faults"] < THREADS, "of the rounds after the first one, in which each thread fills seven pages"


def test_the_limit_holds(programs: Programs, tmp_path: Path) -> None:
    output, tables = run(programs, "plain", tmp_path, POSTRUN_GPU_MEMORY="8")
    (lost,) = {row["reason"] for row in tables["loss"]}
    assert lost == GPU_LOST
    kernels = len(tables["kernel"])
    assert 16 * LAUNCHES * ROUNDS <= kernels < THREADS * LAUNCHES * ROUNDS, "of 16 buffers of 512 KiB, some of which a flush has returned"
    assert sum(row["count"] for row in tables["loss"]) == output["lost"] == THREADS * LAUNCHES * ROUNDS - kernels
