"""Work of operators against results worked out on paper, and on inputs that no operator has."""

from __future__ import annotations

import json
from time import process_time
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.analysis.efficiency.formulas.kept_pairs import kept_pairs
from postrun.analysis.efficiency.signatures import TYPES, Signature, parse
from postrun.analysis.efficiency.work import _FORMULAS, OWNERS, CallWork, work_of

BF16, FP32, FP8, FP4, INT8, INT64 = "c10::BFloat16", "float", "c10::Float8_e4m3fn", "c10::Float4_e2m1fn_x2", "signed char", "long int"
NONE: Final = ([], "", "")
Argument = tuple[list[Any], str, str]


def T(kind: str, *dims: int) -> Argument:  # noqa: N802 - a tensor
    return list(dims), kind, ""


def V(value: object) -> Argument:  # noqa: N802 - a value
    return [], "ScalarList" if isinstance(value, list) else "Scalar", str(value)


def call(operator: str, *arguments: Argument, strides: list[Any] | None = None) -> CallWork:
    dims, types, values = zip(*arguments, strict=True)
    return work_of(Signature(operator, dims, types, strides or (), values))


# Operator, arguments; FLOPs, model FLOPs, bytes, type. The arithmetic is that of the definitions in docs/definitions.md.
PRODUCTS: Final = {
    "mm": (("aten::mm", T(BF16, 8, 16), T(BF16, 16, 4)), 1024, 1024, 2 * (128 + 64 + 32), "bf16"),
    "mm into fp32": (("aten::mm", T(BF16, 8, 16), T(BF16, 16, 4), V(6)), 1024, 1024, 2 * (128 + 64) + 4 * 32, "bf16"),
    "mm with output": (("aten::mm", T(FP32, 8, 16), T(FP32, 16, 4), T(FP32, 8, 4)), 1024, 1024, 4 * (128 + 64 + 32), "fp32"),
    "mm of nothing": (("aten::mm", T(BF16, 8, 0), T(BF16, 0, 4)), 0, 0, 64, "bf16"),
    "addmm": (("aten::addmm", T(BF16, 4), T(BF16, 8, 16), T(BF16, 16, 4), V(1), V(1)), 1024, 1024, 2 * (4 + 128 + 64 + 32), "bf16"),
    "addmm, beta 0": (("aten::addmm", T(BF16, 4), T(BF16, 8, 16), T(BF16, 16, 4), V(0), V(1)), 1024, 1024, 2 * (128 + 64 + 32), "bf16"),
    "addmm into fp32": (
        ("aten::addmm", T(BF16, 4), T(BF16, 8, 16), T(BF16, 16, 4), V(6), V(1), V(1)), 1024, 1024, 2 * (4 + 128 + 64) + 4 * 32, "bf16",
    ),
    "addmm, beta 0.": (
        ("aten::addmm", T(BF16, 4), T(BF16, 8, 16), T(BF16, 16, 4), V(0.0), V(1)), 1024, 1024, 2 * (128 + 64 + 32), "bf16",
    ),
    "addmm with an activation": (
        ("aten::_addmm_activation", T(BF16, 4), T(BF16, 8, 16), T(BF16, 16, 4), V(1), V(1), V(True)), 1024, 1024, 2 * (4 + 128 + 64 + 32),
        "bf16",
    ),
    "bmm": (("aten::bmm", T(FP32, 3, 8, 16), T(FP32, 3, 16, 4)), 3072, 3072, 4 * 3 * (128 + 64 + 32), "fp32"),
    "addbmm": (
        ("aten::addbmm", T(FP32, 8, 4), T(FP32, 3, 8, 16), T(FP32, 3, 16, 4), V(1), V(1)), 3072, 3072, 4 * (32 + 384 + 192 + 32), "fp32",
    ),
    "mv": (("aten::mv", T("double", 8, 16), T("double", 16)), 256, 256, 8 * (128 + 16 + 8), "fp64"),
    "dot": (("aten::dot", T("c10::Half", 16), T("c10::Half", 16)), 32, 32, 2 * 33, "fp16"),
    "FP8": (
        ("aten::_scaled_mm", T(FP8, 32, 64), T(FP8, 64, 48), T(FP32), T(FP32), NONE, NONE, V(15), V(True)),
        196608, 196608, 2048 + 3072 + 4 + 4 + 2 * 1536, "fp8",
    ),
    "FP4, two values in a byte": (
        ("aten::_scaled_mm", T(FP4, 32, 32), T(FP4, 32, 48), T("c10::Float8_e4m3fn", 32, 4), T("c10::Float8_e4m3fn", 48, 4), NONE, NONE,
         V(15), V(False)),
        196608, 196608, 1024 + 1536 + 128 + 192 + 3072, "fp4",
    ),
    "FP8 with lists of scales": (
        ("aten::_scaled_mm_v2", T(FP8, 32, 64), T(FP8, 64, 48), ([[1]], "TensorList", "")), 196608, 196608, None, "fp8",
    ),
    "int8": (("aten::_int_mm", T(INT8, 32, 64), T(INT8, 64, 48)), 196608, 196608, 2048 + 3072 + 4 * 1536, "int8"),
    "weights of 4 bits": (
        ("aten::_weight_int4pack_mm", T(BF16, 32, 64), T("int", 6, 1, 32, 2), V(32), T(BF16, 2, 48, 2)),
        196608, 196608, 4096 + 4 * 384 + 2 * 192 + 2 * 1536, "bf16",
    ),
    "weights of 4 bits on the CPU": (
        ("aten::_weight_int4pack_mm_for_cpu", T(BF16, 4, 64), T("unsigned char", 32, 32), V(32), T(BF16, 2, 32, 2)),
        16384, 16384, 512 + 1024 + 256 + 256, "bf16",
    ),
    # 5 rows of 16 by a weight of 8 x 16; with a bias, and with a tensor that is added.
    "linear of oneDNN": (
        ("mkldnn::_linear_pointwise", T(FP32, 5, 16), T(FP32, 8, 16), T(FP32, 8), NONE, V([]), NONE), 1280, 1280, 4 * (80 + 128 + 8 + 40),
        "fp32",
    ),
    "linear of oneDNN with another tensor": (
        ("mkldnn::_linear_pointwise", T(FP32, 5, 16), T(FP32, 5, 16), T(FP32, 16, 16), NONE, NONE), 2560, 2560, 4 * (80 + 80 + 256 + 80),
        "fp32",
    ),
    "linear of MKL": (
        ("mkl::_mkl_linear", T(FP32, 5, 16), T(FP32, 9999, 1), T(FP32, 8, 16), T(FP32, 8), V(5)), 1280, 1280, 4 * (80 + 128 + 8 + 40),
        "fp32",
    ),
    "groups of tokens": (
        ("aten::_grouped_mm", T(BF16, 100, 64), T(BF16, 4, 64, 48), T("int", 4), NONE, NONE), 614400, 614400,
        2 * (6400 + 12288 + 4800) + 16, "bf16",
    ),
    "groups of the inner dimension": (
        ("aten::_grouped_mm", T(BF16, 64, 100), T(BF16, 100, 48), T("int", 4), NONE, NONE), 614400, 614400,
        2 * (6400 + 4800 + 4 * 64 * 48) + 16, "bf16",
    ),
    "cutlass, FP8": (
        ("_C::cutlass_scaled_mm", T(BF16, 32, 48), T(FP8, 32, 64), T(FP8, 64, 48), T(FP32, 32, 1), T(FP32, 1, 48), NONE),
        196608, 196608, 2048 + 3072 + 128 + 192 + 3072, "fp8",
    ),
    "cutlass, FP4": (
        ("_C::cutlass_scaled_fp4_mm", T(BF16, 32, 48), T("unsigned char", 32, 32), T("unsigned char", 48, 32), T(FP8, 128, 4),
         T(FP8, 128, 4), T(FP32)),
        196608, 196608, 1024 + 1536 + 512 + 512 + 4 + 3072, "fp4",
    ),
    # 10 tokens, 2 of 8 experts each, hidden 16, inner 24 with a gate: 20 x (16 x 48 + 24 x 16) multiply-adds.
    "experts": (
        ("vllm::inplace_fused_experts", T(BF16, 10, 16), T(FP8, 8, 48, 16), T(FP8, 8, 16, 24), T(FP32, 10, 2), T("int", 10, 2)),
        46080, 46080, None, "fp8",
    ),
    # 5 steps of 3, 4 gates of 10 from 6 and from 10: 15 x (40 x 6 + 40 x 10) multiply-adds; the backward twice.
    "recurrent layer of oneDNN": (
        ("aten::mkldnn_rnn_layer", T(FP32, 5, 3, 6), T(FP32, 40, 6), T(FP32, 40, 10), T(FP32, 40), T(FP32, 40)), 19200, 19200, None, "fp32",
    ),
    "its backward": (
        ("aten::mkldnn_rnn_layer_backward", T(FP32, 5, 3, 6), T(FP32, 40, 6), T(FP32, 40, 10), T(FP32, 40), T(FP32, 40)), 38400, 38400,
        None, "fp32",
    ),
    # 5 steps of 3, two layers of 10 from 6: 4 gates, weights 40 x 6, 40 x 10, 40 x 10, 40 x 10; biases do not count.
    "recurrent layer": (
        ("aten::_cudnn_rnn", T(FP32, 5, 3, 6), ([[40, 6], [40, 10], [40], [40], [40, 10], [40, 10], [40], [40]], "TensorList", ""), V(4)),
        2 * 15 * (240 + 1200), 43200, None, "fp32",
    ),
}  # fmt: skip

