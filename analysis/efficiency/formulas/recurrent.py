"""Recurrent layers: each step multiplies its input and state by the weights of its layer and direction, two operations per weight.

FlopCounterMode does not know these operators. Gates and biases are not counted. The backward multiplies once for the gradients of input and
state, and once for those of the weights. Types of weights are not in traces, as they are in a list: the bytes are unknown.
"""

from __future__ import annotations

from typing import Final

from ..signatures import Signature, Tensor
from .formula import Formula, require


def _steps(data: Tensor) -> int:
    """Return time steps x batch.

    Of data (time, batch, width), or of packed sequences (all steps, width).
    """
    require(len(data.dims) in {2, 3} and data.dims[-1] > 0)
    return data.elements // data.dims[-1]


def _forward(signature: Signature) -> int:
    weights = signature.tensor_list(1)
    return 2 * _steps(signature.tensor(0)) * sum(weight.elements for weight in weights if len(weight.dims) == 2)


def _backward(signature: Signature) -> int:
    mask = signature.integers(len(signature) - 1)
    require(len(mask) == 4)
    return _forward(signature) * (1 + mask[3])


def _onednn(signature: Signature) -> int:
    """A single layer and direction, with its weights as arguments."""
    data, inputs, state = (signature.tensor(position) for position in range(3))
    require(len(inputs.dims) == len(state.dims) == 2 and inputs.dims[1] == data.dims[-1])
    return 2 * _steps(data) * (inputs.elements + state.elements)


_LAYERS: Final = Formula(None, _forward, matrix=True, owns=True)
FORMULAS: Final[dict[str, Formula]] = {
    "aten::_cudnn_rnn": _LAYERS,
    "aten::miopen_rnn": _LAYERS,
    "aten::_cudnn_rnn_backward": Formula(None, _backward, matrix=True, owns=True),
    "aten::miopen_rnn_backward": Formula(None, _backward, matrix=True, owns=True),
    "aten::mkldnn_rnn_layer": Formula(None, _onednn, matrix=True, owns=True),
    "aten::mkldnn_rnn_layer_backward": Formula(None, lambda signature: 2 * _onednn(signature), matrix=True, owns=True),
}
