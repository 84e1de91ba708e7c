"""Cases of the host: late launches, data loading, synchronization, copies, precision; and healthy training runs."""

from __future__ import annotations

from typing import Final

from advice_score import CULPRITS, NOTHING, Case
from training_jobs import Training

_SINGLE: Final = {"style": "none", "data_parallel": 1}
_SMALL: Final = {**_SINGLE, "layers": 8, "layer_ms": 0.08, "kernels_per_layer": 16, "optimizer_ms": 0.1, "host_us": 30.0, "pinned_mb": 0.05}
COMPILE: Final = (r"torch\.compile\(model\)", r"torch\.compile`", r"with `torch\.compile` or")
"""Advice to begin to compile."""

HOST: Final = (
    Case("many small kernels", Training(**_SMALL), first=("HostBound", "ShortKernels"), says=("compile|graph",), must_not=("num_workers", "DataLoader", *CULPRITS)),
    Case("many small kernels for over a second", Training(**{**_SMALL, "steps": 170, "layers": 3}), first=("HostBound", "ShortKernels"), says=("compile|graph",), folded=("LowGPUUtilization",), must_not=("num_workers", *CULPRITS)),
    Case("many small kernels, four ranks", Training(**{**_SMALL, "style": "ddp", "data_parallel": 4, "layer_mb": 1.0}), first=("HostBound", "ShortKernels"), must_not=("num_workers", *CULPRITS)),
    Case("many small kernels, compiled already", Training(**_SMALL, compiled=True), first=("HostBound", "ShortKernels"), says=("reduce-overhead|graph",), must_not=COMPILE),
    Case("only short kernels", Training(**{**_SMALL, "host_us": 16.0}, short_kernels=True), first=("ShortKernels", "HostBound"), says=("fuse|compile|graph",), must_not=CULPRITS),
    Case("small kernels on AMD", Training(**_SMALL, gpu="MI300X"), first=("HostBound", "ShortKernels"), must_not=("nvidia", "NVIDIA", *CULPRITS)),
    Case("slow data loader", Training(**_SINGLE, loader_ms=130.0, log_sync=False), first=("HostBound", "Dataloader", "InputBound"), says=("num_workers",), must_not=("CUDAGraph", "reduce-overhead", ".item"), without={"loader_ms": 0.2}),
    Case("slow data loader on four ranks", Training(loader_ms=60.0), first=("HostBound", "Dataloader", "InputBound"), says=("num_workers",), must_not=("CUDAGraph", "reduce-overhead", *CULPRITS), without={"loader_ms": 0.2}),
    Case("slow data loader for over a second", Training(**_SINGLE, loader_ms=150.0, steps=8, log_sync=False), first=("HostBound", "Dataloader", "InputBound"), says=("num_workers",), folded=("LowGPUUtilization",), must_not=("CUDAGraph", "larger batch")),
    Case("slow data loader, graphs in use", Training(**_SINGLE, loader_ms=130.0, log_sync=False, graphs=True), first=("HostBound", "Dataloader", "InputBound"), says=("num_workers",), must_not=("CUDAGraph", "reduce-overhead")),
    Case("slow data loader, with stacks", Training(**_SINGLE, loader_ms=60.0, stacks=True), first=("HostBound", "Dataloader", "InputBound"), says=("num_workers|dataloader",), must_not=("CUDAGraph",)),
    Case("slow loading without a range", Training(**_SINGLE, loader_ms=60.0, loader_range=False), first=("SyncBound", "HostBound"), must_not=("num_workers", "CUDAGraph")),
    Case("values read back in each step", Training(**_SINGLE, items=4, item_host_ms=6.0), first=("SyncBound",), says=(r"\.item\(\)|aten::item",), must_not=("num_workers", *CULPRITS), without={"items": 0}),
    Case("values read back, with stacks", Training(**_SINGLE, items=4, item_host_ms=6.0, stacks=True), first=("SyncBound",), says=(r"train\.py",), must_not=("num_workers",)),
    Case("values read back on four ranks", Training(items=4, item_host_ms=6.0), first=("SyncBound",), says=(r"\.item\(\)|aten::item",), must_not=("num_workers", *CULPRITS)),
    Case("small blocking copy", Training(**_SINGLE, blocking_copies=1, input_host_ms=40.0, log_sync=False), first=("SyncBound", "PageableCopies"), says=("704|copy|copies",), must_not=("num_workers", "CUDAGraph"), without={"blocking_copies": 0}),
    Case("small blocking copy, with stacks", Training(**_SINGLE, blocking_copies=1, input_host_ms=40.0, log_sync=False, stacks=True), first=("SyncBound", "PageableCopies"), says=("lengths_to_host|sparse.py",), must_not=("num_workers",)),
    Case("pageable input copies", Training(**_SINGLE, pageable_mb=120.0), first=("PageableCopies",), says=("pin",), must_not=("num_workers", "CUDAGraph", *CULPRITS)),
    Case("pageable input copies on four ranks", Training(pageable_mb=120.0), first=("PageableCopies",), says=("pin",), must_not=CULPRITS),
    Case("FP32 on tensor cores", Training(**_SINGLE, precision="fp32"), first=("LowPrecision",), says=("TF32|bfloat16|BF16|autocast",), must_not=("HostBound", *CULPRITS)),
    Case("FP32 on tensor cores, A100, four ranks", Training(precision="fp32", gpu="A100"), first=("LowPrecision",), must_not=CULPRITS),
    Case("FP32 on V100", Training(**_SINGLE, precision="fp32", gpu="V100"), first=("LowPrecision",), says=("FP16|float16|half|autocast",), must_not=("TF32", "bfloat16", "allow_tf32")),
    Case("FP32 on P100", Training(**_SINGLE, precision="fp32", gpu="P100"), first=(NOTHING,), must_not=("LowPrecision",)),
    Case("TF32 products", Training(**_SINGLE, precision="tf32"), first=(NOTHING,), must_not=("LowPrecision",)),
    Case("launched work waits for a host function", Training(**_SINGLE, device_wait_ms=30.0, log_sync=False, ahead_steps=2.0), first=(NOTHING,), must_not=("HostBound", "ShortKernels", *CULPRITS)),
    Case("slow data loader and few pageable copies", Training(**_SINGLE, loader_ms=60.0, pageable_mb=8.0), first=("HostBound", "Dataloader", "InputBound"), says=("num_workers",), must_not=("CUDAGraph",)),
    Case("recompiles", Training(**_SINGLE, compiled=True, recompiles=2), first=("HostBound", "HostPauses"), says=("compil",), must_not=(*COMPILE, "num_workers"), without={"recompiles": 0}),
    Case("queue filled before the window", Training(**_SINGLE, ahead_steps=2.2, log_sync=False, recorded_from=3, steps=7), first=(NOTHING,), must_not=("HostBound", "SyncBound", *CULPRITS)),
    Case("queue filled before the window, DDP", Training(ahead_steps=2.2, log_sync=False, recorded_from=3, steps=7), first=(NOTHING,), must_not=("HostBound", "SyncBound", *CULPRITS)),
    Case("queue filled before the window, FSDP exposed", Training(style="fsdp", prefetch=False, layer_mb=1400.0, ahead_steps=2.2, log_sync=False, recorded_from=3, steps=7), first=("ExposedCommunication",), must_not=("HostBound", *CULPRITS)),
)  # fmt: skip

