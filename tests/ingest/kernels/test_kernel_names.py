"""Tests that the tables classify kernel names as an expert does."""

# ruff: noqa: E501  (kernel names are long)

from __future__ import annotations

import gzip
import json
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.ingest.kernels.category import CATEGORIES, CATEGORY_RULES, category, category_rule, is_communication
from postrun.ingest.kernels.names import classify, distinct_short_names
from postrun.ingest.kernels.precision import PRECISION_RULES, PRECISIONS, precision, precision_rule
from postrun.ingest.kernels.text import NameRule, short_name

# Written by hand from knowledge of the libraries: name (arguments shortened), precision, category, short name.
KNOWN: tuple[tuple[str, str, str, str], ...] = (
    # cuBLAS
    ("volta_sgemm_64x64_nt", "FP32", "GEMM", "volta_sgemm_64x64_nt"),
    ("ampere_sgemm_32x32_sliced1x4_tn", "FP32", "GEMM", "ampere_sgemm_32x32_sliced1x4_tn"),
    ("volta_dgemm_64x64_nt", "FP64", "GEMM", "volta_dgemm_64x64_nt"),
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "FP16", "GEMM", "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"),
    ("volta_h884gemm_64x64_ldg8_tn", "FP16", "GEMM", "volta_h884gemm_64x64_ldg8_tn"),
    ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "FP16", "GEMM", "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn"),
    ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_nn", "FP16", "GEMM", "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_nn"),
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn", "BF16", "GEMM", "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn"),
    ("ampere_h16816gemm_128x128_ldg8_stages_64x3_tn", "FP16", "GEMM", "ampere_h16816gemm_128x128_ldg8_stages_64x3_tn"),
    ("ampere_int8_i16832gemm_int8_128x128_ldg16_tn", "INT8", "GEMM", "ampere_int8_i16832gemm_int8_128x128_ldg16_tn"),
    ("ampere_gcgemm_64x64_nt", "FP32", "GEMM", "ampere_gcgemm_64x64_nt"),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_ffma_cublas", "FP32", "GEMM", "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_ffma_cublas"),
    ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_cublas", "TF32", "GEMM", "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_cublas"),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_5x_cublas", "BF16", "GEMM", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_5x_cublas"),
    ("sm90_xmma_gemm_f16f16_f16f32_f32_nt_n_cublas", "FP16", "GEMM", "sm90_xmma_gemm_f16f16_f16f32_f32_nt_n_cublas"),
    ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_cublas", "FP8", "GEMM", "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_cublas"),
    ("sm80_xmma_gemm_f64f64_f64f64_f64_nn_n_cublas", "FP64", "GEMM", "sm80_xmma_gemm_f64f64_f64f64_f64_nn_n_cublas"),
    ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "FP16", "GEMM", "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT"),
    ("nvjet_tst_128x96_64x7_4x1_v_bz_bias_TNT", "BF16", "GEMM", "nvjet_tst_128x96_64x7_4x1_v_bz_bias_TNT"),
    ("nvjet_sm103_tst_176x128_64x6_2x1_v_bz_TNT", "BF16", "GEMM", "nvjet_sm103_tst_176x128_64x6_2x1_v_bz_TNT"),
    ("nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_TNNN", "BF16", "GEMM", "nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_TNNN"),
    ("nvjet_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT", "FP8", "GEMM", "nvjet_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT"),
    ("nvjet_sm100_oohsh_128x256_256x5_Avec16UE4M3_Bvec16UE4M3_TNT", "FP4", "GEMM", "nvjet_sm100_oohsh_128x256_256x5_Avec16UE4M3_Bvec16UE4M3_TNT"),
    ("nvjet_zzz_128x128_64x4_TNT", "unknown", "GEMM", "nvjet_zzz_128x128_64x4_TNT"),
    ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false, cublasGemvParams<float> >(P)",
     "FP32", "GEMM", "gemv2T_kernel_val"),
    ("void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128, 16, 4, 4>(P)", "BF16", "GEMM", "gemv2T_kernel_val"),
    ("void gemv2N_kernel<int, int, double, double, double, double, 128, 8, 4, 4, 1, false, P<double> >(P<double>)", "FP64", "GEMM", "gemv2N_kernel"),
    ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, float, float, false, true>(Params)",
     "FP32", "GEMM", "gemvx::kernel"),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>(cublasSplitKParams<float>)",
     "FP32", "GEMM", "cublasLt::splitKreduce_kernel"),
    ("void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>, cublasGemvTensorStridedBatched<float> > >(P)",
     "FP32", "reduction", "dot_kernel"),
    ("void scal_kernel<double, double, 1, true, 5, 5, 5, 3>(cublasTransposeParams<double>, double const*)", "FP64", "elementwise", "scal_kernel"),
    # CUTLASS, Triton, DeepGEMM, weight-only products
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4>(cutlass_80_tensorop_s1688gemm::Params)",
     "TF32", "GEMM", "cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_tn>(x::Params)",
     "BF16", "GEMM", "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_tn"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_64x64_tn>(x::Params)", "FP16", "GEMM", "cutlass_80_tensorop_f16_s16816gemm_f16_64x64_tn"),
    ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(x::Params)", "FP32", "GEMM", "cutlass_80_simt_sgemm_128x32_8x5_nn_align1"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>(x::Params)", "FP64", "GEMM", "cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1"),
    ("cutlass3x_sm100_bstensorop_s256x192x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32_f16_f16", "FP4", "GEMM", "cutlass3x_sm100_bstensorop_s25…ue4m3xf4_ue4m3xf4_f32_f16_f16"),
    ("cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_128x64x16", "FP32", "GEMM", "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_128x64x16"),
    ("void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int>, "
     "cutlass::gemm::collective::CollectiveMma<cutlass::float_e4m3_t> > > >(P)", "FP8", "GEMM", "cutlass::device_kernel[GemmUniversal]"),
    ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u, 1u, 128u, 128u>(float*, int*)", "FP8", "GEMM", "deep_gemm::sm90_fp8_gemm_1d2d_impl"),
    ("void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<128u, cutlass::float_e4m3_t, cutlass::float_e4m3_t, cutlass::bfloat16_t>(int*)",
     "FP8", "GEMM", "deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl"),
    ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16", "mixed", "GEMM", "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16"),
    ("bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x64x128_s5_et128x64", "BF16", "GEMM", "bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x64x128_s5_et128x64"),
    ("bmm_Bfloat16_E4m3E4m3_Fp32_t128x16x128u2_s6", "FP8", "GEMM", "bmm_Bfloat16_E4m3E4m3_Fp32_t128x16x128u2_s6"),
    ("bmm_E2m1_E2m1E2m1_Fp32_bA16_bB16_bC16", "FP4", "GEMM", "bmm_E2m1_E2m1E2m1_Fp32_bA16_bB16_bC16"),
    ("void marlin_moe_wna16::Marlin<1125899906909960l, 562949953487106l>(int4 const*, int4 const*)", "mixed", "GEMM", "marlin_moe_wna16::Marlin"),
    ("void marlin::Marlin<__nv_bfloat16, 1125899906843648l, 256, 4, 16, 4>(int4 const*)", "mixed", "GEMM", "marlin::Marlin"),
    ("void kgemm_4bit_inference_naive<__half, 128, 16>(int, int, int, __half*, unsigned char*)", "mixed", "GEMM", "kgemm_4bit_inference_naive"),
    ("fused_moe_kernel", "unknown", "GEMM", "fused_moe_kernel"),
    ("_w8a8_block_fp8_matmul", "FP8", "GEMM", "_w8a8_block_fp8_matmul"),
    ("triton_tem_fused_mm_4", "unknown", "GEMM", "triton_tem_fused_mm_4"),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
     "BF16", "GEMM", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
     "BF16", "GEMM", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x64"),
    ("sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize64x64x32_execute_kernel_trt", "FP16", "GEMM", "sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize64x64x32"),
    # AMD
    ("Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN_LDSB0_AFC1_AFEM1_ASEM1_CLR1", "BF16", "GEMM",
     "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128"),
    ("Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128", "BF16", "GEMM", "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128"),
    ("Cijk_Ailk_Bjlk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64", "BF16", "GEMM", "Cijk_Ailk_Bjlk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64"),
    ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_MI16x16x16x1_SN", "FP16", "GEMM", "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_MI16x16x16x1_SN"),
    ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32", "FP32", "GEMM", "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32"),
    ("Cijk_Ailk_Bljk_DB_MT64x64x16_MI16x16x4x1_SN", "FP64", "GEMM", "Cijk_Ailk_Bljk_DB_MT64x64x16_MI16x16x4x1_SN"),
    ("Cijk_Alik_Bljk_F8BS_BH_Bias_HA_S_SAB_SAV_MT256x256x128", "FP8", "GEMM", "Cijk_Alik_Bljk_F8BS_BH_Bias_HA_S_SAB_SAV_MT256x256x128"),
    ("Cijk_Alik_Bljk_I8II_BH_MT128x128x64", "INT8", "GEMM", "Cijk_Alik_Bljk_I8II_BH_MT128x128x64"),
    ("Cijk_Alik_Bljk_S_MX_B_UserArgs_MT128x160x64", "TF32", "GEMM", "Cijk_Alik_Bljk_S_MX_B_UserArgs_MT128x160x64"),
    ("attn_fwd", "unknown", "attention", "attn_fwd"),
    ("void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::Pipeline<unsigned short, unsigned short, float> > >(ck_tile::Args)",
     "BF16", "attention", "ck_tile::kentry[FmhaFwdKernel]"),
    ("void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<ck_tile::P<_Float16> > >(ck_tile::Args)", "FP16", "normalisation", "ck_tile::kentry[Rmsnorm2dFwd]"),
    ("aiter::fmha_bwd_hd128_bf16_causal_a16_psskddv", "BF16", "attention", "aiter::fmha_bwd_hd128_bf16_causal_a16_psskddv"),
    ("igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32", "FP16", "convolution", "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32"),
    ("miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1", "FP32", "convolution", "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1"),
    ("MIOpenBatchNormFwdTrainSpatial", "unknown", "normalisation", "MIOpenBatchNormFwdTrainSpatial"),
    ("batched_transpose_32x32_half", "unknown", "memory", "batched_transpose_32x32_half"),
    ("__amd_rocclr_fillBufferAligned", "unknown", "memory", "__amd_rocclr_fillBufferAligned"),
    ("void ck::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<ck::Gridwise<_Float16, float> >(P)",
     "FP16", "convolution", "ck::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle"),
    # cuDNN
    ("volta_scudnn_128x64_relu_interior_nn_v1", "FP32", "convolution", "volta_scudnn_128x64_relu_interior_nn_v1"),
    ("volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_exp_nhwc_tn", "FP16", "convolution", "volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_exp_nhwc_tn"),
    ("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float, float)", "FP32", "normalisation", "cudnn::bn_bw_1C11_kernel_new"),
    ("void cudnn::bn_fw_tr_1C11_singleread<__half, 512, true, 1, 2, 0>(cudnnTensorStruct)", "FP16", "normalisation", "cudnn::bn_fw_tr_1C11_singleread"),
    ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(P)", "FP16", "memory", "cudnn::ops::nchwToNhwcKernel"),
    ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*)", "FP32", "convolution", "cudnn::dgrad_engine"),
    ("void implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, false>(int)", "FP32", "convolution", "implicit_convolve_sgemm"),
    ("void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_64x128_nhwc>(P)",
     "TF32", "convolution", "cutlass_tensorop_s1688dgrad_optimized_tf32_64x128_nhwc"),
    ("void fft2d_c2r_32x32<float, false, false, 0u, false, false>(float*, float2 const*)", "FP32", "convolution", "fft2d_c2r_32x32"),
    ("cask_cudnn::computeBOffsetsKernel(cask_cudnn::ComputeBOffsetsParams)", "unknown", "convolution", "cask_cudnn::computeBOffsetsKernel"),
    ("_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS_10tfloat32_tEEEEvT_",
     "TF32", "convolution", "cutlass_cudnn_train::Kernel[ImplicitGemmConvolution]"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7",
     "unknown", "attention", "cudnn_generated_fort_native_sd…_flash_fprop_wgmma_f16_knob_7"),
    ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32_stage5_warpsize2x2x1_g1_tensor16x8x8_t1r1s1_execute_kernel_cudnn_train",
     "TF32", "convolution", "sm80_xmma_wgrad_implicit_gemm_…lesize64x128x32_stage5_t1r1s1"),
    ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_execute_split_k_kernel_cudnn_train",
     "TF32", "convolution", "sm80_xmma_wgrad_implicit_gemm_…size128x128x16_stage4_split_k"),
    # attention
    ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t>, false>(P)",
     "BF16", "attention", "pytorch_flash::flash_fwd_kernel"),
    ("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, cutlass::half_t>, false>(Flash_bwd_params)",
     "FP16", "attention", "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel"),
    ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<cutlass::bfloat16_t> > >(P)",
     "BF16", "attention", "cutlass::device_kernel[FlashAttnFwdSm90]"),
    ("fmha_cutlassF_f16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>::Params)",
     "FP16", "attention", "fmha_cutlassF_f16_aligned_64x128_rf_sm80"),
    ("fmhaSm100fKernel_QkvE4m3OBfloat16HQk576HV512PagedKv", "FP8", "attention", "fmhaSm100fKernel_QkvE4m3OBfloat16HQk576HV512PagedKv"),
    ("fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKv", "BF16", "attention", "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKv"),
    ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, __half>(P)",
     "FP16", "attention", "flashinfer::BatchDecodeWithPagedKVCacheKernel"),
    ("void vllm::paged_attention_v1_kernel<unsigned short, unsigned short, 128, 16, 128, (vllm::Fp8KVCacheDataType)0, false>(unsigned short*)",
     "unknown", "attention", "vllm::paged_attention_v1_kernel"),
    ("_ZN4vllm32paged_attention_ll4mi_QKV_kernelI13__hip_bfloat16EEvv", "BF16", "attention", "vllm::paged_attention_ll4mi_QKV_kernel"),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(P)",
     "BF16", "KV cache", "vllm::reshape_and_cache_flash_kernel"),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)", "BF16", "elementwise", "vllm::rotary_embedding_kernel"),
    ("kernel_unified_attention_2d", "unknown", "attention", "kernel_unified_attention_2d"),
    # PyTorch
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int)",
     "BF16", "elementwise", "vectorized_elementwise_kernel[CUDAFunctor_add]"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>, at::detail::Array<char*, 3> >(int)",
     "FP16", "elementwise", "vectorized_elementwise_kernel[CUDAFunctor_add]"),
    ("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
     "c10::BFloat16, at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&)::{lambda(int)#1}>(int)",
     "BF16", "elementwise", "elementwise_kernel[MulFunctor]"),
    ("void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::BinaryFunctor<double, double, double, "
     "at::native::binary_internal::MulFunctor<double> > >(at::TensorIteratorBase&)::{lambda(int)#1}>(int)", "FP64", "elementwise", "elementwise_kernel[MulFunctor]"),
    ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::"
     "{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4>(int)", "FP32", "memory", "unrolled_elementwise_kernel[direct_copy_kernel_cuda]"),
    ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() "
     "const::[lambda() (instance 4)]::operator ()() const::[lambda(long) (instance 1)], std::array<char *, (unsigned long)2>>(int)",
     "INT32", "memory", "unrolled_elementwise_kernel[direct_copy_kernel_cuda]"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
     "mixed", "memory", "vectorized_elementwise_kernel[bfloat16_copy_kernel_cuda]"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >(int)",
     "FP32", "memory", "vectorized_elementwise_kernel[FillFunctor]"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<bool>, at::detail::Array<char*, 1> >(int)",
     "INT32", "memory", "vectorized_elementwise_kernel[FillFunctor]"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::where_kernel_impl(at::TensorIterator&)::{lambda()#1}::"
     "operator()() const::{lambda(bool, float, float)#1}, at::detail::Array<char*, 4> >(int)", "FP32", "elementwise", "vectorized_elementwise_kernel[where_kernel_impl]"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda(c10::BFloat16)#1}>(int)",
     "BF16", "elementwise", "vectorized_elementwise_kernel[silu_kernel]"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::nan_to_num_kernel_cuda(at::TensorIteratorBase&, c10::optional<double>)::{lambda()#1}::"
     "operator()() const::{lambda(float)#1}>(int)", "FP32", "elementwise", "vectorized_elementwise_kernel[nan_to_num_kernel_cuda]"),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>(P)",
     "unknown", "memory", "CatArrayBatchedCopy"),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)", "FP32", "memory", "CatArrayBatchedCopy"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, float, 4> >(P)",
     "FP32", "reduction", "reduce_kernel[MeanOps]"),
    ("void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<long, at::native::func_wrapper_t<long, at::native::sum_functor<long, long, long>>, unsigned int>>(T3)",
     "INT32", "reduction", "reduce_kernel[sum_functor]"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::func_wrapper_t<c10::BFloat16, at::native::sum_functor<c10::BFloat16, float> > > >(P)",
     "BF16", "reduction", "reduce_kernel[sum_functor]"),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)", "BF16", "normalisation", "vectorized_layer_norm_kernel"),
    ("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>(long)", "FP32", "normalisation", "GammaBetaBackwardCUDAKernel"),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)", "FP32", "softmax", "softmax_warp_forward"),
    ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, float, at::native::SoftMaxForwardEpilogue>(float*)",
     "BF16", "softmax", "cunn_SoftMaxForward"),
    ("void at::native::(anonymous namespace)::indexSelectLargeIndex<long, long, unsigned int, 1, 1, -2, true>(P)", "INT32", "embedding/index", "indexSelectLargeIndex"),
    ("void at::native::vectorized_gather_kernel<(int)16, long>(char *, char *, T2 *)", "unknown", "embedding/index", "vectorized_gather_kernel"),
    ("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_put_kernel_impl<at::native::OpaqueType<4> >(long)::{lambda(char*)#1}> >(P)",
     "unknown", "embedding/index", "index_elementwise_kernel[index_put_kernel_impl]"),
    ("void at::native::_scatter_gather_elementwise_kernel<128, 4, at::native::_cuda_scatter_gather_internal_kernel<true, float>::operator()<at::native::ReduceAdd>(long)>(int)",
     "FP32", "embedding/index", "_scatter_gather_elementwise_kernel[ReduceAdd]"),
    ("void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int, float const*)", "FP32", "reduction", "max_pool_forward_nchw"),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, at::native::BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>(P)",
     "FP32", "optimizer", "multi_tensor_apply_kernel[BinaryOpListAlphaFunctor]"),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>, at::native::FusedAdamMathFunctor<float, 4>, float const*, double>(P)",
     "FP32", "optimizer", "multi_tensor_apply_kernel[FusedAdamMathFunctor]"),
    ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float>(int, TensorListMetadata<4>, AdamFunctor<float>)",
     "FP32", "optimizer", "multi_tensor_apply_kernel[AdamFunctor]"),
    ("void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out(c10::Scalar const&)::{lambda()#1}::operator()() const::{lambda(long)#1}>(int)",
     "INT32", "memory", "elementwise_kernel_with_index[arange_cuda_out]"),
    ("void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(P)", "FP32", "elementwise", "fused_dropout_kernel_vec"),
    ("void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, float, int>::Policy800, false, long, float, int, int>(P)",
     "INT32", "embedding/index", "cub::DeviceRadixSortOnesweepKernel"),
    ("void at_cuda_detail::cub::DeviceScanKernel<at_cuda_detail::cub::AgentScanPolicy<128, 15, long>, long*, long*>(P)", "INT32", "reduction", "cub::DeviceScanKernel"),
    # FBGEMM, Apex, DeepSpeed, bitsandbytes, vLLM, Transformer Engine
    ("void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<c10::Half, float, c10::Half, 2ul, 32>(P)",
     "FP16", "embedding/index", "split_embedding_backward_codeg…weighted_kernel_cta_per_row_1"),
    ("void fbgemm_gpu::_FP8rowwise_to_float_cuda_kernel<float>(unsigned char const*, int)", "mixed", "memory", "fbgemm_gpu::_FP8rowwise_to_float_cuda_kernel"),
    ("void fbgemm_gpu::permute_2D_data_kernel<false, int, int, decltype(nullptr)>(int)", "INT32", "embedding/index", "fbgemm_gpu::permute_2D_data_kernel"),
    ("void attn_softmax_v2<__half, 1>(__half*, __half*, float)", "FP16", "softmax", "attn_softmax_v2"),
    ("void kOptimizerStatic8bit2StateBlockwise<float, 0, 256, 1>(float*, float*)", "FP32", "optimizer", "kOptimizerStatic8bit2StateBlockwise"),
    ("void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>(float*, unsigned char*)", "mixed", "memory", "kDequantizeBlockwise"),
    ("void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*)", "BF16", "normalisation", "vllm::rms_norm_kernel"),
    ("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(P)", "BF16", "elementwise", "vllm::act_and_mul_kernel"),
    ("void vllm::scaled_fp8_quant_kernel<c10::BFloat16>(c10::Float8_e4m3fn*, c10::BFloat16 const*)", "mixed", "memory", "vllm::scaled_fp8_quant_kernel"),
    ("void vllm::moe::moe_align_block_size_kernel<int>(int*, int*)", "INT32", "MoE routing", "vllm::moe::moe_align_block_size_kernel"),
    ("void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, 32, int>(float const*)", "FP32", "MoE routing", "vllm::moe::topkGatingSoftmax"),
    ("void flashinfer::norm::RMSNormKernel<(unsigned int)8, __half>(T2 *, T2 *)", "FP16", "normalisation", "flashinfer::norm::RMSNormKernel"),
    # Inductor, XLA
    ("triton_poi_fused_add_mul_silu_2", "unknown", "elementwise", "triton_poi_fused_add_mul_silu_2"),
    ("triton_poi_fused__to_copy_0", "unknown", "memory", "triton_poi_fused__to_copy_0"),
    ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_6", "unknown", "normalisation", "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_6"),
    ("triton_per_fused__softmax_5", "unknown", "softmax", "triton_per_fused__softmax_5"),
    ("triton_red_fused_sum_11", "unknown", "reduction", "triton_red_fused_sum_11"),
    ("loop_add_fusion", "unknown", "elementwise", "loop_add_fusion"),
    ("fusion_12", "unknown", "other", "fusion_12"),
    # communication
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "FP32", "communication", "ncclKernel_AllReduce_RING_LL_Sum_float"),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "unknown", "communication", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "BF16", "communication", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
    ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "FP32", "communication", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"),
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "unknown", "communication", "ncclDevKernel_AllGather_RING_LL"),
    ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "unknown", "communication", "ncclDevKernel_Generic_4"),
    ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "BF16", "communication", "multimem_all_reduce_kernel"),
    ("void vllm::cross_device_reduce_2stage<__half, 8>(vllm::RankData*)", "FP16", "communication", "vllm::cross_device_reduce_2stage"),
    ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)", "unknown", "communication", "deep_ep::intranode::dispatch"),
    # no information in the name
    ("kernel", "unknown", "other", "kernel"),
    ("_chunk_scan_fwd_kernel", "unknown", "other", "_chunk_scan_fwd_kernel"),
    ("Memcpy DtoD (Device -> Device)", "unknown", "memory", "Memcpy DtoD (Device -> Device)"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "expected_precision", "expected_category", "expected_short"), KNOWN, ids=range(len(KNOWN)))
