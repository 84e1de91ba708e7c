"""The precision in which a kernel computes, by its name.

The precision is that of the inputs, which a user chooses; sums are usually kept wider. So a BF16 matrix
product with FP32 accumulation is BF16, and an element-wise kernel over BF16 values that computes in float registers is
BF16 as well.

* mixed: the two inputs differ (FP8 x FP4, weight-only quantized products), or the kernel converts between two formats
  (quantize, dequantize, cast to a named type). Optimizers and embeddings with inputs of several widths are named by
  the narrowest floating type.
* INT32: integer and boolean work of 16 to 64 bits. GPUs have 32-bit integer units; a 64-bit operation is a pair of them.
* INT8: 8-bit integers, on matrix units or not.
* unknown: the name has no type, or the type is only the width of the copied elements. Never guessed.
"""

from __future__ import annotations

from typing import Final

from .text import NameRule, normalized, rule

PRECISIONS: Final[tuple[str, ...]] = (
    "FP64", "TF32", "FP32", "BF16", "FP16", "FP8", "FP4", "INT32", "INT8", "mixed", "unknown",
)  # fmt: skip

# The text searched is "function<template arguments>" NEWLINE "(parameters)" in lower case: `\A.*?` stays within the
# template arguments, `\n` begins the parameters. First match wins.
# Repetitions are bounded or begin at `\A`, so that a hostile name costs linear time.
_TENSILE: Final = r"cijk_a[a-z]{1,8}_b[a-z]{1,8}_"
_NVJET: Final = r"nvjet_(?:sm\d+_)?"

