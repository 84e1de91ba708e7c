"""Cases of pipelines whose recordings contain one operation per pass, as those of the published jobs do. An oracle gives their savings."""

from __future__ import annotations

from typing import Any, Final

from advice_score import CULPRITS, NOTHING, Case
from recorded_jobs import Recording


def _others(*rules: str) -> tuple[str, ...]:
    return tuple(rule for rule in CULPRITS if rule not in rules)


def _ranks(*places: tuple[int, int]) -> Any:
    return lambda replica, stage: (replica, stage) in places


def _stage(number: int) -> Any:
    return lambda replica, stage: stage == number


def _all(replica: int, stage: int) -> bool:
    return True


_SLOW: Final = {"first": ("StragglerRank",), "must_not": _others("StragglerRank"), "folded": ("ExposedCommunication",)}
_LONG: Final = {"first": ("StageImbalance",), "must_not": (*_others("StageImbalance"), "nvidia-smi"), "folded": ("ExposedCommunication",)}
_WORK: Final = {"first": ("WorkImbalance",), "must_not": (*_others("WorkImbalance"), "nvidia-smi"), "folded": ("ExposedCommunication",)}
_NONE: Final = {"first": (NOTHING, "ExposedCommunication"), "must_not": (*CULPRITS, "nvidia-smi")}
_LENGTHS: Final = Recording(lengths=0.4, steps=10)

RECORDED: Final = (
    Case("recorded slow worker of 16", Recording(slow={(2, 1): 1.4}), says=("rank 6",), ideal=_ranks((2, 1)), **_SLOW),
    Case("recorded slow worker, interleaved", Recording(chunks=2, slow={(0, 2): 1.5}), says=("rank 8",), **_SLOW),
    Case("recorded slow worker, last five of eight steps", Recording(steps=8, slow={(1, 1): 1.5}, slow_steps=(3, 4, 5, 6, 7)), says=("rank 5",), ideal=_ranks((1, 1)), **_SLOW),
    Case("recorded slow workers, two stages", Recording(slow={(2, 1): 1.4, (0, 3): 1.35}), says=("rank 6",), ideal=_ranks((2, 1), (0, 3)), **_SLOW),
    Case("recorded slow worker, 16 stages", Recording(stages=16, replicas=2, micro_batches=16, slow={(1, 7): 1.5}), says=("rank 15",), ideal=_ranks((1, 7)), **_SLOW),
    Case("recorded slow worker, varying lengths", Recording(replicas=8, stages=2, steps=12, lengths=0.3, slow={(2, 1): 1.6}), says=("rank 10",), ideal=_ranks((2, 1)), **{**_SLOW, "must_not": ("StageImbalance", "SlowCollectives", "HostPauses")}),
    Case("recorded slow worker, long stage", Recording(stage={3: 1.5}, slow={(1, 1): 1.6}), first=("ExposedCommunication", "StragglerRank"), must_not=("WorkImbalance", "SlowCollectives", "HostPauses")),
    Case("recorded long last stage", Recording(stage={3: 1.8}), says=("stage 3", "loss"), ideal=_stage(3), **_LONG),
    Case("recorded long last stage, interleaved", Recording(chunks=2, stage={3: 1.8}), says=("stage 3",), **_LONG),
    Case("recorded long last stage, no process groups", Recording(stage={3: 1.8}, groups=False), ideal=_stage(3), **_LONG),
    Case("recorded long first stage, other streams", Recording(stage={0: 1.6}, streams=30), says=("stage 0", "embedding"), ideal=_stage(0), **_LONG),
    Case("recorded long stage, in the middle", Recording(stage={2: 1.5}), says=("stage 2",), ideal=_stage(2), **_LONG),
    Case("recorded long stage, varying lengths", Recording(steps=12, stage={3: 1.6}, lengths=0.35), says=("stage 3",), ideal=_stage(3), **{**_LONG, "must_not": ("StragglerRank", "SlowCollectives", "HostPauses")}),
    Case("recorded varying lengths", _LENGTHS, says=("squared sequence lengths", "micro-batches"), ideal=_all, **_WORK),
    Case("recorded varying lengths, interleaved", Recording(lengths=0.5, chunks=2, steps=10), **_WORK),
    Case("recorded varying lengths, no process groups", Recording(lengths=0.4, steps=10, groups=False), ideal=_all, **_WORK),
    Case("recorded varying lengths, one replica", Recording(replicas=1, stages=8, lengths=0.4, steps=12), says=("micro-batches",), ideal=_all, tolerance=4.0, **_WORK),
    Case("recorded varying lengths, no pipeline", Recording(replicas=16, stages=1, lengths=0.4, steps=10), ideal=_all, **_WORK),
    Case("recorded varying lengths, two ranks", Recording(replicas=2, stages=1, micro_batches=3, lengths=0.5, steps=12), ideal=_all, **_WORK),
    Case("recorded passes that vary independently", Recording(noise=0.25, steps=8), **_NONE),
    Case("recorded passes with 5% noise", Recording(noise=0.05), **_NONE),
    Case("recorded passes with 8% noise, no pipeline", Recording(replicas=16, stages=1, noise=0.08), **_NONE),
    Case("recorded passes with 5% noise, interleaved", Recording(replicas=2, chunks=2, noise=0.05), **_NONE),
)  # fmt: skip