GENERAL: Final = (V([2, 1]), V([1, 0]), V([1, 2]), V(False), V([0, 0]), V(1))
BACKWARD: Final = (V([1]), V([0]), V([1]), V(False), V([0]))
CONVOLUTIONS: Final = {
    # (9 + 2 - 3) // 2 + 1 = 5 by (9 - 2 x 2 - 1) + 1 = 5: 2 images, 6 channels out, 4 in, 3 x 3.
    "2d": (
        ("aten::convolution", T(BF16, 2, 4, 9, 9), T(BF16, 6, 4, 3, 3), T(BF16, 6), *GENERAL),
        21600, 21600, 2 * (648 + 216 + 6 + 300), "bf16",
    ),
    "cudnn": (
        ("aten::cudnn_convolution", T(BF16, 2, 4, 9, 9), T(BF16, 6, 4, 3, 3), V([1, 0]), V([2, 1]), V([1, 2]), V(1), V(False), V(False),
         V(True)),
        21600, 21600, 2 * (648 + 216 + 300), "bf16",
    ),
    # Depthwise, 1-D: 8 channels x 2 x 10 outputs x 3.
    "depthwise": (
        ("aten::convolution", T(FP32, 2, 8, 12), T(FP32, 8, 1, 3), NONE, V([1]), V([0]), V([1]), V(False), V([0]), V(8)), 960, 960,
        4 * (192 + 24 + 160), "fp32",
    ),
    # Transposed: 2 x 7 inputs x (6 x 4 x 3); outputs (7 - 1) x 2 + 3 = 15.
    "transposed": (
        ("aten::convolution", T(FP32, 2, 6, 7), T(FP32, 6, 4, 3), NONE, V([2]), V([0]), V([1]), V(True), V([0]), V(1)), 2016, 2016,
        4 * (84 + 72 + 120), "fp32",
    ),
    # Depthwise backward: PyTorch takes 8 channels for the gradient of each of the 8 x 3 weights, one is needed.
    "depthwise backward": (
        ("aten::convolution_backward", T(FP32, 2, 8, 10), T(FP32, 2, 8, 12), T(FP32, 8, 1, 3), V([0]), *BACKWARD, V(8),
         V([True, True, False])),
        960 + 7680, 1920, 4 * (160 + 24 + 192 + 192 + 24), "fp32",
    ),
    "of oneDNN, transposed": (
        ("mkldnn::_convolution_transpose_pointwise", T(FP32, 2, 6, 7), T(FP32, 6, 4, 3), NONE, V([0]), V([0]), V([2]), V([1]), V(1), NONE,
         V([]), NONE),
        2016, 2016, 4 * (84 + 72 + 120), "fp32",
    ),
    "gradient of the bias": (
        ("aten::convolution_backward", T(FP32, 2, 4, 10), T(FP32, 2, 8, 12), T(FP32, 4, 8, 3), V([4]), *BACKWARD, V(1), V([0, 0, 1])), 0, 0,
        4 * (80 + 4), "fp32",
    ),
    "old trace without values": (
        ("aten::cudnn_convolution", T(FP32, 32, 256, 14, 14), T(FP32, 1024, 256, 1, 1), ([], "GenericList", "")), None, None, None, "fp32",
    ),
}  # fmt: skip