def test_known_kernels(name: str, expected_precision: str, expected_category: str, expected_short: str) -> None:
    assert (precision(name), category(name), short_name(name)) == (expected_precision, expected_category, expected_short)


def rows(rules: tuple[NameRule, ...]) -> list[tuple[NameRule, str]]:
    return [(rule, example) for rule in rules for example in rule.examples]


@pytest.mark.parametrize(("rule", "example"), rows(PRECISION_RULES))
def test_each_precision_rule_decides_its_examples(rule: NameRule, example: str) -> None:
    assert precision_rule(example) is rule


@pytest.mark.parametrize(("rule", "example"), rows(CATEGORY_RULES))
def test_each_category_rule_decides_its_examples(rule: NameRule, example: str) -> None:
    assert category_rule(example) is rule


def test_rules_are_complete_rows() -> None:
    assert all(rule.examples and rule.reason for rule in (*PRECISION_RULES, *CATEGORY_RULES))
    assert {rule.value for rule in PRECISION_RULES} == set(PRECISIONS)
    assert {rule.value for rule in CATEGORY_RULES} | {"other"} == set(CATEGORIES)


# The definition of communication in the project's figures, written a second time.
DEFINITION = re.compile(
    r"nccl|rccl|oneccl|msccl|deep_ep|cross_device_reduce|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all", re.IGNORECASE
)
FRAGMENTS = st.sampled_from(
    [
        "NCCL",
        "rccl",
        "oneCCL",
        "mscclpp",
        "deep_ep",
        "all_Reduce",
        "AllGather",
        "reduce_ſcatter",
        "alltoall",
        "all_to_all",
        "reduce",
        "all",
        "_",
        "<",
        "(",
    ]
)


