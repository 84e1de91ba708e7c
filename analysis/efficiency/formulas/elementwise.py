"""Bytes of elementwise operators, copies and fills: read each input once, write the result once.

FlopCounterMode counts no operations of these, and their time is that of their bytes: ``flop`` is unknown. A result has the broadcast sizes
and the promoted type of the operands (torch/_refs, type promotion); a form with ``_`` writes its first operand, one with an output argument
that argument. Random numbers, masks of dropout and scalars in arguments cost what they occupy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Final

from ..signatures import TYPES, ElementType, Signature, Tensor
from .formula import Figure, Formula, read, require, size

_BOOL, _FLOAT = TYPES["bool"], TYPES["float"]
_UNSIGNED: Final = ("uint8", "uint16", "uint32", "uint64")
# Category of a type, then its rank in it: a tensor with dimensions keeps its type against one of a lower or the same category without any.
_CATEGORIES: Final = (
    ("bool",),
    ("uint8", "int8", "int16", "int32", "int64"),
    ("fp16", "bf16", "fp32", "fp64"),
    ("complex32", "complex64", "complex128"),
)


def _category(element: ElementType) -> int:
    for category, names in enumerate(_CATEGORIES):
        if element.name in names:
            return category
    require(False)
    return -1


def promoted(tensors: Sequence[Tensor]) -> ElementType:
    """Return the type of the result of tensors.

    Raises UndeterminedError for combinations that no rule here settles.
    """
    require(bool(tensors))
    kinds = {tensor.type.name for tensor in tensors}
    if len(kinds) == 1:
        return tensors[0].type
    sized = [tensor.type for tensor in tensors if tensor.dims]
    single = [tensor.type for tensor in tensors if not tensor.dims]
    if sized and (not single or max(map(_category, single)) <= max(map(_category, sized))):
        return _widest(sized)
    require(not sized)  # a scalar of a higher category may be a number of Python, whose type is the default one
    return _widest(single)


def _widest(types: Iterable[ElementType]) -> ElementType:
    listed = list(types)
    category = max(map(_category, listed))
    top = [element for element in listed if _category(element) == category]
    names = {element.name for element in top}
    if names == {"fp16", "bf16"}:
        return _FLOAT
    require(len(names) == 1 or not {"uint8", "int8"} <= names)  # int16 then, which neither has
    return max(top, key=lambda element: _CATEGORIES[category].index(element.name))


def broadcast(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Return the sizes that tensors have in common.

    Raises UndeterminedError if they have none.
    """
    rank = max((len(tensor.dims) for tensor in tensors), default=0)
    aligned = [(1,) * (rank - len(tensor.dims)) + tensor.dims for tensor in tensors]
    result = []
    for sizes in zip(*aligned, strict=True):
        common = set(sizes) - {1}
        require(len(common) <= 1)
        result.append(common.pop() if common else 1)
    return tuple(result)


def _elementwise(operands: int, result: ElementType | None = None, floating: bool = False) -> Figure:
    """Read the operands, write a result of their broadcast sizes.

    ``operands``: leading arguments, tensors or scalars. ``result``: its type where operands do not set it; ``floating``: integers give
    fp32.
    """

    def figure(signature: Signature) -> int:
        inputs = [signature.tensor(position) for position in range(operands) if signature.is_tensor(position)]
        require(bool(inputs) and not any(signature.is_list(position) for position in range(operands)))
        total = read(inputs)
        for position in range(operands, len(signature)):
            if signature.is_tensor(position):  # the form with an output argument
                output = signature.tensor(position)
                return total + size(output.elements, output.type)
        if signature.operator.endswith("_"):
            return total + size(inputs[0].elements, inputs[0].type)
        return total + size(prod(broadcast(inputs)), result or _type_of(signature, operands, inputs, floating))

    return figure


def _type_of(signature: Signature, operands: int, inputs: Sequence[Tensor], floating: bool) -> ElementType:
    element = promoted(inputs)
    if _category(element) > 1:
        return element
    # A number of Python may turn integers into floats.
    for position in range(operands):
        require(signature.is_tensor(position) or signature.is_none(position) or _is_integer(signature, position))
    return _FLOAT if floating else element


def _is_integer(signature: Signature, position: int) -> bool:
    signature.integer(position)
    return True


