"""Advice on chains of elementwise kernels: program -> the setting that fuses them."""

from __future__ import annotations

from typing import Final

from ...causes.program import (
    DEEPSPEED,
    DIFFUSERS,
    HF_TRAINER,
    INFERENCE,
    LIGHTNING,
    MEGATRON,
    PYTORCH,
    SGLANG,
    TENSORRT_LLM,
    TORCH_COMPILE,
    TRANSFORMERS,
    VLLM,
)
from .frameworks import Words

FUSED_CHAINS: Final = Words(
    "Fuse these chains with `torch.compile(model)`",
    "Fuse these chains with XLA: `tf.function(jit_compile=True)`",
    "Fuse these chains: put the whole step under one `jax.jit`",
    "Fuse these chains with `torch.compile(model)`",
    programs=(
        (
            (VLLM, TORCH_COMPILE),
            "Find the operators around these chains and write them into a custom operator: `torch.compile`, which is in use, does not fuse"
            " them",
        ),
        ((VLLM,), "Fuse these chains with vLLM's compilation: start it without `--enforce-eager`"),
        ((SGLANG,), "Fuse these chains: start SGLang with `--enable-torch-compile`"),
        ((TENSORRT_LLM,), "Fuse these chains: set `torch_compile_config` of `LLM(...)`"),
        (
            (TORCH_COMPILE, PYTORCH),
            'Compile these chains as well: `TORCH_LOGS="graph_breaks,recompiles"` lists what the `torch.compile(...)` that is in use leaves'
            " out",
        ),
        ((DIFFUSERS,), "Fuse these chains: `pipeline.transformer.compile(fullgraph=True)` (`pipeline.unet` in older pipelines)"),
        ((HF_TRAINER,), "Fuse these chains: `TrainingArguments(torch_compile=True)`, or `use_liger_kernel=True`"),
        (
            (MEGATRON,),
            "Fuse these chains with Megatron's fusions (leave out `--no-bias-gelu-fusion`, `--no-bias-dropout-fusion`, `--no-rope-fusion`)",
        ),
        ((DEEPSPEED,), "Fuse these chains with `engine.compile()`"),
        ((LIGHTNING,), "Fuse these chains: `torch.compile(model)` before `trainer.fit(model)`"),
        ((INFERENCE, TRANSFORMERS), "Fuse these chains with `model.forward = torch.compile(model.forward)`"),
    ),
)
