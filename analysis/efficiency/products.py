"""Sizes of matrix products and convolutions, and what makes them slow.

Inputs of a call and its kernel -> the product or convolution, and reasons that the sizes show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..toolkit.wording import whole_percent
from .signatures import TYPES

# Operator -> position of the first factor among the inputs.
_FACTORS: Final = {
    "aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1, "aten::_addmm_activation": 1, "aten::linear": 0,
    "aten::_scaled_mm": 0,
}  # fmt: skip
# Operator -> position of the input among the inputs; the weight follows it.
_CONVOLUTIONS: Final = {
    "aten::convolution": 0, "aten::cudnn_convolution": 0, "aten::miopen_convolution": 0, "aten::convolution_backward": 1,
}  # fmt: skip
_IMAGE_CHANNELS: Final = 4  # of an image or a latent: the data decides them, and libraries have kernels for them
_LARGEST: Final = 1 << 31  # of a size
_ALIGNED_BYTES: Final = 16  # one load of a thread: cuBLAS and CUTLASS need it to use their fastest kernels on tensor cores
_SKINNY: Final = 32  # rows or columns, below which a tile of a matrix kernel is mostly empty
_FULL: Final = 0.6  # share of the tiles' area, or of the multiprocessors in all waves, below which they are the reason
_UNALIGNED: Final = re.compile(r"align[12](?!\d)")
_NO_TENSOR_CORES: Final = re.compile(r"[sdh]gemm(?!.*(?:tensorop|s1688|s16816|tf32))|simt|gemv|gemmk1|gemm_kernel2?x?n?<", re.IGNORECASE)
_TILE: Final = re.compile(r"(?:tilesize|_)(\d{2,3})x(\d{2,3})(?=[x_])")
_LOW: Final = frozenset({"fp16", "bf16", "fp8"})


@dataclass(frozen=True, slots=True)
class Product:
    """``batch`` products of m x k by k x n. ``bytes``: of an element. ``leads``: elements from a row of a factor to the next (column, if
    that is contiguous), with the name of the size; None: neither dimension of a factor is contiguous."""

    batch: int
    m: int
    n: int
    k: int
    type: str
    bytes: int
    leads: tuple[tuple[str, int] | None, ...]

    @property
    def sizes(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}M {self.m}, N {self.n}, K {self.k}"


def product_of(operator: str, dims: Sequence[Any], types: Sequence[Any], strides: Sequence[Any]) -> Product | None:
    """Return the product of a call; None if it is none or its inputs are damaged."""
    at = _FACTORS.get(operator)
    if at is None or min(len(dims), len(types)) < at + 2:
        return None
    first, second = dims[at : at + 2]
    element = TYPES.get(types[at]) if isinstance(types[at], str) else None
    if element is None or types[at] != types[at + 1] or not (_sizes(first) and _sizes(second)):
        return None
    weight = operator == "aten::linear"
    if (len(second) != 2) if weight else len(first) != len(second) or len(first) not in (2, 3):
        return None
    k, n = (second[1], second[0]) if weight else (second[-2], second[-1])
    m, batch = (math.prod(first[:-1]), 1) if weight else (first[-2], first[0] if len(first) == 3 else 1)
    if first[-1] != k or not (0 < m < _LARGEST):
        return None
    names = ("M", "K"), (("N", "K") if weight else ("K", "N"))
    of_factors = [strides[at + number] if at + number < len(strides) else None for number in (0, 1)]
    leads = tuple(_lead(sizes, of, name) for sizes, of, name in zip((first, second), of_factors, names, strict=True))
    return Product(batch, m, n, k, element.name, element.bytes, (*leads, ("N", n)))


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution without groups. ``sizes``: of input and weight, as text; ``inputs``, ``outputs``: channels."""

    sizes: str
    type: str
    bytes: int
    inputs: int
    outputs: int


def convolution_of(operator: str, dims: Sequence[Any], types: Sequence[Any]) -> Convolution | None:
    """Return the convolution of a call.

    None if it is none, has groups, or its inputs are damaged."""
    at = _CONVOLUTIONS.get(operator)
    if at is None or min(len(dims), len(types)) < at + 2:
        return None
    data, weight = dims[at : at + 2]
    element = TYPES.get(types[at]) if isinstance(types[at], str) else None
    if element is None or types[at] != types[at + 1] or not (_sizes(data) and _sizes(weight)):
        return None
    if len(data) != len(weight) or len(data) < 3 or data[1] != weight[1]:
        return None
    sizes = f"input {'x'.join(map(str, data))}, weight {'x'.join(map(str, weight))}"
    return Convolution(sizes, element.name, element.bytes, data[1], weight[0])


