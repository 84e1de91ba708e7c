"""Device work of one training step of the simulated model.

The model is a GPT of 12 layers, width 1408 and 11 heads (356 million parameters) that trains on 12 sequences of 2048
tokens per GPU under BF16 autocast. Layer norms, the loss and the optimizer stay in FP32, the output layer in TF32.
Durations are those that an H100 needs at a usual efficiency.
"""

from __future__ import annotations

from typing import NamedTuple

LAYERS = 12
PARAMETERS = 356_000_000
STREAM_COMPUTE = 7
STREAM_COLLECTIVES = 20


class Work(NamedTuple):
    """One piece of device work: a kernel, a collective, a copy or a memset. Times in ns, sizes in bytes."""

    kind: str  # kernel, collective, gpu_memcpy, gpu_memset
    phase: str
    operator: str
    name: str
    duration: int
    grid: int = 0
    block: int = 0
    registers: int = 0
    shared_memory: int = 0
    bytes: int = 0


def _kernel(phase: str, operator: str, name: str, microseconds: int, grid: int, block: int, registers: int) -> Work:
    gemm_like = block >= 256 and registers >= 128
    return Work("kernel", phase, operator, name, microseconds * 1000, grid, block, registers, 213_040 if gemm_like else 0)


def _elementwise(functor: str, arrays: int = 2) -> str:
    array = f"std::array<char*, {arrays}ul>"
    return f"void at::native::vectorized_elementwise_kernel<4, {functor}, {array} >(int, {functor}, {array})"


def _multi_tensor(metadata: str, functor: str, arguments: str) -> str:
    prefix = "at::native::(anonymous namespace)::"
    head = f"void {prefix}multi_tensor_apply_kernel<{prefix}{metadata}, {prefix}{functor}, {arguments}>"
    return f"{head}({prefix}{metadata}, {prefix}{functor}, {arguments})"


_FLASH = "pytorch_flash::Flash_"
_FLASH_FORWARD = (
    f"void pytorch_flash::flash_fwd_kernel<{_FLASH}fwd_kernel_traits<128, 128, 64, 4, false, false, "
    f"cutlass::bfloat16_t, {_FLASH}kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t> >, "
    f"false, true, false, false, true, true, false>({_FLASH}fwd_params)"
)
_FLASH_BACKWARD = (
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<"
    f"{_FLASH}bwd_kernel_traits<128, 64, 128, 8, 2, 4, 2, false, false, "
    f"cutlass::bfloat16_t, {_FLASH}kernel_traits<128, 64, 128, 8, cutlass::bfloat16_t> >, "
    f"false, true, false, false, true, true>({_FLASH}bwd_params)"
)
_CUBLAS = "execute_segment_k_off_kernel__5x_cublas"
_BF16_TN = f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_{_CUBLAS}"
_BF16_NT = f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize128x128x64_warpgroupsize1x1x1_{_CUBLAS}"
_TF32_TN = f"sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_{_CUBLAS}"
_TF32_NT = f"sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32_warpgroupsize1x1x1_{_CUBLAS}"
_SGEMM = "cutlass_80_simt_sgemm_128x32_8x5_nn_align1"
_NATIVE = "at::native::(anonymous namespace)::"
_LAYER_NORM = (
    f"void {_NATIVE}vectorized_layer_norm_kernel<float, float>"
    "(int, float, float const*, float const*, float const*, float*, float*, float*)"
)
_LAYER_NORM_BACKWARD = (
    f"void {_NATIVE}layer_norm_grad_input_kernel_vectorized<float, float>"
    "(float const*, float const*, float const*, float const*, float const*, float*, int)"
)
_BF16_CASE = "::{lambda()#2}::operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}"
_GELU = f"at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType){_BF16_CASE}"
_GELU_BACKWARD = (
    "at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)"
    "::{lambda()#2}::operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16, c10::BFloat16)#1}"
)
_TO_BF16 = "at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}"
_EMBEDDING = (
    f"void {_NATIVE}indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>"
    "(at::cuda::detail::TensorInfo<float, unsigned int>, at::cuda::detail::TensorInfo<float const, unsigned int>, "
    "at::cuda::detail::TensorInfo<long const, unsigned int>, int, int, unsigned int, unsigned int, long)"
)
_EMBEDDING_BACKWARD = (
    f"void {_NATIVE}embedding_backward_feature_kernel<float, float, long>(long const*, float const*, float*, int, long, int)"
)
_SOFTMAX = f"void {_NATIVE}cunn_SoftMaxForward<4, float, float, float, {_NATIVE}LogSoftMaxForwardEpilogue>(float*, float const*, int)"
_SOFTMAX_BACKWARD = (
    f"void {_NATIVE}cunn_SoftMaxBackward<4, float, float, float, {_NATIVE}LogSoftMaxBackwardEpilogue>"
    "(float*, float const*, float const*, long)"
)
_LOSS = (
    f"void {_NATIVE}nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>"
    "(float*, float*, float const*, long const*, float const*, bool, long, long, long, long)"
)
_LOSS_BACKWARD = (
    f"void {_NATIVE}nll_loss_backward_reduce_cuda_kernel_2d<float, long>"
    "(float*, float const*, long const*, float const*, float const*, bool, int, int, long, long)"
)
_BIAS_SUM = (
    "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, at::native::func_wrapper_t<"
    "c10::BFloat16, at::native::sum_functor<c10::BFloat16, float, c10::BFloat16>::operator()(at::TensorIterator&)"
    "::{lambda(float, float)#1}>, unsigned int, c10::BFloat16, 4> >"
)
_ADAM = _multi_tensor(
    "FusedOptimizerTensorListMetadata<4>",
    "FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>",
    "float const*, double, double, double, double, double, bool, float const*, float const*",
)
_NORM = _multi_tensor("TensorListMetadata<1>", "LpNormFunctor<float, (at::native::NormType)1, float, 1, 1, 0>", "float*, int")
_CLIP = _multi_tensor("TensorListMetadata<1>", "BinaryOpScalarTensorFunctor<float, 1, 1, 0>", "float*, float")

