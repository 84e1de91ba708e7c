"""Attention: 2 B H S_q S_k (D_qk + D_v) forward, as PyTorch's FlopCounterMode counts: causal attention in full.

The backward counts five products, the recomputed scores among them, where the forward has two. ``model_flop`` counts the kept pairs alone,
and the backward without recomputation: twice the forward. Logsumexp, random states and sizes of sequences are not among the bytes (less
than 1%). Grouped queries: H is that of the query. Sequences of different lengths (``cu_seqlens``) have their lengths in a tensor, whose
values no trace has: the figures are known where sizes alone settle them (all sequences as long as the longest), else there are bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ..signatures import Signature, Tensor, UndeterminedError
from .formula import Formula, read, require, size
from .kept_pairs import kept_pairs

Layout = Literal["heads first", "heads last"]  # batch, heads, length, width (SDPA) or batch, length, heads, width (flash-attn)


@dataclass(frozen=True, slots=True)
class Call:
    """Positions of an attention operator's arguments; None: the operator has none.

    ``causal``: a flag; ``mask_kind``: 0 for none, 1 for causal from the top left, 2 from the bottom right. ``window``: size of a window
    before the causal diagonal. ``gradient`` of the output marks a backward. ``offsets``: of packed sequences, query and key;
    ``longest``: their largest lengths. ``none``: arguments that must be left out: with them, keys are in pages of a cache or not all used.
    """

    layout: Layout = "heads last"
    query: int = 0
    gradient: int | None = None
    mask: int | None = None
    causal: int | None = None
    mask_kind: int | None = None
    bottom_right: bool = True
    left: int | None = None
    right: int | None = None
    window: int | None = None
    offsets: tuple[int, int] | None = None
    longest: tuple[int, int] | None = None
    none: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of an attention call over ``sequences`` that are all of the lengths ``queries`` and ``keys``."""

    sequences: int
    heads: int
    queries: int
    keys: int
    width_qk: int
    width_v: int

    @property
    def widths(self) -> int:
        return self.width_qk + self.width_v


def _tensors(signature: Signature, call: Call) -> tuple[Tensor, Tensor, Tensor]:
    return signature.tensor(call.query), signature.tensor(call.query + 1), signature.tensor(call.query + 2)


def _packed(signature: Signature, call: Call) -> bool:
    """Whether the call has sequences of different lengths."""
    for position in call.none:
        require(signature.is_none(position))
    return call.offsets is not None and not (signature.is_none(call.offsets[0]) and signature.is_none(call.offsets[1]))


