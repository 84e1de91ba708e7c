"""Cases of several ranks: slow ranks, pipeline stages, uneven work, pauses and links."""

from __future__ import annotations

from typing import Final

from advice_score import CULPRITS, NOTHING, Case
from published_jobs import Published
from training_jobs import Training

NETWORK: Final = ("bucket_cap_mb", "fewer bytes", "async_op", "bf16_compress_hook", "NCCL_")
"""Advice on communication, where communication is not the cause."""


def _others(*rules: str) -> tuple[str, ...]:
    """Return the rules that must not name a cause, besides the right ones."""
    return tuple(rule for rule in CULPRITS if rule not in rules)


_WITHIN: Final = 8.0  # The prediction gives a slow rank the mean of its peers, itself included; the suite gives it a clock like theirs.
_SLOW: Final = {
    "first": ("StragglerRank",),
    "must_not": (*_others("StragglerRank"), *NETWORK),
    "without": {"slow_ranks": ()},
    "tolerance": _WITHIN,
}
_PIPE: Final = {"style": "megatron", "pipeline": 4, "data_parallel": 2, "steps": 4, "layers": 2, "layer_ms": 2.0, "layer_mb": 60.0}

STRAGGLERS: Final = (
    Case("slow rank, DDP", Training(slow_ranks=((2, 1.3),)), says=("rank 2",), **_SLOW),
    Case("slow rank on the second node", Training(data_parallel=8, gpus_per_node=4, slow_ranks=((5, 1.3),)), says=("rank 5", "node-1"), **_SLOW),
    Case("slow rank, FSDP", Training(style="fsdp", slow_ranks=((1, 1.3),)), says=("rank 1",), **_SLOW),
    Case("slow rank, tensor parallel", Training(style="megatron", data_parallel=2, tensor_parallel=2, slow_ranks=((3, 1.4),)), says=("rank 3",), **_SLOW),
    Case(
        "slow rank in a pipeline",
        Training(style="megatron", pipeline=2, data_parallel=4, steps=4, layers=2, slow_ranks=((1, 1.4),)), says=("rank 1",), **_SLOW,
    ),
    Case("slow rank in a deep pipeline", Training(**{**_PIPE, "data_parallel": 4}, slow_ranks=((6, 1.5),)), says=("rank 6",), **_SLOW),
    Case("slow rank, no process groups", Training(groups=False, slow_ranks=((2, 1.3),)), says=("rank 2",), **_SLOW),
    Case("slow rank, no distributed information", Training(metadata=False, groups=False, slow_ranks=((2, 1.3),)), **_SLOW),
    Case("slow rank from the second step", Training(slow_ranks=((0, 1.3),), slow_from_step=1), says=("rank 0",), **_SLOW),
    Case("rank 15% slower", Training(slow_ranks=((3, 1.15),)), says=("rank 3",), **_SLOW),
    Case("two slow ranks of eight", Training(data_parallel=8, slow_ranks=((1, 1.3), (6, 1.35))), says=("rank 6",), **_SLOW),
    Case("slow rank, node clocks differ", Training(data_parallel=8, gpus_per_node=4, slow_ranks=((6, 1.3),), skew_us=(0, 900)), says=("rank 6",), **_SLOW),
    Case("slow rank, with stacks", Training(slow_ranks=((2, 1.3),), stacks=True), says=("rank 2",), **_SLOW),
    Case("slow AMD GPU", Training(gpu="MI300X", slow_ranks=((2, 1.3),)), says=("rank 2", "rocm-smi|amd-smi"), first=("StragglerRank",), must_not=(*_others("StragglerRank"), *NETWORK, "nvidia-smi", "dcgmi"), without={"slow_ranks": ()}, tolerance=_WITHIN),
    Case(
        "slow rank that was not recorded", Training(slow_ranks=((2, 1.3),), recorded=(0, 1)), first=("ExposedCommunication",),
        must_not=(*CULPRITS, "bucket_cap_mb", "bf16_compress_hook"),
    ),
    Case("one slow step of six", Training(slow_ranks=((2, 1.3),), slow_from_step=5), first=(NOTHING, "WorkImbalance", "HostPauses", "ExposedCommunication", "StepOutlier"), must_not=("StragglerRank", "StageImbalance", "SlowCollectives", "nvidia-smi")),
    Case("one step, one rank slower", Training(slow_ranks=((2, 1.2),), steps=1), first=(NOTHING, "ExposedCommunication", "WorkImbalance"), must_not=("StragglerRank", "StageImbalance", "SlowCollectives", "LoadBalancing", "nvidia-smi")),
    Case("published job with a slow worker", Published("AR"), first=("StragglerRank",), says=("rank 0\\b",), must_not=(*_others("StragglerRank"), *NETWORK), saving_percent=49.3, tolerance=9.9),
    Case("published job with a slow worker, no groups", Published("AR", groups=False), first=("StragglerRank",), says=("rank 0\\b",), must_not=("StageImbalance", *NETWORK)),
    Case("published job with a slow worker, other streams", Published("AR", streams=100), first=("StragglerRank",), says=("rank 0\\b",), must_not=_others("StragglerRank"), saving_percent=49.3, tolerance=9.9),
)  # fmt: skip

