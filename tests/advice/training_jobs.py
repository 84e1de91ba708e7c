"""Training jobs with planted causes: data, tensor and pipeline parallel, in the manner of DDP, FSDP, Megatron or plain PyTorch.

A :class:`Training` describes a job and what is wrong with it; :func:`simulate` runs its ranks on one clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from job_engine import MS, US, Engine, Program, Rank, Work
from job_trace import Group

BF16: Final = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
TF32: Final = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
FP32: Final = "ampere_sgemm_128x64_tn"
AMD_GEMM: Final = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x224x64_MI16x16x1_SN_LDSB1"
FLASH: Final = (
    "void pytorch_flash::flash_{way}_kernel<pytorch_flash::Flash_{way}_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t> >"
)
ELEMENTWISE: Final = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl, std::array<char*, 2ul> >"
TRITON: Final = "triton_poi_fused_gelu_native_layer_norm_{n}"
ADAM: Final = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4> >"
LOSS: Final = "void (anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, float, LogSoftMaxForwardEpilogue>"
NCCL: Final = {
    "allreduce": ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "c10d::allreduce_", "nccl:all_reduce"),
    "_allgather_base": (
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "c10d::_allgather_base_", "nccl:_all_gather_base",
    ),
    "_reduce_scatter_base": (
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base",
    ),
    "send": ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "c10d::send", "nccl:send"),
    "recv": ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "c10d::recv_", "nccl:recv"),
}  # fmt: skip
"""Kernel, operator and range of a collective by the name that PyTorch records."""

NVLINK, XGMI, RAIL = 360.0, 300.0, 42.0  # GB/s of bus bandwidth that a group reaches inside a node; per network card between nodes


@dataclass(frozen=True, slots=True)
class Training:
    """A training job. Times in ms.

    ``style``: ddp, fsdp, manual (explicit all-reduces), megatron, or none. ``tuple`` fields are (rank or stage, amount). Everything from
    ``slow_ranks`` to ``graphs`` plants a cause or a circumstance."""

    style: str = "ddp"
    data_parallel: int = 4
    tensor_parallel: int = 1
    pipeline: int = 1
    microbatches: int = 8
    gpus_per_node: int = 8
    gpu: str = "H100"
    layers: int = 4
    steps: int = 6
    layer_ms: float = 6.0  # forward; backward takes twice as long
    optimizer_ms: float = 4.0
    layer_mb: float = 120.0  # gradients
    noise: float = 0.01
    groups: bool = True  # collectives name their groups
    metadata: bool = True  # the trace has distributedInfo
    ranges: bool = True  # of DDP, FSDP and the steps' parts
    step_ranges: bool = True
    stacks: bool = False
    ahead_steps: float = 1.0
    host_us: float = 9.0
    host_scale: float = 1.0  # of the time between launches
    kernels_per_layer: int = 4
    loader_ms: float = 0.2
    loader_range: bool = True
    log_sync: bool = True  # the loss is read once per step, after the optimizer
    slow_ranks: tuple[tuple[int, float], ...] = ()
    slow_from_step: int = 0
    stage_scale: tuple[tuple[int, float], ...] = ()  # the same kernels take longer
    stage_layers: tuple[tuple[int, int], ...] = ()  # number of layers of the stage
    loss_ms: float = 0.0  # on the last stage
    embedding_ms: float = 0.0  # on the first stage
    length_spread: float = 0.0  # relative spread of the work per rank and step
    gc_ms: float = 0.0
    gc_ranks: tuple[int, ...] | None = None  # None: all, at the same step
    gc_every: int = 2
    gc_visible: bool = True
    checkpoint_ms: float = 0.0
    checkpoint_ranks: tuple[int, ...] | None = None
    checkpoint_visible: bool = True
    late_ranks: tuple[tuple[int, float], ...] = ()
    late_range: str | None = "## log_metrics ##"
    slow_groups: tuple[tuple[str, float], ...] = ()  # (group, factor on its transfers)
    transfer_scale: float = 1.0
    overlap: bool = True  # of gradient all-reduces with the backward pass
    prefetch: bool = True  # of FSDP's all-gathers
    synchronous: bool = False  # explicit all_reduce that the host waits for
    items: int = 0  # values read back per step, in the forward pass
    item_host_ms: float = 0.0  # Python after each of them
    blocking_copies: int = 0  # of 704 bytes
    input_host_ms: float = 0.0  # Python after them
    pageable_mb: float = 0.0  # input copied per step
    device_wait_ms: float = 0.0  # the optimizer, launched long before, waits for a host function
    pinned_mb: float = 2.0
    precision: str = "bf16"
    short_kernels: bool = False
    compiled: bool = False
    recompiles: int = 0
    graphs: bool = False
    recorded_from: int = 0
    recorded: tuple[int, ...] | None = None
    skew_us: tuple[int, ...] = ()
    seed: int = 1

    @property
    def world_size(self) -> int:
        return self.data_parallel * self.tensor_parallel * self.pipeline

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """Return stage, data-parallel and tensor-parallel index in Megatron's order."""
        rest, tensor = divmod(rank, self.tensor_parallel)
        stage, data = divmod(rest, self.data_parallel)
        return stage, data, tensor

    def rank_at(self, stage: int, data: int, tensor: int) -> int:
        return (stage * self.data_parallel + data) * self.tensor_parallel + tensor

    def group(self, kind: str, rank: int) -> Group:
        """Return the group of a rank by its kind: dp, tp, pp or embedding."""
        stage, data, tensor = self.coordinates(rank)
        megatron = self.style == "megatron"
        if kind == "dp":
            ranks = tuple(self.rank_at(stage, other, tensor) for other in range(self.data_parallel))
            if not megatron and self.world_size == self.data_parallel:
                return Group("0", "default_pg", ranks)
            return Group(f"dp{stage}.{tensor}", "DATA_PARALLEL_GROUP" if megatron else "mesh_dp", ranks)
        if kind == "tp":
            ranks = tuple(self.rank_at(stage, data, other) for other in range(self.tensor_parallel))
            return Group(f"tp{stage}.{data}", "TENSOR_MODEL_PARALLEL_GROUP" if megatron else "mesh_tp", ranks)
        ranks = tuple(self.rank_at(other, data, tensor) for other in range(self.pipeline))
        if kind == "embedding":
            return Group(f"embedding{data}.{tensor}", "EMBEDDING_GROUP", (ranks[0], ranks[-1]))
        return Group(f"pp{data}.{tensor}", "PIPELINE_MODEL_PARALLEL_GROUP", ranks)

    def groups_of(self, rank: int) -> tuple[Group, ...]:
        kinds = ["dp"] + ["tp"] * (self.tensor_parallel > 1) + ["pp", "embedding"] * (self.pipeline > 1)
        groups = [self.group(kind, rank) for kind in kinds]
        return tuple(group for group in groups if len(group.ranks) > 1)

    def bus_gb_per_s(self, ranks: tuple[int, ...]) -> float:
        """Return the bus bandwidth that a ring over these ranks reaches."""
        nodes = [rank // self.gpus_per_node for rank in ranks]
        inside = XGMI if self.gpu == "MI300X" else NVLINK
        return inside if len(set(nodes)) == 1 else min(inside, RAIL * max(nodes.count(node) for node in nodes))


@dataclass(slots=True)
class Trainer:
    """The host program of one rank."""

    job: Training
    rank: Rank
    stage: int
    data: int
    lengths: Random
    scale: float = 1.0
    step: int = 0

    # -- device work ------------------------------------------------------------------------------------------------

    def gemm(self) -> str:
        if self.job.gpu == "MI300X":
            return AMD_GEMM
        return {"bf16": BF16, "tf32": TF32, "fp32": FP32}[self.job.precision]

    def layer(self, number: int, way: str) -> Program:
        """Launch one layer; yields while the queue is full."""
        job, rank = self.job, self.rank
        share = job.layer_ms * MS * self.scale * (2 if way == "bwd" else 1)
        stage_factor = dict(job.stage_scale).get(self.stage, 1.0)
        share *= stage_factor
        prefix = "autograd::engine::evaluate_function: " if way == "bwd" else ""
        plan = [
            (self.gemm(), "AddmmBackward0" if prefix else "aten::addmm", 0.3),
            (FLASH.format(way=way), "FlashAttentionBackward0" if prefix else "aten::_flash_attention_forward", 0.2),
            (self.gemm(), "MmBackward0" if prefix else "aten::mm", 0.45),
            (ELEMENTWISE, "GeluBackward0" if prefix else "aten::gelu", 0.05),
        ]
        if job.compiled:
            plan[3] = (TRITON.format(n=number), plan[3][1], 0.05)
        copies = max(1, job.kernels_per_layer // 4)
        yield from rank.throttle()
        if job.graphs:
            external, correlation, start = rank.new_id(), rank.new_id(), rank.clock
            rank.clock += 12 * US
            rank.record(
                "cuda_runtime", "cudaGraphLaunch", start, rank.clock,
                **{"External id": external, "cbid": 311, "correlation": correlation},
            )  # fmt: skip
            for name, _, part in plan * copies:
                self.graph_kernel(name, share * part / copies, external, correlation)
            return
        for _ in range(copies):
            for name, operator, part in plan:
                kernel = ELEMENTWISE if job.short_kernels else name
                rank.launch(prefix + operator, kernel, share * part / copies, noise=job.noise)
                rank.spend((job.host_us - 9) * US if job.host_us > 9 else 0)

    def graph_kernel(self, name: str, ns: float, external: int, correlation: int) -> None:
        """Add a kernel of the graph that was launched last."""
        rank = self.rank
        ns *= rank.slowdown * (1 + self.job.noise * rank.random.gauss(0, 1))
        work = Work(
            name, "kernel", 7, int(ns), rank.clock + 4 * US, correlation, external, rank.last.get(7), (),
            {"graph node id": 1000 + len(rank.works)}, launched=rank.clock - 1,
        )  # fmt: skip
        rank.last[7] = work
        rank.works.append(work)

    def collective(self, kind: str, group: Group, megabytes: float, *, stream: int, waits: tuple[Work, ...], label: str = "") -> Work:
        """Launch a collective after ``waits``; ``megabytes``: of the whole tensor."""
        job, rank = self.job, self.rank
        size = len(group.ranks)
        kernel, operator, title = NCCL[kind]
        factor = {"allreduce": 2 * (size - 1) / size, "send": 1.0, "recv": 1.0}.get(kind, (size - 1) / size)
        transfer = megabytes * MS / job.bus_gb_per_s(group.ranks) * factor * job.transfer_scale
        transfer *= dict(job.slow_groups).get(group.name, 1.0)
        transfer = max(transfer, 12 * US) * (1 + 0.01 * abs(rank.random.gauss(0, 1)))
        elements = int(megabytes * 1e6 / 2)
        args: dict[str, Any] = {}
        if job.groups:
            split = elements // size
            args = {
                "Collective name": kind, "dtype": "BFloat16", "Group size": size, "In split size": "[]", "Out split size": "[]",
                "In msg nelems": split if kind == "_allgather_base" else elements,
                "Out msg nelems": split if kind == "_reduce_scatter_base" else elements,
                "Process Group Name": group.name, "Process Group Description": group.description,
                "Process Group Ranks": str(list(group.ranks)),
            }  # fmt: skip
        members, key = group.ranks, (kind, group.name, label)
        if kind in ("send", "recv"):
            peer = self.peer(kind, label)
            members = (rank.number, peer) if kind == "send" else (peer, rank.number)
            key = ("p2p", label)
        with rank.range(operator, "cpu_op"), rank.range("record_param_comms", "cpu_op"), rank.range(title):
            return rank.launch(
                None, kernel, transfer, stream=stream, waits=waits, call="cudaLaunchKernelExC", key=key, members=members, noise=0, **args,
            )  # fmt: skip

    def peer(self, kind: str, label: str) -> int:
        down = (kind == "send") == (label == "forward")
        tensor = self.job.coordinates(self.rank.number)[2]
        return self.job.rank_at(self.stage + (1 if down else -1), self.data, tensor)

    # -- the parts of a step ----------------------------------------------------------------------------------------

    def run(self) -> Program:
        """Run all steps, then wait for the device as the profiler does when it stops."""
        job, rank = self.job, self.rank
        if job.stacks:
            rank.frames.append(rank.new_id())
        for step in range(job.steps):
            self.step = step
            # Lengths differ per data-parallel rank and step; all stages of a pipeline get the same batch.
            spread = 1 + job.length_spread * (2 * self.lengths.random() - 1)
            self.scale = spread if job.length_spread else 1.0
            rank.slowdown = dict(job.slow_ranks).get(rank.number, 1.0) if step >= job.slow_from_step else 1.0
            with rank.range(f"ProfilerStep#{step + 10}" if job.step_ranges else None), rank.frame("train.py(61): train_step"):
                yield from self.input()
                if job.pipeline > 1:
                    yield from self.pipeline_step()
                else:
                    yield from self.plain_step()
                yield from self.after_step(step)
        yield from rank.wait(rank.works[-1], "cudaDeviceSynchronize")

    def input(self) -> Program:
        job, rank = self.job, self.rank
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        if job.loader_ms > 5:
            name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        with rank.range(name if job.loader_range else None), rank.frame("torch/utils/data/dataloader.py(630): __next__"):
            rank.spend(job.loader_ms * MS)
        if job.pageable_mb:
            with rank.frame("train.py(64): to_device"):
                yield from rank.blocking_copy(int(job.pageable_mb * 1e6), to_host=False)
        else:
            rank.launch(
                "aten::copy_", "Memcpy HtoD (Pinned -> Device)", job.pinned_mb * 1e6 / 24, category="gpu_memcpy", call="cudaMemcpyAsync",
                bytes=int(job.pinned_mb * 1e6),
            )  # fmt: skip
        for _ in range(job.blocking_copies):
            with rank.frame("model/sparse.py(142): lengths_to_host"):
                yield from rank.blocking_copy(704)
        rank.spend(job.input_host_ms * MS)
        late = dict(job.late_ranks).get(rank.number, 0)
        if late:
            with rank.range(job.late_range), rank.frame("metrics.py(31): log_metrics"):
                rank.spend(late * MS)

    def plain_step(self) -> Program:
        job, rank = self.job, self.rank
        group = job.group("dp", rank.number)
        module = {"ddp": "DistributedDataParallel.forward", "fsdp": "FullyShardedDataParallel.forward"}.get(job.style)
        if not job.ranges:
            module = None
        gathered: dict[int, Work] = {}
        per_step_items = job.items
        for number in range(job.recompiles if self.step % 2 else 0):
            with rank.range("_compile.compile_inner", "cpu_op"), rank.frame("torch/_dynamo/convert_frame.py(700): compile_inner"):
                rank.spend(35 * MS + number)
        with rank.range(module), rank.range("Torch-Compiled Region: 0/0" if job.compiled else None, "cpu_op"):
            for layer in range(job.layers):
                waits = ()
                if job.style == "fsdp" and group.ranks != (rank.number,):
                    gather = gathered.get(layer) or self.gather(layer, group)
                    if job.prefetch and layer + 1 < job.layers:
                        gathered[layer + 1] = self.gather(layer + 1, group)
                    waits = (gather,)
                with rank.range(f"FSDP::pre_forward (layers.{layer})" if job.style == "fsdp" and job.ranges else None):
                    self.hold(waits)
                yield from self.layer(layer, "fwd")
                self.tensor_all_reduce()
                if per_step_items:
                    per_step_items -= 1
                    yield from rank.item()
                    rank.spend(job.item_host_ms * MS)
            for _ in range(per_step_items):
                yield from rank.item()
                rank.spend(job.item_host_ms * MS)
        rank.launch("aten::log_softmax", LOSS, 0.4 * MS, noise=job.noise)
        last = None
        gathered = {}
        with rank.autograd():
            for layer in reversed(range(job.layers)):
                if job.style == "fsdp" and group.ranks != (rank.number,):
                    gather = gathered.get(layer) or self.gather(layer, group)
                    if job.prefetch and layer:
                        gathered[layer - 1] = self.gather(layer - 1, group)
                    self.hold((gather,))
                yield from self.layer(layer, "bwd")
                self.tensor_all_reduce()
                if len(group.ranks) > 1 and job.style in ("ddp", "fsdp", "megatron") and job.overlap:
                    last = self.reduce(group, layer)
            if len(group.ranks) > 1 and job.style in ("ddp", "fsdp", "megatron") and not job.overlap:
                for layer in range(job.layers):
                    last = self.reduce(group, layer)
        if len(group.ranks) > 1 and job.style == "manual":
            for _ in range(job.layers):
                with rank.frame("train.py(93): average_gradients"):
                    last = self.collective("allreduce", group, job.layer_mb, stream=20, waits=(rank.last[7],), label="gradients")
                    if job.synchronous:
                        self.hold((last,))
                        yield from rank.wait(last)
        self.hold((last,) if last else ())
        self.optimizer()

    def gather(self, layer: int, group: Group) -> Work:
        waits = () if self.job.prefetch else (self.rank.last[7],)
        with self.rank.range(f"FSDP::all_gather (layers.{layer})" if self.job.ranges else None):
            return self.collective("_allgather_base", group, self.job.layer_mb, stream=20, waits=waits, label="parameters")

    def reduce(self, group: Group, layer: int) -> Work:
        """Reduce the gradients of a layer once its backward pass has ended."""
        kind = "_reduce_scatter_base" if self.job.style == "fsdp" else "allreduce"
        label = f"FSDP::post_backward_reduce (layers.{layer})" if self.job.style == "fsdp" and self.job.ranges else None
        hook = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad" if self.job.style == "ddp" else None
        with self.rank.range(hook, "cpu_op"), self.rank.range(label):
            stream = 24 if self.job.style == "fsdp" else 20
            return self.collective(kind, group, self.job.layer_mb, stream=stream, waits=(self.rank.last[7],), label="gradients")

    def hold(self, waits: tuple[Work, ...]) -> None:
        """Let the compute stream wait for other streams, with a tiny kernel."""
        if waits:
            start = self.rank.clock
            self.rank.clock += 2 * US
            self.rank.record(
                "cuda_runtime",
                "cudaStreamWaitEvent",
                start,
                self.rank.clock,
                **{"External id": self.rank.new_id(), "correlation": self.rank.new_id()},
            )
            self.rank.launch("aten::add_", ELEMENTWISE, 6 * US, waits=waits, noise=0)

    def tensor_all_reduce(self) -> None:
        job, rank = self.job, self.rank
        if job.tensor_parallel > 1:
            group = job.group("tp", rank.number)
            self.hold((self.collective("allreduce", group, 16.0, stream=28, waits=(rank.last[7],), label="activations"),))

    def optimizer(self) -> None:
        job, rank = self.job, self.rank
        with rank.frame("train.py(97): optimizer_step"), rank.range("Optimizer.step#AdamW.step" if job.ranges else None):
            for number in range(4):
                work = rank.launch("aten::_fused_adamw_", ADAM, job.optimizer_ms * MS / 4, noise=job.noise)
                work.delay = int(job.device_wait_ms * MS) if number == 0 else 0

    def pipeline_step(self) -> Program:
        """Run a schedule of one forward, one backward; then reduce the gradients."""
        job, rank = self.job, self.rank
        warm = min(job.pipeline - self.stage - 1, job.microbatches)
        for _ in range(warm):
            yield from self.microbatch("forward")
        for number in range(job.microbatches):
            if number < job.microbatches - warm:
                yield from self.microbatch("forward")
            yield from self.microbatch("backward")
        group = job.group("dp", rank.number)
        waits: tuple[Work, ...] = (rank.last[7],)
        if len(group.ranks) > 1:
            waits = (self.collective("_reduce_scatter_base", group, job.layer_mb * job.layers, stream=20, waits=waits, label="gradients"),)
        if self.stage in (0, job.pipeline - 1):
            embedding = job.group("embedding", rank.number)
            waits = (self.collective("allreduce", embedding, 60.0, stream=25, waits=waits, label="embedding"),)
        self.hold(waits)
        self.optimizer()
        if len(group.ranks) > 1:
            gather = self.collective(
                "_allgather_base", group, job.layer_mb * job.layers, stream=20, waits=(rank.last[7],), label="parameters"
            )
            self.hold((gather,))

    def microbatch(self, way: str) -> Program:
        job, rank = self.job, self.rank
        forward = way == "forward"
        first, last = self.stage == 0, self.stage == job.pipeline - 1
        pipe = job.group("pp", rank.number)
        with rank.range(f"{way}_step" if job.ranges else None):
            if not (first if forward else last):
                before = tuple(filter(None, [rank.last.get(7)]))  # PyTorch's communication streams wait for the current one
                self.hold((self.collective("recv", pipe, 24.0, stream=22 if forward else 24, waits=before, label=way),))
            if first and job.embedding_ms:
                rank.launch(
                    "aten::embedding", "void at::native::indexSelectLargeIndex<c10::BFloat16, long>", job.embedding_ms * MS, noise=job.noise
                )
            layers = range(dict(job.stage_layers).get(self.stage, job.layers))
            for layer in layers if forward else reversed(layers):
                yield from self.layer(layer, "fwd" if forward else "bwd")
                self.tensor_all_reduce()
            if last and job.loss_ms:
                rank.launch("aten::mm", self.gemm(), job.loss_ms * MS * 0.8 * (1 if forward else 2), noise=job.noise)
                rank.launch("aten::log_softmax", LOSS, job.loss_ms * MS * 0.2 * (1 if forward else 2), noise=job.noise)
            if not (last if forward else first):
                self.collective("send", pipe, 24.0, stream=21 if forward else 23, waits=(rank.last[7],), label=way)

    def after_step(self, step: int) -> Program:
        job, rank = self.job, self.rank
        if job.log_sync:
            with rank.frame("train.py(101): log_loss"):
                yield from rank.item(line="train.py(102): log_loss")
        if (
            job.gc_ms
            and (job.gc_ranks is None or rank.number in job.gc_ranks)
            and (step + rank.number * bool(job.gc_ranks)) % job.gc_every == 0
        ):
            with (
                rank.range("Python GC" if job.gc_visible and not job.stacks else None),
                rank.frame("train.py(110): collect_garbage"),
                rank.frame("<built-in function collect>"),
            ):
                rank.spend(job.gc_ms * MS)
        if job.checkpoint_ms and step == job.steps // 2 and (job.checkpoint_ranks is None or rank.number in job.checkpoint_ranks):
            with rank.range("## save_checkpoint ##" if job.checkpoint_visible else None), rank.frame("checkpoint.py(52): save_checkpoint"):
                rank.spend(job.checkpoint_ms * MS)


def simulate(job: Training) -> list[Rank]:
    """Return the ranks of a job with all their records."""
    ranks, programs = [], {}
    per_step = 8 * job.layers * max(1, job.kernels_per_layer // 4) * (job.microbatches if job.pipeline > 1 else 1) + 20
    for number in range(job.world_size):
        rank = Rank(
            number, 4000 + 11 * number, Random(f"{job.seed}.{number}"), ahead=max(4, int(per_step * job.ahead_steps)),
            host_ns=int(min(job.host_us, 9) * US), stacks=job.stacks,
            launch_call="hipLaunchKernel" if job.gpu == "MI300X" else "cudaLaunchKernel",
            clock=int(Random(f"{job.seed}.{number}.start").random() * 200 * US),
        )  # fmt: skip
        stage, data, _ = job.coordinates(number)
        trainer = Trainer(job, rank, stage, data, Random(f"{job.seed}.{data}.lengths"))
        ranks.append(rank)
        programs[number] = trainer.run()
    Engine(ranks).run(programs)
    return ranks


def span_ns(ranks: list[Rank]) -> int:
    """Return the time from the first to the last device work of a job."""
    works = [work for rank in ranks for work in rank.works]
    return max(work.end or 0 for work in works) - min(work.start or 0 for work in works)