QKV: Final = (T(BF16, 2, 8, 6, 4), T(BF16, 2, 2, 10, 4), T(BF16, 2, 2, 10, 3))  # grouped queries, keys and values of different widths
FLASH: Final = (T(BF16, 2, 6, 8, 4), T(BF16, 2, 10, 8, 4), T(BF16, 2, 10, 8, 4))  # heads last
PACKED: Final = (T(BF16, 24, 8, 4), T(BF16, 24, 2, 4), T(BF16, 24, 2, 4))
FULL: Final = 2 * 2 * 8 * 60 * 7  # B H S_q S_k (D_qk + D_v)
FLASH_FULL: Final = 2 * 2 * 8 * 60 * 8
QKV_BYTES: Final = 2 * (384 + 160 + 120 + 288)
FLASH_BYTES: Final = 2 * (384 + 640 + 640 + 384)
ATTENTION: Final = {
    "in full": (("aten::_scaled_dot_product_flash_attention", *QKV, V("0."), V(False), V(False), V(0.5)), FULL, FULL, QKV_BYTES, "bf16"),
    # Top left: 1 + 2 + ... + 6 = 21 of 60 pairs.
    "causal": (
        ("aten::_scaled_dot_product_flash_attention", *QKV, V("0."), V(True), V(False), V(0.5)),
        FULL, 2 * 2 * 8 * 21 * 7, QKV_BYTES, "bf16",
    ),
    "with a mask": (
        ("aten::_scaled_dot_product_efficient_attention", *QKV, T(BF16, 2, 8, 6, 10), V(True), V(0.0), V(False), NONE), FULL, FULL,
        QKV_BYTES + 2 * 960, "bf16",
    ),
    "unknown flag": (("aten::_scaled_dot_product_flash_attention", *QKV, NONE, NONE), FULL, None, QKV_BYTES, "bf16"),
    # Five products: three with keys' width, two with values'; without the scores again twice the forward.
    "backward": (
        ("aten::_scaled_dot_product_flash_attention_backward", T(BF16, 2, 8, 6, 3), *QKV, T(BF16, 2, 8, 6, 3), T(FP32, 2, 8, 6), NONE, NONE,
         V(6), V(10), V(0.0), V(False)),
        2 * 2 * 8 * 60 * (3 * 4 + 2 * 3), 2 * FULL, 2 * (384 + 160 + 120 + 288 + 288 + 384 + 160 + 120), "bf16",
    ),
    # Bottom right: rows see 5, 6, ..., 10 keys: 45.
    "flash-attn": (
        ("flash_attn::_flash_attn_forward", *FLASH, V(0.0), V(0.5), V(True), V(-1), V(-1)),
        FLASH_FULL, 2 * 2 * 8 * 45 * 8, FLASH_BYTES, "bf16",
    ),
    # A window of 2 before: 3 keys each.
    "tensors that do not fit": (
        ("flash_attn::_flash_attn_forward", FLASH[0], FLASH[1], T(BF16, 2, 9, 8, 4), V(0.0), V(0.5), V(True), V(-1), V(-1)),
        None, None, None, "bf16",
    ),
    "sliding window": (
        ("flash_attn::_flash_attn_forward", *FLASH, V(0.0), V(0.5), V(True), V(2), V(-1)),
        FLASH_FULL, 2 * 2 * 8 * 18 * 8, FLASH_BYTES, "bf16",
    ),
    "autograd function of flash-attn": (("FlashAttnFunc", *FLASH, V(0.0), NONE, V(False)), FLASH_FULL, FLASH_FULL, FLASH_BYTES, "bf16"),
    # 3 sequences of 8, all as long as the longest: 3 x 64 pairs, 3 x 36 of them kept.
    "packed, equal lengths": (
        ("flash_attn::_flash_attn_varlen_forward", *PACKED, T("int", 4), T("int", 4), V(8), V(8), V(0.0), V(0.5), V(True), V(-1), V(-1)),
        2 * 3 * 8 * 64 * 8, 2 * 3 * 8 * 36 * 8, 2 * (768 + 192 + 192 + 768), "bf16",
    ),
    "packed, lengths unknown": (
        ("flash_attn::_flash_attn_varlen_forward", *PACKED, T("int", 4), T("int", 4), V(12), V(12), V(0.0), V(0.5), V(True), V(-1), V(-1)),
        None, None, 2 * (768 + 192 + 192 + 768), "bf16",
    ),
    # 2.5 times and twice the forward.
    "backward of flash-attn 3": (
        ("flash_attn_3::bwd", T(BF16, 2, 6, 8, 4), *FLASH, T(BF16, 2, 6, 8, 4), T(FP32, 2, 8, 6), *[NONE] * 9, V(0.5), V(True), V(-1),
         V(-1)),
        5 * FLASH_FULL // 2, 2 * 2 * 2 * 8 * 45 * 8, 2 * FLASH_BYTES, "bf16",
    ),
    "backward of AITER": (
        ("aiter::mha_bwd", T(BF16, 2, 6, 8, 4), *FLASH, T(BF16, 2, 6, 8, 4), T(FP32, 2, 8, 6), V(0.0), V(0.5), V(True), V(-1), V(-1)),
        5 * FLASH_FULL // 2, 2 * 2 * 2 * 8 * 45 * 8, 2 * FLASH_BYTES, "bf16",
    ),
    "paged": (
        ("_vllm_fa2_C::varlen_fwd", *PACKED, NONE, T("int", 4), T("int", 4), T("int", 3), NONE, T("int", 3, 9), NONE, V(8), V(8)),
        None, None, None, "bf16",
    ),
    "of a server": (("vllm::unified_attention_with_output", *PACKED), None, None, None, "bf16"),
}  # fmt: skip