def channel_reasons(convolution: Convolution, kernel: str | None) -> tuple[str, ...]:
    """Return the reason for a slow convolution that its channels show.

    Kernels on tensor cores load 16 bytes of channels at once."""
    multiple = _ALIGNED_BYTES // convolution.bytes
    if convolution.type not in _LOW and not (convolution.type == "fp32" and _UNALIGNED.search(kernel or "")):
        return ()
    channels = {"C_in": convolution.inputs, "C_out": convolution.outputs}
    odd = [f"{name} = {size}" for name, size in channels.items() if size % multiple and size > _IMAGE_CHANNELS]
    return (f"channels: {' and '.join(odd)} {'is' if len(odd) == 1 else 'are'} not a multiple of {multiple}",) if odd else ()


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and len(value) >= 2 and all(type(size) is int and 0 < size < _LARGEST for size in value)


def _lead(sizes: Sequence[int], strides: Any, names: tuple[str, str]) -> tuple[str, int] | None:
    """Return the name and length of the contiguous dimension.

    These are the rows if the strides are unknown."""
    if not isinstance(strides, list) or len(strides) != len(sizes) or not all(type(stride) is int and stride >= 0 for stride in strides):
        return names[1], sizes[-1]
    if strides[-1] == 1 or sizes[-1] == 1:
        return names[1], max(strides[-2], sizes[-1]) if sizes[-2] > 1 else sizes[-1]
    if strides[-2] == 1 or sizes[-2] == 1:
        return names[0], max(strides[-1], sizes[-2])
    return None


def reasons(product: Product, kernel: str | None, multiprocessors: int | None) -> tuple[str, ...]:
    """Return the reasons for a slow product that its sizes and its kernel show.

    The strongest reason is the first."""
    kernel = kernel or ""
    causes = []
    multiple = _ALIGNED_BYTES // product.bytes
    odd = {lead for lead in product.leads if lead and lead[1] % multiple}
    on_tensor_cores = product.type in _LOW or (product.type == "fp32" and _UNALIGNED.search(kernel))
    if None in product.leads:
        causes.append("layout: neither dimension of a factor is contiguous")
    if odd and multiple > 1 and on_tensor_cores:
        sizes = " and ".join(f"{name} = {size}" for name, size in sorted(odd))
        causes.append(f"alignment: {sizes} {'is' if len(odd) == 1 else 'are'} not a multiple of {multiple}")
    if product.type in _LOW and min(product.m, product.n) >= _SKINNY and _NO_TENSOR_CORES.search(kernel):
        causes.append("no tensor cores: the kernel does not use them")
    if min(product.m, product.n) < _SKINNY:
        name, size = min(("M", product.m), ("N", product.n), key=lambda item: item[1])
        causes.append(f"skinny: {name} = {size}")
    elif tile := _TILE.search(kernel):
        causes += _of_tiles(product, int(tile[1]), int(tile[2]), multiprocessors)
    return tuple(causes)


def _of_tiles(product: Product, rows: int, columns: int, multiprocessors: int | None) -> list[str]:
    """Return the reasons in the tiles of the kernel.

    The kernel may compute the transposed product."""
    filled, tiles = max(_filled(product.m, product.n, rows, columns), _filled(product.n, product.m, rows, columns))
    if filled < _FULL:
        return [f"tile quantization: {whole_percent(100 * filled)} of the {rows}x{columns} tiles are in use"]
    tiles *= product.batch
    if not multiprocessors:
        return []
    waves = math.ceil(tiles / multiprocessors)
    busy = tiles / (waves * multiprocessors)
    if busy >= _FULL:
        return []
    if waves == 1:
        return [f"few tiles: {tiles} of {rows}x{columns} for {multiprocessors} multiprocessors"]
    return [f"wave tail: {tiles} tiles of {rows}x{columns} need {waves} waves on {multiprocessors} multiprocessors"]


def _filled(m: int, n: int, rows: int, columns: int) -> tuple[float, int]:
    """Return the share of the tiles' area that the result fills, and their number."""
    tiles = math.ceil(m / rows) * math.ceil(n / columns)
    return m * n / (tiles * rows * columns), tiles
