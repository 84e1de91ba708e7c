"""Kernels that only change the layout of a tensor: classified kernels -> those that transpose, or that copy in another order of dimensions.

cuDNN and MIOpen run kernels of their own for this before and after a convolution. A copy of PyTorch changes the layout if the strides of
its two tensors, which have the same sizes and types, sort the dimensions differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import polars as pl

from .json_arrays import json_array
from .kernel_classes import KernelGroup
from .signatures import MOST_SIZES

CONVOLUTION: Final = "convolution"
COPY: Final = "copy"
TRANSPOSE: Final = "transpose"

# cudnn::ops::nchwToNhwcKernel, nhwcToNchwKernel; MIOpen's batched_transpose_32x32_half and transpose_NCHW2CNHW
_OF_LIBRARY: Final = re.compile(
    r"nchw_?to_?nhwc|nhwc_?to_?nchw|nchw_?to_?nchw|batched_transpose|transpose_(?:nchw|cnhw|nhwc)", re.IGNORECASE
)
_TRANSPOSE: Final = re.compile(
    r"(?<![a-z])(?:batch_?)?transpose(?:d)?_?(?:2d|3d|tile\w*|readWrite\w*)?_?(?:alignment_)?kernel", re.IGNORECASE
)
COPIES: Final = frozenset({"aten::copy_"})
_PRODUCTS: Final = frozenset({"GEMM", "attention", "communication"})


def conversion(group: KernelGroup, name: str, copies: Mapping[tuple[str, int | None], bool]) -> str | None:
    """Return what kind of layout conversion a kernel is; None if it is none.

    ``name``: of the kernel; ``copies``: of :func:`permuting_copies`."""
    if group.classes.category in _PRODUCTS and not _OF_LIBRARY.search(name):
        return None
    if _OF_LIBRARY.search(name):
        return CONVOLUTION
    if group.operator is not None and copies.get((group.operator, group.signature)):
        return COPY
    return TRANSPOSE if _TRANSPOSE.search(name) else None


def permuting_copies(shapes: pl.DataFrame) -> dict[tuple[str, int | None], bool]:
    """Tell which copies change the order of dimensions, by operator and signature.

    ``shapes``: of :func:`.call_shapes.call_shapes`."""
    rows = shapes.filter(pl.col("operator").is_in(COPIES), pl.col("input_strides").is_not_null())
    columns = ("operator", "signature", "input_dims", "input_types", "input_strides")
    return {(operator, signature): _permutes(*texts) for operator, signature, *texts in rows.select(columns).iter_rows()}


def _permutes(*texts: str | None) -> bool:
    """Return whether target and source of a copy differ in their order alone.

    Clones and their like are not known by their inputs: the copy that they call is."""
    dims, types, strides = (json_array(text) or [] for text in texts)
    if min(len(dims), len(types), len(strides)) < 2 or not _sizes(dims[0]) or dims[0] != dims[1] or types[0] != types[1]:
        return False
    orders = {_order(dims[0], of_tensor) for of_tensor in strides[:2]}
    return len(orders) == 2 and None not in orders


def _order(sizes: Sequence[int], strides: Any) -> tuple[int, ...] | None:
    """Return the dimensions from the slowest to the fastest.

    None if a stride is 0, which repeats values, or unknown. Dimensions of size 1 have no place."""
    if not _sizes(strides) or len(strides) != len(sizes):
        return None
    if any(stride == 0 and size > 1 for size, stride in zip(sizes, strides, strict=True)):
        return None
    long = [dim for dim, size in enumerate(sizes) if size > 1]
    return tuple(sorted(long, key=lambda dim: (-strides[dim], dim)))


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= MOST_SIZES and all(type(size) is int and size >= 0 for size in value)


def conversions(
    groups: Iterable[KernelGroup], names: Mapping[int | None, str], copies: Mapping[tuple[str, int | None], bool]
) -> list[tuple[KernelGroup, str]]:
    """Return the kernels that change a layout, with their kinds.

    ``names``: full names by id."""
    return [(group, kind) for group in groups if (kind := conversion(group, names.get(group.kernel, ""), copies))]
