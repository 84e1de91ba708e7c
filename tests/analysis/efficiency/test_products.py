"""Sizes of matrix products and the reasons that they show, on paper."""

from __future__ import annotations

from typing import Any

import pytest
from postrun.analysis.efficiency.products import product_of, reasons

HALF = ["c10::Half", "c10::Half"]


def why(
    dims: list[Any], strides: list[Any], kernel: str = "", *, types: list[str] = HALF, operator: str = "aten::mm", sms: int = 108
) -> list[str]:
    product = product_of(operator, dims, types, strides)
    assert product is not None
    return [reason.partition(":")[0] for reason in reasons(product, kernel, sms)]


def test_sizes_of_the_operators() -> None:
    def sizes(operator: str, dims: list[Any], types: list[str]) -> tuple[int, ...] | None:
        product = product_of(operator, dims, types, [])
        return product and (product.batch, product.m, product.n, product.k)

    assert sizes("aten::mm", [[4, 8], [8, 16]], HALF) == (1, 4, 16, 8)
    assert sizes("aten::addmm", [[16], [4, 8], [8, 16]], ["c10::Half", *HALF]) == (1, 4, 16, 8)
    assert sizes("aten::bmm", [[3, 4, 8], [3, 8, 16]], HALF) == (3, 4, 16, 8)
    assert sizes("aten::linear", [[3, 4, 8], [16, 8]], HALF) == (1, 12, 16, 8)
    assert sizes("aten::mm", [[4, 8], [9, 16]], HALF) is None
    assert sizes("aten::mm", [[4, 8], [8, 16]], ["c10::Half", "float"]) is None
    assert sizes("aten::add", [[4, 8], [8, 16]], HALF) is None


@pytest.mark.parametrize(
    "dims", [[], [[4, 8]], [[4, -8], [-8, 4]], [["x", 8], [8, 4]], [[4, True], [True, 4]], [4, 8], [[10**40, 8], [8, 4]], [[[4]], [[8]]]]
)
def test_hostile_sizes_are_no_product(dims: list[Any]) -> None:
    assert product_of("aten::mm", dims, HALF, []) is None
    assert product_of("aten::linear", dims, HALF, [[None], "x"]) is None


def test_alignment() -> None:
    """16 bytes are 8 elements of FP16, 4 of FP32.

    FP32 counts if its kernel is one of tensor cores with such loads."""
    dims = [[4096, 1111], [1111, 4096]]
    assert why(dims, [[1111, 1], [4096, 1]]) == ["alignment"]
    assert why(dims, [[1112, 1], [4096, 1]]) == []  # padded rows
    assert why([[4096, 1110], [1110, 4096]], [[1110, 1], [4096, 1]], types=["float", "float"]) == []
    tf32 = "cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align1"
    assert why(dims, [[1111, 1], [4096, 1]], tf32, types=["float", "float"]) == ["alignment"]
    transposed = [[4096, 1111], [1111, 4096]]
    assert why(transposed, [[1, 4096], [1, 1111]]) == ["alignment"]  # K of the second factor is contiguous


def test_layout_and_cores() -> None:
    assert why([[4096, 1024], [1024, 4096]], [[2048, 2], [4096, 1]]) == ["layout"]
    assert why([[4096, 1024], [1024, 4096]], [[1024, 1], [4096, 1]], "ampere_hgemm_128x64_nn") == ["no tensor cores"]
    assert why([[4096, 1024], [1024, 4096]], [[1024, 1], [4096, 1]], "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn") == []


def test_tiles() -> None:
    """With 108 multiprocessors, 128x128 tiles of 4096x4096 are 1024, or 9.5 waves.

    1536x1152: 108 tiles; one more row of tiles: 117 in 2 waves."""
    kernel = "sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize128x128x32_stage4"

    def of(m: int, n: int) -> list[str]:
        return why([[m, 1024], [1024, n]], [[1024, 1], [n, 1]], kernel)

    assert of(4096, 4096) == []
    assert of(1536, 1152) == []
    assert of(1664, 1152) == ["wave tail"]
    assert of(512, 1024) == ["few tiles"]  # 32 tiles
    assert of(136, 4096) == ["tile quantization"]  # 136 of 256 rows
    assert of(8, 4096) == ["skinny"]
    assert why([[1, 1024], [1024, 4096]], [[1024, 1], [4096, 1]], "gemv2T_kernel_val") == ["skinny"]  # a vector needs no tensor cores
