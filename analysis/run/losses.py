"""Nouns for the findings of the rules, as the headline lists the largest losses: "an idle tail", "slow rank 5"."""

from __future__ import annotations

import re
from typing import Final

from ..report.loop_details import StepOutlierDetails
from ..report.rules import Finding, RuleResult
from ..report.sample_details import LowGPUUtilizationDetails
from ..toolkit import wording

_NOUNS: Final = {
    "BatchSize": "a small batch size",
    "CPUBottleneck": "a CPU bottleneck",
    "Dataloader": "data loading",
    "ExposedCommunication": "exposed communication",
    "ExposedCopies": "exposed copies",
    "HostBound": "GPUs that wait for the host",
    "HostPauses": "pauses of the host",
    "HostPreprocessing": "data preparation on the host",
    "InefficientMatmul": "inefficient matrix products",
    "InputBound": "waiting for data",
    "IOBottleneck": "I/O wait",
    "LayoutConversions": "layout conversions",
    "LoadBalancing": "uneven load of the GPUs",
    "LowGPUUtilization": "low GPU utilization",
    "LowOccupancy": "kernels with low occupancy",
    "LowPrecision": "matrix work in high precision",
    "MaxInitializationTime": "long initialization",
    "PageableCopies": "copies of pageable memory",
    "Recompiles": "recompilation",
    "ShortKernels": "short kernels",
    "SlowCollectives": "slow collectives",
    "StageImbalance": "uneven pipeline stages",
    "StepOutlier": "slow steps",
    "StragglerRank": "a slow rank",
    "SyncBound": "synchronization with the host",
    "UnfusedAttention": "unfused attention",
    "UnfusedElementwise": "unfused elementwise kernels",
    "WorkImbalance": "uneven work of the ranks",
}
# Patterns and states of GPUs in the details of LowGPUUtilization.
_PATTERNS: Final = {
    "idle tail": "an idle tail",
    "idle head": "an idle start",
    "idle head and tail": "idle time before and after training",
    "fluctuating": "pauses of the GPUs",
    "unused": "unused GPUs",
}
_RANK: Final = re.compile(r"rank \d+\b")


def loss(finding: Finding, result: RuleResult | None) -> str:
    """Return the noun for a finding; the rule's name for rules from outside."""
    details = result.details if result is not None else None
    if finding.rule == "StragglerRank" and finding.where and (rank := _RANK.match(finding.where)):
        return f"slow {rank[0]}"
    if isinstance(details, LowGPUUtilizationDetails):
        unused: dict[str, float] = {}
        for row in details.devices:
            if row.triggered:
                name = _PATTERNS.get(row.pattern or "", _PATTERNS.get(row.state, _NOUNS["LowGPUUtilization"]))
                unused[name] = unused.get(name, 0.0) + row.unused_samples
        return max(unused, key=lambda name: unused[name], default=_NOUNS["LowGPUUtilization"])
    if isinstance(details, StepOutlierDetails) and (number := re.search(r"\b(\d[\d,\u2009\u202f]*) slow steps\b", finding.title)):
        return f"{number[1]} slow steps"
    return _NOUNS.get(finding.rule) or wording.capitalized(finding.rule)