def sizes_of(signature: Signature, call: Call) -> Sizes:
    """Return the sizes of a call.

    Raises UndeterminedError if tensors do not fit together or sequences may differ in length.
    """
    query, key, value = (tensor.dims for tensor in _tensors(signature, call))
    if _packed(signature, call):
        sequences, longest_query, longest_key = _lengths(signature, call)
        query, key, value = map(_without_batch, (query, key, value))
        require(query[0] == sequences * longest_query and key[0] == value[0] == sequences * longest_key)
        query, key, value = ((sequences, dims[0] // sequences, *dims[1:]) for dims in (query, key, value))
    elif call.layout == "heads first":
        require(len(query) == len(key) == len(value) == 4)
        query, key, value = ((dims[0], dims[2], dims[1], dims[3]) for dims in (query, key, value))
    require(len(query) == len(key) == len(value) == 4)
    require(query[0] == key[0] == value[0] and key[1] == value[1] and key[2] == value[2] and query[3] == key[3])
    require(key[2] > 0 and query[2] % key[2] == 0)
    return Sizes(query[0], query[2], query[1], key[1], query[3], value[3])


def _without_batch(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return tokens, heads and width of packed sequences.

    Some operators have a batch of 1 before them.
    """
    packed = dims[1:] if len(dims) == 4 and dims[0] == 1 else dims
    require(len(packed) == 3)
    return packed


def _lengths(signature: Signature, call: Call) -> tuple[int, int, int]:
    """Return the number of packed sequences and the longest query and key."""
    if call.offsets is None or call.longest is None:
        raise UndeterminedError
    of_query, of_key = (signature.tensor(position).dims for position in call.offsets)
    require(len(of_query) == 1 and of_query == of_key and of_query[0] > 1)
    longest_query, longest_key = (signature.integer(position) for position in call.longest)
    require(longest_query > 0 and longest_key > 0)
    return of_query[0] - 1, longest_query, longest_key


def _forward_flop(sizes: Sizes, pairs: int) -> int:
    return 2 * sizes.sequences * sizes.heads * pairs * sizes.widths


def _backward_flop(sizes: Sizes, pairs: int) -> int:
    """Scores again, gradients of scores and value, of query and key."""
    return 2 * sizes.sequences * sizes.heads * pairs * (3 * sizes.width_qk + 2 * sizes.width_v)


def flop(signature: Signature, call: Call) -> int:
    """Operations with every pair counted."""
    sizes = sizes_of(signature, call)
    count = _forward_flop if call.gradient is None else _backward_flop
    return count(sizes, sizes.queries * sizes.keys)


def model_flop(signature: Signature, call: Call) -> int:
    """Operations of the kept pairs; of the backward without the recomputed scores."""
    sizes = sizes_of(signature, call)
    return _forward_flop(sizes, _pairs(signature, call, sizes)) * (1 if call.gradient is None else 2)


def _pairs(signature: Signature, call: Call, sizes: Sizes) -> int:
    left, right = _side(signature, call.left), _side(signature, call.right)
    bottom_right = call.bottom_right
    if call.mask_kind is not None:
        kind = signature.integer(call.mask_kind)
        require(kind in {0, 1, 2})
        if kind:
            right, bottom_right = 0, kind == 2
            if call.window is not None and not signature.is_none(call.window):
                window = signature.integer(call.window)
                left = window - 1 if window > 0 else None
    elif call.causal is not None and signature.flag(call.causal):
        right = 0
    return kept_pairs(sizes.queries, sizes.keys, left, right, sizes.keys - sizes.queries if bottom_right else 0)


def _side(signature: Signature, position: int | None) -> int | None:
    """Size of a sliding window on one side; None, or -1 in a trace: no limit."""
    if position is None or signature.is_none(position):
        return None
    value = signature.integer(position)
    return value if value >= 0 else None


def flop_bounds(signature: Signature, call: Call) -> tuple[int, int]:
    """Return least and most operations of self-attention over packed sequences.

    Their total is known: least if all are equally long, most if as many as possible have the longest length.
    """
    require(_packed(signature, call))
    sequences, longest, longest_key = _lengths(signature, call)
    query, key, value = (_without_batch(tensor.dims) for tensor in _tensors(signature, call))
    require(query[0] == key[0] == value[0] and longest == longest_key)
    total = query[0]
    require(0 < total <= sequences * longest)
    short, longer = divmod(total, sequences)
    least = (sequences - longer) * short**2 + longer * (short + 1) ** 2
    longest_ones, rest = divmod(total, longest)
    sizes = Sizes(1, query[1], total, total, query[2], value[2])
    count = _forward_flop if call.gradient is None else _backward_flop
    return count(sizes, least), count(sizes, longest_ones * longest**2 + rest**2)


def traffic(signature: Signature, call: Call) -> int:
    """Return the least bytes of a call.

    Forward: query, key, value, mask and output. Backward: these, the gradient of the output and the three gradients.
    """
    query, key, value = _tensors(signature, call)
    for position in call.none:
        require(signature.is_none(position))
    require(len(query.dims) > 2 and len(query.dims) == len(value.dims) and query.dims[-1] > 0)
    if not _packed(signature, call):
        sizes_of(signature, call)  # tensors that do not fit together are unknown
    mask = None if call.mask is None else signature.optional_tensor(call.mask)
    output = size(query.elements // query.dims[-1] * value.dims[-1], query.type)
    total = read((query, key, value, mask)) + output
    if call.gradient is not None:
        total += signature.tensor(call.gradient).bytes + sum(size(tensor.elements, tensor.type) for tensor in (query, key, value))
    return total


def _formula(call: Call, owns: bool = True, fp8: tuple[int, Call] | None = None) -> Formula:
    """``fp8``: position of a tensor that marks the form for FP8, and its positions."""

    def form(signature: Signature) -> Call:
        return fp8[1] if fp8 is not None and signature.is_tensor(fp8[0]) else call

    return Formula(
        lambda signature: traffic(signature, form(signature)),
        lambda signature: flop(signature, form(signature)),
        lambda signature: model_flop(signature, form(signature)),
        operand=call.query,
        matrix=True,
        owns=owns,
        bounds=None if call.offsets is None else lambda signature: flop_bounds(signature, form(signature)),
    )


def _sdpa(causal: int, mask: int | None = None, gradient: int | None = None) -> Call:
    """Return the positions of an operator of ``F.scaled_dot_product_attention``.

    Its ``is_causal`` lets the first query see the first key alone.
    """
    query = 0 if gradient is None else 1
    return Call("heads first", query, gradient, mask, causal=causal, bottom_right=False)


# flash-attn 2 (flash_attn_interface.py). Its autograd functions have the arguments of their apply(), without the window, a pair that the
# profiler leaves out: no window is assumed. In them run the operators, if the version registers any.
_FLASH_PACKED: Final = Call(offsets=(3, 4), longest=(5, 6), causal=9, left=10, right=11, none=(15, 16, 17))
# flash-attn 3 as vLLM and SGLang register it: new keys, page table and used lengths are for a cache.
_FLASH_3: Final = Call(offsets=(7, 8), longest=(12, 13), causal=24, left=25, right=26, none=(3, 5, 9, 10, 11, 14))
_XFORMERS: Final = Call(offsets=(3, 4), longest=(6, 7), causal=10, left=11, right=12, none=(5, 14))
_XFORMERS_BACKWARD: Final = Call(query=1, gradient=0, offsets=(9, 10), longest=(11, 12), causal=15, left=16, right=17)
_AITER_BACKWARD: Final = Call(query=1, gradient=0, causal=8, left=9, right=10)
_LIBRARIES: Final[dict[str, Formula]] = {
    "flash_attn::_flash_attn_forward": _formula(Call(causal=5, left=6, right=7)),
    "flash_attn::_flash_attn_backward": _formula(Call(query=1, gradient=0, causal=11, left=12, right=13)),
    "flash_attn::_flash_attn_varlen_forward": _formula(_FLASH_PACKED),
    "flash_attn::_flash_attn_varlen_backward": _formula(
        Call(query=1, gradient=0, offsets=(9, 10), longest=(11, 12), causal=15, left=16, right=17)
    ),
    "FlashAttnFunc": _formula(Call(causal=5), owns=False),
    "FlashAttnVarlenFunc": _formula(Call(offsets=(3, 4), longest=(5, 6), causal=9), owns=False),
    "_vllm_fa2_C::varlen_fwd": _formula(Call(offsets=(4, 5), longest=(10, 11), causal=15, left=16, right=17, none=(6, 7, 8))),
    "_vllm_fa3_C::fwd": _formula(_FLASH_3),
    "sgl_kernel::fwd": _formula(_FLASH_3),
    "flash_attn_3::fwd": _formula(_FLASH_3),
    "flash_attn_3::bwd": _formula(
        Call(query=1, gradient=0, offsets=(9, 10), longest=(13, 14), causal=16, left=17, right=18, none=(11, 12))
    ),
    "xformers_flash::flash_fwd": _formula(_XFORMERS),
    "xformers_flash::flash_bwd": _formula(_XFORMERS_BACKWARD),
    "aiter::_flash_attn_forward": _formula(Call(causal=5, left=6, right=7)),
    "aiter::mha_fwd": _formula(Call(causal=5, left=6, right=7)),
    "aiter::fmha_v3_fwd": _formula(Call(causal=5, left=6, right=7)),
    "aiter::_flash_attn_backward": _formula(Call(query=1, gradient=0, causal=12, left=13, right=14)),
    "aiter::mha_bwd": _formula(_AITER_BACKWARD),
    "aiter::fmha_v3_bwd": _formula(_AITER_BACKWARD),
}
# The lengths are in the metadata of the batch.
_UNKNOWN_LENGTHS: Final = Formula(None, matrix=True)
FORMULAS: Final[dict[str, Formula]] = {
    **_LIBRARIES,
    **dict.fromkeys(
        (
            "vllm::unified_attention",
            "vllm::unified_attention_with_output",
            "vllm::unified_mla_attention",
            "vllm::unified_mla_attention_with_output",
            "sglang::unified_attention_with_output",
            "_vllm_fa2_C::fwd_kvcache",
            "_C::paged_attention_v1",
            "_C::paged_attention_v2",
        ),
        _UNKNOWN_LENGTHS,
    ),
    "aten::_scaled_dot_product_flash_attention": _formula(_sdpa(causal=4), fp8=(3, _sdpa(causal=7))),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _formula(_sdpa(causal=4, mask=5)),
    "aten::_scaled_dot_product_efficient_attention": _formula(_sdpa(causal=6, mask=3)),
    "aten::_scaled_dot_product_cudnn_attention": _formula(_sdpa(causal=6, mask=3)),
    "aten::_scaled_dot_product_fused_attention_overrideable": _formula(_sdpa(causal=5, mask=3)),
    "aten::_scaled_dot_product_flash_attention_backward": _formula(_sdpa(causal=11, gradient=0)),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _formula(_sdpa(causal=7, mask=8, gradient=0)),
    "aten::_scaled_dot_product_efficient_attention_backward": _formula(_sdpa(causal=11, mask=4, gradient=0)),
    "aten::_scaled_dot_product_cudnn_attention_backward": _formula(_sdpa(causal=14, mask=8, gradient=0)),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": _formula(_sdpa(causal=13, mask=4, gradient=0)),
    "aten::_flash_attention_forward": _formula(
        Call(offsets=(3, 4), longest=(5, 6), causal=8, left=11, right=12, none=(13, 15)),
        fp8=(10, Call(offsets=(3, 4), longest=(5, 6), causal=8, left=14, right=15, none=(16,))),
    ),
    "aten::_cudnn_attention_forward": _formula(Call("heads first", mask=3, offsets=(4, 5), longest=(6, 7), causal=10, bottom_right=False)),
    "aten::_cudnn_attention_backward": _formula(
        Call("heads first", 1, 0, 8, offsets=(9, 10), longest=(11, 12), causal=14, bottom_right=False)
    ),
    "aten::_flash_attention_backward": _formula(Call(query=1, gradient=0, offsets=(6, 7), longest=(8, 9), causal=11, left=15, right=16)),
    "aten::_efficient_attention_forward": _formula(Call(mask=3, offsets=(4, 5), longest=(6, 7), mask_kind=9, window=13, none=(12,))),
    "aten::_efficient_attention_backward": _formula(
        Call(query=1, gradient=0, mask=4, offsets=(6, 7), longest=(8, 9), mask_kind=14, window=18)
    ),
}
