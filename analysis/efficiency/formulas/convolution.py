"""Convolutions of 1 to 3 dimensions: 2 x outputs x inputs of a group x kernel, as PyTorch's FlopCounterMode counts.

Transposed ones count the positions of the input. The backward counts each gradient of ``output_mask`` as a convolution. For the gradient of
the weight FlopCounterMode takes all input channels where a group has its share alone: ``flop`` follows it, ``model_flop`` has the share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from ..signatures import Signature, Tensor
from .formula import Formula, read, require, size


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of a convolution's arguments; None: the operator has none. ``transposed``: position, or the fixed value."""

    bias: int | None
    stride: int
    padding: int
    dilation: int | None
    transposed: int | bool
    output_padding: int | None = None
    groups: int | None = None


DEPTHWISE: Final = -1  # as position of the groups: one per channel of the input


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a convolution: ``weight`` as stored (out, in / groups, *kernel; transposed: in, out / groups, *kernel)."""

    batch: int
    inputs: tuple[int, ...]  # spatial
    outputs: tuple[int, ...]
    weight: tuple[int, ...]
    groups: int
    out_channels: int
    transposed: bool

    @property
    def flop(self) -> int:
        return 2 * self.batch * prod(self.inputs if self.transposed else self.outputs) * prod(self.weight)


def shape_of(signature: Signature, positions: Positions, data: Tensor, weight: Tensor) -> Shape:
    """Return the sizes of a convolution.

    Raises UndeterminedError if its arguments do not fit together.
    """
    spatial = len(weight.dims) - 2
    require(1 <= spatial <= 3)
    dims = data.dims if len(data.dims) == spatial + 2 else (1, *data.dims)
    require(len(dims) == spatial + 2)
    transposed = positions.transposed if isinstance(positions.transposed, bool) else signature.flag(positions.transposed)
    strides = _spread(signature.integers(positions.stride), spatial)
    paddings = _spread(signature.integers(positions.padding), spatial)
    dilations = (1,) * spatial if positions.dilation is None else _spread(signature.integers(positions.dilation), spatial)
    require(min(strides) > 0 and min(dilations) > 0)
    extents = [dilation * (kernel - 1) for dilation, kernel in zip(dilations, weight.dims[2:], strict=True)]
    around = list(zip(dims[2:], strides, paddings, extents, strict=True))
    if transposed:
        extra = (0,) * spatial if positions.output_padding is None else _spread(signature.integers(positions.output_padding), spatial)
        outputs = tuple((n - 1) * step - 2 * pad + extent + more + 1 for (n, step, pad, extent), more in zip(around, extra, strict=True))
    else:
        outputs = tuple((n + 2 * pad - extent - 1) // step + 1 for n, step, pad, extent in around)
    require(min(outputs) >= 0)
    groups = _groups(signature, positions.groups, dims[1])
    require(groups > 0 and weight.dims[0] % groups == 0)
    require(dims[1] == (weight.dims[0] if transposed else weight.dims[1] * groups))
    out_channels = weight.dims[1] * groups if transposed else weight.dims[0]
    return Shape(dims[0], dims[2:], outputs, weight.dims, groups, out_channels, transposed)


def _groups(signature: Signature, position: int | None, channels: int) -> int:
    if position is None:
        return 1
    return channels if position == DEPTHWISE else signature.integer(position)


def _spread(values: Sequence[int], spatial: int) -> tuple[int, ...]:
    """A single value counts for every dimension."""
    require(len(values) in {1, spatial})
    return tuple(values) * (spatial if len(values) == 1 else 1)


def _forward(positions: Positions, opaque: bool = False) -> Formula:
    """``opaque``: the weight may be in a layout of oneDNN."""

    def weight(signature: Signature) -> Tensor:
        return signature.tensor(1, opaque)

    def shape(signature: Signature) -> Shape:
        return shape_of(signature, positions, signature.tensor(0), weight(signature))

    def traffic(signature: Signature) -> int:
        sizes, data = shape(signature), signature.tensor(0)
        bias = None if positions.bias is None else signature.optional_tensor(positions.bias)
        written = size(sizes.batch * sizes.out_channels * prod(sizes.outputs), data.type)
        return read((data, weight(signature), bias)) + written

    return Formula(traffic, lambda signature: shape(signature).flop, matrix=True, owns=True)


def _backward(positions: Positions, mask: int, data: int = 1, weight: int = 2, gradient: int = 0) -> Formula:
    """``mask``: position of output_mask, the wanted gradients.

    These are of input, weight and bias.
    """

    def shape(signature: Signature) -> Shape:
        return shape_of(signature, positions, signature.tensor(data), signature.tensor(weight))

    def wanted(signature: Signature) -> list[int]:
        values = signature.integers(mask)
        require(len(values) in {2, 3} and set(values) <= {0, 1})
        return [*values, 0][:3]

    def flop(signature: Signature) -> int:
        of_input, of_weight, _ = wanted(signature)
        sizes = shape(signature)
        return sizes.flop * (of_input + of_weight * sizes.groups)

    def model_flop(signature: Signature) -> int:
        of_input, of_weight, _ = wanted(signature)
        return shape(signature).flop * (of_input + of_weight)

    def traffic(signature: Signature) -> int:
        of_input, of_weight, of_bias = wanted(signature)
        sizes = shape(signature)
        inputs, weights, gradients = signature.tensor(data), signature.tensor(weight), signature.tensor(gradient)
        total = gradients.bytes
        if of_input:
            total += weights.bytes + size(inputs.elements, inputs.type)
        if of_weight:
            total += inputs.bytes + size(weights.elements, weights.type)
        return total + (size(sizes.out_channels, weights.type) if of_bias else 0)

    return Formula(traffic, flop, model_flop, operand=data, matrix=True, owns=True)


# Arguments in the order of native_functions.yaml.
_GENERAL: Final = _forward(Positions(bias=2, stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8))
_PADDING_FIRST: Final = Positions(bias=2, stride=4, padding=3, dilation=5, transposed=False, groups=6)
_TRANSPOSED_PADDING_FIRST: Final = Positions(bias=2, stride=5, padding=3, dilation=6, transposed=True, output_padding=4, groups=7)
_MIOPEN: Final = _forward(_PADDING_FIRST)
_FUSED_RELU: Final = _forward(Positions(bias=2, stride=3, padding=4, dilation=5, transposed=False, groups=6))
_FUSED_ADD: Final = _forward(Positions(bias=4, stride=5, padding=6, dilation=7, transposed=False, groups=8))
_SLOW: Final = _forward(Positions(bias=3, stride=4, padding=5, dilation=None, transposed=False))
_SLOW_DILATED: Final = _forward(Positions(bias=3, stride=4, padding=5, dilation=6, transposed=False))
_SLOW_TRANSPOSED: Final = _forward(Positions(bias=3, stride=4, padding=5, dilation=7, transposed=True, output_padding=6))
_BACKWARD_SHAPE: Final = Positions(bias=None, stride=4, padding=5, dilation=6, transposed=7, output_padding=8, groups=9)
FORMULAS: Final[dict[str, Formula]] = {
    "aten::convolution": _GENERAL,
    "aten::_convolution": _GENERAL,
    "aten::convolution_overrideable": _GENERAL,
    "aten::cudnn_convolution": _forward(Positions(bias=None, stride=3, padding=2, dilation=4, transposed=False, groups=5)),
    "aten::cudnn_convolution_transpose": _forward(
        Positions(bias=None, stride=4, padding=2, dilation=5, transposed=True, output_padding=3, groups=6)
    ),
    "aten::cudnn_convolution_relu": _FUSED_RELU,
    "aten::miopen_convolution_relu": _FUSED_RELU,
    "aten::cudnn_convolution_add_relu": _FUSED_ADD,
    "aten::miopen_convolution_add_relu": _FUSED_ADD,
    "aten::miopen_convolution": _MIOPEN,
    "aten::miopen_depthwise_convolution": _MIOPEN,
    "aten::mkldnn_convolution": _MIOPEN,
    "mkldnn::_convolution_pointwise": _forward(_PADDING_FIRST, opaque=True),
    "mkldnn::_convolution_transpose_pointwise": _forward(_TRANSPOSED_PADDING_FIRST, opaque=True),
    "aten::miopen_convolution_transpose": _forward(_TRANSPOSED_PADDING_FIRST),
    "aten::_slow_conv2d_forward": _SLOW,
    "aten::thnn_conv2d": _SLOW,
    "aten::slow_conv3d": _SLOW,
    "aten::slow_conv3d_forward": _SLOW,
    "aten::_conv_depthwise2d": _forward(Positions(bias=3, stride=4, padding=5, dilation=6, transposed=False, groups=DEPTHWISE)),
    "aten::conv_depthwise3d": _forward(Positions(bias=3, stride=4, padding=5, dilation=6, transposed=False, groups=DEPTHWISE)),
    "aten::slow_conv_dilated2d": _SLOW_DILATED,
    "aten::slow_conv_dilated3d": _SLOW_DILATED,
    "aten::slow_conv_transpose2d": _SLOW_TRANSPOSED,
    "aten::slow_conv_transpose3d": _SLOW_TRANSPOSED,
    "aten::convolution_backward": _backward(_BACKWARD_SHAPE, mask=10),
    "aten::convolution_backward_overrideable": _backward(
        Positions(bias=None, stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8), mask=9
    ),
    "aten::_slow_conv2d_backward": _backward(Positions(bias=None, stride=4, padding=5, dilation=None, transposed=False), mask=6),
}
