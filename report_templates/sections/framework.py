"""Section "Framework metrics": phases, parts of the step, operators, and collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...analysis.report.framework import OperatorRow, PhaseMetrics
from ...analysis.report.model import Report
from ..blocks import Only, Section, Texts, say
from ..blocks.tables import Col, Table, table
from ..text.formats import clip, count, duration, percent, plural
from .shares import shares_ring

_STEP_PARTS = (("forward", "computation"), ("backward", "computation"), ("optim", "operator"), ("data", "loading"))
_RANGES = (
    "Ranges on the host, summed over processes; they may overlap GPU work and lie between steps; "
    "the data-loading wait of the first page counts only data-loader events, where nothing else covers them."
)
_HOST_ONLY = "Ranges on the host, summed over processes; they may lie between steps."
_TWO_TIMES = (
    "Summed times: of CPU operators inclusive, nested calls counted again; of GPU operators the device work that each launched itself."
)
_OTHERS = "Ranges outside of these steps, and of processes without phases, count only in the host time in named ranges."
_ALL = 99.9  # percent
_PARTS = ("forward", "backward", "optimizer", "data loading")
_BY_PHASE = 5


def framework(report: Report) -> Section:
    metrics = report.framework
    if report.program is not None and report.program.kind == "inference":  # phases and parts of steps are those of a training
        metrics = replace(metrics, phases=(), step_parts=(), by_phase=())
    shares = (metrics.phases, metrics.step_parts, metrics.operator_time, metrics.collectives)
    if not any(shares) and not metrics.cpu_operators and not metrics.gpu_operators:
        lead = metrics.absent or "No framework event in this run: record the CPU activity of the profiler."
        return Section("framework", "Framework metrics", say("{}", lead))
    sentences = []
    # One phase that fills the entire time is not worth showing.
    phases = () if any(share.percent > _ALL and not _is_other(share.name) for share in metrics.phases) else metrics.phases
    if phases:
        other_percent = sum(share.percent for share in phases if _is_other(share.name))
        sentences.append(f"The steps fill {percent(max(0.0, 100.0 - other_percent))} of the time from the first to the last step.")
    if metrics.step_parts:
        first = max(metrics.step_parts, key=lambda share: share.percent)
        sentences.append(f"The largest host range is {first.name}, {percent(first.percent)}.")
    if metrics.cpu_operators:
        row = metrics.cpu_operators[0]
        sentences.append(f"The largest CPU operator is {clip(row.name, 60)}, {percent(row.percent)} inclusive.")
        if report.steps.traced:
            sentences.append(f"Operators were recorded {report.steps.traced} only.")
    if not sentences:
        filled = "The steps fill all of the time from the first to the last step."
        sentences.append(filled if metrics.phases else "Collectives are all that the framework recorded in this run.")
    ranges = _RANGES if report.time_breakdown else _HOST_ONLY
    sides = [replace(share, name=share.name.removesuffix(" operators")) for share in metrics.operator_time if share.total_ns]
    # The PDF has the collectives that ran on GPUs in their own section.
    collectives = shares_ring("framework-collectives", say("Summed time of collectives by operation."),
                              "Collectives", metrics.collectives, "Collective", "Of collective time", label="collectives",
                              meaning=lambda _: "communication")  # fmt: skip
    summed = f"summed over {plural(metrics.processes or 0, 'process', 'processes')}" if (metrics.processes or 0) > 1 else ""
    times_are = f" Times are {summed}." if summed else ""
    rings = [
        shares_ring("framework-phases", say("Percent of the time from the first step's start to the last step's end.{}", times_are),
                    "Training phases", phases, "Phase", "Of the time", label="in phases",
                    meaning=lambda name: "idle" if _is_other(name) else "computation"),
        shares_ring("framework-step-parts", say("{}", ranges),
                    "Host time in named ranges", metrics.step_parts, "Range",
                    "Of the mean step's ranges" if metrics.parts_of_mean_step else "Of the ranges", label="in ranges",
                    time="Time, all steps" if metrics.parts_of_mean_step else "Time", meaning=_step_part),
        shares_ring("framework-operator-time", say("{}", _TWO_TIMES),
                    "CPU and GPU operators", sides if len(sides) > 1 else (), "Side", "Of operator time", label="operators",
                    meaning=lambda name: "computation" if "gpu" in name.lower() else "host"),
    ]  # fmt: skip
    phases_of_job = [group for group in metrics.by_phase if group.by == "phase"]
    parts_of_step = [group for group in metrics.by_phase if group.by == "part"]
    blocks = [
        *([Texts("statements", [say("<bdi>{}</bdi>", note) for note in metrics.notes])] if metrics.notes else []),
        *rings,
        Only("html", collectives) if report.collectives else collectives,
        _operators("framework-cpu-operators", "CPU operators by inclusive time", metrics.cpu_operators, "CPU operators"),
        _operators("framework-gpu-operators", "Operators by GPU time (self)", metrics.gpu_operators, "GPU operators"),
        _parts_by_phase(phases_of_job, summed),
        _operators_by("framework-phase-operators", "CPU operators by training phase", "Phase", phases_of_job),
        _operators_by("framework-part-operators", "CPU operators by part of the step", "Part", parts_of_step),
    ]
    return Section("framework", "Framework metrics", say("{}", " ".join(sentences)), blocks)


def _operators(id: str, caption: str, rows: Sequence[OperatorRow], base: str) -> Table | None:
    """Make a table of operators. ``base``: of the percentages."""
    return table(
        id,
        caption,
        rows,
        Col("Operator", lambda row: row.name, kind="name", code=True),
        Col(f"Of {base}", lambda row: row.percent, percent),
        Col("Summed time", lambda row: row.total_ns, duration),
        Col("Count", lambda row: row.count, count, html_only=True),
        pdf_rows=5,
    )


def _parts_by_phase(phases: Sequence[PhaseMetrics], summed: str) -> Table | None:
    recorded = {share.name for phase in phases for share in phase.step_parts}
    names = [*(name for name in _PARTS if name in recorded), *sorted(recorded - set(_PARTS))]

    def time(name: str, phase: PhaseMetrics) -> int:
        return sum(share.total_ns for share in phase.step_parts if share.name == name)

    return table(
        "framework-phase-parts",
        "Parts of the step by training phase",
        phases if names else (),
        Col("Phase", lambda phase: phase.name, kind="name"),
        Col("Time", lambda phase: phase.total_ns, duration),
        *(Col(name, partial(time, name), duration) for name in names),
        note=f"Host time in named ranges that lies in steps of the phase{', ' if summed else ''}{summed}. {_OTHERS}",
    )


def _operators_by(id: str, caption: str, what: str, phases: Sequence[PhaseMetrics]) -> Table | None:
    return table(
        id,
        caption,
        [(phase, row) for phase in phases for row in phase.cpu_operators[:_BY_PHASE]],
        Col(what, lambda pair: pair[0].name),
        Col("Lasted", lambda pair: pair[0].total_ns, duration, html_only=True),
        Col("Operator", lambda pair: pair[1].name, kind="name", code=True),
        Col(f"Of operators of the {what.lower()}", lambda pair: pair[1].percent, percent),
        Col("Summed time", lambda pair: pair[1].total_ns, duration),
        Col("Count", lambda pair: pair[1].count, count, html_only=True),
        pdf_rows=0,
    )


def _is_other(name: str) -> bool:
    return name.lower().startswith("other")


def _step_part(name: str) -> str:
    return next((meaning for start, meaning in _STEP_PARTS if name.lower().startswith(start)), "other")