_STAGE: Final = {"first": ("StageImbalance",), "must_not": (*_others("StageImbalance"), "nvidia-smi", *NETWORK)}

STAGES: Final = (
    Case("stage with more layers", Training(**{**_PIPE, "layers": 3, "layer_ms": 1.4}, stage_layers=((2, 7),)), says=("stage 2",), without={"stage_layers": (), "layers": 4}, tolerance=7, **_STAGE),
    Case("stage with one more layer, no data parallel", Training(**{**_PIPE, "data_parallel": 1, "layers": 3}, stage_layers=((1, 5),)), says=("stage 1",), **_STAGE),
    Case("loss on the last stage", Training(**_PIPE, loss_ms=3.0), says=("stage 3", "loss|vocabulary|output layer|logits"), **_STAGE),
    Case("loss on the last of two stages", Training(style="megatron", pipeline=2, data_parallel=2, steps=4, layers=2, loss_ms=9.0), says=("stage 1", "loss|vocabulary|output layer|logits"), **_STAGE),
    Case("embedding on the first stage", Training(**_PIPE, embedding_ms=3.5), says=("stage 0",), **_STAGE),
    Case("both ranks of a stage slower", Training(**_PIPE, stage_scale=((3, 1.5),)), says=("stage 3",), **_STAGE),
    Case("short first stage", Training(**{**_PIPE, "layers": 4, "layer_ms": 1.0}, stage_layers=((0, 2),)), first=(NOTHING, "StageImbalance", "ExposedCommunication"), must_not=(*_others("StageImbalance"), "nvidia-smi")),
    Case("longer stage, no process groups", Training(**_PIPE, stage_layers=((2, 4),), groups=False), first=("StageImbalance", "ExposedCommunication", NOTHING), must_not=(*_others("StageImbalance"), "nvidia-smi")),
    Case("longer stage, 16 ranks on two nodes", Training(**{**_PIPE, "data_parallel": 4, "steps": 3}, stage_layers=((3, 4),)), says=("stage 3",), **_STAGE),
    Case("longer stage, node clocks differ", Training(**_PIPE, gpus_per_node=4, stage_layers=((1, 4),), skew_us=(0, -700)), says=("stage 1",), **_STAGE),
    Case("published job with a long last stage", Published("ST"), says=("stage 3",), saving_percent=18.5, tolerance=3.7, **_STAGE),
    Case("published job with a long last stage, no groups", Published("ST", groups=False), first=("StageImbalance", "ExposedCommunication", NOTHING), must_not=(*_others("StageImbalance"), "nvidia-smi")),
    Case("published job with a long last stage, other streams", Published("ST", streams=40), says=("stage 3",), saving_percent=18.5, tolerance=3.7, **_STAGE),
)  # fmt: skip

_LENGTHS: Final = {"first": ("WorkImbalance",), "must_not": (*_others("WorkImbalance"), "nvidia-smi", *NETWORK)}

