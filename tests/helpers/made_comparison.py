"""A comparison made by hand: a run that is 13% slower, mostly from communication, with verdicts of every kind."""

from __future__ import annotations

import dataclasses

from judging import empty_report
from postrun.analysis.compare.build import compare
from postrun.analysis.report import Generator
from postrun.analysis.report.comparison import (
    Amount,
    Basis,
    Change,
    Comparison,
    DevicePair,
    Difference,
    KernelChange,
    OperatorChange,
    Side,
    Verdict,
    VerdictChange,
)

MS = 1e6


def amount(name: str, base_ms: float, new_ms: float, state: str = "same", noise_ms: float | None = None) -> Amount:
    noise_ns = None if noise_ms is None else noise_ms * MS
    return Amount(name, base_ms * MS, new_ms * MS, (new_ms - base_ms) * MS, None, state, noise_ns=noise_ns)


def kernel(name: str, state: str) -> KernelChange:
    times: tuple[float, ...] = (1, 1, 15e6, 27.5e6, 15e6, 27.5e6, 12.5e6, 83.0)
    return KernelChange(name, "communication", state, "name", (name,), (name,), None, None, *times, "longer", "same", 1e6)


def call(name: str, module: str) -> OperatorChange:
    return OperatorChange(
        name, module, None, "faster", ("faster",), "inputs", "8", "8", "bf16", "bf16", (), (), None, None, 1, 1, 9e6, 7e6, -2e6, -20.0
    )


def made_comparison() -> Comparison:
    generator = Generator("postrun", "0.1.0", 1_795_243_200 * 10**9, {})
    side = Side("train", "main/report.json", "report.json", "completed", "Busy.", "2 × H100 · 5 s", ())
    grown = [amount(name, 15, 27.5, "grown", 1) for name in ("communication", "c10d::allreduce_")]
    return dataclasses.replace(
        compare(empty_report(), empty_report(), generator=generator),
        base=side,
        new=dataclasses.replace(side, given="new", subtitle="2 × H100 · 6 s"),
        headline="The new run is 13.0% slower per step (median 100 ms → 113 ms), mostly from exposed communication (+12.0 ms).",
        details="In the gaps of the streams, host wait grew most, by 4.00 ms a step.",
        verdict="slower",
        judgment=Verdict("slower", 13.0, 12.0, 14.0, "steps", "", 100 * MS, 113 * MS),
        basis=Basis("step", 10, 10, None),
        differences=(Difference("world size", "2", "4", "work is divided"), Difference("framework", "a", "b", None)),
        changes=(
            Change(1, "step", "step time", "slower", 13 * MS, "Steps are slower."),
            Change(2, "kernel", "nccl_reduce", "grown", 12.5 * MS, "nccl_reduce grew by 12.5 ms a step."),
            Change(3, "part", "exposed communication", "grown", 12 * MS, "Exposed communication grew by 12.0 ms a step."),
            Change(4, "memory operation", "HtoD pinned copies", "shrunk", -1 * MS, "HtoD pinned copies shrank by 1.00 ms a step."),
            Change(5, "precision", "FP32", "added", None, "FP32 takes 40.0% of the time in matrix kernels, 0% before."),
            Change(6, "verdict", "ExposedCommunication", "broken", None, "ExposedCommunication finds an issue."),
        ),
        parts=(
            amount("computation", 85, 85),
            amount("exposed communication", 10, 22, "grown", 1),
            amount("exposed memory operations", 0, 0),
            amount("idle", 5, 6, "same", 2),
        ),
        whole=amount("span", 100, 113, "grown", 1),
        within=(grown[0],),
        host_parts=(amount("data_loader", 1, 9, "undecided"),),
        kernels=(kernel("nccl_reduce", "grown"),),
        categories=(grown[0], amount("GEMM", 20, 20)),
        operators=(grown[1],),
        operator_calls=(call("aten::mm", "layer"),),
        idle=(amount("host wait", 1, 5, "grown"),),
        devices=tuple(
            DevicePair(f"rank {rank}, GPU {rank}", "H100", "H100", (amount("idle", 1, 1 + effect, "grown"),))
            for rank, effect in enumerate((11, 15))
        ),
        rules=(
            VerdictChange("HostBound", "IssuesFound", "NoIssuesFound", "mended", None, "Passed.", False, measure_same=True),
            VerdictChange("ExposedCommunication", "NoIssuesFound", "IssuesFound", "broken", None, "22% of 1 s on algo-1", False),
            VerdictChange("StepOutlier", "IssuesFound", "NotEvaluated", "other", None, None, False),
            VerdictChange("LowPrecision", "NoIssuesFound", "NoIssuesFound", "same", None, None, False),
        ),
    )
