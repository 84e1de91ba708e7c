"""Plain data on the work of operators: floating-point operations, bytes, rates, and their distance from the peaks of the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Bound = Literal["compute", "memory", "neither", "cache", "latency", "unknown"]


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """All calls of an operator with the same dims, types and strides, longest device time first.

    ``flop_per_call`` counts as PyTorch's FlopCounterMode does: two per multiply-add, no bias, causal attention in full.
    ``model_flop_per_call`` counts only the pairs that attention keeps. ``bytes_per_call``: each input read once, each output written
    once. ``tflops``: model FLOPs (else FLOPs) over the device time; ``gb_per_s``: bytes over it. ``percent_of_roof``: least time that the
    peaks of the device allow, in percent of the device time. ``roof``: the peak that gives the least time. ``bound``: the peak that is the
    limit; neither: below 20%; cache: memory-bound work above 100%; latency: kernels below 10 µs that stay below 50%. ``lost_ns``: device
    time beyond the least time; null if that is unknown, and above 100%. ``module``, ``source_line``: null if the calls come from several
    (``modules_seen``) or unknown ones. ``flop_per_call_bounds``: least and most, for attention over sequences whose lengths no trace has;
    its other figures of work are unknown.
    """

    operator: str
    input_dims: list[Any]
    input_types: list[Any]
    input_strides: list[Any]
    calls: int
    device_ns: int
    flop_per_call: int | None
    model_flop_per_call: int | None
    bytes_per_call: int | None
    tflops: float | None
    gb_per_s: float | None
    intensity: float | None  # FLOP per byte
    percent_of_roof: float | None
    bound: Bound
    lost_ns: int | None
    module: str | None
    source_line: str | None  # file:line
    modules_seen: int
    compute_type: str | None = None  # type whose peak applies (bf16, fp8, ...), None without arithmetic that is known
    flop_per_call_bounds: tuple[int, int] | None = None
    roof: Literal["compute", "memory"] | None = None


@dataclass(frozen=True, slots=True)
class DevicePeaks:
    """Dense peaks of a GPU product, by type of the input; FLOP/s and bytes/s. ``link_bytes_per_s``: of all links to other GPUs of the
    node, in one direction. ``source``: where the figures are published. ``overridden``: names of the peaks that the user set."""

    device_name: str
    product: str
    flop_per_s: dict[str, float]
    bytes_per_s: float | None
    link_bytes_per_s: float | None
    source: str
    overridden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepEnergy:
    """Energy of the GPUs, integrated over samples of their power."""

    joules: float
    mean_watts: float
    joules_per_step: float | None
    joules_per_tflop: float | None


@dataclass(frozen=True, slots=True)
class Efficiency:
    """``operators``: the rows with the longest device time; ``further``: rows that are not listed. ``mfu_percent``: model FLOPs of a step
    over step time times the sum of the dense peaks; ``hfu_percent`` adds recomputation. ``coverage_percent``: device time of matrix
    operators whose FLOPs are known, in percent of the time of all matrix kernels; below 95, MFU and HFU are lower bounds
    (``lower_bound``). ``measured_over``: steps, iterations (of an inference engine) or profile window. ``absent``: why there are no
    operators."""

    operators: tuple[OperatorWork, ...] = ()
    further: int = 0
    peaks: tuple[DevicePeaks, ...] = ()
    mfu_percent: float | None = None
    hfu_percent: float | None = None
    coverage_percent: float | None = None
    lower_bound: bool = False
    no_mfu: str | None = None  # why there is no MFU
    energy: StepEnergy | None = None
    absent: str | None = None
    measured_over: str | None = None  # what MFU and HFU are measured over
