"""Plain data on the goodput of a job: its wall time by part, GPU-hours, energy and cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GoodputPart:
    """A part of the wall time, as docs/definitions.md defines it. ``time_ns``: added up over the ranks; None if the recording does not
    show this part, whose time is then in other parts. ``percent``, ``gpu_hours``: of the wall time and of the GPU-hours."""

    name: str
    time_ns: int | None
    percent: float | None
    gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class Goodput:
    """Division of the wall time of the job. The known times of ``parts`` add up to ``wall_ns`` x ``ranks``, to the nanosecond.

    ``percent``: productive steps / wall time; None if too little was recorded, with the reason in ``absent``. ``ranks``: the ranks whose
    steps count. ``restarts``, ``lost_steps``: the most of any rank; ``lost_steps`` is None if it is unknown. ``energy_joules``: of all
    GPUs over the wall time. ``cost``: GPU-hours x ``price_per_gpu_hour``, in ``currency``; None without a price."""

    percent: float | None = None
    wall_ns: int | None = None
    ranks: int = 0
    parts: tuple[GoodputPart, ...] = ()
    restarts: int = 0
    lost_steps: int | None = None
    gpus: int = 0
    gpu_hours: float | None = None
    energy_joules: float | None = None
    price_per_gpu_hour: float | None = None
    currency: str | None = None
    cost: float | None = None
    absent: str | None = None
