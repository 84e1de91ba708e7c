"""Which rules does postrun have, in which order?"""

from __future__ import annotations

from typing import Final

from .base import Rule
from .batch_size import BatchSize
from .bottleneck import CPUBottleneck, IOBottleneck
from .dataloader import Dataloader
from .exposed_communication import ExposedCommunication
from .gpu_memory_increase import GPUMemoryIncrease
from .host_bound import HostBound
from .input_bound import InputBound
from .load_balancing import LoadBalancing
from .low_gpu_utilization import LowGPUUtilization
from .low_precision import LowPrecision
from .max_initialization_time import MaxInitializationTime
from .overall_framework_metrics import OverallFrameworkMetrics
from .overall_system_usage import OverallSystemUsage
from .pageable_copies import PageableCopies
from .short_kernels import ShortKernels
from .step_outlier import StepOutlier
from .straggler_rank import StragglerRank
from .sync_bound import SyncBound

PROFILER_REPORT: Final = "ProfilerReport"

DOCUMENTED: Final[tuple[type[Rule], ...]] = (
    CPUBottleneck,
    IOBottleneck,
    LowGPUUtilization,
    StepOutlier,
    GPUMemoryIncrease,
    BatchSize,
    MaxInitializationTime,
    LoadBalancing,
    OverallSystemUsage,
    Dataloader,
    OverallFrameworkMetrics,
)
"""The rules that ProfilerReport runs, in its order."""

TRACE: Final[tuple[type[Rule], ...]] = (
    HostBound,
    InputBound,
    ExposedCommunication,
    LowPrecision,
    PageableCopies,
    SyncBound,
    ShortKernels,
    StragglerRank,
)
"""The rules over kernels, and over what a training without them waits for."""

RULES: Final[dict[str, type[Rule]]] = {rule.name: rule for rule in (*DOCUMENTED, *TRACE)}
