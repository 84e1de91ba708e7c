"""Case 10: NVTX ranges of C and of PyTorch become annotations, and open and close windows."""

from __future__ import annotations

from . import checks
from .bench import Bench, Skipped

STEPS, LAUNCHES, FIRST, END = 8, 10, 2, 5
NAMES = {"outer": 1, "with a value": 1, "registered": 1, "wide é€😀": 1, None: 1, "across threads": 1, "on a thread": 1}
VALUES = {"outer": None, "with a value": -7, "registered": 2**40}


def nvtx(bench: Bench) -> None:
    native, torch = bench.tools.programs.get("nvtx_ranges"), bench.has("torch")
    if not native and not torch:
        raise Skipped("neither the headers of NVTX nor PyTorch are installed")
    if native:
        _native(bench, native)
    else:
        bench.figures["native"] = "the headers of NVTX are not installed"
    if torch:
        _torch(bench)


def _native(bench: Bench, program: str) -> None:
    """tests/native/nvtx_ranges.c: exact names, values and depths."""
    done = bench.run("ranges", [program], NVTX_INJECTION64_PATH=bench.tools.library, POSTRUN_CAPTURE="1")
    rows = done.tables("annotation")["annotation"]
    bench.figures["ranges"] = len(rows)
    bench.require(checks.counts_equal([row["name"] for row in rows if row["name"] != "deep"], NAMES, "ranges"))
    values = {row["name"]: row["value"] for row in rows if row["name"] in VALUES}
    bench.require(checks.equal(values, VALUES, "values"))
    deep = sorted((row for row in rows if row["name"] == "deep"), key=lambda row: int(row["start_ns"]))
    bench.require(checks.equal([row["depth"] for row in deep], list(range(64)), "depths of nested ranges"))


def _torch(bench: Bench) -> None:
    """The window lasts from the second range named step to the end of the fourth."""
    variables = bench.injection() | {"NVTX_INJECTION64_PATH": bench.tools.library, "POSTRUN_GPU_STEPS": f"{FIRST}:{END}"}
    done = bench.script("torch", "torch_nvtx.py", STEPS, LAUNCHES, **variables)
    tables = done.tables()
    expected = {"step": STEPS} | {f"inner {number}": 1 for number in range(STEPS)}
    bench.require(checks.counts_equal([row["name"] for row in tables["annotation"]], expected, "ranges of PyTorch"))
    steps = sorted(checks.named(tables["annotation"], "step"), key=lambda row: int(row["start_ns"]))
    kernels = [row for row in tables["kernel"] if "elementwise" in (row["name"] or "")]
    inside = [0] * len(steps)
    for kernel in kernels:
        for number, step in enumerate(steps):
            inside[number] += step["start_ns"] <= kernel["start_ns"] < step["start_ns"] + step["duration_ns"]
    bench.figures["kernels_in_steps"] = inside
    wanted = [LAUNCHES if FIRST <= number < END else 0 for number in range(STEPS)]
    bench.require(checks.equal(inside, wanted, "kernels in the steps"))
    bench.require(checks.nothing_lost(tables))
    bench.keep(done, "nvtx")