@given(st.lists(FRAGMENTS | st.text(max_size=5)).map("".join), st.integers(0, 9000))
def test_communication_has_at_least_the_defined_names(text: str, filler: int) -> None:
    name = "x<" * (filler // 2) + text
    if DEFINITION.search(name):
        assert is_communication(name)
        assert category(name) == "communication"
    assert is_communication(name) == (category(name) == "communication")


@pytest.mark.parametrize("name", ["multimem_all_gather", "one_shot_reduce", "two_shot_x", "nvshmemi_barrier", "twoshotAllreduceKernel"])
def test_communication_beyond_the_defined_names(name: str) -> None:
    assert is_communication(name)


@given(st.text(max_size=300), st.integers(1, 80))
def test_any_text_is_a_name(name: str, limit: int) -> None:
    short = short_name(name, limit=limit)
    assert len(short) <= limit
    assert bool(short) == bool(name)
    assert precision(name) in PRECISIONS
    assert category(name) in CATEGORIES


HOSTILE = (
    "", " ", "\n\t", "\u202e\u200f", "(", "<", ">", "::", "<<<<", "))))", "_Z", "_ZN", "_ZN9999x", "_ZN3abc", "void", "void ", "operator()",
    "<script>alert(1)</script>", "مرحبا kernel بكم", "🙂🙃", "a" * 10_000, "void f<" * 2_000, "\x00", "\ud800", "f(" + ")" * 999, "²_Z³", "_ZN²a",
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names(name: str) -> None:
    row = classify([name]).row(0, named=True)
    assert len(row["short"]) <= 60
    assert bool(row["short"]) == bool(name)
    assert not any(character in row["short"] for character in "\u202e\u200f\x00\n")
    row["short"].encode()
    assert short_name(name, limit=1) == row["short"][:1] or len(short_name(name, limit=1)) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("fast<script>alert(1)</script>", "fast<script>alert(1)</script>"),
        ("<b>bold</b> kernel<float>(int)", "<b>bold</b> kernel<float>(int)"),
        ("مرحبا بالعالم kernel<float>", "مرحبا بالعالم kernel"),
        ("void مرحبا::kernel<float>(int)", "مرحبا::kernel"),
        ("_execute_kernel", "_execute_kernel"),
    ],
)
def test_what_is_no_cpp_stays_recognizable(name: str, expected: str) -> None:
    assert short_name(name) == expected


