"""Case 21: a CUPTI that does not fit, is none, or is missing never ends the program."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from . import checks
from .bench import Bench, Done, exit_name, tail

BROUGHT = "ACCEPT_CUPTI_LIBRARIES"  # paths of more libraries, with colons between
PLACES = ("/usr/local/cuda*/extras/CUPTI/lib64", "/usr/local/cuda*/targets/*/lib")
MOST = 8


def libraries(bench: Bench) -> None:
    garbage = bench.folder / "libcupti.so.13"
    garbage.write_bytes(b"\x7fELF" + b"garbage " * 512)
    tried = {"garbage": str(garbage), "missing": str(bench.folder / "none" / "libcupti.so.13"), "folder": str(bench.folder), "unset": ""}
    for number, path in enumerate(_libraries(bench)):
        tried[f"library{number}"] = path
    jobs: dict[str, Callable[[], Done]] = {
        name: lambda name=name, path=path: bench.workload(name, "counts", 10, expect=None, POSTRUN_CUPTI=path)
        for name, path in tried.items()
    }
    for name, done in bench.together(jobs).items():
        if done.code != 0:
            bench.require([f"{tried[name] or name}: {exit_name(done.code)}: {tail(done.errors)}"])
            continue
        tables = done.tables("meta", "kernel")
        actual = checks.facts_of(tables)
        bench.figures[tried[name] or name] = {
            "kernels": len(tables["kernel"]),
            **{key: actual[key] for key in ("cupti.library", "cupti.version", "capability.gpu") if key in actual},
        }
        complete = len(tables["kernel"]) == sum(done.report["kernels"].values())
        bench.demand(complete or "capability.gpu" in actual, f"{tried[name] or name}: kernels are missing and no reason is recorded")


def _libraries(bench: Bench) -> list[str]:
    """Every CUPTI on this machine, and those that were brought along."""
    if bench.tools.stub:
        return []
    actual = [path for path in os.environ.get(BROUGHT, "").split(":") if path]
    for location in PLACES:
        actual += [str(path) for path in sorted(Path("/").glob(location[1:] + "/libcupti.so.*"))]
    for folder in sys.path:
        actual += [str(path) for path in sorted(Path(folder or ".").glob("nvidia/*/lib/libcupti.so.*"))]
    return list({os.path.realpath(path): None for path in actual})[:MOST]
