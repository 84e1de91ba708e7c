"""Advice on copies, and on work that is offloaded to the host: kind and program -> the change that avoids or hides them."""

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
GPU_OPTIMIZER: Final = Words(
    "Keep the optimizer and its states on the GPU if they fit",
    "Keep the optimizer and its variables on the GPU if they fit",
    "Keep the optimizer and its states on the GPU if they fit",
    "Keep the optimizer and its states on the GPU if they fit",
    programs=(
        (
            (DEEPSPEED,),
            "Keep the optimizer states on the GPUs if they fit (without `offload_optimizer`), or update a part of them there"
            ' (`"offload_optimizer": {"ratio": 0.5}`)',
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
_WEIGHTS_BYTES: Final = 4 * 2**20  # mean size of copies of weights; requests and images of inference are smaller
_OFFLOADING: Final = {DEEPSPEED, FSDP}
_BETWEEN: Final = "Copy between GPUs on a stream of its own, early enough that kernels hide it"
_SET: Final = "Allocate tensors with `empty` if all of their elements are written, and drop gradients instead of setting them to zero"


def moves_weights(known: Program, kind: str, mean_bytes: float) -> bool:
    """Return whether copies move weights, gradients or states.

    ``mean_bytes``: of a copy. Inputs of inference are smaller; a library that shards a training copies its parameters and gradients."""
    if kind not in ("HtoD", "DtoH"):
        return False
    return mean_bytes >= _WEIGHTS_BYTES and (known.kind == INFERENCE or not _OFFLOADING.isdisjoint(known.frameworks))


def copy_advice(known: Program, kind: str, memory: str | None, mean_bytes: float = 0.0) -> str:
    """Return an imperative, without its reason."""
    if moves_weights(known, kind, mean_bytes):
        return _FROM_HOST.of(known)
    if kind in ("HtoD", "HtoH"):
        return (PINNED_BATCHES if memory == "pageable" else _FROM_HOST).of(known)
    if kind == "DtoH":
        return PINNED_RESULTS.of(known)
    if kind == "PtoP":
        return _BETWEEN
    if kind == "Memset":
        return _SET
    return _ON_DEVICE.of(known)