_F, _B, _O = "Forward", "Backward", "Optimizer"
_FORWARD_LAYER = (
    _kernel(_F, "aten::layer_norm", _LAYER_NORM, 140, 24_576, 128, 40),
    _kernel(_F, "aten::addmm", "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", 740, 132, 384, 168),
    _kernel(_F, "aten::_flash_attention_forward", _FLASH_FORWARD, 690, 2_112, 128, 255),
    _kernel(_F, "aten::linear", _BF16_TN, 1_420, 8_448, 384, 168),
    _kernel(_F, "aten::gelu", _elementwise(_GELU), 210, 270_336, 128, 26),
)
_BACKWARD_LAYER = (
    _kernel(_B, "GeluBackward0", _elementwise(_GELU_BACKWARD, 3), 330, 270_336, 128, 32),
    _kernel(_B, "AddmmBackward0", "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NNT", 2_050, 132, 384, 168),
    _kernel(_B, "aten::mm", _BF16_NT, 1_950, 4_224, 384, 168),
    _kernel(_B, "FlashAttentionBackward0", _FLASH_BACKWARD, 1_640, 176, 256, 255),
    _kernel(_B, "NativeLayerNormBackward0", _LAYER_NORM_BACKWARD, 290, 24_576, 128, 44),
    _kernel(_B, "aten::sum", _BIAS_SUM, 140, 704, 128, 32),
)
_ZERO_GRADIENTS = Work("gpu_memset", _F, "aten::zero_", "Memset (Device)", 590_000, bytes=4 * PARAMETERS)
_SPLIT_K_WORKSPACE = Work("gpu_memset", _B, "aten::mm", "Memset (Device)", 5_200, bytes=8_519_680)

FORWARD: tuple[Work, ...] = (
    _ZERO_GRADIENTS,
    _kernel(_F, "aten::to", _elementwise(_TO_BF16), 880, 695_313, 128, 16),
    _kernel(_F, "aten::embedding", _EMBEDDING, 190, 1_056, 128, 32),
    *_FORWARD_LAYER * LAYERS,
    _kernel(_F, "aten::layer_norm", _LAYER_NORM, 140, 24_576, 128, 40),
    _kernel(_F, "aten::mm", _TF32_TN, 4_300, 8_256, 384, 168),
    _kernel(_F, "aten::_log_softmax", _SOFTMAX, 1_050, 24_576, 1024, 32),
    _kernel(_F, "aten::nll_loss", _LOSS, 9, 1, 32, 24),
)
BACKWARD: tuple[Work, ...] = (
    _kernel(_B, "NllLossBackward0", _LOSS_BACKWARD, 410, 48, 512, 20),
    _kernel(_B, "LogSoftmaxBackward0", _SOFTMAX_BACKWARD, 1_150, 24_576, 1024, 32),
    _kernel(_B, "MmBackward0", _TF32_NT, 4_350, 8_256, 384, 168),
    _kernel(_B, "aten::mm", _TF32_TN, 4_250, 4_158, 384, 168),
    _kernel(_B, "aten::mv", f"void cutlass::Kernel2<{_SGEMM}>({_SGEMM}::Params)", 620, 1_584, 256, 94),
    _SPLIT_K_WORKSPACE,
    *_BACKWARD_LAYER * LAYERS,
    _kernel(_B, "EmbeddingBackward0", _EMBEDDING_BACKWARD, 760, 44, 1024, 40),
)
OPTIMIZER: tuple[Work, ...] = (
    *(_kernel(_O, "aten::_foreach_norm", _NORM, 270, 3_200, 512, 32),) * 2,
    _kernel(_O, "aten::_foreach_mul_", _CLIP, 540, 3_200, 512, 28),
    *(_kernel(_O, "aten::_fused_adamw_", _ADAM, 1_150, 3_200, 512, 64),) * 3,
)

# Gradient buckets in the order in which backward fills them. The last one contains only the rest from the first layer.
_BUCKET_BYTES = (*(236_000_000,) * 6, 8_000_000)
_BUS_BYTES_PER_NANOSECOND = 62.0
_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def gradient_buckets(world_size: int) -> tuple[Work, ...]:
    """Return a step's all-reduces in launch order; the slowest rank has these times."""
    if world_size == 1:
        return ()
    factor = 2 * (world_size - 1) / world_size / _BUS_BYTES_PER_NANOSECOND
    return tuple(
        Work("collective", _B, "c10d::allreduce_", _ALL_REDUCE, int(size * factor), 24, 544, 96, 84_904, size) for size in _BUCKET_BYTES
    )


TOKEN_COPY = Work("gpu_memcpy", "DataLoader", "aten::to", "Memcpy HtoD (Pinned -> Device)", 9_400, bytes=12 * 2048 * 2 * 8)
FEATURE_COPY_PINNED = Work("gpu_memcpy", "DataLoader", "aten::to", "Memcpy HtoD (Pinned -> Device)", 720_000, bytes=36_000_000)
FEATURE_COPY_PAGEABLE = Work("gpu_memcpy", "DataLoader", "aten::to", "Memcpy HtoD (Pageable -> Device)", 3_900_000, bytes=36_000_000)
LOSS_COPY = Work("gpu_memcpy", "Step", "aten::_local_scalar_dense", "Memcpy DtoH (Device -> Pinned)", 1_900, bytes=4)
