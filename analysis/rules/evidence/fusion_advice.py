"""Advice on short kernels and chains of elementwise kernels: program -> the setting that fuses them or launches them together."""

from __future__ import annotations

from typing import Final

from ...causes.program import (
    DEEPSPEED,
    DIFFUSERS,
    GRAPHS,
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

FUSED: Final = Words(
    'Fuse the short kernels with `torch.compile` or launch them together with `torch.compile(mode="reduce-overhead")` or'
    " `torch.cuda.CUDAGraph`",
    "Fuse the short kernels with XLA: `tf.function(jit_compile=True)`, in Keras `model.compile(jit_compile=True)`",
    "Fuse the short kernels: put the whole step under one `jax.jit`, and donate its arguments (`donate_argnums`)",
    'Fuse the short kernels with `torch.compile` or launch them together with `torch.compile(mode="reduce-overhead")` or'
    " `torch.cuda.CUDAGraph` (PyTorch), or fuse them with `tf.function(jit_compile=True)` (TensorFlow)",
    programs=(
        (
            (VLLM, GRAPHS),
            "Give the short kernels more work per iteration with larger batches (`--max-num-seqs`, `--max-num-batched-tokens`)",
        ),
        ((VLLM,), "Launch the short kernels as CUDA graphs: start vLLM without `--enforce-eager`"),
        (
            (SGLANG, GRAPHS),
            "Give the short kernels more work per iteration with larger batches (`--max-running-requests`, `--chunked-prefill-size`)",
        ),
        (
            (SGLANG,),
            "Launch the short kernels as CUDA graphs: start SGLang without `--disable-cuda-graph`, with `--cuda-graph-max-bs` up to the"
            " largest batch",
        ),
        ((TENSORRT_LLM,), "Launch the short kernels as CUDA graphs: set `cuda_graph_config` with `enable_padding: true`"),
        (
            (TORCH_COMPILE, GRAPHS),
            'Remove graph breaks (`TORCH_LOGS="graph_breaks,recompiles"` lists them), so that `torch.compile`, which is in use, fuses more'
            " of the short kernels",
        ),
        (
            (TORCH_COMPILE, PYTORCH),
            'Remove graph breaks (`TORCH_LOGS="graph_breaks,recompiles"` lists them) and add `mode="reduce-overhead"` to the'
            " `torch.compile(...)` that is in use, so that it fuses more of the short kernels and launches them together",
        ),
        ((GRAPHS, PYTORCH), "Fuse the short kernels with `torch.compile`, inside the CUDA graphs that are in use"),
        ((DIFFUSERS,), "Fuse the short kernels: `pipeline.transformer.compile(fullgraph=True)` (`pipeline.unet` in older pipelines)"),
        ((HF_TRAINER,), 'Fuse the short kernels: `TrainingArguments(torch_compile=True, torch_compile_mode="reduce-overhead")`'),
        ((MEGATRON,), "Launch the short kernels as CUDA graphs (`--cuda-graph-impl local`)"),
        ((DEEPSPEED,), "Fuse the short kernels with `engine.compile()`"),
        ((LIGHTNING,), "Fuse the short kernels: `torch.compile(model)` before `trainer.fit(model)`"),
    ),
)
FUSED_OPTIMIZER: Final = Words(
    ", and give the optimizer `fused=True`",
    "",
    "",
    ", and give the optimizer `fused=True`",
    programs=(((HF_TRAINER,), ', and set `optim="adamw_torch_fused"`'), ((DEEPSPEED,), ""), ((MEGATRON,), "")),
)
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
