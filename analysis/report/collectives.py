"""Plain data on collectives: by operation, group and size; by process group; by rank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Collective:
    """All collectives of one operation, process group, size and element type; those of a send and its receive are one send/receive.

    ``group``: its name; None if it is not recorded. ``ranks``: number of ranks whose calls were matched; ``kernels``: their kernels on all
    of these ranks. ``total_ns``: durations, summed over the ranks. ``transfer_ns``: from the latest start of a rank to the last end, added
    up over the collectives. ``waiting_ns``: time of the ranks before the latest start, summed over the ranks; None if only one rank is
    known. ``skew_ns``: mean time from the first start to the latest. ``last_rank``: the rank that starts last most often, in
    ``last_count`` collectives. Bandwidths: bytes / transfer; bus: by the factor of the operation; ``best``: of the fastest one.
    ``at_least``: not all ranks of the group are known, so that the transfer contains waiting and the bandwidths are lower bounds.
    ``bytes``: None if the trace does not record it. ``group_size_assumed``: the group is not recorded. ``expected_bus_gb_per_s``: bandwidth
    of the slowest link of the group, None if unknown."""

    operation: str
    group: str | None
    group_description: str | None
    group_size: int | None
    ranks: int
    count: int
    kernels: int
    bytes: int | None
    element_type: str | None
    total_ns: int
    transfer_ns: int
    waiting_ns: int | None
    skew_ns: float | None
    last_rank: int | None
    last_count: int | None
    algorithm_gb_per_s: float | None
    bus_gb_per_s: float | None
    best_bus_gb_per_s: float | None
    at_least: bool
    group_size_assumed: bool = False
    expected_bus_gb_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class CollectiveGroup:
    """A process group. ``known``: ranks of it in this run. ``members``: its ranks as text, shortened. Other fields as in
    :class:`Collective`, over all of its collectives; ``matched``: those of several ranks."""

    group: str
    description: str | None
    members: str | None
    size: int | None
    known: int
    count: int
    matched: int
    total_ns: int
    waiting_ns: int | None
    last_rank: int | None
    last_count: int | None


@dataclass(frozen=True, slots=True)
class CollectiveWait:
    """Time of one rank in the collectives that are matched over ranks, and its part before the latest start of each. ``last``: number of
    collectives in which it started last."""

    node: str
    rank: int | None
    pid: int | None
    collectives: int
    total_ns: int
    wait_ns: int
    last: int = 0


@dataclass(frozen=True, slots=True)
class WaitLink:
    """Ranks that wait longest for ``late_rank``, which starts last, in the collectives of ``group`` (None: not recorded)."""

    ranks: tuple[int, ...]
    late_rank: int
    group: str | None
    waiting_ns: int


@dataclass(frozen=True, slots=True)
class CollectiveTotals:
    """``further``, ``further_ns``: number and time of the rows that are not listed. ``sized_percent``: share of the time in collectives of
    known size. ``matched``: collectives found on several ranks; ``unmatched``: calls in groups with several recorded ranks that match no
    call of another rank. ``clocks``: sentence on the clocks of the nodes; None for one node. ``renumbered``: the process groups number the
    ranks in another way than the run. ``chain``: who waits for whom, longest waits first."""

    further: int
    further_ns: int
    total_ns: int
    sized_percent: float | None
    matched: int
    unmatched: int
    waits: tuple[CollectiveWait, ...]
    absent: str | None
    groups: tuple[CollectiveGroup, ...] = ()
    clocks: str | None = None
    renumbered: bool = False
    chain: tuple[WaitLink, ...] = ()