PRECISION_RULES: Final[tuple[NameRule, ...]] = (
    # The name has a type, but it is not that of any arithmetic.
    rule("unknown", r"opaquetype<",
         "PyTorch moves elements of n bytes, whatever they mean",
         "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, "
         "unsigned int, 3, 64, 64>"),
    rule("unknown", r"vectorized_gather_kernel",
         "moves bytes; the type named is that of the index",
         "void at::native::vectorized_gather_kernel<(int)16, long>(char *, char *, T2 *, int, long, long, long, long, bool)"),
    rule("unknown", r"\A\w{0,60}?nccl\w{0,60}(?:sendrecv|allgather|broadcast)",
         "NCCL moves bytes as int8_t; no arithmetic",
         "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)",
         "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"),
    rule("unknown", r"deep_ep::[\w:]{0,40}?(?:dispatch|notify)", "moves tokens; its pointers are scales and counters",
         "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, float*, int*)"),
    rule("unknown", r"cudnn_generated\w{0,40}_sdpa_\w{0,80}_f16",
         "cuDNN's attention writes f16 for FP16 and BF16 alike",
         "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0"),
    rule("unknown", r"\Abatched_transpose_\w{0,40}_(?:half|dword|byte)",
         "MIOpen writes half for any 16-bit element of a transpose",
         "batched_transpose_32x32_half"),
    # Generators that spell the types of A and B.
    rule("FP4", r"\A(?:bmm|gemm)_[a-z0-9]{1,20}_(?:mx)?e2m1(?:mx)?e2m1_", "trtllm-gen: output, A and B, accumulator",
         "bmm_E2m1_E2m1E2m1_Fp32_bA16_bB16_bC16_t128x16x256"),
    rule("FP8", r"\A(?:bmm|gemm)_[a-z0-9]{1,20}_(?:mx)?(e4m3|e5m2)(?:mx)?\1_", "trtllm-gen: output, A and B, accumulator",
         "bmm_Bfloat16_E4m3E4m3_Fp32_t128x16x128u2_s6_et64x16_m64x16x32_c1x1x1_rM_TN_transOut_noShfl_dsFp8"),
    rule("BF16", r"\A(?:bmm|gemm)_[a-z0-9]{1,20}_bfloat16bfloat16_", "trtllm-gen: output, A and B, accumulator",
         "bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x64x128u2_s5_et128x64_m256x64x16_c2x1x1_rM_BN_transOut"),
    rule("FP16", r"\A(?:bmm|gemm)_[a-z0-9]{1,20}_fp16fp16_", "trtllm-gen: output, A and B, accumulator",
         "gemm_Fp16_Fp16Fp16_Fp32_t128x64x64_s4_et128x64"),
    rule("mixed", r"\A(?:bmm|gemm)_[a-z0-9]{1,20}_(?:mx)?(?:e2m1|e4m3|e5m2|int4|bfloat16|fp16)(?:mx)?(?:e2m1|e4m3|e5m2|bfloat16|fp16)_",
         "trtllm-gen: A and B differ",
         "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16", "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2",
         "bmm_Bfloat16_MxInt4Bfloat16_castBfloat16_Fp32_Ab32_t128"),
    rule("BF16", r"fmhasm\d+\w{0,40}_qkvbfloat16", "trtllm-gen attention: type of Q, K and V",
         "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64MultiCtasKvVarSeqQ8Kv128StaticSwapsAbForGen"),
    rule("FP8", r"fmhasm\d+\w{0,40}_qkve4m3", "trtllm-gen attention: type of Q, K and V",
         "fmhaSm100fKernel_QkvE4m3OBfloat16HQk576HV512PagedKvDenseP64VarSeqQ8Kv128StaticSwapsAb"),
    rule("FP16", r"fmhasm\d+\w{0,40}_qkvfp16", "trtllm-gen attention: type of Q, K and V",
         "fmhaSm100aKernel_QkvFp16OFp16H128SeparateQkvCausalVarSeqQ128Kv128PersistentContext"),
    rule("mixed", r"fmhasm\d+\w{0,40}_q(?:e4m3|bfloat16|fp16)kv", "trtllm-gen attention: Q differs from K and V",
         "FmhaSm100aKernel_QE4m3KvE2m1OE4m3H128PagedKvCausalP32VarSeqQ128Kv128PersistentContext"),
    # cuBLAS since Hopper: letters of A and B (one for both where they agree on 16 bits), accumulator, C, D.
    rule("TF32", r"nvjet_\w{0,40}tf32", "cuBLAS nvjet says tf32", "nvjet_sss_tf32_128x256_TNT"),
    rule("FP4", _NVJET + r"oo[a-z]{3}_", "cuBLAS nvjet: o is E2M1",
         "nvjet_sm100_ootst_128x128_256x7_4x1_2cta_v_bx_Avec16UE4M3_Bvec16UE4M3_TNT"),
    rule("FP8", _NVJET + r"[qr]{2}[a-z]{3}_", "cuBLAS nvjet: q is E4M3, r is E5M2",
         "nvjet_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT",
         "nvjet_sm100_qqsss_128x128_128x8_2x4_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_TNT"),
    rule("BF16", _NVJET + r"t[st]{2}_", "cuBLAS nvjet: t is BF16, s the FP32 accumulator",
         "nvjet_tst_128x96_64x7_4x1_v_bz_bias_TNT", "nvjet_sm90_tss_64x8_64x16_4x1_v_bz_splitK_TNT"),
    rule("FP16", _NVJET + r"h[sh]{2}_", "cuBLAS nvjet: h is FP16",
         "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "nvjet_sm90_hss_320x128_64x3_1x2_h_bz_coopB_NTT"),
    # AMD Tensile: type of the inputs is the first letter after the index letters.
    rule("FP4", _TENSILE + r"f4", "Tensile F4", "Cijk_Alik_Bljk_F4BS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x256_MI16x16x1"),
    rule("FP8", _TENSILE + r"[fb]8", "Tensile F8 (E4M3) and B8 (E5M2)",
         "Cijk_Alik_Bljk_F8BS_BH_Bias_HA_S_SAB_SAV_UserArgs_MT256x256x128_MI16x16x1",
         "Custom_Cijk_Alik_Bljk_F8B8BS_BH_Bias_HA_S_SAB_SAV_UserArgs_MT256x256x128",
         "Cijk_Alik_Bljk_B8F8S_BH_UserArgs_MT256x256x128_MI16x16x1"),
    rule("INT8", _TENSILE + r"(?:4x)?i8", "Tensile I8", "Cijk_Alik_Bljk_I8II_BH_MT128x128x64_MI16x16x1",
         "Cijk_Ailk_Bljk_4xi8BH_MT128x64x16_SE"),
    rule("BF16", _TENSILE + r"b", "Tensile B",
         "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN_LDSB0",
         "Cijk_Ailk_Bjlk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN"),
    rule("FP16", _TENSILE + r"h", "Tensile H", "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_MI16x16x16x1_SN_1LDSB0",
         "Cijk_Ailk_Bljk_HBH_MT64x64x32_SE"),
    rule("TF32", _TENSILE + r"(?:s_mx_|x)", "Tensile XF32 matrix instructions on float inputs",
         "Cijk_Alik_Bljk_S_MX_B_UserArgs_MT128x160x64_MI16x16x1_SN_LDSB0"),
    rule("FP32", _TENSILE + r"[sc]", "Tensile S, and C for complex",
         "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN", "Cijk_Ailk_Bljk_CB_MT32x32x8_SE"),
    rule("FP64", _TENSILE + r"[dz]", "Tensile D, and Z for complex", "Cijk_Ailk_Bljk_DB_MT64x64x16_MI16x16x4x1_SN"),
    # Two formats in one kernel.
    rule("mixed", r"marlin|wna16|w[48]a16|w4a8|(?<![a-z])awq_|gptq|fpa_intb|4bit_inference|int8_sv_f|afp8_wfp4",
         "weights in fewer bits than activations, or Q K in other types than P V",
         "void marlin_moe_wna16::Marlin<1125899906909960l, 562949953487106l, 1125899906909960l, 281474976710660l, 256>",
         "void kgemm_4bit_inference_naive<__nv_bfloat16, 128, 16>(int, int, int, __nv_bfloat16*, unsigned char*, float*)",
         "qk_int8_sv_f8_accum_f32_attn_kernel", "awq_gemm_kernel"),
    rule("mixed", r"\A(?!.*(?:(?<!fb)gemm|matmul|fmha|flash|attention))"
         r".*?(?:quant(?!il|it|um)|_qparam|_to_h?fp8|fp8\w{0,20}_to_|float\w{0,10}_copy_kernel|cast_transpose)",
         "converts between two formats",
         "void vllm::scaled_fp8_quant_kernel<c10::BFloat16>(c10::Float8_e4m3fn*, c10::BFloat16 const*, float const*, long)",
         "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)"
         "::{lambda(float)#1}, std::array<char*, 2ul> >",
         "void fbgemm_gpu::_FP8rowwise_to_float_cuda_kernel<float>",
         "void fbgemm_gpu::_get_FP8_qparam_cuda_kernel<float>",
         "void at::native::vectorized_elementwise_kernel<4, fbgemm_gpu::_float_to_hfp8_gpu(at::Tensor const&, long, long, "
         "double)::{lambda(float)#1}, at::detail::Array<char*, 2> >",
         "void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>(float*, unsigned char*, float*, __nv_bfloat16*, int, int)"),
    rule("mixed", r"\A(?=[^\n]*?(?<!u)e[45]m[23])[^\n]*?e2m1", "an FP8 and an FP4 input",
         "void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<(cute::UMMA::Major)0, (cute::UMMA::Major)0, 128u, 128u, "
         "cutlass::float_e4m3_t, cutlass::detail::float_e2m1_unpacksmem_t, float>"),
    # Types of few bits anywhere in the name: they are the inputs, wider ones the accumulator or the output.
    rule("FP4", r"e2m1|xf4_", "E2M1, the 4-bit float",
         "cutlass3x_sm100_bstensorop_s256x192x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32_f16_f16_256x192x256_0_tnn",
         "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
         "cutlass::gemm::collective::CollectiveMma<cutlass::nv_float4_t<cutlass::float_e2m1_t>"),
    rule("FP8", r"(?<!u)e4m3|e5m2|float8", "E4M3 or E5M2, the 8-bit floats",
         "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x128_warpgroupsize1x1x1_execute_segment_k_off_kernel",
         "void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<(cute::UMMA::Major)0, 128u, true, (deep_gemm::GemmType)0, false, "
         "cutlass::float_e4m3_t, cutlass::float_e4m3_t, cutlass::bfloat16_t>"),
    rule("mixed", r"fp8_fp4|fp4_fp8", "an FP8 and an FP4 input", "void deep_gemm::sm120_fp8_fp4_gemm_1d1d_impl<0u, 4u, 4096u>"),
    rule("FP4", r"(?<![a-z])a?fp4|nvfp4|mxfp4", "says fp4", "mfma_moe1_silu_mul_afp4_wfp4_t128x128x256",
         "nvfp4_block_scaled_grouped_mm"),
    rule("FP8", r"(?<![a-z])[ah]?fp8(?!kvcachedatatype)", "says fp8; vLLM's Fp8KVCacheDataType also stands for none",
         "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u, 1u, 128u>", "_w8a8_block_fp8_matmul",
         "_grouped_fp8_persistent_gemm_kernel"),
    rule("INT8", r"(?<![a-z])imma|i8816|i16832|xmma_\w{0,40}_i8|dp4a", "8-bit integer matrix instructions",
         "ampere_int8_i16832gemm_int8_128x128_ldg16_relu_stages_64x3_tn", "turing_int8_i8816cudnn_int8_128x128_ldg16_relu",
         "sm80_xmma_gemm_i8i32_i8i32_i32_tn_n_tilesize128x128x64_stage3"),
    rule("TF32", r"tf32|tfloat32|xf32", "says tf32",
         "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4",
         "cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_64x128_32x3_nhwc_align4>",
         "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS_10tfloat32_tE",
         "void deep_gemm::sm90_tf32_hc_prenorm_gemm_impl<24u, 16384u, 64u, 32u>"),
    rule("TF32", r"cutlass_80_tensorop_s1688(?:gemm|fprop|dgrad|wgrad)(?!_b?f16)",
         "tensor cores of Ampere on 32-bit floats: the 16x8x8 product with no 16-bit type named",
         "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>"),
    rule("BF16", r"bf16|bfloat16|df16b|bhalf", "says bfloat16",
         "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>",
         "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
         "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*>>",
         "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
         "_ZN4vllm39paged_attention_ll4mi_QKV_mfma16_kernelI13__hip_bfloat16EEvv", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
    rule("BF16", r"\A(?=[^\n]*?(?<!\w)ck(?:_tile)?::)[^\n]*?unsigned short", "Composable Kernel keeps bfloat16 in unsigned short",
         "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVS<unsigned short, float>"),
    rule("FP16", r"c10::half|__half|half_t|(?<![a-z_])half|(?<!b)f(?:p|loat)?16(?!\d)|df16_|(?<![a-z])h(?:16816|1688|884|gemm)",
         "says half",
         "void softmax_warp_forward<c10::Half, c10::Half, float, 10, false, false>",
         "volta_fp16_s884cudnn_fp16_128x128_ldg8_splitK_relu_f2f_exp_small_nhwc_tn_v1",
         "void flashinfer::norm::RMSNormKernel<(unsigned int)8, __half>(T2 *, T2 *, T2 *, unsigned int, float)",
         "volta_h884gemm_64x64_ldg8_tn", "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32_wt32x32x8",
         "fmha_cutlassF_f16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>::Params)",
         "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<c10::Half, float, c10::Half>"),
    rule("FP16", r"(?<![a-z])(?:hmma|s884)", "tensor cores of Volta take FP16 only",
         "volta_hmma_implicit_gemm_fprop_fp32_nhwc_128x128x64x1_1x3x3x0x1", "volta_s884gemm_128x64_ldg8_nn"),
    rule("FP64", r"(?<![a-z])[dz]gemm|d884|(?<![a-z])f(?:p|loat)?64(?!\d)", "double in the name of the function",
         "volta_dgemm_64x64_nt", "cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1",
         "sm80_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16"),
    rule("FP32", r"(?<![a-z])(?:s|c|gc)gemm|scudnn|(?<!acc_)(?<!accum_)(?<![a-z])f(?:p|loat)?32(?!\d)",
         "single in the name of the function",
         "volta_sgemm_64x64_nt", "ampere_sgemm_128x64_nn", "ampere_gcgemm_64x64_nt",
         "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1",
         "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4",
         "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>",
         "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1"),
    rule("FP16", r"-dtype_half\b", "MTIA names the type of a kernel's tensors", "fc-dtype_Half"),
    rule("FP32", r"-dtype_float\b", "MTIA names the type of a kernel's tensors", "fc-dtype_Float"),
    # Arguments of PyTorch's functors. The lambda of the innermost dispatch is the most reliable one; `gpu_kernel_impl` adds `lambda(int)`
    # over the index, which has no information.
    rule("FP64", r"lambda\((?:bool, )?(?:c10::complex<)?double", "the functor takes doubles",
         "void at::native::vectorized_elementwise_kernel<4, at::native::log2_kernel_cuda(at::TensorIteratorBase&)::"
         "{lambda()#2}::operator()() const::{lambda()#1}::operator()() const::{lambda(double)#1}, at::detail::Array<char*, 2> >"),
    rule("FP32", r"lambda\((?:bool, )?(?:c10::complex<)?float", "the functor takes floats",
         "void at::native::vectorized_elementwise_kernel<4, at::native::nan_to_num_kernel_cuda(at::TensorIteratorBase&, "
         "c10::optional<double>, c10::optional<double>)::{lambda()#1}::operator()() const::{lambda(float)#1}, Array<char*, 2> >",
         "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::"
         "[lambda() (instance 3)]::operator ()() const::[lambda(float) (instance 1)], std::array<char *, (unsigned long)2>>"),
    rule("INT8", r"operator ?\(\)\(\) const::[\[{]lambda\((?:bool, )?(?:un)?signed char", "the functor takes 8-bit integers",
         "void at::native::vectorized_elementwise_kernel<4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
         "{lambda()#3}::operator()() const::{lambda(unsigned char)#1}, at::detail::Array<char*, 2> >"),
    rule("INT32", r"operator ?\(\)\(\) const::[\[{]lambda\((?:bool|int|long|short)\b", "the functor takes integers",
         "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
         "{lambda()#2}::operator()() const::{lambda(long)#1}, at::detail::Array<char*, 2> >",
         "void at::native::vectorized_elementwise_kernel<2, at::native::where_kernel_impl(at::TensorIterator &)::"
         "[lambda() (instance 1)]::operator ()() const::[lambda(bool, long, long) (instance 1)], std::array<char *>>"),
    rule("INT32", r"radixsort\w{0,40}policy<(?:unsigned )?(?:int|long|bool)", "sorts integer keys; the values only move along",
         "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, float, int>::Policy800, false, long, float>"),
    rule("FP32", r"\A[^\n]*?[<,] ?float[234]?\b|_(?:sum|max|min|prod|avg)_float\b", "a float template argument",
         "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>>",
         "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float, float, float, float, cudnnTensorStruct)",
         "void gemv2N_kernel<int, int, float, float, float, float, 128, 8, 4, 4, 1, false>",
         "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"),
    rule("FP64", r"\A[^\n]*?[<,] ?double[24]?\b", "a double template argument",
         "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<double>, at::detail::Array<char*, 1> >",
         "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<double, at::native::sum_functor<double, double, double>>"),
    rule("INT8", r"\A[^\n]*?<(?:un)?signed char\b|(?<![a-z])u?int8(?:_t)?(?![a-z0-9])", "an 8-bit template argument, or says int8",
         "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<unsigned char>, Array<char*, 3> >",
         "ncclDevKernel_AllReduce_Sum_int8_RING_LL"),
    rule("INT32", r"\A[^\n]*?<(?:(?:true|false|\d+|\(\w{1,20}\)\d+), ?){0,2}(?:bool|int|long|short)\b",
         "an integer as first type of the template arguments; after many numbers it is the type of an index",
         "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<long>, at::detail::Array<char*, 3> >",
         "void linearize_index_kernel<long>(at::GenericPackedTensorAccessor<int, 1ul>)",
         "void fbgemm_gpu::permute_2D_data_kernel<false, int, int, decltype(nullptr)>"),
    # Kernels that are not templates: their pointers.
    rule("FP64", r"\n[^\n]*?\bdouble(?: const)? ?\*", "a pointer to double", "void axpy_kernel(double*, double const*, int)"),
    rule("FP32", r"\n[^\n]*?(?:\bfloat[24]?(?: const)? ?\*|<float\b)", "a pointer to float",
         "fused_bias_act(float*, float const*, int)"),
    rule("INT32", r"\n[^\n]*?(?:\b(?:int|long)(?: const)? ?\*|<(?:int|long)\b)", "integer pointers only",
         "split_embedding_backward_codegen_rowwise_adagrad_weighted_find_long_segments("
         "at::GenericPackedTensorAccessor<int, 1ul, at::RestrictPtrTraits, int>, int)"),
)  # fmt: skip


def precision_rule(name: str) -> NameRule | None:
    """Return the first row of PRECISION_RULES that matches a kernel's name, or None."""
    text = "\n".join(normalized(name))
    return next((row for row in PRECISION_RULES if row.pattern.search(text)), None)


def precision(name: str) -> str:
    """Return the kernel's precision, one of PRECISIONS (see the top of this file)."""
    row = precision_rule(name)
    return row.value if row else "unknown"
