"""Category and precision of kernels by operator and input types, against tables written by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.efficiency.operator_classes import (
    CUSTOM_RULES,
    KERNEL_NAME,
    OPERATOR,
    OPERATOR_RULES,
    UNKNOWN,
    KernelClass,
    in_module,
    input_precision,
    kernel_class,
    operator_class,
)
from postrun.ingest.kernels.category import CATEGORIES, category
from postrun.ingest.kernels.precision import PRECISIONS, precision
from postrun.ingest.kernels.text import NameRule

HALF, BF16, FP8 = "c10::Half", "c10::BFloat16", "c10::Float8_e4m3fn"


def classified(operator: str | None, types: list[Any], kernel: str, dims: list[Any] | None = None, inner: str | None = None) -> KernelClass:
    return kernel_class(operator, inner or operator, types, dims or [], kernel, category(kernel), precision(kernel))


@pytest.mark.parametrize("row", OPERATOR_RULES + CUSTOM_RULES, ids=lambda row: row.value)
def test_examples_have_the_category_of_their_row(row: NameRule) -> None:
    assert row.value in CATEGORIES
    classes = {example: operator_class(example) for example in row.examples}
    assert {example: known and known.category for example, known in classes.items()} == dict.fromkeys(row.examples, row.value)


@pytest.mark.parametrize(
    "operator",
    ["CompiledFunction", "CompiledFunctionBackward", "ProfilerStep#5", "forward", "autograd::engine::evaluate_function: MulBackward0",
     "torch::autograd::AccumulateGrad", "record_param_comms", "c10d::allreduce_", "nccl:all_reduce", "All2All_Pooled_Req",
     "triton_poi_fused_add_0", "aten::_cudnn_rnn", "aten::linalg_svd", "vllm::all_reduce", "aten::conversion", "aten::", "", "::",
     "my code (attention)", "CheckpointFunctionBackward"],
)  # fmt: skip
def test_operators_without_a_category(operator: str) -> None:
    assert operator_class(operator) is None


@pytest.mark.parametrize(
    ("operator", "expected"),
    [("_C::rms_norm", "normalisation"), ("_C::rotary_embedding", "elementwise"), ("_C::silu_and_mul", "elementwise"),
     ("_C::cutlass_scaled_mm", "GEMM"), ("_C_cache_ops::reshape_and_cache_flash", "KV cache"), ("sgl_kernel::fp8_scaled_mm", "GEMM"),
     ("_C::static_scaled_fp8_quant", "memory"), ("LigerCrossEntropyFunctionBackward", "softmax"), ("RMSNormFunction", "normalisation"),
     ("xformers_flash::flash_fwd", "attention"), ("Optimizer.step#FusedAdam.step", "optimizer"), ("AddmmBackward0", None)],
)  # fmt: skip
def test_operators_of_other_libraries_follow_the_names_of_kernels(operator: str, expected: str | None) -> None:
    known = operator_class(operator)
    assert (known and known.category) == expected
    assert known is None or known.custom


# Each row: operator, input types, kernel, then category and precision with their sources, decided by hand.
CASES = [
    ("aten::cudnn_convolution", [HALF, HALF], "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n", "convolution", OPERATOR, "FP16", OPERATOR),
    ("aten::convolution_backward", ["float", "float", "float"], "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x64_nn_align4>",
     "convolution", OPERATOR, "TF32", KERNEL_NAME),
    ("aten::cudnn_convolution", ["float", "float"], "cutlass_tensorop_dgrad_optimized_64x128", "convolution", OPERATOR, "TF32", OPERATOR),
    ("aten::cudnn_convolution", ["float", "float"], "ampere_sgemm_128x64_nn", "convolution", OPERATOR, "FP32", OPERATOR),
    ("aten::cudnn_convolution", ["float", "float"], "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>",
     "memory", KERNEL_NAME, "FP32", OPERATOR),
    ("aten::mm", ["float", "float"], "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", "GEMM", OPERATOR, "TF32", KERNEL_NAME),
    ("aten::mm", ["float", "float"], "gemm_without_type", "GEMM", OPERATOR, "FP32", OPERATOR),
    ("aten::mm", ["double", "double"], "gemm_without_type", "GEMM", OPERATOR, "FP64", OPERATOR),
    ("aten::addmm", ["float", BF16, BF16, "Scalar", "Scalar"], "gemm_without_type", "GEMM", OPERATOR, "BF16", OPERATOR),
    ("aten::_scaled_mm", [FP8, FP8, "float", "float", BF16], "device_kernel", "GEMM", OPERATOR, "FP8", OPERATOR),
    ("aten::_weight_int4pack_mm", [BF16, "int", "Scalar", BF16], "tinygemm_m16n8k16", "GEMM", OPERATOR, "unknown", UNKNOWN),
    ("aten::_weight_int8pack_mm", [BF16, "signed char", BF16], "tinygemm_m16n8k16", "GEMM", OPERATOR, "mixed", OPERATOR),
    ("aten::_flash_attention_forward", [HALF, HALF, HALF, "", ""], "attn_fwd", "attention", OPERATOR, "FP16", OPERATOR),
    ("aten::_cudnn_attention_forward", [BF16, BF16, BF16], "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7",
     "attention", OPERATOR, "BF16", OPERATOR),
    # Attention in FP32 under autocast, and attention that computes in FP32 inside.
    ("aten::scaled_dot_product_attention", ["float", "float", "float"], "fmha_cutlassF_f16_aligned_64x64_rf_sm80",
     "attention", OPERATOR, "FP16", KERNEL_NAME),
    ("aten::_scaled_dot_product_attention_math", [BF16, BF16, BF16], "ampere_sgemm_128x64_tn", "attention", OPERATOR, "FP32", KERNEL_NAME),
    ("vllm::unified_attention_with_output", [BF16, BF16, BF16, BF16], "kernel_unified_attention_2d",
     "attention", OPERATOR, "BF16", OPERATOR),
    ("vllm::unified_attention_with_output", [BF16, BF16, BF16, BF16], "reduce_segments", "attention", OPERATOR, "BF16", OPERATOR),
    ("vllm::unified_attention_with_output", [BF16, BF16, BF16, BF16], "reshape_and_cache_kernel_flash",
     "KV cache", KERNEL_NAME, "BF16", OPERATOR),
    ("vllm::unified_mla_attention", [BF16, BF16, BF16], "nvjet_tst_128x96_64x7_4x1_v_bz_TNT", "GEMM", KERNEL_NAME, "BF16", OPERATOR),
    ("_moe_C::topk_softmax", ["float", "int", "int", "float"], "topkGating", "MoE routing", OPERATOR, "FP32", OPERATOR),
    ("_moe_C::moe_align_block_size", ["int", "", "", "int"], "void cub::DeviceScanKernel<int>", "MoE routing", OPERATOR, "INT32", OPERATOR),
    ("vllm::inplace_fused_experts", [BF16, BF16, BF16, "float", "int"], "fused_moe_kernel", "GEMM", KERNEL_NAME, "BF16", OPERATOR),
    ("vllm::inplace_fused_experts", [BF16, BF16, BF16, "float", "int"], "void vllm::act_and_mul_kernel<c10::BFloat16>",
     "elementwise", KERNEL_NAME, "BF16", OPERATOR),
    ("_C::cutlass_scaled_mm", [BF16, FP8, FP8, "float", "float"], "device_kernel", "GEMM", OPERATOR, "FP8", OPERATOR),
    ("aten::copy_", [BF16, "float", "Scalar"], "direct_copy_kernel", "memory", OPERATOR, "mixed", OPERATOR),
    ("aten::index_select", ["float", "Scalar", "int"], "vectorized_gather_kernel<int>", "embedding/index", OPERATOR, "FP32", OPERATOR),
    ("aten::native_layer_norm", [HALF, "", "float", "float", "Scalar"], "ln", "normalisation", OPERATOR, "FP16", OPERATOR),
    ("aten::add_", ["double", "float", "Scalar"], "add", "elementwise", OPERATOR, "unknown", UNKNOWN),
    ("aten::add_", ["float", "float"], "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "communication", KERNEL_NAME, "BF16", KERNEL_NAME),
    ("CompiledFunction", ["float"], "triton_poi_fused_add_0", "elementwise", KERNEL_NAME, "unknown", UNKNOWN),
    (None, [], "ampere_sgemm_128x64_tn", "GEMM", KERNEL_NAME, "FP32", KERNEL_NAME),
    (None, [], "xyz", "other", UNKNOWN, "unknown", UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2][:24]}")
def test_kernels_of_operators(case: tuple[str | None, list[Any], str, str, str, str, str]) -> None:
    operator, types, kernel, *expected = case
    assert classified(operator, types, kernel) == KernelClass(*expected)


def test_other_work_within_a_product_has_its_own_category() -> None:
    add, im2col = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >", "im2col_kernel"
    types = ["float", "float"]
    assert classified("aten::convolution", types, add, inner="aten::add_") == KernelClass("elementwise", OPERATOR, "FP32", OPERATOR)
    assert classified("aten::convolution", types, add, inner="aten::cudnn_convolution").category == "convolution"
    assert classified("aten::convolution", types, "ampere_sgemm_128x64_nn", inner="aten::addmm").category == "convolution"
    assert classified("aten::convolution", types, im2col, inner="aten::im2col").category == "convolution"
    assert classified("aten::convolution_backward", types, "reduce_kernel", inner="aten::sum").category == "reduction"
    math = "aten::_scaled_dot_product_attention_math"
    assert classified(math, types, "softmax_warp_forward", inner="aten::_softmax").category == "attention"
    assert classified(math, types, "ampere_sgemm_128x64_nn", inner="aten::bmm").category == "attention"


def test_communication_is_decided_by_the_kernel() -> None:
    kernel = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    assert classified("record_param_comms", [BF16], kernel) == KernelClass("communication", OPERATOR, "BF16", KERNEL_NAME)
    assert classified("record_param_comms", [BF16], "xyz").category == "other"


def test_a_scalar_can_have_the_floating_type() -> None:
    where = "void at::native::elementwise_kernel<128, 2, at::native::where_kernel_impl<float> >"
    assert classified("aten::where", ["bool", "float", "long"], where, [[8], [], [8]]).precision == "FP32"


def test_tensors_without_dimensions_do_not_count_next_to_others() -> None:
    assert input_precision("aten::mul", ["float", "double"], [[8, 8], []]) == "FP32"
    assert input_precision("aten::mul", ["double", "double"], [[], []]) == "FP64"
    assert input_precision("aten::mul", ["float", "double"], []) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["float", HALF, "Scalar"]), st.lists, max_leaves=6
)


@given(
    st.text()
    | st.sampled_from(["aten::mm", "aten::addmm", "aten::copy_", "aten::add", "_C::cutlass_scaled_mm", "vllm::moe", "x::attention"]),
    st.lists(JSON, max_size=6),
    st.lists(JSON, max_size=6),
)
def test_hostile_inputs_have_a_class(operator: str, types: list[Any], dims: list[Any]) -> None:
    row = kernel_class(operator, operator, types, dims, "k", "other", "unknown")
    assert row.category in CATEGORIES
    assert row.precision in PRECISIONS
    assert {row.category_source, row.precision_source} <= {OPERATOR, KERNEL_NAME, UNKNOWN}


def test_long_names_take_little_time() -> None:
    assert operator_class("a" * 1_000_000 + "::" + "attn" * 100_000) is None


@pytest.mark.parametrize(
    ("module", "category"),
    [
        ("MixtralModel_0/MixtralDecoderLayer_3/MixtralSparseMoeBlock_3", "MoE routing"),
        ("Model_0/DeepseekV3MoE_2/DeepseekV3TopkRouter_2", "MoE routing"),
        ("Model_0/MoELayer_1/Experts_1/Linear_4", "MoE routing"),
        ("model.layers.0.mlp.experts", "MoE routing"),
        ("Qwen2MoeModel_0/Qwen2MoeDecoderLayer_0/Qwen2MoeAttention_0", "embedding/index"),  # the name of the model alone
        ("Qwen2MoeModel_0/Embedding_0", "embedding/index"),
        ("", "embedding/index"),
    ],
)
def test_selection_in_a_mixture_of_experts_is_routing(module: str, category: str) -> None:
    known = classified("aten::index_add_", [BF16], "void at::native::indexFuncLargeIndex<c10::BFloat16>")
    assert in_module(known, module) == KernelClass(category, OPERATOR, known.precision, known.precision_source)


def test_products_in_a_mixture_of_experts_stay_products() -> None:
    known = classified("aten::mm", [BF16, BF16], "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT")
    assert in_module(known, "MixtralSparseMoeBlock_0/MixtralBLockSparseTop2MLP_0/Linear_0") is known


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([BF16, BF16, BF16, "Scalar"], ("BF16", OPERATOR)),
        ([HALF, "long int", HALF], ("FP16", OPERATOR)),  # an index besides the values
        ([BF16, "float", BF16], ("unknown", UNKNOWN)),
        ([], ("unknown", UNKNOWN)),
    ],
)
def test_kernels_of_inductor_have_the_type_of_their_tensors(types: list[str], expected: tuple[str, str]) -> None:
    name = "triton_poi_fused_mul_silu_3"
    known = classified(name, types, name, [[8, 4]] * len(types))
    assert (known.category, known.category_source) == ("elementwise", KERNEL_NAME)
    assert (known.precision, known.precision_source) == expected