def test_short_names_that_would_be_alike_are_numbered() -> None:
    long = ["x" * 40 + str(i) + "y" * 40 for i in range(12)]
    names = ["f<int>()", "g", "f<float>()", "f #2", "void f<long>(int)", *long]
    shorts = distinct_short_names(names)
    assert shorts[:5] == ["f", "g", "f #2", "f #2 #2", "f #3"]
    assert shorts[5] == "x" * 30 + "…" + "y" * 29
    assert shorts[6] == "x" * 28 + "…" + "y" * 28 + " #2"
    assert shorts[-1].endswith("y #12")
    assert len(set(shorts)) == len(names)
    assert max(map(len, shorts)) == 60
    assert distinct_short_names(names) == shorts


@given(st.lists(st.text("fg#2 <>", max_size=6), unique=True, max_size=30))
def test_no_two_different_names_are_shown_alike(names: list[str]) -> None:
    shorts = distinct_short_names(names)
    assert len(set(shorts)) == len(names)
    assert all(short.startswith(short_name(name)) for name, short in zip(names, shorts, strict=True))


# Texts that the patterns repeat, so that a pattern that backtracks would take long.
REPEATED = (
    "<", "(", "{", "<(", "a::", "nccl", "xmma_", "nvjet_", "cudnn_generated_sdpa_", "float_", "fp8_", "lambda(", "operator()() const::{", "<1, ",
    "cijk_ab_bc_", "_execute_", "_MT1x1x1", "_g1", "e4m3", "ck:: ", "_ZN4ab", "1a", "9", "set_", "\n", "double *", "🙂", "_", "triton_poi_fused_cat_", "unsigned short", " ", "bmm_a_",
)  # fmt: skip


