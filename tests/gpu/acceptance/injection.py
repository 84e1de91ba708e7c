"""Case 15: programs that know nothing of postrun, into which the driver loads the recorder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from . import checks
from .bench import Bench, Done

EXIT_CODE, FRAMEWORK_EXIT_CODE = 7, 9  # of the programs, to be kept
FRAMEWORKS = ("cupy", "triton", "jax", "numba")
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # JAX leaves memory to the others


def injection(bench: Bench) -> None:
    done = bench.plain("plain", "counts", bench.scaled(1000, least=20), expect=EXIT_CODE)
    tables = done.tables()
    bench.figures["plain"] = len(tables["kernel"])
    bench.require(checks.known_work(tables, done.report), "program in C")
    bench.require(checks.nothing_lost(tables), "program in C")
    bench.keep(done, "injected_c")
    _make(bench)
    jobs: dict[str, Callable[[], Done]] = {}
    for name in FRAMEWORKS:
        if bench.has(name):
            jobs[name] = lambda name=name: bench.script(
                name, "frameworks.py", name, expect=FRAMEWORK_EXIT_CODE, limit=90, **bench.injection(), **bench.cupti(), **SHARED
            )
        else:
            bench.figures[name] = "not installed"
    for name, run in bench.together(jobs).items():
        kernels = len(run.tables("kernel")["kernel"])
        bench.figures[name] = kernels
        bench.demand(kernels >= run.report["launches"], f"{name}: {kernels} kernels of at least {run.report['launches']}")


def _make(bench: Bench) -> None:
    """Processes that do not use CUDA are not touched: same output, no trace file."""
    if shutil.which("make") is None:
        bench.figures["make"] = "not on the PATH"
        return
    makefile = bench.folder / "Makefile"
    Path(makefile).write_text("all:\n\t@/bin/true\n\t@echo built\n")
    done = bench.run("make", ["make", "-s", "-f", makefile], **bench.injection())
    bench.require(checks.equal(done.output, "built\n", "output of make"))
    bench.require(checks.equal([path.name for path in done.files()], [], "trace files of make"))
