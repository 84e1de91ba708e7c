"""Cases of inference: vLLM, SGLang, Transformers and Diffusers, healthy and with planted causes."""

from __future__ import annotations

from typing import Final

from advice_score import CULPRITS, NOTHING, Case
from inference_jobs import Inference

TRAINING: Final = (
    "bucket_cap_mb", "DistributedDataParallel", "DistributedSampler", "optimizer", "backward", "num_workers", "gradient", "FullyShardedDataParallel",
    *CULPRITS,
)  # fmt: skip
"""Words of training."""

_FINE: Final = {"first": (NOTHING,), "must_not": ("SyncBound", "HostBound", "PageableCopies", *TRAINING)}
_EAGER: Final = {"graphs": False, "kernel_us": 9.0, "host_us": 22.0, "prefill_every": 30}

INFERENCE: Final = (
    Case("vLLM healthy", Inference(), **_FINE),
    Case("SGLang healthy", Inference("sglang"), **_FINE),
    Case("SGLang healthy, mostly prefill", Inference("sglang", prefill_every=2), **_FINE),
    Case("Diffusers healthy", Inference("diffusers", graphs=False, kernel_us=600.0), **_FINE),
    Case("Transformers prefill healthy", Inference("transformers", graphs=False, kernel_us=700.0, iterations=10), **_FINE),
    Case("vLLM healthy, tensor parallel", Inference(tensor_parallel=2), **_FINE),
    Case("vLLM healthy on AMD", Inference(gpu="MI300X"), **_FINE),
    Case("vLLM healthy, with stacks", Inference(stacks=True), **_FINE),
    Case("vLLM eager decode", Inference(**_EAGER), first=("HostBound", "ShortKernels"), says=("enforce.eager|CUDA graph|cudagraph",), must_not=("torch.cuda.CUDAGraph", *TRAINING)),
    Case("SGLang eager decode", Inference("sglang", **_EAGER), first=("HostBound", "ShortKernels"), says=("disable.cuda.graph|CUDA graph|cuda-graph",), must_not=("enforce.eager", *TRAINING)),
    Case("SGLang eager decode, with stacks", Inference("sglang", **_EAGER, stacks=True), first=("HostBound", "ShortKernels"), says=("disable.cuda.graph|CUDA graph|cuda-graph",), must_not=TRAINING),
    Case("Transformers eager decode", Inference("transformers", **_EAGER), first=("HostBound", "ShortKernels"), says=("compile|static|graph",), must_not=("enforce.eager", *TRAINING)),
    Case("Diffusers with small kernels", Inference("diffusers", **_EAGER), first=("HostBound", "ShortKernels"), says=("compile",), must_not=("enforce.eager", *TRAINING)),
    Case("vLLM scheduler gaps", Inference(scheduler_ms=3.0), first=("HostBound",), says=("schedul|between iterations",), must_not=("torch.compile", "enforce.eager", *TRAINING), without={"scheduler_ms": 0.15}, tolerance=6),
    Case("SGLang scheduler gaps", Inference("sglang", scheduler_ms=3.0), first=("HostBound",), says=("schedul|between iterations",), must_not=("torch.compile", "disable.cuda.graph", *TRAINING), without={"scheduler_ms": 0.15}, tolerance=6),
    Case("vLLM scheduler gaps for over a second", Inference(scheduler_ms=8.0, iterations=150, kernels=16), first=("HostBound",), says=("schedul|between iterations",), folded=("LowGPUUtilization",), must_not=TRAINING),
    Case("vLLM scheduler gaps, with stacks", Inference(scheduler_ms=3.0, stacks=True), first=("HostBound",), says=("schedule",), must_not=TRAINING),
    Case("vLLM prepares after it reads the tokens", Inference(prepare_ms=2.5), first=("SyncBound", "HostBound"), says=("async-scheduling",), must_not=("every 100 steps", "torch.compile", *TRAINING), without={"prepare_ms": 0.0}, tolerance=8),
    Case("SGLang prepares after it reads the tokens", Inference("sglang", prepare_ms=2.5), first=("SyncBound", "HostBound"), says=("overlap-schedule",), must_not=("every 100 steps", "disable.cuda.graph", *TRAINING)),
    Case("Transformers prefill without fusion", Inference("transformers", graphs=False, kernel_us=500.0, iterations=10, elementwise=8), first=("UnfusedElementwise",), says=("torch.compile",), must_not=("HostBound", "ShortKernels", "enforce.eager", *TRAINING), without={"elementwise": 1}, tolerance=6),
    Case("SGLang prefill without fusion", Inference("sglang", graphs=False, kernel_us=500.0, iterations=10, elementwise=8), first=("UnfusedElementwise",), says=("enable-torch-compile",), must_not=("HostBound", "ShortKernels", *TRAINING)),
    Case("vLLM exposed all-reduces", Inference(tensor_parallel=4, all_reduce_us=160.0, nccl=True, graphs=False, kernel_us=200.0), first=("ExposedCommunication", "SlowCollectives"), says=("all-reduce",), must_not=tuple(word for word in TRAINING if word != "SlowCollectives")),
    Case("vLLM in FP32", Inference(precision="fp32"), first=("LowPrecision",), says=("dtype|precision|bfloat16",), must_not=("autocast", *TRAINING)),
)  # fmt: skip
