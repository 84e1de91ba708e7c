"""Details of the rules on communication: exposed collectives and slow process groups."""

from __future__ import annotations

from .detail_rows import CountedTime, ProfiledDevice
from .details import DetailsRow, RuleDetails


class ExposedCollective(DetailsRow):
    """Equal collectives of all ranks. ``group``: description of the process group. ``part``: part of the step that launches them.

    ``exposed_ns``: no computation covers it; calls at the same time each count. ``waiting_ns``, ``transfer_ns``: its part before and after
    the last rank arrived, None if the ranks are not known. ``last_rank``: the rank that causes most of the waiting."""

    operation: str
    bytes: int | None
    element_type: str | None
    group: str | None
    group_size: int | None
    group_size_assumed: bool
    stream: int | None
    part: str | None
    launcher: str | None
    count: int
    time_ns: int
    exposed_ns: int
    waiting_ns: int | None
    transfer_ns: int | None
    last_rank: int | None


class GroupBandwidth(DetailsRow):
    """Large collectives of one operation in a process group. ``bus_gb_per_s``: of the transfers alone, as in the section.

    ``link``: the slowest link of the group, ``link_gb_per_s`` its bandwidth, None if unknown. ``peers_gb_per_s``: median of equal
    collectives in ``peer_groups`` other groups of its kind. ``slow_by_link``, ``slow_by_peers``: calls below the threshold."""

    group: str
    description: str | None
    operation: str
    ranks: int
    nodes: int
    count: int
    smallest_bytes: int
    largest_bytes: int
    transfer_ns: int
    bus_gb_per_s: float
    link: str | None
    link_gb_per_s: float | None
    peers_gb_per_s: float | None
    peer_groups: int
    slow_by_link: int
    slow_by_peers: int
    issue: bool | None


class SlowCollectivesDetails(RuleDetails):
    """``explained_ns``: exposed transfers of the slow groups, and the exposed wait of other ranks for ranks of a slow group."""

    groups: tuple[GroupBandwidth, ...]
    explained_ns: int | None = None


class CommunicationDevice(ProfiledDevice):
    communication_ns: int
    exposed_ns: int
    exposed_percent: float
    overlap_percent: float | None
    issue: bool | None


class CollectiveKernel(CountedTime):
    exposed_ns: int


class ExposedCommunicationDetails(RuleDetails):
    """``collectives``: longest exposed first; their times can add up to more than those of the devices, where calls overlap."""

    devices: tuple[CommunicationDevice, ...]
    kernels: tuple[CollectiveKernel, ...]
    collectives: tuple[ExposedCollective, ...] = ()
