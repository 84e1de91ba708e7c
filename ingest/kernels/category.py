"""The category of work that a kernel does, by its name.

The category is the purpose of the kernel, not its method. Ambiguous names are sorted as follows:

* memory: copies, casts, quantization, fills, concatenation, transposes, padding: values are not changed, only their
  location or format. KV cache: writes of keys and values to their cache.
* GEMM: matrix and matrix-vector products, with their split-K sums and epilogues; also of a mixture of experts.
* convolution: also its own helpers (offset tables, Winograd and FFT transforms, im2col), not layout changes.
* reduction: also pooling (a reduction of windows), scans and loss sums. softmax includes cross entropy.
* embedding/index: look-ups and their gradients (with an optimizer fused in), gather, scatter, sort, top-k.
* MoE routing: choice of the experts, and the order of tokens for them; their products are GEMM.
* sampling: choice of the next token, and other draws from a distribution.
* optimizer: also everything run over lists of tensors (`multi_tensor_apply`), as optimizers and gradient clipping do.
* elementwise: also activations, dropout, random numbers, rotary embeddings.
* other: the name does not show it.
"""

from __future__ import annotations

from typing import Final

from .text import NameRule, normalized, rule

CATEGORIES: Final[tuple[str, ...]] = (
    "GEMM", "attention", "convolution", "normalisation", "elementwise", "reduction", "softmax", "embedding/index",
    "KV cache", "MoE routing", "sampling", "optimizer", "memory", "communication", "other",
)  # fmt: skip

# Searched in the complete name, however long: the time breakdown depends on it.
_COMMUNICATION: Final = NameRule(
    "communication",
    r"(?i)[nrhx]ccl|oneccl|msccl|deep_ep|cross_device_reduce|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"
    r"|multimem_|(?:one|two)_?shot_|nvshmem|rocshmem|userbuffers|quick_?reduce|(?:put|wait)_signal_kernel",
    "a collective or a transfer between ranks",
    (
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, vllm::RankSignals)",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<__nv_bfloat16, 8, false>",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, float*, int*)",
        "hccl:broadcast", "two_shot_all_reduce_kernel_inplace", "userbuffers_fp16_sum_gpu_mc_rmsnorm",
        "void nvshmemi_transfer_rma_nbi<(threadgroup_t)0>", "multimem_broadcast_kernel",
    ),
)  # fmt: skip

_TRITON: Final = r"\Atriton_"

