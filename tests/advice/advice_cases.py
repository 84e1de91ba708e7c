"""All cases of the advice suite by their kind, and the seeds of healthy runs and balanced pipelines."""

from __future__ import annotations

from random import Random
from typing import Final

from advice_score import NOTHING, Case
from cases_host import BUBBLES, HEALTHY, HOST
from cases_inference import INFERENCE
from cases_ranks import COMMUNICATION, PAUSES, STAGES, STRAGGLERS, WORK
from cases_recorded import RECORDED
from training_jobs import Training

KINDS: Final = {
    "slow rank": STRAGGLERS,
    "pipeline stage": STAGES,
    "uneven work": WORK,
    "host pauses": PAUSES,
    "communication": COMMUNICATION,
    "host, copies, precision": HOST,
    "inference": INFERENCE,
    "recorded pipelines": RECORDED,
    "healthy training": HEALTHY,
}
CASES: Final[tuple[Case, ...]] = tuple(case for cases in KINDS.values() for case in cases)
SEEDS: Final = 100


def healthy_seed(seed: int) -> Case:
    """Return a healthy training run of a shape that the seed decides."""
    random = Random(f"healthy.{seed}")
    ranks = random.choice((1, 2, 4, 4, 8))
    per_node = random.choice((4, 8))
    style = "none" if ranks == 1 else random.choice(("ddp", "ddp", "fsdp"))
    job = Training(
        style=style, data_parallel=ranks, gpus_per_node=per_node, layers=random.choice((2, 3)), steps=random.choice((3, 5, 7)),
        layer_ms=random.uniform(4, 9), layer_mb=random.uniform(20, 60), noise=random.choice((0.005, 0.01, 0.03)),
        groups=random.random() < 0.7, log_sync=random.random() < 0.6, ahead_steps=random.uniform(0.6, 1.5),
        gpu=random.choice(("H100", "A100", "MI300X")), skew_us=(0, random.choice((0, 0, 500))), loader_ms=random.uniform(0.05, 0.6),
        compiled=random.random() < 0.2, stacks=random.random() < 0.1, seed=seed,
    )  # fmt: skip
    return Case(f"healthy seed {seed}", job, first=(NOTHING,))


def pipeline_seed(seed: int) -> Case:
    """Return a balanced pipeline of a shape that the seed decides."""
    random = Random(f"pipeline.{seed}")
    stages, data = random.choice(((2, 1), (2, 2), (2, 4), (4, 1), (4, 2)))
    job = Training(
        style="megatron", pipeline=stages, data_parallel=data, microbatches=random.choice((4, 6, 8)), layers=1, steps=random.choice((3, 4)),
        layer_ms=random.uniform(2, 6), layer_mb=random.uniform(20, 60), noise=random.choice((0.005, 0.01, 0.03)),
        groups=random.random() < 0.7, gpus_per_node=random.choice((4, 8)), skew_us=(0, random.choice((0, 0, 500))), seed=seed,
    )  # fmt: skip
    return Case(f"pipeline seed {seed}", job, **BUBBLES)
