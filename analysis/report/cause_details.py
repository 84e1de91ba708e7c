"""Details of the rules on causes across ranks: stages, varying work and pauses."""

from __future__ import annotations

from .detail_rows import ProcessRow
from .details import DetailsRow, RuleDetails


class ComparedStage(DetailsRow):
    """Ranks with the same work. ``stage``: of the pipeline; None if the order of the stages is unknown. ``excess_percent``: computation
    above the mean of all stages. ``gain_percent``: predicted saving of a step; None if it was not simulated. ``waits_per_step_ns``: further
    computation, which ends on all ranks together and so waits for the slowest."""

    stage: int | None
    ranks: tuple[int, ...]
    computation_per_step_ns: float
    excess_percent: float
    gain_percent: float | None
    issue: bool
    waits_per_step_ns: float = 0.0


class StageImbalanceDetails(RuleDetails):
    """``step_ns``, ``replayed_ns``, ``ideal_ns``: a step as recorded, as simulated, and with all operations at their ideal time.
    ``explained_percent``: part of the avoidable time that the worst stage explains. ``waiting_kernel``: the kernel that waits for other
    ranks, see :class:`ComparedStage`."""

    stages: tuple[ComparedStage, ...]
    steps: int
    step_ns: float
    replayed_ns: float
    ideal_ns: float
    explained_percent: float | None = None
    waiting_kernel: str | None = None


class VaryingRank(DetailsRow):
    """``longest_steps``: steps in which no peer computed longer. ``deviation_percent``: of its steps, from the mean of its peers."""

    rank: int | None
    steps: int
    longest_steps: int
    computation_per_step_ns: float
    deviation_percent: float


class WorkImbalanceDetails(RuleDetails):
    """``spread_percent``: longest computation of a step above the mean of its ranks. ``between_percent``: part of the variance that is
    between ranks, over all steps. ``gain_percent``: predicted saving of a step if each rank computed as long as the mean of its peers.
    ``waiting_kernel``: a kernel that ends on all ranks together, whose time is not part of the computation."""

    ranks: tuple[VaryingRank, ...]
    steps: int
    spread_percent: float
    between_percent: float
    gain_percent: float
    waiting_kernel: str | None = None


class HostPause(DetailsRow):
    """``idle_ns``: time in pauses of this name in which the device of the rank ran nothing."""

    node: str
    rank: int | None
    pid: int | None
    name: str
    kind: str
    count: int
    time_ns: int
    idle_ns: int


class HostPausesDetails(RuleDetails):
    pauses: tuple[HostPause, ...]
    idle_ns: int
    idle_percent: float


class ComparedRank(ProcessRow):
    """Medians over the steps. ``others_wait_ns``: how much longer the other ranks are in collectives."""

    device: int
    steps: int
    computation_per_step_ns: float
    excess_ns: float
    excess_percent: float
    steps_over: int
    steps_over_percent: float
    waiting_per_step_ns: float
    others_wait_ns: float | None
    straggler: bool
    confirmed: bool | None


class StragglerRankDetails(RuleDetails, kw_only=True):
    """``roles``: where the peers come from: groups, work, same (all ranks are peers) or unknown. ``gain_percent``: predicted saving of a
    step if the stragglers were as fast as their peers. ``explained_percent``: of the time that would go if all operations took their ideal
    time. ``not_simulated``: why there is no prediction."""

    ranks: tuple[ComparedRank, ...]
    steps: int
    median_ns: float
    roles: str | None = None
    gain_percent: float | None = None
    explained_percent: float | None = None
    not_simulated: str | None = None
