"""NVTX ranges become annotations in a program without the recorder's API, with the vendor's own headers."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import cupti_headers
import pytest
from native_programs import Programs, environment, read


@pytest.mark.parametrize("variant", ["plain", "address", "thread"])
def test_ranges(programs: Programs, tmp_path: Path, variant: str) -> None:
    headers = cupti_headers.nvtx()
    library = programs.library(variant) / "libpostrun.so"
    program = tmp_path / "nvtx_ranges"
    source = programs.root / "tests" / "native" / "nvtx_ranges.c"
    programs.compile(variant, [source], program, "-isystem", str(headers))
    out = tmp_path / "out"
    variables = environment(NVTX_INJECTION64_PATH=str(library), POSTRUN_CAPTURE="1", POSTRUN_DIR=str(out))
    done = subprocess.run([program], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = read(out)["annotation"]
    assert Counter(row["name"] for row in rows if row["name"] != "deep") == {
        **{"outer": 1, "with a value": 1, "registered": 1, "wide é€😀": 1, None: 1, "across threads": 1, "on a thread": 1}
    }
    by_name = {row["name"]: row for row in rows}
    assert {name: by_name[name]["value"] for name in ("outer", "with a value", "registered")} == {
        **{"outer": None, "with a value": -7, "registered": 2**40}
    }
    assert [by_name[name]["depth"] for name in ("outer", "with a value", "registered")] == [0, 1, 2]
    assert by_name["with a value"]["start_ns"] < by_name["registered"]["start_ns"]
    assert by_name["across threads"]["source"] != by_name["on a thread"]["source"]
    assert [row["depth"] for row in sorted((row for row in rows if row["name"] == "deep"), key=lambda row: row["start_ns"])] == list(
        range(64)
    )


def test_nothing_is_recorded_without_a_session(programs: Programs, tmp_path: Path) -> None:
    headers = cupti_headers.nvtx()
    program = tmp_path / "nvtx_ranges"
    source = programs.root / "tests" / "native" / "nvtx_ranges.c"
    programs.compile("plain", [source], program, "-isystem", str(headers))
    variables = environment(NVTX_INJECTION64_PATH=str(programs.library("plain") / "libpostrun.so"))
    done = subprocess.run([program], env=variables, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not list(tmp_path.rglob("*.prt"))
