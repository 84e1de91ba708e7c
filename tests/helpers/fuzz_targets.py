"""Builds the fuzz targets of tests/native with sanitizers: by clang for libFuzzer, or with a main of their own by any compiler."""

from __future__ import annotations

from pathlib import Path

import c_build

TARGETS = {
    "trace_scan_fuzz": ["scan/columns", "scan/lexer", "scan/unit"],
    "trace_reader_fuzz": [f"reader/{name}" for name in ("reader", "reader_arrow", "trace_clock", "trace_columns", "varints")]
    + [f"format/{name}" for name in ("block", "crc32c", "zstd_loader")],
}
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fno-sanitize-recover=all"]


def build(root: Path, target: str, folder: Path, *, coverage: bool = False) -> Path:
    """Build the program in ``folder``, or skip. ``coverage``: with libFuzzer."""
    sources = [root / "tests" / "native" / f"{target}.c", *(root / "native" / "src" / f"{name}.c" for name in TARGETS[target])]
    flags = ["-fsanitize=address,undefined" + (",fuzzer" if coverage else ""), *(["-DPOSTRUN_LIBFUZZER"] if coverage else [])]
    c_build.build(sources, folder / target, *FLAGS, *flags, f"-I{root / 'native' / 'src'}", compiler="clang" if coverage else "cc")
    return folder / target
