"""Details of the rules on device work that can be avoided: copies that nothing hides, and chains of small kernels."""

from __future__ import annotations

from .detail_rows import CountedTime, ProfiledDevice
from .details import DetailsRow, RuleDetails


class CopyingDevice(ProfiledDevice):
    """``exposed_ns``: copies and memsets while no kernel runs; ``exposed_percent``: of the span."""

    exposed_ns: int
    exposed_percent: float
    issue: bool


class ExposedCopy(DetailsRow):
    """Copies of one kind, or memsets. ``memory``: pageable, pinned or None. ``exposed_ns``: while no kernel runs."""

    kind: str
    memory: str | None
    count: int
    bytes: int | None
    time_ns: int
    exposed_ns: int


class ExposedCopiesDetails(RuleDetails):
    """``copies``: empty without an issue."""

    devices: tuple[CopyingDevice, ...]
    copies: tuple[ExposedCopy, ...]


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
