"""Categories of work, and precisions, by the operator that launched a kernel and by the types of its inputs.

An operator states what is computed, whatever its kernels are called: a convolution stays one if cuDNN runs it as a matrix product, and
the types of its inputs are known where the name of a kernel has none. The categories are those of :mod:`postrun.ingest.kernels.category`
with the same meaning, and the precisions those of :mod:`postrun.ingest.kernels.precision`: products of a mixture of experts are GEMM,
and the choice and the order of its tokens are MoE routing. Communication is always decided by the name of the kernel, as the time
breakdown is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from ...ingest.kernels.category import category_rule
from ...ingest.kernels.text import NameRule, rule
from ..device.precision import MATRIX_CATEGORIES

OPERATOR: Final = "operator"
KERNEL_NAME: Final = "kernel name"
UNKNOWN: Final = "unknown"

# Searched in `namespace::name` of PyTorch's operators, without overload and without underscores around the name. First match wins.
# Operators whose kernels do work of several categories (an LSTM, a linear solver) have no row.
OPERATOR_RULES: Final[tuple[NameRule, ...]] = (
    rule("optimizer", r"^aten::(?:foreach_(?!mm$)|amp_|fused_(?:adam|adamw|sgd|adagrad)$)", "runs over a list of tensors",
         "aten::_foreach_add_", "aten::_fused_adamw_", "aten::_amp_foreach_non_finite_check_and_unscale_"),
    rule("attention", r"^aten::(?:scaled_dot_product_\w*attention|(?:flash|efficient|cudnn)_attention_(?:forward|backward)"
         r"|triton_scaled_dot_attention|(?:native|triton)_multi_head_attention|transform_bias_rescale_qkv)",
         "attention, fused or of several kernels",
         "aten::_flash_attention_forward", "aten::_efficient_attention_backward", "aten::_scaled_dot_product_attention_math",
         "aten::_scaled_dot_product_cudnn_attention", "aten::_cudnn_attention_forward"),
    rule("convolution", r"^aten::(?:\w*_)?conv(?:olution|\d+d|_|$|depthwise)|^aten::(?:im2col|col2im)|^torchvision::\w*deform_conv2d"
         r"|^aten::\w*conv_(?:depthwise|transpose|tbc)",
         "a convolution in any library, forward or backward",
         "aten::cudnn_convolution", "aten::convolution_backward", "aten::miopen_convolution", "aten::conv2d",
         "aten::_conv_depthwise2d", "aten::slow_conv_transpose2d", "aten::thnn_conv2d", "aten::cudnn_convolution_backward_weight",
         "torchvision::deform_conv2d"),
    rule("GEMM", r"^aten::(?:(?:sparse_|int_|scaled_|mixed_dtypes_|weight_int\dpack_|grouped_|scaled_grouped_)?(?:mm|linear)(?:_v2)?"
         r"|wrapped_\w*linear\w*|bmm|addmm|addmm_activation|sparse_addmm|baddbmm|addbmm|matmul|linalg_matmul|mv|addmv|mkldnn_linear|linear_backward"
         r"|mkldnn_linear_backward\w*|tensordot|einsum|chain_matmul|linalg_multi_dot|weight_int4pack_mm_\w+|cslt_sparse_mm|foreach_mm"
         r"|sparse_semi_structured_\w+)$",
         "a product of matrices, or of a matrix and a vector",
         "aten::mm", "aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::_scaled_mm", "aten::_scaled_grouped_mm", "aten::_grouped_mm",
         "aten::_int_mm", "aten::linear", "aten::_weight_int8pack_mm", "aten::mv", "aten::_scaled_mm_v2"),
    rule("normalisation", r"^aten::(?:\w*_)?(?:layer|batch|group|instance|rms)_?norm|^aten::renorm"
         r"|^aten::weight_norm_interface",
         "a norm and its parts",
         "aten::native_layer_norm", "aten::cudnn_batch_norm_backward", "aten::native_group_norm_backward", "aten::_fused_rms_norm",
         "aten::miopen_batch_norm", "aten::_weight_norm_interface", "aten::batch_norm_backward_elemt"),
    rule("softmax", r"^aten::(?:\w*_)?softmax|^aten::(?:logsumexp|cross_entropy_loss|linear_cross_entropy)",
         "softmax, or the loss on it",
         "aten::_softmax", "aten::_log_softmax_backward_data", "aten::_masked_softmax", "aten::logsumexp"),
    rule("sampling", r"^aten::multinomial", "a draw from a distribution", "aten::multinomial"),
    rule("embedding/index", r"^aten::(?:embedding\w*|(?!index_unused)index\w*|unsafe_index\w*|gather\w*|scatter\w*|take\w*|put|topk|sort\w*"
         r"|argsort|msort|kthvalue|unique\w*|nonzero\w*|masked_select\w*|masked_scatter\w*|searchsorted|bucketize|histc|histogram\w*"
         r"|bincount|one_hot|isin|repeat_interleave|mode|median|nanmedian|segment_reduce\w*|select_scatter|slice_scatter)$"
         r"|^fbgemm::(?!\w*cumsum)\w*(?:permute_\w*(?:sparse|embs)|bounds_check|lookup|embedding|jagged|lengths|offsets|indices)"
         r"|splitlookupfunction|permutepooledembsfunction",
         "look-up, sort, selection, or the indices for them",
         "aten::embedding_dense_backward", "aten::index_select", "aten::_index_put_impl_", "aten::scatter_add_", "aten::topk",
         "aten::_embedding_bag", "aten::_unique2", "fbgemm::permute_sparse_features",
         "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function",
         "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>"),
    rule("reduction", r"^aten::(?:sum|nansum|mean|nanmean|prod|max|min|amax|amin|aminmax|argmax|argmin|all|any|std|var|std_mean|var_mean"
         r"|norm|linalg_vector_norm|linalg_norm|count_nonzero|dot|vdot|trace|cumsum|cumprod|cummax|cummin|cummax_helper"
         r"|cummin_helper|logcumsumexp|nll_loss\w*|ctc_loss\w*|(?:\w*_)?(?:max|avg|lp)_?pool\w*|cdist_\w+|pdist_\w+|sum_to_size)$"
         r"|^fbgemm::\w*cumsum",
         "sums, extremes, scans and pooling",
         "aten::sum", "aten::mean", "aten::max_pool2d_with_indices_backward", "aten::_adaptive_avg_pool2d", "aten::nll_loss_forward",
         "aten::linalg_vector_norm", "aten::cumsum", "aten::avg_pool2d", "aten::dot", "aten::var_mean",
         "fbgemm::asynchronous_complete_cumsum"),
    rule("memory", r"^aten::(?:copy|clone|contiguous|to|to_copy|to_dtype|cat|concat|stack|hstack|vstack|fill|zero|zeros|zeros_like|ones"
         r"|ones_like|full|full_like|new_\w+|arange|range|linspace|logspace|eye|pad|constant_pad_nd|(?:reflection|replication)_pad\w*|roll|flip"
         r"|rot90|repeat|tile|triu|tril|triu_indices|tril_indices|slice_backward|select_backward|diag\w*|split_with_sizes_copy"
         r"|\w+_copy|as_strided\w*|pixel_(?:un)?shuffle|channel_shuffle|quantize_per\w*|dequantize|pack_padded_sequence|cast_\w+|pin_memory|resize\w*"
         r"|transpose\w*|permute|chunk_cat|block_diag|reshape|expand|view|flatten)$",
         "moves values or changes their format, or writes a constant",
         "aten::copy_", "aten::cat", "aten::fill_", "aten::zero_", "aten::constant_pad_nd", "aten::arange", "aten::slice_backward",
         "aten::split_with_sizes_copy", "aten::dequantize"),
    rule("elementwise", r"^aten::(?:add|sub|rsub|mul|div|true_divide|floor_divide|remainder|fmod|pow|float_power|square|sqrt|rsqrt|exp|exp2"
         r"|expm1|log|log2|log10|log1p|neg|abs|sign|sgn|signbit|reciprocal|clamp|clamp_min|clamp_max|clip|maximum|minimum|fmax|fmin"
         r"|where|masked_fill|lerp|addcmul|addcdiv|sin|cos|tan|asin|acos|atan|atan2|sinh|cosh|asinh|acosh|atanh|erf|erfc|erfinv|floor"
         r"|ceil|round|trunc|frac|eq|ne|lt|le|gt|ge|isnan|isinf|isfinite|nan_to_num|logical_\w+|bitwise_\w+|logit|logit_backward|hypot"
         r"|polar|real|imag|angle|conj_physical|logaddexp\w*|xlogy|heaviside|copysign|addr|outer|ger"
         r"|(?:log_)?sigmoid\w*|tanh\w*|relu|relu6|threshold\w*|gelu\w*|silu\w*|mish\w*|elu\w*|selu|celu|leaky_relu\w*|prelu\w*|hardtanh\w*"
         r"|hardswish\w*|hardsigmoid\w*|softplus\w*|softshrink\w*|glu\w*|rrelu\w*|swiglu\w*"
         r"|native_dropout\w*|fused_dropout|dropout|masked_scale|bernoulli\w*|uniform|normal\w*|rand\w*|exponential|cauchy|geometric|random"
         r"|(?:mse|l1|smooth_l1|huber|binary_cross_entropy)_?\w*loss\w*|binary_cross_entropy\w*|(?:\w*_)?upsample_\w+|interpolate"
         r"|grid_sampler\w*|(?:lshift|rshift|xor|and|or|iand|ior|ixor)_?|unfold_backward|fake_quantize\w*)$",
         "one value in, one value out; activations, dropout, random numbers",
         "aten::add_", "aten::mul", "aten::threshold_backward", "aten::clamp_min_", "aten::native_dropout", "aten::gelu_backward",
         "aten::where", "aten::_fused_dropout", "aten::upsample_bilinear2d", "aten::uniform_", "aten::__and__", "aten::mse_loss_backward"),
)  # fmt: skip

# Operators of other libraries, whose names follow those of their kernels; searched before the patterns of kernels.
CUSTOM_RULES: Final[tuple[NameRule, ...]] = (
    rule("MoE routing", r"moe|(?<![a-z])(?:fused_|cutlass_)?experts?(?![a-z])|expert_|topk_(?:softmax|sigmoid)|grouped_topk|biased_\w*topk"
         r"|(?:un)?permute_(?:token|mask|index|map)|shuffle_rows|ep_(?:scatter|gather)|deepep",
         "routing of a mixture of experts; matrix products in it are GEMM by the names of their kernels",
         "_moe_C::topk_softmax", "_moe_C::moe_align_block_size", "vllm::moe_forward", "vllm::inplace_fused_experts",
         "sgl_kernel::moe_fused_gate", "_moe_C::moe_permute", "_C::shuffle_rows"),
    rule("attention", r"attention|attn(?!_?(?:mask|meta|norm))|fmha|mha_(?:fwd|bwd|varlen)|(?<![a-z])mla_|sdpa|flash_mla",
         "attention of another library",
         "vllm::unified_attention_with_output", "flash_attn::_flash_attn_varlen_forward", "FlashAttnFunc",
         "FlashAttnVarlenFuncBackward", "sgl_kernel::fwd_attention", "aiter::mha_fwd", "vllm::unified_mla_attention",
         "xformers::efficient_attention_forward_cutlass"),
)  # fmt: skip

_PYTORCH: Final = frozenset({"aten", "torchvision", "fbgemm", "prims"})
_NODE: Final = "autograd::engine::evaluate_function: "
_OVERLOAD: Final = re.compile(r"\.\w{1,60}$")
_CUSTOM: Final = re.compile(r"\w{1,100}::\w{1,200}|\w{0,200}(?:func|function|fn)(?:backward\d*)?|optimizer\.step#\w{1,80}\.step")
_COMMUNICATION: Final = re.compile(r"record_param_comms|c10d|_?c10d_functional|_c10d|nccl|symm_mem")
_TRITON: Final = "triton_"
_LIBRARY_INTERNAL: Final = frozenset({"c10d", "nccl", "prim", "profiler", "torch", "triton", "inductor", "higher_order"})

# Work that a matrix operator does besides its product, and that keeps its own category: layout changes, casts, fills, and cache writes.
_BESIDES: Final = frozenset({"memory", "KV cache"})
# Categories of kernels that show the method, not the purpose: an operator of another library names the purpose. All others keep their
# category, because such operators can contain a complete layer.
_HOW: Final = frozenset({"elementwise", "reduction", "softmax", "other"})
_HOW_OF_ROUTING: Final = frozenset({"reduction", "softmax", "embedding/index", "sampling", "other"})

_TYPES: Final = {
    "double": "FP64", "c10::complex<double>": "FP64", "float": "FP32", "c10::complex<float>": "FP32", "c10::half": "FP16",
    "c10::complex<c10::half>": "FP16", "c10::bfloat16": "BF16", "c10::float8_e4m3fn": "FP8", "c10::float8_e5m2": "FP8",
    "c10::float8_e4m3fnuz": "FP8", "c10::float8_e5m2fnuz": "FP8", "c10::float4_e2m1fn_x2": "FP4", "signed char": "INT8",
    "unsigned char": "INT8", "c10::qint8": "INT8", "c10::quint8": "INT8", "short": "INT32", "int": "INT32", "long": "INT32",
    "long int": "INT32", "bool": "INT32", "unsigned short": "INT32", "unsigned int": "INT32", "unsigned long": "INT32",
}  # fmt: skip
_INTEGERS: Final = frozenset({"INT8", "INT32"})
# A greater number is a narrower type.
_NARROWNESS: Final = {
    "unknown": -1, "FP64": 0, "INT32": 0, "FP32": 1, "TF32": 2, "BF16": 3, "FP16": 3, "mixed": 4, "INT8": 5, "FP8": 5, "FP4": 6
}  # fmt: skip
_NARROW: Final = frozenset({"INT8", "FP8", "FP4"})
# PyTorch's products that begin with the summand: its type may differ.
_SUMMAND_FIRST: Final = re.compile(r"^aten::(?:sparse_)?(?:b?addb?mm|addmm_activation|addmv)")
_CONVERTS: Final = re.compile(r"copy|^aten::(?:to|cast)|quant")
_TENSOR_CORES: Final = re.compile(r"tensorop|tf32|xf32|(?<![a-z])s1688", re.IGNORECASE)
# Categories by name of the kernels that do the product of an operator: cuDNN runs convolutions as matrix products, and the reverse.
_SAME_WORK: Final = {
    "GEMM": {"GEMM", "convolution", "other"},
    "convolution": {"GEMM", "convolution", "other"},
    "attention": {"attention", "convolution", "other"},
}


# Classes of the modules that choose experts and order tokens for them, without the number of the instance.
_ROUTING_MODULE: Final = re.compile(
    r"(?:moe_?(?:block|layer|ffn|feed_?forward|gate|gating)?|experts?|router|top_?k_?gat(?:e|ing)|sparse_?mlp)(?:[_.]\d+)?$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class OperatorClass:
    """``custom``: an operator of another library than PyTorch, which can contain work of other categories."""

    category: str
    custom: bool


@dataclass(frozen=True, slots=True)
class KernelClass:
    """Category and precision of the executions of a kernel that one operator launched.

    Each source is OPERATOR (the operator and its input types), KERNEL_NAME or UNKNOWN.
    """

    category: str
    category_source: str
    precision: str
    precision_source: str


@lru_cache(maxsize=4096)
def operator_class(operator: str) -> OperatorClass | None:
    """Return the category of an operator's work; None if its name does not show it."""
    text = _normalized(operator)
    row = next((row for row in OPERATOR_RULES if row.pattern.search(text)), None)
    if row:
        return OperatorClass(row.value, custom=not text.startswith("aten::"))
    namespace = text.partition("::")[0] if "::" in text else ""
    if namespace in _PYTORCH or namespace in _LIBRARY_INTERNAL or text.startswith(_TRITON) or not _CUSTOM.fullmatch(text):
        return None
    row = next((row for row in CUSTOM_RULES if row.pattern.search(text)), None) or category_rule(text.rpartition("::")[2])
    return OperatorClass(row.value, custom=True) if row and row.value != "communication" else None


