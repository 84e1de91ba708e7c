"""Inference jobs with planted causes: vLLM, SGLang, Transformers and Diffusers, eager or by CUDA graph."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from job_engine import MS, US, Engine, Program, Rank, Work
from job_trace import Group
from training_jobs import AMD_GEMM, BF16, ELEMENTWISE, FP32

PAGED: Final = "void vllm::paged_attention_v2_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128, (vllm::Fp8KVCacheDataType)0, false, 512>"
FLASHINFER: Final = "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2, 8, 16, 8, 1>"
FLASH: Final = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, cutlass::bfloat16_t>, true>"
NORM: Final = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
ALL_REDUCE: Final = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, vllm::RankSignals)"


@dataclass(frozen=True, slots=True)
class Inference:
    """An inference job of iterations. Times in ms, of kernels in µs.

    ``engine``: vllm, sglang, transformers or diffusers. Every ``prefill_every``-th iteration is a prefill of ``prefill_ms`` kernel time.
    ``scheduler_ms``: host work between two iterations. ``prepare_ms``: host work of an iteration before its first launch. ``elementwise``:
    kernels of 0.3 ``kernel_us`` in a row after each norm, as eager code without fusion launches them."""

    engine: str = "vllm"
    iterations: int = 30
    prefill_every: int = 10
    prefill_ms: float = 30.0
    kernels: int = 32
    kernel_us: float = 120.0
    graphs: bool = True
    host_us: float = 9.0
    scheduler_ms: float = 0.15
    prepare_ms: float = 0.0
    elementwise: int = 0
    batch: int = 32
    tensor_parallel: int = 1
    all_reduce_us: float = 8.0
    nccl: bool = False
    precision: str = "bf16"
    gpu: str = "H100"
    gpus_per_node: int = 8
    stacks: bool = False
    metadata: bool = True
    recorded: tuple[int, ...] | None = None
    recorded_from: int = 0
    skew_us: tuple[int, ...] = ()
    seed: int = 1

    @property
    def world_size(self) -> int:
        return self.tensor_parallel

    def groups_of(self, rank: int) -> tuple[Group, ...]:
        return (Group("2", "tp", tuple(range(self.tensor_parallel))),) if self.tensor_parallel > 1 else ()


def _title(job: Inference, number: int, prefill: bool) -> str | None:
    tokens = 2048
    if job.engine == "vllm":
        context, decode = (f"2({tokens})", f"{job.batch}({job.batch})") if prefill else ("0(0)", f"{job.batch}({job.batch})")
        return f"execute_context_{context}_generation_{decode}"
    if job.engine == "sglang":
        return f"step[EXTEND bs=2 toks={tokens}]" if prefill else f"step[DECODE bs={job.batch} toks={job.batch}]"
    if job.engine == "diffusers":
        return f"execute_diffusion_denoise_step_{number}"
    return None


_FRAMES: Final = {
    "vllm": "vllm/v1/worker/gpu_model_runner.py(1540): execute_model",
    "sglang": "sglang/srt/managers/scheduler.py(1180): run_batch",
    "transformers": "transformers/generation/utils.py(3200): _sample",
    "diffusers": "diffusers/pipelines/stable_diffusion_3/pipeline_stable_diffusion_3.py(1020): __call__",
}
_SCHEDULERS: Final = {
    "vllm": "vllm/v1/core/sched/scheduler.py(170): schedule",
    "sglang": "sglang/srt/managers/scheduler.py(900): get_next_batch_to_run",
    "transformers": "transformers/generation/logits_process.py(80): __call__",
    "diffusers": "diffusers/schedulers/scheduling_flow_match_euler_discrete.py(300): step",
}


def _program(job: Inference, rank: Rank) -> Program:
    gemm = AMD_GEMM if job.gpu == "MI300X" else {"bf16": BF16, "fp32": FP32}[job.precision]
    attention = {"vllm": PAGED, "sglang": FLASHINFER}.get(job.engine, FLASH)
    operator = {"vllm": "vllm::unified_attention_with_output", "sglang": "sgl_kernel::rmsnorm"}.get(
        job.engine, "aten::scaled_dot_product_attention"
    )
    if job.stacks:
        rank.frames.append(rank.new_id())
    work: Work | None = None
    for number in range(job.iterations):
        with rank.frame(_SCHEDULERS[job.engine]):
            rank.spend(job.scheduler_ms * MS)
        prefill = job.engine in ("vllm", "sglang") and number % job.prefill_every == 0
        with rank.range(_title(job, number, prefill)), rank.frame(_FRAMES[job.engine]):
            rank.spend(job.prepare_ms * MS)
            ns = job.prefill_ms * MS / job.kernels if prefill else job.kernel_us * US
            plan = [(gemm, "aten::mm"), (attention, operator), (gemm, "aten::mm"), (NORM, "aten::layer_norm")]
            graph = None
            if job.graphs and not prefill:
                graph = rank.new_id(), rank.new_id()
                start = rank.clock
                rank.clock += 25 * US
                rank.record(
                    "cuda_runtime", "cudaGraphLaunch", start, rank.clock, **{"External id": graph[0], "cbid": 311, "correlation": graph[1]}
                )
            for kernel in range(job.kernels):
                name, called = plan[kernel % 4]
                part = ns * (0.1 if name is NORM else 1.3)
                if graph:
                    work = Work(
                        name, "kernel", 7, max(1, int(part)), rank.clock + 4 * US, graph[1], graph[0], rank.last.get(7), (),
                        {"graph node id": kernel}, launched=rank.clock - 1,
                    )  # fmt: skip
                    rank.last[7] = work
                    rank.works.append(work)
                else:
                    rank.spend(max(0.0, job.host_us - 9) * US)
                    work = rank.launch(called, name, part)
                    for _ in range(job.elementwise if name is NORM else 0):
                        work = rank.launch("aten::mul", ELEMENTWISE, ns * 0.3)
                if job.tensor_parallel > 1 and kernel % 4 == 3:
                    _all_reduce(job, rank, graph)
            rank.launch("aten::argmax", ELEMENTWISE, 6 * US)
        with rank.frame("sampler.py(60): to_list"):
            yield from rank.item(nbytes=job.batch * 8, line="sampler.py(61): tolist", operator="aten::to")
    yield from rank.wait(work, "cudaDeviceSynchronize")


def _all_reduce(job: Inference, rank: Rank, graph: tuple[int, int] | None) -> None:
    members = tuple(range(job.tensor_parallel))
    if graph and not job.nccl:
        before = rank.last[7]
        count = rank.sequence.get(("tp",), 0)
        rank.sequence["tp",] = count + 1
        work = Work(
            ALL_REDUCE, "kernel", 7, int(job.all_reduce_us * US), before.ready, graph[1], graph[0], before, (), {"graph node id": 900},
            ("tp", count), members, launched=rank.clock - 1,
        )  # fmt: skip
        rank.last[7] = work
        rank.works.append(work)
        return
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    elements = job.batch * 8192
    rank.launch(
        "c10d::allreduce_", name if job.nccl else ALL_REDUCE, job.all_reduce_us * US, key=("tp-eager",), members=members, noise=0,
        **{
            "Collective name": "allreduce", "dtype": "BFloat16", "Group size": len(members),
            "In msg nelems": elements, "Out msg nelems": elements,
            "Process Group Name": "2", "Process Group Description": "tp", "Process Group Ranks": str(list(members)),
        },
    )  # fmt: skip


def simulate_inference(job: Inference) -> list[Rank]:
    """Return the ranks of an inference job with all their records."""
    ranks = [
        Rank(number, 7000 + number, Random(f"{job.seed}.{number}"), ahead=10_000, host_ns=int(min(job.host_us, 9) * US), stacks=job.stacks)
        for number in range(job.tensor_parallel)
    ]
    Engine(ranks).run({rank.number: _program(job, rank) for rank in ranks})
    return ranks
