"""Builds the fuzz targets of tests/native with sanitizers: by clang for libFuzzer, or with a main of their own by any compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TARGETS = {
    "trace_scan_fuzz": ["scan/columns", "scan/lexer", "scan/unit"],
    "trace_reader_fuzz": [f"reader/{name}" for name in ("reader", "reader_arrow", "trace_clock", "trace_columns", "varints")]
    + [f"format/{name}" for name in ("block", "crc32c", "zstd_loader")],
}
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fno-sanitize-recover=all"]


def build(root: Path, target: str, folder: Path, *, coverage: bool = False) -> Path:
    """The program in ``folder``. Skips if there is no compiler, or none with these sanitizers. ``coverage``: with libFuzzer."""
    compiler = shutil.which("clang" if coverage else "cc")
    if compiler is None:
        pytest.skip("no clang (apt-get install clang libclang-rt-dev)" if coverage else "no C compiler (cc)")
    sanitizers = "-fsanitize=address,undefined" + (",fuzzer" if coverage else "")
    sources = [root / "native" / "src" / f"{name}.c" for name in TARGETS[target]]
    command = [compiler, *FLAGS, sanitizers, *(["-DPOSTRUN_LIBFUZZER"] if coverage else []), f"-I{root / 'native' / 'src'}"]
    command += [str(root / "tests" / "native" / f"{target}.c"), *map(str, sources), "-o", str(folder / target), "-pthread", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    missing = ("cannot find", "No such file", "unsupported option") if coverage else ("cannot find",)
    if done.returncode and "sanitize" in done.stderr + " ".join(command) and any(words in done.stderr for words in missing):
        pytest.skip(f"the compiler has no such sanitizers: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    return folder / target
