"""Writes the simulated run of `postrun demo`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ..errors import UsageError
from . import job as job_module
from .changes import Changes
from .hosted_writer import CORES, write_hosted
from .kineto_writer import write_trace
from .schedule import LAYERS, PARAMETERS
from .training_run import Problems, Rank, simulate
from .truth import DemoTruth, demo_truth

JOB_NAME = "gpt-350m-ddp (simulated)"
_LABELS = {"simulated": "true"}


def _write_job_information(out: Path, ranks: list[Rank], gpus_per_node: int, problems: Problems, changes: Changes) -> None:
    nodes = sorted({rank.node for rank in ranks})
    information = {
        "name": JOB_NAME,
        "framework": "PyTorch 2.6",
        "instance_type": f"simulated, {gpus_per_node} x H100 80GB, {CORES} cores",
        "status": "completed",
        "hyperparameters": {
            "parameters": PARAMETERS,
            "layers": LAYERS,
            "hidden_size": 1408,
            "attention_heads": 11,
            "sequence_length": 2048,
            "batch_size_per_gpu": 12,
            "global_batch_size": 12 * len(ranks),
            "precision": "fp32" if changes.fp32_matrix else "bf16-autocast",
            "optimizer": "fused AdamW",
            "learning_rate": 0.0003,
            "gradient_clipping": 1.0,
            "dataloader_workers": 4 if problems.data_stall else CORES,
            "pin_memory": not (problems.data_stall or changes.pageable_copies),
        },
        "labels": _LABELS,
        "resources": [f"simulated:node/{node}" for node in nodes],
    }
    (out / "job.json").write_text(json.dumps(information, indent=2) + "\n", encoding="ascii", newline="\n")


def _clear(out: Path) -> None:
    """Remove an earlier simulated run below ``out``, or raise UsageError."""
    used = [folder for folder in (out / "kineto", out / "profiler-output") if folder.exists()]
    if not used:
        return
    try:
        simulated = json.loads((out / "job.json").read_bytes())["labels"] == _LABELS
    except (OSError, ValueError, KeyError, TypeError):
        simulated = False
    if not simulated:
        raise UsageError(f"{used[0]} is there already and is not of a simulated run: choose another folder")
    for folder in used:
        shutil.rmtree(folder)


def write_demo(
    out: Path,
    *,
    seed: int = 1,
    steps: int = 40,
    problems: Problems | None = None,
    changes: Changes | None = None,
    nodes: int = 2,
    gpus_per_node: int = 4,
) -> DemoTruth:
    """Write a simulated run below ``out`` and return the totals of a correct report.

    The run is a data-parallel training of a GPT on ``nodes`` x ``gpus_per_node`` H100 GPUs with ``steps`` profiled steps; by default all of
    ``Problems`` are planted. ``changes``: how this run differs from others of the same job, for a comparison to find (default: not at all).
    Below ``out``: ``kineto/`` with one trace per rank, ``profiler-output/`` with the system metrics and steps of the whole job, and
    ``job.json``. The same arguments give the same bytes.

    An earlier simulated run there is replaced. Raises UsageError if a number is not positive, if the straggling rank does not exist, or if
    ``out`` contains another run.
    """
    problems, changes = problems or Problems(), changes or Changes()
    for name, value in (("steps", steps), ("nodes", nodes), ("gpus_per_node", gpus_per_node)):
        if value < 1:
            raise UsageError(f"{name} is {value}: give 1 or more")
    world_size = nodes * gpus_per_node
    if problems.straggler_rank is not None and not 0 <= problems.straggler_rank < world_size:
        raise UsageError(
            f"straggler_rank is {problems.straggler_rank}, but the run has ranks 0 to {world_size - 1}: choose one of them, or None"
        )
    if changes.slow_link_rank is not None and not 0 <= changes.slow_link_rank < world_size:
        raise UsageError(f"slow_link_rank is {changes.slow_link_rank}, but the run has ranks 0 to {world_size - 1}: choose one of them")
    ranks = simulate(
        start=job_module.WINDOW_START,
        first_step=job_module.FIRST_PROFILED_STEP,
        seed=seed,
        steps=steps,
        problems=problems,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        changes=changes,
    )
    job = job_module.job_around(ranks, problems, seed, gpus_per_node)
    truth = demo_truth(problems, ranks, job)
    _clear(out)
    (out / "kineto").mkdir(parents=True)
    _write_job_information(out, ranks, gpus_per_node, problems, changes)  # first, so that a run cut short is known as simulated
    for rank in ranks:
        write_trace(out / "kineto", rank, world_size=world_size, gpus_per_node=gpus_per_node, job_name=JOB_NAME)
    write_hosted(out / "profiler-output", job, truth.ranks, problems, seed)
    return truth
