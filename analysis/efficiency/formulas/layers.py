"""Bytes of normalizations, softmax, reductions, lookups, losses and pooling: read each input once, write each result once.

Statistics that a forward keeps for its backward (mean, variance, logsumexp) are not counted: less than 1%. A lookup reads the rows that
its indices name, each once per index and the table at most once. ``flop`` is unknown, as FlopCounterMode counts none of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from ..signatures import TYPES, ElementType, Signature, Tensor
from .elementwise import broadcast, promoted
from .formula import Figure, Formula, read, require, size

_BOOL, _INT64, _FLOAT = TYPES["bool"], TYPES["long"], TYPES["float"]


def _moved(reads: Sequence[int], writes: Sequence[int]) -> Figure:
    """Read and write the arguments at positions.

    Those that were left out cost nothing; the first of each must be there.
    """

    def figure(signature: Signature) -> int:
        inputs = [signature.optional_tensor(position) for position in reads]
        outputs = [signature.optional_tensor(position) for position in writes]
        require(inputs[0] is not None and outputs[0] is not None)
        return read(inputs) + sum(size(tensor.elements, tensor.type) for tensor in outputs if tensor is not None)

    return figure


def _like_input(reads: Sequence[int], data: int = 0) -> Figure:
    """Read arguments, write a result like the data."""
    return _moved(reads, (data,))


def _masked(reads: Sequence[int], results: Sequence[int], mask: int) -> Figure:
    """Read arguments, write the gradients that ``output_mask`` wants.

    Each has the sizes of the argument at its position.
    """

    def figure(signature: Signature) -> int:
        wanted = signature.integers(mask)
        require(len(wanted) == len(results) and set(wanted) <= {0, 1})
        outputs = [signature.optional_tensor(position) for position, want in zip(results, wanted, strict=True) if want]
        require(signature.optional_tensor(reads[0]) is not None)
        return read(map(signature.optional_tensor, reads)) + sum(size(tensor.elements, tensor.type) for tensor in outputs if tensor)

    return figure


def _softmax(signature: Signature) -> int:
    data = signature.tensor(0)
    narrow = data.type.name in {"fp16", "bf16"}
    element = _FLOAT if narrow and signature.flag(2) else data.type  # half_to_float
    return data.bytes + size(data.elements, element)


def _softmax_backward(signature: Signature) -> int:
    gradient, output = signature.tensor(0), signature.tensor(1)
    require(gradient.dims == output.dims)
    element = signature.tensor(3).type if signature.is_tensor(3) else signature.scalar_type(3)
    return gradient.bytes + output.bytes + size(output.elements, element or gradient.type)


def _reduced(
    keep: int, dtype: int | None = None, results: Sequence[ElementType | None] = (None,), sums: bool = False, dims: int | None = 1
) -> Figure:
    """``dims``, ``keep``: positions of the dimensions and of keepdim.

    In forms without them all dimensions are reduced. ``results``: types, None as the input's; ``sums``: integers are summed as int64.
    """

    def figure(signature: Signature) -> int:
        data = signature.tensor(0)
        last = len(signature) - 1
        if last > 0 and signature.is_tensor(last):  # the form with an output argument
            output = signature.tensor(last)
            return data.bytes + size(output.elements, output.type)
        element = data.type
        if sums and element.name in {"bool", "uint8", "int8", "int16", "int32"}:
            element = _INT64
        if dtype is not None and len(signature) > dtype:
            element = signature.scalar_type(dtype) or element
        elements = 1 if dims is None or len(signature) <= keep else _remaining(signature, data, dims)
        return data.bytes + sum(size(elements, kind or element) for kind in results)

    return figure


def _remaining(signature: Signature, data: Tensor, position: int) -> int:
    """Return the elements of a reduction's result.

    The argument at ``position`` names the reduced dimensions: all if it names none.
    """
    if signature.is_none(position):
        return 1
    text = signature.concrete[position] if position < len(signature.concrete) else ""
    named = signature.integers(position) if isinstance(text, str) and text.startswith("[") else [signature.integer(position)]
    rank = len(data.dims)
    require(all(-rank <= dim < rank for dim in named))
    reduced = {dim % rank for dim in named} if named else set(range(rank))
    return prod(size for dim, size in enumerate(data.dims) if dim not in reduced)


def _summed(signature: Signature) -> int:
    """``sum`` and ``mean`` have a form over all elements, with the type alone."""
    return (_SUM_ALL if len(signature) <= 2 else _SUM)(signature)


def _largest(signature: Signature) -> int:
    """Return the bytes of ``max`` and ``min``.

    Of all elements, along a dimension with indices, or of two tensors.
    """
    if len(signature) == 1:
        data = signature.tensor(0)
        return data.bytes + data.type.bytes
    if len(signature) > 2:
        return _WITH_INDICES(signature)
    first, second = signature.tensor(0), signature.tensor(1)
    return first.bytes + second.bytes + size(prod(broadcast((first, second))), promoted((first, second)))


def _embedding(signature: Signature) -> int:
    table, indices = signature.tensor(0), signature.tensor(1)
    require(len(table.dims) == 2)
    rows = min(indices.elements, table.dims[0])
    return indices.bytes + size((rows + indices.elements) * table.dims[1], table.type)


def _embedding_backward(signature: Signature) -> int:
    gradient, indices = signature.tensor(0), signature.tensor(1)
    require(len(gradient.dims) > 0)
    return gradient.bytes + indices.bytes + size(signature.integer(2) * gradient.dims[-1], gradient.type)


def _index_select(signature: Signature) -> int:
    data, index, dim = signature.tensor(0), signature.tensor(2), signature.integer(1)
    rank = len(data.dims)
    require(rank > 0 and -rank <= dim < rank and data.dims[dim] > 0)
    slice_elements = data.elements // data.dims[dim]
    rows = min(index.elements, data.dims[dim])
    return index.bytes + size((rows + index.elements) * slice_elements, data.type)


def _gather(signature: Signature) -> int:
    data, index = signature.tensor(0), signature.tensor(2)
    return index.bytes + size(min(index.elements, data.elements) + index.elements, data.type)


def _nll_loss(signature: Signature) -> int:
    """Read a log-probability per target; write the mean, or a loss per target."""
    scores, target, weight = signature.tensor(0), signature.tensor(1), signature.optional_tensor(2)
    require(len(scores.dims) > 0)
    losses = target.elements if signature.integer(3) == 0 else 1
    return target.bytes + read([weight]) + size(target.elements + losses, scores.type)


def _nll_loss_backward(signature: Signature) -> int:
    gradient, scores, target = (signature.tensor(position) for position in range(3))
    return gradient.bytes + target.bytes + read([signature.optional_tensor(3)]) + size(scores.elements, scores.type)


def _batch_norm(training: int) -> Figure:
    """Read the input and what belongs to its channels, write the result.

    In training, the running statistics are written as well.
    """

    def figure(signature: Signature) -> int:
        data = signature.tensor(0)
        small = [signature.optional_tensor(position) for position in range(1, 5)]
        written = read(small[2:]) if signature.flag(training) else 0
        return data.bytes + read(small) + written + size(data.elements, data.type)

    return figure


def _pool(signature: Signature) -> int:
    """Read the input, write the largest of each window and its index.

    Sizes as in torch.nn.MaxPool2d.
    """
    data = signature.tensor(0)
    require(len(data.dims) in {3, 4} and not signature.flag(5))
    kernel, stride, padding, dilation = (_pair(signature.integers(position)) for position in range(1, 5))
    stride = stride or kernel
    require(min(kernel) > 0 and min(stride) > 0)
    outputs = prod(
        max((size + 2 * pad - spread * (extent - 1) - 1) // step + 1, 0)
        for size, extent, step, pad, spread in zip(data.dims[-2:], kernel, stride, padding, dilation, strict=True)
    )
    elements = prod(data.dims[:-2]) * outputs
    return data.bytes + size(elements, data.type) + size(elements, _INT64)


def _pair(values: list[int]) -> list[int]:
    require(len(values) in {0, 1, 2})
    return values * 2 if len(values) == 1 else values


_SUM_ALL: Final = _reduced(keep=0, dtype=1, sums=True, dims=None)
_SUM: Final = _reduced(keep=2, dtype=3, sums=True)
_SOFTMAX: Final = Formula(_softmax)
_SOFTMAX_BACKWARD: Final = Formula(_softmax_backward)
_NORM: Final = Formula(_like_input((0, 2, 3)))
_ALONG: Final = Formula(_reduced(keep=2))
_INDICES: Final = Formula(_reduced(keep=2, results=(_INT64,)))
_WITH_INDICES: Final = _reduced(keep=2, results=(None, _INT64))
_TRUTH: Final = Formula(_reduced(keep=2, results=(_BOOL,)))
_ACTIVATED_PRODUCT: Final = Formula(_moved((1,), (0,)))  # a half times the activation of the other half
FORMULAS: Final[dict[str, Formula]] = {
    "aten::_softmax": _SOFTMAX,
    "aten::_log_softmax": _SOFTMAX,
    "aten::_softmax_backward_data": _SOFTMAX_BACKWARD,
    "aten::_log_softmax_backward_data": _SOFTMAX_BACKWARD,
    "aten::layer_norm": _NORM,
    "aten::native_layer_norm": _NORM,
    "aten::native_layer_norm_backward": Formula(_masked((0, 1, 5), (1, 5, 6), mask=7)),
    "aten::_fused_rms_norm": Formula(_like_input((0, 2))),
    "aten::_fused_rms_norm_backward": Formula(_masked((0, 1, 4), (1, 4), mask=5)),
    "aten::native_group_norm": Formula(_like_input((0, 1, 2))),
    "aten::native_group_norm_backward": Formula(_masked((0, 1, 4), (1, 4, 4), mask=9)),
    "aten::native_batch_norm": Formula(_batch_norm(training=5)),
    "aten::cudnn_batch_norm": Formula(_batch_norm(training=5)),
    "aten::miopen_batch_norm": Formula(_batch_norm(training=5)),
    "aten::_batch_norm_with_update": Formula(_moved((0, 1, 2, 3, 4), (0, 3, 4))),
    "aten::native_batch_norm_backward": Formula(_masked((0, 1, 2), (1, 2, 2), mask=9)),
    "aten::batch_norm_backward": Formula(_masked((0, 1, 2), (1, 2, 2), mask=9)),
    "aten::cudnn_batch_norm_backward": Formula(_moved((0, 1, 2), (0, 2, 2))),
    "aten::miopen_batch_norm_backward": Formula(_moved((0, 1, 2), (0, 2, 2))),
    "aten::sum": Formula(_summed),
    "aten::mean": Formula(_summed),
    "aten::amax": _ALONG,
    "aten::amin": _ALONG,
    "aten::linalg_vector_norm": Formula(_reduced(keep=3, dtype=4, dims=2)),
    "aten::argmax": _INDICES,
    "aten::argmin": _INDICES,
    "aten::max": Formula(_largest),
    "aten::min": Formula(_largest),
    "aten::any": _TRUTH,
    "aten::all": _TRUTH,
    "aten::cumsum": Formula(_like_input((0,))),
    "aten::embedding": Formula(_embedding),
    "aten::embedding_dense_backward": Formula(_embedding_backward),
    "aten::index_select": Formula(_index_select),
    "aten::gather": Formula(_gather),
    "aten::nll_loss_forward": Formula(_nll_loss),
    "aten::nll_loss_backward": Formula(_nll_loss_backward),
    "aten::max_pool2d_with_indices": Formula(_pool),
    "_C::rms_norm": Formula(_moved((1, 2), (0,))),
    "_C::fused_add_rms_norm": Formula(_moved((0, 1, 2), (0, 1))),
    "_C::silu_and_mul": _ACTIVATED_PRODUCT,
    "_C::gelu_and_mul": _ACTIVATED_PRODUCT,
    "_C::gelu_tanh_and_mul": _ACTIVATED_PRODUCT,
    "sgl_kernel::rmsnorm": Formula(_moved((1, 2), (0,))),
    "sgl_kernel::fused_add_rmsnorm": Formula(_moved((0, 1, 2), (0, 1))),
    "sgl_kernel::silu_and_mul": _ACTIVATED_PRODUCT,
    "sgl_kernel::gelu_and_mul": _ACTIVATED_PRODUCT,
}
