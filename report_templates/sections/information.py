"""What ran, where, on what, with which settings?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...analysis.report import PythonProfile, Report
from ..blocks import Cell, Column, Section, Table, line_of, say, table, value, word
from ..formats import count, duration, moment, plural, size


def information(report: Report) -> Section:
    run = report.run
    used = [device for device in report.devices if device.used]
    models = sorted({device.name for device in used if device.name})
    made = Section(
        "information",
        "Information",
        say(
            "{} with {}{}{}.",
            plural(len(report.nodes), "node"),
            plural(len(used), "GPU in use", "GPUs in use") if used else "no GPU in use",
            say(" ({})", ", ".join(models)) if models else "",
            f", {plural(len(report.processes), 'process', 'processes')}" if report.processes else "",
        ),
    )
    job, metadata = _job(run.metadata)
    profiled, metadata = _profiled(metadata, report.python_profile)
    took = run.ended_at_ns - run.started_at_ns if run.started_at_ns is not None and run.ended_at_ns is not None else None
    made.facts["run"] = [
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
            ("Instance type", run.instance_type),
            ("World size", count(run.world_size) if run.world_size is not None else None),
            ("Resources", ", ".join(run.resources)),
            ("Labels", ", ".join(f"{key}={text}" for key, text in run.labels.items())),
        )
        if text and text != "–"
    ]
    made.facts["pairs"] = [
        (caption, line_of(pairs.items()))
        for caption, pairs in (("Hyperparameters", run.hyperparameters), ("Metadata of the traces", metadata))
        if pairs
    ]
    made.add(
        _nodes(report),
        table(
            "information-devices",
            "GPUs in use" if len(used) == len(report.devices) else f"GPUs in use ({len(report.devices) - len(used)} more in the machines)",
            [
                Column("Node", "name"),
                Column("GPU", "number"),
                Column("Model"),
                Column("Memory", "number"),
                Column("SMs", "number"),
                Column("Compute capability", "number", html_only=True),
                Column("UUID", html_only=True),
            ],
            [
                [
                    word(d.node),
                    Cell(str(d.index), sort=d.index),
                    word(d.name),
                    value(d.memory_bytes, size),
                    value(d.sm_count, count),
                    word(d.compute_capability),
                    word(d.uuid),
                ]
                for d in used
            ],
            pdf_rows=0,
        ),
        table(
            "information-processes",
            "Processes",
            [
                Column("Rank", "number"),
                Column("Node", "name"),
                Column("Process id", "number"),
                Column("Local rank", "number", html_only=True),
                Column("Label", html_only=True),
            ],
            [[_plain(p.rank), word(p.node), _plain(p.pid), _plain(p.local_rank), word(p.label)] for p in report.processes],
            pdf_rows=0,
        ),
        _pairs("information-hyperparameters", "Hyperparameters", run.hyperparameters),
        _pairs("information-metadata", "Metadata of the traces", metadata),
    )
    return made


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
    """What the recorder of a job says of it, with a label, and the other metadata."""
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
_PROFILERS: Final = {"cprofile": "cProfile", "pyinstrument": "Pyinstrument"}
_TIMERS: Final = {"total_time": "total time", "cpu_time": "CPU time", "off_cpu_time": "off-CPU time"}


def _profiled(metadata: Mapping[str, str], python: PythonProfile) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """What a configuration of profiling recorded in which steps, and what it did not and why, in words; and the other metadata, without
    the plan, which says the same."""
    by_window: dict[str, list[str]] = {}
    missing = []
    told = {"profiling.plan"}
    for kind, what in _PROFILED.items():
        asked, recorded = (metadata.get(f"profiling.{kind}{end}") for end in ("", ".recorded"))
        if asked is None:
            continue
        told |= {f"profiling.{kind}", f"profiling.{kind}.recorded"}
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
    return rows, {key: text for key, text in metadata.items() if key not in told or not (by_window or missing)}


def _how(python: PythonProfile) -> str:
    """The profilers and timers of the results that are there."""
    groups = [group for group in python.groups if group.by == "steps"]
    profilers = dict.fromkeys(_PROFILERS.get(group.profiler, group.profiler) for group in groups)
    timers = dict.fromkeys(_TIMERS.get(group.timer, group.timer) for group in groups if group.timer)
    return f" ({', '.join((*profilers, *timers))})" if profilers else ""


def _nodes(report: Report) -> Table | None:
    """Each machine with its GPUs and ranks: what the PDF says of them."""
    rows = []
    for node in report.nodes:
        used = [device for device in report.devices if device.used and device.node == node.hostname]
        own = [process for process in report.processes if process.node == node.hostname]
        ranks = sorted({process.rank for process in own if process.rank is not None})
        rows.append(
            [
                word(node.hostname, limit=48),
                value(node.cores, count),
                value(node.memory_bytes, size),
                value(len(used), count),
                word(", ".join(sorted({device.name for device in used if device.name}))),
                Cell(", ".join(sorted({size(device.memory_bytes) for device in used if device.memory_bytes})) or "–"),
                value(len(own), count),
                word(_ranges(ranks)),
            ]
        )
    return table(
        "information-nodes",
        "Nodes",
        [
            Column("Node", "name"),
            Column("Cores", "number"),
            Column("Memory", "number"),
            Column("GPUs in use", "number"),
            Column("GPU model"),
            Column("GPU memory", "number"),
            Column("Processes", "number"),
            Column("Ranks"),
        ],
        rows,
    )


def _ranges(numbers: Sequence[int]) -> str:
    """ "0–3, 8" for 0, 1, 2, 3, 8."""
    parts: list[tuple[int, int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in parts)


def _plain(number: int | None) -> Cell:
    return Cell("–" if number is None else str(number), sort=number)


def _pairs(id: str, caption: str, pairs: Mapping[str, str]) -> Table | None:
    return table(
        id,
        caption,
        [Column("Name", "name"), Column("Value")],
        [[word(key), word(text, limit=300)] for key, text in pairs.items()],
        pdf_rows=0,
    )