# Searched in the lower-case function with its template arguments, without parameters. First match wins.
CATEGORY_RULES: Final[tuple[NameRule, ...]] = (
    _COMMUNICATION,
    # Inductor names a kernel after its kind (poi = pointwise, red and per = reductions, tem = template) and its operators.
    rule("GEMM", _TRITON + r"(?:tem_\w*?|)(?:mm|bmm|addmm|baddbmm)_", "Inductor template of a matrix product",
         "triton_tem_fused_addmm_relu_3", "triton_mm_12"),
    rule("attention", _TRITON + r"tem_\w*?(?:attention|sdpa)", "Inductor template of attention", "triton_tem_fused_flex_attention_0"),
    rule("convolution", _TRITON + r"tem_\w*?conv", "Inductor template of a convolution", "triton_tem_fused_convolution_4"),
    rule("embedding/index", _TRITON + r"poi_\w*?(?:embedding|index|gather|scatter)", "Inductor pointwise with look-up",
         "triton_poi_fused_embedding_0"),
    rule("memory", _TRITON + r"poi_fused_(?:_?(?:to_copy|clone|cat|copy|view|transpose|permute|t|expand|slice|split|stack|unsafe_view"
         r"|constant_pad_nd|zeros|zeros_like|full|full_like|fill|reshape|select|unsqueeze|squeeze|arange)_)+\d+",
         "Inductor pointwise with nothing but copies", "triton_poi_fused__to_copy_0", "triton_poi_fused_cat_clone_7"),
    rule("elementwise", _TRITON + r"(?:poi|for)_", "Inductor pointwise", "triton_poi_fused_add_mul_silu_2",
         "triton_poi_fused_convolution_relu_1"),
    rule("softmax", _TRITON + r"(?:red|per)_\w*?(?:softmax|logsumexp|nll_loss|cross_entropy)", "Inductor softmax",
         "triton_per_fused__softmax_5", "triton_red_fused__log_softmax_nll_loss_forward_9"),
    rule("normalisation", _TRITON + r"(?:red|per)_\w*?(?:norm|rsqrt|var_mean|welford)",
         "Inductor reduction that ends in a norm or a reciprocal root",
         "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_view_6", "triton_per_fused_native_layer_norm_3"),
    rule("reduction", _TRITON + r"(?:red|per|split)_", "Inductor reduction", "triton_red_fused_sum_11"),
    # These would otherwise count as attention.
    rule("KV cache", r"reshape_and_cache|concat_and_cache|store_?kv|set_\w{0,20}kv_?buffer|kv_?cache_?(?:store|write"
         r"|append|insert|copy)|appendpagedkv",
         "writes keys and values to their cache",
         "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>",
         "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, __nv_bfloat16>", "set_mla_kv_buffer_kernel"),
    rule("elementwise", r"rotary|(?<![a-z])rope|mlarope", "rotary position embedding",
         "void vllm::rotary_embedding_kernel<c10::BFloat16, true>", "_triton_rope", "applyMLARopeAndAssignQKVKernelGeneration",
         "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheHeadParallelismKernel<true, 128u, 8u, 16u, __half>"),
    rule("softmax", r"attn_softmax|masked_softmax", "softmax of unfused attention",
         "void attn_softmax_v2<__half, 1>", "void scaled_upper_triang_masked_softmax_warp_forward<__nv_bfloat16, float, 11>"),
    rule("normalisation", r"qk_?norm|(?:layer|rms|group|batch|instance)_?norm|norm_?(?:fwd|bwd|forward|backward|kernel|elt)"
         r"|normalization::", "a norm by name",
         "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
         "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>", "void at::native::RowwiseGroupNormKernel<float>",
         "void transformer_engine::normalization::rmsnorm_bwd_finalize_general_kernel<float>",
         "void at::native::batch_norm_collect_statistics_channels_last_kernel<c10::Half, float, 4>",
         "MIOpenBatchNormFwdTrainSpatial", "_layer_norm_fwd_1pass_kernel"),
    rule("normalisation", r"(?<![a-z])bn_(?:fw|bw)|batchnorm|gammabeta|rowwisemoments|(?<![a-z])ln_(?:fwd|bwd|parallel)|welford"
         r"|computefusedparams|computeinternalgradients",
         "a part of a norm, as PyTorch, cuDNN and Apex call them",
         "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>",
         "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>",
         "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>",
         "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float, float>"),
    rule("attention", r"attention|flash_?(?:fwd|bwd|attn|fprop|bprop|mla|decode)|flashattn|flashinfer::.{0,60}attn|fmha|(?<![a-z])attn_"
         r"|_attn|sdpa|(?:prefill|decode)with\w{0,12}kvcache|mla_(?:decode|dec|fwd|prefill|a\d+w\d+)|mqa_logits|bwd_kernel_d[kq]"
         r"|merge_?(?:attn_)?state|fwd_grouped_kernel_stage|flash::|delta_rule",
         "attention by name",
         "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false>",
         "attn_fwd", "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64", "kernel_unified_attention_2d",
         "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x1x1_kernel0_0",
         "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)",
         "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>",
         "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<(flashinfer::MaskMode)1>",
         "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVS>",
         "bwd_kernel_dk_dv", "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
         "aiter::mla_dec_stage1_bf16_a16w16_subQ16_mqa16", "void deep_gemm::sm90_fp8_mqa_logits<64u, 128u, false>"),
    # Layout changes of convolution libraries are memory; everything else of theirs is convolution.
    rule("memory", r"nchw_?to_?nhwc|nhwc_?to_?nchw|tensor_?transform|transpose_?(?:readwrite|packed)", "layout change",
         "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>",
         "void cudnn::engines_precompiled::nhwcToNchwKernel<__nv_bfloat16, __nv_bfloat16, float, true, false>"),
    rule("convolution", r"convol|(?<![a-z])(?:causal_|depthwise_)?conv(?:\d|_|::|$)|conv(?:fwd|bwd|wrw|ocl|bin|asm)"
         r"|asmconv|\dconv\dd|conv[123]d"
         r"|depthwise|fprop|dgrad|wgrad|winograd|implicit_?gemm|im2col|col2im|[shci]cudnn|\dcudnn|cask_cudnn|cutlass_cudnn|fft2d_"
         r"|igemm_(?:fwd|bwd|wrw)",
         "convolution by name or by the name of its pass",
         "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>",
         "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", "volta_fp16_s884cudnn_fp16_128x128_ldg8_splitK_relu_f2f_exp_small_nhwc_tn_v1",
         "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4",
         "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>",
         "void cask_cudnn_infer::computeOffsetsKernel<false, false>", "void fft2d_r2c_32x32<float, false, 5u, true>",
         "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32_wt32x32x8", "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1",
         "void ck::tensor_operation::device::(anonymous namespace)::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<ck::Gridwise>",
         "_causal_conv1d_fwd_kernel", "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>",
         "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolution",
         "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>"),
    # cuBLAS vector routines carry Gemv in their arguments.
    rule("reduction", r"(?<![a-z])(?:dot_kernel|reduce_1block_kernel|asum_kernel|nrm2)", "BLAS dot product or norm",
         "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<float const>, float>>",
         "void reduce_1Block_kernel<float, 128, 7, cublasGemvTensorStridedBatched<float>>"),
    rule("elementwise", r"(?<![a-z])(?:scal|axpy|axpby)_kernel", "BLAS scale and add",
         "void scal_kernel<float, float, 1, false, 6, 5, 5, 3>"),
    rule("MoE routing", r"moe_align|expert_?tokens|expandinputrows|finalizemoe|finalizekernel|routing\w{0,40}kernel"
         r"|topkgating|moe_?(?:un)?permute"
         r"|moe_?sort|sort_chunks|moe_sum|moe_?fused_?gate|topk_?(?:softmax|sigmoid)",
         "routing of a mixture of experts",
         "void vllm::moe::count_and_sort_expert_tokens_kernel<int>", "void vllm::moe::moe_align_block_size_kernel<int>",
         "void moe::dev::finalize::finalizeKernelVecLoad<__nv_bfloat16>", "_sort_chunks_by_map_kernel",
         "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, 32, int>", "void vllm::moe::moe_sum_kernel<c10::BFloat16, 8>"),
    rule("sampling", r"(?<!up)(?<!down)(?<!grid_)sampling|top_?k_?top_?p|top_?p_?(?:renorm|kernel)|gumbel_?sample|samplemultinomial",
         "choice of the next token, or another draw",
         "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u, (cub::BlockScanAlgorithm)1, float, int>",
         "void flashinfer::sampling::TopPSamplingFromProbKernel<1024u, float, int>", "_gumbel_sample_kernel",
         "void at::native::(anonymous namespace)::sampleMultinomialOnce<float, float>"),
    rule("embedding/index", r"(?<!rotary_)(?<!rotary)embedding|lookup_table|pooled_embs", "embedding look-up or its gradient",
         "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<float, float, float, 2ul>",
         "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<c10::BFloat16, float, long>",
         "void permute_pooled_embs_kernel<float>"),
    rule("optimizer", r"adam|adagrad|(?<![a-z])sgd|lamb(?!da)|rmsprop|(?<![a-z])lion(?![a-z])|optimizer|muon|newton_?schulz",
         "an optimizer by name",
         "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float>",
         "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>, "
         "at::native::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>, float const*, double>",
         "void kOptimizerStatic8bit2StateBlockwise<float, 0, 256, 1>",
         "void multi_tensor_apply_kernel<TensorListMetadata<4>, LAMBStage1Functor<float>>"),
    rule("optimizer", r"multi_?tensor_?(?:apply|l2norm|scale)", "runs over a list of tensors",
         "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, "
         "at::native::BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>"),
    rule("GEMM", r"\Afc-dtype_", "fully connected layer of MTIA", "fc-dtype_Float"),
    rule("GEMM", r"(?<!fb)gemm|gemv|cijk_|nvjet|(?<![a-z])bmm_|matmul|splitkreduce|reducesplitk|cublaslt|xdlops"
         r"|fused_moe_kernel|mfma_moe|moe_kernel|aiter::fmoe|5aiter\d+fmoe|wvsplitk|llmm1"
         r"|marlin|machete|epilogue::|(?<![a-z0-9])mm_kernel|scaled_mm|grouped_mm|flatmm|_dot_fusion|mixed_mm|(?<![a-z])w[48]a(?:8|16)|contraction_l_",
         "a matrix product by name, its split-K sum or epilogue",
         "ampere_sgemm_128x64_nn", "nvjet_tst_128x96_64x7_4x1_v_bz_bias_TNT", "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128",
         "bmm_E2m1_E2m1E2m1_Fp32_bA16_bB16_bC16", "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true>",
         "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, float, float, false, true>(float)",
         "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>",
         "void epilogue::impl::globalKernel<float, float, float, true, true>", "fused_moe_kernel",
         "void marlin_moe_wna16::Marlin<1125899906909960l, 562949953487106l>", "_w8a8_block_fp8_matmul",
         "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2, 16, 8, 2, 1>", "_ZN5aiter42fmoe_bf16_blockscaleFp8_g1u1_novs_silu_32x128E",
         "void ck_tile::kentry<1, ck_tile::GroupedGemmKernel<ck_tile::GemmSpatiallyLocalTilePartitioner>"),
    rule("softmax", r"soft_?max|cross_?entropy|logsumexp", "softmax, or the loss on it",
         "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>",
         "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::LogSoftMaxForwardEpilogue>",
         "liger_cross_entropy_kernel"),
    rule("elementwise", r"masked_fill_kernel|where_kernel", "selects between two inputs",
         "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::masked_fill_kernel(at::TensorIterator&)",
         "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::where_kernel_impl(at::TensorIterator&)"),
    rule("memory", r"fillfunctor|fill_?(?:kernel|buffer)|arange|linspace|eye_kernel|memset|zero_?(?:kernel|buffer)|initkernel",
         "writes a constant or a sequence",
         "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >",
         "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out(c10::Scalar const&)>",
         "__amd_rocclr_fillBufferAligned", "void cub::DeviceScanInitKernel<cub::ScanTileState<int, true> >"),
    rule("reduction", r"nll_?loss|nllcriterion", "loss over the rows, one value picked of each",
         "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>",
         "void cunn_ClassNLLCriterion_updateOutput_kernel<float, float>"),
    rule(
        "embedding/index",
        r"index_?(?:select|put|elementwise|copy|add|func|fill|kernel)|gather(?!ed)|scatter|sort|top_?k|searchsorted|nonzero|masked_select"
        r"|deviceselect|devicecompact|uniquebykey|histogram|bincount|linearize_index|bounds_check|offsets_range|permute_indices|permute_\dd"
        r"|to_dense_representation|one_hot|bucketize|compute_cuda_kernel",
        "look-up, sort, selection, or the indices for them",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>",
        "void at::native::vectorized_gather_kernel<16, long>", "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>",
        "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800, false, long, int>",
        "void at::native::_scatter_gather_elementwise_kernel<128, 4, at::native::_cuda_scatter_gather_internal_kernel<true, float>",
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>", "void bounds_check_indices_kernel<long>",
        "void compute_cuda_kernel<long>",
    ),
    rule("elementwise", r"silu|gelu|relu|selu|celu|(?<![a-z])elu|swiglu|geglu|act_?and_?mul|activation|dropout|sigmoid|(?<![a-z])tanh",
         "an activation or dropout",
         "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>",
         "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>",
         "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)"),
    rule("memory", r"quant(?!il|it|um)|_qparam|_to_h?fp8|fp8\w{0,20}_to_|cast_kernel|cast_transpose|_cast_", "changes the format of values",
         "void vllm::scaled_fp8_quant_kernel<c10::BFloat16>", "void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>",
         "void fbgemm_gpu::_compute_FP8_quantize_cuda_kernel<float>",
         "void at::native::vectorized_elementwise_kernel<4, fbgemm_gpu::_hfp8_to_float_gpu(at::Tensor const&, long, long)"),
    rule("memory", r"copy(?!right)|catarray|memcpy|transpose|concat|swapdimension|shuffleintensor|triu_?tril"
         r"|(?<![a-z])(?:flip|roll|pad|repeat)_"
         r"|reflection_pad|split_with_sizes|(?<![a-z])permute|unpadd?ing|multi_padding|remove_pad",
         "moves values without changing them",
         "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::Iter&)",
         "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>",
         "void recat_copy_async_kernel<float>", "batched_transpose_32x32_half", "loop_concatenate_fusion",
         "void tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<unsigned int, 256, 32, 32, false>"),
    rule("reduction", r"reduc|pool|devicescan|scan_(?:innermost|outer)|cumsum|cumprod|arg(?:max|min)|sum_kernel|_sum_|absmax|amax"
         r"|(?<![a-z])mean_|_norm_",
         "sums, extremes, scans and pooling",
         "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>>",
         "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>",
         "void cub::DeviceScanKernel<cub::AgentScanPolicy<128, 15, int>, int*, int*>",
         "void at::native::(anonymous namespace)::adaptive_average_pool<float>",
         "void Eigen::internal::ColumnReduceKernel<256, 8, float>", "input_reduce_fusion_3"),
    rule("elementwise", r"elementwise|pointwise|element_wise|eltwise|op_?tensor|scalepackedtensor|tensor_?scalar|bias"
         r"|eigenmetakernel|(?<![a-z])loop_"
         r"|distribution_|upsample|grid_?sampl|interpolat|(?<![a-z])(?:add|sub|mul|div|scale|clamp|exp|unary|binary)_",
         "one value in, one value out",
         "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >",
         "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::CUDAFunctor_add<float> >",
         "void cudnn::ops::scalePackedTensor_kernel<float, float>", "void tensorflow::BiasNHWCKernel<float>", "loop_add_fusion",
         "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>"),
)  # fmt: skip


def is_communication(name: str) -> bool:
    """Return whether a kernel of this name is communication between ranks."""
    return _COMMUNICATION.pattern.search(name) is not None


def category_rule(name: str) -> NameRule | None:
    """Return the first row of CATEGORY_RULES that matches a kernel's name, or None."""
    if is_communication(name):
        return _COMMUNICATION
    function, _ = normalized(name)
    return next((row for row in CATEGORY_RULES if row.pattern.search(function)), None)


def category(name: str) -> str:
    """Return the kernel's category, one of CATEGORIES (definition: top of this file)."""
    row = category_rule(name)
    return row.value if row else "other"