def _normalized(operator: str) -> str:
    text = operator[:400].strip().removeprefix(_NODE).lower()
    namespace, separator, name = text.partition("::")
    if separator and namespace in _PYTORCH:
        return f"{namespace}::{_OVERLOAD.sub('', name).strip('_')}"
    return text


def input_precision(operator: str, types: Sequence[Any], dims: Sequence[Any]) -> str | None:
    """Return the precision of an operator's inputs; None if the types do not show it.

    ``types``, ``dims``: as in the trace, one entry per input. Of products the type of the factors, "mixed" if they differ and one has at
    most 8 bits; of copies "mixed" if they convert; of other operators the narrowest floating type of the inputs, of elementwise ones the
    only one.
    """
    known = operator_class(operator)
    if known is None:
        return None
    tensors = _tensor_precisions(types, dims)
    if known.category in MATRIX_CATEGORIES or known.category == "MoE routing":
        return _of_product(operator, known, tensors)
    distinct = set(tensors)
    if not distinct:
        return None
    if known.category == "memory":
        return tensors[0] if len(distinct) == 1 or not _CONVERTS.search(_normalized(operator)) else "mixed"
    kinds = distinct - _INTEGERS or distinct
    if len(kinds) > 1 and known.category == "elementwise":
        return None
    return max(kinds, key=lambda precision: _NARROWNESS[precision])


