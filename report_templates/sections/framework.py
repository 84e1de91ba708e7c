"""How did the framework spend its time: phases, forward and backward, operators, collectives?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...analysis.report import OperatorRow, Report
from ..blocks import Column, Section, Table, say, table, value, word
from ..formats import clip, count, duration, percent
from .shares import shares_ring

_STEP_PARTS = (("forward", "computation"), ("backward", "computation"), ("optim", "operator"), ("data", "loading"))


def framework(report: Report) -> Section:
    found = report.framework
    shares = (found.phases, found.step_parts, found.operator_time, found.collectives)
    if not any(shares) and not found.cpu_operators and not found.gpu_operators:
        lead = found.absent or "No framework event in this run: record the CPU activity of the profiler."
        return Section("framework", "Framework metrics", say("{}", lead))
    sentences = []
    if found.phases:
        first = max(found.phases, key=lambda share: share.percent)
        sentences.append(f"{percent(first.percent)} of the time was {first.name}.")
    if found.step_parts:
        first = max(found.step_parts, key=lambda share: share.percent)
        sentences.append(f"The largest part of a step is {first.name} with {percent(first.percent)}.")
    if found.cpu_operators:
        row = found.cpu_operators[0]
        sentences.append(f"The CPU operator with most time is {clip(row.name, 60)} with {percent(row.percent)}.")
    made = Section(
        "framework", "Framework metrics", say("{}", " ".join(sentences) or "Collectives are all that the framework recorded in this run.")
    )
    sides = [replace(share, name=share.name.removesuffix(" operators")) for share in found.operator_time]
    made.facts.update({"notes": found.notes} if found.notes else {})
    made.add(
        shares_ring("framework-phases", say("Percent of the time from the first step's start to the last step's end."),
                    "Training phases", found.phases, "Phase", "Of the time", label="in phases", meaning=_phase, half=True),
        shares_ring("framework-step-parts", say("Parts of the step. Backward usually takes about twice as long as forward."),
                    "Parts of a step", found.step_parts, "Part", "Of the parts", label="in steps", meaning=_step_part, half=True),
        shares_ring("framework-operator-time", say("Inclusive time of CPU operators against GPU operators."),
                    "CPU and GPU operators", sides, "Side", "Of operator time", label="operators", meaning=_side, half=True),
        shares_ring("framework-collectives", say("Summed time of collectives by operation."),
                    "Collectives", found.collectives, "Collective", "Of collective time", label="collectives",
                    meaning=lambda _: "communication"),
        _operators("framework-cpu-operators", "CPU operators (inclusive time)", found.cpu_operators),
        _operators("framework-gpu-operators", "GPU operators (inclusive time)", found.gpu_operators),
    )  # fmt: skip
    return made


def _operators(id: str, caption: str, rows: Sequence[OperatorRow]) -> Table | None:
    return table(
        id,
        caption,
        [
            Column("Operator", "name"),
            Column("Percentage", "number"),
            Column("Cumulative time", "number"),
            Column("Count", "number", html_only=True),
        ],
        [[word(row.name), value(row.percent, percent), value(row.total_ns, duration), value(row.count, count)] for row in rows],
        pdf_rows=8,
    )


def _phase(name: str) -> str:
    return "idle" if name.lower().startswith("other") else "computation"


def _step_part(name: str) -> str:
    return next((meaning for start, meaning in _STEP_PARTS if name.lower().startswith(start)), "other")


def _side(name: str) -> str:
    return "computation" if "gpu" in name.lower() else "host"