WORK: Final = (
    Case("varying sequence lengths, DDP", Training(length_spread=0.4, steps=10, layers=3), says=("length|padding|batch",), **_LENGTHS),
    Case("varying sequence lengths, FSDP", Training(style="fsdp", length_spread=0.4, steps=10, layers=3), **_LENGTHS),
    Case("varying sequence lengths, two nodes", Training(data_parallel=8, gpus_per_node=4, length_spread=0.45, steps=10, layers=2), **_LENGTHS),
    Case("varying sequence lengths in a pipeline", Training(**{**_PIPE, "pipeline": 2, "data_parallel": 4, "steps": 8}, length_spread=0.45), **_LENGTHS),
    Case("varying sequence lengths, no process groups", Training(length_spread=0.4, steps=10, layers=3, groups=False), **_LENGTHS),
    Case("slightly varying sequence lengths", Training(length_spread=0.03, steps=8), first=(NOTHING,), must_not=CULPRITS),
)  # fmt: skip

_PAUSES: Final = {"must_not": (*_others("HostPauses"), "nvidia-smi", *NETWORK)}

PAUSES: Final = (
    Case("garbage collection on all ranks", Training(gc_ms=45, stacks=True), first=("HostPauses",), says=("garbage|collect",), without={"gc_ms": 0.0}, **_PAUSES),
    Case("garbage collection of one rank at a time", Training(gc_ms=45, gc_ranks=(0, 1, 2, 3), gc_every=4, stacks=True, steps=8), first=("HostPauses",), says=("garbage|collect",), without={"gc_ms": 0.0}, **_PAUSES),
    Case("garbage collection with a range", Training(gc_ms=45), first=("HostPauses",), says=("GC|garbage",), without={"gc_ms": 0.0}, **_PAUSES),
    Case("unrecorded pauses of one rank", Training(gc_ms=45, gc_ranks=(2,), gc_every=2, gc_visible=False), first=("HostPauses",), says=("rank 2",), without={"gc_ms": 0.0}, **_PAUSES),
    Case("checkpoint on all ranks", Training(checkpoint_ms=150), first=("HostPauses",), says=("checkpoint",), without={"checkpoint_ms": 0.0}, **_PAUSES),
    Case("checkpoint on rank 0", Training(checkpoint_ms=150, checkpoint_ranks=(0,), style="fsdp"), first=("HostPauses",), says=("rank 0", "checkpoint"), without={"checkpoint_ms": 0.0}, **_PAUSES),
    Case("checkpoint with stacks", Training(checkpoint_ms=150, checkpoint_ranks=(0,), stacks=True, checkpoint_visible=False), first=("HostPauses",), says=("checkpoint",), without={"checkpoint_ms": 0.0}, **_PAUSES),
    Case("rank delayed by logging", Training(late_ranks=((1, 30.0),)), first=("HostPauses",), says=("rank 1", "log_metrics"), without={"late_ranks": ()}, **_PAUSES),
    Case("rank delayed by logging, FSDP", Training(style="fsdp", late_ranks=((3, 30.0),)), first=("HostPauses",), says=("rank 3",), without={"late_ranks": ()}, **_PAUSES),
    Case("late rank, no process groups", Training(groups=False, late_ranks=((0, 30.0),)), first=("HostPauses",), says=("rank 0",), without={"late_ranks": ()}, **_PAUSES),
    Case("late rank, with stacks", Training(late_ranks=((1, 30.0),), late_range=None, stacks=True), first=("HostPauses",), says=("rank 1", "metrics.py"), without={"late_ranks": ()}, **_PAUSES),
    Case("late rank that was not recorded", Training(late_ranks=((1, 30.0),), recorded=(0, 2)), first=("ExposedCommunication",), must_not=(*CULPRITS, "bucket_cap_mb", "bf16_compress_hook")),
)  # fmt: skip

_BIG: Final = 900.0  # MB of gradients per layer: its all-reduce takes 3.75 ms over NVLink
_EXPOSED: Final = {"first": ("ExposedCommunication",)}
_DDP: Final = ("bucket_cap_mb", "DistributedDataParallel", "static_graph")
_FSDP: Final = ("FullyShardedDataParallel", "fully_shard", "forward_prefetch", "BackwardPrefetch")
_MEGATRON: Final = ("overlap.grad.reduce",)

