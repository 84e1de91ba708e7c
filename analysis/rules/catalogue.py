"""Which rules does postrun have, in which order, and which parameters do they take?"""

from __future__ import annotations

import importlib
from typing import Final

from .base import Rule

# Module -> class, in the order of the documented ProfilerReport; then the trace rules.
_REPORTED: Final = {
    "cpu_bottleneck": "CPUBottleneck",
    "io_bottleneck": "IOBottleneck",
    "low_gpu_utilization": "LowGPUUtilization",
    "step_outlier": "StepOutlier",
    "gpu_memory_increase": "GPUMemoryIncrease",
    "batch_size": "BatchSize",
    "max_initialization_time": "MaxInitializationTime",
    "load_balancing": "LoadBalancing",
    "overall_system_usage": "OverallSystemUsage",
    "dataloader": "Dataloader",
    "overall_framework_metrics": "OverallFrameworkMetrics",
}
_TRACE: Final = {
    "host_bound": "HostBound",
    "exposed_communication": "ExposedCommunication",
    "low_precision": "LowPrecision",
    "pageable_copies": "PageableCopies",
    "sync_bound": "SyncBound",
    "short_kernels": "ShortKernels",
    "straggler_rank": "StragglerRank",
}


def _load(modules: dict[str, str]) -> tuple[type[Rule], ...]:
    found = []
    for module, name in modules.items():
        try:
            found.append(getattr(importlib.import_module(f".{module}", __package__), name))
        except ModuleNotFoundError:
            continue
    return tuple(found)


DOCUMENTED: Final = _load(_REPORTED)
"""The rules that ProfilerReport runs, in its order."""
TRACE: Final = _load(_TRACE)
RULES: Final[dict[str, type[Rule]]] = {rule.name: rule for rule in (*DOCUMENTED, *TRACE)}
PROFILER_REPORT: Final = "ProfilerReport"