PREFIXES = ("Cijk_", "triton_poi_fused_", "triton_red_", "_ZN", "void at::native::elementwise_kernel<", "bmm_", "ck::")


@pytest.mark.slow
def test_time_is_linear_in_the_characters() -> None:
    alone = [(part * 100_000)[:100_000] for part in REPEATED]
    names = alone + [prefix + alone[(7 * n + m) % len(alone)] for n, prefix in enumerate(PREFIXES) for m in range(4)]
    start = time.process_time()
    classify(names)
    # 0.1 s per name of 100,000 characters where measured; a pattern that is quadratic in them needs minutes.
    assert time.process_time() - start < 2.0 * len(names)


def test_short_name_limits() -> None:
    assert short_name("abcdefghij", limit=10) == "abcdefghij"
    assert short_name("abcdefghijk", limit=10) == "abcde…hijk"
    assert short_name("abcdefghijk", limit=1) == "…"
    with pytest.raises(ValueError, match="at least 1"):
        short_name("a", limit=0)


def test_classify_keeps_order_and_repetitions() -> None:
    frame = classify(["volta_sgemm_64x64_nt", "attn_fwd", "volta_sgemm_64x64_nt"])
    assert frame.columns == ["name", "short", "precision", "category"]
    assert frame["category"].to_list() == ["GEMM", "attention", "GEMM"]
    assert classify([]).schema == frame.schema


