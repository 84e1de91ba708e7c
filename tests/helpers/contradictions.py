"""Contradictions between the advice of a report and its figures, found without the code of the rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from postrun.analysis.report import Report

LOADING: Final = re.compile(r"num_workers|prefetch_factor|load data ahead|load further ahead|batches ahead|worker_count", re.IGNORECASE)
LEAVE: Final = re.compile(r"leave (`num_workers`|the number of loader)|which is not data loading", re.IGNORECASE)
TRAINING: Final = re.compile(r"\b(loss|optimizer|backward|GradScaler|epoch|train under|train in)\b", re.IGNORECASE)
MIXED: Final = re.compile(r"autocast|mixed_precision|mixed_bfloat16|bf16=True|Allow TF32", re.IGNORECASE)
IDLE: Final = re.compile(r"GPU stood idle for .*? \(([\d.]+)%")


def contradictions(report: Report) -> Iterator[str]:
    """Yield a line per contradiction: the rule, its advice, the figure."""
    tiles = {tile.key: tile.number for tile in report.summary.figures}
    names = {kernel.name.lower() for kernel in report.kernels}
    program = report.program
    frameworks = program.frameworks if program else ()
    lower = sum(share.percent for share in report.precision.matrix if share.name not in ("FP32", "FP64", "unknown"))
    memory = {(row.kind, row.memory) for row in report.memory_operations} if hasattr(report.memory_operations, "__iter__") else set()
    for finding in report.findings:
        advice = f"{finding.title}. {finding.recommendation or ''}"
        loading = tiles.get("data_loading")
        if loading is not None and loading < 0.1 and LOADING.search(advice) and not LEAVE.search(advice):
            yield f"{finding.rule}: advises on loading, which takes {loading}% of the steps"
        if program and program.kind == "inference" and (word := TRAINING.search(advice)):
            yield f"{finding.rule}: {word[0]!r} in a run of inference"
        compiled = "torch.compile" in frameworks
        if compiled and re.search(r"with `torch\.compile", advice) and "in use" not in advice:
            yield f"{finding.rule}: advises on torch.compile, which is in use"
        if "CUDA graphs" in frameworks and re.search(r"`torch\.cuda\.CUDAGraph`", advice):
            yield f"{finding.rule}: advises on CUDA graphs, which are in use"
        if lower >= 50 and MIXED.search(advice):
            yield f"{finding.rule}: advises on mixed precision, in which {lower:.0f}% of the matrix work runs"
        if "fused=True" in advice and any("fusedadam" in name or "fused_adam" in name for name in names):
            yield f"{finding.rule}: advises on a fused optimizer, whose kernels are in the run"
        if "channels_last" in advice and any("nhwc" in name for name in names):
            yield f"{finding.rule}: advises on channels_last, whose kernels are in the run"
        copied = {place for kind, place in memory if kind == "HtoD"}
        if "pin_memory=True" in advice and finding.rule == "PageableCopies" and copied == {"pinned"}:
            yield f"{finding.rule}: advises on pinned memory, from which all copies are"
        busy = tiles.get("gpu_busy")
        stated = IDLE.search(finding.text)
        if stated and busy is not None and len(report.devices) == 1 and abs(float(stated[1]) + busy - 100) > 1:
            yield f"{finding.rule}: idle for {stated[1]}%, busy for {busy}%"
        if finding.cost_percent is not None and finding.rank <= 3 and finding.explained_by is None:
            worth = finding.cost_percent if finding.saving_percent is None else finding.saving_percent
            if worth < 2 and any((f.saving_percent or f.cost_percent or 0) >= 2 and f.rank > finding.rank for f in report.findings):
                yield f"{finding.rule}: worth {worth:.1f}% before findings that are worth more"