def _tensor_precisions(types: Sequence[Any], dims: Sequence[Any]) -> list[str]:
    """Return the precisions of the tensors; those without dimensions only if all are."""
    tensors = [(_TYPES[text.lower()], index) for index, text in enumerate(types) if isinstance(text, str) and text.lower() in _TYPES]
    if len(dims) == len(types):
        sized = [(precision, index) for precision, index in tensors if isinstance(dims[index], (list, tuple)) and dims[index]]
        tensors = sized or tensors
    return [precision for precision, _ in tensors]


def _of_product(operator: str, known: OperatorClass, tensors: list[str]) -> str | None:
    if known.custom and known.category != "attention":
        return _of_custom_product(tensors)
    factors = 3 if known.category == "attention" else 2
    first = 1 if _SUMMAND_FIRST.search(_normalized(operator)) and len(tensors) > factors else 0
    kinds = set(tensors[first : first + factors])
    if len(kinds) == 1:
        return kinds.pop()
    return "mixed" if kinds and not kinds.isdisjoint(_NARROW) else None


def _of_custom_product(tensors: list[str]) -> str | None:
    """Return the precision of a product whose order of inputs is unknown.

    Indices, an output, and scales and weights of experts in FP32 may be among them.
    """
    kinds = set(tensors) - {"INT32"} or set(tensors)
    if len(kinds) > 1:
        kinds.discard("FP32")
    if len(kinds) == 1:
        return kinds.pop()
    return "FP8" if tensors.count("FP8") > 1 and kinds.isdisjoint({"INT8", "FP4"}) else None