def kernel_time(trace: Path) -> Counter[str]:
    """Name -> summed kernel duration of a Kineto trace, in its own unit."""
    document = json.loads(gzip.decompress(trace.read_bytes()), strict=False)
    events = document["traceEvents"] if isinstance(document, dict) else document
    total: Counter[str] = Counter()
    for event in events:
        if event.get("ph") == "X" and str(event.get("cat")).lower() == "kernel":
            total[event["name"]] += event.get("dur", 0)
    return total


# Precision of the model, and the least share of computing kernel time that must be recognized as such.
TRUTHS = (
    ("v100_old_schema/resnet50_num_workers_0.json.gz", {"FP32"}, 0.99),
    ("v100_ddp/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", {"FP32"}, 0.99),
    ("h100/Falconsai_nsfw_image_detection__1016002.json.gz", {"BF16"}, 0.99),
    ("h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", {"BF16"}, 0.70),
    ("diff_pair/a100_rank3_of_8.json.gz", {"FP32", "TF32"}, 0.85),
    ("diff_pair/v100_rank1_of_2.json.gz", {"FP32"}, 0.90),
    ("mi300/gaunernst_bert-small-uncased__1016001.json.gz", {"BF16"}, 0.65),
    ("quirks/mi250_minitoy_train_ROCm6_2_kineto.json.gz", {"FP32"}, 0.99),
)


