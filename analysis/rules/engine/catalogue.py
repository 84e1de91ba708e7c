"""The rules of postrun, in order."""

from __future__ import annotations

from typing import Final

from ..checks.batch_size import BatchSize
from ..checks.bottleneck import CPUBottleneck, IOBottleneck
from ..checks.dataloader import Dataloader
from ..checks.exposed_communication import ExposedCommunication
from ..checks.exposed_copies import ExposedCopies
from ..checks.gpu_memory_increase import GPUMemoryIncrease
from ..checks.host_bound import HostBound
from ..checks.host_pauses import HostPauses
from ..checks.host_preprocessing import HostPreprocessing
from ..checks.inefficient_matmul import InefficientMatmul
from ..checks.input_bound import InputBound
from ..checks.layout_conversions import LayoutConversions
from ..checks.load_balancing import LoadBalancing
from ..checks.low_gpu_utilization import LowGPUUtilization
from ..checks.low_occupancy import LowOccupancy
from ..checks.low_precision import LowPrecision
from ..checks.max_initialization_time import MaxInitializationTime
from ..checks.overall_framework_metrics import OverallFrameworkMetrics
from ..checks.overall_system_usage import OverallSystemUsage
from ..checks.pageable_copies import PageableCopies
from ..checks.recompiles import Recompiles
from ..checks.short_kernels import ShortKernels
from ..checks.slow_collectives import SlowCollectives
from ..checks.stage_imbalance import StageImbalance
from ..checks.step_outlier import StepOutlier
from ..checks.straggler_rank import StragglerRank
from ..checks.sync_bound import SyncBound
from ..checks.unfused_attention import UnfusedAttention
from ..checks.unfused_elementwise import UnfusedElementwise
from ..checks.work_imbalance import WorkImbalance
from ..evidence.base import Rule

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
    HostPreprocessing,
    ExposedCommunication,
    LowPrecision,
    PageableCopies,
    SyncBound,
    ShortKernels,
    StragglerRank,
    StageImbalance,
    WorkImbalance,
    HostPauses,
    SlowCollectives,
    ExposedCopies,
    UnfusedElementwise,
    UnfusedAttention,
    LowOccupancy,
    LayoutConversions,
    InefficientMatmul,
    Recompiles,
)
"""The rules over kernels, and over the waits of a training without them."""

RULES: Final[dict[str, type[Rule]]] = {rule.name: rule for rule in (*DOCUMENTED, *TRACE)}
