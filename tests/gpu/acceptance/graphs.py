"""Cases 7 and 8: CUDA graphs, captured in a window, before it or in an earlier one; captures while windows open and close."""

from __future__ import annotations

from . import checks
from .bench import Bench, Done

REPLAYS, CAPTURE_WINDOWS = 20, 50
TIMED_MS, TIMED_MS_STUB = 8000, 3500
ORDERS = ("inside", "before", "across")
TORCH_HOWS = ("graph", "compile")
NOTE = "capability.gpu.graph_launches"  # known of this CUPTI: kernels may name another launch


def graphs(bench: Bench) -> None:
    replays = bench.scaled(REPLAYS, least=4)
    jobs = {order: lambda order=order: bench.workload(order, "graphs", order, replays) for order in ORDERS}
    jobs |= {f"{order}_off": lambda order=order: bench.workload(f"{order}_off", "graphs", order, replays, "off") for order in ORDERS}
    if bench.has("torch"):
        for how in TORCH_HOWS:
            for recorded in ("on", "off"):
                name = f"torch_{how}_{recorded}"
                jobs[name] = lambda name=name, how=how, recorded=recorded: bench.script(name, "torch_graphs.py", how, recorded)
    else:
        bench.figures["torch"] = "not installed"
    done = bench.together(jobs, at_once=6)
    for order in ORDERS:
        if order in done:
            _native(bench, order, done[order], done.get(f"{order}_off"))
    for how in TORCH_HOWS:
        if f"torch_{how}_on" in done:
            _torch(bench, how, done[f"torch_{how}_on"], done.get(f"torch_{how}_off"))
    if "inside" in done:
        bench.keep(done["inside"], "graphs")


def _native(bench: Bench, order: str, run: Done, alone: Done | None) -> None:
    tables = run.tables("meta", "kernel", "memcpy", "memset", "api", "loss")
    actual = checks.facts_of(tables)
    problems = checks.graph_replays(tables, run.report) + checks.nothing_lost(tables)
    correlations = checks.replay_correlations(tables, run.report)
    none = not any(row["graph_node"] for row in tables["kernel"])
    bench.figures[order] = {"kernels": len(tables["kernel"]), "problems": problems + correlations, "note": actual.get(NOTE)}
    if order == "before" and none:  # CUPTI cannot see them: then the recorder has to say so
        problems = [] if "capability.gpu" in actual else ["graphs captured before the first window are missing and no reason is recorded"]
    elif NOTE not in actual:
        problems += correlations
    bench.require(problems, order)
    if alone is not None:
        bench.require(checks.equal(run.report["checksum"], alone.report["checksum"], "result of the graphs"), order)


def _torch(bench: Bench, how: str, run: Done, alone: Done | None) -> None:
    tables = run.tables("meta", "kernel", "loss")
    nodes = [row["graph_node"] for row in tables["kernel"] if row["graph_node"]]
    bench.figures[f"torch_{how}"] = {"kernels": len(tables["kernel"]), "nodes": len(set(nodes)), "kernels_of_graphs": len(nodes)}
    reported = how == "compile" and "capability.gpu" in checks.facts_of(tables)  # captured before the first window
    bench.demand(bool(nodes) or reported, f"torch {how}: kernels of graphs are missing and no reason is recorded")
    if how == "graph":
        bench.require(checks.equal(len(nodes), len(set(nodes)) * run.report["replays"], "kernels of the graph"), f"torch {how}")
    bench.require(checks.nothing_lost(tables), f"torch {how}")
    if alone is not None:
        bench.require(checks.equal(run.report["result"], alone.report["result"], "result"), f"torch {how}")


def captures(bench: Bench) -> None:
    """Opening and closing windows never invalidates a capture of another thread."""
    count, ms = bench.scaled(CAPTURE_WINDOWS, least=5), bench.scaled(TIMED_MS, least=TIMED_MS_STUB)
    timed = {"POSTRUN_CAPTURE": "1", "POSTRUN_GPU": "1", "POSTRUN_GPU_WINDOWS": "seconds=1,every=2"}
    done = bench.together(
        {
            "by_program": lambda: bench.workload("by_program", "captures", count),
            "by_time": lambda: bench.workload("by_time", "captures", 0, ms, **timed),
        }
    )
    for name, run in done.items():
        windows = len(checks.windows_of(checks.facts_of(run.tables("meta"))))
        bench.figures[name] = run.report | {"windows": windows}
        bench.demand(run.report["captured"] > 0, f"{name}: no graph was captured")
        bench.require(checks.equal(run.report["invalidated"], 0, f"{name}: captures that failed"))
        bench.demand(windows >= (count if name == "by_program" else 2), f"{name}: only {windows} windows opened")
