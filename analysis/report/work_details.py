"""Details of the rule on chains of small kernels."""

from __future__ import annotations

from .detail_rows import CountedTime, ProfiledDevice
from .details import RuleDetails


class ChainedDevice(ProfiledDevice):
    """``chains``: two or more elementwise kernels in a row on a stream; ``kernels``, ``time_ns``: all of them. ``extra_ns``: their time
    less that of the longest kernel of each chain; ``extra_percent``: of the span."""

    chains: int
    kernels: int
    time_ns: int
    extra_ns: int
    extra_percent: float
    issue: bool


class UnfusedKernelsDetails(RuleDetails):
    """``kernels``: those in chains."""

    devices: tuple[ChainedDevice, ...]
    kernels: tuple[CountedTime, ...]
