"""A formula: how the floating-point operations and the bytes of an operator follow from its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..signatures import ElementType, Signature, Tensor, UndeterminedError

Figure = Callable[[Signature], int]

# Peaks exist for these types; integers of 8 bits share one.
_PEAK_TYPES = {"fp64": "fp64", "fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8", "fp4": "fp4", "int8": "int8", "uint8": "int8"}


@dataclass(frozen=True, slots=True)
class Formula:
    """Figures of an operator; each raises UndeterminedError where its inputs do not determine it.

    ``flop``: as PyTorch's FlopCounterMode counts, if it knows the operator. ``model_flop``: the part that the result needs; None if that is
    ``flop``. ``bytes``: least traffic. ``operand``: position of the input whose type selects the peak, or the type. ``owns``: all work
    launched within the call belongs to it. ``matrix``: a product, convolution, attention or recurrent layer. ``bounds``: least and most
    ``flop`` where it depends on values that no trace has.
    """

    bytes: Figure | None = None
    flop: Figure | None = None
    model_flop: Figure | None = None
    operand: int | str | Callable[[Signature], str] = 0
    matrix: bool = False
    owns: bool = False
    bounds: Callable[[Signature], tuple[int, int]] | None = None

    def compute_type(self, signature: Signature) -> str | None:
        """Type that selects the peak: fp64, fp32, fp16, bf16, fp8, fp4 or int8."""
        if isinstance(self.operand, str):
            return self.operand
        if callable(self.operand):
            return self.operand(signature)
        return _PEAK_TYPES.get(signature.tensor(self.operand).type.name)


def peak_type(element: ElementType) -> str:
    """Name of the peak of a type; raise UndeterminedError for types without one."""
    try:
        return _PEAK_TYPES[element.name]
    except KeyError:
        raise UndeterminedError from None


def size(elements: int, element: ElementType) -> int:
    """Bytes of elements of a type."""
    return elements * element.bytes


def read(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of reading tensors once."""
    return sum(tensor.bytes for tensor in tensors if tensor is not None)


def require(condition: bool) -> None:
    """Raise UndeterminedError unless the inputs fit together."""
    if not condition:
        raise UndeterminedError