@pytest.mark.parametrize(("trace", "expected", "share"), TRUTHS)
def test_precision_of_real_runs(shared_data: Path, trace: str, expected: set[str], share: float) -> None:
    computing = {name: time for name, time in kernel_time(shared_data / "kineto" / trace).items() if not is_communication(name)}
    total = sum(computing.values())
    assert sum(time for name, time in computing.items() if precision(name) in expected) / total > share
    assert sum(time for name, time in computing.items() if category(name) == "other") / total < 0.01


def test_matrix_products_of_real_runs(shared_data: Path) -> None:
    def of_gemm(trace: str) -> set[str]:
        return {precision(name) for name in kernel_time(shared_data / "kineto" / trace) if category(name) == "GEMM"}

    assert of_gemm("mi300/gaunernst_bert-small-uncased__1016001.json.gz") == {"BF16"}
    assert of_gemm("h100/Falconsai_nsfw_image_detection__1016002.json.gz") == {"BF16"}
    assert of_gemm("diff_pair/a100_rank3_of_8.json.gz") == {"FP32", "TF32"}
    assert of_gemm("diff_pair/v100_rank1_of_2.json.gz") == {"FP32"}


@pytest.mark.parametrize("name", ["](javascript:x)", "(int)", "::<float>(x)", "[](int)"])
def test_a_name_that_is_all_brackets_stays_as_it_is(name: str) -> None:
    assert short_name(name) == name
