"""Section "Information": the run, its machines, GPUs, and processes, and its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...analysis.report.model import Report
from ...analysis.report.python_profile import PythonProfile
from ...analysis.report.run import Device, Node, Process
from ..blocks import Only, Section, Texts, coded, line_of, say
from ..blocks.tables import Cell, Col, Table, pairs_table, table
from ..text.formats import UNKNOWN, count, digits, duration, moment, plural, size
from .python_profile import PROFILERS, TIMERS


def information(report: Report) -> Section:
    run = report.run
    used = [device for device in report.devices if device.used]
    models = sorted({device.name for device in used if device.name})
    lead = say(
        "{} with {}{}{}.",
        plural(len(report.nodes), "node"),
        plural(len(used), "GPU in use", "GPUs in use") if used else "no GPU in use",
        say(" ({})", ", ".join(models)) if models else "",
        f", {plural(len(report.processes), 'process', 'processes')}" if report.processes else "",
    )
    job, metadata = _job(run.metadata)
    profiled, metadata = _profiled(metadata, report.python_profile)
    took = run.ended_at_ns - run.started_at_ns if run.started_at_ns is not None and run.ended_at_ns is not None else None
    facts = [
        (label, text)
        for label, text in (
            ("Run", run.name),
            ("Status", run.status),
            *job,
            *profiled,
            ("Started", moment(run.started_at_ns, relative=run.relative_times)),
            ("Ended", moment(run.ended_at_ns, relative=run.relative_times)),
            ("Duration", duration(took)),
            ("Framework", run.framework),
            ("Program", _program(report)),
            ("Instance type", run.instance_type),
            ("World size", count(run.world_size) if run.world_size is not None else None),
            ("Resources", ", ".join(run.resources)),
            ("Labels", ", ".join(f"{key}={text}" for key, text in run.labels.items())),
        )
        if text and text != UNKNOWN
    ]
    lines = [
        (caption, line_of(pairs.items()))
        for caption, pairs in (("Hyperparameters", run.hyperparameters), ("Metadata of the traces", metadata))
        if pairs
    ]
    blocks = [
        Texts("facts", facts),
        _evidence(report),
        _nodes(report),
        table(
            "information-devices",
            "GPUs in use" if len(used) == len(report.devices) else f"GPUs in use ({len(report.devices) - len(used)} more in the nodes)",
            used,
            Col("Node", lambda d: d.node, kind="name"),
            Col("GPU", lambda d: d.index, str),
            Col("Model", lambda d: d.name),
            Col("Memory", lambda d: d.memory_bytes, size),
            Col("SMs", lambda d: d.sm_count, count),
            Col("Compute capability", lambda d: d.compute_capability, kind="number", html_only=True),
            Col("UUID", lambda d: d.uuid, html_only=True),
            pdf_rows=0,
        ),
        table(
            "information-processes",
            "Processes",
            report.processes,
            Col("Rank", lambda p: p.rank, digits),
            Col("Node", lambda p: p.node, kind="name"),
            Col("Process id", lambda p: p.pid, digits),
            Col("Local rank", lambda p: p.local_rank, digits, html_only=True),
            Col("Label", lambda p: p.label, html_only=True),
            pdf_rows=0,
        ),
        Texts("lines_of", lines),
        pairs_table(
            "information-hyperparameters", "Hyperparameters", run.hyperparameters.items(), ("Name", "Value"), limit=300, pdf_rows=0
        ),
        pairs_table("information-metadata", "Metadata of the traces", metadata.items(), ("Name", "Value"), limit=300, pdf_rows=0),
    ]
    return Section("information", "Information", lead, blocks)


def _evidence(report: Report) -> Only | None:
    """List the evidence for the kind of the program, for which the PDF has no room."""
    facts = [coded(fact) for fact in report.program.evidence] if report.program else []
    return Only("html", Texts("statements", facts)) if facts else None


def _program(report: Report) -> str:
    """Word the kind and the frameworks of the program."""
    known = report.program
    if known is None or not (known.frameworks or known.kind != "unknown"):
        return ""
    return f"{known.kind} ({', '.join(known.frameworks)})" if known.frameworks else known.kind


_JOB = (
    ("job.exit_code", "Exit code"),
    ("job.signal", "Ended by"),
    ("job.command", "Command"),
    ("job.directory", "Folder"),
    ("job.git_commit", "Commit"),
    ("job.system", "System"),
    ("job.recorder", "Recorded by"),
)


def _job(metadata: Mapping[str, str]) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Split the metadata into labeled facts of the job's recorder, and the rest."""
    known = [(label, metadata[key]) for key, label in _JOB if key in metadata]
    return known, {key: text for key, text in metadata.items() if key not in dict(_JOB)}


