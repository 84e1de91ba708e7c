"""Matrix products: two operations per multiply-add, no bias, as PyTorch's FlopCounterMode counts (torch/utils/flop_counter.py).

It counts mm, addmm, bmm, baddbmm and _scaled_mm. For the others of this file the count is the same 2MNK of the multiplied matrices.
Of packed FP4 the sizes count pairs of values: K is twice the size. (FlopCounterMode takes the packed size and counts half.)
"""

from __future__ import annotations

from typing import Final

from ..signatures import Signature, Tensor, UndeterminedError
from .formula import Figure, Formula, read, require, size


def product_dims(a: Tensor, b: Tensor) -> tuple[int, int, int, int]:
    """Return batch, M, N, K of a product of matrices, batches of them or vectors.

    Raises UndeterminedError if the factors do not fit together.
    """
    rows, columns = a.dims, b.dims
    require(bool(rows) and bool(columns))
    batch = 1
    if len(rows) == 3 and len(columns) == 3:
        require(rows[0] == columns[0])
        batch, rows, columns = rows[0], rows[1:], columns[1:]
    require(len(rows) <= 2 and len(columns) <= 2)
    m = rows[0] if len(rows) == 2 else 1
    n = columns[1] if len(columns) == 2 else 1
    require(rows[-1] == columns[0])
    return batch, m, n, rows[-1] * _packed(a, b)


def _packed(a: Tensor, b: Tensor) -> int:
    """Values in a stored element of both factors."""
    if a.element is None or b.element is None:
        return 1
    require(a.element.packed == b.element.packed)
    return a.element.packed


def flop_of(batch: int, m: int, n: int, k: int) -> int:
    return 2 * batch * m * n * k


def _flop(a: int, b: int) -> Figure:
    return lambda signature: flop_of(*product_dims(signature.tensor(a), signature.tensor(b)))


def _bytes(a: int, b: int, added: int | None, out: int, dtype: int | None, summed: bool) -> Figure:
    """Read both factors and the added matrix, write the product.

    ``out``: position of the result in the form with an output argument, last argument of the form with the result's type at ``dtype``;
    None: there is no such form. ``summed``: over the batch.
    """

    def figure(signature: Signature) -> int:
        left, right = signature.tensor(a), signature.tensor(b)
        batch, m, n, _ = product_dims(left, right)
        total = read((left, right))
        typed = dtype if len(signature) == out + 1 and not signature.is_tensor(out) else None
        if added is not None and not _is_zero(signature, added + (3 if typed is None else 4)):
            total += signature.tensor(added).bytes
        result = signature.tensor(out).type if signature.is_tensor(out) else left.type
        if typed is not None:
            result = signature.scalar_type(typed) or result
        return total + size((1 if summed else batch) * m * n, result)

    return figure


def _is_zero(signature: Signature, position: int) -> bool:
    """Whether ``beta`` is 0: the added matrix is not read then."""
    try:
        return signature.number(position) == 0
    except UndeterminedError:
        return False


def _product(a: int, b: int, added: int | None, out: int, dtype: int | None, summed: bool = False) -> Formula:
    return Formula(_bytes(a, b, added, out, dtype, summed), _flop(a, b), operand=a, matrix=True, owns=True)


MM: Final = _product(0, 1, None, out=2, dtype=2)
ADDMM: Final = _product(1, 2, 0, out=5, dtype=3)
ADDBMM: Final = _product(1, 2, 0, out=5, dtype=3, summed=True)
FORMULAS: Final[dict[str, Formula]] = {
    "aten::mm": MM,
    "aten::bmm": MM,
    "aten::mv": MM,
    "aten::dot": MM,
    "aten::vdot": MM,
    "aten::addmm": ADDMM,
    "aten::addmm_": ADDMM,
    "aten::_addmm_activation": _product(1, 2, 0, out=6, dtype=None),
    "aten::addmv": ADDMM,
    "aten::addmv_": ADDMM,
    "aten::baddbmm": ADDMM,
    "aten::baddbmm_": ADDMM,
    "aten::addbmm": ADDBMM,
    "aten::addbmm_": ADDBMM,
}
