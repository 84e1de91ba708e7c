"""Advice on attention that runs as a chain of operators: program -> the setting or call that fuses it."""

from __future__ import annotations

from typing import Final

from ...causes.program import DEEPSPEED, DIFFUSERS, HF_TRAINER, MEGATRON, SGLANG, TRANSFORMERS, VLLM
from .frameworks import Words

_SDPA: Final = (
    "Replace the products, the softmax and the operators between them by one call:"
    " `torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=p, scale=scale)`, with"
    " `is_causal=True` instead of a causal mask"
)
_ARGUMENT: Final = 'Load the model with `attn_implementation="sdpa"` (or `"flash_attention_2"`) instead of `"eager"`'
FUSED_ATTENTION: Final = Words(
    _SDPA,
    "",
    "",
    _SDPA,
    programs=(
        ((VLLM,), f"Give the model's own attention layer to vLLM's `Attention`, or: {_SDPA[0].lower()}{_SDPA[1:]}"),
        ((SGLANG,), f"Give the model's own attention layer to SGLang's `RadixAttention`, or: {_SDPA[0].lower()}{_SDPA[1:]}"),
        (
            (DIFFUSERS,),
            'Set fused attention: `pipeline.transformer.set_attention_backend("native")` (`AttnProcessor2_0` in older versions)',
        ),
        ((HF_TRAINER,), _ARGUMENT),
        ((MEGATRON,), "Set `--attention-backend flash` (or `fused`) instead of `local` or `unfused`"),
        ((TRANSFORMERS,), _ARGUMENT),
        ((DEEPSPEED,), _SDPA),
    ),
)
# The composite was called, and fell back to products and a softmax.
MATH_FORM: Final = (
    "Let `scaled_dot_product_attention`, which is called already, use a fused kernel: it runs as products and a softmax, because the"
    " inputs or `sdpa_kernel(...)` exclude the others. Inputs in BF16 or FP16, head sizes up to 256 and a mask without gradient allow them;"
    " `with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):` reports what excludes them"
)
