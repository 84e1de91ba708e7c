"""Measures the cost of recording, in addition to the clock that it reads.

    python benchmarks/capture_hot_path.py [--seconds 3] [--repeat 3]

Builds the library from native/ and capture_hot_path.c with cmake and the C compiler, runs it, and prints the median of the
runs next to the limit for the library. The floor, two readings of the processor's counter, is measured in turn with the
calls in the same run: only differences and ratios of one run are meaningful. With the headers of NVTX (`pip install nvidia-nvtx`) a
pair of its calls is also measured, with no tool attached. Give it an idle machine; on hyper-threads that
others use, everything but the clock takes up to twice as long.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def nvtx() -> list[str]:
    """Return compiler options for the headers of NVTX if they are installed."""
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or []) if package else []:
        for header in Path(folder).rglob("nvtx3/nvToolsExt.h"):
            return ["-DWITH_NVTX", "-isystem", str(header.parent.parent)]
    print("NVTX: left out, its headers are not installed", file=sys.stderr)
    return []


def build(folder: Path) -> Path:
    library, program = folder / "build", folder / "capture_hot_path"
    link = [*nvtx(), f"-L{library}", "-lpostrun", f"-Wl,-rpath,{library}", "-pthread"]
    for command in (
        ["cmake", "-S", ROOT / "native", "-B", library, "-DPOSTRUN_PYTHON=OFF"],
        ["cmake", "--build", library],
        ["cc", "-O2", f"-I{ROOT / 'native' / 'include'}", program.with_suffix(".c").name, "-o", program, *link],
    ):
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, cwd=ROOT / "benchmarks")
    return program


def measure(program: Path, folder: Path, seconds: float) -> dict[str, float]:
    command = [str(program), str(folder / "traces"), str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3, help="of recording 100,000 pairs a second")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    for tool in ("cmake", "cc"):
        if shutil.which(tool) is None:
            sys.exit(f"no {tool}")
    with tempfile.TemporaryDirectory() as name:
        program = build(Path(name))
        runs = [measure(program, Path(name), options.seconds) for _ in range(options.repeat)]
    values = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    floor, two_floor = values["rdtsc"], values["two_threads_rdtsc"]
    idle = max(values["idle_kib"], 0) / 1024
    rows = [
        ("two readings of the counter (the floor)", floor, "ns", None),
        ("two clock_gettime", values["clock_gettime"], "ns", None),
        ("begin and end", values["pair"], "ns", floor + 3),
        ("begin and end above the floor", values["pair"] - floor, "ns", 3.0),
        ("begin and end, two threads at once, above their floor", values["two_threads_pair"] - two_floor, "ns", 3.0),
        ("range by handle", values["range"], "ns", None),
        ("counter", values["counter"], "ns", None),
        *([("NVTX push and pop, no tool attached", values["nvtx_pair"], "ns", None)] if "nvtx_pair" in values else []),
        ("two calls of a function that does nothing", values["disabled_calls"], "ns", None),
        ("begin and end, not recording", values["disabled_pair"], "ns", 6.0),
        (f"draining {values['pairs_per_s']:.0f} pairs/s, of a core", values["drain_percent"], "%", 1.0),
        ("memory, idle", idle, "MiB", 4.0),
        ("memory after all this", values["after_kib"] / 1024, "MiB", None),
        ("bytes of file for each record", values["bytes_per_record"], "", None),
        ("lost", values["lost"], "", 0.0),
    ]
    print(f"{'':55} {'measured':>10} {'at most':>10}")
    for label, value, unit, limit in rows:
        asked = "" if limit is None else f"{limit:.2f}"
        print(f"{label:55} {value:>10.2f} {asked:>10} {unit:4}{'' if limit is None or value <= limit else 'MISSED'}")
    print(
        "\nthe runs: " + "; ".join(f"floor {run['rdtsc']:.1f}, pair {run['pair']:.1f}, disabled {run['disabled_pair']:.1f}" for run in runs)
    )


if __name__ == "__main__":
    main()
