"""Details of the rules on communication: exposed collectives."""

from __future__ import annotations

from .model import DetailsRow


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
