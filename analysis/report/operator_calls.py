"""Plain data on operator calls with device work by module, operator and inputs: what a comparison of two runs aligns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """All calls of an operator by one module with the same dims and types of tensors.

    ``dims``: sizes of the tensors as text, such as "128x768, 768x3072"; ``types``: distinct element types in their order, such as "bf16".
    Both are "" if the trace has no shapes. ``kernels``: short names of the kernels with at least a tenth of the device time, longest
    first; ``precision``: of the first one, null if unknown. ``calls``, ``device_ns``: of the profile windows of all processes, without
    communication, whose time contains the wait for other ranks.
    """

    module: str | None
    operator: str
    dims: str
    types: str
    kernels: tuple[str, ...]
    precision: str | None
    calls: int
    device_ns: int


@dataclass(frozen=True, slots=True)
class OperatorCalls:
    """``rows``: those with the longest device time; ``further``, ``further_ns``: rows that are not listed, and their device time.
    ``unlinked_ns``: device time without an operator."""

    rows: tuple[OperatorCall, ...] = ()
    further: int = 0
    further_ns: int = 0
    unlinked_ns: int = 0