def _selected(condition: int, operands: Sequence[int]) -> Figure:
    """Read a mask and the operands; the mask does not set the type."""

    def figure(signature: Signature) -> int:
        mask = signature.tensor(condition)
        inputs = [signature.tensor(position) for position in operands if signature.is_tensor(position)]
        require(bool(inputs))
        written = inputs[:1] if signature.operator.endswith("_") else inputs
        dims = inputs[0].dims if signature.operator.endswith("_") else broadcast([mask, *inputs])
        return mask.bytes + read(inputs) + size(prod(dims), promoted(written))

    return figure


def _copy(signature: Signature) -> int:
    target, source = signature.tensor(0), signature.tensor(1)
    broadcast((target, source))
    return source.bytes + size(target.elements, target.type)


def _written(signature: Signature) -> int:
    target = signature.tensor(0)
    return size(target.distinct, target.type)


def _elu_backward(signature: Signature) -> int:
    """Read the gradient and the data of the forward; write a gradient."""
    gradient, data = signature.tensor(0), signature.tensor(5)
    return gradient.bytes + data.bytes + size(prod(broadcast((gradient, data))), promoted((gradient, data)))


def _dropout(signature: Signature) -> int:
    """Read, write the result and a mask of a byte per element."""
    data = signature.tensor(0)
    return data.bytes + size(data.elements, data.type) + size(data.elements, _BOOL)


_UNARY: Final = """
    abs neg positive sign sgn square relu relu6 silu gelu mish hardtanh hardswish hardsigmoid leaky_relu elu celu selu softplus threshold
    nan_to_num bitwise_not ceil floor round trunc frac conj_physical clone hardshrink softshrink tril triu roll flip
"""
_UNARY_FLOATING: Final = """
    sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv
    reciprocal lgamma digamma logit
"""
_UNARY_BOOL: Final = "isnan isinf isfinite logical_not isneginf isposinf signbit"
_BINARY: Final = """
    add sub rsub mul remainder fmod maximum minimum fmax fmin pow clamp_min clamp_max floor_divide bitwise_and bitwise_or bitwise_xor
"""
_BINARY_BOOL: Final = "eq ne lt le gt ge logical_and logical_or logical_xor"
_BACKWARD: Final = """
    gelu_backward silu_backward sigmoid_backward tanh_backward threshold_backward leaky_relu_backward hardtanh_backward hardswish_backward
    hardsigmoid_backward softplus_backward logit_backward mish_backward native_dropout_backward
"""
_FILLS: Final = "fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_ log_normal_ cauchy_ geometric_"
# Only another description of the same memory: no kernel, no bytes.
_VIEWS: Final = """
    view _unsafe_view _reshape_alias view_as transpose t permute expand expand_as as_strided slice select narrow split split_with_sizes
    chunk unbind squeeze unsqueeze detach detach_ alias diagonal unfold view_as_real view_as_complex movedim swapaxes empty empty_like
    empty_strided new_empty resize_ set_ lift_fresh resolve_conj resolve_neg
"""


def _table() -> dict[str, Formula]:
    table: dict[str, Formula] = {}

    def enter(names: str, figure: Figure, in_place: bool = False) -> None:
        for name in names.split():
            table[f"aten::{name}_" if in_place else f"aten::{name}"] = Formula(figure)

    for names, operands, result, floating in (
        (_UNARY, 1, None, False),
        (_UNARY_FLOATING, 1, None, True),
        (_UNARY_BOOL, 1, _BOOL, False),
        (_BINARY, 2, None, False),
        ("div true_divide atan2 xlogy", 2, None, True),
        (_BINARY_BOOL, 2, _BOOL, False),
        (_BACKWARD, 2, None, False),
        ("addcmul addcdiv lerp clamp", 3, None, False),
    ):
        figure = _elementwise(operands, result, floating)
        enter(names, figure)
        enter(names, figure, in_place=True)
    enter("where", _selected(0, (1, 2)))
    enter("masked_fill masked_fill_", _selected(1, (0,)))
    enter("copy_", _copy)
    enter("elu_backward", _elu_backward)
    enter(_FILLS, _written)
    enter("native_dropout", _dropout)
    enter(_VIEWS, lambda signature: 0)
    return table


FORMULAS: Final = _table()
