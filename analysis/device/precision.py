"""Precisions and categories of matrix work."""

from __future__ import annotations

from typing import Final

# Categories that tensor cores accelerate: only there does the precision limit the speed.
MATRIX_CATEGORIES: Final = frozenset({"GEMM", "attention", "convolution"})

# Precisions of a matrix kernel with fewer bits than FP32, as named in Kernel.precision. TF32 has a mantissa of 10 bits. Mixed are products
# of two formats with at least one narrow one (FP8 x FP4, BF16 x quantized weights).
BELOW_FP32: Final = frozenset({"TF32", "BF16", "FP16", "FP8", "FP4", "INT8", "mixed"})
