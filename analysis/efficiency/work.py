"""Inputs of an operator call -> its floating-point operations and bytes, by the formula of the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from .call_work import CallWork
from .formulas import attention, convolution, elementwise, layers, matrix, quantized, recurrent
from .formulas.formula import Formula
from .signatures import Signature, UndeterminedError

__all__ = ["OWNERS", "CallWork", "work_of"]

T = TypeVar("T")

_LIMIT: Final = 1 << 63  # of the integers of the report's tables
_FORMULAS: Final[dict[str, Formula]] = {
    operator: formula
    for family in (matrix, quantized, convolution, attention, recurrent, layers, elementwise)
    for operator, formula in family.FORMULAS.items()
}
_UNKNOWN: Final = CallWork()

OWNERS: Final[frozenset[str]] = frozenset(operator for operator, formula in _FORMULAS.items() if formula.owns)
"""Operators that all work launched within their calls belongs to: products, convolutions, attention and their backwards."""


def work_of(signature: Signature) -> CallWork:
    """Return the work of a call; each figure that its inputs do not determine is None."""
    formula = _FORMULAS.get(signature.operator)
    if formula is None:
        return _UNKNOWN
    flop = _figure(formula.flop, signature)
    return CallWork(
        flop=flop,
        model_flop=flop if formula.model_flop is None else _figure(formula.model_flop, signature),
        bytes=_figure(formula.bytes, signature),
        compute_type=_determined(formula.compute_type, signature),
        matrix=formula.matrix,
        flop_bounds=_bounds(formula, signature) if flop is None else None,
    )


def _determined(function: Callable[[Signature], T] | None, signature: Signature) -> T | None:
    if function is None:
        return None
    try:
        return function(signature)
    except UndeterminedError:
        return None


def _figure(function: Callable[[Signature], int] | None, signature: Signature) -> int | None:
    figure = _determined(function, signature)
    return figure if figure is not None and 0 <= figure < _LIMIT else None


def _bounds(formula: Formula, signature: Signature) -> tuple[int, int] | None:
    bounds = _determined(formula.bounds, signature)
    return bounds if bounds is not None and bounds[1] < _LIMIT else None
