"""Inputs of an operator call as the profiler recorded them, checked: sizes, strides, types and values.

Traces are hostile: sizes may be negative, huge, nested or text. The accessors of ``Signature`` raise ``UndeterminedError`` for
values that cannot be read, which analysis/efficiency/work.py turns into an unknown figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any, Final

from .json_arrays import json_array

MOST_SIZES: Final = 64  # dimensions of a tensor: the limit of PyTorch's TensorIterator
MOST_LISTED: Final = 10_000  # tensors of a list; the weights of a recurrent layer are some dozens
MOST_ELEMENTS: Final = 1 << 50  # of a tensor: a petabyte of bytes, more than a node has


class UndeterminedError(Exception):
    """The inputs of a call do not determine the figure."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """Type of a tensor's elements. ``name``: key of a peak, or of no peak. ``bits`` of one stored element; ``packed`` values are in it."""

    name: str
    bytes: int
    packed: int = 1


# By the names of caffe2::TypeMeta, which the profiler writes; its fundamental types differ by compiler ("long", "long int").
TYPES: Final = {
    "double": ElementType("fp64", 8),
    "float": ElementType("fp32", 4),
    "c10::Half": ElementType("fp16", 2),
    "c10::BFloat16": ElementType("bf16", 2),
    "c10::Float8_e4m3fn": ElementType("fp8", 1),
    "c10::Float8_e4m3fnuz": ElementType("fp8", 1),
    "c10::Float8_e5m2": ElementType("fp8", 1),
    "c10::Float8_e5m2fnuz": ElementType("fp8", 1),
    "c10::Float8_e8m0fnu": ElementType("e8m0", 1),
    "c10::Float4_e2m1fn_x2": ElementType("fp4", 1, packed=2),
    "signed char": ElementType("int8", 1),
    "char": ElementType("int8", 1),
    "unsigned char": ElementType("uint8", 1),
    "bool": ElementType("bool", 1),
    "short": ElementType("int16", 2),
    "short int": ElementType("int16", 2),
    "unsigned short": ElementType("uint16", 2),
    "int": ElementType("int32", 4),
    "unsigned int": ElementType("uint32", 4),
    "long": ElementType("int64", 8),
    "long int": ElementType("int64", 8),
    "long long": ElementType("int64", 8),
    "unsigned long": ElementType("uint64", 8),
    "unsigned long int": ElementType("uint64", 8),
    "c10::complex<c10::Half>": ElementType("complex32", 4),
    "c10::complex<float>": ElementType("complex64", 8),
    "c10::complex<double>": ElementType("complex128", 16),
    "c10::qint8": ElementType("int8", 1),
    "c10::quint8": ElementType("uint8", 1),
    "c10::qint32": ElementType("int32", 4),
}

