"""Names of the kinds of files that are read, as the run store and messages give them."""

from __future__ import annotations

from typing import Final

RUN_STORE: Final = "run store"
END_MARKER: Final = "end marker"
JOB: Final = "job information"
PYTHON_STATS: Final = "cProfile result"
PYTHON_TREE: Final = "Pyinstrument result"
PYTHON_BESIDE: Final = "page of a Python profile, or its timer"
SYSTEM_METRICS: Final = "hosted system metrics"
TIMELINE: Final = "hosted framework timeline"
TRACE: Final = "PyTorch profiler trace"
TENSORFLOW: Final = "TensorFlow trace"
TENSORFLOW_TIME: Final = "time of a TensorFlow trace"
NSIGHT: Final = "Nsight Systems export"
NSIGHT_REPORT: Final = "Nsight Systems report"
NVIDIA_SMI: Final = "nvidia-smi log"
DCGM: Final = "DCGM log"
TORCH_TRACE: Final = "torch.compile log"
CAPTURE: Final = "postrun capture"
REPORT: Final = "postrun report"
UNKNOWN: Final = "unknown"