def kernel_class(
    operator: str | None, inner: str | None, types: Sequence[Any], dims: Sequence[Any], text: str, name_category: str, name_precision: str
) -> KernelClass:
    """Classify the executions of a kernel that an operator launched.

    ``operator``: the owner, with its inputs; ``inner``: the innermost operator; None if unknown. ``text``: the full name of the kernel;
    ``name_category``, ``name_precision``: those by its name.
    """
    known = operator_class(operator) if operator else None
    category, by_operator = _category(_narrowed(known, inner), name_category)
    if category == "communication" and operator and _COMMUNICATION.match(operator):
        by_operator = True
    precision, by_types = name_precision, False
    if operator and known and category != "communication":
        types_precision = input_precision(operator, types, dims)
        if types_precision:
            precision, by_types = _precision(known, category, types_precision, text, name_category, name_precision)
    elif operator and operator.startswith(_TRITON) and name_precision == "unknown":
        # TorchInductor records its kernel as an operator of the same name, with all tensors that the kernel reads and writes.
        kinds = set(_tensor_precisions(types, dims)) - _INTEGERS
        if len(kinds) == 1:
            precision, by_types = kinds.pop(), True
    return KernelClass(
        category,
        OPERATOR if by_operator else UNKNOWN if category == "other" else KERNEL_NAME,
        precision,
        OPERATOR if by_types else UNKNOWN if precision == "unknown" else KERNEL_NAME,
    )