COMMUNICATION: Final = (
    Case("slow links of one data-parallel group", Training(style="megatron", pipeline=2, data_parallel=4, steps=4, layers=2, layer_mb=400.0, slow_groups=(("dp1.0", 8.0),)), first=("SlowCollectives",), must_not=(*_others("SlowCollectives"), "bucket_cap_mb")),
    Case("slow link of one tensor-parallel group", Training(style="megatron", data_parallel=2, tensor_parallel=2, slow_groups=(("tp0.1", 60.0),)), first=("SlowCollectives",), must_not=(*_others("SlowCollectives"), "bucket_cap_mb")),
    Case("all links slow inside a node", Training(transfer_scale=14.0, layer_mb=500.0), first=("SlowCollectives",), must_not=_others("SlowCollectives"), without={"transfer_scale": 1.0}),
    Case("all links slow between nodes", Training(data_parallel=8, gpus_per_node=4, transfer_scale=12.0, layer_mb=300.0), first=("ExposedCommunication", "SlowCollectives"), says=(r"1[34]\.\d GB/s",), must_not=_others("SlowCollectives")),
    Case("DDP without overlap", Training(overlap=False, layer_mb=_BIG), says=("all-reduce",), must_not=("async_op", *_FSDP, *CULPRITS), without={"overlap": True}, tolerance=6, **_EXPOSED),
    Case("DDP without overlap, two nodes", Training(overlap=False, data_parallel=8, gpus_per_node=4, layer_mb=500.0), says=("all-reduce",), must_not=("async_op", *_FSDP, *CULPRITS), tolerance=6, **_EXPOSED),
    Case("DDP without overlap, no groups", Training(overlap=False, layer_mb=_BIG, groups=False), says=("all-reduce",), must_not=("async_op", *_FSDP, *CULPRITS), **_EXPOSED),
    Case("DDP without overlap, one rank recorded", Training(overlap=False, layer_mb=_BIG, recorded=(0,)), says=("all-reduce",), must_not=("async_op", *_FSDP, *CULPRITS), **_EXPOSED),
    Case("FSDP without prefetch", Training(style="fsdp", prefetch=False, layer_mb=1400.0), says=("all-gather", "prefetch"), must_not=("bucket_cap_mb", "static_graph", *CULPRITS), without={"prefetch": True}, tolerance=8, **_EXPOSED),
    Case("FSDP without prefetch, two nodes", Training(style="fsdp", prefetch=False, data_parallel=8, gpus_per_node=4, layer_mb=600.0), says=("all-gather", "prefetch"), must_not=("bucket_cap_mb", *CULPRITS), **_EXPOSED),
    Case("manual synchronous all-reduces", Training(style="manual", synchronous=True, layer_mb=_BIG, ranges=False), first=("ExposedCommunication", "SyncBound"), says=("async_op|DistributedDataParallel",), must_not=("bucket_cap_mb", "no_sync", *_FSDP, *CULPRITS)),
    Case("manual synchronous all-reduces, with stacks", Training(style="manual", synchronous=True, layer_mb=_BIG, ranges=False, stacks=True), first=("ExposedCommunication", "SyncBound"), says=("average_gradients|train.py",), must_not=("bucket_cap_mb", *_FSDP, *CULPRITS)),
    Case("manual all-reduces after backward", Training(style="manual", layer_mb=_BIG, ranges=False), says=("all-reduce",), must_not=("bucket_cap_mb", *_FSDP, *CULPRITS), **_EXPOSED),
    Case("Megatron gradients exposed", Training(style="megatron", data_parallel=4, pipeline=2, steps=4, layers=2, layer_mb=4000.0, layer_ms=3.0), says=("reduce-scatter|all-gather",), must_not=(*_DDP, *_FSDP, *CULPRITS), **_EXPOSED),
    Case("tensor-parallel all-reduces exposed", Training(style="megatron", data_parallel=1, tensor_parallel=4, layer_ms=0.25, layers=8, optimizer_ms=0.5), says=("all-reduce",), must_not=(*_DDP, *_FSDP, *CULPRITS), **_EXPOSED),
    Case("AMD DDP without overlap", Training(gpu="MI300X", overlap=False, layer_mb=_BIG), says=("all-reduce",), must_not=("async_op", "NVLink", "nvidia", *_FSDP, *CULPRITS), **_EXPOSED),
)  # fmt: skip