_FINE: Final = {"first": (NOTHING,), "must_not": (*CULPRITS, "LoadBalancing", "HostBound", "SyncBound", "LowGPUUtilization")}
_PIPE: Final = {"style": "megatron", "steps": 4, "layers": 2, "layer_ms": 2.0, "layer_mb": 60.0}
BUBBLES: Final = {
    "first": (NOTHING, "ExposedCommunication"),
    "must_not": (*CULPRITS, "LoadBalancing", "HostBound", "bucket_cap_mb", "nvidia-smi", "NCCL_"),
}
"""A balanced pipeline: the send-receive kernels wait in its bubbles."""

HEALTHY: Final = (
    Case("healthy DDP", Training(), **_FINE),
    Case("healthy DDP on two nodes", Training(data_parallel=8, gpus_per_node=4, layer_mb=60.0), **_FINE),
    Case("healthy DDP, node clocks differ", Training(data_parallel=8, gpus_per_node=4, layer_mb=60.0, skew_us=(0, 1200)), **_FINE),
    Case("healthy DDP, no process groups", Training(groups=False), **_FINE),
    Case("healthy DDP, no distributed information", Training(groups=False, metadata=False), **_FINE),
    Case("healthy DDP without step ranges", Training(step_ranges=False), **_FINE),
    Case("healthy DDP, one step", Training(steps=1), **_FINE),
    Case("healthy DDP, two steps", Training(steps=2), **_FINE),
    Case("healthy DDP, one rank recorded", Training(recorded=(1,)), **_FINE),
    Case("healthy DDP, with stacks", Training(stacks=True), **_FINE),
    Case("healthy DDP, noisy kernels", Training(noise=0.06, steps=8), **_FINE),
    Case("healthy DDP, short profile of two ranks", Training(data_parallel=2, steps=2, layers=1, layer_ms=3.0, layer_mb=20.0), **_FINE),
    Case("healthy DDP, AMD", Training(gpu="MI300X"), **_FINE),
    Case("healthy DDP, A100", Training(gpu="A100"), **_FINE),
    Case("healthy FSDP", Training(style="fsdp"), **_FINE),
    Case("healthy FSDP on two nodes", Training(style="fsdp", data_parallel=8, gpus_per_node=4, layer_mb=60.0), **_FINE),
    Case("healthy tensor parallel", Training(style="megatron", data_parallel=2, tensor_parallel=2), **_FINE),
    Case("healthy single GPU", Training(**_SINGLE), **_FINE),
    Case("healthy single GPU, no read-back", Training(**_SINGLE, log_sync=False), **_FINE),
    Case("healthy, compiled", Training(**_SINGLE, compiled=True), **_FINE),
    Case("healthy, CUDA graphs", Training(**_SINGLE, graphs=True), **_FINE),
    Case("healthy for over a second", Training(steps=12), **_FINE),
    Case("balanced pipeline of two stages", Training(**_PIPE, pipeline=2, data_parallel=2), **BUBBLES),
    Case("balanced pipeline of four stages", Training(**_PIPE, pipeline=4, data_parallel=2), **BUBBLES),
    Case("balanced pipeline with few microbatches", Training(**_PIPE, pipeline=4, data_parallel=2, microbatches=4), **BUBBLES),
    Case("balanced pipeline, no process groups", Training(**_PIPE, pipeline=4, data_parallel=2, groups=False), **BUBBLES),
    Case("balanced pipeline of one rank per stage", Training(**_PIPE, pipeline=4, data_parallel=1), **BUBBLES),
)  # fmt: skip
