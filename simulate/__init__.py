"""Simulation of a finished training job with its traces, for `postrun demo` and for tests that need exact totals."""

from __future__ import annotations

from .changes import Changes
from .demo import write_demo
from .training_run import Problems
from .truth import DemoTruth, KernelTruth, RankTruth

__all__ = ["Changes", "DemoTruth", "KernelTruth", "Problems", "RankTruth", "write_demo"]
