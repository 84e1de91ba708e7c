"""Advice on copies that no kernel hides: kind of copy and program -> the change that avoids or hides them."""

from __future__ import annotations

from typing import Final

from ...causes.program import DEEPSPEED, DIFFUSERS, FSDP, GRAPHS, INFERENCE, PYTORCH, SGLANG, TRANSFORMERS, VLLM
from ...report.causes import Program
from .frameworks import PINNED_BATCHES, PINNED_RESULTS, Words

_AHEAD: Final = "copy the rest on a stream of its own while kernels run"
# Weights that a library keeps in host memory are what it copies again and again in large pieces.
_FROM_HOST: Final = Words(
    f"Keep on the GPU what is copied in every step, and {_AHEAD} (`with torch.cuda.stream(...)`, `non_blocking=True`)",
    'Copy batches ahead with `dataset.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))` as the last transformation',
    "Copy batches ahead with `jax.device_put` of the next one before this one is done",
    f"Keep on the GPU what is copied in every step, and {_AHEAD}",
    programs=(
        ((VLLM,), "Keep weights and KV cache on the GPU if they fit (`--cpu-offload-gb 0`), or quantize the weights"),
        ((SGLANG,), "Keep weights and KV cache on the GPU if they fit (`--cpu-offload-gb 0`), or quantize the weights"),
        (
            (DIFFUSERS,),
            'Keep the pipeline on the GPU if it fits (`pipeline.to("cuda")` instead of `enable_model_cpu_offload()` or'
            " `enable_sequential_cpu_offload()`), or quantize it",
        ),
        (
            (DEEPSPEED,),
            "Keep parameters and optimizer states on the GPUs if they fit (without `offload_param` and `offload_optimizer`), or copy fewer"
            " bytes in BF16",
        ),
        (
            (FSDP,),
            "Keep the parameters on the GPUs if they fit (FSDP without `CPUOffload`, FSDP2 without `CPUOffloadPolicy`), or copy fewer bytes"
            " in BF16",
        ),
        (
            (INFERENCE, TRANSFORMERS),
            'Keep the model on the GPU if it fits (`device_map="cuda"`), in BF16 or quantized, instead of copying layers from the host',
        ),
        (
            (INFERENCE, PYTORCH),
            f"Keep on the GPU what is copied in every iteration, and {_AHEAD} (`with torch.cuda.stream(...)`, `non_blocking=True`)",
        ),
    ),
)
_ON_DEVICE: Final = Words(
    "Avoid copies between tensors of the device (`clone`, `contiguous`, `cat`, `copy_`): write results where they are used (`out=`), and"
    " keep one memory layout",
    "Avoid copies between tensors of the device: compile the step with `tf.function(jit_compile=True)`",
    "Avoid copies between arrays of the device: donate the arguments of the step (`donate_argnums`)",
    "Avoid copies between tensors of the device: write results where they are used, and keep one memory layout",
    programs=(
        (
            (GRAPHS, PYTORCH),
            "Avoid copies into and out of CUDA graphs: write inputs into the static tensors of the graph where they are made, and use its"
            " outputs before the next replay instead of cloning them",
        ),
    ),
)
_BETWEEN: Final = "Copy between GPUs on a stream of its own, early enough that kernels hide it"
_SET: Final = "Allocate tensors with `empty` if all of their elements are written, and drop gradients instead of setting them to zero"


def copy_advice(known: Program, kind: str, memory: str | None) -> str:
    """Return an imperative, without its reason."""
    if kind in ("HtoD", "HtoH"):
        return (PINNED_BATCHES if memory == "pageable" else _FROM_HOST).of(known)
    if kind == "DtoH":
        return PINNED_RESULTS.of(known)
    if kind == "PtoP":
        return _BETWEEN
    if kind == "Memset":
        return _SET
    return _ON_DEVICE.of(known)
