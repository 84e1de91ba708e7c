"""In which arithmetic did the kernels run?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..report.model import Kernel, Precision
from ..toolkit.shares import shares

# Categories that tensor cores speed up: only there does the precision decide how fast the work can be.
MATRIX_CATEGORIES: Final = frozenset({"GEMM", "attention", "convolution"})

# Precisions of a matrix kernel with fewer bits than FP32, as named in Kernel.precision. TF32 keeps 10 bits of the mantissa; mixed are the
# products of two formats, of which one at least is narrow (FP8 x FP4, BF16 x quantised weights).
BELOW_FP32: Final = frozenset({"TF32", "BF16", "FP16", "FP8", "FP4", "INT8", "mixed"})


def precision(kernels: Iterable[Kernel]) -> Precision:
    """Summed kernel time by precision, longest first; percent of all kernels and of the GEMM, attention and convolution kernels."""
    listed = tuple(kernels)
    return Precision(
        shares=shares((k.precision, k.total_ns, k.count) for k in listed),
        matrix=shares((k.precision, k.total_ns, k.count) for k in listed if k.category in MATRIX_CATEGORIES),
    )