def in_module(known: KernelClass, module: str) -> KernelClass:
    """Return the class of the work in a module, a path.

    Selection and order of tokens in a mixture of experts are MoE routing, also by the operators of PyTorch."""
    if known.category != "embedding/index" or not any(_ROUTING_MODULE.search(name) for name in module.split("/")):
        return known
    return replace(known, category="MoE routing")


def _narrowed(known: OperatorClass | None, inner: str | None) -> OperatorClass | None:
    """Return the class of the work: of the inner operator if it does no product.

    A convolution that adds a bias calls an elementwise operator."""
    if known and inner and known.category in {"GEMM", "convolution"}:
        within = operator_class(inner)
        if within and within.category not in MATRIX_CATEGORIES:
            return within
    return known


def _category(known: OperatorClass | None, name_category: str) -> tuple[str, bool]:
    """Return the category, and whether the operator shows it."""
    if known is None or name_category == "communication":
        return name_category, False
    if known.category == name_category:
        return name_category, True
    if known.custom:
        overruled = _HOW_OF_ROUTING if known.category == "MoE routing" else _HOW
        if known.category == "convolution":
            overruled |= {"GEMM"}
    elif known.category in MATRIX_CATEGORIES and name_category in _BESIDES:
        return name_category, False
    else:
        return known.category, True
    return (known.category, True) if name_category in overruled else (name_category, False)


def _precision(known: OperatorClass, category: str, types: str, text: str, name_category: str, name_precision: str) -> tuple[str, bool]:
    """Return the precision, and whether the input types show it."""
    if types == name_precision:
        return types, True
    if name_precision != "unknown" and _named_is_truer(known, category, name_category):
        return name_precision, False
    if types in _INTEGERS and name_precision not in {"unknown", *_INTEGERS} and category not in MATRIX_CATEGORIES:
        return name_precision, False  # a number or a tensor without dimensions has the floating type
    if category in MATRIX_CATEGORIES:
        # The operator or the library converts the inputs first, as autocast does within an operator.
        if _NARROWNESS[name_precision] > _NARROWNESS[types]:
            return name_precision, False
        if types == "FP32" and _TENSOR_CORES.search(text):
            return "TF32", True
    return types, True


def _named_is_truer(known: OperatorClass, category: str, name_category: str) -> bool:
    """Return whether the kernel does other work than the operator as a whole.

    Its values can have another type then: unfused attention computes in FP32 whatever its inputs are.
    """
    if known.category not in MATRIX_CATEGORIES:
        return known.custom
    return category != known.category or name_category not in _SAME_WORK[known.category]