_PROFILED: Final = {
    "detailed": "operators and kernels",
    "loader": "data loaders",
    "python": "Python functions",
    "horovod": "Horovod",
    "smdataparallel": "SMDataParallel",
}
_REASONS: Final = ("nothing: ", "not complete: ")


def _profiled(metadata: Mapping[str, str], python: PythonProfile) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Split the metadata into the recorded and missing profiles, and the rest.

    The plan of the profiling configuration contains the same and is omitted.
    """
    by_window: dict[str, list[str]] = {}
    missing = []
    covered = {"profiling.plan"}
    for kind, what in _PROFILED.items():
        asked, recorded = (metadata.get(f"profiling.{kind}{end}") for end in ("", ".recorded"))
        if asked is None:
            continue
        covered |= {f"profiling.{kind}", f"profiling.{kind}.recorded"}
        if recorded is None:
            missing.append(f"{what}, asked for in {asked}")
        elif recorded.startswith(_REASONS):
            missing.append(f"{what} ({recorded.removeprefix(_REASONS[0])})")
        else:
            window, _, why = recorded.partition(": ")
            by_window.setdefault(window, []).append(what + (_how(python) if kind == "python" else ""))
            if why:
                missing.append(f"{what} to the end ({why})")
    rows = [
        ("Profiled", "; ".join(f"{window}: {', '.join(whats)}" for window, whats in by_window.items())),
        ("Not profiled", "; ".join(missing)),
    ]
    return rows, {key: text for key, text in metadata.items() if key not in covered or not (by_window or missing)}


def _how(python: PythonProfile) -> str:
    """Name the profilers and timers of the results."""
    groups = [group for group in python.groups if group.by == "steps"]
    profilers = dict.fromkeys(PROFILERS.get(group.profiler, group.profiler) for group in groups)
    timers = dict.fromkeys(TIMERS.get(group.timer, group.timer) for group in groups if group.timer)
    return f" ({', '.join((*profilers, *timers))})" if profilers else ""


def _nodes(report: Report) -> Table | None:
    """List each node with its GPUs and ranks, which the PDF lists nowhere else."""

    def used(node: Node) -> list[Device]:
        return [device for device in report.devices if device.used and device.node == node.hostname]

    def processes(node: Node) -> list[Process]:
        return [process for process in report.processes if process.node == node.hostname]

    return table(
        "information-nodes",
        "Nodes",
        report.nodes,
        Col("Node", lambda node: node.hostname, kind="name", limit=48),
        Col("Cores", lambda node: node.cores, count),
        Col("Memory", lambda node: node.memory_bytes, size),
        Col("GPUs in use", lambda node: len(used(node)), count),
        Col("GPU model", lambda node: ", ".join(sorted({device.name for device in used(node) if device.name}))),
        Col(
            "GPU memory",
            lambda node: Cell(", ".join(sorted({size(device.memory_bytes) for device in used(node) if device.memory_bytes})) or UNKNOWN),
            kind="number",
        ),
        Col("Processes", lambda node: len(processes(node)), count),
        Col("Ranks", lambda node: _ranges(sorted({process.rank for process in processes(node) if process.rank is not None}))),
    )


def _ranges(numbers: Sequence[int]) -> str:
    """Write 0, 1, 2, 3, 8 as "0–3, 8"."""
    parts: list[tuple[int, int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in parts)
