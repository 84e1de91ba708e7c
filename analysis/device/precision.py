"""Kernel time by arithmetic precision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..report.device import Kernel, Precision
from ..toolkit.shares import shares

# Categories that tensor cores accelerate: only there does the precision limit the speed.
MATRIX_CATEGORIES: Final = frozenset({"GEMM", "attention", "convolution"})

# Precisions of a matrix kernel with fewer bits than FP32, as named in Kernel.precision. TF32 has a mantissa of 10 bits. Mixed are products
# of two formats with at least one narrow one (FP8 x FP4, BF16 x quantized weights).
BELOW_FP32: Final = frozenset({"TF32", "BF16", "FP16", "FP8", "FP4", "INT8", "mixed"})


def precision(kernels: Iterable[Kernel]) -> Precision:
    """Sum kernel time by precision, longest first, for all and for matrix kernels."""
    listed = tuple(kernels)
    return Precision(
        shares=shares((k.precision, k.total_ns, k.count) for k in listed),
        matrix=shares((k.precision, k.total_ns, k.count) for k in listed if k.category in MATRIX_CATEGORIES),
    )
