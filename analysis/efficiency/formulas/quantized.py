"""Matrix products of quantized and scaled operands, and of groups of matrices: 2MNK of the matrices that are multiplied.

FlopCounterMode counts aten::_scaled_mm the same way, except that it counts half of packed FP4. The operators of vLLM (``_C``), SGLang
(``sgl_kernel``) and FBGEMM have the same matrices at other positions. Rows of padding count, because their number is in a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..signatures import TYPES, ElementType, Signature, Tensor
from .formula import Formula, peak_type, read, require, size

_BF16, _INT32 = TYPES["c10::BFloat16"], TYPES["int"]


@dataclass(frozen=True, slots=True)
class Scaled:
    """Positions of a scaled product. ``further``: scales and bias that are read. ``out``: an output argument; else the type of the result
    is that at ``dtype``, ``result``, or that of ``a``. ``untyped``: a list of scales, whose type no trace has. ``type``: of the peak;
    ``packed``: values in a stored element where its type does not say so. ``opaque``: ``b`` may be in a layout of oneDNN."""

    a: int = 0
    b: int = 1
    further: tuple[int, ...] = ()
    out: int | None = None
    dtype: int | None = None
    result: ElementType | None = None
    untyped: bool = False
    type: str | None = None
    packed: int = 1
    opaque: bool = False


def _dims(signature: Signature, call: Scaled) -> tuple[int, int, int]:
    """Return M, N, K of a product.

    The second factor is stored as K x N or as N x K: its sizes decide.
    """
    a, b = signature.tensor(call.a), signature.tensor(call.b, call.opaque)
    require(len(a.dims) >= 2 and len(b.dims) == 2)
    k, stored = a.dims[-1] * _packed(a, call), [size * _packed(b, call) for size in b.dims]
    require(k > 0 and k in stored)
    # Of packed factors the dimension that is multiplied has the pairs; of square ones both readings are the same.
    n = b.dims[0] if stored[1] == k else b.dims[1]
    return a.elements // a.dims[-1], n, k


def _packed(tensor: Tensor, call: Scaled) -> int:
    return max(tensor.type.packed, call.packed)


def _flop(signature: Signature, call: Scaled) -> int:
    m, n, k = _dims(signature, call)
    return 2 * m * n * k


def _bytes(signature: Signature, call: Scaled) -> int:
    m, n, _ = _dims(signature, call)
    require(not call.untyped)
    a = signature.tensor(call.a)
    total = read((a, signature.tensor(call.b, call.opaque), *map(signature.optional_tensor, call.further)))
    return total + size(m * n, _result(signature, call, a.type))


def _result(signature: Signature, call: Scaled, default: ElementType) -> ElementType:
    if call.out is not None:
        return signature.tensor(call.out).type
    named = None if call.dtype is None else signature.scalar_type(call.dtype)
    return named or call.result or default


def scaled_type(a: Tensor, b: Tensor) -> str:
    """Return the type that multiplies two factors.

    The wider one: tensor cores mix only FP8 and FP4.
    """
    types = {peak_type(a.type), peak_type(b.type)}
    if len(types) == 1:
        return types.pop()
    require(types == {"fp8", "fp4"})
    return "fp8"


def _scaled(call: Scaled | Callable[[Signature], Scaled]) -> Formula:
    """``call``: the positions, or a function that finds them by the inputs."""

    def form(signature: Signature) -> Scaled:
        return call if isinstance(call, Scaled) else call(signature)

    def kind(signature: Signature) -> str:
        used = form(signature)
        return used.type or scaled_type(signature.tensor(used.a), signature.tensor(used.b, used.opaque))

    return Formula(
        lambda signature: _bytes(signature, form(signature)),
        lambda signature: _flop(signature, form(signature)),
        operand=kind,
        matrix=True,
        owns=True,
    )


@dataclass(frozen=True, slots=True)
class Grouped:
    """Positions of a grouped product. ``offsets``: ends of the groups. ``further``: what is read besides."""

    offsets: int
    further: tuple[int, ...]
    dtype: int
    result: ElementType | None = None
    untyped: bool = False


def _grouped_dims(signature: Signature, call: Grouped) -> tuple[int, int]:
    """Return elements of the result and K of a grouped product.

    The factors have 2 or 3 dimensions; the groups split the rows, the columns or K.
    """
    a, b = signature.tensor(0), signature.tensor(1)
    rows, columns = a.dims, b.dims
    require(len(rows) in {2, 3} and len(columns) in {2, 3} and rows[-1] == columns[-2] and a.type.packed == b.type.packed)
    if len(rows) == len(columns) == 3:
        require(rows[0] == columns[0])
        outputs = rows[0] * rows[1] * columns[2]
    elif len(rows) == len(columns) == 2:
        groups = signature.tensor(call.offsets).dims
        require(len(groups) == 1)
        outputs = groups[0] * rows[0] * columns[1]
    else:
        outputs = rows[-2] * columns[-1]
    return outputs, rows[-1] * a.type.packed


def _grouped_flop(signature: Signature, call: Grouped) -> int:
    """Return the operations of a grouped product.

    Groups of rows or columns meet their own matrix, groups of K give a result each: every element of a factor is used once.
    """
    outputs, k = _grouped_dims(signature, call)
    if len(signature.tensor(0).dims) == len(signature.tensor(1).dims) == 2:
        outputs //= max(signature.tensor(call.offsets).dims[0], 1)
    return 2 * outputs * k


def _grouped_bytes(signature: Signature, call: Grouped) -> int:
    require(not call.untyped)
    outputs, _ = _grouped_dims(signature, call)
    a = signature.tensor(0)
    total = read((a, signature.tensor(1), signature.optional_tensor(call.offsets), *map(signature.optional_tensor, call.further)))
    return total + size(outputs, signature.scalar_type(call.dtype) or call.result or a.type)


def _grouped(call: Grouped) -> Formula:
    return Formula(
        lambda signature: _grouped_bytes(signature, call),
        lambda signature: _grouped_flop(signature, call),
        operand=lambda signature: scaled_type(signature.tensor(0), signature.tensor(1)),
        matrix=True,
        owns=True,
    )


def _experts_flop(signature: Signature) -> int:
    """Return the operations of two products per token and chosen expert.

    The first weight is (experts, out, hidden), the second (experts, hidden, inner).
    """
    hidden, first, second, chosen = (signature.tensor(position).dims for position in (0, 1, 2, 4))
    require(len(hidden) == 2 and len(first) == len(second) == 3 and len(chosen) == 2)
    require(hidden[0] == chosen[0] and first[0] == second[0] and first[2] == second[1] == hidden[1])
    require(first[1] in {second[2], 2 * second[2]})  # with a gate, twice the inner size; packed weights have other sizes
    return 2 * chosen[0] * chosen[1] * hidden[1] * (first[1] + second[2])


def _experts_type(signature: Signature) -> str:
    """Return the type that multiplies tokens and weights.

    Weights of 8-bit integers may be multiplied as such or in the type of the tokens: that is unknown.
    """
    hidden, weight = peak_type(signature.tensor(0).type), peak_type(signature.tensor(1).type)
    require(weight in {hidden, "fp8"})
    return weight


def _int4_dims(signature: Signature) -> tuple[int, int, int]:
    """Return M, N, K of a product with weights of 4 bits.

    They are packed as (N / 8, K / (inner tiles x 16), 32, inner tiles / 2).
    """
    a, b = signature.tensor(0), signature.tensor(1)
    require(len(a.dims) == 2 and len(b.dims) == 4 and b.dims[2] == 32)
    require(b.dims[1] * b.dims[3] * 2 * 16 == a.dims[1])
    return a.dims[0], b.dims[0] * 8, a.dims[1]


def _int4_bytes(signature: Signature) -> int:
    m, n, _ = _int4_dims(signature)
    a = signature.tensor(0)
    return read((a, signature.tensor(1), signature.tensor(3))) + size(m * n, a.type)


def _int4_flop(signature: Signature) -> int:
    m, n, k = _int4_dims(signature)
    return 2 * m * n * k


def _int4_cpu_dims(signature: Signature) -> tuple[int, int, int]:
    """Return M, N, K of a product with weights of 4 bits, stored as (N, K / 2)."""
    a, b = signature.tensor(0), signature.tensor(1)
    require(len(a.dims) == len(b.dims) == 2 and b.type.bytes == 1 and 2 * b.dims[1] == a.dims[1])
    return a.dims[0], b.dims[0], a.dims[1]


def _int4_cpu_bytes(signature: Signature) -> int:
    m, n, _ = _int4_cpu_dims(signature)
    a = signature.tensor(0)
    return read((a, signature.tensor(1), signature.tensor(3))) + size(m * n, a.type)


def _int4_cpu_flop(signature: Signature) -> int:
    m, n, k = _int4_cpu_dims(signature)
    return 2 * m * n * k


# The weights of the experts that no token chose are not read, and which these are is in a tensor: bytes are unknown.
_EXPERTS: Final = Formula(None, _experts_flop, operand=_experts_type, matrix=True, owns=True)
_VLLM: Final = Scaled(a=1, b=2, further=(3, 4, 5), out=0)
_SGLANG: Final = Scaled(further=(2, 3, 5), dtype=4)
_ROWWISE: Final = _scaled(Scaled(further=(2, 3), result=_BF16))
_WEIGHT: Final = _scaled(Scaled(further=(2,)))  # a weight of N x K
_ONEDNN_UNARY: Final = Scaled(further=(2,), opaque=True)
_ONEDNN_BINARY: Final = Scaled(b=2, further=(1, 3), opaque=True)  # with another tensor, which is added
FORMULAS: Final[dict[str, Formula]] = {
    "aten::_scaled_mm": _scaled(Scaled(further=(2, 3, 4, 5), dtype=6)),
    "aten::_scaled_mm_v2": _scaled(Scaled(untyped=True)),
    "aten::_int_mm": _scaled(Scaled(result=_INT32)),
    "aten::_weight_int8pack_mm": Formula(
        lambda signature: _bytes(signature, Scaled(further=(2,))),
        lambda signature: _flop(signature, Scaled()),
        operand=0,
        matrix=True,
        owns=True,
    ),
    "aten::_weight_int4pack_mm": Formula(_int4_bytes, _int4_flop, operand=0, matrix=True, owns=True),
    "aten::_weight_int4pack_mm_for_cpu": Formula(_int4_cpu_bytes, _int4_cpu_flop, operand=0, matrix=True, owns=True),
    "aten::mkldnn_linear": _scaled(_ONEDNN_UNARY),
    "mkldnn::_linear_pointwise": _scaled(lambda signature: _ONEDNN_BINARY if len(signature) == 5 else _ONEDNN_UNARY),
    "mkl::_mkl_linear": _scaled(Scaled(b=2, further=(3,))),  # of the weight as it was, not of the packed one
    "aten::_grouped_mm": _grouped(Grouped(offsets=2, further=(3,), dtype=4)),
    "aten::_scaled_grouped_mm": _grouped(Grouped(offsets=4, further=(2, 3, 5), dtype=7, result=_BF16)),
    "aten::_scaled_grouped_mm_v2": _grouped(Grouped(offsets=8, further=(), dtype=10, untyped=True)),
    "_C::cutlass_scaled_mm": _scaled(_VLLM),
    "_C::cutlass_scaled_mm_azp": _scaled(Scaled(a=1, b=2, further=(3, 4, 5, 6, 7), out=0)),
    "_C::cutlass_scaled_fp4_mm": _scaled(Scaled(a=1, b=2, further=(3, 4, 5), out=0, type="fp4", packed=2)),
    "sgl_kernel::fp8_scaled_mm": _scaled(_SGLANG),
    "sgl_kernel::int8_scaled_mm": _scaled(_SGLANG),
    "sgl_kernel::fp8_blockwise_scaled_mm": _scaled(Scaled(further=(2, 3), dtype=4)),
    "sgl_kernel::cutlass_scaled_fp4_mm": _scaled(Scaled(a=1, b=2, further=(3, 4, 5), out=0, type="fp4", packed=2)),
    "fbgemm::f8f8bf16": _ROWWISE,
    "fbgemm::f8f8bf16_rowwise": _ROWWISE,
    "fbgemm::f8f8bf16_blockwise": _ROWWISE,
    "fbgemm::f8f8bf16_tensorwise": _scaled(Scaled(result=_BF16)),
    "vllm::rocm_unquantized_gemm": _WEIGHT,
    "vllm::rocm_unquantized_gemm_impl": _WEIGHT,
    "vllm::inplace_fused_experts": _EXPERTS,
    "vllm::outplace_fused_experts": _EXPERTS,
    "sglang::inplace_fused_experts": _EXPERTS,
    "sglang::outplace_fused_experts": _EXPERTS,
}