# Numbers of c10::ScalarType, which arguments like out_dtype have as concrete value (c10/core/ScalarType.h).
SCALAR_TYPES: Final = {
    0: TYPES["unsigned char"],
    1: TYPES["signed char"],
    2: TYPES["short"],
    3: TYPES["int"],
    4: TYPES["long"],
    5: TYPES["c10::Half"],
    6: TYPES["float"],
    7: TYPES["double"],
    8: TYPES["c10::complex<c10::Half>"],
    9: TYPES["c10::complex<float>"],
    10: TYPES["c10::complex<double>"],
    11: TYPES["bool"],
    15: TYPES["c10::BFloat16"],
    23: TYPES["c10::Float8_e5m2"],
    24: TYPES["c10::Float8_e4m3fn"],
    25: TYPES["c10::Float8_e5m2fnuz"],
    26: TYPES["c10::Float8_e4m3fnuz"],
    44: TYPES["c10::Float8_e8m0fnu"],
    45: TYPES["c10::Float4_e2m1fn_x2"],
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor among the inputs. ``dims``: sizes; ``distinct``: elements in memory, without those that a stride of 0 repeats."""

    dims: tuple[int, ...]
    distinct: int
    element: ElementType | None  # unknown in a list of tensors: the profiler writes no types for these

    @property
    def elements(self) -> int:
        return prod(self.dims)

    @property
    def type(self) -> ElementType:
        if self.element is None:
            raise UndeterminedError
        return self.element

    @property
    def bytes(self) -> int:
        """Bytes of reading each distinct element once."""
        return self.distinct * self.type.bytes


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs of a call, an entry per argument of the operator's schema. ``concrete`` is empty in traces without concrete inputs."""

    operator: str
    dims: Sequence[Any]
    types: Sequence[Any]
    strides: Sequence[Any] = ()
    concrete: Sequence[Any] = ()

    def __len__(self) -> int:
        return len(self.dims)

    def is_tensor(self, position: int) -> bool:
        return position < len(self.dims) and self._type(position) in TYPES

    def is_none(self, position: int) -> bool:
        """Return whether the argument was None or left out.

        Raises UndeterminedError for a type that cannot be read.
        """
        if position >= len(self.dims):
            return True
        kind = self.types[position]
        if not isinstance(kind, str):
            raise UndeterminedError
        return kind in {"", "None", "NoneType"} and not self.dims[position]

    def is_list(self, position: int) -> bool:
        return position < len(self.dims) and self._type(position).endswith("List")

    def tensor(self, position: int, opaque: bool = False) -> Tensor:
        """Return the tensor at a position.

        ``opaque``: its elements may be in a layout of a library. Raises UndeterminedError if it is none, or one with sizes that no tensor
        has; also for one without strides among others that have some: of a sparse tensor the sizes do not show how many elements it has.
        """
        kind = self._type(position)
        if kind not in TYPES:
            raise UndeterminedError
        strides = self._strides(position)
        if strides == [] and self.dims[position] and any(self.strides) and not opaque:
            raise UndeterminedError
        return _tensor(self.dims[position], strides, TYPES[kind])

    def optional_tensor(self, position: int) -> Tensor | None:
        return None if self.is_none(position) else self.tensor(position)

    def tensor_list(self, position: int) -> list[Tensor]:
        """Return the tensors of a list, without types.

        Raises UndeterminedError if the trace has no sizes of them.
        """
        listed = self.dims[position] if self._type(position) == "TensorList" else None
        if not isinstance(listed, list) or not 0 < len(listed) <= MOST_LISTED:
            raise UndeterminedError
        return [_tensor(dims, None, None) for dims in listed]

    def integer(self, position: int) -> int:
        text = self._concrete(position)
        try:
            value = int(text[:20])
        except ValueError:
            raise UndeterminedError from None
        if abs(value) >= MOST_ELEMENTS:
            raise UndeterminedError
        return value

    def number(self, position: int) -> float:
        """Read a number like ``1`` or ``0.5``; not one that is infinite or NaN."""
        try:
            value = float(self._concrete(position)[:30])
        except ValueError:
            raise UndeterminedError from None
        if not isfinite(value):
            raise UndeterminedError
        return value

    def flag(self, position: int) -> bool:
        text = self._concrete(position)
        if text in {"True", "true", "1"}:
            return True
        if text in {"False", "false", "0"}:
            return False
        raise UndeterminedError

    def integers(self, position: int) -> list[int]:
        """Read a list like ``[16, 16]``; flags count as 0 and 1."""
        text = self._concrete(position)
        if not (text.startswith("[") and text.endswith("]")) or len(text) > 30 * MOST_SIZES:
            raise UndeterminedError
        words = {"True": 1, "False": 0, "true": 1, "false": 0}
        try:
            values = [words[word] if word in words else int(word[:20]) for word in map(str.strip, text[1:-1].split(",")) if word]
        except ValueError:
            raise UndeterminedError from None
        if any(abs(value) >= MOST_ELEMENTS for value in values):
            raise UndeterminedError
        return values

    def scalar_type(self, position: int) -> ElementType | None:
        """Type that an argument like ``out_dtype`` names; None if it was left out."""
        if self.is_none(position):
            return None
        number = self.integer(position)
        if number not in SCALAR_TYPES:
            raise UndeterminedError
        return SCALAR_TYPES[number]

    def _type(self, position: int) -> str:
        if not 0 <= position < len(self.types) or not isinstance(self.types[position], str):
            raise UndeterminedError
        return str(self.types[position])

    def _strides(self, position: int) -> Any:
        return self.strides[position] if position < len(self.strides) else None

    def _concrete(self, position: int) -> str:
        if not 0 <= position < len(self.concrete) or not isinstance(self.concrete[position], str):
            raise UndeterminedError
        return str(self.concrete[position])


def parse(
    operator: str,
    input_dims: str | None,
    input_types: str | None,
    input_strides: str | None = None,
    concrete_inputs: str | None = None,
) -> Signature | None:
    """Read the JSON texts of a row of the ``signature`` table.

    None without sizes and types of the same number of arguments.
    """
    dims, types = json_array(input_dims), json_array(input_types)
    if dims is None or types is None or len(dims) != len(types):
        return None
    strides, concrete = json_array(input_strides), json_array(concrete_inputs)
    return Signature(
        operator,
        dims,
        types,
        strides if strides is not None and len(strides) == len(dims) else (),
        concrete if concrete is not None and len(concrete) == len(dims) else (),
    )


def _tensor(dims: Any, strides: Any, element: ElementType | None) -> Tensor:
    sizes = _sizes(dims)
    elements = prod(sizes)
    if elements > MOST_ELEMENTS:
        raise UndeterminedError
    try:
        steps = _sizes(strides)
    except UndeterminedError:
        steps = ()
    distinct = elements
    if elements and len(steps) == len(sizes):
        span = 1 + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
        distinct = min(prod(size for size, step in zip(sizes, steps, strict=True) if step), span)
    return Tensor(sizes, distinct, element)


def _sizes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MOST_SIZES:
        raise UndeterminedError
    if any(type(size) is not int or not 0 <= size < MOST_ELEMENTS for size in value):
        raise UndeterminedError
    return tuple(value)
