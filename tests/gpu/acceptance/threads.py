"""Cases 9 and 17: many threads, streams and contexts; Python threads while a window closes."""

from __future__ import annotations

from . import checks
from .bench import Bench, Done, Skipped

THREADS, LAUNCHES = 64, 100
PAUSE_MS, PAUSE_MS_STUB = 100, 600  # the longest pause of another Python thread; a busy machine with stubs needs more


def threads(bench: Bench) -> None:
    count, launches = bench.scaled(THREADS, least=8), bench.scaled(LAUNCHES, least=5)
    for program in ("workload", "workload_per_thread"):
        done = bench.run(program, [bench.tools.programs[program], "threads", count, launches])
        _check(bench, program, done)


def _check(bench: Bench, program: str, done: Done) -> None:
    tables = done.tables("meta", "kernel", "api", "loss")
    report, kernels = done.report, tables["kernel"]
    spins = checks.named(kernels, "postrun_spin")
    streams = {row["stream"] for row in spins}
    contexts = {row["context"] for row in kernels}
    bench.figures[program] = {
        "kernels": len(kernels),
        "streams": len(streams),
        "contexts": len(contexts),
        "overlaps": checks.overlaps(spins),
    }
    bench.require(checks.launches_by_thread(tables, report["tids"], report["launches"]), program)
    expected = {"postrun_alpha": report["threads"] * report["launches"], "postrun_spin": report["spins"]}
    if report["context_error"] == 0:
        expected["postrun_gamma"] = report["launches"]
        bench.require(checks.equal(len(contexts), 2, "contexts"), program)
    else:
        bench.figures[program]["second_context"] = f"error {report['context_error']}"
    bench.require(checks.counts_equal([row["name"] for row in kernels], expected, "kernels"), program)
    bench.require(checks.equal(len(streams), report["streams"], "streams with spin kernels"), program)
    if program.endswith("per_thread") and not bench.tools.stub:
        rows = {row["stream"] for row in checks.named(kernels, "postrun_alpha")}
        bench.require(checks.equal(len(rows), report["threads"], "default streams of threads"), program)
    if not bench.tools.stub:
        bench.demand(checks.overlaps(spins) > 0, f"{program}: spin kernels on different streams never overlap")
    bench.require(checks.nothing_lost(tables), program)


def gil(bench: Bench) -> None:
    """While a window closes behind a long kernel, another Python thread runs on."""
    if not bench.tools.stub and not bench.has("torch"):
        raise Skipped("PyTorch is not installed")
    variables = {"POSTRUN_CAPTURE": "1", "POSTRUN_GPU": "1", "POSTRUN_GPU_STEPS": "2:4"}
    if bench.tools.stub:
        variables["STUB_BUSY"] = "1"
    done = bench.script("steps", "gil.py", **variables)
    bench.figures |= done.report
    bench.demand("gpu.window.0" in checks.facts_of(done.tables("meta")), "no window opened")
    limit = PAUSE_MS_STUB if bench.tools.stub else PAUSE_MS
    bench.require(checks.at_most(done.report["longest_pause_ms"], limit, "longest pause of the other thread", " ms"))