MASK: Final = V([True, True, True])
MEMORY: Final = {
    "add": (("aten::add", T(BF16, 4, 5), T(FP32, 5), V(1)), 40 + 20 + 80, "bf16"),
    "add a number": (("aten::add", T(BF16, 4, 5), V("1."), V(1)), 80, "bf16"),
    "add in place": (("aten::add_", T(BF16, 4, 5), T(BF16, 4, 5), V(1)), 120, "bf16"),
    "backward of elu": (
        ("aten::elu_backward", T(BF16, 4, 5), V(1), V(1), V(1), V(False), T(BF16, 4, 5)), 120, "bf16",
    ),
    "compare": (("aten::gt", T(FP32, 4, 5), V(0)), 100, "fp32"),
    "root of integers": (("aten::sqrt", T(INT64, 20)), 240, None),
    "integers and a number of Python": (("aten::mul", T(INT64, 20), T("double")), None, None),
    "relu into an output": (("aten::relu", T(BF16, 20), T(BF16, 20)), 80, "bf16"),
    "where": (("aten::where", T("bool", 4, 5), T(BF16, 4, 5), T(BF16)), 20 + 40 + 2 + 40, None),
    "copy": (("aten::copy_", T(BF16, 4, 5), T(FP32, 4, 5), V(False)), 120, "bf16"),
    "fill": (("aten::fill_", T(FP32, 4, 5), V(0)), 80, "fp32"),
    "view": (("aten::view", T(FP32, 4, 5), V([20])), 0, "fp32"),
    "dropout": (("aten::native_dropout", T(BF16, 4, 5), V(0.1), V(True)), 100, "bf16"),
    "softmax": (("aten::_softmax", T(BF16, 4, 5), V(-1), V(True)), 40 + 80, "bf16"),
    "softmax backward": (("aten::_softmax_backward_data", T(BF16, 4, 5), T(BF16, 4, 5), V(-1), V(15)), 120, "bf16"),
    "layer norm": (("aten::native_layer_norm", T(BF16, 4, 5), V([5]), T(BF16, 5), T(BF16, 5), V(1e-5)), 100, "bf16"),
    "layer norm backward": (
        ("aten::native_layer_norm_backward", T(BF16, 4, 5), T(BF16, 4, 5), V([5]), T(FP32, 4, 1), T(FP32, 4, 1), T(BF16, 5), T(BF16, 5),
         MASK),
        40 + 40 + 10 + 40 + 10 + 10, "bf16",
    ),
    "RMS norm": (("aten::_fused_rms_norm", T(BF16, 4, 5), V([5]), T(BF16, 5), NONE), 90, "bf16"),
    "batch norm": (
        ("aten::cudnn_batch_norm", T(FP32, 2, 3, 4), T(FP32, 3), T(FP32, 3), T(FP32, 3), T(FP32, 3), V(True)), 96 + 48 + 24 + 96, "fp32",
    ),
    "mean of rows": (("aten::mean", T(FP32, 4, 5), V([-1]), V(True), NONE), 96, "fp32"),
    "sum of all": (("aten::sum", T(FP32, 4, 5), NONE), 84, "fp32"),
    "sum of integers": (("aten::sum", T("bool", 4, 5), V([0]), V(False), NONE), 20 + 40, None),
    "argmax": (("aten::argmax", T(FP32, 4, 5), V(1), V(False)), 80 + 32, "fp32"),
    "largest of rows": (("aten::max", T(FP32, 4, 5), V(1), V(False)), 80 + 16 + 32, "fp32"),
    "embedding": (("aten::embedding", T(BF16, 100, 8), T(INT64, 2, 3)), 48 + 96 + 96, "bf16"),
    "embedding of more tokens than rows": (("aten::embedding", T(BF16, 4, 8), T(INT64, 2, 3)), 48 + 64 + 96, "bf16"),
    "embedding backward": (
        ("aten::embedding_dense_backward", T(BF16, 2, 3, 8), T(INT64, 2, 3), V(100), V(-1), V(False)), 96 + 48 + 1600, "bf16",
    ),
    "index select": (("aten::index_select", T(FP32, 10, 4), V(0), T(INT64, 3)), 24 + 48 + 48, "fp32"),
    "loss": (("aten::nll_loss_forward", T(FP32, 6, 50), T(INT64, 6), NONE, V(1), V(-100)), 48 + 24 + 4, "fp32"),
    "loss backward": (
        ("aten::nll_loss_backward", T(FP32), T(FP32, 6, 50), T(INT64, 6), NONE, V(1), V(-100), T(FP32)), 4 + 48 + 1200, "fp32",
    ),
    # (9 + 2 - 3) // 2 + 1 = 5.
    "pooling": (
        ("aten::max_pool2d_with_indices", T(FP32, 2, 3, 9, 9), V([3, 3]), V([2, 2]), V([1, 1]), V([1, 1]), V(False)),
        1944 + 600 + 1200, "fp32",
    ),
    "gate": (("_C::silu_and_mul", T(BF16, 4, 5), T(BF16, 4, 10)), 120, "bf16"),
    "concatenation: no types": (("aten::cat", ([[4, 5], [4, 5]], "TensorList", ""), V(0)), None, None),
    "optimizer: no types": (("aten::_fused_adam_", *[([[4, 5]], "TensorList", "")] * 6), None, None),
    "unknown operator": (("mine::fused", T(BF16, 4, 5)), None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", [*PRODUCTS, *CONVOLUTIONS, *ATTENTION])
def test_matrix_work_on_paper(name: str) -> None:
    (operator, *arguments), flop, model_flop, moved, kind = (PRODUCTS | CONVOLUTIONS | ATTENTION)[name]
    work = call(operator, *arguments)
    assert (work.flop, work.model_flop, work.bytes, work.compute_type, work.matrix) == (flop, model_flop, moved, kind, True)


@pytest.mark.parametrize("name", MEMORY)
def test_bytes_on_paper(name: str) -> None:
    (operator, *arguments), moved, kind = MEMORY[name]
    assert call(operator, *arguments) == CallWork(bytes=moved, compute_type=kind)


def test_what_a_stride_of_zero_repeats_is_read_once() -> None:
    work = call("aten::add", T(FP32, 4, 5), T(FP32, 4, 5), V(1), strides=[[5, 1], [0, 1], []])
    assert work.bytes == 80 + 20 + 80


def test_work_on_sparse_tensors_is_unknown() -> None:
    """The profiler writes no strides of them, and no number of elements."""
    work = call("aten::mm", T(FP32, 5, 6), T(FP32, 6, 7), strides=[[], [7, 1]])
    assert (work.flop, work.bytes) == (None, None)


def test_bounds_of_packed_sequences() -> None:
    """Of 24 tokens in 3 sequences of at most 12, 8, 8, 8 have the fewest pairs.

    12 and 12 have the largest number."""
    (operator, *arguments), *_ = ATTENTION["packed, lengths unknown"]
    assert call(operator, *arguments).flop_bounds == (2 * 8 * 192 * 8, 2 * 8 * 288 * 8)
    (operator, *arguments), *_ = ATTENTION["packed, equal lengths"]
    assert call(operator, *arguments).flop_bounds is None
    # The same with a batch of 1 before the tokens.
    query, key, value = (T(BF16, 1, *dims) for dims, _, _ in PACKED)
    efficient = ("aten::_efficient_attention_forward", query, key, value, NONE, T("int", 4), T("int", 4), V(12), V(12), V(0.0), V(1))
    assert call(*efficient).flop_bounds == (2 * 8 * 192 * 8, 2 * 8 * 288 * 8)


@given(st.integers(0, 9), st.integers(0, 9), st.none() | st.integers(0, 9), st.none() | st.integers(0, 9), st.integers(-9, 9))
def test_kept_pairs_equal_those_counted(queries: int, keys: int, left: int | None, right: int | None, offset: int) -> None:
    counted = sum(
        (left is None or j >= i + offset - left) and (right is None or j <= i + offset + right) for i in range(queries) for j in range(keys)
    )
    assert kept_pairs(queries, keys, left, right, offset) == counted


def test_owners_are_matrix_operators() -> None:
    assert {"aten::mm", "aten::convolution_backward", "aten::_scaled_dot_product_flash_attention", "aten::_grouped_mm"} <= OWNERS
    assert not {"aten::linear", "aten::matmul", "aten::add", "aten::copy_", "aten::scaled_dot_product_attention"} & OWNERS
    assert all(_FORMULAS[operator].matrix for operator in OWNERS)


SIZE: Final = st.integers(-3, 40) | st.sampled_from([2**31, 2**40, 2**63, 10**30, True, None, 1.5, "8", [2]])
DIMS: Final = st.lists(SIZE, max_size=5) | st.sampled_from([None, 7, "x", {}, [[1, 2], [3]], [2**49], [1] * 1000])
KIND: Final = st.sampled_from([*TYPES, "", "Scalar", "ScalarList", "TensorList", "GenericList", "x"]) | st.none() | st.integers()
TEXT: Final = st.sampled_from(
    ["", "True", "False", "0", "1", "-1", "6", "15", "1.5", "[1, 1]", "[0]", "[-9, 10]", "[", "9" * 99, str(2**49)]
) | st.text(max_size=4)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(_FORMULAS)),
    st.lists(st.tuples(DIMS, KIND, DIMS, TEXT | st.none() | st.integers()), max_size=20),
)
def test_no_inputs_break_a_formula(operator: str, arguments: list[tuple[Any, Any, Any, Any]]) -> None:
    columns = [json.dumps([argument[n] for argument in arguments]) for n in range(4)]
    signature = parse(operator, *columns)
    assert signature is not None
    work = work_of(signature)
    for figure in (work.flop, work.model_flop, work.bytes, *(work.flop_bounds or ())):
        assert figure is None or (type(figure) is int and 0 <= figure < 2**63)


@pytest.mark.parametrize("operator", ["aten::mm", "aten::_cudnn_rnn", "aten::add", "aten::convolution"])
def test_a_hundred_thousand_inputs_take_no_time(operator: str) -> None:
    count = 100_000
    texts = ("[" + ",".join(text for _ in range(count)) + "]" for text in ("1", '""'))
    began = process_time()
    assert parse(operator, *texts) is None or work_of(Signature(operator, [[1] * count] * 4, [FP32] * 4)).flop is None
    signature = Signature(operator, [[2, 3, 4], [[2, 3]] * count], [FP32, "TensorList"])
    assert work_of(signature).bytes is None
    assert process_time() - began < 2


def test_figures_above_the_range_of_the_tables_are_unknown() -> None:
    work = call("aten::mm", T(BF16, 2**40, 2), T(BF16, 2, 2**40))
    assert (work.flop, work.model_flop, work.bytes, work.matrix) == (None, None, None, True)
